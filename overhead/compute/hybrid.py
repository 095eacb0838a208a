"""Layers that differ in what they attend to: of a layer the mean, over all of a model.

Some have a window, a gated delta net, or Mamba-2; routed experts may work on a latent vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from overhead.arrays import xp
from overhead.compute.attention import FUSED
from overhead.compute.layer import half_elementwise_bytes
from overhead.formula import alias, declare, formula, product
from overhead.memory.activations import INDEX
from overhead.quantity import Array
from overhead.transformer import BRIDGE, CAUSAL, FULL, MISTRAL

MEAN = "a stage has as many layers of each kind as the mean"
# Windows: in all layers, or in some.

WINDOW: dict[str, Any] = {"source": MISTRAL, "where": "section 2, sliding window attention"}
WINDOWED = "layers without the window attend to all tokens"


@formula(
    returns="windowed_share",
    assumes=("none are named: all have it", "a stage has as many of them as the mean"),
    when={"windows": "some"},
    **WINDOW,
)
def some_windowed_share(windowed_layers, layers):
    """Share of layers that the window holds in, of those that are named."""
    return xp.where(windowed_layers > 0.0, xp.minimum(windowed_layers / layers, 1.0), 1.0)


def _within(whole, window):
    return xp.where(window > 0.0, xp.minimum(whole, window), whole)


def _attended(most, sequence):
    span = xp.minimum(most, sequence)
    return xp.asarray(span * (1.0 - span / (2.0 * sequence)))


alias("whole_span", "sequence_length", "Tokens that attention stays within: the sequence",
      **WINDOW)  # fmt: skip


@formula(
    returns="whole_span",
    source=BRIDGE,
    where="docs/training/packed-sequences.md: sequence boundaries for attention",
    assumes=("documents are equally long, and as many as fill a sequence",),
    when={"packing": "documents"},
)
def packed_whole_span(sequence_length, document_length):
    """Tokens that attention stays within: its document of the sequence."""
    return xp.minimum(sequence_length, document_length)


@formula(assumes=(WINDOWED, FULL), **WINDOW)
def attention_span(selected_span, window, windowed_share, pooled_span):
    """Tokens that one token's scores span, masked ones counted, in the mean of layers."""
    within = _within(selected_span, window)
    return windowed_share * within + (1.0 - windowed_share) * selected_span + pooled_span


@formula(
    source=MISTRAL,
    where=f"{WINDOW['where']}, summed over the sequence",
    assumes=(WINDOWED, CAUSAL),
)
def causal_attention_span(selected_span, whole_span, window, windowed_share, pooled_span):
    """Mean number of tokens that one token attends to, masked ones not counted."""
    within = _attended(_within(selected_span, window), whole_span)
    whole = _attended(selected_span, whole_span)
    return windowed_share * within + (1.0 - windowed_share) * whole + 0.5 * pooled_span


@formula(
    source="dao2023",
    where="section 3.1.1: blocks that a mask hides as a whole are left out",
    assumes=(
        WINDOWED,
        "of blocks that a mask cuts those of the window's far end are computed whole; those on the "
        "diagonal are in the kernel's rate, as without a window",
    ),
)
def causal_tiled_span(
    selected_span, whole_span, window, windowed_share, pooled_span, attention_tile
):
    """Mean number of tokens of the blocks in which a fused kernel computes one token's scores."""
    tile = xp.maximum(attention_tile, 1.0)
    reached = tile * (xp.ceil((window - 1.0) / tile) + 0.5)
    blocks = xp.where(window > 0.0, xp.maximum(window, reached), 0.0)
    return causal_attention_span(selected_span, whole_span, blocks, windowed_share, pooled_span)


# Sparse attention: an indexer of its own selects for each token as many as are attended to.

INDEXED: dict[str, Any] = {**INDEX, "when": {"selection": "indexed"}}
alias("selected_span", "whole_span", "Tokens that attention selects of these: all", **INDEX)


@formula(
    returns="pooled_span",
    source="deepseekv4",
    where="DeepseekV4HCACompressor",
    assumes=(MEAN,),
    when={"selection": "indexed"},
)
def attended_pools(pooled_layers, layers, whole_span, pooled_stride):
    """Vectors of several tokens that a token attends to beside its window, in the mean."""
    return pooled_layers / layers * whole_span / xp.maximum(pooled_stride, 1.0)


