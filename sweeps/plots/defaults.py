"""Figures for a dataset that declares none: what can be shown of it, most telling first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.plots.data import Subject, subject_of
from sweeps.plots.declare import CAPACITY, COMPARED
from sweeps.plots.names import plan_dims
from sweeps.plots.schema import BREAKDOWNS, MEMORY_TOTAL, STEP_TOTAL, column_of_bars, known_parts
from sweeps.store.constants import with_constants

if TYPE_CHECKING:
    import xarray as xr

Declaration = dict[str, Any]

_RATE, _WORLD = "tokens_per_second", "world_size"
_TRAINED = ("model", "hardware")
_FEWEST_POINTS = 3
_MOST_PANELS = {True: 4, False: 12}  # Of training steps, of operations
_MOST_LINES, _MOST_BARS = 12, 24
_USUAL = {"ranks": 64.0, "message_bytes": 16.0 * 2**20}  # held near these, where held
_TIME_PARTS = ("latency_time", "bandwidth_time", "reduction_time")


def default_figures(dataset: xr.Dataset) -> list[Declaration]:
    """Return declarations of figures that suit a dataset."""
    dataset = with_constants(dataset)
    subject = subject_of(dataset)
    if 0 in dataset.sizes.values():
        return []
    if {"lower_change", "upper_change"} <= subject.variables.keys():
        return [{"kind": "tornado"}]
    # Of training steps there is a part or a total.
    if not any(known_parts(kind, subject.variables) for kind in BREAKDOWNS):
        return [*_of_operations(dataset, subject)]
    figures = [*_of_steps(dataset, subject)] or [*_of_operations(dataset, subject)]
    if "time" in subject.variables:
        # An operation beside training steps.
        beside = _of_operations(dataset, subject)
        figures += ({"name": f"operation-{figure['kind']}", **figure} for figure in beside)
    return figures


def main_variable(dataset: xr.Dataset, subject: Subject) -> str | None:
    """Return the variable that figures show: the time, else the first one that varies."""
    candidates = [
        name
        for name in subject.variables
        if dataset[name].dtype.kind == "f" and subject.varying(name)
    ]
    return "time" if "time" in candidates else next(iter(candidates), None)


def _varying(subject: Subject, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(dim for name in names for dim in subject.varying(name)))


def _of_steps(dataset: xr.Dataset, subject: Subject) -> Iterator[Declaration]:
    """Yield what shows training steps: all plans, their parts, GPUs, other numbers."""
    capacity = [CAPACITY] if CAPACITY in (subject.columns or ()) else []
    known = subject.variables.keys()
    if {MEMORY_TOTAL, STEP_TOTAL} <= known:
        varying = _varying(subject, [MEMORY_TOTAL, STEP_TOTAL, *capacity])
        plans = plan_dims(varying, subject.dims)
        at = _held(dataset, subject, STEP_TOTAL, varying, plans, steps=True)
        times = dataset[STEP_TOTAL].isel(_places(subject, dataset, at))
        if plans and int(times.notnull().sum()) >= _FEWEST_POINTS:
            yield {"kind": "best_plans", "plans": plans, "at": at}
    for kind in BREAKDOWNS:
        parts = known_parts(kind, subject.variables)
        if not parts or (kind == "step_parts" and len(parts) < 2):
            continue
        above = column_of_bars(subject.variables) if kind == "step_parts" else None
        beside = [*(capacity if kind == "memory" else ()), *([above] if above else ())]
        varying = _varying(subject, [*parts, *beside])
        x = plan_dims(varying, subject.dims) or varying[:1]
        kept, panels = _panels(subject, varying, x, steps=True)
        # Where a step time tells which plans run, these are what is worth showing.
        telling = STEP_TOTAL if STEP_TOTAL in known else parts[0]
        at = _held(dataset, subject, telling, varying, kept, steps=True)
        yield {"kind": kind, "x": x, "at": at, **panels}
    yield from _lines_of_steps(dataset, subject)


def _lines_of_steps(dataset: xr.Dataset, subject: Subject) -> Iterator[Declaration]:
    """Yield the rate over GPUs, and the step time over each number that isn't a plan's."""
    column = dataset.coords.get(_WORLD)
    wanted: list[tuple[Declaration, str, str]] = []
    if column is not None and column.ndim == 1 and _RATE in subject.variables:
        several = len(np.unique(column.values)) >= _FEWEST_POINTS
        rows = str(column.dims[0])
        if several and rows in subject.varying(_RATE):
            wanted.append(({"kind": "scaling", "x": _WORLD, "y": _RATE}, _RATE, rows))
    varying = subject.varying(STEP_TOTAL) if STEP_TOTAL in subject.variables else ()
    for x in varying:
        other = x in plan_dims(varying, subject.dims) or subject.labels(x) or x == _WORLD
        if not other and subject.size(x) >= _FEWEST_POINTS:
            name = f"over-{x.replace('_', '-')}"
            figure = {"kind": "curves", "name": name, "x": x, "y": STEP_TOTAL}
            wanted.append((figure, STEP_TOTAL, x))
    for figure, name, along in wanted:
        others = [dim for dim in subject.varying(name) if dim != along]
        lines = [dim for dim in _TRAINED if dim in others]
        best_of = [dim for dim in plan_dims(others, subject.dims) if dim not in lines]
        at = _held(dataset, subject, name, others, [*lines, *best_of], steps=True)
        yield {**figure, "lines": lines, "best_of": best_of, "at": at}


def _of_operations(dataset: xr.Dataset, subject: Subject) -> Iterator[Declaration]:
    """Yield figures that suit what isn't of training steps."""
    variable = main_variable(dataset, subject)
    if variable is None:
        return
    pair = ("time", "measured_time")
    if {*pair} <= subject.variables.keys() and "message_bytes" in subject.varying(pair[1]):
        both = _varying(subject, pair)
        kept, panels = _panels(subject, both, ["message_bytes"])
        yield {"kind": "measured", **panels, "at": _held(dataset, subject, "time", both, kept)}
        return
    varying = subject.varying(variable)
    numeric = [dim for dim in varying if dim in dataset.coords and not subject.labels(dim)]
    over = [dim for dim in COMPARED if dim in varying]
    if not numeric:
        if varying:
            yield _bars(dataset, subject, variable, over)
        return
    first = "message_bytes" if "message_bytes" in numeric else max(numeric, key=subject.size)
    if first != "ranks":
        yield _lines(dataset, subject, variable, "curves", first)
    if "ranks" in numeric:
        yield _lines(dataset, subject, variable, "scaling", "ranks")
    if over and {"message_bytes", "ranks"} <= {*numeric}:
        kept, panels = _panels(subject, varying, ["message_bytes", "ranks", *over])
        at = _held(dataset, subject, variable, varying, kept)
        yield {"kind": "best", "value": variable, "over": over, **panels, "at": at}


