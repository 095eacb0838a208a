"""Times of measured operations by the product's own closed forms, and what they are linear in.

For a fixed algorithm (and number of chunks, and slowest level) the time is a number of latencies
plus a number of messages by the bandwidth, on each level, plus the launch.  `Model.design` gives
these numbers for the algorithm that is chosen with given constants, so that the product with the
constants is the very time that the engine computes with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import Algorithm
from overhead.collectives.choices import candidates, usable
from overhead.formula import REGISTRY, Formula
from overhead.graph import Evaluation
from overhead.labels import ALL, HIERARCHY, OPERATION_DEFAULTS, complete
from sweeps.calibrate.logs import LogRow, LogTest, known_operations, operation_of
from sweeps.errors import InputError, fault
from sweeps.spec.machine import Machine

# What a row's own rates say: whether size, time, algbw and busbw are those of one operation.

# nccl-tests prints rates and times with two digits behind the point, and long times with fewer.
_ROUNDING = 0.006
_RELATIVE = 1e-3
_LEAST_RATE = 1e9  # byte/s from which a rate's two digits tell a factor
_SHARING = ("all_gather", "reduce_scatter")
_MOST_RANKS = 1 << 20


def bus_factor(operation: str, ranks: int) -> float:
    """Return the factor from algbw to busbw, as nccl-tests has it."""
    declared = REGISTRY.returning("bus_factor", {"collective": operation})
    assert isinstance(declared, Formula)
    return float(declared.kernel(np.asarray(float(ranks))))


def implied_ranks(operation: str, rows: Sequence[LogRow]) -> int:
    """Return the number of ranks that busbw by algbw implies; 0 where they tell none."""
    factor = _measured_factor(rows)
    if math.isnan(factor):
        return 0
    twice = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
    most = twice.get(operation, 0.0)
    if not 0.0 < factor < most:
        return 0
    ranks = most / (most - factor)
    return round(ranks) if abs(ranks - round(ranks)) < 0.02 * ranks else 0


def _measured_factor(rows: Sequence[LogRow]) -> float:
    """Return busbw by algbw where both have the most digits; NaN where they have too few."""
    known = [row for row in rows if row.algbw >= _LEAST_RATE and math.isfinite(row.busbw)]
    if not known:
        return math.nan
    best = max(known, key=lambda row: row.algbw)
    return best.busbw / best.algbw


def checked_rates(test: LogTest, ranks: int) -> tuple[tuple[LogRow, ...], tuple[str, ...]]:
    """Check that rows agree with themselves and with the number of ranks."""
    kept: list[LogRow] = []
    odd: list[LogRow] = []
    share = (ranks - 1) / ranks if test.old_rates and test.operation in _SHARING else 1.0
    for row in test.rows:
        (kept if _agrees(row, share) else odd).append(row)
    if 2 * len(odd) > len(test.rows):
        row = odd[0]
        own = share * row.size / row.time / 1e9
        message = (
            f"{test.path.name}, line {row.line}: {row.size:.0f} bytes in {row.time * 1e6:g} us are "
            f"{own:.2f} GB/s, and algbw says {row.algbw / 1e9:.2f}; is it the log of another "
            "program, or of another operation?"
        )
        raise InputError(message)
    _check_ranks(test, kept, ranks)
    lines = ", ".join(dict.fromkeys(str(row.line) for row in odd))
    notes = (f"left out rows whose algbw isn't size by time: line {lines}",) if odd else ()
    return tuple(kept), notes


def _agrees(row: LogRow, share: float) -> bool:
    if not math.isfinite(row.algbw):
        return True
    own = share * row.size / row.time
    # The rounding of both numbers, each relative to itself.
    slack = _ROUNDING * 1e9 + own * (_RELATIVE + _ROUNDING / (row.time * 1e6))
    return abs(own - row.algbw) <= slack


def _check_ranks(test: LogTest, rows: Sequence[LogRow], ranks: int) -> None:
    known = [row for row in rows if row.algbw >= _LEAST_RATE and math.isfinite(row.busbw)]
    if not known:
        return
    best = max(known, key=lambda row: row.algbw)
    factor = best.busbw / best.algbw
    old = test.old_rates and test.operation in _SHARING
    expected = 1.0 if old else bus_factor(test.operation, ranks)
    slack = _ROUNDING * 1e9 * (1.0 + expected) / best.algbw + _RELATIVE
    if np.isclose(factor, expected, rtol=0.0, atol=slack):
        return
    implied = 0 if old else implied_ranks(test.operation, rows)
    if implied:
        meaning = f"which {implied} ranks would have; is --ranks {implied} meant?"
    else:
        meaning = "which no number of ranks has; is it another operation? --op says which"
    message = (
        f"{test.path.name}, line {best.line}: busbw is {factor:.4g} times algbw, and "
        f"{test.operation} on {ranks} ranks has {expected:.4g}: {meaning}"
    )
    raise InputError(message)


# The constants that a fit is of, and how the machine's file calls them.

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the model."""

    name: str  # The quantity's name in the vocabulary; ``launch`` has none
    words: str  # What it is
    units: str  # Its canonical unit
    place: str  # Where a hardware file has it; empty for ``launch``, which no file has
    least: float = 0.0  # The least value that a fit may give it

    @property
    def inverse(self) -> bool:
        """Whether times are linear in one by it."""
        return self.units == "byte s-1"


