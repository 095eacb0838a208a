"""Folded pipelines: ZB-V, V-half, V-min and DualPipeV, whose ranks have two chunks each.

The model's chunks go down the ranks and up again, so that the first rank has the first and the
last.  Each form is compared with an event simulation of its order (tests/simulator/pipeline.py).
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, derived, formula
from overhead.labels import FOLDED, PAIRED
from overhead.quantity import Array
from overhead.schedule import AT_LEAST_H2, AT_LEAST_PP, EVEN, STEADY, UNEVEN
from overhead.schedule import PATTERN as V_PATTERN

ALL: dict[str, Any] = {"when": {"schedule": "|".join(FOLDED)}}
KNOWN: dict[str, Any] = {"when": {**ALL["when"], "shapes": "known"}}
ZB_V = {"schedule": FOLDED[0]}
V_HALF = {"schedule": FOLDED[1]}
V_MIN = {"schedule": FOLDED[2]}
SPLIT = cited("qi2023", "section 6; the form by simulation")
PATTERN = cited("qi2024", V_PATTERN)
STEADY_ENDS = (EVEN, STEADY, AT_LEAST_PP)
BOUND = "an upper bound if dgrad is shorter than the forward pass, or wgrad longer"
SHORT = "a transfer takes no longer than half of a chunk's forward"


# Bubbles.


@formula(returns="balanced_bubble_time", assumes=(EVEN, AT_LEAST_H2, BOUND), when=ZB_V, **SPLIT)
def zero_bubble_v_bubble_time(pp, stage_forward_time, stage_backward_time, stage_weight_time):
    """Bubble of ZB-V if all devices wait for the last: that of the first chunk's way down."""
    inputs = stage_backward_time - stage_weight_time
    longer = xp.maximum(stage_forward_time, inputs)
    ends = (pp - 1.0) * xp.maximum(longer, 2.0 * (longer - stage_weight_time))
    other = xp.maximum(stage_forward_time - inputs, stage_weight_time - longer)
    return (ends + xp.maximum(pp - 2.0, 0.0) * xp.maximum(other, 0.0)) / 2.0


def _half_excess(forward: Array, inputs: Array, weights: Array, transfer: Array | float) -> Array:
    """Return what V-half's steady order waits in each micro-batch."""
    around = 2.0 * xp.maximum(forward, inputs) + weights / 2.0 + 2.0 * transfer
    return xp.maximum(around - (forward + inputs + weights), 0.0)


@formula(returns="balanced_bubble_time", assumes=STEADY_ENDS, when=V_HALF, **PATTERN)
def v_half_bubble_time(
    pp, stage_forward_time, stage_backward_time, stage_weight_time, num_micro_batches
):
    """Bubble of V-half, whose ranks hold half of the activations of 1F1B's first."""
    inputs = stage_backward_time - stage_weight_time
    later = xp.maximum(inputs - stage_forward_time, 0.0)
    both = stage_forward_time + inputs
    each = 2.0 * both + later - stage_weight_time / 2.0
    odd = stage_forward_time + xp.minimum(stage_forward_time, inputs) - stage_weight_time / 2.0
    ends = pp * each - (both + 2.0 * later) - (pp % 2.0) * odd
    # No less than the first chunk's way down.
    ends = xp.maximum(ends, (pp - 1.0) * stage_forward_time)
    waits = _half_excess(stage_forward_time, inputs, stage_weight_time, 0.0)
    return xp.where(pp > 1.0, ends / 2.0 + (num_micro_batches - 1.0) * waits, 0.0)


def _min_excess(forward: Array, inputs: Array, weights: Array, transfer: Array | float) -> Array:
    """Return what V-min's steady order waits in each micro-batch: all move in step."""
    around = 3.0 * xp.maximum(forward, inputs) + 6.0 * transfer
    return xp.maximum(around - (forward + inputs + weights), 0.0)


@formula(returns="balanced_bubble_time", assumes=STEADY_ENDS, when=V_MIN, **PATTERN)
def v_min_bubble_time(
    pp, stage_forward_time, stage_backward_time, stage_weight_time, num_micro_batches
):
    """V-min bubble: unequal passes cost time in every micro-batch.

    Of two stages, up to a fifth of the pipeline's time above the simulated one.
    """
    inputs = stage_backward_time - stage_weight_time
    both = stage_forward_time + inputs
    # Where waves down and up would meet in one rank, the pattern has a gap.
    gap = xp.where(pp % 3.0 == 0.0, xp.minimum(stage_forward_time, inputs), 0.0)
    ends = (pp - 1.0) * both - stage_weight_time / 2.0 + gap
    ends = xp.maximum(ends, (pp - 1.0) * stage_forward_time / 2.0)
    waits = _min_excess(stage_forward_time, inputs, stage_weight_time, 0.0)
    return xp.where(pp > 1.0, ends + (num_micro_batches - 1.0) * waits, 0.0)


