"""Quantities from given ones, for one call: an evaluation on a graph that a thread shares."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overhead.arrays import namespace_of, using, xp
from overhead.choose import Builder
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.formula import REGISTRY, Call
from overhead.graph import ANYWHERE, Graph, Missing, Node
from overhead.quantity import Array


class MissingQuantities(LookupError):
    """Quantities that nothing gives, and without which another can't be had."""

    def __init__(self, quantity: str, missing: tuple[str, ...], circle: Sequence[str] = ()) -> None:
        super().__init__(needs(quantity, missing, circle))
        self.quantity = quantity
        self.missing = missing


def needs(quantity: str, missing: Sequence[str], circle: Sequence[str] = ()) -> str:
    """Return in words what a quantity needs that nothing gives."""
    *first, last = [name for name in missing if name != quantity] or missing
    listed = f"{', '.join(first)} and {last}" if first else last
    if circle:
        *others, end = circle
        round_ = " needs ".join((*circle, circle[0]))
        either = f"{', '.join(others)} or {end}" if others else end
        return f"{quantity} can't be had: {round_}; give {either}"
    return f"{quantity} needs {listed}, which nothing gives"


# So many nodes at most are kept by the graphs that evaluations share.  Questions that are alike
# gain by it; of many unlike ones the next takes the longer, the more nodes there are.
MOST_NODES = 6_000
_SHARED = threading.local()


def _shared(*kind: Any) -> tuple[Graph, dict[str, Node]]:
    """Return the graph, and the given nodes, that a thread's evaluations of a kind have in common.

    Builders of a graph should differ little from its first.
    """
    graphs: dict[Any, tuple[Graph, dict[str, Node]]] = _SHARED.__dict__.setdefault("graphs", {})
    if sum(len(graph.interned) for graph, _ in graphs.values()) > MOST_NODES:
        graphs.clear()
        graph_of.cache_clear()  # Its builders hold the graphs
    return graphs.setdefault(kind, (Graph(), {}))


def builder_of(
    labels: Iterable[tuple[str, str]],
    given: Iterable[str],
    algorithm: Algorithm | None,
    graph: Graph,
    nodes: dict[str, Node],
) -> Builder:
    """Return a builder of evaluations on any values; `nodes`: those of what is given there."""
    for name in given:
        nodes.setdefault(name, Node(name, ("given", name), (), None, frozenset()))
    inputs = {name: nodes[name] for name in given}
    algorithms = (algorithm,) if algorithm else None
    builder = Builder(ANYWHERE, dict(labels), inputs, graph, inside=True)
    builder.found = algorithms
    return builder


@lru_cache(maxsize=256)
def graph_of(
    labels: frozenset[tuple[str, str]],
    given: frozenset[str],
    algorithm: Algorithm | None,
    *edition: int,
) -> Builder:
    """Return the builder of evaluations; `edition`: of the registry, and the thread."""
    return builder_of(labels, given, algorithm, *_shared(algorithm, bool(labels), edition))


