"""Parameters of a layer and of the whole model, and how many of them one token meets."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.transformer.quantities import (
    AINSLIE,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    MIXTRAL,
    NARAYANAN,
    VASWANI,
)

NORMS = ("two norms a layer",)
MTP = ("layers that predict further tokens (MTP) aren't counted",)


@formula(
    source=VASWANI, where="section 3.1", assumes=("a layer norm has a bias, an RMS norm has none",)
)
def norm_parameters(layer_norm: Array, hidden_size: Array) -> Array:
    """Parameters of one norm over the hidden size."""
    return (1.0 + layer_norm) * hidden_size


@formula(source=VASWANI, where="section 3.1", assumes=NORMS)
def dense_layer_parameters(
    attention_parameters: Array, mlp_parameters: Array, norm_parameters: Array
) -> Array:
    """Parameters of one dense layer."""
    return attention_parameters + mlp_parameters + 2.0 * norm_parameters


@formula(source=VASWANI, where="section 3.1", assumes=NORMS)
def moe_layer_parameters(
    attention_parameters: Array, moe_parameters: Array, norm_parameters: Array
) -> Array:
    """Parameters of one mixture-of-experts layer."""
    return attention_parameters + moe_parameters + 2.0 * norm_parameters


@formula(source=VASWANI, where="section 3.1", assumes=NORMS)
def active_moe_layer_parameters(
    attention_parameters: Array, active_moe_parameters: Array, norm_parameters: Array
) -> Array:
    """Parameters of one mixture-of-experts layer that one token meets."""
    return attention_parameters + active_moe_parameters + 2.0 * norm_parameters


@formula(source=VASWANI, where="section 3.4")
def embedding_parameters(vocabulary_size: Array, hidden_size: Array) -> Array:
    """Parameters of the embedding's table."""
    return vocabulary_size * hidden_size


@formula(assumes=("the output layer has no bias",), source=VASWANI, where="section 3.4")
def output_parameters(tied_embeddings: Array, vocabulary_size: Array, hidden_size: Array) -> Array:
    """Parameters of the output layer that the embedding lacks: none where they are tied."""
    return (1.0 - tied_embeddings) * vocabulary_size * hidden_size


@formula(source=VASWANI, where="section 3.5")
def position_parameters(learned_positions: Array, hidden_size: Array) -> Array:
    """Parameters of the learned positions."""
    return learned_positions * hidden_size


@formula(assumes=("one norm after the last layer",), source=VASWANI, where="section 3.4")
def outside_parameters(
    embedding_parameters: Array,
    position_parameters: Array,
    norm_parameters: Array,
    output_parameters: Array,
) -> Array:
    """Parameters outside of the layers."""
    return embedding_parameters + position_parameters + norm_parameters + output_parameters


@formula(
    source=NARAYANAN,
    where="equation (2), by parts, with its norm after the last layer",
    assumes=MTP,
)
def parameters(
    dense_mlp_layers: Array,
    dense_layer_parameters: Array,
    moe_layers: Array,
    moe_layer_parameters: Array,
    outside_parameters: Array,
) -> Array:
    """Parameters of the model."""
    dense = dense_mlp_layers * dense_layer_parameters
    return dense + moe_layers * moe_layer_parameters + outside_parameters


@formula(source=MIXTRAL, where="section 2.1", assumes=(*MTP, "embeddings count as active"))
def active_parameters(
    dense_mlp_layers: Array,
    dense_layer_parameters: Array,
    moe_layers: Array,
    active_moe_layer_parameters: Array,
    outside_parameters: Array,
) -> Array:
    """Parameters of the model that one token meets."""
    dense = dense_mlp_layers * dense_layer_parameters
    return dense + moe_layers * active_moe_layer_parameters + outside_parameters


# One layer's attention: its weights, biases and norms, with separate or with latent heads.
#
# Multi-head, grouped-query and multi-query attention differ in `kv_heads` alone.  Latent attention
# (MLA) is what has a `kv_rank`: its queries, if they have a rank too, and its keys and values are
# projected down to one latent vector and from there up to the heads.

HEADS = (VASWANI, "section 3.2.2")
LATENT = (DEEPSEEK_V2, "section 2.1")


@formula(source=LATENT[0], where=LATENT[1])
def query_head_size(
    kv_rank: Array, head_size_plain: Array, head_size_rope: Array, head_size: Array
) -> Array:
    """Size of a query or key head as scores need it."""
    return np.where(kv_rank > 0.0, head_size_plain + head_size_rope, head_size)


