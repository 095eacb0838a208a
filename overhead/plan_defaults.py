"""What of a plan follows from the rest of it: degrees, batches and shapes that aren't given."""

from __future__ import annotations

import numpy as np

from overhead import placement_requirements, plan_quantities, transformer_quantities
from overhead.formula import formula
from overhead.quantity import Array

__all__ = [
    "dp_of_world",
    "etp_as_tp",
    "global_batch_of_micro_batches",
    "head_size_of_hidden",
    "hsdp_shard_of_all",
    "kv_heads_of_heads",
    "micro_batches",
    "one_layer_a_stage",
    "placement_requirements",
    "plan_quantities",
    "transformer_quantities",
    "world_size",
]

MEGATRON = "megatron"
OWN = "derivation"


@formula(returns="world_size", expression="tp*cp*pp*dp", source=OWN)
def world_size(tp: Array, cp: Array, pp: Array, dp: Array) -> Array:
    """GPUs of the plan."""
    return tp * cp * pp * dp


@formula(
    returns="dp",
    expression="maximum(floor(world_size/(tp*cp*pp)), 1)",
    source=OWN,
    assumes=("what the other degrees leave of the GPUs",),
    when={"sized_by": "world"},
)
def dp_of_world(world_size: Array, tp: Array, cp: Array, pp: Array) -> Array:
    """Data-parallel degree: what the other degrees leave of the GPUs."""
    return np.maximum(np.floor(world_size / (tp * cp * pp)), 1.0)


@formula(
    returns="micro_batches",
    expression="maximum(ceil(global_batch/(dp*micro_batch)), 1)",
    source=OWN,
    assumes=("a batch that doesn't divide belongs to a plan that can't be",),
)
def micro_batches(global_batch: Array, dp: Array, micro_batch: Array) -> Array:
    """Micro-batches of a step on a rank."""
    return np.maximum(np.ceil(global_batch / (dp * micro_batch)), 1.0)


@formula(
    returns="global_batch",
    expression="dp*micro_batch*micro_batches",
    source=OWN,
    when={"batched_by": "micro_batches"},
)
def global_batch_of_micro_batches(dp: Array, micro_batch: Array, micro_batches: Array) -> Array:
    """Sequences of a step: those of all micro-batches."""
    return dp * micro_batch * micro_batches


@formula(
    returns="etp",
    expression="1*tp",
    source=MEGATRON,
    where="megatron/core/parallel_state.py, expert_tensor_parallel_size",
    assumes=("experts are as tensor-parallel as all else",),
)
def etp_as_tp(tp: Array) -> Array:
    """Tensor-parallel degree of experts: that of all else."""
    return 1.0 * tp


@formula(
    returns="hsdp_shard",
    expression="dp*cp",
    source=OWN,
    assumes=("one shard over all ranks of equal weights",),
)
def hsdp_shard_of_all(dp: Array, cp: Array) -> Array:
    """Ranks over which hybrid sharding shards: all."""
    return dp * cp


@formula(
    returns="layers",
    expression="pp*virtual_stages",
    source=OWN,
    assumes=("a layer a stage, for none are given",),
    when={"depth": "unknown"},
)
def one_layer_a_stage(pp: Array, virtual_stages: Array) -> Array:
    """Layers: one in each stage."""
    return pp * virtual_stages


@formula(
    returns="kv_heads",
    expression="1*heads",
    source=OWN,
    assumes=("every head has keys and values of its own, for nothing else is given",),
)
def kv_heads_of_heads(heads: Array) -> Array:
    """Key and value heads: as many as heads."""
    return 1.0 * heads


@formula(
    returns="head_size",
    expression="maximum(floor(hidden_size/heads), 1)",
    source=OWN,
    assumes=("heads share the hidden size, for nothing else is given",),
)
def head_size_of_hidden(hidden_size: Array, heads: Array) -> Array:
    """Size of an attention head: the heads' share of the hidden size."""
    return np.maximum(np.floor(hidden_size / heads), 1.0)
