"""The ends of the model: embedding in the first stage, output layer and loss in the last.

As of a layer, the slower of the GPU and of the host's launches rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities, sources
from overhead.compute.declare import declare
from overhead.formula import formula
from overhead.quantity import Array
from overhead.sums import total

__all__ = [
    "embedding_gpu_time",
    "forward_embedding_gpu_time",
    "forward_output_gpu_time",
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
    returns="embedding_gpu_time",
    expression="5*activation_bytes*rank_tokens*hidden_size/(memory_efficiency*memory_bandwidth)",
    assumes=("rows are read and written; their gradients read, and added to the table's",),
    **EMBEDDING,
)
def embedding_gpu_time(
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of the embedding on the GPU, forward and backward."""
    moved = 5.0 * activation_bytes * rank_tokens * hidden_size
    return moved / (memory_efficiency * memory_bandwidth)


@formula(
    returns="embedding_gpu_time",
    expression="2*activation_bytes*rank_tokens*hidden_size/(memory_efficiency*memory_bandwidth)",
    assumes=("rows are read and written",),
    when=FORWARD,
    **EMBEDDING,
)
def forward_embedding_gpu_time(
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of the embedding on the GPU where there are forwards alone."""
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
    "output_gpu_time",
    ("logits_forward_time", "logits_input_gradient_time", "logits_weight_gradient_time",
     "loss_time"),
    assumes=("the norm before the output layer isn't counted",),
)  # fmt: skip


@formula(
    returns="output_gpu_time",
    expression="1*logits_forward_time",
    source="derivation",
    assumes=("every token's logits are computed, and no loss",),
    when=FORWARD,
)
def forward_output_gpu_time(logits_forward_time: Array) -> Array:
    """Time of the output layer on the GPU where there are forwards alone."""
    return 1.0 * logits_forward_time


# The host: what is launched of one micro-batch.  Embedding: mask 4, rows, positions 2, sum,
# dropout, and for the gradients dropout, both tables and their sums 6.  Output: norm, product,
# loss of a split vocabulary 18, mask and mean 4; gradients of the loss 8, of product and norm 8.
LAUNCHES = {"embedding": (15.0, 9.0), "output": (40.0, 2.0)}
WHERE = {
    "embedding": EMBEDDING["where"],
    "output": "megatron/core/tensor_parallel/cross_entropy.py, and pretrain_gpt.py, loss_func",
}


def _norm(launches: float) -> Any:
    def slower(gpu: Array, host_time: Array) -> Array:
        host = launches * host_time
        return np.sqrt(np.sqrt(gpu * gpu * gpu * gpu + host * host * host * host))

    return slower


for _end, _counts in LAUNCHES.items():
    for _count, _when in zip(_counts, (None, FORWARD), strict=True):
        declare(
            f"{_end}_time",
            (f"{_end}_gpu_time", "host_time"),
            f"sqrt(sqrt({_end}_gpu_time**4 + ({_count:g}*host_time)**4))",
            _norm(_count),
            source="megatron",
            where=WHERE[_end],
            assumes=("the host launches ahead of the GPU, as in a layer",),
            when=_when,
        )
