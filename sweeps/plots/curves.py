"""Curves: a variable against one numeric dimension, a line for each label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis, axis_of, better_of
from sweeps.plots.crossing import crossovers, refine
from sweeps.plots.data import View
from sweeps.plots.frame import Frame, Legend, frame, panel_size
from sweeps.plots.lines import Plot, prepare, stroke
from sweeps.plots.marks import End, label_ends, mark_crossovers, room_for_labels
from sweeps.plots.readable import Scale, plain, scale_of
from sweeps.plots.relative import by_column, percent_ends
from sweeps.plots.schema import Figure
from sweeps.plots.style import BOUND, SIZE_TEXT, text_width
from sweeps.plots.words import joined, panels_of, sheet_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["draw_curves"]

_SAMPLES_SHOWN = 24  # lines of at most so many samples have a marker at each
_MARKERS = 5  # longer ones have about so many
_THIN_FROM = 2  # more panels than these have thinner lines
_LABEL_HEIGHT = 0.2  # inches
_WIDE_LEFT = 1.25
_BOUND: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (4, 2.5)), "zorder": 1.8}


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
    ends = _ends(plot, plain(figure["y"])) if alone else []
    width, height = panel_size(len(panels))
    height = max(height, _LABEL_HEIGHT * len(ends))
    drawing = _drawing(figure, view, plot, (width, height))
    sheet = sheet_of(
        figure, view, _title(figure, view, table), plot.notes, panels,
        xlabel=drawing.xaxis.label, ylabel=drawing.yaxis.label, panel=(width, height),
    )  # fmt: skip
    if text_width(sheet.ylabel, SIZE_TEXT) > height:  # a label of two lines needs room
        sheet = replace(sheet, left=_WIDE_LEFT)
    if ends:
        sheet = replace(sheet, right=room_for_labels([end.label for end in ends]))
    legend = Legend() if alone else _legend(plot)
    made = frame(sheet, legend)
    for index, axes in enumerate(made.axes):
        _draw_panel(drawing, axes, index, made)
    label_ends(made.axes[0], ends, made.panel)
    made.legend(legend)
    return made.canvas


def _title(figure: Figure, view: View, table: str) -> str:
    over = [*([table] if table else []), *(dim for dim in figure["best_of"] if view.has(dim))]
    by = [dim for dim in figure["lines"] if view.has(dim)]
    relative = ", relative," if figure["relative_to"] else ""
    shown, along = (short_name(view, figure[key]).split(", ")[0] for key in ("y", "x"))
    title = f"{shown}{relative} over {along}"
    title += f", by {joined(by)}" if by else ""
    return title + (f" (best {joined(over)})" if over else "")


def _drawing(figure: Figure, view: View, plot: Plot, panel: tuple[float, float]) -> _Drawing:
    x, y = figure["x"], figure["y"]
    heights = [plot.curves.ravel(), *(bound.values.ravel() for bound in plot.bounds)]
    xaxis = axis_of(x, view.attrs(x), plot.x, plot.xscale, panel[0], pad=0.015, discrete=True)
    shown = np.concatenate(heights)
    relative = figure["relative_to"] is not None and plot.yscale == "linear"
    yaxis = axis_of(
        y, plot.attrs, shown, plot.yscale, panel[1], pad=0.06, vertical=True,
        ends=percent_ends(shown) if relative else None,
    )  # fmt: skip
    scale = scale_of(view.units(x)) if figure["crossovers"] else None
    # Times are affine in a size or a latency, but not in a rate, nor between whole numbers.
    affine = not plot.whole and plot.xscale == "log" and plot.x[0] > 0
    affine = affine and "s-1" not in view.units(x).split()
    return _Drawing(plot, xaxis, yaxis, scale, bool(affine))


def _legend(plot: Plot) -> Legend:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **stroke(line)) for line in plot.lines]
    labels = [line.label for line in plot.lines]
    if len(plot.bounds) == 1:
        handles.append(Line2D([], [], **_BOUND, color=BOUND))
        labels.append(plot.bound)
    return Legend(handles, labels)


def _ends(plot: Plot, y: str) -> list[End]:
    """Return the lines that get their names at their ends; a single line needs none."""
    ends = [
        End(line.label or y, plot.x, plot.curves[0, number], stroke(line))
        for number, line in enumerate(plot.lines)
    ]
    if len(plot.bounds) == 1 and np.isfinite(plot.bounds[0].values[0]).any():
        look = {**_BOUND, "color": BOUND}
        ends.append(End(plot.bound, plot.x, plot.bounds[0].values[0], look))
    return ends if len(ends) > 1 else []


def _draw_panel(drawing: _Drawing, axes: Axes, index: int, made: Frame) -> None:
    plot = drawing.plot
    lowest, first = made.outer(index)
    drawing.xaxis.apply(axes, "x", labels=lowest)
    drawing.yaxis.apply(axes, "y", labels=first)
    if plot.attrs.get("units") == "%":
        axes.axhline(100.0, color=BOUND, linewidth=1.0, zorder=1.5)
    for bound in plot.bounds:
        # A bound that is the same in all panels has one row.
        heights = bound.values[min(index, len(bound.values) - 1)]
        axes.plot(*_drawn(drawing, heights), **{**_BOUND, "color": bound.colour})
    thin: dict[str, Any] = {"linewidth": 1.5} if len(made.axes) > _THIN_FROM else {}
    small: dict[str, Any] = {"markersize": 4.0} if len(made.axes) > _THIN_FROM else {}
    # Of lines with many samples each has its markers at others, so that equal lines both show.
    every = 1 if len(plot.x) <= _SAMPLES_SHOWN else max(len(plot.x) // _MARKERS, 1)
    for number, line in enumerate(plot.lines):
        y = plot.curves[index, number]
        look = stroke(line)
        mark = {key: look.pop(key) for key in ("marker", "markeredgecolor", "markeredgewidth")}
        axes.plot(*_drawn(drawing, y), **look, **thin)
        start = every * number // len(plot.lines)
        mark = {**mark, **small, "color": look["color"], "linestyle": "none", "zorder": 2.1}
        axes.plot(plot.x[start::every], y[start::every], **mark)
    if drawing.scale is not None:
        found = crossovers(plot.x, plot.curves[index], more=plot.more, whole=plot.whole)
        mark_crossovers(axes, found, drawing.scale, made.panel, above=plot.more)


def _drawn(
    drawing: _Drawing, y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of a line: between far samples as crossovers are found there."""
    return refine(drawing.plot.x, y) if drawing.affine else (drawing.plot.x, y)
