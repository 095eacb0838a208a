"""Micro-batches in flight: how many stages' worth of activations a stage holds at most.

The first stage is ``stage = 0``, the last ``stage = pp - 1``; beyond there is none, and none in
flight, so that stages can stand along an axis that is longer than some of the pipelines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from overhead.formula import formula
from overhead.quantity import Array
from overhead.schedule.quantities import (
    ASYNCHRONOUS,
    DUAL,
    FORWARD,
    GPIPE,
    H1,
    H2,
    INTERLEAVED,
    PLAIN,
    UNEVEN,
    WHOLE_GROUPS,
)

HELD = ("activations are held until the weights' gradients are done",)


@formula(returns="in_flight_micro_batches", source="huang2019", where="section 2.3", when=GPIPE)
def gpipe_in_flight(micro_batches: Array, stage: Array, pp: Array) -> Array:
    """Micro-batches in flight in GPipe: all."""
    return np.where(stage < pp, micro_batches, 0.0)


@formula(
    returns="in_flight_micro_batches", source="narayanan2021", where="section 2.2.1", when=PLAIN
)
def one_f_one_b_in_flight(micro_batches: Array, pp: Array, stage: Array) -> Array:
    """Micro-batches in flight in 1F1B: those that the stages ahead have."""
    return np.maximum(np.minimum(micro_batches, pp - stage), 0.0)


@formula(
    returns="in_flight_micro_batches",
    source="korthikanti2022",
    where="section 4.2.3 (the first stage)",
    assumes=(WHOLE_GROUPS, "with one virtual stage it is plain 1F1B"),
    when=INTERLEAVED,
)
def interleaved_in_flight(
    micro_batches: Array, virtual_stages: Array, pp: Array, stage: Array
) -> Array:
    """Micro-batches in flight in interleaved 1F1B."""
    chunks = 2.0 * (pp - 1.0 - stage) + (virtual_stages - 1.0) * pp + 1.0
    ahead = np.where(virtual_stages > 1.0, chunks / virtual_stages, pp - stage)
    return np.where(stage < pp, np.minimum(micro_batches, ahead), 0.0)


@formula(
    returns="in_flight_micro_batches",
    source="qi2023",
    where="section 2.3, table 2",
    assumes=HELD,
    when=H1,
)
def zero_bubble_h1_in_flight(micro_batches: Array, stage: Array, pp: Array) -> Array:
    """Micro-batches in flight in ZB-H1: in every stage as many as in 1F1B's first."""
    return np.where(stage < pp, np.minimum(micro_batches, pp), 0.0)


@formula(
    returns="in_flight_micro_batches",
    source="qi2023",
    where="section 2.3, table 2",
    assumes=HELD,
    when=H2,
)
def zero_bubble_h2_in_flight(micro_batches: Array, stage: Array, pp: Array) -> Array:
    """Micro-batches in flight in ZB-H2."""
    return np.where(stage < pp, np.minimum(micro_batches, 2.0 * pp - 1.0), 0.0)


@formula(
    returns="in_flight_micro_batches",
    source="deepseekv3",
    where="section 3.2.1, table 2",
    assumes=(*HELD, "a device holds the weights of two stages"),
    when=DUAL,
)
def dual_pipe_in_flight(micro_batches: Array, stage: Array, pp: Array) -> Array:
    """Micro-batches in flight in DualPipe, of both directions together."""
    return np.where(stage < pp, np.minimum(micro_batches, pp + 1.0), 0.0)


@formula(
    returns="in_flight_micro_batches",
    source="derivation",
    assumes=("nothing is kept for a backward",),
    when=FORWARD,
)
def forward_only_in_flight(stage: Array, pp: Array) -> Array:
    """Micro-batches in flight where there are forwards alone: the one that is computed."""
    return np.where(stage < pp, 1.0, 0.0)


# Pipelines whose stages take unequally long: the ends by formulas, any stages by a stage axis.
#
# In most models only the ends differ: the embedding in the first stage, logits and loss in the
# last,
# and fewer layers there to make up for them.  Zero-bubble schedules and DualPipe have no closed
# form
# then, so none is declared for them.

ENDS = ("only the first and the last stage differ from the others",)


@formula(
    returns="imbalance_time",
    source="derivation",
    assumes=(*ENDS, "the slowest forward and the slowest backward are in one stage"),
    when={"schedule": "gpipe|forward_only", **UNEVEN},
)
def flow_imbalance_time(
    micro_batches: Array, pp: Array, first_stage_extra_time: Array, last_stage_extra_time: Array
) -> Array:
    """Time that uneven ends add to GPipe and to forwards alone: the slowest stage's, each time."""
    both = first_stage_extra_time + last_stage_extra_time
    slower = np.maximum(first_stage_extra_time, last_stage_extra_time)
    slowest = np.where(pp > 2.0, np.maximum(slower, 0.0), np.where(pp > 1.0, slower, both))
    return (micro_batches - 1.0) * slowest + both


