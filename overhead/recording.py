"""What a function computes, as an expression: it runs on values that record each operation.

A recorded value stands for one number.  It follows Python's operators and numpy's functions, and
holds the expression's syntax tree, in the language of `overhead.expression`.
"""

from __future__ import annotations

import ast
import copy
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from overhead.arrays import NAMESPACE, PLAIN, in_numpy, xp

Function = TypeVar("Function", bound=Callable[..., Any])

# Operators by their ufuncs.
ARITHMETIC: dict[np.ufunc, type[ast.operator]] = {
    np.add: ast.Add,
    np.subtract: ast.Sub,
    np.multiply: ast.Mult,
    np.true_divide: ast.Div,
    np.remainder: ast.Mod,
    np.power: ast.Pow,
}
COMPARISONS: dict[np.ufunc, type[ast.cmpop]] = {
    np.less: ast.Lt,
    np.less_equal: ast.LtE,
    np.greater: ast.Gt,
    np.greater_equal: ast.GtE,
    np.equal: ast.Eq,
    np.not_equal: ast.NotEq,
}
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
BOTH_OR_EITHER: dict[np.ufunc, type[ast.operator]] = {
    np.logical_and: ast.BitAnd,
    np.bitwise_and: ast.BitAnd,
    np.logical_or: ast.BitOr,
    np.bitwise_or: ast.BitOr,
}
CALLS: dict[np.ufunc, str] = {
    np.ceil: "ceil",
    np.floor: "floor",
    np.exp: "exp",
    np.expm1: "expm1",
    np.log2: "log2",
    np.sqrt: "sqrt",
    np.minimum: "minimum",
    np.maximum: "maximum",
}


# A longer expression tells a reader less than its words, and takes long to simplify.
MOST_PARTS = 2000


class RecordingError(TypeError):
    """What a function does can't be recorded."""

    def of(self, name: str, argument: str) -> RecordingError:
        """Return the error of what is declared, with the argument that states it instead."""
        message = f"{name}: no expression follows from its code ({self}); give it {argument}=.."
        return RecordingError(message)


class Recorded(np.lib.mixins.NDArrayOperatorsMixin):
    """A number that holds the syntax tree of how it was computed."""

    shape: tuple[int, ...] = ()
    ndim = 0
    size = 1
    dtype = np.dtype(np.float64)

    def __init__(self, tree: ast.expr) -> None:
        if next(islice(ast.walk(tree), MOST_PARTS, None), None) is not None:
            msg = "an expression that nobody would read"
            raise RecordingError(msg)
        self.tree = tree

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Recorded:
        if method != "__call__" or options:
            msg = f"{ufunc.__name__}.{method} with {list(options)}"
            raise RecordingError(msg)
        return Recorded(_ufunc(ufunc, [tree_of(arg) for arg in args]))

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Any) -> Any:
        if function not in FUNCTIONS:
            msg = f"{function.__name__} of a recorded value: no expression has this function"
            raise RecordingError(msg)
        return FUNCTIONS[function](*args, **options)

    def astype(self, dtype: Any = None, **_: Any) -> Recorded:
        """Return itself, which is a number or a condition."""
        if dtype is not None and np.dtype(dtype) not in (np.float64, np.bool_):
            msg = f"a value's cast to {np.dtype(dtype)}"
            raise RecordingError(msg)
        return self

    def called(self, name: str, args: Sequence[Any]) -> Recorded:
        """Return what a function gives of values, of which this is the first recorded one."""
        return Recorded(_call(name, *map(tree_of, args)))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        msg = "a value is needed where an expression is recorded"
        raise RecordingError(msg)

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __len__ = __getitem__ = _refuse


