"""What transfers between stages add to a pipeline although they occupy no device."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.schedule.labels import (
    ASYNCHRONOUS,
    AT_LEAST_DUAL,
    AT_LEAST_H2,
    AT_LEAST_PP,
    DUAL,
    EVEN,
    FORWARD,
    GPIPE,
    H1,
    H2,
    INPUT,
    INTERLEAVED,
    PLAIN,
    STAGGERED,
    WHOLE_GROUPS,
)

__all__ = [
    "ROUNDS",
    "dual_pipe_p2p_time",
    "forward_only_p2p_time",
    "gpipe_p2p_time",
    "interleaved_p2p_time",
    "one_f_one_b_p2p_time",
    "rounds",
    "staggered_zero_bubble_h2_p2p_time",
    "zero_bubble_h1_p2p_time",
    "zero_bubble_h2_p2p_time",
]

# Transfers there and back on the longest way through plain 1F1B: one round fills and drains the
# pipeline; of the pp micro-batches that follow one another through all stages, a transfer each
# but for one.
ROUNDS = "(micro_batches + pp - 2 - ceil((micro_batches - 1)/pp))"
# Bubble of a stage beyond the forward for which the stage after waits at first.
H2_BEYOND = f"maximum(stage_backward_time - 3*stage_weight_time, {INPUT} - 2*stage_forward_time)"
# What every micro-batch waits if transfers outlast the twice as many micro-batches in flight.
H2_LATE = (
    "where(pp > 1, micro_batches - 1, 0)*maximum(p2p_time"
    " - 0.5*(stage_forward_time + stage_backward_time + stage_weight_time), 0)"
)


def rounds(micro_batches: Array, pp: Array) -> Array:
    """Return how often a transfer there and back is waited for in plain 1F1B."""
    return micro_batches + pp - 2.0 - np.ceil((micro_batches - 1.0) / pp)


@formula(
    returns="exposed_p2p_time",
    expression="2*p2p_time*(pp - 1)",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS),
    when=GPIPE,
)
def gpipe_p2p_time(p2p_time: Array, pp: Array) -> Array:
    """Time that transfers add to GPipe: its filling and its draining."""
    return 2.0 * p2p_time * (pp - 1.0)


@formula(
    returns="exposed_p2p_time",
    expression="p2p_time*(pp - 1)",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS),
    when=FORWARD,
)
def forward_only_p2p_time(p2p_time: Array, pp: Array) -> Array:
    """Time that transfers add to forwards alone: their filling."""
    return p2p_time * (pp - 1.0)


@formula(
    returns="exposed_p2p_time",
    expression=f"2*p2p_time*{ROUNDS}",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS),
    when=PLAIN,
)
def one_f_one_b_p2p_time(p2p_time: Array, micro_batches: Array, pp: Array) -> Array:
    """Time that transfers add to 1F1B: nearly two of every micro-batch, for nothing hides them."""
    return 2.0 * p2p_time * rounds(micro_batches, pp)


@formula(
    returns="exposed_p2p_time",
    expression="where(pp > 1, where(virtual_stages > 1, 2*p2p_time*(pp*virtual_stages - 1)"
    " + maximum(micro_batches - pp, 0)*maximum(virtual_stages*p2p_time"
    " - minimum(stage_forward_time, stage_backward_time), 0),"
    f" 2*p2p_time*{ROUNDS}), 0*p2p_time)",
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
    expression=f"2*p2p_time*minimum({ROUNDS}, 2*(pp - 1))"
    f" + maximum(2*p2p_time - stage_weight_time, 0)*maximum({ROUNDS} - 2*(pp - 1), 0)",
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
    expression=f"(pp - 1)*(p2p_time + minimum(maximum({H2_BEYOND} + p2p_time, 0), p2p_time))"
    f" + {H2_LATE}",
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
    beyond = np.maximum(tail, stage_backward_time - stage_weight_time - 2.0 * stage_forward_time)
    ends = (pp - 1.0) * (p2p_time + np.minimum(np.maximum(beyond + p2p_time, 0.0), p2p_time))
    late = p2p_time - 0.5 * (stage_forward_time + stage_backward_time + stage_weight_time)
    return ends + np.where(pp > 1.0, micro_batches - 1.0, 0.0) * np.maximum(late, 0.0)


@formula(
    returns="exposed_p2p_time",
    expression=f"2*p2p_time*(pp - 1) + {H2_LATE}",
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
    expression="p2p_time*(pp - 1)*(micro_batches/pp + 2)",
    source="derivation",
    assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_DUAL),
    when=DUAL,
)
def dual_pipe_p2p_time(p2p_time: Array, pp: Array, micro_batches: Array) -> Array:
    """Time that transfers add to DualPipe, at most: one of every micro-batch, nearly."""
    return p2p_time * (pp - 1.0) * (micro_batches / pp + 2.0)
