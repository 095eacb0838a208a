"""The graph of what is asked: which formulas are needed, in what order, each on its own dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from overhead.collectives.algorithm import ALGORITHMS, Algorithm
from overhead.collectives.choices import candidates
from overhead.collectives.chunking import best_chunks
from overhead.collectives.cost import COST_PARTS, LEVELS
from overhead.collectives.requirement import Requirement
from overhead.formula import REGISTRY, Formula
from sweeps.engine.axes import Array, Grid
from sweeps.engine.validity import (
    NOT_CHUNKED,
    NOT_KNOWN,
    NOT_OF_ONE_RANK,
    NO_TIME,
    ONE_RANK,
    topology_requirements,
)
from sweeps.errors import InputError, RunError, fault

__all__ = ["Builder", "Missing", "Node", "best_of", "keep_least"]

CHOICES = ("auto", "nccl")


class Missing(LookupError):
    """A quantity that nothing gives; `chain` says what needs it."""

    def __init__(self, quantity: str, chain: tuple[str, ...] = ()) -> None:
        super().__init__(quantity)
        self.quantity = quantity
        self.chain = chain


@dataclass(eq=False, slots=True)
class Node:
    """One computation of the graph.

    Attributes
    ----------
    name : str
        What it gives.
    key : tuple
        What it is: two nodes of one key give the same.
    inputs : tuple of Node
        What it takes.
    run : callable or None
        From the inputs' values to its own; None for what is given.
    dims : frozenset of str
        The dimensions that its inputs have together.
    given : ndarray or None
        The value, if it is given.
    ufunc : numpy.ufunc or None
        The one ufunc that `run` is, if it is one.
    origin : Formula, Algorithm or None
        The declaration that it comes from.
    """

    name: str
    key: tuple[Any, ...]
    inputs: tuple[Node, ...]
    run: Callable[..., Any] | None
    dims: frozenset[str]
    given: Array | None = None
    ufunc: np.ufunc | None = None
    origin: Formula | Algorithm | None = None


def _join(inputs: Sequence[Node]) -> frozenset[str]:
    return frozenset().union(*(node.dims for node in inputs))


def best_of(*values: Array) -> tuple[Array, Array]:
    """Return the least of several arrays and the index of the first that has it.

    A value that isn't defined is infinite.
    """
    shape = np.broadcast_shapes(*(value.shape for value in values))
    best = np.broadcast_to(values[0], shape).copy()
    code = np.zeros(shape, dtype=np.int8)
    less = np.empty(shape, dtype=np.bool_)
    for index, value in enumerate(values[1:], 1):
        keep_least(best, code, value, index, less)
    return best, code


def keep_least(best: Array, code: Array, value: Array, index: int, less: Array) -> None:
    """Update the least and its index, in place, by a value of a higher index.

    Parameters
    ----------
    best, code : ndarray
        The least so far, and its index (int8).
    value : ndarray
        The value; infinite where it isn't defined.
    index : int
        Its index.
    less : ndarray of bool
        Scratch.
    """
    np.less(value, best, out=less)
    np.minimum(best, value, out=best)
    # Later indices are larger, so the maximum keeps the last that was less.
    marks = less.view(np.int8)
    np.multiply(marks, np.int8(index), out=marks)
    np.maximum(code, marks, out=code)


@dataclass(slots=True)
class Builder:
    """Builds the graph for one set of labels.

    Attributes
    ----------
    grid : Grid
        The open grid.
    labels : mapping of str to str
        The labels that hold: topology, collective, algorithm, ...
    given : mapping of str to Node
        What the user gives, and what machines give.
    interned : dict
        Nodes by key, shared between label sets, so that the same thing is computed once.
    only_time : bool
        Whether it is enough to know the least time of a choice, not which algorithm has it.
    """

    grid: Grid
    labels: Mapping[str, str]
    given: Mapping[str, Node]
    interned: dict[tuple[Any, ...], Node]
    only_time: bool = False
    memo: dict[tuple[str, str], Node] = field(default_factory=dict)

    def node(self, quantity: str, algorithm: Algorithm | None = None) -> Node:
        """Return the node that gives a quantity.

        Parameters
        ----------
        quantity : str
            What is wanted.
        algorithm : Algorithm, optional
            The algorithm for which, where labels leave a choice.

        Returns
        -------
        Node
            The node.

        Raises
        ------
        Missing
            If nothing gives it, or something that it needs.
        """
        if quantity in self.given:
            return self.given[quantity]
        scope = algorithm.name if algorithm else ""
        known = self.memo.get((quantity, scope))
        if known is None:
            try:
                known = self._make(quantity, algorithm)
            except Missing as missing:
                missing.chain = (quantity, *missing.chain)
                raise
            self.memo[quantity, scope] = known
        return known

    def algorithms(self) -> tuple[Algorithm, ...]:
        """Return the algorithms that the labels leave: one, or several for a choice."""
        return candidates(
            self.labels["topology"], self.labels["collective"], self.labels["algorithm"]
        )

    def status(self, faults: Mapping[str, int], wanted: Mapping[str, Node]) -> Node:
        """Return the node of the reasons why cells, or values in them, don't exist, as bits.

        Parameters
        ----------
        faults : mapping of str to int
            Each reason's bit.
        wanted : mapping of str to Node
            The quantities asked for.

        Returns
        -------
        Node
            The node.
        """
        found = self.algorithms()
        shared = [self._faults(topology_requirements(self.labels, self.given), faults)]
        if not found:
            name = "algorithm_not_defined_on_topology"
            none = self._intern(
                "status", ("fault", name), (), lambda: np.full(self._ones(), faults[name])
            )
            return self._either([*shared, none])
        shared += self._notes(faults, wanted)
        each = [self._faults(algorithm.requires, faults) for algorithm in found]
        if len(each) > 1:
            # A choice fails only where no candidate is defined.
            each = [self._intern("status", ("all", *(n.key for n in each)), tuple(each), _all_of)]
        return self._either([*shared, *each])

    def _notes(self, faults: Mapping[str, int], wanted: Mapping[str, Node]) -> list[Node]:
        """Return nodes of the reasons that concern some quantities of a cell alone."""
        notes = []
        if set(wanted) & set(NOT_OF_ONE_RANK):
            ranks = self._ranks()
            if ranks is not None and (ranks.given is None or np.any(ranks.given == 1.0)):
                notes.append(self._note(ranks, faults[ONE_RANK], lambda v: v == 1.0))
            time = self.node("time")
            if _may_be_zero(time):
                notes.append(self._note(time, faults[NO_TIME], lambda v: v == 0.0))
        if "chunks" in wanted:
            notes.append(self._note(wanted["chunks"], faults[NOT_CHUNKED], np.isnan))
        for node in _given_below(wanted.values()):
            if np.isnan(node.given).any():
                notes.append(self._note(node, faults[NOT_KNOWN], np.isnan))
        return notes

    def _ranks(self) -> Node | None:
        try:
            return self.node("ranks")
        except Missing:
            return None

    def _note(self, node: Node, bit: int, test: Callable[[Array], Array]) -> Node:
        key = ("note", bit, node.key)
        return self._intern("status", key, (node,), lambda v: np.where(test(v), bit, 0))

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

    def _either(self, nodes: Sequence[Node]) -> Node:
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

        key = ("faults", *(r.fault for r in requires), *(n.key for n in inputs))
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
        declared = REGISTRY.returning(quantity, self._all_labels(found))
        if declared is None:
            raise Missing(quantity)
        inputs = tuple(self.node(name, algorithm) for name in declared.inputs)
        key = (declared.name, id(declared.kernel), *(node.key for node in inputs))
        run = declared.kernel if declared.ufunc else _shaped(declared, len(self.grid.shape))
        return self._intern(quantity, _short(key), inputs, run, declared.ufunc, declared)

    def _all_labels(self, found: Sequence[Algorithm]) -> dict[str, str]:
        within = "yes" if any(a.in_network for a in found) else "no"
        return {**self.labels, "in_network": within}

    def _cost(self, quantity: str, algorithm: Algorithm | None) -> Node:
        found = (algorithm,) if algorithm else self.algorithms()
        if not found:
            raise Missing(quantity)
        if len(found) > 1:
            chosen = self._best(found)
            each = tuple(self._cost(quantity, one) for one in found)
            key = _short(("select", quantity, chosen.key, *(node.key for node in each)))
            return self._intern(quantity, key, (chosen, *each), _select)
        (only,) = found
        inputs = tuple(self.input(name, only) for name in only.inputs)
        names = only.inputs
        key = _short((*only.key, *(node.key for node in inputs)))
        cost = self._intern(
            "cost", key, inputs, lambda *v: only.cost(**dict(zip(names, v, strict=True))), None, only
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
            each = tuple(self._chunks((one,)) for one in found)
            chosen = self._best(found)
            key = _short(("select", "chunks", chosen.key, *(node.key for node in each)))
            return self._intern("chunks", key, (chosen, *each), _select)
        (algorithm,) = found
        if not algorithm.chunked:
            ones = self._ones()
            return self._intern("chunks", ("no chunks",), (), lambda: np.full(ones, np.nan))
        names = tuple(name for name in algorithm.inputs if name != "chunks")
        if self.labels["shape"] == "flat":
            links = (("latency", "wire_time"),)
        else:
            links = tuple((f"{x}_latency", f"{x}_wire_time") for x in LEVELS)
        pairs = [name for pair in links for name in pair]
        inputs = tuple(self.node(name) for name in (*names, *pairs))
        latency_per = self.labels["latency_per"]

        def run(*values: Array) -> Array:
            shape = dict(zip(names, values, strict=False))
            rest = values[len(names) :]
            return best_chunks(algorithm, shape, rest[::2], rest[1::2], latency_per)

        key = _short(("chunks", *algorithm.key, latency_per, *(node.key for node in inputs)))
        return self._intern("chunks", key, inputs, run, None, algorithm)

    def _best(self, found: Sequence[Algorithm]) -> Node:
        times = self._times(found)
        key = _short(("best", *(node.key for node in times)))
        return self._intern("best", key, tuple(times), best_of)

    def _least(self, found: Sequence[Algorithm]) -> Node:
        first, *rest = self._times(found)
        for node in rest:
            key = _short(("lesser", first.key, node.key))
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
                defined = self._faults(
                    algorithm.requires, {r.fault: 1 for r in algorithm.requires}
                )
                key = ("defined", time.key, defined.key)
                time = self._intern("time", key, (time, defined), _where_defined)
            times.append(time)
        return times

    def _chosen(self, found: Sequence[Algorithm]) -> Node:
        names = ALGORITHMS.names()
        codes = np.array([names.index(a.name) + 1 for a in found] or [0], dtype=np.int16)
        shape = self._ones()
        if len(found) <= 1:
            return self._intern(
                "chosen_algorithm", ("chosen", int(codes[0])), (), lambda: codes.reshape(shape)
            )
        best = self._best(found)
        key = ("chosen", *map(int, codes), best.key)
        return self._intern("chosen_algorithm", key, (best,), lambda pair: codes[pair[1]])


def _given_below(nodes: Iterable[Node]) -> list[Node]:
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
    for node in _given_below([time]):
        kind = next((name for name in free if node.name.endswith(name)), None)
        if kind is not None and node.given is not None:
            free[kind] |= bool(np.any(node.given == (np.inf if kind == "bandwidth" else 0.0)))
    return free["latency"] and (free["message_bytes"] or free["bandwidth"])


def _shaped(declared: Formula, ndim: int) -> Callable[..., Array]:
    """Return a kernel that gives an array of the grid's dimensions, whatever a user's own gives."""

    def run(*values: Array) -> Array:
        try:
            value = np.asarray(declared.kernel(*values), dtype=np.float64)
        except Exception as error:
            kind = type(error).__name__
            message = f"the formula '{declared.name}' failed: {kind}: {error}"
            raise RunError(message) from error
        if value.ndim == ndim:
            return value
        if value.size == 1:
            return value.reshape((1,) * ndim)
        shapes = ", ".join(str(one.shape) for one in values)
        message = f"the formula '{declared.name}' gave shape {value.shape} for inputs of {shapes}"
        raise RunError(message)

    return run


def _short(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key of small integers in place of nested ones (interning keeps them apart)."""
    return ("k", _NUMBERS.setdefault(key, len(_NUMBERS)))


_NUMBERS: dict[tuple[Any, ...], int] = {}


def _all_of(*reasons: Array) -> Array:
    """Return all candidates' reasons where each has one, else none."""
    every = reasons[0] != 0
    total = reasons[0]
    for reason in reasons[1:]:
        every = every & (reason != 0)
        total = total | reason
    return np.where(every, total, 0)


def _where_defined(time: Array, undefined: Array) -> Array:
    return np.where(undefined != 0, np.inf, time) if undefined.any() else time


def _select(best: tuple[Array, Array], *values: Array) -> Array:
    shape = np.broadcast_shapes(best[1].shape, *(value.shape for value in values))
    chosen = np.broadcast_to(best[1], shape)
    return np.choose(chosen, [np.broadcast_to(value, shape) for value in values])