def _plain(micro_batches: Array, pp: Array, first: Array, last: Array, p2p_time: Array) -> Array:
    before = micro_batches - 1.0
    loops = before / pp
    whole = np.ceil(loops)
    second_loops = np.ceil(before / np.maximum(pp - 1.0, 1.0))
    transfers = 2.0 * p2p_time
    held_up = before - whole
    twice = np.minimum(micro_batches, 2.0) * last

    # Ways through plain 1F1B, by the stage at which they stay for all micro-batches that they can:
    # each way's time less that of even stages.
    at_last = first + micro_batches * last - transfers * held_up
    at_first = (micro_batches - pp + 1.0) * first + twice + transfers * (pp - 1.0 - held_up)
    between = first + twice - transfers * held_up
    around = (1.0 + np.floor(loops)) * first + (1.0 + whole) * last
    around_second = first + (1.0 + second_loops) * last - transfers * (second_loops - whole)

    longest = np.maximum(at_last, np.where(micro_batches > pp, at_first, at_last))
    longest = np.maximum(longest, np.where(pp > 2.0, between, at_last))
    longest = np.maximum(longest, np.maximum(around, around_second))
    return np.where(pp > 1.0, longest, micro_batches * (first + last))


@formula(
    returns="imbalance_time",
    source="derivation",
    assumes=(*ENDS, ASYNCHRONOUS, "extra work is a fraction of a stage's"),
    when={**PLAIN, **UNEVEN},
)
def one_f_one_b_imbalance_time(
    micro_batches: Array,
    pp: Array,
    first_stage_extra_time: Array,
    last_stage_extra_time: Array,
    p2p_time: Array,
) -> Array:
    """Time that uneven ends add to 1F1B: exact without transfers, else within 3 %."""
    return _plain(micro_batches, pp, first_stage_extra_time, last_stage_extra_time, p2p_time)


@formula(
    returns="imbalance_time",
    source="derivation",
    assumes=(*ENDS, WHOLE_GROUPS, "extra work is in the first and in the last chunk"),
    when={**INTERLEAVED, **UNEVEN},
)
def interleaved_imbalance_time(
    micro_batches: Array,
    pp: Array,
    first_stage_extra_time: Array,
    last_stage_extra_time: Array,
    p2p_time: Array,
    virtual_stages: Array,
) -> Array:
    """Time that uneven ends add to interleaved 1F1B.

    Exact without transfers where the last stage has no less extra work than the first, else up to
    8 % of the pipeline's time above the simulated one.
    """
    more = np.maximum(first_stage_extra_time, last_stage_extra_time)
    less = np.minimum(first_stage_extra_time, last_stage_extra_time)
    several = micro_batches * np.maximum(more, 0.0) + pp * np.maximum(less, 0.0)
    alone = micro_batches * (first_stage_extra_time + last_stage_extra_time)
    plain = _plain(micro_batches, pp, first_stage_extra_time, last_stage_extra_time, p2p_time)
    return np.where(virtual_stages > 1.0, np.where(pp > 1.0, several, alone), plain)


def uneven_one_f_one_b_time(
    stage_times: ArrayLike,
    micro_batches: ArrayLike,
    p2p_time: ArrayLike = 0.0,
    pp: ArrayLike | None = None,
) -> Array:
    """Return the time of 1F1B whose stages each take a time of their own."""
    times = np.asarray(stage_times, dtype=np.float64)
    length = times.shape[-1]
    count = np.asarray(length if pp is None else pp, dtype=np.float64)[..., np.newaxis]
    transfer = np.asarray(p2p_time, dtype=np.float64)[..., np.newaxis]
    index = np.arange(length)
    inside = index < count
    times = np.where(inside, times, 0.0)
    ahead = np.cumsum(times[..., ::-1], axis=-1)[..., ::-1]
    in_flight = np.maximum(count - index, 1.0)
    around = (ahead + 2.0 * transfer * (in_flight - 1.0)) / in_flight
    slowest = np.where(inside, np.maximum(times, around), 0.0).max(axis=-1)
    through = times.sum(axis=-1) + 2.0 * transfer[..., 0] * (count[..., 0] - 1.0)
    return np.asarray((np.asarray(micro_batches, dtype=np.float64) - 1.0) * slowest + through)
