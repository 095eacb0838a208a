"""A calibration: logs read, placed on a machine, fitted, and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.fit import WIDTH, Fit, Outlier, Score, fall_out, fit_links, scatter, scores_of
from sweeps.calibrate.logs import PLACEMENTS, LogTest, check_operation, read_logs, read_table_log
from sweeps.calibrate.model import (
    Case,
    Model,
    Rows,
    Stated,
    base_values,
    bus_factor,
    cases_of,
    rows_of,
    vector,
)
from sweeps.errors import InputError, fault
from sweeps.plots.measured import MOST_CURVES, Curve, Panel
from sweeps.spec.catalog import find_sweep, load_hardware, read_toml
from sweeps.spec.framework import MACHINE_RULE
from sweeps.spec.machine import Machine
from sweeps.spec.units import format_quantity
from sweeps.validate.sizes import SIZE_CLASSES, class_of

# What share of its data sheet a machine's links are known to reach, and whether a log does.

Floats = NDArray[np.float64]

TABLE, SWEEP = "nccl-collectives", "nccl-measured"
# A log is slower than published if it reaches less than this part of the least published share.
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class Published:
    """Published measurements of a machine."""

    machine: Machine  # The machine
    cases: Sequence[Case]  # The tests
    rows: Rows  # Their rows
    shares: Floats  # The data sheet's time by the measured one


@dataclass(frozen=True, slots=True)
class Comparison:
    """A class of message sizes of a log beside what is published."""

    size_class: str  # One of `SIZE_CLASSES`
    # What the log reaches: the data sheet's time by the measured one, the median over sizes
    share: float
    low: float  # The least and the most that is published, at the same sizes
    high: float  # The least and the most that is published, at the same sizes
    source: str  # What says so

    @property
    def slower(self) -> bool:
        """Whether the log falls below what is published."""
        return self.share < ENOUGH * self.low


def published_of(machine: Machine, algorithm: str) -> Published | None:
    """Return what is published of a machine; nothing where nothing is."""
    tests = [one for one in _collected() if one.hardware == machine.name]
    if not tests:
        return None
    cases = cases_of(tests, machine, Stated())
    rows = rows_of(cases, ("out-of-place",))
    return Published(machine, cases, rows, data_sheet_shares(rows, machine, algorithm))


@cache
def _collected() -> tuple[LogTest, ...]:
    """Return the published tests of machines as the catalogue has them."""
    tables = read_toml(find_sweep(SWEEP))["measured"]["where"]["table"]
    return tuple(one for one in read_table_log(TABLE) if one.part in tables)


def data_sheet_shares(rows: Rows, machine: Machine, algorithm: str) -> Floats:
    """Return the data sheet's time by the measured one."""
    base = base_values(machine)
    return np.asarray(Model(rows, machine, algorithm).design(base) @ vector(base) / rows.time)


def compare(
    case: Case, rows: Rows, shares: Floats, machine: Machine, published: Published | None
) -> list[Comparison]:
    """Lay one test beside what is published of such machines, at the same message sizes."""
    level = case.level
    alike = [] if published is None else _alike(published, case)
    if not alike:
        large = class_of(rows.message_bytes) == len(SIZE_CLASSES) - 1
        if not large.any():
            return []
        figure = machine.figures.get(f"{level}_efficiency") or MACHINE_RULE[f"{level}_efficiency"]
        best = float(np.max(shares[large]))
        source = f"{level}_efficiency ({figure.origin.text})"
        return [Comparison("large", best, figure.value, figure.value, source)]
    assert published is not None
    return _beside(rows, shares, published, alike)


def _alike(published: Published, case: Case) -> list[int]:
    like = (case.level, case.operation)
    return [n for n, one in enumerate(published.cases) if (one.level, one.operation) == like]


