"""Predictions beside measurements, and their ratio below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.curves import Line, lines_of, pick, stroke
from sweeps.plots.data import View
from sweeps.plots.frame import (
    Axis,
    Legend,
    Sample,
    Sheet,
    Ticks,
    axis_of,
    frame,
    panel_size,
    scale_for,
)
from sweeps.plots.marks import panels_of, sheet_of, short_name
from sweeps.plots.save import save
from sweeps.plots.schema import Figure
from sweeps.plots.style import (
    ALARM,
    BAND,
    BEHIND,
    BOUND,
    COLOURS,
    INK,
    MUTED,
    Look,
    line_look,
    number,
    style,
    use,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_STRIP = 0.85  # inches of the panel with the ratio
_WIDEST = 11.0  # ratios beyond it, and beyond its inverse, stand at the edge
_RATIO_ROOM = 0.2  # inches that a tick of the ratio's axis takes
_RATIOS = (
    (0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0),
    (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    (0.1, 0.5, 1.0, 2.0, 10.0),
    (0.1, 1.0, 10.0),
)
_WITHIN: dict[str, object] = {"facecolor": BAND, "edgecolor": BOUND, "linewidth": 0.5}
_MEASURED: Look = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 5,
    "markerfacecolor": "white",
    "markeredgewidth": 1.3,
}


def _ratio_axis(
    label: str, ratio: NDArray[np.float64], inches: float, least: float, most: float = _WIDEST
) -> Axis:
    """Return the axis of a ratio: as far as it goes each way, at least and at most to a factor."""
    size = np.log(ratio)
    low, high = (
        float(np.clip(1.1 * np.nanmax(side), np.log(least), np.log(most))) for side in (-size, size)
    )
    ends = float(np.exp(-low)), float(np.exp(high))
    every = [[mark for mark in marks if ends[0] <= mark <= ends[1]] for marks in _RATIOS]
    marks = next((some for some in every if len(some) <= inches / _RATIO_ROOM), every[-1])
    ticks = Ticks(tuple(marks), tuple(number(mark) for mark in marks))
    return Axis("log", *ends, ticks, label)


def _draw_ratio(
    axes: Axes, x: NDArray[np.float64], ratio: NDArray[np.float64], look: Mapping[str, Any]
) -> None:
    """Draw ratios as points; what is beyond the axis stands at its end."""
    low, high = axes.get_ylim()
    how: dict[str, Any] = {"linestyle": "none", "color": look["color"]}
    inside = np.where((ratio < low) | (ratio > high), np.nan, ratio)
    axes.plot(x, inside, marker=look["marker"], markersize=4, zorder=2, **how)
    for edge, marker, out in ((high, "^", ratio > high), (low, "v", ratio < low)):
        if out.any():  # Nothing drawn would still be laid out, in a corner
            edges = np.full(np.count_nonzero(out), edge)
            axes.plot(x[out], edges, marker=marker, markersize=6, clip_on=False, zorder=3, **how)


def _draw_within(axes: Axes, band: float) -> None:
    """Draw equality in the panel of a ratio, and a band about it."""
    axes.axhspan(1 - band, 1 + band, color=BAND, zorder=0.5)
    axes.axhline(1.0, color=BOUND, linewidth=1.0, zorder=1)


def _beyond(axis: Axis, ratio: NDArray[np.float64]) -> list[Sample]:
    """Return the sample of a legend for ratios beyond their axis, where there are some."""
    far = [
        marker for marker, out in (("^", ratio > axis.high), ("v", ratio < axis.low)) if out.any()
    ]
    look = {"color": INK, "marker": far[0], "linestyle": "none"} if far else {}
    return [("ratio beyond the axis", look)] if far else []


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

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Predicted by measured."""
        return self.predicted / self.measured


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
    band = figure["band"]
    ratio = _ratio_axis("Predicted / measured", rows.ratio, _STRIP, 1 + 1.6 * band)
    title = f"{short_name(view, figure['y'])}: predicted and measured"
    sheet = sheet_of(
        figure,
        view,
        title,
        rows.notes,
        rows.panels,
        xlabel=xaxis.label,
        ylabel=yaxis.label,
        strip_label=ratio.label,
        strip=_STRIP,
    )
    legend = _legend(rows, band, ratio)
    made = frame(sheet, legend)
    for index, (axes, strip) in enumerate(zip(made.axes, made.strips, strict=True)):
        made.set_axes(index, xaxis, yaxis, ratio)
        _draw_panel(axes, rows, index)
        _draw_within(strip, band)
        for position, line in enumerate(rows.lines):
            _draw_ratio(strip, rows.x, rows.ratio[index, position], stroke(line))
    return made.finished()


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
    along_lines = bool(by) and by[0] in view.dataset[figure["measured"]].dims
    return _Rows(
        [name for name in panels if name not in dropped],
        lines,
        x,
        pick(predicted, lines)[kept],
        pick(measured, lines)[kept],
        along_lines,
        notes,
    )


