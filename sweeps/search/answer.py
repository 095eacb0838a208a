"""The answer at one point: the best plans, why, and what would change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.analysis import faults
from overhead.evaluation import Evaluation
from overhead.frozen import frozen
from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps import display
from sweeps.bands import tie
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column, Layout, row_numbers
from sweeps.error_bar import Sensitivity, Setups, is_constant
from sweeps.errors import InputError
from sweeps.origin import attributes
from sweeps.search.details import COMMUNICATION, TABLE, Detail, details
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
from sweeps.search.request import CHOICES, Execution, Point, Request
from sweeps.search.search import Counts, SearchResult, search
from sweeps.search.space import common_of, space_of
from sweeps.search.words import Effect, because, effects
from sweeps.spec.resolve_operation import Resolved

# What is told of one plan.
WHOLE = (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION, "peak_memory_stage", "num_micro_batches")


@frozen()
class Answer:
    """What a search found, with what can be said of it."""

    search: SearchResult  # The search

    @property
    def point(self) -> Point:
        """The question."""
        return self.search.space.point

    @property
    def counts(self) -> Counts:
        """How many plans there are, how many can run, why others can't."""
        return self.search.counts

    @property
    def recommended(self) -> Execution | None:
        """The best plan; None where none can run."""
        return self.search.best[0] if self.search.best else None

    @cached_property
    def main(self) -> tuple[Detail, ...]:
        """The recommended plan with all its parts; empty where none can run."""
        return details(self.search.best[:1], WHOLE)

    @cached_property
    def next_split(self) -> tuple[Detail, ...]:
        """The best plan of the next split, with all its parts; empty where there is none."""
        best_split = self.search.best[0].split
        # The next one alone: of hundreds of splits the plans are made when they are asked for.
        others = (plan for plan in self.search.splits if plan.split != best_split)
        return details([*islice(others, 1)], WHOLE)

    def table(self, count: int) -> tuple[Detail, ...]:
        """Return the best plan of each of the best splits."""
        return details(self.search.splits[:count], (*TABLE, self._quantity))

    def front(self, count: int | None = None) -> tuple[Detail, ...]:
        """Return the Pareto front, thinned evenly to a number of plans if it has more."""
        return details(_thinned(self.search.front, count), (*TABLE, self._quantity))

    @property
    def _quantity(self) -> str:
        return self.point.objective.quantity

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What one change would do to the recommended plan."""
        return effects(self.main[0], self.search.space.choices) if self.main else ()

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why the plan is recommended, in words."""
        if not self.main:
            return ()
        return tuple(because(self.search, (*self.main, *self.next_split), self.effects))

    @cached_property
    def nearest(self) -> Nearest | None:
        """Where nothing can run: the plan that comes nearest."""
        return None if self.search.best else nearest_plan(self.search.space)

    @cached_property
    def remedies(self) -> tuple[Remedy, ...]:
        """Where nothing can run: what would make a plan run."""
        return () if self.search.best else tuple(remedies(self.point, self.nearest))


def _thinned(plans: Sequence[Execution], count: int | None) -> Sequence[Execution]:
    """Return some plans, evenly chosen, the first and the last among them."""
    if count is None or len(plans) <= count:
        return plans
    step = (len(plans) - 1) / max(count - 1, 1)
    return [plans[round(index * step)] for index in range(count)]


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
    for plan in (*answer.search.splits[:count], *answer.search.front):
        kept.setdefault(plan.key, plan)
    return list(kept.values())


# What is told of a run, beside what is told of its plan.
RUN = (
    *display.rows("training"),
    *display.rows("failures"),
    "cost",
    "run_cost",
    "cost_per_trillion_useful_tokens",
    "provisioned_gpus",
    "gpu_hour_price",
    "node_dc_power",
)


def trained(
    plans: Sequence[Execution], tokens: float | None, days: float | None
) -> list[Execution]:
    """Return plans with the tokens of a training: those given, or those of some days with each."""
    if tokens is None and days is not None:
        rates = details(plans, ("tokens_per_second", "goodput"))
        every = [
            rate["tokens_per_second"] * rate["goodput"] * days * rate.plan["day"] for rate in rates
        ]
    else:
        every = [tokens or np.nan] * len(plans)
    return [
        plan.changed({"training_tokens": training_tokens})
        for plan, training_tokens in zip(plans, every, strict=True)
    ]