LAUNCH = "launch"
# Light goes 0.3 m in a nanosecond, so no message between two GPUs takes less.
_LEAST_LATENCY = 1e-9
CONSTANTS: Mapping[str, Constant] = {
    one.name: one
    for one in (
        Constant("intra_bandwidth", "bandwidth in a node", "byte s-1", "scale_up.bandwidth"),
        Constant("inter_bandwidth", "bandwidth between nodes", "byte s-1", "scale_out.bandwidth"),
        Constant("intra_latency", "latency in a node", "s", "scale_up.latency", _LEAST_LATENCY),
        Constant(
            "inter_latency", "latency between nodes", "s", "scale_out.latency", _LEAST_LATENCY
        ),
        Constant(
            "in_network_latency", "latency through the reducing switch", "s",
            "scale_up.in_network_latency", _LEAST_LATENCY,
        ),
        Constant(LAUNCH, "launch of an operation", "s", ""),
    )
}  # fmt: skip
BANDWIDTHS = ("intra_bandwidth", "inter_bandwidth")
LATENCIES = ("intra_latency", "inter_latency", "in_network_latency")


def base_values(machine: Machine) -> dict[str, float]:
    """Return the constants as a machine's file has them; no launch."""
    kind = machine.scale_up_kind
    if kind not in ("switch", "fully_connected"):
        wrong = f"its nodes are a {kind}, on which nccl-tests doesn't run"
        raise InputError(fault("--hardware", machine.name, wrong, "a machine of GPUs"))
    values = {
        name: machine.figures[name].value if name in machine.figures else np.nan
        for name in CONSTANTS
    }
    if np.isnan(values["in_network_latency"]):
        values["in_network_latency"] = values["intra_latency"]
    values[LAUNCH] = 0.0
    return values


def vector(values: Mapping[str, float]) -> Floats:
    """Return constants as what times are linear in: latencies, and one by bandwidths."""
    return np.array(
        [1.0 / values[one.name] if one.inverse else values[one.name] for one in CONSTANTS.values()]
    )


# Tests placed on a machine: the operation, its ranks, and the nodes that they are on.

# No host has more GPUs of its own; a machine whose node is larger joins several hosts (a rack).
MOST_IN_A_HOST = 16
_DEVICE = re.compile(r"\b(?:MI|GB|[A-Z])\d{2,3}[A-Z]?\b")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user says of logs that don't say it: 0 and nothing where they do."""

    operation: str = ""  # The collective
    ranks: int = 0  # All ranks, and those of one node
    gpus_per_node: int = 0  # All ranks, and those of one node


@dataclass(frozen=True, slots=True)
class Case:
    """One test on a machine."""

    test: LogTest  # As it was read
    name: str  # What it is called: its file, and what tells it from others
    operation: str  # The collective
    ranks: int  # How many
    nodes: int  # How many
    rows: tuple[LogRow, ...]  # Those that agree with themselves
    notes: tuple[str, ...]  # What was left out, assumed, or is odd

    @property
    def level(self) -> str:
        """``intra`` for a test within one node, else ``inter``."""
        return "intra" if self.nodes == 1 else "inter"

    @property
    def placed(self) -> str:
        """Its ranks in words."""
        if self.nodes == 1:
            return f"{self.ranks} ranks"
        return f"{self.nodes} x {self.ranks // self.nodes} ranks"


def cases_of(tests: Sequence[LogTest], machine: Machine, stated: Stated) -> list[Case]:
    """Place tests on a machine's nodes."""
    faults: list[str] = []
    cases = []
    for test in tests:
        if test.hardware and test.hardware != machine.name:
            continue
        try:
            cases.append(_case(test, machine, stated))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    if not cases:
        named = ", ".join(dict.fromkeys(test.hardware for test in tests))
        wrong = "the table has no rows of it"
        raise InputError(fault("--hardware", machine.name, wrong, f"one of {named}"))
    return cases


