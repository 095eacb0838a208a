"""The graph of what is asked: which formulas, in what order, each on its own dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from overhead.collectives.algorithm import NETWORKS, Algorithm, Requirement
from overhead.collectives.choices import candidates, usable
from overhead.collectives.chunking import best_chunks
from overhead.collectives.cost import COST_PARTS, LEVELS
from overhead.formula import REGISTRY, Call, Formula
from sweeps.engine.grid import Array, Grid, Missing, Node, best_of, costing, shaped
from sweeps.engine.validity import (
    NO_TIME,
    NOT_CHUNKED,
    NOT_DEFINED,
    NOT_KNOWN,
    NOT_OF_NETWORK,
    NOT_OF_ONE_RANK,
    ONE_RANK,
)
from sweeps.errors import InputError, fault

# What a graph's nodes are made of: their keys, and choices between algorithms.


def short(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key of small integers in place of nested ones (interning keeps them apart)."""
    return ("k", _NUMBERS.setdefault(key, len(_NUMBERS)))


_NUMBERS: dict[tuple[Any, ...], int] = {}


@cache
def depends_on_chunks(algorithm: Algorithm, quantity: str) -> bool:
    """Return whether a part of a chunked algorithm's cost varies with the number of chunks."""
    names = tuple(algorithm.inputs)
    values = (np.array([2.0, 4.0]) if name == "chunks" else np.array(4.0) for name in names)
    with np.errstate(all="ignore"):
        cost = costing(algorithm, names)(*values)
        parts = [COST_PARTS[quantity](cost, per_message) for per_message in (True, False)]
    return any(np.asarray(part).size > 1 for part in parts)


def all_of(*reasons: Array) -> Array:
    """Return all candidates' reasons where each has one, else none."""
    every = reasons[0] != 0
    total = reasons[0]
    for reason in reasons[1:]:
        every = every & (reason != 0)
        total = total | reason
    return np.where(every, total, 0)


def where_defined(time: Array, undefined: Array) -> Array:
    """Return times, infinite where an algorithm isn't defined."""
    return np.where(undefined != 0, np.inf, time) if undefined.any() else time


def select(best: tuple[Array, Array], *values: Array) -> Array:
    """Return the value of the algorithm that was the best, cell by cell."""
    shape = np.broadcast_shapes(best[1].shape, *(value.shape for value in values))
    chosen = np.broadcast_to(best[1], shape)
    return np.choose(chosen, [np.broadcast_to(value, shape) for value in values])


# Why some values of a cell are missing though the cell itself can be.

Note = tuple[Node, int, Callable[[Array], Array]]


def notes(
    wanted: Mapping[str, Node],
    perhaps: Callable[[str], Node | None],
    bits: Mapping[str, int],
) -> Iterator[Note]:
    """Yield the reasons that concern some quantities of a cell alone."""
    if set(wanted) & set(NOT_OF_ONE_RANK):
        ranks, time = perhaps("ranks"), perhaps("time")
        if ranks is not None and (ranks.given is None or np.any(ranks.given == 1.0)):
            yield _note(ranks, bits[ONE_RANK], lambda values: values == 1.0)
        if time is not None and _may_be_zero(time):
            yield _note(time, bits[NO_TIME], lambda values: values == 0.0)
    if "chunks" in wanted:
        yield _note(wanted["chunks"], bits[NOT_CHUNKED], np.isnan)
    yield from unknowns(wanted.values(), bits[NOT_KNOWN])


def unknowns(wanted: Iterable[Node], bit: int) -> Iterator[Note]:
    """Yield what is given as NaN and taken by quantities, with a bit where it is."""
    for node in given_below(wanted):
        if node.given is not None and np.isnan(node.given).any():
            yield _note(node, bit, np.isnan)


def _note(node: Node, bit: int, test: Callable[[Array], Array]) -> Note:
    return node, bit, lambda values: np.where(test(values), bit, 0)


def given_below(nodes: Iterable[Node]) -> list[Node]:
    """Return the given nodes on which nodes depend, each once."""
    found: dict[int, Node] = {}
    stack, seen = list(nodes), set[int]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += node.inputs
            if node.given is not None:
                found[id(node)] = node
    return list(found.values())


def _may_be_zero(time: Node) -> bool:
    """Return whether a time can be zero of several ranks: no latency, and no bytes or no wire."""
    free = {"latency": False, "message_bytes": False, "bandwidth": False}
    for node in given_below([time]):
        kind = next((name for name in free if node.name.endswith(name)), None)
        if kind is not None and node.given is not None:
            free[kind] |= bool(np.any(node.given == (np.inf if kind == "bandwidth" else 0.0)))
    return free["latency"] and (free["message_bytes"] or free["bandwidth"])


