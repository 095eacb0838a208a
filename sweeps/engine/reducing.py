"""All reductions of a sweep together: made, fed with a plan's blocks, and turned into columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sweeps.engine.evaluate import Limits
from sweeps.engine.layout import Column, Layout
from sweeps.engine.plan import Plan
from sweeps.engine.reduce import Reducer, reducer
from sweeps.engine.steps import Steps
from sweeps.errors import InputError, fault
from sweeps.spec.reductions import Reduction, beside

__all__ = ["feed", "reduced_columns", "reducers_of"]


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
