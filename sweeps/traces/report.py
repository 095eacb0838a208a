"""What was found in traces, for a person to read: a screen, and sections with the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sweeps.bands import percent
from sweeps.spec.units import format_quantity
from sweeps.traces.columns import Trace
from sweeps.traces.overlap import ADVICE, Exposure, Overlap, kernels_of, plain_name, purposes_of
from sweeps.traces.patterns import CLASSES, EXCLUDED, Patterns
from sweeps.traces.ranks import Ranks, cost_of
from sweeps.wrapping import aligned

_MOST = 12  # rows of a table of steps, streams or names
_LONGEST = 3  # collectives told of each reason
_WIDTH = 24
_NAME, _SHORT = 88, 44
# What stands in a class's line beside "copy" and "wait" of the full mode.
_WORDS = {
    "copy": "copies",
    "wait": "waits (spinning kernels)",
    "memory": "copies (memory)",
    "other": "other (synchronisation)",
}
_HEADINGS = (
    "span",
    "compute",
    "communication",
    "overlapped",
    "% of comm.",
    "% of shorter",
    "exposed",
    "idle",
)


def report(ranks: Ranks) -> Iterator[str]:
    """Yield the screen: the answer, the parts of one trace or a row a rank, why it is exposed."""
    if ranks.mode == "hta":
        yield "by HolisticTraceAnalysis' definitions (rows, classes and roundings as it has them)"
    several = len(ranks.traces) > 1
    if several:
        yield _worst(ranks)
        yield from _together(ranks)
    for index, (trace, overlap) in enumerate(zip(ranks.traces, ranks.overlaps, strict=True)):
        notes = overlap.notes
        if not several:
            yield _answer(trace, overlap, ranks.exposed[index] if ranks.exposed else ())
            yield f"  {_title(trace, overlap)}"
            yield from (f"  {line}" for line in _figures(overlap))
            if ranks.exposed and overlap.exposed:
                yield from (f"  {line}" for line in _reasons(ranks.exposed[index], longest=0))
        yield from (f"Note: {f'{trace.file}: ' * several}{note}" for note in notes)
    yield from (f"Note: {note}" for note in ranks.notes)


def part_lines(ranks: Ranks) -> Iterator[str]:
    """Yield each trace's parts, and these by step and by stream."""
    for index, (trace, overlap) in enumerate(zip(ranks.traces, ranks.overlaps, strict=True)):
        if len(ranks.traces) > 1:
            yield _answer(trace, overlap, ranks.exposed[index] if ranks.exposed else ())
            yield f"  {_title(trace, overlap)}"
            yield from (f"  {line}" for line in _figures(overlap))
        for name, heading, parts in (
            ("step", ("on the host",), overlap.by_step),
            ("stream", ("rows",), overlap.by_stream),
        ):
            if len(parts) > (name == "stream"):
                mostly = _mostly(trace, ranks.patterns) if name == "stream" else {}
                yield from _parts(name, heading, parts, mostly)
        yield ""
    yield from kernel_lines(ranks)


def reason_lines(ranks: Ranks) -> Iterator[str]:
    """Yield why communication is exposed in each trace, with the longest collectives."""
    for trace, overlap, exposures in zip(ranks.traces, ranks.overlaps, ranks.exposed, strict=False):
        if exposures and overlap.exposed:
            yield trace.file
            yield from _reasons(exposures)


def _worst(ranks: Ranks) -> str:
    """Say on which rank most communication shows."""
    index = max(range(len(ranks.overlaps)), key=lambda k: ranks.overlaps[k].exposed)
    worst = ranks.overlaps[index]
    rank = f"rank {ranks.numbers()[index]} of {len(ranks.traces)} traces"
    return (
        f"Most exposed communication: {rank}, {_time(worst.exposed)} of {_time(worst.end_to_end)}"
    )


def _title(trace: Trace, overlap: Overlap) -> str:
    who = "" if trace.rank is None else f"rank {trace.rank}"
    who += f" of {trace.world_size}" if who and trace.world_size else ""
    rows = f"{overlap.rows:,} GPU kernel{'s' * (overlap.rows != 1)}"
    streams = len(overlap.by_stream)
    rows += f" on {streams} stream{'s' * (streams != 1)}" if streams else ""
    return ", ".join(text for text in (who, trace.device, rows) if text)


def _answer(trace: Trace, overlap: Overlap, exposed: Sequence[Exposure]) -> str:
    """Return what a trace shows, in a line, and why most of what is exposed is."""
    whole = overlap.end_to_end
    if not whole:
        return f"{trace.file}: no GPU work"
    text = (
        f"compute takes {percent(overlap.computation / whole)} of {_time(whole)}, no communication"
    )
    if overlap.communication:
        share = f"{percent(overlap.exposed / whole)} of {_time(whole)}"
        text = f"{percent(overlap.of_communication)} of communication overlapped, "
        text += f"{_time(overlap.exposed)} exposed ({share})"
    if exposed and overlap.exposed:
        most = max(ADVICE, key=lambda reason: cost_of(exposed, reason))
        text += f", {percent(cost_of(exposed, most) / overlap.exposed)} of it: {most}"
    return f"{trace.file}: {text} (measured)"


