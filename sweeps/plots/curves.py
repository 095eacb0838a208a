"""Curves: a variable against one numeric dimension, a line for each label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.data import PLACE, PLAN_NAMES, View, evenly, said, word_of
from sweeps.plots.declare import (
    baseline_words,
    by_column,
    ideal_of,
    in_percent,
    percent_attrs,
    percent_ends,
)
from sweeps.plots.frame import Axis, Frame, Legend, axis_of, better_of, frame, panel_size, scale_for
from sweeps.plots.marks import (
    End,
    crossovers,
    heading,
    joined,
    label_ends,
    mark_crossovers,
    panels_of,
    reasons,
    refine,
    sheet_of,
)
from sweeps.plots.schema import Figure
from sweeps.plots.style import (
    BOUND,
    STROKES,
    Look,
    Scale,
    line_look,
    number,
    plain,
    scale_of,
    use,
)
from sweeps.spec.units import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# What a figure of lines shows: the lines, their looks, their values, the lower bounds.

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
    labels = [view.labels(dim) for dim in dims]
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
                off = np.nanmax(np.abs(rest - first) / np.abs(first))
                ends.setdefault(joined([lines[k].label for k in group]), []).append(float(off))
    said = []
    for names, offs in sorted(ends.items(), key=lambda item: -len(item[1])):
        where = "" if len(offs) == len(curves) else f" in {len(offs)} of {len(curves)} panels"
        how = f" within {number(100 * max(offs), 1)} %" if max(offs) > _SAME else ""
        said.append(f"{names}{how}{where}")
    more = [f"and {len(said) - _MOST_SAID} more"] if len(said) > _MOST_SAID else []
    return [f"Coincide: {'; '.join([*said[:_MOST_SAID], *more])}."] if said else []


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


_COLUMNS = 5  # of a table
_SEEN = 0.006  # of an axis: lines nearer to each other look like one
_MOST_SAID = 2  # sets of such lines
_SAME = 1e-3  # relative difference up to which lines can't be told apart on paper
_SAMPLES_SHOWN = 24  # lines of at most so many samples have a marker at each
_MARKERS = 5  # longer ones have about so many
_THIN_FROM = 2  # more panels than these have thinner lines
_LABEL_HEIGHT = 0.2  # inches
_BOUND: Look = {"linewidth": 1.1, "linestyle": (0, (4, 2.5)), "zorder": 1.8}


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What is drawn, on which axes."""

    plot: Plot
    xaxis: Axis
    yaxis: Axis
    scale: Scale | None  # in which crossovers are read; None if they aren't marked
    affine: bool  # whether lines are affine between samples of a logarithmic axis


