"""Overlap of unequal buckets and layers: the general forms, along a leading axis.

The declared formulas have equal parts.  Here each bucket or layer has times of its own: arrays
whose first axis is the buckets or layers in the order in which they are computed, and whose other
axes broadcast; the result has these other axes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from overhead.quantity import Array

__all__ = ["bucketed_time", "layered_time", "prefetched_time", "sharded_backward_time"]


def _along(*given: ArrayLike) -> list[Array]:
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


def bucketed_time(compute: ArrayLike, communication: ArrayLike) -> Array:
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
) -> Array:
    """Return the time of a forward whose layers' weights are gathered ahead."""
    gathered, work = _along(gather, compute)
    count = len(work)
    if not count:
        return np.zeros(work.shape[1:])
    if prefetched_layers is None or prefetched_layers >= count - 1:
        before = np.cumsum(gathered, axis=0)
        after = np.cumsum(work[::-1], axis=0)[::-1]
        return np.asarray((before + after).max(axis=0))
    ends: list[Array] = []
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


def sharded_backward_time(gather: ArrayLike, compute: ArrayLike, reduce: ArrayLike) -> Array:
    """Return the time of a backward whose layers gather weights and reduce gradients."""
    gathered, work, reduced = _along(gather, compute, reduce)
    count = len(work)
    if not count:
        return np.zeros(work.shape[1:])
    arrived = sent = gathered[0]
    done = np.zeros(work.shape[1:])
    for index in range(count):
        done = np.maximum(done, arrived) + work[index]
        if index + 1 < count:
            arrived = sent = sent + gathered[index + 1]
        sent = np.maximum(sent, done) + reduced[index]
    return np.asarray(sent)


def layered_time(
    compute: ArrayLike, communication: ArrayLike, independent_share: ArrayLike = 1.0
) -> Array:
    """Return the time of layers whose communication hides behind the next one's computation."""
    work, sent = _along(compute, communication)
    if not len(work):
        return np.zeros(work.shape[1:])
    share = np.asarray(independent_share, dtype=np.float64)
    hidden = np.maximum(sent[:-1], share * work[1:]) + (1.0 - share) * work[1:]
    return np.asarray(work[0] + hidden.sum(axis=0) + sent[-1])
