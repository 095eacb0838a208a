"""The Pareto front of two quantities along dimensions: what no other cell beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.engine.case import Column
from sweeps.engine.reduce_base import Piece, Reducer, Task, position

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
# Points: result cell, first and second key, place.  Keys are values of the other sign where more
# is better.
Points = tuple[Places, Floats, Floats, Places]
# Cells of a piece that are looked at together.
AT_ONCE = 1 << 18


class Pareto(Reducer):
    """``pareto``: values of two quantities that no other cell has both of better.

    Of cells that are equal in both the first in lexicographic order of the reduced dimensions
    counts, as the variable orders them.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        names = task.reduction.quantity, task.reduction.against
        self._signs = tuple(-1.0 if name in task.reduction.greatest else 1.0 for name in names)
        self._points = _none()

    def update(
        self,
        region: Sequence[slice],
        values: NDArray[Any],
        beside: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take a block in, with the other quantity's values at the same cells."""
        other = np.asarray((beside or {})[self.task.reduction.against], dtype=np.float64)
        first = self.task.split.piece(region, np.asarray(values, dtype=np.float64))
        second = self.task.split.piece(region, other)
        if first.values.size:
            self._seen += first.values.size
            self._gather(first, second)

    def _gather(self, first: Piece, second: Piece) -> None:
        """Take in the front of each row of a piece, some rows or part of a row at a time."""
        kept = np.arange(self.task.split.kept_cells).reshape(self.task.split.kept_shape)
        cells = kept[first.where].ravel()
        rows, others = first.rows(), second.rows()
        step = max(1, AT_ONCE // max(1, first.cells))
        for start in range(0, len(cells), step):
            for left in range(0, first.cells, AT_ONCE):
                part = slice(start, start + step), slice(left, left + AT_ONCE)
                found = self._candidates(cells[part[0]], rows[part], others[part])
                local = found[3] + left
                where = self.task.split.places(first, local)
                self._points = front(_joined(self._points, (*found[:3], where)))

    def _candidates(self, cells: Places, rows: Floats, others: Floats) -> Points:
        """Return the front of each row, with columns for places."""
        # What has both is a point; and 0 has one sign.
        one, two = (
            sign * values + 0.0 for sign, values in zip(self._signs, (rows, others), strict=True)
        )
        some = ~(np.isnan(one) | np.isnan(two))
        for best in (one, two):
            some &= ~_beaten(one, two, np.where(some, best, np.inf))
        row, column = np.nonzero(some)
        return front((cells[row], one[row, column], two[row, column], column.astype(np.int64)))

    def _take(self, piece: Piece) -> None:
        raise NotImplementedError  # both quantities come by `update`

    def _absorb(self, other: Pareto, where: tuple[slice, ...]) -> None:
        kept = np.arange(self.task.split.kept_cells).reshape(self.task.split.kept_shape)
        cells = kept[where].ravel()
        theirs = (cells[other._points[0]], *other._points[1:])
        self._points = front(_joined(self._points, theirs))

    def _state(self) -> dict[str, NDArray[Any]]:
        return dict(zip(("cells", "first", "second", "places"), self._points, strict=True))

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._points = state["cells"], state["first"], state["second"], state["places"]

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task, name = self.task, self.task.name
        cells, first, second, places = _thinned(self._points, task.reduction.count)
        rank = np.arange(len(cells)) - np.searchsorted(cells, cells)
        length = int(rank.max()) + 1 if len(rank) else 1
        shape = task.split.kept_cells, length
        point = f"{name}_point"
        found = []
        pairs = zip(self._signs, (first, second), self._described(attrs), strict=True)
        for sign, keys, (quantity, own) in pairs:
            values = np.full(shape, np.nan)
            values[cells, rank] = sign * keys + 0.0
            long_name = f"{own.get('long_name', quantity)} on the Pareto front over {task.over}"
            told = task.attrs(own, long_name, "Of cells equal in both quantities the first counts.")
            found.append(task.column(values, f"{name}_{quantity}", told, point))
        index = np.full(shape, task.split.reduced_cells, dtype=np.int64)
        index[cells, rank] = places
        for dim, one in task.split.indices(index).items():
            values, told = position(task, dim, one, f"{dim} on the Pareto front")
            found.append(task.column(values, f"{name}_{dim}", told, point))
        numbers = np.arange(1, length + 1, dtype=np.int32)
        told = {"long_name": f"point of the front, best {task.reduction.quantity} first",
                "units": "1"}  # fmt: skip
        return [*found, Column(point, (point,), numbers.dtype, told, numbers)]

    def _described(self, attrs: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        against = self.task.reduction.against
        return [(self.task.reduction.quantity, attrs), (against, VOCABULARY[against].attrs())]


def front(points: Points) -> Points:
    """Return those points that no other of the same result beats or equals in both keys."""
    cells, first, second, places = points
    order = np.lexsort((places, second, first, cells))
    cells, first = cells[order], first[order]
    second, places = second[order], places[order]
    if not len(cells):
        return cells, first, second, places
    # The least second key so far in each cell, that of the point itself left out.
    begins = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]])
    lengths = np.diff(np.r_[begins, len(cells)])
    # Ranks of keys are whole numbers, which one running minimum serves for all cells: each cell
    # has a range of its own, below that of the cell before.
    _, ranks = np.unique(second, return_inverse=True)
    group = np.repeat(np.arange(len(begins)), lengths)
    own = ranks - group * (ranks.max() + 1)
    before = np.minimum.accumulate(own)
    kept = np.r_[True, own[1:] < before[:-1]]
    return cells[kept], first[kept], second[kept], places[kept]


def _beaten(one: Floats, two: Floats, best: Floats) -> NDArray[np.bool_]:
    """Return which cells are worse in both keys than the cell of their row with the best key."""
    column = np.argmin(best, axis=1)[:, np.newaxis]
    first, second = (np.take_along_axis(each, column, axis=1) for each in (one, two))
    return (one > first) & (two > second)


def _thinned(points: Points, count: int) -> Points:
    """Return at most so many points of each result: the ends, and what lies evenly between."""
    cells = points[0]
    if count <= 0 or not len(cells):
        return points
    begins = np.searchsorted(cells, cells)
    lengths = np.searchsorted(cells, cells, side="right") - begins
    rank = np.arange(len(cells)) - begins
    steps = max(count - 1, 1)
    # Of as many equal parts a point is the first in one, or the very last.
    part = rank * steps // np.maximum(lengths - 1, 1)
    earlier = np.maximum(rank - 1, 0) * steps // np.maximum(lengths - 1, 1)
    kept = (lengths <= count) | (rank == 0) | ((part > earlier) & (count > 1))
    _, first, second, places = points
    return cells[kept], first[kept], second[kept], places[kept]


def _joined(one: Points, other: Points) -> Points:
    first, second, third, fourth = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    return first, second, third, fourth


def _none() -> Points:
    whole = np.zeros(0, dtype=np.int64)
    return whole, np.zeros(0), np.zeros(0), whole
