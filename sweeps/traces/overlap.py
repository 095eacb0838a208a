"""How a GPU's time is spent: by class, beside each other, and on nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.traces.events import readable_size
from sweeps.traces.hta import HTA_CLASSES, hta_figures
from sweeps.traces.intervals import intersection, measure, sweep, union
from sweeps.traces.patterns import CLASSES, EXCLUDED, Patterns, load_patterns
from sweeps.traces.steps import steps_of
from sweeps.traces.trace import Rows, Trace, counted

__all__ = ["HTA_PARTS", "MODES", "PARTS", "Kernel", "Mode", "Overlap", "analyse", "kernels_of"]

Mode = Literal["full", "hta"]
Ints = NDArray[np.int64]

MODES: tuple[Mode, ...] = ("full", "hta")
PARTS = (*CLASSES, "idle")
"""What a span is made of: each class where none before it runs, and what is left."""

HTA_PARTS = ("computation", "non_computation", "idle")
"""The same in the words of HolisticTraceAnalysis."""

_SECOND = 1e9  # nanoseconds
_TOLERATED = 1000  # nanoseconds by which rows of one stream overlap where times are whole


@dataclass(frozen=True, slots=True)
class Overlap:
    """How the time of a GPU is spent, in seconds: over a trace, a step, or a stream."""

    mode: Mode  # By which definitions: ``full`` or ``hta``
    rows: int  # How many rows of GPU work it is about
    start: float  # Where the first of them starts, from the start of the trace's first
    end_to_end: float  # From the first start to the last end
    idle: float  # Of that, without any work
    # For each class the length of the union of its rows: what runs at one time counts once
    times: Mapping[str, float]
    # What the end to end time is made of: each class where none before it runs, and idle time. So
    # communication stands there as far as it is exposed
    parts: Mapping[str, float]
    # Length of the unions; computation is matrix products and everything else that computes
    computation: float
    # Length of the unions; computation is matrix products and everything else that computes
    communication: float
    overlapped: float  # Communication while something computes
    # Computation that communication can hide behind: of a stream the whole GPU's, else its own
    beside: float
    # Communication while a matrix product runs; NaN in HolisticTraceAnalysis' mode
    gemm_overlapped: float = float("nan")
    host: float = float("nan")  # What the step took on the host; NaN for what isn't a step
    # The same of each step and stream; empty where there are none, and in steps and streams
    by_step: Mapping[int, Overlap] = field(default_factory=dict)
    # The same of each step and stream; empty where there are none, and in steps and streams
    by_stream: Mapping[int, Overlap] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # What a reader has to know

    @property
    def busy(self) -> float:
        """How long anything ran."""
        return round(self.end_to_end - self.idle, 9)  # whole nanoseconds

    @property
    def exposed(self) -> float:
        """Communication while nothing computes."""
        return round(self.communication - self.overlapped, 9)

    @property
    def of_communication(self) -> float:
        """Share of the communication that is overlapped; NaN without communication."""
        return self.overlapped / self.communication if self.communication else float("nan")

    @property
    def of_smaller(self) -> float:
        """Share of the shorter of communication and computation; NaN without communication."""
        smaller = min(self.communication, self.beside)
        if not self.communication:
            return float("nan")
        return self.overlapped / smaller if smaller > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """Rows of one name."""

    name: str  # As in the trace
    kind: str  # Its class, or ``excluded``
    rows: int  # How many
    time: float  # Their durations' sum in seconds


def analyse(
    trace: Trace,
    mode: Mode = "full",
    *,
    patterns: Patterns | None = None,
    include_last_step: bool = False,
) -> Overlap:
    """Find how a trace's time is spent."""
    if mode == "hta":
        return _by_hta(trace, include_last_step=include_last_step)
    codes = (patterns or load_patterns()).classify(trace)
    kept = codes != EXCLUDED
    if not kept.any():
        _refuse_without_rows(trace)
    rows, codes = trace.rows.only(kept), codes[kept]
    starts, ends = rows.bounds()
    zero = int(starts.min())
    steps = steps_of(trace)
    places = steps.places[kept]
    hosts = dict(enumerate((steps.durations / _SECOND).tolist()))
    return _measured(
        starts,
        ends,
        codes,
        zero,
        by_step={
            int(steps.numbers[k]): _measured(
                starts[own], ends[own], codes[own], zero, host=hosts[k]
            )
            for k, own in _split(places)
            if k >= 0
        },
        by_stream=dict(_streams(starts, ends, codes, rows.stream)),
        notes=(*trace.notes, *_notes(rows, places, len(steps))),
    )


