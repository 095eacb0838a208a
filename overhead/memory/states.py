"""Weights, gradients and optimizer states of a rank, as ZeRO shards them."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.memory import quantities, sources
from overhead.quantity import Array

__all__ = [
    "bucket_memory",
    "expert_shards",
    "gathered_memory",
    "gradient_memory",
    "layer_rank_expert_parameters",
    "layer_rank_parameters",
    "model_state_memory",
    "optimizer_memory",
    "pending_gradient_memory",
    "placeholder_memory",
    "quantities",
    "shards",
    "sources",
    "weight_memory",
]

ZERO = "rajbhandari2020"
FSDP: dict[str, Any] = {"source": "zhao2023", "where": "sections 3.2 and 4.2"}
MEGATRON: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/parallel_state.py, expert data parallel group",
}
HYBRID: dict[str, Any] = {"sharding": "hybrid"}


@formula(
    returns="shards",
    expression="dp*cp",
    source=ZERO,
    where="section 5; context-parallel ranks hold the same weights",
    ufunc=np.multiply,
)
def shards(dp: Array, cp: Array) -> Array:
    """Ranks over which ZeRO shards: all that hold the same weights."""
    return dp * cp


@formula(
    returns="shards",
    expression="1*hsdp_shard",
    when=HYBRID,
    **FSDP,
)
def hybrid_shards(hsdp_shard: Array) -> Array:
    """Ranks over which hybrid sharding shards; the rest replicate."""
    return 1.0 * hsdp_shard


@formula(returns="expert_shards", expression="1*edp", **MEGATRON)
def expert_shards(edp: Array) -> Array:
    """Ranks over which ZeRO shards experts."""
    return 1.0 * edp


@formula(
    returns="expert_shards",
    expression="maximum(hsdp_shard*tp/(ep*etp), 1)",
    assumes=("a shard group's ranks, with tensor parallelism, are cut anew for experts",),
    when=HYBRID,
    **FSDP,
)
def hybrid_expert_shards(hsdp_shard: Array, tp: Array, ep: Array, etp: Array) -> Array:
    """Ranks over which hybrid sharding shards experts."""
    return np.maximum(hsdp_shard * tp / (ep * etp), 1.0)


def _sharded(part: str, stage: int) -> str:
    dense = f"stage_parameters/where(zero_stage >= {stage}, shards, 1)"
    experts = f"stage_expert_parameters/where(zero_stage >= {stage}, expert_shards, 1)"
    return f"{part}_bytes*({dense} + {experts})"


def _share(
    sharded: Array, parameters: Array, experts: Array, shards: Array, expert_shards: Array
) -> Array:
    dense = parameters / np.where(sharded, shards, 1.0)
    return dense + experts / np.where(sharded, expert_shards, 1.0)


@formula(
    returns="weight_memory",
    expression=_sharded("weight", 3),
    source=ZERO,
    where="section 5.3",
)
def weight_memory(
    weight_bytes: Array,
    zero_stage: Array,
    stage_parameters: Array,
    stage_expert_parameters: Array,
    shards: Array,
    expert_shards: Array,
) -> Array:
    """Memory of weights: sharded from stage 3."""
    kept = (stage_parameters, stage_expert_parameters, shards, expert_shards)
    return weight_bytes * _share(zero_stage >= 3.0, *kept)


@formula(
    returns="gradient_memory",
    expression=_sharded("gradient", 2),
    source=ZERO,
    where="section 5.2",
)
def gradient_memory(
    gradient_bytes: Array,
    zero_stage: Array,
    stage_parameters: Array,
    stage_expert_parameters: Array,
    shards: Array,
    expert_shards: Array,
) -> Array:
    """Memory of gradients: sharded from stage 2."""
    kept = (stage_parameters, stage_expert_parameters, shards, expert_shards)
    return gradient_bytes * _share(zero_stage >= 2.0, *kept)


@formula(
    returns="optimizer_memory",
    expression=_sharded("optimizer", 1),
    source=ZERO,
    where="section 5.1",
)
def optimizer_memory(
    optimizer_bytes: Array,
    zero_stage: Array,
    stage_parameters: Array,
    stage_expert_parameters: Array,
    shards: Array,
    expert_shards: Array,
) -> Array:
    """Memory of the optimizer's states: sharded from stage 1 (Megatron's distributed optimizer)."""
    kept = (stage_parameters, stage_expert_parameters, shards, expert_shards)
    return optimizer_bytes * _share(zero_stage >= 1.0, *kept)


@formula(
    returns="model_state_memory",
    expression="weight_memory + gradient_memory + optimizer_memory",
    source=ZERO,
    where="section 3.1",
)
def model_state_memory(
    weight_memory: Array, gradient_memory: Array, optimizer_memory: Array
) -> Array:
    """Memory of weights, gradients and optimizer together."""
    return weight_memory + gradient_memory + optimizer_memory


# What sharded parameters need beside their shards.


@formula(
    returns="layer_rank_parameters",
    expression="attention_rank_parameters + 2*norm_parameters"
    " + maximum(where(stage_mlp_layers > 0, mlp_rank_parameters, 0),"
    " where(stage_moe_layers > 0, shared_rank_parameters, 0))",
    **FSDP,
)
def layer_rank_parameters(
    attention_rank_parameters: Array,
    norm_parameters: Array,
    stage_mlp_layers: Array,
    mlp_rank_parameters: Array,
    stage_moe_layers: Array,
    shared_rank_parameters: Array,
) -> Array:
    """Parameters of the stage's largest layer on one rank, its routed experts left out."""
    dense = np.where(stage_mlp_layers > 0.0, mlp_rank_parameters, 0.0)
    shared = np.where(stage_moe_layers > 0.0, shared_rank_parameters, 0.0)
    return attention_rank_parameters + 2.0 * norm_parameters + np.maximum(dense, shared)


