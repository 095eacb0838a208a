"""Memory of a stage: its layers' parts, what they add up to, and the stage that needs most."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import call, cited, formula
from overhead.memory.activations import KEY_GATHER
from overhead.memory.quantities import PARTS
from overhead.model.order import of_stage
from overhead.quantity import Array

PIPELINE = cited("narayanan2021", "section 2.2")
ENDS = "where a rank holds two stages (DualPipe), they are i and pp - 1 - i"


@formula(
    source="megatron",
    where="megatron/core/transformer/transformer_config.py:"
    " account_for_embedding_in_pipeline_split and .._loss_in_pipeline_split",
    assumes=("embedding and LM head both count as layers if only then the stages are even",),
)
def embedding_layer_weight(pipeline_layers, pp, virtual_pipeline_size, count_end_layers):
    """Embedding counted as a layer in the stage split by default (0 or 1)."""
    chunks = pp * virtual_pipeline_size
    uneven = (pipeline_layers % chunks != 0.0) & ((pipeline_layers + 2.0) % chunks == 0.0)
    return xp.where(uneven, 1.0, count_end_layers)


# Layers that predict further tokens: on the last stage, beside the loss.

MTP = cited("megatron", "megatron/core/transformer/multi_token_prediction.py")


@formula(
    assumes=("all MTP layers are on the last stage, and not counted in the stage split", ENDS),
    **MTP,
)
def stage_mtp_layers(mtp_depths, stage, last_stage, weight_copies):
    """MTP layers of the stage."""
    last = xp.where(stage == last_stage, 1.0, 0.0)
    both = (last + xp.where(stage == 0.0, 1.0, 0.0)) / 2.0
    return mtp_depths * xp.where(weight_copies > 1.0, both, last)


@formula(**PIPELINE)
def uneven_places(
    pp, virtual_pipeline_size, pipeline_layers, embedding_layer_weight, head_layer_weight
):
    """Empty layer slots of an uneven stage split."""
    slots = pipeline_layers + embedding_layer_weight + head_layer_weight
    chunks = pp * virtual_pipeline_size
    return chunks * xp.ceil(slots / chunks) - slots


@formula(assumes=("they take places that the last stage has free",), **MTP)
def stage_added_layers(stage_mtp_layers, uneven_places):
    """MTP layers of the stage beyond its layer slots."""
    return xp.maximum(stage_mtp_layers - uneven_places, 0.0)


@formula(
    assumes=("for an uneven split, every stage counts as the largest",),
    **PIPELINE,
)
def stage_layers(
    layers,
    pipeline_layers,
    pp,
    virtual_pipeline_size,
    embedding_layer_weight,
    head_layer_weight,
    stage,
    last_stage,
    stage_added_layers,
):
    """Layers of the stage; the mean with MoE layers as separate pipeline layers."""
    slots = pipeline_layers + embedding_layer_weight + head_layer_weight
    even = virtual_pipeline_size * xp.ceil(slots / (pp * virtual_pipeline_size))
    first = xp.where(stage == 0.0, embedding_layer_weight, 0.0)
    remaining = even - first - xp.where(stage == last_stage, head_layer_weight, 0.0)
    mixers = xp.maximum(remaining, 0.0) * layers / xp.maximum(pipeline_layers, 1.0)
    return xp.asarray(mixers + stage_added_layers)


@formula(
    assumes=(ENDS, "MTP layers need their own copy of the embedding"),
    **PIPELINE,
)
def holds_embedding(stage, last_stage, weight_copies, mtp_depths):
    """Embedding on the stage (0 or 1)."""
    other = (stage == last_stage) & ((weight_copies > 1.0) | (mtp_depths > 0.0))
    return xp.where((stage == 0.0) | other, 1.0, 0.0)


@formula(assumes=(ENDS,), **PIPELINE)
def holds_output(stage, last_stage, weight_copies):
    """LM head on the stage (0 or 1)."""
    other = (stage == 0.0) & (weight_copies > 1.0)
    return xp.where((stage == last_stage) | other, 1.0, 0.0)


@formula(assumes=(f"{ENDS}, and this is their mean",), **PIPELINE)
def stage_leading_layers(
    dense_layers,
    pipeline_layers,
    pp,
    virtual_pipeline_size,
    embedding_layer_weight,
    head_layer_weight,
    stage,
    weight_copies,
):
    """Leading dense layers of an MoE model in the stage."""
    slots = pipeline_layers + embedding_layer_weight + head_layer_weight
    chunk = xp.ceil(slots / (pp * virtual_pipeline_size))
    period = xp.maximum(pp * chunk, 1.0)
    leading = dense_layers + embedding_layer_weight

    def layers_at(position: Array) -> Array:
        part = xp.maximum(xp.minimum(leading % period - position * chunk, chunk), 0.0)
        whole = xp.floor(leading / period) * chunk + part
        ahead = xp.where(position == 0.0, embedding_layer_weight, 0.0)
        return xp.asarray(xp.maximum(whole - ahead, 0.0))

    leading_layers = layers_at(stage)
    return xp.where(
        weight_copies > 1.0, (leading_layers + layers_at(pp - 1.0 - stage)) / 2.0, leading_layers
    )


@formula(
    assumes=(
        "where one of several layers has experts, a stage has the larger number of them",
        "separate MoE layers are spread evenly among the other layers",
    ),
    **PIPELINE,
)
def stage_moe_layers(
    stage_layers,
    stage_added_layers,
    stage_leading_layers,
    moe_layer_frequency,
    moe_layers,
    experts,
    separate_moe_layers,
    routed_layers,
    layers,
):
    """MoE layers of the stage."""
    after = xp.maximum(stage_layers - stage_added_layers - stage_leading_layers, 0.0)
    routed = xp.where(moe_layer_frequency > 1.0, xp.ceil(after / moe_layer_frequency), after)
    # A whole number of them isn't made one more by rounding.
    stated = xp.maximum(separate_moe_layers, routed_layers)
    even = xp.ceil(after * stated / xp.maximum(layers, 1.0) - 1e-9)
    routed = xp.where(stated > 0.0, even, routed)
    further = xp.where(moe_layers > 0.0, stage_added_layers, 0.0)
    return xp.where(experts > 0.0, xp.minimum(routed, moe_layers) + further, 0.0)


@formula(**PIPELINE)
def stage_mlp_layers(stage_layers, stage_moe_layers):
    """Layers of the stage whose MLP is dense."""
    return xp.maximum(stage_layers - stage_moe_layers, 0.0)


# Activations of a stage, logits, buffers, and all parts together.

TOTAL = cited("korthikanti2022", "section 4.3")
SUM = "all parts exist at the same time"
LAST = "one micro-batch at a time"


@formula(**TOTAL)
def micro_batch_activation_memory(
    rank_tokens,
    stage_mlp_layers,
    stage_lone_moe_layers,
    kept_dense_layer_activations,
    stage_moe_layers,
    kept_moe_layer_activations,
):
    """Saved activations of the stage per micro-batch, GPU or CPU."""
    dense = (stage_mlp_layers - stage_lone_moe_layers) * kept_dense_layer_activations
    kept = dense + stage_moe_layers * kept_moe_layer_activations
    return rank_tokens * xp.maximum(kept, 0.0)


@formula(
    returns="micro_batch_activation_memory",
    assumes=("gathered keys and values are kept, if at all, where attention is not recomputed",),
    **KEY_GATHER,
)
def gathered_activation_memory(
    rank_tokens,
    stage_mlp_layers,
    stage_lone_moe_layers,
    kept_dense_layer_activations,
    stage_moe_layers,
    kept_moe_layer_activations,
    has_backward,
    kept_keys,
    recomputed_attentions,
    stage_layers,
    attention_layer_fraction,
    gathered_key_activations,
):
    """Saved activations of the stage per micro-batch, with keys and values of other ranks."""
    layers = micro_batch_activation_memory(
        rank_tokens,
        stage_mlp_layers,
        stage_lone_moe_layers,
        kept_dense_layer_activations,
        stage_moe_layers,
        kept_moe_layer_activations,
    )
    kept = has_backward * kept_keys * xp.maximum(1.0 - recomputed_attentions, 0.0)
    others = stage_layers * attention_layer_fraction * gathered_key_activations
    return layers + kept * rank_tokens * others


@formula(**TOTAL)
def saved_activation_memory(
    in_flight_micro_batches, micro_batch_activation_memory, offloaded_activation_memory
):
    """On-GPU layer activations of all in-flight micro-batches."""
    kept = in_flight_micro_batches * micro_batch_activation_memory
    return xp.maximum(kept - offloaded_activation_memory, 0.0)


@formula(**TOTAL)
def embedding_activation_memory(
    holds_embedding,
    in_flight_micro_batches,
    rank_tokens,
    dropout,
    mask_bytes,
    hidden_size,
    sequence_shards,
):
    """Memory of the dropout mask behind the embedding."""
    mask = dropout * mask_bytes * hidden_size * holds_embedding
    return in_flight_micro_batches * (mask * rank_tokens / sequence_shards)


@formula(assumes=(LAST, "per MTP depth: inputs of four norms and GEMMs"), **TOTAL)
def output_activation_memory(
    holds_output,
    rank_tokens,
    activation_bytes,
    norm_kept_bytes,
    mtp_depths,
    matmul_input_bytes,
    hidden_size,
    sequence_shards,
):
    """Final norm and LM head inputs, MTP included."""
    further = mtp_depths * (4.0 * activation_bytes + 2.0 * matmul_input_bytes)
    element = norm_kept_bytes + activation_bytes + further
    return holds_output * rank_tokens * element * hidden_size / sequence_shards


@formula(
    source="torchtitan",
    where="torchtitan/models/llama3/infra/parallelize.py @018740b7aa, apply_tp: attention and"
    " feed_forward take their inputs whole (PrepareModuleInput to Replicate)",
    assumes=("one layer at a time has whole gradients of block inputs",),
)
def gathered_sequence_memory(
    gathered_sequences, rank_tokens, hidden_size, sequence_shards, activation_bytes, has_backward
):
    """Gradients of whole block inputs, without the local shard."""
    others = hidden_size * (1.0 - 1.0 / sequence_shards)
    return has_backward * gathered_sequences * rank_tokens * others * activation_bytes


@formula(
    returns="gathered_sequence_memory",
    assumes=(
        "one layer at a time has keys and values of all tokens, and as many gradients",
        "a ring has three gradients in single precision: accumulated, sent and received",
        "every stage has a layer of attention, if any has",
    ),
    **KEY_GATHER,
)
def gathered_key_memory(
    gathered_sequences,
    rank_tokens,
    hidden_size,
    sequence_shards,
    activation_bytes,
    has_backward,
    gathered_key_activations,
    attention_layer_fraction,
    ring_key_gradients,
    cp,
    single_bytes,
):
    """Gradients of whole block inputs; keys and values that context-parallel ranks gather."""
    sequences = gathered_sequence_memory(
        gathered_sequences,
        rank_tokens,
        hidden_size,
        sequence_shards,
        activation_bytes,
        has_backward,
    )
    own = gathered_key_activations / xp.maximum(cp - 1.0, 1.0)
    element = xp.where(activation_bytes > 0.0, activation_bytes, single_bytes)
    ring = 3.0 * (single_bytes / element) * own
    gradients = xp.where(ring_key_gradients > 0.0, ring, gathered_key_activations)
    both = rank_tokens * (gathered_key_activations + has_backward * gradients)
    return sequences + xp.where(attention_layer_fraction > 0.0, both, 0.0)


@formula(assumes=(SUM,), **TOTAL)
def activation_memory(
    saved_activation_memory,
    recompute_activation_memory,
    embedding_activation_memory,
    output_activation_memory,
    gathered_sequence_memory,
):
    """Memory of all activations but logits."""
    layers = saved_activation_memory + recompute_activation_memory + gathered_sequence_memory
    return layers + embedding_activation_memory + output_activation_memory


@formula(
    source="megatron",
    where="megatron/core/parallel_state.py",
    assumes=("one communicator a dimension of the plan",),
)
def communicators(tp, pp, cp, dp, ep):
    """Communicators of more than one rank."""
    groups = (tp, pp, cp, dp * cp, ep)
    return xp.asarray(sum(xp.where(size > 1.0, 1.0, 0.0) for size in groups))


EXCHANGE = cited(
    "hybridep", "csrc/hybrid_ep/buffer/intranode.cu @94a9f8f6b1: allocate_combine_buffers"
)


@formula(
    returns="expert_exchange_memory",
    assumes=(
        "room for all tokens of all ranks, whatever is sent; dispatch and combine share it",
        "in addition to activations: a probability per expert of the node, a scale per 128 "
        "elements",
    ),
    when={"dispatcher": "deduplicated"},
    **EXCHANGE,
)
def deduplicated_exchange_memory(
    rank_tokens, tp, ep, gpus_per_node, expert_hidden_size, experts, activation_bytes, single_bytes
):
    """MoE dispatch and combine buffers, deduplicated per node."""
    near = experts * xp.minimum(gpus_per_node, ep) / ep
    token = activation_bytes * expert_hidden_size + single_bytes * (
        near + expert_hidden_size / 128.0
    )
    return xp.where((experts > 0.0) & (ep > 1.0), rank_tokens / tp * ep * token, 0.0)


@formula(
    source="nccl",
    where="src/init.cc, buffer sizes of the protocols",
    assumes=("one receiving connection a channel",),
)
def nccl_buffer_memory(
    communicators, communicator_channels, channel_buffer_bytes, expert_exchange_memory
):
    """NCCL buffers, including MoE dispatch buffers."""
    return communicators * communicator_channels * channel_buffer_bytes + expert_exchange_memory


@formula(
    source="derivation",
    assumes=("communicators and the driver allocate outside",),
)
def memory(reserved_memory, nccl_buffer_memory, context_bytes):
    """Memory of all parts together."""
    return reserved_memory + (nccl_buffer_memory + context_bytes)


@formula(source="derivation")
def peak_memory(first_stage_memory, second_stage_memory, expert_stage_memory, last_stage_memory):
    """Peak memory per GPU."""
    between = xp.maximum(second_stage_memory, expert_stage_memory)
    return xp.maximum(xp.maximum(first_stage_memory, between), last_stage_memory)


# Memory of the fullest stage of a pipeline, by part: of the stages that can be it, each once.
#
# From the second stage on less and less is in flight, so of the middle stages the second is the
# fullest, or in a mixture of experts the first one without dense layers.

DERIVED = "derivation"
CANDIDATES = ("first_stage", "second_stage", "expert_stage", "last_stage")
# What the fullest stage's memory is made of.
PEAK_PARTS = tuple(f"peak_{part}" for part in PARTS)


@formula(source=DERIVED)
def second_stage(pp):
    """Index of the second stage, or of the only one."""
    return xp.minimum(pp - 1.0, 1.0)


@formula(source=DERIVED)
def last_stage(pp, folded_pipeline):
    """Index of the stage with the last layers: of a folded pipeline the first."""
    return (1.0 - folded_pipeline) * (pp - 1.0)


@formula(source=DERIVED)
def expert_stage(
    dense_layers,
    pp,
    virtual_pipeline_size,
    pipeline_layers,
    embedding_layer_weight,
    head_layer_weight,
):
    """The second stage, or the first one with as few of the leading dense layers as any."""
    slots = pipeline_layers + embedding_layer_weight + head_layer_weight
    chunk = xp.maximum(xp.ceil(slots / (pp * virtual_pipeline_size)), 1.0)
    leading = xp.ceil((dense_layers + embedding_layer_weight) % (pp * chunk) / chunk)
    return xp.minimum(xp.maximum(leading, xp.minimum(pp - 1.0, 1.0)), pp - 1.0)


for _stage in CANDIDATES:
    of_stage(f"{_stage}_memory", "memory", _stage)


@formula(source=DERIVED, assumes=("of equals the first",))
def fullest_candidate(first_stage_memory, peak_memory, second_stage_memory, expert_stage_memory):
    """Candidate stage with the highest memory use, from 0."""
    later = xp.where(expert_stage_memory == peak_memory, 2.0, 3.0)
    later = xp.where(second_stage_memory == peak_memory, 1.0, later)
    return xp.where(first_stage_memory == peak_memory, 0.0, later)


def _choose(candidate, *values):
    first, two, three, last = values  # Of which that of the fullest stage is chosen
    if all(value is first for value in values):
        return first
    lowest = xp.min(candidate)
    if lowest == xp.max(candidate):
        chosen = values[int(lowest)]
        return xp.broadcast_to(chosen, xp.broadcast_shapes(candidate.shape, *map(xp.shape, values)))
    later = xp.where(candidate == 3.0, last, two)
    if three is not two:
        later = xp.where(candidate == 2.0, three, later)
    return xp.where(candidate == 0.0, first, later)


def _of_fullest(returns: str, *names: str) -> None:
    """Declare a quantity as that of the fullest stage."""
    which = "fullest_candidate"
    first, two, three, last = names
    formula(
        returns=returns,
        expression=f"where({which} == 0, {first}, where({which} == 1, {two},"
        f" where({which} == 2, {three}, {last})))",
        source=DERIVED,
        inputs=(which, *names),
        name=returns,
    )(_choose)


_of_fullest("peak_memory_stage", *CANDIDATES)
_of_fullest("peak_part", *(f"{stage}_part" for stage in CANDIDATES))
of_stage("first_stage_model_state_memory", "model_state_memory", "first_stage")
for _part in PARTS:
    for _stage in CANDIDATES:
        of_stage(f"{_stage}_{_part}", _part, _stage)
    _parts = {f"{stage}_part": f"{stage}_{_part}" for stage in CANDIDATES}
    call(returns=f"peak_{_part}", of="peak_part", bind=_parts)
