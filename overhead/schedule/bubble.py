"""Bubbles: how long a device waits while the pipeline fills and drains, transfers apart."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.schedule.labels import (
    AT_LEAST_DUAL,
    AT_LEAST_H2,
    AT_LEAST_PP,
    BOTH,
    DUAL,
    EVEN,
    FORWARD,
    H1,
    H2,
    H2_TAIL,
    INPUT,
    INTERLEAVED,
    STAGGERED,
    WHOLE_GROUPS,
)

__all__ = [
    "dual_pipe_bubble_time",
    "forward_only_bubble_time",
    "interleaved_bubble_time",
    "plain_bubble_time",
    "staggered_zero_bubble_h2_bubble_time",
    "zero_bubble_h1_bubble_time",
    "zero_bubble_h2_bubble_time",
]


@formula(
    returns="bubble_time",
    expression="(pp - 1)*(stage_forward_time + stage_backward_time)",
    source="narayanan2021",
    where="section 2.2.1 (GPipe: Huang et al. 2019, section 2.3)",
    assumes=(EVEN,),
    when=BOTH,
)
def plain_bubble_time(pp: Array, stage_forward_time: Array, stage_backward_time: Array) -> Array:
    """Bubble of GPipe and of 1F1B."""
    return (pp - 1.0) * (stage_forward_time + stage_backward_time)


@formula(
    returns="bubble_time",
    expression="(pp - 1)*stage_forward_time",
    source="huang2019",
    where="section 2.3",
    assumes=(EVEN,),
    when=FORWARD,
)
def forward_only_bubble_time(pp: Array, stage_forward_time: Array) -> Array:
    """Bubble of forwards alone (prefill)."""
    return (pp - 1.0) * stage_forward_time


@formula(
    returns="bubble_time",
    expression="(pp - 1)*(stage_forward_time + stage_backward_time)/virtual_stages",
    source="narayanan2021",
    where="section 2.2.2",
    assumes=(EVEN, WHOLE_GROUPS),
    when=INTERLEAVED,
)
def interleaved_bubble_time(
    pp: Array, stage_forward_time: Array, stage_backward_time: Array, virtual_stages: Array
) -> Array:
    """Bubble of interleaved 1F1B."""
    return (pp - 1.0) * (stage_forward_time + stage_backward_time) / virtual_stages


@formula(
    returns="bubble_time",
    expression=f"(pp - 1)*maximum(stage_forward_time + {INPUT} - stage_weight_time,"
    f" maximum(stage_forward_time, {INPUT}))",
    source="qi2023",
    where="section 2.3, table 2; where weights take longer than a forward, by simulation",
    assumes=(EVEN, AT_LEAST_PP),
    when=H1,
)
def zero_bubble_h1_bubble_time(
    pp: Array, stage_forward_time: Array, stage_backward_time: Array, stage_weight_time: Array
) -> Array:
    """Bubble of the zero-bubble schedule that needs no more memory than 1F1B."""
    inputs = stage_backward_time - stage_weight_time
    longer = np.maximum(stage_forward_time, inputs)
    return (pp - 1.0) * np.maximum(stage_forward_time + inputs - stage_weight_time, longer)


@formula(
    returns="bubble_time",
    expression="(pp - 1)*maximum(stage_forward_time,"
    f" maximum({H2_TAIL}, {INPUT} - stage_forward_time))",
    source="qi2023",
    where="section 2.3, table 2; its least by simulation",
    assumes=(EVEN, AT_LEAST_H2, "all devices update together"),
    when=H2,
)
def zero_bubble_h2_bubble_time(
    pp: Array, stage_forward_time: Array, stage_backward_time: Array, stage_weight_time: Array
) -> Array:
    """Bubble of the zero-bubble schedule of twice the memory, if all devices wait for the last."""
    least = np.maximum(
        stage_forward_time, stage_backward_time - stage_weight_time - stage_forward_time
    )
    tail = stage_forward_time + stage_backward_time - 3.0 * stage_weight_time
    return (pp - 1.0) * np.maximum(least, tail)


@formula(
    returns="bubble_time",
    expression=f"(pp - 1)*maximum(0, maximum({H2_TAIL}, {INPUT} - stage_forward_time))",
    source="qi2023",
    where="section 2.3, table 2, and section 4; its least by simulation",
    assumes=(EVEN, AT_LEAST_H2, "each device updates when it is done"),
    when=STAGGERED,
)
def staggered_zero_bubble_h2_bubble_time(
    pp: Array, stage_forward_time: Array, stage_backward_time: Array, stage_weight_time: Array
) -> Array:
    """Bubble of the zero-bubble schedule of twice the memory, if devices update one by one."""
    least = np.maximum(stage_backward_time - stage_weight_time - stage_forward_time, 0.0)
    tail = stage_forward_time + stage_backward_time - 3.0 * stage_weight_time
    return (pp - 1.0) * np.maximum(least, tail)


@formula(
    returns="bubble_time",
    expression="maximum((pp/2 - 1)"
    "*(stage_overlapped_time + stage_backward_time - 3*stage_weight_time),"
    " maximum(stage_forward_time + stage_backward_time - stage_overlapped_time, 0))",
    source="deepseekv3",
    where="section 3.2.1, table 2; at least the pair that the middle ranks don't overlap",
    assumes=(EVEN, AT_LEAST_DUAL),
    when=DUAL,
)
def dual_pipe_bubble_time(
    pp: Array,
    stage_overlapped_time: Array,
    stage_backward_time: Array,
    stage_weight_time: Array,
    stage_forward_time: Array,
) -> Array:
    """Bubble of DualPipe: up to 4 % of the pipeline's time above the simulated one."""
    ends = stage_overlapped_time + stage_backward_time - 3.0 * stage_weight_time
    single = stage_forward_time + stage_backward_time - stage_overlapped_time
    return np.maximum((pp / 2.0 - 1.0) * ends, np.maximum(single, 0.0))
