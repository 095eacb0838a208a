"""Memory of the loss: how many tokens' logits exist at once, and what is kept of them."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula

CHUNKS = cited("torchtitan", "torchtitan/components/loss.py @f90c845c0e, ChunkedCELoss")
LIGER = cited(
    "liger",
    "src/liger_kernel/ops/fused_linear_cross_entropy.py @00eba634c2",
    when={"loss": "liger"},
)
CUT = cited(
    "wijmans2024",
    "apple/ml-cross-entropy, cut_cross_entropy/cce_lse_forward.py @18e76ada05",
    when={"loss": "cut_cross_entropy"},
)


@formula(
    returns="logit_tokens",
    assumes=("a chunk's logits take about as much as all hidden states",),
    **LIGER,
)
def liger_logit_tokens(rank_tokens, vocabulary_width, hidden_size):
    """Tokens of a chunk of Liger-Kernel's fused linear cross-entropy: a power of two."""
    chunks = xp.maximum(xp.ceil(vocabulary_width / hidden_size), 1.0)
    chunk = xp.exp2(xp.ceil(xp.log2(xp.ceil(rank_tokens / chunks))))
    return xp.minimum(chunk, rank_tokens)


@formula(returns="logit_tokens", **CUT)
def cut_logit_tokens(rank_tokens):
    """Tokens of a loss that keeps no logits: all of a micro-batch."""
    return 1.0 * rank_tokens


@formula(
    assumes=("gradients of the hidden states wait for all chunks, on whole sequences",), **CHUNKS
)
def loss_gradient_memory(holds_output, loss_chunks, loss_hidden_bytes, rank_tokens, hidden_size):
    """Memory of the gradients that a loss in chunks keeps."""
    kept = loss_hidden_bytes * rank_tokens * hidden_size
    return holds_output * xp.where(loss_chunks > 1.0, kept, 0.0)


@formula(
    returns="loss_gradient_memory",
    assumes=("the forward pass computes the gradients of hidden states and weights in bf16",),
    **LIGER,
)
def liger_gradient_memory(
    holds_output, activation_bytes, rank_tokens, trained_weights, vocabulary_width, hidden_size
):
    """Memory of the gradients that Liger-Kernel's loss keeps: hidden states and LM head."""
    rows = rank_tokens + trained_weights * vocabulary_width
    return holds_output * activation_bytes * rows * hidden_size


@formula(
    source="megatron",
    where="megatron/core/tensor_parallel/cross_entropy.py",
    assumes=(
        "one micro-batch at a time",
        "the vocabulary is split over tensor-parallel ranks",
        "softmax of each MTP depth is saved until the backward pass",
    ),
)
def logits_memory(
    holds_output,
    logit_tokens,
    padded_vocabulary_size,
    tp,
    logit_bytes,
    mtp_depths,
    single_bytes,
    loss_gradient_memory,
):
    """Memory of logits and loss."""
    logits = holds_output * logit_tokens * padded_vocabulary_size / tp
    further = mtp_depths * xp.minimum(single_bytes, logit_bytes)
    return logits * (logit_bytes + further) + loss_gradient_memory


@formula(
    returns="logits_memory",
    source="megatron",
    where="megatron/core/tensor_parallel/cross_entropy.py",
    assumes=("one micro-batch at a time", "without a hidden size no gradients are counted"),
    when={"shapes": "unknown"},
)
def bare_logits_memory(
    holds_output, logit_tokens, padded_vocabulary_size, tp, logit_bytes, mtp_depths, single_bytes
):
    """Memory of logits and loss, hidden size unknown."""
    logits = holds_output * logit_tokens * padded_vocabulary_size / tp
    return logits * (logit_bytes + mtp_depths * xp.minimum(single_bytes, logit_bytes))
