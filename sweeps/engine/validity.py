"""Why a cell can't be: conditions on the shape of a network, and the flags that name them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce
from operator import or_

import numpy as np

from overhead.arrays import in_numpy, xp
from overhead.choose import NOT_OF_ONE_RANK, Builder, all_of
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Requirement
from overhead.dependencies import BIT
from overhead.formula import REGISTRY
from overhead.frozen import frozen
from overhead.graph import Missing, Node, Space, below, nodes_below
from overhead.overlap import mechanisms
from overhead.plan import NO_ALGORITHM, NOT_OF_GROUPS, conditions, requirements
from overhead.quantity import Array
from sweeps.engine.evaluate import Cuts, Evaluator
from sweeps.engine.evaluators import Evaluators
from sweeps.engine.grid import LabelCase, Region

NOT_DEFINED = NO_ALGORITHM.fault
ONE_RANK = "one_rank_has_no_bandwidth"
NOT_CHUNKED = "algorithm_without_chunks"
NOT_KNOWN = "figure_of_the_machine_not_known"
UNKNOWN_TEXT = "a figure that a quantity needs, such as an energy, is not known for this network"
NO_TIME = "nothing_takes_time"
NOT_OF_NETWORK = "quantity_not_of_this_network"
# What only some quantities of a cell lack; the cell itself exists.
NOTES = (ONE_RANK, NO_TIME, NOT_OF_NETWORK, NOT_CHUNKED, NOT_KNOWN)


@frozen()
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
            bits = (bit for fault, bit in self.bits.items() if self.concerns(fault, variable))
            self._masks[variable] = sum(bits)
        return self._masks[variable]

    @cached_property
    def _masks(self) -> dict[str, int]:
        return {}

    def named(self, status: int) -> tuple[str, ...]:
        """Return the names of the faults in a status."""
        return tuple(fault for fault, bit in self.bits.items() if status & bit)


def collective_faults() -> Faults:
    """Return what can be wrong with a collective operation on a network."""
    texts = {rule.fault: rule.text for network in NETWORKS.values() for rule in network.requires}
    texts[NOT_DEFINED] = "the algorithm must be defined for this collective on this network"
    texts[ONE_RANK] = "one rank has no algbw, busbw and lower_bound_ratio"
    texts[NO_TIME] = "where nothing takes time, ratios to the time aren't defined"
    texts[NOT_OF_NETWORK] = "some quantities, such as nodes, are of some networks alone"
    texts[NOT_CHUNKED] = "the algorithm cuts its message into no chunks of a number to choose"
    texts[NOT_KNOWN] = UNKNOWN_TEXT
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
    builder: Builder,
) -> Iterator[Note]:
    """Yield the reasons that concern some quantities of a cell alone."""
    if set(wanted) & set(NOT_OF_ONE_RANK):
        ranks, time = perhaps("ranks"), perhaps("time")
        given = None if ranks is None else builder.space.given(ranks)
        if ranks is not None and (given is None or np.any(given == 1.0)):
            yield _note(ranks, bits[ONE_RANK], lambda values: values == 1.0)
        if time is not None and _may_be_zero(time, builder.space):
            yield _note(time, bits[NO_TIME], lambda values: values == 0.0)
    if "chunks" in wanted:
        yield _note(wanted["chunks"], bits[NOT_CHUNKED], _isnan)
    yield from unknowns(builder, wanted.values(), bits[NOT_KNOWN])


def unknowns(builder: Builder, wanted: Iterable[Node], bit: int) -> Iterator[Note]:
    """Yield what is given as NaN and taken by quantities, with a bit where it is."""
    graph = builder.graph
    bits = 0
    for node in wanted if graph.unknown else ():
        bits |= below(node, graph.below) & graph.unknown
    for name, node in builder.given.items() if bits else ():
        if BIT[name] & bits and node.run is None:
            yield _note(node, bit, _isnan)


def _note(node: Node, bit: int, test: Callable[[Array], Array]) -> Note:
    return node, bit, lambda values: xp.asarray(test(values), dtype=xp.int64) * bit


def _isnan(values: Array) -> Array:
    return xp.isnan(values)


def given_below(nodes: Iterable[Node]) -> list[Node]:
    """Return the given nodes on which nodes depend, each once."""
    return [node for node in nodes_below(nodes) if node.run is None]


def _may_be_zero(time: Node, space: Space) -> bool:
    """Return whether a time can be zero of several ranks: no latency, and no bytes or no wire."""
    free = {"latency": False, "message_bytes": False, "bandwidth": False}
    for node in given_below([time]):
        kind = next((name for name in free if node.name.endswith(name)), None)
        if kind is not None:
            free[kind] |= bool(
                np.any(space.given(node) == (np.inf if kind == "bandwidth" else 0.0))
            )
    return free["latency"] and (free["message_bytes"] or free["bandwidth"])


def status(
    builder: Builder, faults: Mapping[str, int], wanted: Mapping[str, Node], *, lacking: bool
) -> Node:
    """Return the node of the reasons why cells, or values in them, don't exist, as bits."""
    algorithms = builder.algorithms()
    network = NETWORKS[builder.labels["topology"]]
    shared = [builder.faults(network.existing(builder.labels), faults)]
    if not algorithms:
        return builder.either([*shared, builder.everywhere(faults[NOT_DEFINED])])
    if lacking:
        shared.append(builder.everywhere(faults[NOT_OF_NETWORK]))
    every = notes(wanted, builder.perhaps, faults, builder)
    shared += [noted(builder, note) for note in every]
    each = [builder.faults(algorithm.requires, faults) for algorithm in algorithms]
    if len(each) > 1:
        # A choice fails only where no candidate is defined.
        each = [builder.intern("status", ("all",), tuple(each), all_of)]
    return builder.either([*shared, *each])


