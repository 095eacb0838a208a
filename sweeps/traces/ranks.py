"""Traces of several ranks together: analysed alike, put in order, matched, and reported."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column, Layout
from sweeps.errors import InputError, tell_all
from sweeps.result import Result, provenance_of
from sweeps.traces.columns import Trace
from sweeps.traces.folder import listed
from sweeps.traces.overlap import (
    ADVICE,
    Exposure,
    Mode,
    Overlap,
    analyse,
    exposures,
)
from sweeps.traces.patterns import EXCLUDED, Patterns, load_patterns
from sweeps.traces.skew import Skew, skew_of

# Of each figure its name in a dataset, its unit, what it is, and where an Overlap has it.
QUANTITIES = (
    ("end_to_end_time", "s", "from the first start to the last end of GPU work", "end_to_end"),
    ("idle_time", "s", "without any GPU work", "idle"),
    ("computation_time", "s", "computation (union of its rows)", "computation"),
    ("communication_time", "s", "communication (union of its rows)", "communication"),
    ("overlap_time", "s", "communication while something computes", "overlapped"),
    ("gemm_overlap_time", "s", "communication while a GEMM runs", "gemm_overlapped"),
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
    # Of each trace why its communication is exposed; nothing in HolisticTraceAnalysis' mode
    exposed: tuple[tuple[Exposure, ...], ...] = ()

    def numbers(self) -> tuple[int, ...]:
        """Return a number for each trace: its rank, or its place where ranks aren't told apart."""
        ranks = [trace.rank for trace in self.traces]
        if None in ranks or len(set(ranks)) < len(ranks):
            return tuple(range(len(ranks)))
        return tuple(rank for rank in ranks if rank is not None)

    def records(self) -> Iterator[dict[str, object]]:
        """Yield what was found as records: of each trace, why it's exposed, its steps, its streams.

        All have the same names; what isn't known of a step, a stream or a collective is NaN.
        """
        numbers = self.numbers()
        whole = {"step": "all", "stream": "all", "collective": "all", "reason": "all"}
        for index, (trace, overlap) in enumerate(zip(self.traces, self.overlaps, strict=True)):
            about = {"file": trace.file, "rank": numbers[index], **whole}
            skew = self._skew_of(index)
            empty = {"exposed_collectives": float("nan"), "most_exposed_at_s": float("nan")}
            reasons = {**empty, "change": ""} if self.exposed else {}
            yield {**about, **values_of(overlap), **skew, **reasons}
            nothing = dict.fromkeys(skew, float("nan")) | reasons
            unknown = dict.fromkeys(values_of(overlap), float("nan")) | nothing
            for exposure in self.exposed[index] if self.exposed else ():
                diagnosis = {"collective": exposure.name, "reason": exposure.reason}
                time = {
                    "exposed_communication_s": exposure.time,
                    "exposed_collectives": exposure.rows,
                }
                change = {"most_exposed_at_s": exposure.at, "change": ADVICE[exposure.reason]}
                yield {**about, **diagnosis, **unknown, **time, **change}
            for step, part in overlap.by_step.items():
                values = values_of(part) | {"host_s": part.host}
                yield {**about, "step": step, **values, **nothing}
            for stream, part in overlap.by_stream.items():
                yield {**about, "stream": stream, **values_of(part), **nothing}

    def _skew_of(self, index: int) -> dict[str, float]:
        if self.skew is None:
            return {}
        return {_record_name(name): getattr(self.skew, field)[index] for name, _, _, field in _SKEW}


def values_of(overlap: Overlap) -> dict[str, float]:
    """Return the figures of an overlap by their names in records."""
    figures = {_record_name(name): getattr(overlap, field) for name, _, _, field in QUANTITIES}
    classes = {f"{kind}_s": time for kind, time in overlap.times.items() if kind != "communication"}
    return {
        **figures,
        **{k: v for k, v in classes.items() if k not in figures},
        "host_s": overlap.host,
    }


def _record_name(name: str) -> str:
    return f"{name.removesuffix('_time')}_s" if name.endswith("_time") else name


