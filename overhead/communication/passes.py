"""How often a step passes the layers of its stages, and how many of them the busiest stages have.

Recomputation repeats what a layer's forward communicates, in its backward.  Where it stops once it
has all that the backward needs (``full_early_stop``), the last reduction of a layer isn't repeated;
where outputs that were reduced are kept (``per_op``), gathers and exchanges alone are.  Of some
layers (``block``) their share is repeated, of modules (``selective``) what these communicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, declare, derived, formula
from overhead.model.order import ORDERED, of_stage

FORWARD = {"schedule": "forward_only"}
UNKNOWN = {"shapes": "unknown"}
REPEATED = cited("korthikanti2022", "section 5")
BLOCKS = cited("narayanan2021", "section 2.3")


# Directions.


@formula(source="korthikanti2022", where="section 4.2.2")
def replicated_activations(sequence_parallel):
    """Activations between TP blocks replicated (0 or 1)."""
    return 1.0 - sequence_parallel


# What is repeated.

MODULES = cited("megatron", "megatron/core/transformer/transformer_config.py: recompute_modules")


@formula(**MODULES)
def recomputed_shared_experts(recompute_moe, recompute_shared_experts):
    """Shared experts in recomputed modules: separately, or with all experts (0 or 1)."""
    return xp.maximum(recompute_moe, recompute_shared_experts)


def _blocks(recompute_mlp, dense_blocks, dense_layers, shared_experts, moe_blocks, moe_layers):
    """Fraction of TP blocks in recomputed modules."""
    blocks = dense_blocks * dense_layers + moe_blocks * moe_layers
    dense = recompute_mlp * (dense_blocks - 1.0) * dense_layers
    shared = shared_experts * (moe_blocks - 1.0) * moe_layers
    return (dense + shared) / xp.maximum(blocks, 1.0)


SELECTIVE: dict[str, Any] = {"when": {"recompute": "selective"}, **MODULES}
# What layers that are recomputed repeat, and what each of their modules does.
for _returns in ("recomputed_gathers", "recomputed_reductions"):
    declare(
        _returns,
        (
            "recompute_mlp",
            "dense_layer_blocks",
            "dense_mlp_layers",
            "recomputed_shared_experts",
            "moe_layer_blocks",
            "moe_layers",
        ),
        _blocks,
        assumes=("the mean of all blocks",),
        **SELECTIVE,
    )


@formula(
    returns="recomputed_reductions",
    assumes=(
        "the mean of all layers, of which a separate MoE layer is one",
        "in an MoE layer shared experts come last; without them the mixer's reduction is needed",
    ),
    when={"recompute": "full|full_early_stop|uniform|block"},
    **REPEATED,
)
def stopped_reductions(
    recomputed_fraction,
    stops_early,
    dense_layer_blocks,
    dense_mlp_layers,
    moe_layer_blocks,
    moe_layers,
    separate_moe_layers,
):
    """Recomputed fraction of TP reductions: all, or all except the last of each layer."""
    blocks = dense_layer_blocks * dense_mlp_layers + moe_layer_blocks * moe_layers
    last = dense_mlp_layers + separate_moe_layers + (moe_layer_blocks - 1.0) * moe_layers
    stopped = stops_early * xp.minimum(last / xp.maximum(blocks, 1.0), 1.0)
    return recomputed_fraction * (1.0 - stopped)


# Layers of stages.


@derived()
def penultimate_stage(pp):
    """Index of the penultimate stage: the full one with the fewest leading dense layers."""
    return xp.maximum(pp - 2.0, 0.0)


@derived(returns="penultimate_stage", when=ORDERED)
def ordered_penultimate_stage(order_holds, expert_stage, pp):
    """Index of the stage with the most MoE layers, or the penultimate where no order holds."""
    return xp.where(order_holds > 0.0, expert_stage, xp.maximum(pp - 2.0, 0.0))


def _largest(returns: str, names: Sequence[str], title: str) -> None:
    """Declare a quantity as the largest of several."""
    declare(returns, names, lambda *values: reduce(xp.maximum, values), title)


STAGES = ("first", "second", "last")  # Of three or more the second has no end of the model.
_largest("max_stage_layers", [f"{at}_stage_layers" for at in STAGES], "Layers of the largest stage")
LATER = ("penultimate", "last")
# With dense layers first the first stage has none more than these; an order may put more there.
_some = [*(f"{at}_stage_moe_layers" for at in LATER), "first_balanced_moe_layers"]
_largest("max_stage_moe_layers", _some, "Most MoE layers in a stage")


@formula(**BLOCKS)
def dense_layer_blocks(ffn_size):
    """TP blocks per dense layer: attention, and an MLP if it has one."""
    return xp.where(ffn_size > 0.0, 2.0, 1.0)


@formula(assumes=("routed experts are no tensor-parallel block",), **BLOCKS)
def moe_layer_blocks(shared_ffn_size):
    """TP blocks per MoE layer: attention, and shared experts."""
    return xp.where(shared_ffn_size > 0.0, 2.0, 1.0)


@formula(**BLOCKS)
def stage_tp_blocks(dense_layer_blocks, stage_mlp_layers, moe_layer_blocks, stage_moe_layers):
    """TP blocks per stage: attention, and MLP or shared experts, of each layer."""
    return dense_layer_blocks * stage_mlp_layers + moe_layer_blocks * stage_moe_layers


@formula(returns="stage_tp_blocks", when=ORDERED, **BLOCKS)
def ordered_stage_tp_blocks(
    dense_layer_blocks, stage_spare_mixers, moe_layer_blocks, stage_moe_layers
):
    """TP blocks per stage by the order of its layers: attention, and MLP or shared experts."""
    return dense_layer_blocks * stage_spare_mixers + moe_layer_blocks * stage_moe_layers


@formula(
    returns="stage_tp_blocks",
    assumes=("unknown shapes: all layers are dense",),
    when=UNKNOWN,
    **BLOCKS,
)
def dense_stage_tp_blocks(stage_layers):
    """TP blocks per stage, all layers dense."""
    return 2.0 * stage_layers


_some = [f"{at}_stage_tp_blocks" for at in STAGES]
_largest("max_stage_tp_blocks", _some, "Most TP blocks in a stage, with dense layers first")


# All stages by the busiest one.


def _mean_by_most(everything, pp, most):
    """Stage mean / max."""
    return xp.asarray(everything / (pp * xp.maximum(most, 1.0)))


@formula(**BLOCKS)
def tp_block_balance(
    dense_layer_blocks,
    dense_mlp_layers,
    moe_layer_blocks,
    moe_layers,
    mtp_depths,
    pp,
    max_stage_tp_blocks,
):
    """TP blocks per stage, mean / max."""
    further = mtp_depths * xp.where(moe_layers > 0.0, moe_layer_blocks, dense_layer_blocks)
    every = dense_layer_blocks * dense_mlp_layers + moe_layer_blocks * moe_layers + further
    return _mean_by_most(every, pp, max_stage_tp_blocks)


@derived()
def stage_layer_balance(layers, mtp_depths, pp, max_stage_layers):
    """Layers per stage, mean / max."""
    return _mean_by_most(layers + mtp_depths, pp, max_stage_layers)


@derived(title="Stage mean / max")
def stage_moe_balance(moe_layers, mtp_depths, pp, max_stage_moe_layers):
    """MoE layers per stage, mean / max."""
    every = moe_layers + xp.where(moe_layers > 0.0, mtp_depths, 0.0)
    return _mean_by_most(every, pp, max_stage_moe_layers)


@derived(returns="stage_moe_balance", when=UNKNOWN)
def unknown_moe_share(pp):
    """MoE layers per stage, mean / max: a dense model."""
    return 1.0 / pp


@derived()
def end_stage_fraction(pp):
    """One end stage / all stages."""
    return 1.0 / pp


@derived()
def end_pair_fraction(pp):
    """First-last stage pairs, one per pipeline / possible stage pairs."""
    return xp.where(pp > 1.0, 2.0 / pp, 1.0)


# Parameters whose gradients and weights data parallelism exchanges: of a rank, and of a layer.
#
# They are those of the stage that has most: the first with the embedding, the last with the output
# layer, or one between where the ends have fewer layers; of experts one of the last two.

LAYER = cited("zhao2023", "sections 3.2 and 4.2")


for _of in ("parameters", "low_precision_parameters"):
    for _stage, _own in (("first", "first"), ("second", "parameter"), ("last", "last")):
        of_stage(f"{_stage}_stage_{_of}", f"stage_{_of}", f"{_stage}_stage", f"{_own}_stage")


_some = [f"{at}_stage_parameters" for at in STAGES]
_largest("max_rank_dense_parameters", _some, "Dense parameters of the largest rank")
_some = [f"{at}_stage_expert_parameters" for at in (*LATER, "first")]
_largest("max_rank_expert_parameters", _some, "Routed-expert parameters of the largest rank")


# Of these, what products take in fewer bytes than activations have.


@derived()
def max_rank_low_precision_parameters(
    first_stage_parameters,
    first_stage_low_precision_parameters,
    second_stage_parameters,
    second_stage_low_precision_parameters,
    last_stage_low_precision_parameters,
    max_rank_dense_parameters,
):
    """Low-precision parameters of the largest rank."""
    second = second_stage_parameters == max_rank_dense_parameters
    later = xp.where(
        second, second_stage_low_precision_parameters, last_stage_low_precision_parameters
    )
    first = first_stage_parameters == max_rank_dense_parameters
    return xp.where(first, first_stage_low_precision_parameters, later)


@derived()
def max_rank_low_precision_expert_parameters(
    max_rank_expert_parameters, low_precision_expert_parameters, expert_rank_parameters
):
    """Low-precision routed-expert parameters: the same fraction of each expert."""
    each = low_precision_expert_parameters / xp.maximum(expert_rank_parameters, 1.0)
    return max_rank_expert_parameters * each


# Of these the trained ones, which alone have gradients: all, or adapters.

LORA = cited("hu2021", "section 4.2", when={"tuning": "lora"})
of_stage(
    "max_rank_trained_parameters",
    "trained_parameters",
    "second_stage",
    "parameter_stage",
    LORA["when"],
)


@formula(**LORA)
def mean_layer_trained_parameters(trained_parameters, weight_copies, stage_layers):
    """Adapter parameters per layer and rank, stage mean."""
    return trained_parameters / (weight_copies * xp.maximum(stage_layers, 1.0))


@derived(when=ORDERED)
def layer_stage(order_holds, parameter_stage, last_stage):
    """Index of the stage whose layers are gathered and reduced."""
    return xp.where(order_holds > 0.0, parameter_stage, last_stage)


def _of_layer(returns: str, of: str, when: Mapping[str, str] | None = None) -> None:
    """Declare what a layer has: one of the last stage, or by their order of that with most."""
    of_stage(returns, of, "last_stage", "layer_stage", when)


_of_layer("dp_layer_trained_parameters", "mean_layer_trained_parameters", LORA["when"])


# All stages together: as one stage would have it.


@derived(
    assumes=(
        "a tied table is in the first and in the last stage; what holds two stages holds both",
    )
)
def all_dense_parameters(
    pipeline_parameters,
    pp,
    tied_embeddings,
    weight_copies,
    folded_pipeline,
    mtp_depths,
    padded_vocabulary_size,
    hidden_size,
    tp,
    position_parameters,
):
    """Dense parameters on the ranks of one pipeline."""
    further = xp.where((mtp_depths > 0.0) & (weight_copies == 1.0), 1.0, 0.0)
    copies = 2.0 * (weight_copies - 1.0) + further
    more = tied_embeddings + (1.0 - tied_embeddings) * copies
    tables = more * (padded_vocabulary_size * hidden_size / tp) + further * position_parameters
    return pipeline_parameters + xp.where((pp > 1.0) & (folded_pipeline == 0.0), tables, 0.0)


@derived()
def stage_parameter_balance(all_dense_parameters, pp, max_rank_dense_parameters):
    """Dense parameters per stage, mean / max."""
    return _mean_by_most(all_dense_parameters, pp, max_rank_dense_parameters)


@derived(
    returns="trained_balance",
    when=LORA["when"],
)
def adapter_share(pipeline_trained_parameters, pp, max_rank_trained_parameters):
    """Trainable parameters per stage, mean / max: frozen weights have no gradients."""
    return _mean_by_most(pipeline_trained_parameters, pp, max_rank_trained_parameters)


@derived()
def gathered_balance(zero_stage, trained_balance, stage_parameter_balance):
    """Gathered parameters per stage, mean / max: updated ones, or all with ZeRO-3."""
    return xp.where(zero_stage < 3.0, trained_balance, stage_parameter_balance)


# One layer.


@formula(**LAYER)
def mean_layer_parameters(
    mixer_rank_parameters,
    mixer_norm_parameters,
    norm_parameters,
    stage_mlp_layers,
    mlp_rank_parameters,
    mlp_norm_parameters,
    stage_moe_layers,
    shared_rank_parameters,
    stage_layers,
):
    """Dense parameters per layer and rank, stage mean."""
    dense = stage_mlp_layers * (mlp_rank_parameters + mlp_norm_parameters)
    mlp = dense + stage_moe_layers * (shared_rank_parameters + norm_parameters)
    both = mixer_rank_parameters + mixer_norm_parameters
    return xp.asarray(both + mlp / xp.maximum(stage_layers, 1.0))


@formula(
    returns="mean_layer_parameters",
    assumes=("unknown shapes: all parameters are in layers",),
    when=UNKNOWN,
    **LAYER,
)
def even_layer_parameters(stage_parameters, weight_copies, stage_layers):
    """Parameters of a layer on one rank, where only their total is known."""
    return stage_parameters / (weight_copies * xp.maximum(stage_layers, 1.0))


_of_layer("dp_layer_parameters", "mean_layer_parameters")
_of_layer("dp_layer_low_precision_parameters", "mean_layer_low_precision_parameters")


@formula(**LAYER)
def edp_layer_low_precision_parameters(low_precision_expert_parameters, edp_layer_parameters):
    """Low-precision routed-expert parameters per layer, if any."""
    return xp.where(edp_layer_parameters > 0.0, low_precision_expert_parameters, 0.0)