def _axes(figure: Figure, view: View, rows: _Rows) -> tuple[Axis, Axis]:
    width, height = panel_size(len(rows.panels), strips=True)
    seen = np.isfinite(rows.measured).any(axis=(0, 1))
    x_name, y_name = figure["x"], figure["y"]
    x = rows.x[seen]
    xaxis = axis_of(x_name, view.attrs(x_name), x, scale_for(x, figure["xscale"]), width)
    values = np.concatenate([rows.predicted.ravel(), rows.measured.ravel()])
    yaxis = axis_of(
        y_name, view.attrs(y_name), values, figure["yscale"], height, pad=0.06, vertical=True
    )
    return xaxis, yaxis


def _draw_panel(axes: Axes, rows: _Rows, index: int) -> None:
    for position, line in enumerate(rows.lines):
        how = _predicted(line, len(rows.lines))
        predicted, measured = rows.predicted[index, position], rows.measured[index, position]
        seen = np.isfinite(predicted)
        axes.plot(rows.x[seen], predicted[seen], **how)
        if rows.own or position == 0:
            colour = how["color"] if rows.own else INK
            axes.plot(rows.x, measured, markeredgecolor=colour, zorder=3, **_MEASURED)
    if len(rows.panels) == 1 and len(rows.lines) > 1:
        return  # the legend says it
    texts = []
    for position, line in enumerate(rows.lines):
        text = _error(rows, index, position)
        texts.append(f"{line.label}: {text}" if line.label and text else text)
    axes.text(
        0.03,
        0.97,
        "\n".join(text for text in texts if text),
        transform=axes.transAxes,
        va="top",
        size=use().note,
        zorder=5,
        bbox=BEHIND,
    )


def _error(rows: _Rows, index: int, position: int) -> str:
    """Return a line's median error in words; nothing where it has no pair of values."""
    predicted, measured = rows.predicted[index, position], rows.measured[index, position]
    count = int(np.count_nonzero(np.isfinite(predicted / measured)))
    if count == 0:
        return ""
    points = "point" if count == 1 else "points"
    return f"median error {100 * median_error(predicted, measured):.0f} % ({count} {points})"


def _predicted(line: Line, count: int) -> Look:
    look = stroke(line)
    return {
        "color": look["color"],
        "linestyle": look["linestyle"] if count > 1 else "solid",
        "linewidth": 1.8,
    }


def _legend(rows: _Rows, band: float, axis: Axis) -> Legend:
    samples: list[Sample] = [("measured", {"markeredgecolor": INK, **_MEASURED})]
    for index, line in enumerate(rows.lines):
        text = f"predicted, {line.label}" if line.label else "predicted"
        if len(rows.panels) == 1 and len(rows.lines) > 1:
            text += f": {_error(rows, 0, index)}"
        samples.append((text, _predicted(line, len(rows.lines))))
    samples.append((f"ratio within ±{100 * band:.3g} %", _WITHIN))
    samples += _beyond(axis, rows.ratio)
    return Legend(samples)


# Predicted against measured values of many runs: equality, a band, and the ratio below.

BAND_WIDTH = 0.1
_PANEL = (6.4, 4.4)  # inches
_PREDICTED_STRIP = 1.9
_LEAST, _MOST = 1.5, 4.3  # ratios at the strip's ends


def _panel() -> tuple[float, float]:
    return panel_size(1) if use().above else _PANEL