def _join(inputs: Sequence[Node]) -> frozenset[str]:
    return frozenset().union(*(node.dims for node in inputs))


@dataclass(slots=True)
class Builder:
    """Builds the graph for one set of labels."""

    grid: Grid  # The open grid
    labels: Mapping[str, str]  # The labels that hold: topology, collective, algorithm,
    given: Mapping[str, Node]  # What the user gives, and what machines give
    # Nodes by key, shared between label sets, so that the same thing is computed once
    interned: dict[tuple[Any, ...], Node]
    # Whether it is enough to know the least time of a choice, not which algorithm has it
    only_time: bool = False
    inside: bool = False  # Whether it builds what a call evaluates, rather than what is asked for
    defaults: Mapping[str, Node] = field(default_factory=dict)  # Hold where nothing else gives it
    memo: dict[tuple[str, str], Node] = field(default_factory=dict)
    scopes: dict[tuple[Any, ...], Builder] = field(default_factory=dict)
    found: tuple[Algorithm, ...] | None = None

    def node(self, quantity: str, algorithm: Algorithm | None = None) -> Node:
        """Return the node that gives a quantity."""
        if quantity in self.given:
            return self.given[quantity]
        scope = algorithm.name if algorithm else ""
        known = self.memo.get((quantity, scope))
        if known is None:
            try:
                known = self._make(quantity, algorithm)
            except Missing as missing:
                known = self.defaults.get(quantity)
                if known is None:
                    missing.chain = (quantity, *missing.chain)
                    raise
            self.memo[quantity, scope] = known
        return known

    def perhaps(self, quantity: str) -> Node | None:
        """Return the node that gives a quantity, or None if nothing does."""
        try:
            return self.node(quantity)
        except Missing:
            return None

    def algorithms(self) -> tuple[Algorithm, ...]:
        """Return the algorithms that the labels leave: one, or several for a choice."""
        if self.found is None:
            self.found = ()
            if "collective" in self.labels:
                names = (self.labels[n] for n in ("topology", "collective", "algorithm"))
                self.found = usable(self.labels) if self.inside else candidates(*names)
        return self.found

    def status(
        self, faults: Mapping[str, int], wanted: Mapping[str, Node], *, lacking: bool
    ) -> Node:
        """Return the node of the reasons why cells, or values in them, don't exist, as bits."""
        found = self.algorithms()
        shared = [self._faults(NETWORKS[self.labels["topology"]].existing(self.labels), faults)]
        if not found:
            return self.either([*shared, self._everywhere(faults[NOT_DEFINED])])
        if lacking:
            shared.append(self._everywhere(faults[NOT_OF_NETWORK]))
        shared += [
            self._intern("status", ("note", bit, node.key), (node,), run)
            for node, bit, run in notes(wanted, self.perhaps, faults)
        ]
        each = [self._faults(algorithm.requires, faults) for algorithm in found]
        if len(each) > 1:
            # A choice fails only where no candidate is defined.
            each = [self._intern("status", ("all", *(n.key for n in each)), tuple(each), all_of)]
        return self.either([*shared, *each])

    def failing(self, requirement: Requirement, bit: int) -> Node:
        """Return the node of a requirement's bit where it doesn't hold."""
        return self._faults((requirement,), {requirement.fault: bit})

    def unknown(self, wanted: Mapping[str, Node], bit: int) -> list[Node]:
        """Return nodes of a bit where something given that quantities take is NaN."""
        return [
            self._intern("status", ("note", bit, node.key), (node,), run)
            for node, _, run in unknowns(wanted.values(), bit)
        ]

    def nothing(self) -> Node:
        """Return the node of no reason at all."""
        return self._everywhere(0)

    def _everywhere(self, bit: int) -> Node:
        return self._intern("status", ("fault", bit), (), lambda: np.full(self._ones(), bit))

    def _ones(self) -> tuple[int, ...]:
        return (1,) * len(self.grid.shape)

    def _intern(
        self,
        name: str,
        key: tuple[Any, ...],
        inputs: tuple[Node, ...],
        run: Callable[..., Any],
        ufunc: np.ufunc | None = None,
        origin: Formula | Algorithm | None = None,
    ) -> Node:
        known = self.interned.get(key)
        if known is None:
            known = Node(name, key, inputs, run, _join(inputs), None, ufunc, origin)
            self.interned[key] = known
        return known

    def either(self, nodes: Sequence[Node]) -> Node:
        """Return the node of several nodes' bits together."""
        first, *rest = nodes
        for node in rest:
            key = ("either", first.key, node.key)
            first = self._intern("status", key, (first, node), np.bitwise_or)
        return first

    def _faults(self, requires: Sequence[Requirement], faults: Mapping[str, int]) -> Node:
        inputs, parts = [], []
        for requirement in requires:
            nodes = [self.node(name) for name in requirement.inputs]
            parts.append((requirement.holds, len(nodes), faults[requirement.fault]))
            inputs += nodes
        shape = self._ones()

        def run(*values: Array) -> Array:
            total, rest = np.zeros(shape, dtype=np.int64), list(values)
            for holds, count, bit in parts:
                total = total | np.where(holds(*rest[:count]), 0, bit)
                rest = rest[count:]
            return total

        # Schedules and masks state one fault by conditions of their own.
        bits = tuple((r.fault, faults[r.fault], r.holds) for r in requires)
        key = ("faults", bits, *(n.key for n in inputs))
        return self._intern("status", key, tuple(inputs), run)

    def _make(self, quantity: str, algorithm: Algorithm | None) -> Node:
        if quantity in COST_PARTS:
            return self._cost(quantity, algorithm)
        found = (algorithm,) if algorithm else self.algorithms()
        if quantity == "chunks":
            return self._chunks(found)
        if quantity == "chosen_algorithm":
            return self._chosen(found)
        if quantity == "time" and len(found) > 1 and self.only_time:
            return self._least(found)
        if quantity == "time" and len(found) > 1:
            best = self._best(found)
            return self._intern("time", ("least", best.key), (best,), lambda pair: pair[0])
        declared, *others = self._formulas(quantity, found)
        if any(other is not declared for other in others):
            # The bound with reductions in the network is for the algorithms that use them alone.
            return self._chosen_of(quantity, found, [self.node(quantity, one) for one in found])
        if declared is None:
            raise Missing(quantity)
        if isinstance(declared, Call):
            return self._call(declared)
        inputs = tuple(self.node(name, algorithm) for name in declared.inputs)
        if declared.commutes:
            # Then few of the steps are as large as all dimensions together.
            inputs = tuple(sorted(inputs, key=lambda node: self.grid.size(node.dims)))
        key = (declared.name, id(declared.kernel), *(node.key for node in inputs))
        run = declared.kernel if declared.ufunc else shaped(declared, len(self.grid.shape))
        return self._intern(quantity, short(key), inputs, run, declared.ufunc, declared)

    def _call(self, declared: Call) -> Node:
        """Return the node of what a call evaluates, with its quantities bound to nodes here."""
        outer = self
        if declared.labels:
            plain = {k: v for k, v in declared.labels.items() if k != "collective"}
            outer = self._scope(("labels", *sorted(plain.items())), self.given, plain)
        bound = {inner: outer.node(name) for inner, name in declared.bind.items()}
        key = (declared.of == "time", *sorted(declared.bind.items()))
        labels = declared.labels
        where = ("bind", *sorted(labels.items()), *key)
        inner = outer._scope(where, {**self.given, **bound}, labels, least=declared.of == "time")
        return inner.node(declared.of)

    def _scope(
        self,
        key: tuple[Any, ...],
        given: Mapping[str, Node],
        labels: Mapping[str, str],
        *,
        least: bool = False,
    ) -> Builder:
        if key not in self.scopes:
            self.scopes[key] = Builder(
                self.grid, {**self.labels, **labels}, given, self.interned, least, inside=True,
                defaults=self.defaults,
            )  # fmt: skip
        return self.scopes[key]

    def _formulas(self, quantity: str, found: Sequence[Algorithm]) -> list[Formula | Call | None]:
        """Return what gives a quantity: of algorithms in the network, and of others."""
        kinds = {"yes" if algorithm.in_network else "no" for algorithm in found} or {"no"}
        return [
            REGISTRY.returning(quantity, {**self.labels, "in_network": kind})
            for kind in sorted(kinds)
        ]

    def _chosen_of(self, quantity: str, found: Sequence[Algorithm], each: Sequence[Node]) -> Node:
        """Return the node of a quantity of the algorithm that has the least time."""
        chosen = self._best(found)
        key = short(("select", quantity, chosen.key, *(node.key for node in each)))
        return self._intern(quantity, key, (chosen, *each), select)

    def _cost(self, quantity: str, algorithm: Algorithm | None) -> Node:
        found = (algorithm,) if algorithm else self.algorithms()
        if not found:
            raise Missing(quantity)
        if len(found) > 1:
            return self._chosen_of(quantity, found, [self._cost(quantity, a) for a in found])
        (only,) = found
        names = only.inputs
        inputs = tuple(self.input(name, only) for name in names)
        if only.chunked and not depends_on_chunks(only, quantity):
            # Else what the best number of chunks depends on would seem to matter.
            one = self._intern("chunks", ("one chunk",), (), lambda: np.ones(self._ones()))
            inputs = tuple(
                one if name == "chunks" else node for name, node in zip(names, inputs, strict=True)
            )
        key = short((*only.key, *(node.key for node in inputs)))
        cost = self._intern(
            "cost",
            key,
            inputs,
            costing(only, names),
            None,
            only,
        )
        take, ndim = COST_PARTS[quantity], len(self.grid.shape)
        # What pays a latency decides how many latencies there are, and nothing else.
        counted = quantity.endswith("latency_count")
        per_message = counted and self.labels["latency_per"] == "message"

        def extract(value: Any) -> Array:
            part = np.asarray(take(value, per_message), dtype=np.float64)
            return part if part.ndim == ndim else part.reshape((1,) * ndim)

        return self._intern(quantity, (quantity, per_message, key), (cost,), extract)

    def input(self, name: str, algorithm: Algorithm) -> Node:
        """Return the node of an algorithm's own input, its chunks included."""
        if name == "chunks" and name not in self.given:
            return self._chunks((algorithm,))
        return self.node(name)

    def _chunks(self, found: Sequence[Algorithm]) -> Node:
        if len(found) > 1:
            return self._chosen_of("chunks", found, [self._chunks((one,)) for one in found])
        (algorithm,) = found
        if not algorithm.chunked:
            ones = self._ones()
            return self._intern("chunks", ("no chunks",), (), lambda: np.full(ones, np.nan))
        names = tuple(name for name in algorithm.inputs if name != "chunks")
        if self.labels["shape"] == "flat":
            latency = "in_network_latency" if algorithm.in_network else "latency"
            links: tuple[tuple[str, str], ...] = ((latency, "wire_time"),)
        else:
            links = tuple((f"{x}_latency", f"{x}_wire_time") for x in LEVELS)
        pairs = [name for pair in links for name in pair]
        inputs = tuple(self.node(name) for name in (*names, *pairs))
        latency_per = self.labels["latency_per"]

        def run(*values: Array) -> Array:
            shape = dict(zip(names, values, strict=False))
            rest = values[len(names) :]
            return best_chunks(algorithm, shape, rest[::2], rest[1::2], latency_per)

        key = short(("chunks", *algorithm.key, latency_per, *(node.key for node in inputs)))
        return self._intern("chunks", key, inputs, run, None, algorithm)

    def _best(self, found: Sequence[Algorithm]) -> Node:
        times = self._times(found)
        key = short(("best", *(node.key for node in times)))
        return self._intern("best", key, tuple(times), best_of)

    def _least(self, found: Sequence[Algorithm]) -> Node:
        first, *rest = self._times(found)
        for node in rest:
            key = short(("lesser", first.key, node.key))
            first = self._intern("time", key, (first, node), np.minimum, np.minimum)
        return first

    def _times(self, found: Sequence[Algorithm]) -> list[Node]:
        if "time" in self.given:
            choice = self.labels["algorithm"]
            wrong = "takes the algorithm of the least time, but the time is given"
            raise InputError(fault("algorithm", choice, wrong, "an algorithm's name, or standard"))
        times = []
        for algorithm in found:
            time = self.node("time", algorithm)
            if algorithm.requires:
                defined = self._faults(algorithm.requires, {r.fault: 1 for r in algorithm.requires})
                key = ("defined", time.key, defined.key)
                time = self._intern("time", key, (time, defined), where_defined)
            times.append(time)
        return times

    def _chosen(self, found: Sequence[Algorithm]) -> Node:
        codes = np.array([one.code for one in found] or [0], dtype=np.int32)
        shape = self._ones()
        if len(found) <= 1:
            return self._intern(
                "chosen_algorithm", ("chosen", int(codes[0])), (), lambda: codes.reshape(shape)
            )
        best = self._best(found)
        key = ("chosen", *map(int, codes), best.key)
        return self._intern("chosen_algorithm", key, (best,), lambda pair: codes[pair[1]])