def table_layout(
    answer: Answer,
    count: int,
    attrs: Mapping[str, str],
    *,
    run: tuple[float | None, float | None] = (None, None),
) -> Layout:
    """Return the plans of one point as a table: a row a plan.

    Of a run with so many tokens or days, it tells what it takes.
    """
    plans = kept_plans(answer, count)
    names: tuple[str, ...] = (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION)
    if run != (None, None):
        run_names = (name for name in RUN if name not in answer.point.constants)
        names = (*names, "training_tokens", *run_names)
    rows = details(plans if run == (None, None) else trained(plans, *run), names)
    variables = []
    for name in rows[0].values:
        values = [row[name] for row in rows]
        if not np.all(np.isnan(values)):
            variables.append(placed(number_column(name, values)))
    front = {plan.key for plan in answer.search.front}
    first = answer.search.recommended.key
    why = {**dict.fromkeys(front, "on_the_front"), first: "recommended"}
    reasons = [why.get(plan.key, "best_of_its_split") for plan in plans]
    variables.append(placed(flag_column("place", "why the plan is here", reasons)))
    coordinates = [row_numbers(PLAN, len(plans))]
    coordinates += [placed(column) for column in plan_choices(plans)]
    return Layout({PLAN: len(plans)}, (*coordinates, *_given(answer)), tuple(variables), attrs)


def placed(column: Column) -> Column:
    """Return a column as one of a table of plans."""
    return Column(column.name, (PLAN,), column.dtype, column.attrs, column.values)


def plan_choices(plans: list[Execution]) -> list[Column]:
    """Return what plans choose: numbers, and labels as text."""
    columns = []
    for column in choice_columns(plans):
        if column.dtype.kind == "f":
            columns.append(
                Column(
                    column.name, (), column.dtype, {**column.attrs, **attributes()}, column.values
                )
            )
            continue
        text = np.array([plan.labels[column.name] for plan in plans], dtype=np.str_)
        about: dict[str, Any] = {"long_name": column.attrs["long_name"], **attributes()}
        columns.append(Column(column.name, (), text.dtype, about, text))
    return columns


def _given(answer: Answer) -> list[Column]:
    """Return what all plans have in common, as far as readers need it."""
    point, resolved = answer.point, answer.search.space.resolved
    given: dict[str, Any] = {**point.constants, **point.labels}
    columns = [coordinate(name, (), np.array(value)) for name, value in given.items()]
    capacity = resolved.constants.get("memory_capacity", np.nan)
    if "memory_capacity" not in given and np.isfinite(capacity):
        origins = resolved.origins.get("memory_capacity", ())
        columns.append(coordinate("memory_capacity", (), np.array(capacity), origins))
    return columns


# Other questions whose answer a user wants beside his own: another batch, a node lost.


@frozen()
class Alternative:
    """The answer to another question."""

    words: str  # What is other
    answer: Answer  # Its answer, with a plan
    rate: float  # Its tokens a second
    faster: float  # The same by those of the first answer, less one; NaN where that has no plan


def _rate(solution: Answer) -> float:
    """Return the tokens a second of an answer's plan; NaN where there is none."""
    if solution.recommended is None:
        return float("nan")
    (detail,) = details([solution.recommended], ("tokens_per_second",))
    return detail["tokens_per_second"]


def _alternative(words: str, first: Answer, point: Point) -> Alternative | None:
    other = _searched(point)
    if other is None:
        return None
    rate = _rate(other)
    return Alternative(words, other, rate, rate / _rate(first) - 1.0)


def _node(solution: Answer) -> float:
    return solution.search.space.resolved.constants.get("gpus_per_node", float("nan"))


def other_batch(first: Answer) -> Alternative | None:
    """Return the answer for a batch nearby that divides among the GPUs or their nodes."""
    batch = batch_for(first.point, _node(first))
    if batch is None:
        return None
    point = first.point.with_constants(global_batch_size=batch)
    return _alternative(f"a batch of {batch:g} sequences", first, point)


# A node lost: a spare takes its place, fewer replicas go on, or another plan for what is left.

# Fewer GPUs are tried until each of them would have to do so much better than any that was seen.
BETTER = 0.1


