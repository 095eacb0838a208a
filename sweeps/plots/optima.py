"""Where the best of several curves changes, and which of many points no other beats."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis

if TYPE_CHECKING:
    pass


_EQUAL = 1e-9  # relative difference below which two curves count as one
_FINE = 1.3  # neighbours closer than this ratio need no points between them


@dataclass(frozen=True, slots=True)
class Crossover:
    """A change of the best curve."""

    x: float  # Where
    y: float
    before: int  # The best curve on its left, and on its right
    after: int


def crossovers(
    x: NDArray[np.float64], curves: NDArray[np.float64], *, more: bool = False, whole: bool = False
) -> list[Crossover]:
    """Find where the best curve changes.

    Between two samples each curve is taken as affine in `x`. Costs with a latency and a
    bandwidth term are so, hence the crossing is exact for them on any grid, which it would
    not be along straight lines of a logarithmic plot.
    """
    cost = -curves if more else curves
    sign = -1.0 if more else 1.0
    winners: list[int | None] = []
    for costs in cost.T:
        winners.append(_winner(costs, winners[-1] if winners else None))
    crossings: list[Crossover] = []
    for k, (before, after) in enumerate(pairwise(winners)):
        if before is None or after is None or before == after:
            continue
        there = cost[:, k : k + 2]
        if not np.isfinite(there[before]).all() or not np.isfinite(there[after]).all():
            continue
        if whole:
            height = float(sign * there[after, 1])
            crossings.append(Crossover(float(x[k + 1]), height, before, after))
        else:
            crossings += _segment(x[k : k + 2], there, (before, after), sign)
    return crossings


def _winner(costs: NDArray[np.float64], holder: int | None) -> int | None:
    """Return the best curve at a sample; the one held so far if it is among the best."""
    if not np.isfinite(costs).any():
        return None
    least = float(np.min(costs[np.isfinite(costs)]))
    if holder is not None and costs[holder] <= least + _EQUAL * abs(least):
        return holder
    return int(np.nonzero(costs <= least + _EQUAL * abs(least))[0][0])


def _segment(
    x: NDArray[np.float64], cost: NDArray[np.float64], ends: tuple[int, int], sign: float
) -> list[Crossover]:
    """Walk the lower envelope of affine pieces from one sample to the next."""
    crossings = []
    current, last = ends
    along = 0.0
    rise = cost[:, 1] - cost[:, 0]
    while current != last:
        steeper = rise[current] - rise
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (cost[:, 0] - cost[current, 0]) / steeper
        meet = np.where((steeper > 0) & (meet >= along - _EQUAL), meet, np.inf)
        after = int(np.argmin(meet)) if np.isfinite(meet).any() else last
        if not np.isfinite(meet[after]) or meet[after] > 1 + _EQUAL or meet[last] <= meet[after]:
            after = last
        along = float(min(max(meet[after], along), 1.0))
        where = float(x[0] + along * (x[1] - x[0]))
        height = float(sign * (cost[after, 0] + along * rise[after]))
        crossings.append(Crossover(where, height, current, after))
        current = after
    return crossings


def refine(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add points between samples that lie far apart, for lines on logarithmic axes."""
    if len(x) < 2 or np.all(x[1:] <= _FINE * x[:-1]):
        return x, y
    counts = np.ceil(np.log(x[1:] / x[:-1]) / np.log(_FINE)).astype(np.int64).clip(1)
    pieces = [
        np.geomspace(left, right, count, endpoint=False)
        for left, right, count in zip(x[:-1], x[1:], counts, strict=True)
    ]
    fine = np.concatenate([*pieces, x[-1:]])
    between = np.interp(fine, x, y)
    between[np.concatenate([[0], np.cumsum(counts)])] = y  # a sample beside a hole stays
    return fine, between


# Points of plans: which no other beats in both ways, which to draw, the numbers of the best.

_CELLS = (600, 480)  # points in one cell of so many across and up cover each other


def pareto(
    x: NDArray[np.float64], y: NDArray[np.float64], valid: NDArray[np.bool_], *, more: bool
) -> NDArray[np.int64]:
    """Find the points that no other point beats in both ways."""
    cells = np.nonzero(valid)[0]
    cost = -y[cells] if more else y[cells]
    order = np.lexsort((cost, x[cells]))
    cells, cost = cells[order], cost[order]
    least = np.minimum.accumulate(np.concatenate([[np.inf], cost[:-1]])) if len(cost) else cost
    return np.asarray(cells[cost < least], dtype=np.int64)


def thinned(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    valid: NDArray[np.bool_],
    axes: tuple[Axis, Axis],
) -> NDArray[np.int64]:
    """Return the points to draw: of those that would cover each other on paper the first one."""
    cells_of = np.nonzero(valid)[0]
    cells = np.zeros(len(cells_of), dtype=np.int64)
    for values, axis, count in zip((x, y), axes, _CELLS, strict=True):
        low, high, positions = axis.low, axis.high, values[cells_of]
        if axis.scale == "log":
            low, high, positions = np.log(low), np.log(high), np.log(positions)
        inside = np.clip((positions - low) / (high - low), 0.0, 1.0)
        cells = cells * (count + 1) + np.round(count * inside).astype(np.int64)
    _, first = np.unique(cells, return_index=True)
    return np.asarray(cells_of[np.sort(first)], dtype=np.int64)
