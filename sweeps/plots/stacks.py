"""Stacked bars as they are drawn: parts, totals, capacity, what stands at the bars' ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.origin import ASSUMED
from sweeps.plots.axis import Axis, axis_of
from sweeps.plots.data import View
from sweeps.plots.frame import Frame, Legend, Sample, Sheet, frame, panel_size
from sweeps.plots.schema import Figure
from sweeps.plots.style import (
    ALARM,
    BEHIND,
    CAPACITY,
    IN_GB,
    IN_GPU,
    INK,
    MUTED,
    Look,
    as_read,
    launched,
    number,
    plain,
    region_colour,
    scale_of,
    text_width,
    together,
    use,
    wrap,
)
from sweeps.plots.words import sheet_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_SLOT = 0.34  # inches that a bar takes
_SLOT_OF_TWO = 0.42  # the same where names take two lines
_NAME_WIDTH = 3.1  # inches of a name beside a bar
_CLOSER = 0.75  # slots of a slide and a paper by those of a screen, relative to their type
_NAME_IN_COLUMN = 1.5  # the same in a paper's column
_AROUND_BARS = 0.4  # inches of a column beside names and bars
_BAR = 0.72  # of its slot
_MOST_ROOM = 0.6  # of a panel's width, for what stands at a bar's end
_PLAIN_COLOURS = 8  # areas after these are lighter, and striped to be told apart
TOGETHER = (16, 17)  # the colours of small parts put together: those that work, and that wait
_COLOURS_TOGETHER = ("#D9C9A8", "#4A4A4A")
_STRIPES = "\\\\\\"  # lines: hundreds of dots would make a vector file large
# What is beyond the capacity: paler, with stripes.
_OVER: Look = {
    "facecolor": (1.0, 1.0, 1.0, 0.6),
    "edgecolor": ALARM,
    "linewidth": 0.0,
    "hatch": "////",
}
_PAD = 0.09  # of an axis, beyond the longest bar


@dataclass(frozen=True, slots=True)
class Stacks:
    """What is drawn."""

    panels: Sequence[str]  # A heading for each panel
    names: Sequence[str]  # The bars' names
    labels: Sequence[str]  # The parts' names
    parts: NDArray[np.float64]  # NaN where there is no value; shape (panels, parts, bars)
    units: str  # The parts' unit
    quantity: str = "total"  # What the parts are parts of
    colours: Sequence[int] = ()  # The area's colour of each part; empty: in their order
    capacity: NDArray[np.float64] | None = None  # The limit of each bar
    limit: str = ""  # What the capacity is called
    # What stands after each bar's total, by panel; empty: nothing
    bar_notes: Sequence[Sequence[str]] = ()
    # Why there is no bar, by panel; empty: just that there is none
    missing: Sequence[Sequence[str]] = ()
    # Which bars can't be, for another reason than their capacity
    alarm: NDArray[np.bool_] | None = None

    @property
    def totals(self) -> NDArray[np.float64]:
        """Length of each bar, shape (panels, bars); NaN where a part is missing."""
        return np.asarray(self.parts.sum(axis=1))

    @property
    def beyond(self) -> NDArray[np.bool_]:
        """Which bars exceed the capacity, shape (panels, bars)."""
        return np.asarray(self.totals > (np.inf if self.capacity is None else self.capacity))

    def fill(self, part: int) -> Look:
        """Return how a part's area is filled."""
        colour = self.colours[part] if self.colours else part
        look: Look = {"facecolor": region_colour(colour), "edgecolor": "white", "linewidth": 0.8}
        if colour in TOGETHER:
            return look | {"facecolor": _COLOURS_TOGETHER[TOGETHER.index(colour)]}
        if self.colours and colour >= _PLAIN_COLOURS:
            look |= {"hatch": _STRIPES, "edgecolor": MUTED, "linewidth": 0.0}
        return look

    def panel(self) -> tuple[float, float]:
        """Return a panel's width and height in inches."""
        wide = panel_size(len(self.panels))[0]
        names = [_lines(name) for name in self.names]
        slot = _SLOT_OF_TWO if any(len(lines) > 1 for lines in names) else _SLOT
        slot *= use().scale * (_CLOSER if use().above else 1.0)
        if use().column:  # What their names leave of it
            widths = [text_width(line, use().tick) for lines in names for line in lines]
            wide = use().width - max(widths, default=0.0) - _AROUND_BARS
        return wide, max(slot * len(self.names), 1.0 * use().scale)


def _lines(name: str) -> list[str]:
    room = _NAME_IN_COLUMN if use().column else _NAME_WIDTH * use().scale
    lines = wrap(together(launched(name)), room, use().tick, most=2)
    return [line.removesuffix(" ·") for line in lines]


def draw_stacks(stacks: Stacks, sheet: Sheet) -> Canvas:
    """Draw stacked bars: no part is below nought, but for a bar of one part alone."""
    if stacks.capacity is not None and stacks.units == IN_GB:
        stacks = replace(stacks, units=IN_GPU)
    size = stacks.panel()
    value = _value_axis(stacks, size[0])
    made = frame(
        replace(sheet, panel=size, panels=stacks.panels, stacked=True), _legend(stacks), value
    )
    for index, axes in enumerate(made.axes):
        _draw_panel(axes, stacks, index, value, made)
    return made.finished()


