"""What a token attends to: windows, selected tokens, vectors of several, and what that costs."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula
from overhead.model.mixers import DSA
from overhead.transformer import BRIDGE, CAUSAL, FULL, MISTRAL

INDEX = cited("megatron", DSA)
# Windows: in all layers, or in some.

WINDOW = cited(MISTRAL, "section 2, sliding window attention")
WINDOWED = "layers without the window attend to all tokens"


@formula(
    assumes=("none are named: all have it", "a stage has as many of them as the mean"), **WINDOW
)
def sliding_window_fraction(sliding_window_layers, layers):
    """Fraction of layers with sliding-window attention, from their number."""
    return xp.where(
        sliding_window_layers > 0.0, xp.minimum(sliding_window_layers / layers, 1.0), 1.0
    )


def _within(whole, sliding_window):
    return xp.where(sliding_window > 0.0, xp.minimum(whole, sliding_window), whole)


def _attended(most, sequence):
    span = xp.minimum(most, sequence)
    return xp.asarray(span * (1.0 - span / (2.0 * sequence)))


def _in_chunks(most, sequence):
    """Return how many tokens are attended to on average within chunks, of which the last is cut."""
    span = xp.maximum(xp.minimum(most, sequence), 1.0)
    rest = sequence - span * xp.floor(sequence / span)
    return (span * (sequence - rest) + rest * rest) / (2.0 * sequence)


@formula(
    source=BRIDGE,
    where="docs/training/packed-sequences.md: sequence boundaries for attention",
    assumes=("documents are equally long, and as many as fill a sequence",),
)
def full_span(sequence_length, document_length):
    """Tokens that attention stays within: its document of the sequence."""
    return xp.minimum(sequence_length, document_length)


@formula(assumes=(WINDOWED, FULL), **WINDOW)
def attention_span(selected_span, sliding_window, sliding_window_fraction, pooled_span):
    """Attended tokens per query, full attention, layer mean."""
    within = _within(selected_span, sliding_window)
    return (
        sliding_window_fraction * within
        + (1.0 - sliding_window_fraction) * selected_span
        + pooled_span
    )


@formula(
    source=MISTRAL,
    where=f"{WINDOW['where']}, summed over the sequence",
    assumes=(WINDOWED, CAUSAL),
)
def causal_attention_span(
    selected_span,
    full_span,
    sliding_window,
    sliding_window_fraction,
    pooled_span,
    chunked_attention,
):
    """Attended tokens per query, causal attention, mean."""
    most = _within(selected_span, sliding_window)
    within = xp.where(
        chunked_attention > 0.0, _in_chunks(most, full_span), _attended(most, full_span)
    )
    whole = _attended(selected_span, full_span)
    return (
        sliding_window_fraction * within
        + (1.0 - sliding_window_fraction) * whole
        + 0.5 * pooled_span
    )


@formula(
    returns="attended_span",
    source="dao2023",
    where="section 3.1.1: blocks that a mask hides as a whole are left out",
    assumes=(
        WINDOWED,
        "tiles cut by the far end of the window are computed in full; tiles on the diagonal "
        "are in the kernel rate, as without a window",
    ),
    when={"mask": "causal", "attention_kernel": "flash_1|flash_2|flash_3|cudnn"},
)
def causal_tiled_span(
    selected_span,
    full_span,
    sliding_window,
    sliding_window_fraction,
    pooled_span,
    chunked_attention,
    attention_tile,
):
    """Tokens per query in computed tiles of a fused kernel, mean."""
    tile = xp.maximum(attention_tile, 1.0)
    reached = tile * (xp.ceil((sliding_window - 1.0) / tile) + 0.5)
    # Chunks end at tiles.
    cut = (sliding_window > 0.0) & (chunked_attention < 1.0)
    blocks = xp.where(cut, xp.maximum(sliding_window, reached), sliding_window)
    return causal_attention_span(
        selected_span, full_span, blocks, sliding_window_fraction, pooled_span, chunked_attention
    )


# Sparse attention: an indexer of its own selects for each token as many as are attended to.


@formula(source="deepseekv4", where="DeepseekV4HCACompressor")
def pooled_span(pooled_fraction, full_span, pooled_stride):
    """Compressed tokens attended per query in addition to the window, mean."""
    return pooled_fraction * full_span / xp.maximum(pooled_stride, 1.0)


@formula(assumes=("training on selected tokens: the dense warm-up is short",), **INDEX)
def selected_span(full_span, index_heads, index_top_k, sliding_window):
    """Tokens that attention selects: all, or as many as an indexer does and those of a window."""
    most = xp.maximum(xp.minimum(full_span, index_top_k + sliding_window), 1.0)
    return xp.where(index_heads > 0.0, most, full_span)


@formula(assumes=(FULL,), **INDEX)
def index_flops(indexer_fraction, full_span, index_heads, index_head_size, index_stride):
    """Indexer score FLOPs per token, forward, layer mean."""
    keys = full_span / xp.maximum(index_stride, 1.0)
    return 2.0 * indexer_fraction * keys * index_heads * (index_head_size + 1.0)


@formula(assumes=(CAUSAL,), **INDEX)
def causal_index_flops(index_flops):
    """Indexer score FLOPs per token, forward, causal."""
    return 0.5 * index_flops


@formula(
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/dsa_cudnn_kernels.py",
    assumes=(
        "its loss covers the selected tokens only, with recomputed indexer and attention scores",
    ),
)
def index_backward_flops(
    indexer_fraction,
    selected_span,
    full_span,
    index_heads,
    index_head_size,
    heads,
    tp,
    query_head_size,
):
    """Indexer FLOPs per token, backward: loss, and two GEMMs over the selection."""
    span = _attended(selected_span, full_span)
    index_width, attention = index_heads * index_head_size, heads / tp * query_head_size
    return indexer_fraction * span * (6.0 * index_width + 2.0 * attention)
