"""What mixes tokens in a layer, by kind: attention, linear attention, and what selects tokens.

Each kind has its share of a model's layers.  An indexer and a compressor are beside attention, in
the layers that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, Unpack

from overhead.arrays import xp
from overhead.formula import Further, cited, declare, formula
from overhead.frozen import frozen
from overhead.model.layer import (
    AGAIN,
    HEADS,
    OF_KEPT,
    ROWS,
    WHOLE,
    Kept,
    Linear,
    Part,
    Sum,
    adapter_width,
    all_parameters,
    first_width,
    further_up_width,
    kept_bytes,
    key_value_width,
    last_width,
    module_bytes,
    rank_parameters,
    rank_weights,
    repeated_weights,
    residual,
    sum_of,
    up_weights,
    up_width,
    weights,
)
from overhead.quantity import Array

VASWANI, DEEPSEEK_V2, DSV4 = "vaswani2017", "deepseekv2", "deepseekv4"
DSA = "megatron/core/transformer/experimental_attention_variant/dsa.py"


def _output(context, hidden_size, rank, groups, linear_bias, attention_output_bias):
    """From the context back to hidden: one GEMM, or groups of heads through a rank's vectors."""
    between, bias = rank * groups, xp.maximum(linear_bias, attention_output_bias)
    return (
        Linear(context, between, ROWS, groups=xp.maximum(groups, 1.0)),
        Linear(xp.where(rank > 0.0, between, context), hidden_size, ROWS, bias),
    )


def _query_key_norms(qk_norms, qk_norms_over_heads, qk_norm_biases, heads, kv_heads, head_size):
    """Norms of queries and of keys: over one head, or over all together."""
    normed = xp.where(qk_norms_over_heads > 0.0, heads + kv_heads, 2.0)
    return (1.0 + qk_norm_biases) * normed * qk_norms * head_size


def grouped_query(
    hidden_size,
    heads,
    kv_heads,
    head_size,
    q_lora_rank,
    output_gate,
    output_rank,
    output_groups,
    linear_bias,
    qkv_biases,
    attention_output_bias,
    qk_norms,
    qk_norms_over_heads,
    qk_norm_biases,
    attention_sinks,
):
    """Attention with heads of their own; queries may come from a latent vector."""
    context, bias = heads * head_size, xp.maximum(linear_bias, qkv_biases)
    low = xp.where(q_lora_rank > 0.0, 1.0, 0.0)
    linears = (
        Linear(hidden_size, q_lora_rank, WHOLE, bias),
        Linear(xp.where(q_lora_rank > 0.0, q_lora_rank, hidden_size), context, bias=bias, up=low),
        Linear(
            hidden_size, 2.0 * kv_heads * head_size, bias=bias, most=kv_heads, keys=True, alone=low
        ),
        Linear(hidden_size, output_gate * context, alone=0.0),
        *_output(
            context, hidden_size, output_rank, output_groups, linear_bias, attention_output_bias
        ),
    )
    norms = _query_key_norms(
        qk_norms, qk_norms_over_heads, qk_norm_biases, heads, kv_heads, head_size
    )
    return Part(linears, (norms + q_lora_rank + attention_sinks,))


def latent_attention(
    hidden_size,
    heads,
    head_size,
    q_lora_rank,
    kv_lora_rank,
    qk_nope_head_size,
    qk_rope_head_size,
    v_head_size,
    output_gate,
    output_rank,
    output_groups,
    linear_bias,
    qkv_biases,
    attention_output_bias,
    latent_bias,
    qk_norms,
    attention_sinks,
):
    """Attention whose keys and values are projected up from one latent vector (MLA)."""
    context, bias = heads * v_head_size, xp.maximum(linear_bias, qkv_biases)
    queries = heads * (qk_nope_head_size + qk_rope_head_size)
    down = xp.maximum(bias, latent_bias)
    linears = (
        Linear(hidden_size, q_lora_rank, WHOLE, down),
        Linear(xp.where(q_lora_rank > 0.0, q_lora_rank, hidden_size), queries, bias=bias, up=1.0),
        Linear(hidden_size, kv_lora_rank + qk_rope_head_size, WHOLE, down),
        Linear(
            kv_lora_rank, heads * (qk_nope_head_size + v_head_size), bias=bias, up=1.0, keys=True
        ),
        Linear(hidden_size, output_gate * context),
        *_output(
            context, hidden_size, output_rank, output_groups, linear_bias, attention_output_bias
        ),
    )
    return Part(
        linears, (2.0 * qk_norms * head_size + q_lora_rank + kv_lora_rank + attention_sinks,)
    )


