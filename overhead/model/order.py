"""Which layers stand in a stage: those of a model that says the order of their kinds.

Where it doesn't, or where its counts are others, every stage has of each kind its part.  Layer
slots that stay empty count as the mean of layers, as every stage counts as the largest.  What a
stage keeps, computes and communicates is by its own layers (label ``order = followed``; with
``spread`` by evenly spread ones).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from overhead.arrays import xp
from overhead.formula import call, cited, declare, formula
from overhead.quantity import VOCABULARY
from overhead.special import (
    ATTENDING,
    LAYERS_A_NUMBER,
    MIXED,
    heaviest_stage,
    layers_of_kind,
)

# The kinds, as digits of the numbers that say their order.
ANY, LINEAR, ATTENTION, MIXTURE = 0.0, 1.0, ATTENDING, MIXED
NUMBERS = tuple(name for name in VOCABULARY.tables["features"] if name.startswith("layer_order_"))
KINDS = (LINEAR, ATTENTION, MIXTURE)
LETTERS = {"L": LINEAR, "M": LINEAR, "*": ATTENTION, "E": MIXTURE}
MOST = LAYERS_A_NUMBER * len(NUMBERS)
ORDERED = {"order": "followed", "shapes": "known"}
Kernel = Callable[..., Any]
SOURCE = cited("megatron", "megatron/core/ssm/mamba_hybrid_layer_allocation.py")


def numbers_of(pattern: str) -> dict[str, float]:
    """Return the numbers that say the order of at most `MOST` layers, a letter each."""
    digits = [LETTERS[letter] for letter in pattern]
    parts = [digits[k : k + LAYERS_A_NUMBER] for k in range(0, MOST, LAYERS_A_NUMBER)]
    sums = [sum((4.0**index * digit for index, digit in enumerate(part)), 0.0) for part in parts]
    return dict(zip(NUMBERS, sums, strict=True))


def pattern_of(given: Mapping[str, float]) -> str:
    """Return the order that a model's numbers say, a letter each; Mamba-2's is M."""
    letters = ("", "M" if given.get("mamba") else "L", "*", "E")
    numbers = (int(given.get(name, 0.0)) for name in NUMBERS)
    return "".join(
        letters[number // 4**k % 4] for number in numbers for k in range(LAYERS_A_NUMBER)
    )


def of_stage(
    returns: str, of: str, stage: str, ordered: str = "", when: Mapping[str, str] | None = None
) -> None:
    """Declare a quantity as another one at a stage: by its own layers, if their order is known.

    With an order it is of the stage `ordered`, if that is another one.
    """
    stage_name, labels = ordered or stage, dict(when or {})
    call(returns=returns, of=of, bind={"stage": stage}, when=labels)
    bind = {"stage": stage_name, "linear_attention_fraction": f"{stage_name}_linear_fraction"}
    call(returns=returns, of=of, bind=bind, when=labels | ORDERED)


# Where the chunks of a stage begin and end, and the kinds of the layers that are cut into them.
CUT = (
    "pp",
    "virtual_pipeline_size",
    "pipeline_layers",
    "embedding_layer_weight",
    "head_layer_weight",
    *NUMBERS,
)


def _all_layers(kind, *numbers):
    return layers_of_kind(kind, 0.0, 0.0, 1.0, 1.0, 0.0, *numbers)


def _agrees(layers, linear_layers, separate_moe_layers, *numbers):
    counts = (linear_layers, layers - linear_layers, separate_moe_layers)
    counted = (_all_layers(kind, *numbers) for kind in KINDS)
    linear, attention, mixtures = (
        total == count for total, count in zip(counted, counts, strict=True)
    )
    return xp.where(linear & attention & mixtures, 1.0, 0.0)


declare(
    "order_holds", ("layers", "linear_layers", "separate_moe_layers", *NUMBERS), _agrees, **SOURCE
)


def _chunk(pp, virtual_pipeline_size, pipeline_layers, first, last):
    return xp.ceil((pipeline_layers + first + last) / (pp * virtual_pipeline_size))


def _held(kind: float) -> Kernel:
    """Return what counts the layers of a kind in a stage; of two stages in one rank the mean."""

    def kernel(stage, copies, folded, pp, virtual_pipeline_size, layers, first, last, *numbers):
        chunk = _chunk(pp, virtual_pipeline_size, layers, first, last)
        copied = xp.where(copies > 1.0, 1.0, 0.0)
        # A folded pipeline has a chunk on the way down and one on the way up in each stage.
        both, period = xp.where(folded > 0.0, 1.0, copied), pp * (1.0 + folded)
        held = layers_of_kind(kind, stage, both, period, chunk, first, *numbers)
        return held / xp.where(folded > 0.0, 1.0, 1.0 + copied)

    return kernel


for _kind, _returns in (
    (ANY, "ordered_layers"),
    (ATTENTION, "ordered_attention_layers"),
    (MIXTURE, "ordered_moe_layers"),
):
    declare(_returns, ("stage", "weight_copies", "folded_pipeline", *CUT), _held(_kind), **SOURCE)


# What stands in a stage: as of kinds evenly spread, and what the order gives it beyond that.


def _stage_layers(
    spread, order_holds, ordered_layers, ordered_moe_layers, separate_moe_layers, pipeline_layers
):
    share = separate_moe_layers / xp.maximum(pipeline_layers, 1.0)
    beyond = order_holds * (ordered_layers * share - ordered_moe_layers)
    return xp.maximum(spread + beyond, 0.0)


declare(
    "stage_layers",
    (
        "spread_layers",
        "order_holds",
        "ordered_layers",
        "ordered_moe_layers",
        "separate_moe_layers",
        "pipeline_layers",
    ),
    _stage_layers,
    "Mixers of the stage by their order",
    name="ordered_stage_layers",
    when=ORDERED,
    **SOURCE,
)


@formula(
    returns="stage_moe_layers",
    assumes=("MTP layers each have one; empty layer slots count as the mean",),
    when=ORDERED,
    **SOURCE,
)
def ordered_stage_moe_layers(
    spread_moe_layers,
    order_holds,
    separate_moe_layers,
    ordered_moe_layers,
    ordered_layers,
    pipeline_layers,
    spread_layers,
    stage_added_layers,
    layers,
):
    """MoE layers of the stage by their order."""
    each, whole = xp.maximum(layers, 1.0), xp.maximum(pipeline_layers, 1.0)
    mean = (spread_layers - stage_added_layers) * separate_moe_layers / each
    beyond = ordered_moe_layers - ordered_layers * separate_moe_layers / whole
    known = (order_holds > 0.0) & (separate_moe_layers > 0.0)
    mixtures = xp.maximum(mean + beyond + stage_added_layers, 0.0)
    return xp.where(known, mixtures, spread_moe_layers)


@formula(returns="stage_lone_moe_layers", when=ORDERED, **SOURCE)
def ordered_lone_moe_layers(order_holds, stage_moe_layers, stage_layers):
    """MoE layers of the stage beyond its mixers: theirs are in the stage before."""
    return order_holds * xp.maximum(stage_moe_layers - stage_layers, 0.0)


@formula(returns="stage_linear_fraction", when=ORDERED, **SOURCE)
def ordered_linear_fraction(
    order_holds,
    layers,
    linear_layers,
    pipeline_layers,
    ordered_layers,
    ordered_attention_layers,
    spread_layers,
    stage_layers,
):
    """Fraction of linear-attention layers in the stage by their order."""
    others, whole = layers - linear_layers, xp.maximum(pipeline_layers, 1.0)
    beyond = ordered_attention_layers - ordered_layers * others / whole
    attention = spread_layers * others / xp.maximum(layers, 1.0) + beyond
    fraction = xp.maximum(stage_layers - attention, 0.0) / xp.maximum(stage_layers, 1.0)
    known = (order_holds > 0.0) & (stage_layers >= 1.0) & (ordered_layers < pipeline_layers)
    return xp.minimum(xp.where(known, fraction, linear_layers / xp.maximum(layers, 1.0)), 1.0)


@formula(when=ORDERED, **SOURCE)
def stage_spare_mixers(order_holds, stage_layers, stage_moe_layers):
    """Mixers of the stage less its MoE layers: below 0 where some of theirs are a stage before."""
    spare = stage_layers - stage_moe_layers
    return xp.where(order_holds > 0.0, spare, xp.maximum(spare, 0.0))


# The stages between the ends whose own layers weigh most: by their number, time or parameters.
#
# Weights are what a layer has beyond one with linear attention.


def heaviest(
    returns: str,
    otherwise: str,
    weights: Callable[..., tuple[Any, Any]],
    taken: tuple[str, ...],
    title: str,
) -> None:
    """Declare a stage by the weights of an attention layer and of a mixture; or another one.

    So it is where all stages between the ends are alike; the weights follow from what is `taken`.
    """

    def kernel(other, order_holds, copies, folded, pp, chunks, layers, first, last, *more):
        numbers, weight_values = more[: len(NUMBERS)], more[len(NUMBERS) :]
        chunk = _chunk(pp, chunks, layers, first, last)
        copied = xp.where(copies > 1.0, 1.0, 0.0)
        cut = (pp, folded, copied, chunk, first, *numbers)
        stage = heaviest_stage(*weights(*weight_values), *cut)
        return xp.where((order_holds > 0.0) & (pp > 2.0 - folded), stage, other)

    inputs = (otherwise, "order_holds", "weight_copies", "folded_pipeline", *CUT, *taken)
    declare(returns, inputs, kernel, title, name=f"ordered_{returns}", when=ORDERED, **SOURCE)


heaviest(
    "mixer_stage",
    "second_stage",
    lambda: (0.0, -1.0),
    (),
    "First middle stage with the most mixers",
)
heaviest(
    "tp_block_stage",
    "second_stage",
    lambda dense, moe: (0.0, moe - 2.0 * dense),
    ("dense_layer_blocks", "moe_layer_blocks"),
    "First middle stage with the most TP blocks",
)


def beyond_linear(beyond, layers, linear_layers):
    """Return what attention has beyond linear attention, from what it has beyond their mean."""
    return beyond * layers / xp.maximum(linear_layers, 1.0)


def mixture_weights(dense, mixture, mlp, beyond, layers, linear_layers):
    """Return the weights of an attention layer, and of a mixture in place of a mean mixer.

    `dense` is what a dense layer has, `mixture` what a mixture adds to a mixer, `mlp` what a dense
    layer has beyond its mixer, `beyond` what attention has beyond the mean of mixers.
    """
    more = beyond_linear(beyond, layers, linear_layers)
    others = (layers - linear_layers) / xp.maximum(layers, 1.0)
    return more, mixture - dense - mlp + others * more


def _parameter_weights(mixer, attention, norm, shared, mlp, mlp_norm, layers, linear_layers):
    feedforward = mlp + mlp_norm
    taken = (
        mixer + feedforward,
        shared + norm,
        feedforward,
        attention - mixer,
        layers,
        linear_layers,
    )
    return mixture_weights(*taken)


heaviest(
    "parameter_stage",
    "second_stage",
    _parameter_weights,
    (
        "mixer_rank_parameters",
        "attention_rank_parameters",
        "norm_parameters",
        "shared_rank_parameters",
        "mlp_rank_parameters",
        "mlp_norm_parameters",
        "layers",
        "linear_layers",
    ),
    "First middle stage with the most dense parameters",
)
heaviest(
    "mixture_stage",
    "second_stage",
    lambda: (0.0, 1.0),
    (),
    "First middle stage with the most separate MoE layers",
)


@formula(returns="expert_stage", when=ORDERED, **SOURCE)
def ordered_expert_stage(order_holds, separate_moe_layers, mixture_stage, spread_expert_stage):
    """First middle stage with the most MoE layers."""
    known = (order_holds > 0.0) & (separate_moe_layers > 0.0)
    return xp.where(known, mixture_stage, spread_expert_stage)
