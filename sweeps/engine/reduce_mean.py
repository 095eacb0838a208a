"""The mean along dimensions, of an exact sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.exact_sum import ExactSum
from sweeps.engine.layout import Column
from sweeps.engine.reduce_base import Reducer, Task
from sweeps.engine.reduce_split import Piece

__all__ = ["Mean"]


class Mean(Reducer):
    """``mean``: the exact sum, rounded to float64, divided by the number of cells.

    With an infinite cell the mean is infinite, with both infinities NaN.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._sum = ExactSum(task.split.kept_shape)
        self._count = np.zeros(task.split.kept_shape, dtype=np.int64)
        # How many cells are infinite, by sign; kept only where that happens.
        self._infinite: dict[float, NDArray[np.int64]] = {}

    def _take(self, piece: Piece) -> None:
        values = piece.values
        # One pass each, without temporaries: NaN and infinities show in the extremes.
        if math.isfinite(values.max()) and math.isfinite(values.min()):
            self._count[piece.where] += piece.cells
            self._sum.add(piece)
            return
        axes = tuple(range(len(piece.where), values.ndim))
        self._count[piece.where] += np.count_nonzero(~np.isnan(values), axis=axes)
        for sign in (np.inf, -np.inf):
            found = values == sign
            if found.any():
                self._of(sign)[piece.where] += np.count_nonzero(found, axis=axes)
        finite = np.where(np.isfinite(values), values, 0.0)
        self._sum.add(Piece(piece.where, piece.starts, piece.extents, finite))

    def _absorb(self, other: Mean, where: tuple[slice, ...]) -> None:
        self._sum.merge(other._sum, where)
        self._count[where] += other._count
        for sign, count in other._infinite.items():
            self._of(sign)[where] += count

    def _state(self) -> dict[str, NDArray[Any]]:
        infinite = {f"infinite.{sign}": count for sign, count in self._infinite.items()}
        return {"count": self._count, **infinite, **self._sum.state()}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._count = state["count"]
        self._infinite = {
            sign: state[f"infinite.{sign}"]
            for sign in (np.inf, -np.inf)
            if f"infinite.{sign}" in state
        }
        self._sum.restore(state)

    def _of(self, sign: float) -> NDArray[np.int64]:
        if sign not in self._infinite:
            self._infinite[sign] = np.zeros(self._count.shape, dtype=np.int64)
        return self._infinite[sign]

    def _mean(self) -> NDArray[np.float64]:
        numbers, exponents = self._sum.rounded()
        with np.errstate(all="ignore"):
            total = np.ldexp(numbers, exponents)
            # A sum may be too large for float64 where the mean isn't.
            mean = np.where(
                np.isfinite(total),
                total / self._count,
                np.ldexp(numbers / self._count, exponents),
            )
            for sign, count in self._infinite.items():
                mean = np.where(count > 0, mean + sign, mean)
        return np.where(self._count == 0, np.nan, mean)

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task = self.task
        long_name = f"mean {task.quantity(attrs)} over {task.over}"
        comment = "The sum is exact, rounded once, then divided by the number of cells."
        count = {"long_name": f"number of cells in the {long_name}", "units": "1"}
        return [
            task.column(self._mean(), task.name, task.attrs(attrs, long_name, comment)),
            task.column(self._count.copy(), f"{task.name}_count", count),
        ]
