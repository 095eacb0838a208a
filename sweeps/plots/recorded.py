"""Figures of profiler traces: when each stream did what, and what each GPU's time went into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import axis_of
from sweeps.plots.frame import Sheet, frame, in_column
from sweeps.plots.save import save
from sweeps.plots.stacks import Stacks, draw_stacks
from sweeps.plots.style import number, region_colour, scale_of, sentence, style, use
from sweeps.traces.columns import Trace
from sweeps.traces.overlap import ADVICE, Overlap, intersection, union
from sweeps.traces.patterns import CLASSES, EXCLUDED
from sweeps.traces.ranks import Ranks

if TYPE_CHECKING:
    pass
from sweeps.plots.timeline import label_rows, legend_of

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
    legend = legend_of({words: region_colour(colour) for colour, words in shown})
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
        label_rows(axes, names, (len(lanes) - 0.5, -0.5))
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
