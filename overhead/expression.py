"""Expressions as text that is evaluated, on arrays or with units."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from overhead import special
from overhead.arrays import xp
from overhead.interleaved import interleaved_time


def _of_arrays(name: str) -> Callable[..., Any]:
    """Return a function of whatever arrays are computed with."""

    def function(*values: Any) -> Any:
        return getattr(xp, name)(*values)

    return function


STANDARD = ("ceil", "exp", "expm1", "floor", "log2", "sqrt", "minimum", "maximum", "where")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _of_arrays(name) for name in STANDARD},
    "gcd": special.greatest_common_divisor,
    "popcount_sum": special.popcount_sum,
    "square_divisor": special.square_divisor,
    "never_drawn": special.never_drawn,
    "power_sum": special.power_sum,
    "negative_binomial_tail": special.negative_binomial_tail,
    "negative_binomial_quantile": special.negative_binomial_quantile,
    "layers_of_kind": special.layers_of_kind,
    "heaviest_stage": special.heaviest_stage,
    "interleaved_time": interleaved_time,
}

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


# A name, and nothing of a number such as 1e9.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@lru_cache(maxsize=4096)
def parse(expression: str) -> ast.expr:
    """Return an expression's syntax tree."""
    tree = ast.parse(expression, mode="eval").body
    for node in ast.walk(tree):
        _check(node, expression)
    return tree


def _check(node: ast.AST, expression: str) -> None:
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else "?"
        if called not in FUNCTIONS:
            message = f"'{expression}' calls '{called}'; known: {', '.join(FUNCTIONS)}"
            raise ValueError(message)
    allowed = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant)
    plain = (ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)
    if not isinstance(node, allowed + plain):
        message = f"'{expression}' holds a {type(node).__name__}, which no expression may"
        raise ValueError(message)


def names(expression: str) -> tuple[str, ...]:
    """Return the names of the quantities in an expression, in order of appearance."""
    identifiers = [node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(name for name in identifiers if name not in FUNCTIONS))


def words(expression: str) -> set[str]:
    """Return the same names as `names`, by their spelling alone: nothing else is checked."""
    return set(_WORD.findall(expression)) - set(FUNCTIONS)


def evaluate(
    expression: str,
    values: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Evaluate an expression."""
    return _value(parse(expression), values, functions or FUNCTIONS)


def _value(node: ast.expr, values: Mapping[str, Any], functions: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values, functions)
        case ast.BinOp(left=left, op=op, right=right):
            apply = _BINARY[type(op)]
            return apply(_value(left, values, functions), _value(right, values, functions))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            compare = _BINARY[type(op)]
            return compare(_value(left, values, functions), _value(right, values, functions))
        case ast.Call(func=ast.Name(id=name), args=args):
            return functions[name](*(_value(arg, values, functions) for arg in args))
    message = f"cannot evaluate {ast.unparse(node)}"
    raise ValueError(message)


def compiled(expression: str, names: Iterable[str]) -> Callable[..., Any]:
    """Return an expression as a function of quantities by their names."""
    parse(expression)
    function: Callable[..., Any] = eval(
        f"lambda {', '.join(names)}: {expression}", {"__builtins__": {}, **FUNCTIONS}
    )
    return function
