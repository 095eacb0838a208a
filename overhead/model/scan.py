"""Linear attention: widths of its GEMMs, FLOPs of its scan, and what its kernels move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, declare, formula
from overhead.quantity import Array
from overhead.shipped import usual_table

MAMBA_CHUNK = 128.0  # megatron/core/ssm/mamba_mixer.py: chunk_size
GATED = cited(
    "megatron", "megatron/core/ssm/gated_delta_net; megatron/training/training.py, gdn_layer_flops"
)


@formula(**GATED)
def linear_convolved_width(linear_key_heads, linear_key_size, linear_out_width):
    """Queries, keys and values of a linear attention, over which its convolution goes."""
    return 2.0 * linear_key_heads * linear_key_size + linear_out_width


@formula(
    assumes=(
        "queries, keys, values, an output gate, and two numbers a value head; of Mamba-2's, whose "
        "groups of states stand for queries and keys, one (megatron/core/ssm/mamba_mixer.py)",
    ),
    **GATED,
)
def linear_in_width(
    linear_convolved_width, linear_value_heads, linear_out_width, mamba, linear_width
):
    """Linear-attention input projection outputs."""
    convolved_width = linear_convolved_width + linear_out_width + (2.0 - mamba) * linear_value_heads
    return xp.where(linear_width > 0.0, linear_width, convolved_width)


@formula(
    source="megatron",
    where="megatron/training/training.py, gdn_layer_flops and mamba_layer_flops",
    assumes=("Mamba-2's state is counted as of a scan: 7 for each of its numbers",),
)
def linear_attention_scan_flops(
    linear_kernel,
    linear_convolved_width,
    linear_value_heads,
    linear_value_size,
    linear_key_size,
    mamba,
):
    """Linear-attention convolution and state FLOPs per token, forward."""
    value_width = linear_value_heads * linear_value_size
    state = xp.where(
        mamba > 0.0, 7.0 * value_width * linear_key_size, 8.0 * value_width * linear_value_size
    )
    return 2.0 * linear_kernel * linear_convolved_width + state


# Kernels of Mamba-2 and of a gated delta net follow one another, each reading and writing the GPU's
# memory; what heads and blocks read again is in the cache.  What each moves is in
# tests/overhead/test_hybrid.py, kernel by kernel.
SCAN = cited(
    "mambassm",
    "mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn and what it "
    "calls @e9594ce1c7, as megatron/core/ssm/mamba_mixer.py, _ssm_training, calls it; of a gated "
    "delta net fla-org/flash-linear-attention, fla/ops/gated_delta_rule/chunk.py @bc3b101dcb and "
    "what it calls, as megatron/core/ssm/gated_delta_net @d98e8a64dd does",
)


# How many elements a token Mamba-2's kernels move: in 16 bits of what is convolved, of the groups'
# states, of what is inside, of the states of chunks and of heads; in single precision of the states
# and products of chunks, of the groups' states and of heads; and which of what leads to the scan
# and from it is copied where several sequences follow one another.
MOVED = {
    "forward": ((2.0, 4.0, 7.0, 2.0, 1.0), (2.0, 2.0, 0.0, 6.0), (1.0, 1.0)),
    "backward": ((5.0, 11.0, 20.0, 5.0, 5.0), (6.0, 8.0, 8.0, 44.0), (1.0, 0.0)),
}
# The same of a gated delta net's, whose queries and keys are repeated for each value head: in 16
# bits of what is convolved, of keys before that and after, of values, of the states of chunks, of
# tokens' products in a chunk and of heads; in single precision of heads.  Where several sequences
# follow one another, what leads from it is copied in both directions.
DELTA_MOVED = {
    "forward": ((2.0, 10.0, 9.0, 13.0, 2.0, 3.0, 5.0), 7.0),
    "backward": ((10.0, 8.0, 22.0, 24.0, 4.0, 2.0, 12.0), 16.0),
}
DELTA_CHUNK = 64.0  # chunk_size
SIZES = (
    "mamba",
    "rank_tokens",
    "tp",
    "micro_batch_size",
    "activation_bytes",
    "single_bytes",
    "linear_in_width",
    "linear_convolved_width",
    "linear_out_width",
    "linear_key_heads",
    "linear_key_size",
    "linear_value_heads",
)


def _scanned(way: str) -> Any:
    halves, singles, copies = MOVED[way]
    delta_halves, delta_singles = DELTA_MOVED[way]

    def moved(
        mamba: Array,
        tokens: Array,
        tp: Array,
        micro_batch_size: Array,
        half: Array,
        single: Array,
        into: Array,
        convolved: Array,
        inner: Array,
        key_heads: Array,
        key_size: Array,
        heads: Array,
    ) -> Array:
        groups, states = key_heads * key_size, inner * key_size / MAMBA_CHUNK
        products = key_heads * MAMBA_CHUNK
        narrow = _weighted(halves, (convolved, groups, inner, states, heads))
        wide = _weighted(singles, (states, products, groups, heads))
        copied = xp.where(
            micro_batch_size > 1.0, 2.0 * half * _weighted(copies, (into, inner)), 0.0
        )
        scanned = half * narrow + single * wide + copied
        repeated, within = heads * key_size, heads * DELTA_CHUNK
        delta = (convolved, groups, repeated, inner, inner * key_size / DELTA_CHUNK, within, heads)
        ruled = half * _weighted(delta_halves, delta) + single * delta_singles * heads
        ruled = ruled + xp.where(micro_batch_size > 1.0, 2.0 * half * inner, 0.0)
        return tokens / tp * xp.where(mamba > 0.0, scanned, ruled)

    return moved


def _weighted(counts: Sequence[float], sizes: Sequence[Array]) -> Array:
    """Return a sum of sizes, each counted so often; what isn't counted isn't in it."""
    return reduce(add, (count * size for count, size in zip(counts, sizes, strict=True) if count))


for _way in MOVED:
    declare(f"linear_attention_scan_{_way}_bytes", SIZES, _scanned(_way), **SCAN)


MAMBA_RATE = usual_table()["kernels"]["mamba_scan_rate"].value
DELTA_RATE = usual_table()["kernels"]["delta_scan_rate"].value


@formula(
    assumes=(
        "Mamba-2: fitted to 16 step times of Nemotron-3 Nano (NVIDIA-NeMo/Megatron-Bridge, "
        "docs/performance-summary-archive.md @067f987df0) on H100, B200, GB200 and GB300, mean "
        "absolute error 7 %",
        "gated delta net: measured chunked kernels on GB200, four shapes that move 3 GB and "
        "more, forward and backward (fla-org/flash-linear-attention, README.md @bc3b101dcb); "
        "0.38 to 0.50 per kernel, both directions together",
    ),
    **SCAN,
)
def linear_attention_scan_rate(mamba):
    """Linear-attention scan bandwidth / other kernels."""
    return xp.where(mamba > 0.0, MAMBA_RATE, DELTA_RATE)
