"""Timelines: when computation and communication run, and what of the latter shows.

Of mechanisms two rows each, computation and communication; of pipelines and steps a row a stage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overhead.overlap.pipeline import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    INPUTS,
    OPTIMIZER,
    PAIR,
    TRANSFER,
    UNEXPLAINED,
    WAITING,
    WEIGHTS,
)
from overhead.overlap.timeline import COMMUNICATION, COMPUTATION, Span
from sweeps.plots.draw import save
from sweeps.plots.frame import Legend, Sheet, frame
from sweeps.plots.style import (
    COLOURS,
    FAINT,
    INK,
    MUTED,
    SIZE_NOTE,
    number,
    region_colour,
    scale_of,
    style,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 0.36  # inches of a row
_BAR = 0.78  # of a row
_BETWEEN = 0.7  # rows between two courses
_WIDTH = 6.6
_OUTLINED = 300  # spans up to which each is outlined
_NAMED = 0.12  # inches that a name in a span leaves free
_MARK: Any = (0, (3, 1.5))
_SEQUENTIAL = "All one after the other"
_COMPUTE, _HIDDEN, _EXPOSED = region_colour(0), region_colour(5), COLOURS[1]


def draw_timelines(
    courses: Mapping[str, Sequence[Span]],
    stem: Path,
    *,
    title: str,
    fixed: str = "",
    sequential: Mapping[str, float] | None = None,
) -> list[Path]:
    """Draw timelines one below another."""
    marks = dict(sequential or {})
    last = max(
        [span.end for spans in courses.values() for span in spans] + list(marks.values()),
        default=0.0,
    )
    factor, unit = scale_of("s").pick(last)
    several = len(courses) > 1
    pitch = 2.0 + (_BETWEEN if several else 0.0)
    height = max(_ROW * pitch * len(courses), 0.9)
    names = list(courses) if several else [COMPUTATION, COMMUNICATION]
    sheet = Sheet(
        title,
        xlabel=f"Time ({unit})",
        fixed=fixed,
        left=max(text_width(name, SIZE_NOTE + 0.5) for name in names) + 0.35,
        panel=(_WIDTH, height),
    )
    with style():
        made = frame(sheet, _legend(bool(marks)))
        (axes,) = made.axes
        axes.set_xlim(0.0, (last or 1.0) / factor * 1.02)
        axes.set_ylim(pitch * len(courses) - (_BETWEEN if several else 0.0), 0.0)
        axes.grid(visible=False, axis="y")
        places, labels = [], []
        for index, (name, spans) in enumerate(courses.items()):
            top = pitch * index
            _draw_course(axes, spans, top, factor)
            if name in marks:
                axes.vlines(
                    marks[name] / factor, top, top + 2.0, colors=INK, linewidth=1.6,
                    linestyles=_MARK,
                )  # fmt: skip
            _write_end(axes, spans, top, factor, unit)
            places += [top + 1.0] if several else [0.5, 1.5]
            labels += [name] if several else [COMPUTATION, COMMUNICATION]
        axes.set_yticks(places, labels)
        axes.tick_params(axis="y", length=0)
        made.legend(_legend(bool(marks)))
        return save(made.canvas, stem)


def _draw_course(axes: Axes, spans: Sequence[Span], top: float, factor: float) -> None:
    outlined = len(spans) <= _OUTLINED
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6} if outlined else {}
    work = [(span.start, span.end) for span in spans if span.row == COMPUTATION]
    sent = [(span.start, span.end) for span in spans if span.row == COMMUNICATION]
    exposed = [piece for one in sent for piece in _without(one, work)]
    _bars(axes, work, top, factor, _COMPUTE, edge)
    _bars(axes, sent, top + 1.0, factor, _HIDDEN, edge)
    _bars(axes, exposed, top + 1.0, factor, _EXPOSED, edge)
    if outlined:
        _name_spans(axes, spans, top, factor)


def _bars(
    axes: Axes,
    pieces: Sequence[tuple[float, float]],
    top: float,
    factor: float,
    colour: str,
    edge: dict[str, Any],
) -> None:
    ranges = [(start / factor, (end - start) / factor) for start, end in pieces]
    low = top + (1.0 - _BAR) / 2.0
    axes.broken_barh(ranges, (low, _BAR), facecolors=colour, **edge)


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


def _name_spans(axes: Axes, spans: Sequence[Span], top: float, factor: float) -> None:
    """Write names into the spans that have room for them."""
    inches = _WIDTH / (axes.get_xlim()[1] * factor)
    for span in spans:
        if text_width(span.name, SIZE_NOTE) + _NAMED > span.duration * inches:
            continue
        middle = (span.start + span.duration / 2.0) / factor
        row = top + (0.5 if span.row == COMPUTATION else 1.5)
        axes.text(middle, row, span.name, size=SIZE_NOTE, color=INK, ha="center", va="center")


def _write_end(
    axes: Axes, spans: Sequence[Span], top: float, factor: float, unit: str, line: float = 2.0
) -> None:
    end = max((span.end for span in spans), default=0.0)
    axes.vlines(end / factor, top, top + line, colors=MUTED, linewidth=1.0)
    axes.annotate(
        f"{number(end / factor, 4)} {unit}", (end / factor, top), (-3, -1),
        textcoords="offset points", ha="right", va="bottom", size=SIZE_NOTE, color=MUTED,
        annotation_clip=False,
    )  # fmt: skip


def _legend(marked: bool) -> Legend:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(facecolor=c) for c in (_COMPUTE, _HIDDEN, _EXPOSED)]
    labels = ["Computation", "Communication, hidden", "Communication, exposed"]
    if marked:
        handles.append(Line2D([], [], color=INK, linewidth=1.6, linestyle=_MARK))
        labels.append(_SEQUENTIAL)
    return Legend(handles, labels)


# Pipelines and steps: a row a stage.

_TALLEST = 5.6  # inches of all rows together
_NARROW = 0.15  # inches of a row from which each has its label
_PASS, _SENT = (0.08, 0.76), (0.8, 0.94)  # of a row: what its stage does, and what it sends
_MOST_NAMED = 128  # passes of a row up to which they are named: those of 64 micro-batches
_BESIDE = 0.015  # inches beside a pass's name
_THINNEST = 0.003  # inches that can be seen
_MOST_SHAPES = 5000  # spans up to which each is outlined, and a shape of its own in the SVG
# By kind of span: its colour and the words for it, in the order of the legend.
_KINDS: dict[str, tuple[str, str]] = {
    FORWARD: (region_colour(5), "Forward"),
    BACKWARD: (region_colour(2), "Backward"),
    INPUTS: (region_colour(2), "Backward"),
    WEIGHTS: (region_colour(6), "Backward: weights apart"),
    EXPOSED: (COLOURS[1], "Communication, exposed"),
    WAITING: (region_colour(7), "Waiting for the host"),
    OPTIMIZER: (region_colour(4), "Optimizer"),
    UNEXPLAINED: (FAINT, "What no part explains"),
    TRANSFER: (COLOURS[0], "Transfer between stages"),
}
_PASSES = (FORWARD, BACKWARD, INPUTS, WEIGHTS)
# What is drawn however thin each of it is: together it can be seen.
_ALWAYS = {*_PASSES, PAIR, EXPOSED}
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
) -> list[Path]:
    """Draw what the stages of pipelines do, a row each; idle is white."""
    marks = dict(marks or {})
    every = [one for rows in courses.values() for spans in rows.values() for one in spans]
    last = max([span.end for span in every] + list(marks.values()), default=0.0)
    factor, unit = scale_of("s").pick(last)
    gap = _BETWEEN if len(courses) > 1 else 0.0
    count = sum(len(rows) + gap for rows in courses.values())
    high = min(_ROW, _TALLEST / count)
    shown = max(round(_NARROW / high), 1)
    labels = [row for rows in courses.values() for row in rows]
    seen = {one.kind for one in every if one.duration * _WIDTH >= _THINNEST * last}
    seen |= _ALWAYS
    legend = _stages_legend([one for one in every if one.kind in seen], mark if marks else "")
    sheet = Sheet(
        title, xlabel=f"Time ({unit})", fixed=fixed, notes=notes,
        left=max(text_width(label, SIZE_NOTE + 0.5) for label in labels) + 0.35,
        panel=(_WIDTH, max(high * count, 0.9)),
    )  # fmt: skip
    with style():
        made = frame(sheet, legend)
        (axes,) = made.axes
        axes.set_xlim(0.0, (last or 1.0) / factor * 1.02)
        axes.set_ylim(count, 0.0)
        axes.grid(visible=False, axis="y")
        places, top = [], 0.0
        for name, rows in courses.items():
            top += gap
            _write_end(axes, [s for row in rows.values() for s in row], top, factor, unit, 0.0)
            if gap:
                axes.annotate(
                    name, (0.0, top), (2, 3), textcoords="offset points", size=SIZE_NOTE,
                    weight="bold",
                )  # fmt: skip
            shapes = [[s for s in row if s.kind in seen] for row in rows.values()]
            _draw_rows(axes, shapes, top, factor, high)
            if name in marks:
                at = marks[name] / factor
                axes.vlines(at, top, top + len(rows), colors=INK, linewidth=1.6, linestyles=_MARK)
            places += [top + place for place in range(len(rows))]
            top += len(rows)
        axes.set_yticks([at + 0.5 for at in places[::shown]], labels[::shown])
        axes.tick_params(axis="y", length=0)
        made.legend(legend)
        return save(made.canvas, stem)


def _draw_rows(
    axes: Axes, rows: Sequence[Sequence[Span]], top: float, factor: float, high: float
) -> None:
    """Draw a course's rows, spans of the same colour at once."""
    outlined = sum(map(len, rows)) <= _MOST_SHAPES and max(map(len, rows)) <= 3 * _MOST_NAMED
    boxes: dict[str, list[Box]] = {}
    for place, spans in enumerate(rows):
        for span in spans:
            for kind, low, upper in _strips(span):
                ends = span.start / factor, span.end / factor
                boxes.setdefault(kind, []).append((*ends, top + place + low, top + place + upper))
    # What a pass holds is drawn over it.
    for kind in _KINDS:
        if kind in boxes:
            _fill(axes, boxes[kind], kind, outlined=outlined)
    if outlined and high > 1.3 * _NARROW:
        _name_passes(axes, rows, top + sum(_PASS) / 2.0, factor)


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
    elif kind in _PASSES:
        look |= {"edgecolors": "white", "linewidths": 0.5}
    axes.add_collection(PolyCollection(corners, **look), autolim=False)


