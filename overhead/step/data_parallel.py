"""Which part of data parallelism's communication nothing hides, over a whole step.

Up to stage 2 of ZeRO, gradients are reduced while the backward that gives them runs on, and updated
weights are gathered while the next forward runs.  From stage 3 on both go layer by layer, each
layer's weights while the one before it computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute.declare import declare
from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities

__all__ = [
    "dp_forward_window_time",
    "dp_window_time",
    "exposed_dp_gather_time",
    "exposed_dp_layer_time",
    "exposed_dp_reduce_time",
    "exposed_dp_time",
    "interleaved_dp_forward_window_time",
    "interleaved_dp_window_time",
    "layer_compute_backward_time",
    "layer_compute_forward_time",
    "quantities",
]

MEGATRON: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/distributed: overlap_grad_reduce, overlap_param_gather",
}
FSDP: dict[str, Any] = {"source": "zhao2023", "where": "section 3.3"}
INTERLEAVED = {"schedule": "interleaved"}
CHUNKS = "where(virtual_stages > 1, minimum(micro_batches, pp), 1)"
EARLY = ("the first chunks' gradients are done while others' backwards run",)
LAST = "the last layer's gradients are reduced when nothing is left to hide them"


# Up to stage 2.


@formula(
    returns="dp_window_time",
    expression="maximum(gradient_reductions, 1)*stage_backward_time",
    assumes=("gradients are done in the last micro-batch's backward, or reduced in each one's",),
    **MEGATRON,
)
def dp_window_time(gradient_reductions: Array, stage_backward_time: Array) -> Array:
    """Backwards behind which gradients can be reduced: the last, or each."""
    return np.maximum(gradient_reductions, 1.0) * stage_backward_time


@formula(
    returns="dp_window_time",
    expression=f"maximum(gradient_reductions, {CHUNKS})*stage_backward_time",
    assumes=EARLY,
    when=INTERLEAVED,
    **MEGATRON,
)
def interleaved_dp_window_time(
    gradient_reductions: Array,
    virtual_stages: Array,
    micro_batches: Array,
    pp: Array,
    stage_backward_time: Array,
) -> Array:
    """Backwards behind which gradients can be reduced where stages are interleaved."""
    count = np.where(virtual_stages > 1.0, np.minimum(micro_batches, pp), 1.0)
    return np.maximum(gradient_reductions, count) * stage_backward_time


@formula(returns="dp_forward_window_time", expression="1*stage_forward_time", **MEGATRON)
def dp_forward_window_time(stage_forward_time: Array) -> Array:
    """Forwards behind which weights can be gathered: the first."""
    return 1.0 * stage_forward_time


@formula(
    returns="dp_forward_window_time",
    expression=f"{CHUNKS}*stage_forward_time",
    assumes=("the last chunks' weights are needed while others' forwards run",),
    when=INTERLEAVED,
    **MEGATRON,
)
def interleaved_dp_forward_window_time(
    virtual_stages: Array, micro_batches: Array, pp: Array, stage_forward_time: Array
) -> Array:
    """Forwards behind which weights can be gathered where stages are interleaved."""
    count = np.where(virtual_stages > 1.0, np.minimum(micro_batches, pp), 1.0)
    return np.asarray(count * stage_forward_time)


def _windowed(time: Array, overlap: Array, window: Array, layers: Array) -> Array:
    hidden = np.maximum((1.0 - overlap) * time, time - overlap * window)
    return np.maximum(hidden, time / np.maximum(layers, 1.0))


def _text(time: str, window: str) -> str:
    hidden = f"maximum((1 - dp_overlap)*{time}, {time} - dp_overlap*{window})"
    return f"maximum({hidden}, {time}/maximum(middle_layers, 1))"


@formula(
    returns="exposed_dp_reduce_time",
    expression=_text("dp_reduce_time", "dp_window_time"),
    assumes=("a share of it and of the backward hide one another", LAST),
    **MEGATRON,
)
def exposed_dp_reduce_time(
    dp_reduce_time: Array, dp_overlap: Array, dp_window_time: Array, middle_layers: Array
) -> Array:
    """Reduction of gradients that nothing hides, up to stage 2 of ZeRO."""
    return _windowed(dp_reduce_time, dp_overlap, dp_window_time, middle_layers)


@formula(
    returns="exposed_dp_gather_time",
    expression=_text("dp_gather_time", "dp_forward_window_time"),
    assumes=(
        "a share of it and of the forward hide one another",
        "the first layer's weights are gathered before there is anything to hide them",
    ),
    **MEGATRON,
)
def exposed_dp_gather_time(
    dp_gather_time: Array, dp_overlap: Array, dp_forward_window_time: Array, middle_layers: Array
) -> Array:
    """Gathering of updated weights that nothing hides, up to stage 2 of ZeRO."""
    return _windowed(dp_gather_time, dp_overlap, dp_forward_window_time, middle_layers)


# Stage 3.


@formula(
    returns="layer_compute_forward_time",
    expression="stage_forward_time/maximum(middle_layers, 1)",
    source="derivation",
)
def layer_compute_forward_time(stage_forward_time: Array, middle_layers: Array) -> Array:
    """Mean time of a layer's forward in a stage."""
    return stage_forward_time / np.maximum(middle_layers, 1.0)


