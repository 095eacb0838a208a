"""What was found in traces, for a person to read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column, Layout
from sweeps.result import Result, aligned, provenance_of
from sweeps.spec.units import format_quantity
from sweeps.traces.overlap import Overlap, kernels_of
from sweeps.traces.patterns import CLASSES
from sweeps.traces.ranks import QUANTITIES, Ranks
from sweeps.traces.reader import Trace

_MOST = 12  # rows of a table of steps, streams or names
_WIDTH = 24
_NAME = 88
# What stands in a class's line beside "copy" and "wait" of the full mode.
_WORDS = {
    "copy": "copies",
    "wait": "waits (spinning kernels)",
    "memory": "copies (memory)",
    "other": "other (synchronisation)",
}
_HEADINGS = (
    "end to end", "computation", "communication", "hidden", "of comm.", "of smaller", "exposed",
    "idle",
)  # fmt: skip


def report(ranks: Ranks) -> Iterator[str]:
    """Yield the report's lines: each trace's, then of all together."""
    if ranks.mode == "hta":
        yield "by HolisticTraceAnalysis' definitions (rows, classes and roundings as it has them)"
    for trace, overlap in zip(ranks.traces, ranks.overlaps, strict=True):
        yield _title(trace, overlap)
        yield from (f"  {line}" for line in _figures(overlap))
        for name, heading, parts in (
            ("step", ("on the host",), overlap.by_step),
            ("stream", ("rows",), overlap.by_stream),
        ):
            if len(parts) > (name == "stream"):
                yield from (f"  {line}" for line in _parts(name, heading, parts))
        yield from (f"  note: {note}" for note in overlap.notes)
        yield ""
    yield from _together(ranks)
    yield from (f"note: {note}" for note in ranks.notes)


def _title(trace: Trace, overlap: Overlap) -> str:
    who = "" if trace.rank is None else f"rank {trace.rank}"
    who += f" of {trace.world_size}" if who and trace.world_size else ""
    rows = f"{overlap.rows:,} rows of GPU work"
    streams = len(overlap.by_stream)
    rows += f" on {streams} stream{'s' * (streams != 1)}" if streams else ""
    return f"{trace.file}: " + ", ".join(text for text in (who, trace.device, rows) if text)


def _figures(overlap: Overlap) -> Iterator[str]:
    """Yield one trace's figures."""

    def line(words: str, value: float, *more: str) -> str:
        share = _percent(value / overlap.end_to_end) if overlap.end_to_end else "-"
        parts = [f"{share} of it", *more] if words != "end to end" else more
        return f"{words.ljust(_WIDTH)}  {_time(value).rjust(9)}  {', '.join(parts)}".rstrip()

    yield line("end to end", overlap.end_to_end)
    if overlap.mode == "full":
        times = overlap.times
        split = f"GEMM {_time(times['gemm'])}, other {_time(times['other'])}"
        yield line("computation", overlap.computation, split)
    else:
        yield line("computation", overlap.computation)
    yield line("communication", overlap.communication)
    if overlap.communication:
        shares = [f"{_percent(overlap.of_communication)} of communication"]
        one = "computation" if overlap.computation < overlap.communication else "communication"
        shares.append(f"{_percent(overlap.of_smaller)} of the smaller ({one})")
        if not math.isnan(overlap.gemm_overlapped):
            shares.append(f"behind GEMM {_time(overlap.gemm_overlapped)}")
        hidden = "  hidden by computation".ljust(_WIDTH)
        yield f"{hidden}  {_time(overlap.overlapped).rjust(9)}  {', '.join(shares)}"
        yield line("  exposed", overlap.exposed)
    for kind, time in overlap.times.items():
        if kind in _WORDS and time and not (kind == "other" and overlap.mode == "full"):
            yield line(_WORDS[kind], time)
    yield line("idle", overlap.idle)


