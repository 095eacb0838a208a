"""Statements as LaTeX, with the vocabulary's symbols."""

from __future__ import annotations

import ast

from overhead.expression import parse
from overhead.quantity import VOCABULARY

# How tightly operators bind.
BINDING: dict[type[ast.AST], int] = {
    ast.Add: 1,
    ast.Sub: 1,
    ast.Mult: 2,
    ast.Div: 2,
    ast.Mod: 2,
    ast.Pow: 4,
    ast.BitAnd: 0,
    ast.BitOr: 0,
}
_SIGNS: dict[type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: r"\leq",
    ast.Gt: ">",
    ast.GtE: r"\geq",
    ast.Eq: "=",
    ast.NotEq: r"\neq",
}


def equation(returns: str, expression: str) -> str:
    """Return an equation as LaTeX."""
    return f"{VOCABULARY[returns].symbol} = {latex(expression)}"


def latex(expression: str) -> str:
    """Return an expression as LaTeX, with the vocabulary's symbols."""
    return _latex(parse(expression), 0)


def _latex(node: ast.expr, outer: int) -> str:
    match node:
        case ast.Constant(value=int(value) | float(value)):
            return f"{value:.12g}"
        case ast.Name(id=name):
            return VOCABULARY[name].symbol if name in VOCABULARY else rf"\mathrm{{{name}}}"
        case ast.UnaryOp(operand=operand):
            return f"-{_latex(operand, 3)}"
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _is(left, right):
            return f"{{{_latex(left, 4)}}}^{{2}}"
        case ast.BinOp(
            left=ast.BinOp(left=first, op=ast.Mult() as op, right=left), op=ast.Mult(), right=right
        ) if _is(left, right):
            square = ast.BinOp(left, ast.Mult(), right)
            return _latex(ast.BinOp(first, op, square), outer)
        case ast.BinOp():
            return _latex_binary(node, outer)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            text = f"{_latex(left, 0)} {_SIGNS[type(op)]} {_latex(right, 0)}"
            return rf"\left({text}\right)" if outer else text
        case ast.Call(func=ast.Name(id=name), args=args):
            return _latex_call(name, [_latex(arg, 0) for arg in args])
    return ast.unparse(node)


def _is(first: ast.expr, other: ast.expr) -> bool:
    """Return whether two factors are one quantity, whose product is its square."""
    return isinstance(first, ast.Name) and isinstance(other, ast.Name) and first.id == other.id


def _latex_binary(node: ast.BinOp, outer: int) -> str:
    precedence = BINDING[type(node.op)]
    match node.op:
        case ast.Div():
            text = rf"\frac{{{_latex(node.left, 0)}}}{{{_latex(node.right, 0)}}}"
            return rf"\left({text}\right)" if precedence < outer - 1 else text
        case ast.Pow():
            return f"{{{_latex(node.left, 4)}}}^{{{_latex(node.right, 0)}}}"
        case ast.Mult():
            sign = r" \, "
        case ast.Mod():
            sign = r" \, \mathrm{mod} \, "
        case ast.Add():
            sign = " + "
        case ast.Sub():
            sign = " - "
        case _:
            sign = r" \wedge " if isinstance(node.op, ast.BitAnd) else r" \vee "
    right = precedence + 1 if isinstance(node.op, ast.Sub | ast.Mod) else precedence
    text = f"{_latex(node.left, precedence)}{sign}{_latex(node.right, right)}"
    return rf"\left({text}\right)" if precedence < outer else text


def _latex_call(name: str, args: list[str]) -> str:
    fenced = {
        "ceil": (r"\left\lceil ", r" \right\rceil"),
        "floor": (r"\left\lfloor ", r" \right\rfloor"),
        "sqrt": (r"\sqrt{", "}"),
    }
    if name in fenced:
        left, right = fenced[name]
        return f"{left}{args[0]}{right}"
    if name == "where":
        return rf"\left({args[1]} \text{{ if }} {args[0]}, \text{{ else }} {args[2]}\right)"
    if name == "popcount_sum":
        return rf"\sum_{{d<{args[0]}}} \mathrm{{popcount}}(d)"
    if name == "never_drawn":
        total, marked, draws = args
        drawn = rf"\binom{{{total} - {marked}}}{{{draws}}}", rf"\binom{{{total}}}{{{draws}}}"
        return rf"\frac{{{drawn[0]}}}{{{drawn[1]}}}"
    if name == "power_sum":
        *both, power = args
        powers = " + ".join(rf"{{\left({term}\right)}}^{{{power}}}" for term in both)
        return rf"{{\left({powers}\right)}}^{{\frac{{1}}{{{power}}}}}"
    if name == "square_divisor":
        return rf"\max\left\{{k \mid {args[0]}, k \leq \sqrt{{{args[0]}}}\right\}}"
    if name == "exp":
        return f"{{e}}^{{{args[0]}}}"
    if name == "expm1":
        return rf"\left({{e}}^{{{args[0]}}} - 1\right)"
    if name.startswith("negative_binomial"):
        shown = "P" if name.endswith("tail") else "Q"
        return rf"{shown}_\mathrm{{NB}}\left({', '.join(args)}\right)"
    shown = {
        "minimum": r"\min",
        "maximum": r"\max",
        "log2": r"\log_2",
        "gcd": r"\gcd",
        "layers_of_kind": r"L_\mathrm{kind}",
        "heaviest_stage": r"i_\mathrm{heaviest}",
        "interleaved_time": r"t_\mathrm{interleaved}",
    }[name]
    return rf"{shown}\left({', '.join(args)}\right)"
