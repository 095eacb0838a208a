"""Phases on different dimensions or levels, pipelined over chunks of the buffer.

First come one chunk's phases, then the slowest dimension's phases for each further chunk.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.collectives.levels import HIERARCHY
from overhead.formula import declare, derived, product, total

PIPELINED = {"phases": "pipelined"}
FLAT = {"shape": "flat", **PIPELINED}
LEVELS = {**HIERARCHY, **PIPELINED}
FOLLOW = (
    "chunks follow one another through the dimensions",
    "the phases of one chunk on one dimension block it for the others",
)
ON_THE_PATH = ("every chunk waits for the slowest dimension, the first one for the others, too",)


@derived(when=PIPELINED)
def pipelined_chunks(phase_chunks, sequential_phases):
    """Chunks that follow one another; one where every step works on all dimensions."""
    return xp.where(sequential_phases > 0.0, phase_chunks, 1.0)


# One chunk's phases on a dimension of a flat network, where all links are alike, or on a level.


def _chunk_transfer(transfer_fraction, pipelined_chunks, serialization_time):
    return transfer_fraction / pipelined_chunks * serialization_time


TRANSFER = "Transfer of one chunk's phases on one dimension"
for _phase, _dimension, _level in (
    ("phase_1", "dimension_1", "intra_"),
    ("phase_2", "dimension_2", "inter_"),
    ("phase_3", "dimension_3", "pod_"),
):
    for _when, _of in ((FLAT, ""), (LEVELS, _level)):
        _latency = (f"{_dimension}_latency_count", f"{_of}latency")
        product(f"{_phase}_latency_time", _latency, when=_when, name=f"{_phase}_{_of}latency_time")
        _sent = (f"{_dimension}_transfer_fraction", "pipelined_chunks", f"{_of}serialization_time")
        declare(f"{_phase}_transfer_time", _sent, _chunk_transfer, TRANSFER, when=_when)
    total(f"{_phase}_time", (f"{_phase}_latency_time", f"{_phase}_transfer_time"), when=PIPELINED)
product(
    "phase_1_latency_time",
    ("dimension_1_latency_count", "in_network_latency"),
    when={**FLAT, "in_network": "yes"},
    name="phase_1_in_network_latency_time",
)


def _slowest(phase_1_time, phase_2_time, phase_3_time):
    return xp.maximum(xp.maximum(phase_1_time, phase_2_time), phase_3_time)


@derived(
    returns="time",
    assumes=(*FOLLOW, "the reduction itself costs nothing"),
    when={**PIPELINED, "reduction": "free"},
)
def pipelined_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Collective time with phases pipelined over chunks."""
    slowest = _slowest(phase_1_time, phase_2_time, phase_3_time)
    return phase_1_time + phase_2_time + phase_3_time + (pipelined_chunks - 1.0) * slowest


@derived(
    returns="time",
    assumes=(*FOLLOW, "reductions of the most loaded rank are not overlapped"),
    when={**PIPELINED, "reduction": "counted"},
)
def pipelined_reducing_time(
    phase_1_time, phase_2_time, phase_3_time, pipelined_chunks, reduction_time
):
    """Collective time with phases pipelined over chunks, reductions included."""
    pipelined = pipelined_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks)
    return pipelined + reduction_time


# The parts of that time: what is waited for, and what goes on meanwhile.


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def phase_1_passes(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Chunks whose phases on the first dimension are waited for."""
    slowest = _slowest(phase_1_time, phase_2_time, phase_3_time)
    return xp.where(phase_1_time == slowest, pipelined_chunks, 1.0)


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def phase_2_passes(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Chunks whose phases on the second dimension are waited for; of equal ones the first's."""
    slower = (phase_2_time > phase_1_time) & (phase_2_time >= phase_3_time)
    return xp.where(slower, pipelined_chunks, 1.0)


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def phase_3_passes(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Chunks whose phases on the third dimension are waited for; of equal ones the first's."""
    slower = phase_3_time > xp.maximum(phase_1_time, phase_2_time)
    return xp.where(slower, pipelined_chunks, 1.0)


@derived(returns="latency_time", assumes=ON_THE_PATH, when=PIPELINED)
def pipelined_latency_time(
    phase_1_passes,
    phase_1_latency_time,
    phase_2_passes,
    phase_2_latency_time,
    phase_3_passes,
    phase_3_latency_time,
):
    """Part of the time, of phases that are waited for."""
    two = phase_1_passes * phase_1_latency_time + phase_2_passes * phase_2_latency_time
    return two + phase_3_passes * phase_3_latency_time


@derived(returns="bandwidth_time", assumes=ON_THE_PATH, when=PIPELINED)
def pipelined_bandwidth_time(
    phase_1_passes,
    phase_1_transfer_time,
    phase_2_passes,
    phase_2_transfer_time,
    phase_3_passes,
    phase_3_transfer_time,
):
    """Part of the time, of phases that are waited for."""
    two = phase_1_passes * phase_1_transfer_time + phase_2_passes * phase_2_transfer_time
    return two + phase_3_passes * phase_3_transfer_time


ON_LEVELS: dict[str, Any] = {"assumes": ON_THE_PATH, "when": LEVELS}
product("intra_time", ("phase_1_passes", "phase_1_time"), name="pipelined_intra_time", **ON_LEVELS)
product("inter_time", ("phase_2_passes", "phase_2_time"), name="pipelined_inter_time", **ON_LEVELS)
product("pod_time", ("phase_3_passes", "phase_3_time"), name="pipelined_pod_time", **ON_LEVELS)


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def overlapped_phase_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Phase time while a chunk waits for the slowest dimension."""
    every = phase_1_time + phase_2_time + phase_3_time
    slowest = _slowest(phase_1_time, phase_2_time, phase_3_time)
    return (pipelined_chunks - 1.0) * (every - slowest)
