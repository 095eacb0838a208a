"""Rows that speak against a fabric: wrong elements, out of line with neighbours, far too slow.

Of the 1,089 rows of the shipped curves whose neighbours are known three take more than twice what
these do, all by four times and more; none other takes twice what a larger message does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.calibration.fit import against_neighbours
from sweeps.calibration.model import PlacedTest, Rows
from sweeps.spec.units import format_quantity

Floats = NDArray[np.float64]

# What a row may take beyond its neighbours in size, beyond a larger message, and beyond the slow
# end of what is normal at its size.
LINE = FAR = 2.0
WRONG, NEIGHBOURS, LARGER, PREDICTION = "wrong", "neighbours", "larger", "prediction"


@dataclass(frozen=True, slots=True)
class OddRow:
    """One row, and what is wrong with it."""

    line: int  # In its log
    size: float  # The message [byte]
    kind: str  # `WRONG`, `NEIGHBOURS`, `LARGER` or `PREDICTION`
    by: float  # Wrong elements, or time by what is expected

    @property
    def text(self) -> str:
        """What is wrong with it, in words."""
        if self.kind == WRONG:
            count = f"{self.by:,.0f}" if self.by >= 1.0 else f"{self.by:g}"
            said = f"{count} wrong element{'s' * (self.by != 1.0)}"
        else:
            than = {
                NEIGHBOURS: "its neighbours in size",
                LARGER: "a larger message",
                PREDICTION: "the slow end of what is normal there",
            }[self.kind]
            said = f"{self.by:.3g} times as long as {than}"
        return f"{format_quantity(self.size, 'byte')}: {said} (line {self.line})"


def wrong_rows(case: PlacedTest, placements: Sequence[str]) -> list[OddRow]:
    """Return the rows of a test that have wrong elements."""
    return [
        OddRow(row.line, row.size, WRONG, row.wrong)
        for row in case.rows
        if row.placement in placements and row.wrong > 0.0
    ]


def slow_rows(rows: Rows, ratios: Floats, highs: Floats) -> dict[int, list[OddRow]]:
    """Return by test the rows that are out of line.

    Parameters
    ----------
    rows : Rows
        All rows.
    ratios : array of float64
        Each row's time by the profile's.
    highs : array of float64
        The slow end of what is normal of that ratio, at each row's size.

    Returns
    -------
    dict
        Rows by their test's place, the furthest first.
    """
    near = np.exp(np.nan_to_num(against_neighbours(rows, np.log(ratios))))
    larger = _beside_larger(rows)
    far = ratios / highs
    odd: dict[int, list[OddRow]] = {}
    for row in np.flatnonzero((near > LINE) | (larger > LINE) | (far > FAR)).tolist():
        kinds = {
            NEIGHBOURS: float(near[row]) if near[row] > LINE else 0.0,
            LARGER: float(larger[row]) if larger[row] > LINE else 0.0,
            PREDICTION: float(far[row]) if far[row] > FAR else 0.0,
        }
        kind = max(kinds, key=lambda name: kinds[name])
        odd_row = OddRow(int(rows.line[row]), float(rows.message_bytes[row]), kind, kinds[kind])
        odd.setdefault(int(rows.case[row]), []).append(odd_row)
    return {case: sorted(each, key=lambda entry: -entry.by) for case, each in odd.items()}


def _beside_larger(rows: Rows) -> Floats:
    """Return each row's time by the least of a larger message of its test; 0 where none is."""
    ratios = np.zeros(len(rows))
    keys = np.array([f"{c} {p}" for c, p in zip(rows.case, rows.placement, strict=True)])
    for key in np.unique(keys):
        curve = np.flatnonzero(keys == key)
        order = curve[np.argsort(-rows.message_bytes[curve], kind="stable")]
        sizes, times = rows.message_bytes[order], rows.time[order]
        least = np.minimum.accumulate(times)
        # Equal sizes don't count: up to the first row of the same size, from the largest on.
        first = np.searchsorted(-sizes, -sizes, side="left")
        has = first > 0
        ratios[order[has]] = times[has] / least[first[has] - 1]
    return ratios
