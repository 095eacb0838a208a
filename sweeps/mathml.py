"""Statements as MathML, for pages."""

from __future__ import annotations

import ast
import re
from html import escape, unescape

from overhead.expression import parse
from overhead.quantity import VOCABULARY, Quantity
from sweeps.latex import BINDING

_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "\N{MINUS SIGN}",
    ast.Mult: "\N{INVISIBLE TIMES}",
    ast.Mod: "mod",
    ast.BitAnd: "\N{LOGICAL AND}",
    ast.BitOr: "\N{LOGICAL OR}",
    ast.Lt: "<",
    ast.LtE: "≤",
    ast.Gt: ">",
    ast.GtE: "≥",
    ast.Eq: "=",
    ast.NotEq: "≠",
}
_NAMES = {"minimum": "min", "maximum": "max"}


def equation(returns: str, expression: str) -> str:
    """Return an equation as MathML."""
    return math(f"{symbol(VOCABULARY[returns].symbol)}{_sign('=')}{_mathml(parse(expression))}")


def of(quantity: Quantity) -> str:
    """Return a quantity's symbol as MathML."""
    return math(symbol(quantity.symbol))


def math(inner: str) -> str:
    """Return MathML as an element of a page."""
    space = "http://www.w3.org/1998/Math/MathML"
    return f'<math xmlns="{space}" displaystyle="true">{inner}</math>'


def symbol(latex: str) -> str:
    """Return a symbol of the vocabulary, which is LaTeX of letters and indices, as MathML."""
    parts = re.findall(r"\\[A-Za-z]+|\\.|.", latex)
    made = _group(parts)
    if parts:
        message = f"the symbol '{latex}' closes a group that it doesn't open"
        raise ValueError(message)
    return made


def _group(parts: list[str]) -> str:
    """Take atoms with their indices up to a group's end."""
    done = []
    while parts and parts[0] != "}":
        if parts[0] == " ":
            parts.pop(0)
            continue
        base = _atom(parts)
        marks = {"_": "", "^": ""}
        while parts and parts[0] in ("_", "^", "'"):
            mark = parts.pop(0)
            place = "^" if mark == "'" else mark
            marks[place] += "<mo>\N{PRIME}</mo>" if mark == "'" else _atom(parts)
        low, high = (f"<mrow>{mark}</mrow>" for mark in marks.values())
        both = {
            (True, True): ("msubsup", low + high),
            (True, False): ("msub", low),
            (False, True): ("msup", high),
        }
        tag, more = both.get((bool(marks["_"]), bool(marks["^"])), ("mrow", ""))
        done.append(f"<{tag}>{base}{more}</{tag}>" if more else base)
    return f"<mrow>{''.join(done)}</mrow>"


def _atom(parts: list[str]) -> str:
    """Take one letter, sign or group."""
    part = parts.pop(0)
    if part == "{":
        inner = _group(parts)
        parts.pop(0)
        return inner
    if part == r"\mathrm":
        end = parts.index("}")
        text = "".join(parts[1:end]).replace("\\", "")
        del parts[: end + 1]
        return f'<mi mathvariant="normal">{escape(text)}</mi>'
    if part in (r"\bar", r"\hat"):
        over = "\N{MACRON}" if part == r"\bar" else "^"
        return f"<mover>{_atom(parts)}<mo>{over}</mo></mover>"
    text = unescape(f"&{part[1:]};") if part.startswith("\\") and part[1:].isalpha() else part
    tag = "mn" if text.isdigit() else "mi" if text.isalpha() else "mo"
    return f"<{tag}>{escape(text.removeprefix(chr(92)))}</{tag}>"


def _sign(text: str) -> str:
    return f"<mo>{escape(text)}</mo>"


def _fenced(inner: str, left: str = "(", right: str = ")") -> str:
    return f"<mrow>{_sign(left)}{inner}{_sign(right)}</mrow>"


