"""The answer at one point: the best plans, why, and what would change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sweeps.plans.detail import COMMUNICATION, PARTS, PEAK_PARTS, TABLE, Detail, details
from sweeps.plans.execution import Execution
from sweeps.plans.launch import Settings, settings_of
from sweeps.plans.repair import Nearest, Remedy, nearest_plan, remedies
from sweeps.plans.request import Point
from sweeps.plans.search import Counts, Found, search
from sweeps.plans.space import space_of
from sweeps.plans.what_if import Effect, effects
from sweeps.plans.words import because

__all__ = ["Answer", "answer"]

# What is told of one plan.
WHOLE = (
    *TABLE, *PARTS, *PEAK_PARTS, *COMMUNICATION, "fullest_stage", "bubble_fraction", "error_band",
    "step_energy", "cost_per_trillion_tokens", "tokens_per_second", "model_flops_per_gpu", "hfu",
    "micro_batches",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a search found, with what can be said of it."""

    found: Found  # The search

    @property
    def point(self) -> Point:
        """The question."""
        return self.found.space.point

    @property
    def counts(self) -> Counts:
        """How many plans there are, how many can run, why others can't."""
        return self.found.counts

    @property
    def recommended(self) -> Execution | None:
        """The best plan; None where none can run."""
        return self.found.best[0] if self.found.best else None

    @cached_property
    def main(self) -> tuple[Detail, ...]:
        """The recommended plan with all its parts, then the best of the next split."""
        best = self.found.best[:1]
        own = best[0].split if best else ""
        others = [plan for plan in self.found.splits if plan.split != own]
        return details((*best, *others[:1]), WHOLE)

    def table(self, count: int) -> tuple[Detail, ...]:
        """Return the best plan of each of the best splits."""
        return details(self.found.splits[:count], (*TABLE, self._quantity))

    def front(self, count: int | None = None) -> tuple[Detail, ...]:
        """Return the Pareto front, thinned evenly to a number of plans if it has more."""
        return details(_thinned(self.found.front, count), (*TABLE, self._quantity))

    @property
    def _quantity(self) -> str:
        return self.point.objective.quantity

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What one change would do to the recommended plan."""
        return effects(self.main[0], self.found.space.choices) if self.main else ()

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why the plan is recommended, in words."""
        return tuple(because(self.found, self.main, self.effects)) if self.main else ()

    @property
    def settings(self) -> tuple[Settings, ...]:
        """The recommended plan in the words of frameworks."""
        return settings_of(self.recommended) if self.recommended else ()

    @cached_property
    def nearest(self) -> Nearest | None:
        """Where nothing can run: the plan that comes nearest."""
        return None if self.found.best else nearest_plan(self.found.space)

    @cached_property
    def remedies(self) -> tuple[Remedy, ...]:
        """Where nothing can run: what would make a plan run."""
        return () if self.found.best else tuple(remedies(self.point, self.nearest))


def _thinned(plans: Sequence[Execution], count: int | None) -> Sequence[Execution]:
    """Return some plans, evenly chosen, the first and the last among them."""
    if count is None or len(plans) <= count:
        return plans
    step = (len(plans) - 1) / max(count - 1, 1)
    return [plans[round(place * step)] for place in range(count)]


def answer(
    point: Point, *, keep: int = 50, progress: Callable[[int, int], None] | None = None
) -> Answer:
    """Search the plans of one point."""
    return Answer(search(space_of(point), keep, progress))