def _lines(dataset: xr.Dataset, subject: Subject, variable: str, kind: str, x: str) -> Declaration:
    varying = subject.varying(variable)
    lines = [dim for dim in COMPARED if dim in varying]
    if not lines:
        lines = [dim for dim in varying if subject.labels(dim) and dim != "collective"][:1]
    kept, panels = _panels(subject, varying, [x, *lines])
    at = _held(dataset, subject, variable, varying, kept)
    best_of: list[str] = []
    while lines and _filled(dataset, subject, variable, lines, at) > _MOST_LINES:
        best_of = [lines[-1], *best_of]
        lines = lines[:-1]
    figure = {"kind": kind, "x": x, "y": variable, "lines": lines, "best_of": best_of}
    return {**figure, **panels, "at": at}


def _bars(dataset: xr.Dataset, subject: Subject, variable: str, over: Sequence[str]) -> Declaration:
    varying = subject.varying(variable)
    order = [*over, *(dim for dim in varying if dim not in over)]
    x = order[:2]
    if len(x) > 1 and _filled(dataset, subject, variable, x, {}) > _MOST_BARS:
        x = order[:1]
    kept, panels = _panels(subject, varying, x)
    parts = [name for name in _TIME_PARTS if name in subject.variables]
    if variable != "time" or not parts or not _add_up(dataset, parts):
        parts = [variable]
    at = _held(dataset, subject, variable, varying, kept)
    return {"kind": "bars", "parts": parts, "x": x, **panels, "at": at}


def _panels(
    subject: Subject, varying: Sequence[str], used: Sequence[str], *, steps: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Return the dimensions that are spread out, with panels for one more of labels."""
    free = [dim for dim in varying if dim not in used and subject.labels(dim)]
    free = [dim for dim in free if subject.size(dim) <= _MOST_PANELS[steps]]
    free.sort(key=lambda dim: dim != "collective")
    return [*used, *free[:1]], {"panels": free[0]} if free else {}


def _held(
    dataset: xr.Dataset,
    subject: Subject,
    name: str,
    varying: Sequence[str],
    kept: Sequence[str],
    *,
    steps: bool = False,
) -> Declaration:
    """Return where each other dimension is held: in the midst of where most cells have a value.

    Of operations it is at the first name or rank, and at the usual number.
    """
    at: Declaration = {}
    for dim in (other for other in varying if other not in kept):
        values = subject.dims[dim]
        best = np.arange(subject.size(dim))
        if dim in dataset[name].dims:
            there = dataset[name].isel(_places(subject, dataset, at)).notnull()
            counts = there.sum([other for other in there.dims if other != dim]).values
            best = np.flatnonzero(counts == counts.max())
        position = best[len(best) // 2]
        if not steps and (subject.labels(dim) or dim.endswith("_rank")):
            position = 0
        elif not steps and dim in _USUAL:
            away = np.abs(np.log(np.maximum(values, 1e-300)) - np.log(_USUAL[dim]))
            position = np.argmin(away)
        at[dim] = int(position) if isinstance(values, int) else values[int(position)]
    return at


def _places(subject: Subject, dataset: xr.Dataset, at: Declaration) -> dict[str, int]:
    """Return the places of what is held; a table's row is its own."""
    return {
        dim: value if isinstance(values, int) else values.index(value)
        for dim, value in at.items()
        if dim in dataset.sizes
        for values in (subject.dims[dim],)
    }


def _filled(
    dataset: xr.Dataset, subject: Subject, variable: str, dims: Sequence[str], at: Declaration
) -> int:
    """Return how many combinations of labels have a value."""
    values = dataset[variable].isel(_places(subject, dataset, at))
    others = [dim for dim in values.dims if dim not in dims]
    return int(values.notnull().any(others).sum())


def _add_up(dataset: xr.Dataset, parts: Sequence[str]) -> bool:
    """Return whether parts are all of the time: phases that overlap are not."""
    total = sum((dataset[part] for part in parts[1:]), start=dataset[parts[0]])
    whole, both = np.broadcast_arrays(
        dataset["time"].values, total.transpose(*dataset["time"].dims).values
    )
    return bool(np.allclose(whole, both, rtol=1e-6, atol=0, equal_nan=True))