@formula(
    source="deepseekv4",
    where="DeepseekV4CSACompressor, DeepseekV4HCACompressor",
    assumes=(
        "a value and a gate of each token, and of two windows where the indexer selects vectors",
        MEAN,
    ),
)
def pooling_weights(index_share, index_stride, pooled_layers, layers, hidden_size, head_size):
    """Weights that make one vector of several tokens', for attention, in the mean of layers."""
    selected = index_share * xp.where(index_stride > 1.0, 4.0, 0.0)
    return (selected + 2.0 * pooled_layers / layers) * hidden_size * head_size


@formula(
    returns="selected_span",
    assumes=("training on what is selected: the warm-up that attends to all is short",),
    **INDEXED,
)
def indexed_span(whole_span, index_heads, index_tokens):
    """Tokens that an indexer selects."""
    most = xp.maximum(xp.minimum(whole_span, index_tokens), 1.0)
    return xp.where(index_heads > 0.0, most, whole_span)


@formula(
    returns="index_share",
    assumes=("none are named: all layers have an indexer", MEAN),
    **INDEXED,
)
def indexed_share(index_heads, index_layers, layers):
    """Share of layers with an indexer of their own; the others take what one before selected."""
    own = xp.where(index_layers > 0.0, xp.minimum(index_layers / layers, 1.0), 1.0)
    return xp.where(index_heads > 0.0, own, 0.0)


@formula(
    returns="index_weights",
    assumes=(
        "whole on each rank; queries come from the latent vector, if there is one",
        "a key of several tokens takes a value and a gate of each, of two windows",
        "what pools tokens for attention is beside them, and products of 16 bits as the others",
    ),
    **INDEXED,
)
def indexed_weights(
    index_share, q_rank, hidden_size, index_heads, index_head_size, index_stride, pooling_weights
):
    """Weights of a layer's indexer, in the mean: to queries, to one key, to a weight a head."""
    queries = xp.where(q_rank > 0.0, q_rank, hidden_size) * index_heads * index_head_size
    keys = xp.where(index_stride > 1.0, 4.0, 1.0) * index_head_size
    own = index_share * (queries + hidden_size * (keys + index_heads))
    return xp.asarray(own + pooling_weights)


@formula(returns="index_norms", **INDEXED)
def indexed_norms(index_share, index_head_size):
    """Parameters of the layer norm of an indexer's keys, in the mean of layers."""
    return 2.0 * index_share * index_head_size


@formula(returns="index_flops", assumes=(FULL,), **INDEXED)
def indexed_flops(index_share, whole_span, index_heads, index_head_size, index_stride):
    """Forward FLOPs of one token by an indexer's scores and their sum, in the mean of layers."""
    keys = whole_span / xp.maximum(index_stride, 1.0)
    return 2.0 * index_share * keys * index_heads * (index_head_size + 1.0)


@formula(returns="causal_index_flops", assumes=(CAUSAL,), **INDEXED)
def causal_indexed_flops(index_flops):
    """Forward FLOPs of one token by an indexer's scores, masked ones not counted."""
    return 0.5 * index_flops


@formula(
    returns="index_backward_flops",
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/dsa_cudnn_kernels.py",
    assumes=(
        "its loss is of the selected tokens alone, for which its scores and attention's are "
        "computed again",
    ),
    when=INDEXED["when"],
)
def indexed_backward_flops(
    index_share, selected_span, whole_span, index_heads, index_head_size, heads, tp, query_head_size
):
    """Backward FLOPs of one token by an indexer: its loss, two products over what it selected."""
    span = _attended(selected_span, whole_span)
    own, attention = index_heads * index_head_size, heads / tp * query_head_size
    return index_share * span * (6.0 * own + 2.0 * attention)


MAMBA_CHUNK = 128.0  # megatron/core/ssm/mamba_mixer.py: chunk_size
GATED: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/ssm/gated_delta_net; megatron/training/training.py, gdn_layer_flops",
}
HYBRIDS: dict[str, Any] = {
    "source": "yang2025",
    "where": "section 3.4",
    "assumes": (MEAN,),
    "when": {"mixers": "hybrid"},
}


@formula(**GATED)
def linear_share(linear_layers, layers):
    """Share of layers that have linear attention: no more than all."""
    return xp.minimum(linear_layers / layers, 1.0)


@formula(returns="attention_layer_fraction", when=HYBRIDS["when"], **GATED)
def hybrid_attention_layer_fraction(linear_share):
    """Attention layers / layers, where the others have linear attention."""
    return 1.0 - linear_share


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
def linear_in_width(linear_convolved_width, linear_value_heads, linear_out_width, mamba):
    """Outputs of a linear attention's first product."""
    return linear_convolved_width + linear_out_width + (2.0 - mamba) * linear_value_heads


