"""Which cells of a sweep get a bar where not all can: the best ones, or some evenly spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.axis import better_of
from sweeps.plots.data import View, evenly
from sweeps.plots.declare import CAPACITY
from sweeps.plots.names import is_of_plans
from sweeps.plots.schema import MEMORY_TOTAL, STEP_TOTAL, Figure
from sweeps.plots.style import plain
from sweeps.plots.words import joined, reasons


@dataclass(frozen=True, slots=True)
class Bars:
    """Which cells have a bar."""

    dims: list[str]  # The dimensions that are spread out
    panel_dims: list[str]  # The dimension of the panels, if any
    # The bars' places among all cells of `dims`, in the order in which they are drawn
    cells: NDArray[np.int64]
    said: str  # For the title: which of how many
    notes: list[str]  # What was left out, and why
    where: str  # What faults call the figure

    def places(self, view: View) -> list[NDArray[np.int64]]:
        """Return the bars' places along each dimension."""
        shape = tuple(view.dataset.sizes[dim] for dim in self.dims)
        return [np.asarray(index) for index in np.unravel_index(self.cells, shape)] if shape else []

    def values(self, view: View, name: str) -> NDArray[np.float64]:
        """Return a variable at the bars, shape (panels, bars)."""
        panels = [view.dataset.sizes[dim] for dim in self.panel_dims]
        values = numbers_of(view, name, [*self.panel_dims, *self.dims], self.where)
        whole = np.broadcast_to(values, (*panels, *(view.dataset.sizes[d] for d in self.dims)))
        flat = whole.reshape(*panels, -1)
        return np.asarray(flat[..., self.cells]).reshape(-1, len(self.cells))


def are_plans(view: View, dims: Sequence[str]) -> bool:
    """Return whether plans vary along any of some dimensions that a view has."""
    coordinates = view.dataset.coords
    return any(
        is_of_plans(dim, () if dim in coordinates else view.dataset.sizes[dim]) for dim in dims
    )


def numbers_of(view: View, name: str, dims: Sequence[str], where: str) -> NDArray[np.float64]:
    """Return a variable or coordinate as numbers, or refuse names."""
    try:
        return view.numbers(name, dims)
    except ValueError:
        message = f"{where}: '{name}' holds names, not numbers; give a variable of numbers"
        raise InputError(message) from None


def select(figure: Figure, view: View, panel_dims: list[str]) -> Bars:
    """Choose the bars: all, the best of what they are sorted by, or some evenly spread."""
    dims = [dim for dim in figure["x"] if view.has(dim)]
    count = int(np.prod([view.dataset.sizes[dim] for dim in dims]))
    every = np.arange(count, dtype=np.int64)
    many = count > figure["most"]
    by = figure["sort"]
    if by is None and many and are_plans(view, dims) and STEP_TOTAL in view.dataset:
        by = STEP_TOTAL
    shown = figure["parts"][0] if by is None else by
    values = _over(view, shown, dims, figure.where, more=False)
    if by is None and not many:
        return Bars(dims, panel_dims, every, "", [], figure.where)
    more = by is not None and better_of(figure["better"], view.units(by), by)
    values = _over(view, shown, dims, figure.where, more=more) if more else values
    valid = np.isfinite(values)
    cells = every[valid] if valid.any() else every
    if by is not None:
        order = np.argsort(-values[cells] if more else values[cells], kind="stable")
        cells = cells[order]
        if not many:  # those without a value come last
            cells = np.concatenate([cells, every[~valid]]) if valid.any() else cells
            return Bars(dims, panel_dims, cells, f"sorted by {plain(by)}", [], figure.where)
    total = len(cells)
    noun = "plans" if are_plans(view, dims) else f"values of {joined(dims)}"
    cells = cells[: figure["most"]] if by is not None else cells[evenly(total, figure["most"])]
    notes = _left_out(view, dims, shown, valid, noun)
    said = f"{len(cells)} of {total} {noun}, evenly chosen" if total > len(cells) else ""
    if by is not None and total <= figure["most"]:
        said = f"{total} {noun} sorted by {plain(by)}"
    elif by is not None:
        extreme = "most" if more else "least"
        said = f"the {len(cells)} of {total} {noun} with the {extreme} {plain(by)}"
        if by == STEP_TOTAL and not more:
            said = f"the {len(cells)} fastest of {total} {noun}"
    return Bars(dims, panel_dims, cells, said, notes, figure.where)


def _over(
    view: View, name: str, dims: Sequence[str], where: str, *, more: bool
) -> NDArray[np.float64]:
    """Return a variable's best value over all but some dimensions, flat over these."""
    others = [str(dim) for dim in view.dataset[name].dims if dim not in dims]
    values = numbers_of(view, name, [*others, *dims], where)
    if name == STEP_TOTAL:
        values = np.where(_too_full(view, [*others, *dims]), np.nan, values)
    for _ in others:
        values = (np.fmax if more else np.fmin).reduce(values, axis=0)
    shape = tuple(view.dataset.sizes[dim] for dim in dims)
    return np.broadcast_to(values, shape).reshape(-1)


def _too_full(view: View, dims: Sequence[str]) -> NDArray[np.bool_]:
    """Return where memory is beyond the capacity: a step's time is no plan's that can run."""
    known = {*view.dataset.variables}
    if not {MEMORY_TOTAL, CAPACITY} <= known or not {*view.dataset[MEMORY_TOTAL].dims} <= {*dims}:
        return np.zeros(1, dtype=np.bool_)
    return view.numbers(MEMORY_TOTAL, dims) > view.numbers(CAPACITY, dims)


def _left_out(
    view: View, dims: Sequence[str], name: str, valid: NDArray[np.bool_], noun: str
) -> list[str]:
    """Say how many cells have no value, and why."""
    if valid.all() or not valid.any():
        return []
    shape = tuple(view.dataset.sizes[dim] for dim in dims)
    lacking = (
        "" if name == STEP_TOTAL and _too_full(view, dims).any() else f", without a {plain(name)}"
    )
    why = "; ".join(reasons(view, ~valid.reshape(shape), dims))
    count = int(np.count_nonzero(~valid))
    noun = noun if count > 1 else noun.replace("plans", "plan").replace("values", "value")
    return [f"Left out{lacking}: {count} {noun}{f' ({why})' if why else ''}."]
