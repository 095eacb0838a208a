"""Weights, gradients and optimizer states of a rank, as ZeRO shards them."""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, formula, parameters
from overhead.labels import PREFETCHES
from overhead.memory.activations import NARROW_ONES, in_both

ZERO = "rajbhandari2020"
FSDP = cited("zhao2023", "sections 3.2 and 4.2")
FSDP2 = cited(
    "torchtitan", "torchtitan/models/llama3/infra/parallelize.py, apply_fsdp (pp_enabled)"
)
MEGATRON = cited("megatron", "megatron/core/parallel_state.py, expert data parallel group")
HYBRID: dict[str, Any] = {"sharding": "hybrid"}


@formula(
    returns="expert_shards",
    assumes=("the shard group, with TP, is re-partitioned for experts",),
    when=HYBRID,
    **FSDP,
)
def hybrid_expert_shards(hsdp_shard_size, tp, ep, etp):
    """Ranks over which hybrid sharding shards experts."""
    return xp.maximum(hsdp_shard_size * tp / (ep * etp), 1.0)


def _share(sharded, parameters, experts, shards, expert_shards):
    dense = parameters / xp.where(sharded, shards, 1.0)
    return dense + experts / xp.where(sharded, expert_shards, 1.0)


STORED = (
    "stage_adapter_parameters",
    "stage_parameters",
    "full_precision_weight_bytes",
    "weight_bytes",
    "weight_copy_bytes",
    "zero_stage",
    "shards",
    "expert_shards",
    "stage_expert_parameters",
    *NARROW_ONES,
)


@formula(source=ZERO, where="section 5.3", assumes=("adapters are in BF16",), inputs=STORED)
def weight_shard_memory(adapters, every, *taken):
    """Memory of weights and adapters, wherever they are: sharded from stage 3."""
    (
        wide,
        weight_bytes,
        copies,
        zero_stage,
        shards,
        expert_shards,
        experts,
        narrow,
        narrow_experts,
    ) = taken
    dense = in_both(wide, weight_bytes + copies, every + adapters, narrow)
    routed = in_both(wide, weight_bytes + copies, experts, narrow_experts)
    return _share(zero_stage >= 3.0, dense, routed, shards, expert_shards)


@formula(source=ZERO, where="section 5.2")
def gradient_memory(
    has_backward,
    device_gradient_bytes,
    zero_stage,
    trained_parameters,
    trained_expert_parameters,
    shards,
    expert_shards,
):
    """Memory of gradients: sharded from stage 2."""
    kept = (trained_parameters, trained_expert_parameters, shards, expert_shards)
    return has_backward * device_gradient_bytes * _share(zero_stage >= 2.0, *kept)


@formula(source=ZERO, where="section 5.1")
def optimizer_memory(
    has_backward,
    device_optimizer_bytes,
    zero_stage,
    trained_parameters,
    trained_expert_parameters,
    shards,
    expert_shards,
):
    """Optimizer states: sharded from ZeRO-1 (Megatron-LM distributed optimizer)."""
    kept = (trained_parameters, trained_expert_parameters, shards, expert_shards)
    return has_backward * device_optimizer_bytes * _share(zero_stage >= 1.0, *kept)


# Adapters of low rank beside frozen weights: what is trained, and kept for training.
#
# Both of an adapter's matrices are split over tensor-parallel ranks, as Megatron-Bridge has it.

ADAPTED = cited("hu2021", "section 4.1")
LORA: dict[str, Any] = {**ADAPTED, "when": {"tuning": "lora"}}
FROZEN = "frozen weights have no gradients"


def _adapters(rank, every, attention, *rest):
    dense, mlp, routed, shared = rest
    return xp.asarray(rank * (every * attention + dense * mlp + routed * shared))


@formula(**LORA)
def adapter_parameters(
    lora_rank,
    layers,
    mixer_adapter_width,
    dense_mlp_layers,
    mlp_adapter_width,
    moe_layers,
    shared_adapter_width,
):
    """Parameters of all adapters of the model."""
    mlps = (dense_mlp_layers, mlp_adapter_width, moe_layers, shared_adapter_width)
    return _adapters(lora_rank, layers, mixer_adapter_width, *mlps)