def named(name: str = "") -> Callable[[Function], Function]:
    """Let a function be called by its name in expressions, rather than be recorded itself."""

    def declare(function: Function) -> Function:
        @wraps(function)
        def called(*args: Any) -> Any:
            recorded = next((arg for arg in args if isinstance(arg, Recorded)), None)
            if recorded is not None:
                return recorded.called(name or function.__name__, args)
            if all(isinstance(arg, PLAIN) for arg in args):
                return function(*args)
            # What loops over numbers is numpy's alone.
            return xp.asarray(function(*map(in_numpy, args)))

        return called  # type: ignore[return-value]

    return declare


def record(function: Callable[..., Any], inputs: Sequence[str]) -> ast.expr:
    """Return what a function of quantities computes.

    Raises
    ------
    RecordingError
        If it needs a value itself, or a function that expressions lack.
    """
    with recording():
        return number(tree_of(function(*(Recorded(ast.Name(name)) for name in inputs))))


def ufunc_of(tree: ast.expr, inputs: Sequence[str]) -> np.ufunc | None:
    """Return the ufunc of two inputs, in their order, that a tree is; None if it is none."""
    match tree:
        case ast.BinOp(left=ast.Name(id=one), op=op, right=ast.Name(id=other)):
            ufuncs = [ufunc for ufunc, kind in ARITHMETIC.items() if isinstance(op, kind)]
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=one), ast.Name(id=other)]):
            ufuncs = [ufunc for ufunc, called in CALLS.items() if called == name]
        case _:
            return None
    return ufuncs[0] if ufuncs and (one, other) == tuple(inputs) else None


_LOCK = threading.RLock()


@contextmanager
def recording() -> Iterator[None]:
    """Let recorded values pass where numpy makes arrays, which asks no argument for its type.

    Raises
    ------
    RecordingError
        If what runs within fails.
    """
    with _LOCK, NAMESPACE.changing():
        plain = {name: getattr(np, name) for name in ("asarray", "array", "asanyarray")}

        def passing(make: Callable[..., Any]) -> Callable[..., Any]:
            def made(value: Any, dtype: Any = None, **options: Any) -> Any:
                if isinstance(value, Recorded):
                    return value.astype(dtype)
                return make(value, dtype, **options)

            return made

        try:
            for name, make in plain.items():
                setattr(np, name, passing(make))
            yield
        except RecordingError:
            raise
        except Exception as error:
            raise RecordingError(str(error)) from error
        finally:
            for name, make in plain.items():
                setattr(np, name, make)


# Trees, simplified as they grow.


def tree_of(value: Any) -> ast.expr:
    """Return the tree of a recorded value or of a plain number."""
    if isinstance(value, Recorded):
        return value.tree
    if isinstance(value, bool | int | float | np.generic | np.ndarray) and np.ndim(value) == 0:
        return _constant(float(value))
    msg = f"{type(value).__name__} beside a recorded value"
    raise RecordingError(msg)


def _constant(value: float) -> ast.expr:
    if not np.isfinite(value):
        msg = f"{value} in an expression"
        raise RecordingError(msg)
    if value < 0:
        return ast.UnaryOp(ast.USub(), _constant(-value))
    return ast.Constant(int(value) if float(value).is_integer() else value)


def constant_of(tree: ast.expr) -> float | None:
    """Return the number that a tree is, or None."""
    match tree:
        case ast.Constant(value=float() | int() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float() | int() as value)):
            return -float(value)
    return None


def is_condition(tree: ast.expr) -> bool:
    """Whether a tree is true or false."""
    return isinstance(tree, ast.Compare) or (
        isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitAnd | ast.BitOr)
    )


def number(tree: ast.expr) -> ast.expr:
    """Return a tree as a number: a condition is 1 or 0."""
    return _call("where", tree, _constant(1), _constant(0)) if is_condition(tree) else tree


def _condition(tree: ast.expr) -> ast.expr:
    """Return the condition that is 1 or 0, if a tree is one; else the tree."""
    match tree:
        case ast.Call(func=ast.Name(id="where"), args=[condition, yes, no]) if (
            constant_of(yes) == 1.0 and constant_of(no) == 0.0
        ):
            return condition
    return tree


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(args), [])


