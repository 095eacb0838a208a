"""Tests placed on a machine, and their times by a library's profile.

Times are those that ``sweeps collective`` gives: a sweep is resolved for each operation, on a
node or on several, and its formulas are evaluated with constants as arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.choose import candidates, usable
from overhead.collectives.algorithm import ALGORITHMS, Algorithm
from overhead.completion import following
from overhead.evaluation import Evaluation
from overhead.formula import REGISTRY, Formula
from overhead.labels import ALL, HIERARCHY, LABELS, NO_LIBRARY, OPERATION_DEFAULTS
from overhead.quantity import VOCABULARY
from sweeps.calibration.device import other_device
from sweeps.calibration.log import (
    PLACEMENTS,
    Left,
    LogRow,
    LogTest,
    known_operations,
    operation_of,
)
from sweeps.calibration.settings import NO_NVLS, SIMPLE_FORMS, left_by
from sweeps.errors import InputError, refuse, reject
from sweeps.spec.catalog import load_hardware
from sweeps.spec.machine import CONSTANTS, FABRIC, ISSUE, SHARED, Machine
from sweeps.spec.resolve import resolve
from sweeps.spec.software import Profile, load_software, on_fabric, own_library
from sweeps.spec.sweep import read_sweep

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
    best = _exact_row(rows)
    if best is None:
        return 0
    factor = best.busbw / best.algbw
    twice = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
    most = twice.get(operation, 0.0)
    if not 0.0 < factor < most:
        return 0
    ranks = most / (most - factor)
    return round(ranks) if abs(ranks - round(ranks)) < 0.02 * ranks else 0


def _exact_row(rows: Sequence[LogRow]) -> LogRow | None:
    """Return the row whose rates have the most digits; None where all have too few."""
    known = [row for row in rows if row.algbw >= _LEAST_RATE and math.isfinite(row.busbw)]
    return max(known, key=lambda row: row.algbw, default=None)


def checked_rates(test: LogTest, ranks: int) -> tuple[tuple[LogRow, ...], tuple[str, ...]]:
    """Check that rows agree with themselves and with the number of ranks."""
    kept: list[LogRow] = []
    odd: list[LogRow] = []
    share = (ranks - 1) / ranks if test.old_rates and test.operation in _SHARING else 1.0
    for row in test.rows:
        (kept if _agrees(row, share) else odd).append(row)
    if 2 * len(odd) > len(test.rows):
        row = odd[0]
        rate = share * row.size / row.time / 1e9
        wrong = (
            f"{row.size:.0f} bytes in {row.time * 1e6:g} µs are {rate:.2f} GB/s, and algbw says "
            f"{row.algbw / 1e9:.2f}; is it the log of another program, or of another operation?"
        )
        reject(f"{test.path.name}, line {row.line}", wrong)
    _check_ranks(test, kept, ranks)
    lines = ", ".join(dict.fromkeys(str(row.line) for row in odd))
    notes = (f"left out rows whose algbw isn't size by time: line {lines}",) if odd else ()
    return tuple(kept), notes


def _agrees(row: LogRow, share: float) -> bool:
    if not math.isfinite(row.algbw):
        return True
    rate = share * row.size / row.time
    # The rounding of both numbers, each relative to itself.
    slack = _ROUNDING * 1e9 + rate * (_RELATIVE + _ROUNDING / (row.time * 1e6))
    return abs(rate - row.algbw) <= slack


def _check_ranks(test: LogTest, rows: Sequence[LogRow], ranks: int) -> None:
    best = _exact_row(rows)
    if best is None:
        return
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
    has = f"{test.operation} on {ranks} ranks has {expected:.4g}"
    wrong = f"busbw is {factor:.4g} times algbw, and {has}: {meaning}"
    reject(f"{test.path.name}, line {best.line}", wrong)


Floats = NDArray[np.float64]

# Tests placed on a machine: the operation, its ranks, and the nodes that they are on.

# No host has more GPUs of its own; a machine whose node is larger joins several hosts (a rack).
MOST_IN_A_HOST = 16


@dataclass(frozen=True, slots=True)
class PlacedTest:
    """One test on a machine."""

    test: LogTest  # As it was read
    name: str  # What it is called: its file, and what tells it from others
    operation: str  # The collective
    ranks: int  # How many
    nodes: int
    rows: tuple[LogRow, ...]  # Those that agree with themselves
    notes: tuple[str, ...]  # What was left out, assumed, or is odd
    forced: str = ""  # The algorithms and protocol that its settings leave; empty: NCCL's choice
    stranger: str = ""  # Its GPUs, where they aren't the machine's
    # Why nothing published is like it, as a whole or of its short messages
    unknown: str = ""
    short_unknown: str = ""

    @property
    def placed(self) -> str:
        """Its ranks in words."""
        if self.nodes == 1:
            return f"{self.ranks} ranks"
        return f"{self.nodes} x {self.ranks // self.nodes} ranks"


def other_words(library: str) -> str:
    """Return why times of a library that isn't NCCL get no verdict."""
    return (
        f"measured by {library}, not by NCCL: times of {library}'s own algorithms; nccl-tests, or "
        "OSU's osu_xccl_*, measure NCCL"
    )