def _name_passes(axes: Axes, rows: Sequence[Sequence[Span]], middle: float, factor: float) -> None:
    """Write names into passes: all in the same way, and those of a kind in all rows or none."""
    places = [list(_free_parts(spans)) for spans in rows]
    if max(map(len, places)) > _MOST_NAMED:
        return
    inches = _WIDTH / (axes.get_xlim()[1] * factor)
    every = [place for row in places for place in row]
    kinds = {one.kind for one, _, _ in every}
    for cut in (0, 1):
        room = {
            kind: min(
                (end - start) * inches - text_width(one.name[cut:], SIZE_NOTE)
                for one, start, end in every
                if one.kind == kind
            )
            for kind in kinds
        }
        kept = {kind for kind in kinds if room[kind] >= _BESIDE}
        if kept == kinds:
            break
    for row, own in enumerate(places):
        for one, start, end in own:
            if one.kind in kept:
                at = (start + end) / 2.0 / factor, middle + row
                axes.text(*at, one.name[cut:], size=SIZE_NOTE, color=INK, ha="center", va="center")


def _free_parts(spans: Sequence[Span]) -> Iterator[tuple[Span, float, float]]:
    """Yield a row's passes with the start and the end of what nothing is drawn over."""
    over = sorted(span.start for span in spans if span.kind in (EXPOSED, WAITING))
    for span in spans:
        if span.kind in _PASSES:
            at = bisect_right(over, span.start)
            first = over[at] if at < len(over) else span.end
            yield span, span.start, min(first, span.end)


def _stages_legend(spans: Sequence[Span], mark: str) -> Legend:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = {kind for span in spans for kind, _, _ in _strips(span)}
    shown = list(dict.fromkeys(look for kind, look in _KINDS.items() if kind in found))
    handles: list[Any] = [Patch(facecolor=colour) for colour, _ in shown]
    labels = [words for _, words in shown]
    if mark:
        handles.append(Line2D([], [], color=INK, linewidth=1.6, linestyle=_MARK))
        labels.append(mark)
    return Legend(handles, labels)
