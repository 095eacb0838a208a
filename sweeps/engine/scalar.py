"""Nodes of a graph as one function of plain numbers, for questions that are asked again and again.

Each kernel runs once on values that record what it does, operation by operation.  Nothing is
simplified that would move a bit: what is written are Python's own operations where IEEE 754 says
what they give, and numpy's functions where libraries differ.  A kernel that can't be recorded,
since it looks at its values or works in arrays, is called as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from overhead.choose import best_of, code_of, select, where_defined
from overhead.expression import FUNCTIONS as NAMED
from overhead.graph import Node
from overhead.recording import FUNCTIONS, Recorded, RecordingError, recording

# What a value is: a number, a whole one (of bits), a truth.
NUMBER, WHOLE, TRUTH = "fib"
# Of each ufunc what is written.
OF_NUMBERS: dict[np.ufunc, str] = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.true_divide: "{0} / {1} if {1} else quotient({0}, {1})",
    np.floor_divide: "{0} // {1} if {1} else quotient({0}, {1})",
    np.remainder: "{0} % {1} if {1} else nan",
    np.negative: "-{0}",
    np.absolute: "abs({0})",
    np.floor: "{0} // 1.0 if {0} - {0} == 0.0 else {0}",
    np.ceil: "-(-{0} // 1.0) if {0} - {0} == 0.0 else {0}",
    np.sqrt: "sqrt({0}) if {0} >= 0.0 else nan",
    np.square: "{0} * {0}",
    np.minimum: "{0} if {0} < {1} or {0} != {0} else {1}",
    np.maximum: "{0} if {0} > {1} or {0} != {0} else {1}",
    **{operation: f"float(np.{operation.__name__}({{0}}))" for operation in (
        np.exp, np.expm1, np.exp2, np.log, np.log1p, np.log2, np.log10, np.rint, np.sign
    )},
}  # fmt: skip
# A quotient by a number that isn't 0.
BY_NUMBER = {np.true_divide: "{0} / {1}", np.floor_divide: "{0} // {1}", np.remainder: "{0} % {1}"}
OF_WHOLE = {np.add, np.subtract, np.multiply, np.negative, np.absolute}
COMPARED: dict[np.ufunc, str] = {
    np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
    np.equal: "{0} == {1}",
    np.not_equal: "{0} != {1}",
    np.isnan: "{0} != {0}",
    np.isfinite: "{0} - {0} == 0.0",
}
LOGICAL: dict[np.ufunc, str] = {
    np.logical_and: "{0} and {1}",
    np.logical_or: "{0} or {1}",
    np.logical_not: "not {0}",
}
OF_BITS: dict[np.ufunc, str] = {
    np.bitwise_and: "{0} & {1}",
    np.bitwise_or: "{0} | {1}",
    np.bitwise_xor: "{0} ^ {1}",
}
# What is used once stands where it is used, up to so many letters of a statement.
LONGEST = 300
# Values of a function that loops are kept for so many different arguments.
KEPT = 4096

Argument = int | str  # The place of an operation, or a number as text


class Tape:
    """Operations in the order in which they are done, the same one once."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, tuple[Argument, ...]]] = []
        self.functions: dict[str, Any] = {
            "np": np,
            "nan": math.nan,
            "inf": math.inf,
            "sqrt": math.sqrt,
            "quotient": quotient,
            "power": power,
        }
        self._places: dict[tuple[str, tuple[Argument, ...]], int] = {}

    def value(self, kind: str, code: str, *args: Argument) -> Traced:
        """Return the value of an operation."""
        key = code, args
        index = self._places.setdefault(key, len(self.operations))
        if index == len(self.operations):
            self.operations.append(key)
        return Traced(self, index, kind)

    def called(self, kind: str, function: Callable[..., Any], *args: Argument) -> Traced:
        """Return the value of a function."""
        name = f"f{len(self.functions)}"
        known = (
            function_name
            for function_name, candidate in self.functions.items()
            if candidate is function
        )
        name = next(known, name)
        self.functions[name] = function
        return self.value(kind, f"{name}({', '.join(f'{{{i}}}' for i in range(len(args)))})", *args)

    def of(self, value: Any, kind: str = "") -> Argument:
        """Return a value as an argument, of a kind if one is asked for."""
        if isinstance(value, Traced):
            return value.of_kind(kind).place if kind else value.place
        number = plain(value)
        if kind:
            number = {NUMBER: float, WHOLE: int, TRUTH: bool}[kind](number)
        return f"({number!r})" if number < 0 else repr(number)


