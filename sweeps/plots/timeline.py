"""Predicted timelines: when computation and communication run, and what shows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from overhead.overlap.pipeline import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    HIDDEN,
    INPUTS,
    OPTIMIZER,
    PAIR,
    TRANSFER,
    UNEXPLAINED,
    WAITING,
    WEIGHTS,
)
from overhead.overlap.timeline import COMMUNICATION, COMPUTATION, Span
from sweeps.plots.axis import axis_of
from sweeps.plots.frame import Legend, Sheet, frame, in_column
from sweeps.plots.save import save
from sweeps.plots.style import (
    COLOURS,
    FAINT,
    INK,
    MUTED,
    number,
    region_colour,
    scale_of,
    style,
    text_width,
    use,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 0.36  # inches of a row
_BETWEEN = 0.7  # rows between two courses
_WIDTH = 6.6
_ROOM = 0.12  # inches that a name in a span leaves free
_MARK: Any = (0, (3, 1.5))
_SEQUENTIAL = "All one after the other"


def draw_timelines(
    courses: Mapping[str, Sequence[Span]],
    stem: Path,
    *,
    title: str,
    fixed: str = "",
    sequential: Mapping[str, float] | None = None,
) -> list[Path]:
    """Draw computation and communication, a row each; timelines one below another."""
    rows = {name: _two_rows(spans) for name, spans in courses.items()}
    words: dict[str, Any] = {"title": title, "fixed": fixed, "marks": sequential}
    return draw_stages(rows, stem, tallest=np.inf, **words)


def _two_rows(spans: Sequence[Span]) -> dict[str, list[Span]]:
    """Return computation, and communication with what of it is exposed drawn over the rest."""
    rows: dict[str, list[Span]] = {COMPUTATION: [], COMMUNICATION: []}
    for span in spans:
        rows[span.row].append(replace(span, kind=span.row))
    work = [(span.start, span.end) for span in rows[COMPUTATION]]
    rows[COMMUNICATION] += [
        Span(COMMUNICATION, "", low, high - low, EXPOSED)
        for span in rows[COMMUNICATION]
        for low, high in _without((span.start, span.end), work)
    ]
    return rows


def _without(
    piece: tuple[float, float], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return what is left of an interval without others, which are in order."""
    left: list[tuple[float, float]] = []
    start, end = piece
    for low, high in others:
        if high <= start or low >= end:
            continue
        if low > start:
            left.append((start, low))
        start = max(start, high)
    if start < end:
        left.append((start, end))
    return left


# Pipelines and steps: a row a stage.

_TALLEST = 5.6  # inches of all rows together
_NARROW = 0.15  # inches of a row from which each has its label
_PASS, _SENT = (0.08, 0.76), (0.8, 0.94)  # of a row: what its stage does, and what it sends
_MOST_NAMED = 128  # passes of a row up to which they are named: those of 64 micro-batches
_GAP = 0.015  # inches beside a pass's name
_THINNEST = 0.003  # inches that can be seen
_MOST_SHAPES = 5000  # spans up to which each is outlined, and a shape of its own in the SVG
# By kind of span: its colour and the words for it, in the order of the legend.
_KINDS: dict[str, tuple[str, str]] = {
    COMPUTATION: (region_colour(0), "Computation"),
    COMMUNICATION: (region_colour(5), "Communication, overlapped"),
    FORWARD: (region_colour(5), "Forward"),
    BACKWARD: (region_colour(2), "Backward"),
    INPUTS: (region_colour(2), "Backward"),
    WEIGHTS: (region_colour(6), "Backward: weights apart"),
    HIDDEN: (region_colour(9), "Communication, overlapped"),
    EXPOSED: (COLOURS[1], "Communication, exposed"),
    WAITING: (region_colour(7), "Waiting for the host"),
    OPTIMIZER: (region_colour(4), "Optimizer"),
    UNEXPLAINED: (FAINT, "Fixed overhead"),
    TRANSFER: (COLOURS[0], "Transfer between stages"),
}
_PASSES = (FORWARD, BACKWARD, INPUTS, WEIGHTS)
_DURATIONS = (COMPUTATION, COMMUNICATION)
# What is drawn however thin each of it is: together it can be seen.
_ALWAYS = {*_DURATIONS, *_PASSES, PAIR, EXPOSED, HIDDEN}
Box = tuple[float, float, float, float]


