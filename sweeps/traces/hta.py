"""HolisticTraceAnalysis' figures of a trace: its rows, its classes, its roundings.

What its release 0.6.1 does with a file of one rank (``hta/common/trace.py``,
``hta/common/trace_parser.py``, ``hta/utils/utils.py``, ``hta/analyzers``), the odd parts as well:
rows whose launch lies in the last step, or isn't in the file, are left out; where times have
fractions, starts are rounded up and ends down, so that what is shorter than a microsecond may last
less than nothing; and all names that begin with ``hip`` are communication, copies too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.traces.intervals import intersection, measure, union
from sweeps.traces.trace import Rows, Trace, nanoseconds

__all__ = ["HTA_CLASSES", "HtaFigures", "hta_figures"]

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

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HtaFigures:
    """What HolisticTraceAnalysis finds, in nanoseconds."""

    rows: int  # Rows that it keeps
    start: int  # Where the first of them starts
    span: int  # Its ``kernel_time`` and ``idle_time``
    idle: int  # Its ``kernel_time`` and ``idle_time``
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
    for place in np.unique(rows.name).tolist():
        codes[place] = HTA_CLASSES.index(_class(trace.names[place]))
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