def noted(builder: Builder, note: Note) -> Node:
    """Return the node of a note's bit."""
    node, bit, run = note
    return builder.intern("status", ("note", bit), (node,), run)


# Why a parallel plan can't be, or can't run: the conditions on it, as flags of its cells.

DOES_NOT_FIT = "does_not_fit"
STEP = "step_time"
FITS = Requirement(
    DOES_NOT_FIT,
    "peak_memory, at the low end of its band, must not exceed memory_capacity",
    lambda peak_memory, memory_error_band_low, memory_capacity: (
        ~xp.asarray(peak_memory * (1.0 + memory_error_band_low) > memory_capacity)
    ),
)

HOST_FITS = Requirement(
    "host_memory_full",
    "the host must hold what is offloaded: host_memory up to host_memory_capacity",
    lambda host_memory, host_memory_capacity: ~xp.asarray(host_memory > host_memory_capacity),
)
OF_RUNS = frozenset((DOES_NOT_FIT, HOST_FITS.fault))


def training_faults() -> Faults:
    """Return what can be wrong with a parallel plan."""
    every = [condition.rule for condition in conditions()]
    # In the order in which they came to be, so that files that were written before keep their flags
    first = next(n for n, rule in enumerate(every) if rule.fault == "ulysses_ranks_not_divisible")
    texts: dict[str, str] = {}
    for requirement in (*every[:first], FITS, HOST_FITS, every[first]):
        known = texts.setdefault(requirement.fault, requirement.text)
        if requirement.text not in known:
            texts[requirement.fault] = f"{known}; or {requirement.text}"
    texts[NOT_KNOWN] = UNKNOWN_TEXT
    texts[NOT_OF_NETWORK] = "some quantities are of some plans or networks alone"
    later = (*every[first + 1 :], NO_ALGORITHM, NOT_OF_GROUPS)
    texts |= {rule.fault: rule.text for rule in later}
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
    reached, new = {STEP}, [STEP]
    while new:
        more = takers.get(new.pop(), set()) - reached
        reached |= more
        new += more
    return frozenset(reached)


def feasibility(builder: Builder, faults: Mapping[str, int], nodes: Mapping[str, Node]) -> Node:
    """Return the node of the reasons why plans can't be, or can't run, as bits."""
    flat = builder.labels["topology"] != "hierarchical"
    each: list[Node] = []
    for requirement in (*requirements(builder.labels), FITS, HOST_FITS):
        if flat and requirement.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        try:
            each.append(builder.faults((requirement,), faults))
        except Missing:
            continue
    lacking = unknowns(builder, nodes.values(), faults[NOT_KNOWN])
    each += [noted(builder, unknown) for unknown in lacking]
    # Small ones first, so that few nodes are as large as all axes together.
    each.sort(key=lambda node: builder.space.size(node.dims))
    return builder.either(each) if each else builder.everywhere(0)


