"""Calculations in launch files: whole numbers and lists of them, read by syntax and never run."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

_LARGEST, _LONGEST = 10**18, 10_000  # number, and list: as many layers
_SIGNS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def calculated(text: str, names: Mapping[str, object] | None = None) -> int | None:
    """Return a sum, product or quotient of whole numbers and names of some; None of others."""
    value = _evaluated(text, names or {})
    return value if isinstance(value, int) else None


def listed(text: str) -> list[int] | None:
    """Return a list of whole numbers as Python writes it, such as ``([0]*3+[1]*58)``."""
    values = _evaluated(text, {})
    whole = isinstance(values, list) and all(isinstance(value, int) for value in values)
    return values if whole and len(values) <= _LONGEST else None


def _evaluated(text: str, names: Mapping[str, object]) -> Any:
    try:
        with warnings.catch_warnings():  # of what is odd in a text nobody is to hear
            warnings.simplefilter("ignore")
            node = ast.parse(text.strip(), mode="eval").body
        return _value(node, names)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, names: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if isinstance(names.get(name), int):
            return _value(ast.Constant(names[name]), {})  # type: ignore[arg-type]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(element, names) for element in elements]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, names)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
            sides = _value(left, names), _value(right, names)
            sizes = [len(side) if isinstance(side, list) else abs(side) for side in sides]
            most = _LONGEST if any(isinstance(side, list) for side in sides) else _LARGEST
            if isinstance(sign, ast.Mult) and sizes[0] * sizes[1] > most:
                raise ValueError
            result = _SIGNS[type(sign)](*sides)
            if isinstance(result, list) or abs(result) <= _LARGEST:
                return result
    raise ValueError
