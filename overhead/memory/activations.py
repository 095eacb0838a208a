"""What one layer stores of one token for its backward, by part, as bytes a token of a rank.

The tokens of a micro-batch on a rank are those of its sequences by the context-parallel degree.
The part between blocks (norms, latent vectors, router) is shared by the tensor-parallel ranks only
with sequence parallelism; the part inside blocks always is.  What of a model's products stays in
16 bits decides of inputs and of weights how wide they are stored.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, declare, formula
from overhead.quantity import Array

LAYER = cited("korthikanti2022", "section 4.1")
TENSOR = cited("korthikanti2022", "section 4.2.1")
SEQUENCE = cited("korthikanti2022", "section 4.2.2")


@formula(**SEQUENCE)
def sequence_shards(sequence_parallel, tp):
    """Ranks that share the activations between blocks."""
    return xp.where(sequence_parallel > 0.0, tp, 1.0)


# What a residual is stored in, and what norms and activation functions keep of what they compute.

UNFUSED = cited(
    "autograd",
    "mul, pow, rsqrt and silu @88fa1e7170: what each keeps; a norm casts its input first",
)


@formula(
    assumes=(
        "a fused norm keeps its input; unfused operations keep it in single precision, "
        "and the factor of trained weights",
    ),
    **UNFUSED,
)
def norm_kept_bytes(unfused_elementwise, single_bytes, trained_weights, residual_bytes):
    """Bytes per element that a norm keeps of its input."""
    one_by_one = single_bytes + trained_weights * residual_bytes
    return xp.where(unfused_elementwise > 0.0, one_by_one, residual_bytes)


# Layers at the ends of a model that stay in 16 bits where the others' products take fewer.

WIDE = cited(
    "megatron", "megatron/core/fp8_utils.py, is_first_last_bf16_layer: first_last_layers_bf16"
)
# Modules that stay in 16 bits in every layer: recipes name them one by one.
MODULES = cited(
    "megatron", "megatron/core/extensions/TransformerEngineMixedPrecision.md: a recipe a module"
)


@formula(**WIDE)
def low_precision_layer_fraction(bf16_layers, layers):
    """Fraction of layers with low-precision GEMMs: the rest are in BF16."""
    return 1.0 - xp.minimum(bf16_layers / layers, 1.0)


@formula(
    assumes=("linear-attention GEMMs are not attention GEMMs; the fraction is by weights",),
    **MODULES,
)
def low_precision_attention_fraction(
    low_precision_layer_fraction, bf16_attention, linear_attention_weight_fraction
):
    """Fraction of attention and linear-attention GEMMs in low precision."""
    return low_precision_layer_fraction * (
        1.0 - bf16_attention * (1.0 - linear_attention_weight_fraction)
    )


@formula(**MODULES)
def low_precision_expert_fraction(low_precision_layer_fraction, bf16_experts):
    """Fraction of expert GEMMs in low precision."""
    return low_precision_layer_fraction * (1.0 - bf16_experts)


def _stored(activation_bytes, narrow, matmul_input_bytes):
    """Bytes of a stored input of a module's products, in the mean of layers."""
    return activation_bytes + narrow * (matmul_input_bytes - activation_bytes)


# By module what its quantities' names begin with, and its share of narrow products.
NARROW = {
    "layer": "low_precision_layer_fraction",
    "attention": "low_precision_attention_fraction",
    "expert": "low_precision_expert_fraction",
}
EVENLY = "a stage has the mean number of BF16 layers"
for _module, _share in NARROW.items():
    _taken = ("activation_bytes", _share, "matmul_input_bytes")
    declare(f"{_module}_input_bytes", _taken, _stored, assumes=(EVENLY,), **WIDE)


# A product keeps its input for its weights' gradient; beside frozen weights, only adapters do.


@formula(
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py"
    " @009276bb2f, forward: einsum over groups",
    assumes=(
        "the attention output is saved once, as input of its projection: BF16 for grouped "
        "projections, and as the input of an adapter",
    ),
)
def kept_context_bytes(output_rank, trained_weights, activation_bytes, attention_input_bytes):
    """Bytes per element of the attention context as kept for the backward pass."""
    wide = (output_rank > 0.0) | (trained_weights < 1.0)
    return xp.where(wide, activation_bytes, attention_input_bytes)


@formula(
    source="korthikanti2022",
    where="section 5, full recomputation; split along the sequence with sequence parallelism",
    assumes=("a model that returns its cache keeps the keys and values of each layer, too",),
)
def checkpoint_activations(
    residual_bytes,
    hidden_size,
    sequence_shards,
    residual_streams,
    cache_bytes,
    attention_layer_fraction,
    rank_kv_heads,
    query_head_size,
    value_head_size,
):
    """Layer input bytes per token: all that full recomputation saves."""
    streams = xp.maximum(residual_streams, 1.0)
    cache = attention_layer_fraction * rank_kv_heads * (query_head_size + value_head_size)
    return streams * (residual_bytes * hidden_size / sequence_shards) + cache_bytes * cache


@formula(
    source="torchtitan",
    where="torchtitan/models/llama3/infra/parallelize.py @018740b7aa, apply_tp: attention and"
    " feed_forward take their inputs whole (PrepareModuleInput to Replicate), and nn.Linear keeps"
    " them",
)
def gathered_input_activations(
    gathered_sequences, hidden_size, sequence_shards, kept_layer_input_bytes
):
    """Whole block inputs per token of a layer, without the local shard."""
    others = hidden_size * (1.0 - 1.0 / sequence_shards)
    return gathered_sequences * others * kept_layer_input_bytes


