"""Parameters whose gradients and weights data parallelism exchanges: of a rank, and of a layer.

They are those of the stage that has most: the first with the embedding, the last with the output
layer, or one between where the ends have fewer layers; of experts one of the last two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.communication import passes
from overhead.formula import call, formula
from overhead.memory import rank_parameters
from overhead.quantity import Array, define

__all__ = ["busiest_dense_parameters", "busiest_expert_parameters", "passes", "rank_parameters"]

OWN = "derivation"
UNKNOWN = {"shapes": "unknown"}
LAYER: dict[str, Any] = {"source": "zhao2023", "where": "sections 3.2 and 4.2"}

for _name, _mark, _meaning in (
    ("first_stage_parameters", "first",
     "parameters of a rank of the first stage, experts left out"),
    ("second_stage_parameters", "second",
     "parameters of a rank of the second stage, experts left out"),
    ("last_stage_parameters", "last", "parameters of a rank of the last stage, experts left out"),
    ("later_stage_expert_parameters", "later,e",
     "routed experts' parameters of the last stage but one"),
    ("last_stage_expert_parameters", "last,e", "routed experts' parameters of the last stage"),
    ("busiest_dense_parameters", "most", "most parameters of a rank, experts left out"),
    ("busiest_expert_parameters", "most,e", "most parameters of a rank that are routed experts"),
    ("pipeline_parameters", "sum", "parameters of the whole model on the ranks of one pipeline, "
     "experts and copies of tables left out"),
    ("all_dense_parameters", "all", "parameters on the ranks of one pipeline, experts left out"),
    ("mean_layer_parameters", "mean", "parameters of a layer on one rank, mean of the stage's, "
     "experts left out"),
    ("dp_layer_parameters", "l", "parameters of a layer that data parallelism exchanges"),
    ("edp_layer_parameters", "l,e", "parameters of a layer's routed experts on one rank"),
):  # fmt: skip
    define(_name, rf"\psi_{{\mathrm{{{_mark}}}}}", "1", _meaning, minimum=0)
define("one_stage", r"1_p", "1", "one, as the number of a pipeline's stages", minimum=1)

for _stage in ("first", "second", "last"):
    call(
        returns=f"{_stage}_stage_parameters",
        of="stage_parameters",
        bind={"stage": f"{_stage}_stage"},
    )
for _stage in ("later", "last"):
    call(
        returns=f"{_stage}_stage_expert_parameters",
        of="stage_expert_parameters",
        bind={"stage": f"{_stage}_stage"},
    )


@formula(
    returns="busiest_dense_parameters",
    expression="maximum(maximum(first_stage_parameters, second_stage_parameters),"
    " last_stage_parameters)",
    source=OWN,
)
def busiest_dense_parameters(
    first_stage_parameters: Array, second_stage_parameters: Array, last_stage_parameters: Array
) -> Array:
    """Parameters of the rank that has most, experts left out."""
    earlier = np.maximum(first_stage_parameters, second_stage_parameters)
    return np.maximum(earlier, last_stage_parameters)


@formula(
    returns="busiest_expert_parameters",
    expression="maximum(later_stage_expert_parameters, last_stage_expert_parameters)",
    source=OWN,
    ufunc=np.maximum,
)
def busiest_expert_parameters(
    later_stage_expert_parameters: Array, last_stage_expert_parameters: Array
) -> Array:
    """Parameters of the rank that has most routed experts."""
    return np.maximum(later_stage_expert_parameters, last_stage_expert_parameters)


# All stages together: as one stage would have it.


@formula(returns="one_stage", expression="1 + 0*pp", source=OWN)
def one_stage(pp: Array) -> Array:
    """One, as the number of a pipeline's stages."""
    return 1.0 + 0.0 * pp


call(
    returns="pipeline_parameters",
    of="stage_parameters",
    bind={"pp": "one_stage", "virtual_stages": "one_stage", "stage": "first_stage"},
)

MORE_TABLES = "(tied_embeddings + 2*(1 - tied_embeddings)*(weight_copies - 1))"


@formula(
    returns="all_dense_parameters",
    expression="pipeline_parameters"
    f" + where(pp > 1, {MORE_TABLES}*(padded_vocabulary*hidden_size/tp), 0)",
    source=OWN,
    assumes=(
        "a tied table is in the first and in the last stage; what holds two stages holds both",
    ),
)
def all_dense_parameters(
    pipeline_parameters: Array,
    pp: Array,
    tied_embeddings: Array,
    weight_copies: Array,
    padded_vocabulary: Array,
    hidden_size: Array,
    tp: Array,
) -> Array:
    """Parameters on the ranks of one pipeline, experts left out."""
    more = tied_embeddings + 2.0 * (1.0 - tied_embeddings) * (weight_copies - 1.0)
    tables = more * (padded_vocabulary * hidden_size / tp)
    return pipeline_parameters + np.where(pp > 1.0, tables, 0.0)


@formula(
    returns="all_dense_parameters",
    expression="1*pipeline_parameters",
    source=OWN,
    when=UNKNOWN,
)
def all_unknown_parameters(pipeline_parameters: Array) -> Array:
    """Parameters on the ranks of one pipeline, where no table is known."""
    return 1.0 * pipeline_parameters


@formula(
    returns="dense_share",
    expression="all_dense_parameters/(pp*maximum(busiest_dense_parameters, 1))",
    source=OWN,
)
def dense_share(all_dense_parameters: Array, pp: Array, busiest_dense_parameters: Array) -> Array:
    """Parameters of a stage, mean by most."""
    return all_dense_parameters / (pp * np.maximum(busiest_dense_parameters, 1.0))


# One layer.


@formula(
    returns="mean_layer_parameters",
    expression="attention_rank_parameters + 2*norm_parameters + (stage_mlp_layers"
    "*mlp_rank_parameters + stage_moe_layers*shared_rank_parameters)/maximum(stage_layers, 1)",
    **LAYER,
)
def mean_layer_parameters(
    attention_rank_parameters: Array,
    norm_parameters: Array,
    stage_mlp_layers: Array,
    mlp_rank_parameters: Array,
    stage_moe_layers: Array,
    shared_rank_parameters: Array,
    stage_layers: Array,
) -> Array:
    """Parameters of a layer on one rank, mean of the stage's layers, experts left out."""
    mlp = stage_mlp_layers * mlp_rank_parameters + stage_moe_layers * shared_rank_parameters
    both = attention_rank_parameters + 2.0 * norm_parameters
    return np.asarray(both + mlp / np.maximum(stage_layers, 1.0))


@formula(
    returns="mean_layer_parameters",
    expression="stage_parameters/(weight_copies*maximum(stage_layers, 1))",
    assumes=("shapes aren't known: all parameters are in layers",),
    when=UNKNOWN,
    **LAYER,
)
def even_layer_parameters(
    stage_parameters: Array, weight_copies: Array, stage_layers: Array
) -> Array:
    """Parameters of a layer on one rank, where only their total is known."""
    return stage_parameters / (weight_copies * np.maximum(stage_layers, 1.0))


call(returns="dp_layer_parameters", of="mean_layer_parameters", bind={"stage": "last_stage"})
call(
    returns="edp_layer_parameters",
    of="layer_rank_expert_parameters",
    bind={"stage": "last_stage"},
)


@formula(
    returns="edp_layer_parameters",
    expression="0*pp",
    assumes=("shapes aren't known: nothing is an expert",),
    when=UNKNOWN,
    **LAYER,
)
def no_edp_layer_parameters(pp: Array) -> Array:
    """Parameters of a layer's routed experts: none are known."""
    return 0.0 * pp
