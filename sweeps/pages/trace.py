"""Formulas' kernels as JavaScript.

Kernels run on values that record what they do, operation by operation.  Unlike in the statements
of `overhead.recording` nothing is simplified, so that the numbers are the kernels', to the last bit
but for what a browser's own functions round otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from overhead.choose import best_of, select
from overhead.expression import evaluate
from overhead.formula import Formula
from overhead.graph import Broadcast, Node
from overhead.quantity import Array
from overhead.recording import FUNCTIONS, Recorded, RecordingError, recording

# How tightly a piece of JavaScript binds, and its arguments have to; what calls binds most.
CALL, WHERE = 20, 1
# Of each ufunc the JavaScript; names of one letter or in small ones are those of files/math.js.
NUMBERS: dict[np.ufunc, str] = {
    np.add: "{}+{}",
    np.subtract: "{}-{}",
    np.multiply: "{}*{}",
    np.true_divide: "{}/{}",
    np.remainder: "mod({},{})",
    np.floor_divide: "div({},{})",
    np.power: "power({},{})",
    np.negative: "-{}",
    np.absolute: "abs({})",
    np.floor: "F({})",
    np.ceil: "C({})",
    np.rint: "even({})",
    np.sqrt: "sqrt({})",
    np.exp: "exp({})",
    np.expm1: "expm1({})",
    np.log: "log({})",
    np.log1p: "log1p({})",
    np.log2: "log2({})",
    np.minimum: "L({},{})",
    np.maximum: "M({},{})",
    np.bitwise_or: "{}|{}",
    np.bitwise_and: "{}&{}",
}
TRUTHS: dict[np.ufunc, str] = {
    np.less: "{}<{}",
    np.less_equal: "{}<={}",
    np.greater: "{}>{}",
    np.greater_equal: "{}>={}",
    np.equal: "{}=={}",
    np.not_equal: "{}!={}",
    np.logical_and: "{}&&{}",
    np.logical_or: "{}||{}",
    np.logical_not: "!{}",
    np.invert: "!{}",
    np.isnan: "isNaN({})",
    np.isfinite: "isFinite({})",
}
# What conditions on labels are made of.
CONDITIONS = {"{}=={}", "{}!={}", "{}||{}", "{}&&{}", "!{}"}
OF_TRUTHS = {np.logical_and, np.logical_or, np.logical_not, np.invert}
BINDING = {
    "{}?{}:{}": WHERE,
    "{}||{}": 2,
    "{}&&{}": 3,
    "{}|{}": 4,
    "{}&{}": 5,
    "{}=={}": 6,
    "{}!={}": 6,
    "{}<{}": 7,
    "{}<={}": 7,
    "{}>{}": 7,
    "{}>={}": 7,
    "{}+{}": 8,
    "{}-{}": 8,
    "{}*{}": 9,
    "{}/{}": 9,
    "-{}": 10,
    "!{}": 10,
}
# What changes nothing: an operation with a number as its first or second argument.
SAME = {
    ("{}*{}", 0, "1"),
    ("{}*{}", 1, "1"),
    ("{}/{}", 1, "1"),
    ("{}+{}", 0, "0"),
    ("{}+{}", 1, "0"),
    ("{}-{}", 1, "0"),
}
# Statements of one function: a browser compiles larger ones late.
STATEMENTS = 150
# What is used once stands where it is used, up to a statement of so many letters.
LONGEST = 300


class Tape:
    """Operations in the order in which they are done, the same one once."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, tuple[int, ...]]] = []
        self._places: dict[tuple[str, tuple[int, ...]], int] = {}
        self._numbers: dict[int, np.float64] = {}

    def value(self, code: str, *args: Any) -> Any:
        """Return the value of an operation on earlier ones, and on plain numbers."""
        arguments = tuple(self.of(arg).index for arg in args)
        codes = [self.operations[argument][0] for argument in arguments]
        for index, other in ((0, 1), (1, 0)) if len(arguments) == 2 else ():
            if (code, index, codes[index]) in SAME:
                return self._at(arguments[other])
            # A number that is given is finite.
            if code == "{}*{}" and codes[index] == "0" and codes[other].startswith("p["):
                return self._at(arguments[index])
        if code == "{}?{}:{}" and arguments[1] == arguments[2]:
            return self._at(arguments[1])
        key = (code, arguments)
        return self._at(self._place(*key))

    def _place(self, code: str, arguments: tuple[int, ...]) -> int:
        index = self._places.setdefault((code, arguments), len(self.operations))
        if index == len(self.operations):
            self.operations.append((code, arguments))
        return index

    def _at(self, index: int) -> Any:
        """Return a value, of a plain number the number itself: it is computed with here."""
        return self._numbers.get(index, Traced(self, index))

    def of(self, value: Any) -> Traced:
        """Return a value that is traced as it is, a plain number as one."""
        if isinstance(value, Traced):
            return value
        if not isinstance(value, bool | int | float | np.generic | np.ndarray) or np.ndim(value):
            msg = f"{type(value).__name__} beside a traced value"
            raise RecordingError(msg)
        plain = repr(float(value)).replace("inf", "Infinity").replace("nan", "NaN")
        code = f"({plain})" if plain.startswith("-") else plain.removesuffix(".0")
        index = self._place(code, ())
        self._numbers[index] = np.float64(value)
        return Traced(self, index)

    def truth(self, value: Any) -> Traced:
        """Return a value as a condition."""
        operand = self.of(value)
        code, arguments = self.operations[operand.index]
        if code == "{}?{}:{}" and [self.operations[argument][0] for argument in arguments[1:]] == [
            "1",
            "0",
        ]:
            return Traced(self, arguments[0])
        return operand if code in TRUTHS.values() else self.value("{}!={}", operand, 0.0)