def _value_axis(stacks: Stacks, inches: float) -> Axis:
    values = np.append(stacks.totals, 0.0)
    if stacks.capacity is not None:
        values = np.append(values, stacks.capacity)
    # Room beyond the longest bar for what stands at its end.
    pad = _PAD
    if stacks.bar_notes:
        factor, _ = scale_of(stacks.units).pick(float(np.nanmax(stacks.totals, initial=0.0)))
        cells = np.ndindex(stacks.totals.shape)
        texts = (_end_text(stacks, panel, bar, factor) for panel, bar in cells)
        room = max(text_width(text, use().note, bold=True) for text in texts) + 0.15
        share = min(room / inches, _MOST_ROOM)
        pad = max(share / (1 - share) / 2, pad)
    attrs = {"long_name": stacks.quantity, "units": stacks.units}
    return axis_of("total", attrs, values, "linear", inches, pad=pad)


def _draw_panel(axes: Axes, stacks: Stacks, index: int, value: Axis, made: Frame) -> None:
    _, first = made.outer(index)
    bars = np.arange(len(stacks.names), dtype=np.float64)
    done = np.zeros(len(bars))
    for part, lengths in enumerate(
        np.where(np.isfinite(stacks.totals[index]), stacks.parts[index], 0.0)
    ):
        there = lengths != 0  # What isn't there gets no bar, not one of length zero
        axes.barh(bars[there], lengths[there], height=_BAR, left=done[there], **stacks.fill(part))
        done += lengths
    name_rows(axes, ["\n".join(_lines(name)) for name in stacks.names], shown=first)
    if stacks.capacity is not None:
        limits, over = stacks.capacity[index], stacks.beyond[index]
        beyond = (stacks.totals[index] - limits)[over]
        axes.barh(bars[over], beyond, height=_BAR, left=limits[over], zorder=2.5, **_OVER)
        stroke = {"colors": CAPACITY["color"], "linestyles": CAPACITY["linestyle"]}
        axes.vlines(
            limits, bars - 0.5, bars + 0.5, linewidth=CAPACITY["linewidth"], zorder=3, **stroke
        )
    _write_totals(axes, stacks, index, value, made)