def _beside(
    rows: Rows, shares: Floats, published: Published, alike: Sequence[int]
) -> list[Comparison]:
    classes = class_of(rows.message_bytes)
    sizes = np.log(rows.message_bytes)
    each = np.full((len(alike), len(rows)), np.nan)
    for place, number in enumerate(alike):
        own = published.rows.case == number
        known, mean = _curve(published.rows.message_bytes[own], published.shares[own])
        # Beyond the longest that was measured the share stays as it is there, if that is long.
        long = known[-1] >= np.log(SIZE_CLASSES["large"])
        inside = (sizes >= known[0]) & ((sizes <= known[-1]) | long)
        each[place, inside] = np.interp(sizes[inside], known, mean)
    found = []
    for index, name in enumerate(SIZE_CLASSES):
        here = (classes == index) & np.isfinite(each).any(axis=0)
        told = np.isfinite(each[:, here]).any(axis=1)
        if not here.any():
            continue
        low, high = np.nanmin(each[:, here], axis=0), np.nanmax(each[:, here], axis=0)
        used = [n for n, one in zip(alike, told, strict=True) if one]
        tables = sorted({published.cases[n].test.part for n in used})
        operation = published.cases[alike[0]].operation
        source = f"{TABLE}: {operation} of {', '.join(tables)}"
        found.append(
            Comparison(
                name, float(np.median(shares[here])), float(np.median(low)),
                float(np.median(high)), source,
            )
        )  # fmt: skip
    return found


