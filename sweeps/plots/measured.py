"""Measurements beside predictions: curves, clouds and bands of normal, with their ratio below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis, Ticks, axis_of, scale_for
from sweeps.plots.data import View
from sweeps.plots.frame import Frame, Legend, Sample, Sheet, frame, panel_size
from sweeps.plots.lines import lines_of, pick, stroke
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
from sweeps.plots.words import panels_of, sheet_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Floats = NDArray[np.float64]

MOST_CURVES = 6  # of a panel
_STRIP = 0.9  # inches of the panel with the ratio
_WIDEST = 11.0  # ratios beyond it, and beyond its inverse, stand at the edge
_RATIO_ROOM = 0.2  # inches that a tick of the ratio's axis takes
_RATIOS = (
    (0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0),
    (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    (0.1, 0.5, 1.0, 2.0, 10.0),
    (0.1, 1.0, 10.0),
)
_WITHIN: Look = {"facecolor": BAND, "edgecolor": BOUND, "linewidth": 0.5}
_POINT: Look = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 5,
    "markerfacecolor": "white",
    "markeredgewidth": 1.3,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Measurements and the line that predicts them."""

    label: str  # What it is called
    x: Floats
    measured: Floats
    predicted: Floats
    # Of a line that was fitted: what is predicted without the fit, and the ends of its band
    profile: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    odd: NDArray[np.bool_] | None = None  # Which measurements fall out


@dataclass(frozen=True, slots=True)
class Panel:
    """What is compared in one panel."""

    name: str
    curves: Sequence[Curve]


def _ratio_axis(words: str, ratio: Floats, inches: float, least: float, most: float) -> Axis:
    """Return the axis of a ratio: as far as it goes each way, at least and at most to a factor."""
    size = np.log(ratio)
    low, high = (
        float(np.clip(1.1 * np.nanmax(side), np.log(least), np.log(most))) for side in (-size, size)
    )
    ends = float(np.exp(-low)), float(np.exp(high))
    every = [[mark for mark in marks if ends[0] <= mark <= ends[1]] for marks in _RATIOS]
    marks = next((some for some in every if len(some) <= inches / _RATIO_ROOM), every[-1])
    ticks = Ticks(tuple(marks), tuple(number(mark) for mark in marks))
    return Axis("log", *ends, ticks, words)


def _draw_ratio(axes: Axes, x: Floats, ratio: Floats, look: Look) -> None:
    """Draw ratios as points; what is beyond the axis stands at its end."""
    low, high = axes.get_ylim()
    axes.axhline(1.0, color=BOUND, linewidth=1.0, zorder=1)
    how: Look = {"linestyle": "none", "color": look["color"]}
    inside = np.where((ratio < low) | (ratio > high), np.nan, ratio)
    axes.plot(x, inside, marker=look["marker"], markersize=4, clip_on=False, zorder=2, **how)
    for edge, marker, out in ((high, "^", ratio > high), (low, "v", ratio < low)):
        if out.any():  # Nothing drawn would still be laid out, in a corner
            edges = np.full(np.count_nonzero(out), edge)
            axes.plot(x[out], edges, marker=marker, markersize=6, clip_on=False, zorder=3, **how)


def _beyond(axis: Axis, ratio: Floats) -> list[Sample]:
    """Return the sample of a legend for ratios beyond their axis, where there are some."""
    far = "^" * bool((ratio > axis.high).any()) + "v" * bool((ratio < axis.low).any())
    look = {"color": INK, "marker": far[:1], "linestyle": "none"}
    return [("ratio beyond the axis", look)] if far else []


def _framed(
    sheet: Sheet,
    axes_of: tuple[Axis, Axis, Axis],
    legend: Legend,
    draw: Callable[[Axes, Axes, int], None],
) -> Frame:
    """Return panels with a ratio below each; `draw` draws into the two of a panel."""
    made = frame(sheet, legend, *axes_of)
    for index, (axes, strip) in enumerate(zip(made.axes, made.strips, strict=True)):
        draw(axes, strip, index)
    return made


# A figure of a sweep: its predictions beside a table's measurements.

_NEAR = 0.25  # the error, as a share, up to which a ratio is shaded


