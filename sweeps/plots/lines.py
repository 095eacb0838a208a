"""What a figure of lines shows: the lines, their looks, their values, the lower bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import better_of, scale_for
from sweeps.plots.data import View
from sweeps.plots.names import PLAN_NAMES, worded
from sweeps.plots.relative import baseline_words, ideal_of, in_percent, percent_attrs
from sweeps.plots.schema import Figure
from sweeps.plots.style import BOUND, STROKES, Look, line_look, number
from sweeps.plots.words import joined, reasons

if TYPE_CHECKING:
    pass

LOWER_BOUND = "lower bound"
IDEAL = "ideal"
_MOST_LINES = 24
GAPS = "Gaps:"  # how a note begins that says why values are missing
_OVER = re.compile(r"Over (.*): ([\d,]+) cells for each")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a figure, in all its panels."""

    label: str  # Its name
    indices: tuple[int, ...]  # Its index along each dimension of the lines
    colour: int  # Which colour, and which stroke and marker
    stroke: int
    of: int = 0  # Of lines of a number how many colours there are


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
    yscale: Any
    more: bool  # Whether more is better
    whole: bool  # Whether `x` has no values between whole numbers
    notes: list[str]  # What isn't drawn, and why
    bound: str  # What the lower bounds, or other lines beside the lines, are called
    attrs: Mapping[str, object]  # Metadata of what the lines show


def lines_of(
    figure: Figure, view: View, dims: Sequence[str], filled: NDArray[np.bool_]
) -> list[Line]:
    """Return the lines of a figure."""
    labels = [
        [worded(dim, name, "1") for name in view.labels(dim)]
        if dim == "schedule" or dim.endswith("mechanism")
        else view.labels(dim)
        for dim in dims
    ]
    lines: list[Line] = []
    strokes: dict[int, int] = {}
    count = filled.shape[0] if filled.shape else 0
    of = count if count and not view.is_label(dims[0]) else 0
    for cell in np.ndindex(filled.shape):
        if not filled[cell]:
            continue
        colour = cell[0] if cell else 0
        # Two dimensions: a stroke for each entry of the second one, or, if that has too many, of
        # each colour the strokes in turn.
        turn = colour if len(dims) < 2 else cell[1]
        if len(dims) > 1 and len(labels[1]) > len(STROKES):
            turn = strokes.get(colour, 0)
            strokes[colour] = turn + 1
        label = " · ".join(labels[k][entry] for k, entry in enumerate(cell))
        lines.append(Line(label, cell, colour, turn, of))
    if len(lines) > _MOST_LINES:
        some = f"choose some by at = {{ {dims[-1]} = [...] }}, or draw the best of each by best_of"
        wrong, allowed = f"{len(lines)} lines can't be told apart", f"at most {_MOST_LINES}: {some}"
        figure.refuse("lines", wrong, allowed, ", ".join(dims))
    return lines


def stroke(line: Line) -> Look:
    """Return how a line is drawn."""
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    return {**line_look(line.colour, line.stroke, line.of), **edge}


def pick(values: NDArray[np.float64], lines: Sequence[Line]) -> NDArray[np.float64]:
    """Return the values of some lines."""
    panels, points = values.shape[0], values.shape[-1]
    shape = values.shape[1:-1]
    flat = values.reshape(panels, -1, points)
    columns = [int(np.ravel_multi_index(line.indices, shape)) if shape else 0 for line in lines]
    return flat[:, columns]


def prepare(figure: Figure, view: View, panels: Sequence[str]) -> Plot:
    """Read what is drawn, and say what isn't."""
    x_name, y_name, yscale = figure["x"], figure["y"], figure["yscale"]
    by = [dim for dim in figure["lines"] if view.has(dim)]
    best_of = [dim for dim in figure["best_of"] if view.has(dim)]
    panel_dims = [figure["panels"]] if len(panels) > 1 else []
    dims = [*panel_dims, *by, *best_of, x_name]
    x = view.coordinate(x_name)
    more = better_of(figure["better"], view.units(y_name), y_name)
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
    why = "; ".join(reasons(view, missing, dims, y_name))
    if not lines:
        wrong = f"no value to show here{f' ({why})' if why else ''}"
        figure.refuse("y", wrong, "hold other entries by at")
    notes = _notes(values, shown, why, str(view.attrs(y_name).get("comment", "")))
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
    notes += _together(lines, curves, yscale)
    if len(bounds) > 1:
        which = name if name == LOWER_BOUND else "ideal scaling from the first point"
        notes.append(f"Thin dashed lines: {which} of the line of the same colour.")
    whole = view.units(x_name) == "1" and bool(np.all(x == np.round(x)))
    if figure["relative_to"] is not None:
        notes.insert(0, f"Baseline, 100 %: {baseline_words(figure, view)}.")
    attrs = percent_attrs(figure, view)
    return Plot(lines, x, curves, bounds, xscale, yscale, more, whole, notes, name, attrs)


