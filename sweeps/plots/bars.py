"""Stacked bars: the parts of a total for each plan, machine, topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.axis import Axis, axis_of
from sweeps.plots.data import View
from sweeps.plots.frame import Frame, Legend, frame, panel_size
from sweeps.plots.readable import number, scale_of, sentence
from sweeps.plots.schema import Figure
from sweeps.plots.style import ALARM, INK, MUTED, SIZE_NOTE, region_colour, text_width, wrap
from sweeps.plots.words import joined, panels_of, reasons, sheet_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["draw_bars"]

_MOST_BARS = 40
_SLOT = 0.34  # inches that a lying bar takes
_STANDING = 0.55  # inches that a standing bar takes at least
_MOST_STANDING = 12
_NAME_WIDTH = 2.6  # inches of a name beside a lying bar
_NAME_LETTERS = 56
_BAR = 0.72  # of its slot
_TOTALS_UP_TO = 3  # columns of panels that leave room for the totals
_QUANTITIES = {"s": "time", "byte": "bytes", "J": "energy", "W": "power"}


@dataclass(frozen=True, slots=True)
class _Stacks:
    """What is drawn: `parts` has the shape (panels, parts, bars), `capacity` (panels, bars)."""

    panels: list[str]
    names: list[str]
    labels: list[str]
    parts: NDArray[np.float64]
    capacity: NDArray[np.float64] | None
    units: str
    notes: list[str]

    @property
    def totals(self) -> NDArray[np.float64]:
        """Height of each stack, shape (panels, bars); NaN where a part is missing."""
        return np.asarray(self.parts.sum(axis=1))

    @property
    def quantity(self) -> str:
        """What the parts are parts of: their names' common first word, else by their unit."""
        words = {label.split()[0].lower() for label in self.labels}
        if len(words) == 1 and not words & {"part", "parts", "number"}:
            return words.pop()
        return _QUANTITIES.get(self.units, "total")

    @property
    def standing(self) -> bool:
        """Whether the bars stand: where their names fit below them."""
        if len(self.names) > _MOST_STANDING:
            return False
        slot = panel_size(len(self.panels))[0] / max(len(self.names), 1)
        return all(text_width(name, SIZE_NOTE + 0.5) + 0.1 < slot for name in self.names)


