"""Where a variable has no value: the cells that can't be, seen along its own dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sweeps.engine.axes import Array, Region
from sweeps.engine.evaluate import Evaluator, blocks_over

if TYPE_CHECKING:
    from sweeps.engine.case import Case
    from sweeps.engine.plan import Plan

__all__ = ["Holes"]


class Holes:
    """The missing values of variables of the same dimensions, in one case.

    A variable may have fewer dimensions than the reasons for holes: the bus factor, say, doesn't
    vary along the sizes of a mesh.  Then its value is missing where no cell along the others, and
    in no other case that shares the value, can be.
    """

    def __init__(
        self, plan: Plan, case: Case, evaluator: Evaluator, positions: Sequence[int]
    ) -> None:
        self.plan, self.case, self.evaluator = plan, case, evaluator
        self.positions = frozenset(positions)
        self.found = -1
        if evaluator.cells(case.status) <= evaluator.limits.whole:
            status = np.asarray(evaluator.value(case.status))
            self.found = int(np.bitwise_or.reduce(status, axis=None))
        self._sharing: list[tuple[Case, Evaluator]] | None = None
        self._known: dict[int, tuple[Region, Array | None]] = {}

    def at(self, region: Region, bits: int) -> Array | None:
        """Return a mask of the missing values over a region; None where none are missing."""
        if not self.found & bits:
            return None
        known = self._known.get(bits)
        if known is None or known[0] != region:
            known = self._known[bits] = (region, self._missing(region, bits))
        return known[1]

    def _missing(self, region: Region, bits: int) -> Array | None:
        wrong: Array | None = None
        for case, evaluator in self._cases():
            mask = self._of_case(case, evaluator, region, bits)
            wrong = mask if wrong is None else wrong & mask
            if not wrong.any():
                return None
        return wrong

    def _cases(self) -> list[tuple[Case, Evaluator]]:
        """Return the cases that share the variables' values: the case itself first."""
        if self._sharing is None:
            own = self._held(self.case)
            others = [
                (case, Evaluator(self.plan.grid, dict(case.fixed), self.evaluator.limits))
                for case in self.plan.cases
                if case is not self.case and self._held(case) == own
            ]
            self._sharing = [(self.case, self.evaluator), *others]
        return self._sharing

    def _held(self, case: Case) -> dict[int, slice]:
        return {p: part for p, part in case.fixed.items() if p in self.positions}

    def _of_case(self, case: Case, evaluator: Evaluator, region: Region, bits: int) -> Array:
        """Return where no cell of a case along the dimensions that the variables lack can be."""
        grid = self.plan.grid
        own = {grid.position(dim) for dim in case.status.dims} - set(case.fixed)
        idle = tuple(sorted(own - self.positions))
        place = [case.fixed.get(p, part) for p, part in enumerate(region)]
        cells = 1
        for position in own & self.positions:
            cells *= region[position].stop - region[position].start
        wrong: Array | None = None
        most = max(1, evaluator.limits.block // cells)
        for part in blocks_over([grid.shape[p] for p in idle], most):
            for position, piece in zip(idle, part, strict=True):
                place[position] = piece
            status = evaluator.reasons(case.status, tuple(place)) & bits
            mask = np.asarray((status != 0).all(axis=idle, keepdims=True))
            wrong = mask if wrong is None else wrong & mask
            if not wrong.any():
                break
        assert wrong is not None
        return wrong
