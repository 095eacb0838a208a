"""What was found in traces, for a person to read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from sweeps.spec.units import format_quantity
from sweeps.traces.overlap import Overlap, kernels_of
from sweeps.traces.patterns import CLASSES
from sweeps.traces.ranks import Ranks
from sweeps.traces.trace import Trace

__all__ = ["kernel_lines", "report"]

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
        told = [f"{share} of it", *more] if words != "end to end" else more
        return f"{words.ljust(_WIDTH)}  {_time(value).rjust(9)}  {', '.join(told)}".rstrip()

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
    yield from _table(rows)
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
            told = f"{skew.matched[place]} of {skew.matched[place] + skew.unmatched[place]}"
            row += [told, _time(skew.waiting[place])]
        rows.append(row)
    yield "all together"
    yield from (f"  {line}" for line in _table(rows))


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


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))


def _time(value: float) -> str:
    return format_quantity(value, "s")


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.2f} %"
