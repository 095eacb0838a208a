"""How a GPU's time is spent: by class, beside each other, and on nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import refuse
from sweeps.traces.columns import Rows, Trace, counted, nanoseconds
from sweeps.traces.parts import readable_size
from sweeps.traces.patterns import CLASSES, EXCLUDED, Patterns, load_patterns

# Exact unions and intersections of intervals: whole nanoseconds, sorted once, no loops.

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Intervals = tuple[Ints, Ints]


def union(starts: Ints, ends: Ints) -> Intervals:
    """Return the union of intervals as intervals that don't touch, in order."""
    kept = ends > starts
    starts, ends = starts[kept], ends[kept]
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(opens)[1:] - 1, [len(starts) - 1]))
    return starts[opens], reach[last]


def measure(intervals: Intervals) -> int:
    """Return the length of intervals that don't overlap."""
    starts, ends = intervals
    return int((ends - starts).sum())


def intersection(first: Intervals, other: Intervals) -> Intervals:
    """Return where two unions overlap, as intervals in order."""
    labels = np.repeat([0, 1], [len(first[0]), len(other[0])])
    both = sweep(
        np.concatenate((first[0], other[0])), np.concatenate((first[1], other[1])), labels, 2
    )
    covered = both.active[0] & both.active[1]
    return union(both.times[:-1][covered], both.times[1:][covered])


@dataclass(frozen=True, slots=True)
class Pieces:
    """The time line cut wherever an interval starts or ends, with what goes on in each piece."""

    times: Ints  # Where it is cut, in order; one more than there are pieces
    active: Bools  # By class and piece, whether an interval of the class covers the piece

    @property
    def span(self) -> int:
        """From the first start to the last end."""
        return int(self.times[-1] - self.times[0]) if len(self.times) else 0

    def length(self, pieces: Bools) -> int:
        """Return how long some pieces last together."""
        return int(np.diff(self.times)[pieces].sum())


def sweep(starts: Ints, ends: Ints, labels: NDArray[np.integer], classes: int) -> Pieces:
    """Cut the time line at all ends of intervals, and say what covers each piece."""
    edges = np.concatenate((starts, ends))
    order = np.argsort(edges, kind="stable")
    kinds = np.concatenate((labels, labels))[order]
    change = np.where(order < len(starts), np.int8(1), np.int8(-1))
    active = np.zeros((classes, max(len(edges) - 1, 0)), dtype=np.bool_)
    for kind in range(classes):
        change_of = np.where(kinds == kind, change, np.int8(0))
        active[kind] = np.cumsum(change_of, dtype=np.int32)[:-1] > 0
    return Pieces(edges[order], active)


# HolisticTraceAnalysis' figures of a trace: its rows, its classes, its roundings.
#
# What its release 0.6.1 does with a file of one rank (``hta/common/trace.py``,
# ``hta/common/trace_parser.py``, ``hta/utils/utils.py``, ``hta/analyzers``), the odd parts as well:
# rows whose launch lies in the last step, or isn't in the file, are left out; where times have
# fractions, starts are rounded up and ends down, so that what is shorter than a microsecond may
# last less than nothing; and all names that begin with ``hip`` are communication, copies too.

HTA_CLASSES = ("computation", "communication", "memory", "other")
"""The classes, in the order of the codes."""

_COMMUNICATION = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
_MEMORY = re.compile(r"(^(hip)?Memcpy)|(^(hip)?Memset)|(^dma)")
_NO_COMPUTATION = re.compile(
    r"(^nccl)|(.*Memcpy)|(.*Memset)|(.*dma)|(^.*Sync)|(^Stream Wait Event)|(cuda.*LaunchKernel)"
    r"|(^runFunction)|(^hip)|(^job_exe)|(^packet)|(^pe_exe)|(^cpum_exe_subgraph)|(^hccl)"
    r"|(^collective_subgraph_execution)"
)
_SYNCHRONISATION = ("Event Sync", "Context Sync")


@dataclass(frozen=True, slots=True)
class HtaFigures:
    """What HolisticTraceAnalysis finds, in nanoseconds."""

    rows: int  # Rows that it keeps
    start: int  # Where the first of them starts
    span: int  # Its ``kernel_time`` and ``idle_time``
    idle: int
    times: tuple[int, ...]  # Of each class of `HTA_CLASSES`: the length of the union
    overlap: int  # Communication beside computation


