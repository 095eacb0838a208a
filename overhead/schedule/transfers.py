"""What transfers between stages add to a pipeline although they occupy no device."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.schedule.quantities import (
    ASYNCHRONOUS,
    AT_LEAST_DUAL,
    AT_LEAST_H2,
    AT_LEAST_PP,
    BOTH,
    DUAL,
    EVEN,
    FORWARD,
    GPIPE,
    H1,
    H2,
    INTERLEAVED,
    PLAIN,
    STAGGERED,
    UNEVEN,
    WHOLE_GROUPS,
)


def rounds(micro_batches: Array, pp: Array) -> Array:
    """Return how often a transfer there and back is waited for in plain 1F1B.

    One round fills and drains the pipeline; of the pp micro-batches that follow one another through
    all stages, a transfer each but for one.
    """
    return micro_batches + pp - 2.0 - np.ceil((micro_batches - 1.0) / pp)


@formula(returns="exposed_p2p_time", source="derivation", assumes=(EVEN, ASYNCHRONOUS), when=GPIPE)
def gpipe_p2p_time(p2p_time: Array, pp: Array) -> Array:
    """Time that transfers add to GPipe: its filling and its draining."""
    return 2.0 * p2p_time * (pp - 1.0)


@formula(
    returns="exposed_p2p_time", source="derivation", assumes=(EVEN, ASYNCHRONOUS), when=FORWARD
)
def forward_only_p2p_time(p2p_time: Array, pp: Array) -> Array:
    """Time that transfers add to forwards alone: their filling."""
    return p2p_time * (pp - 1.0)


@formula(returns="exposed_p2p_time", source="derivation", assumes=(EVEN, ASYNCHRONOUS), when=PLAIN)
def one_f_one_b_p2p_time(p2p_time: Array, micro_batches: Array, pp: Array) -> Array:
    """Time that transfers add to 1F1B: nearly two of every micro-batch, for nothing hides them."""
    return 2.0 * p2p_time * rounds(micro_batches, pp)


@formula(
    returns="exposed_p2p_time",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS, WHOLE_GROUPS, "with one virtual stage it is plain 1F1B"),
    when=INTERLEAVED,
)
def interleaved_p2p_time(
    pp: Array,
    virtual_stages: Array,
    p2p_time: Array,
    micro_batches: Array,
    stage_forward_time: Array,
    stage_backward_time: Array,
) -> Array:
    """Time that transfers add to interleaved 1F1B.

    Exact while a transfer is no longer than a chunk's forward and backward, each; beyond that the
    pipeline's time is within 15 % of the simulated one up to transfers of five chunks.
    """
    ways = 2.0 * p2p_time * (pp * virtual_stages - 1.0)
    shorter = np.minimum(stage_forward_time, stage_backward_time)
    late = np.maximum(virtual_stages * p2p_time - shorter, 0.0)
    chunked = ways + np.maximum(micro_batches - pp, 0.0) * late
    plain = 2.0 * p2p_time * rounds(micro_batches, pp)
    return np.where(pp > 1.0, np.where(virtual_stages > 1.0, chunked, plain), 0.0)


@formula(
    returns="exposed_p2p_time",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_PP, "weights take no longer than forward or input"),
    when=H1,
)
def zero_bubble_h1_p2p_time(
    p2p_time: Array, micro_batches: Array, pp: Array, stage_weight_time: Array
) -> Array:
    """Time that transfers add to ZB-H1: once it is full, weights hide them."""
    count = rounds(micro_batches, pp)
    ends = 2.0 * (pp - 1.0)
    beyond = np.maximum(2.0 * p2p_time - stage_weight_time, 0.0)
    return 2.0 * p2p_time * np.minimum(count, ends) + beyond * np.maximum(count - ends, 0.0)


@formula(
    returns="exposed_p2p_time",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_H2),
    when=H2,
)
def zero_bubble_h2_p2p_time(
    pp: Array,
    p2p_time: Array,
    stage_backward_time: Array,
    stage_weight_time: Array,
    stage_forward_time: Array,
    micro_batches: Array,
) -> Array:
    """Time that transfers add to ZB-H2 if all devices wait for the last: one or two a stage.

    Exact while a transfer takes no longer than half of a forward and the input's backward; beyond
    that a rough estimate.
    """
    tail = stage_backward_time - 3.0 * stage_weight_time
    # Bubble of a stage beyond the forward for which the stage after waits at first.
    beyond = np.maximum(tail, stage_backward_time - stage_weight_time - 2.0 * stage_forward_time)
    ends = (pp - 1.0) * (p2p_time + np.minimum(np.maximum(beyond + p2p_time, 0.0), p2p_time))
    # What every micro-batch waits if transfers outlast the twice as many micro-batches in flight.
    late = p2p_time - 0.5 * (stage_forward_time + stage_backward_time + stage_weight_time)
    return ends + np.where(pp > 1.0, micro_batches - 1.0, 0.0) * np.maximum(late, 0.0)


@formula(
    returns="exposed_p2p_time",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_H2),
    when=STAGGERED,
)
def staggered_zero_bubble_h2_p2p_time(
    p2p_time: Array,
    pp: Array,
    micro_batches: Array,
    stage_forward_time: Array,
    stage_backward_time: Array,
    stage_weight_time: Array,
) -> Array:
    """Time that transfers add to ZB-H2 if devices update one by one: two a stage.

    Exact while a transfer takes no longer than half of a forward and the input's backward; beyond
    that a rough estimate.
    """
    late = p2p_time - 0.5 * (stage_forward_time + stage_backward_time + stage_weight_time)
    beyond = np.where(pp > 1.0, micro_batches - 1.0, 0.0) * np.maximum(late, 0.0)
    return 2.0 * p2p_time * (pp - 1.0) + beyond


@formula(
    returns="exposed_p2p_time",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_DUAL),
    when=DUAL,
)
def dual_pipe_p2p_time(p2p_time: Array, pp: Array, micro_batches: Array) -> Array:
    """Time that transfers add to DualPipe, at most: one of every micro-batch, nearly."""
    return p2p_time * (pp - 1.0) * (micro_batches / pp + 2.0)


# Time of the pipeline: what its devices compute, its bubble, and what transfers add.


@formula(source="derivation", assumes=(EVEN,))
def pipeline_time(busy_time: Array, bubble_time: Array, exposed_p2p_time: Array) -> Array:
    """Time of the pipeline."""
    return busy_time + bubble_time + exposed_p2p_time


@formula(returns="pipeline_time", source="derivation", when=UNEVEN)
def uneven_pipeline_time(
    busy_time: Array, bubble_time: Array, exposed_p2p_time: Array, imbalance_time: Array
) -> Array:
    """Time of a pipeline whose first and last stage take longer or shorter than the others."""
    return busy_time + bubble_time + exposed_p2p_time + imbalance_time


@formula(source="derivation")
def bubble_fraction(bubble_time: Array, pipeline_time: Array) -> Array:
    """Bubble over the pipeline's whole time."""
    return bubble_time / pipeline_time


