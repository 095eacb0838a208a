"""Pareto fronts of two keys, of many results at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Floats = NDArray[np.float64]
# Result cell, first and second key, place.  Keys are values of the other sign where more is better.
Points = tuple[Places, Floats, Floats, Places]


def front(points: Points) -> Points:
    """Return those points that no other of the same result beats or equals in both keys."""
    cells, first, second, indices = points
    order = np.lexsort((indices, second, first, cells))
    cells, first = cells[order], first[order]
    second, indices = second[order], indices[order]
    if not len(cells):
        return cells, first, second, indices
    # The least second key so far in each cell, that of the point itself left out.
    begins = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]])
    lengths = np.diff(np.r_[begins, len(cells)])
    # Ranks of keys are whole numbers, which one running minimum serves for all cells: each cell
    # has a range of its own, below that of the cell before.
    _, ranks = np.unique(second, return_inverse=True)
    group = np.repeat(np.arange(len(begins)), lengths)
    keys = ranks - group * (ranks.max() + 1)
    before = np.minimum.accumulate(keys)
    kept = np.r_[True, keys[1:] < before[:-1]]
    return cells[kept], first[kept], second[kept], indices[kept]


def thinned(points: Points, count: int) -> Points:
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
    _, first, second, indices = points
    return cells[kept], first[kept], second[kept], indices[kept]


def joined(points: Points, other: Points) -> Points:
    """Return the points of both."""
    first, second, third, fourth = (
        np.concatenate(pair) for pair in zip(points, other, strict=True)
    )
    return first, second, third, fourth


def no_points() -> Points:
    """Return what a front begins with."""
    whole = np.zeros(0, dtype=np.int64)
    return whole, np.zeros(0), np.zeros(0), whole