def median_error(predicted: Floats, measured: Floats) -> float:
    """Return the median of the relative errors' sizes."""
    both = np.isfinite(predicted) & np.isfinite(measured) & (measured > 0)
    if not both.any():
        return float("nan")
    return float(np.median(np.abs(predicted[both] / measured[both] - 1)))


def draw_measured(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``measured``."""
    panels, looks, notes, shared = _compared(figure, view)
    curves = [curve for panel in panels for curve in panel.curves]
    several = len(looks) > 1
    strokes = {
        label: {
            "color": look["color"],
            "linestyle": look["linestyle"] if several else "solid",
            "linewidth": 1.8,
        }
        for label, look in looks.items()
    }
    width, height = panel_size(len(panels), strips=True)
    seen = [curve.x[np.isfinite(curve.measured)] for curve in curves]
    x, y, ratios = (
        np.concatenate(values)
        for values in (
            seen,
            [values for curve in curves for values in (curve.predicted, curve.measured)],
            [curve.predicted / curve.measured for curve in curves],
        )
    )
    attrs = view.attrs(figure["x"]), view.attrs(figure["y"])
    axes_of = (
        axis_of(figure["x"], attrs[0], x, scale_for(x, figure["xscale"]), width),
        axis_of(figure["y"], attrs[1], y, figure["yscale"], height, pad=0.06, vertical=True),
        _ratio_axis("Predicted / measured", ratios, _STRIP, 1 + 1.6 * _NEAR, _WIDEST),
    )
    samples: list[Sample] = [("measured", {"markeredgecolor": INK, **_POINT})]
    for label, look in strokes.items():
        text = f"predicted, {label}" if label else "predicted"
        if len(panels) == 1 and several:
            text += f": {_error(*(curve for curve in curves if curve.label == label))}"
        samples.append((text, look))
    samples.append((f"ratio within ±{100 * _NEAR:.0f} %", _WITHIN))

    def draw(axes: Axes, strip: Axes, index: int) -> None:
        strip.axhspan(1 - _NEAR, 1 + _NEAR, color=BAND, zorder=0.5)
        texts = []
        for place, curve in enumerate(panels[index].curves):
            look = strokes[curve.label]
            there = np.isfinite(curve.predicted)
            axes.plot(curve.x[there], curve.predicted[there], **look)
            if not shared or place == 0:
                colour = INK if shared else look["color"]
                axes.plot(curve.x, curve.measured, markeredgecolor=colour, zorder=3, **_POINT)
            _draw_ratio(strip, curve.x, curve.predicted / curve.measured, looks[curve.label])
            error = _error(curve)
            texts.append(f"{curve.label}: {error}" if curve.label and error else error)
        if len(panels) > 1 or not several:  # else the legend says it
            place_of: Look = {"transform": axes.transAxes, "va": "top", "zorder": 5}
            words = "\n".join(filter(None, texts))
            axes.text(0.03, 0.97, words, size=use().note, bbox=BEHIND, **place_of)

    title = f"{short_name(view, figure['y'])}: predicted and measured"
    names = [panel.name for panel in panels]
    sheet = sheet_of(figure, view, title, notes, names, strip=_STRIP)
    legend = Legend([*samples, *_beyond(axes_of[2], ratios)])
    return _framed(sheet, axes_of, legend, draw).finished()


def _compared(figure: Figure, view: View) -> tuple[list[Panel], dict[str, Look], list[str], bool]:
    """Return panels, how each line is drawn, notes, and whether lines share measurements."""
    names = panels_of(figure, view)
    panel_dims = [figure["panels"]] if len(names) > 1 else []
    by = [dim for dim in figure["lines"] if view.has(dim)]
    dims = [*panel_dims, *by, figure["x"]]
    x = view.coordinate(figure["x"])
    shape = (len(names), *(view.dataset.sizes[dim] for dim in by), len(x))
    pair = []
    for key in ("y", "measured"):
        values = view.numbers(figure[key], dims)
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        pair.append(np.broadcast_to(values if panel_dims else values[None], shape))
    predicted, measured = pair
    both = np.isfinite(predicted) & np.isfinite(measured)
    if not both.any():
        wrong = "nothing here was both predicted and measured"
        figure.refuse("measured", wrong, "choose other entries by at")
    # A prediction is shown over the sizes that were measured, not all that others were.
    begun = np.maximum.accumulate(np.isfinite(measured), -1)
    ongoing = np.maximum.accumulate(np.isfinite(measured)[..., ::-1], -1)[..., ::-1]
    predicted = np.where(begun & ongoing, predicted, np.nan)
    lines = lines_of(figure, view, by, np.asarray(both.any(axis=(0, -1))))
    looks = {line.label: stroke(line) for line in lines}
    pairs = pick(predicted, lines), pick(measured, lines)
    labels = [line.label for line in lines]
    kept = np.asarray(both.any(axis=tuple(range(1, both.ndim))))
    panels = [
        Panel(name, [Curve(*each) for each in zip(labels, [x] * len(lines), b, a, strict=True)])
        for name, a, b, keep in zip(names, *pairs, kept.tolist(), strict=True)
        if keep
    ]
    dropped = [name for name, keep in zip(names, kept.tolist(), strict=True) if not keep]
    notes = [f"Without a pair of values: {', '.join(dropped)}."] if dropped else []
    shared = not by or by[0] not in view.dataset[figure["measured"]].dims
    return panels, looks, notes, shared


def _error(curve: Curve) -> str:
    """Return a line's median error in words; nothing where it has no pair of values."""
    count = int(np.count_nonzero(np.isfinite(curve.predicted / curve.measured)))
    error = f"{100 * median_error(curve.predicted, curve.measured):.0f} %" if count else ""
    return f"median error {error} ({count} point{'s' * (count != 1)})" if count else ""


# Predicted against measured values of many runs: equality, a band, and the ratio below.

_BAND_WIDTH = 0.1
_CLOUD_PANEL = (6.4, 4.4)  # inches
_CLOUD_STRIP = 1.9
_LEAST, _MOST = 1.5, 4.3  # ratios at the strip's ends


@dataclass(frozen=True, slots=True)
class Cloud:
    """Measured and predicted values of many runs."""

    attrs: Mapping[str, str]  # ``long_name`` and ``units`` of the values
    groups: Sequence[str]  # Each point's group
    measured: Floats  # Above 0; one or more
    predicted: Floats


def draw_predicted(cloud: Cloud, stem: Path, *, title: str) -> list[Path]:
    """Draw predicted against measured values, both logarithmic, and their ratio below."""
    names = np.array(cloud.groups)
    ratio = cloud.predicted / cloud.measured
    off = np.abs(ratio - 1.0)
    # The largest group first, so that the others stay visible.
    order = sorted(set(cloud.groups), key=lambda name: (-int((names == name).sum()), name))
    edge: Look = {"linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 0.5}
    looks = {name: {**line_look(index, index), **edge} for index, name in enumerate(order)}
    samples: list[Sample] = [
        (f"{name} ({(names == name).sum()}): {100 * off[names == name].mean():.1f} %", look)
        for name, look in looks.items()
    ]
    samples.append(("predicted as measured", {"color": BOUND, "linewidth": 1.0}))
    samples.append((f"within ±{100 * _BAND_WIDTH:.0f} %", _WITHIN))

    def draw(axes: Axes, strip: Axes, _: int) -> None:
        ends = np.array(axes.get_xlim())
        band = ends * (1 - _BAND_WIDTH), ends * (1 + _BAND_WIDTH)
        axes.fill_between(ends, *band, color=BAND, zorder=0.5)
        axes.plot(ends, ends, color=BOUND, linewidth=1.0, zorder=1)
        strip.axhspan(1 - _BAND_WIDTH, 1 + _BAND_WIDTH, color=BAND, zorder=0.5)
        for name, look in looks.items():
            mine = names == name
            axes.plot(cloud.measured[mine], cloud.predicted[mine], zorder=2, **look)
            _draw_ratio(strip, cloud.measured[mine], ratio[mine], look)
        text = f"{len(off)} rows\nmean error {100 * np.mean(off):.1f} %\n"
        text += f"median {100 * np.median(off):.1f} %"
        axes.text(0.03, 0.97, text, transform=axes.transAxes, va="top", size=use().note)

    with style():
        panel = panel_size(1) if use().above else _CLOUD_PANEL
        values = np.concatenate([cloud.measured, cloud.predicted])
        least, most = float(values.min()), float(values.max())
        room = min(max((most / least) ** 0.06, 1.02), 1.25)
        # The same ends both ways, so that equality is the diagonal.
        ends = least / room, most * room
        x, y = (
            axis_of(
                word,
                {**cloud.attrs, "long_name": f"{word} {cloud.attrs['long_name']}"},
                values,
                "log",
                inches,
                vertical=word == "predicted",
                ends=ends,
            )
            for word, inches in zip(("measured", "predicted"), panel, strict=True)
        )
        strip = _ratio_axis(
            "Predicted / measured", ratio, _CLOUD_STRIP, 1.0 + 1.6 * _BAND_WIDTH, _MOST
        )
        legend = Legend([*samples, *_beyond(strip, ratio)], "Class (rows): mean error")
        sheet = Sheet(title, strip=_CLOUD_STRIP, panel=panel)
        return save(_framed(sheet, (x, y, strip), legend, draw).finished(), stem)


# Measured bus bandwidth over message size beside fitted curves, and their ratio below.

_APART, _DECADES = 4.0, 1e5  # of bandwidths
_FEW = 2  # curves of a panel up to which bands and data sheets are shown beside them
_PROFILE: Look = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.1}
_RING: Look = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 10,
    "markerfacecolor": "none",
    "markeredgecolor": ALARM,
    "markeredgewidth": 1.4,
}
_SIZE = {"long_name": "message size", "units": "byte"}
_BUSBW = {"long_name": "bus bandwidth", "units": "byte s-1"}


