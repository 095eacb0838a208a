"""Where the best of several curves changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Crossover", "crossovers", "refine"]

_EQUAL = 1e-9  # relative difference below which two curves count as one
_FINE = 1.3  # neighbours closer than this ratio need no points between them


@dataclass(frozen=True, slots=True)
class Crossover:
    """A change of the best curve."""

    x: float  # Where
    y: float  # Where
    before: int  # The best curve on its left, and on its right
    after: int  # The best curve on its left, and on its right


def crossovers(
    x: NDArray[np.float64],
    curves: NDArray[np.float64],
    *,
    more: bool = False,
    whole: bool = False,
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
    found: list[Crossover] = []
    for k, (before, after) in enumerate(pairwise(winners)):
        if before is None or after is None or before == after:
            continue
        there = cost[:, k : k + 2]
        if not np.isfinite(there[before]).all() or not np.isfinite(there[after]).all():
            continue
        if whole:
            height = float(sign * there[after, 1])
            found.append(Crossover(float(x[k + 1]), height, before, after))
        else:
            found += _segment(x[k : k + 2], there, (before, after), sign)
    return found


def _winner(costs: NDArray[np.float64], held: int | None) -> int | None:
    """Return the best curve at a sample; the one held so far if it is among the best."""
    if not np.isfinite(costs).any():
        return None
    least = float(np.min(costs[np.isfinite(costs)]))
    if held is not None and costs[held] <= least + _EQUAL * abs(least):
        return held
    return int(np.nonzero(costs <= least + _EQUAL * abs(least))[0][0])


def _segment(
    x: NDArray[np.float64], cost: NDArray[np.float64], ends: tuple[int, int], sign: float
) -> list[Crossover]:
    """Walk the lower envelope of affine pieces from one sample to the next."""
    found = []
    current, last = ends
    place = 0.0
    rise = cost[:, 1] - cost[:, 0]
    while current != last:
        steeper = rise[current] - rise
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (cost[:, 0] - cost[current, 0]) / steeper
        meet = np.where((steeper > 0) & (meet >= place - _EQUAL), meet, np.inf)
        after = int(np.argmin(meet)) if np.isfinite(meet).any() else last
        if not np.isfinite(meet[after]) or meet[after] > 1 + _EQUAL or meet[last] <= meet[after]:
            after = last
        place = float(min(max(meet[after], place), 1.0))
        where = float(x[0] + place * (x[1] - x[0]))
        height = float(sign * (cost[after, 0] + place * rise[after]))
        found.append(Crossover(where, height, current, after))
        current = after
    return found


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
