"""What one layer stores of one token for its backward, by part, as bytes a token of a rank.

The tokens of a micro-batch on a rank are those of its sequences by the context-parallel degree.
The part between blocks (norms, latent vectors, router) is shared by the tensor-parallel ranks only
with sequence parallelism; the part inside blocks always is.  What of a model's products stays in
16 bits decides of inputs and of weights how wide they are stored.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import alias, constant, declare, formula, product, total
from overhead.quantity import Array

LAYER: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.1"}
TENSOR: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.2.1"}
SEQUENCE: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.2.2"}
CAST = "an FP8 product's input is kept as FP8 alone"
FUSED = "flash_1|flash_2|flash_3|cudnn"


@formula(**LAYER)
def rank_tokens(sequence_length, micro_batch, cp):
    """Tokens of a micro-batch on a rank."""
    return sequence_length * micro_batch / cp


@formula(**SEQUENCE)
def sequence_shards(sequence_parallel, tp):
    """Ranks that share the activations between blocks."""
    return xp.where(sequence_parallel > 0.0, tp, 1.0)


alias(
    "matmul_input_bytes",
    "activation_bytes",
    assumes=("matrix products take activations as they are",),
    **LAYER,
)


# Layers at the ends of a model that stay in 16 bits where the others' products take fewer.

WIDE: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/fp8_utils.py, is_first_last_bf16_layer: first_last_layers_bf16",
}
# Modules that stay in 16 bits in every layer: recipes name them one by one.
MODULES: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/extensions/TransformerEngineMixedPrecision.md: a recipe a module",
}


@formula(**WIDE)
def narrow_share(bf16_layers, layers):
    """Share of layers whose products take what they are asked to: the others stay in 16 bits."""
    return 1.0 - xp.minimum(bf16_layers / layers, 1.0)


def _also_narrow(narrow_share, left):
    """Share of a module's products that aren't left in 16 bits."""
    return narrow_share * (1.0 - left)


def _stored(activation_bytes, narrow, matmul_input_bytes):
    """Bytes of a stored input of a module's products, in the mean of layers."""
    return activation_bytes + narrow * (matmul_input_bytes - activation_bytes)


# By module what its quantities' names begin with, and its share of narrow products.
NARROW = {"layer": "narrow_share", "attention": "attention_narrow_share",
          "expert": "expert_narrow_share"}  # fmt: skip
EVENLY = "a stage has as many layers in 16 bits as the mean"
for _module, _share in NARROW.items():
    if _module != "layer":
        _left = "bf16_attention" if _module == "attention" else "bf16_experts"
        declare(_share, ("narrow_share", _left), _also_narrow, **MODULES)
    declare(f"{_module}_input_bytes", ("activation_bytes", _share, "matmul_input_bytes"), _stored,
            assumes=(EVENLY,), **WIDE)  # fmt: skip


# A product keeps its input for its weights' gradient; beside frozen weights, only adapters do.

LORA: dict[str, Any] = {
    "source": "hu2021",
    "where": "section 4.1: a frozen matrix has no gradient, so that nothing asks for its input",
    "when": {"tuning": "lora"},
}
WIDE_ADAPTERS = "what adapters take is in 16 bits in every layer"
for _module, _adapters in (("attention", "lora_attention"), ("layer", "lora_mlp")):
    alias(f"kept_{_module}_input_bytes", f"{_module}_input_bytes", **LAYER)
    product(f"kept_{_module}_input_bytes", (_adapters, "activation_bytes"),
            "Bytes per element of an adapter's input, which is in 16 bits",
            name=f"adapted_{_module}_input_bytes",
            lacks={f"{_module}_input_bytes": WIDE_ADAPTERS}, **LORA)  # fmt: skip
alias("kept_expert_input_bytes", "expert_input_bytes", **LAYER)
constant("kept_expert_input_bytes", 0.0, "None: routed experts have no adapters", **LORA)


@formula(
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py"
    " @009276bb2f, forward: einsum over groups",
    assumes=(
        "the context is kept once, as its projection takes it: by groups of heads in 16 bits",
    ),
)
def kept_context_bytes(output_rank, activation_bytes, attention_input_bytes):
    """Bytes per element of the attention context as kept for the backward pass."""
    return xp.where(output_rank > 0.0, activation_bytes, attention_input_bytes)


alias("kept_context_bytes", "activation_bytes",
      assumes=("the attention kernel keeps its output in 16 bits, which an adapter takes",),
      lacks=dict.fromkeys(("output_rank", "attention_input_bytes"), WIDE_ADAPTERS),
      **LORA)  # fmt: skip