def linear_attention(
    hidden_size,
    linear_in_width,
    linear_out_width,
    linear_convolved_width,
    linear_kernel,
    linear_value_heads,
    linear_value_size,
    mamba,
    linear_bias,
    linear_width,
    linear_further_weights,
    linear_numbers,
):
    """A gated delta net or Mamba-2: convolution, decay and norm beside two GEMMs.

    Mamba-2's convolution has a bias, its decay a third number a head, and its norm is of all heads.
    Other kinds state what they have in their place, and of GEMMs between the two.
    """
    linears = (
        Linear(hidden_size, linear_in_width, bias=linear_bias),
        Linear(hidden_size, linear_further_weights / hidden_size, adapted=False),
        Linear(linear_out_width, hidden_size, ROWS, linear_bias),
    )
    norm = xp.where(mamba > 0.0, linear_out_width, linear_value_size)
    convolution = (linear_kernel + mamba) * linear_convolved_width
    numbers = convolution + (2.0 + mamba) * linear_value_heads + norm
    return Part(linears, (xp.where(linear_width > 0.0, linear_numbers, numbers),))


def indexer(hidden_size, head_size, q_lora_rank, index_heads, index_head_size, index_stride):
    """What selects tokens for attention, or vectors of several, which it then makes as well."""
    several = xp.where(index_stride > 1.0, 1.0, 0.0)
    source = xp.where(q_lora_rank > 0.0, q_lora_rank, hidden_size)
    linears = (
        Linear(source, index_heads * index_head_size, WHOLE, adapted=False),
        Linear(hidden_size, (1.0 + 3.0 * several) * index_head_size, WHOLE, adapted=False),
        Linear(hidden_size, index_heads, WHOLE, adapted=False),
        Linear(hidden_size, 4.0 * several * head_size, WHOLE, adapted=False),
    )
    return Part(linears, (2.0 * index_head_size,))


def compressor(hidden_size, head_size):
    """What makes one vector of several tokens', all of which are attended to."""
    return Part((Linear(hidden_size, 2.0 * head_size, WHOLE, adapted=False),))


# What each keeps for its backward.

CAST = "an FP8 GEMM's input is kept as FP8 alone"


def grouped_query_kept(
    hidden_size,
    heads,
    kv_heads,
    head_size,
    q_lora_rank,
    output_gate,
    output_rank,
    output_groups,
    qk_norms,
    score_bytes,
    activation_bytes,
    norm_kept_bytes,
    kept_attention_input_bytes,
    kept_context_bytes,
    dropout,
    mask_bytes,
    residual_streams,
    layer_norms,
):
    """Queries, keys, values, scores and context, and latent vectors before and after their norm."""
    context, keys = heads * head_size, kv_heads * head_size
    low = xp.where(q_lora_rank > 0.0, 1.0, 0.0)
    return (
        *residual(
            hidden_size,
            activation_bytes,
            norm_kept_bytes,
            kept_attention_input_bytes,
            dropout,
            mask_bytes,
            residual_streams,
            layer_norms,
        ),
        Kept(2.0 * q_lora_rank, activation_bytes),
        Kept(low * context, activation_bytes, HEADS, ("recompute_mla_up_proj",)),
        Kept((1.0 - low) * context, activation_bytes, HEADS),
        Kept(2.0 * keys, activation_bytes, HEADS, most=kv_heads),
        Kept(qk_norms * context, activation_bytes, HEADS),
        Kept(qk_norms * keys, activation_bytes, HEADS, most=kv_heads),
        Kept(2.0 * output_gate * context, activation_bytes, HEADS),
        Kept(heads, score_bytes, HEADS, ("recompute_core_attn",)),
        Kept(context, kept_context_bytes, HEADS),
        Kept(output_rank * output_groups, kept_attention_input_bytes, HEADS),
    )


