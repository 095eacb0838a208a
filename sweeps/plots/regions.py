"""Which entry is best in each cell of a map: ties, margins, and the cells as shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass

HOLE = -1
EQUAL = 1e-6  # relative difference below which two entries are both the best


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
    tied = (cost <= best + EQUAL * np.abs(best)) & ~hole
    # Each cell's set of entries as bits; the same sets are one region.
    bits = np.packbits(tied.reshape(len(cost), -1), axis=0)
    codes, inverse, counts = np.unique(bits, axis=1, return_inverse=True, return_counts=True)
    sets = np.unpackbits(codes, axis=0, count=len(cost)).T
    order = [k for k in np.argsort(-counts, kind="stable") if sets[k].any()]
    rank = np.full(len(sets), HOLE, dtype=np.int64)
    rank[order] = np.arange(len(order))
    margin = np.full(best.shape, np.nan)
    if len(cost) > 1:
        first, second = np.sort(cost, axis=0)[:2]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = first / second if more else second / first
        margin = np.where(np.isfinite(second), ratio, np.nan)
    entries = tuple(tuple(np.flatnonzero(sets[k]).tolist()) for k in order)
    return Regions(entries, rank[inverse.reshape(best.shape)], margin)


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