def _case(test: LogTest, machine: Machine, stated: Stated) -> Case:
    operation = _operation(test, stated)
    test = replace(test, operation=operation)
    ranks = _ranks(test, operation, stated)
    nodes, notes = _nodes(test, ranks, machine, stated)
    rows, odd = checked_rates(test, ranks)
    placed = f"{nodes} x {ranks // nodes}" if nodes > 1 else f"{ranks}"
    return Case(
        test=test,
        name=f"{test.name} {operation} {placed}",
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        rows=rows,
        notes=(*test.notes, *odd, *notes, *_other_device(test, machine)),
    )


def _operation(test: LogTest, stated: Stated) -> str:
    own = test.operation or operation_of(test.path.name)
    if test.operation and stated.operation and test.operation != stated.operation:
        wrong = f"{test.where}: the log is of {test.operation}"
        raise InputError(fault("--op", stated.operation, wrong, "leave it out: the log says it"))
    found = stated.operation or own
    if not found:
        message = (
            f"{test.where}: neither the log nor its name says which operation it is of; "
            f"give --op ({known_operations('')})"
        )
        raise InputError(message)
    return found


def _ranks(test: LogTest, operation: str, stated: Stated) -> int:
    if test.ranks and stated.ranks and test.ranks != stated.ranks:
        wrong = f"{test.where}: the log has {test.ranks}"
        raise InputError(fault("--ranks", stated.ranks, wrong, "leave it out: the log says it"))
    ranks = test.ranks or stated.ranks
    if not ranks:
        implied = implied_ranks(operation, test.rows)
        hint = f"--ranks {implied}, which busbw by algbw implies" if implied else "--ranks N"
        message = f"{test.where}: no lines '# Rank ..', so its ranks aren't known; give {hint}"
        raise InputError(message)
    if ranks < 2:
        message = f"{test.where}: one rank sends nothing; give a log of two ranks or more"
        raise InputError(message)
    return ranks