class Evaluation:
    """Quantities from given ones, each computed once, when it is asked for."""

    def __init__(
        self,
        given: Mapping[str, ArrayLike],
        labels: Mapping[str, str] | None = None,
        algorithm: Algorithm | None = None,
    ) -> None:
        self._namespace = namespace_of(*given.values())
        with using(self._namespace):
            self.given: dict[str, Array] = {
                name: xp.asarray(value, dtype=xp.float64) for name, value in given.items()
            }
        self.labels = dict(labels or {})
        if algorithm is not None:
            self.labels |= algorithm.labels
        self._algorithm, self._of_a_cell = algorithm, False
        self._builder: Builder | None = None
        self._values: dict[int, Any] = {}

    @property
    def builder(self) -> Builder:
        """What builds its graph: the one that a thread's evaluations share, if it has no other."""
        if self._builder is None:
            edition = (REGISTRY.edition, len(ALGORITHMS), threading.get_ident())
            of = frozenset(self.labels.items()), frozenset(self.given)
            self.use(graph_of(*of, self._algorithm, *edition))
        assert self._builder is not None
        return self._builder

    def use(self, builder: Builder) -> None:
        """Evaluate on another graph."""
        self._builder = builder
        self._values = {id(node): self.given[name] for name, node in builder.given.items()}

    def keep(self, node: Node, value: Any) -> None:
        """Keep what is known of a node of its graph."""
        self._values[id(node)] = value

    @classmethod
    def of_cell(cls, builder: Builder, values: dict[int, Any]) -> Evaluation:
        """Return the evaluation of a grid's one cell; what is known of it by node stays so."""
        numbers = {name: builder.space.given(node) for name, node in builder.given.items()}
        given = {name: number.reshape(()) for name, number in numbers.items() if number is not None}
        evaluation = cls(given, builder.labels)
        evaluation._builder, evaluation._values, evaluation._of_a_cell = builder, values, True
        return evaluation

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """The collective's algorithms: one, or several of which the fastest is taken."""
        return self.builder.algorithms()

    @property
    def algorithm(self) -> Algorithm | None:
        """The collective's algorithm, if it is one."""
        algorithms = self.algorithms
        return algorithms[0] if len(algorithms) == 1 else None

    def __getitem__(self, quantity: str) -> Array:
        """Return a quantity, of the shape to which broadcast what it depends on."""
        try:
            return self._array(self.builder.node(quantity))
        except Missing as missing:
            raise MissingQuantities(quantity, missing.roots, missing.circle) from None

    def value(self, quantity: str, missing: dict[str, None]) -> Array | None:
        """Return a quantity, or None where something is missing, which is added to `missing`."""
        try:
            return self._array(self.builder.node(quantity))
        except Missing as error:
            missing.update(dict.fromkeys(error.roots))
            return None

    def called(self, declared: Call, *, one: bool = True) -> tuple[Evaluation, Evaluation]:
        """Return where a call's quantities are, and where they are bound, which is what it gives.

        Of several algorithms the fastest is taken if `one` is asked for.
        """
        plain = declared.around
        outer = Evaluation(self.given, {**self.labels, **plain}) if plain else self
        bound = {inner: outer[name] for inner, name in declared.bind.items()}
        given, labels = outer.given | bound, {**outer.labels, **declared.labels}
        inner = Evaluation(given, labels)
        if one and "collective" in declared.labels and inner.algorithm is None:
            inner = Evaluation(given, labels, inner.algorithms[int(inner.fastest())])
        return outer, inner

    def defined(self) -> Array:
        """Return a mask of where an algorithm is defined, on a network that can be."""
        masks = [
            self._array(
                self.builder.faults(algorithm.requires, {r.fault: 1 for r in algorithm.requires})
            )
            == 0
            for algorithm in self.algorithms
        ]
        defined: Any = reduce(operator.or_, masks) if masks else np.asarray(True)
        # A network's own conditions, as far as what they look at is known.
        network = NETWORKS.get(self.labels.get("topology", ""))
        for requirement in network.existing(self.labels) if network else ():
            if all(self.builder.perhaps(name) is not None for name in requirement.inputs):
                with using(self._namespace):
                    defined = defined & requirement.holds(
                        *(self[name] for name in requirement.inputs)
                    )
        return defined

    def fastest(self) -> Array:
        """Return which of the algorithms has the least time, by its place among them."""
        algorithms = self.algorithms
        with using(self._namespace):
            return (
                np.asarray(0)
                if len(algorithms) == 1
                else self._of(self.builder.best(algorithms))[1]
            )

    def _array(self, node: Node) -> Array:
        with using(self._namespace):
            value = xp.asarray(self._of(node), dtype=xp.float64)
            return xp.reshape(value, ()) if self._of_a_cell else value

    def _of(self, node: Node) -> Any:
        """Return a node's value; what is computed once is kept."""
        values = self._values
        known = values.get(id(node))
        if known is not None:
            return known
        if node.run is None:
            return self.builder.space.given(node)
        # Most inputs are known, and a look costs less than a call.
        inputs = []
        for operand in node.inputs:
            value = values.get(id(operand))
            inputs.append(self._of(operand) if value is None else value)
        known = values[id(node)] = node.run(*inputs)
        return known


def derive(quantity: str, given: Mapping[str, ArrayLike]) -> Array:
    """Compute one quantity.

    Parameters
    ----------
    quantity : str
        Its name, such as ``parameters`` or ``forward_flops_per_token``.
    given : mapping of str to array_like
        What is given, in canonical units; the arrays broadcast.

    Returns
    -------
    ndarray
        The quantity, of the shape to which broadcast what it depends on.

    Raises
    ------
    MissingQuantities
        If something that it needs is neither given nor follows from what is.
    """
    return Evaluation(given)[quantity]
