"""A calibration: logs read, placed on a machine, fitted, judged; and what it tells people."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.calibration.curves import layout_of_rows
from sweeps.calibration.device import machine_named, way_on
from sweeps.calibration.fit import (
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
from sweeps.calibration.log import PLACEMENTS, Left
from sweeps.calibration.logs import check_operation, read_logs
from sweeps.calibration.model import (
    PLAIN,
    Given,
    Model,
    PlacedTest,
    Rows,
    bus_factor,
    cases_of,
    machine_for,
    rows_at,
    rows_of,
)
from sweeps.calibration.normal import (
    WIDER,
    Peer,
    Verdict,
    highs_of,
    peers_of,
    published,
    verdict_of,
)
from sweeps.calibration.odd import OddRow, slow_rows, wrong_rows
from sweeps.errors import refuse, reject
from sweeps.plots.measured import MOST_CURVES, Curve, Panel
from sweeps.result import Result, provenance_of
from sweeps.spec.machine import CONSTANTS, ISSUE, Machine
from sweeps.spec.units import format_quantity
from sweeps.validate import SIZE_CLASSES, class_of


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What is asked for."""

    logs: Sequence[str]  # Paths
    hardware: str  # The machine that they are laid beside; empty: the one that the logs name
    algorithm: str = "nccl"  # The choice of algorithm
    operation: str | None = None  # The collective, where logs don't say it
    ranks: int = 0  # All ranks, and those of a node, where logs don't say them; else 0
    gpus_per_node: int = 0
    placement: str = PLACEMENTS[0]  # ``out-of-place``, ``in-place`` or ``both``
    fabric: str = ""  # The network between nodes; empty: the machine's
    given: Given = PLAIN  # What else is said of the network, and of the library
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
    left: Sequence[Left] = field(default=())  # What was left out of the logs, and why

    def named(self, row: int) -> str:
        """Return where a row stands: its log and line."""
        case = self.cases[int(self.rows.case[row])]
        return f"{case.test.name}, line {int(self.rows.line[row])}"


def calibrate(request: CalibrationRequest) -> Calibration:
    """Fit a library's constants on a machine to logs, and say what falls out."""
    operation = check_operation(request.operation)
    if request.hardware:
        machine_for(request.hardware, request.fabric, request.folders)
    read = read_logs(request.logs, operation)
    named = request.hardware or machine_named(read.tests) or LABELS["hardware"].default
    machine = machine_for(named, request.fabric, request.folders)
    left = [*read.left]
    cases = cases_of(
        read.tests,
        machine,
        operation=operation,
        ranks=request.ranks,
        gpus_per_node=request.gpus_per_node,
        left=left,
    )
    if not request.hardware:
        cases = _of_named(cases, machine, left)
    placements = PLACEMENTS if request.placement == "both" else (request.placement,)
    rows = rows_of(cases, placements)
    if not len(rows):
        logs = ", ".join(dict.fromkeys(case.test.name for case in cases))
        refuse("LOG", logs, f"no rows {request.placement}", "another --placement")
    model = Model(rows, machine, request.algorithm, request.given)
    fit = fit_profile(model)
    known = published()
    peers = peers_of(cases, rows, machine, request.given)
    curves = [curve for curve in range(len(cases)) if (rows.case == curve).any()]
    odd = _odd(cases, rows, curves, peers, placements)
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
        verdicts=[
            verdict_of(cases[curve], peer, known, odd[curve])
            for curve, peer in zip(curves, peers, strict=True)
        ],
        wrong=tuple(_wrong(cases, placements)),
        left=tuple(left),
    )


def _of_named(cases: Sequence[PlacedTest], machine: Machine, left: list[Left]) -> list[PlacedTest]:
    """Return the tests on the machine that most logs name; others are judged by themselves."""
    kept = [case for case in cases if not case.stranger]
    if not kept:
        test, stranger = cases[0].test, cases[0].stranger
        wrong = f"its GPUs are {stranger}, which no machine here has; give {way_on(stranger)}"
        reject(test.where, wrong)
    for case in cases:
        if case.stranger:
            why = f"its GPUs are {case.stranger}, and others' are those of {machine.name}"
            left.append(Left(f"{case.test.where}: {why}; judge it by itself"))
    return kept


