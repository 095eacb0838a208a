"""What a figure of lines shows: the lines, their looks, their values, the lower bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.axis import better_of, scale_for
from sweeps.plots.data import View
from sweeps.plots.relative import ideal_of, in_percent, percent_attrs
from sweeps.plots.schema import Figure
from sweeps.plots.style import BOUND, COLOURS, MARKERS, STROKES, scale_colour
from sweeps.plots.words import reasons

__all__ = ["Bound", "Line", "Plot", "lines_of", "pick", "prepare", "stroke"]

LOWER_BOUND = "lower bound"
IDEAL = "ideal"
_MOST_LINES = 24
_FEW_COLOURS = 3  # more values of a number than these are told apart by a colour scale


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a figure, in all its panels."""

    label: str  # Its name
    place: tuple[int, ...]  # Its place along each dimension of the lines
    colour: int  # Which colour, and which stroke and marker
    stroke: int  # Which colour, and which stroke and marker
    # Where it stands among lines of a number, from 0 to 1, which a colour scale then shows
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound: its colour, and its values of shape (panels, points)."""

    colour: str
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Plot:
    """The lines of a figure and their values."""

    lines: list[Line]  # The lines
    x: NDArray[np.float64]  # The horizontal axis
    curves: NDArray[np.float64]  # NaN where nothing is drawn
    bounds: list[Bound]  # The lower bounds
    xscale: Any  # ``log`` or ``linear``
    yscale: Any  # ``log`` or ``linear``
    more: bool  # Whether more is better
    whole: bool  # Whether `x` has no values between whole numbers
    notes: list[str]  # What isn't drawn, and why
    bound: str  # What the lower bounds, or other lines beside the lines, are called
    attrs: Mapping[str, Any]  # Metadata of what the lines show


def lines_of(
    figure: Figure, view: View, dims: Sequence[str], filled: NDArray[np.bool_]
) -> list[Line]:
    """Return the lines of a figure."""
    labels = [view.labels(dim) for dim in dims]
    lines: list[Line] = []
    strokes: dict[int, int] = {}
    count = filled.shape[0] if filled.shape else 0
    ordered = count > _FEW_COLOURS and not view.is_label(dims[0])
    for place in np.ndindex(filled.shape):
        if not filled[place]:
            continue
        colour = place[0] if place else 0
        # Two dimensions: a stroke for each entry of the second one, or, if that has too many, of
        # each colour the strokes in turn.
        turn = colour if len(dims) < 2 else place[1]
        if len(dims) > 1 and len(labels[1]) > len(STROKES):
            turn = strokes.get(colour, 0)
            strokes[colour] = turn + 1
        label = " · ".join(labels[k][entry] for k, entry in enumerate(place))
        share = colour / (count - 1) if ordered else None
        lines.append(Line(label, place, colour, turn, share))
    if len(lines) > _MOST_LINES:
        message = (
            f"{figure.where}.lines = '{', '.join(dims)}': {len(lines)} lines can't be told apart; "
            f"at most {_MOST_LINES}: choose some by at = {{ {dims[-1]} = [...] }}, or draw the "
            f"best of each by best_of"
        )
        raise InputError(message)
    return lines


def stroke(line: Line) -> dict[str, Any]:
    """Return how a line is drawn."""
    shade = COLOURS[line.colour % len(COLOURS)]
    return {
        "color": shade if line.share is None else scale_colour(line.share),
        "linestyle": STROKES[line.stroke % len(STROKES)],
        "marker": MARKERS[line.stroke % len(MARKERS)],
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def pick(values: NDArray[np.float64], lines: Sequence[Line]) -> NDArray[np.float64]:
    """Return the values of some lines."""
    panels, points = values.shape[0], values.shape[-1]
    shape = values.shape[1:-1]
    flat = values.reshape(panels, -1, points)
    places = [int(np.ravel_multi_index(line.place, shape)) if shape else 0 for line in lines]
    return flat[:, places]


def prepare(figure: Figure, view: View, panels: Sequence[str]) -> Plot:
    """Read what is drawn, and say what isn't."""
    x_name, y_name, yscale = figure["x"], figure["y"], figure["yscale"]
    by = [dim for dim in figure["lines"] if view.has(dim)]
    best_of = [dim for dim in figure["best_of"] if view.has(dim)]
    panel_dims = [figure["panels"]] if len(panels) > 1 else []
    dims = [*panel_dims, *by, *best_of, x_name]
    x = view.coordinate(x_name)
    more = better_of(figure["better"], view.units(y_name))
    values = view.numbers(y_name, dims)
    missing = np.isnan(values)
    values = _best(values, len(best_of), more=more)
    if figure["relative_to"] is not None:
        values = in_percent(figure, view, values, [*panel_dims, *by, x_name])
    values = values if panel_dims else values[None]
    xscale = scale_for(x, figure["xscale"])
    shown = np.isfinite(values) & ((values > 0) | (yscale == "linear"))
    shown &= np.isfinite(x) & ((x > 0) | (xscale == "linear"))
    filled = np.asarray(shown.any(axis=(0, -1)))
    lines = lines_of(figure, view, by, filled)
    why = "; ".join(reasons(view, missing, dims))
    if not lines:
        message = (
            f"{figure.where}.y = '{y_name}': no value to show here"
            f"{f' ({why})' if why else ''}; hold other entries by at"
        )
        raise InputError(message)
    notes = _notes(values, shown, why)
    if len(by) == 1 and not filled.all():
        absent = [
            name for name, has in zip(view.labels(by[0]), filled.tolist(), strict=True) if not has
        ]
        notes.append(f"Without values here: {', '.join(absent)}.")
    curves = pick(np.where(shown, values, np.nan), lines)
    bounds = _bounds(figure, view, panel_dims, lines) if figure["lower_bound"] else []
    name = LOWER_BOUND
    if figure.options.get("ideal"):
        name = IDEAL
        ideal = ideal_of(figure, view.units(y_name), x, curves)
        single = len(lines) == 1
        bounds += [
            Bound(BOUND if single else stroke(line)["color"], ideal[:, k])
            for k, line in enumerate(lines)
        ]
    if len(bounds) > 1:
        which = name if name == LOWER_BOUND else "ideal scaling from the first point"
        notes.append(f"Thin dashed lines: {which} of the line of the same colour.")
    whole = view.units(x_name) == "1" and bool(np.all(x == np.round(x)))
    attrs = percent_attrs(figure, view)
    return Plot(lines, x, curves, bounds, xscale, yscale, more, whole, notes, name, attrs)


