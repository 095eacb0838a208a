"""A calibration: logs read, placed on a machine, fitted, and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.cases import Case, Stated, cases_of
from sweeps.calibrate.constants import base_values
from sweeps.calibrate.fit import Fit, fit_links
from sweeps.calibrate.log import PLACEMENTS
from sweeps.calibrate.model import Rows, rows_of
from sweeps.calibrate.outliers import Outlier, fall_out, scatter
from sweeps.calibrate.published import Comparison, compare, data_sheet_shares, published_of
from sweeps.calibrate.read import check_operation, read_logs
from sweeps.calibrate.score import Score, scores_of
from sweeps.errors import InputError, fault
from sweeps.spec.catalog import Machine, load_hardware
from sweeps.spec.units import format_quantity

__all__ = ["HEALTHY", "ODD", "SLOWER", "UNKNOWN", "Calibration", "Request", "Verdict", "calibrate"]

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
