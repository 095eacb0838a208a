"""Tensor and pipeline parallelism: activations between ranks that share layers, and stages.

Tensor-parallel ranks exchange them at the ends of each block, a layer's two.  Without sequence
parallelism every block ends, in each direction, with an all_reduce.  With it a block begins with
an all_gather and ends with a reduce_scatter, of the same bytes together; and the gradient of its
weights needs the saved input gathered once more.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import declared, never, on_network, operation
from overhead.formula import alias, constant, declare, derived, formula, product
from overhead.quantity import Array

WHOLE: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.3"}
SPLIT: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.2.2"}
TP: dict[str, Any] = {
    "dimension": "tp",
    "group": "tp",
    "message": "tp_message_bytes",
    "share": "tp_share",
}


product("tp_message_bytes", ("communication_bytes", "rank_tokens", "hidden_size"),
        "Activations between blocks of a micro-batch's tokens on a rank", **WHOLE)  # fmt: skip


constant("tp_gather_share", 1.0, "Activations are gathered as they are sent elsewhere", like="tp")


@formula(
    source="derivation",
    assumes=(
        "modules left in 16 bits gather theirs as they are; of a layer's two blocks the mean",
    ),
)
def tp_gather_message_bytes(
    tp_gather_share: Array,
    attention_narrow_share: Array,
    narrow_share: Array,
    tp_message_bytes: Array,
) -> Array:
    """Inputs of a block of a micro-batch's tokens on a rank, as they are gathered."""
    narrow = 0.5 * (attention_narrow_share + narrow_share)
    return (1.0 - narrow * (1.0 - tp_gather_share)) * tp_message_bytes


alias("tp_gather_message_bytes", "tp_message_bytes",
      "Inputs of a block, which adapters take in 16 bits: they are gathered so, once",
      lacks=dict.fromkeys(("attention_narrow_share", "narrow_share"),
                          "what is gathered is in 16 bits, whatever frozen products take"),
      when={"tuning": "lora"})  # fmt: skip

GATHERED = {**TP, "message": "tp_gather_message_bytes"}
operation("tp_all_reduce", "all_reduce of a block's output", collective="all_reduce", **TP)
operation("tp_all_gather", "all_gather of a block's input", collective="all_gather", **GATHERED)
operation(
    "tp_reduce_scatter", "reduce_scatter of a block's output", collective="reduce_scatter", **TP
)
operation(
    "tp_weight_gather",
    "all_gather of a saved input, for the weights' gradient",
    collective="all_gather",
    **GATHERED,
)

for _name, _kept, _returning in (
    ("tp_all_reduce", "sequence_whole", "returning_reductions"),
    ("tp_all_gather", "sequence_parallel", "returning_gathers"),
    ("tp_reduce_scatter", "sequence_parallel", "returning_reductions"),
):
    product(f"{_name}_forward_count", (_kept, "micro_batches", "tp_blocks"), **WHOLE)
    product(f"{_name}_backward_count", (_kept, _returning, "tp_blocks"), **WHOLE)
never("tp_weight_gather_forward_count")
product(
    "tp_weight_gather_backward_count",
    ("sequence_parallel", "backward_passes", "tp_blocks"),
    **SPLIT,
)


# One layer and micro-batch.


@formula(**SPLIT)
def tp_layer_forward_time(
    sequence_whole: Array,
    tp_all_reduce_time: Array,
    sequence_parallel: Array,
    tp_all_gather_time: Array,
    tp_reduce_scatter_time: Array,
) -> Array:
    """Time of tensor-parallel communication in a dense layer's forward."""
    split = tp_all_gather_time + tp_reduce_scatter_time
    return 2.0 * (sequence_whole * tp_all_reduce_time + sequence_parallel * split)


alias(
    "tp_layer_backward_time",
    "tp_layer_forward_time",
    "Time of tensor-parallel communication in a dense layer's backward: that of its forward",
    assumes=("a gather's backward is a reduce_scatter, and the other way round",),
    **SPLIT,
)


@formula(**SPLIT)
def tp_layer_gather_time(sequence_parallel: Array, tp_weight_gather_time: Array) -> Array:
    """Time to gather a dense layer's saved inputs for its weights' gradients."""
    return 2.0 * sequence_parallel * tp_weight_gather_time


