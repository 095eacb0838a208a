"""What is nearest where no plan can run, and what would make one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.frozen import frozen
from overhead.labels import LABELS
from overhead.memory.stage import PEAK_PARTS
from overhead.quantity import VOCABULARY
from overhead.step.parts import PARTS
from sweeps import display
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column, Layout, row_numbers
from sweeps.errors import InputError
from sweeps.origin import SPECIFICATION, Origin
from sweeps.search.details import COMMUNICATION, Detail, details
from sweeps.search.request import (
    CHOICES,
    DEGREES,
    NUMBER_CHOICES,
    OVERLAPS,
    SHORT,
    Execution,
    Point,
    Request,
)
from sweeps.search.search import Counts, SearchResult, blocks_of, search
from sweeps.search.space import Space, executions_at, space_of

# How far GPUs are doubled in search of a plan that fits.
DOUBLINGS = 6
# How far a batch may be from what was asked for, to be a proposal.
NEAR = 0.1


@frozen()
class Nearest:
    """The plan that comes nearest to running."""

    # The plan: of those that only memory forbids the one that needs least of it, else one that
    # fails the fewest conditions
    plan: Execution
    reasons: dict[str, str]  # Why it can't run, with what must hold
    memory: bool  # Whether memory alone is in the way


@frozen()
class Remedy:
    """What would make a plan run, and the best plan then."""

    words: str  # What to change
    search: SearchResult  # What is found then


def nearest_plan(space: Space) -> Nearest | None:
    """Return the plan that comes nearest to running."""
    plan, limits = space.plan, space.limits
    if plan is None or limits is None:
        return None
    best: tuple[float, float, int, int] | None = None
    for block in blocks_of(space):
        bits = block.reasons()
        structural = np.bitwise_count(bits & ~limits.of_memory).astype(float)
        memory = np.broadcast_to(block.value("peak_memory"), bits.shape)
        # Fewest conditions that fail, then least memory.
        order = np.lexsort((memory.reshape(-1), structural.reshape(-1)))
        first = int(order[0])
        cell = int(block.places(np.unravel_index(first, bits.shape)))
        flat = bits.reshape(-1)
        candidate = (
            float(structural.reshape(-1)[first]),
            float(memory.reshape(-1)[first]),
            cell,
            int(flat[first]),
        )
        if best is None or candidate[:3] < best[:3]:
            best = candidate
    assert best is not None
    (execution,) = executions_at(space, np.array([best[2]]))
    return Nearest(execution, limits.reasons(best[3]), best[0] == 0.0)


def remedies(point: Point, nearest: Nearest | None) -> Iterator[Remedy]:
    """Yield what would make a plan run, as far as it is found."""
    yield from _lifted(point)
    if nearest is None or not nearest.memory:
        yield from _fitting(point)
        yield from _other_batch(point)
        return
    if point.threshold < 1.0:
        whole = Point(**{**vars(point), "threshold": 1.0})
        yield from _tried("all of the memory instead of a share", whole)
    yield from _more(point)
    yield from _shorter(point)


def _tried(words: str, point: Point) -> Iterator[Remedy]:
    try:
        result = search(space_of(point))
    except InputError:
        return
    if result.best:
        yield Remedy(words, result)


def _lifted(point: Point) -> Iterator[Remedy]:
    """Yield the best plan without one of the user's choices, then without any of degrees."""
    choices = [name for name in CHOICES if name in point.choices]
    for name in choices:
        text = SHORT.get(name, name)
        yield from _tried(f"any {text}", point.with_choices(**{name: None}))
    degrees = [name for name in choices if name in DEGREES]
    if len(degrees) > 1:
        free = point.with_choices(**dict.fromkeys(degrees, None))
        yield from _tried(f"any {', '.join(degrees)}", free)


def _more(point: Point) -> Iterator[Remedy]:
    """Yield the least of some numbers of GPUs on which a plan fits."""
    world = point.world_size
    for doubling in range(1, DOUBLINGS + 1):
        more = world * 2**doubling
        repairs = list(_tried(f"{more:,} GPUs", point.with_constants(world_size=float(more))))
        if repairs:
            yield repairs[0]
            return