def _row(overlap: Overlap) -> list[str]:
    return [
        _time(overlap.end_to_end),
        _time(overlap.computation),
        _time(overlap.communication),
        _time(overlap.overlapped),
        _percent(overlap.of_communication),
        _percent(overlap.of_smaller),
        _time(overlap.exposed),
        _time(overlap.idle),
    ]


def _parts(name: str, more: Sequence[str], parts: Mapping[int, Overlap]) -> Iterator[str]:
    """Yield a table of steps or streams."""
    rows = [[name, *_HEADINGS, *more]]
    for label, part in list(parts.items())[:_MOST]:
        last = _time(part.host) if name == "step" else f"{part.rows:,}"
        rows.append([str(label), *_row(part), last])
    yield from aligned(rows, left=0, indent="")
    if len(parts) > _MOST:
        yield f"... and {len(parts) - _MOST:,} more: --csv, --json or --output give them all"


def _together(ranks: Ranks) -> Iterator[str]:
    """Yield a table of all traces, where there are several."""
    if len(ranks.traces) < 2:
        return
    skew = ranks.skew
    waits = skew is not None and any(skew.matched)
    rows = [["rank", *_HEADINGS, *(["matched", "peers waited"] if waits else [])]]
    for place, (number, overlap) in enumerate(zip(ranks.numbers(), ranks.overlaps, strict=True)):
        row = [str(number), *_row(overlap)]
        if waits and skew is not None:
            parts = f"{skew.matched[place]} of {skew.matched[place] + skew.unmatched[place]}"
            row += [parts, _time(skew.waiting[place])]
        rows.append(row)
    yield "all together"
    yield from (f"  {line}" for line in aligned(rows, left=0, indent=""))


def kernel_lines(ranks: Ranks) -> Iterator[str]:
    """Yield by class which names took longest, so that a wrong class is seen."""
    for trace in ranks.traces:
        kernels = kernels_of(trace, ranks.patterns)
        yield f"{trace.file}: names by class (sum of durations)"
        for kind in (*CLASSES, "excluded"):
            own = [kernel for kernel in kernels if kernel.kind == kind]
            if own:
                total = sum(kernel.time for kernel in own)
                yield f"  {kind}: {len(own):,} names, {_time(total)}"
            for kernel in own[:_MOST]:
                name = kernel.name if len(kernel.name) <= _NAME else f"{kernel.name[: _NAME - 1]}…"
                yield f"    {_time(kernel.time).rjust(9)}  {f'{kernel.rows:,}'.rjust(7)}  {name}"
            if len(own) > _MOST:
                yield f"    ... and {len(own) - _MOST:,} more"
        yield ""


def _time(value: float) -> str:
    return format_quantity(value, "s")


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.2f} %"


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
    ("matched_collectives", "1", "collective operations that were found on another rank too"),
    ("collective_time", "s", "duration of these, one after another"),
    ("transfer_time", "s", "their shortest durations on any of the ranks"),
    ("waiting_for_peers_time", "s", "the rest: a wait for the last rank to come"),
)


def result_of(
    ranks: Ranks, given: Mapping[str, Any] | None = None, command: Sequence[str] = ()
) -> Result:
    """Return what was found: a labelled dataset, and records of traces, steps and streams."""
    activities, parts = tuple(ranks.overlaps[0].times), tuple(ranks.overlaps[0].parts)
    labels = {
        "rank": np.array(ranks.numbers(), dtype=np.int32),
        "step": _all(each.by_step for each in ranks.overlaps),
        "stream": _all(each.by_stream for each in ranks.overlaps),
        "activity": np.array(activities),
        "part": np.array(parts),
    }
    columns = list(_columns(ranks))
    used = {dim for column in columns for dim in column.dims}
    sizes = {dim: len(values) for dim, values in labels.items() if dim in used}
    attrs = {
        "rank": {"long_name": "rank", "units": "1"},
        "step": {"long_name": "step of the training loop", "units": "1"},
        "stream": {"long_name": "stream of the GPU", "units": "1"},
        "activity": {"long_name": "what GPU work is"},
        "part": {"long_name": "part of the end to end time"},
    }
    coordinates = [Column(d, (d,), labels[d].dtype, attrs[d], labels[d]) for d in sizes]
    files = np.array([trace.file for trace in ranks.traces])
    about_file = {"long_name": "name of the trace's file"}
    coordinates.append(Column("trace_file", ("rank",), files.dtype, about_file, files))
    attributes = _attributes(ranks, given or {}, command)
    layout = Layout(sizes, tuple(coordinates), tuple(columns), attributes)
    return Result(layout, rows=tuple(ranks.records()))