product("linear_out_width", ("linear_value_heads", "linear_value_size"),
        "Inputs of a linear attention's last product", **GATED)  # fmt: skip


def _mean(share, attention, linear):
    return xp.asarray((1.0 - share) * attention + share * linear)


@formula(returns="attention_weights", **HYBRIDS)
def hybrid_attention_weights(
    linear_share,
    output_gate,
    query_down_weights,
    key_value_down_weights,
    query_weights,
    key_value_weights,
    attention_output_weights,
    hidden_size,
    linear_in_width,
    linear_out_width,
    index_weights,
):
    """Weights of one layer's attention, or linear attention, in the mean."""
    down = query_down_weights + key_value_down_weights
    gate = output_gate * attention_output_weights
    own = down + query_weights + gate + key_value_weights + attention_output_weights
    linear = hidden_size * (linear_in_width + linear_out_width)
    return _mean(linear_share, own, linear) + index_weights


@formula(
    returns="attention_narrow_share",
    source="megatron",
    where="megatron/core/extensions/TransformerEngineMixedPrecision.md: linear_qkv, linear_proj",
    assumes=("products of linear attention are no attention's; of all products by their weights",),
    when=HYBRIDS["when"],
)
def hybrid_attention_narrow_share(
    narrow_share,
    bf16_attention,
    linear_share,
    hidden_size,
    linear_in_width,
    linear_out_width,
    attention_weights,
):
    """Share of attention's and linear attention's products that aren't left in 16 bits."""
    linear = linear_share * hidden_size * (linear_in_width + linear_out_width)
    others = xp.minimum(linear / xp.maximum(attention_weights, 1.0), 1.0)
    return narrow_share * (1.0 - bf16_attention * (1.0 - others))


@formula(returns="attention_rank_weights", **HYBRIDS)
def hybrid_attention_rank_weights(
    linear_share,
    output_gate,
    query_down_weights,
    key_value_down_weights,
    query_weights,
    rank_key_value_weights,
    attention_output_weights,
    tp,
    hidden_size,
    linear_in_width,
    linear_out_width,
    index_weights,
):
    """Weights of one layer's attention on one rank, in the mean."""
    own = query_weights + (1.0 + output_gate) * attention_output_weights
    linear = hidden_size * (linear_in_width + linear_out_width) / tp
    down = query_down_weights + key_value_down_weights
    whole = down + rank_key_value_weights
    return _mean(linear_share, whole + own / tp, linear) + index_weights


@formula(returns="attention_norm_parameters", **HYBRIDS)
def hybrid_attention_norm_parameters(
    linear_share,
    qk_norms,
    head_size,
    q_rank,
    kv_rank,
    linear_kernel,
    linear_convolved_width,
    linear_value_heads,
    linear_value_size,
    linear_out_width,
    mamba,
    index_norms,
    attention_sinks,
):
    """Norms and sinks of one layer's attention; of a linear one its convolution, decay and norm.

    Mamba-2's convolution has a bias, its decay a third number a head, and its norm is of all heads.
    """
    convolution = (linear_kernel + mamba) * linear_convolved_width
    norm = xp.where(mamba > 0.0, linear_out_width, linear_value_size)
    linear = convolution + (2.0 + mamba) * linear_value_heads + norm
    own = 2.0 * qk_norms * head_size + q_rank + kv_rank + attention_sinks
    return _mean(linear_share, own, linear) + index_norms


@formula(
    returns="linear_adapter_width",
    source="hu2021",
    where="section 4.1",
    assumes=(MEAN, "both products of a linear attention have one"),
    when={"tuning": "lora", **HYBRIDS["when"]},
)
def hybrid_linear_adapter_width(linear_share, hidden_size, linear_in_width, linear_out_width):
    """Inputs and outputs of a linear attention's adapted products, in the mean of layers."""
    return linear_share * (2.0 * hidden_size + linear_in_width + linear_out_width)


HYBRID: dict[str, Any] = {
    "source": "yang2025",
    "where": "section 3.4; operations as gdn_layer_flops of megatron/training/training.py has them",
    "when": {"mixers": "hybrid"},
}
AT_RATE = "a linear attention's state is computed at attention's rate"