@dataclass(frozen=True, slots=True)
class Cloud:
    """What is drawn."""

    attrs: Mapping[str, str]  # ``long_name`` and ``units`` of the values
    groups: Sequence[str]  # Each point's group
    measured: NDArray[np.float64]  # Above 0; one or more
    predicted: NDArray[np.float64]

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Predicted by measured."""
        return self.predicted / self.measured

    def of(self, group: str) -> NDArray[np.bool_]:
        """Return which points are of a group."""
        return np.array([name == group for name in self.groups])


def draw_predicted(cloud: Cloud, stem: Path, *, title: str) -> list[Path]:
    """Draw predicted against measured values, both logarithmic, and their ratio below."""
    with style():
        looks = _looks(cloud)
        xaxis, yaxis = _predicted_axes(cloud)
        least = 1.0 + 1.6 * BAND_WIDTH
        ratio = _ratio_axis("Predicted / measured", cloud.ratio, _PREDICTED_STRIP, least, _MOST)
        sheet = Sheet(
            title,
            xlabel=xaxis.label,
            ylabel=yaxis.label,
            strip_label=ratio.label,
            strip=_PREDICTED_STRIP,
            panel=_panel(),
        )
        legend = _predicted_legend(cloud, looks, ratio)
        made = frame(sheet, legend)
        made.set_axes(0, xaxis, yaxis, ratio)
        _draw_values(made.axes[0], cloud, looks, (xaxis.low, xaxis.high))
        _draw_within(made.strips[0], BAND_WIDTH)
        for name, look in looks.items():
            mask = cloud.of(name)
            _draw_ratio(made.strips[0], cloud.measured[mask], cloud.ratio[mask], look)
        return save(made.finished(), stem)


def _looks(cloud: Cloud) -> dict[str, dict[str, object]]:
    """Return how each group is drawn: the largest first, so that the others stay visible."""
    names = sorted(set(cloud.groups), key=lambda name: (-int(cloud.of(name).sum()), name))
    return {
        name: {
            **line_look(index, index),
            "linestyle": "none",
            "markersize": 5.5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }
        for index, name in enumerate(names)
    }


def _predicted_axes(cloud: Cloud) -> tuple[Axis, Axis]:
    """Return both axes: the same ends, so that equality is the diagonal."""
    values = np.concatenate([cloud.measured, cloud.predicted])
    least, most = float(values.min()), float(values.max())
    room = min(max((most / least) ** 0.06, 1.02), 1.25)
    ends = least / room, most * room
    pair = []
    for word, inches, upright in (
        ("measured", _panel()[0], False),
        ("predicted", _panel()[1], True),
    ):
        attrs = {**cloud.attrs, "long_name": f"{word} {cloud.attrs['long_name']}"}
        pair.append(axis_of(word, attrs, values, "log", inches, vertical=upright, ends=ends))
    return pair[0], pair[1]


def _draw_values(
    axes: Axes, cloud: Cloud, looks: Mapping[str, Look], ends: tuple[float, float]
) -> None:
    x = np.array(ends)
    axes.fill_between(x, x * (1 - BAND_WIDTH), x * (1 + BAND_WIDTH), color=BAND, zorder=0.5)
    axes.plot(x, x, color=BOUND, linewidth=1.0, zorder=1)
    for name, look in looks.items():
        cells = cloud.of(name)
        axes.plot(cloud.measured[cells], cloud.predicted[cells], zorder=2, **look)
    sizes = np.abs(cloud.ratio - 1.0)
    text = (
        f"{len(sizes)} rows\nmean error {100 * np.mean(sizes):.1f} %\n"
        f"median {100 * np.median(sizes):.1f} %"
    )
    axes.text(0.03, 0.97, text, transform=axes.transAxes, va="top", size=use().note, color=INK)


def _predicted_legend(cloud: Cloud, looks: Mapping[str, Look], axis: Axis) -> Legend:
    samples: list[Sample] = []
    for name, look in looks.items():
        sizes = np.abs(cloud.ratio[cloud.of(name)] - 1.0)
        text = f"{name} ({len(sizes)}): {100 * np.mean(sizes):.1f} %"
        samples.append((text, {**look, "markersize": 7.0}))
    samples.append(("predicted as measured", {"color": BOUND, "linewidth": 1.0}))
    samples.append((f"within ±{100 * BAND_WIDTH:.0f} %", _WITHIN))
    samples += _beyond(axis, cloud.ratio)
    return Legend(samples, "Class (rows): mean error")


# Measured bus bandwidth over message size beside fitted curves, and their ratio below.

Floats = NDArray[np.float64]

MOST_CURVES = 6
_CALIBRATED_STRIP = 0.95  # inches of the panel with the ratio
_PALE = 0.22
_APART, _DECADES = 4.0, 1e5  # of bandwidths
_FEW = 2  # curves of a panel up to which bands and data sheets are shown beside them
_SHEET: Look = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.1}
_RING: Look = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 10,
    "markerfacecolor": "none",
    "markeredgecolor": ALARM,
    "markeredgewidth": 1.4,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: an operation on some ranks."""

    label: str  # Its ranks
    # Sizes, and bus bandwidths that were measured there [byte s-1]
    message_bytes: Floats
    measured: Floats
    # Predicted ones at the same sizes, and the ends of the band about the fit
    fitted: Floats
    profile: Floats
    low: Floats
    high: Floats
    odd: NDArray[np.bool_]  # Which measurements fall out

    @property
    def ratio(self) -> Floats:
        """Measured by fitted."""
        return self.measured / self.fitted