def _all(found: Iterator[Mapping[int, Overlap]] | Any) -> NDArray[np.int32]:
    """Return all labels of steps or streams, in order."""
    labels = sorted({label for each in found for label in each})
    return np.array(labels, dtype=np.int64 if max(labels, default=0) >= 1 << 31 else np.int32)


def _columns(ranks: Ranks) -> Iterator[Column]:
    """Yield the variables with their values."""
    overlaps = ranks.overlaps
    yield from _spread("", ("rank",), list(overlaps), "")
    for name, words in (("step", ", of a step"), ("stream", ", of a stream")):
        found = [getattr(each, f"by_{name}") for each in overlaps]
        labels = _all(found).tolist()
        if labels:
            spread = [own.get(label) for own in found for label in labels]
            yield from _spread(f"{name}_", ("rank", name), spread, words, len(labels))
    if ranks.skew is not None:
        found_of = (
            ranks.skew.matched, ranks.skew.duration, ranks.skew.transfer, ranks.skew.waiting,
        )  # fmt: skip
        for (name, units, meaning), values in zip(_SKEW, found_of, strict=True):
            yield _column(name, ("rank",), units, meaning, np.array(values, dtype=np.float64))


def _spread(
    prefix: str, dims: tuple[str, ...], found: list[Overlap | None], words: str, count: int = 0
) -> Iterator[Column]:
    """Yield the variables of some overlaps; what isn't there is NaN."""
    shape = (-1, count) if count else (-1,)

    def values(get: Callable[[Overlap], float]) -> Floats:
        return np.array([np.nan if each is None else get(each) for each in found]).reshape(shape)

    first = next(each for each in found if each is not None)
    for name, units, meaning, field in QUANTITIES:
        got = values(lambda each, field=field: float(getattr(each, field)))  # type: ignore[misc]
        if first.mode == "full" or name != "gemm_overlap_time":
            yield _column(prefix + name, dims, units, meaning + words, got)
    if prefix == "step_":
        host = values(lambda each: each.host)
        yield _column("step_host_time", dims, "s", "what the step took on the host", host)
    tables = (
        ("activity_time", "activity", first.times, "GPU work by what it is (union of its rows)"),
        ("part_time", "part", first.parts, "end to end time by part"),
    )
    for name, dim, table, meaning in tables:
        field = "times" if dim == "activity" else "parts"
        each_of = [
            values(lambda each, field=field, kind=kind: getattr(each, field)[kind])  # type: ignore[misc]
            for kind in table
        ]
        yield _column(prefix + name, (*dims, dim), "s", meaning + words, np.stack(each_of, axis=-1))


def _column(name: str, dims: tuple[str, ...], units: str, meaning: str, values: Floats) -> Column:
    attrs = {"long_name": meaning, "units": units}
    return Column(name, dims, np.dtype(np.float64), attrs, values)


def _attributes(
    ranks: Ranks, given: Mapping[str, Any], command: Sequence[str]
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
        stated={"mode": ranks.mode, "patterns_sha256": patterns, "traces": files},
        given=given,
        inputs=notes,
        command=command,
        references=_REFERENCES[ranks.mode],
        comment="; ".join((*ranks.notes, *notes)),
    )