def hta_figures(trace: Trace, *, include_last_step: bool = False) -> HtaFigures:
    """Return the figures of one trace."""
    rows = trace.rows.only(_kept(trace, include_last_step=include_last_step))
    starts, ends = _times(trace, rows)
    codes = _codes(trace, rows)
    whole = _groups(starts, ends)
    by_class = [_groups(starts[codes == k], ends[codes == k]) for k in range(len(HTA_CLASSES))]
    computation, communication = by_class[:2]
    span = int(whole[1][-1] - whole[0][0]) if len(rows) else 0
    return HtaFigures(
        rows=len(rows),
        start=int(starts.min()) if len(rows) else 0,
        span=span,
        idle=span - measure(whole),
        times=tuple(measure(groups) for groups in by_class),
        overlap=measure(intersection(union(*communication), union(*computation))),
    )


def _kept(trace: Trace, *, include_last_step: bool) -> Bools:
    """Tell which rows are kept: on a stream, and launched by a call that is kept."""
    rows, numbers = trace.rows, trace.step_numbers()
    on_stream = rows.stream != -1
    if len(np.unique(trace.spans.name[numbers >= 0])) < 2:
        return np.asarray(on_stream)
    synchronisation = np.isin(trace.names, _SYNCHRONISATION)[rows.name]
    on_gpu = ((rows.stream >= 0) & (rows.correlation >= 0)) | synchronisation
    rounded = np.ceil if trace.fractional else np.asarray
    last = np.inf if include_last_step else rounded(trace.spans.start[numbers >= 0]).max()
    # Rows with a stream but no correlation count as calls of the host, and are kept as such.
    called = rounded(rows.start) < last
    launched = np.concatenate(
        (
            trace.launches.correlation[rounded(trace.launches.start) < last],
            rows.correlation[called & ~on_gpu],
        )
    )
    # What has no correlation is joined to the host's rows without one, of which there always are.
    owned = np.isin(rows.correlation, launched) | (rows.correlation == -1)
    return np.asarray(on_stream & np.where(on_gpu, owned, called))


def _times(trace: Trace, rows: Rows) -> tuple[Ints, Ints]:
    """Return starts and ends in nanoseconds: of whole microseconds where starts have fractions."""
    if not trace.fractional:
        return rows.bounds()
    starts, ends = np.ceil(rows.start), np.floor(rows.start + rows.duration)
    return nanoseconds(starts), nanoseconds(ends)


def _codes(trace: Trace, rows: Rows) -> NDArray[np.int8]:
    codes = np.zeros(len(trace.names), dtype=np.int8)
    for name in np.unique(rows.name).tolist():
        codes[name] = HTA_CLASSES.index(_class(trace.names[name]))
    return codes[rows.name]


def _class(name: str) -> str:
    if _COMMUNICATION.match(name):
        return "communication"
    if _MEMORY.match(name):
        return "memory"
    return "other" if _NO_COMPUTATION.match(name) else "computation"