@formula(
    source="korthikanti2022",
    where="section 5, full recomputation; split along the sequence with sequence parallelism",
)
def checkpoint_activations(activation_bytes, hidden_size, sequence_shards, residual_streams):
    """Bytes a token of a layer's input: all that full recomputation keeps."""
    streams = xp.maximum(residual_streams, 1.0)
    return streams * (activation_bytes * hidden_size / sequence_shards)


@formula(
    assumes=(
        "dropout behind attention and behind the MLP",
        CAST,
        "several residuals are kept before each of a layer's two blocks, and what the block gives",
    ),
    **SEQUENCE,
)
def block_activations(
    activation_bytes,
    kept_attention_input_bytes,
    dropout,
    mask_bytes,
    hidden_size,
    sequence_shards,
    residual_streams,
):
    """Bytes per token of norm inputs, the first attention product's input and dropout masks."""
    inputs = 2.0 * activation_bytes + kept_attention_input_bytes
    element = inputs + 2.0 * dropout * mask_bytes
    mixed = 2.0 * (residual_streams + 1.0) * activation_bytes
    element = element + xp.where(residual_streams > 1.0, mixed, 0.0)
    return element * hidden_size / sequence_shards


@formula(**SEQUENCE)
def mlp_input_activations(kept_layer_input_bytes, hidden_size, sequence_shards):
    """Bytes per token of the input of a dense MLP's first product."""
    return kept_layer_input_bytes * hidden_size / sequence_shards


alias("moe_input_activations", "mlp_input_activations",
      "Bytes per token of the input of the router and of shared experts", **SEQUENCE)  # fmt: skip


@formula(returns="moe_input_activations", assumes=("the router is frozen",), **LORA)
def adapted_moe_input_activations(shared_ffn_size, mlp_input_activations):
    """Bytes per token of the input of shared experts' adapters; none without shared experts."""
    return xp.where(shared_ffn_size > 0.0, mlp_input_activations, 0.0)


@formula(
    source="deepseekv2",
    where="section 2.1",
    assumes=("a latent vector is stored before its norm and after it",),
)
def latent_activations(
    attention_layer_fraction, kv_rank, activation_bytes, q_rank, head_size_rope, sequence_shards
):
    """Bytes a token of latent vectors of attention, and of the rotated key."""
    latent = activation_bytes * (2.0 * (q_rank + kv_rank) + head_size_rope) / sequence_shards
    return attention_layer_fraction * xp.where(q_rank + kv_rank > 0.0, latent, 0.0)


@formula(
    assumes=(
        "norms of queries and keys keep their inputs",
        CAST,
    ),
    **TENSOR,
)
def attention_activations(
    heads,
    tp,
    activation_bytes,
    query_head_size,
    kept_context_bytes,
    value_head_size,
    rank_kv_heads,
    qk_norms,
    head_size,
    output_gate,
    kept_attention_input_bytes,
    output_rank,
    output_groups,
    attention_layer_fraction,
    linear_activations,
):
    """Bytes per token of queries, keys, values and context, and of linear attention."""
    own = heads / tp
    queries = own * (activation_bytes * query_head_size + kept_context_bytes * value_head_size)
    keys = activation_bytes * rank_kv_heads * (query_head_size + value_head_size)
    norms = qk_norms * activation_bytes * (own + rank_kv_heads) * head_size
    gates = output_gate * activation_bytes * 2.0 * own * value_head_size
    grouped = kept_attention_input_bytes * output_rank * output_groups / tp
    attention = queries + keys + norms + gates + grouped
    return attention_layer_fraction * attention + linear_activations


@formula(
    returns="score_activations",
    assumes=("the softmax's output, and with dropout the mask and the output of it",),
    when={"attention_kernel": "unfused"},
    **TENSOR,
)
def unfused_score_activations(
    heads, tp, sequence_length, dropout, activation_bytes, mask_bytes, attention_layer_fraction
):
    """Bytes per token of scores against all tokens of the sequence, masked ones too."""
    dropped = 2.0 * activation_bytes + mask_bytes
    element = xp.where(dropout > 0.0, dropped, activation_bytes)
    return xp.asarray(attention_layer_fraction * (heads / tp * sequence_length * element))


@formula(
    returns="score_activations",
    source="dao2022",
    where="section 3.1",
    assumes=("the logarithm of each row's sum is kept; dropout is drawn anew",),
    when={"attention_kernel": FUSED},
)
def fused_score_activations(heads, tp, single_bytes, attention_layer_fraction):
    """Bytes per token of what a fused attention kernel keeps of its scores."""
    return attention_layer_fraction * (heads / tp * single_bytes)