@formula(
    returns="layer_compute_backward_time",
    expression="stage_backward_time/maximum(middle_layers, 1)",
    source="derivation",
)
def layer_compute_backward_time(stage_backward_time: Array, middle_layers: Array) -> Array:
    """Mean time of a layer's backward in a stage."""
    return stage_backward_time / np.maximum(middle_layers, 1.0)


def _mean(dense: Array, experts: Array, layers: Array, expert: Array) -> Array:
    return dense + experts / np.maximum(layers, 1.0) * expert


for _way, _what in (("gather", "gathering of weights"), ("reduce", "reduction of gradients")):
    _times = (f"dp_layer_{_way}_time", f"edp_layer_{_way}_time")
    declare(
        f"layer_{_way}_time",
        (_times[0], "middle_moe_layers", "middle_layers", _times[1]),
        f"{_times[0]} + middle_moe_layers/maximum(middle_layers, 1)*{_times[1]}",
        _mean,
        **FSDP,
    )


def _outside(whole: Array, rounds: Array, layers: Array, layer: Array) -> Array:
    return np.maximum(whole / np.maximum(rounds, 1.0) - layers * layer, 0.0)


def _gathered_outside(
    whole: Array, forwards: Array, backwards: Array, layers: Array, layer: Array
) -> Array:
    return _outside(whole, forwards + backwards, layers, layer)


declare(
    "ends_gather_time",
    ("dp_gather_time", "forward_gathers", "backward_gathers", "middle_layers", "layer_gather_time"),
    "maximum(dp_gather_time/maximum(forward_gathers + backward_gathers, 1)"
    " - middle_layers*layer_gather_time, 0)",
    _gathered_outside,
    **FSDP,
)
declare(
    "ends_reduce_time",
    ("dp_reduce_time", "gradient_reductions", "middle_layers", "layer_reduce_time"),
    "maximum(dp_reduce_time/maximum(gradient_reductions, 1) - middle_layers*layer_reduce_time, 0)",
    _outside,
    **FSDP,
)


@formula(
    returns="exposed_dp_ends_time",
    expression="(forward_gathers*ends_gather_time + gradient_reductions*ends_reduce_time)"
    "/where(pp > 1, 1, 2 - tied_embeddings)",
    assumes=(
        "the embedding is gathered before all else and its gradients are reduced after it",
        "an output layer of its own hides",
    ),
    **FSDP,
)
def exposed_dp_ends_time(
    forward_gathers: Array,
    ends_gather_time: Array,
    gradient_reductions: Array,
    ends_reduce_time: Array,
    pp: Array,
    tied_embeddings: Array,
) -> Array:
    """Gathering and reduction outside of layers that nothing can hide: the embedding's."""
    both = forward_gathers * ends_gather_time + gradient_reductions * ends_reduce_time
    return both / np.where(pp > 1.0, 1.0, 2.0 - tied_embeddings)


# One layer's weights (G) and gradients (R); a forward (F) and a backward (B) of computing.
G, R = "layer_gather_time", "layer_reduce_time"
F, B = "layer_compute_forward_time", "layer_compute_backward_time"
BETWEEN = "maximum(middle_layers - 1, 0)"
INNER = "maximum(middle_layers - 2, 0)"
BOTH = "minimum(backward_gathers, gradient_reductions)"
CHAIN = (
    f"(exposed_dp_ends_time + forward_gathers*({G} + {BETWEEN}*maximum({G} - {F}, 0))"
    f" + gradient_reductions*{R} + {BOTH}*({INNER}*maximum({G} + {R} - {B}, 0)"
    f" + ({BETWEEN} - {INNER})*(maximum({G} - {B}, 0) + maximum({R} - {B}, 0)))"
    f" + {BETWEEN}*(maximum(backward_gathers - gradient_reductions, 0)*maximum({G} - {B}, 0)"
    f" + maximum(gradient_reductions - backward_gathers, 0)*maximum({R} - {B}, 0)))"
)
UNHIDDEN = f"maximum((1 - dp_overlap)*sent_dp_layer_time, {CHAIN})"


