"""A declared figure as text: its values as a table, what its choices change, the best cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.bands import MEMORY_LIMIT, TIE, change_by, percent, tie
from sweeps.display import rows
from sweeps.errors import nearest, refuse
from sweeps.plots.axis import better_of
from sweeps.plots.data import View, entries, find, view_of
from sweeps.plots.names import cell_names
from sweeps.plots.relative import baseline_words, in_percent
from sweeps.plots.schema import Figure
from sweeps.plots.style import long_name, plain, scale_of
from sweeps.store.constants import with_constants

if TYPE_CHECKING:
    import xarray as xr
from sweeps.plots.draw import resolved, shown_by

_NO_CHANGE = 0.05  # percent
_OF_STEPS = frozenset(rows("step", "rates", "cost", screen="usual"))


def tabulate(
    dataset: xr.Dataset, figure: Figure | Mapping[str, Any]
) -> tuple[str, int, list[list[str]], list[str]]:
    """Return lines or a map as a table: title, number of columns of names, rows, why some lack."""
    figure = resolved(dataset, figure)
    if figure.kind == "best":
        from sweeps.plots.best import table_of
    else:
        from sweeps.plots.line_tables import table_of
    view = shown_by(dataset, figure)
    title, names, rows, gaps = table_of(figure, view)
    fixed = ", ".join(view.phrase(dim) for dim in figure["at"] if dim in view.fixed)
    return f"{title} ({fixed})" if fixed else title, names, rows, gaps


def effects(dataset: xr.Dataset, figure: Figure | Mapping[str, Any]) -> Iterator[str]:
    """Yield what a figure's table says: what each entry changes beside its baseline, or wins."""
    figure = resolved(dataset, figure)
    base = figure.options.get("relative_to")
    view = shown_by(dataset, figure)
    if not base:
        if figure.kind == "best":
            from sweeps.plots.best import findings
        else:
            from sweeps.plots.line_tables import findings
        yield from findings(figure, view)
        return
    dims = [dim for dim in (figure["panels"], *figure["lines"], figure["x"]) if view.has(dim or "")]
    over = [dim for dim in figure["best_of"] if view.has(dim)]
    if set(view.dataset[figure["y"]].dims) - {*dims, *over}:
        return
    more = better_of(figure["better"], view.units(figure["y"]), figure["y"])
    best = np.fmax if more else np.fmin
    values = best.reduce(view.numbers(figure["y"], [*over, *dims]), axis=tuple(range(len(over))))
    values = in_percent(figure, view, values, dims) - 100.0
    entry_of = {dim: find(base[dim], entries(view.dataset, dim)) for dim in dims if dim in base}
    usuals = {dim: position for dim, position in entry_of.items() if position is not None}
    if {*dims} - {*usuals} == {figure["x"]}:
        yield _baseline(figure, view, over, usuals)
    for dim, usual in usuals.items():
        kept = values
        for index, other in enumerate(dims):
            if other in usuals and other != dim:
                kept = np.take(kept, [usuals[other]], axis=index)
        free = [(position, view.labels(d)) for position, d in enumerate(dims) if d not in base]
        names, still = view.labels(dim, bare=True), False
        for entry in (other_entry for other_entry in range(len(names)) if other_entry != usual):
            changes = np.take(kept, [entry], axis=dims.index(dim))
            if np.isnan(changes).all():
                continue
            still = still or min(np.abs([np.nanmin(changes), np.nanmax(changes)])) < _NO_CHANGE
            words = _changes_words(changes, free, figure["y"])
            yield f"{plain(dim)} {names[entry]} rather than {names[usual]}: {words}"
        if still and dim == "oversubscription":
            yield from _why_uplinks_suffice(view)


def _changes_words(
    changes: NDArray[np.float64], free: Sequence[tuple[int, Sequence[str]]], quantity: str
) -> str:
    """Return the least and the largest of changes [%], each with the entries that have it.

    Of a step's time a tie where published runs don't tell the two apart.
    """
    ends, words = [], []
    for which in (np.nanargmin, np.nanargmax):
        where = np.unravel_index(which(changes), changes.shape)
        change = float(changes[where])
        tied = quantity.endswith("step_time") and abs(change) <= 100.0 * tie()
        word = "0 %" if abs(change) < _NO_CHANGE else TIE if tied else change_by(change / 100.0)
        whose = ", ".join(labels[int(where[position])] for position, labels in free)
        words.append(word)
        ends.append(f"{word} ({whose})" if whose else word)
    if {*words} == {"0 %", TIE}:
        return TIE
    return words[0] if words[0] == words[1] else " to ".join(ends)


