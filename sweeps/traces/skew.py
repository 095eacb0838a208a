"""The same collective operation on several ranks: how long it carried data, and how long it waited.

A collective's kernel starts where its rank comes to it, and spins until the last rank has come. So
its duration is a transfer and a wait for peers; the shortest of all ranks' is nearest to the
transfer.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.traces.columns import Trace, nanoseconds
from sweeps.traces.overlap import steps_of
from sweeps.traces.patterns import CLASSES

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
    operations = [_operations(trace, code) for trace, code in zip(traces, codes, strict=True)]
    bounds = [trace.rows.bounds() for trace in traces]
    matched = [0] * len(traces)
    duration, transfer = [0] * len(traces), [0] * len(traces)
    for key in dict.fromkeys(key for table in operations for key in table):
        ranks = [rank for rank, table in enumerate(operations) if key in table]
        if len(ranks) < 2 or len({len(operations[rank][key]) for rank in ranks}) > 1:
            continue
        starts = np.array([bounds[rank][0][operations[rank][key]] for rank in ranks])
        ends = np.array([bounds[rank][1][operations[rank][key]] for rank in ranks])
        together = starts.max(axis=0) < ends.min(axis=0)
        lengths = (ends - starts)[:, together]
        for rank, length in zip(ranks, lengths, strict=True):
            matched[rank] += length.size
            duration[rank] += int(length.sum())
            transfer[rank] += int(lengths.min(axis=0).sum())
    counts = [int(np.count_nonzero(codes_of_rank == _COMMUNICATION)) for codes_of_rank in codes]
    return Skew(
        tuple(matched),
        tuple(each / _SECOND for each in duration),
        tuple(each / _SECOND for each in transfer),
        tuple(count - each for count, each in zip(counts, matched, strict=True)),
    )


def _operations(trace: Trace, codes: NDArray[np.int8]) -> Mapping[Key, Ints]:
    """Return the places of a trace's collective operations by what they have in common."""
    rows = trace.rows
    communication = np.flatnonzero(codes == _COMMUNICATION)
    communication = communication[np.argsort(nanoseconds(rows.start[communication]), kind="stable")]
    steps = steps_of(trace)
    annotations = _annotations(trace, communication)
    operations: dict[Key, list[int]] = {}
    for row, annotation in zip(communication.tolist(), annotations, strict=True):
        known = rows.collective[row]
        said = trace.collectives[known] if known >= 0 else None
        name = said.name if said else annotation or trace.names[rows.name[row]]
        kind = next((kind for kind, pattern in _KINDS if pattern.search(name)), None)
        at = int(steps.places[row])
        if kind is not None and (at >= 0 or not len(steps)):
            step = int(steps.numbers[at]) if len(steps) else -1
            operations.setdefault((kind, said.group if said else "", step), []).append(row)
    return {key: np.array(members, dtype=np.int64) for key, members in operations.items()}


def _annotations(trace: Trace, row_numbers: Ints) -> list[str]:
    """Return what the host called an operation (``nccl:all_to_all``) where it launched it."""
    spans = trace.spans.only(trace.step_numbers() < 0)
    launch = trace.launches.of(trace.rows.correlation[row_numbers])
    if not len(spans) or not len(trace.launches):
        return [""] * len(row_numbers)
    called = np.where(launch >= 0, trace.launches.thread[launch], -1)
    times = nanoseconds(trace.launches.start)[launch]
    names_found = np.full(len(row_numbers), -1, dtype=np.int64)
    for thread in np.unique(spans.thread).tolist():
        marks = spans.only(spans.thread == thread)
        starts = nanoseconds(marks.start)
        order = np.argsort(starts, kind="stable")
        ends = (starts + nanoseconds(marks.duration))[order]
        last = np.searchsorted(starts[order], times, side="right") - 1
        inside = (called == thread) & (last >= 0) & (times <= ends[last])
        names_found = np.where(inside, marks.name[order][last], names_found)
    return [trace.names[number] if number >= 0 else "" for number in names_found.tolist()]
