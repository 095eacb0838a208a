"""Why a cell can't be: conditions on the shape of a network, and the flags that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from overhead.collective import NOT_OF_ONE_RANK
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.graph import Builder, Node, all_of
from overhead.quantity import Array

NOT_DEFINED = "algorithm_not_defined_on_topology"
ONE_RANK = "one_rank_has_no_bandwidth"
NOT_CHUNKED = "algorithm_without_chunks"
NOT_KNOWN = "figure_of_the_machine_not_known"
NO_TIME = "nothing_takes_time"
NOT_OF_NETWORK = "quantity_not_of_this_network"
# What only some quantities of a cell lack; the cell itself exists.
NOTES = (ONE_RANK, NO_TIME, NOT_OF_NETWORK, NOT_CHUNKED, NOT_KNOWN)


@dataclass(frozen=True)
class Faults:
    """The reasons why a cell, or a value in it, doesn't exist."""

    texts: Mapping[str, str]  # Each fault's name with what must hold, in the order of their bits
    # Takes a fault's and a variable's name: whether the variable is missing where the fault is
    concerns: Callable[[str, str], bool]

    @cached_property
    def bits(self) -> dict[str, int]:
        """Every fault's bit."""
        return {fault: 1 << index for index, fault in enumerate(self.texts)}

    def masking(self, variable: str) -> int:
        """Return the bits of all faults that a variable's value doesn't survive."""
        return sum(bit for fault, bit in self.bits.items() if self.concerns(fault, variable))

    def named(self, status: int) -> tuple[str, ...]:
        """Return the names of the faults in a status."""
        return tuple(fault for fault, bit in self.bits.items() if status & bit)


def collective_faults() -> Faults:
    """Return what can be wrong with a collective operation on a network."""
    texts = {one.fault: one.text for network in NETWORKS.values() for one in network.requires}
    texts[NOT_DEFINED] = "the algorithm must be defined for this collective on this network"
    texts[ONE_RANK] = "one rank has no algbw, busbw and lower_bound_ratio"
    texts[NO_TIME] = "where nothing takes time, ratios to the time aren't defined"
    texts[NOT_OF_NETWORK] = "some quantities, such as nodes, are of some networks alone"
    texts[NOT_CHUNKED] = "the algorithm cuts its message into no chunks of a number to choose"
    texts[NOT_KNOWN] = "the machine's file lacks a figure that a quantity needs, such as an energy"
    for algorithm in ALGORITHMS.values():
        texts.update({requirement.fault: requirement.text for requirement in algorithm.requires})
    return Faults(texts, _concerns)


def _concerns(fault: str, variable: str) -> bool:
    return fault not in NOTES or (fault == ONE_RANK and variable in NOT_OF_ONE_RANK)


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


def status(
    builder: Builder, faults: Mapping[str, int], wanted: Mapping[str, Node], *, lacking: bool
) -> Node:
    """Return the node of the reasons why cells, or values in them, don't exist, as bits."""
    found = builder.algorithms()
    network = NETWORKS[builder.labels["topology"]]
    shared = [builder.faults(network.existing(builder.labels), faults)]
    if not found:
        return builder.either([*shared, builder.everywhere(faults[NOT_DEFINED])])
    if lacking:
        shared.append(builder.everywhere(faults[NOT_OF_NETWORK]))
    shared += [noted(builder, one) for one in notes(wanted, builder.perhaps, faults)]
    each = [builder.faults(algorithm.requires, faults) for algorithm in found]
    if len(each) > 1:
        # A choice fails only where no candidate is defined.
        each = [builder.intern("status", ("all", *(n.key for n in each)), tuple(each), all_of)]
    return builder.either([*shared, *each])


def noted(builder: Builder, note: Note) -> Node:
    """Return the node of a note's bit."""
    node, bit, run = note
    return builder.intern("status", ("note", bit, node.key), (node,), run)
