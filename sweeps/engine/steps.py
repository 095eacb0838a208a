"""The work of a plan as a row of numbered steps, so that any run of them can be computed alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sweeps.engine.axes import Region
from sweeps.engine.case import Case, Variable
from sweeps.engine.evaluate import Evaluator, Limits
from sweeps.engine.group import Group
from sweeps.engine.layout import Block
from sweeps.engine.plan import Plan

__all__ = ["Cuts", "Stage", "Steps"]


class Cuts(Sequence[Region]):
    """The regions that `sweeps.engine.evaluate.blocks_over` yields, each by its number."""

    def __init__(self, shape: Sequence[int], cells: int) -> None:
        self.shape = tuple(shape)
        inner, split = 1, len(shape)
        while split > 0 and inner * shape[split - 1] <= cells:
            split -= 1
            inner *= shape[split]
        self._whole = tuple(slice(0, length) for length in shape[split:])
        self._outer = tuple(shape[: max(0, split - 1)])
        self._length = shape[split - 1] if split else 1
        self._run = self._length
        if split:
            self._run = -(-self._length // -(-self._length // max(1, cells // inner)))
        self._runs = -(-self._length // self._run)
        self._split = split > 0

    def __len__(self) -> int:
        return math.prod(self._outer) * self._runs

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        if not self._split:
            return self._whole
        rest, run = divmod(index, self._runs)
        point = []
        for size in reversed(self._outer):
            rest, one = divmod(rest, size)
            point.append(slice(one, one + 1))
        start = run * self._run
        part = slice(start, min(start + self._run, self._length))
        return (*reversed(point), part, *self._whole)


@dataclass(frozen=True)
class Stage:
    """Variables of the same dimensions in one case, and the parts that they are computed in."""

    case: Case  # The case whose formulas hold
    dims: tuple[str, ...]  # The variables' dimensions
    variables: tuple[Variable, ...]  # What is computed
    cuts: Cuts  # The parts, of the case's own points


class Steps:
    """A plan's work: step after step, each a part of some variables.

    The steps come in the order of `Plan.blocks`, and each gives the same bits whichever others
    are computed, so that a sweep can be cut into runs of steps anywhere.
    """

    def __init__(
        self,
        plan: Plan,
        names: Sequence[str],
        limits: Limits | None = None,
        beside: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.plan, self.limits, self.beside = plan, limits or Limits(), beside
        self.stages = tuple(self._staged(names))
        self._ends = tuple(accumulate(len(stage.cuts) for stage in self.stages))
        self._held: tuple[Case, Evaluator] | None = None
        self._group: tuple[Stage, Group] | None = None

    def _staged(self, names: Sequence[str]) -> Iterator[Stage]:
        for case, dims, variables in self.plan.stages(names):
            lengths = [
                1 if position in case.fixed else self.plan.grid.shape[position]
                for position in map(self.plan.grid.position, dims)
            ]
            yield Stage(case, dims, tuple(variables), Cuts(lengths, self.limits.block))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def stage_of(self, step: int) -> tuple[Stage, int]:
        """Return a step's stage, and which of its parts it is."""
        number = bisect_right(self._ends, step)
        before = self._ends[number - 1] if number else 0
        return self.stages[number], step - before

    def first(self, stage: Stage) -> int:
        """Return the number of a stage's first step."""
        number = self.stages.index(stage)
        return self._ends[number - 1] if number else 0

    def run(self, start: int, stop: int) -> Iterator[Block]:
        """Compute some steps."""
        for step in range(start, min(stop, len(self))):
            stage, part = self.stage_of(step)
            group, cut = self._grouped(stage), stage.cuts[part]
            yield from group.at(cut, stage.variables, beside=self.beside)

    def _grouped(self, stage: Stage) -> Group:
        """Return what computes a stage; the last case's small values are kept."""
        if self._group is None or self._group[0] is not stage:
            self._group = None
            if self._held is None or self._held[0] is not stage.case:
                self._held = None
                grid = self.plan.grid
                evaluator = Evaluator(grid, dict(stage.case.fixed), self.limits)
                self._held = (stage.case, evaluator)
            self._group = (stage, Group(self.plan, stage.case, self._held[1], stage.dims))
        return self._group[1]
