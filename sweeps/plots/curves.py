"""Curves: a variable against one numeric dimension, a line for each label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis, axis_of, better_of
from sweeps.plots.data import View
from sweeps.plots.frame import Frame, Legend, frame, panel_size
from sweeps.plots.line_tables import BEST_WORDS, title_of
from sweeps.plots.lines import SAME, Plot, prepare, stroke
from sweeps.plots.optima import crossovers, refine
from sweeps.plots.placing import End, label_ends, mark_crossovers
from sweeps.plots.relative import by_column, percent_ends
from sweeps.plots.schema import Figure
from sweeps.plots.style import BOUND, Look, Scale, plain, scale_of, use
from sweeps.plots.words import joined, panels_of, sheet_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


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
    more = better_of(figure["better"], view.units(figure["y"]), figure["y"])
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
    title = (_finding(figure, drawing) if alone else None) or title_of(figure, view, table)
    sheet = sheet_of(figure, view, title, plot.notes, panels, panel=(width, height))
    named = not beside and (len(samples) > 1 or any(line.label for line in plot.lines))
    legend = Legend([(label, look) for label, _, _, look in samples] if named else ())
    made = frame(sheet, legend, drawing.xaxis, drawing.yaxis)
    for index, axes in enumerate(made.axes):
        _draw_panel(drawing, axes, index, made)
    label_ends(made.axes[0], ends, made.panel)
    return made.finished()


_MOST_LETTERS = 70  # of a title


def _finding(figure: Figure, drawing: _Drawing) -> str | None:
    """Return which line is best where, in words; None where a few don't say it truly."""
    plot, values = drawing.plot, drawing.plot.curves[0]
    best = BEST_WORDS.get(figure["y"])
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
        same = np.abs(inside - inside[way]) <= SAME * inside[way]
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
