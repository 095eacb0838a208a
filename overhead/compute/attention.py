"""Scores and values of a layer's attention, by the class of its kernel (label `attention_kernel`).

A fused kernel leaves out what a causal mask hides, keeps no scores in memory and computes them
again in its backward.  An unfused one is two matrix products over all scores, which stay in
memory between its kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities
from overhead.declare import alias
from overhead.formula import formula
from overhead.quantity import Array

FUSED = "flash_1|flash_2|flash_3|cudnn"
UNFUSED = {"attention_kernel": "unfused"}
KERNEL: dict[str, Any] = {"source": quantities.DAO_2023, "where": "sections 3.1 and 4.1"}
KERNELS: dict[str, Any] = {
    "source": "korthikanti2022",
    "where": "section 4.1, figure 3: the kernels of self-attention",
    "when": UNFUSED,
}


# How much is computed.


alias(
    "attended_span",
    "attention_span",
    "Tokens against which attention computes one token's scores: all, or the window",
    **KERNEL,
)
alias(
    "attended_span",
    "causal_attention_span",
    assumes=("blocks that a mask hides as a whole are left out, and no others are cut by it",),
    when={"mask": "causal", "attention_kernel": FUSED},
    **KERNEL,
)
alias(
    "attended_span",
    "sequence_length",
    assumes=("masked scores are computed, those outside of a window too",),
    **KERNELS,
)


@formula(assumes=("with context parallelism all ranks have as many scores to compute",), **KERNEL)
def attention_forward_flops(
    rank_tokens: Array,
    attended_span: Array,
    heads: Array,
    tp: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Operations of a layer's scores and values on one rank."""
    scores = 2.0 * rank_tokens * attended_span * (heads / tp)
    return scores * (query_head_size + value_head_size)


@formula(
    source=quantities.DAO_2023,
    where="section 3.1.2: five products where the forward has two",
    assumes=("scores are computed again",),
)
def attention_backward_flops(
    rank_tokens: Array,
    attended_span: Array,
    heads: Array,
    tp: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Operations of the backward of a layer's fused scores and values on one rank."""
    scores = 2.0 * rank_tokens * attended_span * (heads / tp)
    return scores * (3.0 * query_head_size + 2.0 * value_head_size)


@formula(returns="attention_backward_flops", assumes=("scores were kept",), **KERNELS)
def unfused_attention_backward_flops(attention_forward_flops: Array) -> Array:
    """Operations of the backward of a layer's unfused scores and values on one rank."""
    return 2.0 * attention_forward_flops


# Fused.


alias("attention_length", "attention_span", **KERNEL)


@formula(
    returns="attention_length",
    source="derivation",
    assumes=("a call for each block that comes round",),
    when={"context_parallel": "ring"},
)
def ring_attention_length(attention_span: Array, sequence_length: Array, cp: Array) -> Array:
    """Keys that one call of the attention kernel goes through in a ring: a rank's block."""
    return np.minimum(attention_span, sequence_length / cp)


@formula(
    returns="attention_forward_time",
    assumes=("short sequences lose what a kernel's start and end cost",),
    **KERNEL,
)
def fused_attention_forward_time(
    attention_forward_flops: Array,
    attention_half_length: Array,
    attention_length: Array,
    attention_efficiency: Array,
    attention_peak_flops: Array,
) -> Array:
    """Time of a layer's fused scores and values, forward."""
    slower = 1.0 + attention_half_length / np.maximum(attention_length, 1.0)
    return attention_forward_flops * slower / (attention_efficiency * attention_peak_flops)


@formula(returns="attention_backward_time", **KERNEL)
def fused_attention_backward_time(
    attention_backward_flops: Array,
    attention_half_length: Array,
    attention_length: Array,
    attention_backward_efficiency: Array,
    attention_efficiency: Array,
    attention_peak_flops: Array,
) -> Array:
    """Time of a layer's fused scores and values, backward."""
    slower = 1.0 + attention_half_length / np.maximum(attention_length, 1.0)
    rate = attention_backward_efficiency * (attention_efficiency * attention_peak_flops)
    return attention_backward_flops * slower / rate


# Unfused.


@formula(**KERNELS)
def attention_scores(rank_tokens: Array, sequence_length: Array, heads: Array, tp: Array) -> Array:
    """Scores that a layer's unfused attention holds on one rank."""
    return rank_tokens * sequence_length * (heads / tp)


@formula(
    returns="attention_forward_time",
    assumes=(
        "scores are written, softmax reads and writes them, values' product reads them",
        "dropout is one kernel more",
    ),
    **KERNELS,
)
def unfused_attention_forward_time(
    attention_forward_flops: Array,
    unfused_efficiency: Array,
    matmul_efficiency: Array,
    output_matmul_flops: Array,
    attention_scores: Array,
    activation_bytes: Array,
    dropout: Array,
    mask_bytes: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of a layer's unfused scores and values, forward: two products, and scores moved."""
    rate = unfused_efficiency * (matmul_efficiency * output_matmul_flops)
    each = 4.0 * activation_bytes + dropout * (2.0 * activation_bytes + mask_bytes)
    moved = attention_scores * each / (memory_efficiency * memory_bandwidth)
    return attention_forward_flops / rate + moved


@formula(
    returns="attention_backward_time",
    assumes=(
        "the gradient is written and read once as the values' and twice as the scores', and "
        "softmax reads its own output beside it",
        "dropout is one kernel more",
    ),
    **KERNELS,
)
def unfused_attention_backward_time(
    attention_backward_flops: Array,
    unfused_efficiency: Array,
    matmul_efficiency: Array,
    output_matmul_flops: Array,
    attention_scores: Array,
    activation_bytes: Array,
    dropout: Array,
    mask_bytes: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of a layer's unfused scores and values, backward: four products, and scores moved."""
    rate = unfused_efficiency * (matmul_efficiency * output_matmul_flops)
    each = 7.0 * activation_bytes + dropout * (2.0 * activation_bytes + mask_bytes)
    moved = attention_scores * each / (memory_efficiency * memory_bandwidth)
    return attention_backward_flops / rate + moved