def cases_of(
    tests: Sequence[LogTest],
    machine: Machine,
    *,
    operation: str = "",
    ranks: int = 0,
    gpus_per_node: int = 0,
    left: list[Left] | None = None,
) -> list[PlacedTest]:
    """Place tests on a machine's nodes; those that can't be are left out, if any can.

    The operation, all ranks and those of a node are what is said of logs that don't say it.
    """
    of_it = [test for test in tests if test.hardware in ("", machine.name)]
    if not of_it:
        named = ", ".join(dict.fromkeys(test.hardware for test in tests))
        refuse("--hardware", machine.name, "the table has no rows of it", f"one of {named}")
    cases, faults = [], list[str]()
    for test in of_it:
        try:
            cases.append(_case(test, machine, operation, ranks, gpus_per_node))
        except InputError as error:
            if any(line.startswith("--") for line in error.faults):
                raise  # It is what was asked for that can't be, not the log
            faults += error.faults
    if faults and (left is None or not cases):
        raise InputError(list(dict.fromkeys(faults)))
    if left is not None:
        left += [Left(line) for line in faults]
    return cases


def _case(
    test: LogTest, machine: Machine, operation: str, ranks: int, gpus_per_node: int
) -> PlacedTest:
    operation = _operation(test, operation)
    test = replace(test, operation=operation)
    test, cut = _whole_header(test, ranks)
    ranks = _ranks(test, ranks)
    if test.shares:
        whole = tuple(replace(row, size=row.size * ranks) for row in test.rows)
        test = replace(test, rows=whole)
        cut = (*cut, f"its sizes are a rank's share: times {ranks} ranks")
    nodes, notes = _nodes(test, ranks, machine, gpus_per_node)
    rows, odd = checked_rates(test, ranks)
    placed = f"{nodes} x {ranks // nodes}" if nodes > 1 else f"{ranks}"
    settings = left_by(test.settings, operation)
    stranger, device = other_device(test.device, machine)
    return PlacedTest(
        test=test,
        name=f"{test.name} {operation} {placed}",
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        rows=rows,
        notes=(*test.notes, *odd, *cut, *notes, *settings.notes, *device),
        forced=test.forced or settings.forced,
        unknown=other_words(test.library) if test.library else settings.unknown,
        short_unknown=settings.short_unknown,
        stranger=stranger,
    )


def _whole_header(test: LogTest, given: int) -> tuple[LogTest, tuple[str, ...]]:
    """Take the ranks that are given where a log's list of them is cut: its own rates say so."""
    listed = test.ranks
    if not (given and listed) or given == listed:
        return test, ()
    if implied_ranks(test.operation, test.rows) != given:
        return test, ()
    note = f"its list of ranks is cut after {listed}: --ranks {given}, as its rates say"
    return replace(test, ranks=0, hosts={}), (note,)