@formula(**SPLIT)
def tp_layer_recompute_time(
    repeated_reductions: Array,
    sequence_whole: Array,
    tp_all_reduce_time: Array,
    sequence_parallel: Array,
    tp_reduce_scatter_time: Array,
    repeated_gathers: Array,
    tp_all_gather_time: Array,
) -> Array:
    """Time of tensor-parallel communication that a dense layer's backward repeats."""
    reduced = sequence_whole * tp_all_reduce_time + sequence_parallel * tp_reduce_scatter_time
    gathered = sequence_parallel * tp_all_gather_time
    return 2.0 * (repeated_reductions * reduced + repeated_gathers * gathered)


def _of_moe_layer(moe_layer_blocks: Array, dense: Array) -> Array:
    """Time of a mixture-of-experts layer: that of so many of a dense layer's two blocks."""
    return moe_layer_blocks / 2.0 * dense


for _name in ("forward", "backward", "gather", "recompute"):
    formula(
        returns=f"tp_moe_layer_{_name}_time",
        inputs=("moe_layer_blocks", f"tp_layer_{_name}_time"),
        name=f"tp_moe_layer_{_name}_time",
        **WHOLE,
    )(_of_moe_layer)


def _block_again(
    again: Array,
    whole: Array,
    all_reduce: Array,
    split: Array,
    gather: Array,
    scatter: Array,
    blocks: Array | float = 2.0,
) -> Array:
    each = whole * all_reduce + split * (gather + scatter)
    return again * xp.maximum(blocks - 1.0, 0.0) * each


# Of recomputed modules the MLP of a dense layer is a block, and shared experts are one.
for _layer, _module, _blocks in (
    ("tp_layer", "recompute_mlp", ()),
    ("tp_moe_layer", "repeated_shared_experts", ("moe_layer_blocks",)),
):
    _sent = ("sequence_whole", "tp_all_reduce_time", "sequence_parallel", "tp_all_gather_time",
             "tp_reduce_scatter_time")  # fmt: skip
    declare(
        f"{_layer}_recompute_time",
        (_module, *_sent, *_blocks),
        _block_again,
        lacks=dict.fromkeys(
            ("repeated_reductions", "repeated_gathers") if _layer == "tp_layer" else (),
            "of a dense layer's modules the MLP alone is a block that is repeated",
        ),
        when={"recompute": "selective"},
        **SPLIT,
    )


# Embedding, output layer and loss, whose vocabulary is split over tensor-parallel ranks.
#
# A rank looks up the tokens of its part of the vocabulary, and the results are added up; the output
# layer's input gradient likewise.  The loss needs of every token the largest logit, the sum of
# exponentials and the logit of the right answer.  A table that both ends of a pipeline hold has its
# gradients added up once a step.

LOSS: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/tensor_parallel/cross_entropy.py",
}
TIED: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/distributed/finalize_model_grads.py",
}
UNKNOWN = {"shapes": "unknown"}
END: dict[str, Any] = {"dimension": "vocabulary", "group": "tp", "share": "end_share"}
ACTIVATION: dict[str, Any] = {**END, "message": "tp_message_bytes"}


product("loss_message_bytes", ("single_bytes", "rank_tokens"),
        "A single-precision number of each of a micro-batch's tokens on a rank",
        **LOSS)  # fmt: skip


@formula(**TIED)
def tied_message_bytes(
    reduction_bytes: Array, padded_vocabulary: Array, hidden_size: Array, tp: Array
) -> Array:
    """Gradients of a rank's part of the embedding's table."""
    return reduction_bytes * padded_vocabulary * hidden_size / tp


constant(
    "tied_message_bytes",
    0.0,
    like="reduction_bytes",
    assumes=("shapes aren't known: no table is shared",),
    when=UNKNOWN,
    **TIED,
)


@formula(**WHOLE)
def vocabulary_passes(tp: Array, micro_batches: Array) -> Array:
    """Micro-batches of a step whose vocabulary is split."""
    return xp.where(tp > 1.0, micro_batches, 0.0)


@formula(
    source="megatron", where="megatron/core/transformer/multi_token_prediction.py, process_mtp_loss"
)
def logits_passes(vocabulary_passes: Array, mtp_depths: Array) -> Array:
    """Times that a step computes logits of a split vocabulary, further tokens' too."""
    return vocabulary_passes * (1.0 + mtp_depths)


