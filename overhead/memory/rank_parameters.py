"""Parameters that one rank of one stage holds, before any sharding over data parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.memory import quantities, sources
from overhead.quantity import Array

__all__ = [
    "attention_rank_biases",
    "attention_rank_parameters",
    "attention_rank_weights",
    "embedding_rank_parameters",
    "expert_rank_parameters",
    "mlp_rank_parameters",
    "output_rank_parameters",
    "padded_vocabulary",
    "quantities",
    "rank_key_value_weights",
    "rank_kv_heads",
    "rank_parameters",
    "shared_rank_parameters",
    "sources",
    "stage_expert_parameters",
    "stage_parameters",
]

# Tensor parallelism as Megatron-LM has it: columns of the first product, rows of the second.
TENSOR: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.3"}
MEGATRON = "megatron"
ROWS = "the bias of a product that is split by rows is whole on each rank"


@formula(
    returns="rank_kv_heads",
    expression="where(kv_rank > 0, heads/tp, maximum(kv_heads/tp, 1))",
    source=MEGATRON,
    where="megatron/core/transformer/attention.py, num_query_groups_per_partition",
    assumes=("with fewer heads than ranks each rank has one, a copy",),
)
def rank_kv_heads(kv_rank: Array, heads: Array, kv_heads: Array, tp: Array) -> Array:
    """Key and value heads of a rank."""
    return np.where(kv_rank > 0.0, heads / tp, np.maximum(kv_heads / tp, 1.0))


@formula(
    returns="rank_key_value_weights",
    expression="where(kv_rank > 0, key_value_weights/tp,"
    " key_value_weights*(rank_kv_heads/kv_heads))",
    **TENSOR,
)
def rank_key_value_weights(
    kv_rank: Array, key_value_weights: Array, tp: Array, rank_kv_heads: Array, kv_heads: Array
) -> Array:
    """Weights to keys and values on one rank."""
    latent = key_value_weights / tp
    return np.where(kv_rank > 0.0, latent, key_value_weights * (rank_kv_heads / kv_heads))


@formula(
    returns="attention_rank_weights",
    expression="query_down_weights + key_value_down_weights + rank_key_value_weights"
    " + (query_weights + attention_output_weights)/tp",
    assumes=("projections down to latent vectors are whole on each rank",),
    **TENSOR,
)
def attention_rank_weights(
    query_down_weights: Array,
    key_value_down_weights: Array,
    rank_key_value_weights: Array,
    query_weights: Array,
    attention_output_weights: Array,
    tp: Array,
) -> Array:
    """Weights of one layer's attention on one rank."""
    whole = query_down_weights + key_value_down_weights
    return whole + rank_key_value_weights + (query_weights + attention_output_weights) / tp


@formula(
    returns="attention_rank_biases",
    expression="maximum(biases, qkv_biases)*where(kv_rank > 0, q_rank + kv_rank + head_size_rope"
    " + heads/tp*(query_head_size + head_size_plain + value_head_size),"
    " (heads/tp + 2*rank_kv_heads)*head_size) + biases*hidden_size",
    assumes=(ROWS,),
    **TENSOR,
)
def attention_rank_biases(
    biases: Array,
    qkv_biases: Array,
    kv_rank: Array,
    q_rank: Array,
    head_size_rope: Array,
    heads: Array,
    tp: Array,
    query_head_size: Array,
    head_size_plain: Array,
    value_head_size: Array,
    rank_kv_heads: Array,
    head_size: Array,
    hidden_size: Array,
) -> Array:
    """Biases of one layer's attention on one rank."""
    own = heads / tp
    up = own * (query_head_size + head_size_plain + value_head_size)
    latent = q_rank + kv_rank + head_size_rope + up
    outputs = np.where(kv_rank > 0.0, latent, (own + 2.0 * rank_kv_heads) * head_size)
    return np.maximum(biases, qkv_biases) * outputs + biases * hidden_size


@formula(
    returns="attention_rank_parameters",
    expression="attention_rank_weights + attention_rank_biases + attention_norm_parameters",
    assumes=("norms are whole on each rank",),
    **TENSOR,
)
def attention_rank_parameters(
    attention_rank_weights: Array, attention_rank_biases: Array, attention_norm_parameters: Array
) -> Array:
    """Parameters of one layer's attention on one rank."""
    return attention_rank_weights + attention_rank_biases + attention_norm_parameters


@formula(
    returns="mlp_rank_parameters",
    expression="mlp_weights/tp + biases*((1 + gated)*ffn_size/tp + hidden_size)",
    assumes=(ROWS,),
    **TENSOR,
)
def mlp_rank_parameters(
    mlp_weights: Array, tp: Array, biases: Array, gated: Array, ffn_size: Array, hidden_size: Array
) -> Array:
    """Parameters of one dense layer's MLP on one rank."""
    return mlp_weights / tp + biases * ((1.0 + gated) * ffn_size / tp + hidden_size)


@formula(
    returns="shared_rank_parameters",
    expression="router_parameters + shared_expert_weights/tp + where(shared_ffn_size > 0,"
    " biases*((1 + gated)*shared_ffn_size/tp + hidden_size), 0)",
    source=MEGATRON,
    where="megatron/core/transformer/moe (router.py, shared_experts.py)",
    assumes=("the router is whole on each rank", ROWS),
)
def shared_rank_parameters(
    router_parameters: Array,
    shared_expert_weights: Array,
    tp: Array,
    shared_ffn_size: Array,
    biases: Array,
    gated: Array,
    hidden_size: Array,
) -> Array:
    """Parameters of one layer's router and shared experts on one rank."""
    bias = biases * ((1.0 + gated) * shared_ffn_size / tp + hidden_size)
    shared = shared_expert_weights / tp + np.where(shared_ffn_size > 0.0, bias, 0.0)
    return np.asarray(router_parameters + shared)


