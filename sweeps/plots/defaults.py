"""Figures for a dataset that declares none: what can be shown of it, most telling first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.plots.data import Subject, plan_dims, subject_of
from sweeps.plots.declare import CAPACITY
from sweeps.plots.schema import BREAKDOWNS, MEMORY_TOTAL, STEP_TOTAL, column_of_bars, known_parts
from sweeps.store.constants import with_constants

if TYPE_CHECKING:
    import xarray as xr

# Figures for a dataset of training steps that declares none.

_RATE = "tokens_per_second"
_WORLD = "world_size"
_FEWEST_POINTS = 3
_MOST_PANELS = 4
_COMPARED = ("model", "hardware")


def training_figures(dataset: xr.Dataset, subject: Subject) -> list[dict[str, object]]:
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


def _best_plans(dataset: xr.Dataset, subject: Subject) -> dict[str, object] | None:
    shown = [MEMORY_TOTAL, STEP_TOTAL]
    if not {*shown} <= {*subject.variables}:
        return None
    more = [CAPACITY] if CAPACITY in (subject.columns or ()) else []
    varying = _varying(subject, [*shown, *more])
    plans = plan_dims(varying, subject.dims)
    selection = _selection(dataset, subject, STEP_TOTAL, varying, plans)
    times = dataset[STEP_TOTAL].isel(_places(subject, dataset, selection))
    if not plans or int(times.notnull().sum()) < _FEWEST_POINTS:
        return None
    return {"kind": "best_plans", "plans": plans, "at": selection}


def _breakdown(dataset: xr.Dataset, subject: Subject, kind: str) -> dict[str, Any] | None:
    parts = known_parts(kind, subject.variables)
    if not parts or (kind == "step_parts" and len(parts) < 2):
        return None
    more = [CAPACITY] if kind == "memory" and CAPACITY in (subject.columns or ()) else []
    above = column_of_bars(subject.variables) if kind == "step_parts" else None
    more += [above] if above else []
    varying = _varying(subject, [*parts, *more])
    x = plan_dims(varying, subject.dims) or varying[:1]
    left = [dim for dim in varying if dim not in x and subject.labels(dim)]
    panels = [dim for dim in left if subject.size(dim) <= _MOST_PANELS][:1]
    # Where a step time tells which plans run, these are what is worth showing.
    telling = STEP_TOTAL if STEP_TOTAL in subject.variables else parts[0]
    selection = _selection(dataset, subject, telling, varying, [*x, *panels])
    figure = {"kind": kind, "x": x, "at": selection}
    return {**figure, "panels": panels[0]} if panels else figure


def _scaling(dataset: xr.Dataset, subject: Subject) -> dict[str, object] | None:
    has_world = _WORLD in dataset.coords and dataset.coords[_WORLD].ndim == 1
    if not has_world or _RATE not in subject.variables:
        return None
    if len(np.unique(dataset.coords[_WORLD].values)) < _FEWEST_POINTS:
        return None
    (rows,) = (str(dim) for dim in dataset.coords[_WORLD].dims)
    varying = [dim for dim in subject.varying(_RATE) if dim != rows]
    if rows not in subject.varying(_RATE):
        return None
    lines = [dim for dim in _COMPARED if dim in varying]
    best_of = [dim for dim in plan_dims(varying, subject.dims) if dim not in lines]
    selection = _selection(dataset, subject, _RATE, varying, [*lines, *best_of, rows])
    return {
        "kind": "scaling",
        "x": _WORLD,
        "y": _RATE,
        "lines": lines,
        "best_of": best_of,
        "at": selection,
    }


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
        selection = _selection(dataset, subject, STEP_TOTAL, varying, [x, *plans, *lines])
        figures.append(
            {
                "kind": "curves",
                "name": f"over-{x.replace('_', '-')}",
                "x": x,
                "y": STEP_TOTAL,
                "lines": lines,
                "best_of": plans,
                "at": selection,
            }
        )
    return figures


def _selection(
    dataset: xr.Dataset, subject: Subject, name: str, varying: Sequence[str], kept: Sequence[str]
) -> dict[str, object]:
    """Return where each other dimension is held: where most cells have a value."""
    selection: dict[str, object] = {}
    for dim in varying:
        if dim in kept:
            continue
        values = subject.dims[dim]
        position = 0
        if dim in dataset[name].dims:
            left = dataset[name].isel(_places(subject, dataset, selection))
            counts = (
                left.notnull()
                .sum([dimension for dimension in left.dims if dimension != dim])
                .values
            )
            best = np.nonzero(counts == counts.max())[0]
            position = int(best[len(best) // 2])
        selection[dim] = position if isinstance(values, int) else values[position]
    return selection


def _places(subject: Subject, dataset: xr.Dataset, selection: dict[str, Any]) -> dict[str, int]:
    """Return the places of what is held; a table's row is its own."""
    indices = {}
    for dim, value in selection.items():
        values = subject.dims[dim]
        if dim in dataset.sizes:
            indices[dim] = value if isinstance(values, int) else values.index(value)
    return indices


