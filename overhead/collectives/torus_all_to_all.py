"""all_to_all on a torus: dimension by dimension, parts of the buffer side by side, or directly."""

from __future__ import annotations

import numpy as np

from overhead.collectives import ring
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat, several
from overhead.collectives.grid import (
    DIMENSIONS,
    EVERY,
    LONGEST,
    ONCE,
    count,
    exchange,
    longest,
    over,
)
from overhead.collectives.requirement import EQUAL_EVEN_SIZES
from overhead.quantity import Array

__all__ = ["direct", "multi_shift_bidir"]

IN_TURN = "the dimensions x, y, z in turn, each with the whole buffer"
# Load of the busiest link of one dimension when every pair exchanges its block, in messages.
PAIRS = "where({n} == 2, 1/2, where({n} % 2 == 0, {n}/8, ({n} - 1)*({n} + 1)/(8*{n})))"
SENT = f"({over('({n} - 1)/{n}')})*message_bytes"
ONE_WAY = f"({over('({n} - 1)/2')})"
SHORTER = f"({over('floor({n}*{n}/4)/{n}')})"
REACH = f"({over('floor({n}/2)')})"


@algorithm(
    "torus",
    "all_to_all",
    "shift_uni",
    steps="mesh_nx + mesh_ny + mesh_nz - 3",
    time=f"({over('{n}*({n} - 1)/2')})*latency + {ONE_WAY}*message_bytes/bandwidth",
    sent=SENT,
    carried=f"ranks*{ONE_WAY}*message_bytes",
    source="derivation",
    assumes=("one direction only", IN_TURN),
)
def shift_uni(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Shift by 1, 2, .. ranks, all one way round, along one dimension after the other."""
    return exchange(ring.all_to_all_shift_uni, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    "all_to_all",
    "shift_min",
    steps="mesh_nx + mesh_ny + mesh_nz - 3",
    time=f"({over('floor({n}*{n}/4)')})*latency + {SHORTER}*message_bytes/bandwidth",
    sent=SENT,
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=("each shift the shorter way", "one shift at a time", IN_TURN),
)
def shift_min(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Shift by 1, 2, .. ranks, each the shorter way, along one dimension after the other."""
    return exchange(ring.all_to_all_shift_min, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    "all_to_all",
    "shift_bidir",
    steps=REACH,
    time=f"({over('floor({n}/2)*(floor({n}/2) + 1)/2')})*latency"
    f" + ({over(PAIRS)})*message_bytes/bandwidth",
    sent=SENT,
    carried=f"ranks*{SHORTER}*message_bytes",
    source="scalingbook",
    where="chapter 3 (bandwidth)",
    assumes=("shifts by +r and -r together", "the shift by half a ring is split", IN_TURN),
)
def shift_bidir(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Shift by r ranks both ways at once, along one dimension after the other."""
    return exchange(ring.all_to_all_shift_bidir, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    "all_to_all",
    "fwd_uni",
    steps="mesh_nx + mesh_ny + mesh_nz - 3",
    time=f"(mesh_nx + mesh_ny + mesh_nz - 3)*latency + {ONE_WAY}*message_bytes/bandwidth",
    sent=f"{ONE_WAY}*message_bytes",
    carried=f"ranks*{ONE_WAY}*message_bytes",
    source="derivation",
    assumes=("a rank stores what it receives and forwards what isn't its own", IN_TURN),
)
def fwd_uni(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Neighbours store and forward, one way round, along one dimension after the other."""
    return exchange(ring.all_to_all_fwd_uni, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    "all_to_all",
    "fwd_bidir",
    steps=REACH,
    time=f"{REACH}*latency + ({over(PAIRS)})*message_bytes/bandwidth",
    sent=f"{SHORTER}*message_bytes",
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=("a rank stores what it receives and forwards what isn't its own", IN_TURN),
)
def fwd_bidir(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Neighbours store and forward, both ways round, along one dimension after the other."""
    return exchange(ring.all_to_all_fwd_bidir, mesh_nx, mesh_ny, mesh_nz)


def side_by_side(one: Cost, nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of parts that go along dimensions of one size in turn."""
    phases = count(nx, ny, nz)
    (level,) = one.levels
    lines = nx * ny * nz / longest(nx, ny, nz)
    return flat(
        phases * one.steps,
        level.transfer + np.zeros_like(phases),
        latencies=phases * level.latencies,
        messages=phases * level.messages,
        sent=phases * one.sent,
        carried=phases * lines * level.carried,
    )


@algorithm(
    "torus",
    "all_to_all",
    "multi_shift_bidir",
    steps=f"{DIMENSIONS}*floor({LONGEST}/2)",
    time=f"{DIMENSIONS}*floor({LONGEST}/2)*(floor({LONGEST}/2) + 1)/2*latency"
    f" + where(ranks > 1, {LONGEST}/8, 0)*message_bytes/bandwidth",
    sent=SENT,
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=("as many parts of the buffer as dimensions, their order rotated",),
    requires=(EQUAL_EVEN_SIZES,),
)
def multi_shift_bidir(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Shift by r ranks both ways at once, along all dimensions at once, a part on each."""
    one = ring.all_to_all_shift_bidir(longest(mesh_nx, mesh_ny, mesh_nz))
    return side_by_side(one, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    "all_to_all",
    "multi_fwd_bidir",
    steps=f"{DIMENSIONS}*floor({LONGEST}/2)",
    time=f"{DIMENSIONS}*floor({LONGEST}/2)*latency"
    f" + where(ranks > 1, {LONGEST}/8, 0)*message_bytes/bandwidth",
    sent=f"{SHORTER}*message_bytes",
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=("as many parts of the buffer as dimensions, their order rotated",),
    requires=(EQUAL_EVEN_SIZES,),
)
def multi_fwd_bidir(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Neighbours store and forward, along all dimensions at once, a part of the buffer on each."""
    one = ring.all_to_all_fwd_bidir(longest(mesh_nx, mesh_ny, mesh_nz))
    return side_by_side(one, mesh_nx, mesh_ny, mesh_nz)


def _greatest(template: str) -> str:
    x, y, z = (template.format(n=size) for size in ("mesh_nx", "mesh_ny", "mesh_nz"))
    return f"maximum(maximum({x}, {y}), {z})"


@algorithm(
    "torus",
    "all_to_all",
    "direct",
    steps=ONCE,
    time=f"{REACH}*latency + {_greatest(PAIRS)}*message_bytes/bandwidth",
    sent=EVERY,
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=(
        "all messages at once, along x, then y, then z, the shorter way",
        "the message to half of a ring is split",
    ),
)
def direct(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """All pairs at once, each message the shorter way round every dimension."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    along = [ring.all_to_all_direct(size) for size in sizes]
    x, y, z = (one.levels[0] for one in along)
    ranks = mesh_nx * mesh_ny * mesh_nz
    return flat(
        several(ranks),
        np.maximum(np.maximum(x.transfer, y.transfer), z.transfer),
        latencies=x.latencies + y.latencies + z.latencies,
        messages=several(ranks),
        sent=(ranks - 1.0) / ranks,
        carried=ranks * (x.carried / mesh_nx + y.carried / mesh_ny + z.carried / mesh_nz),
    )