@formula(
    returns="expert_rank_parameters",
    expression="experts/ep*(expert_weights/etp"
    " + biases*((1 + gated)*expert_ffn_size/etp + hidden_size))",
    source=MEGATRON,
    where="megatron/core/transformer/moe/experts.py",
    assumes=(ROWS,),
)
def expert_rank_parameters(
    experts: Array,
    ep: Array,
    expert_weights: Array,
    etp: Array,
    biases: Array,
    gated: Array,
    expert_ffn_size: Array,
    hidden_size: Array,
) -> Array:
    """Parameters of one layer's routed experts on one rank."""
    bias = biases * ((1.0 + gated) * expert_ffn_size / etp + hidden_size)
    return experts / ep * (expert_weights / etp + bias)


@formula(
    returns="padded_vocabulary",
    expression="vocabulary_multiple*tp*ceil(vocabulary_size/(vocabulary_multiple*tp))",
    source=MEGATRON,
    where="make-vocab-size-divisible-by",
)
def padded_vocabulary(vocabulary_size: Array, vocabulary_multiple: Array, tp: Array) -> Array:
    """Vocabulary as it is padded, so that every rank has as many rows of the tables."""
    multiple = vocabulary_multiple * tp
    return np.asarray(multiple * np.ceil(vocabulary_size / multiple))


@formula(
    returns="embedding_rank_parameters",
    expression="holds_embedding*(padded_vocabulary*hidden_size/tp + position_parameters)",
    assumes=("learned positions are whole on each rank",),
    **TENSOR,
)
def embedding_rank_parameters(
    holds_embedding: Array,
    padded_vocabulary: Array,
    hidden_size: Array,
    tp: Array,
    position_parameters: Array,
) -> Array:
    """Parameters of embedding and positions on one rank; none but where they are held."""
    return holds_embedding * (padded_vocabulary * hidden_size / tp + position_parameters)


@formula(
    returns="output_rank_parameters",
    expression="holds_output*(norm_parameters"
    " + (1 - tied_embeddings*holds_embedding)*(padded_vocabulary*hidden_size/tp))",
    assumes=("a tied table that two stages need is held by both",),
    **TENSOR,
)
def output_rank_parameters(
    holds_output: Array,
    norm_parameters: Array,
    tied_embeddings: Array,
    holds_embedding: Array,
    padded_vocabulary: Array,
    hidden_size: Array,
    tp: Array,
) -> Array:
    """Parameters of the last norm and the output layer on one rank; none but where held."""
    table = padded_vocabulary * hidden_size / tp
    return holds_output * (norm_parameters + (1.0 - tied_embeddings * holds_embedding) * table)


@formula(
    returns="stage_parameters",
    expression="weight_copies*(stage_layers*(attention_rank_parameters + 2*norm_parameters)"
    " + stage_mlp_layers*mlp_rank_parameters + stage_moe_layers*shared_rank_parameters)"
    " + embedding_rank_parameters + output_rank_parameters",
    assumes=("a rank that holds two stages keeps states for both",),
    **TENSOR,
)
def stage_parameters(
    weight_copies: Array,
    stage_layers: Array,
    attention_rank_parameters: Array,
    norm_parameters: Array,
    stage_mlp_layers: Array,
    mlp_rank_parameters: Array,
    stage_moe_layers: Array,
    shared_rank_parameters: Array,
    embedding_rank_parameters: Array,
    output_rank_parameters: Array,
) -> Array:
    """Parameters of a rank, its routed experts left out."""
    every = stage_layers * (attention_rank_parameters + 2.0 * norm_parameters)
    mlp = stage_mlp_layers * mlp_rank_parameters + stage_moe_layers * shared_rank_parameters
    return weight_copies * (every + mlp) + embedding_rank_parameters + output_rank_parameters


@formula(
    returns="stage_expert_parameters",
    expression="weight_copies*stage_moe_layers*expert_rank_parameters",
    source=MEGATRON,
    where="megatron/core/transformer/moe/experts.py",
)
def stage_expert_parameters(
    weight_copies: Array, stage_moe_layers: Array, expert_rank_parameters: Array
) -> Array:
    """Parameters of a rank that are routed experts."""
    return weight_copies * stage_moe_layers * expert_rank_parameters


BARE: dict[str, Any] = {"shapes": "unknown"}


@formula(
    returns="stage_parameters",
    expression="weight_copies*parameters/(tp*pp)",
    assumes=("shapes aren't known: all parameters are shared out evenly",),
    when=BARE,
    **TENSOR,
)
def even_stage_parameters(weight_copies: Array, parameters: Array, tp: Array, pp: Array) -> Array:
    """Parameters of a rank where only the model's total is known."""
    return weight_copies * parameters / (tp * pp)


@formula(
    returns="stage_expert_parameters",
    expression="0*parameters",
    assumes=("shapes aren't known: nothing is an expert",),
    when=BARE,
    **TENSOR,
)
def no_stage_expert_parameters(parameters: Array) -> Array:
    """Parameters of a rank that are routed experts: none are known."""
    return 0.0 * parameters


@formula(
    returns="rank_parameters",
    expression="stage_parameters + stage_expert_parameters",
    ufunc=np.add,
    **TENSOR,
)
def rank_parameters(stage_parameters: Array, stage_expert_parameters: Array) -> Array:
    """Parameters of a rank."""
    return stage_parameters + stage_expert_parameters
