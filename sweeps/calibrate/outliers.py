"""Rows that fall out: of the band about the fit, or from between their neighbours in size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.model import Rows
from sweeps.validate.sizes import SIZE_CLASSES, class_of

__all__ = ["WIDTH", "Outlier", "fall_out", "scatter"]

Floats = NDArray[np.float64]

WIDTH = 3.0  # robust standard deviations
_SIGMA = 1.4826  # standard deviations in a median of sizes, of what is normally distributed
# Repeated runs scatter by this much, so that less is nothing to tell; beside neighbours, whose
# protocols may differ, by more.
_LEAST, _LEAST_BESIDE = 0.02, 0.1
_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row that falls out."""

    row: int  # Its place among the rows
    # What it takes longer than the fit predicts, in parts of that; below 0 where it is faster
    excess: float
    beside: float  # The same beside its neighbours in size; NaN where it has too few
    reason: str  # ``fit`` or ``neighbours``: what it falls out of


def scatter(rows: Rows, predicted: Floats) -> Floats:
    """Return the robust standard deviation of log(measured/predicted) of each class of size."""
    far = np.abs(np.log(rows.time / predicted))
    return _by_class(far, class_of(rows.message_bytes), _LEAST)


def _by_class(far: Floats, classes: NDArray[np.intp], least: float) -> Floats:
    found = np.full(len(SIZE_CLASSES), np.nan)
    for index in range(len(found)):
        own = far[(classes == index) & np.isfinite(far)]
        if own.size:
            found[index] = max(_SIGMA * float(np.median(own)), least)
    return found


def fall_out(rows: Rows, predicted: Floats) -> list[Outlier]:
    """Return the rows beyond three robust standard deviations, the furthest first."""
    ratio = np.log(rows.time / predicted)
    classes = class_of(rows.message_bytes)
    beside = _beside(rows, ratio)
    wide = scatter(rows, predicted)[classes]
    near = _by_class(np.abs(beside), classes, _LEAST_BESIDE)[classes]
    of_fit = np.abs(ratio) > WIDTH * wide
    of_neighbours = np.abs(np.nan_to_num(beside)) > WIDTH * near
    found = [
        Outlier(
            int(place),
            float(np.expm1(ratio[place])),
            float(np.expm1(beside[place])),
            "fit" if of_fit[place] else "neighbours",
        )
        for place in np.flatnonzero(of_fit | of_neighbours)
    ]
    return sorted(found, key=lambda one: -abs(np.log1p(one.excess)))


def _beside(rows: Rows, ratio: Floats) -> Floats:
    """Return how far each row is from the median of its neighbours in size; NaN with too few."""
    found = np.full(len(rows), np.nan)
    for case in np.unique(rows.case):
        for placement in np.unique(rows.placement[rows.case == case]):
            own = np.flatnonzero((rows.case == case) & (rows.placement == placement))
            own = own[np.argsort(rows.message_bytes[own], kind="stable")]
            if len(own) <= _NEIGHBOURS:
                continue
            for place in range(len(own)):
                first = min(max(place - _NEIGHBOURS // 2, 0), len(own) - _NEIGHBOURS - 1)
                near = np.delete(own[first : first + _NEIGHBOURS + 1], place - first)
                found[own[place]] = ratio[own[place]] - np.median(ratio[near])
    return found
