"""Timelines: when computation and communication run, and what of the latter shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overhead.overlap.timeline import COMMUNICATION, COMPUTATION, Span
from sweeps.plots.frame import Legend, Sheet, frame
from sweeps.plots.readable import number, scale_of
from sweeps.plots.save import save
from sweeps.plots.style import COLOURS, INK, MUTED, SIZE_NOTE, region_colour, style, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_timelines"]

_ROW = 0.36  # inches of a row
_BAR = 0.78  # of a row
_BETWEEN = 0.7  # rows between two courses
_WIDTH = 6.6
_OUTLINED = 300  # spans up to which each is outlined
_NAMED = 0.12  # inches that a name in a span leaves free
_COMPUTE, _HIDDEN, _EXPOSED = region_colour(0), region_colour(5), COLOURS[1]


def draw_timelines(
    courses: Mapping[str, Sequence[Span]],
    stem: Path,
    *,
    title: str,
    fixed: str = "",
    sequential: Mapping[str, float] | None = None,
) -> list[Path]:
    """Draw timelines one below another.

    Parameters
    ----------
    courses : mapping of str to sequence of Span
        By name; two rows each: computation, communication.
    stem : Path
        Where, without the ending.
    title, fixed : str
        What it is, and what was given.
    sequential : mapping of str to float, optional
        For each course the time of all one after the other, drawn as a mark [s].

    Returns
    -------
    list of Path
        The files.
    """
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
                    linestyles=(0, (3, 1.5)),
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


def _write_end(axes: Axes, spans: Sequence[Span], top: float, factor: float, unit: str) -> None:
    end = max((span.end for span in spans), default=0.0)
    axes.vlines(end / factor, top, top + 2.0, colors=MUTED, linewidth=1.0)
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
        handles.append(Line2D([], [], color=INK, linewidth=1.6, linestyle=(0, (3, 1.5))))
        labels.append("All one after the other")
    return Legend(handles, labels)
