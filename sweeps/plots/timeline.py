"""Timelines, predicted and recorded: when computation and communication run, and what shows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from sweeps.plots.frame import Axis, Legend, Sheet, axis_of, frame, in_column
from sweeps.plots.save import save
from sweeps.plots.style import (
    COLOURS,
    FAINT,
    INK,
    MUTED,
    number,
    region_colour,
    scale_of,
    sentence,
    shortened,
    style,
    text_width,
    use,
)
from sweeps.traces.overlap import ADVICE, Overlap, intersection, union
from sweeps.traces.patterns import CLASSES, EXCLUDED
from sweeps.traces.ranks import Ranks
from sweeps.traces.reader import Trace

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
    height = max(use().scale * _ROW * pitch * len(courses), 0.9)
    sheet = Sheet(
        title,
        xlabel=f"Time ({unit})",
        fixed=fixed,
        panel=(in_column(_WIDTH), height),
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
        return save(made.finished(), stem)


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
    inches = in_column(_WIDTH) / (axes.get_xlim()[1] * factor)
    for span in spans:
        if text_width(span.name, use().note) + _NAMED > span.duration * inches:
            continue
        middle = (span.start + span.duration / 2.0) / factor
        row = top + (0.5 if span.row == COMPUTATION else 1.5)
        axes.text(middle, row, span.name, size=use().note, color=INK, ha="center", va="center")


def _write_end(
    axes: Axes, spans: Sequence[Span], top: float, factor: float, unit: str, line: float = 2.0
) -> None:
    end = max((span.end for span in spans), default=0.0)
    axes.vlines(end / factor, top, top + line, colors=MUTED, linewidth=1.0)
    axes.annotate(
        f"{number(end / factor, 4)} {unit}", (end / factor, top), (-3, -1),
        textcoords="offset points", ha="right", va="bottom", size=use().note, color=MUTED,
        annotation_clip=False,
    )  # fmt: skip


def _legend(marked: bool) -> Legend:
    areas = {
        "Computation": _COMPUTE, "Communication, overlapped": _HIDDEN,
        "Communication, exposed": _EXPOSED,
    }  # fmt: skip
    return _legend_of(areas, _SEQUENTIAL if marked else "")


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
# What is drawn however thin each of it is: together it can be seen.
_ALWAYS = {*_PASSES, PAIR, EXPOSED, HIDDEN}
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
    high = min(use().scale * _ROW, _TALLEST / count)
    shown = max(round(_NARROW / high), 1)
    # A stream is named below its stage.
    labels = [row.rpartition(", ")[2] for rows in courses.values() for row in rows]
    seen = {one.kind for one in every if one.duration * in_column(_WIDTH) >= _THINNEST * last}
    seen |= _ALWAYS
    legend = _stages_legend([one for one in every if one.kind in seen], mark if marks else "")
    sheet = Sheet(
        title, xlabel=f"Time ({unit})", fixed=fixed, notes=notes,
        panel=(in_column(_WIDTH), max(high * count, 0.9)),
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
                    name, (0.0, top), (2, 3), textcoords="offset points", size=use().note,
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
        return save(made.finished(), stem)


def _draw_rows(
    axes: Axes, rows: Sequence[Sequence[Span]], top: float, factor: float, high: float
) -> None:
    """Draw a course's rows, spans of the same colour at once."""
    outlined = sum(map(len, rows)) <= _MOST_SHAPES and max(map(len, rows)) <= 3 * _MOST_NAMED
    boxes: dict[str, list[Box]] = {}
    for index, spans in enumerate(rows):
        for span in spans:
            for kind, low, upper in _strips(span):
                ends = span.start / factor, span.end / factor
                boxes.setdefault(kind, []).append((*ends, top + index + low, top + index + upper))
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
    inches = in_column(_WIDTH) / (axes.get_xlim()[1] * factor)
    every = [place for row in places for place in row]
    kinds = {one.kind for one, _, _ in every}
    for cut in (0, 1):
        room = {
            kind: min(
                (end - start) * inches - text_width(one.name[cut:], use().note)
                for one, start, end in every
                if one.kind == kind
            )
            for kind in kinds
        }
        kept = {kind for kind in kinds if room[kind] >= _GAP}
        if kept == kinds:
            break
    for row, own in enumerate(places):
        for one, start, end in own:
            if one.kind in kept:
                at = (start + end) / 2.0 / factor, middle + row
                axes.text(*at, one.name[cut:], size=use().note, color=INK, ha="center", va="center")


