"""Collectives on a torus: ring by ring along its dimensions, and trees over all of them."""

from __future__ import annotations

import numpy as np

from overhead.collectives import ring
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat, several
from overhead.collectives.grid import BOTH, EVERY, MINIMAL, WHOLE, bucket, over, spread
from overhead.collectives.requirement import ONE_DIMENSION
from overhead.quantity import Array

__all__ = ["all_reduce_tree_pipe", "broadcast_tree_pipe", "fan"]

HALVES = "where({n} == 2, 1/2, ({n} - 1)/(2*{n}))*{m}/bandwidth"
FAN = f"({over('minimum(2, {n} - 1)')})*message_bytes"
REACH = f"({over('floor({n}/2)')})"
IN_TURN = "the dimensions x, y, z in turn (all_gather: z, y, x), the buffer shrinking"


def fan(nx: Array, ny: Array, nz: Array) -> Array:
    """Return the neighbours to which the root of a tree sends."""
    x, y, z = (np.minimum(2.0, size - 1.0) for size in (nx, ny, nz))
    return x + y + z


def _reach(nx: Array, ny: Array, nz: Array) -> Array:
    return np.floor(nx / 2.0) + np.floor(ny / 2.0) + np.floor(nz / 2.0)


@algorithm(
    "torus",
    BOTH,
    "ring",
    steps="mesh_nx + mesh_ny + mesh_nz - 3",
    time="(mesh_nx + mesh_ny + mesh_nz - 3)*latency + (ranks - 1)/ranks*message_bytes/bandwidth",
    sent=EVERY,
    carried=MINIMAL,
    source="jain2010",
    where="bucket algorithms",
    assumes=("full-duplex links", IN_TURN),
    doubled=True,
)
def ring_by_ring(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Ring along one dimension after the other."""
    return bucket(ring.bucket, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    BOTH,
    "ring_split",
    steps="mesh_nx + mesh_ny + mesh_nz - 3",
    time=f"(mesh_nx + mesh_ny + mesh_nz - 3)*latency + {over(HALVES)}",
    sent=EVERY,
    carried=MINIMAL,
    source="scalingbook",
    where="chapter 3 (bandwidth of both directions)",
    assumes=("full-duplex links", "both directions at once", IN_TURN),
    doubled=True,
)
def ring_split(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Two rings along one dimension after the other, half of the buffer each way round."""
    return bucket(ring.bucket_split, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "torus",
    BOTH,
    "ring_short",
    steps=REACH,
    time=f"{REACH}*latency + {over(HALVES)}",
    sent=EVERY,
    carried=MINIMAL,
    source="scalingbook",
    where="chapter 3 (every block spreads both ways)",
    assumes=("full-duplex links", "both directions at once", IN_TURN),
    doubled=True,
)
def ring_short(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Every block spreads both ways round, along one dimension after the other."""
    return bucket(ring.bucket_short, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    ("torus", "mesh"),
    "all_reduce",
    "tree_pipe",
    steps=f"where(ranks > 1, 2*{REACH} + chunks - 1, 0)",
    time=f"where(ranks > 1, 2*{REACH} + chunks - 1, 0)"
    "*(latency + message_bytes/(chunks*bandwidth))",
    sent=FAN,
    carried=f"2*{MINIMAL}",
    source="derivation",
    assumes=("reduce to a centre and broadcast from it overlap, chunk by chunk",),
)
def all_reduce_tree_pipe(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Reduce to a centre and broadcast from it, pipelined over chunks."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    steps = several(ranks) * (2.0 * _reach(mesh_nx, mesh_ny, mesh_nz) + chunks - 1.0)
    sent = fan(mesh_nx, mesh_ny, mesh_nz)
    return flat(steps, steps / chunks, sent=sent, carried=2.0 * (ranks - 1.0), reduced=sent)


@algorithm(
    "torus",
    "broadcast",
    "tree_pipe",
    steps=f"where(ranks > 1, {REACH} + chunks - 1, 0)",
    time=f"where(ranks > 1, {REACH} + chunks - 1, 0)*(latency + message_bytes/(chunks*bandwidth))",
    sent=FAN,
    carried=MINIMAL,
    source="derivation",
    assumes=("the root sends all ways at once",),
    mirrored=True,
)
def broadcast_tree_pipe(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Tree of shortest ways from the root, each with every chunk."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    steps = several(ranks) * (_reach(mesh_nx, mesh_ny, mesh_nz) + chunks - 1.0)
    sent = fan(mesh_nx, mesh_ny, mesh_nz)
    return flat(steps, steps / chunks, sent=sent, carried=ranks - 1.0)


PHASES = over("where({n} > 1, floor({n}/2) + chunks - 1, 0)")


@algorithm(
    "torus",
    "broadcast",
    "phased",
    steps=PHASES,
    time=f"({PHASES})*(latency + message_bytes/(chunks*bandwidth))",
    sent=FAN,
    carried=MINIMAL,
    source="derivation",
    assumes=("a dimension begins when the one before has ended",),
    mirrored=True,
)
def broadcast_phased(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Broadcast both ways round along x, then from there along y, then along z."""

    def one(size: Array) -> Cost:
        return ring.broadcast_tree_pipe(size, chunks)

    return spread(one, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    ("torus", "mesh"),
    "broadcast",
    "chain",
    steps="where(ranks > 1, ranks - 2 + chunks, 0)",
    time="where(ranks > 1, ranks - 2 + chunks, 0)*(latency + message_bytes/(chunks*bandwidth))",
    sent=WHOLE,
    carried=MINIMAL,
    source="chan2007",
    assumes=("a rank sends a chunk on while it receives the next",),
    requires=(ONE_DIMENSION,),
    mirrored=True,
)
def broadcast_chain(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Chain along the one dimension: the chunks follow one another."""
    return ring.broadcast_chain(mesh_nx * mesh_ny * mesh_nz, chunks)


@algorithm(
    "torus",
    "broadcast",
    "two_chains",
    steps="where(ranks > 1, ranks - 2 + chunks, 0)",
    time="where(ranks > 1, ranks - 2 + chunks, 0)"
    "*(latency + message_bytes/(where(ranks == 2, 1, 2)*chunks*bandwidth))",
    sent=WHOLE,
    carried=MINIMAL,
    source="derivation",
    assumes=("both directions at once",),
    requires=(ONE_DIMENSION,),
    mirrored=True,
)
def broadcast_two_chains(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Two chains round the one dimension, half of the buffer each way."""
    return ring.broadcast_two_chains(mesh_nx * mesh_ny * mesh_nz, chunks)