@dataclass(frozen=True, slots=True)
class Panel:
    """One operation with its curves."""

    operation: str
    curves: Sequence[Curve]


def draw_calibrated(
    panels: Sequence[Panel], stem: Path, *, title: str, notes: Sequence[str] = ()
) -> list[Path]:
    """Draw a panel an operation: points, curves with their bands, and the ratio below."""
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    looks = {name: line_look(colour, colour) for colour, name in enumerate(labels)}
    with style():
        size = panel_size(len(panels), strips=True)
        xaxis, yaxis, ratio = _calibrated_axes(panels, size)
        sheet = Sheet(
            title,
            xlabel=xaxis.label,
            ylabel=yaxis.label,
            strip_label=ratio.label,
            notes=notes,
            panels=[panel.operation for panel in panels],
            strip=_CALIBRATED_STRIP,
            panel=size,
        )
        legend = _calibrated_legend(looks, panels, ratio)
        made = frame(sheet, legend)
        for index, panel in enumerate(panels):
            made.set_axes(index, xaxis, yaxis, ratio)
            _calibrated_draw_panel(made.axes[index], panel, looks)
            _draw_strip(made.strips[index], panel, looks)
        return save(made.finished(), stem)


def _calibrated_axes(panels: Sequence[Panel], size: tuple[float, float]) -> tuple[Axis, Axis, Axis]:
    """Return the axes of size, of bandwidth (all panels' the same), and of the ratio."""
    curves = [curve for panel in panels for curve in panel.curves]
    sizes = np.concatenate([series.message_bytes for series in curves])
    about = {"long_name": "message size", "units": "byte"}
    xaxis = axis_of("message_bytes", about, sizes, "log", size[0])
    peaks = [max(float(series.measured.max()) for series in panel.curves) for panel in panels]
    about = {"long_name": "bus bandwidth", "units": "byte s-1"}
    shown = [series.fitted for series in curves]
    few = [series for panel in panels if len(panel.curves) <= _FEW for series in panel.curves]
    shown += [values for series in few for values in (series.profile, series.high)]
    high = 1.04 * max([*peaks, *(float(values.max()) for values in shown)])
    # Panels of one scale; logarithmic where the lowest would be flat on a linear one.
    log = max(peaks) > _APART * min(peaks)
    least = min(float(series.measured.min()) for series in curves)
    ends = (max(least / 1.3, high / _DECADES), 1.3 * high) if log else (0.0, high)
    yaxis = axis_of(
        "busbw",
        about,
        np.array(ends),
        "log" if log else "linear",
        size[1],
        vertical=True,
        ends=ends,
    )
    ratio = np.concatenate([series.ratio for series in curves])
    return xaxis, yaxis, _ratio_axis("Measured / fitted", ratio, _CALIBRATED_STRIP, _LEAST)


def _calibrated_draw_panel(axes: Axes, panel: Panel, looks: dict[str, Look]) -> None:
    for curve in panel.curves:
        look = looks[curve.label]
        order = np.argsort(curve.message_bytes, kind="stable")
        size = curve.message_bytes[order]
        if len(panel.curves) <= _FEW:
            axes.fill_between(
                size,
                curve.low[order],
                curve.high[order],
                color=look["color"],
                alpha=_PALE,
                linewidth=0,
                zorder=1,
            )
            axes.plot(size, curve.profile[order], zorder=1.5, **_SHEET)
        axes.plot(
            size,
            curve.fitted[order],
            color=look["color"],
            linestyle=look["linestyle"],
            linewidth=1.8,
            zorder=2,
        )
        axes.plot(
            curve.message_bytes,
            curve.measured,
            linestyle="none",
            marker=look["marker"],
            markersize=5,
            markerfacecolor="white",
            markeredgecolor=look["color"],
            markeredgewidth=1.3,
            zorder=3,
        )
        axes.plot(curve.message_bytes[curve.odd], curve.measured[curve.odd], zorder=4, **_RING)
    axes.margins(x=0)