def draw_curves(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``curves`` or ``scaling``."""
    more = better_of(figure["better"], view.units(figure["y"]))
    view, table = by_column(view, figure["x"], figure["y"], more=more)
    panels = panels_of(figure, view)
    plot = prepare(figure, view, panels)
    alone = len(panels) == 1
    beside = alone and not use().column
    samples = _samples(plot, plain(figure["y"]))
    # A single line needs no name.
    ends = [End(*sample) for sample in samples] if beside and len(samples) > 1 else []
    width, height = panel_size(len(panels))
    height = max(height, use().scale * _LABEL_HEIGHT * len(ends))
    drawing = _drawing(figure, view, plot, (width, height))
    title = (_finding(figure, drawing) if alone else None) or _title(figure, view, table)
    sheet = sheet_of(figure, view, title, plot.notes, panels, panel=(width, height))
    named = not beside and (len(samples) > 1 or any(line.label for line in plot.lines))
    legend = Legend([(label, look) for label, _, _, look in samples] if named else ())
    made = frame(sheet, legend, drawing.xaxis, drawing.yaxis)
    for index, axes in enumerate(made.axes):
        _draw_panel(drawing, axes, index, made)
    label_ends(made.axes[0], ends, made.panel)
    return made.finished()


def table_of(figure: Figure, view: View) -> tuple[str, int, list[list[str]], list[str]]:
    """Return a figure's title and its values: a row a line, a column a sample of ``x``.

    Between them how many columns on the left are names, behind them why some lack a value.  Of a
    reduction a last column says where its last value was found.
    """
    x, y = figure["x"], figure["y"]
    view, table = by_column(view, x, y, more=better_of(figure["better"], view.units(y)))
    panels = panels_of(figure, view)
    plot = prepare(figure, view, panels)
    by = [dim for dim in figure["lines"] if view.has(dim)]
    labelled = [bool(panels[0]), bool(by)]
    at = evenly(len(plot.x), _COLUMNS)
    along, scale = scale_of(view.units(x)), scale_of(str(plot.attrs.get("units", "1")))
    first, *others = [along.given(value) for value in plot.x[at]]
    heads = [plain(figure["panels"] or ""), " · ".join(map(plain, by))]
    bare = {dim: view.labels(dim, bare=True) for dim in (figure["panels"], *by) if dim}
    cells = _places(view, y, [*([figure["panels"]] if labelled[0] else []), *by, x])
    values_of = [float(value) for values in plot.curves for curve in values for value in curve[at]]
    factor, unit = scale.shared(values_of)

    def text_of(value: float) -> str:
        if np.isnan(value):
            return "-"
        return grouped(value / factor) if factor else scale.given(value)

    rows = [[*compress(heads, labelled), f"{plain(x)} {first}", *others]]
    rows[0] += [f"{PLACE} {plain(x)} {others[-1]}"] if cells and others else []
    for panel, values in enumerate(plot.curves):
        name = bare[figure["panels"]][panel] if labelled[0] else ""
        for line, line_values in zip(plot.lines, values, strict=True):
            if not np.isnan(line_values).all():
                texts = [text_of(value) for value in line_values[at].tolist()]
                cell = (*([panel] if labelled[0] else []), *line.indices, -1)
                texts.append(_plan_at(cells, cell))
                entries = (bare[dim][k] for dim, k in zip(by, line.indices, strict=True))
                names = [name, " · ".join(entries)]  # The heading says what they are
                rows.append([*compress(names, labelled), *texts][: len(rows[0])])
    gaps = [note for note in plot.notes if note.startswith(GAPS)]
    title = figure["title"] or _title(figure, view, table)
    if unit and f"in {unit}" not in title.lower():
        title += f" ({unit})"
    return title, sum(labelled), rows, gaps


_MOST_WINNERS = 3  # that a sentence names


def findings(figure: Figure, view: View) -> Iterator[str]:
    """Yield in sentences which line is best in how many cases, and what the best reach last."""
    x, y = figure["x"], figure["y"]
    view, _ = by_column(view, x, y, more=better_of(figure["better"], view.units(y)))
    panels = panels_of(figure, view)
    plot = prepare(figure, view, panels)
    if len(plot.lines) < 2:
        return
    cost = np.where(np.isnan(plot.curves), np.inf, -plot.curves if plot.more else plot.curves)
    best = cost.min(axis=1, keepdims=True)
    tied = cost <= best + _SAME * np.abs(best)
    compared = np.isfinite(cost).sum(axis=1) > 1
    won: dict[tuple[int, ...], int] = {}
    for panel, point in np.argwhere(compared).tolist():
        names = tuple(np.flatnonzero(tied[panel, :, point]).tolist())
        won[names] = won.get(names, 0) + 1
    total = int(compared.sum())
    if not total:
        return
    adjective = next(
        (word for name, word in _BEST.items() if y in (name, f"best_{name}")),
        "highest" if plot.more else "lowest",
    )
    order = sorted(won, key=lambda names: -won[names])
    texts = []
    for names in order[:_MOST_WINNERS]:
        everyone = len(names) == len(plot.lines)
        which = "all alike" if everyone else joined([plot.lines[k].label for k in names])
        texts.append(f"{which} in {won[names]:,}")
    left = total - sum(won[names] for names in order[:_MOST_WINNERS])
    texts += [f"others in {left:,}"] if left else []
    if len(won) > 1:
        yield f"{adjective} of the {total:,} cases: {', '.join(texts)}"
    else:
        next_best = np.sort(cost, axis=1)[:, 1][compared]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.abs(best[:, 0][compared] / next_best - 1.0)
        ends = [number(100 * float(end), 2) for end in (part.min(), part.max())]
        much = f", {' to '.join(dict.fromkeys(ends))} % {'more' if plot.more else 'less'}"
        where = f"in each of {total:,} cases" if total > 1 else "in the only case"
        alone = len(order[0]) == 1 and bool((next_best != 0.0).all())
        name = texts[0].rsplit(" in ", 1)[0]
        yield f"{adjective} {where}: {name}" + (f"{much} than the next" if alone else "")
    last = np.where(np.isfinite(best[:, 0, -1]), (-1 if plot.more else 1) * best[:, 0, -1], np.nan)
    if len(panels) < 2 or np.isnan(last).all():
        return
    bare = view.labels(figure["panels"], bare=True)
    cells = _places(view, y, [figure["panels"], *(d for d in figure["lines"] if view.has(d)), x])
    scale = scale_of(str(plot.attrs.get("units", "1")))
    lines = []
    for panel in (int(np.nanargmin(last)), int(np.nanargmax(last))):
        line = plot.lines[int(np.argmin(cost[panel, :, -1]))]
        cell = (panel, *line.indices, -1)
        plan = _plan_at(cells, cell)
        many = int(tied[panel, :, -1].sum()) > 1
        where = bare[panel] if many else f"{bare[panel]}, {line.label}"
        lines.append(f"{scale.given(last[panel])} ({where}{': ' if plan else ''}{plan})")
    at = said(x, scale_of(view.units(x)).given(plot.x[-1]))
    yield f"the best at {at}: from {lines[0]} to {lines[1]}"


def _plan_at(columns: Mapping[str, NDArray[Any]], cell: tuple[int, ...]) -> str:
    """Return what was chosen at a cell, in short; nothing of what is off."""
    return ", ".join(filter(None, (_said(dim, str(c[cell])) for dim, c in columns.items())))


def _said(dim: str, text: str) -> str:
    """Return an entry of a plan in short, as ``tp 8``; nothing of what is off."""
    if dim == "recompute":
        return "" if text == "none" else f"{plain(text)} recompute"
    if (
        dim in PLAN_NAMES
        and dim not in ("tp", "pp", "dp", "micro_batch_size")
        and text in ("0", "1")
    ):
        return f"ZeRO {text}" if dim == "zero_stage" and text == "1" else ""
    return f"{word_of(dim) if dim in PLAN_NAMES else plain(dim)} {text}"


def _places(view: View, y: str, dims: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return where along each reduced dimension a reduction's values were found."""
    names_of = {}
    for name in map(str, view.dataset.data_vars):
        dim, attrs = name.removeprefix(f"{y}_"), view.attrs(name)
        if dim == name or not str(attrs.get("long_name", "")).startswith(f"{dim} at the "):
            continue
        values, scale = view.values(name, dims), scale_of(view.units(name))
        words = str(attrs.get("flag_meanings", "")).split()
        texts = [words[value] if words else scale.given(value) for value in values.ravel().tolist()]
        names_of[dim] = np.array(texts).reshape(values.shape)
    order = {dim: position for position, dim in enumerate(PLAN_NAMES)}
    return {dim: names_of[dim] for dim in sorted(names_of, key=lambda dim: order.get(dim, -1))}


def _title(figure: Figure, view: View, table: str) -> str:
    over = [*([table] if table else []), *(dim for dim in figure["best_of"] if view.has(dim))]
    by = [dim for dim in figure["lines"] if view.has(dim)]
    noun = "plan" if any(dim in PLAN_NAMES for dim in over) or table else joined(over)
    end = f", with the best {noun}" if over else ""
    end += ", relatively" if figure["relative_to"] else ""
    return heading(view, figure["y"], [figure["x"], *by], end)


_BEST = {"time": "fastest", "step_time": "fastest", "overlapped_time": "fastest"}
_MOST_LETTERS = 70  # of a title


def _finding(figure: Figure, drawing: _Drawing) -> str | None:
    """Return which line is best where, in words; None where a few don't say it truly."""
    plot, values = drawing.plot, drawing.plot.curves[0]
    best = _BEST.get(figure["y"])
    whole = bool(np.isfinite(values).all()) and drawing.affine and not figure["relative_to"]
    if best is None or drawing.scale is None or len(plot.lines) < 2 or not whole:
        return None
    changes = crossovers(plot.x, values, more=plot.more)
    first = changes[0].before if changes else int(np.argmin(values[:, 0]))
    ways = [first, *(change.after for change in changes)]
    bounds = [-np.inf, *(change.x for change in changes), np.inf]
    texts: list[str] = []
    for way, low, high in zip(ways, bounds, bounds[1:], strict=False):
        inside = values[:, (low < plot.x) & (plot.x < high)]
        same = np.abs(inside - inside[way]) <= _SAME * inside[way]
        if (same.any(axis=1) != same.all(axis=1)).any():
            return None  # as fast somewhere
        names = joined(
            [line.label for line, flags in zip(plot.lines, same, strict=True) if flags.all()]
        )
        verb = f"{names} {'is' if same.all(axis=1).sum() == 1 else 'are'} {best}"
        words = verb if low == -np.inf else names
        end = " above" if texts else " throughout"
        texts.append(words + (end if high == np.inf else f" up to {drawing.scale.text(high)}"))
    title = ", ".join(texts)
    return title if len(title) <= _MOST_LETTERS else None


def _drawing(figure: Figure, view: View, plot: Plot, panel: tuple[float, float]) -> _Drawing:
    x, y = figure["x"], figure["y"]
    heights = [plot.curves.ravel(), *(bound.values.ravel() for bound in plot.bounds)]
    xaxis = axis_of(
        x, view.attrs(x), plot.x, plot.xscale, panel[0], pad=0.015, discrete=True, origin=0.1
    )
    shown = np.concatenate(heights)
    relative = figure["relative_to"] is not None and plot.yscale == "linear"
    yaxis = axis_of(
        y,
        plot.attrs,
        shown,
        plot.yscale,
        panel[1],
        pad=0.06,
        vertical=True,
        origin=0.5,
        ends=percent_ends(shown) if relative else None,
    )
    scale = scale_of(view.units(x)) if figure["crossovers"] else None
    # Times are affine in a size or a latency, but not in a rate, nor between whole numbers.
    affine = not plot.whole and plot.xscale == "log" and plot.x[0] > 0
    affine = affine and "s-1" not in view.units(x).split()
    return _Drawing(plot, xaxis, yaxis, scale, bool(affine))


Named = tuple[str, NDArray[np.float64], NDArray[np.float64], dict[str, Any]]


def _samples(plot: Plot, y: str) -> list[Named]:
    """Return the lines of the first panel with names, and the bound where all have one."""
    named = [
        (line.label or y, plot.x, plot.curves[0, number], stroke(line))
        for number, line in enumerate(plot.lines)
    ]
    if len(plot.bounds) == 1 and np.isfinite(plot.bounds[0].values).any():
        named.append((plot.bound, plot.x, plot.bounds[0].values[0], {**_BOUND, "color": BOUND}))
    return named


def _draw_panel(drawing: _Drawing, axes: Axes, index: int, made: Frame) -> None:
    plot = drawing.plot
    if plot.attrs.get("units") == "%":
        axes.axhline(100.0, color=BOUND, linewidth=1.0, zorder=1.5)
    for bound in plot.bounds:
        # A bound that is the same in all panels has one row.
        heights = bound.values[min(index, len(bound.values) - 1)]
        axes.plot(*_drawn(drawing, heights), **{**_BOUND, "color": bound.colour})
    many, scale = len(made.axes) > _THIN_FROM, use().scale
    thin: Look = {"linewidth": 1.5 * scale} if many else {}
    small: Look = {"markersize": 4.0 * scale} if many else {}
    # Of lines with many samples each has its markers at others, so that equal lines both show.
    every = 1 if len(plot.x) <= _SAMPLES_SHOWN else max(len(plot.x) // _MARKERS, 1)
    for position, line in enumerate(plot.lines):
        y = plot.curves[index, position]
        look = stroke(line)
        mark = {key: look.pop(key) for key in ("marker", "markeredgecolor", "markeredgewidth")}
        axes.plot(*_drawn(drawing, y), **look, **thin)
        start = every * position // len(plot.lines)
        mark = {**mark, **small, "color": look["color"], "linestyle": "none", "zorder": 2.1}
        axes.plot(plot.x[start::every], y[start::every], **mark)
    if drawing.scale is not None:
        crossings = crossovers(plot.x, plot.curves[index], more=plot.more, whole=plot.whole)
        lines = [_drawn(drawing, y) for y in plot.curves[index]]
        mark_crossovers(axes, crossings, drawing.scale, made.panel, lines, above=plot.more)


def _drawn(
    drawing: _Drawing, y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of a line: between far samples as crossovers are found there."""
    return refine(drawing.plot.x, y) if drawing.affine else (drawing.plot.x, y)