def draw_stages(
    courses: Mapping[str, Mapping[str, Sequence[Span]]],
    stem: Path,
    *,
    title: str,
    fixed: str = "",
    marks: Mapping[str, float] | None = None,
    mark: str = _SEQUENTIAL,
    notes: Sequence[str] = (),
    tallest: float = _TALLEST,
) -> list[Path]:
    """Draw what the stages of pipelines do, a row each; idle is white."""
    marks = marks or {}
    every = [span for rows in courses.values() for spans in rows.values() for span in spans]
    last = max([*(span.end for span in every), *marks.values()], default=0.0)
    gap = _BETWEEN if len(courses) > 1 else 0.0
    count = sum(len(rows) + gap for rows in courses.values())
    high = min(use().scale * _ROW, tallest / count)
    shown = max(round(_NARROW / high), 1)
    wide = in_column(_WIDTH)
    seen = {span.kind for span in every if span.duration * wide >= _THINNEST * last} | _ALWAYS
    kinds = {kind for span in every if span.kind in seen for kind, _, _ in _strips(span)}
    areas = {words: colour for kind, (colour, words) in _KINDS.items() if kind in kinds}
    sheet = Sheet(title, fixed=fixed, notes=notes, panel=(wide, max(high * count, 0.9)))
    ends = (0.0, 1.02 * (last or 1.0))
    time = axis_of("time", {"units": "s"}, np.array(ends), "linear", wide, ends=ends)
    scale = scale_of("s")
    factor, unit = scale.pick(last)
    with style():
        made = frame(sheet, legend_of(areas, mark if marks else ""), time)
        (axes,) = made.axes
        ticks: dict[float, str] = {}
        top = 0.0
        for name, rows in courses.items():
            top += gap
            offset: dict[str, Any] = {"textcoords": "offset points", "size": use().note}
            end = max((span.end for row in rows.values() for span in row), default=0.0)
            text = f"{number(end / factor, 4)} {unit}"
            axes.annotate(text, (end, top), (-3, 3), ha="right", color=MUTED, **offset)
            if gap:
                axes.annotate(name, (0.0, top), (2, 3), weight="bold", **offset)
            _draw_rows(axes, [[s for s in r if s.kind in seen] for r in rows.values()], top, high)
            if name in marks:
                stroke: dict[str, Any] = {"colors": INK, "linewidth": 1.6, "linestyles": _MARK}
                axes.vlines(marks[name], top, top + len(rows), **stroke)
            # A stream is named below its stage.
            names = (row.rpartition(", ")[2] for row in rows)
            ticks |= {top + row + 0.5: label for row, label in enumerate(names)}
            top += len(rows)
        label_rows(axes, dict([*ticks.items()][::shown]), (count, 0.0))
        return save(made.finished(), stem)


def label_rows(axes: Axes, names: Mapping[float, str], ends: tuple[float, float]) -> None:
    """Write the names of rows beside them, the first on top."""
    axes.set_ylim(*ends)
    axes.set_yticks([*names], [*names.values()])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _draw_rows(axes: Axes, rows: Sequence[Sequence[Span]], top: float, high: float) -> None:
    """Draw a course's rows, spans of the same colour at once."""
    outlined = sum(map(len, rows)) <= _MOST_SHAPES and max(map(len, rows)) <= 3 * _MOST_NAMED
    boxes: dict[str, list[Box]] = {}
    for row, spans in enumerate(rows):
        for span in spans:
            for kind, low, upper in _strips(span):
                box = span.start, span.end, top + row + low, top + row + upper
                boxes.setdefault(kind, []).append(box)
    # What a pass holds is drawn over it.
    for kind in _KINDS:
        if kind in boxes:
            _fill(axes, boxes[kind], kind, outlined=outlined)
    if outlined and high > 1.3 * _NARROW:
        inches = in_column(_WIDTH) / axes.get_xlim()[1]
        for name, start, end, row in (*_durations(rows, inches), *_passes(rows, inches)):
            at = (start + end) / 2.0, top + row + sum(_PASS) / 2.0
            axes.text(*at, name, size=use().note, color=INK, ha="center", va="center")