def analyse_files(
    paths: Sequence[str | os.PathLike[str]],
    mode: Mode = "full",
    *,
    patterns: Patterns | None = None,
    include_last_step: bool = False,
) -> Ranks:
    """Read traces, one of each rank, and find how their time is spent.

    Of a folder each file is read that may be a trace; those that aren't are named, and left out.
    """
    from sweeps.traces.reader import read_trace

    patterns = patterns or load_patterns()
    faults: list[str] = []
    left: list[str] = []
    analysed: list[tuple[Trace, Overlap]] = []
    files, notes = listed(paths)
    for file in files:
        try:
            trace = replace(read_trace(file.path), file=file.name)
            for device_trace in split_devices(trace, patterns) if mode == "full" else (trace,):
                overlap = analyse(
                    device_trace, mode, patterns=patterns, include_last_step=include_last_step
                )
                analysed.append((device_trace, overlap))
        except InputError as error:
            (faults if file.asked else left).extend(error.faults)
    tell_all(faults or ([] if analysed else left))
    notes += [f"left out: {fault}" for fault in left]
    ranks = [trace.rank for trace, _ in analysed]
    if len(analysed) > 1 and (None in ranks or len(set(ranks)) < len(ranks)):
        notes.append("the traces don't say a rank of their own each: they are numbered in order")
    else:
        analysed.sort(key=lambda each: each[0].rank or 0)
    traces = tuple(trace for trace, _ in analysed)
    skew = None
    if mode == "full" and len(traces) > 1:
        skew = skew_of(traces, [patterns.classify(trace) for trace in traces])
        notes += _skew_notes(traces, skew)
    exposed: tuple[tuple[Exposure, ...], ...] = ()
    if mode == "full":
        exposed = tuple(exposures(trace, patterns) for trace in traces)
    overlaps = tuple(analysis for _, analysis in analysed)
    return Ranks(traces, overlaps, skew, mode, patterns, tuple(notes), exposed)


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


# What was found in traces as a labelled dataset, for memory and for files.

Floats = NDArray[np.float64]

_TITLES = {
    "full": "Overlap, exposed communication and idle time in profiler traces",
    "hta": "Overlap and idle time in profiler traces, by HolisticTraceAnalysis' definitions",
}
_SUMMARY = (
    "Time of GPUs by what runs on them, from profiler traces: lengths of unions of intervals, so "
    "what runs at one time counts once; parts add up to the end to end time, each counting where "
    "none before it runs."
)
_REFERENCES = {"full": "", "hta": "HolisticTraceAnalysis 0.6.1, get_comm_comp_overlap"}
_SKEW = (
    (
        "matched_collectives",
        "1",
        "collective operations that were found on another rank too",
        "matched",
    ),
    ("collective_time", "s", "duration of these, one after another", "duration"),
    ("transfer_time", "s", "their shortest durations on any of the ranks", "transfer"),
    ("waiting_for_peers_time", "s", "the rest: a wait for the last rank to come", "waiting"),
)


def result_of(
    ranks: Ranks, given: Mapping[str, object] | None = None, command: Sequence[str] = ()
) -> Result:
    """Return what was found: a labelled dataset, and records of traces, steps and streams."""
    first = ranks.overlaps[0]
    labels: dict[str, tuple[str, str, Any]] = {
        "rank": ("rank", "1", np.array(ranks.numbers(), dtype=np.int32)),
        "step": (
            "step of the training loop",
            "1",
            _all(overlap.by_step for overlap in ranks.overlaps),
        ),
        "stream": ("stream of the GPU", "1", _all(overlap.by_stream for overlap in ranks.overlaps)),
        "activity": ("what GPU work is", "", list(first.times)),
        "part": ("part of the end to end time", "", list(first.parts)),
        "reason": ("reason for which communication is exposed", "", list(ADVICE)),
    }
    columns = list(_columns(ranks))
    used = {dim for column in columns for dim in column.dims}
    coordinates = [
        _column(dim, (dim,), units, meaning, values)
        for dim, (meaning, units, values) in labels.items()
        if dim in used
    ]
    sizes = {column.name: len(column.values) for column in coordinates}  # type: ignore[arg-type]
    files = [trace.file for trace in ranks.traces]
    coordinates.append(_column("trace_file", ("rank",), "", "name of the trace's file", files))
    if ranks.exposed:
        what = "what to change where communication is exposed for the reason"
        coordinates.append(_column("change", ("reason",), "", what, list(ADVICE.values())))
    both = zip(ranks.numbers(), ranks.exposed, strict=False)
    rows = [
        (number, exposure) for number, exposures_of_rank in both for exposure in exposures_of_rank
    ]
    if rows:
        sizes["diagnosis"] = len(rows)
        diagnoses = list(_diagnoses(rows))
        coordinates += diagnoses[:3]
        columns += diagnoses[3:]
    attributes = _attributes(ranks, given or {}, command)
    layout = Layout(sizes, tuple(coordinates), tuple(columns), attributes)
    return Result(layout, rows=tuple(ranks.records()))