def _same(first: ast.expr, other: ast.expr) -> bool:
    return first is other or ast.dump(first) == ast.dump(other)


def _ufunc(ufunc: np.ufunc, args: Sequence[ast.expr]) -> ast.expr:
    if ufunc in ARITHMETIC:
        first, other = map(number, args)
        return _arithmetic(ARITHMETIC[ufunc], first, other)
    if ufunc in COMPARISONS:
        return _compare(COMPARISONS[ufunc], *args)
    if ufunc in BOTH_OR_EITHER:
        return _joined(BOTH_OR_EITHER[ufunc], *map(_condition, args))
    if ufunc in CALLS:
        return _call(CALLS[ufunc], *map(number, args))
    if ufunc in FURTHER:
        return FURTHER[ufunc](*args)
    msg = f"{ufunc.__name__} isn't a function of expressions"
    raise RecordingError(msg)


def _joined(op: type[ast.operator], first: ast.expr, other: ast.expr) -> ast.expr:
    """Return that both conditions hold, or either; one of them may be a plain truth."""
    for truth, rest in ((constant_of(first), other), (constant_of(other), first)):
        if truth is not None:
            decides = (truth == 0.0) == (op is ast.BitAnd)
            return _constant(truth) if decides else rest
    return ast.BinOp(first, op(), other)


def _compare(op: type[ast.cmpop], first: ast.expr, other: ast.expr) -> ast.expr:
    first = number(first)
    if constant_of(other) == 0.0:
        factor, rest = _factor(first)
        first = rest if factor > 0.0 and constant_of(first) is None else first
    return ast.Compare(first, [op()], [number(other)])


def _not(tree: ast.expr) -> ast.expr:
    match tree:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return ast.Compare(left, [OPPOSITE[type(op)]()], [right])
    return _where(tree, _constant(0), _constant(1))


def _negative(tree: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.USub(), number(tree))


def _where(condition: ast.expr, yes: ast.expr, no: ast.expr) -> ast.expr:
    condition = _condition(condition)
    truth = constant_of(condition)
    if truth is not None:
        return number(yes if truth else no)
    yes, no = _knowing(condition, 1, number(yes)), _knowing(condition, 2, number(no))
    return yes if _same(yes, no) else _call("where", condition, yes, no)


def _knowing(condition: ast.expr, branch: int, tree: ast.expr) -> ast.expr:
    """Return a tree where a condition holds (branch 1) or doesn't (2): its guards are known."""
    guarded = any(
        isinstance(node, ast.Call) and _name_of(node) == "where" and _same(node.args[0], condition)
        for node in ast.walk(tree)
    )
    return _Known(condition, branch).visit(copy.deepcopy(tree)) if guarded else tree


class Replacing(ast.NodeTransformer):
    """Puts one tree in the place of another."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = ast.dump(old), new

    def of(self, tree: ast.expr) -> ast.expr:
        """Return a tree with the replacement made."""
        replaced: ast.expr = self.visit(copy.deepcopy(tree))
        return replaced

    def visit(self, node: ast.AST) -> Any:
        """Replace a tree."""
        return self.new if ast.dump(node) == self.old else self.generic_visit(node)


class _Known(ast.NodeTransformer):
    """Takes one branch wherever a condition is asked for."""

    def __init__(self, condition: ast.expr, branch: int) -> None:
        self.condition, self.branch = condition, branch

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Take the branch of a ``where``."""
        guard = _name_of(node) == "where" and _same(node.args[0], self.condition)
        return self.visit(node.args[self.branch]) if guard else self.generic_visit(node)


def _name_of(tree: ast.AST) -> str:
    """Return the name of the function that a tree calls; empty if it calls none."""
    return tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else ""


