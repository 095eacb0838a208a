"""A calibration: logs read, placed on a machine, fitted, and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.fit import (
    WIDTH,
    Fit,
    Outlier,
    Score,
    fall_out,
    fit_profile,
    follow,
    scatter,
    scores_of,
)
from sweeps.calibrate.logs import PLACEMENTS, check_operation, read_logs
from sweeps.calibrate.model import (
    Model,
    PlacedTest,
    Rows,
    Stated,
    bus_factor,
    cases_of,
    machine_for,
    rows_at,
    rows_of,
)
from sweeps.calibrate.normal import Verdict, peers_of, published, verdict_of
from sweeps.errors import InputError, fault
from sweeps.plots.measured import MOST_CURVES, Curve, Panel
from sweeps.spec.machine import Machine
from sweeps.spec.units import format_quantity
from sweeps.validate import class_of


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What is asked for."""

    logs: Sequence[str]  # Paths
    hardware: str  # The machine that they are laid beside
    algorithm: str = "nccl"  # The choice of algorithm
    operation: str | None = None  # The collective, where logs don't say it
    ranks: int = 0  # All ranks, and those of a node, where logs don't say them; else 0
    gpus_per_node: int = 0  # All ranks, and those of a node, where logs don't say them; else 0
    placement: str = PLACEMENTS[0]  # ``out-of-place``, ``in-place`` or ``both``
    fabric: str = ""  # The network between nodes; empty: the machine's
    sizes: Sequence[float] = ()  # Message sizes [byte] for which the logs' curves are wanted
    folders: Sequence[Path] = ()  # The user's own folders of machines


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that a calibration found."""

    request: CalibrationRequest  # What was asked
    machine: Machine  # The machine of the catalogue
    library: str  # The profile of its library
    cases: Sequence[PlacedTest]  # The tests
    rows: Rows  # Their rows
    fit: Fit  # The constants, and the times with them
    at: Sequence[tuple[PlacedTest, NDArray[np.float64]]]  # Times of curves at the sizes asked for
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


def calibrate(request: CalibrationRequest) -> Calibration:
    """Fit a library's constants on a machine to logs, and say what falls out."""
    operation = check_operation(request.operation)
    machine = machine_for(request.hardware, request.fabric, request.folders)
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
    model = Model(rows, machine, request.algorithm)
    fit = fit_profile(model)
    known = published()
    peers = peers_of(cases, rows, machine)
    told = [case for place, case in enumerate(cases) if (rows.case == place).any()]
    return Calibration(
        request=request,
        machine=machine,
        library=model.profile.name,
        cases=cases,
        rows=rows,
        fit=fit,
        at=_at(model, fit, cases, request),
        scatter=scatter(rows, fit.after),
        outliers=fall_out(rows, fit.after),
        scores=scores_of(rows, fit.before, fit.after),
        verdicts=[verdict_of(case, one, known) for case, one in zip(told, peers, strict=True)],
        wrong=tuple(_wrong(cases, placements)),
    )


def _at(
    model: Model, fit: Fit, cases: Sequence[PlacedTest], request: CalibrationRequest
) -> list[tuple[PlacedTest, NDArray[np.float64]]]:
    """Return the times of each measured curve at the sizes that are asked for."""
    sizes = np.array(request.sizes, dtype=np.float64)
    found = []
    for place, case in enumerate(cases if sizes.size else ()):
        own = model.rows.case == place
        if not own.any():
            continue
        there = Model(rows_at(model.rows.where(own), sizes), model.machine, request.algorithm)
        measured = model.rows.message_bytes[own], model.rows.time[own], fit.after[own]
        times = follow(*measured, sizes, there.times(fit.values), there.times(ideal=True))
        found.append((case, times))
    return found


def _wrong(cases: Sequence[PlacedTest], placements: Sequence[str]) -> list[str]:
    return [
        f"{case.test.name}, line {row.line}: {case.operation} of "
        f"{format_quantity(row.size, 'byte')} {row.placement}: {row.wrong:g} wrong elements"
        for case in cases
        for row in case.rows
        if row.placement in placements and row.wrong > 0.0
    ]


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
