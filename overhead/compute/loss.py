"""Time of the LM head and the loss, which may be in chunks of tokens."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.compute.matmul import GRADIENTS, PLAIN, declare_product
from overhead.formula import cited, declare, formula

CHUNKS = cited("torchtitan", "torchtitan/components/loss.py @f90c845c0e, ChunkedCELoss")
declare_product("logits_chunk", "logit_tokens", "vocabulary_width", "hidden_size", further=PLAIN)


def _chunks(chunk, tokens, chunk_tokens):
    return chunk * (tokens / chunk_tokens)


for _kind in GRADIENTS:
    if _kind != "weight_gradient":
        declare(
            f"logits_{_kind}_time",
            (f"logits_chunk_{_kind}_time", "rank_tokens", "logit_tokens"),
            _chunks,
            assumes=("each chunk's GEMM reads the weights",),
            **CHUNKS,
        )


@formula(assumes=("each chunk's wgrad reads and writes the sum over those before it",), **CHUNKS)
def logits_weight_gradient_time(
    trained_weights,
    logits_chunk_weight_gradient_time,
    rank_tokens,
    logit_tokens,
    activation_bytes,
    vocabulary_width,
    hidden_size,
    memory_efficiency,
    memory_bandwidth,
):
    """LM head wgrad time: of all chunks of tokens."""
    chunks = rank_tokens / logit_tokens
    read = (
        activation_bytes * vocabulary_width * hidden_size / (memory_efficiency * memory_bandwidth)
    )
    summed = trained_weights * (xp.maximum(chunks - 1.0, 0.0) * read)
    return logits_chunk_weight_gradient_time * chunks + summed


@formula(source="megatron", where="megatron/core/tensor_parallel/cross_entropy.py")
def loss_time(loss_bytes, rank_tokens, vocabulary_width, memory_efficiency, memory_bandwidth):
    """Loss and loss gradient time: softmax over the vocabulary shard."""
    moved = loss_bytes * rank_tokens * vocabulary_width
    return moved / (memory_efficiency * memory_bandwidth)