def _groups(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Merge rows as it does: one that ends before it starts stays, and counts negative."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate(([True], starts[1:] > reach[:-1]))
    return starts[opens], np.maximum.reduceat(ends, np.flatnonzero(opens))


# Which step of the training loop a row of the GPU belongs to: the one that launched it.


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a trace (``ProfilerStep#4``), and where its rows belong."""

    # The steps' numbers, in order of time; empty for a trace without steps
    numbers: NDArray[np.int64]
    durations: NDArray[np.int64]  # What each took on the host, in nanoseconds
    # For each row the place of its step; -1 for a row that no step launched
    places: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.numbers)


def steps_of(trace: Trace) -> Steps:
    """Tell which step each row of a trace belongs to.

    A kernel runs after its launch, and often in the next step, so a row belongs to the step in
    which the host launched it. In a trace without launches it is the step in which it starts.
    """
    numbers = trace.step_numbers()
    on_gpu = np.array([c.lower().startswith("gpu") for c in trace.categories], dtype=np.bool_)
    host = numbers >= 0
    if len(on_gpu):
        host &= ~on_gpu[trace.spans.category]
    spans = trace.spans.only(host)
    starts = nanoseconds(spans.start)
    order = np.argsort(starts, kind="stable")
    # Several threads may have marked a step: the first mark counts.
    _, first = np.unique(numbers[host][order], return_index=True)
    order = order[np.sort(first)]
    starts, durations = starts[order], nanoseconds(spans.duration)[order]
    step_of_row = np.full(len(trace.rows), -1, dtype=np.intp)
    if len(order):
        times, known = _launched(trace)
        step = np.searchsorted(starts, times, side="right") - 1
        inside = known & (step >= 0)
        inside &= times < (starts + durations)[np.maximum(step, 0)]
        step_of_row = np.where(inside, step, -1)
    return Steps(numbers[host][order], durations, step_of_row)


def _launched(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return when each row was launched, and whether that is known."""
    if not len(trace.launches):
        return nanoseconds(trace.rows.start), np.ones(len(trace.rows), dtype=np.bool_)
    launch = trace.launches.of(trace.rows.correlation)
    return nanoseconds(trace.launches.start)[launch], launch >= 0


Mode = Literal["full", "hta"]

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
    # Length of the unions; computation is GEMMs and everything else that computes
    computation: float
    communication: float
    overlapped: float  # Communication while something computes
    # Computation that communication can hide behind: of a stream the whole GPU's, else its own
    concurrent_computation: float
    # Communication while a GEMM runs; NaN in HolisticTraceAnalysis' mode
    gemm_overlapped: float = float("nan")
    host: float = float("nan")  # What the step took on the host; NaN for what isn't a step
    # The same of each step and stream; empty where there are none, and in steps and streams
    by_step: Mapping[int, Overlap] = field(default_factory=dict)
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
        smaller = min(self.communication, self.concurrent_computation)
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
    purpose: str = ""  # Of other computation what it is, where that is known: of `KINDS`


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
    step_of_row = steps.places[kept]
    hosts = dict(enumerate((steps.durations / _SECOND).tolist()))
    return _measured(
        starts,
        ends,
        codes,
        zero,
        by_step={
            int(steps.numbers[k]): _measured(
                starts[rows_of_step], ends[rows_of_step], codes[rows_of_step], zero, host=hosts[k]
            )
            for k, rows_of_step in _split(step_of_row)
            if k >= 0
        },
        by_stream=dict(_streams(starts, ends, codes, rows.stream)),
        notes=(
            *trace.notes,
            *_notes(rows, step_of_row, len(steps)),
            *_unlaunched(trace, codes),
            *_spread(rows.only(codes == CLASSES.index("communication"))),
        ),
    )


def _measured(starts: Ints, ends: Ints, codes: NDArray[np.int8], zero: int, **more: Any) -> Overlap:
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
        concurrent_computation=cut.length(computing) / _SECOND,
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
    for stream, rows_of_stream in _split(streams):
        figures = _measured(
            starts[rows_of_stream], ends[rows_of_stream], codes[rows_of_stream], int(starts.min())
        )
        carried = rows_of_stream[communication[rows_of_stream]]
        carrying = union(starts[carried], ends[carried])
        yield (
            stream,
            replace(
                figures,
                overlapped=measure(intersection(carrying, computing)) / _SECOND,
                gemm_overlapped=measure(intersection(carrying, products)) / _SECOND,
                concurrent_computation=measure(computing) / _SECOND,
            ),
        )


def _by_hta(trace: Trace, *, include_last_step: bool) -> Overlap:
    figures = hta_figures(trace, include_last_step=include_last_step)
    if not figures.rows:
        _refuse_without_rows(trace)
    times = {k: t / _SECOND for k, t in zip(HTA_CLASSES, figures.times, strict=True)}
    span, idle = figures.span / _SECOND, figures.idle / _SECOND
    no_computation = (figures.span - figures.idle - figures.times[0]) / _SECOND
    notes = list(trace.notes)
    if len(np.unique(trace.step_numbers())) > 1 and not include_last_step:
        notes.append("what the last step launched is left out, as HolisticTraceAnalysis does")
    return Overlap(
        mode="hta",
        rows=figures.rows,
        start=(figures.start - int(trace.rows.bounds()[0].min())) / _SECOND,
        end_to_end=span,
        idle=idle,
        times=times,
        parts=dict(zip(HTA_PARTS, (times["computation"], no_computation, idle), strict=True)),
        computation=times["computation"],
        communication=times["communication"],
        concurrent_computation=times["computation"],
        overlapped=figures.overlap / _SECOND,
        notes=tuple(notes),
    )


def _refuse_without_rows(trace: Trace) -> None:
    wrong = f"has no rows of GPU work in {readable_size(trace.nbytes)} of JSON"
    wrong += f" ({'; '.join(trace.notes)})" if trace.notes else ""
    tool = trace.tool
    refuse("trace", trace.file, wrong, f"of {tool.name}: {tool.rows}" if tool.name else tool.rows)


def _split(labels: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each label with the places where it stands."""
    order = np.argsort(labels, kind="stable")
    distinct, first = np.unique(labels[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, first[1:]), strict=True)


def _notes(rows: Rows, step_of_row: NDArray[np.intp], steps: int) -> Iterator[str]:
    """Yield what a reader has to know of some rows."""
    starts, ends = rows.bounds()
    many, most = 0, 0
    for _, rows_of_stream in _split(rows.stream):
        order = rows_of_stream[np.argsort(starts[rows_of_stream], kind="stable")]
        beyond = np.maximum.accumulate(ends[order])[:-1] - starts[order][1:]
        beyond = np.minimum(beyond, (ends - starts)[order][1:])
        many += int(np.count_nonzero(beyond > _TOLERATED))
        most = max(most, int(beyond.max(initial=0)))
    if many:
        text = f"overlapping on one stream: {counted(many)}, by up to {most / 1000:,.0f} µs"
        yield f"{text}; what they have in common counts once"
    outside = int(np.count_nonzero(step_of_row < 0))
    if steps and outside:
        yield f"launched outside of the steps: {counted(outside)}, that count in no step"


def _unlaunched(trace: Trace, codes: NDArray[np.int8]) -> Iterator[str]:
    """Yield that nothing says when rows were launched; predicted ones aren't."""
    sent = bool((codes == CLASSES.index("communication")).any())
    if sent and not len(trace.launches) and "communication" not in trace.categories:
        advice = f" ({trace.tool.launches})" if trace.tool.launches else ""
        yield (
            f"the trace has no launches{advice}: what is host bound or launched late counts as "
            "'waits for data'"
        )


# From how many streams on it is worth a remark that fewer would do (assumed), and how many queues
# CUDA opens to a GPU unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise (CUDA C++ Programming Guide,
# environment variables: 1 to 32, default 8).
_MANY_STREAMS, _QUEUES = 4, 8


def _spread(sent: Rows) -> Iterator[str]:
    """Yield that more streams carry communication than ever do at one time."""
    streams = np.unique(sent.stream)
    if len(streams) < _MANY_STREAMS:
        return
    starts, ends = sent.bounds()
    each = [
        union(starts[mask], ends[mask]) for mask in (sent.stream == stream for stream in streams)
    ]
    times = np.concatenate([*(pair[0] for pair in each), *(pair[1] for pair in each)])
    change = np.repeat([1, -1], len(times) // 2)
    # Where one ends as another begins they aren't at once.
    most = int(np.cumsum(change[np.lexsort((change, times))]).max(initial=0))
    if most == len(streams):
        return
    queues = ""
    if len(streams) > _QUEUES:
        queues = (
            f"; they are more than the {_QUEUES} queues that CUDA opens by default "
            "(CUDA_DEVICE_MAX_CONNECTIONS), so one may wait for another's kernels"
        )
    yield (
        f"communication runs on {len(streams)} streams, never on more than {most} of them at once: "
        f"{most} would carry as much{queues}"
    )


def kernels_of(trace: Trace, patterns: Patterns | None = None) -> tuple[Kernel, ...]:
    """Return the names of a trace's rows with their classes, the longest first."""
    patterns = patterns or load_patterns()
    codes = patterns.classify(trace)
    kernels = {}
    for name, rows_of_name in _split(trace.rows.name):
        for code, some in _split(codes[rows_of_name]):
            kind = "excluded" if code == EXCLUDED else CLASSES[code]
            time = float(trace.rows.duration[rows_of_name[some]].sum()) / 1e6
            category = trace.categories[trace.rows.category[rows_of_name[some[0]]]]
            rule = patterns.rule(category, trace.names[name]) if kind == "other" else None
            purpose = rule.kind if rule else ""
            kernels[name, code] = Kernel(trace.names[name], kind, len(some), time, purpose)
    return tuple(sorted(kernels.values(), key=lambda each: -each.time))


def purposes_of(kernels: Iterable[Kernel]) -> dict[str, float]:
    """Return what kernels are for, as far as that is known, with each's time, the longest first."""
    times: dict[str, float] = {}
    for kernel in kernels:
        if kernel.purpose:
            times[kernel.purpose] = times.get(kernel.purpose, 0.0) + kernel.time
    return dict(sorted(times.items(), key=lambda each: -each[1]))


# Why communication is exposed: what the GPU would have computed next, and why it couldn't yet.

HOST, STREAM, TINY, LATE, DATA = (
    "host bound",
    "same stream",
    "tiny message",
    "launched late",
    "waits for data",
)
ADVICE = {
    HOST: "the next kernel wasn't launched yet: CUDA graphs, fused or larger kernels, no .item() or"
    " synchronisation in between",
    STREAM: "what comes next is queued behind it: issue it on a stream of its own (async_op=True),"
    " and wait where its result is needed",
    TINY: "its fixed costs are all of it: larger buckets, coalesced or fused collectives",
    LATE: "it ran as soon as it was launched: issue it earlier (prefetch, a hook as soon as its"
    " data is there), more CUDA_DEVICE_MAX_CONNECTIONS",
    DATA: "what comes next needs its result: cut both in pieces (userbuffers, chunks), prefetch,"
    " put other work between, send fewer bytes",
}
# Of a collective, and between its launch and its start [ns]: assumed.
TINY_TIME, PROMPT = 20_000, 10_000
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Exposure:
    """Exposed time of the collectives of one name, for one reason."""

    name: str  # Of the operation, or of its kernel
    reason: str  # One of `ADVICE`
    time: float  # In seconds
    rows: int  # Collectives of which some is exposed for it
    at: float  # When that of which most is begins, in seconds from the first GPU work


def exposures(trace: Trace, patterns: Patterns | None = None) -> tuple[Exposure, ...]:
    """Return why a trace's communication is exposed; the times sum to all that is."""
    codes = (patterns or load_patterns()).classify(trace)
    zero = int(trace.rows.only(codes != EXCLUDED).bounds()[0].min(initial=_LAST))
    sent = _in_order(trace.rows.only(codes == CLASSES.index("communication")))
    work = _in_order(trace.rows.only((codes == 0) | (codes == 1)))
    (starts, ends), (begins, stops) = sent.bounds(), work.bounds()
    labels = np.repeat([0, 1], [len(sent), len(work)])
    cut = sweep(np.concatenate((starts, begins)), np.concatenate((ends, stops)), labels, 2)
    bare = cut.active[0] & ~cut.active[1] & (np.diff(cut.times) > 0)
    first, last = cut.times[:-1][bare], cut.times[1:][bare]
    if not len(first):
        return ()
    # Whose it is: of those under way the one that ends last; then what computes next.
    reach = np.where(ends >= np.maximum.accumulate(ends), np.arange(len(sent)), 0)
    sent_rows = np.maximum.accumulate(reach)[np.searchsorted(starts, first, side="right") - 1]
    after = np.searchsorted(begins, last)
    more, after = after < len(work), np.minimum(after, max(len(work) - 1, 0))
    called, launched = _calls(trace, work), _calls(trace, sent)
    host = np.zeros(len(first), dtype=np.int64)
    same = np.zeros(len(first), dtype=np.bool_)
    if len(work):
        host = np.where(more, np.clip(called[after], first, last) - first, 0)
        same = more & (work.stream[after] == sent.stream[sent_rows])
    prompt = (launched[sent_rows] >= 0) & (starts[sent_rows] - launched[sent_rows] < PROMPT)
    code = np.select([same, (ends - starts)[sent_rows] < TINY_TIME, prompt], [1, 2, 3], 4)
    whose = [_operation(trace, sent, row) for row in sent_rows.tolist()]
    times: dict[tuple[str, str], dict[int, int]] = {}
    reasons = tuple(ADVICE)
    for name, row, kind, waits, rest in zip(
        whose,
        sent_rows.tolist(),
        code.tolist(),
        host.tolist(),
        (last - first - host).tolist(),
        strict=True,
    ):
        for reason, time in ((HOST, waits), (reasons[kind], rest)):
            if time:
                each = times.setdefault((name, reason), {})
                each[row] = each.get(row, 0) + time
    ordered = []
    for key, each in times.items():
        at = int(starts[max(each, key=each.__getitem__)]) - zero
        ordered.append(Exposure(*key, sum(each.values()) / _SECOND, len(each), at / _SECOND))
    return tuple(sorted(ordered, key=lambda exposure: -exposure.time))


def _in_order(rows: Rows) -> Rows:
    ordered: Rows = rows.only(np.argsort(rows.bounds()[0], kind="stable"))
    return ordered


def _calls(trace: Trace, rows: Rows) -> Ints:
    """Return when rows were launched, in nanoseconds; -1 where that isn't known."""
    launch = trace.launches.of(rows.correlation)
    if not len(trace.launches):
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(launch >= 0, nanoseconds(trace.launches.start)[launch], -1)


def _operation(trace: Trace, rows: Rows, row: int) -> str:
    """Return a collective's name: the operation's where it is said, else the kernel's.

    Where groups of several kinds run an operation, the group stands with it.
    """
    collective = int(rows.collective[row])
    if collective >= 0:
        operation = trace.collectives[collective]
        if len({other.group for other in trace.collectives if other.name == operation.name}) < 2:
            return operation.name
        group = operation.group.partition(" [")[0]
        return f"{operation.name}, group {group} of {operation.size} ranks"
    return plain_name(trace.names[int(rows.name[row])])


def plain_name(name: str) -> str:
    """Return a kernel's name without its arguments."""
    return name.removesuffix(", exposed").replace("(anonymous namespace)::", "").partition("(")[0]
