"""What a layer keeps for its backward: by label `recompute`, and nothing without a backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.memory import quantities, sources
from overhead.quantity import Array

__all__ = ["RECOMPUTE", "quantities", "sources"]

RECOMPUTE = ("none", "selective", "full", "full_early_stop", "per_op")
PLACE: dict[str, Any] = {"source": "korthikanti2022"}
CORE = "selective recomputation drops what attention keeps of its scores, and nothing else"
INPUT = "each layer keeps its input"
# Recomputation that stops once it has what the backward needs keeps no more and no less.
FULL = {"recompute": "full|full_early_stop"}
PER_OP: dict[str, Any] = {
    "source": "torchtitan",
    "where": "torchtitan/models/llama3/infra/parallelize.py, _save_list and _custom_policy",
}
EVERY_SECOND = (
    "the layer's input, every second matrix product's output (queries, values, the first of the "
    "MLP, the last of a gated one), what attention gives and what is reduced and scattered"
)


@formula(
    returns="kept_dense_layer_activations",
    expression="1*dense_layer_activations",
    where="section 4.1",
    when={"recompute": "none"},
    **PLACE,
)
def whole_dense_layer_activations(dense_layer_activations: Array) -> Array:
    """Bytes a token that a dense layer keeps: all."""
    return 1.0 * dense_layer_activations


@formula(
    returns="kept_moe_layer_activations",
    expression="1*moe_layer_activations",
    where="section 4.1",
    when={"recompute": "none"},
    **PLACE,
)
def whole_moe_layer_activations(moe_layer_activations: Array) -> Array:
    """Bytes a token that a mixture-of-experts layer keeps: all."""
    return 1.0 * moe_layer_activations


@formula(
    returns="kept_dense_layer_activations",
    expression="maximum(dense_layer_activations - score_activations, 0)",
    where="section 5, selective recomputation",
    assumes=(CORE,),
    when={"recompute": "selective"},
    **PLACE,
)
def selective_dense_layer_activations(
    dense_layer_activations: Array, score_activations: Array
) -> Array:
    """Bytes a token that a dense layer keeps: all but scores."""
    return np.maximum(dense_layer_activations - score_activations, 0.0)


@formula(
    returns="kept_moe_layer_activations",
    expression="maximum(moe_layer_activations - score_activations, 0)",
    where="section 5, selective recomputation",
    assumes=(CORE,),
    when={"recompute": "selective"},
    **PLACE,
)
def selective_moe_layer_activations(
    moe_layer_activations: Array, score_activations: Array
) -> Array:
    """Bytes a token that a mixture-of-experts layer keeps: all but scores."""
    return np.maximum(moe_layer_activations - score_activations, 0.0)


@formula(
    returns="kept_dense_layer_activations",
    expression="1*checkpoint_activations",
    where="section 5, full recomputation",
    assumes=(INPUT,),
    when=FULL,
    **PLACE,
)
def checkpointed_dense_layer_activations(checkpoint_activations: Array) -> Array:
    """Bytes a token that a dense layer keeps: its input."""
    return 1.0 * checkpoint_activations


@formula(
    returns="kept_moe_layer_activations",
    expression="1*checkpoint_activations",
    where="section 5, full recomputation",
    assumes=(INPUT,),
    when=FULL,
    **PLACE,
)
def checkpointed_moe_layer_activations(checkpoint_activations: Array) -> Array:
    """Bytes a token that a mixture-of-experts layer keeps: its input."""
    return 1.0 * checkpoint_activations


@formula(
    returns="saved_attention_activations",
    expression="checkpoint_activations + activation_bytes*heads/tp*(query_head_size"
    " + value_head_size) + activation_bytes*rank_kv_heads*value_head_size + score_activations"
    " + where(tp > 1, 2*activation_bytes*hidden_size/sequence_shards, 0)",
    assumes=(EVERY_SECOND, "queries, keys and values are one product each, in that order"),
    **PER_OP,
)
def saved_attention_activations(
    checkpoint_activations: Array,
    activation_bytes: Array,
    heads: Array,
    tp: Array,
    query_head_size: Array,
    value_head_size: Array,
    rank_kv_heads: Array,
    score_activations: Array,
    hidden_size: Array,
    sequence_shards: Array,
) -> Array:
    """Bytes a token that a layer keeps beside its MLP where every second product is kept."""
    outputs = heads / tp * (query_head_size + value_head_size) + rank_kv_heads * value_head_size
    reduced = np.where(tp > 1.0, 2.0 * hidden_size / sequence_shards, 0.0)
    own = checkpoint_activations + score_activations
    return own + activation_bytes * (outputs + reduced)


@formula(
    returns="kept_dense_layer_activations",
    expression="saved_attention_activations + activation_bytes*(ffn_size/tp + gated*hidden_size)",
    assumes=(EVERY_SECOND, "the last product's output is whole on each rank"),
    when={"recompute": "per_op"},
    **PER_OP,
)
def per_op_dense_layer_activations(
    saved_attention_activations: Array,
    activation_bytes: Array,
    ffn_size: Array,
    tp: Array,
    gated: Array,
    hidden_size: Array,
) -> Array:
    """Bytes a token that a dense layer keeps where every second product's output is kept."""
    return saved_attention_activations + activation_bytes * (ffn_size / tp + gated * hidden_size)


@formula(
    returns="kept_moe_layer_activations",
    expression="saved_attention_activations + activation_bytes*gated*shared_ffn_size/tp",
    assumes=(EVERY_SECOND, "the products of routed experts are not among those that are kept"),
    when={"recompute": "per_op"},
    **PER_OP,
)
def per_op_moe_layer_activations(
    saved_attention_activations: Array,
    activation_bytes: Array,
    gated: Array,
    shared_ffn_size: Array,
    tp: Array,
) -> Array:
    """Bytes a token that a mixture-of-experts layer keeps where every second product is kept."""
    return saved_attention_activations + activation_bytes * gated * shared_ffn_size / tp


# Without a backward nothing is kept.
FORWARD = {"schedule": "forward_only", "recompute": "|".join(RECOMPUTE)}


@formula(
    returns="kept_dense_layer_activations",
    expression="0*dense_layer_activations",
    source="derivation",
    assumes=("there is no backward",),
    when=FORWARD,
)
def no_kept_dense_layer_activations(dense_layer_activations: Array) -> Array:
    """Bytes a token that a dense layer keeps where there is no backward: none."""
    return 0.0 * dense_layer_activations


@formula(
    returns="kept_moe_layer_activations",
    expression="0*moe_layer_activations",
    source="derivation",
    assumes=("there is no backward",),
    when=FORWARD,
)
def no_kept_moe_layer_activations(moe_layer_activations: Array) -> Array:
    """Bytes a token that a mixture-of-experts layer keeps where there is no backward: none."""
    return 0.0 * moe_layer_activations