def _shorter(point: Point) -> Iterator[Remedy]:
    """Yield half the sequence, at as many tokens of a batch."""
    length = point.constants["sequence_length"]
    if length % 2.0 == 0.0:
        half = {
            "sequence_length": length / 2,
            "global_batch_size": 2 * point.constants["global_batch_size"],
        }
        words = f"sequences of {half['sequence_length']:g} tokens, as many tokens a step"
        yield from _tried(words, point.with_constants(**half))


def filled(world_size: int, gpus_per_node: float) -> tuple[int, ...]:
    """Return the next numbers of GPUs, below and above, that fill nodes or divide one."""
    node = int(gpus_per_node) if np.isfinite(gpus_per_node) else 1

    def fills(number: int) -> bool:
        return number % node == 0 or node % number == 0

    below = next((n for n in range(world_size - 1, 0, -1) if fills(n)), 0)
    above = next(n for n in range(world_size + 1, world_size + node + 1) if fills(n))
    return (*((below,) if below else ()), above)


def _fitting(point: Point) -> Iterator[Remedy]:
    """Yield the next numbers of GPUs that fill nodes, where these don't."""
    space = space_of(point)
    if "nodes_not_filled" not in space.rows.fallen:
        return
    node = space.resolved.constants.get("gpus_per_node", np.nan)
    for number in filled(point.world_size, node):
        idle = point.world_size - number
        rest = f", {idle} idle" if idle > 0 else ""
        yield from _tried(f"{number} GPUs{rest}", point.with_constants(world_size=float(number)))


def batch_for(point: Point, gpus_per_node: float) -> float | None:
    """Return a batch near the one that is asked for, which divides among all ranks or nodes."""
    batch, world = point.constants["global_batch_size"], float(point.world_size)
    node = gpus_per_node if np.isfinite(gpus_per_node) else 1.0
    for unit in dict.fromkeys((world, np.ceil(world / node))):
        if batch % unit == 0.0:
            return None
        near = max(float(np.round(batch / unit)), 1.0) * unit
        if abs(near - batch) <= NEAR * batch:
            return near
    return None


def _other_batch(point: Point) -> Iterator[Remedy]:
    space = space_of(point)
    batch = batch_for(point, space.resolved.constants.get("gpus_per_node", np.nan))
    if batch is not None:
        yield from _tried(f"a batch of {batch:g}", point.with_constants(global_batch_size=batch))


# The best plan at many points, as a table: for files, figures, programs and notebooks.

# What is told of each plan, beside its parts.
MEASURES = display.rows(*display.OF_A_STEP, screen="plan")
CHOSEN = (*DEGREES, *NUMBER_CHOICES, *OVERLAPS)
FLAGGED = ("recompute", "schedule", "context_parallel")


@frozen()
class Best:
    """The best plan at every point of a request."""

    request: Request  # The question
    # The recommended plans, in C order; None where none can run
    plans: tuple[Execution | None, ...]
    counts: tuple[Counts, ...]  # How many plans there are at each point
    capacities: frozenset[float]  # The memories of GPUs that there are
    refused: Mapping[int, tuple[str, ...]]  # Why there is no answer at some points, by their place

    def measured(self) -> list[Detail | None]:
        """Return the plans with what is told of them."""
        plans = self.plans
        plans_found = [plan for plan in plans if plan is not None]
        known = iter(details(plans_found, (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION)))
        return [None if plan is None else next(known) for plan in plans]

    def layout(self, attrs: Mapping[str, str]) -> Layout:
        """Return the table: a dimension an axis of the request, the plan in its variables."""
        shape = self.request.shape
        dims = tuple(axis.name for axis in self.request.axes)
        rows = self.measured()
        columns = [
            *quantities(rows),
            *choice_columns(self.plans),
            flag_column(
                "best_split",
                "degrees that are best",
                [plan.flag if plan else None for plan in self.plans],
            ),
            _counts("plans", "plans that there are", [count.all for count in self.counts]),
            _counts(
                "feasible_plans", "plans that can run", [count.feasible for count in self.counts]
            ),
        ]
        placed = tuple(
            Column(column.name, dims, column.dtype, column.attrs, _shaped(column, shape))
            for column in columns
        )
        sizes = dict(zip(dims, shape, strict=True))
        return Layout(sizes, tuple(self._coordinates()), placed, attrs)

    def _coordinates(self) -> list[Column]:
        coordinates = []
        for axis in self.request.axes:
            for name, values in axis.columns.items():
                coordinates.append(coordinate(name, (axis.name,), values))
            if axis.name not in axis.columns:
                coordinates.append(row_numbers(axis.name, len(axis)))
        varying = {column.name for column in coordinates}
        first = self.request.first
        constant: dict[str, Any] = {**first.constants, **first.labels}
        for name, value in constant.items():
            if name not in varying:
                coordinates.append(coordinate(name, (), np.array(value)))
        coordinates += _memory(self.capacities, varying | set(constant))
        return coordinates


