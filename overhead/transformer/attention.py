"""One layer's attention: its weights, biases and norms, with separate or with latent heads.

Multi-head, grouped-query and multi-query attention differ in `kv_heads` alone.  Latent attention
(MLA) is what has a `kv_rank`: its queries, if they have a rank too, and its keys and values are
projected down to one latent vector and from there up to the heads.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.transformer.sources import AINSLIE, DEEPSEEK_V2, VASWANI

__all__ = [
    "attention_bias_parameters",
    "attention_norm_parameters",
    "attention_output_weights",
    "attention_parameters",
    "attention_weights",
    "key_value_down_weights",
    "key_value_weights",
    "qkv_outputs",
    "query_down_weights",
    "query_head_size",
    "query_weights",
    "value_head_size",
]

HEADS = (VASWANI, "section 3.2.2")
LATENT = (DEEPSEEK_V2, "section 2.1")


@formula(
    returns="query_head_size",
    expression="where(kv_rank > 0, head_size_plain + head_size_rope, head_size)",
    source=LATENT[0],
    where=LATENT[1],
)
def query_head_size(
    kv_rank: Array, head_size_plain: Array, head_size_rope: Array, head_size: Array
) -> Array:
    """Size of a query or key head as scores need it."""
    return np.where(kv_rank > 0.0, head_size_plain + head_size_rope, head_size)


@formula(
    returns="value_head_size",
    expression="where(kv_rank > 0, head_size_value, head_size)",
    source=LATENT[0],
    where=LATENT[1],
)
def value_head_size(kv_rank: Array, head_size_value: Array, head_size: Array) -> Array:
    """Size of a value head as the context has it."""
    return np.where(kv_rank > 0.0, head_size_value, head_size)


@formula(
    returns="query_down_weights",
    expression="hidden_size*q_rank",
    source=LATENT[0],
    where=LATENT[1],
    ufunc=np.multiply,
)
def query_down_weights(hidden_size: Array, q_rank: Array) -> Array:
    """Weights from hidden to the queries' latent vector; none where it has no rank."""
    return hidden_size * q_rank


@formula(
    returns="query_weights",
    expression="where(q_rank > 0, q_rank, hidden_size)*heads*query_head_size",
    source=HEADS[0],
    where=HEADS[1],
)
def query_weights(q_rank: Array, hidden_size: Array, heads: Array, query_head_size: Array) -> Array:
    """Weights to the queries, from hidden or from their latent vector."""
    return np.asarray(np.where(q_rank > 0.0, q_rank, hidden_size) * heads * query_head_size)


@formula(
    returns="key_value_down_weights",
    expression="where(kv_rank > 0, hidden_size*(kv_rank + head_size_rope), 0)",
    source=LATENT[0],
    where=LATENT[1],
    assumes=("all heads share the rotated part of the keys, which comes straight from hidden",),
)
def key_value_down_weights(hidden_size: Array, kv_rank: Array, head_size_rope: Array) -> Array:
    """Weights from hidden to the latent vector and to the rotated key."""
    return np.where(kv_rank > 0.0, hidden_size * (kv_rank + head_size_rope), 0.0)


@formula(
    returns="key_value_weights",
    expression="where(kv_rank > 0, kv_rank*heads*(head_size_plain + head_size_value),"
    " 2*hidden_size*kv_heads*head_size)",
    source=AINSLIE,
    where="section 2.2; latent attention: DeepSeek-V2, section 2.1",
)
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


@formula(
    returns="attention_output_weights",
    expression="heads*value_head_size*hidden_size",
    source=HEADS[0],
    where=HEADS[1],
)
def attention_output_weights(heads: Array, value_head_size: Array, hidden_size: Array) -> Array:
    """Weights from the attention's context back to hidden."""
    return heads * value_head_size * hidden_size


@formula(
    returns="attention_weights",
    expression="query_down_weights + query_weights + key_value_down_weights + key_value_weights"
    " + attention_output_weights",
    source=HEADS[0],
    where=HEADS[1],
)
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
    returns="qkv_outputs",
    expression="where(kv_rank > 0,"
    " q_rank + kv_rank + head_size_rope"
    " + heads*(query_head_size + head_size_plain + value_head_size),"
    " (heads + 2*kv_heads)*head_size)",
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
    returns="attention_bias_parameters",
    expression="maximum(biases, qkv_biases)*qkv_outputs + biases*hidden_size",
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
    returns="attention_norm_parameters",
    expression="2*qk_norms*head_size + q_rank + kv_rank",
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


@formula(
    returns="attention_parameters",
    expression="attention_weights + attention_bias_parameters + attention_norm_parameters",
    source=HEADS[0],
    where=HEADS[1],
)
def attention_parameters(
    attention_weights: Array, attention_bias_parameters: Array, attention_norm_parameters: Array
) -> Array:
    """Parameters of one layer's attention."""
    return attention_weights + attention_bias_parameters + attention_norm_parameters
