"""What is computed: the registry's formulas, put together for some labels and given quantities.

A formula is a function whose parameters name what it takes.  To `Builder.node` a quantity is what
is given, or the formula that the labels choose with the nodes of its parameters as inputs; a call
is a function called with some parameters bound, in a `Builder` of its own.  Nothing is computed
here: a `Node` is one application of a function, as an equation is that JAX traces.  With the
dimensions of an open grid the engine computes nodes block by block (`sweeps.engine`); without, an
`Evaluation` (`overhead.evaluation`) computes them for one call, on arrays that broadcast.

What is the same is made once, by two rules:

- Nodes are interned: the same function of the same inputs is one node (`Builder.intern`), whichever
  labels lead to it.  So values are computed once.
- Builders of one `Graph` share what they made (`Graph.made`): a quantity's node is looked up by the
  quantity and by those labels and given nodes that it can depend on (`overhead.dependencies`), for
  the others don't matter.  So graphs are built once, which takes longer than many a computation.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy import float64, ndarray

from overhead.arrays import xp
from overhead.collectives.algorithm import Algorithm, Requirement
from overhead.dependencies import BIT, Dependencies
from overhead.formula import REGISTRY, Call, Formula
from overhead.quantity import Array


class Missing(LookupError):
    """A quantity that nothing gives: what needs it, and whatever else is missing beside it."""

    def __init__(
        self,
        quantity: str,
        chain: Sequence[str] = (),
        roots: Iterable[str] = (),
        circle: Sequence[str] = (),
    ) -> None:
        super().__init__(quantity)
        self.quantity = quantity
        self.chain = tuple(chain)
        self.roots = tuple(roots) or (quantity,)
        self.circle = tuple(circle)  # Quantities each of which needs the next, the last the first


_KEYS: dict[tuple[Any, ...], int] = {}
_COUNT = itertools.count()


def key_of(what: tuple[Any, ...], inputs: Iterable[Node]) -> int:
    """Return the number of a computation: it has the same one in all graphs."""
    return _KEYS.setdefault((what, *[node.key for node in inputs]), next(_COUNT))


@dataclass(eq=False, slots=True)
class Node:
    """One computation of the graph."""

    name: str  # What it gives
    what: tuple[Any, ...]  # What is done with the inputs: its kind first
    inputs: tuple[Node, ...]  # What it takes
    # From the inputs' values to its own; None for what is given, whose values the space has
    run: Callable[..., Any] | None
    dims: frozenset[str]  # The dimensions that its inputs have together
    # What computes it in an array, where that isn't its formula's: to know a formula's takes long
    in_array: Callable[..., Any] | None = None
    origin: Formula | Algorithm | None = None  # The declaration that it comes from
    key: int = -1  # Nodes of one key, even of two graphs, are the same computation

    def __post_init__(self) -> None:
        if self.key < 0:
            self.key = key_of(self.what, self.inputs)

    @property
    def ufunc(self) -> Callable[..., Any] | None:
        """What computes it in an array ``out``, a ufunc most often."""
        kind, *more = self.what
        return more[0].ufunc if kind == "formula" else self.in_array


def nodes_below(roots: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes and all on which they depend, each once."""
    stack, seen = list(roots), set[int]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += node.inputs
            yield node


def below(node: Node, known: dict[int, int]) -> int:
    """Return the names of what is given below a node, as bits; `known`: by nodes' keys."""
    mask = known.get(node.key)
    if mask is None:
        mask = BIT[node.name] if node.run is None else 0
        for operand in node.inputs:
            known_mask = known.get(operand.key)
            mask |= below(operand, known) if known_mask is None else known_mask
        known[node.key] = mask
    return mask


class Space(Protocol):
    """Where a graph is computed: how many dimensions values have, how large these are."""

    @property
    def ndim(self) -> int | None:
        """The dimensions that every value has; None where values broadcast as they come."""

    def size(self, dims: frozenset[str]) -> int:
        """Return the number of cells over some dimensions."""

    def given(self, node: Node) -> Array | None:
        """Return the values of a node that is given; None of one that is computed."""

    def formula(self, declared: Formula) -> Callable[..., Array]:
        """Return a formula's kernel, its value an array of as many dimensions."""

    def cost(self, algorithm: Algorithm) -> Callable[..., Any]:
        """Return an algorithm's cost as a function of its inputs, in their order."""


class Broadcast:
    """The space of one call: arrays that broadcast, of whatever shapes."""

    ndim = None

    def size(self, dims: frozenset[str]) -> int:
        """Return 1: nothing has dimensions."""
        return 1

    def given(self, node: Node) -> Array | None:
        """Return None: each call has values of its own."""
        return None

    def formula(self, declared: Formula) -> Callable[..., Array]:
        """Return a formula's kernel."""
        kernel = declared.kernel

        def run(*values: Array) -> Array:
            value = kernel(*values)
            if type(value) is ndarray and value.dtype == float64:
                return value
            return xp.asarray(value, dtype=xp.float64)

        return run

    def cost(self, algorithm: Algorithm) -> Callable[..., Any]:
        """Return an algorithm's cost."""
        return lambda *values: algorithm.cost(**dict(zip(algorithm.inputs, values, strict=True)))