def _draw_strip(axes: Axes, panel: Panel, looks: dict[str, dict[str, Any]]) -> None:
    axes.axhline(1.0, color=BOUND, linewidth=1.0, zorder=1)
    size = np.concatenate([curve.message_bytes for curve in panel.curves])
    order = np.argsort(size, kind="stable")
    low, high = (
        np.concatenate([getattr(series, name) / series.fitted for series in panel.curves])
        for name in ("low", "high")
    )
    axes.fill_between(
        size[order], low[order], high[order], color=BAND, linewidth=0, step="mid", zorder=0.5
    )
    for measured_curve in panel.curves:
        _draw_ratio(
            axes, measured_curve.message_bytes, measured_curve.ratio, looks[measured_curve.label]
        )
        if measured_curve.odd.any():
            rings = np.clip(measured_curve.ratio[measured_curve.odd], *axes.get_ylim())
            axes.plot(
                measured_curve.message_bytes[measured_curve.odd],
                rings,
                zorder=4,
                clip_on=False,
                **_RING,
            )


def _calibrated_legend(
    looks: dict[str, dict[str, Any]], panels: Sequence[Panel], axis: Axis
) -> Legend:
    both = {"linewidth": 1.8, "markerfacecolor": "white", "markeredgewidth": 1.3}
    samples: list[Sample] = [(name, {**look, **both}) for name, look in looks.items()]
    if any(len(panel.curves) <= _FEW for panel in panels):
        samples.append(("profile", _SHEET))
    samples.append(("band about the fit", _WITHIN))
    if any(curve.odd.any() for panel in panels for curve in panel.curves):
        samples.append(("falls out", _RING))
    samples += _beyond(axis, np.concatenate([c.ratio for panel in panels for c in panel.curves]))
    return Legend(samples, "Points measured, lines fitted")


# What is normal: a band, its middle, and what was published.


def draw_normal(
    rows: Sequence[Mapping[str, Any]], points: tuple[Floats, Floats], stem: Path, *, title: str
) -> list[Path]:
    """Draw a band of bus bandwidth over size, or of MFU over GPUs, with published points."""
    mfu = "mfu_low" in rows[0]
    name, about = (
        ("gpus", {"long_name": "GPUs", "units": "1"})
        if mfu
        else ("message_bytes", {"long_name": "message size", "units": "byte"})
    )
    high = (
        ("mfu", {"long_name": "MFU, of the dense peak", "units": "1"})
        if mfu
        else ("busbw", {"long_name": "bus bandwidth", "units": "byte s-1"})
    )
    prefix = "mfu" if mfu else "busbw"
    bands = [
        [float(row[f"{prefix}_{bound}"]) for row in rows] for bound in ("low", "typical", "high")
    ]
    x = np.array([] if mfu else [float(row[name]) for row in rows])
    if mfu:
        # The band of all runs, over their numbers of GPUs.
        bands = [[band[-1]] * 2 for band in bands]
        x = np.array([points[0].min() / 1.2, points[0].max() * 1.2])
    with style():
        width, height = panel_size(1)
        xaxis = axis_of(name, about, np.concatenate([x, points[0]]), "log", width)
        top = 1.08 * max(*bands[2], *points[1].tolist())
        yaxis = axis_of(
            *high, np.array([0.0, top]), "linear", height, vertical=True, ends=(0.0, top)
        )
        published = {"color": INK, **_MEASURED, "markersize": 4}
        samples: list[Sample] = [
            ("typical", {"color": COLOURS[0], "linewidth": 1.8}),
            ("normal", {"facecolor": BAND}),
        ]
        if points[0].size:
            samples.append((f"published {'runs' if mfu else 'curves'}", published))
        made = frame(Sheet(title, xlabel=xaxis.label, ylabel=yaxis.label), Legend(samples))
        (axes,) = made.axes
        made.set_axes(0, xaxis, yaxis)
        axes.fill_between(x, bands[0], bands[2], color=BAND, linewidth=0, zorder=0.5)
        axes.plot(x, bands[1], color=COLOURS[0], linewidth=1.8, zorder=2)
        axes.plot(*points, zorder=3, **published)
        axes.margins(x=0)
        return save(made.finished(), stem)
