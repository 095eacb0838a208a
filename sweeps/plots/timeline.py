"""Timelines, predicted and recorded: when computation and communication run, and what shows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from sweeps.plots.frame import Legend, Sheet, axis_of, frame, in_column
from sweeps.plots.save import save
from sweeps.plots.stacks import Stacks, draw_stacks
from sweeps.plots.style import (
    COLOURS,
    FAINT,
    INK,
    MUTED,
    number,
    region_colour,
    scale_of,
    sentence,
    style,
    text_width,
    use,
)
from sweeps.traces.columns import Trace
from sweeps.traces.overlap import ADVICE, Overlap, intersection, union
from sweeps.traces.patterns import CLASSES, EXCLUDED
from sweeps.traces.ranks import Ranks

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
        made = frame(sheet, _legend_of(areas, mark if marks else ""), time)
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
        _name_rows(axes, dict([*ticks.items()][::shown]), (count, 0.0))
        return save(made.finished(), stem)


def _name_rows(axes: Axes, names: Mapping[float, str], ends: tuple[float, float]) -> None:
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


# Figures of profiler traces: when each stream did what, and what each GPU's time went into.

Intervals = tuple[NDArray[np.int64], NDArray[np.int64]]

_HIDDEN_COMMUNICATION = "hidden communication"
# By class of work, and in HolisticTraceAnalysis' mode: its area's colour, and the words for it.
_CLASSES = {
    "gemm": (0, "GEMMs"),
    "other": (2, "Other computation"),
    _HIDDEN_COMMUNICATION: (9, "Communication, overlapped"),
    "communication": (1, "Communication, exposed"),
    "copy": (4, "Copies"),
    "wait": (5, "Waiting kernels"),
    "idle": (7, "Idle"),
    "computation": (0, "Computation"),
    "non_computation": (1, "No computation"),
}
_REASONS = dict(zip(ADVICE, (5, 1, 4, 2, 0), strict=True))
_SECOND = 1e9
_LANE, _STREAM_BAR = 0.34, 0.76  # inches of a lane, and the share of it that a bar takes
_TRACE_WIDTH = 6.8
_MOST_LANES, _MOST_RANKS, _MOST_BARS, _MOST_EXPOSED = 16, 4, 40, 16
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
    parts = {
        _CLASSES[kind]: [overlap.parts[kind] for _, overlap in bars]
        for kind in ranks.overlaps[0].parts
        if kind == "idle" or any(overlap.parts[kind] for _, overlap in bars)
    }
    shares = [100 * overlap.of_communication for _, overlap in bars]
    texts = ["" if np.isnan(share) else f"{number(share)} % hidden" for share in shares]
    sheet = Sheet(
        f"What the time of each {what} went into",
        fixed=_rank_text(ranks),
        notes=[
            "What runs at one time counts for the first of these. At the bars: how much of the "
            "communication is hidden by computation.",
            *_left_out(ranks, bars),
        ],
    )
    return _draw_parts(sheet, "end to end time", [name for name, _ in bars], parts, texts, stem)


def _draw_parts(
    sheet: Sheet,
    quantity: str,
    names: Sequence[str],
    parts: Mapping[tuple[int, str], Sequence[float]],
    texts: Sequence[str],
    stem: Path,
) -> list[Path]:
    """Draw a bar for each name, of parts with a colour and a name each, and a text at its end."""
    stacks = Stacks(
        [""],
        names,
        [words for _, words in parts],
        np.array([list(parts.values())]),
        "s",
        quantity=quantity,
        colours=tuple(colour for colour, _ in parts),
        bar_notes=(tuple(texts),),
    )
    with style():
        return save(draw_stacks(stacks, sheet), stem)


def draw_exposures(ranks: Ranks, stem: Path) -> list[Path]:
    """Draw why communication is exposed, by rank; of one trace alone, by collective."""
    numbers, several = ranks.numbers(), len(ranks.traces) > 1
    waits: dict[str, dict[str, float]] = {}
    for number_of, operations in zip(numbers, ranks.exposed, strict=False):
        for operation in operations:
            times = waits.setdefault(f"rank {number_of}" if several else operation.name, {})
            times[operation.reason] = times.get(operation.reason, 0.0) + operation.time
    exposed = {name: sum(times.values()) for name, times in waits.items()}
    longest = sorted(waits, key=lambda name: -exposed[name])[:_MOST_EXPOSED]
    names = [name for name in waits if name in longest] if several else longest
    if not names:
        return []
    reasons = [reason for reason in ADVICE if any(reason in waits[name] for name in names)]
    parts = {
        (_REASONS[reason], sentence(reason)): [waits[name].get(reason, 0.0) for name in names]
        for reason in reasons
    }
    notes = [f"{sentence(reason)}: {ADVICE[reason]}." for reason in reasons]
    if len(names) < len(waits):
        what = "ranks" if several else "collectives"
        notes.append(f"{len(names)} of {len(waits)} {what}: those that are exposed longest.")
    whole = dict.fromkeys(names, sum(exposed.values()))
    if several:
        whole = {f"rank {n}": o.end_to_end for n, o in zip(numbers, ranks.overlaps, strict=True)}
    of = "of its time" if several else "of what is exposed"
    texts = [f"{number(100 * exposed[name] / whole[name])} % {of}" for name in names]
    title = f"Why communication is exposed, by {'rank' if several else 'collective'}"
    sheet = Sheet(title, fixed=_rank_text(ranks), notes=notes)
    return _draw_parts(sheet, "exposed communication", names, parts, texts, stem)


def _bars_of(ranks: Ranks) -> tuple[list[tuple[str, Overlap]], str]:
    """Return what has a bar, with names; and what these are."""
    steps = ranks.overlaps[0].by_step
    if len(ranks.traces) == 1 and steps:
        return [(f"step {k}", bar) for k, bar in list(steps.items())[:_MOST_BARS]], "step"
    named = [
        (f"rank {k}", overlap) for k, overlap in zip(ranks.numbers(), ranks.overlaps, strict=True)
    ]
    # Of many ranks those that communicate longest in the open, in the ranks' order.
    worst = sorted(range(len(named)), key=lambda index: -named[index][1].exposed)[:_MOST_BARS]
    return [named[index] for index in sorted(worst)], "rank"


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
    for index, trace in enumerate(traces):
        codes = ranks.patterns.classify(trace)
        own_lanes = list(_lanes_of(trace, codes, zeros[index], (low, high)))
        name = f"rank {ranks.numbers()[index]} · " if len(traces) > 1 else ""
        busiest = sorted(own_lanes, key=lambda lane: -lane.busy())[:each]
        left_out += len(own_lanes) - len(busiest)
        lanes += [_Lane(name + lane.name, lane.kinds) for lane in own_lanes if lane in busiest]
    if not lanes:
        lanes, notes = [_Lane("no stream", {})], [*notes, "Nothing runs in this time."]
    if left_out:
        notes.append(f"Left out: {left_out} streams that do least.")
    if len(ranks.traces) > len(traces):
        notes.append(f"The first {len(traces)} of {len(ranks.traces)} ranks.")
    present = {kind for lane in lanes for kind in lane.kinds}
    shown = [look for kind, look in _CLASSES.items() if kind in present]
    legend = _legend_of({words: region_colour(colour) for colour, words in shown})
    about = {"long_name": "time from the first GPU work on", "units": "s"}
    edges = (low / _SECOND, high / _SECOND)
    value = axis_of("time", about, np.array(edges), "linear", in_column(_TRACE_WIDTH), ends=edges)
    sheet = Sheet(
        "What each stream of the GPU does",
        fixed=" · ".join(text for text in (_rank_text(ranks), named) if text),
        notes=notes,
        panel=(in_column(_TRACE_WIDTH), max(use().scale * _LANE * len(lanes), 1.0)),
    )
    finest = (value.high - value.low) * _SECOND / _FINEST
    with style():
        made = frame(sheet, legend, value)
        (axes,) = made.axes
        names = {float(index): lane.name for index, lane in enumerate(lanes)}
        _name_rows(axes, names, (len(lanes) - 0.5, -0.5))
        for index, lane in enumerate(lanes):
            for kind, (starts, ends) in lane.kinds.items():
                # Gaps that no eye sees are closed: a lane may have a hundred thousand rows.
                starts, ends = union(starts, ends + round(finest))  # noqa: PLW2901
                begin, length = starts / _SECOND, (ends - round(finest) - starts) / _SECOND
                spans = np.column_stack((begin, np.maximum(length, finest / _SECOND / 2)))
                axes.broken_barh(
                    spans,  # type: ignore[arg-type]
                    (index - _STREAM_BAR / 2, _STREAM_BAR),
                    facecolors=region_colour(_CLASSES[kind][0]),
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
            mask = (streams == stream) & (codes == code)
            if mask.any():
                kinds[kind] = union(starts[mask], ends[mask])
        if "communication" in kinds:
            hidden = intersection(kinds["communication"], computed)
            if len(hidden[0]):
                kinds[_HIDDEN_COMMUNICATION] = hidden  # drawn over the rest, which is exposed
        yield _Lane(f"stream {stream}", kinds)


def _zeros(ranks: Ranks, traces: Sequence[Trace]) -> tuple[list[int], list[str]]:
    """Return the time that counts as zero in each trace: a common one where clocks allow."""
    working = [ranks.patterns.classify(trace) != EXCLUDED for trace in traces]
    bounds = [trace.rows.only(mask).bounds() for trace, mask in zip(traces, working, strict=True)]
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


def _legend_of(colours: Mapping[str, str], mark: str = "") -> Legend:
    """Return a legend of areas, and of the dashed mark where there is one."""
    areas = [(name, {"facecolor": colour}) for name, colour in colours.items()]
    dashed: dict[str, Any] = {"color": INK, "linewidth": 1.6, "linestyle": _MARK}
    return Legend([*areas, *([(mark, dashed)] if mark else [])])
