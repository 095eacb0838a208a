"""Phases on different dimensions or levels, pipelined over chunks of the buffer.

First come one chunk's phases, then the slowest dimension's phases for each further chunk.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["pipelined_reducing_time", "pipelined_time"]

HIERARCHY = {"topology": "hierarchical"}
TWO = {"shape": "two_levels"}
THREE = {"shape": "three_levels"}
PIPELINED = {"phases": "pipelined"}
FLAT = {"shape": "flat"}
OWN = "derivation"


@formula(
    returns="phase_1_time",
    expression="dimension_1_latency_count*latency"
    " + dimension_1_transfer_fraction*wire_time/phase_chunks",
    source=OWN,
    when=FLAT,
)
def flat_phase_1(
    dimension_1_latency_count: Array,
    latency: Array,
    dimension_1_transfer_fraction: Array,
    wire_time: Array,
    phase_chunks: Array,
) -> Array:
    """Time of one chunk's phases on the first dimension."""
    share = dimension_1_transfer_fraction / phase_chunks
    return dimension_1_latency_count * latency + share * wire_time


@formula(
    returns="phase_2_time",
    expression="dimension_2_latency_count*latency"
    " + dimension_2_transfer_fraction*wire_time/phase_chunks",
    source=OWN,
    when=FLAT,
)
def flat_phase_2(
    dimension_2_latency_count: Array,
    latency: Array,
    dimension_2_transfer_fraction: Array,
    wire_time: Array,
    phase_chunks: Array,
) -> Array:
    """Time of one chunk's phases on the second dimension."""
    share = dimension_2_transfer_fraction / phase_chunks
    return dimension_2_latency_count * latency + share * wire_time


@formula(
    returns="phase_3_time",
    expression="dimension_3_latency_count*latency"
    " + dimension_3_transfer_fraction*wire_time/phase_chunks",
    source=OWN,
    when=FLAT,
)
def flat_phase_3(
    dimension_3_latency_count: Array,
    latency: Array,
    dimension_3_transfer_fraction: Array,
    wire_time: Array,
    phase_chunks: Array,
) -> Array:
    """Time of one chunk's phases on the third dimension."""
    share = dimension_3_transfer_fraction / phase_chunks
    return dimension_3_latency_count * latency + share * wire_time


@formula(
    returns="phase_1_time",
    expression="intra_latency_count*intra_latency"
    " + intra_transfer_fraction*intra_wire_time/phase_chunks",
    source=OWN,
    when=HIERARCHY,
)
def intra_phase(
    intra_latency_count: Array,
    intra_latency: Array,
    intra_transfer_fraction: Array,
    intra_wire_time: Array,
    phase_chunks: Array,
) -> Array:
    """Time of one chunk's phases inside nodes."""
    share = intra_transfer_fraction / phase_chunks
    return intra_latency_count * intra_latency + share * intra_wire_time


@formula(
    returns="phase_2_time",
    expression="inter_latency_count*inter_latency"
    " + inter_transfer_fraction*inter_wire_time/phase_chunks",
    source=OWN,
    when=HIERARCHY,
)
def inter_phase(
    inter_latency_count: Array,
    inter_latency: Array,
    inter_transfer_fraction: Array,
    inter_wire_time: Array,
    phase_chunks: Array,
) -> Array:
    """Time of one chunk's phases between nodes."""
    share = inter_transfer_fraction / phase_chunks
    return inter_latency_count * inter_latency + share * inter_wire_time


@formula(returns="phase_3_time", expression="0*phase_1_time", source=OWN, when=TWO)
def no_pod_phase(phase_1_time: Array) -> Array:
    """Time of one chunk's phases between pods, where there are none."""
    return 0.0 * phase_1_time


@formula(
    returns="phase_3_time",
    expression="pod_latency_count*pod_latency + pod_transfer_fraction*pod_wire_time/phase_chunks",
    source=OWN,
    when=THREE,
)
def pod_phase(
    pod_latency_count: Array,
    pod_latency: Array,
    pod_transfer_fraction: Array,
    pod_wire_time: Array,
    phase_chunks: Array,
) -> Array:
    """Time of one chunk's phases between pods."""
    share = pod_transfer_fraction / phase_chunks
    return pod_latency_count * pod_latency + share * pod_wire_time


# Where every step works on all levels there are no phases, and chunks change nothing.
PIPELINE = (
    "where(phases_apart > 0, phase_1_time + phase_2_time + phase_3_time + (phase_chunks - 1)"
    "*maximum(maximum(phase_1_time, phase_2_time), phase_3_time), latency_time + bandwidth_time)"
)
FOLLOW = "chunks follow one another through the dimensions"


@formula(
    returns="time",
    expression=PIPELINE,
    source=OWN,
    assumes=(
        FOLLOW,
        "the phases of one chunk on one dimension block it for the others",
        "the reduction itself costs nothing",
    ),
    when={**PIPELINED, "reduction": "free"},
)
def pipelined_time(
    phase_1_time: Array,
    phase_2_time: Array,
    phase_3_time: Array,
    phase_chunks: Array,
    phases_apart: Array,
    latency_time: Array,
    bandwidth_time: Array,
) -> Array:
    """Time of the operation, its phases pipelined over chunks."""
    slowest = np.maximum(np.maximum(phase_1_time, phase_2_time), phase_3_time)
    pipelined = phase_1_time + phase_2_time + phase_3_time + (phase_chunks - 1.0) * slowest
    return np.where(phases_apart > 0.0, pipelined, latency_time + bandwidth_time)


@formula(
    returns="time",
    expression=f"{PIPELINE} + reduction_time",
    source=OWN,
    assumes=(FOLLOW, "the busiest rank's reductions overlap with nothing"),
    when={**PIPELINED, "reduction": "counted"},
)
def pipelined_reducing_time(
    phase_1_time: Array,
    phase_2_time: Array,
    phase_3_time: Array,
    phase_chunks: Array,
    phases_apart: Array,
    latency_time: Array,
    bandwidth_time: Array,
    reduction_time: Array,
) -> Array:
    """Time of the operation, its phases pipelined over chunks and its reductions included."""
    pipelined = pipelined_time(
        phase_1_time,
        phase_2_time,
        phase_3_time,
        phase_chunks,
        phases_apart,
        latency_time,
        bandwidth_time,
    )
    return pipelined + reduction_time