@formula(returns="qkv_width", **HYBRID)
def hybrid_qkv_width(
    linear_share,
    query_down_weights,
    key_value_down_weights,
    rank_key_value_weights,
    output_gate,
    query_weights,
    attention_output_weights,
    tp,
    hidden_size,
    linear_in_width,
    index_weights,
):
    """Outputs of the first products of attention or linear attention, on one rank, in the mean."""
    whole = query_down_weights + key_value_down_weights + rank_key_value_weights
    gate = output_gate * attention_output_weights
    own = (whole + (query_weights + gate) / tp) / hidden_size
    mean = (1.0 - linear_share) * own + linear_share * linear_in_width / tp
    return mean + index_weights / hidden_size


@formula(returns="attention_width", **HYBRID)
def hybrid_attention_width(
    linear_share, attention_output_weights, hidden_size, tp, linear_out_width
):
    """Inputs of the last product of attention or linear attention, on one rank, in the mean."""
    context = attention_output_weights / hidden_size
    return ((1.0 - linear_share) * context + linear_share * linear_out_width) / tp


@formula(
    source="megatron",
    where="megatron/training/training.py, gdn_layer_flops and mamba_layer_flops",
    assumes=("Mamba-2's state is counted as of a scan: 7 for each of its numbers",),
)
def linear_scan_flops(
    linear_kernel,
    linear_convolved_width,
    linear_value_heads,
    linear_value_size,
    linear_key_size,
    mamba,
):
    """Forward FLOPs of one token by a linear attention's convolution and state."""
    own = linear_value_heads * linear_value_size
    state = xp.where(mamba > 0.0, 7.0 * own * linear_key_size, 8.0 * own * linear_value_size)
    return 2.0 * linear_kernel * linear_convolved_width + state


def _scores(layers, share, span, heads, size, scan, index):
    return layers * ((1.0 - share) * 2.0 * span * heads * size + share * scan + index)


@formula(returns="attention_flops_per_token", **HYBRID)
def hybrid_attention_flops_per_token(
    layers,
    linear_share,
    attention_span,
    heads,
    query_head_size,
    value_head_size,
    linear_scan_flops,
    index_flops,
):
    """Forward FLOPs of one token by scores and values, or by a linear attention's state."""
    size = query_head_size + value_head_size
    mixers = (linear_share, attention_span, heads, size, linear_scan_flops)
    return _scores(layers, *mixers, index_flops)


@formula(returns="causal_attention_flops_per_token", **HYBRID)
def hybrid_causal_attention_flops_per_token(
    layers,
    linear_share,
    causal_attention_span,
    heads,
    query_head_size,
    value_head_size,
    linear_scan_flops,
    causal_index_flops,
):
    """Forward FLOPs of one token, masked scores not counted, with a linear attention's state."""
    size = query_head_size + value_head_size
    mixers = (linear_share, causal_attention_span, heads, size, linear_scan_flops)
    return _scores(layers, *mixers, causal_index_flops)


HYBRID_FUSED = {**HYBRID, "when": {"mixers": "hybrid", "attention_kernel": FUSED}}


@formula(returns="attention_forward_flops", assumes=(AT_RATE,), **HYBRID)
def hybrid_attention_forward_flops(
    rank_tokens,
    attended_span,
    heads,
    tp,
    query_head_size,
    value_head_size,
    linear_share,
    linear_scan_flops,
    indexed_forward_flops,
):
    """Operations of a layer's scores and values, or linear attention, on one rank."""
    scores = 2.0 * attended_span * heads * (query_head_size + value_head_size)
    mean = (1.0 - linear_share) * scores + linear_share * linear_scan_flops
    return rank_tokens * (mean / tp + indexed_forward_flops)


@formula(returns="attention_backward_flops", assumes=(AT_RATE,), **HYBRID_FUSED)
def hybrid_attention_backward_flops(
    rank_tokens,
    attended_span,
    heads,
    tp,
    query_head_size,
    value_head_size,
    linear_share,
    linear_scan_flops,
    index_backward_flops,
):
    """Operations of the backward of a layer's scores and values, or linear attention."""
    scores = 2.0 * attended_span * heads * (3.0 * query_head_size + 2.0 * value_head_size)
    mean = (1.0 - linear_share) * scores + 2.0 * linear_share * linear_scan_flops
    return rank_tokens * (mean / tp + index_backward_flops)