def _diagnoses(pairs: Sequence[tuple[int, Exposure]]) -> Iterator[Column]:
    """Yield why each collective is exposed: whose it is and the reason, then what that costs."""
    of_name = "of the name of which some is exposed for the reason"
    for name, units, meaning, values in (
        ("rank", "1", "rank of the exposed collective", [number for number, _ in pairs]),
        ("collective", "", "exposed collective", [exposure.name for _, exposure in pairs]),
        ("reason", "", "why it is exposed", [exposure.reason for _, exposure in pairs]),
        (
            "time",
            "s",
            "exposed time of a collective for one reason",
            [exposure.time for _, exposure in pairs],
        ),
        (
            "collectives",
            "1",
            f"collectives {of_name}",
            [float(exposure.rows) for _, exposure in pairs],
        ),
        (
            "start",
            "s",
            "when that of which most is exposed begins, from the first GPU work",
            [exposure.at for _, exposure in pairs],
        ),
    ):
        yield _column(f"diagnosis_{name}", ("diagnosis",), units, meaning, values)


def cost_of(waits: Sequence[Exposure], reason: str) -> float:
    """Return what communication is exposed for a reason, in seconds."""
    return sum((exposure.time for exposure in waits if exposure.reason == reason), 0.0)


def _all(overlaps: Iterator[Mapping[int, Overlap]] | Any) -> NDArray[np.int32]:
    """Return all labels of steps or streams, in order."""
    labels = sorted({label for each in overlaps for label in each})
    return np.array(labels, dtype=np.int64 if max(labels, default=0) >= 1 << 31 else np.int32)


def _columns(ranks: Ranks) -> Iterator[Column]:
    """Yield the variables with their values."""
    overlaps = ranks.overlaps
    yield from _spread("", ("rank",), list(overlaps), "")
    for name, words in (("step", ", of a step"), ("stream", ", of a stream")):
        tables = [getattr(overlap, f"by_{name}") for overlap in overlaps]
        labels = _all(tables).tolist()
        if labels:
            spread = [table.get(label) for table in tables for label in labels]
            yield from _spread(f"{name}_", ("rank", name), spread, words, len(labels))
    if ranks.exposed:
        by_reason = [[cost_of(waits, reason) for reason in ADVICE] for waits in ranks.exposed]
        what = "exposed communication by the reason for it"
        yield _column("exposed_reason_time", ("rank", "reason"), "s", what, np.array(by_reason))
    if ranks.skew is not None:
        for name, units, meaning, field in _SKEW:
            values = np.array(getattr(ranks.skew, field), dtype=np.float64)
            yield _column(name, ("rank",), units, meaning, values)


def _spread(
    prefix: str, dims: tuple[str, ...], overlaps: list[Overlap | None], words: str, count: int = 0
) -> Iterator[Column]:
    """Yield the variables of some overlaps; what isn't there is NaN."""
    shape = (-1, count) if count else (-1,)

    def values(field: str, kind: str = "") -> Floats:
        found_of = [getattr(each, field, np.nan) for each in overlaps]
        return np.array(
            [of[kind] if kind and isinstance(of, Mapping) else of for of in found_of], np.float64
        ).reshape(shape)

    first = next(each for each in overlaps if each is not None)
    for name, units, meaning, field in QUANTITIES:
        if first.mode == "full" or name != "gemm_overlap_time":
            yield _column(prefix + name, dims, units, meaning + words, values(field))
    if prefix == "step_":
        meaning = "what the step took on the host"
        yield _column("step_host_time", dims, "s", meaning, values("host"))
    for field, dim, meaning in (
        ("times", "activity", "GPU work by what it is (union of its rows)"),
        ("parts", "part", "end to end time by part"),
    ):
        each_of = np.stack([values(field, kind) for kind in getattr(first, field)], axis=-1)
        yield _column(f"{prefix}{dim}_time", (*dims, dim), "s", meaning + words, each_of)


def _column(name: str, dims: tuple[str, ...], units: str, meaning: str, values: Any) -> Column:
    values = np.asarray(values)
    attrs = {"long_name": meaning} | ({"units": units} if units else {})
    return Column(name, dims, values.dtype, attrs, values)


def _attributes(
    ranks: Ranks, given: Mapping[str, object], command: Sequence[str]
) -> Mapping[str, str]:
    files = [
        {"name": trace.file, "rank": rank, "blake2b": trace.digest, "bytes_of_json": trace.nbytes}
        for trace, rank in zip(ranks.traces, ranks.numbers(), strict=True)
    ]
    patterns = hashlib.sha256(ranks.patterns.text.encode()).hexdigest()
    both = zip(ranks.traces, ranks.overlaps, strict=True)
    notes = [f"{trace.file}: {note}" for trace, overlap in both for note in overlap.notes]
    return provenance_of(
        title=_TITLES[ranks.mode],
        summary=_SUMMARY,
        spec={"mode": ranks.mode, "patterns_sha256": patterns, "traces": files},
        given=given,
        inputs=notes,
        command=command,
        references=_REFERENCES[ranks.mode],
        comment="; ".join((*ranks.notes, *notes)),
    )
