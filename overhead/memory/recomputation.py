"""What a layer keeps for its backward: by label `recompute`, and nothing without a backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.memory import quantities, sources
from overhead.quantity import Array

__all__ = ["RECOMPUTE", "quantities", "sources"]

RECOMPUTE = ("none", "selective", "full")
PLACE: dict[str, Any] = {"source": "korthikanti2022"}
CORE = "selective recomputation drops what attention keeps of its scores, and nothing else"
INPUT = "each layer keeps its input"


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
    when={"recompute": "full"},
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
    when={"recompute": "full"},
    **PLACE,
)
def checkpointed_moe_layer_activations(checkpoint_activations: Array) -> Array:
    """Bytes a token that a mixture-of-experts layer keeps: its input."""
    return 1.0 * checkpoint_activations


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
