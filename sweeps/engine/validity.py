"""Why a cell can't be: conditions on the shape of a network, and the flags that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from overhead.arrays import xp
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Requirement
from overhead.collectives.choices import all_of
from overhead.formula import REGISTRY
from overhead.graph import Builder, Missing, Node
from overhead.overlap import mechanisms
from overhead.plan import CONTEXT, DATA, FRAMEWORK, GROUPED, PLAN, SCHEDULE, requirements
from overhead.quantity import Array
from overhead.topology import NOT_OF_ONE_RANK

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
        if variable not in self._masks:
            own = (bit for fault, bit in self.bits.items() if self.concerns(fault, variable))
            self._masks[variable] = sum(own)
        return self._masks[variable]

    @cached_property
    def _masks(self) -> dict[str, int]:
        return {}

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
        yield _note(wanted["chunks"], bits[NOT_CHUNKED], _isnan)
    yield from unknowns(wanted.values(), bits[NOT_KNOWN])


def unknowns(wanted: Iterable[Node], bit: int) -> Iterator[Note]:
    """Yield what is given as NaN and taken by quantities, with a bit where it is."""
    for node in given_below(wanted):
        if node.given is not None and np.isnan(node.given).any():
            yield _note(node, bit, _isnan)


def _note(node: Node, bit: int, test: Callable[[Array], Array]) -> Note:
    return node, bit, lambda values: xp.asarray(test(values), dtype=xp.int64) * bit


def _isnan(values: Array) -> Array:
    return xp.isnan(values)


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


# Why a parallel plan can't be, or can't run: the conditions on it, as flags of its cells.

DOES_NOT_FIT = "does_not_fit"
STEP = "step_time"
FITS = Requirement(
    DOES_NOT_FIT,
    "the fullest GPU must hold its part: peak_memory up to memory_capacity",
    lambda peak_memory, memory_capacity: ~xp.asarray(peak_memory > memory_capacity),
)

HOST_FITS = Requirement(
    "host_memory_full",
    "the host must hold what is offloaded: host_memory up to host_memory_capacity",
    lambda host_memory, host_memory_capacity: ~xp.asarray(host_memory > host_memory_capacity),
)
OF_RUNS = frozenset((DOES_NOT_FIT, HOST_FITS.fault))


def training_faults() -> Faults:
    """Return what can be wrong with a parallel plan."""
    every = (
        PLAN,
        *CONTEXT.values(),
        *SCHEDULE.values(),
        *FRAMEWORK.values(),
        (FITS, HOST_FITS),
        *GROUPED.values(),
    )
    texts: dict[str, str] = {}
    for group in every:
        for one in group:
            known = texts.setdefault(one.fault, one.text)
            if one.text not in known:
                texts[one.fault] = f"{known}; or {one.text}"
    texts[NOT_KNOWN] = "the machine's file lacks a figure that a quantity needs, such as an energy"
    texts[NOT_OF_NETWORK] = "some quantities are of some plans or networks alone"
    # Last, so that files that were written before keep their flags.
    texts |= {one.fault: one.text for group in DATA.values() for one in group}
    return Faults(texts, _concerns_plans)


def _concerns_plans(fault: str, variable: str) -> bool:
    if fault in OF_RUNS:
        return variable in of_a_run(len(REGISTRY), len(REGISTRY.calls))
    return fault not in (NOT_KNOWN, NOT_OF_NETWORK)


@cache
def of_a_run(formulas: int, calls: int) -> frozenset[str]:
    """Return what only a step that runs has: its time, and all that follows from it.

    Memory and communication are told of plans that don't fit, too.  The registry grows, but for
    users' formulas that are refused: `formulas` and `calls` are its size.
    """
    takers: dict[str, set[str]] = {}
    for formula in REGISTRY.values():
        for name in formula.inputs:
            takers.setdefault(name, set()).add(formula.returns)
    for call in REGISTRY.calls:
        for name in (call.of, *call.bind.values()):
            takers.setdefault(name, set()).add(call.returns)
    found, new = {STEP}, [STEP]
    while new:
        more = takers.get(new.pop(), set()) - found
        found |= more
        new += more
    return frozenset(found)


def feasibility(builder: Builder, faults: Mapping[str, int], nodes: Mapping[str, Node]) -> Node:
    """Return the node of the reasons why plans can't be, or can't run, as bits."""
    flat = builder.labels["topology"] != "hierarchical"
    each: list[Node] = []
    for one in (*requirements(builder.labels), FITS, HOST_FITS):
        if flat and one.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        try:
            each.append(builder.faults((one,), faults))
        except Missing:
            continue
    each += [noted(builder, one) for one in unknowns(nodes.values(), faults[NOT_KNOWN])]
    # Small ones first, so that few nodes are as large as all axes together.
    each.sort(key=lambda node: builder.space.size(node.dims))
    return builder.either(each) if each else builder.everywhere(0)


def overlap_faults() -> Faults:
    """Return what can be wrong with computation and communication at once."""
    texts = {one.fault: one.text for one in mechanisms.REQUIREMENTS}
    return Faults(texts, lambda fault, variable: True)


def overlap_feasibility(
    builder: Builder, faults: Mapping[str, int], nodes: Mapping[str, Node]
) -> Node:
    """Return the node of the reasons why a mechanism can't be; what it doesn't take is none."""
    taken = {node.name for node in given_below(nodes.values())}
    each: list[Node] = []
    measured = "overlapped_time" in builder.given
    for one in mechanisms.requirements(builder.labels, measured=measured):
        inputs = [builder.perhaps(name) for name in one.inputs]
        if all(node and (node.given is None or node.name in taken) for node in inputs):
            each.append(builder.faults((one,), faults))
    return builder.either(each) if each else builder.everywhere(0)
