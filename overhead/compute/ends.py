"""The ends of the model: embedding in the first stage, output layer and loss in the last."""

from __future__ import annotations

from typing import Any

from overhead.compute import quantities, sources
from overhead.formula import formula
from overhead.quantity import Array
from overhead.sums import total

__all__ = [
    "embedding_time",
    "forward_embedding_time",
    "forward_output_time",
    "loss_time",
    "quantities",
    "sources",
]

FORWARD = {"schedule": "forward_only"}
EMBEDDING: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/tensor_parallel/layers.py, VocabParallelEmbedding",
}


@formula(
    returns="embedding_time",
    expression="5*activation_bytes*rank_tokens*hidden_size/(memory_efficiency*memory_bandwidth)",
    assumes=("rows are read and written; their gradients read, and added to the table's",),
    **EMBEDDING,
)
def embedding_time(
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of the embedding, forward and backward."""
    moved = 5.0 * activation_bytes * rank_tokens * hidden_size
    return moved / (memory_efficiency * memory_bandwidth)


@formula(
    returns="embedding_time",
    expression="2*activation_bytes*rank_tokens*hidden_size/(memory_efficiency*memory_bandwidth)",
    assumes=("rows are read and written",),
    when=FORWARD,
    **EMBEDDING,
)
def forward_embedding_time(
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of the embedding where there are forwards alone."""
    moved = 2.0 * activation_bytes * rank_tokens * hidden_size
    return moved / (memory_efficiency * memory_bandwidth)


@formula(
    returns="loss_time",
    expression="loss_bytes*rank_tokens*vocabulary_width/(memory_efficiency*memory_bandwidth)",
    source="megatron",
    where="megatron/core/tensor_parallel/cross_entropy.py",
)
def loss_time(
    loss_bytes: Array,
    rank_tokens: Array,
    vocabulary_width: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of loss and its gradient: softmax over the rank's part of the vocabulary."""
    moved = loss_bytes * rank_tokens * vocabulary_width
    return moved / (memory_efficiency * memory_bandwidth)


total(
    "output_time",
    ("logits_forward_time", "logits_input_gradient_time", "logits_weight_gradient_time",
     "loss_time"),
    assumes=("the norm before the output layer isn't counted",),
)  # fmt: skip


@formula(
    returns="output_time",
    expression="1*logits_forward_time",
    source="derivation",
    assumes=("every token's logits are computed, and no loss",),
    when=FORWARD,
)
def forward_output_time(logits_forward_time: Array) -> Array:
    """Time of the output layer where there are forwards alone."""
    return 1.0 * logits_forward_time
