"""What is kept of plans that stream by: the best, the best of every split, the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.search.request import Execution

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Kept:
    """Plans: what they are ranked by, what decides between equals, and their places.

    A place is a flat index into the grid, in C order.
    """

    def __init__(self) -> None:
        self.first: Floats = np.empty(0)
        self.second: Floats = np.empty(0)
        self.places: Places = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def kept(self) -> tuple[Floats, Floats, Places]:
        """What is kept."""
        return self.first, self.second, self.places

    def _join(self, first: Floats, second: Floats, cells: Places) -> None:
        """Add plans, in order of what they are ranked by."""
        first = np.concatenate([self.first, first])
        second = np.concatenate([self.second, second])
        cells = np.concatenate([self.places, cells])
        # Of equals the first on the grid, so that blocks of any size give the same.
        self._take(first, second, cells, np.lexsort((cells, second, first)))

    def _take(self, first: Floats, second: Floats, cells: Places, kept: Places) -> None:
        self.first, self.second, self.places = first[kept], second[kept], cells[kept]


class Top(Kept):
    """The best plans."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    @property
    def bound(self) -> float:
        """What a plan must reach to be kept."""
        return float(self.first[-1]) if len(self) == self.count else np.inf

    def add(self, first: Floats, second: Floats, cells: Places) -> None:
        """Take in plans (any number, in any order)."""
        if len(first) > 4 * self.count:
            edge = np.partition(first, self.count - 1)[self.count - 1]
            near = first <= edge
            first, second, cells = first[near], second[near], cells[near]
        self._join(first, second, cells)
        self._take(self.first, self.second, self.places, np.arange(min(len(self), self.count)))


class Front(Kept):
    """The plans that no other beats in both ways: less of the one, less of the other."""

    def bounds(self, second: Floats) -> Floats:
        """Return what a plan of so much of the second must stay below to be on the front."""
        # Along the front, by more and more of the first, there is less and less of the second.
        rising, values = self.second[::-1], self.first[::-1]
        at = np.searchsorted(rising, second, side="right")
        return np.concatenate([[np.inf], values])[at]

    def add(self, first: Floats, second: Floats, cells: Places) -> None:
        """Take in plans (any number, in any order)."""
        self._join(first, second, cells)
        least = np.minimum.accumulate(np.concatenate([[np.inf], self.second[:-1]]))
        self._take(self.first, self.second, self.places, np.nonzero(self.second < least)[0])


class BestOfSplits(Kept):
    """The best plan of every split."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.first, self.second = np.full((2, count), np.inf)
        self.places = np.full(count, -1, dtype=np.int64)

    def add(self, first: Floats, second: Floats, cells: Places, splits: Places) -> None:
        """Take in plans of some splits (any number, in any order)."""
        first = np.concatenate([self.first, first])
        second = np.concatenate([self.second, second])
        cells = np.concatenate([self.places, cells])
        splits = np.concatenate([np.arange(len(self)), splits])
        # What isn't there yet is worse than anything.
        order = np.lexsort((cells, second, first, splits))
        _, start = np.unique(splits[order], return_index=True)
        self._take(first, second, cells, order[start])

    def order(self) -> Places:
        """Return the splits that have a plan, the best first."""
        filled = np.nonzero(self.places >= 0)[0]
        ranks = np.lexsort((self.places[filled], self.second[filled], self.first[filled]))
        return np.asarray(filled[ranks], dtype=np.int64)


class Ranked(Sequence[Execution]):
    """Plans, made when they are asked for: of thousands a few are told."""

    def __init__(
        self,
        first: Sequence[Execution],
        count: int,
        make: Callable[[slice], Sequence[Execution]],
        *,
        whole: bool = False,
    ) -> None:
        self._made, self._count, self._make = [*first], count, make
        self._whole = whole  # Whether all are made at once

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        several = isinstance(index, slice)
        at = range(self._count)[index]
        last = max(at, default=-1) + 1 if several else at + 1
        made = len(self._made)
        if last > made:
            stop = self._count if self._whole else min(max(last, 2 * made), self._count)
            self._made += self._make(slice(made, stop))
        return tuple(self._made[number] for number in at) if several else self._made[at]