@formula(assumes=("the activation function and the gate's product are one kernel", CAST), **TENSOR)
def mlp_activations(gated, activation_bytes, kept_layer_input_bytes, ffn_size, tp):
    """Bytes a token of the inside of a dense MLP."""
    return ((1.0 + gated) * activation_bytes + kept_layer_input_bytes) * ffn_size / tp


# A mixture of experts.


@formula(
    source="megatron",
    where="megatron/core/transformer/moe/router.py",
    assumes=("logits and probabilities are in single precision",),
)
def router_activations(single_bytes, experts, sequence_shards):
    """Bytes a token of logits and probabilities of the router."""
    return 2.0 * single_bytes * experts / sequence_shards


@formula(
    returns="router_activations",
    source="megatron",
    where="megatron/core/transformer/moe/moe_layer.py: fc2_latent_proj",
    assumes=("what experts give is kept for the projection back to the hidden state",),
    when={"routed": "latent"},
)
def latent_router_activations(
    single_bytes, experts, activation_bytes, expert_latent_size, sequence_shards
):
    """Bytes a token of the router's logits and probabilities, and of experts' latent result."""
    router = 2.0 * single_bytes * experts
    return (router + activation_bytes * expert_latent_size) / sequence_shards


@formula(
    source="megatron", where="megatron/core/transformer/moe/shared_experts.py", assumes=(CAST,)
)
def shared_expert_activations(gated, activation_bytes, kept_layer_input_bytes, shared_ffn_size, tp):
    """Bytes a token of the inside of shared experts."""
    return ((1.0 + gated) * activation_bytes + kept_layer_input_bytes) * shared_ffn_size / tp


@formula(
    source="megatron",
    where="megatron/core/transformer/moe/experts.py and token_dispatcher.py",
    assumes=(
        "tensor-parallel ranks dispatch a share of the tokens each (sequence parallelism)",
        "an expert's output is kept where the probabilities multiply it, not its inside",
        CAST,
    ),
)
def expert_activations(
    expert_imbalance,
    experts_per_token,
    etp,
    tp,
    kept_expert_input_bytes,
    weighted_outputs,
    activation_bytes,
    expert_hidden_size,
    gated,
    expert_ffn_size,
):
    """Bytes a token of inputs, inside and outputs of routed experts."""
    rows = expert_imbalance * experts_per_token * etp / tp
    ends = (kept_expert_input_bytes + weighted_outputs * activation_bytes) * expert_hidden_size
    inside = ((1.0 + gated) * activation_bytes + kept_expert_input_bytes) * expert_ffn_size / etp
    return rows * (ends + inside)


@formula(
    returns="linear_activations",
    source="yang2025",
    where="section 3.4",
    assumes=(
        "of linear attention: what its first product gives, the convolution's output (which "
        "Mamba-2's kernel computes again), the state's output before and after its gated norm; "
        "Mamba-2's kernel has the gate, so that the norm keeps what is gated, too",
        "a stage has as many layers of each kind as the mean",
        CAST,
    ),
    when={"mixers": "hybrid"},
)
def hybrid_linear_activations(
    linear_share,
    tp,
    activation_bytes,
    kept_attention_input_bytes,
    linear_in_width,
    linear_convolved_width,
    linear_out_width,
    mamba,
):
    """Bytes per token of linear attention, in the mean of layers."""
    convolved = (1.0 - mamba) * linear_convolved_width
    results = (1.0 + mamba) * linear_out_width
    kept = activation_bytes * (linear_in_width + convolved + results)
    return linear_share * (kept + kept_attention_input_bytes * linear_out_width) / tp


# Sparse attention's indexer.

INDEX: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/transformer/experimental_attention_variant/dsa.py",
}


@formula(
    returns="index_activations",
    assumes=("queries, keys and weights, and of each selected token a place in 64 bits",),
    when={"selection": "indexed"},
    **INDEX,
)
def indexed_activations(
    index_share, activation_bytes, index_heads, index_head_size, single_bytes, selected_span
):
    """Bytes a token of what an indexer keeps, in the mean of layers."""
    kept = activation_bytes * (index_heads * (index_head_size + 1.0) + index_head_size)
    return index_share * (kept + 2.0 * single_bytes * selected_span)


# A layer, before anything is recomputed.


total("attention_block_activations",
      ("block_activations", "latent_activations", "attention_activations", "score_activations",
       "index_activations"),
      "Bytes a token of what a layer stores beside the inside of its MLP", **TENSOR)  # fmt: skip


total("dense_layer_activations",
      ("attention_block_activations", "mlp_input_activations", "mlp_activations"),
      "Bytes a token of what a dense layer makes", **TENSOR)  # fmt: skip