@frozen()
class Lost:
    """A way to go on when nodes are lost."""

    words: str  # What is done
    plan: Execution  # The plan then
    rate: float  # Its tokens a second
    loss: float  # The share of the whole cluster's rate that is lost, from 0
    fits: bool = True  # Whether the plan's memory suffices


def nodes_lost(
    first: Answer, nodes: int = 1, progress: Callable[[int, int], None] | None = None
) -> tuple[Lost, ...]:
    """Return the ways to go on when nodes are lost, the best first.

    The whole cluster could leave nodes idle as well, so that no way is faster than it.
    """
    node = int(_node(first)) if np.isfinite(_node(first)) else 1
    left = first.point.world_size - nodes * node
    if left < 1 or first.recommended is None:
        return ()
    ways_left = [
        *_fewer_replicas(first.recommended, left),
        *_other_plans(first, left, node, progress),
    ]
    whole = max(_rate(first), *(rate for *_, rate, fits in ways_left if fits), 0.0)
    nearby = other_batch(first)
    if nearby is not None:
        whole = max(whole, nearby.rate)
    ways = [
        Lost(words, plan, rate, 1.0 - rate / whole, fits) for words, plan, rate, fits in ways_left
    ]
    return tuple(sorted(ways, key=lambda way: (not way.fits, way.loss)))


Way = tuple[str, Execution, float, bool]


