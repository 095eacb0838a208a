"""A page's graph over all that its labels may be, and its kernels as JavaScript.

Kernels run on values that record what they do, operation by operation.  Unlike in the statements
of `overhead.recording` nothing is simplified, so that the numbers are the kernels', to the last bit
but for what a browser's own functions round otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, product
from operator import itemgetter
from typing import Any

import numpy as np

from overhead.choose import OF_ALGORITHMS, Builder, best_of, select
from overhead.collectives.algorithm import Algorithm
from overhead.completion import following
from overhead.expression import evaluate
from overhead.formula import REGISTRY, Call, Formula
from overhead.graph import Broadcast, Graph, Missing, Node
from overhead.labels import HIERARCHY
from overhead.plan import requirements
from overhead.quantity import Array
from overhead.recording import FUNCTIONS, Recorded, RecordingError, recording
from sweeps.engine.validity import FITS, HOST_FITS, NOT_KNOWN

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


OPEN = "*"  # The value of a label that is chosen later
# What follows from labels that may be open: from which one.
FOLLOWS = {"stages": "schedule"}
# Features by which something is in host memory.
OFFLOADED = frozenset(("stashing", "updating"))
Point = tuple[str, ...]


@dataclass(slots=True)
class Live(Graph):
    """A graph with labels that are chosen later, each with its values and the node of its code."""

    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    codes: dict[str, Node] = field(default_factory=dict)
    # Of each choice its label, and the codes for which each of its other inputs holds
    choices: dict[Node, tuple[str, list[list[int]]]] = field(default_factory=dict)
    # Whether nodes take given ones: nodes that are 0 or 1
    taking: dict[tuple[Node, Node], Node | None] = field(default_factory=dict)


class Merged(Builder):
    """Builds a graph in which open labels' codes are inputs; formulas are made once each."""

    graph: Live

    def _make(self, quantity: str, algorithm: Algorithm | None) -> Node:
        names = () if quantity in OF_ALGORITHMS else self.deciding(quantity)
        if not names:
            return super()._make(quantity, algorithm)
        algorithms = (algorithm,) if algorithm else self.algorithms()
        kind = algorithms[0].labels if algorithms else {"in_network": "no"}
        each: dict[Point, Formula | Call | None] = {}
        for point in self.points(names):
            labels = self.at(dict(zip(names, point, strict=True)))
            each[point] = REGISTRY.returning(quantity, {**labels, **kind})
        nodes: dict[Formula | Call | None, Node] = {}
        missing = Missing(quantity)
        for declared in dict.fromkeys(each.values()):
            try:
                nodes[declared] = self._declared(quantity, declared, algorithm)
            except Missing as error:
                missing = error
                nodes[declared] = self.nothing()
        if all(node is self.nothing() for node in nodes.values()):
            raise missing
        return self.choice(quantity, names, {point: nodes[node] for point, node in each.items()})

    def deciding(self, quantity: str) -> tuple[str, ...]:
        """Return the open labels on which depends what gives a quantity."""
        holds = {name for candidate in REGISTRY.candidates(quantity) for name in candidate.holds}
        opened = {FOLLOWS.get(name, name) for name in holds if self.is_open(name)}
        return tuple(name for name in self.graph.labels if name in opened)

    def is_open(self, label: str) -> bool:
        """Whether a label is chosen later, rather than set by a call."""
        return self.labels.get(label) == OPEN

    def at(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Return the labels where some open ones are chosen: what a call sets stays."""
        labels = following(chosen, ())
        return {name: labels.get(name, v) if v == OPEN else v for name, v in self.labels.items()}

    def points(self, names: Sequence[str]) -> Iterator[Point]:
        """Yield all that some open labels can be together."""
        return product(*(self.graph.labels[name] for name in names))

    def number(self, value: float) -> Node:
        """Return the node of a number; of a whole one, of bits."""
        return self.intern("number", ("number", repr(value)), (), lambda: np.asarray(value))

    def nothing(self) -> Node:
        """Return the node of what nothing gives where labels are some."""
        return self.intern("number", ("nothing",), (), lambda: np.asarray(np.nan))

    def defined(self, node: Node, otherwise: float = np.nan) -> Node:
        """Return a node where all that it takes is given, elsewhere a number."""
        lacking = self.taken(node, self.nothing())
        if lacking is None:
            return node

        def run(lacks: Any, value: Any) -> Any:
            return np.where(lacks != 0, otherwise, value)

        return self.intern(node.name, ("defined", repr(otherwise)), (lacking, node), run)

    def taken(self, node: Node, given: Node) -> Node | None:
        """Return the node of whether a node takes a given one: 1, or as labels have it."""
        known = self.graph.taking
        if (node, given) not in known:
            choice = self.graph.choices.get(node)
            if node is given:
                answer: Node | None = self.number(1)
            elif choice is None:
                answer = self.any_of(self.taken(operand, given) for operand in node.inputs)
            else:
                label, groups = choice
                each = [self.taken(operand, given) or self.number(0) for operand in node.inputs[1:]]
                values = self.graph.labels[label]
                points: dict[Point, Node] = {
                    (values[code],): operand
                    for codes, operand in zip(groups, each, strict=True)
                    for code in codes
                }
                answer = self.choice("status", (label,), points)
            known[node, given] = None if answer is self.number(0) else answer
        return known[node, given]

    def any_of(self, nodes: Iterable[Node | None]) -> Node | None:
        """Return the node of whether one of several nodes is 1; None where there are none."""
        each = list(dict.fromkeys(node for node in nodes if node is not None))
        if not each or self.number(1) in each:
            return self.number(1) if each else None
        first, *rest = each
        for node in rest:
            first = self.intern("status", ("either",), (first, node), np.bitwise_or)
        return first

    def choice(self, name: str, names: Sequence[str], each: Mapping[Point, Node]) -> Node:
        """Return the node that is another one for each point of some labels."""
        if not names:
            return each[()]
        first, *others = names
        parts: dict[Node, list[int]] = {}
        for code, value in enumerate(self.graph.labels[first]):
            rest = {point[1:]: node for point, node in each.items() if point[0] == value}
            parts.setdefault(self.choice(name, others, rest), []).append(code)
        if len(parts) == 1:
            return next(iter(parts))
        # What holds for most values needs no condition.
        *special, _ = sorted(parts.values(), key=len)
        nodes = sorted(parts, key=lambda node: len(parts[node]))

        def run(code: Any, *values: Any) -> Any:
            chosen = values[-1]
            for codes, value in zip(special, values[:-1], strict=True):
                holds = np.equal(code, float(codes[0]))
                for number in codes[1:]:
                    holds = np.logical_or(holds, np.equal(code, float(number)))
                chosen = np.where(holds, value, chosen)
            return chosen

        what = ("choice", first, *(tuple(parts[node]) for node in nodes))
        selection = self.intern(name, what, (self.graph.codes[first], *nodes), run)
        self.graph.choices[selection] = (first, [parts[node] for node in nodes])
        return selection


def merged(
    labels: Mapping[str, str],
    live: Mapping[str, tuple[str, ...]],
    given: Mapping[str, Node],
    space: Any,
    graph: Live | None = None,
) -> Merged:
    """Return the builder of labels of which some are chosen later, in a graph that is there."""
    if graph is None:
        codes = {name: Node(name, ("given", name), (), None, frozenset()) for name in live}
        graph = Live(labels=dict(live), codes=codes)
    opened = {**following(labels, given), **dict.fromkeys((*live, *FOLLOWS), OPEN)}
    return Merged(space, opened, given, graph)


def status(
    builder: Merged, wanted: Sequence[Node], faults: Mapping[str, int], unknown: Iterable[str]
) -> Node:
    """Return the node of the reasons why a plan can't be, or can't run, as bits.

    Of `unknown` quantities the number may be missing.
    """
    named = ("schedule", "context_parallel", "mask", "dp_mechanism")
    names = tuple(name for name in named if builder.is_open(name))
    points = list(builder.points(names))
    host = () if OFFLOADED.isdisjoint(builder.labels) else (HOST_FITS,)
    each = {
        point: (*requirements(builder.at(dict(zip(names, point, strict=True)))), FITS, *host)
        for point in points
    }
    flat = builder.labels["topology"] != HIERARCHY
    parts = [_unknown(builder, wanted, unknown, faults[NOT_KNOWN])]
    for requirement in dict.fromkeys(rule for every in each.values() for rule in every):
        if flat and requirement.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        try:
            fault = builder.faults((requirement,), faults)
        except Missing:
            continue
        none = builder.number(0)
        fault = builder.defined(fault, 0)
        holds = {point: fault if requirement in each[point] else none for point in points}
        parts.append(builder.choice("status", names, holds))
    return builder.either(parts)


def _unknown(builder: Merged, wanted: Sequence[Node], names: Iterable[str], bit: int) -> Node:
    """Return the node of whether something is taken that a machine's file doesn't say."""
    parts = [builder.number(0)]
    for name in names:
        node = builder.given[name]
        used = builder.any_of(builder.taken(root, node) for root in wanted)
        if used is not None:
            run = partial(_lacking, bit)
            parts.append(builder.intern("status", ("unknown", bit), (node, used), run))
    return builder.either(parts)


def _lacking(bit: int, value: Any, used: Any) -> Any:
    return np.where(np.isnan(value), bit * used, 0)
