"""Traces of several ranks together: analysed alike, put in order, matched."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.traces.overlap import Mode, Overlap, analyse, steps_of
from sweeps.traces.patterns import CLASSES, EXCLUDED, Patterns, load_patterns
from sweeps.traces.reader import Trace, nanoseconds, read_trace

# The same collective operation on several ranks: how long it carried data, how long it waited.
#
# A collective's kernel starts where its rank comes to it, and spins until the last rank has come.
# So
# its duration is a transfer and a wait for peers; the shortest of all ranks' is nearest to the
# transfer.

Ints = NDArray[np.int64]
Key = tuple[Hashable, ...]

_COMMUNICATION = CLASSES.index("communication")
_SECOND = 1e9
# Names as operations, annotations and kernels have them, and no send between two ranks, of which
# nobody knows which belong together.
_KINDS = (
    ("reduce_scatter", re.compile(r"(?i)reduce_?scatter")),
    ("all_reduce", re.compile(r"(?i)all_?reduce")),
    ("all_gather", re.compile(r"(?i)all_?gather")),
    ("all_to_all", re.compile(r"(?i)all_?to_?all")),
)


@dataclass(frozen=True, slots=True)
class Skew:
    """Collective operations that were found on several ranks."""

    # Of each trace, how many of its operations were found on another one too
    matched: tuple[int, ...]
    duration: tuple[float, ...]  # Of each trace, how long these took, one after another (seconds)
    # The shortest duration of each operation on any of the ranks, summed: at least as long as the
    # data took, if all ranks of the group are there
    transfer: tuple[float, ...]
    unmatched: tuple[int, ...]  # Of each trace, its operations of which that isn't known

    @property
    def waiting(self) -> tuple[float, ...]:
        """Of each trace, how long its operations waited for peers at least (seconds)."""
        both = zip(self.duration, self.transfer, strict=True)
        return tuple(round(duration - transfer, 9) for duration, transfer in both)


def skew_of(traces: Sequence[Trace], codes: Sequence[NDArray[np.int8]]) -> Skew:
    """Match the collective operations of several ranks.

    Operations belong together that are of one kind, one process group and one step, and have the
    same place among these; and that ran at one time, for none of these operations ends before its
    last rank has begun. So nothing is matched whose clocks differ by more than it lasts.
    """
    found = [_operations(trace, own) for trace, own in zip(traces, codes, strict=True)]
    bounds = [trace.rows.bounds() for trace in traces]
    matched = [0] * len(traces)
    duration, transfer = [0] * len(traces), [0] * len(traces)
    for key in dict.fromkeys(key for own in found for key in own):
        ranks = [rank for rank, own in enumerate(found) if key in own]
        if len(ranks) < 2 or len({len(found[rank][key]) for rank in ranks}) > 1:
            continue
        starts = np.array([bounds[rank][0][found[rank][key]] for rank in ranks])
        ends = np.array([bounds[rank][1][found[rank][key]] for rank in ranks])
        together = starts.max(axis=0) < ends.min(axis=0)
        lengths = (ends - starts)[:, together]
        for rank, own in zip(ranks, lengths, strict=True):
            matched[rank] += own.size
            duration[rank] += int(own.sum())
            transfer[rank] += int(lengths.min(axis=0).sum())
    counts = [int(np.count_nonzero(own == _COMMUNICATION)) for own in codes]
    return Skew(
        tuple(matched),
        tuple(each / _SECOND for each in duration),
        tuple(each / _SECOND for each in transfer),
        tuple(count - each for count, each in zip(counts, matched, strict=True)),
    )


def _operations(trace: Trace, codes: NDArray[np.int8]) -> Mapping[Key, Ints]:
    """Return the places of a trace's collective operations by what they have in common."""
    rows = trace.rows
    places = np.flatnonzero(codes == _COMMUNICATION)
    places = places[np.argsort(nanoseconds(rows.start[places]), kind="stable")]
    steps = steps_of(trace)
    annotations = _annotations(trace, places)
    found: dict[Key, list[int]] = {}
    for place, annotation in zip(places.tolist(), annotations, strict=True):
        known = rows.collective[place]
        said = trace.collectives[known] if known >= 0 else None
        name = said.name if said else annotation or trace.names[rows.name[place]]
        kind = next((kind for kind, pattern in _KINDS if pattern.search(name)), None)
        at = int(steps.places[place])
        if kind is not None and (at >= 0 or not len(steps)):
            step = int(steps.numbers[at]) if len(steps) else -1
            found.setdefault((kind, said.group if said else "", step), []).append(place)
    return {key: np.array(own, dtype=np.int64) for key, own in found.items()}


def _annotations(trace: Trace, places: Ints) -> list[str]:
    """Return what the host called an operation (``nccl:all_to_all``) where it launched it."""
    spans = trace.spans.only(trace.step_numbers() < 0)
    launch = trace.launches.of(trace.rows.correlation[places])
    if not len(spans) or not len(trace.launches):
        return [""] * len(places)
    called = np.where(launch >= 0, trace.launches.thread[launch], -1)
    times = nanoseconds(trace.launches.start)[launch]
    found = np.full(len(places), -1, dtype=np.int64)
    for thread in np.unique(spans.thread).tolist():
        own = spans.only(spans.thread == thread)
        starts = nanoseconds(own.start)
        order = np.argsort(starts, kind="stable")
        ends = (starts + nanoseconds(own.duration))[order]
        last = np.searchsorted(starts[order], times, side="right") - 1
        inside = (called == thread) & (last >= 0) & (times <= ends[last])
        found = np.where(inside, own.name[order][last], found)
    return [trace.names[place] if place >= 0 else "" for place in found.tolist()]


