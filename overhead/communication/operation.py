"""What communicates in a training step: a family of operations, and the sums over it.

An operation is one collective of a kind of groups with one message.  It has a time, bytes that a
rank sends and an energy, each once.  How often a step has it is a `Count`: in each forward and each
backward, for each of what the busiest stage has, and again where a backward repeats the forward.
What a layer, a dimension and a step communicate are sums over these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import add, mul
from typing import Any, Unpack

from overhead.arrays import xp
from overhead.formula import Further, call, declare
from overhead.frozen import frozen
from overhead.quantity import Array

# What communicates, in the order in which reports tell it.
DIMENSIONS: dict[str, str] = {
    "tp": "tensor parallelism",
    "vocabulary": "embedding, LM head and loss (vocabulary parallel)",
    "cp": "context parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "dp": "data parallelism",
}
WAYS = ("forward", "backward")

# What a collective takes for what, of the group that the label names.
BIND = {
    "ranks": "group_size",
    "gpus_per_node": "members_in_node",
    "ranks_sharing_nic": "group_ranks_sharing_nic",
    "intra_bandwidth": "effective_intra_bandwidth",
    "inter_bandwidth": "effective_inter_bandwidth",
    "effective_oversubscription": "group_oversubscription",
}
GRID = {f"mesh_n{axis}": f"group_n{axis}" for axis in "xyz"}
PODS = {"nodes_per_pod": "group_pod_nodes", "pod_bandwidth": "effective_pod_bandwidth"}


@frozen(slots=True)
class Count:
    """How often a step has an operation in one direction, on the rank that has it most."""

    terms: tuple[Factors, ...]  # Products whose sum it is
    # Ranks of a group: of one alone there is no operation; empty: the terms say so
    ranks: str = ""

    def of(self, known: Any) -> Any:
        """Return it; `known` has quantities by name."""
        whole = reduce(add, (multiplied(term, known) for term in self.terms))
        return xp.where(known[self.ranks] > 1.0, whole, 0.0) if self.ranks else whole


# What is multiplied: quantities, numbers and counts, and sums of these.
Factor = str | float | Count
Factors = tuple[Factor | tuple[Factor, ...], ...]


@frozen(slots=True)
class Operation:
    """A communication of the training step."""

    name: str  # Its name, with which the names of its quantities begin
    title: str  # What it is, in words
    dimension: str  # Of `DIMENSIONS`
    # The kind of groups that do it: the label ``group`` of `overhead.plan`, or of
    # `overhead.communication.groups`
    group: str
    collective: str  # What they do
    message: str  # The quantity that is its message [byte]
    # How often one pass through one thing has it: a forward, a backward; None: it never has
    forward: Factors | None = None
    backward: Factors | None = None
    repeated: str = ""  # The quantity that is the share of its forwards that a backward repeats
    each: Factors = ()  # How many such things the stage has that has most
    passes: tuple[Factor, Factor] = ("num_micro_batches", "backward_passes")  # Passes of a step
    # The quantity by which all stages' counts, on average, fall short of the busiest stage's
    share: str = ""
    of: str = ""  # The kind of groups by whose number its energy is multiplied
    # Labels of the plans that have it; empty: each has
    when: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()  # Which of its quantities have formulas of their own
    source: str = "derivation"  # The publication that says how often there is one, and where
    where: str = ""

    def quantity(self, part: str) -> str:
        """Return the name of one of its quantities, such as its time."""
        return f"{self.name}_{part}"

    def often(self, way: str) -> Factors | None:
        """Return how often a pass through one thing has it, or repeats it; None: never."""
        if way == "recompute":
            return (*self.forward, self.repeated) if self.forward and self.repeated else None
        return self.forward if way == "forward" else self.backward

    def count(self, way: str) -> Count | None:
        """Return how often a step has it in one direction; None: never."""
        if f"{way}_count" in self.own:
            return Count(((self.quantity(f"{way}_count"),),))
        repeats = ("recompute",) if way == "backward" else ()
        found = [often for each in (way, *repeats) if (often := self.often(each)) is not None]
        passes = self.passes[WAYS.index(way)]
        terms: tuple[Factors, ...] = tuple((*often, passes, *self.each) for often in found)
        return Count(terms, f"{self.group}_ranks") if terms else None

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The quantities of which follows how often a step has it."""
        return tuple(_degrees((self.counts,)))

    @property
    def counts(self) -> tuple[Count, ...]:
        """How often a step has it, in each direction in which it does."""
        return tuple(count for way in WAYS if (count := self.count(way)) is not None)

    @property
    def volume(self) -> Factors:
        """The most bytes that a rank sends in a step."""
        stated = "volume" in self.own
        return (self.quantity("volume"),) if stated else (self.counts, self.quantity("sent_bytes"))

    @property
    def total_energy(self) -> Factors:
        """The energy of a step, by all groups."""
        if "total_energy" in self.own:
            return (self.quantity("total_energy"),)
        groups = f"{self.of}_groups"
        return (self.counts, self.quantity("energy"), groups, *filter(None, (self.share,)))


