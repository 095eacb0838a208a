"""Bars of declared variables: the parts of a total for each plan, machine, topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.data import View
from sweeps.plots.readable import sentence
from sweeps.plots.schema import Figure
from sweeps.plots.stacks import Stacks, draw_stacks
from sweeps.plots.words import joined, panels_of, reasons, sheet_of, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["draw_bars", "refuse_mixed_units"]

_MOST_BARS = 40
_NAME_LETTERS = 56


def draw_bars(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``bars``."""
    stacks = _prepared(figure, view)
    by = [dim for dim in figure["x"] if view.has(dim)]
    several = len(figure["parts"]) > 1
    title = f"{stacks.total_of} by part" if several else short_name(view, figure["parts"][0])
    title += f", for each {joined(by)}" if by else ""
    return draw_stacks(stacks, sheet_of(figure, view, title, stacks.notes, stacks.panels))


def refuse_mixed_units(where: str, view: View, names: Sequence[str]) -> str:
    """Return the unit of variables that are stacked."""
    units = {view.units(name) for name in names}
    if len(units) > 1:
        text = ", ".join(f"{name} ({view.units(name)})" for name in names)
        message = f"{where}.parts = '{text}': different units can't be stacked; parts of one unit"
        raise InputError(message)
    return units.pop()


def _prepared(figure: Figure, view: View) -> Stacks:
    panels = panels_of(figure, view)
    panel_dims = [figure["panels"]] if len(panels) > 1 else []
    by = [dim for dim in figure["x"] if view.has(dim)]
    dims = [*panel_dims, *by]
    units = refuse_mixed_units(figure.where, view, figure["parts"])
    names_of = [view.labels(dim) for dim in by]
    places = list(np.ndindex(tuple(len(names) for names in names_of)))
    shape = (len(panels), *(len(names) for names in names_of))
    parts = np.stack(
        [_spread(view, part, dims, shape, bool(panel_dims)) for part in figure["parts"]], axis=1
    ).reshape(len(panels), len(figure["parts"]), -1)
    capacity = None
    if figure["capacity"] is not None:
        capacity = _spread(view, figure["capacity"], dims, shape, bool(panel_dims))
        capacity = capacity.reshape(len(panels), -1)
    names = [_name([names_of[k][entry] for k, entry in enumerate(place)]) for place in places]
    # Two dimensions are a product with holes: what has no value in any panel isn't a bar.
    kept = np.isfinite(parts).any(axis=(0, 1)) | (len(by) < 2)
    kept = np.asarray(kept)
    if np.count_nonzero(kept) > _MOST_BARS:
        message = (
            f"{figure.where}.x = '{', '.join(by)}': {np.count_nonzero(kept)} bars can't be read; "
            f"at most {_MOST_BARS}: choose some by at"
        )
        raise InputError(message)
    notes = _notes(view, np.isnan(parts).any(axis=1) & kept, dims, shape)
    limit = figure["capacity"]
    return Stacks(
        panels,
        [name for name, keep in zip(names, kept, strict=True) if keep],
        [sentence(short_name(view, part)) for part in figure["parts"]],
        parts[..., kept], capacity[..., kept] if capacity is not None else None,
        sentence(short_name(view, limit)) if limit else "", units, notes,
    )  # fmt: skip


def _name(parts: list[str]) -> str:
    """Join a bar's labels, cutting the longest until they fit beside it."""
    parts = list(parts)
    while sum(len(part) for part in parts) > _NAME_LETTERS:
        longest = max(range(len(parts)), key=lambda k: len(parts[k]))
        parts[longest] = f"{parts[longest].rstrip('…')[:-1].rstrip()}…"
    return " · ".join(parts)


def _spread(
    view: View, name: str, dims: Sequence[str], shape: tuple[int, ...], panels: bool
) -> NDArray[np.float64]:
    values = view.numbers(name, dims)
    return np.broadcast_to(values if panels else values[None], shape)


def _notes(
    view: View, missing: NDArray[np.bool_], dims: Sequence[str], shape: tuple[int, ...]
) -> list[str]:
    if not missing.any():
        return []
    where = missing.reshape(shape)
    why = reasons(view, where if len(dims) == len(shape) else where[0], dims)
    return [f"No bar: {'; '.join(why)}." if why else "No bar: the file has no value there."]
