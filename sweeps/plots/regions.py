"""Which entry is best in each cell of a map: ties, margins, and where a region can be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EQUAL", "HOLE", "Regions", "edges", "label_place", "regions_of", "runs"]

HOLE = -1
EQUAL = 1e-6  # relative difference below which two entries are both the best
_MOST_SETS = 62  # entries that fit into the bits of one integer


@dataclass(frozen=True, slots=True)
class Regions:
    """The best entries over the cells of one or more maps."""

    # The sets of entries that are best together somewhere, the largest regions first
    sets: tuple[tuple[int, ...], ...]
    which: NDArray[np.int64]  # Of each cell the place in `sets`; `HOLE` where nothing has a value
    # Second best over best (at least 1; 1 where several are best); NaN where there is no second
    margin: NDArray[np.float64]


def regions_of(values: NDArray[np.float64], *, more: bool = False) -> Regions:
    """Find the best entries in each cell."""
    cost = np.where(np.isfinite(values), -values if more else values, np.inf)
    best = cost.min(axis=0)
    hole = ~np.isfinite(best)
    tied = cost <= best + EQUAL * np.abs(best)
    tied &= ~hole
    # A set of entries as one number, bit by bit; beyond 62 entries just the first one counts.
    if len(cost) <= _MOST_SETS:
        bits = np.int64(1) << np.arange(len(cost), dtype=np.int64)
        code = np.tensordot(bits, tied.astype(np.int64), axes=1)
        decode = [tuple(np.nonzero(int(one) & bits)[0].tolist()) for one in np.unique(code)]
    else:
        code = np.argmax(tied, axis=0) + 1
        code[hole] = 0
        decode = [(int(one) - 1,) if one else () for one in np.unique(code)]
    _, place, counts = np.unique(code, return_inverse=True, return_counts=True)
    order = [k for k in np.argsort(-counts, kind="stable") if decode[k]]
    rank = np.full(len(decode), HOLE, dtype=np.int64)
    rank[order] = np.arange(len(order))
    with np.errstate(divide="ignore", invalid="ignore"):
        ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=0)
        margin = _margin(ordered, more=more)
    return Regions(tuple(decode[k] for k in order), rank[place.reshape(best.shape)], margin)


def _margin(ordered: NDArray[np.float64], *, more: bool) -> NDArray[np.float64]:
    """Return second best over best of values sorted along the first axis, NaN last."""
    if len(ordered) < 2:
        return np.full(ordered.shape[1:], np.nan)
    if not more:
        return np.asarray(ordered[1] / ordered[0])
    count = np.isfinite(ordered).sum(axis=0)
    first = np.take_along_axis(ordered, np.maximum(count - 1, 0)[None], axis=0)[0]
    second = np.take_along_axis(ordered, np.maximum(count - 2, 0)[None], axis=0)[0]
    return np.where(count > 1, first / second, np.nan)


def edges(centres: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Return the borders of cells, halfway between their centres on the axis' scale."""
    turned = np.log(centres) if scale == "log" else centres
    between = (turned[1:] + turned[:-1]) / 2
    border = np.concatenate([[2 * turned[0] - between[0]], between, [2 * turned[-1] - between[-1]]])
    return np.exp(border) if scale == "log" else border


def runs(mask: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Return a mask's cells as runs: row, first column, column after the last."""
    padded = np.pad(mask.astype(np.int8), ((0, 0), (1, 1)))
    change = np.diff(padded, axis=1)
    starts, ends = np.argwhere(change == 1), np.argwhere(change == -1)
    return [
        (int(row), int(first), int(last))
        for (row, first), (_, last) in zip(starts, ends, strict=True)
    ]


def label_place(mask: NDArray[np.bool_], box: tuple[float, float]) -> tuple[float, float] | None:
    """Find a place for a text inside a region."""
    rows, columns = mask.shape
    wide, high = max(int(np.ceil(box[0] * columns)), 1), max(int(np.ceil(box[1] * rows)), 1)
    if wide > columns or high > rows:
        return None
    total = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    inside = total[high:, wide:] - total[:-high, wide:] - total[high:, :-wide]
    inside = inside + total[:-high, :-wide]
    fits = np.argwhere(inside == wide * high)
    if not len(fits):
        return None
    # The fitting place nearest to the middle of all of them.
    away: NDArray[Any] = ((fits - fits.mean(axis=0)) / np.array([rows, columns])) ** 2
    row, column = fits[int(np.argmin(away.sum(axis=1)))]
    return (column + wide / 2) / columns, (row + high / 2) / rows
