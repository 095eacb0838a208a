"""Lines compared: percentages of a baseline, ideal scaling, the best rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, refuse
from sweeps.plots.data import View, entries, find, said
from sweeps.plots.schema import Figure
from sweeps.plots.style import plain, scale_of

_ROOM = 0.15  # of the range of percentages, free at either end


def by_column(view: View, x: str, y: str, *, more: bool) -> tuple[View, str]:
    """Return a view in which a table's column is a dimension, with the best of its rows."""
    whole = view.dataset
    if x in whole.sizes or x not in whole.coords or whole.coords[x].ndim != 1:
        return view, ""
    dim = str(whole.coords[x].dims[0])
    values, group = np.unique(np.asarray(whole.coords[x].values, np.float64), return_inverse=True)
    dims = [str(dimension) for dimension in whole[y].dims if dimension != dim]
    order = np.argsort(group, kind="stable")
    rows = view.numbers(y, [dim, *dims])[order]
    starts = np.searchsorted(group[order], np.arange(len(values)))
    best = (np.fmax if more else np.fmin).reduceat(rows, starts, axis=0)
    kept = whole.drop_vars(
        [name for name, variable in whole.variables.items() if dim in variable.dims]
    )
    kept = kept.drop_vars(list(kept.data_vars))
    kept = kept.assign_coords({x: ((x,), values, whole.coords[x].attrs)})
    return View(kept.assign({y: ((x, *dims), best, whole[y].attrs)}), view.chosen), dim


def in_percent(
    figure: Figure, view: View, values: NDArray[np.float64], dims: Sequence[str]
) -> NDArray[np.float64]:
    """Return values in percent of those at the figure's baseline."""
    base = values
    for dim, wanted in figure["relative_to"].items():
        if dim not in dims:  # held at one value
            continue
        known = entries(view.dataset, dim)
        position = find(wanted, known)
        if position is None:
            where, wrong = f"{figure.where}.relative_to.{dim}", "not among what is shown"
            refuse(where, wanted, wrong, "name it in at as well")
        base = np.take(base, [position], axis=list(dims).index(dim))
    if not np.any(np.isfinite(base) & (base != 0)):
        where = f"{figure.where}.relative_to: nothing has a value at {baseline_words(figure, view)}"
        message = f"{where}; another baseline"
        raise InputError(message)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(100.0 * values / np.where(base == 0, np.nan, base))


def _entry(view: View, dim: str, wanted: Any) -> str:
    """Return an entry as ``name = value``, as the axis shows it."""
    units = view.units(dim)
    known = entries(view.dataset, dim)
    position = find(wanted, known)
    if position is not None and isinstance(known, int):
        return view.labels(dim)[position]  # A row is known by what it has, not by its number
    if position is None or isinstance(known, int) or isinstance(known[position], str):
        return said(dim, str(wanted))
    return said(dim, scale_of(units).given(float(known[position])))


def baseline_words(figure: Figure, view: View) -> str:
    """Return the baseline in words; empty where there is none."""
    wanted = figure["relative_to"] or {}
    return ", ".join(_entry(view, dim, value) for dim, value in wanted.items())


def percent_attrs(figure: Figure, view: View) -> dict[str, object]:
    """Return the metadata of what is shown: of percentages, where there is a baseline."""
    attrs = dict(view.attrs(figure["y"]))
    if figure["relative_to"] is None:
        return attrs
    return {"long_name": f"{plain(figure['y'])} by the baseline's", "units": "%"}


def percent_ends(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of an axis of percentages: around 100, not from zero on."""
    shown = values[np.isfinite(values)]
    low, high = float(shown.min(initial=100.0)), float(shown.max(initial=100.0))
    room = max(_ROOM * (high - low), 1.0)
    return max(low - room, 0.0), high + room


def ideal_of(
    figure: Figure, units: str, x: NDArray[np.float64], curves: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what lines would be if they grew like `x` from their first points on."""
    if "s-1" not in units.split():
        wrong = f"'{figure['y']}' has the unit {units}; a rate such as tokens_per_second"
        message = f"{figure.where}.ideal = true: {wrong}"
        raise InputError(message)
    there = np.isfinite(curves)
    first = np.argmax(there, axis=-1)[..., None]
    start = np.take_along_axis(curves, first, axis=-1)
    grown = start * x / x[first]
    return np.where((np.arange(len(x)) >= first) & there.any(axis=-1, keepdims=True), grown, np.nan)
