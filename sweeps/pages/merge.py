"""A page's graph over all that its labels may be, and the reasons why a plan can't be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from overhead.choose import OF_ALGORITHMS, Builder
from overhead.collectives.algorithm import Algorithm
from overhead.completion import following
from overhead.formula import REGISTRY, Call, Formula
from overhead.graph import Graph, Missing, Node
from overhead.labels import HIERARCHY
from overhead.plan import requirements
from sweeps.engine.validity import FITS, HOST_FITS, NOT_KNOWN

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
