"""A whole product beside a whole collective that takes some of the GPU's multiprocessors."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.overlap import quantities, sources
from overhead.quantity import Array

__all__ = [
    "bulk_margin_time",
    "bulk_queued_time",
    "bulk_shared_time",
    "carved_compute_time",
    "copy_engine_rate",
    "free_sms",
    "linear_rate",
    "quantities",
    "saturating_rate",
    "sms_communication_time",
    "sources",
]

ALONE = "the computation by itself has all multiprocessors"
BULK: dict[str, Any] = {
    "source": sources.ENGINE,
    "where": "bulk overlap; the closed form is derived here",
}


@formula(
    returns="free_sms",
    expression="maximum(sms - num_sm, 1)",
    source=sources.ENGINE,
    where="set_sm_margin",
    assumes=("one is left at least",),
)
def free_sms(sms: Array, num_sm: Array) -> Array:
    """Multiprocessors that communication leaves to the computation."""
    return np.maximum(sms - num_sm, 1.0)


@formula(
    returns="carved_compute_time",
    expression="compute_time*sms/free_sms",
    source="derivation",
    assumes=(ALONE, "all multiprocessors work all of the time"),
)
def carved_compute_time(compute_time: Array, sms: Array, free_sms: Array) -> Array:
    """Time of the computation on the multiprocessors that communication leaves."""
    return compute_time * sms / free_sms


@formula(
    returns="overlapped_time",
    expression="maximum(carved_compute_time, communication_time)",
    assumes=("the product keeps off communication's multiprocessors, also when that is done",),
    when={"mechanism": "bulk_margin"},
    ufunc=np.maximum,
    **BULK,
)
def bulk_margin_time(carved_compute_time: Array, communication_time: Array) -> Array:
    """Time of a product that leaves room for a collective beside it.

    It can be longer than both one after the other.
    """
    return np.maximum(carved_compute_time, communication_time)


@formula(
    returns="overlapped_time",
    expression="maximum(communication_time,"
    " compute_time + communication_time*minimum(num_sm/sms, 1))",
    assumes=(
        ALONE,
        "communication starts first, and its multiprocessors go to the product when it is done",
    ),
    when={"mechanism": "bulk_shared"},
    **BULK,
)
def bulk_shared_time(
    communication_time: Array, compute_time: Array, num_sm: Array, sms: Array
) -> Array:
    """Time of a product that gets a collective's multiprocessors when that is done."""
    taken = communication_time * np.minimum(num_sm / sms, 1.0)
    return np.maximum(communication_time, compute_time + taken)


@formula(
    returns="overlapped_time",
    expression="compute_time + communication_time",
    assumes=("a product that fills the GPU starts first, and communication finds no room",),
    when={"mechanism": "bulk_queued"},
    ufunc=np.add,
    **BULK,
)
def bulk_queued_time(compute_time: Array, communication_time: Array) -> Array:
    """Time of a product that fills the GPU before the collective can start: nothing overlaps."""
    return compute_time + communication_time


# Communication by so many multiprocessors.

AT_LEAST_ONE = ("one multiprocessor at least",)


@formula(
    returns="transfer_bandwidth",
    expression="minimum(bandwidth, maximum(num_sm, 1)*sm_bandwidth)",
    source="derivation",
    assumes=AT_LEAST_ONE,
    when={"sm_law": "linear"},
)
def linear_rate(bandwidth: Array, num_sm: Array, sm_bandwidth: Array) -> Array:
    """Rate at which multiprocessors send, each as much until the link is full."""
    return np.minimum(bandwidth, np.maximum(num_sm, 1.0) * sm_bandwidth)


@formula(
    returns="transfer_bandwidth",
    expression="bandwidth*maximum(num_sm, 1)/(maximum(num_sm, 1) + half_bandwidth_sms)",
    source="derivation",
    assumes=(*AT_LEAST_ONE, "half of the bandwidth at so many multiprocessors is measured"),
    when={"sm_law": "saturating"},
)
def saturating_rate(bandwidth: Array, num_sm: Array, half_bandwidth_sms: Array) -> Array:
    """Rate at which multiprocessors send, each one adding less."""
    sending = np.maximum(num_sm, 1.0)
    return bandwidth * sending / (sending + half_bandwidth_sms)


@formula(
    returns="transfer_bandwidth",
    expression="1*copy_engine_bandwidth",
    source=sources.ENGINE,
    where="use_ce",
    when={"sm_law": "copy_engine"},
)
def copy_engine_rate(copy_engine_bandwidth: Array) -> Array:
    """Rate at which copy engines send, without any multiprocessor."""
    return 1.0 * copy_engine_bandwidth


@formula(
    returns="communication_time",
    expression="(ranks - 1)*(latency + message_bytes/(ranks*transfer_bandwidth))",
    source="patarasuk2009",
    assumes=("an all_gather or a reduce_scatter around a ring",),
    when={"communication": "sms"},
)
def sms_communication_time(
    ranks: Array, latency: Array, message_bytes: Array, transfer_bandwidth: Array
) -> Array:
    """Time of an all_gather or a reduce_scatter at the rate of its multiprocessors."""
    return (ranks - 1.0) * (latency + message_bytes / (ranks * transfer_bandwidth))