def _operation(test: LogTest, given: str) -> str:
    if test.operation and given and test.operation != given:
        wrong = f"{test.where}: the log is of {test.operation}"
        refuse("--op", given, wrong, "leave it out: the log says it")
    operation = given or test.operation or operation_of(test.path.name)
    if not operation:
        wrong = "neither the log nor its name says which operation it is of"
        reject(test.where, f"{wrong}; give --op ({known_operations('')})")
    return operation


def _ranks(test: LogTest, given: int) -> int:
    if test.ranks and given and test.ranks != given:
        wrong = f"{test.where}: the log has {test.ranks}"
        refuse("--ranks", given, wrong, "leave it out: the log says it")
    ranks = test.ranks or given
    if not ranks:
        implied = implied_ranks(test.operation, test.rows)
        hint = f"--ranks {implied}, which busbw by algbw implies" if implied else "--ranks N"
        reject(test.where, f"no lines '# Rank ..', so its ranks aren't known; give {hint}")
    if ranks < 2:
        reject(test.where, "one rank sends nothing; give a log of two ranks or more")
    return ranks


def _nodes(
    test: LogTest, ranks: int, machine: Machine, gpus_per_node: int
) -> tuple[int, tuple[str, ...]]:
    """Return the nodes of a test, and what was assumed of them."""
    most = int(machine.figures["gpus_per_node"].value)
    hosts = list(test.hosts.values())
    notes: tuple[str, ...] = ()
    if gpus_per_node:
        nodes = -(-ranks // gpus_per_node)
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
            counts = ", ".join(f"{host} {count}" for host, count in test.hosts.items())
            reject(test.where, f"nodes have unequal ranks ({counts}); as many on each node")
        nodes = len(hosts)
    else:
        nodes = 1 if ranks <= most else -(-ranks // most)
        if nodes > 1:
            notes = (f"no hosts in the log: {nodes} nodes of {most} GPUs, as {machine.name} has",)
    share = ranks / nodes
    if not share.is_integer() or share > most:
        wrong = f"{ranks} ranks on {nodes} nodes, and a node of {machine.name} has {most} GPUs"
        allowed = "give another --hardware, or --gpus-per-node for the ranks of a node"
        reject(test.where, f"{wrong}; {allowed}")
    return nodes, notes


Strings = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured rows of all cases, as columns."""

    case: NDArray[np.intp]  # Each row's case
    line: NDArray[np.intp]  # Its line in its log
    operation: Strings  # Its collective
    # Its ranks and nodes, the message [byte], and the measured time [s]
    ranks: Floats
    nodes: Floats
    message_bytes: Floats
    time: Floats
    placement: Strings  # Out of place or in place
    forced: Strings  # Which algorithm the log's settings leave; empty: NCCL's own choice
    fabric: Strings  # The network between nodes where it isn't the machine's; else empty
    card: Floats  # A card's rate [byte s-1] where it isn't the machine's; else 0

    def __len__(self) -> int:
        return len(self.time)

    @property
    def between(self) -> NDArray[np.bool_]:
        """Which rows are of several nodes."""
        return np.asarray(self.nodes > 1.0)

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(*(getattr(self, name)[kept] for name in self.__slots__))


def rows_of(cases: Sequence[PlacedTest], placements: Sequence[str]) -> Rows:
    """Return all rows that came out right, of some placements; all of a test where none did."""
    entries = []
    for index, case in enumerate(cases):
        rows_of_case = [(index, case, row) for row in case.rows if row.placement in placements]
        right = [entry for entry in rows_of_case if not entry[2].wrong > 0.0]
        entries += right or rows_of_case
    return Rows(
        np.array([case_index for case_index, _, _ in entries], dtype=np.intp),
        np.array([row.line for _, _, row in entries], dtype=np.intp),
        np.array([case.operation for _, case, _ in entries], dtype=np.str_),
        np.array([float(case.ranks) for _, case, _ in entries]),
        np.array([float(case.nodes) for _, case, _ in entries]),
        np.array([row.size for _, _, row in entries]),
        np.array([row.time for _, _, row in entries]),
        np.array([row.placement for _, _, row in entries], dtype=np.str_),
        np.array([case.forced for _, case, _ in entries], dtype=np.str_),
        np.array([case.test.fabric if case.nodes > 1 else "" for _, case, _ in entries], np.str_),
        np.array([case.test.card if case.nodes > 1 else 0.0 for _, case, _ in entries]),
    )


def rows_at(rows: Rows, sizes: Floats) -> Rows:
    """Return rows of the first one's test at other message sizes, without times."""
    parts = {name: np.repeat(getattr(rows, name)[:1], len(sizes)) for name in Rows.__slots__}
    return Rows(**parts | {"message_bytes": sizes, "time": np.full(len(sizes), np.nan)})


def rows_for(operation: str, ranks: int, nodes: int, sizes: Floats) -> Rows:
    """Return rows of an operation over message sizes, without times."""
    row = LogRow(0, 1.0, 1.0)
    test = LogTest(Path(operation), 0, operation, (row,))
    case = PlacedTest(test, operation, operation, ranks, nodes, (row,), ())
    return rows_at(rows_of([case], PLACEMENTS), sizes)


def machine_for(hardware: str, fabric: str = "", folders: Sequence[Path] = ()) -> Machine:
    """Return a machine on which nccl-tests can run, with the network between nodes that it has."""
    machine = load_hardware(hardware, folders)
    kind = machine.scale_up_kind
    if kind not in ("switch", "fully_connected"):
        wrong = f"its nodes are a {kind}, on which nccl-tests doesn't run"
        refuse("--hardware", machine.name, wrong, "a machine of GPUs")
    return on_fabric(machine, fabric) if fabric else machine


def library_of(machine: Machine) -> Profile:
    """Return the profile of a machine's library."""
    name = own_library(machine).value
    if name == NO_LIBRARY:
        wrong = f"no library's profile has {machine.generation or 'such machines'}"
        refuse("--hardware", machine.name, wrong, "a machine of NVIDIA or AMD")
    return load_software(name)


@dataclass(frozen=True, slots=True)
class Given:
    """What is said of the network and the library; 0 and nothing: they are the machine's."""

    inter_bandwidth: float = 0.0  # A card's rate [byte s-1]
    nics_per_node: int = 0
    software: str = ""  # The library's profile

    def on(self, machine: Machine, nodes: int) -> dict[str, Any]:
        """Return it as constants of a sweep."""
        values: dict[str, Any] = {}
        if nodes > 1 and self.inter_bandwidth:
            values["inter_bandwidth"] = self.inter_bandwidth
        if nodes > 1 and self.nics_per_node:
            values["nics_per_node"] = self.nics_per_node
        return values


PLAIN = Given()


class Model:
    """Times of rows on a machine."""

    def __init__(
        self, rows: Rows, machine: Machine, algorithm: str = "nccl", given: Given = PLAIN
    ) -> None:
        REGISTRY.load_everything()
        self.rows, self.machine, self.algorithm, self.given = rows, machine, algorithm, given
        profile = load_software(given.software) if given.software else library_of(machine)
        constants = profile.constants(machine)
        issue = profile.issue(LABELS["environment"].values[0], machine)
        # The constants as they are before a fit.
        self.origins = {**constants, ISSUE: issue}
        self.base = {name: float(origin.value) for name, origin in self.origins.items()}
        self.profile = profile
        if algorithm == ALL:
            wrong = "stands for each of them, and a time is of one"
            refuse("--algorithm", algorithm, wrong, "nccl, auto, or a name")
        columns = (rows.operation, rows.between, rows.forced, rows.fabric, rows.card)
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        self._parts = []
        for key in dict.fromkeys(keys):
            mask = np.array([row_key == key for row_key in keys])
            part = _Part(rows.where(mask), machine, profile, algorithm, given)
            self._parts.append((mask, part))

    def times(self, values: Mapping[str, Any] | None = None, *, ideal: bool = False) -> Floats:
        """Return times of all rows, of shape (.., rows), for constants that may be (.., 1).

        The ideal ones are those of the wire alone: full rates, and nothing else takes time.
        """
        changed = dict(values or {})
        free = {name: ideal_of(name) for name in (*CONSTANTS, ISSUE)} if ideal else {}
        changed |= free
        lead = np.broadcast_shapes(
            *(np.shape(value)[:-1] for value in changed.values() if np.ndim(value))
        )
        seconds = np.empty((*lead, len(self.rows)))
        for mask, part in self._parts:
            seconds[..., mask] = part.times({**self.base, **changed}, free).min(axis=0)
        return seconds

    def limits(self) -> Floats:
        """Return the times of rows on wires alone: cards at their full rate, nothing else waits.

        Inside nodes at the rates that the library's algorithms reach, of which NVLS has its own.
        """
        kept = {
            name for name in CONSTANTS if VOCABULARY[name].maximum == 1.0 and name not in FABRIC
        }
        return self.times(
            {name: ideal_of(name) for name in (*CONSTANTS, ISSUE) if name not in kept}
        )

    def wire(self) -> Floats:
        """Return the wire's share of each row's time."""
        shares = np.empty(len(self.rows))
        for mask, part in self._parts:
            shares[mask] = part.wire(self.base)
        return shares

    def algorithms(self, values: Mapping[str, Any]) -> Strings:
        """Return the name of the algorithm that each row's time is of."""
        names_of_rows = np.empty(len(self.rows), dtype="U40")
        for mask, part in self._parts:
            names = np.array([choice.name for choice in part.choices])
            names_of_rows[mask] = names[np.argmin(part.times({**self.base, **values}), axis=0)]
        return names_of_rows


def ideal_of(name: str) -> float:
    """Return a constant of a library that takes no time of its own."""
    quantity = VOCABULARY[name]
    if quantity.units == "byte s-1":
        return math.inf
    return 1.0 if quantity.maximum == 1.0 else 0.0


class _Part:
    """Rows of one operation, in a node or on several, with one choice of algorithms."""

    def __init__(
        self, rows: Rows, machine: Machine, profile: Profile, algorithm: str, network: Given = PLAIN
    ) -> None:
        self.rows = rows
        operation, several = str(rows.operation[0]), bool(rows.between[0])
        case: dict[str, Any] = {
            "ranks": rows.ranks.tolist(),
            "message_bytes": rows.message_bytes.tolist(),
        }
        if several:
            # A group's share of a node is its own.
            case["gpus_per_node"] = (rows.ranks / rows.nodes).tolist()
        fabric, card = str(rows.fabric[0]) or machine.fabric, float(rows.card[0])
        constants: dict[str, Any] = {
            "collective": operation,
            "hardware": str(machine.path),
            "software": profile.name,
            "algorithm": algorithm,
            "topology": HIERARCHY if several else "switch",
            **({"fabric": fabric} if fabric else {}),
            **network.on(machine, 2 if several else 1),
            **({"inter_bandwidth": card} if card else {}),
        }
        try:
            candidates(constants["topology"], operation, algorithm)
        except ValueError as error:
            refuse("--algorithm", algorithm, "isn't allowed", str(error))
        spec = {"axes": {"case": case}, "constants": constants, "quantities": ["time"]}
        resolved = resolve(read_sweep(spec, bare_is_si=True))
        columns = {n: v for axis in resolved.axes for n, v in axis.columns.items()}
        words = {n: str(v[0]) for n, v in columns.items() if v.dtype.kind in "UO"}
        numbers = {n: v for n, v in columns.items() if n not in words}
        self.given: dict[str, Any] = {**resolved.constants, **numbers}
        labels = {**OPERATION_DEFAULTS, **resolved.labels, **words, "floor": "some"}
        self.labels = following(labels, self.given)
        left, _, self.protocol = str(rows.forced[0]).partition(";")
        self.choices = _left(usable(self.labels), left, self.protocol)
        if any(choice.form == "sharp" for choice in self.choices):
            self.given["inter_inc"] = 1.0  # The run had it, whatever the machine has
        # Of another network than the machine's a fit says nothing.
        known = (*FABRIC, *SHARED, "inter_sendrecv_rate_ratio") if fabric != machine.fabric else ()
        self.fixed = {name: self.given[name] for name in known}

    def _each(
        self, values: Mapping[str, Any], free: Mapping[str, float] | None = None
    ) -> list[Evaluation]:
        fixed = {name: value for name, value in self.fixed.items() if name not in (free or {})}
        return [
            Evaluation({**self.given, **values, **fixed}, self.labels, choice)
            for choice in self.choices
        ]

    def times(
        self, values: Mapping[str, object], free: Mapping[str, float] | None = None
    ) -> Floats:
        """Return the times of each algorithm, infinite where it isn't defined.

        What is free of another network's own constants is taken from the values.
        """
        with np.errstate(all="ignore"):
            cases = self._each(values, free)
            each = [
                np.where(case.defined(), self._time(case, algorithm), np.inf)
                for case, algorithm in zip(cases, self.choices, strict=True)
            ]
        shape = np.broadcast_shapes(*(times.shape for times in each), (len(self.rows),))
        return np.stack([np.broadcast_to(times, shape) for times in each])

    def _time(self, evaluation: Evaluation, algorithm: Algorithm) -> Any:
        """Return an algorithm's time, of one protocol where the settings leave one."""
        if not self.protocol or algorithm.form not in _TWO_PROTOCOLS:
            return evaluation["time"]
        device = np.asarray(evaluation[f"{self.protocol}_time"])
        return np.sqrt(np.sqrt(device**4 + np.asarray(evaluation["floor_time"]) ** 4))

    def wire(self, values: Mapping[str, object]) -> Floats:
        """Return the wire's share of the time of the algorithm that is taken."""
        chosen = np.argmin(self.times(values), axis=0)
        count = len(self.rows)
        with np.errstate(all="ignore"):
            shares = [
                np.broadcast_to(evaluation["transfer_part_time"] / evaluation["time"], count)
                for evaluation in self._each(values)
            ]
        return np.asarray(np.stack(shares)[chosen, np.arange(count)])


# The forms that have two protocols to choose from.
_TWO_PROTOCOLS = ("ring", "pairs", "message", "tree")


def _left(choices: tuple[Algorithm, ...], forced: str, protocol: str) -> tuple[Algorithm, ...]:
    """Return the algorithms that a log's settings leave."""
    if protocol == "ll":
        choices = tuple(choice for choice in choices if choice.form not in SIMPLE_FORMS) or choices
    if forced == NO_NVLS:
        left = tuple(algorithm for algorithm in choices if not _form(algorithm).startswith("nvls"))
    elif "|" in forced:
        left = tuple(algorithm for algorithm in choices if _form(algorithm) in forced.split("|"))
    else:
        every = ALGORITHMS.of(choices[0].topology, choices[0].collective)
        left = tuple(algorithm for algorithm in every if forced and algorithm.form == forced)
    return left or choices


def _form(algorithm: Algorithm) -> str:
    """Return an algorithm's form; NVLS may be priced by its schedule."""
    return (
        algorithm.name
        if algorithm.name.startswith("nvls") and algorithm.form == "schedule"
        else algorithm.form
    )
