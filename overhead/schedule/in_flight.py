"""Micro-batches in flight: how many stages' worth of activations a stage holds at most.

The first stage is ``stage = 0``, the last ``stage = pp - 1``; beyond there is none, and none in
flight, so that stages can stand along an axis that is longer than some of the pipelines.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.schedule.labels import (
    DUAL,
    FORWARD,
    GPIPE,
    H1,
    H2,
    INTERLEAVED,
    PLAIN,
    WHOLE_GROUPS,
)

__all__ = [
    "dual_pipe_in_flight",
    "forward_only_in_flight",
    "gpipe_in_flight",
    "interleaved_in_flight",
    "one_f_one_b_in_flight",
    "zero_bubble_h1_in_flight",
    "zero_bubble_h2_in_flight",
]

AHEAD = "(2*(pp - 1 - stage) + (virtual_stages - 1)*pp + 1)"
HELD = ("activations are held until the weights' gradients are done",)


@formula(
    returns="in_flight_micro_batches",
    expression="where(stage < pp, micro_batches, 0)",
    source="huang2019",
    where="section 2.3",
    when=GPIPE,
)
def gpipe_in_flight(micro_batches: Array, stage: Array, pp: Array) -> Array:
    """Micro-batches in flight in GPipe: all."""
    return np.where(stage < pp, micro_batches, 0.0)


@formula(
    returns="in_flight_micro_batches",
    expression="maximum(minimum(micro_batches, pp - stage), 0)",
    source="narayanan2021",
    where="section 2.2.1",
    when=PLAIN,
)
def one_f_one_b_in_flight(micro_batches: Array, pp: Array, stage: Array) -> Array:
    """Micro-batches in flight in 1F1B: those that the stages ahead have."""
    return np.maximum(np.minimum(micro_batches, pp - stage), 0.0)


@formula(
    returns="in_flight_micro_batches",
    expression=f"where(stage < pp, minimum(micro_batches, where(virtual_stages > 1,"
    f" {AHEAD}/virtual_stages, pp - stage)), 0)",
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
    expression="where(stage < pp, minimum(micro_batches, pp), 0)",
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
    expression="where(stage < pp, minimum(micro_batches, 2*pp - 1), 0)",
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
    expression="where(stage < pp, minimum(micro_batches, pp + 1), 0)",
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
    expression="where(stage < pp, 1, 0)",
    source="derivation",
    assumes=("nothing is kept for a backward",),
    when=FORWARD,
)
def forward_only_in_flight(stage: Array, pp: Array) -> Array:
    """Micro-batches in flight where there are forwards alone: the one that is computed."""
    return np.where(stage < pp, 1.0, 0.0)