# What transfers add: micro-batches cross all boundaries twice in each direction.


@formula(returns="exposed_pp_time", assumes=(EVEN, AT_LEAST_H2, SHORT), when=ZB_V, **SPLIT)
def zero_bubble_v_p2p_time(p2p_time, pp):
    """Exposed PP communication, ZB-V: overlapped with compute in steady state."""
    return p2p_time * xp.where(pp > 1.0, 5.0 * pp - 7.0, 0.0)


@formula(returns="exposed_pp_time", assumes=(*STEADY_ENDS, SHORT), when=V_HALF, **PATTERN)
def v_half_p2p_time(
    p2p_time, pp, num_micro_batches, stage_forward_time, stage_backward_time, stage_weight_time
):
    """Exposed PP communication, V-half: first and last stages, and steady state."""
    parts = (stage_forward_time, stage_backward_time - stage_weight_time, stage_weight_time)
    later = _half_excess(*parts, p2p_time) - _half_excess(*parts, 0.0)
    ends = p2p_time * (5.0 * pp - 4.0 - pp % 2.0)
    return xp.where(pp > 1.0, ends + (num_micro_batches - 1.0) * later, 0.0)


@formula(returns="exposed_pp_time", assumes=(*STEADY_ENDS, SHORT), when=V_MIN, **PATTERN)
def v_min_p2p_time(
    p2p_time, pp, num_micro_batches, stage_forward_time, stage_backward_time, stage_weight_time
):
    """Exposed PP communication, V-min: at most, with all ranks in lockstep."""
    parts = (stage_forward_time, stage_backward_time - stage_weight_time, stage_weight_time)
    crossing = (pp - 1.0) / xp.maximum(pp, 1.0) * p2p_time
    later = _min_excess(*parts, crossing) - _min_excess(*parts, 0.0)
    return (num_micro_batches - 1.0) * later + 4.0 * p2p_time * (pp - 1.0)


# What both ends of the model add, which are in one rank.

FIRST = "extra work of the first rank delays every micro-batch"


@derived(
    returns="uneven_time",
    assumes=(FIRST,),
    when={"schedule": "|".join((FOLDED[0], FOLDED[1], PAIRED[1])), **UNEVEN},
)
def folded_imbalance_time(num_micro_batches, first_stage_extra_time, last_stage_extra_time):
    """Pipeline time of uneven first and last stages, folded pipeline."""
    return num_micro_batches * xp.maximum(first_stage_extra_time + last_stage_extra_time, 0.0)


@derived(
    returns="uneven_time",
    assumes=(FIRST, "transfers of other ranks arrive concurrently"),
    when={**V_MIN, **UNEVEN},
)
def v_min_imbalance_time(
    num_micro_batches, first_stage_extra_time, last_stage_extra_time, exposed_pp_time
):
    """Pipeline time of uneven first and last stages, V-min."""
    extra = num_micro_batches * xp.maximum(first_stage_extra_time + last_stage_extra_time, 0.0)
    return xp.maximum(extra - exposed_pp_time, 0.0)


# What lies where: the first rank has both ends of the model, so that its last stage is the first.

BOTH_ENDS = "the first rank holds the embedding and the output layer"


@derived(returns="stage_leading_layers", assumes=(BOTH_ENDS,), **KNOWN)
def folded_leading_layers(
    dense_layers,
    pipeline_layers,
    pp,
    virtual_pipeline_size,
    embedding_layer_weight,
    head_layer_weight,
    stage,
):
    """Leading dense layers of an MoE model in the two chunks of the stage."""
    slots = pipeline_layers + embedding_layer_weight + head_layer_weight
    chunk = xp.ceil(slots / (pp * virtual_pipeline_size))
    leading = dense_layers + embedding_layer_weight
    down = xp.clip(leading - stage * chunk, 0.0, chunk)
    up = xp.clip(leading - (2.0 * pp - 1.0 - stage) * chunk, 0.0, chunk)
    return xp.maximum(down + up - xp.where(stage == 0.0, embedding_layer_weight, 0.0), 0.0)