@formula(source=LATENT[0], where=LATENT[1])
def value_head_size(kv_rank: Array, head_size_value: Array, head_size: Array) -> Array:
    """Size of a value head as the context has it."""
    return np.where(kv_rank > 0.0, head_size_value, head_size)


@formula(source=LATENT[0], where=LATENT[1])
def query_down_weights(hidden_size: Array, q_rank: Array) -> Array:
    """Weights from hidden to the queries' latent vector; none where it has no rank."""
    return hidden_size * q_rank


@formula(source=HEADS[0], where=HEADS[1])
def query_weights(q_rank: Array, hidden_size: Array, heads: Array, query_head_size: Array) -> Array:
    """Weights to the queries, from hidden or from their latent vector."""
    return np.asarray(np.where(q_rank > 0.0, q_rank, hidden_size) * heads * query_head_size)


@formula(
    source=LATENT[0],
    where=LATENT[1],
    assumes=("all heads share the rotated part of the keys, which comes straight from hidden",),
)
def key_value_down_weights(hidden_size: Array, kv_rank: Array, head_size_rope: Array) -> Array:
    """Weights from hidden to the latent vector and to the rotated key."""
    return np.where(kv_rank > 0.0, hidden_size * (kv_rank + head_size_rope), 0.0)


@formula(source=AINSLIE, where="section 2.2; latent attention: DeepSeek-V2, section 2.1")
def key_value_weights(
    hidden_size: Array,
    heads: Array,
    kv_heads: Array,
    head_size: Array,
    kv_rank: Array,
    head_size_plain: Array,
    head_size_value: Array,
) -> Array:
    """Weights to keys and values, from hidden or from the latent vector."""
    latent = kv_rank * heads * (head_size_plain + head_size_value)
    return np.where(kv_rank > 0.0, latent, 2.0 * hidden_size * kv_heads * head_size)


@formula(source=HEADS[0], where=HEADS[1])
def attention_output_weights(heads: Array, value_head_size: Array, hidden_size: Array) -> Array:
    """Weights from the attention's context back to hidden."""
    return heads * value_head_size * hidden_size


@formula(source=HEADS[0], where=HEADS[1])
def attention_weights(
    query_down_weights: Array,
    query_weights: Array,
    key_value_down_weights: Array,
    key_value_weights: Array,
    attention_output_weights: Array,
) -> Array:
    """Weights of one layer's attention that matrix products use."""
    down = query_down_weights + key_value_down_weights
    return down + query_weights + key_value_weights + attention_output_weights