@formula(**LORA)
def stage_adapter_parameters(
    weight_copies,
    lora_rank,
    stage_layers,
    mixer_adapter_width,
    stage_mlp_layers,
    mlp_adapter_width,
    stage_moe_layers,
    shared_adapter_width,
    tp,
):
    """Adapter parameters per rank."""
    mlps = (stage_mlp_layers, mlp_adapter_width, stage_moe_layers, shared_adapter_width)
    adapters = _adapters(lora_rank, stage_layers, mixer_adapter_width, *mlps)
    return weight_copies * adapters / tp


@formula(source=ZERO, where="section 3.1")
def trained_parameters(trained_weights, stage_parameters, stage_adapter_parameters):
    """Parameters of a rank that are trained: all, or those of adapters."""
    return trained_weights * stage_parameters + stage_adapter_parameters


# What sharded parameters need beside their shards.


@formula(**FSDP2)
def gather_every_micro_batch(pp, unsharded_in_pipeline):
    """ZeRO-3 weight gather per micro-batch (0 or 1)."""
    return xp.where(pp > 1.0, 1.0 - unsharded_in_pipeline, 1.0)


@formula(
    assumes=("gradients are sharded immediately unless kept until the end of the step",), **FSDP2
)
def reduce_every_micro_batch(
    unsharded_gradient_fraction, num_micro_batches, pp, unsharded_in_pipeline
):
    """Gradient reduction per micro-batch in ZeRO-2 and ZeRO-3 (0 or 1)."""
    each = xp.where(pp > 1.0, 1.0 - unsharded_in_pipeline, 1.0)
    kept = (unsharded_gradient_fraction >= 1.0) & (num_micro_batches > 1.0)
    return xp.where(kept, 0.0, each)


@formula(**FSDP)
def layer_rank_parameters(
    mixer_rank_parameters,
    mixer_norm_parameters,
    norm_parameters,
    stage_mlp_layers,
    mlp_rank_parameters,
    mlp_norm_parameters,
    stage_moe_layers,
    shared_rank_parameters,
):
    """Dense parameters of the largest layer of the stage per rank."""
    dense = xp.where(stage_mlp_layers > 0.0, mlp_rank_parameters + mlp_norm_parameters, 0.0)
    shared = xp.where(stage_moe_layers > 0.0, shared_rank_parameters + norm_parameters, 0.0)
    return mixer_rank_parameters + mixer_norm_parameters + xp.maximum(dense, shared)


@formula(**FSDP)
def layer_rank_expert_parameters(stage_moe_layers, expert_rank_parameters):
    """Routed-expert parameters per layer and rank, in a stage with experts."""
    return xp.where(stage_moe_layers > 0.0, expert_rank_parameters, 0.0)


@formula(
    assumes=(
        "layers are gathered one at a time, embedding and LM head separately",
        "a limit of live parameters leaves the layer at work whole",
    ),
    **FSDP,
)
def zero3_gathered_memory(
    zero_stage,
    gathered_bytes,
    full_precision_gathered_bytes,
    layer_low_precision_parameters,
    low_precision_expert_parameters,
    shards,
    gathered_layers,
    max_live_parameters,
    gather_every_micro_batch,
    keep_gathered,
    weight_copies,
    stage_layers,
    layer_rank_parameters,
    gathered_non_layer_fraction,
    embedding_rank_parameters,
    output_rank_parameters,
    expert_shards,
    layer_rank_expert_parameters,
    parameter_offload,
):
    """Memory of the weights that ZeRO-3 holds gathered."""
    every = weight_copies * stage_layers
    kept = (gather_every_micro_batch < 1.0) | (keep_gathered > 0.0)
    held = xp.maximum(layer_rank_parameters + layer_rank_expert_parameters, 1.0)
    most = xp.where(max_live_parameters > 0.0, xp.maximum(max_live_parameters / held, 1.0), every)
    count = xp.where(kept, every, xp.minimum(xp.minimum(gathered_layers, most), every))
    ends = gathered_non_layer_fraction * (embedding_rank_parameters + output_rank_parameters)
    wide, narrow_bytes = full_precision_gathered_bytes, gathered_bytes
    layer = in_both(wide, narrow_bytes, layer_rank_parameters, layer_low_precision_parameters)
    routed = in_both(
        wide, narrow_bytes, layer_rank_expert_parameters, low_precision_expert_parameters
    )
    # Weights in the host's memory are brought to the GPU even where no other rank has a part.
    away = parameter_offload > 0.0
    dense = xp.where((shards > 1.0) | away, count * layer + wide * ends, 0.0)
    experts = xp.where((expert_shards > 1.0) | away, count * routed, 0.0)
    return xp.where(zero_stage >= 3.0, dense + experts, 0.0)


