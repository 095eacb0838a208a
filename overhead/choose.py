"""Which algorithm stands for a collective where none is named: the choice, and the nodes of it.

``standard`` is the one that the field means by a network and an operation.  ``nccl`` is the fastest
of those that NCCL has on such a machine: between nodes a ring along its path, the double tree, NVLS
under a tree, exchanges node by node; on networks for which NCCL has nothing of its own, the
standard one.
``auto`` is the fastest of all that are defined there; ``all`` is each of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache, partial, reduce
from operator import and_, or_
from typing import Any

import numpy as np

from overhead import graph
from overhead.arrays import PLAIN, xp
from overhead.arrays import select as choose
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.collectives.chunks import PAID, best_chunks, depends_on_chunks, paid_by_steps
from overhead.collectives.cost import COST_PARTS, LATENCY_COUNTS
from overhead.dependencies import FORM, ITSELF, Dependencies, bits
from overhead.expression import evaluate, names
from overhead.formula import REGISTRY, Call, Formula
from overhead.graph import Missing, Node
from overhead.labels import (
    ALL,
    AUTO,
    CHOICES,
    COLLECTIVES,
    HIERARCHY,
    NCCL,
    NO_LIBRARY,
    STANDARD,
    XLA,
)
from overhead.quantity import Array

# Forms of what a library takes by itself: reduction by switches between nodes has to be asked for.
TAKEN = ("ring", "nvls", "tree", "nvls_tree", "pairs", "message")


def candidates(
    topology: str, collective: str, choice: str, library: str = NO_LIBRARY
) -> tuple[Algorithm, ...]:
    """Return the algorithms among which a choice takes the fastest that is defined.

    With a library's profile NCCL's are those that have a form of their own in it; XLA has no trees
    of NCCL between pods of a torus, but phases: rings inside pods, then between them.
    """
    for word, known in ((topology, NETWORKS), (collective, COLLECTIVES)):
        if word not in known:
            message = f"'{word}' is unknown; known: {', '.join(known)}"
            raise ValueError(message)
    network = NETWORKS[topology]
    standard: tuple[str, ...] = (network.standard.get(collective, ""),)
    if choice == STANDARD or (choice, library, topology) == (AUTO, XLA, HIERARCHY):
        names = standard
    elif choice == NCCL:
        suited = [
            algorithm
            for algorithm in ALGORITHMS.of(topology, collective)
            if algorithm.form in TAKEN
        ]
        if library != NO_LIBRARY and suited:
            return tuple(suited)
        names = network.nccl.get(collective, standard)
    elif choice in (AUTO, ALL):
        return ALGORITHMS.of(topology, collective)
    elif choice in ALGORITHMS.names():
        names = (choice,)
    else:
        near = difflib.get_close_matches(choice, (*CHOICES, ALL, *ALGORITHMS.names()), n=2)
        offer = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        message = f"no algorithm is called '{choice}'{offer}"
        raise ValueError(message)
    keys = ((topology, collective, name) for name in names)
    return tuple(ALGORITHMS[key] for key in keys if key in ALGORITHMS)


def usable(labels: Mapping[str, str], *, inside: bool = True) -> tuple[Algorithm, ...]:
    """Return the algorithms of a collective, by itself or inside of a model.

    There a name that the collective doesn't have stands for the standard algorithm: it was meant
    for another of the model's collectives.
    """
    topology, collective = labels["topology"], labels["collective"]
    library = labels.get("library", NO_LIBRARY)
    algorithms = candidates(topology, collective, labels["algorithm"], library)
    return algorithms if algorithms or not inside else candidates(topology, collective, STANDARD)


# The fastest of several, cell by cell.


def all_of(*reasons: Array) -> Array:
    """Return all candidates' reasons where each has one, else none."""
    every = reduce(and_, [reason != 0 for reason in reasons])
    total = reduce(or_, reasons)
    return xp.where(every, total, total ^ total)