ANYWHERE = Broadcast()


# A label and its value, or a quantity and the key of its given node.
Item = tuple[str, str | int]


@dataclass(slots=True)
class Graph:
    """What builders of one graph have in common."""

    dependencies: Dependencies | None = None  # What holds of all its builders; else what ever does
    interned: dict[int, Node] = field(default_factory=dict)  # Nodes by their keys
    # Nodes by what they are made of, and what is missing
    made: dict[tuple[Any, ...], Node] = field(default_factory=dict)
    missing: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    # What is being made, each after what needs it
    making: dict[tuple[Any, ...], None] = field(default_factory=dict)
    # By a node's key: the names of what is given below it, as bits; and of those that are NaN
    below: dict[int, int] = field(default_factory=dict)
    unknown: int = 0
    # The items of the first builder, from which the others' differ a little; differences, numbered
    first: frozenset[Item] = frozenset()
    views: dict[frozenset[Item], int] = field(default_factory=dict)


DEPENDENCIES = Dependencies(lambda _: ())


def keys(nodes: Mapping[str, Node]) -> dict[str, int]:
    """Return the keys of nodes, which are the same in all graphs."""
    return {name: node.key for name, node in nodes.items()}


@dataclass
class Builder:
    """Builds the graph for one set of labels and given quantities."""

    space: Space  # Where it is computed
    labels: Mapping[str, str]  # The labels that hold
    given: Mapping[str, Node]  # What the user gives, and what machines give
    graph: Graph
    # Whether it is enough to know the least time of a choice, not which algorithm has it
    only_time: bool = False
    inside: bool = False  # Whether it builds what a call evaluates, rather than what is asked for
    defaults: Mapping[str, Node] = field(default_factory=dict)  # Hold where nothing else gives it
    apart: frozenset[Item] | None = None  # The items in which it and the first builder differ

    dependencies = DEPENDENCIES

    def __post_init__(self) -> None:
        self.dependencies = self.graph.dependencies or self.dependencies
        if self.apart is None:  # of a call it is known
            items: frozenset[Item] = frozenset(
                (*self.labels.items(), *keys(self.given).items(), *keys(self.defaults).items())
            )
            self.graph.first = self.graph.first or items
            self.apart = items ^ self.graph.first
        self._items = [(BIT[item[0]], item) for item in self.apart]
        self._apart = 0
        for bit, _ in self._items:
            self._apart |= bit
        self._views: dict[int, int] = {}
        self._scopes: dict[tuple[Any, ...], Builder] = {}
        # Labels as they are, and of given quantities whether they are: in a circle they come again.
        self._place = frozenset(
            (name, value if isinstance(value, str) else name in self.given)
            for name, value in self.apart
        )

    def node(self, quantity: str, algorithm: Algorithm | None = None) -> Node:
        """Return the node that gives a quantity, of an algorithm where a collective has several.

        Raises
        ------
        Missing
            If nothing gives it, or something that it needs.
        """
        if quantity in self.given:
            return self.given[quantity]
        key = self._key(quantity, algorithm)
        known = self.graph.made.get(key)
        if known is None:
            if key in self.graph.missing:
                raise Missing(*self.graph.missing[key])
            known = self.graph.made[key] = self._once(quantity, algorithm, key)
        return known

    def _key(self, quantity: str, algorithm: Algorithm | None) -> tuple[Any, ...]:
        """Return a quantity with the number of what differs among what it can depend on."""
        return quantity, self._view(self.dependencies.of(quantity))

    def _view(self, seen: int) -> int:
        """Return the number of the items among some names in which the first builder differs."""
        apart = seen & self._apart
        view = self._views.get(apart)
        if view is None:
            items = frozenset(item for bit, item in self._items if bit & apart)
            view = self._views[apart] = self.graph.views.setdefault(items, len(self.graph.views))
        return view

    def _once(self, quantity: str, algorithm: Algorithm | None, key: tuple[Any, ...]) -> Node:
        """Make a node, if it isn't being made already."""
        making = self.graph.making
        step = (quantity, algorithm, self._place)
        if step in making:
            names = [name for name, *_ in making]
            circle = names[list(making).index(step) :]
            raise Missing(quantity, (), circle, circle)
        making[step] = None
        try:
            return self._make(quantity, algorithm)
        except Missing as missing:
            default = self.defaults.get(quantity)
            if default is not None:
                return default
            missing.chain = (quantity, *missing.chain)
            # What is in a circle may follow if it is asked for by itself, and the words of a circle
            # begin where it is entered.
            if not missing.circle:
                self.graph.missing[key] = missing.quantity, missing.chain, missing.roots
            raise
        finally:
            del making[step]

    def _make(self, quantity: str, algorithm: Algorithm | None) -> Node:
        return self._declared(quantity, REGISTRY.returning(quantity, self.labels), algorithm)

    def _declared(
        self, quantity: str, declared: Formula | Call | None, algorithm: Algorithm | None
    ) -> Node:
        """Return the node of a declaration that holds."""
        if declared is None:
            raise Missing(quantity)
        if isinstance(declared, Call):
            return self._call(declared)
        inputs = self._inputs(declared.inputs, algorithm)
        run = self.space.formula(declared)
        return self.intern(quantity, ("formula", declared), inputs, run, None, declared)

    def _inputs(self, names: Iterable[str], algorithm: Algorithm | None = None) -> tuple[Node, ...]:
        """Return the nodes of several quantities; of what is missing, all of it."""
        inputs, missing = [], None
        for name in names:
            try:
                inputs.append(self.node(name, algorithm))
            except Missing as error:
                if missing is None:
                    missing = error
                else:
                    missing.roots = tuple(dict.fromkeys((*missing.roots, *error.roots)))
        if missing is not None:
            raise missing
        return tuple(inputs)

    def _call(self, declared: Call) -> Node:
        """Return the node of what a call evaluates, with its quantities bound to nodes here."""
        outer = self
        if declared.labels:
            around = declared.around
            outer = self._scope(("labels", *sorted(around.items())), {}, around)
        bound = dict(zip(declared.bind, outer._inputs(declared.bind.values()), strict=True))
        least = declared.of == "time"
        key = ("bind", least, *sorted(declared.labels.items()), *sorted(declared.bind.items()))
        return outer._scope(key, bound, declared.labels, only_time=least).node(declared.of)

    def _scope(
        self,
        key: tuple[Any, ...],
        bound: Mapping[str, Node],
        labels: Mapping[str, str],
        *,
        only_time: bool = False,
    ) -> Builder:
        """Return the builder where some quantities are bound and some labels set, by a key."""
        if key not in self._scopes:
            assert self.apart is not None
            before = {name: self.labels[name] for name in labels if name in self.labels}
            hidden = keys({name: self.given[name] for name in bound if name in self.given})
            # What is set anew as it was before cancels.
            apart = self.apart ^ before.items() ^ hidden.items() ^ labels.items()
            apart ^= keys(bound).items()
            self._scopes[key] = type(self)(
                self.space,
                {**self.labels, **labels},
                {**self.given, **bound},
                self.graph,
                only_time,
                True,
                self.defaults,
                frozenset(apart),
            )
        return self._scopes[key]

    def perhaps(self, quantity: str) -> Node | None:
        """Return the node that gives a quantity, or None if nothing does."""
        try:
            return self.node(quantity)
        except Missing:
            return None

    def intern(
        self,
        name: str,
        what: tuple[Any, ...],
        inputs: tuple[Node, ...],
        run: Callable[..., Any],
        in_array: Callable[..., Any] | None = None,
        origin: Formula | Algorithm | None = None,
    ) -> Node:
        """Return the node of a computation, made where the graph doesn't have it."""
        key = key_of(what, inputs)
        known = self.graph.interned.get(key)
        if known is None:
            dims = frozenset[str]().union(*(node.dims for node in inputs))
            known = Node(name, what, inputs, run, dims, in_array, origin, key)
            self.graph.interned[key] = known
        return known

    def _ones(self) -> tuple[int, ...]:
        return (1,) * (self.space.ndim or 0)

    # Bits that say why cells can't be.

    def everywhere(self, bit: int) -> Node:
        """Return the node of a bit that is set in all cells."""
        return self.intern("status", ("fault", bit), (), lambda: xp.full(self._ones(), bit))

    def either(self, nodes: Sequence[Node]) -> Node:
        """Return the node of several nodes' bits together."""
        first, *rest = nodes
        for node in rest:
            first = self.intern("status", ("either",), (first, node), operator.or_)
        return first

    def faults(self, requires: Sequence[Requirement], bits: Mapping[str, int]) -> Node:
        """Return the node of the bits of conditions where they don't hold."""
        inputs, parts = [], []
        for requirement in requires:
            nodes = [self.node(name) for name in requirement.inputs]
            parts.append((requirement.holds, len(nodes), bits[requirement.fault]))
            inputs += nodes
        shape = self._ones()

        def run(*values: Array) -> Array:
            none, rest = xp.zeros(shape, dtype=xp.int64), list(values)
            total = none
            for holds, count, bit in parts:
                total = total | xp.where(holds(*rest[:count]), none, none + bit)
                rest = rest[count:]
            return total

        # Schedules and masks state one fault by conditions of their own.
        each = tuple((r.fault, bits[r.fault], r.holds) for r in requires)
        return self.intern("status", ("faults", each), tuple(inputs), run)
