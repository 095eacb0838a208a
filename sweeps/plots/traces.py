"""Figures of profiler traces: when each stream did what, and what each GPU's time went into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.draw import save
from sweeps.plots.frame import Axis, Legend, Sheet, axis_of, frame
from sweeps.plots.style import (
    COLOURS,
    FAINT,
    MUTED,
    SIZE_NOTE,
    number,
    region_colour,
    scale_of,
    style,
    text_width,
)
from sweeps.traces.overlap import Overlap, intersection, union
from sweeps.traces.patterns import CLASSES, EXCLUDED
from sweeps.traces.ranks import Ranks
from sweeps.traces.reader import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Intervals = tuple[NDArray[np.int64], NDArray[np.int64]]

_HIDDEN = "hidden communication"
_COLOURS = {
    "gemm": COLOURS[0],
    "other": COLOURS[2],
    _HIDDEN: region_colour(9),
    "communication": COLOURS[1],
    "copy": COLOURS[4],
    "wait": COLOURS[5],
    "idle": FAINT,
    "computation": COLOURS[0],
    "non_computation": COLOURS[1],
}
_LABELS = {
    "gemm": "Matrix products",
    "other": "Other computation",
    _HIDDEN: "Communication, hidden",
    "communication": "Communication, exposed",
    "copy": "Copies",
    "wait": "Waiting kernels",
    "idle": "Idle",
    "computation": "Computation",
    "non_computation": "No computation",
}
_COMMUNICATION = CLASSES.index("communication")
_SECOND = 1e9
_LANE, _BAR = 0.34, 0.76  # inches of a lane, and the share of it that a bar takes
_WIDTH = 6.8
_MOST_LANES, _MOST_RANKS, _MOST_BARS = 16, 4, 40
_FINEST = 3000  # pieces of the window that can be told apart


def draw_traces(
    ranks: Ranks, stem: Path, window: tuple[float, float] | None = None
) -> Iterator[Path]:
    """Draw both figures of traces."""
    yield from draw_summary(ranks, stem.with_name(f"{stem.name}-classes"))
    yield from draw_timeline(ranks, stem.with_name(f"{stem.name}-timeline"), window)


def draw_summary(ranks: Ranks, stem: Path) -> list[Path]:
    """Draw what the end to end time of each GPU is made of; of one alone, that of its steps."""
    bars, what = _bars_of(ranks)
    parts = [kind for kind in ranks.overlaps[0].parts if any(o.parts[kind] for _, o in bars)]
    ends = np.array([overlap.end_to_end for _, overlap in bars])
    about = {"long_name": "end to end time", "units": "s"}
    value = axis_of("time", about, ends, "linear", _WIDTH, pad=0.1)
    legend = _legend(parts)
    sheet = Sheet(
        f"What the time of each {what} went into",
        xlabel=value.label,
        fixed=_rank_text(ranks),
        notes=[
            "What runs at one time counts for the first of these. At the bars: how much of the "
            "communication is hidden by computation.",
            *_left_out(ranks, bars),
        ],
        left=max(text_width(name, SIZE_NOTE + 0.5) for name, _ in bars) + 0.35,
        panel=(_WIDTH, max(_LANE * len(bars), 1.0)),
    )
    with style():
        made = frame(sheet, legend)
        (axes,) = made.axes
        value.apply(axes, "x")
        _lanes(axes, [name for name, _ in bars])
        done = np.zeros(len(bars))
        for kind in parts:
            lengths = np.array([overlap.parts[kind] for _, overlap in bars])
            how: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6}
            places = np.arange(len(bars))
            axes.barh(places, lengths, _BAR, left=done, color=_COLOURS[kind], **how)
            done += lengths
        for place, (_, overlap) in enumerate(bars):
            share = overlap.of_communication
            text = "" if np.isnan(share) else f"{number(100 * share)} % hidden"
            axes.annotate(
                text, (max(overlap.end_to_end, 0.0), place), (4, 0), textcoords="offset points",
                ha="left", va="center", size=SIZE_NOTE, color=MUTED,
            )  # fmt: skip
        made.legend(legend)
        return save(made.canvas, stem)


def _bars_of(ranks: Ranks) -> tuple[list[tuple[str, Overlap]], str]:
    """Return what has a bar, with names; and what these are."""
    steps = ranks.overlaps[0].by_step
    if len(ranks.traces) == 1 and steps:
        return [(f"step {k}", own) for k, own in list(steps.items())[:_MOST_BARS]], "step"
    named = [(f"rank {k}", own) for k, own in zip(ranks.numbers(), ranks.overlaps, strict=True)]
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
    order = ("gemm", "other", _HIDDEN, "communication", "copy", "wait")
    legend = _legend([kind for kind in order if kind in present])
    about = {"long_name": "time from the first GPU work on", "units": "s"}
    ends = (low / _SECOND, high / _SECOND)
    value = axis_of("time", about, np.array(ends), "linear", _WIDTH, ends=ends)
    sheet = Sheet(
        "What each stream of the GPU does",
        xlabel=value.label,
        fixed=" · ".join(text for text in (_rank_text(ranks), named) if text),
        notes=notes,
        left=max([text_width(lane.name, SIZE_NOTE + 0.5) for lane in lanes], default=0.5) + 0.35,
        panel=(_WIDTH, max(_LANE * len(lanes), 1.0)),
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
                axes.broken_barh(spans, (place - _BAR / 2, _BAR), facecolors=_COLOURS[kind])  # type: ignore[arg-type]
        made.legend(legend)
        return save(made.canvas, stem)


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
                kinds[_HIDDEN] = hidden  # drawn over the rest, which is exposed
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
    ranks: Ranks,
    traces: Sequence[Trace],
    zeros: Sequence[int],
    window: tuple[float, float] | None,
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


def _legend(kinds: Sequence[str]) -> Legend:
    from matplotlib.patches import Patch

    return Legend([Patch(facecolor=_COLOURS[k]) for k in kinds], [_LABELS[k] for k in kinds])