def _why_uplinks_suffice(view: View) -> Iterator[str]:
    """Yield why an oversubscription changes nothing, where a step's rings meet none of it."""
    known = ("nodes_per_leaf", "gpus_per_node", "world_size")
    fixed = {name: view.dataset.variables.get(name) for name in known}
    if any(variable is None or variable.size != 1 for variable in fixed.values()):
        return
    nodes, gpus, world = (
        float(variable.values.item()) for variable in fixed.values() if variable is not None
    )
    if world <= nodes * gpus:
        yield f"0 %: all {world:g} GPUs are under one leaf switch, of {nodes:g} nodes"
    elif max(entries(view.dataset, "oversubscription")) <= nodes:  # type: ignore[arg-type]
        yield (
            f"0 %: a ring or a tree leaves a leaf switch once, a pipeline from one stage alone: "
            f"of the {nodes:g} nodes under one few send out, and share its uplinks; groups of "
            f"experts of up to {nodes * gpus:g} GPUs stay under one"
        )


def _baseline(figure: Figure, view: View, over: Sequence[str], indices: Mapping[str, int]) -> str:
    """Say what percentages are of: the baseline's first and last value, each with its best plan."""
    x, y = figure["x"], figure["y"]
    values = view.numbers(y, [*indices, *over, x])[tuple(indices.values())]
    costs = -values if better_of(figure["better"], view.units(y), y) else values
    there = np.flatnonzero(np.isfinite(costs).reshape(-1, costs.shape[-1]).any(axis=0))
    ends = []
    for last in dict.fromkeys(there[[0, -1]].tolist()):
        plan = np.unravel_index(np.nanargmin(costs[..., last]), costs.shape[:-1])
        names = [view.labels(dim)[at] for dim, at in zip((x, *over), (last, *plan), strict=True)]
        shown = scale_of(view.units(y)).given(float(values[(*plan, last)]))
        ends.append(f"{shown} ({', '.join(names)})")
    return f"{baseline_words(figure, view)}: {' to '.join(ends)}"


def best_cells(
    dataset: xr.Dataset, name: str, most: int
) -> tuple[str, int, list[list[str]], list[str]]:
    """Return a variable's best cells as a table, as `tabulate` does."""
    view = view_of(dataset, {})
    variable = view.dataset.variables[name]
    more = better_of(None, view.units(name), name)
    values, room = _counted(view.dataset, name)
    order = np.argsort(-values.ravel() if more else values.ravel(), kind="stable")
    there = order[: min(most, np.count_nonzero(~np.isnan(values)))]
    cells_at = np.unravel_index(there, values.shape)
    cells = cell_names(view.dataset, [str(dim) for dim in variable.dims], cells_at)
    scale = scale_of(view.units(name))
    texts = [scale.given(value) for value in values[cells_at].tolist()]
    degree = "most" if more else "least"
    what = long_name(name, view.attrs(name), short=True)
    title = f"{degree} {what} of {values.size:,} cells"
    title += "" if room is None else f", memory up to {percent(MEMORY_LIMIT)} full"
    if texts:
        title += f": {texts[0]}, with {cells[0]}"
    return title, 1, [["", plain(name)], *map(list, zip(cells, texts, strict=True))], []


def best_place(dataset: xr.Dataset, name: str) -> dict[str, int]:
    """Return where a variable is best, by dimension, as `best_cells` has it first."""
    if name not in dataset.data_vars or dataset[name].dtype.kind != "f":
        known = [
            str(variable)
            for variable, values in dataset.data_vars.items()
            if values.dtype.kind == "f"
        ]
        refuse("quantity", name, "isn't here", nearest(name, known))
    values, _ = _counted(with_constants(dataset), name)
    if np.isnan(values).all():
        refuse("quantity", name, "has no value", "reasons() says why")
    more = better_of(None, str(dataset[name].attrs.get("units", "1")), name)
    flat = np.nanargmax(values) if more else np.nanargmin(values)
    cell = np.unravel_index(flat, values.shape)
    return {str(dim): int(at) for dim, at in zip(dataset[name].dims, cell, strict=True)}


def _counted(
    dataset: xr.Dataset, name: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Return a variable's values that are compared, and where memory has room if that decides."""
    values = np.asarray(dataset.variables[name].values, np.float64)
    needed = ("peak_memory", "memory_capacity")
    if name not in _OF_STEPS or any(variable not in dataset for variable in needed):
        return values, None
    peak, capacity = (dataset[variable] for variable in needed)
    # No fuller than of a plan that is recommended.
    fits = (peak <= MEMORY_LIMIT * capacity).broadcast_like(dataset[name])
    room = np.asarray(fits.transpose(*dataset[name].dims).to_numpy())
    if not np.any(room & ~np.isnan(values)):
        return values, None
    return np.where(room, values, np.nan), room
