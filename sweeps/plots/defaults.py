"""Figures for a dataset that declares none: what can be shown of it, most telling first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.plots.data import Subject, subject_of
from sweeps.plots.training_defaults import is_of_training, training_figures

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["default_figures"]

_ALTERNATIVES = ("topology", "algorithm")  # what is compared, where it varies
_USUAL = {"ranks": 64.0, "message_bytes": 16.0 * 2**20}  # held near these, where held
_MOST_LINES = 12
_MOST_PANELS = 12
_MOST_BARS = 24
_TIME_PARTS = ("latency_time", "bandwidth_time", "reduction_time")


def default_figures(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return declarations of figures that suit a dataset."""
    subject = subject_of(dataset)
    if is_of_training(subject):
        return training_figures(dataset, subject)
    variable = _main_variable(dataset, subject)
    if variable is None:
        return []
    if "measured_time" in subject.variables and "message_bytes" in subject.varying("measured_time"):
        return [_measured(subject)]
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
        figures.append({**figure, "at": _held(subject, varying, kept)})
    return figures


def _main_variable(dataset: xr.Dataset, subject: Subject) -> str | None:
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
    held = _held(subject, varying, kept)
    best_of: list[str] = []
    while lines and _filled(dataset, subject, variable, lines, held) > _MOST_LINES:
        best_of = [lines[-1], *best_of]
        lines = lines[:-1]
    figure = {"kind": kind, "x": x, "y": variable, "lines": lines, "best_of": best_of}
    return {**figure, **panels, "at": held}


def _filled(
    dataset: xr.Dataset,
    subject: Subject,
    variable: str,
    dims: Sequence[str],
    held: dict[str, Any],
) -> int:
    """Return how many combinations of labels have a value."""
    places = {}
    for dim, value in held.items():
        known = subject.dims[dim]
        places[dim] = value if isinstance(known, int) else known.index(value)
    values = dataset[variable].isel({d: k for d, k in places.items() if d in dataset.sizes})
    others = [dim for dim in values.dims if dim not in dims]
    return int(values.notnull().any(others).sum())


def _panels(
    subject: Subject, varying: Sequence[str], used: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the dimensions that are spread out, with panels for one more of labels."""
    free = [dim for dim in varying if dim not in used and subject.labels(dim)]
    free = [dim for dim in free if subject.size(dim) <= _MOST_PANELS]
    free.sort(key=lambda dim: dim != "collective")
    if not free:
        return list(used), {}
    return [*used, free[0]], {"panels": free[0]}


def _held(subject: Subject, varying: Sequence[str], kept: Sequence[str]) -> dict[str, Any]:
    """Return the value at which each other dimension is held."""
    held: dict[str, Any] = {}
    for dim in varying:
        if dim in kept:
            continue
        values = subject.dims[dim]
        if isinstance(values, int):
            held[dim] = 0
        elif subject.labels(dim):
            held[dim] = values[0]
        elif dim in _USUAL:
            away = np.abs(np.log(np.maximum(values, 1e-300)) - np.log(_USUAL[dim]))
            held[dim] = values[int(np.argmin(away))]
        else:
            held[dim] = values[len(values) // 2]
    return held


def _measured(subject: Subject) -> dict[str, Any]:
    varying = dict.fromkeys([*subject.varying("time"), *subject.varying("measured_time")])
    kept, panels = _panels(subject, list(varying), ["message_bytes"])
    return {"kind": "measured", **panels, "at": _held(subject, list(varying), kept)}


def _bars(dataset: xr.Dataset, subject: Subject, variable: str) -> dict[str, Any]:
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
        "kind": "bars", "parts": parts, "x": x, **panels, "at": _held(subject, varying, kept),
    }  # fmt: skip


def _add_up(dataset: xr.Dataset, parts: Sequence[str]) -> bool:
    """Return whether parts are all of the time: phases that overlap are not."""
    total = sum((dataset[part] for part in parts[1:]), start=dataset[parts[0]])
    whole, both = np.broadcast_arrays(
        dataset["time"].values, total.transpose(*dataset["time"].dims).values
    )
    return bool(np.allclose(whole, both, rtol=1e-6, atol=0, equal_nan=True))