_ALTERNATIVES = ("topology", "algorithm")  # what is compared, where it varies
_USUAL = {"ranks": 64.0, "message_bytes": 16.0 * 2**20}  # held near these, where held
_MOST_LINES = 12
_DEFAULTS_MOST_PANELS = 12
_MOST_BARS = 24
_TIME_PARTS = ("latency_time", "bandwidth_time", "reduction_time")


def default_figures(dataset: xr.Dataset) -> list[dict[str, object]]:
    """Return declarations of figures that suit a dataset."""
    dataset = with_constants(dataset)
    subject = subject_of(dataset)
    if {"lower_change", "upper_change"} <= subject.variables.keys():
        return [{"kind": "tornado"}]
    # Of training steps there is a part or a total.
    if not any(known_parts(kind, subject.variables) for kind in BREAKDOWNS):
        return _figures(dataset, subject)
    figures = training_figures(dataset, subject)
    if "time" in subject.variables:
        # An operation beside training steps.
        figures += (
            {"name": f"operation-{figure['kind']}", **figure}
            for figure in _figures(dataset, subject)
        )
    return figures


def _figures(dataset: xr.Dataset, subject: Subject) -> list[dict[str, object]]:
    """Return figures that suit what isn't of training steps."""
    variable = main_variable(dataset, subject)
    if variable is None:
        return []
    measured = {"time", "measured_time"} <= {*subject.variables}
    if measured and "message_bytes" in subject.varying("measured_time"):
        both = list(dict.fromkeys([*subject.varying("time"), *subject.varying("measured_time")]))
        kept, panels = _panels(subject, both, ["message_bytes"])
        return [{"kind": "measured", **panels, "at": _usual_selection(subject, both, kept)}]
    varying = subject.varying(variable)
    numeric = [dim for dim in varying if dim in dataset.coords and not subject.labels(dim)]
    if not numeric:
        return [_bars(dataset, subject, variable)] if varying else []
    figures = []
    first = "message_bytes" if "message_bytes" in numeric else max(numeric, key=subject.size)
    if first != "ranks":
        figures.append(_lines(dataset, subject, variable, "curves", first))
    if "ranks" in numeric:
        figures.append(_lines(dataset, subject, variable, "scaling", "ranks"))
    over = [dim for dim in _ALTERNATIVES if dim in varying]
    if over and {"message_bytes", "ranks"} <= set(numeric):
        kept, panels = _panels(subject, varying, ["message_bytes", "ranks", *over])
        figure = {"kind": "best", "value": variable, "over": over, **panels}
        figures.append({**figure, "at": _usual_selection(subject, varying, kept)})
    return figures


