"""A stage of the pipeline: its layers by kind, and which ends of the model its rank holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array

PIPELINE: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.2"}
ENDS = "where a rank holds two stages (DualPipe), they are i and pp - 1 - i"


@formula(
    assumes=("where layers don't divide evenly, every stage counts as large as the largest",),
    **PIPELINE,
)
def stage_layers(
    layers: Array,
    pp: Array,
    virtual_stages: Array,
    embedding_as_layer: Array,
    loss_as_layer: Array,
    stage: Array,
) -> Array:
    """Layers of the stage."""
    places = layers + embedding_as_layer + loss_as_layer
    even = virtual_stages * np.ceil(places / (pp * virtual_stages))
    first = np.where(stage == 0.0, embedding_as_layer, 0.0)
    return np.asarray(even - first - np.where(stage == pp - 1.0, loss_as_layer, 0.0))


@formula(assumes=(ENDS,), **PIPELINE)
def holds_embedding(stage: Array, pp: Array, weight_copies: Array) -> Array:
    """Whether the stage's rank holds the embedding."""
    other = (stage == pp - 1.0) & (weight_copies > 1.0)
    return np.where((stage == 0.0) | other, 1.0, 0.0)


@formula(assumes=(ENDS,), **PIPELINE)
def holds_output(stage: Array, pp: Array, weight_copies: Array) -> Array:
    """Whether the stage's rank holds the output layer."""
    other = (stage == 0.0) & (weight_copies > 1.0)
    return np.where((stage == pp - 1.0) | other, 1.0, 0.0)


# Places for layers in one chunk of a stage, of which the embedding may take the very first.
CHUNK = "ceil((layers + embedding_as_layer + loss_as_layer)/(pp*virtual_stages))"
PERIOD = f"maximum(pp*{CHUNK}, 1)"
FIRST = "(dense_layers + embedding_as_layer)"
LEFT = f"{FIRST} % {PERIOD}"
OWN = (
    f"floor({FIRST}/{PERIOD})*{CHUNK} + maximum(minimum({LEFT} - {{0}}*{CHUNK}, {CHUNK}), 0)"
    " - where({0} == 0, embedding_as_layer, 0)"
)
HERE, OPPOSITE = OWN.format("stage"), OWN.format("(pp - 1 - stage)")


@formula(assumes=(f"{ENDS}, and this is their mean",), **PIPELINE)
def stage_leading_layers(
    dense_layers: Array,
    layers: Array,
    pp: Array,
    virtual_stages: Array,
    embedding_as_layer: Array,
    loss_as_layer: Array,
    stage: Array,
    weight_copies: Array,
) -> Array:
    """First dense layers of a mixture of experts that lie in the stage."""
    places = layers + embedding_as_layer + loss_as_layer
    chunk = np.ceil(places / (pp * virtual_stages))
    period = np.maximum(pp * chunk, 1.0)
    leading = dense_layers + embedding_as_layer

    def held(place: Array) -> Array:
        part = np.maximum(np.minimum(leading % period - place * chunk, chunk), 0.0)
        whole = np.floor(leading / period) * chunk + part
        return np.asarray(whole - np.where(place == 0.0, embedding_as_layer, 0.0))

    own = held(stage)
    return np.where(weight_copies > 1.0, (own + held(pp - 1.0 - stage)) / 2.0, own)


@formula(
    assumes=("where one of several layers has experts, a stage has the larger number of them",),
    **PIPELINE,
)
def stage_moe_layers(
    stage_layers: Array,
    stage_leading_layers: Array,
    moe_every: Array,
    moe_layers: Array,
    experts: Array,
) -> Array:
    """Layers of the stage whose MLP is a mixture of experts."""
    after = np.maximum(stage_layers - stage_leading_layers, 0.0)
    routed = np.where(moe_every > 1.0, np.ceil(after / moe_every), after)
    return np.where(experts > 0.0, np.minimum(routed, moe_layers), 0.0)


@formula(**PIPELINE)
def stage_mlp_layers(stage_layers: Array, stage_moe_layers: Array) -> Array:
    """Layers of the stage whose MLP is dense."""
    return np.maximum(stage_layers - stage_moe_layers, 0.0)


# Activations of a stage, logits, buffers, and all parts together.

TOTAL: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.3"}
SUM = "all parts are there at once"
LAST = "one micro-batch at a time"


@formula(**TOTAL)
def stored_activation_memory(
    in_flight_micro_batches: Array,
    rank_tokens: Array,
    stage_mlp_layers: Array,
    kept_dense_layer_activations: Array,
    stage_moe_layers: Array,
    kept_moe_layer_activations: Array,
) -> Array:
    """Memory of the layers' activations of all micro-batches in flight."""
    dense = stage_mlp_layers * kept_dense_layer_activations
    layers = dense + stage_moe_layers * kept_moe_layer_activations
    return in_flight_micro_batches * (rank_tokens * layers)


