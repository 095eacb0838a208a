"""What tests of overlap share: durations that hypothesis draws, and the evaluation of one case."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from overhead.evaluation import Evaluation
from overhead.overlap.mechanisms import MECHANISMS

__all__ = [
    "EXACT",
    "bucketed_time",
    "close",
    "counts",
    "evaluated",
    "layered_time",
    "overlapped",
    "prefetched_time",
    "sharded_backward_time",
    "shares",
    "some_times",
    "times",
]
Numbers = NDArray[np.float64]

times = st.fractions(0, 50, max_denominator=40)
some_times = st.fractions(Fraction(1, 40), 50, max_denominator=40)
shares = st.fractions(0, 1, max_denominator=30)
counts = st.integers(1, 12)
EXACT = 1e-12


def evaluated(mechanism: str, *wanted: str, **known: Any) -> list[float]:
    """Return quantities of one case."""
    chosen = [key for key in ("efficiency_of", "schedule") if key in known]
    labels: dict[str, str] = {key: known.pop(key) for key in chosen}
    numbers = {name: float(value) for name, value in known.items()}
    evaluation = Evaluation(
        {**MECHANISMS[mechanism].defaults, **numbers}, {"mechanism": mechanism, **labels}
    )
    return [float(evaluation[name]) for name in wanted]


def overlapped(mechanism: str, compute: Any, communication: Any, **known: Any) -> float:
    settings = {"compute_time": compute, "communication_time": communication}
    return evaluated(mechanism, "overlapped_time", **settings, **known)[0]


def close(ours: float, exact: Fraction) -> None:
    assert ours == pytest.approx(float(exact), rel=EXACT, abs=1e-13)


# The general forms, of unequal buckets and layers, along a leading axis.
#
# The formulas have equal parts.  Here each bucket or layer has times of its own: arrays
# whose first axis is the buckets or layers in the order in which they are computed, and whose other
# axes broadcast; the result has these other axes.


def _along(*given: ArrayLike) -> list[Numbers]:
    """Return arrays of one shape, with nothing in front of the leading axis."""
    arrays = [np.asarray(values, dtype=np.float64) for values in given]
    most = max(array.ndim for array in arrays)
    if not most:
        message = "parts stand along the first axis: give arrays"
        raise ValueError(message)
    padded = [
        array.reshape(array.shape[:1] + (1,) * (most - array.ndim) + array.shape[1:])
        for array in arrays
    ]
    return list(np.broadcast_arrays(*padded))


def bucketed_time(compute: ArrayLike, communication: ArrayLike) -> Numbers:
    """Return the time of a backward behind which buckets of gradients are reduced."""
    work, sent = _along(compute, communication)
    if not len(work):
        return np.zeros(work.shape[1:])
    ready = np.cumsum(work, axis=0)
    done = np.cumsum(sent, axis=0)
    waited = np.maximum.accumulate(ready - (done - sent), axis=0)
    return np.asarray(done[-1] + waited[-1])


def prefetched_time(
    gather: ArrayLike, compute: ArrayLike, prefetched_layers: int | None = None
) -> Numbers:
    """Return the time of a forward whose layers' weights are gathered ahead."""
    gathered, work = _along(gather, compute)
    count = len(work)
    if not count:
        return np.zeros(work.shape[1:])
    if prefetched_layers is None or prefetched_layers >= count - 1:
        before = np.cumsum(gathered, axis=0)
        after = np.cumsum(work[::-1], axis=0)[::-1]
        return np.asarray(np.max(before + after, axis=0))
    ends: list[Numbers] = []
    arrived = np.zeros(work.shape[1:])
    done = np.zeros(work.shape[1:])
    for index in range(count):
        # Its place is that of a layer that is done with.
        freed = index - prefetched_layers - 1
        start = np.maximum(arrived, ends[freed]) if freed >= 0 else arrived
        arrived = start + gathered[index]
        done = np.maximum(arrived, done) + work[index]
        ends.append(done)
    return np.asarray(done)


def sharded_backward_time(
    gather: ArrayLike, compute: ArrayLike, reduce: ArrayLike, prefetched_layers: int = 1
) -> Numbers:
    """Return the time of a backward whose layers gather weights and reduce gradients."""
    gathered, work, reduced = _along(gather, compute, reduce)
    count = len(work)
    arrived: list[Numbers] = []
    done = sent = np.zeros(work.shape[1:])
    for index in range(count):
        while len(arrived) < min(index + 1 + prefetched_layers, count):
            sent = sent + gathered[len(arrived)]
            arrived.append(sent)
        done = np.maximum(done, arrived[index]) + work[index]
        sent = np.maximum(sent, done) + reduced[index]
    return np.asarray(sent)


def layered_time(
    compute: ArrayLike, communication: ArrayLike, independent_compute_fraction: ArrayLike = 0.0
) -> Numbers:
    """Return the time of layers whose communication hides behind the next one's computation."""
    work, sent = _along(compute, communication)
    if not len(work):
        return np.zeros(work.shape[1:])
    share = np.asarray(independent_compute_fraction, dtype=np.float64)
    hidden = np.maximum(sent[:-1], share * work[1:]) + (1.0 - share) * work[1:]
    return np.asarray(work[0] + np.sum(hidden, axis=0) + sent[-1])
