"""The recommended plan alone, of one number of GPUs or of several that are searched as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import LabelCase
from sweeps.engine.program import Program
from sweeps.search.keep import Floats, Places
from sweeps.search.request import Execution
from sweeps.search.search import (
    KEPT,
    Block,
    Keeper,
    blocks_of,
    compute_whole,
    is_bounded,
    plans_of,
    simplest,
    unranked,
)
from sweeps.search.space import Space, recomputing_only_adds

# Of each number so many rows are computed first, the most promising: many don't fit the memory.
FIRST = 4 * KEPT


def recommended(space: Space, steps: Mapping[int, float] | None = None) -> dict[int, Execution]:
    """Return by number of GPUs the plan that a search recommends, where one can run.

    Only plans that may be it are computed whole: neither the best of each split nor the front.
    Of each number those don't count whose step is surely longer than a given one.
    """
    if space.plan is None:
        return {}
    numbers = _Numbers(space)
    numbers.search(least_steps(space, steps or {}))
    if numbers.could and not any(len(keeper.top) for keeper in numbers.keepers):
        unranked(space)
    return numbers.plans()


def least_steps(space: Space, steps: Mapping[int, float]) -> tuple[Places, Floats]:
    """Return the rows that count, with what no plan of them has a shorter step than.

    Of each number of GPUs those don't whose step is surely longer than a given one.  Where nothing
    bounds a step all do, with 0; where plans are ranked by something else with less than any value.
    """
    plan, count = space.plan, len(space.rows)
    if plan is None or space.point.objective.quantity != "step_time":
        return np.arange(count), np.full(count, -np.inf)
    least = np.zeros(count)
    if is_bounded(plan, ["step_time"]):
        least[:] = np.inf
        for block in blocks_of(space, cases=_bounding(space, plan)):
            values = np.broadcast_to(block.least("step_time"), block.lengths)
            others = tuple(at for at in range(values.ndim) if at != block.axis)
            least[block.rows] = np.fmin(least[block.rows], values.min(axis=others))
    gpus, number = np.unique(space.rows.columns["world_size"], return_inverse=True)
    longest = np.array([steps.get(int(size), np.inf) for size in gpus])[number]
    rows = np.flatnonzero(least <= longest)
    return rows, least[rows]


def _bounding(space: Space, plan: Program) -> Sequence[LabelCase]:
    """Return the sets of labels of which no plan of a row has a shorter step."""
    none = [case for case in plan.cases if case.labels["recompute"] == "none"]
    return none if none and recomputing_only_adds(plan.cases) else space.cases


class _Numbers:
    """Computes whole what may be recommended of each number of GPUs, the most promising first."""

    def __init__(self, space: Space) -> None:
        assert space.plan is not None
        self.space = space
        gpus = space.rows.columns["world_size"]
        self.gpus, self.number = np.unique(gpus, return_inverse=True)
        self.keepers = [Keeper(space, space.plan, KEPT, alone=True) for _ in self.gpus]
        objective = space.point.objective
        self.names = (objective.quantity, objective.second)
        self.sign = -1.0 if objective.more else 1.0
        self.could = False  # Whether any plan can run

    def search(self, bounded: tuple[Places, Floats]) -> None:
        """Compute rows of which no plan has a shorter step than is known, while they may count."""
        rows, least = bounded
        if not len(rows):
            return
        done = np.zeros(len(self.space.rows), dtype=np.bool_)
        chosen = np.sort(rows[self._promising(rows, least)])
        waiting = rows, least, np.zeros(len(rows))
        compute_whole(self.space, chosen, waiting, done, self._near, self._compute)

    def plans(self) -> dict[int, Execution]:
        """Return of each number of GPUs the simplest of the plans that can't be told apart."""
        each = [keeper.contenders() for keeper in self.keepers]
        values, seconds, cells = map(np.concatenate, zip(*each, strict=True))
        every = iter(plans_of(self.space, values, seconds, cells))
        of_numbers = [[*islice(every, len(first))] for first, *_ in each]
        return {
            int(gpus): plans[simplest(plans, first)]
            for gpus, plans, (first, *_) in zip(self.gpus, of_numbers, each, strict=True)
            if plans
        }

    def _compute(self, block: Block, can: NDArray[np.bool_]) -> None:
        if not can.any():
            return
        self.could = True
        first, second = map(block.value, self.names)
        number = self.number[block.rows]
        for at in {*number.tolist()}:
            mask = can & block.along(number == at)
            if mask.any():
                self.keepers[at].add(block, mask, self.sign * first, second)

    def _near(self, rows: Places, first: Floats, second: Floats) -> NDArray[np.bool_]:
        """Return which rows may have a plan that counts, by their least values."""
        edges = np.array([keeper.edge for keeper in self.keepers])
        return np.asarray(first <= edges[self.number[rows]])

    def _promising(self, rows: Places, least: Floats) -> NDArray[np.bool_]:
        """Return which rows are among the first of each number of GPUs by their least values."""
        order = np.lexsort((least, self.number[rows]))
        number = self.number[rows][order]
        rank = np.arange(len(rows)) - np.searchsorted(number, number)
        mask = np.zeros(len(rows), dtype=np.bool_)
        mask[order[rank < FIRST]] = True
        return mask