@formula(
    returns="sent_dp_layer_time",
    expression=f"(forward_gathers + backward_gathers)*ends_gather_time"
    f" + gradient_reductions*ends_reduce_time + forward_gathers*({G} + {BETWEEN}*{G})"
    f" + gradient_reductions*({R} + {BETWEEN}*{R}) + {BETWEEN}*(backward_gathers*{G})",
    assumes=("a backward keeps its first layer's weights",),
    **FSDP,
)
def sent_dp_layer_time(
    forward_gathers: Array,
    backward_gathers: Array,
    ends_gather_time: Array,
    gradient_reductions: Array,
    ends_reduce_time: Array,
    layer_gather_time: Array,
    middle_layers: Array,
    layer_reduce_time: Array,
) -> Array:
    """Gathering and reduction of stage 3 of ZeRO, hidden or not."""
    gather, reduce = layer_gather_time, layer_reduce_time
    between = np.maximum(middle_layers - 1.0, 0.0)
    ends = (forward_gathers + backward_gathers) * ends_gather_time
    ends = ends + gradient_reductions * ends_reduce_time
    forward = forward_gathers * (gather + between * gather)
    backward = gradient_reductions * (reduce + between * reduce)
    return ends + forward + backward + between * (backward_gathers * gather)


@formula(
    returns="exposed_dp_layer_time",
    expression=f"{UNHIDDEN} + overlap_contention*maximum(sent_dp_layer_time - {UNHIDDEN}, 0)",
    assumes=(
        "one layer is fetched ahead",
        "each pass's first gathering and its last reduction hide behind nothing, and a backward's "
        "first layer has no reduction to hide, its last one no gathering",
        "what hides slows down what it hides behind by a share of its own time",
    ),
    **FSDP,
)
def exposed_dp_layer_time(
    sent_dp_layer_time: Array,
    dp_overlap: Array,
    exposed_dp_ends_time: Array,
    forward_gathers: Array,
    layer_gather_time: Array,
    middle_layers: Array,
    layer_compute_forward_time: Array,
    gradient_reductions: Array,
    layer_reduce_time: Array,
    backward_gathers: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """Gathering and reduction layer by layer that nothing hides."""
    gather, reduce = layer_gather_time, layer_reduce_time
    forward, backward = layer_compute_forward_time, layer_compute_backward_time
    between = np.maximum(middle_layers - 1.0, 0.0)
    first = forward_gathers * (gather + between * np.maximum(gather - forward, 0.0))
    chain = exposed_dp_ends_time + first + gradient_reductions * reduce
    late_gather = np.maximum(gather - backward, 0.0)
    late_reduce = np.maximum(reduce - backward, 0.0)
    inner = np.maximum(middle_layers - 2.0, 0.0)
    late = inner * np.maximum(gather + reduce - backward, 0.0)
    late = late + (between - inner) * (late_gather + late_reduce)
    chain = chain + np.minimum(backward_gathers, gradient_reductions) * late
    gathers = np.maximum(backward_gathers - gradient_reductions, 0.0)
    reductions = np.maximum(gradient_reductions - backward_gathers, 0.0)
    chain = chain + between * (gathers * late_gather + reductions * late_reduce)
    unhidden = np.maximum((1.0 - dp_overlap) * sent_dp_layer_time, chain)
    return unhidden + overlap_contention * np.maximum(sent_dp_layer_time - unhidden, 0.0)


@formula(
    returns="exposed_dp_time",
    expression="where(zero_stage >= 3, exposed_dp_layer_time,"
    " exposed_dp_reduce_time + exposed_dp_gather_time)",
    source="rajbhandari2020",
    where="section 7",
)
def exposed_dp_time(
    zero_stage: Array,
    exposed_dp_layer_time: Array,
    exposed_dp_reduce_time: Array,
    exposed_dp_gather_time: Array,
) -> Array:
    """Data parallelism's exposed communication of a step."""
    once = exposed_dp_reduce_time + exposed_dp_gather_time
    return np.where(zero_stage >= 3.0, exposed_dp_layer_time, once)