def _free_parts(spans: Sequence[Span]) -> Iterator[tuple[Span, float, float]]:
    """Yield a row's passes with the start and the end of what nothing is drawn over."""
    over = sorted(span.start for span in spans if span.kind in (EXPOSED, WAITING))
    for span in spans:
        if span.kind in _PASSES:
            at = bisect_right(over, span.start)
            first = over[at] if at < len(over) else span.end
            yield span, span.start, min(first, span.end)


def _stages_legend(spans: Sequence[Span], mark: str) -> Legend:
    found = {kind for span in spans for kind, _, _ in _strips(span)}
    shown = {words: colour for kind, (colour, words) in _KINDS.items() if kind in found}
    return _legend_of(shown, mark)


# Figures of profiler traces: when each stream did what, and what each GPU's time went into.

Intervals = tuple[NDArray[np.int64], NDArray[np.int64]]

_HIDDEN_COMMUNICATION = "hidden communication"
_COLOURS = {
    "gemm": COLOURS[0],
    "other": COLOURS[2],
    _HIDDEN_COMMUNICATION: region_colour(9),
    "communication": COLOURS[1],
    "copy": COLOURS[4],
    "wait": COLOURS[5],
    "idle": FAINT,
    "computation": COLOURS[0],
    "non_computation": COLOURS[1],
}
_LABELS = {
    "gemm": "GEMMs",
    "other": "Other computation",
    _HIDDEN_COMMUNICATION: "Communication, overlapped",
    "communication": "Communication, exposed",
    "copy": "Copies",
    "wait": "Waiting kernels",
    "idle": "Idle",
    "computation": "Computation",
    "non_computation": "No computation",
}
_COMMUNICATION = CLASSES.index("communication")
_SECOND = 1e9
_LANE, _STREAM_BAR = 0.34, 0.76  # inches of a lane, and the share of it that a bar takes
_TRACE_WIDTH = 6.8
_MOST_LANES, _MOST_RANKS, _MOST_BARS, _MOST_EXPOSED = 16, 4, 40, 16
_NAME_LETTERS = 36  # of a collective
_REASONS = dict(
    zip(ADVICE, (COLOURS[5], COLOURS[1], COLOURS[4], COLOURS[2], COLOURS[0]), strict=True)
)
_FINEST = 3000  # pieces of the window that can be told apart


def draw_traces(
    ranks: Ranks, stem: Path, window: tuple[float, float] | None = None
) -> Iterator[Path]:
    """Draw the figures of traces."""
    yield from draw_summary(ranks, stem.with_name(f"{stem.name}-classes"))
    yield from draw_exposures(ranks, stem.with_name(f"{stem.name}-exposed"))
    yield from draw_timeline(ranks, stem.with_name(f"{stem.name}-timeline"), window)


def draw_summary(ranks: Ranks, stem: Path) -> list[Path]:
    """Draw what the end to end time of each GPU is made of; of one alone, that of its steps."""
    bars, what = _bars_of(ranks)
    parts = [kind for kind in ranks.overlaps[0].parts if any(o.parts[kind] for _, o in bars)]
    ends = np.array([overlap.end_to_end for _, overlap in bars])
    about = {"long_name": "end to end time", "units": "s"}
    value = axis_of("time", about, ends, "linear", in_column(_TRACE_WIDTH), pad=0.1)
    legend = _kinds_legend(parts)
    sheet = Sheet(
        f"What the time of each {what} went into",
        xlabel=value.label,
        fixed=_rank_text(ranks),
        notes=[
            "What runs at one time counts for the first of these. At the bars: how much of the "
            "communication is hidden by computation.",
            *_left_out(ranks, bars),
        ],
        panel=(in_column(_TRACE_WIDTH), max(use().scale * _LANE * len(bars), 1.0)),
    )
    lengths = {kind: [overlap.parts[kind] for _, overlap in bars] for kind in parts}
    shares = [100 * overlap.of_communication for _, overlap in bars]
    texts = ["" if np.isnan(share) else f"{number(share)} % hidden" for share in shares]
    return _stacked(sheet, legend, value, bars, lengths, _COLOURS, texts, stem)