def latent_attention_kept(
    hidden_size,
    heads,
    head_size,
    q_lora_rank,
    kv_lora_rank,
    qk_nope_head_size,
    qk_rope_head_size,
    v_head_size,
    output_gate,
    output_rank,
    output_groups,
    qk_norms,
    score_bytes,
    activation_bytes,
    norm_kept_bytes,
    kept_attention_input_bytes,
    kept_context_bytes,
    dropout,
    mask_bytes,
    residual_streams,
    layer_norms,
):
    """Latent vectors before and after their norm; queries, keys and values from them; context."""
    context, queries = heads * v_head_size, heads * (qk_nope_head_size + qk_rope_head_size)
    up = ("recompute_mla_up_proj",)
    return (
        *residual(
            hidden_size,
            activation_bytes,
            norm_kept_bytes,
            kept_attention_input_bytes,
            dropout,
            mask_bytes,
            residual_streams,
            layer_norms,
        ),
        Kept(2.0 * (q_lora_rank + kv_lora_rank) + qk_rope_head_size, activation_bytes),
        Kept(2.0 * queries + context, activation_bytes, HEADS, up),
        Kept(2.0 * qk_norms * heads * head_size, activation_bytes, HEADS),
        Kept(2.0 * output_gate * context, activation_bytes, HEADS),
        Kept(heads, score_bytes, HEADS, ("recompute_core_attn",)),
        Kept(context, kept_context_bytes, HEADS),
        Kept(output_rank * output_groups, kept_attention_input_bytes, HEADS),
    )


def linear_attention_kept(
    hidden_size,
    linear_in_width,
    linear_convolved_width,
    linear_out_width,
    mamba,
    activation_bytes,
    norm_kept_bytes,
    kept_attention_input_bytes,
    dropout,
    mask_bytes,
    residual_streams,
    layer_norms,
):
    """What the first GEMM gives, the convolution's output, the state's before and after its norm.

    Mamba-2's kernel computes the convolution again, and has the gate, whose result the norm keeps.
    """
    return (
        *residual(
            hidden_size,
            activation_bytes,
            norm_kept_bytes,
            kept_attention_input_bytes,
            dropout,
            mask_bytes,
            residual_streams,
            layer_norms,
        ),
        Kept(linear_in_width, activation_bytes, HEADS),
        Kept((1.0 - mamba) * linear_convolved_width, activation_bytes, HEADS),
        Kept((1.0 + mamba) * linear_out_width, activation_bytes, HEADS),
        Kept(linear_out_width, kept_attention_input_bytes, HEADS),
    )


def indexer_kept(index_heads, index_head_size, selected_span, activation_bytes, single_bytes):
    """Queries, keys and weights, and of each selected token a place in 64 bits."""
    width = index_heads * (index_head_size + 1.0) + index_head_size
    positions = Kept(2.0 * selected_span, single_bytes, WHOLE)
    return Kept(width, activation_bytes, WHOLE), positions


@frozen()
class Mixer:
    """A kind of mixer: its GEMMs, its share of the layers, and where it is described."""

    name: str  # With which its quantities' names begin
    part: Callable[..., Part]
    kept: Callable[..., tuple[Kept, ...]] | None
    share: str
    source: str
    where: str
    assumes: tuple[str, ...] = ()  # What its functions assume
    layers: str = ""  # How many have it, where a model says so
    scans: bool = False  # Over a state in place of scores: its GEMMs aren't attention's


GDN = "megatron/core/ssm/gated_delta_net and mamba_mixer.py"
MIXERS = (
    Mixer("grouped_query", grouped_query, grouped_query_kept, "grouped_query_fraction",
          VASWANI,
          "section 3.2.2; groups: Ainslie et al. 2023, section 2.2; output in groups of heads "
          "through vectors of a rank: DeepSeek-V4, section 2.3.1",
          ("norms of queries and keys: over one head, shared by all, or over all of them",)),
    Mixer("latent_attention", latent_attention, latent_attention_kept, "latent_attention_fraction",
          DEEPSEEK_V2, "section 2.1",
          ("all heads share the rotated part of the keys, which comes straight from hidden",
           "each latent vector has an RMS norm; projections down to it are whole on each rank")),
    Mixer("linear_attention", linear_attention, linear_attention_kept, "linear_attention_fraction",
          "megatron", GDN, layers="linear_layers", scans=True),
    Mixer("indexer", indexer, indexer_kept, "indexer_fraction", "megatron", DSA,
          ("whole on each rank; queries come from the latent vector, if there is one",
           "a key of several tokens takes a value and a gate of each, of two windows")),
    Mixer("compressor", compressor, None, "pooled_fraction", DSV4, "DeepseekV4HCACompressor",
          ("a value and a gate of each token",), layers="pooled_layers"),
)  # fmt: skip
SCANNING = tuple(mixer for mixer in MIXERS if mixer.scans)
ATTENDING = tuple(mixer for mixer in MIXERS if not mixer.scans)


