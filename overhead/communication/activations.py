"""Tensor and pipeline parallelism: activations between ranks that share layers, and stages.

Tensor-parallel ranks exchange them at the ends of each block, a layer's two.  Without sequence
parallelism every block ends, in each direction, with an all_reduce.  With it a block begins with
an all_gather and ends with a reduce_scatter, of the same bytes together; and the gradient of its
weights needs the saved input gathered once more.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import (
    OPERATIONS,
    WAYS,
    Factors,
    added,
    on_network,
    operation,
    times,
)
from overhead.formula import cited, derived, formula

WHOLE = cited("narayanan2021", "section 2.3")
SPLIT = cited("korthikanti2022", "section 4.2.2")
TP: dict[str, Any] = {
    "dimension": "tp",
    "group": "tp",
    "each": ("max_stage_tp_blocks",),
    "share": "tp_block_balance",
    **WHOLE,
}


@formula(
    source="derivation",
    assumes=(
        "modules kept in BF16 gather BF16 input; the mean of the two blocks of a layer",
        "with adapters the input is gathered once, in BF16",
    ),
)
def tp_gather_message_bytes(
    trained_weights,
    tp_gather_byte_ratio,
    low_precision_attention_fraction,
    low_precision_layer_fraction,
    tp_message_bytes,
):
    """Gathered TP block input of a micro-batch per rank."""
    narrow = 0.5 * (low_precision_attention_fraction + low_precision_layer_fraction)
    return (1.0 - trained_weights * narrow * (1.0 - tp_gather_byte_ratio)) * tp_message_bytes


WITHOUT, WITH = ("replicated_activations",), ("sequence_parallel",)
AT_BLOCKS = {**TP, "message": "tp_gather_message_bytes"}
GATHERED = {**AT_BLOCKS, "repeated": "recomputed_gathers"}
REDUCED = {**TP, "message": "tp_message_bytes", "repeated": "recomputed_reductions"}
operation(
    "tp_all_reduce",
    "all-reduce of TP block output",
    "all_reduce",
    forward=WITHOUT,
    backward=WITHOUT,
    **REDUCED,
)
for _name, _words, _collective, _said in (
    ("tp_all_gather", "TP block input", "all_gather", GATHERED),
    ("tp_reduce_scatter", "TP block output", "reduce_scatter", REDUCED),
):
    _title = f"{_collective.replace('_', '-')} of {_words}"
    operation(_name, _title, _collective, forward=WITH, backward=WITH, **_said)
operation(
    "tp_weight_gather",
    "all-gather of saved TP input (wgrad)",
    "all_gather",
    backward=("weight_gathers",),
    **AT_BLOCKS,
)


@formula(assumes=("software that keeps whole inputs gathers them once",), **SPLIT)
def weight_gathers(sequence_parallel, gathered_sequences):
    """TP all-gathers of saved block inputs, backward: one, unless they are kept whole."""
    return xp.where(gathered_sequences > 0.0, 0.0, sequence_parallel)


# One layer and micro-batch: a mixer's block, and one of its MLP or shared experts if it has any.

OF_BLOCK = ("tp_all_reduce", "tp_all_gather", "tp_reduce_scatter")
GATHERS_AGAIN = ("a gather's backward is a reduce_scatter, and the other way round",)
MLP_ALONE = "of a layer's modules the MLP alone, or shared experts, are a block that is repeated"
LACKING = dict.fromkeys(("recomputed_reductions", "recomputed_gathers"), MLP_ALONE)
for _layer, _blocks in (("tp_layer", "dense_layer_blocks"), ("tp_moe_layer", "moe_layer_blocks")):
    _of: Factors = (_blocks,)
    added(f"{_layer}_forward_time", times(OF_BLOCK, "forward", factors=_of), **SPLIT)
    _back = times(OF_BLOCK, "backward", factors=_of)
    added(f"{_layer}_backward_time", _back, assumes=GATHERS_AGAIN, **SPLIT)
    added(f"{_layer}_gather_time", times(("tp_weight_gather",), "backward", factors=_of), **SPLIT)
    added(f"{_layer}_recompute_time", times(OF_BLOCK, "recompute", factors=_of), **SPLIT)
added("tp_reduction_time", times(("tp_all_reduce", "tp_reduce_scatter"), "backward"), **SPLIT)
# Of recomputed modules the MLP of a dense layer is a block, and shared experts are one.
_said = {"lacks": LACKING, "when": {"recompute": "selective"}, **SPLIT}
for _layer, _of in (
    ("tp_layer", ("recompute_mlp", ("dense_layer_blocks", -1.0))),
    ("tp_moe_layer", ("recomputed_shared_experts", ("moe_layer_blocks", -1.0))),
):
    added(f"{_layer}_recompute_time", times(OF_BLOCK, "forward", factors=_of), **_said)


# Embedding, output layer and loss, whose vocabulary is split over tensor-parallel ranks.
#
# A rank looks up the tokens of its part of the vocabulary, and the results are added up; the output
# layer's input gradient likewise.  The loss needs of every token the largest logit, the sum of
# exponentials and the logit of the right answer.  A table that both ends of a pipeline hold has its
# gradients added up once a step.

LOSS = cited("megatron", "megatron/core/tensor_parallel/cross_entropy.py")
TIED = cited("megatron", "megatron/core/distributed/finalize_model_grads.py")
UNKNOWN = {"shapes": "unknown"}
END: dict[str, Any] = {"dimension": "vocabulary", "group": "tp", "share": "end_stage_fraction"}


# A further token has an embedding of its own, looked up on the last stage.  Its projection's
# columns are split and its results gathered, whose gradients every rank has; what it takes, a
# hidden state beside the embedding, is twice as wide as an activation.

JOINED = cited(
    "megatron", "megatron/core/transformer/multi_token_prediction.py, _concat_embeddings"
)


@formula(**JOINED)
def mtp_message_bytes(tp_message_bytes):
    """Hidden states and MTP embeddings of a micro-batch per rank."""
    return 2.0 * tp_message_bytes


@formula(**JOINED)
def mtp_gather_message_bytes(tp_gather_message_bytes):
    """Gathered hidden states and MTP embeddings of a micro-batch per rank."""
    return 2.0 * tp_gather_message_bytes


# A position predicts the next token and further ones, each by logits of its own.
PREDICTED: dict[str, Any] = {**END, **SPLIT, "each": ((1.0, "mtp_depths"),)}
FURTHER: dict[str, Any] = {**END, **SPLIT, "each": ("mtp_depths",)}
GRADIENTS: dict[str, Any] = {**FURTHER, "message": "mtp_message_bytes"}
INPUT: dict[str, Any] = {**FURTHER, "message": "mtp_gather_message_bytes"}
STATISTICS: dict[str, Any] = {**PREDICTED, "message": "loss_message_bytes", **LOSS}
for _name, _words, _forward, _backward, _said in (
    ("embedding_all_reduce", "embedding activations", WITHOUT, None, {**END, **SPLIT}),
    ("embedding_all_gather", "embedding activation gradients", None, WITH, {**END, **SPLIT}),
    ("embedding_reduce_scatter", "embedding activations", WITH, None, {**END, **SPLIT}),
    ("logits_all_reduce", "LM head input gradients", None, WITHOUT, PREDICTED),
    ("logits_all_gather", "LM head input", WITH, WITH, PREDICTED),
    ("logits_reduce_scatter", "LM head input gradients", None, WITH, PREDICTED),
    ("mtp_all_reduce", "MTP embeddings", WITHOUT, None, FURTHER),
    # Of the backward, gradients of the embedding and of the projection
    ("mtp_all_gather", "MTP projections", (1.0,), (2.0, *WITH), {**FURTHER, **JOINED}),
    ("mtp_reduce_scatter", "MTP embeddings", WITH, None, FURTHER),
    ("mtp_input_all_reduce", "MTP projection input gradients", None, WITHOUT, GRADIENTS),
    ("mtp_input_all_gather", "MTP projection input", WITH, WITH, INPUT),
    ("mtp_input_reduce_scatter", "MTP projection input gradients", None, WITH, GRADIENTS),
    # Without a backward there is no loss
    ("loss_all_reduce", "loss statistics", (3.0, "has_backward"), None, STATISTICS),
):
    _collective = "_".join(_name.split("_")[-2:])
    _title = f"{_collective.replace('_', '-')} of {_words}"
    _said = {"message": "tp_message_bytes", **_said}
    operation(_name, _title, _collective, forward=_forward, backward=_backward, **_said)
operation(
    "tied_all_reduce",
    "all-reduce of tied embedding gradients",
    "all_reduce",
    "tied_message_bytes",
    dimension="vocabulary",
    group="ends",
    share="end_pair_fraction",
    own=("backward_count",),
)


@formula(
    assumes=(
        "a rank with both embedding and LM head reduces all its gradients with its peers anyway",
    ),
    **TIED,
)
def tied_all_reduce_backward_count(
    pp, weight_copies, folded_pipeline, has_backward, tied_embeddings, mtp_depths
):
    """All-reduces of tied embedding gradients per step: one, unless a rank has both tables."""
    both = xp.where(mtp_depths > 0.0, 1.0, tied_embeddings)
    same_rank = (weight_copies > 1.0) | (folded_pipeline > 0.0)
    once = xp.where(same_rank, 0.0, has_backward * both)
    return xp.where(pp > 1.0, once, 0.0)


# One micro-batch.

EMBEDDING = ("embedding_all_reduce", "embedding_reduce_scatter", "embedding_all_gather")
LOGITS = ("logits_all_reduce", "logits_all_gather", "logits_reduce_scatter", "loss_all_reduce")
MTP = (
    "mtp_all_gather",
    "mtp_all_reduce",
    "mtp_reduce_scatter",
    "mtp_input_all_reduce",
    "mtp_input_all_gather",
    "mtp_input_reduce_scatter",
)
added(
    "vocabulary_first_time",
    times(EMBEDDING, "forward") + times(EMBEDDING, "backward", factors=("has_backward",)),
    **SPLIT,
)
added("mtp_communication_time", times(MTP, *WAYS, factors=FURTHER["each"]), **JOINED)
_last = times(LOGITS, "forward", factors=PREDICTED["each"])
_last += times(LOGITS, "backward", factors=("has_backward", *PREDICTED["each"]))
added("vocabulary_last_time", [*_last, ("mtp_communication_time",)], **SPLIT)


# Pipeline parallelism.
#
# A micro-batch passes pp*virtual_pipeline_size - 1 boundaries in each direction.  A rank between
# the ends sends, and receives, one message a virtual stage, micro-batch and direction; where there
# are two stages, one of either's messages has nowhere to go.

STAGES = cited("narayanan2021", "section 2.2")
IN_PARTS = cited("narayanan2021", "section 4.1")


@formula(**IN_PARTS)
def pp_message_bytes(tp_message_bytes, residual_streams, sequence_parallel, scatter_gather, tp):
    """What a rank sends to the next stage: its part, if activations are split, else the whole."""
    whole = xp.maximum(residual_streams, 1.0) * tp_message_bytes
    return whole / xp.where(sequence_parallel + scatter_gather > 0.0, tp, 1.0)


@formula(**IN_PARTS)
def gathered_at_stages(tp, scatter_gather, replicated_activations):
    """PP activations received in parts are gathered: not with sequence parallelism."""
    return xp.where(tp > 1.0, scatter_gather * replicated_activations, 0.0)


@formula(**STAGES)
def pp_message_balance(pp, virtual_pipeline_size):
    """Pipeline messages per stage, mean / max: the first chunk receives none."""
    return (pp * virtual_pipeline_size - 1.0) / (pp * virtual_pipeline_size)


operation(
    "pp_transfer",
    "send/recv of PP activations or gradients",
    "p2p",
    "pp_message_bytes",
    dimension="pp",
    group="boundary",
    forward=("virtual_pipeline_size",),
    backward=("virtual_pipeline_size",),
    own=("volume", "total_energy"),
    **STAGES,
)
operation(
    "pp_gather",
    "all-gather of PP activations received in parts",
    "all_gather",
    "tp_message_bytes",
    dimension="pp",
    group="tp",
    share="pp_message_balance",
    forward=("gathered_at_stages",),
    backward=("gathered_at_stages",),
    passes=OPERATIONS["pp_transfer"].counts,
    **IN_PARTS,
)
on_network("pp_inner_energy", "energy", "inner_boundary", "p2p", "pp_message_bytes")


@formula(**STAGES)
def pp_transfer_volume(
    pp_transfer_sent_bytes, pp, virtual_pipeline_size, num_micro_batches, backward_passes
):
    """PP bytes sent to neighboring stages per rank and step (maximum)."""
    forward = virtual_pipeline_size * num_micro_batches
    both = forward + virtual_pipeline_size * backward_passes
    two = xp.where(pp > 1.0, xp.maximum(both - num_micro_batches, forward), 0.0)
    return pp_transfer_sent_bytes * xp.where(pp > 2.0, both, two)


@derived()
def pp_transfer_total_energy(
    tp,
    cp,
    dp,
    num_micro_batches,
    has_backward,
    node_boundaries,
    virtual_pipeline_size,
    pp_transfer_energy,
    pp,
    folded_pipeline,
    pp_inner_energy,
):
    """PP transfer energy per step of all pipelines, inter-node and intra-node."""
    # Boundaries on a micro-batch's way through all virtual stages, and those between nodes: from
    # one to the next it goes from the last stage back to the first, or turns where it is.
    back = (1.0 - folded_pipeline) * (virtual_pipeline_size - 1.0)
    crossing = virtual_pipeline_size * node_boundaries + back
    across = xp.where(node_boundaries > 0.0, crossing, 0.0)
    inside = xp.maximum(virtual_pipeline_size * (pp - 1.0) + back - across, 0.0)
    ways = tp * cp * dp * num_micro_batches * (1.0 + has_backward)
    return ways * (across * pp_transfer_energy + inside * pp_inner_energy)


@formula(assumes=("all boundaries take as long as one between nodes, if there is any",), **IN_PARTS)
def p2p_time(pp_transfer_time, gathered_at_stages, pp_gather_time):
    """Time of one transfer between neighbouring stages, until the next can begin."""
    return pp_transfer_time + gathered_at_stages * pp_gather_time