def _best(values: NDArray[np.float64], count: int, *, more: bool) -> NDArray[np.float64]:
    """Reduce the axes before the last one to their best value, holes aside."""
    for _ in range(count):
        values = (np.fmax if more else np.fmin).reduce(values, axis=-2)
    return values


def _notes(
    values: NDArray[np.float64], shown: NDArray[np.bool_], why: str, comment: str
) -> list[str]:
    notes = []
    # Of a reduction the file says over what: nothing there has a value where it has none.
    over = _OVER.match(comment)
    noun = "plans" if over and {*over[1].split(", ")} & {*PLAN_NAMES} else "cells"
    does = "can run" if noun == "plans" else "has a value"
    tried = f"none of the {over[2]} {noun} tried {does} there" if over else ""
    hidden = int(np.count_nonzero(~shown & ~np.isnan(values)))
    if hidden:
        notes.append(f"Not shown, as a logarithmic axis has no 0 or infinity: {hidden} points.")
    if np.isnan(values).any():
        notes.append(f"{GAPS} {why or tried or 'the file has no value there'}.")
    return notes


def _together(lines: Sequence[Line], curves: NDArray[np.float64], scale: str) -> list[str]:
    """Say which lines lie on top of one another, to the eye, and in how many of the panels."""
    heights = np.log(np.where(curves > 0, curves, np.nan)) if scale == "log" else curves
    there = heights[np.isfinite(heights)]
    apart = _SEEN * (float(np.ptp(there)) or 1.0)
    ends: dict[str, list[float]] = {}
    for height, values in zip(heights, curves, strict=True):
        groups: list[list[int]] = []
        for row in np.nonzero(np.isfinite(height).any(axis=1))[0].tolist():
            near = (group for group in groups if _meet(height[row], height[group[0]], apart))
            group = next(near, None)
            groups += [[row]] if group is None else []
            if group is not None:
                group.append(row)
        for group in groups:
            first, rest = values[group[0]], values[group[1:]]
            if len(group) > 1:
                apart_by = np.abs(rest - first)
                size = np.broadcast_to(np.abs(first), apart_by.shape)
                # Where both are zero they are alike.
                off = np.nanmax(np.divide(apart_by, size, out=apart_by, where=size > 0.0))
                names = _named([lines[k].label for k in group])
                ends.setdefault(names, []).append(float(off))
    said = []
    for names, offs in sorted(ends.items(), key=lambda item: -len(item[1])):
        where = "" if len(offs) == len(curves) else f" in {len(offs)} of {len(curves)} panels"
        how = f" within {number(100 * max(offs), 1)} %" if max(offs) > SAME else ""
        said.append(f"{names}{how}{where}")
    more = [f"and {len(said) - _MOST_SAID} more"] if len(said) > _MOST_SAID else []
    return [f"Coincide: {'; '.join([*said[:_MOST_SAID], *more])}."] if said else []


def _named(labels: Sequence[str]) -> str:
    """Return the names of lines; what all end with is said once."""
    heads = [label.rpartition(" \N{MIDDLE DOT} ")[0] for label in labels]
    ends = {label.removeprefix(head) for label, head in zip(labels, heads, strict=True)}
    return joined(heads) + ends.pop() if all(heads) and len(ends) == 1 else joined(labels)


def _meet(first: NDArray[np.float64], other: NDArray[np.float64], apart: float) -> bool:
    """Return whether two lines are where the other is, and no further apart than can be seen."""
    same = np.isfinite(first) == np.isfinite(other)
    return bool(same.all() and np.nanmax(np.abs(first - other)) <= apart)


def _bounds(
    figure: Figure, view: View, panel_dims: Sequence[str], lines: Sequence[Line]
) -> list[Bound]:
    """Return the lower bounds: one, or one for each line that has its own."""
    name = "lower_bound"
    by = [dim for dim in figure["lines"] if view.has(dim)]
    dims_of_bound = [str(dim) for dim in view.dataset[name].dims]
    rest = [dim for dim in dims_of_bound if dim not in (*panel_dims, *by, figure["x"])]
    values = view.numbers(name, [*panel_dims, *by, *rest, figure["x"]])
    values = _best(values, len(rest), more=False)
    values = values if panel_dims else values[None]
    values = np.where(values > 0, values, np.nan)
    # A bound that doesn't depend on a dimension has length 1 there: lines share it.
    shape = values.shape[1:-1]
    bounds: dict[tuple[int, ...], Bound] = {}
    for line in lines:
        position = tuple(
            min(entry, size - 1) for entry, size in zip(line.indices, shape, strict=True)
        )
        if position not in bounds:
            alone = Line(line.label, position, line.colour, line.stroke)
            colour = stroke(line)["color"] if by and by[0] in dims_of_bound else BOUND
            bounds[position] = Bound(colour, pick(values, [alone])[:, 0])
    return list(bounds.values())


_SEEN = 0.006  # of an axis: lines nearer to each other look like one
_MOST_SAID = 2  # sets of such lines
SAME = 1e-3  # relative difference up to which lines can't be told apart on paper
