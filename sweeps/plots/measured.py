"""Predictions beside measurements, and their ratio below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.axis import Axis, axis_of, scale_for
from sweeps.plots.data import View
from sweeps.plots.frame import Legend, frame, panel_size
from sweeps.plots.lines import Line, lines_of, pick, stroke
from sweeps.plots.readable import number
from sweeps.plots.schema import Figure
from sweeps.plots.style import BAND, BOUND, INK, SIZE_NOTE
from sweeps.plots.ticks import Ticks
from sweeps.plots.words import panels_of, sheet_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["draw_measured", "median_error"]

_STRIP = 0.85  # inches of the panel with the ratio
_WIDEST = 10.0  # ratios beyond it, and beyond its inverse, stand at the edge
_RATIOS = ((0.5, 1.0, 2.0), (0.2, 1.0, 5.0), (0.1, 1.0, 10.0))
_MEASURED: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "markersize": 5, "markerfacecolor": "white",
    "markeredgewidth": 1.3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is drawn: both arrays have the shape (panels, lines, points)."""

    panels: list[str]
    lines: list[Line]
    x: NDArray[np.float64]
    predicted: NDArray[np.float64]
    measured: NDArray[np.float64]
    own: bool  # whether each line has measurements of its own
    notes: list[str]


def median_error(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
    """Return the median of the relative errors' sizes."""
    both = np.isfinite(predicted) & np.isfinite(measured) & (measured > 0)
    if not both.any():
        return float("nan")
    return float(np.median(np.abs(predicted[both] / measured[both] - 1)))


def draw_measured(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``measured``."""
    rows = _prepared(figure, view)
    xaxis, yaxis = _axes(figure, view, rows)
    ratio = _ratio_axis(rows, figure["band"])
    title = f"{short_name(view, figure['y'])}: predicted and measured"
    sheet = sheet_of(
        figure, view, title, rows.notes, rows.panels, xlabel=xaxis.label, ylabel=yaxis.label,
        strip_label=ratio.label, strip=_STRIP,
    )  # fmt: skip
    legend = _legend(rows, figure["band"])
    made = frame(sheet, legend)
    for index, (axes, strip) in enumerate(zip(made.axes, made.strips, strict=True)):
        lowest, first = made.outer(index)
        xaxis.apply(axes, "x", labels=False)
        yaxis.apply(axes, "y", labels=first)
        xaxis.apply(strip, "x", labels=lowest)
        ratio.apply(strip, "y", labels=first)
        _draw_panel(axes, rows, index)
        _draw_ratio(strip, rows, index, (ratio.low, ratio.high), figure["band"])
    made.legend(legend)
    return made.canvas


def _prepared(figure: Figure, view: View) -> _Rows:
    x_name = figure["x"]
    panels = panels_of(figure, view)
    panel_dims = [figure["panels"]] if len(panels) > 1 else []
    by = [dim for dim in figure["lines"] if view.has(dim)]
    dims = [*panel_dims, *by, x_name]
    x = view.coordinate(x_name)
    shape = (len(panels), *(len(view.labels(dim)) for dim in by), len(x))
    pair = []
    for key in ("y", "measured"):
        values = view.numbers(figure[key], dims)
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        pair.append(np.broadcast_to(values if panel_dims else values[None], shape))
    predicted, measured = pair
    both = np.isfinite(predicted) & np.isfinite(measured)
    if not both.any():
        message = (
            f"{figure.where}.measured = '{figure['measured']}': nothing here was both predicted "
            f"and measured; choose other entries by at"
        )
        raise InputError(message)
    kept = np.asarray(both.any(axis=tuple(range(1, both.ndim))))
    dropped = [name for name, keep in zip(panels, kept.tolist(), strict=True) if not keep]
    notes = [f"Without a pair of values: {', '.join(dropped)}."] if dropped else []
    # A prediction is shown over the sizes that were measured, not all that others were.
    seen = np.isfinite(measured)
    begun = np.maximum.accumulate(seen, -1)
    ongoing = np.maximum.accumulate(seen[..., ::-1], -1)[..., ::-1]
    predicted = np.where(begun & ongoing, predicted, np.nan)
    lines = lines_of(figure, view, by, np.asarray(both.any(axis=(0, -1))))
    own = bool(by) and by[0] in view.dataset[figure["measured"]].dims
    return _Rows(
        [name for name in panels if name not in dropped],
        lines, x, pick(predicted, lines)[kept], pick(measured, lines)[kept], own, notes,
    )  # fmt: skip


def _axes(figure: Figure, view: View, rows: _Rows) -> tuple[Axis, Axis]:
    width, height = panel_size(len(rows.panels))
    seen = np.isfinite(rows.measured).any(axis=(0, 1))
    x_name, y_name = figure["x"], figure["y"]
    x = rows.x[seen]
    xaxis = axis_of(x_name, view.attrs(x_name), x, scale_for(x, figure["xscale"]), width)
    values = np.concatenate([rows.predicted.ravel(), rows.measured.ravel()])
    yaxis = axis_of(
        y_name, view.attrs(y_name), values, figure["yscale"], height, pad=0.06, vertical=True
    )
    return xaxis, yaxis


def _ratio_axis(rows: _Rows, band: float) -> Axis:
    """Return the axis of the ratio: as far below 1 as above it, at most a factor of ten."""
    ratio = rows.predicted / rows.measured
    far = float(np.nanmax(np.abs(np.log(ratio))))
    far = min(max(far, np.log(1 + 1.4 * band)) * 1.25, np.log(_WIDEST * 1.1))
    narrow = (max(1 - band, 0.01), 1.0, 1 + band)
    marks = next((m for m in reversed(_RATIOS) if np.log(m[-1]) <= far), narrow)
    ticks = Ticks(marks, tuple(number(mark) for mark in marks))
    return Axis("log", float(np.exp(-far)), float(np.exp(far)), ticks, "Predicted / measured")


def _draw_panel(axes: Axes, rows: _Rows, index: int) -> None:
    for place, line in enumerate(rows.lines):
        how = _predicted(line, len(rows.lines))
        predicted, measured = rows.predicted[index, place], rows.measured[index, place]
        seen = np.isfinite(predicted)
        axes.plot(rows.x[seen], predicted[seen], **how)
        if rows.own or place == 0:
            colour = how["color"] if rows.own else INK
            axes.plot(rows.x, measured, markeredgecolor=colour, zorder=3, **_MEASURED)
    if len(rows.panels) == 1 and len(rows.lines) > 1:
        return  # the legend says it
    texts = []
    for place, line in enumerate(rows.lines):
        text = _error(rows, index, place)
        texts.append(f"{line.label}: {text}" if line.label and text else text)
    axes.text(
        0.03, 0.97, "\n".join(text for text in texts if text), transform=axes.transAxes,
        va="top", size=SIZE_NOTE, zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
    )  # fmt: skip


def _error(rows: _Rows, index: int, place: int) -> str:
    """Return a line's median error in words; nothing where it has no pair of values."""
    predicted, measured = rows.predicted[index, place], rows.measured[index, place]
    count = int(np.count_nonzero(np.isfinite(predicted / measured)))
    if count == 0:
        return ""
    points = "point" if count == 1 else "points"
    return f"median error {100 * median_error(predicted, measured):.0f} % ({count} {points})"


def _predicted(line: Line, count: int) -> dict[str, Any]:
    look = stroke(line)
    return {
        "color": look["color"],
        "linestyle": look["linestyle"] if count > 1 else "solid",
        "linewidth": 1.8,
    }


def _draw_ratio(
    axes: Axes, rows: _Rows, index: int, ends: tuple[float, float], band: float
) -> None:
    axes.axhspan(1 - band, 1 + band, color=BAND, zorder=0.5)
    axes.axhline(1.0, color=BOUND, linewidth=1.0, zorder=1)
    for place, line in enumerate(rows.lines):
        ratio = rows.predicted[index, place] / rows.measured[index, place]
        look = stroke(line)
        beyond = (ratio < ends[0]) | (ratio > ends[1])
        axes.plot(
            rows.x, np.where(beyond, np.nan, ratio), linestyle="none", marker=look["marker"],
            markersize=4, color=look["color"], zorder=2,
        )  # fmt: skip
        for edge, marker in ((ends[1], "^"), (ends[0], "v")):
            out = beyond & ((ratio > 1) == (edge > 1))
            axes.plot(
                rows.x[out], np.full(np.count_nonzero(out), edge), linestyle="none",
                marker=marker, markersize=6, color=look["color"], clip_on=False, zorder=3,
            )  # fmt: skip


def _legend(rows: _Rows, band: float) -> Legend:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], markeredgecolor=INK, **_MEASURED)]
    labels = ["measured"]
    for place, line in enumerate(rows.lines):
        handles.append(Line2D([], [], **_predicted(line, len(rows.lines))))
        text = f"predicted, {line.label}" if line.label else "predicted"
        if len(rows.panels) == 1 and len(rows.lines) > 1:
            text += f": {_error(rows, 0, place)}"
        labels.append(text)
    handles.append(Patch(facecolor=BAND, edgecolor=BOUND, linewidth=0.5))
    labels.append(f"ratio within ±{100 * band:.3g} %")
    ratio = rows.predicted / rows.measured
    if np.nanmax(np.abs(np.log(ratio))) > np.log(_WIDEST * 1.1):
        marker = "^" if np.nanmax(ratio) > _WIDEST else "v"
        handles.append(Line2D([], [], color=INK, marker=marker, linestyle="none"))
        labels.append(f"ratio beyond {_WIDEST:.0f} or 1/{_WIDEST:.0f}")
    return Legend(handles, labels)
