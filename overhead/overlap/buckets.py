"""Gradients reduced in buckets behind the backward; many messages against one fused."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from overhead.declare import alias
from overhead.formula import formula
from overhead.labels import ONE_COMPUTATION
from overhead.overlap import quantities
from overhead.quantity import Array

# The last gradients are ready when the backward ends, so the last bucket shows in any case.
IN_TURN = (
    "buckets are reduced one after another, each when its gradients are ready",
    "gradients become ready evenly",
)
OTHERS = "maximum(gradient_buckets - 1, 1)"
SIZED = {"buckets": "sized"}
MEGATRON = {"buckets": "megatron"}


@formula(
    returns="overlapped_time",
    source=quantities.BUCKETS,
    where="section 3.2.3; the closed form is derived here",
    assumes=(*IN_TURN, "all buckets but the first are equal"),
    when={"mechanism": "ddp_buckets"},
)
def ddp_buckets_time(
    gradient_buckets: Array,
    first_bucket_share: Array,
    compute_time: Array,
    communication_time: Array,
) -> Array:
    """Time of a backward behind which its gradients' buckets are reduced."""
    first = np.where(gradient_buckets > 1.0, first_bucket_share, 1.0)
    others = np.maximum(gradient_buckets - 1.0, 1.0)
    start = first * compute_time
    from_first = start + communication_time
    from_second = start + (1.0 - first) * (compute_time / others + communication_time)
    from_last = compute_time + (1.0 - first) * communication_time / others
    return np.maximum(np.maximum(from_first, from_second), from_last)


@formula(returns="first_bucket_share", source="derivation", assumes=("all buckets are equal",))
def equal_first_bucket(gradient_buckets: Array) -> Array:
    """Share of the first of equal buckets."""
    return 1.0 / gradient_buckets


@formula(
    returns="gradient_buckets",
    source=quantities.BUCKETS,
    where="section 3.2.2 (PyTorch's reducer.hpp: first bucket 1 MiB, then 25 MiB)",
    when=SIZED,
)
def sized_buckets(
    message_bytes: Array, first_bucket_capacity: Array, bucket_capacity: Array
) -> Array:
    """Buckets of all gradients: a first one, and what the others hold."""
    left = np.maximum(message_bytes - first_bucket_capacity, 0.0)
    return 1.0 + np.ceil(left / bucket_capacity)


@formula(
    returns="first_bucket_share",
    source=quantities.BUCKETS,
    where="section 3.2.2",
    assumes=("time is in proportion to bytes",),
    when=SIZED,
)
def sized_first_bucket(message_bytes: Array, first_bucket_capacity: Array) -> Array:
    """Share of the gradients that the first bucket holds."""
    whole = np.maximum(message_bytes, first_bucket_capacity)
    return np.where(message_bytes > first_bucket_capacity, first_bucket_capacity / whole, 1.0)


@formula(
    returns="bucket_elements",
    source=quantities.MEGATRON,
    where="megatron/core/distributed/distributed_data_parallel.py",
    when=MEGATRON,
)
def megatron_bucket_elements(dp: Array) -> Array:
    """Gradients of a bucket as Megatron chooses them: a million a rank, and 40 at least."""
    return np.maximum(40e6, 1e6 * dp)


@formula(
    returns="gradient_buckets",
    source=quantities.MEGATRON,
    where="megatron/core/distributed/param_and_grad_buffer.py",
    assumes=("buckets are filled to the last gradient",),
    when=MEGATRON,
)
def megatron_buckets(reduced_elements: Array, bucket_elements: Array) -> Array:
    """Buckets of all gradients where each holds as many."""
    return np.maximum(np.ceil(reduced_elements / bucket_elements), 1.0)


# Gradient accumulation: only the last micro-batch's backward has gradients to be sent.


@formula(
    returns="overlap_window", source="derivation", assumes=("all micro-batches take equally long",)
)
def window_of_last_backward(
    backward_share: Array, compute_time: Array, micro_batches: Array
) -> Array:
    """Computation of the last micro-batch's backward."""
    return backward_share * compute_time / micro_batches


@formula(
    returns="overlapped_time",
    source=quantities.BUCKETS,
    where="section 3.2.4 (no_sync); the closed form is derived here",
    assumes=(*IN_TURN, "all buckets are equal", "only the last micro-batch's backward reduces"),
    when={"mechanism": "gradient_accumulation"},
)
def gradient_accumulation_time(
    compute_time: Array, communication_time: Array, gradient_buckets: Array, overlap_window: Array
) -> Array:
    """Time of micro-batches of which only the last one's backward hides the reduction."""
    window = np.minimum(overlap_window, compute_time)
    beyond = communication_time - window * (1.0 - 1.0 / gradient_buckets)
    return compute_time + np.maximum(communication_time / gradient_buckets, beyond)


# Messages: each one costs its latency.


@formula(
    returns="communication_time",
    source="hockney1994",
    assumes=("messages follow one another",),
    when={"communication": "messages", "mechanism": ONE_COMPUTATION},
)
def counted_messages_time(messages: Array, message_latency: Array, transfer_time: Array) -> Array:
    """Time of the communication by itself, from its messages."""
    return messages * message_latency + transfer_time


alias("messages", "gradient_buckets", when={"mechanism": "ddp_buckets|gradient_accumulation"})


@formula(
    returns="overlapped_time",
    source="hockney1994",
    assumes=(
        "the fused message starts when all of its parts are there, and hides behind nothing",
        "what it is compared with waits for each of the messages",
    ),
    when={"mechanism": "fused_messages"},
)
def fused_messages_time(
    compute_time: Array, message_latency: Array, transfer_time: Array, copy_time: Array
) -> Array:
    """Time with all messages fused into one: one latency, and the copies in and out."""
    return compute_time + message_latency + transfer_time + copy_time


# Overlap of unequal buckets and layers: the general forms, along a leading axis.
#
# The declared formulas have equal parts.  Here each bucket or layer has times of its own: arrays
# whose first axis is the buckets or layers in the order in which they are computed, and whose other
# axes broadcast; the result has these other axes.


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
