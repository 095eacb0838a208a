"""Measured bus bandwidth over message size beside fitted curves, and their ratio below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis, axis_of
from sweeps.plots.frame import Legend, Sheet, frame, panel_size
from sweeps.plots.readable import number
from sweeps.plots.save import save
from sweeps.plots.style import ALARM, BAND, BOUND, COLOURS, MARKERS, MUTED, STROKES, style
from sweeps.plots.ticks import Ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_CURVES", "Curve", "Panel", "draw_calibrated"]

Floats = NDArray[np.float64]

MOST_CURVES = 6
_STRIP = 0.95  # inches of the panel with the ratio
_PALE = 0.22
_APART, _DECADES = 4.0, 1e5  # of bandwidths
_FEW = 2  # curves of a panel up to which bands and data sheets are shown beside them
_SHEET: dict[str, Any] = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.1}
_LEAST, _WIDEST = 1.5, 10.0  # ratios at the strip's ends; what is beyond stands at the end
_RATIOS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: an operation on some ranks."""

    label: str  # Its ranks
    message_bytes: Floats  # Measured bus bandwidths [byte s-1]
    measured: Floats  # Measured bus bandwidths [byte s-1]
    fitted: Floats  # Predicted ones at the same sizes, and the ends of the band about the fit
    data_sheet: Floats  # Predicted ones at the same sizes, and the ends of the band about the fit
    low: Floats  # Predicted ones at the same sizes, and the ends of the band about the fit
    high: Floats  # Predicted ones at the same sizes, and the ends of the band about the fit
    odd: NDArray[np.bool_]  # Which measurements fall out


@dataclass(frozen=True, slots=True)
class Panel:
    """One operation with its curves."""

    operation: str
    curves: Sequence[Curve]


def draw_calibrated(
    panels: Sequence[Panel], stem: Path, *, title: str, notes: Sequence[str] = ()
) -> list[Path]:
    """Draw a panel an operation: points, curves with their bands, and the ratio below."""
    labels = list(dict.fromkeys(one.label for panel in panels for one in panel.curves))
    looks = {name: _look(place) for place, name in enumerate(labels)}
    with style():
        size = panel_size(len(panels))
        xaxis, yaxis, ratio = _axes(panels, size)
        sheet = Sheet(
            title, xlabel=xaxis.label, ylabel=yaxis.label, strip_label="Measured / fitted",
            notes=notes, panels=[panel.operation for panel in panels], strip=_STRIP, panel=size,
            right=0.3,
        )  # fmt: skip
        legend = _legend(looks, panels)
        made = frame(sheet, legend)
        for index, panel in enumerate(panels):
            lowest, first = made.outer(index)
            xaxis.apply(made.axes[index], "x", labels=False)
            xaxis.apply(made.strips[index], "x", labels=lowest)
            yaxis.apply(made.axes[index], "y", labels=first)
            ratio.apply(made.strips[index], "y", labels=first)
            _draw_panel(made.axes[index], panel, looks)
            _draw_strip(made.strips[index], panel, looks, (ratio.low, ratio.high))
        made.legend(legend)
        return save(made.canvas, stem)


def _look(place: int) -> dict[str, Any]:
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": STROKES[place % len(STROKES)],
    }


def _axes(panels: Sequence[Panel], size: tuple[float, float]) -> tuple[Axis, Axis, Axis]:
    """Return the axes of size, of bandwidth (all panels' the same), and of the ratio."""
    curves = [one for panel in panels for one in panel.curves]
    sizes = np.concatenate([one.message_bytes for one in curves])
    about = {"long_name": "message size", "units": "byte"}
    xaxis = axis_of("message_bytes", about, sizes, "log", size[0])
    peaks = [max(float(one.measured.max()) for one in panel.curves) for panel in panels]
    about = {"long_name": "bus bandwidth", "units": "byte s-1"}
    high = 1.08 * max([*peaks, *(float(one.fitted.max()) for one in curves)])
    # Panels of one scale; logarithmic where the lowest would be flat on a linear one.
    log = max(peaks) > _APART * min(peaks)
    least = min(float(one.measured.min()) for one in curves)
    ends = (max(least / 1.3, high / _DECADES), 1.3 * high) if log else (0.0, high)
    yaxis = axis_of(
        "busbw", about, np.array(ends), "log" if log else "linear", size[1], vertical=True,
        ends=ends,
    )  # fmt: skip
    far = max(float(np.max(np.abs(np.log(one.measured / one.fitted)))) for one in curves)
    far = min(max(float(np.exp(far)), _LEAST) * 1.1, _WIDEST)
    marks = tuple(mark for mark in _RATIOS if 1.0 / far < mark < far)
    if len(marks) < 3:
        marks = (0.7, 1.0, 1.4)
    ticks = Ticks(marks, tuple(number(mark) for mark in marks))
    return xaxis, yaxis, Axis("log", 1.0 / far, far, ticks, "Measured / fitted")