product("vocabulary_returns", ("has_backward", "vocabulary_passes"))
product("logits_returns", ("has_backward", "logits_passes"))

# A further token has an embedding of its own, looked up on the last stage.  Its projection's
# columns are split and its results gathered, whose gradients every rank has; what it takes, a
# hidden state beside the embedding, is twice as wide as an activation.

JOINED: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/transformer/multi_token_prediction.py, _concat_embeddings",
}
product("mtp_passes", ("vocabulary_passes", "mtp_depths"), **JOINED)
product("mtp_returns", ("vocabulary_returns", "mtp_depths"), **JOINED)


@formula(**JOINED)
def mtp_message_bytes(tp_message_bytes: Array) -> Array:
    """Hidden states and embeddings of a micro-batch's tokens on a rank, together."""
    return 2.0 * tp_message_bytes


@formula(**JOINED)
def mtp_gather_message_bytes(tp_gather_message_bytes: Array) -> Array:
    """Hidden states and embeddings of a micro-batch's tokens on a rank, as they are gathered."""
    return 2.0 * tp_gather_message_bytes


for _part, _words in (("embedding", "the embedding"), ("logits", "the output layer")):
    for _collective, _of in (
        ("all_reduce", "activations at"),
        ("all_gather", "activations at"),
        ("reduce_scatter", "activations at"),
    ):
        operation(
            f"{_part}_{_collective}",
            f"{_collective} of {_of} {_words}",
            collective=_collective,
            **ACTIVATION,
        )
for _part, _collective, _words, _message in (
    ("mtp", "all_reduce", "embeddings of further tokens", "tp_message_bytes"),
    ("mtp", "all_gather", "projections of further tokens", "tp_message_bytes"),
    ("mtp", "reduce_scatter", "embeddings of further tokens", "tp_message_bytes"),
    ("mtp_input", "all_reduce", "gradients of projections' inputs", "mtp_message_bytes"),
    ("mtp_input", "all_gather", "inputs of further tokens' projections",
     "mtp_gather_message_bytes"),
    ("mtp_input", "reduce_scatter", "gradients of projections' inputs", "mtp_message_bytes"),
):  # fmt: skip
    operation(
        f"{_part}_{_collective}",
        f"{_collective} of {_words}",
        collective=_collective,
        **{**END, "message": _message},
    )
operation(
    "loss_all_reduce",
    "all_reduce of a number a token for the loss",
    collective="all_reduce",
    message="loss_message_bytes",
    **END,
)
operation(
    "tied_all_reduce",
    "all_reduce of the shared embedding's gradients between first and last stage",
    dimension="vocabulary",
    group="ends",
    collective="all_reduce",
    message="tied_message_bytes",
    share="ends_share",
)

FORWARD, BACKWARD = "vocabulary_passes", "vocabulary_returns"
for _count, _factors in (
    ("embedding_all_reduce_forward", ("sequence_whole", FORWARD)),
    ("embedding_reduce_scatter_forward", ("sequence_parallel", FORWARD)),
    ("embedding_all_gather_backward", ("sequence_parallel", BACKWARD)),
    ("logits_all_reduce_backward", ("sequence_whole", "logits_returns")),
    ("logits_all_gather_forward", ("sequence_parallel", "logits_passes")),
    ("logits_all_gather_backward", ("sequence_parallel", "logits_returns")),
    ("logits_reduce_scatter_backward", ("sequence_parallel", "logits_returns")),
    ("mtp_all_reduce_forward", ("sequence_whole", "mtp_passes")),
    ("mtp_reduce_scatter_forward", ("sequence_parallel", "mtp_passes")),
    ("mtp_input_all_reduce_backward", ("sequence_whole", "mtp_returns")),
    ("mtp_input_all_gather_forward", ("sequence_parallel", "mtp_passes")),
    ("mtp_input_all_gather_backward", ("sequence_parallel", "mtp_returns")),
    ("mtp_input_reduce_scatter_backward", ("sequence_parallel", "mtp_returns")),
):
    product(f"{_count}_count", _factors, **SPLIT)
alias("mtp_all_gather_forward_count", "mtp_passes", **JOINED)