def draw_bars(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``bars``.

    Parameters
    ----------
    figure : Figure
        Its declaration.
    view : View
        What it shows.

    Returns
    -------
    matplotlib.figure.Figure
        The drawing.

    Raises
    ------
    InputError
        If the parts have different units, or if there are too many bars or panels to be read.
    """
    stacks = _prepared(figure, view)
    legend = _legend(figure, view, stacks)
    count, standing = len(stacks.names), stacks.standing
    size = panel_size(len(stacks.panels))
    if not standing:
        size = (size[0], max(_SLOT * count, 1.0))
    value = _value_axis(stacks, size[1] if standing else size[0], standing=standing)
    by = [dim for dim in figure["x"] if view.has(dim)]
    several = len(figure["parts"]) > 1
    title = f"{stacks.quantity} by part" if several else short_name(view, figure["parts"][0])
    title += f", for each {joined(by)}" if by else ""
    labels = {"ylabel": value.label} if standing else {"xlabel": value.label}
    sheet = sheet_of(figure, view, title, stacks.notes, stacks.panels, panel=size, **labels)
    if not standing:
        widest = max((text_width(name, SIZE_NOTE + 0.5) for name in stacks.names), default=0.0)
        sheet = replace(sheet, left=min(widest, _NAME_WIDTH) + 0.3, right=0.3)
    made = frame(sheet, legend)
    for index, axes in enumerate(made.axes):
        _draw_panel(axes, stacks, index, value, made)
    made.legend(legend)
    return made.canvas


def _prepared(figure: Figure, view: View) -> _Stacks:
    panels = panels_of(figure, view)
    panel_dims = [figure["panels"]] if len(panels) > 1 else []
    by = [dim for dim in figure["x"] if view.has(dim)]
    dims = [*panel_dims, *by]
    units = {view.units(part) for part in figure["parts"]}
    if len(units) > 1:
        text = ", ".join(f"{part} ({view.units(part)})" for part in figure["parts"])
        message = (
            f"{figure.where}.parts = '{text}': different units can't be stacked; parts of one unit"
        )
        raise InputError(message)
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
    return _Stacks(
        panels,
        [name for name, keep in zip(names, kept, strict=True) if keep],
        [sentence(short_name(view, part)) for part in figure["parts"]],
        parts[..., kept], capacity[..., kept] if capacity is not None else None,
        units.pop(), notes,
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


def _value_axis(stacks: _Stacks, inches: float, *, standing: bool) -> Axis:
    values = [stacks.totals.ravel()]
    if stacks.capacity is not None:
        values.append(stacks.capacity.ravel())
    attrs = {"long_name": stacks.quantity, "units": stacks.units}
    # Room beyond the longest bar for its total.
    pad = 0.05 if standing else 0.09
    return axis_of(
        "total", attrs, np.concatenate(values), "linear", inches, pad=pad, vertical=standing
    )


def _draw_panel(axes: Axes, stacks: _Stacks, index: int, value: Axis, made: Frame) -> None:
    lowest, first = made.outer(index)
    places = np.arange(len(stacks.names), dtype=np.float64)
    ends = (-0.5, len(places) - 0.5)
    draw = axes.bar if stacks.standing else axes.barh
    width = {"width" if stacks.standing else "height": _BAR}
    start = "bottom" if stacks.standing else "left"
    whole = np.isfinite(stacks.totals[index])
    done = np.zeros(len(places))
    for part, values in enumerate(stacks.parts[index]):
        heights = np.where(whole, values, 0.0)
        how: dict[str, Any] = {**width, start: done.copy()}
        draw(places, heights, color=region_colour(part), edgecolor="white", linewidth=0.8, **how)
        done += heights
    texts = ["\n".join(wrap(name, _NAME_WIDTH, SIZE_NOTE + 0.5, most=2)) for name in stacks.names]
    if stacks.standing:
        value.apply(axes, "y", labels=first)
        axes.set_xlim(*ends)
        axes.set_xticks(places, texts if lowest else [""] * len(texts))
    else:
        value.apply(axes, "x", labels=lowest)
        axes.set_ylim(*reversed(ends))  # the first bar on top
        axes.set_yticks(places, texts if first else [""] * len(texts))
    axes.grid(visible=False, axis="x" if stacks.standing else "y")
    _draw_capacity(axes, stacks, index, places)
    _write_totals(axes, stacks, index, made)


def _draw_capacity(axes: Axes, stacks: _Stacks, index: int, places: NDArray[np.float64]) -> None:
    if stacks.capacity is None:
        return
    lines = axes.hlines if stacks.standing else axes.vlines
    lines(
        stacks.capacity[index], places - 0.5, places + 0.5, colors=INK, linewidth=1.8,
        linestyles=(0, (4, 1.5)), zorder=3,
    )  # fmt: skip


def _write_totals(axes: Axes, stacks: _Stacks, index: int, made: Frame) -> None:
    """Write each bar's total at its end, in the alarm's colour where it exceeds the capacity."""
    roomy = made.geometry.columns <= _TOTALS_UP_TO or not stacks.standing
    factor, _ = scale_of(stacks.units).pick(float(np.nanmax(stacks.totals, initial=0.0)))
    for place, total in enumerate(stacks.totals[index]):
        over = stacks.capacity is not None and total > stacks.capacity[index, place]
        none = not np.isfinite(total)
        if not (roomy or over or none):
            continue
        text, end = ("none", 0.0) if none else (number(total / factor), total)
        point = (place, end) if stacks.standing else (end, place)
        axes.annotate(
            text, point, (0, 3) if stacks.standing else (4, 0), textcoords="offset points",
            ha="center" if stacks.standing else "left",
            va="bottom" if stacks.standing else "center",
            size=SIZE_NOTE, color=ALARM if over else MUTED, weight="bold" if over else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.6}, zorder=4,
        )  # fmt: skip


def _legend(figure: Figure, view: View, stacks: _Stacks) -> Legend:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    labels: list[str] = []
    if len(stacks.labels) > 1:
        # A standing stack is read from the top.
        order = range(len(stacks.labels))
        for part in reversed(order) if stacks.standing else order:
            handles.append(Patch(facecolor=region_colour(part), edgecolor="white"))
            labels.append(stacks.labels[part])
    if stacks.capacity is not None:
        name = sentence(short_name(view, figure["capacity"]))
        values = np.unique(stacks.capacity[np.isfinite(stacks.capacity)])
        if len(values) == 1:
            scale = scale_of(stacks.units)
            text = scale.given(float(values[0]), 3)
            factor, unit = scale.pick(float(np.nanmax(stacks.totals, initial=0.0)))
            axis = f"{number(float(values[0]) / factor)} {unit}"
            name += f": {text}" + (f" ({axis})" if axis != text else "")
        handles.append(Line2D([], [], color=INK, linewidth=1.8, linestyle=(0, (4, 1.5))))
        labels.append(name)
    return Legend(handles, labels)
