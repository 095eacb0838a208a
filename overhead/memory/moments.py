"""What is on a GPU at the moments of a step: where most is, it peaks.

The allocator's peak is the most of four moments: as the loss is computed, as the backward pass of
the layers begins, as it ends, and at the update.  Memory that the process reserves is more: blocks
that are freed stay with the stream and the size they were cut for, so that each part has its room.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula
from overhead.memory.stage import CANDIDATES
from overhead.model.order import of_stage

GRADIENTS = cited(
    "pytorch",
    "torch/optim/optimizer.py, zero_grad: gradients are freed, and made in the backward",
)
CASTS = cited(
    "pytorch",
    "aten/src/ATen/autocast_mode.cpp @008ec6b184, cached_cast: of trained leaves",
)
ALLOCATOR = cited(
    "pytorch",
    "c10/cuda/CUDACachingAllocator.cpp: free blocks serve the stream they are of;"
    " torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py @010ae4a895: separate streams",
)
FREED = "logits are freed before layers run backward, activations before the update"


# Copies of weights in 16 bits that torch.autocast makes.


@formula(assumes=("the embedding has none",), **CASTS)
def total_cast_memory(
    cast_weight_bytes, stage_parameters, stage_expert_parameters, embedding_rank_parameters
):
    """Memory of the casts of all GEMM weights."""
    taken = stage_parameters + stage_expert_parameters - embedding_rank_parameters
    return cast_weight_bytes * xp.maximum(taken, 0.0)


@formula(assumes=("recomputed layers make theirs again, one layer at a time",), **CASTS)
def saved_cast_memory(
    cast_weight_bytes,
    recomputed_fraction,
    total_cast_memory,
    output_rank_parameters,
    layer_rank_parameters,
    layer_rank_expert_parameters,
):
    """Memory of weight casts saved for the backward pass."""
    layer = cast_weight_bytes * (layer_rank_parameters + layer_rank_expert_parameters)
    again = xp.minimum(layer + cast_weight_bytes * output_rank_parameters, total_cast_memory)
    return total_cast_memory - recomputed_fraction * (total_cast_memory - again)


@formula(
    assumes=("weights in FSDP are views and not cached, nor are frozen weights",),
    **CASTS,
)
def weight_cast_memory(total_cast_memory, saved_cast_memory, zero_stage, trained_weights):
    """Memory of weight casts at the end of the forward pass."""
    cached = (zero_stage < 1.0) & (trained_weights > 0.0)
    return xp.where(cached, total_cast_memory, saved_cast_memory)


# Gradients before a backward pass, and what the update needs beside its states.


@formula(
    assumes=(
        "gradients that are sharded once a step are whole until then, and give way to their shards",
    ),
    **GRADIENTS,
)
def accumulated_gradient_memory(
    preallocated_gradients, reduce_every_micro_batch, gradient_memory, unsharded_gradient_memory
):
    """Memory of accumulated gradients, sharded and not yet."""
    beside = (preallocated_gradients > 0.0) | (reduce_every_micro_batch > 0.0)
    both = gradient_memory + unsharded_gradient_memory
    return xp.where(beside, both, xp.maximum(gradient_memory, unsharded_gradient_memory))


@formula(**GRADIENTS)
def earlier_gradient_memory(preallocated_gradients, num_micro_batches, accumulated_gradient_memory):
    """Memory of gradients before the backward pass of a micro-batch."""
    there = (preallocated_gradients > 0.0) | (num_micro_batches > 1.0)
    return xp.where(there, accumulated_gradient_memory, 0.0)


@formula(
    source="pytorch",
    where="torch/optim/adam.py, _multi_tensor_adam: exp_avg_sq_sqrt, a tensor a parameter",
    assumes=("an update on the host has none on the GPU",),
)
def update_temporary_memory(
    has_backward,
    update_bytes,
    optimizer_offload,
    zero_stage,
    trained_parameters,
    trained_expert_parameters,
    shards,
    expert_shards,
):
    """Memory of optimizer temporaries."""
    sharded = zero_stage >= 1.0
    dense = trained_parameters / xp.where(sharded, shards, 1.0)
    experts = trained_expert_parameters / xp.where(sharded, expert_shards, 1.0)
    return has_backward * update_bytes * (1.0 - optimizer_offload) * (dense + experts)


@formula(
    assumes=(
        "the reduction input of a layer is held while the next layer is recomputed",
        "buffers that are allocated once have room for it",
    ),
    source="fsdp2",
    where="_fsdp_collectives.py @010ae4a895, foreach_reduce: reduce_scatter_input",
)
def reduced_gradient_memory(
    has_backward,
    preallocated_gradients,
    zero_stage,
    shards,
    trained_weights,
    reduction_bytes,
    layer_rank_parameters,
    layer_rank_expert_parameters,
):
    """Memory of the gradients of a layer before they are sharded."""
    split = (zero_stage >= 2.0) & (shards > 1.0) & (preallocated_gradients < 1.0)
    layer = trained_weights * (layer_rank_parameters + layer_rank_expert_parameters)
    return xp.where(split, has_backward * reduction_bytes * layer, 0.0)


# The moments.


@formula(**GRADIENTS)
def lasting_memory(
    weight_memory, optimizer_memory, bucket_memory, placeholder_memory, workspace_bytes
):
    """Memory allocated throughout a step."""
    return weight_memory + optimizer_memory + (bucket_memory + placeholder_memory + workspace_bytes)


@formula(assumes=(FREED,), **GRADIENTS)
def loss_time_memory(
    lasting_memory,
    earlier_gradient_memory,
    zero3_gathered_memory,
    weight_cast_memory,
    saved_activation_memory,
    embedding_activation_memory,
    output_activation_memory,
    logits_memory,
):
    """Memory allocated during the loss."""
    weights = lasting_memory + earlier_gradient_memory + zero3_gathered_memory + weight_cast_memory
    layers = saved_activation_memory + embedding_activation_memory
    return weights + (layers + output_activation_memory + logits_memory)


@formula(
    assumes=(FREED, "gradients of hidden states take the room of the LM head's inputs"),
    **GRADIENTS,
)
def backward_start_memory(
    lasting_memory,
    earlier_gradient_memory,
    unsharded_gradient_memory,
    reduced_gradient_memory,
    live_gathered_memory,
    saved_cast_memory,
    saved_activation_memory,
    embedding_activation_memory,
    output_activation_memory,
    recompute_activation_memory,
    gathered_sequence_memory,
):
    """Memory allocated at the start of the backward pass of layers."""
    gradients = xp.maximum(earlier_gradient_memory, unsharded_gradient_memory)
    gradients = gradients + reduced_gradient_memory
    weights = lasting_memory + gradients + live_gathered_memory + saved_cast_memory
    layers = saved_activation_memory + embedding_activation_memory + output_activation_memory
    return weights + (layers + recompute_activation_memory + gathered_sequence_memory)


@formula(
    assumes=(FREED, "activations of one layer are left", "in between, memory changes linearly"),
    **GRADIENTS,
)
def backward_end_memory(
    lasting_memory,
    accumulated_gradient_memory,
    reduced_gradient_memory,
    live_gathered_memory,
    micro_batch_activation_memory,
    stage_layers,
    recompute_activation_memory,
    gathered_sequence_memory,
):
    """Memory allocated at the end of the backward pass."""
    gradients = accumulated_gradient_memory + reduced_gradient_memory
    weights = lasting_memory + gradients + live_gathered_memory
    left = micro_batch_activation_memory / xp.maximum(stage_layers, 1.0)
    return weights + (left + recompute_activation_memory + gathered_sequence_memory)


@formula(assumes=(FREED, "no more is allocated in the backward pass than is reserved"), **GRADIENTS)
def allocated_memory(
    loss_time_memory,
    backward_start_memory,
    backward_end_memory,
    reserved_memory,
    lasting_memory,
    gradient_memory,
    update_temporary_memory,
):
    """Peak memory allocated by the framework: the maximum over a step."""
    backward = xp.maximum(backward_start_memory, backward_end_memory)
    backward = xp.minimum(backward, reserved_memory)
    update = lasting_memory + gradient_memory + update_temporary_memory
    return xp.maximum(xp.maximum(loss_time_memory, backward), update)


# Of a pipeline's stages the one with most: those that can be it, each once.
for _stage in CANDIDATES:
    of_stage(f"{_stage}_allocated_memory", "allocated_memory", _stage)


@formula(source="derivation")
def peak_allocated_memory(
    first_stage_allocated_memory,
    second_stage_allocated_memory,
    expert_stage_allocated_memory,
    last_stage_allocated_memory,
):
    """Peak memory allocated by the framework, peak stage."""
    between = xp.maximum(second_stage_allocated_memory, expert_stage_allocated_memory)
    ends = xp.maximum(first_stage_allocated_memory, last_stage_allocated_memory)
    return xp.maximum(ends, between)


@formula(
    assumes=("no part's free blocks serve another part: of all the most that each had is kept",),
    **ALLOCATOR,
)
def reserved_memory(
    allocator_reserve_ratio,
    model_state_memory,
    weight_cast_memory,
    activation_memory,
    logits_memory,
    zero3_gathered_memory,
    unsharded_gradient_memory,
    bucket_memory,
    placeholder_memory,
    workspace_bytes,
):
    """Memory reserved by the framework."""
    # What depends on few axes of a sweep is added up first.
    gradients = unsharded_gradient_memory + bucket_memory + placeholder_memory
    states = model_state_memory + (zero3_gathered_memory + gradients + workspace_bytes)
    layers = weight_cast_memory + (activation_memory + logits_memory)
    return xp.asarray(allocator_reserve_ratio * (states + layers))