class Traced(Recorded):
    """A number that stands for an operation on a tape; an array of one to kernels."""

    shape: tuple[int, ...] = (1,)
    ndim = 1

    def __init__(self, tape: Tape, index: int, kind: str) -> None:
        self.tape, self.place, self.kind = tape, index, kind

    def of_kind(self, kind: str) -> Traced:
        """Return the value as a number, a whole one or a truth."""
        if kind == self.kind:
            return self
        if kind == TRUTH:
            return self.tape.value(TRUTH, "{0} != 0", self.place)
        if kind == WHOLE and self.kind == NUMBER:
            msg = "a number's cast to a whole one"
            raise RecordingError(msg)
        return self.tape.value(kind, f"{'float' if kind == NUMBER else 'int'}({{0}})", self.place)

    def astype(self, dtype: Any = None, **_: Any) -> Traced:
        """Return the value as another type."""
        if dtype is None:
            return self
        kind = KINDS.get(np.dtype(dtype).kind)
        if kind is None:
            msg = f"a cast to {np.dtype(dtype)}"
            raise RecordingError(msg)
        return self.of_kind(kind)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Traced:
        if method != "__call__" or options:
            msg = f"{ufunc.__name__}.{method} with {list(options)}"
            raise RecordingError(msg)
        kinds = {kind_of(arg) for arg in args}
        if ufunc in COMPARED:
            return self._of(TRUTH, COMPARED[ufunc], args)
        if ufunc in LOGICAL or (ufunc is np.invert and kinds == {TRUTH}):
            return self._of(TRUTH, LOGICAL.get(ufunc, LOGICAL[np.logical_not]), args, TRUTH)
        if ufunc in OF_BITS and NUMBER not in kinds:
            return self._of(TRUTH if kinds == {TRUTH} else WHOLE, OF_BITS[ufunc], args)
        if ufunc in OF_NUMBERS and NUMBER in kinds:
            return self._number(ufunc, args)
        if ufunc in OF_WHOLE and WHOLE in kinds:
            return self._of(WHOLE, OF_NUMBERS[ufunc], args, WHOLE)
        if ufunc is np.power and NUMBER in kinds:
            return self._power(*args)
        msg = f"{ufunc.__name__} of {', '.join(sorted(kinds))}"
        raise RecordingError(msg)

    def _of(self, kind: str, code: str, args: Sequence[Any], taken: str = "") -> Traced:
        return self.tape.value(kind, code, *(self.tape.of(arg, taken) for arg in args))

    def _number(self, ufunc: np.ufunc, args: Sequence[Any]) -> Traced:
        code = OF_NUMBERS[ufunc]
        if ufunc in BY_NUMBER and not isinstance(args[1], Traced) and plain(args[1]):
            code = BY_NUMBER[ufunc]
        if ufunc is np.multiply:
            for factor, other in (args, args[::-1]):
                if not isinstance(factor, Traced) and plain(factor) == 1.0:
                    return other.of_kind(NUMBER)
        return self._of(NUMBER, code, args, NUMBER)

    def _power(self, base: Any, exponent: Any) -> Traced:
        if np.ndim(exponent) == 0 and not isinstance(exponent, Traced) and plain(exponent) == 2:
            return self._of(NUMBER, OF_NUMBERS[np.square], (base,), NUMBER)
        return self._of(NUMBER, "power({0}, {1})", (base, exponent), NUMBER)

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Any) -> Any:
        handler = OWN.get(function) or FUNCTIONS.get(function)
        if handler is None:
            msg = f"{function.__name__} of a traced value"
            raise RecordingError(msg)
        return handler(*args, **options)

    def called(self, name: str, args: Sequence[Any]) -> Traced:
        """Return what a function of expressions gives."""
        return self.tape.called(NUMBER, looping(name), *(self.tape.of(arg, NUMBER) for arg in args))


