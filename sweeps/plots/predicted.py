"""Predicted against measured values of many runs: equality, a band, and the ratio below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis, axis_of
from sweeps.plots.frame import Legend, Sheet, frame
from sweeps.plots.readable import number
from sweeps.plots.save import save
from sweeps.plots.style import BAND, BOUND, COLOURS, INK, MARKERS, SIZE_NOTE, style
from sweeps.plots.ticks import Ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BAND_WIDTH", "Cloud", "draw_predicted"]

BAND_WIDTH = 0.1
_PANEL = (6.4, 4.4)  # inches
_STRIP = 1.9
_LEAST, _MOST = 1.5, 4.0  # ratios at the strip's ends; what is beyond stands at the end
_RATIOS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Cloud:
    """What is drawn."""

    attrs: Mapping[str, str]  # ``long_name`` and ``units`` of the values
    groups: Sequence[str]  # Each point's group
    measured: NDArray[np.float64]  # Above 0; one or more
    predicted: NDArray[np.float64]  # Above 0; one or more

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Predicted by measured."""
        return self.predicted / self.measured

    def of(self, group: str) -> NDArray[np.bool_]:
        """Return which points are of a group."""
        return np.array([name == group for name in self.groups])


def draw_predicted(
    cloud: Cloud, stem: Path, *, title: str, notes: Sequence[str] = ()
) -> list[Path]:
    """Draw predicted against measured values, both logarithmic, and their ratio below."""
    with style():
        looks = _looks(cloud)
        xaxis, yaxis = _axes(cloud)
        ratio = _ratio_axis(cloud)
        sheet = Sheet(
            title,
            xlabel=xaxis.label,
            ylabel=yaxis.label,
            strip_label=ratio.label,
            notes=notes,
            strip=_STRIP,
            panel=_PANEL,
            right=0.3,
        )
        legend = _legend(cloud, looks)
        made = frame(sheet, legend)
        xaxis.apply(made.axes[0], "x", labels=False)
        yaxis.apply(made.axes[0], "y")
        xaxis.apply(made.strips[0], "x")
        ratio.apply(made.strips[0], "y")
        _draw_values(made.axes[0], cloud, looks, (xaxis.low, xaxis.high))
        _draw_ratios(made.strips[0], cloud, looks, (ratio.low, ratio.high))
        made.legend(legend)
        return save(made.canvas, stem)


def _looks(cloud: Cloud) -> dict[str, dict[str, Any]]:
    """Return how each group is drawn: the largest first, so that the others stay visible."""
    names = sorted(set(cloud.groups), key=lambda name: (-int(cloud.of(name).sum()), name))
    return {
        name: {
            "color": COLOURS[place % len(COLOURS)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": "none",
            "markersize": 5.5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }
        for place, name in enumerate(names)
    }


def _axes(cloud: Cloud) -> tuple[Axis, Axis]:
    """Return both axes: the same ends, so that equality is the diagonal."""
    values = np.concatenate([cloud.measured, cloud.predicted])
    ends = float(values.min()) / 1.25, float(values.max()) * 1.25
    pair = []
    for word, inches, upright in (("measured", _PANEL[0], False), ("predicted", _PANEL[1], True)):
        attrs = {**cloud.attrs, "long_name": f"{word} {cloud.attrs['long_name']}"}
        pair.append(axis_of(word, attrs, values, "log", inches, vertical=upright, ends=ends))
    return pair[0], pair[1]


def _ratio_axis(cloud: Cloud) -> Axis:
    """Return the axis of the ratio: as far below 1 as above it."""
    far = float(np.exp(np.max(np.abs(np.log(cloud.ratio))))) * 1.08
    far = min(max(far, _LEAST), _MOST * 1.08)
    marks = tuple(mark for mark in _RATIOS if 1 / far <= mark <= far)
    ticks = Ticks(marks, tuple(number(mark) for mark in marks))
    return Axis("log", 1.0 / far, far, ticks, "Predicted / measured")


def _draw_values(
    axes: Axes, cloud: Cloud, looks: Mapping[str, dict[str, Any]], ends: tuple[float, float]
) -> None:
    x = np.array(ends)
    axes.fill_between(x, x * (1 - BAND_WIDTH), x * (1 + BAND_WIDTH), color=BAND, zorder=0.5)
    axes.plot(x, x, color=BOUND, linewidth=1.0, zorder=1)
    for name, look in looks.items():
        own = cloud.of(name)
        axes.plot(cloud.measured[own], cloud.predicted[own], zorder=2, **look)
    sizes = np.abs(cloud.ratio - 1.0)
    text = (
        f"{len(sizes)} rows\nmean error {100 * np.mean(sizes):.1f} %\n"
        f"median {100 * np.median(sizes):.1f} %"
    )
    axes.text(0.03, 0.97, text, transform=axes.transAxes, va="top", size=SIZE_NOTE, color=INK)


def _draw_ratios(
    axes: Axes, cloud: Cloud, looks: Mapping[str, dict[str, Any]], ends: tuple[float, float]
) -> None:
    axes.axhspan(1 - BAND_WIDTH, 1 + BAND_WIDTH, color=BAND, zorder=0.5)
    axes.axhline(1.0, color=BOUND, linewidth=1.0, zorder=1)
    shown = np.clip(cloud.ratio, *ends)
    for name, look in looks.items():
        own = cloud.of(name)
        axes.plot(cloud.measured[own], shown[own], zorder=2, clip_on=False, **look)


def _legend(cloud: Cloud, looks: Mapping[str, dict[str, Any]]) -> Legend:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    labels = []
    for name, look in looks.items():
        sizes = np.abs(cloud.ratio[cloud.of(name)] - 1.0)
        handles.append(Line2D([], [], **{**look, "markersize": 7.0}))
        labels.append(f"{name} ({len(sizes)}): {100 * np.mean(sizes):.1f} %")
    handles.append(Line2D([], [], color=BOUND, linewidth=1.0))
    labels.append("predicted as measured")
    handles.append(Patch(facecolor=BAND, edgecolor=BOUND, linewidth=0.5))
    labels.append(f"within ±{100 * BAND_WIDTH:.0f} %")
    return Legend(handles, labels, "Class (rows): mean error")