def _mean(*values):
    """Mean over layers: shares and what a layer has, by turns."""
    each = [share * value for share, value in zip(values[::2], values[1::2], strict=True)]
    return xp.asarray(reduce(add, each))


def over_mixers(
    of: Sum,
    more: Sequence[str] = (),
    *,
    mixers: Sequence[Mixer] = MIXERS,
    kept: bool = False,
    narrow: bool = False,
) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """Return the mean over layers of a sum over GEMMs (narrow ones) or over what is kept.

    First the quantities of which it follows, then the mean of these.
    """
    kinds = [(mixer, mixer.kept if kept else mixer.part) for mixer in mixers]
    each = [(mixer, *sum_of(of, kind, more)) for mixer, kind in kinds if kind]
    each = [(mixer, names, part_kernel) for mixer, names, part_kernel in each if names]
    names = [name for mixer, names, _ in each for name in (mixer.share, *names)]
    names += ["low_precision_layer_fraction", "bf16_attention"] if narrow else []
    inputs = tuple(dict.fromkeys(names))

    def kernel(*values: Array) -> Any:
        given = dict(zip(inputs, values, strict=True))
        parts = []
        for mixer, names, part_kernel in each:
            share = given[mixer.share]
            if narrow:
                left = 0.0 if mixer.scans else given["bf16_attention"]
                share = share * (given["low_precision_layer_fraction"] * (1.0 - left))
            parts.append(share * part_kernel(*(given[name] for name in names)))
        return xp.asarray(reduce(add, parts))

    return inputs, kernel


def mean_of(
    returns: str,
    of: Sum,
    more: Sequence[str] = (),
    *,
    mixers: Sequence[Mixer] = MIXERS,
    kept: bool = False,
    narrow: bool = False,
    **further: Unpack[Further],
) -> None:
    """Declare a quantity as a mean of `over_mixers`."""
    inputs, kernel = over_mixers(of, more, mixers=mixers, kept=kept, narrow=narrow)
    declare(returns, inputs, kernel, **further)


def whole(part: Part) -> Array:
    """Weights, biases and norms of a mixer."""
    return all_parameters(part, weights(part))


KINDS = cited("derivation", assumes=tuple(words for mixer in MIXERS for words in mixer.assumes))
mean_of("mixer_weights", weights, **KINDS)
mean_of("mixer_parameters", whole, **KINDS)
mean_of("mixer_rank_parameters", rank_parameters, ("tp",), **KINDS)
mean_of("mixer_activations", kept_bytes, OF_KEPT, kept=True, assumes=(CAST,))
_inputs, _kernel = over_mixers(whole, mixers=ATTENDING)


def _attending(all_layers, fraction, *sizes):
    some = fraction > 0.0
    return xp.where(some, _kernel(*sizes) / xp.where(some, fraction, 1.0), all_layers)


declare(
    "attending_parameters",
    ("mixer_parameters", "attention_layer_fraction", *_inputs),
    _attending,
    "Attention parameters of a layer that has it",
)


# Shares of the layers: of mixers, which are one a layer, and of what is beside attention in some.


def _share(some, layers):
    return xp.minimum(some / layers, 1.0)


def _others(parallel_mixers, *shares):
    return xp.maximum(1.0 - (1.0 - parallel_mixers) * reduce(add, shares), 0.0)


for _mixer in MIXERS:
    if _mixer.layers:
        _said: Further = {"source": _mixer.source, "where": _mixer.where, "assumes": ("at most 1",)}
        declare(_mixer.share, (_mixer.layers, "layers"), _share, **_said)
declare(
    "attention_layer_fraction",
    ["parallel_mixers", *(mixer.share for mixer in SCANNING)],
    _others,
    source="megatron",
    where=GDN,
)


