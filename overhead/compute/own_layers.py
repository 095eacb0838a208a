"""What a pipeline stage computes by its own layers, where a model says the order of their kinds.

A layer's time is that of the mean of mixers.  A stage that has more attention than the mean of
layers takes longer by what attention layers compute beyond this mean: their own time is known, that
of layers with linear attention is what these leave of the whole model's.  So the stages' times add
up to the model's, and with one stage nothing changes.

Of the stages between the ends the slowest stands for all (`overhead.compute.stage`); what the
others take less shortens the pipeline's filling and draining (`shorter_stages_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from overhead.arrays import xp
from overhead.formula import Further, declare, formula
from overhead.labels import FOLDED
from overhead.model.order import ORDERED, SOURCE, beyond_linear, heaviest, mixture_weights

# What a layer computes of which mixers differ, and the same of a layer with attention.  What is
# exposed, and what the host adds, stays that of the mean.
PARTS = {
    "matmul": ("dense_layer_matmul_time", "attention_layer_matmul_time"),
    "elementwise": ("dense_layer_elementwise_time", "attention_layer_elementwise_time"),
    "attention": ("attention_time", "attention_layer_attention_time"),
    "recompute": ("dense_layer_recompute_time", "attention_layer_recompute_time"),
    "weight_gradient": ("dense_layer_weight_gradient_time", "attention_layer_weight_gradient_time"),
}
FORWARD_PARTS = {
    "matmul": ("dense_layer_matmul_forward_time", "attention_layer_matmul_forward_time"),
    "elementwise": (
        "dense_layer_elementwise_forward_time",
        "attention_layer_elementwise_forward_time",
    ),
    "attention": ("attention_forward_time", "attention_layer_attention_forward_time"),
}
FOLDS = {**ORDERED, "schedule": "|".join(FOLDED)}
SAME = "exposed communication and launch-bound time of the mean of mixers"
# As many layers are recomputed as there are with the model's own mixers.
ATTENDING = {
    "linear_attention_fraction": "no_layers",
    "recomputed_fraction": "recomputed_fraction",
}


def _beyond(*times):
    return sum(exact_time - mean for mean, exact_time in zip(times[::2], times[1::2], strict=True))


def _beyond_in_both(has_backward, mean_recomputed, own_recomputed, *times):
    return _beyond(*times) + has_backward * (own_recomputed - mean_recomputed)


_taken = [time for part in FORWARD_PARTS.values() for time in part]
declare("attention_beyond_forward_time", _taken, _beyond, assumes=(SAME,))
_taken = ["has_backward", *PARTS["recompute"]]
_taken += [time for name in FORWARD_PARTS for time in PARTS[name]]
declare("attention_beyond_time", _taken, _beyond_in_both, assumes=(SAME,))


@formula(when=ORDERED, **SOURCE)
def stage_moe_excess(
    order_holds, ordered_moe_layers, ordered_layers, separate_moe_layers, pipeline_layers
):
    """MoE layers of the stage beyond the mean of layers."""
    mean = ordered_layers * separate_moe_layers / xp.maximum(pipeline_layers, 1.0)
    return order_holds * (ordered_moe_layers - mean)


@formula(when=ORDERED, **SOURCE)
def stage_attention_excess(
    order_holds,
    ordered_attention_layers,
    ordered_layers,
    stage_moe_excess,
    pipeline_layers,
    layers,
    linear_layers,
):
    """Attention layers of the stage beyond its mixers' mean / fraction of linear attention."""
    others = layers - linear_layers
    mean = ordered_layers * others / xp.maximum(pipeline_layers, 1.0)
    excess = order_holds * (ordered_attention_layers - mean)
    fewer = stage_moe_excess * others / xp.maximum(layers, 1.0)
    return beyond_linear(excess + fewer, layers, linear_layers)


def declare_own(
    returns: str,
    inputs: Sequence[str],
    kernel: Callable[..., Any],
    beyond: Sequence[str],
    **further: Unpack[Further],
) -> None:
    """Declare a sum over the middle stage's layers; by their order with its own mixers.

    `beyond` are the mean's time and an attention layer's, or what this has beyond the mean; where
    the first input is a number of passes, each has it.
    """
    declare(returns, inputs, kernel, **further)
    excess = "middle_attention_excess"
    each = inputs[0] in ("num_micro_batches", "backward_passes")
    names = tuple(dict.fromkeys((*inputs, *beyond, excess)))

    def ordered(*values):
        known = dict(zip(names, values, strict=True))
        *mean, more = (known[name] for name in beyond)
        more = known[excess] * (more - mean[0] if mean else more)
        whole = kernel(*(known[name] for name in inputs))
        return xp.maximum(whole + (known[inputs[0]] * more if each else more), 0.0)

    further["when"] = {**(further.get("when") or {}), **ORDERED}
    declare(returns, names, ordered, **further)


# The slowest middle stage.


def _weights(dense, moe, beyond, layers, linear_layers):
    return mixture_weights(dense, moe - dense, 0.0, beyond, layers, linear_layers)


heaviest(
    "slowest_stage",
    "middle_stage",
    _weights,
    ("dense_layer_time", "moe_layer_time", "attention_beyond_time", "layers", "linear_layers"),
    "The slowest middle stage",
)


@formula(returns="middle_stage", when=FOLDS, **SOURCE)
def turned_middle_stage(order_holds, pp):
    """Index of a stage without ends: the last, if chunks turn and the order of layers is known."""
    return xp.where(order_holds > 0.0, pp - 1.0, xp.maximum(pp - 2.0, 0.0))


# Stages between the ends differ in their own layers alone.
SLOWEST = {"stage": "middle_stage"} | {
    f"ordered_{kind}": f"slowest_{kind}" for kind in ("layers", "attention_layers", "moe_layers")
}


@formula(when=ORDERED, **SOURCE)
def shorter_stages_time(
    pp,
    first_moe_excess,
    middle_moe_excess,
    last_moe_excess,
    moe_layer_time,
    dense_layer_time,
    first_attention_excess,
    middle_attention_excess,
    last_attention_excess,
    attention_beyond_time,
):
    """Time by which middle stages are shorter than the slowest, in total."""
    # What all stages have beyond the mean is nothing: those between lack what the ends have.
    mixtures = (pp - 2.0) * middle_moe_excess + (first_moe_excess + last_moe_excess)
    attention = (pp - 2.0) * middle_attention_excess
    attention = attention + (first_attention_excess + last_attention_excess)
    time = mixtures * (moe_layer_time - 2.0 * dense_layer_time)
    return xp.maximum(time + attention * attention_beyond_time, 0.0)