class Traced(Recorded):
    """A number that stands for an operation on a tape."""

    def __init__(self, tape: Tape, index: int) -> None:
        self.tape, self.index = tape, index

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Traced:
        if method != "__call__" or options:
            msg = f"{ufunc.__name__}.{method} with {list(options)}"
            raise RecordingError(msg)
        tape = self.tape
        if ufunc is np.square or (ufunc is np.power and _is(args[1], 2.0)):
            return tape.value(NUMBERS[np.multiply], args[0], args[0])
        if ufunc is np.power and _is(args[1], 0.5):
            return tape.value(NUMBERS[np.sqrt], args[0])
        if ufunc is np.exp2:
            return tape.value(NUMBERS[np.power], 2.0, args[0])
        code = NUMBERS.get(ufunc) or TRUTHS.get(ufunc)
        if code is None:
            msg = f"{ufunc.__name__} isn't written as JavaScript"
            raise RecordingError(msg)
        return tape.value(code, *map(tape.truth if ufunc in OF_TRUTHS else tape.of, args))

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Any) -> Any:
        handlers: dict[Any, Any] = {
            np.where: self._where,
            np.any: lambda _: True,
            np.all: lambda _: False,  # What stops once all have arrived goes on
            np.round: np.rint,
        }
        handler = handlers.get(function) or FUNCTIONS.get(function)
        if handler is None:
            msg = f"{function.__name__} of a traced value"
            raise RecordingError(msg)
        return handler(*args, **options)

    def _where(self, condition: Any, yes: Any, no: Any) -> Any:
        if not isinstance(condition, Traced):
            return yes if condition else no
        return self.tape.value("{}?{}:{}", self.tape.truth(condition), yes, no)

    def called(self, name: str, args: Sequence[Any]) -> Traced:
        """Return what a function of files/math.js gives."""
        return self.tape.value(f"{name}({','.join('{}' for _ in args)})", *args)

    def any(self) -> bool:
        """Return that somewhere it may be true."""
        return True


def _is(value: Any, number: float) -> bool:
    return not isinstance(value, Traced) and float(value) == number


