"""The recommended plan alone, of one number of GPUs or of several that are searched as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sweeps.search.keep import Floats, Places
from sweeps.search.request import Execution
from sweeps.search.search import (
    KEPT,
    WAITING,
    Block,
    Keeper,
    able,
    compute_whole,
    groups_of,
    is_bounded,
    unranked,
)
from sweeps.search.space import Space


def recommended(space: Space) -> dict[int, Execution]:
    """Return by number of GPUs the plan that a search recommends, where one can run.

    Only plans that may be it are computed whole: neither the best of each split nor the front.
    """
    if space.plan is None:
        return {}
    numbers = _Numbers(space)
    for group in groups_of(space):
        numbers.take(group)
    numbers.end()
    if numbers.could and not any(len(keeper.top) for keeper in numbers.keepers):
        unranked(space)
    plans = zip(
        numbers.gpus.tolist(), (keeper.recommended() for keeper in numbers.keepers), strict=True
    )
    return {int(gpus): plan for gpus, plan in plans if plan is not None}


class _Numbers:
    """Takes in blocks: bounds what can run, and computes whole what may be recommended."""

    def __init__(self, space: Space) -> None:
        assert space.plan is not None
        self.space = space
        gpus = space.rows.columns["world_size"]
        self.gpus, self.number = np.unique(gpus, return_inverse=True)
        self.keepers = [Keeper(space, space.plan, KEPT, alone=True) for _ in self.gpus]
        objective = space.point.objective
        self.names = (objective.quantity, objective.second)
        self.sign = -1.0 if objective.more else 1.0
        self.bounded = is_bounded(space.plan, self.names)
        self.could = False  # Whether any plan can run
        self.done = np.zeros(len(space.rows), dtype=np.bool_)  # Rows of which all is known
        # Of plans that wait their rows and what no plan there is better than
        self.waiting: list[tuple[Places, Floats, Floats]] = []

    def take(self, group: Sequence[Block]) -> None:
        """Take in blocks of the same rows."""
        group, can = able(group, [block.reasons() == 0 for block in group])
        for block, mask in zip(group, can, strict=True):
            if not mask.any():
                continue
            self.could = True
            if not self.bounded:
                self._compute(block, mask)
                continue
            some = np.broadcast_to(mask & block.along(~self.done[block.rows]), block.lengths)
            rows, first, second = (
                np.broadcast_to(values, block.lengths)[some]
                for values in (block.along(block.rows), *map(block.least, self.names))
            )
            first = self.sign * first
            near = self._near(rows, first, second)
            self.waiting.append((rows[near], first[near], second[near]))
        if sum(len(rows) for rows, *_ in self.waiting) > WAITING:
            self.end()

    def _compute(self, block: Block, can: NDArray[np.bool_]) -> None:
        first, second = map(block.value, self.names)
        number = self.number[block.rows]
        for at in np.unique(number):
            mask = can & block.along(number == at)
            if mask.any():
                self.keepers[at].add(block, mask, self.sign * first, second)

    def _near(self, rows: Places, first: Floats, second: Floats) -> NDArray[np.bool_]:
        """Return which plans may count, of some rows, by their least values."""
        near = np.zeros(len(rows), dtype=np.bool_)
        number = self.number[rows]
        for at in np.unique(number):
            some, keeper = number == at, self.keepers[at]
            best = keeper.splits.first[self.space.rows.split[rows[some]]]
            near[some] = keeper.may_count(first[some], second[some], best)
        return near

    def end(self) -> None:
        """Compute whole what may count of the plans that wait, the most promising first."""
        if not self.waiting:
            return
        rows, first, second = map(np.concatenate, zip(*self.waiting, strict=True))
        self.waiting = []
        chosen = np.unique(rows[self._promising(rows, first)])
        waiting = rows, first, second
        compute_whole(self.space, chosen, waiting, self.done, self._near, self._compute)

    def _promising(self, rows: Places, first: Floats) -> NDArray[np.bool_]:
        """Return which plans are among the best of each number of GPUs by their least values."""
        mask = np.zeros(len(rows), dtype=np.bool_)
        number = self.number[rows]
        for at in np.unique(number):
            some = np.flatnonzero(number == at)
            several = min(KEPT, len(some)) - 1
            mask[some[first[some] <= np.partition(first[some], several)[several]]] = True
        return mask