def _mathml(node: ast.expr, outer: int = 0) -> str:
    match node:
        case ast.Constant(value=int(value) | float(value)):
            return f"<mn>{value:.12g}</mn>"
        case ast.Name(id=name):
            return symbol(VOCABULARY[name].symbol)
        case ast.UnaryOp(operand=operand):
            return f"<mrow>{_sign(_SIGNS[ast.Sub])}{_mathml(operand, 3)}</mrow>"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            made = f"<mfrac>{_mathml(left)}{_mathml(right)}</mfrac>"
            return _fenced(made) if outer > BINDING[ast.Div] + 1 else made
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return f"<msup>{_mathml(left, 4)}{_mathml(right)}</msup>"
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _is(left, right):
            return f"<msup>{_mathml(left, 4)}<mn>2</mn></msup>"
        case ast.BinOp(
            left=ast.BinOp(left=first, op=ast.Mult() as op, right=left), op=ast.Mult(), right=right
        ) if _is(left, right):
            square = ast.BinOp(left, ast.Mult(), right)
            return _mathml(ast.BinOp(first, op, square), outer)
        case ast.BinOp(left=left, op=op, right=right):
            own = BINDING[type(op)]
            second = own + 1 if isinstance(op, ast.Sub | ast.Mod) else own
            sign = _sign(_SIGNS[type(op)])
            made = f"<mrow>{_mathml(left, own)}{sign}{_mathml(right, second)}</mrow>"
            return _fenced(made) if own < outer else made
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            made = f"<mrow>{_mathml(left)}{_sign(_SIGNS[type(op)])}{_mathml(right)}</mrow>"
            return _fenced(made) if outer else made
        case ast.Call(func=ast.Name(id=name), args=args):
            return _mathml_call(name, [_mathml(arg) for arg in args])
    message = f"no MathML for {ast.unparse(node)}"
    raise ValueError(message)


def _is(one: ast.expr, other: ast.expr) -> bool:
    """Return whether two factors are one quantity, whose product is its square."""
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def _mathml_call(name: str, args: list[str]) -> str:
    match name:
        case "expm1":
            less = f"{_sign(_SIGNS[ast.Sub])}<mn>1</mn>"
            return _fenced(f"<msup><mi>e</mi>{args[0]}</msup>{less}")
        case "power_sum":
            *both, power = args
            powers = _sign("+").join(f"<msup>{_fenced(one)}{power}</msup>" for one in both)
            root = f"<mfrac><mn>1</mn>{power}</mfrac>"
            return f"<msup>{_fenced(powers)}{root}</msup>"
        case "never_drawn":
            total, marked, draws = args
            left = f"<mrow>{total}{_sign(_SIGNS[ast.Sub])}{marked}</mrow>"
            drawn = [
                _fenced(f'<mfrac linethickness="0">{one}{draws}</mfrac>') for one in (left, total)
            ]
            return f"<mfrac>{''.join(drawn)}</mfrac>"
        case "square_divisor":
            least = f"{_sign('|')}{args[0]},<mi>k</mi>{_sign('≤')}<msqrt>{args[0]}</msqrt>"
            shown = f'<mi mathvariant="normal">max</mi>{_fenced(f"<mi>k</mi>{least}", "{", "}")}'
            return f"<mrow>{shown}</mrow>"
        case "sqrt":
            return f"<msqrt>{args[0]}</msqrt>"
        case "ceil":
            return _fenced(args[0], "⌈", "⌉")
        case "floor":
            return _fenced(args[0], "⌊", "⌋")
        case "exp":
            return f"<msup><mi>e</mi>{args[0]}</msup>"
        case "where":
            rows = ((args[1], "if", args[0]), (args[2], "else", ""))
            cells = "".join(
                f"<mtr><mtd>{value}</mtd><mtd><mtext>{word}\N{NO-BREAK SPACE}</mtext>{condition}"
                "</mtd></mtr>"
                for value, word, condition in rows
            )
            return f"<mrow><mo>{{</mo><mtable>{cells}</mtable></mrow>"
    comma = _sign(",")
    if name.startswith("negative_binomial"):
        mark = "P" if name.endswith("tail") else "Q"
        below = '<mi mathvariant="normal">NB</mi>'
        return f"<mrow><msub><mi>{mark}</mi>{below}</msub>{_fenced(comma.join(args))}</mrow>"
    shown = f'<mi mathvariant="normal">{escape(_NAMES.get(name, name))}</mi>'
    if name == "log2":
        shown = '<msub><mi mathvariant="normal">log</mi><mn>2</mn></msub>'
    return f"<mrow>{shown}{_fenced(comma.join(args))}</mrow>"