def _arithmetic(op: type[ast.operator], first: ast.expr, other: ast.expr) -> ast.expr:
    left, right = constant_of(first), constant_of(other)
    if op is ast.Add and left == 0.0:
        return other
    if op is ast.Add and left is None and _same(first, other):
        return _product(_constant(2), first)
    if op in (ast.Add, ast.Sub) and right == 0.0:
        return first
    if op is ast.Add and isinstance(other, ast.UnaryOp):
        return ast.BinOp(first, ast.Sub(), other.operand)
    if op is ast.Mult:
        return _product(first, other)
    if op is ast.Add:
        (first, left), (other, right) = _ending(first), _ending(other)
        if left and right:
            return _ended(ast.BinOp(first, ast.Add(), other), left + right)
        first, other = _ended(first, left), _ended(other, right)
    if op in (ast.Div, ast.Pow) and right == 1.0:
        return first
    return ast.BinOp(first, op(), other)


def _ending(tree: ast.expr) -> tuple[ast.expr, float]:
    """Return a sum without the number at its end, and that number."""
    match tree:
        case ast.BinOp(left=rest, op=ast.Add() | ast.Sub() as op, right=right):
            last = constant_of(right) or 0.0
            return (rest, last if isinstance(op, ast.Add) else -last) if last else (tree, 0.0)
    return tree, 0.0


def _ended(tree: ast.expr, last: float) -> ast.expr:
    if not last:
        return tree
    return ast.BinOp(tree, ast.Add() if last > 0.0 else ast.Sub(), _constant(abs(last)))


def _power(tree: ast.expr) -> tuple[ast.expr, float]:
    """Return the base and the exponent of what is a power or a square."""
    match tree:
        case ast.BinOp(left=base, op=ast.Pow(), right=right):
            return base, constant_of(right) or 1.0
        case ast.BinOp(left=base, op=ast.Mult(), right=again) if _same(base, again):
            return base, 2.0
    return tree, 1.0


def _product(first: ast.expr, other: ast.expr) -> ast.expr:
    (base, exponent), (again, further) = _power(first), _power(other)
    total = exponent + further
    more = total > 2.0 or _factor(base)[0] != 1.0
    if more and constant_of(base) is None and _same(base, again):
        return ast.BinOp(base, ast.Pow(), _constant(total))
    (left, first), (right, other) = _factor(first), _factor(other)
    factor = left * right
    if factor == 0.0:
        return _constant(0)
    match other:
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Div(), right=divisor):
            return ast.BinOp(_scaled(factor, first), ast.Div(), divisor)
    for indicator, value in ((first, other), (other, first)):
        condition = _condition(indicator)
        if condition is not indicator:
            return _where(condition, _scaled(factor, value), _constant(0))
    if constant_of(first) == 1.0 or constant_of(other) == 1.0:
        return _scaled(factor, other if constant_of(first) == 1.0 else first)
    return ast.BinOp(_scaled(factor, first), ast.Mult(), other)


def _factor(tree: ast.expr) -> tuple[float, ast.expr]:
    """Return the number with which a product begins, and the rest."""
    value = constant_of(tree)
    if value is not None:
        return value, _constant(1)
    match tree:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            factor, rest = _factor(left)
            if factor == 1.0:
                return 1.0, tree
            if isinstance(op, ast.Mult):
                return factor, right if constant_of(rest) == 1.0 else ast.BinOp(rest, op, right)
            return (1.0, tree) if constant_of(rest) == 1.0 else (factor, ast.BinOp(rest, op, right))
    return 1.0, tree


def _scaled(factor: float, tree: ast.expr) -> ast.expr:
    if factor == 1.0:
        return tree
    if constant_of(tree) == 1.0:
        return _constant(factor)
    match tree:
        # Products are written from the left: 2*a*b.
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            return ast.BinOp(_scaled(factor, left), op, right)
    return ast.BinOp(_constant(factor), ast.Mult(), tree)