def name_rows(axes: Axes, names: Sequence[str], *, shown: bool = True) -> None:
    """Write the names of rows beside them, the first on top."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names if shown else [""] * len(names))
    if not any(names):  # a bar alone
        axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _end_text(stacks: Stacks, panel: int, bar: int, factor: float) -> str:
    """Return what stands at a bar's end: its total and what else there is, or why it isn't."""
    total = stacks.totals[panel, bar]
    if not np.isfinite(total):
        return (stacks.missing[panel][bar] if stacks.missing else "") or "none"
    bar_note = stacks.bar_notes[panel][bar] if stacks.bar_notes else ""
    text = number(total / factor)
    if "e-" in text:
        # Too little for the axis' unit: in its own.
        text = scale_of(stacks.units).text(total)
    return " · ".join(filter(None, (text, bar_note)))


def _write_totals(axes: Axes, stacks: Stacks, index: int, value: Axis, made: Frame) -> None:
    """Write each bar's total at its end, in the alarm's colour where it exceeds the capacity."""
    factor, _ = scale_of(stacks.units).pick(value.high)  # as the axis' numbers
    over = stacks.beyond[index]
    over = over if stacks.alarm is None else over | stacks.alarm[index]
    for bar, end in enumerate(np.maximum(np.nan_to_num(stacks.totals[index]), 0.0).tolist()):
        text = _end_text(stacks, index, bar, factor)
        if stacks.capacity is not None:
            # Beyond the capacity's line rather than on it.
            wide = (text_width(text, use().note) + 0.1) * (value.high - value.low) / made.panel[0]
            limit = float(stacks.capacity[index, bar])
            end = limit if end < limit < end + wide else end  # noqa: PLW2901
        write_end(axes, text, end, bar, alarm=bool(over[bar]))


def write_end(
    axes: Axes, text: str, end: float, row: int, side: float = 1.0, *, alarm: bool = False
) -> None:
    """Write a text at a bar's end: on its right, or on its left."""
    look: Look = {"color": ALARM, "weight": "bold"} if alarm else {"color": MUTED}
    axes.annotate(
        text,
        (end, row),
        (4 * side, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center",
        size=use().note,
        bbox=BEHIND,
        zorder=4,
        **look,
    )


def _legend(stacks: Stacks) -> Legend:
    samples: list[Sample] = []
    if len(stacks.labels) > 1:
        samples = [(label, stacks.fill(part)) for part, label in enumerate(stacks.labels)]
    if stacks.capacity is not None:
        samples.append((_limit(stacks, stacks.capacity), CAPACITY))
    if stacks.beyond.any():
        samples.append(("above capacity", _OVER))
    return Legend(samples)


def _limit(stacks: Stacks, capacity: NDArray[np.float64]) -> str:
    """Return the capacity's name, with its value where there is one."""
    values = np.unique(capacity[np.isfinite(capacity)])
    if len(values) != 1:
        return stacks.limit
    scale = scale_of(stacks.units)
    text = scale.given(float(values[0]), 3)
    factor, unit = scale.pick(float(np.nanmax(stacks.totals, initial=0.0)))
    axis = f"{number(float(values[0]) / factor)} {unit}"
    return f"{stacks.limit}: {text}" + (f" ({axis})" if axis != text else "")


# A tornado: what each constant moves an answer by, at its lower and at its upper point.

_SIDES = (("x0.9", 0), ("x1.1", 1))
_LEAST_MOVED = 5e-5  # of the answer: less isn't seen


def draw_tornado(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``tornado``."""
    (dim,) = figure["x"]
    moved = [100.0 * view.numbers(figure[key], [dim]) for key in ("lower", "upper")]
    size = np.fmax(abs(moved[0]), abs(moved[1]))
    seen = np.flatnonzero(size > 100.0 * _LEAST_MOVED)
    if not seen.size:
        message = f"{figure.where}: no constant moves the answer; there is nothing to show"
        raise InputError(message)
    chosen = seen[np.argsort(-size[seen], kind="stable")][: figure["most"]]
    names = ["\n".join(_lines(name)) for name in _constants(view, dim, chosen)]
    rows = np.arange(len(chosen), dtype=np.float64)
    shown = [values[chosen] for values in moved]
    width = panel_size(1)[0]
    texts = _moved_texts(view, dim, chosen, shown)
    room = max(text_width(text, use().note) for row in texts for text in row) + 0.12
    attrs = {"long_name": "change of the answer", "units": "%"}
    every = np.concatenate([*shown, [0.0]])
    share = min(room / width, _MOST_ROOM / 2)
    value = axis_of("change", attrs, every, "linear", width, pad=share / (1.0 - 2.0 * share))
    known = {key: region_colour(colour) for key, colour in _SIDES}
    legend = Legend([(name, {"facecolor": colour}) for name, colour in known.items()])
    title = str(view.dataset.attrs.get("title", "what constants move an answer by"))
    notes = ["Each constant by itself, all others as they are. *: assumed."]
    if seen.size > len(chosen):
        notes.append(f"{seen.size - len(chosen)} more move it less.")
    sheet = sheet_of(
        figure,
        view,
        title,
        notes,
        [""],
        panel=(width, max(use().scale * _SLOT_OF_TWO * len(names), 1.0)),
    )
    made = frame(sheet, legend, value)
    (axes,) = made.axes
    # Where both points lie on one side, the shorter bar lies in the longer one.
    both = shown[0] * shown[1] > 0.0
    for values, other, (key, _) in zip(shown, reversed(shown), _SIDES, strict=True):
        inner = both & (abs(values) < abs(other))
        look: Look = {"color": known[key], "linewidth": 0.0}
        there = np.isfinite(values)
        high = np.where(inner, _BAR / 2, _BAR)[there]
        axes.barh(rows[there], values[there], height=high, zorder=2.0, **look)
        axes.barh(rows[inner], values[inner], height=_BAR / 2, zorder=2.5, **look)
    # At its ends what a bar is: of two on one side the longer one's.
    for index, pair in enumerate(np.nan_to_num(np.transpose(shown)).tolist()):
        for side in (-1.0, 1.0):
            which = int(np.argmax(side * np.array(pair)))
            if side * pair[which] > 0.0:
                write_end(axes, texts[which][index], pair[which], index, side)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    name_rows(axes, names)
    return made.finished()


def _moved_texts(
    view: View, dim: str, chosen: NDArray[np.int64], shown: Sequence[NDArray[np.float64]]
) -> list[list[str]]:
    """Return what stands at the bars' ends: the change, and the point where it isn't the usual."""
    texts = [[f"{value:+.3g} %" for value in values] for values in shown]
    known = {"value", "lower_value", "upper_value"} <= {*view.dataset.variables}
    for row, name, factor in zip(texts, ("lower_value", "upper_value"), (0.9, 1.1), strict=True):
        if known:
            points, values = (view.numbers(n, [dim])[chosen] for n in (name, "value"))
            for index in np.flatnonzero(~np.isclose(points, factor * values, rtol=1e-9, atol=0.0)):
                row[index] += f" at {number(float(points[index]))}"
    return texts


def _constants(view: View, dim: str, chosen: NDArray[np.int64]) -> list[str]:
    """Return constants with their values, and whether they are assumed."""
    names = [view.labels(dim)[index] for index in chosen]
    variables = view.dataset.variables
    if not {"value", "units", "kind"} <= {*variables}:
        return names
    columns = (variables[name].values[chosen].tolist() for name in ("value", "units", "kind"))
    return [
        f"{plain(name)} {scale_of(as_read(name, unit)).given(value)}{'*' * (kind == ASSUMED)}"
        for name, value, unit, kind in zip(names, *columns, strict=True)
    ]