def _nodes(
    test: LogTest, ranks: int, machine: Machine, stated: Stated
) -> tuple[int, tuple[str, ...]]:
    """Return the nodes of a test, and what was assumed of them."""
    most = int(machine.figures["gpus_per_node"].value)
    hosts = list(test.hosts.values())
    notes: tuple[str, ...] = ()
    if stated.gpus_per_node:
        nodes = -(-ranks // stated.gpus_per_node)
    elif test.nodes:
        nodes = test.nodes
    elif len(hosts) > 1 and most > MOST_IN_A_HOST:
        nodes = -(-ranks // most)
        joined = "one node" if nodes == 1 else f"{nodes} nodes"
        notes = (
            f"{len(hosts)} hosts taken for {joined} of {machine.name} (up to {most} GPUs each); "
            "--gpus-per-node says otherwise",
        )
    elif hosts:
        if len(set(hosts)) > 1:
            told = ", ".join(f"{host} {count}" for host, count in test.hosts.items())
            message = f"{test.where}: nodes have unequal ranks ({told}); as many on each node"
            raise InputError(message)
        nodes = len(hosts)
    else:
        nodes = 1 if ranks <= most else -(-ranks // most)
        if nodes > 1:
            notes = (f"no hosts in the log: {nodes} nodes of {most} GPUs, as {machine.name} has",)
    share = ranks / nodes
    if not share.is_integer() or share > most:
        message = (
            f"{test.where}: {ranks} ranks on {nodes} nodes, and a node of {machine.name} has "
            f"{most} GPUs; give another --hardware, or --gpus-per-node for the ranks of a node"
        )
        raise InputError(message)
    return nodes, notes


def _other_device(test: LogTest, machine: Machine) -> tuple[str, ...]:
    """Return a note where the log's GPUs are called otherwise than the machine's."""
    found = _DEVICE.search(test.device)
    if not found or found[0].lower() in f"{machine.name} {machine.title}".lower():
        return ()
    return (f"its GPUs are {test.device}; --hardware is {machine.name}: is that the machine?",)


Strings = NDArray[np.str_]

_PLACES = {name: place for place, name in enumerate(CONSTANTS)}


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured rows of all cases, as columns."""

    case: NDArray[np.intp]  # Each row's case
    line: NDArray[np.intp]  # Its line in its log
    operation: Strings  # Its collective
    ranks: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    nodes: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    message_bytes: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    time: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    placement: Strings  # Out of place or in place

    def __len__(self) -> int:
        return len(self.time)

    @property
    def between(self) -> NDArray[np.bool_]:
        """Which rows are of several nodes."""
        return np.asarray(self.nodes > 1.0)

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(*(getattr(self, name)[kept] for name in self.__slots__))


def rows_of(cases: Sequence[Case], placements: Sequence[str]) -> Rows:
    """Return all rows that came out right, of some placements."""
    found = [
        (place, case, row)
        for place, case in enumerate(cases)
        for row in case.rows
        if row.placement in placements and not row.wrong > 0.0
    ]
    return Rows(
        np.array([place for place, _, _ in found], dtype=np.intp),
        np.array([row.line for _, _, row in found], dtype=np.intp),
        np.array([case.operation for _, case, _ in found], dtype=np.str_),
        np.array([float(case.ranks) for _, case, _ in found]),
        np.array([float(case.nodes) for _, case, _ in found]),
        np.array([row.size for _, _, row in found]),
        np.array([row.time for _, _, row in found]),
        np.array([row.placement for _, _, row in found], dtype=np.str_),
    )


class Model:
    """Times of rows on a machine."""

    def __init__(self, rows: Rows, machine: Machine, algorithm: str = "nccl") -> None:
        self.rows, self.machine = rows, machine
        self._parts = [
            (places, _Part(rows.where(places), machine, operation, several, algorithm))
            for operation in dict.fromkeys(rows.operation.tolist())
            for several in (False, True)
            if (places := (rows.operation == operation) & (rows.between == several)).any()
        ]

    def design(self, values: Mapping[str, float]) -> Floats:
        """Return the factors of each constant's term, for the algorithms that are chosen."""
        found = np.zeros((len(self.rows), len(CONSTANTS)))
        for places, part in self._parts:
            found[places] = part.design(values)[0]
        return found

    def algorithms(self, values: Mapping[str, float]) -> Strings:
        """Return the name of the algorithm that each row's time is of."""
        found = np.empty(len(self.rows), dtype="U40")
        for places, part in self._parts:
            chosen = part.design(values)[1]
            found[places] = np.array([one.name for one in part.choices])[chosen]
        return found


class _Part:
    """Rows of one operation on one kind of network."""

    def __init__(
        self, rows: Rows, machine: Machine, operation: str, several: bool, algorithm: str
    ) -> None:
        self.rows, self.several = rows, several
        labels = {
            **OPERATION_DEFAULTS,
            "collective": operation,
            "algorithm": algorithm,
            **({"topology": HIERARCHY} if several else {"link": "intra"}),
        }
        self.labels = complete(labels, ())
        if algorithm == ALL:
            wrong = "stands for each of them, and a time is of one"
            raise InputError(fault("--algorithm", algorithm, wrong, "nccl, auto, or a name"))
        try:
            candidates(self.labels["topology"], operation, algorithm)
        except ValueError as error:
            raise InputError(fault("--algorithm", algorithm, "can't be", str(error))) from None
        self.choices: tuple[Algorithm, ...] = usable(self.labels)
        figures = machine.figures
        node, cards = figures["gpus_per_node"].value, figures.get("nics_per_node")
        here = {"inc", "sharp"}
        self.given = {
            "message_bytes": rows.message_bytes,
            "ranks": rows.ranks,
            # A group's share of a node is its own; a card serves as many ranks as the machine's.
            "gpus_per_node": rows.ranks / rows.nodes if several else np.full(len(rows), node),
            "ranks_per_nic": node / (cards.value if cards else node),
            "oversubscription": 1.0,
            "hops": 1.0,
            "intra_nvls": float("nvls" in machine.in_network),
            "intra_inc": float(bool(here & set(machine.in_network))),
            "inter_inc": float(bool(here & set(machine.scale_out_in_network))),
        }

    def design(self, values: Mapping[str, float]) -> tuple[Floats, NDArray[np.intp]]:
        """Return the terms of the algorithm of least time, and which it is."""
        given = self.given | {name: values[name] for name in _PLACES if name != "launch"}
        each = [Evaluation(given, self.labels, one) for one in self.choices]
        count = len(self.rows)
        times = [
            np.broadcast_to(np.where(one.defined(), one["time"], np.inf), count) for one in each
        ]
        chosen = np.argmin(np.stack(times), axis=0)
        terms = np.zeros((count, len(_PLACES)))
        for place, one in enumerate(each):
            own = chosen == place
            if own.any():
                terms[own] = self._terms(one, self.choices[place])[own]
        terms[:, _PLACES["launch"]] = 1.0
        return terms, chosen

    def _terms(self, one: Evaluation, algorithm: Algorithm) -> Floats:
        terms = np.zeros((len(self.rows), len(_PLACES)))
        size = self.rows.message_bytes
        if self.several:
            for level in ("intra", "inter"):
                terms[:, _PLACES[f"{level}_latency"]] = one[f"{level}_latency_count"]
                terms[:, _PLACES[f"{level}_bandwidth"]] = one[f"{level}_transfer_fraction"] * size
            return terms
        latency = "in_network_latency" if algorithm.in_network else "intra_latency"
        terms[:, _PLACES[latency]] = one["latency_count"]
        terms[:, _PLACES["intra_bandwidth"]] = one["transfer_fraction"] * size
        return terms