def _draw_panel(axes: Axes, panel: Panel, looks: dict[str, dict[str, Any]]) -> None:
    for one in panel.curves:
        look = looks[one.label]
        order = np.argsort(one.message_bytes, kind="stable")
        size = one.message_bytes[order]
        if len(panel.curves) <= _FEW:
            axes.fill_between(
                size, one.low[order], one.high[order], color=look["color"], alpha=_PALE,
                linewidth=0, zorder=1,
            )  # fmt: skip
            axes.plot(size, one.data_sheet[order], zorder=1.5, **_SHEET)
        axes.plot(
            size, one.fitted[order], color=look["color"], linestyle=look["linestyle"],
            linewidth=1.8, zorder=2,
        )  # fmt: skip
        axes.plot(
            one.message_bytes, one.measured, linestyle="none", marker=look["marker"],
            markersize=5, markerfacecolor="white", markeredgecolor=look["color"],
            markeredgewidth=1.3, zorder=3,
        )  # fmt: skip
        _ring(axes, one.message_bytes[one.odd], one.measured[one.odd])
    axes.margins(x=0)


def _ring(axes: Axes, x: Floats, y: Floats, *, clipped: bool = True) -> None:
    axes.plot(
        x, y, linestyle="none", marker="o", markersize=10, markerfacecolor="none",
        markeredgecolor=ALARM, markeredgewidth=1.4, zorder=4, clip_on=clipped,
    )  # fmt: skip


def _draw_strip(
    axes: Axes, panel: Panel, looks: dict[str, dict[str, Any]], ends: tuple[float, float]
) -> None:
    axes.axhline(1.0, color=BOUND, linewidth=1.0, zorder=1)
    size = np.concatenate([one.message_bytes for one in panel.curves])
    order = np.argsort(size, kind="stable")
    low, high = (
        np.concatenate([getattr(one, name) / one.fitted for one in panel.curves])
        for name in ("low", "high")
    )
    axes.fill_between(
        size[order], low[order], high[order], color=BAND, linewidth=0, step="mid", zorder=0.5
    )
    for one in panel.curves:
        look = looks[one.label]
        shown = np.clip(one.measured / one.fitted, *ends)
        axes.plot(
            one.message_bytes, shown, linestyle="none", marker=look["marker"], markersize=4,
            color=look["color"], zorder=2, clip_on=False,
        )  # fmt: skip
        _ring(axes, one.message_bytes[one.odd], shown[one.odd], clipped=False)


def _legend(looks: dict[str, dict[str, Any]], panels: Sequence[Panel]) -> Legend:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    labels = []
    for name, look in looks.items():
        handles.append(
            Line2D(
                [], [], color=look["color"], linestyle=look["linestyle"], linewidth=1.8,
                marker=look["marker"], markerfacecolor="white", markeredgewidth=1.3,
            )
        )  # fmt: skip
        labels.append(name)
    if any(len(panel.curves) <= _FEW for panel in panels):
        handles.append(Line2D([], [], **_SHEET))
        labels.append("data sheet")
    handles.append(Patch(facecolor=BAND, edgecolor=BOUND, linewidth=0.5))
    labels.append("band about the fit")
    if any(one.odd.any() for panel in panels for one in panel.curves):
        handles.append(
            Line2D(
                [], [], linestyle="none", marker="o", markersize=10, markerfacecolor="none",
                markeredgecolor=ALARM, markeredgewidth=1.4,
            )
        )  # fmt: skip
        labels.append("falls out")
    return Legend(handles, labels, "Points measured, lines fitted")
