"""A matrix product and its collective cut into chunks, the one's next to the other's."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.overlap import quantities, sources
from overhead.quantity import Array

__all__ = [
    "last_of_equal_splits",
    "messages_of_ring",
    "messages_of_splits",
    "quantities",
    "reduce_scatter_pipeline_time",
    "reduce_scatter_ring_sequential_time",
    "reduce_scatter_ring_time",
    "ring_exchange_aggregate_time",
    "ring_exchange_time",
    "ring_partial_sum_time",
    "sources",
]

CHUNKS = "all chunks take equally long"
ORDER = "common/comm_gemm_overlap/comm_gemm_overlap.cpp: order of products and copies"
RING = {"mechanism": "reduce_scatter_ring"}


@formula(
    returns="overlapped_time",
    expression="maximum(compute_time, communication_time + compute_time/ranks)",
    source=sources.DECOMPOSED,
    where="all_gather, then einsum, in a loop of chunks; the closed form is derived here",
    assumes=(CHUNKS, "a rank starts with the chunk that it holds"),
    when={"mechanism": "ring_exchange"},
)
def ring_exchange_time(compute_time: Array, communication_time: Array, ranks: Array) -> Array:
    """Time of a product whose input comes round a ring, a chunk of it each step."""
    return np.maximum(compute_time, communication_time + compute_time / ranks)


@formula(
    returns="overlapped_time",
    expression="maximum(compute_time + communication_time/maximum(ranks - 1, 1),"
    " communication_time + compute_time*minimum(2/ranks, 1))",
    source=sources.ENGINE,
    where=ORDER,
    assumes=(CHUNKS, "an even number of ranks", "nothing is computed until the first chunk is in"),
    when={"mechanism": "ring_exchange_aggregate"},
)
def ring_exchange_aggregate_time(
    compute_time: Array, communication_time: Array, ranks: Array
) -> Array:
    """Time of a product whose input comes round a ring, two chunks multiplied at a time.

    Two ranks overlap nothing: the only chunk that comes is waited for first.
    """
    first = compute_time + communication_time / np.maximum(ranks - 1.0, 1.0)
    return np.maximum(first, communication_time + compute_time * np.minimum(2.0 / ranks, 1.0))


@formula(
    returns="partial_sum_time",
    expression="where(ranks > 1, (ranks + 1)*message_bytes/(ranks*memory_bandwidth), 0)",
    source=sources.ENGINE,
    where=ORDER,
    assumes=("every partial result is read and the sum written once, at the memory's bandwidth",),
)
def ring_partial_sum_time(ranks: Array, message_bytes: Array, memory_bandwidth: Array) -> Array:
    """Time in which a rank adds up what it got from the others."""
    time = (ranks + 1.0) * message_bytes / (ranks * memory_bandwidth)
    return np.where(ranks > 1.0, time, 0.0)


@formula(
    returns="overlapped_time",
    expression="maximum(compute_time, communication_time + compute_time/ranks) + partial_sum_time",
    source=sources.ENGINE,
    where=ORDER,
    assumes=(CHUNKS, "a rank's own chunk comes last, and needs no message"),
    when=RING,
)
def reduce_scatter_ring_time(
    compute_time: Array, communication_time: Array, ranks: Array, partial_sum_time: Array
) -> Array:
    """Time of a product whose partial results go round a ring, and are added up at the end."""
    return np.maximum(compute_time, communication_time + compute_time / ranks) + partial_sum_time


@formula(
    returns="sequential_time",
    expression="compute_time + communication_time + partial_sum_time",
    source="derivation",
    when=RING,
)
def reduce_scatter_ring_sequential_time(
    compute_time: Array, communication_time: Array, partial_sum_time: Array
) -> Array:
    """Time of product, communication and sums one after another."""
    return compute_time + communication_time + partial_sum_time


@formula(
    returns="last_split_time",
    expression="communication_time/splits",
    source="derivation",
    assumes=("the last part is sent as fast as the others",),
    ufunc=np.true_divide,
)
def last_of_equal_splits(communication_time: Array, splits: Array) -> Array:
    """Time of the last part's communication, where it isn't given."""
    return communication_time / splits


@formula(
    returns="overlapped_time",
    expression="maximum(compute_time, (compute_time + (splits - 1)*communication_time)/splits)"
    " + last_split_time",
    source=sources.ENGINE,
    where=ORDER + "; the last part has multiprocessors of its own, 32",
    assumes=("all parts take equally long", "a part is sent when its product is done"),
    when={"mechanism": "reduce_scatter_pipeline"},
)
def reduce_scatter_pipeline_time(
    compute_time: Array, splits: Array, communication_time: Array, last_split_time: Array
) -> Array:
    """Time of a product in parts, each of them reduced and scattered behind the next one."""
    sent = (compute_time + (splits - 1.0) * communication_time) / splits
    return np.maximum(compute_time, sent) + last_split_time


@formula(
    returns="messages",
    expression="maximum(ranks - 1, 1)",
    source="derivation",
    when={"mechanism": "ring_exchange|ring_exchange_aggregate|reduce_scatter_ring"},
)
def messages_of_ring(ranks: Array) -> Array:
    """Messages of a ring: a step each."""
    return np.maximum(ranks - 1.0, 1.0)


@formula(
    returns="messages",
    expression="1*splits",
    source="derivation",
    when={"mechanism": "reduce_scatter_pipeline"},
)
def messages_of_splits(splits: Array) -> Array:
    """Messages of a product in parts: one each."""
    return 1.0 * splits
