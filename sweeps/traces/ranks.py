"""Traces of several ranks together: analysed alike, put in order, matched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sweeps.errors import InputError
from sweeps.traces.overlap import Mode, Overlap, analyse
from sweeps.traces.patterns import EXCLUDED, Patterns, load_patterns
from sweeps.traces.reader import read_trace
from sweeps.traces.skew import Skew, skew_of
from sweeps.traces.trace import Trace

__all__ = ["QUANTITIES", "Ranks", "analyse_files", "split_devices", "values_of"]

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
