"""The optimizer's update: the bytes that it moves for the parameters that a rank owns."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead import peak_memory
from overhead.formula import call, formula
from overhead.quantity import Array
from overhead.step import quantities

__all__ = [
    "no_optimizer_time",
    "optimizer_time",
    "owned_parameters",
    "peak_memory",
    "quantities",
]

ZERO: dict[str, Any] = {"source": "rajbhandari2020", "where": "section 5.1"}
# The last stage's rank has the output layer, and experts where there are any.
for _returns, _of in (
    ("updated_parameters", "stage_parameters"),
    ("updated_expert_parameters", "stage_expert_parameters"),
):
    call(returns=_returns, of=_of, bind={"stage": "last_stage"})


@formula(
    returns="owned_parameters",
    expression="updated_parameters/where(zero_stage >= 1, shards, 1)"
    " + updated_expert_parameters/where(zero_stage >= 1, expert_shards, 1)",
    assumes=("the last stage's ranks have as many as any",),
    **ZERO,
)
def owned_parameters(
    updated_parameters: Array,
    zero_stage: Array,
    shards: Array,
    updated_expert_parameters: Array,
    expert_shards: Array,
) -> Array:
    """Parameters that a rank updates: all that it holds, or from stage 1 of ZeRO its shard."""
    dense = updated_parameters / np.where(zero_stage >= 1.0, shards, 1.0)
    return dense + updated_expert_parameters / np.where(zero_stage >= 1.0, expert_shards, 1.0)


@formula(
    returns="optimizer_time",
    expression="optimizer_traffic_bytes*owned_parameters/(memory_efficiency*memory_bandwidth)",
    source="megatron",
    where="megatron/core/optimizer: norm and clipping of gradients, Adam, copy of weights",
    assumes=("gradients are read twice, states and weights read and written once",),
)
def optimizer_time(
    optimizer_traffic_bytes: Array,
    owned_parameters: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of the optimizer's update."""
    moved = optimizer_traffic_bytes * owned_parameters
    return moved / (memory_efficiency * memory_bandwidth)


@formula(
    returns="optimizer_time",
    expression="0*step_overhead",
    source="derivation",
    assumes=("nothing is updated",),
    when={"schedule": "forward_only"},
)
def no_optimizer_time(step_overhead: Array) -> Array:
    """Time of the optimizer's update where there are forwards alone: none."""
    return 0.0 * step_overhead