@formula(
    returns="half_elementwise_bytes",
    source="megatron",
    where="megatron/core/ssm: what leads to a scan isn't rotated",
    when={"mixers": "hybrid"},
)
def hybrid_half_elementwise_bytes(
    activation_bytes,
    dropout,
    mask_bytes,
    rank_tokens,
    hidden_size,
    sequence_shards,
    qkv_width,
    latent_width,
    merged_bytes,
    residual_streams,
    linear_share,
    linear_in_width,
    tp,
):
    """Bytes that a hybrid's layer's forward moves beside its MLP and its scan, in the mean."""
    rotated = xp.maximum(qkv_width - linear_share * linear_in_width / tp, 0.0)
    merged = (1.0 - linear_share) * merged_bytes
    return half_elementwise_bytes(activation_bytes, dropout, mask_bytes, rank_tokens, hidden_size,
                                  sequence_shards, rotated, latent_width, merged,
                                  residual_streams)  # fmt: skip


# Kernels of Mamba-2 and of a gated delta net follow one another, each reading and writing the GPU's
# memory; what heads and blocks read again is in the cache.  What each moves is in
# tests/overhead/test_hybrid.py, kernel by kernel.
SCAN: dict[str, Any] = {
    "source": "mambassm",
    "where": "mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn and what it "
    "calls @e9594ce1c7, as megatron/core/ssm/mamba_mixer.py, _ssm_training, calls it; of a gated "
    "delta net fla-org/flash-linear-attention, fla/ops/gated_delta_rule/chunk.py @bc3b101dcb and "
    "what it calls, as megatron/core/ssm/gated_delta_net @d98e8a64dd does",
    "when": {"mixers": "hybrid"},
}


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
    "linear_share", "mamba", "rank_tokens", "tp", "micro_batch", "activation_bytes", "single_bytes",
    "linear_in_width", "linear_convolved_width", "linear_out_width", "linear_key_heads",
    "linear_key_size", "linear_value_heads",
)  # fmt: skip


def _scanned(way: str) -> Any:
    halves, singles, copies = MOVED[way]
    delta_halves, delta_singles = DELTA_MOVED[way]

    def moved(
        share: Array, mamba: Array, tokens: Array, tp: Array, micro_batch: Array, half: Array,
        single: Array, into: Array, convolved: Array, inner: Array, key_heads: Array,
        key_size: Array, heads: Array,
    ) -> Array:  # fmt: skip
        groups, states = key_heads * key_size, inner * key_size / MAMBA_CHUNK
        products = key_heads * MAMBA_CHUNK
        narrow = _weighted(halves, (convolved, groups, inner, states, heads))
        wide = _weighted(singles, (states, products, groups, heads))
        copied = xp.where(micro_batch > 1.0, 2.0 * half * _weighted(copies, (into, inner)), 0.0)
        scanned = half * narrow + single * wide + copied
        repeated, within = heads * key_size, heads * DELTA_CHUNK
        delta = (convolved, groups, repeated, inner, inner * key_size / DELTA_CHUNK, within, heads)
        ruled = half * _weighted(delta_halves, delta) + single * delta_singles * heads
        ruled = ruled + xp.where(micro_batch > 1.0, 2.0 * half * inner, 0.0)
        return share * tokens / tp * xp.where(mamba > 0.0, scanned, ruled)

    return moved


def _weighted(counts: Sequence[float], sizes: Sequence[Array]) -> Array:
    """Return a sum of sizes, each counted so often; what isn't counted isn't in it."""
    return reduce(add, (count * size for count, size in zip(counts, sizes, strict=True) if count))


for _way in MOVED:
    declare(f"scan_{_way}_bytes", SIZES, _scanned(_way), **SCAN)


@formula(
    assumes=(
        "Mamba-2's: as fitted to 16 step times of Nemotron-3 Nano (NVIDIA-NeMo/Megatron-Bridge, "
        "docs/performance-summary-archive.md @067f987df0) on H100, B200, GB200 and GB300, 7 % off "
        "in the mean",
        "a gated delta net's: as measured of its chunked kernels on GB200, four shapes that move 3 "
        "GB and more, forward and back (fla-org/flash-linear-attention, README.md @bc3b101dcb); "
        "0.38 to 0.50 one by one, both directions together",
    ),
    **SCAN,
)
def scan_rate(mamba):
    """Rate at which a linear attention's kernels move bytes, by that of others."""
    # Triton's kernels wait rather than move: a scan's tuned for H800 reaches 0.4 (tile-ai/tilelang,
    # benchmark/mamba2/README.md @be9c08f6fd).
    return xp.where(mamba > 0.0, 0.34, 0.45)
