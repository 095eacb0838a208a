"""The answer at one point: the best plans, why, and what would change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column, Layout, row_numbers
from sweeps.errors import InputError
from sweeps.origin import attributes
from sweeps.search.launch import Settings, settings_of
from sweeps.search.repair import (
    MEASURES,
    Nearest,
    Remedy,
    batch_for,
    choice_columns,
    flag_column,
    nearest_plan,
    number_column,
    remedies,
)
from sweeps.search.request import Execution, Point, Request, divisors
from sweeps.search.search import COMMUNICATION, TABLE, Counts, Detail, Found, details, search
from sweeps.search.space import space_of
from sweeps.search.words import Effect, because, effects

# What is told of one plan.
WHOLE = (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION, "fullest_stage", "micro_batches")


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


# The plans of one point that are worth keeping, as a table: for files, figures and programs.

PLAN = "plan"


def kept_plans(answer: Answer, count: int) -> list[Execution]:
    """Return the best plan of each of some splits, then what else is on the Pareto front."""
    kept: dict[tuple[object, ...], Execution] = {}
    for plan in (*answer.found.splits[:count], *answer.found.front):
        kept.setdefault(plan.key, plan)
    return list(kept.values())


def table_layout(answer: Answer, count: int, attrs: Mapping[str, str]) -> Layout:
    """Return the plans of one point as a table: a row a plan."""
    plans = kept_plans(answer, count)
    rows = details(plans, (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION))
    variables = []
    for name in rows[0].values:
        values = [row[name] for row in rows]
        if not np.all(np.isnan(values)):
            variables.append(_placed(number_column(name, values)))
    front = {plan.key for plan in answer.found.front}
    first = answer.found.recommended.key
    why = {**dict.fromkeys(front, "on_the_front"), first: "recommended"}
    told = [why.get(plan.key, "best_of_its_split") for plan in plans]
    variables.append(_placed(flag_column("place", "why the plan is here", told)))
    coordinates = [row_numbers(PLAN, len(plans))]
    coordinates += [_placed(column) for column in _choices(plans)]
    return Layout({PLAN: len(plans)}, (*coordinates, *_given(answer)), tuple(variables), attrs)


def _placed(column: Column) -> Column:
    return Column(column.name, (PLAN,), column.dtype, column.attrs, column.values)


def _choices(plans: list[Execution]) -> list[Column]:
    """Return what plans choose: numbers, and labels as text."""
    columns = []
    for column in choice_columns(plans):
        if column.dtype.kind == "f":
            columns.append(Column(column.name, (), column.dtype,
                                  {**column.attrs, **attributes()}, column.values))  # fmt: skip
            continue
        text = np.array([plan.labels[column.name] for plan in plans], dtype=np.str_)
        about: dict[str, Any] = {"long_name": column.attrs["long_name"], **attributes()}
        columns.append(Column(column.name, (), text.dtype, about, text))
    return columns


def _given(answer: Answer) -> list[Column]:
    """Return what all plans have in common, as far as readers need it."""
    point, resolved = answer.point, answer.found.space.resolved
    given: dict[str, Any] = {**point.constants, **point.labels}
    columns = [coordinate(name, (), np.array(value)) for name, value in given.items()]
    capacity = resolved.constants.get("memory_capacity", np.nan)
    if "memory_capacity" not in given and np.isfinite(capacity):
        origins = resolved.origins.get("memory_capacity", ())
        columns.append(coordinate("memory_capacity", (), np.array(capacity), origins))
    return columns


# Other questions whose answer a user wants beside his own: another batch, a node lost.


@dataclass(frozen=True)
class Alternative:
    """The answer to another question."""

    words: str  # What is other
    answer: Answer  # Its answer, with a plan
    rate: float  # Its tokens a second
    faster: float  # The same by those of the first answer, less one; NaN where that has no plan


def _rate(one: Answer) -> float:
    """Return the tokens a second of an answer's plan; NaN where there is none."""
    if one.recommended is None:
        return float("nan")
    (detail,) = details([one.recommended], ("tokens_per_second",))
    return detail["tokens_per_second"]