def overlap_faults() -> Faults:
    """Return what can be wrong with computation and communication at once."""
    texts = {requirement.fault: requirement.text for requirement in mechanisms.REQUIREMENTS}
    return Faults(texts, lambda fault, variable: True)


def overlap_feasibility(
    builder: Builder, faults: Mapping[str, int], nodes: Mapping[str, Node]
) -> Node:
    """Return the node of the reasons why a mechanism can't be; what it doesn't take is none."""
    taken = {node.name for node in given_below(nodes.values())}
    each: list[Node] = []
    measured = "overlapped_time" in builder.given
    for requirement in mechanisms.requirements(builder.labels, measured=measured):
        inputs = [builder.perhaps(name) for name in requirement.inputs]
        if all(node and (node.run is not None or node.name in taken) for node in inputs):
            each.append(builder.faults((requirement,), faults))
    return builder.either(each) if each else builder.everywhere(0)


# Where a variable has no value: the cells that can't be, seen along its own dimensions.

# Points of a dimension are left out if at most this share of them can be.
FEW = 0.9


def _leaves(status: Node) -> Iterator[tuple[Node, int]]:
    """Yield the nodes of which a status is put together, each with the bits that it may set."""
    kind, *more = status.what
    if kind == "either":
        for operand in status.inputs:
            yield from _leaves(operand)
    elif kind == "all":
        yield (
            status,
            reduce(or_, (mask for child in status.inputs for _, mask in _leaves(child)), 0),
        )
    else:
        (bits,) = more
        yield status, reduce(or_, (bit for _, bit, _ in bits), 0) if kind == "faults" else bits


def narrowed(builder: Builder, status: Node, bits: int) -> Node | None:
    """Return the node of those reasons of a status that may set some bits: of fewer dimensions."""
    leaves = [leaf for leaf, mask in _leaves(status) if mask & bits]
    return builder.either(leaves) if leaves else None


def alive(evaluator: Evaluator, status: Node, bits: int) -> dict[str, Array]:
    """Return the points of dimensions at which a cell has none of some bits, where they are few.

    Reasons of few cells tell: what they don't tell is alive.
    """
    grid, whole = evaluator.grid, evaluator.limits.whole
    can: Array = np.ones((1,) * grid.ndim, np.bool_)
    for leaf, mask in _leaves(status):
        if mask & bits and evaluator.cells(leaf) <= whole:
            free = in_numpy(evaluator.value(leaf)) & bits == 0
            joint = math.prod(np.broadcast_shapes(free.shape, can.shape))
            # As many bytes as numbers kept.
            if joint <= 8 * whole and not free.all():
                can = can & free
    points_of = {}
    for index, (dim, length) in enumerate(grid.sizes.items()):
        if can.shape[index] > 1 or not can.any():
            others = tuple(other for other in range(can.ndim) if other != index)
            points = np.flatnonzero(can.any(axis=others))
            if len(points) <= FEW * length:
                points_of[dim] = points
    return points_of