KINDS = {"f": NUMBER, "i": WHOLE, "u": WHOLE, "b": TRUTH}


def plain(value: Any) -> Any:
    """Return the one number of an array, or a number, as Python's."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.size == 1:
        return value.item()
    msg = f"{type(value).__name__} beside a traced value"
    raise RecordingError(msg)


def kind_of(value: Any) -> str:
    """Return what a value is."""
    if isinstance(value, Traced):
        return value.kind
    return KINDS[np.asarray(value).dtype.kind]


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if not isinstance(condition, Traced):
        return yes if plain(condition) else no
    kinds = {kind_of(yes), kind_of(no)}
    kind = next(operand_kind for operand_kind in (NUMBER, WHOLE, TRUTH) if operand_kind in kinds)
    tape = condition.tape
    args = tape.of(condition, TRUTH), tape.of(yes, kind), tape.of(no, kind)
    return tape.value(kind, "{1} if {0} else {2}", *args)


OWN: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.shape: lambda _: (1,),
    np.ndim: lambda _: 1,
    np.zeros_like: lambda *_, **__: np.zeros(1),
    np.ones_like: lambda *_, **__: np.ones(1),
    np.full_like: lambda _, value, **__: np.full(1, value),
}


# What is called as it is: of numbers, as kernels take them, arrays of one.


def quotient(dividend: float, other: float) -> float:
    """Return a number divided by 0, as IEEE 754 has it."""
    if dividend == 0.0 or dividend != dividend or other != other:  # noqa: PLR0124
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, other)


def power(base: float, exponent: float) -> float:
    """Return a power as numpy has it of arrays."""
    return float(np.power(np.array((base,)), np.array((exponent,)))[0])


@lru_cache
def looping(name: str) -> Callable[..., float]:
    """Return a function of expressions that loops: of the same numbers it is called once."""
    if name not in NAMED:
        msg = f"{name} isn't a function of expressions"
        raise RecordingError(msg)

    @lru_cache(KEPT)
    def called(*numbers: float) -> float:
        return float(np.reshape(NAMED[name](*(np.array((number,)) for number in numbers)), ()))

    return called


# Nodes that work in arrays of their own.


def _best(*values: Any) -> tuple[Any, Any]:
    best, code = values[0], np.zeros(1, np.int64)
    for index, value in enumerate(values[1:], 1):
        code = np.where(np.less(value, best), index, code)
        best = np.minimum(value, best)
    return best, code


def _select(best: tuple[Any, Any], *values: Any) -> Any:
    *first, chosen = values
    for index, value in reversed([*enumerate(first)]):
        chosen = np.where(np.equal(best[1], index), value, chosen)
    return chosen


def _code_of(codes: Sequence[int], best: tuple[Any, Any]) -> Any:
    return _select(best, *(np.full(1, code) for code in codes))


def _instead(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is recorded for a node."""
    if run is best_of:
        return _best
    if run is select:
        return _select
    if isinstance(run, partial) and run.func is code_of:
        return partial(_code_of, *run.args)
    if isinstance(run, partial) and run.func is where_defined:
        return lambda time, undefined: np.where(undefined != 0, run.args[0], time)
    return run


class _Opaque:
    """What only kernels that are called as they are can take."""

    def __init__(self, index: int) -> None:
        self.place = index