def _odd(
    cases: Sequence[PlacedTest],
    rows: Rows,
    curves: Sequence[int],
    peers: Sequence[Peer],
    placements: Sequence[str],
) -> dict[int, list[OddRow]]:
    """Return by test the rows that speak against it."""
    ratios, highs = np.ones(len(rows)), np.ones(len(rows))
    for curve, peer in zip(curves, peers, strict=True):
        # Where nothing is like it, a larger message alone tells what is out of line.
        if cases[curve].unknown or cases[curve].short_unknown:
            continue
        mask = np.flatnonzero(rows.case == curve)
        at = np.searchsorted(peer.sizes, rows.message_bytes[mask])
        ratios[mask] = rows.time[mask] / (peer.times / peer.ratios)[at]
        highs[mask] = highs_of(peer, published())[at]
    slow = slow_rows(rows, ratios, highs)
    return {
        index: [*wrong_rows(cases[index], placements), *slow.get(index, [])] for index in curves
    }


def _at(
    model: Model, fit: Fit, cases: Sequence[PlacedTest], request: CalibrationRequest
) -> list[tuple[PlacedTest, NDArray[np.float64]]]:
    """Return the times of each measured curve at the sizes that are asked for."""
    sizes = np.array(request.sizes, dtype=np.float64)
    predictions = []
    for index, case in enumerate(cases if sizes.size else ()):
        mask = model.rows.case == index
        if not mask.any():
            continue
        there = Model(rows_at(model.rows.where(mask), sizes), model.machine, request.algorithm)
        measured = model.rows.message_bytes[mask], model.rows.time[mask], fit.after[mask]
        times = follow(*measured, sizes, there.times(fit.values), there.times(ideal=True))
        predictions.append((case, times))
    return predictions


def _wrong(cases: Sequence[PlacedTest], placements: Sequence[str]) -> list[str]:
    return [
        f"{case.test.name}, line {row.line}: {case.operation} of "
        f"{format_quantity(row.size, 'byte')} {row.placement}: {row.wrong:g} wrong elements"
        for case in cases
        for row in case.rows
        if row.placement in placements and row.wrong > 0.0
    ]


# What a calibration's figure shows: bus bandwidths over size, a panel an operation.


def curves_of(calibration: Calibration) -> tuple[list[Panel], list[str]]:
    """Return a calibration's curves, and what to note of them."""
    panels, left = [], []
    odd = np.zeros(len(calibration.rows), dtype=np.bool_)
    odd[[outlier.row for outlier in calibration.outliers]] = True
    for operation in dict.fromkeys(case.operation for case in calibration.cases):
        groups: dict[str, list[int]] = {}
        for index, case in enumerate(calibration.cases):
            if case.operation == operation and (calibration.rows.case == index).any():
                groups.setdefault(case.placed, []).append(index)
        if len(groups) > MOST_CURVES:
            left.append(f"{operation} on {', '.join(list(groups)[MOST_CURVES:])}")
        shown = list(groups.items())[:MOST_CURVES]
        if shown:
            curves = [
                _curves_curve(calibration, label, case_numbers, odd)
                for label, case_numbers in shown
            ]
            panels.append(Panel(operation, curves))
    notes = [f"Not shown: {'; '.join(left)}."] if left else []
    return panels, notes


def _curves_curve(
    calibration: Calibration, label: str, case_numbers: list[int], odd: NDArray[np.bool_]
) -> Curve:
    mask = np.isin(calibration.rows.case, case_numbers)
    case = calibration.cases[case_numbers[0]]
    size, time = calibration.rows.message_bytes[mask], calibration.rows.time[mask]
    rate = bus_factor(case.operation, case.ranks) * size
    fitted = calibration.fit.after[mask]
    band = np.exp(WIDTH * calibration.scatter[class_of(size)])
    return Curve(
        label,
        size,
        rate / time,
        rate / fitted,
        rate / calibration.fit.before[mask],
        rate / (fitted * band),
        rate / (fitted / band),
        odd[mask],
    )


# What a calibration tells programs: rows as records, and everything as one.