@formula(
    source="chen2016",
    where="section 4.1",
    assumes=(
        "one layer of one micro-batch is recomputed at a time (without a backward: computed)",
    ),
)
def live_activation_memory(
    rank_tokens: Array,
    stage_mlp_layers: Array,
    dense_layer_activations: Array,
    kept_dense_layer_activations: Array,
    stage_moe_layers: Array,
    moe_layer_activations: Array,
    kept_moe_layer_activations: Array,
) -> Array:
    """Memory of what the one layer that is recomputed has beyond what it kept."""
    dense = np.maximum(dense_layer_activations - kept_dense_layer_activations, 0.0)
    moe = np.maximum(moe_layer_activations - kept_moe_layer_activations, 0.0)
    return rank_tokens * np.maximum(
        np.where(stage_mlp_layers > 0.0, dense, 0.0), np.where(stage_moe_layers > 0.0, moe, 0.0)
    )


@formula(**TOTAL)
def embedding_activation_memory(
    holds_embedding: Array,
    in_flight_micro_batches: Array,
    rank_tokens: Array,
    dropout: Array,
    mask_bytes: Array,
    hidden_size: Array,
    sequence_shards: Array,
) -> Array:
    """Memory of the dropout mask behind the embedding."""
    mask = dropout * mask_bytes * hidden_size * holds_embedding
    return in_flight_micro_batches * (mask * rank_tokens / sequence_shards)


@formula(assumes=(LAST,), **TOTAL)
def output_activation_memory(
    holds_output: Array,
    rank_tokens: Array,
    activation_bytes: Array,
    hidden_size: Array,
    sequence_shards: Array,
) -> Array:
    """Memory of the inputs of the last norm and of the output layer."""
    element = activation_bytes + activation_bytes
    return holds_output * rank_tokens * element * hidden_size / sequence_shards


@formula(assumes=(SUM,), **TOTAL)
def activation_memory(
    stored_activation_memory: Array,
    live_activation_memory: Array,
    embedding_activation_memory: Array,
    output_activation_memory: Array,
) -> Array:
    """Memory of all activations but logits."""
    layers = stored_activation_memory + live_activation_memory
    return layers + embedding_activation_memory + output_activation_memory


@formula(
    source="megatron",
    where="megatron/core/tensor_parallel/cross_entropy.py",
    assumes=(LAST, "the vocabulary is split over tensor-parallel ranks"),
)
def logits_memory(
    holds_output: Array,
    rank_tokens: Array,
    padded_vocabulary: Array,
    tp: Array,
    logit_bytes: Array,
    loss_chunks: Array,
) -> Array:
    """Memory of logits and loss."""
    logits = holds_output * rank_tokens * padded_vocabulary / tp
    return logits * logit_bytes / loss_chunks


@formula(
    source="megatron",
    where="megatron/core/parallel_state.py",
    assumes=("one communicator a dimension of the plan",),
)
def communicators(tp: Array, pp: Array, cp: Array, dp: Array, ep: Array) -> Array:
    """Communicators of more than one rank."""
    groups = (tp, pp, cp, dp * cp, ep)
    return np.asarray(sum(np.where(size > 1.0, 1.0, 0.0) for size in groups))


@formula(
    source="nccl",
    where="src/init.cc, buffer sizes of the protocols",
    assumes=("one receiving connection a channel",),
)
def communicator_memory(
    communicators: Array, communicator_channels: Array, channel_buffer_bytes: Array
) -> Array:
    """Memory of the communicators' buffers."""
    return communicators * communicator_channels * channel_buffer_bytes


@formula(assumes=(SUM,), **TOTAL)
def allocated_memory(
    model_state_memory: Array,
    activation_memory: Array,
    logits_memory: Array,
    gathered_memory: Array,
    pending_gradient_memory: Array,
    bucket_memory: Array,
    placeholder_memory: Array,
    workspace_bytes: Array,
) -> Array:
    """Memory that the framework allocates."""
    # What depends on few axes of a sweep is added up first.
    gradients = pending_gradient_memory + bucket_memory + placeholder_memory
    states = model_state_memory + (gathered_memory + gradients + workspace_bytes)
    return states + (activation_memory + logits_memory)


@formula(
    source="derivation",
    assumes=("the allocator reserves a multiple; communicators and the driver allocate outside",),
)
def memory(
    reserve_factor: Array,
    allocated_memory: Array,
    communicator_memory: Array,
    context_bytes: Array,
) -> Array:
    """Memory of all parts together."""
    reserved = np.asarray(reserve_factor * allocated_memory)
    return reserved + (communicator_memory + context_bytes)


@formula(source="derivation")
def peak_memory(
    first_stage_memory: Array, middle_stage_memory: Array, last_stage_memory: Array
) -> Array:
    """Memory of the fullest stage."""
    return np.maximum(np.maximum(first_stage_memory, middle_stage_memory), last_stage_memory)


@formula(source="derivation")
def headroom(memory_capacity: Array, peak_memory: Array) -> Array:
    """Memory that is left on the fullest stage; below nought the plan doesn't fit."""
    return memory_capacity - peak_memory
