"""Which step of the training loop a row of the GPU belongs to: the one that launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.traces.trace import Trace, nanoseconds

__all__ = ["Steps", "steps_of"]


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
    places = np.full(len(trace.rows), -1, dtype=np.intp)
    if len(order):
        times, known = _launched(trace)
        place = np.searchsorted(starts, times, side="right") - 1
        inside = known & (place >= 0)
        inside &= times < (starts + durations)[np.maximum(place, 0)]
        places = np.where(inside, place, -1)
    return Steps(numbers[host][order], durations, places)


def _launched(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return when each row was launched, and whether that is known."""
    if not len(trace.launches):
        return nanoseconds(trace.rows.start), np.ones(len(trace.rows), dtype=np.bool_)
    launch = trace.launches.of(trace.rows.correlation)
    return nanoseconds(trace.launches.start)[launch], launch >= 0
