"""Phases on different dimensions or levels, pipelined over chunks of the buffer.

First come one chunk's phases, then the slowest dimension's phases for each further chunk.  So all
chunks are waited for on the slowest dimension, and one on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from overhead.arrays import xp
from overhead.collectives.levels import HIERARCHY
from overhead.formula import declare, derived
from overhead.quantity import Array

PIPELINED = {"phases": "pipelined"}
FLAT = {"shape": "flat", **PIPELINED}
PHASES = ("phase_1_time", "phase_2_time", "phase_3_time")
SAID: dict[str, Any] = {
    "assumes": (
        "every chunk waits for the slowest dimension, the first one for the others, too",
        "the phases of one chunk on one dimension block it for the others",
    )
}


@derived(when=PIPELINED)
def pipelined_chunks(phase_chunks, sequential_phases):
    """Chunks that follow one another; one where every step works on all dimensions."""
    return xp.where(sequential_phases > 0.0, phase_chunks, 1.0)


def waited_for(times: tuple[Array, ...], chunks: Array) -> list[Array]:
    """Return by dimension the chunks whose phases are waited for: all where these take longest.

    Of dimensions that take equally long it is the first.
    """
    first, second, third = times
    longest = (
        (first >= second) & (first >= third),
        (second > first) & (second >= third),
        (third > first) & (third > second),
    )
    return [xp.where(here, chunks, 1.0) for here in longest]


def _phase(latency_count, latency, transfer_fraction, chunks, serialization_time):
    return latency_count * latency + transfer_fraction / chunks * serialization_time


def _latency(first, second, third, chunks, *paid):
    """Latencies of phases that are waited for; `paid`: counts, then a latency or one a level."""
    passes, latencies = waited_for((first, second, third), chunks), paid[3:] * (3 // len(paid[3:]))
    each = zip(passes, paid[:3], latencies, strict=True)
    return sum(waited * count * latency for waited, count, latency in each)


def _transfer(first, second, third, chunks, *sent):
    """Transfers of phases that are waited for; `sent`: fractions, then a wire or one a level."""
    passes, wires = waited_for((first, second, third), chunks), sent[3:] * (3 // len(sent[3:]))
    each = zip(passes, sent[:3], wires, strict=True)
    return sum(waited * (fraction / chunks * wire) for waited, fraction, wire in each)


def _level(index: int) -> Callable[..., Any]:
    def kernel(first, second, third, chunks):
        times = first, second, third
        return waited_for(times, chunks)[index] * times[index]

    return kernel


# All links of a flat network are alike, though the switch that reduces has a latency of its own.
ALIKE = ("dimension_1", "dimension_2", "dimension_3")
LEVELS = ("intra", "inter", "pod")
for _when, _dimensions, _latencies, _wires in (
    (FLAT, ALIKE, ("latency",), ("serialization_time",)),
    ({**FLAT, "in_network": "yes"}, ALIKE, ("in_network_latency",), ("serialization_time",)),
    (
        {**HIERARCHY, **PIPELINED},
        LEVELS,
        tuple(f"{level}_latency" for level in LEVELS),
        tuple(f"{level}_serialization_time" for level in LEVELS),
    ),
):
    _counts = [f"{dimension}_latency_count" for dimension in _dimensions]
    _fractions = [f"{dimension}_transfer_fraction" for dimension in _dimensions]
    # The switch that reduces has one level of links.
    for _k, _time in enumerate(PHASES[:1] if "in_network" in _when else PHASES):
        _latency_of, _wire_of = (each[_k % len(each)] for each in (_latencies, _wires))
        _taken = (_counts[_k], _latency_of, _fractions[_k], "pipelined_chunks", _wire_of)
        declare(_time, _taken, _phase, when=_when)
    _waited = (*PHASES, "pipelined_chunks")
    declare("latency_time", (*_waited, *_counts, *_latencies), _latency, when=_when, **SAID)
    if "in_network" not in _when:
        declare("bandwidth_time", (*_waited, *_fractions, *_wires), _transfer, when=_when, **SAID)
for _k, _returns in enumerate(("intra_time", "inter_time", "pod_time")):
    declare(_returns, _waited, _level(_k), when={**HIERARCHY, **PIPELINED}, **SAID)


@derived(when=PIPELINED, **SAID)
def overlapped_phase_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Phase time while a chunk waits for the slowest dimension."""
    times = phase_1_time, phase_2_time, phase_3_time
    return (pipelined_chunks - 1.0) * (sum(times) - reduce(xp.maximum, times))