def _figures(overlap: Overlap) -> Iterator[str]:
    """Yield one trace's figures."""

    def line(words: str, value: float, *more: str) -> str:
        share = percent(value / overlap.end_to_end) if overlap.end_to_end else "-"
        parts = [share, *more] if words != "span" else more
        return f"{words.ljust(_WIDTH)}  {_time(value).rjust(9)}  {', '.join(parts)}".rstrip()

    yield line("span", overlap.end_to_end)
    if overlap.mode == "full":
        times = overlap.times
        split = f"GEMM {_time(times['gemm'])}, other {_time(times['other'])}"
        yield line("compute", overlap.computation, split)
    else:
        yield line("compute", overlap.computation)
    yield line("communication", overlap.communication)
    if overlap.communication:
        shares = [f"{percent(overlap.of_communication)} of communication"]
        shorter = "compute" if overlap.computation < overlap.communication else "communication"
        shares.append(f"{percent(overlap.of_smaller)} of the shorter ({shorter})")
        if not math.isnan(overlap.gemm_overlapped):
            shares.append(f"with GEMMs {_time(overlap.gemm_overlapped)}")
        hidden = "  overlapped".ljust(_WIDTH)
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
        percent(overlap.of_communication),
        percent(overlap.of_smaller),
        _time(overlap.exposed),
        _time(overlap.idle),
    ]


def _mostly(trace: Trace, patterns: Patterns) -> dict[int, str]:
    """Return for each stream the name that takes most of its time."""
    rows = trace.rows.only(patterns.classify(trace) != EXCLUDED)
    names = {}
    for stream in np.unique(rows.stream).tolist():
        stream_rows = rows.only(rows.stream == stream)
        name = trace.names[
            int(np.bincount(stream_rows.name, weights=stream_rows.duration).argmax())
        ]
        names[stream] = _cut(plain_name(name), _SHORT)
    return names


def _parts(
    name: str, more: Sequence[str], parts: Mapping[int, Overlap], mostly: Mapping[int, str]
) -> Iterator[str]:
    """Yield a table of steps or streams."""
    rows = [[name, *_HEADINGS, *more]]
    for label, part in list(parts.items())[:_MOST]:
        last = _time(part.host) if name == "step" else f"{part.rows:,}"
        rows.append([str(label), *_row(part), last])
    ends = ["mostly", *(mostly.get(label, "") for label in parts)]
    if mostly:
        rows = [[*row, end] for row, end in zip(rows, ends, strict=False)]
    yield from aligned(rows, left=0, keys=1, last=bool(mostly))
    if len(parts) > _MOST:
        yield f"  ... and {len(parts) - _MOST:,} more: --csv, --json or --output give them all"


def _reasons(exposures: Sequence[Exposure], longest: int | None = None) -> Iterator[str]:
    """Yield why communication is exposed: by reason, what to change, and the longest of each."""
    whole = sum(exposure.time for exposure in exposures)
    yield "Exposed because"
    for reason, advice in ADVICE.items():
        alike = [exposure for exposure in exposures if exposure.reason == reason]
        time = cost_of(exposures, reason)
        if time:
            yield f"  {_time(time).rjust(9)}  {percent(time / whole).rjust(8)}  {reason}: {advice}"
        for longest_exposure in alike[: _LONGEST if longest is None else longest]:
            name = _cut(longest_exposure.name, _NAME)
            most = "the most" if longest_exposure.rows > 1 else "which begins"
            rows = f"{longest_exposure.rows:,}".rjust(7)
            yield (
                f"    {_time(longest_exposure.time).rjust(9)}  {rows} x {name},"
                f" {most} at {_time(longest_exposure.at)}"
            )


def _together(ranks: Ranks) -> Iterator[str]:
    """Yield a table of all traces, where there are several."""
    if len(ranks.traces) < 2:
        return
    skew = ranks.skew
    waits = skew is not None and any(skew.matched)
    rows = [["rank", *_HEADINGS, *(["matched", "peers waited"] if waits else [])]]
    for index, (number, overlap) in enumerate(zip(ranks.numbers(), ranks.overlaps, strict=True)):
        row = [str(number), *_row(overlap)]
        if waits and skew is not None:
            parts = f"{skew.matched[index]} of {skew.matched[index] + skew.unmatched[index]}"
            row += [parts, _time(skew.waiting[index])]
        rows.append(row)
    yield ""
    yield from aligned(rows, left=0)


def kernel_lines(ranks: Ranks) -> Iterator[str]:
    """Yield by class which names took longest, so that a wrong class is seen."""
    for trace in ranks.traces:
        kernels = kernels_of(trace, ranks.patterns)
        yield f"{trace.file}: names by class (sum of durations)"
        for kind in (*CLASSES, "excluded"):
            kernels_of_kind = [kernel for kernel in kernels if kernel.kind == kind]
            if kernels_of_kind:
                total = sum(kernel.time for kernel in kernels_of_kind)
                parts = [
                    f"{name} {_time(time)}" for name, time in purposes_of(kernels_of_kind).items()
                ]
                more = f" ({', '.join(parts)})" if parts else ""
                count = len(kernels_of_kind)
                yield f"  {kind}: {count:,} name{'s' * (count > 1)}, {_time(total)}{more}"
            for kernel in kernels_of_kind[:_MOST]:
                name = _cut(kernel.name, _NAME)
                yield f"    {_time(kernel.time).rjust(9)}  {f'{kernel.rows:,}'.rjust(7)}  {name}"
            if len(kernels_of_kind) > _MOST:
                yield f"    ... and {len(kernels_of_kind) - _MOST:,} more"
        yield ""


def _cut(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _time(value: float) -> str:
    return format_quantity(value, "s")
