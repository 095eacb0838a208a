"""Which part of data parallelism's communication nothing hides, over a whole step.

Up to stage 2 of ZeRO, gradients are reduced while the backward that gives them runs on, and updated
weights are gathered while the next forward runs.  `overhead.step.sharded` has stage 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities, sharded

__all__ = [
    "dp_forward_window_time",
    "dp_unhidden_share",
    "dp_window_time",
    "exposed_dp_gather_time",
    "exposed_dp_reduce_time",
    "exposed_dp_time",
    "interleaved_dp_forward_window_time",
    "interleaved_dp_window_time",
    "quantities",
    "sharded",
]

MEGATRON: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/distributed: overlap_grad_reduce, overlap_param_gather",
}
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


@formula(
    returns="dp_unhidden_share",
    expression="maximum(1 - dp_overlap, 1/maximum(middle_layers, 1))",
    assumes=(LAST, "the first layer's weights are gathered before there is anything to hide them"),
    **MEGATRON,
)
def dp_unhidden_share(dp_overlap: Array, middle_layers: Array) -> Array:
    """Share of a reduction or a gathering that nothing hides, however long the window is."""
    return np.maximum(1.0 - dp_overlap, 1.0 / np.maximum(middle_layers, 1.0))


def _text(time: str, window: str) -> str:
    return f"maximum(dp_unhidden_share*{time}, {time} - dp_overlap*{window})"


@formula(
    returns="exposed_dp_reduce_time",
    expression=_text("dp_reduce_time", "dp_window_time"),
    assumes=("a share of it and of the backward hide one another",),
    **MEGATRON,
)
def exposed_dp_reduce_time(
    dp_unhidden_share: Array, dp_reduce_time: Array, dp_overlap: Array, dp_window_time: Array
) -> Array:
    """Reduction of gradients that nothing hides, up to stage 2 of ZeRO."""
    late = dp_reduce_time - dp_overlap * dp_window_time
    return np.maximum(dp_unhidden_share * dp_reduce_time, late)


@formula(
    returns="exposed_dp_gather_time",
    expression=_text("dp_gather_time", "dp_forward_window_time"),
    assumes=("a share of it and of the forward hide one another",),
    **MEGATRON,
)
def exposed_dp_gather_time(
    dp_unhidden_share: Array,
    dp_gather_time: Array,
    dp_overlap: Array,
    dp_forward_window_time: Array,
) -> Array:
    """Gathering of updated weights that nothing hides, up to stage 2 of ZeRO."""
    late = dp_gather_time - dp_overlap * dp_forward_window_time
    return np.maximum(dp_unhidden_share * dp_gather_time, late)


@formula(
    returns="exposed_dp_time",
    expression="where(zero_stage >= 3, exposed_sharded_time,"
    " exposed_dp_reduce_time + exposed_dp_gather_time)",
    source="rajbhandari2020",
    where="section 7",
)
def exposed_dp_time(
    zero_stage: Array,
    exposed_sharded_time: Array,
    exposed_dp_reduce_time: Array,
    exposed_dp_gather_time: Array,
) -> Array:
    """Data parallelism's exposed communication of a step."""
    once = exposed_dp_reduce_time + exposed_dp_gather_time
    return np.where(zero_stage >= 3.0, exposed_sharded_time, once)