def _strips(span: Span) -> Iterator[tuple[str, float, float]]:
    """Yield in which colours a span is drawn, and between which parts of its row's height."""
    if span.kind == PAIR:
        middle = sum(_PASS) / 2.0
        yield FORWARD, _PASS[0], middle
        yield BACKWARD, middle, _PASS[1]
    else:
        yield span.kind, *(_SENT if span.kind == TRANSFER else _PASS)


def _fill(axes: Axes, boxes: Sequence[Box], kind: str, *, outlined: bool) -> None:
    from matplotlib.collections import PolyCollection

    corners = [[(a, low), (b, low), (b, high), (a, high)] for a, b, low, high in boxes]
    # Without snapping to pixels what is thinner than one is faint, not there or not by chance.
    look: dict[str, Any] = {"facecolors": _KINDS[kind][0], "linewidths": 0.0, "snap": False}
    if not outlined:
        # As an image: so many shapes would make a file that no reader opens quickly.
        look |= {"rasterized": True}
    elif kind in (*_PASSES, *_DURATIONS):
        look |= {"edgecolors": "white", "linewidths": 0.5}
    axes.add_collection(PolyCollection(corners, **look), autolim=False)


def _durations(
    rows: Sequence[Sequence[Span]], inches: float
) -> Iterator[tuple[str, float, float, int]]:
    """Yield the names of durations that have room for them, with their ends and row."""
    for row, spans in enumerate(rows):
        for span in spans:
            room = span.duration * inches - text_width(span.name, use().note)
            if span.kind in _DURATIONS and room >= _ROOM:
                yield span.name, span.start, span.end, row


def _passes(
    rows: Sequence[Sequence[Span]], inches: float
) -> Iterator[tuple[str, float, float, int]]:
    """Yield the names of passes: all in the same way, and those of a kind in all rows or none."""
    free_parts = [list(_free_parts(spans)) for spans in rows]
    if max(map(len, free_parts)) > _MOST_NAMED:
        return
    kinds = {event.kind for row in free_parts for event, _, _ in row}
    for cut in (0, 1):
        room = dict.fromkeys(kinds, np.inf)
        for span, start, end in (part for row in free_parts for part in row):
            free = (end - start) * inches - text_width(span.name[cut:], use().note)
            room[span.kind] = min(room[span.kind], free)
        kept = {kind for kind in kinds if room[kind] >= _GAP}
        if kept == kinds:
            break
    for row, parts in enumerate(free_parts):
        for span, start, end in parts:
            if span.kind in kept:
                yield span.name[cut:], start, end, row


def _free_parts(spans: Sequence[Span]) -> Iterator[tuple[Span, float, float]]:
    """Yield a row's passes with the start and the end of what nothing is drawn over."""
    over = sorted(span.start for span in spans if span.kind in (EXPOSED, WAITING))
    for span in spans:
        if span.kind in _PASSES:
            at = bisect_right(over, span.start)
            first = over[at] if at < len(over) else span.end
            yield span, span.start, min(first, span.end)


def legend_of(colours: Mapping[str, str], mark: str = "") -> Legend:
    """Return a legend of areas, and of the dashed mark where there is one."""
    areas = [(name, {"facecolor": colour}) for name, colour in colours.items()]
    dashed: dict[str, Any] = {"color": INK, "linewidth": 1.6, "linestyle": _MARK}
    return Legend([*areas, *([(mark, dashed)] if mark else [])])