def _best(values: NDArray[np.float64], count: int, *, more: bool) -> NDArray[np.float64]:
    """Reduce the axes before the last one to their best value, holes aside."""
    for _ in range(count):
        values = (np.fmax if more else np.fmin).reduce(values, axis=-2)
    return values


def _notes(values: NDArray[np.float64], shown: NDArray[np.bool_], why: str) -> list[str]:
    notes = []
    hidden = int(np.count_nonzero(~shown & ~np.isnan(values)))
    if hidden:
        notes.append(f"Not shown, as a logarithmic axis has no 0 or infinity: {hidden} points.")
    if np.isnan(values).any():
        notes.append(f"Gaps: {why or 'the file has no value there'}.")
    return notes


def _bounds(
    figure: Figure, view: View, panel_dims: Sequence[str], lines: Sequence[Line]
) -> list[Bound]:
    """Return the lower bounds: one, or one for each line that has its own."""
    name = "lower_bound"
    by = [dim for dim in figure["lines"] if view.has(dim)]
    own = [str(dim) for dim in view.dataset[name].dims]
    rest = [dim for dim in own if dim not in (*panel_dims, *by, figure["x"])]
    values = view.numbers(name, [*panel_dims, *by, *rest, figure["x"]])
    values = _best(values, len(rest), more=False)
    values = values if panel_dims else values[None]
    values = np.where(values > 0, values, np.nan)
    # A bound that doesn't depend on a dimension has length 1 there: lines share it.
    shape = values.shape[1:-1]
    found: dict[tuple[int, ...], Bound] = {}
    for line in lines:
        place = tuple(min(entry, size - 1) for entry, size in zip(line.place, shape, strict=True))
        if place not in found:
            alone = Line(line.label, place, line.colour, line.stroke)
            colour = stroke(line)["color"] if by and by[0] in own else BOUND
            found[place] = Bound(colour, pick(values, [alone])[:, 0])
    return list(found.values())