def _memory(capacities: frozenset[float], known: set[str]) -> list[Column]:
    """Give the memory's capacity where it is one number: figures draw it as the limit."""
    if "memory_capacity" in known or len(capacities) != 1:
        return []
    (value,) = capacities
    origins = (Origin(value, SPECIFICATION),)
    return [coordinate("memory_capacity", (), np.array(value), origins)]


def _shaped(column: Column, shape: tuple[int, ...]) -> NDArray[Any]:
    assert column.values is not None
    return column.values.reshape(shape)


def quantities(rows: Sequence[Detail | None]) -> list[Column]:
    """Return what is known of plans, as columns without dimensions yet."""
    names = next((tuple(row.values) for row in rows if row is not None), ())
    columns = []
    for name in names:
        values = [np.nan if row is None else row[name] for row in rows]
        if not np.all(np.isnan(values)):
            columns.append(number_column(name, values))
    return columns


def number_column(name: str, values: Sequence[float]) -> Column:
    """Return a column of a quantity, without dimensions yet."""
    numbers = np.array(values, dtype=np.float64)
    return Column(name, (), numbers.dtype, VOCABULARY[name].attrs(), numbers)


def _counts(name: str, words: str, values: Sequence[float]) -> Column:
    numbers = np.array(values, dtype=np.float64)
    return Column(name, (), numbers.dtype, {"long_name": words, "units": "1"}, numbers)


def choice_columns(plans: Sequence[Execution | None]) -> list[Column]:
    """Return what plans choose, as columns without dimensions yet."""
    some = [plan for plan in plans if plan is not None]
    columns = []
    for name in CHOSEN:
        optional = name in ("etp", *OVERLAPS)
        if some and (not optional or all(name in plan.given for plan in some)):
            values = [np.nan if plan is None else plan[name] for plan in plans]
            columns.append(number_column(name, values))
    for name in FLAGGED:
        labels = [None if plan is None else plan.labels[name] for plan in plans]
        columns.append(flag_column(name, LABELS[name].meaning, labels))
    return columns


def flag_column(name: str, words: str, labels: Sequence[str | None]) -> Column:
    """Return a column of words as flags: 0 where there is none."""
    known = sorted({label for label in labels if label is not None})
    numbers = {label: index for index, label in enumerate(known, 1)}
    values = np.array([0 if label is None else numbers[label] for label in labels], dtype=np.int32)
    attrs: dict[str, Any] = {
        "long_name": words,
        "flag_values": list(range(len(known) + 1)),
        "flag_meanings": " ".join(("none", *known)),
    }
    return Column(name, (), np.dtype(np.int32), attrs, values)


def best_at(request: Request, progress: Callable[[int, int], None] | None = None) -> Best:
    """Search the best plan at every point."""
    plans: list[Execution | None] = []
    counts: list[Counts] = []
    capacities: set[float] = set()
    refused: dict[int, tuple[str, ...]] = {}
    points = list(request.points())
    for index, point in enumerate(points):
        try:
            # The graph and the grid of a point aren't kept.
            result = search(space_of(point))
        except InputError as error:
            refused[index] = error.faults
            plans.append(None)
            counts.append(Counts())
        else:
            plans.append(result.best[0] if result.best else None)
            counts.append(result.counts)
            capacities.add(result.space.resolved.constants.get("memory_capacity", np.nan))
        if progress is not None:
            progress(index + 1, len(points))
    if len(refused) == len(points):
        lines = dict.fromkeys(
            line for lines_of_point in refused.values() for line in lines_of_point
        )
        raise InputError(list(lines))
    known = frozenset(value for value in capacities if np.isfinite(value))
    return Best(request, tuple(plans), tuple(counts), known, refused)