class Holes:
    """The missing values of variables of the same dimensions, in one case.

    A variable may have fewer dimensions than the reasons for holes: the bus factor, say, doesn't
    vary along the sizes of a mesh.  Then its value is missing where no cell along the others, and
    in no other case that shares the value, can be.
    """

    def __init__(
        self,
        cases: Sequence[LabelCase],
        builder: Callable[[LabelCase], Builder],
        case: LabelCase,
        evaluators: Evaluators,
        evaluator: Evaluator,
        positions: Sequence[int],
    ) -> None:
        self.cases, self.builder = cases, builder
        self.case, self.evaluators = case, evaluators
        self.evaluator = evaluator  # What computes the variables
        self.positions = frozenset(positions)
        self._sharing: list[tuple[LabelCase, Evaluator]] | None = None
        self._known: dict[int, tuple[Region, Array | None]] = {}
        self._flat: dict[int, tuple[Array, tuple[int, ...], Array]] = {}
        self._reasons: dict[tuple[int, int], Node | None] = {}
        self._found: dict[int, int] = {}
        self._dims: dict[int, frozenset[str]] = {}

    def at(self, region: Region, bits: int) -> Array | None:
        """Return a mask of the missing values over a region; None where none are missing."""
        if not self._some(bits):
            return None
        known, where = self._known.get(bits), region
        if len(self._cases()) == 1:
            positions = {self.evaluator.grid.position(dim) for dim in self._dims[bits]}
            where = tuple(region[position] for position in sorted(positions))
        if known is None or known[0] != where:
            known = self._known[bits] = (where, self._missing(region, bits))
        return known[1]

    def blank(self, region: Region, bits: int, out: Array, missing: float) -> None:
        """Set the missing ones of values over a region."""
        wrong = self.at(region, bits)
        if wrong is None:
            return
        if not out.flags.c_contiguous:
            np.copyto(out, missing, where=wrong)
            return
        # By their places: masked copies take several times as long.
        known = self._flat.get(bits)
        if known is None or known[0] is not wrong or known[1] != out.shape:
            indices = np.flatnonzero(np.broadcast_to(wrong, out.shape))
            known = self._flat[bits] = (wrong, out.shape, indices)
        out.reshape(-1)[known[2]] = missing

    def _some(self, bits: int) -> int:
        """Return which of some bits may be set."""
        wrong = self._found.get(bits)
        if wrong is None:
            wrong, status = bits, self._status(self.case, self.evaluator, bits)
            self._dims[bits] = status.dims if status else frozenset()
            if status is None:
                wrong = 0
            elif self.evaluator.cells(status) <= self.evaluator.limits.whole:
                values = in_numpy(self.evaluator.value(status))
                wrong = bits & int(np.bitwise_or.reduce(values, axis=None))
            self._found[bits] = wrong
        return wrong

    def _status(self, case: LabelCase, evaluator: Evaluator, bits: int) -> Node | None:
        """Return the reasons that may set some bits."""
        if evaluator.cells(case.status) <= evaluator.limits.whole:
            return case.status
        key = id(case), bits
        if key not in self._reasons:
            self._reasons[key] = narrowed(self.builder(case), case.status, bits)
        return self._reasons[key]

    def _missing(self, region: Region, bits: int) -> Array | None:
        wrong: Array | None = None
        for case, evaluator in self._cases():
            mask = self._of_case(case, evaluator, region, bits)
            wrong = mask if wrong is None or mask is None else wrong & mask
            if wrong is None or not wrong.any():
                return None
        return wrong

    def _cases(self) -> list[tuple[LabelCase, Evaluator]]:
        """Return the cases that share the variables' values: the case itself first."""
        if self._sharing is None:
            fixed = self._fixed_places(self.case)
            # Where the variables have all dimensions that switch, no other has a value of theirs.
            cases = self.cases if len(fixed) < len(self.case.fixed) else ()
            others = [
                (case, self.evaluators.of(case))
                for case in cases
                if case is not self.case and self._fixed_places(case) == fixed
            ]
            self._sharing = [(self.case, self.evaluator), *others]
        return self._sharing

    def _fixed_places(self, case: LabelCase) -> dict[int, slice]:
        return {p: part for p, part in case.fixed.items() if p in self.positions}

    def _of_case(
        self, case: LabelCase, evaluator: Evaluator, region: Region, bits: int
    ) -> Array | None:
        """Return where no cell of a case along the dimensions that the variables lack can be."""
        reasons = self._status(case, evaluator, bits)
        if reasons is None:
            return None
        positions = {evaluator.grid.position(dim) for dim in reasons.dims} - set(case.fixed)
        idle = tuple(sorted(positions - self.positions))
        pieces = [case.fixed.get(p, part) for p, part in enumerate(region)]
        cells = 1
        for position in positions & self.positions:
            cells *= region[position].stop - region[position].start
        wrong: Array | None = None
        most = max(1, evaluator.limits.block // cells)
        for part in Cuts([evaluator.shape[p] for p in idle], most):
            for position, piece in zip(idle, part, strict=True):
                pieces[position] = piece
            own_region = tuple(pieces)
            if idle:
                status = evaluator.reasons(reasons, own_region) & bits
                mask = np.asarray((status != 0).all(axis=idle, keepdims=True))
            else:
                mask = in_numpy(evaluator.value(reasons, own_region)) & bits != 0
            wrong = mask if wrong is None else wrong & mask
            if not wrong.any():
                break
        return wrong