@formula(
    returns="layer_rank_expert_parameters",
    expression="where(stage_moe_layers > 0, expert_rank_parameters, 0)",
    **FSDP,
)
def layer_rank_expert_parameters(stage_moe_layers: Array, expert_rank_parameters: Array) -> Array:
    """Parameters of one layer's routed experts on one rank of a stage that has them."""
    return np.where(stage_moe_layers > 0.0, expert_rank_parameters, 0.0)


GATHERED = "minimum(gathered_layers, weight_copies*stage_layers)"


@formula(
    returns="gathered_memory",
    expression=f"where(zero_stage >= 3, gathered_bytes*(where(shards > 1,"
    f" {GATHERED}*layer_rank_parameters"
    " + gathered_ends*(embedding_rank_parameters + output_rank_parameters), 0)"
    f" + where(expert_shards > 1, {GATHERED}*layer_rank_expert_parameters, 0)), 0)",
    assumes=("layers are gathered one by one, embedding and output layer each on their own",),
    **FSDP,
)
def gathered_memory(
    zero_stage: Array,
    gathered_bytes: Array,
    shards: Array,
    gathered_layers: Array,
    weight_copies: Array,
    stage_layers: Array,
    layer_rank_parameters: Array,
    gathered_ends: Array,
    embedding_rank_parameters: Array,
    output_rank_parameters: Array,
    expert_shards: Array,
    layer_rank_expert_parameters: Array,
) -> Array:
    """Memory of the weights that ZeRO-3 holds gathered."""
    count = np.minimum(gathered_layers, weight_copies * stage_layers)
    ends = gathered_ends * (embedding_rank_parameters + output_rank_parameters)
    dense = np.where(shards > 1.0, count * layer_rank_parameters + ends, 0.0)
    experts = np.where(expert_shards > 1.0, count * layer_rank_expert_parameters, 0.0)
    return np.where(zero_stage >= 3.0, gathered_bytes * (dense + experts), 0.0)


@formula(
    returns="pending_gradient_memory",
    expression="where(zero_stage >= 2, pending_share*gradient_bytes*("
    "where(shards > 1, stage_parameters, 0)"
    " + where(expert_shards > 1, stage_expert_parameters, 0)), 0)",
    assumes=("gradients that accumulate over micro-batches before they are sharded are whole",),
    **FSDP,
)
def pending_gradient_memory(
    zero_stage: Array,
    pending_share: Array,
    gradient_bytes: Array,
    shards: Array,
    stage_parameters: Array,
    expert_shards: Array,
    stage_expert_parameters: Array,
) -> Array:
    """Memory of gradients that wait for being sharded (FSDP2 in a pipeline: all)."""
    dense = np.where(shards > 1.0, stage_parameters, 0.0)
    experts = np.where(expert_shards > 1.0, stage_expert_parameters, 0.0)
    waiting = pending_share * gradient_bytes * (dense + experts)
    return np.where(zero_stage >= 2.0, waiting, 0.0)


@formula(
    returns="bucket_memory",
    expression="where(dp*cp > 1, buckets*bucket_bytes, 0)",
    source=ZERO,
    where="section 6.2",
    assumes=("buckets are beside the gradients; where they are parts of one buffer, give none",),
)
def bucket_memory(dp: Array, cp: Array, buckets: Array, bucket_bytes: Array) -> Array:
    """Memory of buckets of gradients on their way."""
    return np.where(dp * cp > 1.0, buckets * bucket_bytes, 0.0)


@formula(
    returns="placeholder_memory",
    expression="placeholder_bytes*(layer_rank_parameters"
    " + where(stage_moe_layers > 0, expert_weights/etp, 0))",
    source="transformerengine",
    where="transformer_engine/pytorch/module/base.py, get_dummy_wgrad",
    assumes=("one a shape of weight, kept for good; the experts of a layer share theirs",),
)
def placeholder_memory(
    placeholder_bytes: Array,
    layer_rank_parameters: Array,
    stage_moe_layers: Array,
    expert_weights: Array,
    etp: Array,
) -> Array:
    """Memory of what a product hands back whose gradient was added to the sum already."""
    expert = np.where(stage_moe_layers > 0.0, expert_weights / etp, 0.0)
    return placeholder_bytes * (layer_rank_parameters + expert)
