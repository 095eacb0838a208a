"""The evaluators of the sets of labels of a sweep, which hand on what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from overhead.graph import Node, nodes_below
from sweeps.engine.evaluate import Evaluator, Limits
from sweeps.engine.grid import Array, Grid, LabelCase

# Nodes of the same value are looked for where cells are so many times as many as are kept whole.
MERGED = 2


# Finds the points at which cells have none of some bits in a status, where they are few.
Finding = Callable[[Evaluator, Node, int], Mapping[str, Array]]


class Evaluators:
    """The evaluators of a grid's cases, each with the small values and reasons that it keeps."""

    def __init__(self, grid: Grid, limits: Limits) -> None:
        self.grid, self.limits = grid, limits
        self._kept: dict[int, dict[int, Evaluator]] = {}
        self._done: dict[int, Evaluator] = {}  # Those of the last case that is done, by bits

    def of(self, case: LabelCase, bits: int = 0, finding: Finding | None = None) -> Evaluator:
        """Return a case's evaluator: of all points, or of those that have none of some bits."""
        kept = self._kept.setdefault(id(case), {})
        if bits not in kept:
            points: Mapping[str, Array] = {}
            if bits and finding is not None:
                every = self.of(case)
                if every.cells(case.status) > self.limits.whole:
                    points = finding(every, case.status, bits)
                kept[bits] = every
            if points or not bits:
                parts = dict(case.fixed), self.limits, None, points
                made = kept[bits] = Evaluator(self.grid, *parts)
                if made.cells(case.status) > MERGED * self.limits.whole:
                    made.merge()
                    if (done := self._done.pop(bits, None)) is not None:
                        made.inherit(done, nodes_below([*case.nodes.values(), case.status]))
        return kept[bits]

    def forget(self, case: LabelCase) -> None:
        """Drop what was kept for a case, but for what the next may take over: it is done."""
        kept = self._kept.pop(id(case), {})
        # Those that compute little whole are as fast to do it again.
        self._done = {bits: each for bits, each in kept.items() if each.merged}
        for each in self._done.values():
            each.drop_parts()
