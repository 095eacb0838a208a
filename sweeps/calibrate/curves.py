"""What a calibration's figure shows: bus bandwidths over size, a panel an operation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.calibration import Calibration
from sweeps.calibrate.outliers import WIDTH
from sweeps.calibrate.rates import bus_factor
from sweeps.plots.calibrated import MOST_CURVES, Curve, Panel
from sweeps.validate.sizes import class_of

__all__ = ["curves_of"]

Floats = NDArray[np.float64]


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
            curves = [_curve(found, label, places, odd) for label, places in shown]
            panels.append(Panel(operation, curves))
    notes = [f"Not shown: {'; '.join(left)}."] if left else []
    return panels, notes


def _curve(found: Calibration, label: str, places: list[int], odd: NDArray[np.bool_]) -> Curve:
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
