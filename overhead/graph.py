"""The one interpreter of the registry: which formulas give a quantity, in what order.

A `Builder` makes nodes of what labels and given quantities say; each is one computation.  With the
dimensions of an open grid the engine computes them block by block (`sweeps.engine`); without, an
`Evaluation` (`overhead.evaluation`) computes them for one call, on arrays that broadcast.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from overhead.arrays import xp
from overhead.collectives import choices
from overhead.collectives.algorithm import Algorithm, Requirement
from overhead.collectives.cost import COST_PARTS
from overhead.expression import evaluate, names
from overhead.formula import REGISTRY, Call, Formula
from overhead.quantity import BITS, Array, short


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


class Undecided(LookupError):
    """A choice among algorithms by their times, where the time is given."""


@dataclass(eq=False, slots=True)
class Node:
    """One computation of the graph."""

    name: str  # What it gives
    key: tuple[Any, ...]  # What it is: two nodes of one key give the same
    inputs: tuple[Node, ...]  # What it takes
    run: Callable[..., Any] | None  # From the inputs' values to its own; None for what is given
    dims: frozenset[str]  # The dimensions that its inputs have together
    given: Array | None = None  # The value, if it is given
    ufunc: Callable[..., Any] | None = None  # What computes it in an array, a ufunc most often
    origin: Formula | Algorithm | None = None  # The declaration that it comes from


class Space(Protocol):
    """Where a graph is computed: how many dimensions values have, how large these are."""

    @property
    def ndim(self) -> int | None:
        """The dimensions that every value has; None where values broadcast as they come."""

    def size(self, dims: frozenset[str]) -> int:
        """Return the number of cells over some dimensions."""

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

    def formula(self, declared: Formula) -> Callable[..., Array]:
        """Return a formula's kernel."""
        kernel = declared.kernel
        return lambda *values: xp.asarray(kernel(*values), dtype=xp.float64)

    def cost(self, algorithm: Algorithm) -> Callable[..., Any]:
        """Return an algorithm's cost."""
        return lambda *values: algorithm.cost(**dict(zip(algorithm.inputs, values, strict=True)))


ANYWHERE = Broadcast()

# What a node's making looked at, as bits: of it follows where else the node serves.  Beside
# quantities and labels it may be an algorithm, its form, or which algorithms there are.
FORM = BITS.of(("in_network", "form"))
ALGORITHM = BITS["the algorithm"]
CHOICE = BITS["which algorithms"]
CHOOSING = BITS.of(("topology", "collective", "algorithm", "library")) | CHOICE
COSTING = BITS.of(("shape", "latency_per", "chunks", "time"))
OF_ALGORITHMS = {"chunks", "chosen_algorithm", "time_is_upper_bound", "time", *COST_PARTS}
EVERYTHING = -1  # All bits


def _places(algorithm: Algorithm) -> tuple[Any, Any]:
    return algorithm.key, (algorithm.in_network, algorithm.form)


@dataclass(slots=True)
class Graph:
    """What builders of one graph have in common."""

    # Nodes by key, shared between label sets, so that the same thing is computed once
    interned: dict[tuple[Any, ...], Node] = field(default_factory=dict)
    # Nodes by what they give: who made each, and what its making looked at
    made: dict[tuple[str, Any], list[tuple[Builder, Node, int]]] = field(default_factory=dict)
    # What is being made, each after what needs it
    making: dict[tuple[Any, ...], None] = field(default_factory=dict)
    looked: list[int] = field(default_factory=lambda: [0])  # What the making of each looked at
    # The labels and the given nodes of the first builder, from which the others' differ a little
    first: frozenset[tuple[str, Any]] = frozenset()


