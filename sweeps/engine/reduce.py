"""Reductions of a variable along named dimensions, while its blocks stream by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.engine.case import Column, Layout
from sweeps.engine.describe import Steps
from sweeps.engine.evaluate import Limits
from sweeps.engine.plan import Plan
from sweeps.engine.reduce_base import Reducer, Split, Task, split
from sweeps.engine.reduce_pareto import Pareto
from sweeps.engine.reduce_plain import Extremes, Mean
from sweeps.engine.reduce_quantile import MOST_BINNED, Histogram, Quantile, is_exact
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.sweep import REDUCTIONS, Reduction, beside

KINDS: Mapping[str, type[Reducer]] = {
    "min": Extremes,
    "max": Extremes,
    "top": Extremes,
    "mean": Mean,
    "quantile": Quantile,
    "histogram": Histogram,
    "pareto": Pareto,
}


def reducer(
    reduction: Reduction,
    variable_dims: Sequence[str],
    sizes: Mapping[str, int],
    labels: Mapping[str, Column | Sequence[str] | NDArray[Any] | None],
) -> Reducer:
    """Make a reducer for a variable."""
    task = task_of(reduction, variable_dims, sizes, labels)
    return KINDS[reduction.operation](task)


def part(task: Task, where: Sequence[slice]) -> Reducer:
    """Make a reducer of a part of a task's results, to be merged into the whole one."""
    own = replace(task, split=task.split.within(where), whole=task.split)
    return KINDS[task.reduction.operation](own)


def task_of(
    reduction: Reduction,
    variable_dims: Sequence[str],
    sizes: Mapping[str, int],
    labels: Mapping[str, Column | Sequence[str] | NDArray[Any] | None],
) -> Task:
    """Return what a reducer is to do, as `reducer` takes it."""
    faults = _faults(reduction, sizes)
    parts = split(variable_dims, sizes, reduction.over)
    if not faults:
        faults = _too_large(reduction, parts)
    if faults:
        raise InputError(faults)
    return Task(
        reduction,
        parts,
        {
            dim: _coordinate(dim, given)
            for dim in parts.reduced_dims
            if (given := labels.get(dim)) is not None
        },
        tuple(dim for dim in reduction.over if dim not in parts.reduced_dims),
    )


def _coordinate(dim: str, given: Column | Sequence[str] | NDArray[Any]) -> Column:
    if isinstance(given, Column):
        return given
    values = np.asarray(given)
    text = values.dtype.kind in "UOST"
    attrs: dict[str, str] = {} if text else {"units": "1"}
    if not text and dim in VOCABULARY:
        attrs = VOCABULARY[dim].attrs()
    return Column(dim, (dim,), values.dtype, attrs, values)


def _faults(reduction: Reduction, sizes: Mapping[str, int]) -> list[str]:
    operation = reduction.operation
    faults = []
    if operation not in KINDS:
        offer = nearest(operation, REDUCTIONS)
        faults.append(fault("reductions.operation", operation, "unknown", offer))
    faults += [
        fault("reductions.over", dim, "not an axis", nearest(dim, sizes))
        for dim in reduction.over
        if dim not in sizes
    ]
    if operation == "top" and reduction.count < 1:
        faults.append(fault("reductions.count", reduction.count, "nothing to find", "1 or more"))
    if operation == "quantile":
        if not reduction.quantiles:
            faults.append(fault("reductions.quantiles", "[]", "empty", "numbers from 0 to 1"))
        faults += [
            fault("reductions.quantiles", q, "no quantile", "numbers from 0 to 1")
            for q in reduction.quantiles
            if not 0.0 <= q <= 1.0
        ]
    return faults


def _too_large(reduction: Reduction, parts: Split) -> list[str]:
    binned = reduction.operation == "histogram" or (
        reduction.operation == "quantile" and not is_exact(parts)
    )
    if not binned or parts.kept_cells <= MOST_BINNED:
        return []
    wrong = f"{reduction.name} has {parts.kept_cells} cells, and counts in bins for each"
    allowed = f"at most {MOST_BINNED}: reduce over more dimensions"
    return [fault("reductions.over", ", ".join(reduction.over), wrong, allowed)]


# All reductions of a sweep together: made, fed with a plan's blocks, and turned into columns.


def reducers_of(plan: Plan, reductions: Sequence[Reduction], layout: Layout) -> list[Reducer]:
    """Return an empty reducer for each reduction, in their order."""
    dims = {variable.name: variable.dims for variable in plan.variables}
    labels = {column.name: column for column in layout.coordinates}
    faults = [
        fault(
            "reductions.against",
            one.against,
            f"varies along {', '.join(more)}, and {one.quantity} doesn't",
            "the two the other way round, or another one",
        )
        for one in reductions
        if one.against and (more := [d for d in dims[one.against] if d not in dims[one.quantity]])
    ]
    if faults:
        raise InputError(faults)
    return [reducer(one, dims[one.quantity], plan.grid.sizes, labels) for one in reductions]


def feed(
    plan: Plan,
    reducers: Sequence[Reducer],
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compute what is reduced, and reduce it."""
    by_quantity: dict[str, list[Reducer]] = {}
    for made in reducers:
        by_quantity.setdefault(made.task.reduction.quantity, []).append(made)
    shapes = (plan.shape(variable) for variable in plan.variables if variable.name in by_quantity)
    total, done = sum(map(math.prod, shapes)), 0
    pairs = beside([made.task.reduction for made in reducers])
    steps = Steps(plan, tuple(by_quantity), limits, pairs)
    for block in steps.run(0, len(steps)):
        for made in by_quantity[block.name]:
            made.update(block.region, block.values, block.beside)
        done += block.values.size
        if progress is not None:
            progress(done, total)


def reduced_columns(reducers: Sequence[Reducer], layout: Layout) -> list[Column]:
    """Return the reductions' results."""
    described = {column.name: column for column in layout.variables}
    columns: list[Column] = []
    for made in reducers:
        attrs = dict(described[made.task.reduction.quantity].attrs)
        attrs.pop("ancillary_variables", None)
        columns += made.columns(attrs)
    return columns
