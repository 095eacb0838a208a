"""Broadcasts and all_to_all on a mesh; with one dimension it is a line."""

from __future__ import annotations

import numpy as np

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat, several
from overhead.collectives.grid import (
    DIMENSIONS,
    EVERY,
    LONGEST,
    MINIMAL,
    ONCE,
    exchange,
    longest,
    over,
    spread,
)
from overhead.collectives.requirement import EQUAL_SIZES
from overhead.collectives.torus_all_to_all import side_by_side
from overhead.quantity import Array

__all__ = ["broadcast_phased", "broadcast_tree_pipe", "direct", "multi_shift_line", "shift_line"]

REACH = "(mesh_nx + mesh_ny + mesh_nz - 3)"
CORNER = "the root is a corner"
WAYS = f"({over('where({n} > 1, 1, 0)')})*message_bytes"


def _ways(nx: Array, ny: Array, nz: Array) -> Array:
    """Return the neighbours of a corner."""
    return several(nx) + several(ny) + several(nz)


@algorithm(
    "mesh",
    "broadcast",
    "tree_pipe",
    steps=f"where(ranks > 1, {REACH} + chunks - 1, 0)",
    time=f"where(ranks > 1, {REACH} + chunks - 1, 0)*(latency + message_bytes/(chunks*bandwidth))",
    sent=WAYS,
    carried=MINIMAL,
    source="derivation",
    assumes=(CORNER, "it sends all ways at once"),
    mirrored=True,
)
def broadcast_tree_pipe(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Tree of shortest ways from a corner, each with every chunk."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    steps = several(ranks) * (mesh_nx + mesh_ny + mesh_nz - 3.0 + chunks - 1.0)
    sent = _ways(mesh_nx, mesh_ny, mesh_nz)
    return flat(steps, steps / chunks, sent=sent, carried=ranks - 1.0)


PHASES = over("where({n} > 1, {n} - 2 + chunks, 0)")


@algorithm(
    "mesh",
    "broadcast",
    "phased",
    steps=PHASES,
    time=f"({PHASES})*(latency + message_bytes/(chunks*bandwidth))",
    sent=WAYS,
    carried=MINIMAL,
    source="derivation",
    assumes=(CORNER, "a dimension begins when the one before has ended"),
    mirrored=True,
)
def broadcast_phased(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array, chunks: Array) -> Cost:
    """Chain from a corner along x, then from there along y, then along z."""

    def one(size: Array) -> Cost:
        steps = several(size) * (size - 2.0 + chunks)
        return flat(steps, steps / chunks, sent=several(size), carried=size - 1.0)

    return spread(one, mesh_nx, mesh_ny, mesh_nz)


# all_to_all

LOAD = "floor({n}*{n}/4)/{n}"
SENT = f"({over('({n} - 1)/{n}')})*message_bytes"
CARRIED = f"ranks*({over('({n} - 1)*({n} + 1)/(3*{n})')})*message_bytes"


def _shifted(size: Array) -> Cost:
    """Return the cost of shifts along a line, the messages past its end all the way back."""
    steps = size - 1.0
    half = np.floor(size * size / 4.0)
    return flat(
        steps,
        half / size,
        latencies=size * steps - half,
        messages=steps,
        sent=steps / size,
        carried=(size * size - 1.0) / 3.0,
    )


@algorithm(
    "mesh",
    "all_to_all",
    "shift_line",
    steps="mesh_nx + mesh_ny + mesh_nz - 3",
    time=f"({over('{n}*({n} - 1) - floor({n}*{n}/4)')})*latency"
    f" + ({over(LOAD)})*message_bytes/bandwidth",
    sent=SENT,
    carried=CARRIED,
    source="derivation",
    assumes=("one shift at a time", "x, y, z in turn, each with the whole buffer"),
)
def shift_line(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Shift by 1, 2, .. ranks along a line, one dimension after the other."""
    return exchange(_shifted, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "mesh",
    "all_to_all",
    "multi_shift_line",
    steps=f"{DIMENSIONS}*({LONGEST} - 1)",
    time=f"{DIMENSIONS}*({LONGEST}*({LONGEST} - 1) - floor({LONGEST}*{LONGEST}/4))*latency"
    f" + floor({LONGEST}*{LONGEST}/4)/{LONGEST}*message_bytes/bandwidth",
    sent=SENT,
    carried=CARRIED,
    source="derivation",
    assumes=("as many parts of the buffer as dimensions, their order rotated",),
    requires=(EQUAL_SIZES,),
)
def multi_shift_line(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Shift by 1, 2, .. ranks along lines, all dimensions at once, a part of the buffer on each."""
    one = _shifted(longest(mesh_nx, mesh_ny, mesh_nz))
    return side_by_side(one, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    "mesh",
    "all_to_all",
    "direct",
    steps=ONCE,
    time=f"{REACH}*latency + maximum(maximum({LOAD.format(n='mesh_nx')},"
    f" {LOAD.format(n='mesh_ny')}), {LOAD.format(n='mesh_nz')})*message_bytes/bandwidth",
    sent=EVERY,
    carried=CARRIED,
    source="derivation",
    assumes=("all messages at once, along x, then y, then z",),
)
def direct(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """All pairs at once, each message straight along every dimension."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    loads = [np.floor(size * size / 4.0) / size for size in sizes]
    ranks = mesh_nx * mesh_ny * mesh_nz
    passed = sum(((size * size - 1.0) / (3.0 * size) for size in sizes), start=np.float64(0))
    return flat(
        several(ranks),
        np.maximum(np.maximum(loads[0], loads[1]), loads[2]),
        latencies=mesh_nx + mesh_ny + mesh_nz - 3.0,
        messages=several(ranks),
        sent=(ranks - 1.0) / ranks,
        carried=ranks * passed,
    )