def draw_calibrated(
    panels: Sequence[Panel], stem: Path, *, title: str, notes: Sequence[str] = ()
) -> list[Path]:
    """Draw a panel an operation: points, curves with their bands, and the ratio below."""
    curves = [curve for panel in panels for curve in panel.curves]
    ratios = np.concatenate([curve.measured / curve.predicted for curve in curves])
    labels = dict.fromkeys(curve.label for curve in curves)
    looks = {label: line_look(index, index) for index, label in enumerate(labels)}
    both: Look = {"linewidth": 1.8, "markerfacecolor": "white", "markeredgewidth": 1.3}
    samples: list[Sample] = [(label, {**look, **both}) for label, look in looks.items()]
    if any(len(panel.curves) <= _FEW for panel in panels):
        samples.append(("profile", _PROFILE))
    samples.append(("band about the fit", _WITHIN))
    if any(curve.odd is not None and curve.odd.any() for curve in curves):
        samples.append(("falls out", _RING))

    def draw(axes: Axes, strip: Axes, index: int) -> None:
        few = len(panels[index].curves) <= _FEW
        for curve in panels[index].curves:
            look = looks[curve.label]
            _draw_fitted(axes, curve, look, few=few)
            ratio = curve.measured / curve.predicted
            _draw_ratio(strip, curve.x, ratio, look)
            if curve.odd is not None and curve.odd.any():
                clipped = np.clip(ratio[curve.odd], *strip.get_ylim())
                strip.plot(curve.x[curve.odd], clipped, zorder=4, clip_on=False, **_RING)
        every = [
            np.stack([curve.x, curve.low / curve.predicted, curve.high / curve.predicted])
            for curve in panels[index].curves
            if curve.low is not None and curve.high is not None
        ]
        x, low, high = np.concatenate(every, axis=1)
        order = np.argsort(x, kind="stable")
        shade: Look = {"color": BAND, "linewidth": 0, "step": "mid", "zorder": 0.5}
        strip.fill_between(x[order], low[order], high[order], **shade)

    with style():
        size = panel_size(len(panels), strips=True)
        x = axis_of(
            "message_bytes", _SIZE, np.concatenate([curve.x for curve in curves]), "log", size[0]
        )
        ratio = _ratio_axis("Measured / fitted", ratios, _STRIP, _LEAST, _WIDEST)
        legend = Legend([*samples, *_beyond(ratio, ratios)], "Points measured, lines fitted")
        sheet = Sheet(
            title, notes=notes, panels=[panel.name for panel in panels], strip=_STRIP, panel=size
        )
        axes_of = (x, _bandwidth_axis(panels, size[1]), ratio)
        return save(_framed(sheet, axes_of, legend, draw).finished(), stem)