def _stacked(
    sheet: Sheet,
    legend: Legend,
    value: Axis,
    bars: Sequence[tuple[str, Any]],
    lengths: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    texts: Sequence[str],
    stem: Path,
) -> list[Path]:
    """Draw a bar for each name, of parts one beside another, and a text at its end."""
    with style():
        made = frame(sheet, legend)
        (axes,) = made.axes
        value.apply(axes, "x")
        _lanes(axes, [name for name, _ in bars])
        done = np.zeros(len(bars))
        for kind, length in lengths.items():
            how: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6}
            axes.barh(
                np.arange(len(bars)), length, _STREAM_BAR, left=done, color=colours[kind], **how
            )
            done += np.array(length)
        for place, (text, end) in enumerate(zip(texts, done.tolist(), strict=True)):
            axes.annotate(
                text, (end, place), (4, 0), textcoords="offset points",
                ha="left", va="center", size=use().note, color=MUTED,
            )  # fmt: skip
        return save(made.finished(), stem)


def draw_exposures(ranks: Ranks, stem: Path) -> list[Path]:
    """Draw why communication is exposed, by rank; of one trace alone, by collective."""
    numbers, several = ranks.numbers(), len(ranks.traces) > 1
    found: dict[str, dict[str, float]] = {}
    for number_of, own in zip(numbers, ranks.exposed, strict=False):
        for one in own:
            times = found.setdefault(f"rank {number_of}" if several else one.name, {})
            times[one.reason] = times.get(one.reason, 0.0) + one.time
    longest = sorted(found, key=lambda name: -sum(found[name].values()))[:_MOST_EXPOSED]
    names = [name for name in found if name in longest] if several else longest
    if not names:
        return []
    bars = [(shortened(name, _NAME_LETTERS), found[name]) for name in names]
    reasons = [reason for reason in ADVICE if any(reason in times for _, times in bars)]
    lengths = {r: [times.get(r, 0.0) for _, times in bars] for r in reasons}
    ends = np.sum(list(lengths.values()), axis=0)
    whole = sum(sum(times.values()) for times in found.values())
    about = {"long_name": "exposed communication", "units": "s"}
    value = axis_of("time", about, ends, "linear", in_column(_TRACE_WIDTH), pad=0.3)
    notes = [f"{sentence(reason)}: {ADVICE[reason]}." for reason in reasons]
    if len(names) < len(found):
        what = "ranks" if several else "collectives"
        notes.append(f"{len(names)} of {len(found)} {what}: those that are exposed longest.")
    legend = _legend_of({sentence(reason): _REASONS[reason] for reason in reasons})
    sheet = Sheet(
        f"Why communication is exposed, by {'rank' if several else 'collective'}",
        xlabel=value.label,
        fixed=_rank_text(ranks),
        notes=notes,
        panel=(in_column(_TRACE_WIDTH), max(use().scale * _LANE * len(bars), 1.0)),
    )
    times_of = dict(zip((f"rank {n}" for n in numbers), ranks.overlaps, strict=True))
    wholes = [times_of[name].end_to_end if several else whole for name in names]
    of = "of its time" if several else "of what is exposed"
    shares = [100 * end / each for end, each in zip(ends.tolist(), wholes, strict=True)]
    texts = [f"{number(share)} % {of}" for share in shares]
    return _stacked(sheet, legend, value, bars, lengths, _REASONS, texts, stem)


def _bars_of(ranks: Ranks) -> tuple[list[tuple[str, Overlap]], str]:
    """Return what has a bar, with names; and what these are."""
    steps = ranks.overlaps[0].by_step
    if len(ranks.traces) == 1 and steps:
        return [(f"step {k}", own) for k, own in list(steps.items())[:_MOST_BARS]], "step"
    named = [
        (f"rank {k}", overlap) for k, overlap in zip(ranks.numbers(), ranks.overlaps, strict=True)
    ]
    # Of many ranks those that communicate longest in the open, in the ranks' order.
    worst = sorted(range(len(named)), key=lambda place: -named[place][1].exposed)[:_MOST_BARS]
    return [named[place] for place in sorted(worst)], "rank"


