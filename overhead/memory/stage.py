"""A stage of the pipeline: its layers by kind, and which ends of the model its rank holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.memory import quantities, sources
from overhead.quantity import Array

__all__ = [
    "holds_embedding",
    "holds_output",
    "quantities",
    "sources",
    "stage_layers",
    "stage_leading_layers",
    "stage_mlp_layers",
    "stage_moe_layers",
]

PIPELINE: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.2"}
ENDS = "where a rank holds two stages (DualPipe), they are i and pp - 1 - i"


@formula(
    returns="stage_layers",
    expression="virtual_stages*ceil((layers + embedding_as_layer + loss_as_layer)"
    "/(pp*virtual_stages)) - where(stage == 0, embedding_as_layer, 0)"
    " - where(stage == pp - 1, loss_as_layer, 0)",
    assumes=("where layers don't divide evenly, every stage counts as large as the largest",),
    **PIPELINE,
)
def stage_layers(
    layers: Array,
    pp: Array,
    virtual_stages: Array,
    embedding_as_layer: Array,
    loss_as_layer: Array,
    stage: Array,
) -> Array:
    """Layers of the stage."""
    places = layers + embedding_as_layer + loss_as_layer
    even = virtual_stages * np.ceil(places / (pp * virtual_stages))
    first = np.where(stage == 0.0, embedding_as_layer, 0.0)
    return np.asarray(even - first - np.where(stage == pp - 1.0, loss_as_layer, 0.0))


@formula(
    returns="holds_embedding",
    expression="where(stage == 0, 1, where(stage == pp - 1, where(weight_copies > 1, 1, 0), 0))",
    assumes=(ENDS,),
    **PIPELINE,
)
def holds_embedding(stage: Array, pp: Array, weight_copies: Array) -> Array:
    """Whether the stage's rank holds the embedding."""
    other = (stage == pp - 1.0) & (weight_copies > 1.0)
    return np.where((stage == 0.0) | other, 1.0, 0.0)


@formula(
    returns="holds_output",
    expression="where(stage == pp - 1, 1, where(stage == 0, where(weight_copies > 1, 1, 0), 0))",
    assumes=(ENDS,),
    **PIPELINE,
)
def holds_output(stage: Array, pp: Array, weight_copies: Array) -> Array:
    """Whether the stage's rank holds the output layer."""
    other = (stage == 0.0) & (weight_copies > 1.0)
    return np.where((stage == pp - 1.0) | other, 1.0, 0.0)


# Places for layers in one chunk of a stage, of which the embedding may take the very first.
CHUNK = "ceil((layers + embedding_as_layer + loss_as_layer)/(pp*virtual_stages))"
PERIOD = f"maximum(pp*{CHUNK}, 1)"
FIRST = "(dense_layers + embedding_as_layer)"
LEFT = f"{FIRST} % {PERIOD}"
OWN = (
    f"floor({FIRST}/{PERIOD})*{CHUNK} + maximum(minimum({LEFT} - {{0}}*{CHUNK}, {CHUNK}), 0)"
    " - where({0} == 0, embedding_as_layer, 0)"
)
HERE, OPPOSITE = OWN.format("stage"), OWN.format("(pp - 1 - stage)")


@formula(
    returns="stage_leading_layers",
    expression=f"where(weight_copies > 1, ({HERE} + {OPPOSITE})/2, {HERE})",
    assumes=(f"{ENDS}, and this is their mean",),
    **PIPELINE,
)
def stage_leading_layers(
    dense_layers: Array,
    layers: Array,
    pp: Array,
    virtual_stages: Array,
    embedding_as_layer: Array,
    loss_as_layer: Array,
    stage: Array,
    weight_copies: Array,
) -> Array:
    """First dense layers of a mixture of experts that lie in the stage."""
    places = layers + embedding_as_layer + loss_as_layer
    chunk = np.ceil(places / (pp * virtual_stages))
    period = np.maximum(pp * chunk, 1.0)
    leading = dense_layers + embedding_as_layer

    def held(place: Array) -> Array:
        part = np.maximum(np.minimum(leading % period - place * chunk, chunk), 0.0)
        whole = np.floor(leading / period) * chunk + part
        return np.asarray(whole - np.where(place == 0.0, embedding_as_layer, 0.0))

    own = held(stage)
    return np.where(weight_copies > 1.0, (own + held(pp - 1.0 - stage)) / 2.0, own)


AFTER = "maximum(stage_layers - stage_leading_layers, 0)"


@formula(
    returns="stage_moe_layers",
    expression=f"where(experts > 0, minimum(where(moe_every > 1, ceil({AFTER}/moe_every), {AFTER}),"
    " moe_layers), 0)",
    assumes=("where one of several layers has experts, a stage has the larger number of them",),
    **PIPELINE,
)
def stage_moe_layers(
    stage_layers: Array,
    stage_leading_layers: Array,
    moe_every: Array,
    moe_layers: Array,
    experts: Array,
) -> Array:
    """Layers of the stage whose MLP is a mixture of experts."""
    after = np.maximum(stage_layers - stage_leading_layers, 0.0)
    routed = np.where(moe_every > 1.0, np.ceil(after / moe_every), after)
    return np.where(experts > 0.0, np.minimum(routed, moe_layers), 0.0)


@formula(
    returns="stage_mlp_layers",
    expression="maximum(stage_layers - stage_moe_layers, 0)",
    **PIPELINE,
)
def stage_mlp_layers(stage_layers: Array, stage_moe_layers: Array) -> Array:
    """Layers of the stage whose MLP is dense."""
    return np.maximum(stage_layers - stage_moe_layers, 0.0)