@formula(assumes=("with adapters the router is frozen",), **LAYER)
def kept_moe_input_bytes(trained_weights, shared_ffn_size, kept_layer_input_bytes):
    """Bytes per element of the input of router and shared experts."""
    taken = (trained_weights > 0.0) | (shared_ffn_size > 0.0)
    return xp.where(taken, kept_layer_input_bytes, 0.0)


@formula(
    returns="score_bytes",
    assumes=(
        "the softmax's output, and with dropout the mask and the output of it; operation by "
        "operation (transformers, modeling_llama.py) the softmax is in single precision, and cast",
    ),
    when={"attention_kernel": "unfused"},
    **TENSOR,
)
def unfused_score_bytes(
    sequence_length, dropout, activation_bytes, mask_bytes, unfused_elementwise, single_bytes
):
    """Attention score bytes per token and head, all tokens of the sequence."""
    dropped = 2.0 * activation_bytes + mask_bytes
    kept = xp.where(dropout > 0.0, dropped, activation_bytes)
    return sequence_length * (kept + unfused_elementwise * single_bytes)


# Keys and values that context-parallel ranks gather before they attend, as in the backward again.

KEY_GATHER = cited(
    "transformerengine",
    "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py,"
    " AttnFuncWithCPAndKVAllGather: k_ag, v_ag, dk, dv",
    when={"context_parallel": "all_gather"},
)


@formula(
    assumes=("latent attention that selects among tokens gathers latent vectors and indexer keys",),
    **KEY_GATHER,
)
def gathered_key_activations(
    cp,
    activation_bytes,
    rank_kv_heads,
    query_head_size,
    value_head_size,
    kv_lora_rank,
    qk_rope_head_size,
    index_heads,
    indexer_fraction,
    index_head_size,
):
    """Keys and values of other CP ranks per token of a rank, gathered."""
    latent = (kv_lora_rank > 0.0) & (index_heads > 0.0)
    heads = rank_kv_heads * (query_head_size + value_head_size)
    keys = xp.where(latent, kv_lora_rank + qk_rope_head_size, heads)
    indexed = xp.where(index_heads > 0.0, indexer_fraction * index_head_size, 0.0)
    return (cp - 1.0) * activation_bytes * (keys + indexed)


# Weights that products take in fewer bytes than activations have are stored so, if the recipe says
# so, or have copies; tables, norms, biases, the router and modules left in 16 bits do not.
QUANTIZED = cited(
    "megatron",
    "megatron/core/fp8_utils.py, get_fp8_context with is_init, which leaves out what"
    " is_first_last_bf16_layer names, and router.py, whose weights are no such module's",
)


def _wide(bytes_of, matmul_input_bytes, activation_bytes):
    """Bytes of a weight that no product takes in fewer: those of activations at least."""
    narrow = matmul_input_bytes < activation_bytes
    return xp.where(narrow, xp.maximum(bytes_of, activation_bytes), bytes_of)


def in_both(wide_bytes: Array, narrow_bytes: Array, every: Array, narrow: Array) -> Array:
    """Bytes of parameters of which some are narrower than the others."""
    some = xp.minimum(narrow, every)
    return xp.asarray(wide_bytes * (every - some) + narrow_bytes * some)


for _name, _of in (
    ("full_precision_weight_bytes", "weight_bytes"),
    ("full_precision_gathered_bytes", "gathered_bytes"),
):
    declare(_name, (_of, "matmul_input_bytes", "activation_bytes"), _wide, **QUANTIZED)


@formula(**QUANTIZED)
def low_precision_expert_parameters(
    low_precision_expert_fraction, experts, ep, expert_weights, etp
):
    """Low-precision routed-expert parameters per layer and rank."""
    return low_precision_expert_fraction * (experts / ep) * (expert_weights / etp)


@formula(**QUANTIZED)
def layer_low_precision_parameters(
    mixer_low_precision_parameters,
    low_precision_layer_fraction,
    stage_mlp_layers,
    mlp_weights,
    stage_moe_layers,
    shared_expert_weights,
    tp,
):
    """Low-precision parameters of the largest layer of the stage."""
    dense = xp.where(stage_mlp_layers > 0.0, mlp_weights, 0.0)
    shared = xp.where(stage_moe_layers > 0.0, shared_expert_weights, 0.0)
    return (
        mixer_low_precision_parameters
        + low_precision_layer_fraction * xp.maximum(dense, shared) / tp
    )


@formula(**QUANTIZED)
def mean_layer_low_precision_parameters(
    mixer_low_precision_parameters,
    low_precision_layer_fraction,
    stage_mlp_layers,
    mlp_weights,
    stage_moe_layers,
    shared_expert_weights,
    tp,
    stage_layers,
):
    """Low-precision parameters per layer, stage mean."""
    mlps = stage_mlp_layers * mlp_weights + stage_moe_layers * shared_expert_weights
    others = low_precision_layer_fraction * mlps / tp / xp.maximum(stage_layers, 1.0)
    return mixer_low_precision_parameters + others


@formula(assumes=(EVENLY,), **QUANTIZED)
def stage_low_precision_parameters(
    weight_copies,
    stage_layers,
    mean_layer_low_precision_parameters,
    low_precision_layer_fraction,
    stage_mtp_layers,
    mtp_projection_weights,
    tp,
):
    """Low-precision dense parameters per rank."""
    further = low_precision_layer_fraction * stage_mtp_layers * mtp_projection_weights / tp
    return weight_copies * (stage_layers * mean_layer_low_precision_parameters + further)


NARROW_ONES = ("stage_low_precision_parameters", "stage_low_precision_expert_parameters")
UNKNOWN: dict[str, Any] = {"when": {"shapes": "unknown"}, **QUANTIZED}