@formula(**JOINED)
def mtp_all_gather_backward_count(sequence_parallel: Array, mtp_returns: Array) -> Array:
    """How often gradients of a further token's embedding and projection are gathered."""
    return 2.0 * sequence_parallel * mtp_returns


never(
    "mtp_all_reduce_backward_count",
    "mtp_reduce_scatter_backward_count",
    "mtp_input_all_reduce_forward_count",
    "mtp_input_reduce_scatter_forward_count",
    "embedding_all_reduce_backward_count",
    "embedding_reduce_scatter_backward_count",
    "embedding_all_gather_forward_count",
    "logits_all_reduce_forward_count",
    "logits_reduce_scatter_forward_count",
    "loss_all_reduce_backward_count",
    "tied_all_reduce_forward_count",
)
never("tied_all_reduce_backward_count", when=UNKNOWN)


@formula(assumes=("without a backward there is no loss",), **LOSS)
def loss_all_reduce_forward_count(logits_returns: Array) -> Array:
    """How often a step adds up a number a token for the loss: three times a micro-batch."""
    return 3.0 * logits_returns


@formula(
    assumes=("a rank that holds both ends shares all its gradients with its like anyway",), **TIED
)
def tied_all_reduce_backward_count(
    pp: Array, weight_copies: Array, has_backward: Array, tied_embeddings: Array, mtp_depths: Array
) -> Array:
    """How often a step adds up the gradients of a table that first and last stage hold: once."""
    both = xp.where(mtp_depths > 0.0, 1.0, tied_embeddings)
    once = xp.where(weight_copies > 1.0, 0.0, has_backward * both)
    return xp.where(pp > 1.0, once, 0.0)


# One micro-batch.


@formula(**SPLIT)
def vocabulary_first_time(
    sequence_whole: Array,
    embedding_all_reduce_time: Array,
    sequence_parallel: Array,
    embedding_reduce_scatter_time: Array,
    has_backward: Array,
    embedding_all_gather_time: Array,
) -> Array:
    """Time of communication of one micro-batch for the embedding."""
    split = embedding_reduce_scatter_time + has_backward * embedding_all_gather_time
    return sequence_whole * embedding_all_reduce_time + sequence_parallel * split


@formula(**JOINED)
def mtp_communication_time(
    mtp_depths: Array,
    mtp_all_gather_time: Array,
    sequence_whole: Array,
    mtp_all_reduce_time: Array,
    mtp_input_all_reduce_time: Array,
    sequence_parallel: Array,
    mtp_reduce_scatter_time: Array,
    mtp_input_all_gather_time: Array,
    mtp_input_reduce_scatter_time: Array,
) -> Array:
    """Time of communication of one micro-batch for further tokens' embeddings and projections."""
    whole = mtp_all_reduce_time + mtp_input_all_reduce_time
    joined = 2.0 * mtp_input_all_gather_time + mtp_input_reduce_scatter_time
    split = mtp_reduce_scatter_time + 2.0 * mtp_all_gather_time + joined
    return mtp_depths * (mtp_all_gather_time + sequence_whole * whole + sequence_parallel * split)


@formula(**SPLIT)
def vocabulary_last_time(
    mtp_depths: Array,
    has_backward: Array,
    sequence_whole: Array,
    logits_all_reduce_time: Array,
    loss_all_reduce_time: Array,
    sequence_parallel: Array,
    logits_all_gather_time: Array,
    logits_reduce_scatter_time: Array,
    mtp_communication_time: Array,
) -> Array:
    """Time of communication of one micro-batch for output layer and loss, further tokens' too."""
    whole = sequence_whole * logits_all_reduce_time + 3.0 * loss_all_reduce_time
    back = logits_all_gather_time + logits_reduce_scatter_time
    split = logits_all_gather_time + has_backward * back
    each = has_backward * whole + sequence_parallel * split
    return (1.0 + mtp_depths) * each + mtp_communication_time


# Pipeline parallelism.
#
# A micro-batch passes pp*virtual_stages - 1 boundaries in each direction.  A rank between the ends
# sends, and receives, one message a virtual stage, micro-batch and direction; where there are two
# stages, one of either's messages has nowhere to go.

STAGES: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.2"}
IN_PARTS: dict[str, Any] = {"source": "narayanan2021", "where": "section 4.1"}


