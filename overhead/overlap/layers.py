"""Layers that follow one another: weights gathered ahead, gradients scattered, results reduced."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.overlap import quantities, sources
from overhead.quantity import Array

__all__ = [
    "fsdp_backward_time",
    "fsdp_prefetch_time",
    "layer_by_layer_time",
    "messages_of_layers",
    "quantities",
    "sources",
    "window_of_elements",
]

EQUAL = "all layers are equal"
ONE_LINK = "collectives follow one another on one communicator"


@formula(
    returns="overlapped_time",
    expression="where(prefetched_layers > 0,"
    " maximum(compute_time + communication_time/layers, communication_time + compute_time/layers),"
    " compute_time + communication_time)",
    source=sources.FSDP,
    where="section 3.3; the closed form is derived here",
    assumes=(EQUAL, ONE_LINK, "the first layer's weights hide behind nothing"),
    when={"mechanism": "fsdp_prefetch|zero3_prefetch"},
)
def fsdp_prefetch_time(
    prefetched_layers: Array, compute_time: Array, communication_time: Array, layers: Array
) -> Array:
    """Time of a forward whose layers' weights are gathered ahead."""
    ahead = np.maximum(
        compute_time + communication_time / layers, communication_time + compute_time / layers
    )
    return np.where(prefetched_layers > 0.0, ahead, compute_time + communication_time)


@formula(
    returns="prefetched_layers",
    expression="ceil(prefetched_elements/layer_elements)",
    source=sources.DEEPSPEED,
    where="runtime/zero/partitioned_param_coordinator.py: whole ones until the window is full",
    assumes=("a layer is what is gathered at once",),
    when={"mechanism": "zero3_prefetch"},
)
def window_of_elements(prefetched_elements: Array, layer_elements: Array) -> Array:
    """Layers that a window of elements gathers ahead: one at least, unless it is nought."""
    return np.ceil(prefetched_elements / layer_elements)


GATHER = "(1 - reduction_share)*communication_time"
REDUCE = "reduction_share*communication_time"


@formula(
    returns="overlapped_time",
    expression="where(layers > 1,"
    f" ({GATHER} + maximum({GATHER}, compute_time) + (layers - 2)*maximum(communication_time,"
    f" compute_time) + maximum({REDUCE}, compute_time) + {REDUCE})/layers,"
    " compute_time + communication_time)",
    source=sources.FSDP,
    where="section 3.3 (backward prefetch); the closed form is derived here",
    assumes=(
        EQUAL,
        ONE_LINK,
        "the next layer's weights are gathered before this one's gradients are reduced",
    ),
    when={"mechanism": "fsdp_backward"},
)
def fsdp_backward_time(
    layers: Array, communication_time: Array, compute_time: Array, reduction_share: Array
) -> Array:
    """Time of a backward whose layers gather weights ahead and reduce their gradients behind."""
    gather = (1.0 - reduction_share) * communication_time
    reduce = reduction_share * communication_time
    between = (layers - 2.0) * np.maximum(communication_time, compute_time)
    ends = gather + np.maximum(gather, compute_time) + np.maximum(reduce, compute_time) + reduce
    both = compute_time + communication_time
    return np.where(layers > 1.0, (ends + between) / layers, both)


@formula(
    returns="overlapped_time",
    expression="(compute_time + communication_time + (layers - 1)*(maximum(communication_time,"
    " independent_share*compute_time) + (1 - independent_share)*compute_time))/layers",
    source="derivation",
    assumes=(EQUAL, "a layer waits, after what doesn't depend on it, for the one before"),
    when={"mechanism": "layer_by_layer"},
)
def layer_by_layer_time(
    compute_time: Array, communication_time: Array, layers: Array, independent_share: Array
) -> Array:
    """Time of layers each of whose communication hides behind the next one's computation."""
    independent = np.maximum(communication_time, independent_share * compute_time)
    between = (layers - 1.0) * (independent + (1.0 - independent_share) * compute_time)
    return (compute_time + communication_time + between) / layers


@formula(
    returns="messages",
    expression="1*layers",
    source="derivation",
    when={"mechanism": "fsdp_prefetch|zero3_prefetch|layer_by_layer"},
)
def messages_of_layers(layers: Array) -> Array:
    """Messages of layers: one each."""
    return 1.0 * layers