def _alternative(words: str, first: Answer, point: Point) -> Alternative | None:
    try:
        other = answer(point)
    except InputError:
        return None
    if other.recommended is None:
        return None
    rate = _rate(other)
    return Alternative(words, other, rate, rate / _rate(first) - 1.0)


def _node(one: Answer) -> float:
    return one.found.space.resolved.constants.get("gpus_per_node", float("nan"))


def other_batch(first: Answer) -> Alternative | None:
    """Return the answer for a batch nearby that divides among the GPUs or their nodes."""
    batch = batch_for(first.point, _node(first))
    if batch is None:
        return None
    point = first.point.with_constants(global_batch=batch)
    return _alternative(f"a batch of {batch:g} sequences", first, point)


def nodes_lost(first: Answer, nodes: int = 1) -> Iterator[Alternative]:
    """Yield what is best when nodes are lost: on all GPUs that are left, or on fewer of them."""
    node = _node(first)
    left = first.point.world_size - nodes * (int(node) if np.isfinite(node) else 1)
    if left < 1:
        return
    point = first.point.with_constants(world_size=float(left))
    every = _alternative(f"{left} GPUs, the same batch", first, point)
    if every is not None:
        yield every
    batch = batch_for(point, node)
    if batch is not None:
        near = point.with_constants(global_batch=batch)
        other = _alternative(f"{left} GPUs, a batch of {batch:g}", first, near)
        if other is not None:
            yield other
    fewer = _agreeing(left, node, int(first.point.constants["global_batch"]))
    if fewer is not None:
        some = point.with_constants(world_size=float(fewer))
        idle = left - fewer
        spare = _alternative(f"{fewer} GPUs, {idle} idle, the same batch", first, some)
        if spare is not None:
            yield spare


def _agreeing(left: int, node: float, batch: int) -> int | None:
    """Return the most GPUs whose nodes the batch divides among; None where these are all."""
    size = int(node) if np.isfinite(node) else 1
    whole = left // size
    most = max((n for n in divisors(batch) if n <= whole), default=0)
    return most * size if 0 < most < whole else None


# Figures of the best plans at many points: which plan wins where, time against GPUs.

MOST_PANELS = 4
FEWEST_POINTS = 3
COMPARED = ("model", "hardware", "framework", "precision")


def range_figures(request: Request) -> list[dict[str, Any]]:
    """Return declarations of figures that the usual ones don't hold."""
    sizes = {axis.name: len(axis) for axis in request.axes}
    plain = [axis for axis in request.axes if axis.name in axis.columns]
    numbers = [axis.name for axis in plain if axis.columns[axis.name].dtype.kind == "f"]
    labels = [name for name in sizes if name not in numbers]
    several = [name for name in numbers if sizes[name] > 1]
    figures: list[dict[str, Any]] = []
    first = {axis.name: axis.columns[axis.name][0].item() for axis in plain}
    if "world_size" in several and sizes["world_size"] > 2:
        lines = [name for name in labels if name in COMPARED][:1]
        held = {name: first[name] for name in first if name not in ("world_size", *lines)}
        figures.append({"kind": "scaling", "name": "time-over-gpus", "x": "world_size",
                        "y": "step_time", "lines": lines, "at": held})  # fmt: skip
    if len(several) >= 2:
        x, y = several[:2]
        panels = [name for name in labels if name in COMPARED and sizes[name] <= MOST_PANELS][:1]
        held = {name: first[name] for name in first if name not in (x, y, *panels)}
        figure = {"kind": "best", "name": "best-split", "x": x, "y": y, "value": "best_split",
                  "over": [], "at": held}  # fmt: skip
        figures.append({**figure, "panels": panels[0]} if panels else figure)
    return figures


def point_figures(answer: Answer) -> list[dict[str, Any]]:
    """Return declarations of figures of the plans of one point."""
    title = "the best plan of each split, and the Pareto front"
    if len(answer.found.splits) + len(answer.found.front) < FEWEST_POINTS:
        return []
    return [{"kind": "best_plans", "plans": [PLAN], "title": title}]