@formula(source="narayanan2021", where="section 2.2.1")
def bubble_over_ideal(bubble_time: Array, busy_time: Array) -> Array:
    """Bubble over the ideal time: of plain schedules (pp - 1)/micro_batches."""
    return bubble_time / busy_time


# What a device computes.


@formula(source="narayanan2021", where="section 2.2.1, the ideal time")
def busy_time(micro_batches: Array, stage_forward_time: Array, stage_backward_time: Array) -> Array:
    """Time for which a device computes all micro-batches."""
    return micro_batches * (stage_forward_time + stage_backward_time)


@formula(returns="busy_time", source="derivation", when=FORWARD)
def forward_only_busy_time(micro_batches: Array, stage_forward_time: Array) -> Array:
    """Time for which a device computes all micro-batches' forwards."""
    return micro_batches * stage_forward_time


@formula(source="derivation", assumes=("overlap gains nothing, unless it is given",))
def stage_overlapped_time(stage_forward_time: Array, stage_backward_time: Array) -> Array:
    """Time of an overlapped forward and backward: both together."""
    return stage_forward_time + stage_backward_time


@formula(
    returns="busy_time",
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


# Bubbles: how long a device waits while the pipeline fills and drains, transfers apart.


@formula(
    returns="bubble_time",
    source="narayanan2021",
    where="section 2.2.1 (GPipe: Huang et al. 2019, section 2.3)",
    assumes=(EVEN,),
    when=BOTH,
)
def plain_bubble_time(pp: Array, stage_forward_time: Array, stage_backward_time: Array) -> Array:
    """Bubble of GPipe and of 1F1B."""
    return (pp - 1.0) * (stage_forward_time + stage_backward_time)


@formula(
    returns="bubble_time", source="huang2019", where="section 2.3", assumes=(EVEN,), when=FORWARD
)
def forward_only_bubble_time(pp: Array, stage_forward_time: Array) -> Array:
    """Bubble of forwards alone (prefill)."""
    return (pp - 1.0) * stage_forward_time


@formula(
    returns="bubble_time",
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