def row_records(calibration: Calibration) -> list[dict[str, object]]:
    """Return a record a row: what was measured and predicted."""
    rows, fit = calibration.rows, calibration.fit
    names = list(SIZE_CLASSES)
    classes = class_of(rows.message_bytes)
    band = np.exp(3.0 * calibration.scatter[classes])
    odd = {outlier.row: outlier.reason for outlier in calibration.outliers}
    records = []
    for row in range(len(rows)):
        case = calibration.cases[int(rows.case[row])]
        size, time = float(rows.message_bytes[row]), float(rows.time[row])
        records.append(
            {
                "log": case.test.name,
                "line": int(rows.line[row]),
                "collective": case.operation,
                "placement": str(rows.placement[row]),
                "ranks": case.ranks,
                "nodes": case.nodes,
                "message_bytes": size,
                "size_class": names[int(classes[row])],
                "algorithm": str(fit.algorithms[row]),
                "measured_time_s": time,
                "measured_busbw": bus_factor(case.operation, case.ranks) * size / time,
                "profile_time_s": float(fit.before[row]),
                "predicted_time_s": float(fit.after[row]),
                "band_low_s": float(fit.after[row] / band[row]),
                "band_high_s": float(fit.after[row] * band[row]),
                "error_before": float(fit.before[row] / time - 1.0),
                "error_after": float(fit.after[row] / time - 1.0),
                "falls_out_of": odd.get(row, ""),
            }
        )
    return records


def whole_record(calibration: Calibration) -> dict[str, object]:
    """Return all that a calibration found as one record; what doesn't exist is None."""
    fit = calibration.fit
    constants = [
        {
            "name": name,
            "units": VOCABULARY[name].units,
            "profile": _finite(fit.base[name]),
            "fitted": fit.values[name] if name in fit.fitted else None,
            "uncertainty": fit.deviation.get(name),
        }
        for name in (*CONSTANTS, ISSUE)
    ]
    return {
        "hardware": calibration.machine.name,
        "algorithm": calibration.request.algorithm,
        "profile": calibration.library,
        "constants": constants,
        "freed": list(fit.groups),
        "kept": dict(fit.kept),
        "left_out_errors": [_finite(error) for error in fit.scores],
        "errors": [
            {name: getattr(score, name) for name in score.__slots__} for score in calibration.scores
        ],
        "verdicts": [_verdict(verdict) for verdict in calibration.verdicts],
        "at": [
            {
                "log": case.test.name,
                "collective": case.operation,
                "ranks": case.ranks,
                "nodes": case.nodes,
                "message_bytes": list(calibration.request.sizes),
                "predicted_time_s": times.tolist(),
            }
            for case, times in calibration.at
        ],
        "wrong": list(calibration.wrong),
        "left_out": [left_out.reason for left_out in calibration.left],
        "notes": [
            {"log": case.test.name, "note": note}
            for case in calibration.cases
            for note in case.notes
        ],
        "rows": row_records(calibration),
    }


def _verdict(verdict: Verdict) -> Mapping[str, object]:
    case = verdict.case
    return {
        "log": case.test.name,
        "collective": case.operation,
        "ranks": case.ranks,
        "nodes": case.nodes,
        "verdict": list(verdict.words),
        "healthy": verdict.healthy,
        "remark": verdict.remark,
        "rows": [
            {"line": row.line, "message_bytes": row.size, "kind": row.kind, "by": row.by}
            for row in verdict.odd
        ],
        "published": [
            {
                "part": name,
                "ratio": _finite(verdict.peer.part(name)),
                "low": band.low,
                "high": band.high,
                "percentile": _finite(band.percentile(verdict.peer.part(name))),
                "peers": len(band.peers),
                "class": WIDER[band.wider],
            }
            for name, band in verdict.bands.items()
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def result_of(calibration: Calibration, given: Mapping[str, object]) -> Result:
    """Return measured rows with their predictions as a dataset; as JSON, all that was found."""
    rows = row_records(calibration)
    paths = dict.fromkeys(case.test.path for case in calibration.cases)
    digests = {case.test.path: case.test.digest for case in calibration.cases}
    logs = [
        {"name": path.name, "sha256": digest or hashlib.sha256(path.read_bytes()).hexdigest()}
        for path, digest in digests.items()
    ]
    asked = {name: given[name] for name in ("algorithm", "placement", "op") if given[name]}
    attrs = provenance_of(
        title="Collective operations: measured, and predicted with fitted constants",
        spec={"hardware": calibration.machine.name, **asked, "logs": logs},
        given=given,
        references=f"logs {', '.join(path.name for path in paths)}, on the figures of "
        f"{calibration.machine.name}",
        inputs=[given["ranks"], given["gpus_per_node"], calibration.machine.figures],
    )
    layout = layout_of_rows(rows, calibration.rows.case.tolist(), attrs)
    return Result(layout, rows=rows, whole=whole_record(calibration))