# Where a mechanism says how many layers are fetched ahead, these are held beside the one at work.


@formula(**FSDP)
def fetched_layers(gathered_layers, forward_layers_ahead, backward_layers_ahead):
    """Layers held gathered: as the software does, or the one at work and those fetched ahead."""
    ahead = xp.maximum(forward_layers_ahead, backward_layers_ahead)
    return xp.maximum(gathered_layers, 1.0 + ahead)


formula(
    returns="zero3_gathered_memory",
    inputs=tuple(
        "fetched_layers" if name == "gathered_layers" else name
        for name in parameters(zero3_gathered_memory)
    ),
    name="prefetched_gathered_memory",
    when={"dp_mechanism": "|".join(PREFETCHES)},
    **FSDP,
)(zero3_gathered_memory)


@formula(
    assumes=(
        "gradients that accumulate over micro-batches before they are sharded are whole, in the"
        " precision of their reduction",
    ),
    **FSDP,
)
def unsharded_gradient_memory(
    has_backward,
    zero_stage,
    unsharded_gradient_fraction,
    reduce_every_micro_batch,
    reduction_bytes,
    shards,
    trained_parameters,
    expert_shards,
    trained_expert_parameters,
):
    """Memory of gradients that wait for being sharded: all where a step reduces them once."""
    dense = xp.where(shards > 1.0, trained_parameters, 0.0)
    experts = xp.where(expert_shards > 1.0, trained_expert_parameters, 0.0)
    # Of one micro-batch, none wait for another.
    waiting = xp.where(unsharded_gradient_fraction < 1.0, unsharded_gradient_fraction, 0.0)
    share = xp.where(reduce_every_micro_batch > 0.0, waiting, 1.0)
    memory = has_backward * share * reduction_bytes * (dense + experts)
    return xp.where(zero_stage >= 2.0, memory, 0.0)


@formula(
    source=ZERO,
    where="section 6.2",
    assumes=(
        "buckets in addition to the gradients; give 0 if buckets are views of one gradient buffer",
        "torch's DDP has buckets for all gradients (torch/csrc/distributed/c10d/reducer.cpp)",
    ),
)
def bucket_memory(
    has_backward,
    dp,
    cp,
    buckets,
    bucket_bytes,
    bucketed_gradient_fraction,
    zero_stage,
    gradient_bytes,
    trained_parameters,
    trained_expert_parameters,
):
    """Memory of buckets of gradients on their way."""
    every = gradient_bytes * (trained_parameters + trained_expert_parameters)
    copies = xp.where(zero_stage < 1.0, bucketed_gradient_fraction * every, 0.0)
    return has_backward * xp.where(dp * cp > 1.0, buckets * bucket_bytes + copies, 0.0)


# What a product hands back whose gradient was added to the sum already; of sharded weights none is.
PLACEHOLDERS = cited(
    "transformerengine", "transformer_engine/pytorch/module/base.py @d0067d0da6, get_dummy_wgrad"
)
ONE_A_SHAPE = "one per weight shape of a layer, kept; the LM head is not counted"
FUSED = "no fused accumulation of sharded gradients, as set by Megatron-FSDP recipes"


@formula(assumes=(ONE_A_SHAPE, "the experts of a layer share theirs", FUSED), **PLACEHOLDERS)
def placeholder_memory(
    has_backward,
    placeholder_bytes,
    zero_stage,
    layer_rank_parameters,
    stage_moe_layers,
    expert_weights,
    etp,
):
    """Dummy weight gradient of a GEMM with fused gradient accumulation."""
    expert = xp.where(stage_moe_layers > 0.0, expert_weights / etp, 0.0)
    kept = has_backward * placeholder_bytes * (layer_rank_parameters + expert)
    return xp.where(zero_stage >= 2.0, 0.0, kept)