@formula(
    source=HEADS[0],
    where=HEADS[1],
    assumes=("with latent vectors, the projections down to them have outputs of their own",),
)
def qkv_outputs(
    heads: Array,
    kv_heads: Array,
    head_size: Array,
    q_rank: Array,
    kv_rank: Array,
    head_size_plain: Array,
    head_size_rope: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Outputs of the projections to queries, keys and values: as many as their biases."""
    up = heads * (query_head_size + head_size_plain + value_head_size)
    latent = q_rank + kv_rank + head_size_rope + up
    return np.where(kv_rank > 0.0, latent, (heads + 2.0 * kv_heads) * head_size)


@formula(
    source=HEADS[0],
    where=HEADS[1],
    assumes=("a bias for each output of a linear layer that has biases",),
)
def attention_bias_parameters(
    biases: Array, qkv_biases: Array, qkv_outputs: Array, hidden_size: Array
) -> Array:
    """Biases of one layer's attention."""
    return np.maximum(biases, qkv_biases) * qkv_outputs + biases * hidden_size


@formula(
    source=LATENT[0],
    where=LATENT[1],
    assumes=(
        "the norms of queries and keys are over one head, and all heads share them",
        "each latent vector has an RMS norm",
    ),
)
def attention_norm_parameters(
    qk_norms: Array, head_size: Array, q_rank: Array, kv_rank: Array
) -> Array:
    """Norms inside one layer's attention."""
    return 2.0 * qk_norms * head_size + q_rank + kv_rank


@formula(source=HEADS[0], where=HEADS[1])
def attention_parameters(
    attention_weights: Array, attention_bias_parameters: Array, attention_norm_parameters: Array
) -> Array:
    """Parameters of one layer's attention."""
    return attention_weights + attention_bias_parameters + attention_norm_parameters


# One layer's MLP: dense, or a mixture of experts with its router and shared experts.

PLAIN = (VASWANI, "section 3.3; gated: Shazeer 2020, section 2")
EXPERTS = (MIXTRAL, "section 2.1")
SHARED = (DEEPSEEK_V3, "section 2.1.2")


@formula(source=PLAIN[0], where=PLAIN[1])
def mlp_weights(gated: Array, hidden_size: Array, ffn_size: Array) -> Array:
    """Weights of one dense layer's MLP that matrix products use."""
    return (2.0 + gated) * hidden_size * ffn_size


@formula(source=PLAIN[0], where=PLAIN[1])
def mlp_parameters(
    mlp_weights: Array, biases: Array, gated: Array, ffn_size: Array, hidden_size: Array
) -> Array:
    """Parameters of one dense layer's MLP."""
    return mlp_weights + biases * ((1.0 + gated) * ffn_size + hidden_size)


@formula(source=EXPERTS[0], where=EXPERTS[1])
def expert_weights(gated: Array, hidden_size: Array, expert_ffn_size: Array) -> Array:
    """Weights of one routed expert that matrix products use."""
    return (2.0 + gated) * hidden_size * expert_ffn_size


@formula(source=EXPERTS[0], where=EXPERTS[1])
def expert_parameters(
    expert_weights: Array,
    biases: Array,
    gated: Array,
    expert_ffn_size: Array,
    hidden_size: Array,
) -> Array:
    """Parameters of one routed expert."""
    return expert_weights + biases * ((1.0 + gated) * expert_ffn_size + hidden_size)


@formula(source=SHARED[0], where=SHARED[1])
def shared_expert_weights(gated: Array, hidden_size: Array, shared_ffn_size: Array) -> Array:
    """Weights of one layer's shared experts that matrix products use."""
    return (2.0 + gated) * hidden_size * shared_ffn_size


@formula(
    source=SHARED[0],
    where=SHARED[1],
    assumes=("the shared experts are one MLP of their widths together",),
)
def shared_expert_parameters(
    shared_expert_weights: Array,
    biases: Array,
    gated: Array,
    shared_ffn_size: Array,
    hidden_size: Array,
) -> Array:
    """Parameters of one layer's shared experts; none where there are none."""
    bias = biases * ((1.0 + gated) * shared_ffn_size + hidden_size)
    return shared_expert_weights + np.where(shared_ffn_size > 0.0, bias, 0.0)


@formula(source=EXPERTS[0], where=EXPERTS[1])
def router_weights(hidden_size: Array, experts: Array) -> Array:
    """Weights of one layer's router."""
    return hidden_size * experts


@formula(source=SHARED[0], where=f"{SHARED[1]}, bias for balancing the load")
def router_parameters(router_weights: Array, router_bias: Array, experts: Array) -> Array:
    """Parameters of one layer's router."""
    return router_weights + router_bias * experts


@formula(source=SHARED[0], where=SHARED[1])
def moe_parameters(
    experts: Array,
    expert_parameters: Array,
    router_parameters: Array,
    shared_expert_parameters: Array,
) -> Array:
    """Parameters of one layer's mixture of experts."""
    return experts * expert_parameters + router_parameters + shared_expert_parameters


@formula(
    source=EXPERTS[0], where=EXPERTS[1], assumes=("router and shared experts count as active",)
)
def active_moe_parameters(
    experts_per_token: Array,
    expert_parameters: Array,
    router_parameters: Array,
    shared_expert_parameters: Array,
) -> Array:
    """Parameters of one layer's mixture of experts that one token meets."""
    return experts_per_token * expert_parameters + router_parameters + shared_expert_parameters


@formula(
    source=SHARED[0],
    where="section 4.2; one of every few layers: Hugging Face transformers, decoder_sparse_step",
    assumes=("after the first dense layers, the last of every moe_every layers has experts",),
)
def moe_layers(layers: Array, dense_layers: Array, moe_every: Array, experts: Array) -> Array:
    """Layers whose MLP is a mixture of experts."""
    routed = np.floor(np.maximum(layers - dense_layers, 0.0) / moe_every)
    return np.where(experts > 0.0, routed, 0.0)


@formula(source=SHARED[0], where="section 4.2")
def dense_mlp_layers(layers: Array, moe_layers: Array) -> Array:
    """Layers whose MLP is dense."""
    return np.maximum(layers - moe_layers, 0.0)
