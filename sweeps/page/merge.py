"""The graph of all values that some labels may have: a choice where they decide what holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.formula import REGISTRY, Call, Formula
from overhead.graph import OF_ALGORITHMS, Builder, Graph, Missing, Node
from overhead.labels import HIERARCHY, complete
from overhead.plan import requirements
from overhead.quantity import BITS, short
from sweeps.engine.validity import FITS, NOT_KNOWN

OPEN = "*"  # The value of a label that is chosen later
# What follows from labels that may be open: from which one.
FOLLOWS = {"stages": "schedule"}
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
        found = (algorithm,) if algorithm else self.algorithms()
        kind = found[0].labels if found else {"in_network": "no"}
        each: dict[Point, Formula | Call | None] = {}
        for point in self.points(names):
            labels = self.at(dict(zip(names, point, strict=True)))
            each[point], looked = REGISTRY.found(quantity, {**labels, **kind})
            self.graph.looked[-1] |= looked | BITS.of(names)
        nodes: dict[Formula | Call | None, Node] = {}
        missing = Missing(quantity)
        for declared in dict.fromkeys(each.values()):
            try:
                nodes[declared] = self._declared(quantity, declared, algorithm)
            except Missing as one:
                missing = one
                nodes[declared] = self.nothing()
        if all(node is self.nothing() for node in nodes.values()):
            raise missing
        return self.choice(quantity, names, {point: nodes[one] for point, one in each.items()})

    def deciding(self, quantity: str) -> tuple[str, ...]:
        """Return the open labels on which depends what gives a quantity."""
        holds = {name for one in REGISTRY.candidates(quantity) for name in one.holds}
        opened = {FOLLOWS.get(name, name) for name in holds if self.is_open(name)}
        return tuple(name for name in self.graph.labels if name in opened)

    def is_open(self, label: str) -> bool:
        """Whether a label is chosen later, rather than set by a call."""
        return self.labels.get(label) == OPEN

    def at(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Return the labels where some open ones are chosen: what a call sets stays."""
        found = complete(chosen, ())
        return {name: found.get(name, v) if v == OPEN else v for name, v in self.labels.items()}

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
        key = short(("defined", node.key, lacking.key, repr(otherwise)))
        inputs = (lacking, node)
        return self.intern(
            node.name, key, inputs, lambda lacks, value: np.where(lacks != 0, otherwise, value)
        )

    def taken(self, node: Node, given: Node) -> Node | None:
        """Return the node of whether a node takes a given one: 1, or as labels have it."""
        known = self.graph.taking
        if (node, given) not in known:
            choice = self.graph.choices.get(node)
            if node is given:
                found: Node | None = self.number(1)
            elif choice is None:
                found = self.any_of(self.taken(one, given) for one in node.inputs)
            else:
                label, groups = choice
                each = [self.taken(one, given) or self.number(0) for one in node.inputs[1:]]
                values = self.graph.labels[label]
                points: dict[Point, Node] = {
                    (values[code],): one
                    for codes, one in zip(groups, each, strict=True)
                    for code in codes
                }
                found = self.choice("status", (label,), points)
            known[node, given] = None if found is self.number(0) else found
        return known[node, given]

    def any_of(self, nodes: Iterable[Node | None]) -> Node | None:
        """Return the node of whether one of several nodes is 1; None where there are none."""
        each = list(dict.fromkeys(node for node in nodes if node is not None))
        if not each or self.number(1) in each:
            return self.number(1) if each else None
        first, *rest = each
        for node in rest:
            key = short(("either", first.key, node.key))
            first = self.intern("status", key, (first, node), np.bitwise_or)
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
            found = values[-1]
            for codes, value in zip(special, values[:-1], strict=True):
                holds = np.equal(code, float(codes[0]))
                for one in codes[1:]:
                    holds = np.logical_or(holds, np.equal(code, float(one)))
                found = np.where(holds, value, found)
            return found

        each_key = ((tuple(parts[node]), node.key) for node in nodes)
        key = short(("choice", first, *each_key))
        found = self.intern(name, key, (self.graph.codes[first], *nodes), run)
        self.graph.choices[found] = (first, [parts[node] for node in nodes])
        return found


def merged(
    labels: Mapping[str, str],
    live: Mapping[str, tuple[str, ...]],
    given: Mapping[str, Node],
    space: Any,
) -> Merged:
    """Return the builder of labels of which some are chosen later."""
    codes = {name: Node(name, ("given", name), (), None, frozenset()) for name in live}
    graph = Live(labels=dict(live), codes=codes)
    opened = {**complete(labels, given), **dict.fromkeys((*live, *FOLLOWS), OPEN)}
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
    each = {
        point: (*requirements(builder.at(dict(zip(names, point, strict=True)))), FITS)
        for point in points
    }
    flat = builder.labels["topology"] != HIERARCHY
    found = [_unknown(builder, wanted, unknown, faults[NOT_KNOWN])]
    for one in dict.fromkeys(one for every in each.values() for one in every):
        if flat and one.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        try:
            fault = builder.faults((one,), faults)
        except Missing:
            continue
        none = builder.number(0)
        fault = builder.defined(fault, 0)
        holds = {point: fault if one in each[point] else none for point in points}
        found.append(builder.choice("status", names, holds))
    return builder.either(found)


def _unknown(builder: Merged, wanted: Sequence[Node], names: Iterable[str], bit: int) -> Node:
    """Return the node of whether something is taken that a machine's file doesn't say."""
    found = [builder.number(0)]
    for name in names:
        node = builder.given[name]
        used = builder.any_of(builder.taken(root, node) for root in wanted)
        if used is not None:
            key = short(("unknown", node.key, used.key))
            found.append(builder.intern("status", key, (node, used), partial(_lacking, bit)))
    return builder.either(found)


def _lacking(bit: int, value: Any, used: Any) -> Any:
    return np.where(np.isnan(value), bit * used, 0)