@dataclass(slots=True)
class Builder:
    """Builds the graph for one set of labels."""

    space: Space  # Where it is computed
    labels: Mapping[str, str]  # The labels that hold: topology, collective, algorithm,
    given: Mapping[str, Node]  # What the user gives, and what machines give
    graph: Graph
    # Whether it is enough to know the least time of a choice, not which algorithm has it
    only_time: bool = False
    inside: bool = False  # Whether it builds what a call evaluates, rather than what is asked for
    defaults: Mapping[str, Node] = field(default_factory=dict)  # Hold where nothing else gives it
    memo: dict[tuple[str, str], tuple[Node, int]] = field(default_factory=dict)
    missing: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)
    place: tuple[Any, ...] = ()  # The labels and given quantities, as part of a key
    scopes: dict[tuple[Any, ...], Builder] = field(default_factory=dict)
    found: tuple[Algorithm, ...] | None = None
    labels_of: dict[Algorithm | None, Mapping[str, str]] = field(default_factory=dict)
    own: frozenset[tuple[str, Any]] = frozenset()  # What differs from the first builder
    others: dict[int, int] = field(default_factory=dict)  # What differs from others, as bits

    def __post_init__(self) -> None:
        places = frozenset(self.labels.items()) | self.given.items()
        self.graph.first = self.graph.first or places
        self.own = places ^ self.graph.first

    def node(self, quantity: str, algorithm: Algorithm | None = None) -> Node:
        """Return the node that gives a quantity."""
        if quantity in self.given:
            self.graph.looked[-1] |= BITS[quantity]
            return self.given[quantity]
        scope = algorithm.name if algorithm else ""
        known = self.memo.get((quantity, scope))
        if known is None:
            known = self._known(quantity, algorithm)
        if known is None:
            gone = self.missing.get((quantity, scope))
            if gone is not None:
                raise Missing(*gone)
            self.place = self.place or (frozenset(self.labels.items()), frozenset(self.given))
            step = (quantity, scope, self.place)
            if step in self.graph.making:
                names = [name for name, *_ in self.graph.making]
                circle = names[list(self.graph.making).index(step) :]
                raise Missing(quantity, (), circle, circle)
            self.graph.making[step] = None
            self.graph.looked.append(BITS[quantity])
            try:
                known = self._make(quantity, algorithm), self.graph.looked[-1]
            except Missing as missing:
                default = self.defaults.get(quantity)
                if default is not None:
                    known = default, EVERYTHING
                else:
                    missing.chain = (quantity, *missing.chain)
                    # What is in a circle may follow if it is asked for by itself, and the words of
                    # a circle begin where it is entered.
                    if not missing.circle:
                        words = missing.quantity, missing.chain, missing.roots
                        self.missing[quantity, scope] = words
                    raise
            finally:
                del self.graph.making[step]
                self.graph.looked.pop()
            self._share(quantity, algorithm, *known)
        self.memo[quantity, scope] = known
        self.graph.looked[-1] |= known[1]
        return known[0]

    def _known(self, quantity: str, algorithm: Algorithm | None) -> tuple[Node, int] | None:
        """Return a node that was made where nothing differs that its making looked at."""
        for place in (*_places(algorithm), "") if algorithm else ("",):
            for builder, node, looked in self.graph.made.get((quantity, place), ()):
                if not looked & (self._apart(builder) | (CHOICE if algorithm else 0)):
                    return node, looked
        return None

    def _share(self, quantity: str, algorithm: Algorithm | None, node: Node, looked: int) -> None:
        place: Any = ""
        if algorithm and looked & (ALGORITHM | FORM):
            place = _places(algorithm)[0 if looked & ALGORITHM else 1]
        self.graph.made.setdefault((quantity, place), []).append((self, node, looked))

    def _apart(self, other: Builder) -> int:
        """Return the bits of what differs from another builder."""
        known = self.others.get(id(other))
        if known is None:
            known = BITS.of(name for name, _ in self.own ^ other.own)
            alike = (self.inside, self.only_time) == (other.inside, other.only_time)
            known |= 0 if alike and not known & CHOOSING else CHOICE
            self.others[id(other)] = known
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
                self.found = choices.usable(self.labels, inside=self.inside)
        return self.found

    def everywhere(self, bit: int) -> Node:
        """Return the node of a bit that is set in all cells."""
        return self.intern("status", ("fault", bit), (), lambda: xp.full(self._ones(), bit))

    def _ones(self) -> tuple[int, ...]:
        return (1,) * (self.space.ndim or 0)

    def intern(
        self,
        name: str,
        key: tuple[Any, ...],
        inputs: tuple[Node, ...],
        run: Callable[..., Any],
        ufunc: Callable[..., Any] | None = None,
        origin: Formula | Algorithm | None = None,
    ) -> Node:
        """Return the node of a key, made where it isn't known."""
        known = self.graph.interned.get(key)
        if known is None:
            dims = frozenset[str]().union(*(node.dims for node in inputs))
            known = Node(name, key, inputs, run, dims, None, ufunc, origin)
            self.graph.interned[key] = known
        return known

    def either(self, nodes: Sequence[Node]) -> Node:
        """Return the node of several nodes' bits together."""
        first, *rest = nodes
        for node in rest:
            key = ("either", first.key, node.key)
            first = self.intern("status", key, (first, node), operator.or_)
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
        key = ("faults", each, *(n.key for n in inputs))
        return self.intern("status", key, tuple(inputs), run)

    def _make(self, quantity: str, algorithm: Algorithm | None) -> Node:
        if quantity in OF_ALGORITHMS:
            self.graph.looked[-1] |= COSTING | (ALGORITHM if algorithm else CHOOSING)
        if quantity in COST_PARTS:
            return self._cost(quantity, algorithm)
        found = (algorithm,) if algorithm else self.algorithms()
        if quantity == "chunks" and found:
            return self._chunks(found)
        if quantity == "chosen_algorithm":
            return self._chosen(found)
        if quantity == "time_is_upper_bound" and found:
            return self._bound(found)
        if quantity == "time" and len(found) > 1 and self.only_time:
            return self._least(found)
        if quantity == "time" and len(found) > 1:
            best = self.best(found)
            return self.intern("time", ("least", best.key), (best,), lambda pair: pair[0])
        declared, *others = self._formulas(quantity, found)
        if algorithm is None and self.graph.looked[-1] & FORM:
            self.graph.looked[-1] |= CHOOSING
        if any(other is not declared for other in others):
            # The bound with reductions in the network is for the algorithms that use them alone.
            return self._chosen_of(quantity, found, [self.node(quantity, one) for one in found])
        node = self._declared(quantity, declared, algorithm)
        if quantity == "time" and "group" in self.labels and found and algorithm is None:
            return self._where_defined(node, found[0], np.nan)  # of a step's communication
        return node

    def _declared(
        self, quantity: str, declared: Formula | Call | None, algorithm: Algorithm | None
    ) -> Node:
        """Return the node of a declaration that holds."""
        if declared is None:
            raise Missing(quantity)
        if isinstance(declared, Call):
            return self._call(declared)
        inputs = self._inputs(declared.inputs, algorithm)
        key = (declared.name, id(declared.kernel), *(node.key for node in inputs))
        run = self.space.formula(declared)
        return self.intern(quantity, short(key), inputs, run, declared.ufunc, declared)

    def _inputs(self, names: Iterable[str], algorithm: Algorithm | None = None) -> tuple[Node, ...]:
        """Return the nodes of several quantities; of what is missing, all of it."""
        found, missing = [], None
        for name in names:
            try:
                found.append(self.node(name, algorithm))
            except Missing as one:
                if missing is None:
                    missing = one
                else:
                    missing.roots = tuple(dict.fromkeys((*missing.roots, *one.roots)))
        if missing is not None:
            raise missing
        return tuple(found)

    def _call(self, declared: Call) -> Node:
        """Return the node of what a call evaluates, with its quantities bound to nodes here."""
        outer = self
        if declared.labels:
            plain = labels_around(declared)
            outer = self._scope(("labels", *sorted(plain.items())), self.given, plain)
        self.graph.looked.append(0)
        try:
            bound = dict(zip(declared.bind, outer._inputs(declared.bind.values()), strict=True))
            labels, least = declared.labels, declared.of == "time"
            where = ("bind", *sorted(labels.items()), least, *sorted(declared.bind.items()))
            inner = outer._scope(where, {**self.given, **bound}, labels, least=least)
            around, self.graph.looked[-1] = self.graph.looked[-1], 0
            node = inner.node(declared.of)
        finally:
            looked = self.graph.looked.pop()
        # What it sets itself isn't looked up here, nor what follows from that.
        bound_bits, label_bits = declared.inside
        if "collective" in declared.labels:
            label_bits |= ALGORITHM | FORM | CHOICE
        self.graph.looked[-1] |= (around | looked & ~bound_bits) & ~label_bits
        return node

    def _scope(
        self,
        key: tuple[Any, ...],
        given: Mapping[str, Node],
        labels: Mapping[str, str],
        *,
        least: bool = False,
    ) -> Builder:
        if key not in self.scopes:
            further: dict[str, Any] = {"inside": True, "defaults": self.defaults}
            own = {**self.labels, **labels}
            self.scopes[key] = type(self)(self.space, own, given, self.graph, least, **further)
        return self.scopes[key]

    def _formulas(self, quantity: str, found: Sequence[Algorithm]) -> list[Formula | Call | None]:
        """Return what gives a quantity: of algorithms in the network, and of others."""
        each: dict[Formula | Call | None, None] = {}
        for algorithm in found or (None,):
            if algorithm not in self.labels_of:
                kind = algorithm.labels if algorithm else {"in_network": "no"}
                self.labels_of[algorithm] = {**self.labels, **kind}
            declared, looked = REGISTRY.found(quantity, self.labels_of[algorithm])
            each[declared] = None
            self.graph.looked[-1] |= looked
            if not looked & FORM:
                break  # The others have the same.
        return list(each)

    def _chosen_of(self, quantity: str, found: Sequence[Algorithm], each: Sequence[Node]) -> Node:
        """Return the node of a quantity of the algorithm that has the least time."""
        chosen = self.best(found)
        key = short(("select", quantity, chosen.key, *(node.key for node in each)))
        return self.intern(quantity, key, (chosen, *each), choices.select)

    def _cost(self, quantity: str, algorithm: Algorithm | None) -> Node:
        found = (algorithm,) if algorithm else self.algorithms()
        if not found:
            raise Missing(quantity)
        if len(found) > 1:
            return self._chosen_of(quantity, found, [self._cost(quantity, a) for a in found])
        (only,) = found
        names = only.inputs
        inputs = tuple(self.input(name, only) for name in names)
        if only.chunked and not choices.depends_on_chunks(only, quantity, self.space.cost(only)):
            # Else what the best number of chunks depends on would seem to matter.
            one = self.intern("chunks", ("one chunk",), (), lambda: xp.ones(self._ones()))
            inputs = tuple(
                one if name == "chunks" else node for name, node in zip(names, inputs, strict=True)
            )
        key = short((*only.key, *(node.key for node in inputs)))
        cost = self.intern("cost", key, inputs, self.space.cost(only), None, only)
        take, ndim = COST_PARTS[quantity], self.space.ndim
        # What pays a latency decides how many latencies there are, and nothing else.
        counted = quantity.endswith("latency_count")
        per_message = counted and self.labels["latency_per"] == "message"

        def extract(value: Any) -> Array:
            part = xp.asarray(take(value, per_message), dtype=xp.float64)
            return part if ndim is None or part.ndim == ndim else xp.reshape(part, (1,) * ndim)

        return self.intern(quantity, (quantity, per_message, key), (cost,), extract)

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
            return self.intern("chunks", ("no chunks",), (), lambda: xp.full(ones, xp.nan))
        names = tuple(name for name in algorithm.inputs if name != "chunks")
        steps = choices.paid_by_steps(self.labels, algorithm)
        count = len(steps[0])
        paid = [self.node(name, algorithm) for each in steps for name in each]
        inputs = (*(self.node(name) for name in names), *paid)
        latency_per = self.labels["latency_per"]

        def run(*values: Array) -> Array:
            shape = dict(zip(names, values, strict=False))
            rest = values[len(names) :]
            latencies, wires, *ramps = (rest[at : at + count] for at in range(0, len(rest), count))
            return choices.best_chunks(algorithm, shape, latencies, wires, latency_per, *ramps)

        key = short(("chunks", *algorithm.key, latency_per, *(node.key for node in inputs)))
        return self.intern("chunks", key, inputs, run, None, algorithm)

    def _bound(self, found: Sequence[Algorithm]) -> Node:
        """Return the node of whether a time is an upper bound rather than exact."""
        if len(found) > 1:
            each = [self._bound((one,)) for one in found]
            return self._chosen_of("time_is_upper_bound", found, each)
        (algorithm,) = found
        condition, ones = algorithm.exact_chunks, self._ones()
        if not condition:
            return self.intern("time_is_upper_bound", ("exact",), (), lambda: xp.zeros(ones))
        used = names(condition)
        inputs = tuple(self.input(name, algorithm) for name in used)

        def run(*values: Array) -> Array:
            exact = evaluate(condition, dict(zip(used, values, strict=True)))
            return xp.where(exact, 0.0, 1.0)

        key = short(("bound", *algorithm.key, *(node.key for node in inputs)))
        return self.intern("time_is_upper_bound", key, inputs, run, None, algorithm)

    def best(self, found: Sequence[Algorithm]) -> Node:
        """Return the node of the least time of several algorithms, and of which has it."""
        times = self._times(found)
        key = short(("best", *(node.key for node in times)))
        return self.intern("best", key, tuple(times), choices.best_of)

    def _least(self, found: Sequence[Algorithm]) -> Node:
        first, *rest = self._times(found)
        for node in rest:
            key = short(("lesser", first.key, node.key))
            first = self.intern("time", key, (first, node), choices.lesser, np.minimum)
        return first

    def _times(self, found: Sequence[Algorithm]) -> list[Node]:
        if "time" in self.given:
            raise Undecided(self.labels["algorithm"])
        return [
            self._where_defined(self.node("time", algorithm), algorithm, np.inf)
            for algorithm in found
        ]

    def _where_defined(self, time: Node, one: Algorithm, other: float) -> Node:
        """Return the node of a time where its algorithm is defined, and of another elsewhere."""
        if not one.conditions:
            return time
        undefined = self.faults(one.conditions, {r.fault: 1 for r in one.conditions})
        key = ("defined", other, time.key, undefined.key)
        return self.intern("time", key, (time, undefined), partial(choices.where_defined, other))

    def _chosen(self, found: Sequence[Algorithm]) -> Node:
        codes, shape = [one.code for one in found] or [0], self._ones()
        key = ("chosen", *codes)
        if len(found) <= 1:
            return self.intern("chosen_algorithm", key, (), lambda: xp.full(shape, codes[0]))
        best = self.best(found)
        key = (*key, best.key)
        return self.intern("chosen_algorithm", key, (best,), partial(choices.code_of, codes))


def labels_around(declared: Call) -> dict[str, str]:
    """Return the labels of a call that hold for the quantities that it binds, too."""
    return {name: label for name, label in declared.labels.items() if name != "collective"}