class Recorder:
    """Records nodes on a tape, from those that vary and the values of those that don't."""

    def __init__(self, varying: Mapping[int, str], values: Mapping[int, Any]) -> None:
        self.tape = Tape()
        self.values = values  # By node: of those that vary, one example
        self.called: list[Node] = []  # Nodes that are called as they are
        self._known: dict[int, Any] = {
            number: self.tape.value(NUMBER, name) for number, name in varying.items()
        }

    def record(self, order: Sequence[Node]) -> None:
        """Record nodes, each after those that it takes."""
        with recording(), np.errstate(all="ignore"):
            for node in order:
                self._known[id(node)] = self._value(node)

    def of(self, node: Node) -> Any:
        """Return a node's recorded value, or the value that it always has."""
        return self._known.get(id(node), self.values.get(id(node)))

    def _value(self, node: Node) -> Any:
        assert node.run is not None
        inputs = [self.of(operand) for operand in node.inputs]
        try:
            if any(isinstance(value, _Opaque) for value in inputs):
                msg = "a part that isn't recorded"
                raise RecordingError(msg)
            return _instead(node.run)(*inputs)
        except Exception:  # a user's own kernel may fail in any way
            self.called.append(node)
            return self._call(node)

    def _call(self, node: Node) -> Any:
        """Record a call of a kernel as it is."""
        example = self.values[id(node)]
        single = isinstance(example, np.ndarray) and example.size == 1
        kind = KINDS[example.dtype.kind] if single else ""
        assert node.run is not None
        arguments: list[Argument] = []
        fixed: list[Any] = []
        for operand in node.inputs:
            if id(operand) in self._known:
                arguments.append(self._object(operand))
                fixed.append(None)
            else:
                fixed.append(self.values[id(operand)])
        function = partial(_run, node.run, tuple(fixed), single)
        traced = self.tape.called(kind, function, *arguments)
        return traced if single else _Opaque(traced.place)

    def _object(self, node: Node) -> Argument:
        """Return the argument that stands for a node's value where a kernel is called as it is."""
        known = self._known[id(node)]
        if isinstance(known, Traced | _Opaque):
            return known.place
        traced = self._call(node)
        return traced.place


def _run(run: Callable[..., Any], fixed: Sequence[Any], single: bool, *varying: Any) -> Any:
    """Return what a kernel gives of numbers, and of values that are always the same."""
    rest = iter(varying)
    values = [next(rest) if slot is None else slot for slot in fixed]
    arrays = [
        np.array((value,)) if isinstance(value, bool | int | float) else value for value in values
    ]
    result = run(*arrays)
    return np.reshape(result, ()).item() if single else result


def ordered(nodes: Iterable[Node]) -> list[Node]:
    """Return nodes and all that they take, each after those that it takes."""
    order: dict[int, Node] = {}
    stack = [(node, False) for node in nodes]
    while stack:
        node, ready = stack.pop()
        if id(node) in order:
            continue
        if ready:
            order[id(node)] = node
        else:
            stack.append((node, True))
            stack += [(operand, False) for operand in node.inputs]
    return list(order.values())


def written(
    tape: Tape,
    names: Sequence[str],
    checks: Sequence[str],
    results: Sequence[str],
    kept: Sequence[Argument],
) -> Callable[..., tuple[Any, ...] | None]:
    """Return operations as a function of numbers; it returns None where a check fails.

    Parameters
    ----------
    tape : Tape
        The operations.
    names : sequence of str
        What the function takes.
    checks : sequence of str
        What has to hold of these.
    results : sequence of str
        What it returns: code in which ``{0}`` is the first value of `kept`.
    kept : sequence
        The values that results take.
    """
    uses = dict.fromkeys((argument for argument in kept if isinstance(argument, int)), 2)
    for number in range(len(tape.operations) - 1, -1, -1):
        code, args = tape.operations[number]
        for index, arg in enumerate(args) if number in uses else ():
            if isinstance(arg, int):
                uses[arg] = uses.get(arg, 0) + code.count(f"{{{index}}}")
    texts: dict[int, str] = {}
    lines = [f"if not ({check}): return None" for check in checks]
    for number in sorted(uses):
        code, args = tape.operations[number]
        text = code.format(*(texts[arg] if isinstance(arg, int) else arg for arg in args))
        if args and (uses[number] > 1 or len(text) > LONGEST):
            lines.append(f"v{number} = {text}")
            text = f"v{number}"
        texts[number] = text if text.isidentifier() else f"({text})"
    parts = [texts[argument] if isinstance(argument, int) else argument for argument in kept]
    lines.append(f"return ({''.join(f'{result.format(*parts)}, ' for result in results)})")
    body = "\n    ".join(lines)
    namespace: dict[str, Any] = dict(tape.functions)
    # Of kernels' own operations: nothing that a user writes gets here as text.
    exec(
        compile(f"def evaluated({', '.join(names)}):\n    {body}\n", "<prepared>", "exec"),
        namespace,
    )
    return namespace["evaluated"]