def _left_out(ranks: Ranks, bars: Sequence[Any]) -> Iterator[str]:
    count = len(ranks.traces) if len(ranks.traces) > 1 else len(ranks.overlaps[0].by_step)
    if count > len(bars) and len(ranks.traces) > 1:
        yield f"{len(bars)} of {count} ranks: those with most exposed communication."
    elif count > len(bars):
        yield f"The first {len(bars)} of {count} steps."


@dataclass(frozen=True, slots=True)
class _Lane:
    """One stream: its name, and what it does when."""

    name: str
    kinds: Mapping[str, Intervals]

    def busy(self) -> int:
        """Return how long it does anything, in nanoseconds."""
        return sum(int((ends - starts).sum()) for starts, ends in self.kinds.values())


def draw_timeline(
    ranks: Ranks, stem: Path, window: tuple[float, float] | None = None
) -> list[Path]:
    """Draw which stream does what at what time; communication by whether anything computes."""
    traces = ranks.traces[:_MOST_RANKS]
    zeros, notes = _zeros(ranks, traces)
    named, (low, high) = _window(ranks, traces, zeros, window)
    each = max(_MOST_LANES // len(traces), 1)
    lanes: list[_Lane] = []
    left_out = 0
    for place, trace in enumerate(traces):
        codes = ranks.patterns.classify(trace)
        own = list(_lanes_of(trace, codes, zeros[place], (low, high)))
        name = f"rank {ranks.numbers()[place]} · " if len(traces) > 1 else ""
        busiest = sorted(own, key=lambda lane: -lane.busy())[:each]
        left_out += len(own) - len(busiest)
        lanes += [_Lane(name + lane.name, lane.kinds) for lane in own if lane in busiest]
    if not lanes:
        lanes, notes = [_Lane("no stream", {})], [*notes, "Nothing runs in this time."]
    if left_out:
        notes.append(f"Left out: {left_out} streams that do least.")
    if len(ranks.traces) > len(traces):
        notes.append(f"The first {len(traces)} of {len(ranks.traces)} ranks.")
    present = {kind for lane in lanes for kind in lane.kinds}
    order = ("gemm", "other", _HIDDEN_COMMUNICATION, "communication", "copy", "wait")
    legend = _kinds_legend([kind for kind in order if kind in present])
    about = {"long_name": "time from the first GPU work on", "units": "s"}
    ends = (low / _SECOND, high / _SECOND)
    value = axis_of("time", about, np.array(ends), "linear", in_column(_TRACE_WIDTH), ends=ends)
    sheet = Sheet(
        "What each stream of the GPU does",
        xlabel=value.label,
        fixed=" · ".join(text for text in (_rank_text(ranks), named) if text),
        notes=notes,
        panel=(in_column(_TRACE_WIDTH), max(use().scale * _LANE * len(lanes), 1.0)),
    )
    return _drawn(sheet, legend, lanes, value, stem)


def _drawn(
    sheet: Sheet, legend: Legend, lanes: Sequence[_Lane], value: Axis, stem: Path
) -> list[Path]:
    finest = (value.high - value.low) * _SECOND / _FINEST
    with style():
        made = frame(sheet, legend)
        (axes,) = made.axes
        value.apply(axes, "x")
        _lanes(axes, [lane.name for lane in lanes])
        for place, lane in enumerate(lanes):
            for kind, (starts, ends) in lane.kinds.items():
                # Gaps that no eye sees are closed: a lane may have a hundred thousand rows.
                starts, ends = union(starts, ends + round(finest))  # noqa: PLW2901
                begin, length = starts / _SECOND, (ends - round(finest) - starts) / _SECOND
                spans = np.column_stack((begin, np.maximum(length, finest / _SECOND / 2)))
                axes.broken_barh(
                    spans,  # type: ignore[arg-type]
                    (place - _STREAM_BAR / 2, _STREAM_BAR),
                    facecolors=_COLOURS[kind],
                )
        return save(made.finished(), stem)


def _lanes_of(
    trace: Trace, codes: NDArray[np.int8], zero: int, window: tuple[int, int]
) -> Iterator[_Lane]:
    """Yield the streams that do something in a window."""
    starts, ends = (np.clip(edge - zero, *window) for edge in trace.rows.bounds())
    kept = (codes != EXCLUDED) & (ends > starts)
    starts, ends, codes = starts[kept], ends[kept], codes[kept]
    streams = trace.rows.stream[kept]
    computing = codes < CLASSES.index("communication")
    computed = union(starts[computing], ends[computing])
    for stream in np.unique(streams).tolist():
        kinds: dict[str, Intervals] = {}
        for code, kind in enumerate(CLASSES):
            own = (streams == stream) & (codes == code)
            if own.any():
                kinds[kind] = union(starts[own], ends[own])
        if "communication" in kinds:
            hidden = intersection(kinds["communication"], computed)
            if len(hidden[0]):
                kinds[_HIDDEN_COMMUNICATION] = hidden  # drawn over the rest, which is exposed
        yield _Lane(f"stream {stream}", kinds)


def _zeros(ranks: Ranks, traces: Sequence[Trace]) -> tuple[list[int], list[str]]:
    """Return the time that counts as zero in each trace: a common one where clocks allow."""
    working = [ranks.patterns.classify(trace) != EXCLUDED for trace in traces]
    bounds = [trace.rows.only(own).bounds() for trace, own in zip(traces, working, strict=True)]
    starts = [int(start.min(initial=np.iinfo(np.int64).max)) for start, _ in bounds]
    ends = [int(end.max(initial=0)) for _, end in bounds]
    if max(starts) < min(ends):
        return [min(starts)] * len(traces), []
    return starts, ["The ranks' clocks differ: each begins at its own first GPU work."]


def _window(
    ranks: Ranks, traces: Sequence[Trace], zeros: Sequence[int], window: tuple[float, float] | None
) -> tuple[str, tuple[int, int]]:
    """Return what is shown: in words, and in nanoseconds from the zero on."""
    if window is not None:
        low, high = (scale_of("s").text(edge, 4) for edge in window)
        return f"from {low} to {high}", (round(window[0] * _SECOND), round(window[1] * _SECOND))
    firsts = [_first(ranks, trace) - zero for trace, zero in zip(traces, zeros, strict=True)]
    steps = list(ranks.overlaps[0].by_step)
    step = steps[len(steps) // 2] if len(steps) > 1 else None
    shown = []
    for overlap, first in zip(ranks.overlaps, firsts, strict=False):
        part = overlap if step is None else overlap.by_step.get(step)
        if part is not None:
            start = first + round(part.start * _SECOND)
            shown.append((start, start + max(round(part.end_to_end * _SECOND), 1)))
    edges = (min(start for start, _ in shown), max(end for _, end in shown))
    return "" if step is None else f"step {step}", edges


def _first(ranks: Ranks, trace: Trace) -> int:
    working = ranks.patterns.classify(trace) != EXCLUDED
    kept = trace.rows if ranks.mode == "hta" else trace.rows.only(working)
    return int(kept.bounds()[0].min())


def _rank_text(ranks: Ranks) -> str:
    """Return whose traces they are."""
    devices = {trace.device for trace in ranks.traces}
    files = ranks.traces[0].file if len(ranks.traces) == 1 else f"{len(ranks.traces)} traces"
    device = devices.pop() if len(devices) == 1 else ""
    by = "by HolisticTraceAnalysis' definitions" if ranks.mode == "hta" else ""
    return " · ".join(text for text in (files, device, by) if text)


def _lanes(axes: Axes, names: Sequence[str]) -> None:
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    axes.set_yticks(range(len(names)), list(names))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _kinds_legend(kinds: Sequence[str]) -> Legend:
    return _legend_of({_LABELS[kind]: _COLOURS[kind] for kind in kinds})


def _legend_of(colours: Mapping[str, str], mark: str = "") -> Legend:
    """Return a legend of areas, and of the dashed mark where there is one."""
    areas = [(name, {"facecolor": colour}) for name, colour in colours.items()]
    dashed: dict[str, Any] = {"color": INK, "linewidth": 1.6, "linestyle": _MARK}
    return Legend([*areas, *([(mark, dashed)] if mark else [])])
