"""Parameters of a layer and of the whole model, and how many of them one token meets."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.transformer.sources import MIXTRAL, NARAYANAN, VASWANI

__all__ = [
    "active_moe_layer_parameters",
    "active_parameters",
    "dense_layer_parameters",
    "embedding_parameters",
    "moe_layer_parameters",
    "norm_parameters",
    "output_parameters",
    "outside_parameters",
    "parameters",
    "position_parameters",
]

NORMS = ("two norms a layer",)
MTP = ("layers that predict further tokens (MTP) aren't counted",)


@formula(
    returns="norm_parameters",
    expression="(1 + layer_norm)*hidden_size",
    source=VASWANI,
    where="section 3.1",
    assumes=("a layer norm has a bias, an RMS norm has none",),
)
def norm_parameters(layer_norm: Array, hidden_size: Array) -> Array:
    """Parameters of one norm over the hidden size."""
    return (1.0 + layer_norm) * hidden_size


@formula(
    returns="dense_layer_parameters",
    expression="attention_parameters + mlp_parameters + 2*norm_parameters",
    source=VASWANI,
    where="section 3.1",
    assumes=NORMS,
)
def dense_layer_parameters(
    attention_parameters: Array, mlp_parameters: Array, norm_parameters: Array
) -> Array:
    """Parameters of one dense layer."""
    return attention_parameters + mlp_parameters + 2.0 * norm_parameters


@formula(
    returns="moe_layer_parameters",
    expression="attention_parameters + moe_parameters + 2*norm_parameters",
    source=VASWANI,
    where="section 3.1",
    assumes=NORMS,
)
def moe_layer_parameters(
    attention_parameters: Array, moe_parameters: Array, norm_parameters: Array
) -> Array:
    """Parameters of one mixture-of-experts layer."""
    return attention_parameters + moe_parameters + 2.0 * norm_parameters


@formula(
    returns="active_moe_layer_parameters",
    expression="attention_parameters + active_moe_parameters + 2*norm_parameters",
    source=VASWANI,
    where="section 3.1",
    assumes=NORMS,
)
def active_moe_layer_parameters(
    attention_parameters: Array, active_moe_parameters: Array, norm_parameters: Array
) -> Array:
    """Parameters of one mixture-of-experts layer that one token meets."""
    return attention_parameters + active_moe_parameters + 2.0 * norm_parameters


@formula(
    returns="embedding_parameters",
    expression="vocabulary_size*hidden_size",
    ufunc=np.multiply,
    source=VASWANI,
    where="section 3.4",
)
def embedding_parameters(vocabulary_size: Array, hidden_size: Array) -> Array:
    """Parameters of the embedding's table."""
    return vocabulary_size * hidden_size


@formula(
    returns="output_parameters",
    expression="(1 - tied_embeddings)*vocabulary_size*hidden_size",
    assumes=("the output layer has no bias",),
    source=VASWANI,
    where="section 3.4",
)
def output_parameters(tied_embeddings: Array, vocabulary_size: Array, hidden_size: Array) -> Array:
    """Parameters of the output layer that the embedding lacks: none where they are tied."""
    return (1.0 - tied_embeddings) * vocabulary_size * hidden_size


@formula(
    returns="position_parameters",
    expression="learned_positions*hidden_size",
    source=VASWANI,
    where="section 3.5",
    ufunc=np.multiply,
)
def position_parameters(learned_positions: Array, hidden_size: Array) -> Array:
    """Parameters of the learned positions."""
    return learned_positions * hidden_size


@formula(
    returns="outside_parameters",
    expression="embedding_parameters + position_parameters + norm_parameters + output_parameters",
    assumes=("one norm after the last layer",),
    source=VASWANI,
    where="section 3.4",
)
def outside_parameters(
    embedding_parameters: Array,
    position_parameters: Array,
    norm_parameters: Array,
    output_parameters: Array,
) -> Array:
    """Parameters outside of the layers."""
    return embedding_parameters + position_parameters + norm_parameters + output_parameters


@formula(
    returns="parameters",
    expression="dense_mlp_layers*dense_layer_parameters + moe_layers*moe_layer_parameters"
    " + outside_parameters",
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


@formula(
    returns="active_parameters",
    expression="dense_mlp_layers*dense_layer_parameters"
    " + moe_layers*active_moe_layer_parameters + outside_parameters",
    source=MIXTRAL,
    where="section 2.1",
    assumes=(*MTP, "embeddings count as active"),
)
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
