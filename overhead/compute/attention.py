"""Scores and values of a layer's attention, by the class of its kernel (label `attention_kernel`).

A fused kernel leaves out what a causal mask hides, keeps no scores in memory and computes them
again in its backward.  An unfused one is two GEMMs over all scores, which stay in
memory between its kernels.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.compute import quantities
from overhead.formula import cited, declare, formula

FUSED = "flash_1|flash_2|flash_3|cudnn"
# Those that cut heads into tiles; the first generation, in Triton, takes them as they are.
TILED = {"attention_kernel": "flash_2|flash_3|cudnn"}
AT_RATE = "linear-attention state is computed at the attention rate"
HEAD_TILE, SMALL_HEAD = 64.0, 16.0
UNFUSED = {"attention_kernel": "unfused"}
KERNEL = cited(quantities.DAO_2023, "sections 3.1 and 4.1")
KERNELS = cited(
    "korthikanti2022", "section 4.1, figure 3: the kernels of self-attention", when=UNFUSED
)


# How much is computed.


CAUSAL = {"mask": "causal", "attention_kernel": FUSED}


@formula(
    assumes=("with context parallelism all ranks have as many scores to compute", AT_RATE),
    **KERNEL,
)
def attention_forward_flops(
    rank_tokens,
    attended_span,
    heads,
    tp,
    query_head_size,
    value_head_size,
    attention_layer_fraction,
    mixer_scan_flops,
    indexed_forward_flops,
):
    """Attention or linear-attention state FLOPs per layer and rank, forward."""
    scores = 2.0 * attended_span * heads * (query_head_size + value_head_size)
    mean = attention_layer_fraction * scores + mixer_scan_flops
    return rank_tokens * (mean / tp + indexed_forward_flops)


@formula(
    source=quantities.DAO_2023,
    where="section 3.1.2: five products where the forward has two",
    assumes=("scores are recomputed", AT_RATE),
)
def attention_backward_flops(
    rank_tokens,
    attended_span,
    heads,
    tp,
    query_head_size,
    value_head_size,
    attention_layer_fraction,
    mixer_scan_flops,
    index_backward_flops,
):
    """Fused attention FLOPs per layer and rank, backward."""
    scores = 2.0 * attended_span * heads * (3.0 * query_head_size + 2.0 * value_head_size)
    mean = attention_layer_fraction * scores + 2.0 * mixer_scan_flops
    return rank_tokens * (mean / tp + index_backward_flops)


@formula(
    returns="attention_backward_flops",
    assumes=("scores were kept",),
    lacks={"index_backward_flops": "a loss of selected tokens alone needs the fused kernel"},
    **KERNELS,
)
def unfused_attention_backward_flops(attention_forward_flops):
    """Unfused attention FLOPs per layer and rank, backward."""
    return 2.0 * attention_forward_flops


# Fused.


@formula(
    returns="attention_length",
    source="derivation",
    assumes=("one call per ring block",),
    when={"context_parallel": "ring|mixed"},
)
def ring_attention_length(attention_span, sequence_length, ring_ranks):
    """Keys per attention kernel call in a ring: a block."""
    return xp.minimum(attention_span, sequence_length / ring_ranks)


@formula(assumes=("short sequences lose the prologue and epilogue of a kernel",), **KERNEL)
def attention_slowdown(attention_half_length, attention_length):
    """Fused attention time / time at the long-sequence rate."""
    return 1.0 + attention_half_length / xp.maximum(attention_length, 1.0)


def _tiled(head_size):
    """Return the head's size that a kernel's time is of."""
    whole = HEAD_TILE * xp.ceil(head_size / HEAD_TILE)
    return xp.where(head_size > HEAD_TILE, whole, head_size + SMALL_HEAD)


@formula(
    returns="attention_slowdown",
    source=quantities.KERNELS,
    where="attention, heads of 64 to 256",
    assumes=(
        "short sequences lose the prologue and epilogue of a kernel",
        "heads beyond a tile of 64 are padded to whole ones; of smaller ones exponentials take as "
        "long as 16 more numbers would",
    ),
    when=TILED,
)
def tiled_attention_slowdown(
    attention_half_length, attention_length, query_head_size, value_head_size
):
    """Attention time of a kernel with head tiles / time at its rate."""
    slower = 1.0 + attention_half_length / xp.maximum(attention_length, 1.0)
    padded = _tiled(query_head_size) + _tiled(value_head_size)
    width = query_head_size + value_head_size
    return slower * xp.where(width > 0.0, padded / xp.where(width > 0.0, width, 1.0), 1.0)


@formula(returns="attention_forward_time", **KERNEL)
def fused_attention_forward_time(
    attention_forward_flops,
    attention_slowdown,
    attention_efficiency,
    attention_peak_flops,
    attention_speedup,
    clock_ratio,
):
    """Fused attention time per layer, forward."""
    rate = clock_ratio * (attention_efficiency * attention_peak_flops * attention_speedup)
    return attention_forward_flops * attention_slowdown / rate


@formula(returns="attention_backward_time", **KERNEL)
def fused_attention_backward_time(
    attention_backward_flops,
    attention_slowdown,
    attention_backward_efficiency,
    attention_efficiency,
    attention_peak_flops,
    attention_speedup,
    clock_ratio,
):
    """Fused attention time per layer, backward."""
    rate = attention_backward_efficiency * (attention_efficiency * attention_peak_flops)
    return attention_backward_flops * attention_slowdown / (clock_ratio * rate * attention_speedup)


# Unfused.

OF_PRODUCTS = "that is of a fused kernel's tiles: here two GEMMs compute the scores"


@formula(**KERNELS)
def attention_scores(rank_tokens, sequence_length, heads, tp, attention_layer_fraction):
    """Attention score matrix elements per rank, unfused: the mean of layers."""
    return attention_layer_fraction * (rank_tokens * sequence_length * (heads / tp))


def _unfused(passes: float) -> Any:
    """Return the kernel of one direction, in which scores are read or written so often."""

    def time(
        operations, part, clock, efficiency, flops, scores, element, dropout, mask, share, bandwidth
    ):
        each = passes * element + dropout * (2.0 * element + mask)
        moved = scores * each / (share * bandwidth)
        return operations / (clock * (part * (efficiency * flops))) + moved

    return time


UNFUSED_TAKES = (
    "unfused_efficiency",
    "clock_ratio",
    "matmul_efficiency",
    "output_matmul_flops",
    "attention_scores",
    "activation_bytes",
    "dropout",
    "mask_bytes",
    "memory_efficiency",
    "memory_bandwidth",
)
ONE_MORE = "dropout is one kernel more"
for _way, _passes, _words, _moved in (
    (
        "forward",
        4.0,
        "two GEMMs",
        "scores are written, softmax reads and writes them, the PV GEMM reads them",
    ),
    (
        "backward",
        7.0,
        "four GEMMs",
        "the gradient is read and written once as value gradient and twice as score gradient; "
        "softmax also reads its output",
    ),
):
    declare(
        f"attention_{_way}_time",
        (f"attention_{_way}_flops", *UNFUSED_TAKES),
        _unfused(_passes),
        f"Unfused attention time per layer, {_way}: {_words} and score traffic",
        assumes=(_moved, ONE_MORE),
        lacks={"attention_slowdown": OF_PRODUCTS},
        name=f"unfused_attention_{_way}_time",
        **KERNELS,
    )