def _bandwidth_axis(panels: Sequence[Panel], inches: float) -> Axis:
    """Return the axis of bandwidth: the same of all panels, so logarithmic where one is flat."""
    peaks = [max(float(curve.measured.max()) for curve in panel.curves) for panel in panels]
    shown = [curve.predicted for panel in panels for curve in panel.curves]
    few = [curve for panel in panels if len(panel.curves) <= _FEW for curve in panel.curves]
    shown += [each for curve in few for each in (curve.profile, curve.high) if each is not None]
    high = 1.04 * max([*peaks, *(float(values.max()) for values in shown)])
    log = max(peaks) > _APART * min(peaks)
    least = min(float(curve.measured.min()) for panel in panels for curve in panel.curves)
    ends = (max(least / 1.3, high / _DECADES), 1.3 * high) if log else (0.0, high)
    scale: Any = "log" if log else "linear"
    return axis_of("busbw", _BUSBW, np.array(ends), scale, inches, vertical=True, ends=ends)


def _draw_fitted(axes: Axes, curve: Curve, look: Look, *, few: bool) -> None:
    order = np.argsort(curve.x, kind="stable")
    size, colour = curve.x[order], look["color"]
    if few and curve.low is not None and curve.high is not None and curve.profile is not None:
        band: Look = {"color": colour, "alpha": 0.22, "linewidth": 0, "zorder": 1}
        axes.fill_between(size, curve.low[order], curve.high[order], **band)
        axes.plot(size, curve.profile[order], zorder=1.5, **_PROFILE)
    line: Look = {"color": colour, "linestyle": look["linestyle"], "linewidth": 1.8}
    axes.plot(size, curve.predicted[order], zorder=2, **line)
    point = {**_POINT, "marker": look["marker"], "markeredgecolor": colour}
    axes.plot(curve.x, curve.measured, zorder=3, **point)
    if curve.odd is not None:
        axes.plot(curve.x[curve.odd], curve.measured[curve.odd], zorder=4, **_RING)