class Traceable(Broadcast):
    """The space of traced values: a kernel that can't be traced does what its formula states."""

    def formula(self, declared: Formula) -> Callable[..., Array]:
        """Return a formula's kernel."""
        kernel = super().formula(declared)

        def run(*values: Any) -> Any:
            try:
                with recording():
                    return kernel(*values)
            except RecordingError:
                if not declared.own_expression:
                    raise
                return evaluate(
                    declared.own_expression, dict(zip(declared.inputs, values, strict=True))
                )

        return run


def _best(*values: Any) -> tuple[Any, Any]:
    """Return what `overhead.choose.best_of` does."""
    best: Any = values[0]
    code: Any = np.float64(0.0)
    for index, value in enumerate(values[1:], 1):
        less = np.less(value, best)
        best, code = np.minimum(best, value), np.where(less, float(index), code)
    return best, code


def _select(best: tuple[Any, Any], *values: Any) -> Any:
    """Return what `overhead.choose.select` does."""
    chosen = values[0]
    for index, value in enumerate(values[1:], 1):
        chosen = np.where(np.equal(best[1], float(index)), value, chosen)
    return chosen


# What works in arrays that it makes itself.
INSTEAD: dict[Any, Callable[..., Any]] = {best_of: _best, select: _select}


def traced(
    given: Mapping[str, float | None], nodes: Sequence[Node], codes: Collection[str] = ()
) -> str:
    """Return as JavaScript what follows from numbers: a function of those not known, `p`, into `o`.

    Parameters
    ----------
    given : mapping of str to float or None
        The given numbers; None of those that the function takes, in this order.
    nodes : sequence of Node
        What is asked for, in this order.
    codes : collection of str
        Those of the given ones that are codes of labels: what other labels need isn't computed.

    Raises
    ------
    RecordingError
        If something can't be traced.
    """
    tape = Tape()
    parameters = {
        name: index for index, name in enumerate(n for n, v in given.items() if v is None)
    }
    values: dict[str, Any] = {
        name: np.asarray(value, dtype=np.float64)
        for name, value in given.items()
        if value is not None
    }
    with recording(), np.errstate(all="ignore"):
        values |= {name: tape.value(f"p[{index}]") for name, index in parameters.items()}
        results = computed(nodes, values)
        outputs = [tape.of(value).index for value in results]
        return _written(tape.operations, outputs, {f"p[{parameters[name]}]" for name in codes})


def computed(nodes: Sequence[Node], given: Mapping[str, object]) -> list[Any]:
    """Return nodes' values from those of given ones, by name, each computed once."""
    known: dict[int, Any] = {}

    def value(node: Node) -> Any:
        if node.run is None:
            return given[node.name]
        if id(node) not in known:
            known[id(node)] = INSTEAD.get(node.run, node.run)(*map(value, node.inputs))
        return known[id(node)]

    return [value(node) for node in nodes]


Operations = Sequence[tuple[str, tuple[int, ...]]]
Branches = frozenset[tuple[int, bool]]  # Conditions on labels, by their places, as they hold


def _branches(operations: Operations, outputs: Sequence[int], codes: set[str]) -> dict[int, str]:
    """Return under which labels alone an operation is of use, as conditions."""
    plain: dict[int, str] = {}
    for index, (code, args) in enumerate(operations):
        if code in codes or (not args and not code.startswith("p[")):
            plain[index] = code
        elif code in CONDITIONS and all(arg in plain for arg in args):
            each = (f"({plain[arg]})" if operations[arg][1] else plain[arg] for arg in args)
            plain[index] = code.format(*each)
    branches_of: dict[int, Branches] = dict.fromkeys(outputs, frozenset())
    for number in range(len(operations) - 1, -1, -1):
        code, args = operations[number]
        if number not in branches_of:
            continue
        choice = code == "{}?{}:{}" and args[0] in plain
        for at, arg in enumerate(args):
            condition = branches_of[number] | ({(args[0], at == 1)} if choice and at else set())
            branches_of[arg] = branches_of[arg] & condition if arg in branches_of else condition
    return {
        position: "&&".join(
            ("" if yes else "!") + f"({plain[test]})" for test, yes in sorted(branches)
        )
        for position, branches in branches_of.items()
        if branches
    }