def where_defined(other: float, time: Array, undefined: Array) -> Array:
    """Return times, another where an algorithm isn't defined."""
    return xp.where(undefined != 0, other, time) if xp.any(undefined != 0) else time


def select(best: tuple[Array, Array], *values: Array) -> Array:
    """Return the value of the algorithm that was the best, cell by cell."""
    shape = xp.broadcast_shapes(best[1].shape, *(value.shape for value in values))
    chosen = xp.broadcast_to(best[1], shape)
    return choose([chosen == index for index in range(len(values) - 1)], values[:-1], values[-1])


def lesser(first: Array, other: Array) -> Array:
    """Return the lesser, cell by cell."""
    return xp.minimum(first, other)


def code_of(codes: Sequence[int], best: tuple[Array, Array]) -> Array:
    """Return the code of the algorithm that was the best, cell by cell."""
    return xp.asarray(codes, dtype=xp.int32)[xp.asarray(best[1], dtype=xp.int64)]


def best_of(*values: Array) -> tuple[Array, Array]:
    """Return the least of several arrays and the index of the first that has it.

    A value that isn't defined is infinite.
    """
    shape = xp.broadcast_shapes(*(value.shape for value in values))
    best = xp.broadcast_to(values[0], shape)
    if not isinstance(best, PLAIN):
        code = xp.zeros(shape)
        for index, value in enumerate(values[1:], 1):
            code = xp.where(value < best, index, code)
            best = xp.minimum(best, value)
        return best, code
    best, code, less = best.copy(), np.zeros(shape, np.int8), np.empty(shape, np.bool_)
    for index, value in enumerate(values[1:], 1):
        keep_least(best, code, value, index, less)
    return best, code


def keep_least(best: Array, code: Array, value: Array, index: int, less: Array) -> None:
    """Update the least and its index, in place, by a value of a higher index."""
    np.less(value, best, out=less)
    np.minimum(best, value, out=best)
    # Later indices are larger, so the maximum keeps the last that was less.
    marks = less.view(np.int8)
    np.multiply(marks, np.int8(index), out=marks)
    np.maximum(code, marks, out=code)


# The graph of it.


class Undecided(LookupError):
    """A choice among algorithms by their times, where the time is given."""


# What follows from a collective's algorithm, and the labels by which one is chosen
OF_ALGORITHMS = {"chunks", "chosen_algorithm", "time_is_upper_bound", "time", *COST_PARTS}
CHOOSING = ("topology", "collective", "algorithm", "library", "group", "time")
# What a single rank doesn't have.
NOT_OF_ONE_RANK = ("algbw", "busbw", "lower_bound_ratio")


@cache
def _costing(_algorithms: int) -> tuple[str, ...]:
    """Return what costs of algorithms, and the choice among these, depend on."""
    inputs = dict.fromkeys((*CHOOSING, "shape", "latency_per", "chunks", *PAID, ITSELF))
    for algorithm in ALGORITHMS.values():
        inputs |= dict.fromkeys(
            name for condition in algorithm.conditions for name in condition.inputs
        )
        inputs |= dict.fromkeys(algorithm.inputs)
    return tuple(inputs)


def _further(quantity: str) -> tuple[str, ...]:
    """Return what a quantity depends on beside its formulas."""
    if quantity in OF_ALGORITHMS:
        return _costing(len(ALGORITHMS))
    return CHOOSING if quantity in FORM else ()


OF_FORM, OF_ONE = bits(FORM), bits((ITSELF,))


