"""What a row's own rates say: whether size, time, algbw and busbw are those of one operation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import overhead.collectives.timing  # noqa: F401  (declares the factor)
from overhead.formula import REGISTRY, Formula
from sweeps.calibrate.log import LogRow, LogTest
from sweeps.errors import InputError

__all__ = ["bus_factor", "checked_rates", "implied_ranks"]

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