# Of each figure its name in a dataset, its unit, what it is, and where an Overlap has it.
QUANTITIES = (
    ("end_to_end_time", "s", "from the first start to the last end of GPU work", "end_to_end"),
    ("idle_time", "s", "without any GPU work", "idle"),
    ("computation_time", "s", "computation (union of its rows)", "computation"),
    ("communication_time", "s", "communication (union of its rows)", "communication"),
    ("overlap_time", "s", "communication while something computes", "overlapped"),
    ("gemm_overlap_time", "s", "communication while a matrix product runs", "gemm_overlapped"),
    ("exposed_communication_time", "s", "communication while nothing computes", "exposed"),
    ("overlap_of_communication", "1", "overlap as a share of communication", "of_communication"),
    ("overlap_of_smaller", "1", "overlap as a share of the shorter of the two", "of_smaller"),
    ("gpu_rows", "1", "number of rows of GPU work", "rows"),
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Traces of one job with what was found in them, in the order of their ranks."""

    traces: tuple[Trace, ...]  # One for each GPU
    overlaps: tuple[Overlap, ...]  # Of each trace
    # Of their collective operations; None for one trace, and in HolisticTraceAnalysis' mode
    skew: Skew | None
    mode: Mode  # By which definitions
    patterns: Patterns  # What told the classes
    notes: tuple[str, ...] = ()  # What holds for all of them

    def numbers(self) -> tuple[int, ...]:
        """Return a number for each trace: its rank, or its place where ranks aren't told apart."""
        ranks = [trace.rank for trace in self.traces]
        if None in ranks or len(set(ranks)) < len(ranks):
            return tuple(range(len(ranks)))
        return tuple(rank for rank in ranks if rank is not None)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what was found as records: of each trace, of its steps, of its streams."""
        numbers = self.numbers()
        for place, (trace, overlap) in enumerate(zip(self.traces, self.overlaps, strict=True)):
            own = {"file": trace.file, "rank": numbers[place]}
            skew = self._skew_of(place)
            yield {**own, "step": "all", "stream": "all", **values_of(overlap), **skew}
            nothing = dict.fromkeys(skew, float("nan"))
            for step, part in overlap.by_step.items():
                values = values_of(part) | {"host_s": part.host}
                yield {**own, "step": step, "stream": "all", **values, **nothing}
            for stream, part in overlap.by_stream.items():
                yield {**own, "step": "all", "stream": stream, **values_of(part), **nothing}

    def _skew_of(self, place: int) -> dict[str, float]:
        if self.skew is None:
            return {}
        return {
            "matched_collectives": self.skew.matched[place],
            "collective_s": self.skew.duration[place],
            "transfer_s": self.skew.transfer[place],
            "waiting_for_peers_s": self.skew.waiting[place],
        }


def values_of(overlap: Overlap) -> dict[str, float]:
    """Return the figures of an overlap by their names in records."""
    found = {_record_name(name): getattr(overlap, field) for name, _, _, field in QUANTITIES}
    classes = {f"{kind}_s": time for kind, time in overlap.times.items() if kind != "communication"}
    return {**found, **{k: v for k, v in classes.items() if k not in found}, "host_s": overlap.host}


def _record_name(name: str) -> str:
    return f"{name.removesuffix('_time')}_s" if name.endswith("_time") else name


def analyse_files(
    paths: Sequence[str | os.PathLike[str]],
    mode: Mode = "full",
    *,
    patterns: Patterns | None = None,
    include_last_step: bool = False,
) -> Ranks:
    """Read traces, one of each rank, and find how their time is spent."""
    patterns = patterns or load_patterns()
    faults: list[str] = []
    found: list[tuple[Trace, Overlap]] = []
    for path in paths:
        try:
            trace = read_trace(path)
            for one in split_devices(trace, patterns) if mode == "full" else (trace,):
                overlap = analyse(one, mode, patterns=patterns, include_last_step=include_last_step)
                found.append((one, overlap))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    notes = []
    ranks = [trace.rank for trace, _ in found]
    if len(found) > 1 and (None in ranks or len(set(ranks)) < len(ranks)):
        notes.append("the traces don't say a rank of their own each: they are numbered in order")
    else:
        found.sort(key=lambda each: each[0].rank or 0)
    traces = tuple(trace for trace, _ in found)
    skew = None
    if mode == "full" and len(traces) > 1:
        skew = skew_of(traces, [patterns.classify(trace) for trace in traces])
        notes += _skew_notes(traces, skew)
    return Ranks(traces, tuple(own for _, own in found), skew, mode, patterns, tuple(notes))


def split_devices(trace: Trace, patterns: Patterns | None = None) -> tuple[Trace, ...]:
    """Return a trace for each GPU: on one GPU things overlap, on several they run beside."""
    working = (patterns or load_patterns()).classify(trace) != EXCLUDED
    devices = np.unique(trace.rows.device[working]).tolist()
    if len(devices) < 2:
        return (trace,)
    return tuple(
        replace(
            trace,
            file=f"{trace.file} (GPU {device})",
            rank=None,
            rows=trace.rows.only(trace.rows.device == device),
        )
        for device in devices
    )


def _skew_notes(traces: Sequence[Trace], skew: Skew) -> Iterator[str]:
    if not any(skew.matched):
        yield "no collective operation was found on two ranks at one time: nothing says its skew"
        return
    sizes = [trace.world_size or 0 for trace in traces]
    if max(sizes) > len(traces):
        yield (
            f"{len(traces)} of {max(sizes)} ranks: the shortest duration of a collective operation "
            "may hold a wait for one of the others"
        )
    if not any(len(trace.collectives) for trace in traces):
        yield "the traces don't name process groups: their operations were matched as of one group"