class Builder(graph.Builder):
    """Builds the graph for one set of labels, with the choice among a collective's algorithms."""

    found: tuple[Algorithm, ...] | None = None
    dependencies = Dependencies(_further)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._labels: dict[Algorithm | None, Mapping[str, str]] = {}

    def _key(self, quantity: str, algorithm: Algorithm | None) -> tuple[Any, ...]:
        seen = self.dependencies.of(quantity)
        view = self._view(seen)
        if not seen & (OF_ONE | OF_FORM):
            return quantity, view
        if algorithm is None:
            return quantity, view, self.inside, self.only_time
        form = (algorithm.in_network, algorithm.form)
        return quantity, view, algorithm if seen & OF_ONE else form

    def algorithms(self) -> tuple[Algorithm, ...]:
        """Return the algorithms that the labels leave: one, or several for a choice."""
        if self.found is None:
            self.found = ()
            if "collective" in self.labels:
                self.found = usable(self.labels, inside=self.inside)
        return self.found

    def _make(self, quantity: str, algorithm: Algorithm | None) -> Node:
        algorithms = (algorithm,) if algorithm else self.algorithms()
        if quantity in COST_PARTS:
            return self._cost(quantity, algorithms)
        if quantity == "chunks" and algorithms:
            return self._chunks(algorithms)
        if quantity == "chosen_algorithm":
            return self._chosen(algorithms)
        if quantity == "time_is_upper_bound" and algorithms:
            return self._bound(algorithms)
        if quantity == "time" and len(algorithms) > 1 and self.only_time:
            return self._least(algorithms)
        if quantity == "time" and len(algorithms) > 1:
            best = self.best(algorithms)
            return self.intern("time", ("least",), (best,), lambda pair: pair[0])
        declared, *others = self._formulas(quantity, algorithms)
        if any(other is not declared for other in others):
            # The bound with reductions in the network is for the algorithms that use them alone.
            return self._chosen_of(
                quantity, algorithms, [self.node(quantity, member) for member in algorithms]
            )
        node = self._declared(quantity, declared, algorithm)
        if quantity == "time" and "group" in self.labels and algorithms and algorithm is None:
            return self._where_defined(node, algorithms[0], np.nan)  # of a step's communication
        return node

    def _formulas(
        self, quantity: str, algorithms: Sequence[Algorithm]
    ) -> list[Formula | Call | None]:
        """Return what gives a quantity: of algorithms in the network, and of others."""
        each: dict[Formula | Call | None, None] = {}
        for algorithm in algorithms or (None,):
            if algorithm not in self._labels:
                kind = algorithm.labels if algorithm else {"in_network": "no"}
                self._labels[algorithm] = {**self.labels, **kind}
            each[REGISTRY.returning(quantity, self._labels[algorithm])] = None
            if not self.dependencies.of(quantity) & OF_FORM:
                break  # The others have the same.
        return list(each)

    def _chosen_of(
        self, quantity: str, algorithms: Sequence[Algorithm], each: Sequence[Node]
    ) -> Node:
        """Return the node of a quantity of the algorithm that has the least time."""
        chosen = self.best(algorithms)
        return self.intern(quantity, ("select", quantity), (chosen, *each), select)

    def _cost(self, quantity: str, algorithms: Sequence[Algorithm]) -> Node:
        if not algorithms:
            raise Missing(quantity)
        if len(algorithms) > 1:
            return self._chosen_of(
                quantity,
                algorithms,
                [self._cost(quantity, (algorithm,)) for algorithm in algorithms],
            )
        (only,) = algorithms
        names = only.inputs
        inputs = tuple(self.input(name, only) for name in names)
        if only.chunked and not depends_on_chunks(only, quantity, self.space.cost(only)):
            # Else what the best number of chunks depends on would seem to matter.
            single_chunk = self.intern("chunks", ("one chunk",), (), lambda: xp.ones(self._ones()))
            inputs = tuple(
                single_chunk if name == "chunks" else node
                for name, node in zip(names, inputs, strict=True)
            )
        cost = self.intern("cost", ("cost", only), inputs, self.space.cost(only), None, only)
        take, ndim = COST_PARTS[quantity], self.space.ndim
        # What pays a latency decides how many latencies there are, and nothing else.
        per_message = quantity in LATENCY_COUNTS and self.labels["latency_per"] == "message"

        def extract(value: Any) -> Array:
            part = xp.asarray(take(value, per_message), dtype=xp.float64)
            return part if ndim is None or part.ndim == ndim else xp.reshape(part, (1,) * ndim)

        return self.intern(quantity, ("part", quantity, per_message), (cost,), extract)

    def input(self, name: str, algorithm: Algorithm) -> Node:
        """Return the node of an algorithm's own input, its chunks included."""
        if name == "chunks" and name not in self.given:
            return self._chunks((algorithm,))
        return self.node(name)

    def _chunks(self, algorithms: Sequence[Algorithm]) -> Node:
        if len(algorithms) > 1:
            return self._chosen_of(
                "chunks", algorithms, [self._chunks((member,)) for member in algorithms]
            )
        (algorithm,) = algorithms
        if not algorithm.chunked:
            chunk_shape = self._ones()
            return self.intern("chunks", ("no chunks",), (), lambda: xp.full(chunk_shape, xp.nan))
        names = tuple(name for name in algorithm.inputs if name != "chunks")
        steps = paid_by_steps(self.labels, algorithm)
        count = len(steps[0])
        paid = [self.node(name, algorithm) for step in steps for name in step]
        inputs = (*(self.node(name) for name in names), *paid)
        latency_per = self.labels["latency_per"]

        def run(*values: Array) -> Array:
            shape = dict(zip(names, values, strict=False))
            rest = values[len(names) :]
            latencies, wires, *ramps = (rest[at : at + count] for at in range(0, len(rest), count))
            return best_chunks(algorithm, shape, latencies, wires, latency_per, *ramps)

        what = "chunks", algorithm, latency_per
        return self.intern("chunks", what, inputs, run, None, algorithm)

    def _bound(self, algorithms: Sequence[Algorithm]) -> Node:
        """Return the node of whether a time is an upper bound rather than exact."""
        if len(algorithms) > 1:
            each = [self._bound((member,)) for member in algorithms]
            return self._chosen_of("time_is_upper_bound", algorithms, each)
        (algorithm,) = algorithms
        condition, shape = algorithm.exact_chunks, self._ones()
        if not condition:
            return self.intern("time_is_upper_bound", ("exact",), (), lambda: xp.zeros(shape))
        used = names(condition)
        inputs = tuple(self.input(name, algorithm) for name in used)

        def run(*values: Array) -> Array:
            exact = evaluate(condition, dict(zip(used, values, strict=True)))
            return xp.where(exact, 0.0, 1.0)

        what = "bound", algorithm
        return self.intern("time_is_upper_bound", what, inputs, run, None, algorithm)

    def best(self, algorithms: Sequence[Algorithm]) -> Node:
        """Return the node of the least time of several algorithms, and of which has it."""
        return self.intern("best", ("best",), tuple(self._times(algorithms)), best_of)

    def _least(self, algorithms: Sequence[Algorithm]) -> Node:
        first, *rest = self._times(algorithms)
        for node in rest:
            first = self.intern("time", ("lesser",), (first, node), lesser, np.minimum)
        return first

    def _times(self, algorithms: Sequence[Algorithm]) -> list[Node]:
        if "time" in self.given:
            raise Undecided(self.labels["algorithm"])
        return [
            self._where_defined(self.node("time", algorithm), algorithm, np.inf)
            for algorithm in algorithms
        ]

    def _where_defined(self, time: Node, algorithm: Algorithm, other: float) -> Node:
        """Return the node of a time where its algorithm is defined, and of another elsewhere."""
        if not algorithm.conditions:
            return time
        undefined = self.faults(algorithm.conditions, {r.fault: 1 for r in algorithm.conditions})
        run = partial(where_defined, other)
        return self.intern("time", ("defined", other), (time, undefined), run)

    def _chosen(self, algorithms: Sequence[Algorithm]) -> Node:
        codes, shape = [algorithm.code for algorithm in algorithms] or [0], self._ones()
        what = ("chosen", *codes)
        if len(algorithms) <= 1:
            return self.intern("chosen_algorithm", what, (), lambda: xp.full(shape, codes[0]))
        run = partial(code_of, codes)
        return self.intern("chosen_algorithm", what, (self.best(algorithms),), run)
