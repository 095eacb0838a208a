"""The best plan at many points, as a table: for files, figures, programs and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.engine.describe import LABEL_NAMES
from sweeps.engine.layout import Column, Layout
from sweeps.errors import InputError
from sweeps.plans.choices import DEGREES, NUMBER_CHOICES, OVERLAPS
from sweeps.plans.detail import COMMUNICATION, PARTS, PEAK_PARTS, Detail, details
from sweeps.plans.execution import Execution
from sweeps.plans.request import Request
from sweeps.plans.search import Counts, search
from sweeps.plans.space import space_of

__all__ = [
    "MEASURES",
    "Best",
    "best_at",
    "choice_columns",
    "flag_column",
    "given_column",
    "number_column",
]

# What is told of each plan, beside its parts.
MEASURES = (
    "step_time", "peak_memory", "mfu", "tokens_per_second", "tokens_per_second_per_gpu",
    "model_flops_per_gpu", "bubble_fraction", "error_band", "step_energy",
    "cost_per_trillion_tokens", "communication_upper_bound",
)  # fmt: skip
CHOSEN = (*DEGREES, *NUMBER_CHOICES, *OVERLAPS)
FLAGGED = ("recompute", "schedule", "context_parallel")


@dataclass(frozen=True)
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
        found = [plan for plan in plans if plan is not None]
        known = iter(details(found, (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION)))
        return [None if plan is None else next(known) for plan in plans]

    def layout(self, attrs: Mapping[str, str]) -> Layout:
        """Return the table: a dimension an axis of the request, the plan in its variables."""
        shape = self.request.shape
        dims = tuple(axis.name for axis in self.request.axes)
        rows = self.measured()
        columns = [
            *_quantities(rows),
            *choice_columns(self.plans),
            flag_column("best_split", "degrees that are best",
                        [plan.flag if plan else None for plan in self.plans]),
            _counts("plans", "plans that there are", [one.all for one in self.counts]),
            _counts("feasible_plans", "plans that can run", [one.feasible for one in self.counts]),
        ]  # fmt: skip
        placed = tuple(
            Column(one.name, dims, one.dtype, one.attrs, _shaped(one, shape)) for one in columns
        )
        sizes = dict(zip(dims, shape, strict=True))
        return Layout(sizes, tuple(self._coordinates()), placed, attrs)

    def _coordinates(self) -> list[Column]:
        found = []
        for axis in self.request.axes:
            for name, values in axis.columns.items():
                found.append(given_column(name, (axis.name,), values))
            if axis.name not in axis.columns:
                index = np.arange(len(axis), dtype=np.int32)
                about = {"long_name": f"{axis.name} (a row of the table)", "units": "1"}
                found.append(Column(axis.name, (axis.name,), index.dtype, about, index))
        varying = {column.name for column in found}
        first = self.request.first
        constant: dict[str, Any] = {**first.constants, **first.labels}
        for name, value in constant.items():
            if name not in varying:
                found.append(given_column(name, (), np.array(value)))
        found += _memory(self.capacities, varying | set(constant))
        return found


def _memory(capacities: frozenset[float], known: set[str]) -> list[Column]:
    """Give the memory's capacity where it is one number: figures draw it as the limit."""
    if "memory_capacity" in known or len(capacities) != 1:
        return []
    (value,) = capacities
    attrs = {**VOCABULARY["memory_capacity"].attrs(), "origin": "of the machine"}
    return [Column("memory_capacity", (), np.dtype(np.float64), attrs, np.array(value))]


def _shaped(column: Column, shape: tuple[int, ...]) -> NDArray[Any]:
    assert column.values is not None
    return column.values.reshape(shape)


def given_column(name: str, dims: tuple[str, ...], values: NDArray[Any]) -> Column:
    """Return a coordinate of what was given."""
    if values.dtype.kind in "UO":
        text = np.asarray(values, dtype=np.str_)
        about = {"long_name": LABEL_NAMES.get(name, name), "origin": "given"}
        return Column(name, dims, text.dtype, about, text)
    attrs = {**VOCABULARY[name].attrs(), "origin": "given"}
    numbers = np.asarray(values, dtype=np.float64)
    return Column(name, dims, numbers.dtype, attrs, numbers)


def _quantities(rows: Sequence[Detail | None]) -> list[Column]:
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
        own = name in ("etp", *OVERLAPS)
        if some and (not own or all(name in plan.given for plan in some)):
            values = [np.nan if plan is None else plan[name] for plan in plans]
            columns.append(number_column(name, values))
    for name in FLAGGED:
        labels = [None if plan is None else plan.labels[name] for plan in plans]
        columns.append(flag_column(name, LABEL_NAMES[name], labels))
    return columns


def flag_column(name: str, words: str, labels: Sequence[str | None]) -> Column:
    """Return a column of words as flags: 0 where there is none."""
    known = sorted({label for label in labels if label is not None})
    numbers = {label: place for place, label in enumerate(known, 1)}
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
    for place, point in enumerate(points):
        try:
            # The graph and the grid of a point aren't kept.
            found = search(space_of(point))
        except InputError as error:
            refused[place] = error.faults
            plans.append(None)
            counts.append(Counts())
        else:
            plans.append(found.best[0] if found.best else None)
            counts.append(found.counts)
            capacities.add(found.space.resolved.constants.get("memory_capacity", np.nan))
        if progress is not None:
            progress(place + 1, len(points))
    if len(refused) == len(points):
        lines = dict.fromkeys(line for own in refused.values() for line in own)
        raise InputError(list(lines))
    known = frozenset(value for value in capacities if np.isfinite(value))
    return Best(request, tuple(plans), tuple(counts), known, refused)
