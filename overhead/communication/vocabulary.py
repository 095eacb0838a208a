"""Embedding, output layer and loss, whose vocabulary is split over tensor-parallel ranks.

A rank looks up the tokens of its part of the vocabulary, and the results are added up; the output
layer's input gradient likewise.  The loss needs of every token the largest logit, the sum of
exponentials and the logit of the right answer.  A table that both ends of a pipeline hold has its
gradients added up once a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.communication import passes, tensor
from overhead.communication.operation import never, operation
from overhead.formula import formula
from overhead.memory import rank_parameters
from overhead.quantity import Array, define
from overhead.sums import product

__all__ = ["loss_message_bytes", "passes", "rank_parameters", "tensor", "tied_message_bytes"]

WHOLE: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.3"}
SPLIT: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.2.2"}
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

define("loss_message_bytes", "M_l", "byte", "a number of each of a micro-batch's tokens on a rank",
       minimum=0)  # fmt: skip
define("tied_message_bytes", r"M_\tau", "byte", "gradients of a rank's part of the embedding",
       minimum=0)  # fmt: skip
define("vocabulary_passes", "m_V", "1", "micro-batches of a step whose vocabulary is split",
       minimum=0)  # fmt: skip
define("vocabulary_returns", "m'_V", "1", "backwards of a step whose vocabulary is split",
       minimum=0)  # fmt: skip


@formula(
    returns="loss_message_bytes",
    expression="single_bytes*rank_tokens",
    ufunc=np.multiply,
    **LOSS,
)
def loss_message_bytes(single_bytes: Array, rank_tokens: Array) -> Array:
    """A single-precision number of each of a micro-batch's tokens on a rank."""
    return single_bytes * rank_tokens


@formula(
    returns="tied_message_bytes",
    expression="reduction_bytes*padded_vocabulary*hidden_size/tp",
    **TIED,
)
def tied_message_bytes(
    reduction_bytes: Array, padded_vocabulary: Array, hidden_size: Array, tp: Array
) -> Array:
    """Gradients of a rank's part of the embedding's table."""
    return reduction_bytes * padded_vocabulary * hidden_size / tp


@formula(
    returns="tied_message_bytes",
    expression="0*reduction_bytes",
    assumes=("shapes aren't known: no table is shared",),
    when=UNKNOWN,
    **TIED,
)
def no_tied_message_bytes(reduction_bytes: Array) -> Array:
    """Gradients of a rank's part of the embedding's table: it isn't known to be shared."""
    return 0.0 * reduction_bytes


@formula(returns="vocabulary_passes", expression="where(tp > 1, micro_batches, 0)", **WHOLE)
def vocabulary_passes(tp: Array, micro_batches: Array) -> Array:
    """Micro-batches of a step whose vocabulary is split."""
    return np.where(tp > 1.0, micro_batches, 0.0)


product("vocabulary_returns", ("has_backward", "vocabulary_passes"))

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
    ("logits_all_reduce_backward", ("sequence_whole", BACKWARD)),
    ("logits_all_gather_forward", ("sequence_parallel", FORWARD)),
    ("logits_all_gather_backward", ("sequence_parallel", BACKWARD)),
    ("logits_reduce_scatter_backward", ("sequence_parallel", BACKWARD)),
):
    product(f"{_count}_count", _factors, **SPLIT)
never(
    "embedding_all_reduce_backward_count",
    "embedding_reduce_scatter_backward_count",
    "embedding_all_gather_forward_count",
    "logits_all_reduce_forward_count",
    "logits_reduce_scatter_forward_count",
    "loss_all_reduce_backward_count",
    "tied_all_reduce_forward_count",
)
never("tied_all_reduce_backward_count", when=UNKNOWN)


@formula(
    returns="loss_all_reduce_forward_count",
    expression="3*vocabulary_returns",
    assumes=("without a backward there is no loss",),
    **LOSS,
)
def loss_all_reduce_forward_count(vocabulary_returns: Array) -> Array:
    """How often a step adds up a number a token for the loss: three times a micro-batch."""
    return 3.0 * vocabulary_returns


@formula(
    returns="tied_all_reduce_backward_count",
    expression="where(pp > 1, where(weight_copies > 1, 0, has_backward*tied_embeddings), 0)",
    assumes=("a rank that holds both ends shares all its gradients with its like anyway",),
    **TIED,
)
def tied_all_reduce_backward_count(
    pp: Array, weight_copies: Array, has_backward: Array, tied_embeddings: Array
) -> Array:
    """How often a step adds up the gradients of a table that first and last stage hold: once."""
    once = np.where(weight_copies > 1.0, 0.0, has_backward * tied_embeddings)
    return np.where(pp > 1.0, once, 0.0)


# One micro-batch.

for _end, _mark, _words in (
    ("first", "0", "embedding, on the first stage"),
    ("last", r"\ell", "output layer and loss, on the last stage"),
):
    define(
        f"vocabulary_{_end}_time",
        rf"\tau_{{V{_mark}}}",
        "s",
        f"time of communication of one micro-batch for the {_words}, forward and backward",
        minimum=0,
    )


@formula(
    returns="vocabulary_first_time",
    expression="sequence_whole*embedding_all_reduce_time"
    " + sequence_parallel*(embedding_reduce_scatter_time"
    " + has_backward*embedding_all_gather_time)",
    **SPLIT,
)
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


@formula(
    returns="vocabulary_last_time",
    expression="has_backward*(sequence_whole*logits_all_reduce_time + 3*loss_all_reduce_time)"
    " + sequence_parallel*(logits_all_gather_time"
    " + has_backward*(logits_all_gather_time + logits_reduce_scatter_time))",
    **SPLIT,
)
def vocabulary_last_time(
    has_backward: Array,
    sequence_whole: Array,
    logits_all_reduce_time: Array,
    loss_all_reduce_time: Array,
    sequence_parallel: Array,
    logits_all_gather_time: Array,
    logits_reduce_scatter_time: Array,
) -> Array:
    """Time of communication of one micro-batch for output layer and loss."""
    whole = sequence_whole * logits_all_reduce_time + 3.0 * loss_all_reduce_time
    back = logits_all_gather_time + logits_reduce_scatter_time
    split = logits_all_gather_time + has_backward * back
    return has_backward * whole + sequence_parallel * split