def _written(operations: Operations, outputs: Sequence[int], codes: set[str]) -> str:
    """Return operations as JavaScript, cut into functions that a browser compiles soon."""
    uses = dict.fromkeys(outputs, 2)
    for index in range(len(operations) - 1, -1, -1):
        for arg in operations[index][1] if index in uses else ():
            uses[arg] = uses.get(arg, 0) + 1
    # In a statement's text another one's place is marked: its function decides how it is written.
    texts: dict[int, tuple[str, int]] = {}
    statements: dict[int, str] = {}
    for index in sorted(uses):
        code, args = operations[index]
        binding = BINDING.get(code, CALL)
        # What binds as much stands in parentheses on the right: nothing is added in other order.
        least = [
            0 if binding == CALL else binding + (at > 0 or binding in (WHERE, 10))
            for at in range(len(args))
        ]
        parts = [
            text if binds >= need else f"({text})"
            for (text, binds), need in zip((texts[arg] for arg in args), least, strict=True)
        ]
        text = code.format(*parts)
        if args and (uses[index] > 1 or len(text) > LONGEST):
            statements[index] = text
            text, binding = f"§{index}§", CALL
        texts[index] = (text, binding)
    branches = _branches(operations, outputs, codes)
    return _functions(statements, branches, [texts[output][0] for output in outputs])


def _functions(
    statements: Mapping[int, str], branches: Mapping[int, str], outputs: Sequence[str]
) -> str:
    """Return statements and what is asked for in functions, which share an array."""
    order = {statement: index // STATEMENTS for index, statement in enumerate(statements)}
    last = max(order.values(), default=-1) + 1
    bodies = [*statements.items(), *((-1 - i, text) for i, text in enumerate(outputs))]
    shared: dict[int, int] = {}
    for number, text in bodies:
        for used in map(int, MARKED.findall(text)):
            if order[used] != order.get(number, last):
                shared.setdefault(used, len(shared))
    functions: list[list[tuple[str, str, str]]] = [[] for _ in range(last)]
    names: dict[int, str] = {}
    for number, text in statements.items():
        lines_of = functions[order[number]]
        names[number] = f"{LETTERS[len(lines_of) % 24]}{len(lines_of) // 24 or ''}"

        def name(match: re.Match[str], at: int = order[number]) -> str:
            used = int(match[1])
            return names[used] if order[used] == at else f"v[{shared[used]}]"

        kept = f"v[{shared[number]}]=" if number in shared else ""
        code = f"{names[number]}={kept}{MARKED.sub(name, text)}"
        lines_of.append((branches.get(number, ""), names[number], code))
    ends = [MARKED.sub(lambda match: f"v[{shared[int(match[1])]}]", text) for text in outputs]
    lines = [f"function f{i}(p,v){{{_body(function)}}}" for i, function in enumerate(functions)]
    calls = "".join(f"f{i}(p,v);" for i in range(last))
    code = "".join(f"o[{i}]={text};" for i, text in enumerate(ends))
    array = f"const v=new Float64Array({len(shared)});"
    return "\n".join((*lines, array, f"return (p,o)=>{{{calls}{code}}};"))


def _body(statements: Sequence[tuple[str, str, str]]) -> str:
    """Return statements, each with its condition and its name, which is declared before it."""
    groups = [(holds, list(each)) for holds, each in groupby(statements, key=itemgetter(0))]
    late = [f"{name}=0" for holds, name, _ in statements if holds]
    parts = [f"let {','.join(late)};"] if late else []
    for holds, each in groups:
        texts = [text for _, _, text in each]
        parts.append(f"if({holds}){{{';'.join(texts)}}}" if holds else f"const {','.join(texts)};")
    return "".join(parts)


MARKED = re.compile(r"§(\d+)§")
LETTERS = "abcdeghijklmnqrstuvwxyzA".replace("v", "B")