FURTHER: dict[np.ufunc, Callable[..., ast.expr]] = {
    np.negative: _negative,
    np.positive: lambda tree: tree,
    np.exp2: lambda tree: ast.BinOp(_constant(2), ast.Pow(), number(tree)),
    np.square: lambda tree: ast.BinOp(number(tree), ast.Pow(), _constant(2)),
    np.floor_divide: lambda first, other: _call("floor", _arithmetic(ast.Div, first, other)),
    np.logical_not: _not,
    np.invert: _not,
}


def _select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0.0) -> Any:
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        default = np.where(condition, choice, default)
    return default


# numpy's functions that aren't ufuncs, of recorded values.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: lambda *args: Recorded(_where(*map(tree_of, args))),
    np.select: _select,
    np.clip: lambda value, low, high: np.minimum(np.maximum(value, low), high),
    np.zeros_like: lambda *_, **__: 0.0,
    np.ones_like: lambda *_, **__: 1.0,
    np.full_like: lambda _, value, **__: value,
    np.broadcast_to: lambda value, _shape: value,
    np.broadcast_arrays: lambda *values: list(values),
    np.shape: lambda _: (),
    np.ndim: lambda _: 0,
}


# Trees as text, with no more parentheses than they need.

_SIGNS: dict[type[ast.AST], tuple[str, int]] = {
    ast.BitOr: (" | ", 1),
    ast.BitAnd: (" & ", 2),
    ast.Add: (" + ", 5),
    ast.Sub: (" - ", 5),
    ast.Mult: ("*", 6),
    ast.Div: ("/", 6),
    ast.Mod: (" % ", 6),
    ast.Pow: ("**", 8),
    ast.Lt: (" < ", 4),
    ast.LtE: (" <= ", 4),
    ast.Gt: (" > ", 4),
    ast.GtE: (" >= ", 4),
    ast.Eq: (" == ", 4),
    ast.NotEq: (" != ", 4),
}
_NEGATIVE = 7


def text(tree: ast.expr) -> str:
    """Return a tree as an expression."""
    return _text(tree, 0)


def _text(tree: ast.expr, outer: int) -> str:
    match tree:
        case ast.Constant(value=float() | int() as value):
            short = re.sub(r"e([+-]?)0*", lambda sign: f"e{sign[1].strip('+')}", f"{value:g}")
            return short if float(short) == value else repr(value)
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id=name), args=args):
            return f"{name}({', '.join(_text(arg, 0) for arg in args)})"
        case ast.UnaryOp(operand=operand):
            written, strength = f"-{_text(operand, _NEGATIVE)}", _NEGATIVE
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            sign, strength = _SIGNS[type(op)]
            written = f"{_text(left, strength + 1)}{sign}{_text(right, strength + 1)}"
        case ast.BinOp(left=left, op=op, right=right):
            sign, strength = _SIGNS[type(op)]
            written = (
                f"{_text(left, _left(op, left, strength))}{sign}{_text(right, _right(op, right))}"
            )
        case _:
            raise RecordingError(ast.dump(tree))
    return f"({written})" if strength < outer else written


def _left(op: ast.operator, left: ast.expr, strength: int) -> int:
    mixed = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) and strength == 6
    if isinstance(op, ast.BitAnd | ast.BitOr):
        return strength if isinstance(left, ast.BinOp) and type(left.op) is type(op) else _NEGATIVE
    return strength + 1 if mixed or isinstance(op, ast.Pow) else strength


def _right(op: ast.operator, right: ast.expr) -> int:
    strength = _SIGNS[type(op)][1]
    inner = right.op if isinstance(right, ast.BinOp) else None
    if isinstance(op, ast.BitAnd | ast.BitOr):
        return strength if type(inner) is type(op) else _NEGATIVE
    if isinstance(op, ast.Add) or (
        isinstance(op, ast.Mult) and isinstance(inner, ast.Mult | ast.Div)
    ):
        return strength
    return strength + 1