def _curve(sizes: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of sizes, each once, and the median share at each."""
    known, place = np.unique(sizes, return_inverse=True)
    median = np.array([np.median(shares[place == one]) for one in range(len(known))])
    return np.log(known), median


HEALTHY, SLOWER, ODD = "healthy", "slower than published", "odd"
UNKNOWN = "nothing published to compare with"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    logs: Sequence[str]  # Paths
    hardware: str  # The machine that they are laid beside
    algorithm: str = "nccl"  # The choice of algorithm
    operation: str | None = None  # The collective, where logs don't say it
    ranks: int = 0  # All ranks, and those of a node, where logs don't say them; else 0
    gpus_per_node: int = 0  # All ranks, and those of a node, where logs don't say them; else 0
    placement: str = PLACEMENTS[0]  # ``out-of-place``, ``in-place`` or ``both``
    folders: Sequence[Path] = ()  # The user's own folders of machines


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one test looks like."""

    case: Case  # The test
    words: tuple[str, ...]  # ``healthy``, or ``slower than published`` and ``odd at sizes ..``
    comparisons: Sequence[Comparison]  # What the first says
    odd: Sequence[Outlier]  # What the second says


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that a calibration found."""

    request: Request  # What was asked
    machine: Machine  # The machine of the catalogue
    cases: Sequence[Case]  # The tests
    rows: Rows  # Their rows
    fit: Fit  # The constants, and the times with them
    # Robust standard deviation of log(measured/predicted) of each class of size
    scatter: NDArray[np.float64]
    outliers: Sequence[Outlier]  # Rows that fall out
    scores: Sequence[Score]
    verdicts: Sequence[Verdict]
    wrong: Sequence[str] = field(default=())  # Rows whose results were wrong, in words

    def named(self, row: int) -> str:
        """Return where a row stands: its log and line."""
        case = self.cases[int(self.rows.case[row])]
        return f"{case.test.name}, line {int(self.rows.line[row])}"


def calibrate(request: Request) -> Calibration:
    """Fit a machine's links to logs, and say what falls out."""
    operation = check_operation(request.operation)
    machine = load_hardware(request.hardware, request.folders)
    base_values(machine)  # refuses a machine that has no such links, before anything else
    tests = read_logs(request.logs, operation)
    stated = Stated(operation, request.ranks, request.gpus_per_node)
    cases = cases_of(tests, machine, stated)
    placements = PLACEMENTS if request.placement == "both" else (request.placement,)
    rows = rows_of(cases, placements)
    if not len(rows):
        logs = ", ".join(dict.fromkeys(case.test.name for case in cases))
        right = any(row.placement in placements for case in cases for row in case.rows)
        wrong = "all results are wrong (#wrong)" if right else f"no rows {request.placement}"
        raise InputError(fault("LOG", logs, wrong, "a run that passed, or another --placement"))
    fit = fit_links(rows, machine, request.algorithm)
    outliers = fall_out(rows, fit.after)
    return Calibration(
        request=request,
        machine=machine,
        cases=cases,
        rows=rows,
        fit=fit,
        scatter=scatter(rows, fit.after),
        outliers=outliers,
        scores=scores_of(rows, fit.before, fit.after),
        verdicts=_verdicts(request, machine, cases, rows, outliers),
        wrong=tuple(_wrong(cases, placements)),
    )


def _wrong(cases: Sequence[Case], placements: Sequence[str]) -> list[str]:
    return [
        f"{case.test.name}, line {row.line}: {case.operation} of "
        f"{format_quantity(row.size, 'byte')} {row.placement}: {row.wrong:g} wrong elements"
        for case in cases
        for row in case.rows
        if row.placement in placements and row.wrong > 0.0
    ]


def _verdicts(
    request: Request,
    machine: Machine,
    cases: Sequence[Case],
    rows: Rows,
    outliers: Sequence[Outlier],
) -> list[Verdict]:
    published = published_of(machine, request.algorithm)
    shares = data_sheet_shares(rows, machine, request.algorithm)
    found = []
    for place, case in enumerate(cases):
        own = rows.case == place
        if not own.any():
            continue
        compared = compare(case, rows.where(own), shares[own], machine, published)
        odd = [one for one in outliers if own[one.row]]
        found.append(Verdict(case, _words(compared, odd, rows), compared, odd))
    return found


def _words(compared: Sequence[Comparison], odd: Sequence[Outlier], rows: Rows) -> tuple[str, ...]:
    words = [SLOWER] if any(one.slower for one in compared) else []
    if odd:
        sizes = sorted({float(rows.message_bytes[one.row]) for one in odd})
        words.append(f"{ODD} at {', '.join(format_quantity(size, 'byte') for size in sizes)}")
    return tuple(words) or ((HEALTHY,) if compared else (UNKNOWN,))


# What a calibration's figure shows: bus bandwidths over size, a panel an operation.


def curves_of(found: Calibration) -> tuple[list[Panel], list[str]]:
    """Return a calibration's curves, and what to note of them."""
    panels, left = [], []
    odd = np.zeros(len(found.rows), dtype=np.bool_)
    odd[[one.row for one in found.outliers]] = True
    for operation in dict.fromkeys(case.operation for case in found.cases):
        groups: dict[str, list[int]] = {}
        for place, case in enumerate(found.cases):
            if case.operation == operation and (found.rows.case == place).any():
                groups.setdefault(case.placed, []).append(place)
        if len(groups) > MOST_CURVES:
            left.append(f"{operation} on {', '.join(list(groups)[MOST_CURVES:])}")
        shown = list(groups.items())[:MOST_CURVES]
        if shown:
            curves = [_curves_curve(found, label, places, odd) for label, places in shown]
            panels.append(Panel(operation, curves))
    notes = [f"Not shown: {'; '.join(left)}."] if left else []
    return panels, notes


def _curves_curve(
    found: Calibration, label: str, places: list[int], odd: NDArray[np.bool_]
) -> Curve:
    own = np.isin(found.rows.case, places)
    case = found.cases[places[0]]
    size, time = found.rows.message_bytes[own], found.rows.time[own]
    rate = bus_factor(case.operation, case.ranks) * size
    fitted = found.fit.after[own]
    band = np.exp(WIDTH * found.scatter[class_of(size)])
    return Curve(
        label,
        size,
        rate / time,
        rate / fitted,
        rate / found.fit.before[own],
        rate / (fitted * band),
        rate / (fitted / band),
        odd[own],
    )