@formula(source="megatron", where="megatron/core/transformer/moe/moe_layer.py")
def moe_layer_activations(
    attention_block_activations,
    moe_input_activations,
    router_activations,
    shared_expert_activations,
    expert_activations,
):
    """Bytes a token of what a mixture-of-experts layer makes."""
    experts = router_activations + shared_expert_activations + expert_activations
    return attention_block_activations + moe_input_activations + experts


# Weights that products take in fewer bytes than activations have are stored so, if the recipe says
# so, or have copies; tables, norms, biases, the router and modules left in 16 bits do not.
QUANTIZED: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/fp8_utils.py, get_fp8_context with is_init, which leaves out what"
    " is_first_last_bf16_layer names, and router.py, whose weights are no such module's",
}


def _wide(bytes_of, matmul_input_bytes, activation_bytes):
    """Bytes of a weight that no product takes in fewer: those of activations at least."""
    narrow = matmul_input_bytes < activation_bytes
    return xp.where(narrow, xp.maximum(bytes_of, activation_bytes), bytes_of)


def in_both(wide_bytes: Array, narrow_bytes: Array, every: Array, narrow: Array) -> Array:
    """Bytes of parameters of which some are narrower than the others."""
    some = xp.minimum(narrow, every)
    return xp.asarray(wide_bytes * (every - some) + narrow_bytes * some)


for _name, _of in (("wide_weight_bytes", "weight_bytes"),
                   ("wide_gathered_bytes", "gathered_bytes")):  # fmt: skip
    declare(_name, (_of, "matmul_input_bytes", "activation_bytes"), _wide, **QUANTIZED)


@formula(**QUANTIZED)
def narrow_attention_parameters(attention_narrow_share, attention_rank_weights):
    """Parameters of one layer's attention that products take in fewer bytes."""
    return attention_narrow_share * attention_rank_weights


@formula(**QUANTIZED)
def narrow_expert_parameters(expert_narrow_share, experts, ep, expert_weights, etp):
    """Parameters of one layer's routed experts on one rank that products take in fewer bytes."""
    return expert_narrow_share * (experts / ep) * (expert_weights / etp)


@formula(**QUANTIZED)
def layer_narrow_parameters(
    narrow_attention_parameters,
    narrow_share,
    stage_mlp_layers,
    mlp_weights,
    stage_moe_layers,
    shared_expert_weights,
    tp,
):
    """Parameters of the stage's largest layer that products take in fewer bytes."""
    dense = xp.where(stage_mlp_layers > 0.0, mlp_weights, 0.0)
    shared = xp.where(stage_moe_layers > 0.0, shared_expert_weights, 0.0)
    return narrow_attention_parameters + narrow_share * xp.maximum(dense, shared) / tp


@formula(**QUANTIZED)
def mean_layer_narrow_parameters(
    narrow_attention_parameters,
    narrow_share,
    stage_mlp_layers,
    mlp_weights,
    stage_moe_layers,
    shared_expert_weights,
    tp,
    stage_layers,
):
    """Parameters of a layer that products take in fewer bytes, mean of the stage's layers."""
    mlps = stage_mlp_layers * mlp_weights + stage_moe_layers * shared_expert_weights
    others = narrow_share * mlps / tp / xp.maximum(stage_layers, 1.0)
    return narrow_attention_parameters + others


@formula(assumes=(EVENLY,), **QUANTIZED)
def stage_narrow_parameters(
    weight_copies,
    stage_layers,
    mean_layer_narrow_parameters,
    narrow_share,
    stage_mtp_layers,
    mtp_projection_weights,
    tp,
):
    """Parameters of a rank that products take in fewer bytes, its routed experts left out."""
    further = narrow_share * stage_mtp_layers * mtp_projection_weights / tp
    return weight_copies * (stage_layers * mean_layer_narrow_parameters + further)


product("stage_narrow_expert_parameters",
        ("weight_copies", "stage_moe_layers", "narrow_expert_parameters"),
        "Routed experts' parameters that products take in fewer bytes", **QUANTIZED)  # fmt: skip
NARROW_ONES = ("stage_narrow_parameters", "stage_narrow_expert_parameters")
for _narrow, _all in (
    *zip(NARROW_ONES, ("stage_parameters", "stage_expert_parameters"), strict=True),
    ("mean_layer_narrow_parameters", "mean_layer_parameters"),
):
    alias(_narrow, _all, "Shapes aren't known: products take all parameters alike",
          when={"shapes": "unknown"}, **QUANTIZED)  # fmt: skip
