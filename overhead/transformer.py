"""Transformers: from a model's shapes to its parameters and its floating-point operations."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.completion import TENSORS
from overhead.formula import cited, declare, formula
from overhead.quantity import VOCABULARY

# A model's own shapes, in the order in which people give them, and those that some have beyond.
SHAPES, FURTHER_SHAPES = VOCABULARY.tables["shapes"], VOCABULARY.tables["features"]
HYBRID_FLAGS = ("mamba", "output_gate")
HYBRID_SHAPES = (
    "linear_layers",
    "linear_key_heads",
    "linear_value_heads",
    "linear_key_size",
    "linear_value_size",
    "linear_kernel",
    *HYBRID_FLAGS,
)
# Shapes that no rule gives.
VITAL = (*TENSORS, "gated_mlp", "tied_embeddings")


# The publications that the formulas of a transformer cite, by their keys.

VASWANI = "vaswani2017"
NARAYANAN = "narayanan2021"
CHOWDHERY = "chowdhery2022"
MISTRAL = "mistral2023"
MIXTRAL = "mixtral2024"
DEEPSEEK_V2 = "deepseekv2"
BRIDGE = "megatronbridge"
DEEPSEEK_V3 = "deepseekv3"


PATTERNS = cited("megatron", "megatron/core/ssm/mamba_hybrid_layer_allocation.py")


# Parameters of a layer and of the whole model, and how many of them one token meets.

MTP = ("MTP layers are not counted: see mtp_parameters",)


@formula(
    source=VASWANI, where="section 3.1", assumes=("a layer norm has a bias, an RMS norm has none",)
)
def norm_parameters(layer_norm, hidden_size, unscaled_norms):
    """Parameters of one norm over the hidden size."""
    return (1.0 + layer_norm - unscaled_norms) * hidden_size


@formula(source=VASWANI, where="section 3.1", assumes=("all norms of a layer but one",))
def mixer_norm_parameters(layer_norms, norm_parameters, layer_numbers):
    """Norm and further parameters per layer, without the norm of its MLP."""
    return (layer_norms - 1.0) * norm_parameters + layer_numbers


@formula(**PATTERNS)
def mlp_fraction(bare_layers, dense_mlp_layers):
    """Fraction of dense layers with an MLP."""
    return xp.maximum(1.0 - bare_layers / xp.maximum(dense_mlp_layers, 1.0), 0.0)


@formula(source=VASWANI, where="section 3.4", assumes=("one norm after the last layer",))
def non_layer_parameters(
    embedding_parameters,
    position_parameters,
    norm_parameters,
    embedding_norm,
    tied_embeddings,
    vocabulary_size,
    hidden_size,
    lm_head_bias,
):
    """Parameters outside the layers: a tied LM head adds a bias alone."""
    tables = embedding_parameters + position_parameters
    head = (1.0 - tied_embeddings) * vocabulary_size * hidden_size + lm_head_bias * vocabulary_size
    return tables + (1.0 + embedding_norm) * norm_parameters + head


@formula(
    source=NARAYANAN,
    where="equation (2), by parts, with its norm after the last layer",
    assumes=MTP,
)
def parameters(
    dense_mlp_layers, dense_layer_parameters, moe_layers, moe_layer_parameters, non_layer_parameters
):
    """Parameters of the model."""
    dense = dense_mlp_layers * dense_layer_parameters
    return dense + moe_layers * moe_layer_parameters + non_layer_parameters


@formula(
    source=MIXTRAL,
    where="section 2.1",
    assumes=(*MTP, "embeddings, router and shared experts count as active"),
)
def active_parameters(
    dense_mlp_layers,
    dense_layer_parameters,
    moe_layers,
    mixer_parameters,
    mixer_norm_parameters,
    norm_parameters,
    experts_per_token,
    expert_parameters,
    router_parameters,
    shared_expert_parameters,
    non_layer_parameters,
):
    """Parameters of the model that one token meets."""
    active = experts_per_token * expert_parameters + router_parameters + shared_expert_parameters
    mixture = mixer_parameters + active + mixer_norm_parameters + norm_parameters
    dense = dense_mlp_layers * dense_layer_parameters
    return dense + moe_layers * mixture + non_layer_parameters


# One layer's attention, and its feed-forward (`overhead.model` has what they are made of).

LATENT = cited(DEEPSEEK_V2, "section 2.1")


@formula(**LATENT)
def query_head_size(kv_lora_rank, qk_nope_head_size, qk_rope_head_size, head_size):
    """Size of a query or key head as scores need it."""
    return xp.where(kv_lora_rank > 0.0, qk_nope_head_size + qk_rope_head_size, head_size)


@formula(**LATENT)
def value_head_size(kv_lora_rank, v_head_size, head_size):
    """Size of a value head as the context has it."""
    return xp.where(kv_lora_rank > 0.0, v_head_size, head_size)


SHARED = cited(DEEPSEEK_V3, "section 2.1.2")


@formula(**SHARED)
def moe_parameters(experts, expert_parameters, router_parameters, shared_expert_parameters):
    """MoE block parameters per layer."""
    return experts * expert_parameters + router_parameters + shared_expert_parameters


@formula(
    source=DEEPSEEK_V3,
    where="section 4.2; one of every few layers: Hugging Face transformers, decoder_sparse_step",
    assumes=(
        "after the first dense layers, the last of every moe_layer_frequency layers has experts",
    ),
)
def moe_layers(
    layers, dense_layers, moe_layer_frequency, experts, separate_moe_layers, routed_layers
):
    """MoE layers."""
    routed = xp.floor(xp.maximum(layers - dense_layers, 0.0) / moe_layer_frequency)
    stated = xp.maximum(separate_moe_layers, routed_layers)
    routed = xp.where(stated > 0.0, stated, routed)
    return xp.where(experts > 0.0, xp.minimum(routed, layers), 0.0)


@formula(source=DEEPSEEK_V3, where="section 4.2")
def dense_mlp_layers(layers, moe_layers):
    """Layers whose MLP is dense."""
    return xp.maximum(layers - moe_layers, 0.0)


# Floating-point operations of one token, forward and in training, by parts.
#
# GEMMs alone count, a multiplication and an addition as two.  Scores and values are
# counted twice over: in full, as published utilisations are (PaLM, Megatron-LM), and without what a
# causal mask hides.  What is recomputed counts in neither.

APPENDIX = cited(NARAYANAN, "appendix on floating-point operations")
PALM = cited(CHOWDHERY, "appendix B")
FULL = "masked positions count as computed"
CAUSAL = "a token attends to itself and to earlier ones: half of the scores if there is no window"
BACKWARD = "the backward pass costs twice the forward pass"


@formula(**APPENDIX, assumes=("embedding, norms and biases have no GEMMs",))
def weight_flops_per_token(
    layers,
    mixer_weights,
    dense_mlp_layers,
    mlp_weights,
    moe_layers,
    router_weights,
    shared_expert_weights,
    experts_per_token,
    expert_weights,
):
    """Layer weight FLOPs per token, forward: of the weights that it meets."""
    routed = router_weights + shared_expert_weights + experts_per_token * expert_weights
    active = layers * mixer_weights + dense_mlp_layers * mlp_weights + moe_layers * routed
    return 2.0 * active


@formula(
    **APPENDIX,
    assumes=("logits are computed for every token, with tied embeddings as well",),
)
def logits_flops_per_token(hidden_size, vocabulary_size):
    """LM head FLOPs per token, forward."""
    return 2.0 * hidden_size * vocabulary_size


def _scores(
    layers,
    attention_layer_fraction,
    span,
    heads,
    query_head_size,
    value_head_size,
    mixer_scan_flops,
    index_flops,
):
    scores = 2.0 * span * heads * (query_head_size + value_head_size)
    mixed = attention_layer_fraction * scores + mixer_scan_flops
    return layers * (mixed + index_flops)


for _prefix, _masked, _words in (("", FULL, "full"), ("causal_", CAUSAL, "causal")):
    declare(
        f"{_prefix}attention_flops_per_token",
        (
            "layers",
            "attention_layer_fraction",
            f"{_prefix}attention_span",
            "heads",
            "query_head_size",
            "value_head_size",
            "mixer_scan_flops",
            f"{_prefix}index_flops",
        ),
        _scores,
        f"Attention or linear-attention state FLOPs per token, forward, {_words} attention",
        **APPENDIX,
        assumes=(_masked,),
    )


def _trained(trained, forward, further_weights, scores, depths, layers, adapters):
    further_scores = depths * (scores / xp.maximum(layers, 1.0))
    every = forward + (further_weights + further_scores)
    # Scores have two gradients, whatever is frozen.
    own = (2.0 + trained) * every + (1.0 - trained) * (scores + further_scores)
    return own + 6.0 * adapters


for _prefix, _masked in (("", FULL), ("causal_", CAUSAL)):
    declare(
        f"{_prefix}model_flops_per_token",
        (
            "trained_weights",
            f"{_prefix}forward_flops_per_token",
            "mtp_weight_flops_per_token",
            f"{_prefix}attention_flops_per_token",
            "mtp_layers",
            "layers",
            "adapter_parameters",
        ),
        _trained,
        **PALM,
        assumes=(
            BACKWARD,
            "no wgrad for frozen weights (Hu et al. 2021, section 4.1)",
            "adapters of MTP layers are not counted",
            "nothing is recomputed",
            _masked,
        ),
    )
