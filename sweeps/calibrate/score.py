"""Errors of predictions beside measured rows, by operation and class of message size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.model import Rows
from sweeps.validate.sizes import SIZE_CLASSES, class_of

__all__ = ["ALL", "Score", "scores_of"]

Floats = NDArray[np.float64]

ALL = "all"


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of some rows."""

    operation: str  # Which; ``all`` stands for all of them
    size_class: str  # Which; ``all`` stands for all of them
    count: int  # How many rows
    # Median size of the relative error: with the machine's file, and with the fitted constants
    before: float
    # Median size of the relative error: with the machine's file, and with the fitted constants
    after: float
    signed_before: float  # Median relative error; below 0 where the prediction is too fast
    signed_after: float  # Median relative error; below 0 where the prediction is too fast


def scores_of(rows: Rows, before: Floats, after: Floats) -> list[Score]:
    """Return the errors by operation and class of size, and of all rows at the end."""
    errors = before / rows.time - 1.0, after / rows.time - 1.0
    classes = class_of(rows.message_bytes)
    found = []
    for operation in dict.fromkeys(rows.operation.tolist()):
        for index, name in enumerate(SIZE_CLASSES):
            own = (rows.operation == operation) & (classes == index)
            if own.any():
                found.append(_score(operation, name, errors[0][own], errors[1][own]))
    return [*found, _score(ALL, ALL, *errors)]


def _score(operation: str, name: str, before: Floats, after: Floats) -> Score:
    sizes = [float(np.median(np.abs(one))) for one in (before, after)]
    signed = [float(np.median(one)) for one in (before, after)]
    return Score(operation, name, len(before), *sizes, *signed)