def main_variable(dataset: xr.Dataset, subject: Subject) -> str | None:
    """Return the variable that figures show: the time, else the first one that varies."""
    candidates = [
        name
        for name in subject.variables
        if dataset[name].dtype.kind == "f" and subject.varying(name)
    ]
    return "time" if "time" in candidates else next(iter(candidates), None)


def _lines(
    dataset: xr.Dataset, subject: Subject, variable: str, kind: str, x: str
) -> dict[str, Any]:
    varying = subject.varying(variable)
    lines = [dim for dim in _ALTERNATIVES if dim in varying]
    if not lines:
        lines = [dim for dim in varying if subject.labels(dim) and dim != "collective"][:1]
    kept, panels = _panels(subject, varying, [x, *lines])
    selection = _usual_selection(subject, varying, kept)
    best_of: list[str] = []
    while lines and _filled(dataset, subject, variable, lines, selection) > _MOST_LINES:
        best_of = [lines[-1], *best_of]
        lines = lines[:-1]
    figure = {"kind": kind, "x": x, "y": variable, "lines": lines, "best_of": best_of}
    return {**figure, **panels, "at": selection}


def _filled(
    dataset: xr.Dataset,
    subject: Subject,
    variable: str,
    dims: Sequence[str],
    selection: dict[str, object],
) -> int:
    """Return how many combinations of labels have a value."""
    values = dataset[variable].isel(_places(subject, dataset, selection))
    others = [dim for dim in values.dims if dim not in dims]
    return int(values.notnull().any(others).sum())


def _panels(
    subject: Subject, varying: Sequence[str], used: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the dimensions that are spread out, with panels for one more of labels."""
    free = [dim for dim in varying if dim not in used and subject.labels(dim)]
    free = [dim for dim in free if subject.size(dim) <= _DEFAULTS_MOST_PANELS]
    free.sort(key=lambda dim: dim != "collective")
    if not free:
        return list(used), {}
    return [*used, free[0]], {"panels": free[0]}


def _usual_selection(
    subject: Subject, varying: Sequence[str], kept: Sequence[str]
) -> dict[str, object]:
    """Return the value at which each other dimension is held."""
    selection: dict[str, object] = {}
    for dim in varying:
        if dim in kept:
            continue
        values = subject.dims[dim]
        if isinstance(values, int):
            selection[dim] = 0
        elif subject.labels(dim) or dim.endswith("_rank"):
            # Of the best ones the first.
            selection[dim] = values[0]
        elif dim in _USUAL:
            away = np.abs(np.log(np.maximum(values, 1e-300)) - np.log(_USUAL[dim]))
            selection[dim] = values[int(np.argmin(away))]
        else:
            selection[dim] = values[len(values) // 2]
    return selection


def _bars(dataset: xr.Dataset, subject: Subject, variable: str) -> dict[str, object]:
    varying = subject.varying(variable)
    order = [dim for dim in _ALTERNATIVES if dim in varying]
    order += [dim for dim in varying if dim not in order]
    x = order[:2]
    if len(x) > 1 and _filled(dataset, subject, variable, x, {}) > _MOST_BARS:
        x = order[:1]
    kept, panels = _panels(subject, varying, x)
    parts = [name for name in _TIME_PARTS if name in subject.variables]
    if variable != "time" or not parts or not _add_up(dataset, parts):
        parts = [variable]
    return {
        "kind": "bars",
        "parts": parts,
        "x": x,
        **panels,
        "at": _usual_selection(subject, varying, kept),
    }


def _add_up(dataset: xr.Dataset, parts: Sequence[str]) -> bool:
    """Return whether parts are all of the time: phases that overlap are not."""
    total = sum((dataset[part] for part in parts[1:]), start=dataset[parts[0]])
    whole, both = np.broadcast_arrays(
        dataset["time"].values, total.transpose(*dataset["time"].dims).values
    )
    return bool(np.allclose(whole, both, rtol=1e-6, atol=0, equal_nan=True))
