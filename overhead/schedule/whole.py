"""Time of the pipeline: what its devices compute, its bubble, and what transfers add."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.schedule.labels import DUAL, EVEN, FORWARD, UNEVEN

__all__ = [
    "bubble_fraction",
    "bubble_over_ideal",
    "busy_time",
    "dual_pipe_busy_time",
    "forward_only_busy_time",
    "pipeline_time",
    "stage_overlapped_time",
    "uneven_pipeline_time",
]


@formula(
    returns="pipeline_time",
    expression="busy_time + bubble_time + exposed_p2p_time",
    source="derivation",
    assumes=(EVEN,),
)
def pipeline_time(busy_time: Array, bubble_time: Array, exposed_p2p_time: Array) -> Array:
    """Time of the pipeline."""
    return busy_time + bubble_time + exposed_p2p_time


@formula(
    returns="pipeline_time",
    expression="busy_time + bubble_time + exposed_p2p_time + imbalance_time",
    source="derivation",
    when=UNEVEN,
)
def uneven_pipeline_time(
    busy_time: Array, bubble_time: Array, exposed_p2p_time: Array, imbalance_time: Array
) -> Array:
    """Time of a pipeline whose first and last stage take longer or shorter than the others."""
    return busy_time + bubble_time + exposed_p2p_time + imbalance_time


@formula(
    returns="bubble_fraction",
    expression="bubble_time/pipeline_time",
    source="derivation",
    ufunc=np.true_divide,
)
def bubble_fraction(bubble_time: Array, pipeline_time: Array) -> Array:
    """Bubble over the pipeline's whole time."""
    return bubble_time / pipeline_time


@formula(
    returns="bubble_over_ideal",
    expression="bubble_time/busy_time",
    source="narayanan2021",
    where="section 2.2.1",
    ufunc=np.true_divide,
)
def bubble_over_ideal(bubble_time: Array, busy_time: Array) -> Array:
    """Bubble over the ideal time: of plain schedules (pp - 1)/micro_batches."""
    return bubble_time / busy_time


# What a device computes.


@formula(
    returns="busy_time",
    expression="micro_batches*(stage_forward_time + stage_backward_time)",
    source="narayanan2021",
    where="section 2.2.1, the ideal time",
)
def busy_time(micro_batches: Array, stage_forward_time: Array, stage_backward_time: Array) -> Array:
    """Time for which a device computes all micro-batches."""
    return micro_batches * (stage_forward_time + stage_backward_time)


@formula(
    returns="busy_time",
    expression="micro_batches*stage_forward_time",
    source="derivation",
    when=FORWARD,
    ufunc=np.multiply,
)
def forward_only_busy_time(micro_batches: Array, stage_forward_time: Array) -> Array:
    """Time for which a device computes all micro-batches' forwards."""
    return micro_batches * stage_forward_time


@formula(
    returns="stage_overlapped_time",
    expression="stage_forward_time + stage_backward_time",
    source="derivation",
    assumes=("overlap gains nothing, unless it is given",),
    ufunc=np.add,
)
def stage_overlapped_time(stage_forward_time: Array, stage_backward_time: Array) -> Array:
    """Time of an overlapped forward and backward: both together."""
    return stage_forward_time + stage_backward_time


@formula(
    returns="busy_time",
    expression="micro_batches*(stage_forward_time + stage_backward_time)"
    " + maximum(micro_batches + 1 - 1.5*pp, 0)"
    "*(stage_overlapped_time - (stage_forward_time + stage_backward_time))",
    source="deepseekv3",
    where="section 3.2.1, figure 5: the overlapped cells of the first rank",
    when=DUAL,
)
def dual_pipe_busy_time(
    micro_batches: Array,
    stage_forward_time: Array,
    stage_backward_time: Array,
    pp: Array,
    stage_overlapped_time: Array,
) -> Array:
    """Time for which the first rank computes: one by one, and all others overlapped in pairs."""
    pairs = np.maximum(micro_batches + 1.0 - 1.5 * pp, 0.0)
    both = stage_forward_time + stage_backward_time
    return micro_batches * both + pairs * (stage_overlapped_time - both)