# What is normal: a band, its middle, and what was published.


def draw_normal(
    rows: Sequence[Mapping[str, Any]], points: tuple[Floats, Floats], stem: Path, *, title: str
) -> list[Path]:
    """Draw a band of bus bandwidth over size, or of MFU over GPUs, with published points."""
    mfu = "mfu_low" in rows[0]
    prefix = "mfu" if mfu else "busbw"
    bands = [
        [float(row[f"{prefix}_{bound}"]) for row in rows] for bound in ("low", "typical", "high")
    ]
    if mfu:
        # The band of all runs, over their numbers of GPUs.
        bands = [[band[-1]] * 2 for band in bands]
        x = np.array([points[0].min() / 1.2, points[0].max() * 1.2])
        attrs = {"long_name": "GPUs", "units": "1"}, {"long_name": "MFU, of the dense peak"}
    else:
        x = np.array([float(row["message_bytes"]) for row in rows])
        attrs = _SIZE, _BUSBW
    top = 1.08 * max(*bands[2], *points[1].tolist())
    published: Look = {"color": INK, **_POINT, "markersize": 4}
    typical: Look = {"color": COLOURS[0], "linewidth": 1.8}
    samples: list[Sample] = [("typical", typical), ("normal", {"facecolor": BAND})]
    if points[0].size:
        samples.append((f"published {'runs' if mfu else 'curves'}", published))
    with style():
        width, height = panel_size(1)
        xaxis = axis_of("x", attrs[0], np.concatenate([x, points[0]]), "log", width)
        ends = (0.0, top)
        yaxis = axis_of(
            prefix, attrs[1], np.array(ends), "linear", height, vertical=True, ends=ends
        )
        made = frame(Sheet(title), Legend(samples), xaxis, yaxis)
        (axes,) = made.axes
        axes.fill_between(x, bands[0], bands[2], color=BAND, linewidth=0, zorder=0.5)
        axes.plot(x, bands[1], zorder=2, **typical)
        axes.plot(*points, zorder=3, **published)
        return save(made.finished(), stem)