OPERATIONS: dict[str, Operation] = {}


def of_dimension(dimension: str, labels: Mapping[str, str] | None = None) -> list[Operation]:
    """Return the operations of a dimension, or those of them that plans with some labels have."""
    return [
        candidate
        for candidate in OPERATIONS.values()
        if candidate.dimension == dimension
        and (
            labels is None
            or all(labels.get(key) in value.split("|") for key, value in candidate.when.items())
        )
    ]


def operation(
    name: str,
    title: str,
    collective: str,
    message: str,
    *,
    levels: Mapping[str, str] | None = None,
    **more: Any,
) -> None:
    """Declare a communication: what it costs on the network, and how often a step has it."""
    more.setdefault("of", more["group"])
    made = Operation(name=name, title=title, collective=collective, message=message, **more)
    OPERATIONS[name] = made
    for part in ("time", "sent_bytes", "energy"):
        if part not in made.own:
            on_network(made.quantity(part), part, made.group, collective, message, levels)


def on_network(
    returns: str,
    of: str,
    group: str,
    collective: str,
    message: str,
    levels: Mapping[str, str] | None = None,
) -> None:
    """Declare a quantity as one of a collective by one kind of groups, on whatever network.

    `levels` are the labels for which that holds on three levels, if it isn't always.
    """
    labels = {"group": group, "collective": collective}
    bind = {**BIND, "message_bytes": message}
    call(returns=returns, of=of, bind=bind, labels=labels)
    grid = {"topology": "mesh|torus"}
    call(returns=returns, of=of, bind={**bind, **GRID}, labels=labels, when=grid)
    pods = {"topology": "hierarchical", "shape": "three_levels", **(levels or {})}
    call(returns=returns, of=of, bind={**bind, **PODS}, labels=labels, when=pods)


def times(names: Iterable[str], *ways: str, factors: Factors = ()) -> list[Factors]:
    """Return the times of some operations in a pass through one thing, as terms of a sum."""
    every = ((OPERATIONS[name], way) for way in ways for name in names)
    return [
        (*factors, *often, candidate.quantity("time"))
        for candidate, way in every
        if (often := candidate.often(way)) is not None
    ]


def multiplied(factors: Factors, known: Any) -> Any:
    """Return a product; `known` has quantities by name."""

    def value(factor: Any) -> Any:
        if isinstance(factor, tuple):
            return reduce(add, map(value, factor))
        if isinstance(factor, Count):
            return factor.of(known)
        return known[factor] if isinstance(factor, str) else factor

    return reduce(mul, map(value, factors), 1.0)


def added(
    returns: str, terms: Sequence[Factors], title: str = "", **further: Unpack[Further]
) -> None:
    """Declare a quantity as a sum of products."""
    powers = _degrees((Count(tuple(terms)),))
    names = tuple(powers)

    def kernel(*values: Array) -> Array:
        known = dict(zip(names, values, strict=True))
        return xp.asarray(reduce(add, (multiplied(term, known) for term in terms)))

    if not any(_falls(term) for term in terms):
        kinds = ((name, "linear" if power == 1 else "up") for name, power in powers.items())
        further.setdefault("laws", "; ".join(f"{kind}: {name}" for name, kind in kinds))
    declare(returns, names, kernel, title, **further)


SWITCHES = 2  # The power of ranks, which decide whether there is an operation at all


def _degrees(factors: Factors) -> dict[str, int]:
    """Return the power in which each quantity is in a product, at most."""
    powers: dict[str, int] = {}
    for factor in factors:
        highest: dict[str, int] = {}
        for part in factor if isinstance(factor, tuple) else (factor,):
            for name, power in _of_part(part):
                highest[name] = max(power, highest.get(name, 0))
        for name, power in highest.items():
            powers[name] = powers.get(name, 0) + power
    return powers


def _of_part(part: Factor) -> Iterator[tuple[str, int]]:
    if isinstance(part, Count):
        for term in part.terms:
            yield from _degrees(term).items()
        if part.ranks:
            yield part.ranks, SWITCHES
    elif isinstance(part, str):
        yield part, 1


def _falls(factors: Factors) -> bool:
    """Return whether a number is taken away somewhere in a product."""
    return any(
        isinstance(part, float) and part < 0.0
        for factor in factors
        for part in (factor if isinstance(factor, tuple) else (factor,))
    )