@formula(**IN_PARTS)
def pp_message_bytes(
    tp_message_bytes: Array,
    residual_streams: Array,
    sequence_parallel: Array,
    scatter_gather: Array,
    tp: Array,
) -> Array:
    """What a rank sends to the next stage: its part, if activations are split, else the whole."""
    whole = xp.maximum(residual_streams, 1.0) * tp_message_bytes
    return whole / xp.where(sequence_parallel + scatter_gather > 0.0, tp, 1.0)


@formula(**IN_PARTS)
def gathered_at_stages(tp: Array, scatter_gather: Array, sequence_whole: Array) -> Array:
    """Whether what a stage receives in parts is gathered: with sequence parallelism it isn't."""
    return xp.where(tp > 1.0, scatter_gather * sequence_whole, 0.0)


@formula(**STAGES)
def pp_share(pp: Array, virtual_stages: Array) -> Array:
    """Messages that stages receive, mean by most: nobody sends to the first chunk."""
    return (pp * virtual_stages - 1.0) / (pp * virtual_stages)


operation(
    "pp_transfer",
    "p2p of activations, or their gradients, to a neighbouring stage",
    dimension="pp",
    group="boundary",
    collective="p2p",
    message="pp_message_bytes",
    own=("volume", "total_energy"),
)
operation(
    "pp_gather",
    "all_gather of what a stage received in parts",
    dimension="pp",
    group="tp",
    collective="all_gather",
    message="tp_message_bytes",
    share="pp_share",
)
on_network("pp_inner_energy", "energy", "inner_boundary", "p2p", "pp_message_bytes")


@formula(**STAGES)
def pp_transfer_forward_count(pp: Array, virtual_stages: Array, micro_batches: Array) -> Array:
    """How often a rank sends to the next stage: once a virtual stage and micro-batch."""
    return xp.where(pp > 1.0, virtual_stages * micro_batches, 0.0)


product("pp_transfer_backward_count", ("has_backward", "pp_transfer_forward_count"), **STAGES)
product("pp_gather_forward_count", ("gathered_at_stages", "pp_transfer_forward_count"), **IN_PARTS)
product(
    "pp_gather_backward_count", ("gathered_at_stages", "pp_transfer_backward_count"), **IN_PARTS
)

BOTH = "pp_transfer_forward_count + pp_transfer_backward_count"


@formula(**STAGES)
def pp_transfer_volume(
    pp_transfer_sent_bytes: Array,
    pp: Array,
    pp_transfer_forward_count: Array,
    pp_transfer_backward_count: Array,
    micro_batches: Array,
) -> Array:
    """Most bytes that a rank sends to its neighbours in a step."""
    both = pp_transfer_forward_count + pp_transfer_backward_count
    two = xp.maximum(both - micro_batches, pp_transfer_forward_count)
    return pp_transfer_sent_bytes * xp.where(pp > 2.0, both, two)


@derived()
def pp_transfer_total_energy(
    tp: Array,
    cp: Array,
    dp: Array,
    micro_batches: Array,
    has_backward: Array,
    node_boundaries: Array,
    virtual_stages: Array,
    pp_transfer_energy: Array,
    pp: Array,
    pp_inner_energy: Array,
) -> Array:
    """Energy of all pipelines' transfers in a step, those between nodes and those inside."""
    # Boundaries between nodes on a micro-batch's way through all virtual stages; from one to the
    # next it goes from the last stage back to the first.
    crossing = virtual_stages * (node_boundaries + 1.0) - 1.0
    across = xp.where(node_boundaries > 0.0, crossing, 0.0)
    inside = xp.maximum(pp * virtual_stages - 1.0 - across, 0.0)
    ways = tp * cp * dp * micro_batches * (1.0 + has_backward)
    return ways * (across * pp_transfer_energy + inside * pp_inner_energy)


@formula(assumes=("all boundaries take as long as one between nodes, if there is any",), **IN_PARTS)
def p2p_time(pp_transfer_time: Array, gathered_at_stages: Array, pp_gather_time: Array) -> Array:
    """Time of one transfer between neighbouring stages, until the next can begin."""
    return pp_transfer_time + gathered_at_stages * pp_gather_time


OPERATIONS = declared("tp", "vocabulary", "pp")