@formula(
    returns="placeholder_memory",
    assumes=(ONE_A_SHAPE, FUSED),
    lacks=dict.fromkeys(("layer_rank_parameters", "expert_weights"), FROZEN),
    when={"tuning": "lora"},
    **PLACEHOLDERS,
)
def adapted_placeholder_memory(
    has_backward,
    placeholder_bytes,
    zero_stage,
    lora_rank,
    stage_layers,
    mixer_adapter_width,
    stage_mlp_layers,
    mlp_adapter_width,
    stage_moe_layers,
    shared_adapter_width,
    tp,
):
    """Dummy adapter gradients, one per layer kind."""
    every, dense, routed = (
        xp.minimum(count, 1.0) for count in (stage_layers, stage_mlp_layers, stage_moe_layers)
    )
    mlps = (dense, mlp_adapter_width, routed, shared_adapter_width)
    adapters = _adapters(lora_rank, every, mixer_adapter_width, *mlps)
    kept = has_backward * placeholder_bytes * adapters / tp
    return xp.where(zero_stage >= 2.0, 0.0, kept)


# Parameters that one rank of one stage holds, before any sharding over data parallelism.

# Tensor parallelism as Megatron-LM has it: columns of the first product, rows of the second.
TENSOR = cited("narayanan2021", "section 2.3")
MEGATRON_CODE = "megatron"
ROWS = "the bias of a product that is split by rows is whole on each rank"


@formula(
    source=MEGATRON_CODE,
    where="megatron/core/transformer/attention.py, num_query_groups_per_partition",
    assumes=("with fewer heads than ranks each rank has one, a copy",),
)
def rank_kv_heads(kv_lora_rank, heads, kv_heads, tp):
    """Key and value heads of a rank."""
    return xp.where(kv_lora_rank > 0.0, heads / tp, xp.maximum(kv_heads / tp, 1.0))


@formula(source=MEGATRON_CODE, where="make-vocab-size-divisible-by")
def padded_vocabulary_size(vocabulary_size, vocabulary_multiple, tp):
    """Vocabulary as it is padded, so that every rank has as many rows of the tables."""
    multiple = vocabulary_multiple * tp
    return xp.asarray(multiple * xp.ceil(vocabulary_size / multiple))


@formula(assumes=("learned positions are whole on each rank",), **TENSOR)
def embedding_rank_parameters(
    holds_embedding,
    padded_vocabulary_size,
    hidden_size,
    tp,
    position_parameters,
    embedding_norm,
    norm_parameters,
):
    """Parameters of embedding and positions on one rank; none but where they are held."""
    whole = position_parameters + embedding_norm * norm_parameters
    return holds_embedding * (padded_vocabulary_size * hidden_size / tp + whole)


@formula(assumes=("a tied table that two stages need is held by both",), **TENSOR)
def output_rank_parameters(
    holds_output,
    norm_parameters,
    tied_embeddings,
    holds_embedding,
    padded_vocabulary_size,
    hidden_size,
    tp,
    lm_head_bias,
):
    """Final norm and LM head parameters per rank; 0 on other stages."""
    table = padded_vocabulary_size * hidden_size / tp
    bias = lm_head_bias * padded_vocabulary_size / tp
    head_parameters = (1.0 - tied_embeddings * holds_embedding) * table + bias
    return holds_output * (norm_parameters + head_parameters)


@formula(
    assumes=(
        "a rank that holds two stages keeps states for both",
        "an MTP projection is split by columns; its three norms are whole on each rank",
    ),
    **TENSOR,
)
def stage_parameters(
    weight_copies,
    stage_layers,
    mixer_rank_parameters,
    mixer_norm_parameters,
    norm_parameters,
    stage_mtp_layers,
    mtp_projection_weights,
    tp,
    stage_mlp_layers,
    mlp_rank_parameters,
    mlp_norm_parameters,
    stage_moe_layers,
    shared_rank_parameters,
    embedding_rank_parameters,
    output_rank_parameters,
):
    """Dense parameters per rank."""
    every = stage_layers * (mixer_rank_parameters + mixer_norm_parameters)
    dense = stage_mlp_layers * (mlp_rank_parameters + mlp_norm_parameters)
    mlp = dense + stage_moe_layers * (shared_rank_parameters + norm_parameters)
    further = stage_mtp_layers * (mtp_projection_weights / tp + 3.0 * norm_parameters)
    return (
        weight_copies * (every + mlp + further) + embedding_rank_parameters + output_rank_parameters
    )


BARE: dict[str, Any] = {"shapes": "unknown"}