@formula(source=DEEPSEEK_V2, where="section 2.1")
def grouped_query_fraction(attention_layer_fraction, kv_lora_rank):
    """Fraction of layers with grouped-query attention."""
    return xp.where(kv_lora_rank > 0.0, 0.0, attention_layer_fraction)


@formula(source=DEEPSEEK_V2, where="section 2.1")
def latent_attention_fraction(attention_layer_fraction, kv_lora_rank):
    """Fraction of layers with latent attention (MLA)."""
    return xp.where(kv_lora_rank > 0.0, attention_layer_fraction, 0.0)


@formula(source="megatron", where=DSA, assumes=("none are named: all layers have an indexer",))
def indexer_fraction(index_heads, index_layers, layers):
    """Fraction of layers with an indexer; other layers reuse the selection."""
    fraction = xp.where(index_layers > 0.0, xp.minimum(index_layers / layers, 1.0), 1.0)
    return xp.where(index_heads > 0.0, fraction, 0.0)


_scanned, _weights = over_mixers(weights, mixers=SCANNING)


def _part(every, *sizes):
    return xp.minimum(_weights(*sizes) / xp.maximum(every, 1.0), 1.0)


declare(
    "linear_attention_weight_fraction",
    ("mixer_weights", *_scanned),
    _part,
    source="megatron",
    where=GDN,
)


def _of_scans(*values):
    each = [share * value for share, value in zip(values[::2], values[1::2], strict=True)]
    return xp.asarray(reduce(add, each))


_flops = [name for mixer in SCANNING for name in (mixer.share, f"{mixer.name}_scan_flops")]
declare("mixer_scan_flops", _flops, _of_scans, source="megatron", where=GDN)


def _scan_time(share, bandwidth, *scans):
    each = zip(scans[::3], scans[1::3], scans[2::3], strict=True)
    return reduce(add, [part * moved / rate for part, moved, rate in each]) / (share * bandwidth)


for _way in ("forward", "backward"):
    _scans = [
        name
        for mixer in SCANNING
        for name in (mixer.share, f"{mixer.name}_scan_{_way}_bytes", f"{mixer.name}_scan_rate")
    ]
    _taken = ("memory_efficiency", "memory_bandwidth", *_scans)
    declare(f"scan_{_way}_time", _taken, _scan_time, source="megatron", where=GDN)


# What products behind and before the mixers come to on a rank, in the mean of layers.

TENSOR = cited("narayanan2021", "section 2.3")
ONE_GEMM = "GEMMs through latent vectors are one of as many weights"
SIDES = ("tp", "hidden_size")
mean_of("qkv_width", first_width, SIDES, assumes=(ONE_GEMM,), **TENSOR)
mean_of("rotated_width", first_width, SIDES, mixers=ATTENDING, assumes=(ONE_GEMM,), **TENSOR)
mean_of("attention_width", last_width, SIDES, assumes=(ONE_GEMM,), **TENSOR)
mean_of("up_projection_width", up_width, SIDES, assumes=(ONE_GEMM,), **TENSOR)
mean_of("latent_width", further_up_width, SIDES, source=DEEPSEEK_V2, where="section 2.1")
mean_of("key_value_width", key_value_width, SIDES, **TENSOR)
mean_of("up_projection_weights", up_weights, source=DEEPSEEK_V2, where="section 2.1")
POLICY = "torchtitan/models/llama3/infra/parallelize.py, _custom_policy"
mean_of("recomputed_mixer_weights", repeated_weights, source="torchtitan", where=POLICY)
CONTEXT = cited("megatron", "megatron/core/fp8_utils.py, get_fp8_context with is_init")
mean_of("mixer_low_precision_parameters", rank_weights, ("tp",), narrow=True, **CONTEXT)
mean_of(
    "mixer_adapter_width", adapter_width, ("lora_attention",), source="hu2021", where="section 4.1"
)
mean_of(
    "mixer_module_activations",
    module_bytes,
    (*OF_KEPT, *AGAIN),
    kept=True,
    source="megatron",
    where="megatron/core/transformer/transformer_config.py: recompute_modules;"
    " transformer_layer.py, multi_latent_attention.py",
    assumes=("norm outputs are the GEMM inputs", "masks and inputs stay"),
)
