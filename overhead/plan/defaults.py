"""What of a plan follows from the rest of it: degrees, batches and shapes that aren't given."""

from __future__ import annotations

import numpy as np

from overhead.declare import alias
from overhead.formula import formula
from overhead.quantity import Array, define

MEGATRON = "megatron"
OWN = "derivation"


@formula(source=OWN)
def world_size(tp: Array, cp: Array, pp: Array, dp: Array) -> Array:
    """GPUs of the plan."""
    return tp * cp * pp * dp


@formula(
    returns="dp",
    source=OWN,
    assumes=("what the other degrees leave of the GPUs",),
    when={"sized_by": "world"},
)
def dp_of_world(world_size: Array, tp: Array, cp: Array, pp: Array) -> Array:
    """Data-parallel degree: what the other degrees leave of the GPUs."""
    return np.maximum(np.floor(world_size / (tp * cp * pp)), 1.0)


@formula(source=OWN, assumes=("a batch that doesn't divide belongs to a plan that can't be",))
def micro_batches(global_batch: Array, dp: Array, micro_batch: Array) -> Array:
    """Micro-batches of a step on a rank."""
    return np.maximum(np.ceil(global_batch / (dp * micro_batch)), 1.0)


@formula(returns="global_batch", source=OWN, when={"batched_by": "micro_batches"})
def global_batch_of_micro_batches(dp: Array, micro_batch: Array, micro_batches: Array) -> Array:
    """Sequences of a step: those of all micro-batches."""
    return dp * micro_batch * micro_batches


alias(
    "etp",
    "tp",
    source=MEGATRON,
    where="megatron/core/parallel_state.py, expert_tensor_parallel_size",
    assumes=("experts are as tensor-parallel as all else",),
)


@formula(returns="hsdp_shard", source=OWN, assumes=("one shard over all ranks of equal weights",))
def hsdp_shard_of_all(dp: Array, cp: Array) -> Array:
    """Ranks over which hybrid sharding shards: all."""
    return dp * cp


@formula(
    returns="layers",
    source=OWN,
    assumes=("a layer a stage, for none are given",),
    when={"depth": "unknown"},
)
def one_layer_a_stage(pp: Array, virtual_stages: Array) -> Array:
    """Layers: one in each stage."""
    return pp * virtual_stages


alias(
    "kv_heads",
    "heads",
    assumes=("every head has keys and values of its own, for nothing else is given",),
)


@formula(
    returns="head_size",
    source=OWN,
    assumes=("heads share the hidden size, for nothing else is given",),
)
def head_size_of_hidden(hidden_size: Array, heads: Array) -> Array:
    """Size of an attention head: the heads' share of the hidden size."""
    return np.maximum(np.floor(hidden_size / heads), 1.0)


# The vocabulary of parallel plans: degrees, batches, sharding, precision, placement.

__all__: list[str] = []

DEGREES = (
    ("tp", "t", "tensor-parallel degree"),
    ("cp", "c_p", "context-parallel degree"),
    ("pp", "p", "pipeline-parallel degree"),
    ("dp", "d", "data-parallel degree"),
    ("ep", "e_p", "expert-parallel degree"),
    ("etp", "e_t", "tensor-parallel degree of experts"),
    ("virtual_stages", "v", "virtual pipeline stages of a rank (interleaving)"),
    ("hsdp_shard", "w", "ranks over which hybrid sharding shards"),
    ("micro_batch", "b", "sequences of a micro-batch"),
    ("global_batch", "B_g", "sequences of a step, over all ranks"),
    ("micro_batches", "m", "micro-batches of a step on a rank"),
)
for _name, _symbol, _words in DEGREES:
    define(_name, _symbol, "1", _words, minimum=1, integer=True)

define("zero_stage", "z", "1", "stage of ZeRO sharding", minimum=0, maximum=3, integer=True)
define(
    "sequence_parallel",
    "s_p",
    "1",
    "whether activations between tensor-parallel blocks are split along the sequence",
    minimum=0,
    maximum=1,
    integer=True,
)
define("expert_imbalance", r"\lambda", "1", "tokens of the busiest expert by the mean", minimum=1)
for _kind, _mark, _words in (
    ("weight", "w", "a weight"),
    ("gradient", "g", "a gradient"),
    ("optimizer", "o", "an optimizer's states, a parameter"),
    ("activation", "a", "an activation"),
):
    define(f"{_kind}_bytes", f"b_{_mark}", "byte", f"bytes of {_words}", minimum=0)

# Where a group of ranks sits.
define("group_size", "n", "1", "ranks of a group", minimum=1, integer=True)
define("group_stride", "r", "1", "distance in rank between a group's neighbours", minimum=1)
define("members_in_node", r"\mu", "1", "members of a group in one node", minimum=1)
define("group_nodes", "G_g", "1", "nodes that a group spans", minimum=1)
define(
    "uneven_placement",
    "u",
    "1",
    "whether some groups straddle nodes unevenly",
    minimum=0,
    maximum=1,
    integer=True,
)