def _fewer_replicas(plan: Execution, left: int) -> Iterator[Way]:
    """Yield the plan with the data-parallel replicas that are left: the batch kept, and scaled."""
    size = plan["tp"] * plan["cp"] * plan["pp"]
    dp = float(left // size)
    if dp < 1.0 or (plan.routed and (plan["tp"] * plan["cp"] * dp) % (plan["etp"] * plan["ep"])):
        return
    count = plan["num_micro_batches"]
    fewer = {"dp": dp, "world_size": dp * size}
    kept = max(float(np.ceil(plan["global_batch_size"] / (dp * plan["micro_batch_size"]))), 1.0)
    if plan["virtual_pipeline_size"] > 1.0:
        kept = float(np.ceil(kept / plan["pp"])) * plan["pp"]
    batch = dp * plan["micro_batch_size"] * count
    text = f"the plan with dp {dp:g} of {plan['dp']:g}"
    idle = f", {left - dp * size:g} GPUs idle" if left > dp * size else ""
    for words, numbers in (
        (
            f"{text}{idle}, the same batch in up to {kept:g} micro-batches of {count:g}",
            {**fewer, "num_micro_batches": kept},
        ),
        (
            f"{text}{idle}, as many micro-batches: a batch of {batch:g}",
            {**fewer, "global_batch_size": batch},
        ),
    ):
        memory = ("peak_memory", *display.BANDS["peak_memory"])
        (detail,) = details([plan.changed(numbers)], ("tokens_per_second", *memory))
        yield words, detail.plan, detail["tokens_per_second"], detail.fits


def _other_plans(
    first: Answer, left: int, node: int, progress: Callable[[int, int], None] | None
) -> Iterator[Way]:
    """Yield the best plans for what is left, of every smaller number of nodes that may be best."""
    best: dict[bool, Way] = {}  # With the batch kept, and with one nearby that divides
    densest = _rate(first) / first.point.world_size
    counts = range(left, 0, -node)
    for index, count in enumerate(counts):
        most = count * densest * (1.0 + BETTER)
        point = first.point.with_constants(world_size=float(count))
        idle = f", {left - count} idle" if count < left else ""
        batch = batch_for(point, float(node))
        other = point if batch is None else point.with_constants(global_batch_size=batch)
        batches = {False: (point, "the same batch"), True: (other, f"a batch of {batch or 0.0:g}")}
        open_ = [kind for kind in batches if kind not in best or best[kind][2] < most]
        if not open_:
            break
        for kind in open_:
            if kind and batch is None:
                continue
            answer_of_kind = _searched(batches[kind][0])
            if answer_of_kind is not None and answer_of_kind.recommended is not None:
                rate = _rate(answer_of_kind)
                densest = max(densest, rate / count)
                if kind not in best or rate > best[kind][2]:
                    words = f"{count} GPUs{idle}, {batches[kind][1]}"
                    best[kind] = (words, answer_of_kind.recommended, rate, True)
        if progress is not None:
            progress(index + 1, len(counts))
    yield from best.values()


def _searched(point: Point) -> Answer | None:
    """Return the answer to another question; None where no plan can run."""
    try:
        answered = answer(point)
    except InputError:
        return None
    return answered if answered.recommended is not None else None


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
        constants = {name: first[name] for name in first if name not in ("world_size", *lines)}
        figures.append(
            {
                "kind": "scaling",
                "name": "time-over-gpus",
                "x": "world_size",
                "y": "step_time",
                "lines": lines,
                "at": constants,
            }
        )
    if len(several) >= 2:
        x, y = several[:2]
        panels = [name for name in labels if name in COMPARED and sizes[name] <= MOST_PANELS][:1]
        constants = {name: first[name] for name in first if name not in (x, y, *panels)}
        figure = {
            "kind": "best",
            "name": "best-split",
            "x": x,
            "y": y,
            "value": "best_split",
            "over": [],
            "at": constants,
        }
        figures.append({**figure, "panels": panels[0]} if panels else figure)
    return figures


def point_figures(answer: Answer) -> list[dict[str, Any]]:
    """Return declarations of figures of the plans of one point."""
    title = "Step time of the best plan of each layout, and whether it fits"
    if len(answer.search.splits) + len(answer.search.front) < FEWEST_POINTS:
        return []
    # As rows of the table are
    kept = [plan.key for plan in kept_plans(answer, len(answer.search.splits))]
    row = kept.index(answer.search.recommended.key) + 1
    return [{"kind": "best_plans", "plans": [PLAN], "title": title, "answer": row}]


# Whether the recommendation survives each constant that nobody gave.

# At a constant's two points.
POINTS = ("lower", "upper")
NO_ROOM, NO_VALUE = "does not fit", "has no value"


@frozen()
class Rival:
    """The best plan with one constant at another value."""

    plan: Execution | None  # None where none of those kept can run
    lost: float  # What the recommended plan loses to it, as a share; NaN where it can't run itself
    why: str  # Why it can't; empty where it can

    @property
    def survives(self) -> bool:
        """Whether the recommended plan can't be told from the best."""
        return not self.why and self.lost <= tie()


@frozen()
class Survival:
    """What constants move the recommended plan by, and whether another overtakes it."""

    own: Sensitivity  # Of the recommended plan
    rivals: Mapping[tuple[str, str], Rival]  # By constant and point
    kept: int  # Plans that were ranked again

    def columns(self) -> list[Column]:
        """Return what stands in a file beside what constants move."""
        table_columns = []
        for point in POINTS:
            rivals = [self.rivals.get((moved.name, point)) for moved in self.own.moved]
            lost = np.array([np.nan if rival is None else rival.lost for rival in rivals])
            about = {
                "long_name": f"what the recommended plan loses to the best at the {point} "
                "point, as a share",
                "units": "1",
            }
            table_columns.append(Column(f"{point}_loss", ("constant",), lost.dtype, about, lost))
            names = np.array(
                [
                    contender.plan.name if contender and contender.plan else ""
                    for contender in rivals
                ]
            )
            about = {"long_name": f"the best plan with the constant at its {point} point"}
            table_columns.append(Column(f"{point}_best", ("constant",), names.dtype, about, names))
        return table_columns


def survival(answer: Answer) -> Survival:
    """Rank the plans that were kept again, with each constant that wasn't given at x0.9 and x1.1.

    What follows from a constant follows, as if a user gave it.

    They aren't searched again: the best of all, of each split, and of the Pareto front compete.
    """
    searched, point = answer.search, answer.point
    plans = list(
        {
            candidate.key: candidate for candidate in (*searched.best, *kept_plans(answer, 10**9))
        }.values()
    )
    resolved, plan = searched.space.resolved, searched.space.plan
    assert plan is not None
    common = common_of(point)[2]
    model_figures = {name for model in resolved.models for name in model.figures}
    left = {*model_figures, *CHOICES, *point.constants}
    names = [
        name
        for name, value in common.constants.items()
        if name in plan.used() - left
        and name in common.origins
        and is_constant(name)
        and np.isfinite(value)
    ]
    setups = Setups(
        common, names, {}, lambda name, value: common_of(point.with_constants(**{name: value}))[2]
    )
    values, why = _ranked(plans, setups.every, point)
    worst = np.where(why == "", -values if point.objective.more else values, np.inf)
    best = np.argmin(worst, axis=0)
    rivals: dict[tuple[str, str], Rival] = {}
    for (name, at), column in setups.places.items():
        some = bool(np.isfinite(worst[best[column], column]))
        lost = values[0, column] / values[best[column], column]
        lost = 1.0 / lost - 1.0 if point.objective.more else lost - 1.0
        reason = str(why[0, column])
        rival = plans[int(best[column])] if some else None
        lost = np.nan if reason or not some else float(lost)
        rivals[name, POINTS[at]] = Rival(rival, lost, reason)
    answers = np.where(why[0] == "", values[0], np.nan).tolist()
    rows = setups.rows(answers, why[0].tolist())
    named = {row.name for row in rows}
    rivals = {key: rival for key, rival in rivals.items() if key[0] in named}
    asked = {**point.constants, **point.labels}
    models = tuple(model.name for model in resolved.models)
    own_value = Sensitivity(point.objective.quantity, answers[0], rows, asked, models)
    return Survival(own_value, rivals, len(plans))


def _ranked(
    plans: Sequence[Execution], setups: Sequence[Resolved], point: Point
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Return plans' values in each set-up, the first as they are, and why they can't run."""
    values = np.full((len(plans), len(setups)), np.nan)
    why = np.full(values.shape, "", dtype=object)
    of_plans: dict[tuple[object, ...], list[int]] = {}
    for index, plan in enumerate(plans):
        of_plans.setdefault((*sorted(plan.labels.items()), *sorted(plan.given)), []).append(index)
    # What follows from a constant may be numbers that weren't there, and labels.
    changes = [_changed(setups[0], setup) for setup in setups]
    of_setups: dict[tuple[object, ...], list[int]] = {}
    for at, (numbers, labels) in enumerate(changes):
        new = sorted(numbers.keys() - setups[0].constants.keys())
        of_setups.setdefault((*new, *sorted(labels.items())), []).append(at)
    for rows, some in product(of_plans.values(), of_setups.values()):
        given: dict[str, NDArray[np.float64]] = {}
        for name in plans[rows[0]].given:
            values_given = np.array([[plans[row].given[name]] for row in rows])
            given[name] = (
                values_given[:1] if np.all(values_given == values_given[0]) else values_given
            )
        for column, at in enumerate(some):
            for name, value in changes[at][0].items():
                values_given = given.get(name, np.full((1, 1), np.nan))
                if values_given.shape[1] == 1:
                    given[name] = values_given = np.repeat(values_given, len(some), axis=1)
                values_given[:, column] = value
        labels = {**plans[rows[0]].labels, **changes[some[0]][1]}
        here = np.ix_(rows, some)
        values[here], why[here] = _run(Evaluation(given, labels), point, (len(rows), len(some)))
    return values, why


def _changed(base: Resolved, moved: Resolved) -> tuple[dict[str, float], dict[str, str]]:
    """Return the numbers and the labels that a set-up has otherwise than another."""
    known = base.constants
    numbers = {
        name: value
        for name, value in moved.constants.items()
        if not np.array_equal(value, known.get(name, np.inf), equal_nan=True)
    }
    labels = {**base.labels, **base.implied}
    others = {**moved.labels, **moved.implied}
    return numbers, {name: text for name, text in others.items() if labels.get(name) != text}


def _run(
    evaluation: Evaluation, point: Point, shape: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Return what plans are ranked by, and why those that can't run can't."""
    why = np.full(shape, "", dtype=object)
    with np.errstate(all="ignore"):
        values = np.broadcast_to(evaluation[point.objective.quantity], shape)
        for fallen in faults(evaluation):
            text = fallen.requirement.fault.replace("_", " ")
            why = np.where(np.broadcast_to(fallen.where, shape), text, why)
        full = evaluation["peak_memory"] > point.threshold * evaluation["memory_capacity"]
    why = np.where(np.broadcast_to(full, shape), NO_ROOM, why)
    return values, np.where((why == "") & np.isnan(values), NO_VALUE, why)