def _measured(
    starts: Ints,
    ends: Ints,
    codes: NDArray[np.int8],
    zero: int,
    **more: Any,
) -> Overlap:
    """Measure some rows, of which there are at least one."""
    cut = sweep(starts, ends, codes, len(CLASSES))
    gemm, other, communication = (cut.active[CLASSES.index(k)] for k in CLASSES[:3])
    computing = gemm | other
    free = np.ones(cut.active.shape[1], dtype=np.bool_)
    parts = {}
    for kind, active in zip(CLASSES, cut.active, strict=True):
        parts[kind] = cut.length(active & free) / _SECOND
        free &= ~active
    return Overlap(
        mode="full",
        rows=len(starts),
        start=(int(starts.min()) - zero) / _SECOND,
        end_to_end=cut.span / _SECOND,
        idle=cut.length(free) / _SECOND,
        times={k: cut.length(a) / _SECOND for k, a in zip(CLASSES, cut.active, strict=True)},
        parts={**parts, "idle": cut.length(free) / _SECOND},
        computation=cut.length(computing) / _SECOND,
        communication=cut.length(communication) / _SECOND,
        beside=cut.length(computing) / _SECOND,
        overlapped=cut.length(communication & computing) / _SECOND,
        gemm_overlapped=cut.length(communication & gemm) / _SECOND,
        **more,
    )


def _streams(
    starts: Ints, ends: Ints, codes: NDArray[np.int8], streams: Ints
) -> Iterator[tuple[int, Overlap]]:
    """Yield what each stream does; its communication beside all that the GPU computes."""
    gemm, other, communication = (codes == CLASSES.index(k) for k in CLASSES[:3])
    products = union(starts[gemm], ends[gemm])
    computing = union(starts[gemm | other], ends[gemm | other])
    for stream, own in _split(streams):
        found = _measured(starts[own], ends[own], codes[own], int(starts.min()))
        carried = own[communication[own]]
        carrying = union(starts[carried], ends[carried])
        yield (
            stream,
            replace(
                found,
                overlapped=measure(intersection(carrying, computing)) / _SECOND,
                gemm_overlapped=measure(intersection(carrying, products)) / _SECOND,
                beside=measure(computing) / _SECOND,
            ),
        )


def _by_hta(trace: Trace, *, include_last_step: bool) -> Overlap:
    found = hta_figures(trace, include_last_step=include_last_step)
    if not found.rows:
        _refuse_without_rows(trace)
    times = {k: t / _SECOND for k, t in zip(HTA_CLASSES, found.times, strict=True)}
    span, idle = found.span / _SECOND, found.idle / _SECOND
    no_computation = (found.span - found.idle - found.times[0]) / _SECOND
    notes = list(trace.notes)
    if len(np.unique(trace.step_numbers())) > 1 and not include_last_step:
        notes.append("what the last step launched is left out, as HolisticTraceAnalysis does")
    return Overlap(
        mode="hta",
        rows=found.rows,
        start=(found.start - int(trace.rows.bounds()[0].min())) / _SECOND,
        end_to_end=span,
        idle=idle,
        times=times,
        parts=dict(zip(HTA_PARTS, (times["computation"], no_computation, idle), strict=True)),
        computation=times["computation"],
        communication=times["communication"],
        beside=times["computation"],
        overlapped=found.overlap / _SECOND,
        notes=tuple(notes),
    )


def _refuse_without_rows(trace: Trace) -> None:
    wrong = f"has no rows of GPU work in {readable_size(trace.nbytes)} of JSON"
    allowed = "a trace recorded with ProfilerActivity.CUDA"
    raise InputError(fault("trace", trace.file, wrong, allowed))


def _split(labels: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each label with the places where it stands."""
    order = np.argsort(labels, kind="stable")
    found, first = np.unique(labels[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, first[1:]), strict=True)


def _notes(rows: Rows, places: NDArray[np.intp], steps: int) -> Iterator[str]:
    """Yield what a reader has to know of some rows."""
    starts, ends = rows.bounds()
    many, most = 0, 0
    for _, own in _split(rows.stream):
        order = own[np.argsort(starts[own], kind="stable")]
        beyond = np.maximum.accumulate(ends[order])[:-1] - starts[order][1:]
        beyond = np.minimum(beyond, (ends - starts)[order][1:])
        many += int(np.count_nonzero(beyond > _TOLERATED))
        most = max(most, int(beyond.max(initial=0)))
    if many:
        told = f"overlapping on one stream: {counted(many)}, by up to {most / 1000:,.0f} us"
        yield f"{told}; what they have in common counts once"
    outside = int(np.count_nonzero(places < 0))
    if steps and outside:
        yield f"launched outside of the steps: {counted(outside)}, that count in no step"


def kernels_of(trace: Trace, patterns: Patterns | None = None) -> tuple[Kernel, ...]:
    """Return the names of a trace's rows with their classes, the longest first."""
    codes = (patterns or load_patterns()).classify(trace)
    found = {}
    for name, own in _split(trace.rows.name):
        for code, some in _split(codes[own]):
            kind = "excluded" if code == EXCLUDED else CLASSES[code]
            time = float(trace.rows.duration[own[some]].sum()) / 1e6
            found[name, code] = Kernel(trace.names[name], kind, len(some), time)
    return tuple(sorted(found.values(), key=lambda each: -each.time))
