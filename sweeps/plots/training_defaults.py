"""Figures for a dataset of training steps that declares none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.plots.data import Subject
from sweeps.plots.fill import CAPACITY
from sweeps.plots.kinds import BREAKDOWNS
from sweeps.plots.parts import MEMORY_TOTAL, STEP_TOTAL, known_parts
from sweeps.plots.plans import plan_dims

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["is_of_training", "training_figures"]

_RATE = "tokens_per_second"
_WORLD = "world_size"
_FEWEST_POINTS = 3
_MOST_PANELS = 4
_COMPARED = ("model", "hardware")


def is_of_training(subject: Subject) -> bool:
    """Return whether there is a part or a total of a training step."""
    return any(known_parts(kind, subject.variables) for kind in BREAKDOWNS)


def training_figures(dataset: xr.Dataset, subject: Subject) -> list[dict[str, Any]]:
    """Return declarations of figures that suit a dataset of training steps."""
    figures = [
        _best_plans(dataset, subject),
        *(_breakdown(dataset, subject, kind) for kind in BREAKDOWNS),
        _scaling(dataset, subject),
        *_curves(dataset, subject),
    ]
    return [figure for figure in figures if figure is not None]


def _varying(subject: Subject, names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(dim for name in names for dim in subject.varying(name)))


def _spread(subject: Subject, varying: Sequence[str]) -> list[str]:
    """Return the dimensions that bars or points are for: the plans', else the first one."""
    return plan_dims(varying, subject.dims) or list(varying)[:1]


def _best_plans(dataset: xr.Dataset, subject: Subject) -> dict[str, Any] | None:
    shown = [MEMORY_TOTAL, STEP_TOTAL]
    if not {*shown} <= {*subject.variables}:
        return None
    beside = [CAPACITY] if CAPACITY in (subject.columns or ()) else []
    varying = _varying(subject, [*shown, *beside])
    plans = plan_dims(varying, subject.dims)
    held = _held(dataset, subject, STEP_TOTAL, varying, plans)
    found = dataset[STEP_TOTAL].isel(_places(subject, dataset, held))
    if not plans or int(found.notnull().sum()) < _FEWEST_POINTS:
        return None
    return {"kind": "best_plans", "plans": plans, "at": held}


def _breakdown(dataset: xr.Dataset, subject: Subject, kind: str) -> dict[str, Any] | None:
    parts = known_parts(kind, subject.variables)
    if not parts or (kind == "step_parts" and len(parts) < 2):
        return None
    beside = [CAPACITY] if kind == "memory" and CAPACITY in (subject.columns or ()) else []
    beside += ["mfu"] if kind == "step_parts" and "mfu" in subject.variables else []
    varying = _varying(subject, [*parts, *beside])
    x = _spread(subject, varying)
    left = [dim for dim in varying if dim not in x and subject.labels(dim)]
    panels = [dim for dim in left if subject.size(dim) <= _MOST_PANELS][:1]
    # Where a step time tells which plans run, these are what is worth showing.
    telling = STEP_TOTAL if STEP_TOTAL in subject.variables else parts[0]
    held = _held(dataset, subject, telling, varying, [*x, *panels])
    figure = {"kind": kind, "x": x, "at": held}
    return {**figure, "panels": panels[0]} if panels else figure


def _scaling(dataset: xr.Dataset, subject: Subject) -> dict[str, Any] | None:
    own = _WORLD in dataset.coords and dataset.coords[_WORLD].ndim == 1
    if not own or _RATE not in subject.variables:
        return None
    if len(np.unique(dataset.coords[_WORLD].values)) < _FEWEST_POINTS:
        return None
    (rows,) = (str(dim) for dim in dataset.coords[_WORLD].dims)
    varying = [dim for dim in subject.varying(_RATE) if dim != rows]
    if rows not in subject.varying(_RATE):
        return None
    lines = [dim for dim in _COMPARED if dim in varying]
    best_of = [dim for dim in plan_dims(varying, subject.dims) if dim not in lines]
    held = _held(dataset, subject, _RATE, varying, [*lines, *best_of, rows])
    return {
        "kind": "scaling", "x": _WORLD, "y": _RATE, "lines": lines, "best_of": best_of, "at": held,
    }  # fmt: skip


def _curves(dataset: xr.Dataset, subject: Subject) -> list[dict[str, Any]]:
    """Return the step time of the best plan over each number that isn't a plan's."""
    if STEP_TOTAL not in subject.variables:
        return []
    varying = list(subject.varying(STEP_TOTAL))
    plans = plan_dims(varying, subject.dims)
    others = [dim for dim in varying if dim not in plans and not subject.labels(dim)]
    lines = [dim for dim in _COMPARED if dim in varying]
    figures = []
    for x in others:
        if x == _WORLD or subject.size(x) < _FEWEST_POINTS:
            continue
        held = _held(dataset, subject, STEP_TOTAL, varying, [x, *plans, *lines])
        figures.append(
            {"kind": "curves", "name": f"over-{x.replace('_', '-')}", "x": x, "y": STEP_TOTAL,
             "lines": lines, "best_of": plans, "at": held}
        )  # fmt: skip
    return figures


def _held(
    dataset: xr.Dataset,
    subject: Subject,
    name: str,
    varying: Sequence[str],
    kept: Sequence[str],
) -> dict[str, Any]:
    """Return where each other dimension is held: where most cells have a value."""
    held: dict[str, Any] = {}
    for dim in varying:
        if dim in kept:
            continue
        values = subject.dims[dim]
        place = 0
        if dim in dataset[name].dims:
            left = dataset[name].isel(_places(subject, dataset, held))
            counts = left.notnull().sum([one for one in left.dims if one != dim]).values
            best = np.nonzero(counts == counts.max())[0]
            place = int(best[len(best) // 2])
        held[dim] = place if isinstance(values, int) else values[place]
    return held


def _places(subject: Subject, dataset: xr.Dataset, held: dict[str, Any]) -> dict[str, int]:
    """Return the places of what is held; a table's row is its own."""
    found = {}
    for dim, value in held.items():
        values = subject.dims[dim]
        if dim in dataset.sizes:
            found[dim] = value if isinstance(values, int) else values.index(value)
    return found
