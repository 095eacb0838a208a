"""Collectives on a mesh, a torus without its wraparound links; with one dimension it is a line."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

from overhead.arrays import xp
from overhead.collectives import ring
from overhead.collectives.algorithm import BOTH, CHUNK, EVERY, MINIMAL, algorithm, network
from overhead.collectives.bounds import across_halves
from overhead.collectives.cost import Cost, flat, several, twice
from overhead.collectives.grid import (
    DIMENSIONS,
    EQUAL_SIZES,
    GRID_FITS,
    LONGEST,
    SIZES,
    TWO_DIMENSIONS,
    bucket,
    count,
    exchange,
    longest,
    over,
    spread,
)
from overhead.collectives.torus import (
    BARRIER,
    IN_TURN,
    PARTS,
    RING,
    bytes_side_by_side,
    in_three_phases,
    side_by_side,
    staircase,
)
from overhead.formula import derived
from overhead.quantity import Array

on_mesh = partial(algorithm, "mesh")

STEPS = "mesh_nx + mesh_ny + mesh_nz - 3"
SPREAD = "each block spreads in both directions of a line"
# What the busiest rank sends to gather along a line, in messages: inner ranks forward both ways.
FORWARDED = "where({n} > 2, ({n} + 1)/{n}, ({n} - 1)/{n})"

network(
    "mesh",
    position=5,
    standard={
        **dict.fromkeys(("all_reduce", *BOTH), "line"),
        **dict.fromkeys(("broadcast", "reduce"), "tree_pipe"),
        "all_to_all": "shift_line",
        "p2p": "direct",
    },
    tree="tree_pipe",
    requires=(GRID_FITS,),
    grid=True,
)


# Measures: the distance, the ports, the links and the cut that no schedule can do without.


@derived(returns="diameter", assumes=("a broadcast starts in a corner",), when={"topology": "mesh"})
def mesh_diameter(mesh_nx, mesh_ny, mesh_nz):
    """Distance from corner to corner of a mesh."""
    return mesh_nx + mesh_ny + mesh_nz - 3.0


@derived(returns="min_degree", when={"topology": "mesh"})
def mesh_ports(mesh_nx, mesh_ny, mesh_nz):
    """Links out of a corner of a mesh."""
    ports = sum(xp.minimum(size - 1.0, 1.0) for size in (mesh_nx, mesh_ny, mesh_nz))
    return xp.maximum(ports, 1.0)


@derived(returns="links", when={"topology": "mesh"})
def mesh_links(mesh_nx, mesh_ny, mesh_nz):
    """Links of a mesh, both directions."""
    faces = mesh_ny * mesh_nz + mesh_nx * mesh_nz + mesh_nx * mesh_ny
    return xp.asarray(xp.maximum(2.0 * (3.0 * mesh_nx * mesh_ny * mesh_nz - faces), 1.0))


@derived(returns="all_to_all_cut_load", when={"topology": "mesh"})
def mesh_pair_cut(mesh_nx, mesh_ny, mesh_nz):
    """Load of the mesh links at the bisection across the worst dimension."""
    return xp.maximum(
        xp.maximum(across_halves(mesh_nx), across_halves(mesh_ny)), across_halves(mesh_nz)
    )


# Algorithms.


def _forwarded(size):
    return xp.where(size > 2.0, size + 1.0, size - 1.0) / size


def along_line(size: Array) -> Cost:
    """Return the cost of a reduce_scatter along a line."""
    steps = size - 1.0
    share = steps / size
    return flat(steps, share, sent=share, carried=steps, reduced=_forwarded(size))


def gathered_along_line(size: Array) -> Cost:
    """Return the cost of an all_gather along a line."""
    steps = size - 1.0
    return flat(steps, steps / size, sent=_forwarded(size), carried=steps)


LINE_TIME = f"({STEPS})*latency + (ranks - 1)/ranks*message_bytes/bandwidth"


@on_mesh(
    "reduce_scatter",
    "line",
    time=LINE_TIME,
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(SPREAD, IN_TURN),
)
def line(mesh_nx, mesh_ny, mesh_nz):
    """Every block comes in from both ends of a line, along one dimension after the other."""
    return bucket(along_line, mesh_nx, mesh_ny, mesh_nz)


@on_mesh(
    "all_gather",
    "line",
    time=LINE_TIME,
    carried=MINIMAL,
    source="derivation",
    assumes=(SPREAD, IN_TURN),
)
def all_gather_line(mesh_nx, mesh_ny, mesh_nz):
    """Every block spreads to both ends of a line, along one dimension after the other."""
    return bucket(gathered_along_line, mesh_nx, mesh_ny, mesh_nz)


def _both(scatter: Cost, gather: Cost) -> Cost:
    """Return the cost of an all_reduce; its two halves differ in what ranks send."""
    return replace(twice(scatter), sent=scatter.sent + gather.sent)


@on_mesh(
    "all_reduce",
    "line",
    time=f"2*({LINE_TIME})",
    carried=f"2*{MINIMAL}",
    source="derivation",
    assumes=(SPREAD, IN_TURN),
)
def all_reduce_line(mesh_nx, mesh_ny, mesh_nz):
    """Reduce_scatter and all_gather along lines, one dimension after the other."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    return _both(bucket(along_line, *sizes), bucket(gathered_along_line, *sizes))


# All dimensions at once, a part of the buffer on each.

MULTI_STEPS = f"{DIMENSIONS}*({LONGEST} - 1)"
MULTI_TIME = f"{MULTI_STEPS}*latency + {RING}*message_bytes/bandwidth"

X, Y, Z = (FORWARDED.format(n=size) for size in SIZES)
SENT_BY_PARTS = (
    f"(where(mesh_nx > 1, {X} + {Y}/mesh_nx + {Z}/(mesh_nx*mesh_ny), 0)"
    f" + where(mesh_ny > 1, {Y} + {Z}/mesh_ny + {X}/(mesh_ny*mesh_nz), 0)"
    f" + where(mesh_nz > 1, {Z} + {X}/mesh_nz + {Y}/(mesh_nz*mesh_nx), 0))"
    f"/{DIMENSIONS}*message_bytes"
)


def _multi(sizes: tuple[Array, Array, Array], sent: Array, reduced: Array) -> Cost:
    slowest = partial(staircase, [size - 1.0 for size in sizes])
    return flat(
        count(*sizes) * (longest(*sizes) - 1.0),
        in_three_phases(slowest, *sizes),
        sent=sent,
        carried=sizes[0] * sizes[1] * sizes[2] - 1.0,
        reduced=reduced,
    )


@on_mesh(
    "reduce_scatter",
    "multi_line",
    steps=MULTI_STEPS,
    time=MULTI_TIME,
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(SPREAD, PARTS, BARRIER),
)
def multi_line(mesh_nx, mesh_ny, mesh_nz):
    """Every block comes in from both ends of a line, along all dimensions at once."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    ranks = mesh_nx * mesh_ny * mesh_nz
    return _multi(sizes, (ranks - 1.0) / ranks, bytes_side_by_side(_forwarded, *sizes))


@on_mesh(
    "all_gather",
    "multi_line",
    steps=MULTI_STEPS,
    time=MULTI_TIME,
    sent=SENT_BY_PARTS,
    carried=MINIMAL,
    source="derivation",
    assumes=(SPREAD, PARTS, BARRIER),
)
def all_gather_multi_line(mesh_nx, mesh_ny, mesh_nz):
    """Every block spreads to both ends of a line, along all dimensions at once."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    sent = bytes_side_by_side(_forwarded, *sizes)
    return _multi(sizes, sent, xp.zeros_like(sent))


@on_mesh(
    "all_reduce",
    "multi_line",
    steps=f"2*{MULTI_STEPS}",
    time=f"2*({MULTI_TIME})",
    sent=f"{EVERY} + {SENT_BY_PARTS}",
    carried=f"2*{MINIMAL}",
    source="derivation",
    assumes=(SPREAD, PARTS, BARRIER),
)
def all_reduce_multi_line(mesh_nx, mesh_ny, mesh_nz):
    """Reduce_scatter and all_gather along lines, all dimensions at once, a part on each."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    return _both(multi_line(*sizes), all_gather_multi_line(*sizes))


# Logical rings laid over lines.


def _laid(size: Array, longest_hop: Array) -> Cost:
    """Return the cost of a ring of which a step's longest message passes so many links."""
    steps = size - 1.0
    share = steps / size
    return flat(
        steps,
        share,
        latencies=longest_hop * steps,
        messages=steps,
        sent=share,
        carried=2.0 * steps * share,
        reduced=share,
    )


@on_mesh(
    BOTH,
    "wrap",
    time=f"({over('({n} - 1)*({n} - 1)')})*latency + (ranks - 1)/ranks*message_bytes/bandwidth",
    sent=EVERY,
    source="chan2007",
    where="ring on a linear array; there a message pays one latency whatever its path",
    assumes=("the message of the last rank returns over the full line", IN_TURN),
    doubled=True,
)
def wrap(mesh_nx, mesh_ny, mesh_nz):
    """Ring in the order of a line, along one dimension after the other."""
    return bucket(lambda size: _laid(size, size - 1.0), mesh_nx, mesh_ny, mesh_nz)


@on_mesh(
    BOTH,
    "folded",
    time=f"({over('where({n} > 2, 2, 1)*({n} - 1)')})*latency"
    " + (ranks - 1)/ranks*message_bytes/bandwidth",
    sent=EVERY,
    source="derivation",
    assumes=("a ring up over every other rank and back over the rest", IN_TURN),
    doubled=True,
)
def folded(mesh_nx, mesh_ny, mesh_nz):
    """Ring that goes up a line and back, along one dimension after the other."""

    def one(size: Array) -> Cost:
        return _laid(size, xp.where(size > 2.0, 2.0, 1.0))

    return bucket(one, mesh_nx, mesh_ny, mesh_nz)


@on_mesh(
    BOTH,
    "hamilton",
    source="derivation",
    assumes=("a tour from neighbour to neighbour; with odd sizes its end is far from its start",),
    requires=(TWO_DIMENSIONS,),
    doubled=True,
)
def hamilton(mesh_nx, mesh_ny, mesh_nz):
    """Ring through all ranks of two dimensions."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    across = xp.maximum(mesh_nx + mesh_ny + mesh_nz - 3.0, 1.0)
    # Links of the way from the tour's end to its start, which are neighbours if a size is even.
    back = xp.where(ranks % 2.0 == 0.0, 1.0, across)
    steps = ranks - 1.0
    share = steps / ranks
    return flat(
        steps,
        share,
        latencies=steps * back,
        messages=steps,
        sent=share,
        carried=share * (steps + back),
        reduced=share,
    )


# Broadcasts and all_to_all on a mesh; with one dimension it is a line.

REACH = f"({STEPS})"
CORNER = "the root is a corner"


@on_mesh(
    "broadcast",
    "tree_pipe",
    time=f"where(ranks > 1, {REACH} + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=(CORNER, "it sends on all links concurrently"),
    mirrored=True,
)
def broadcast_tree_pipe(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Tree of shortest ways from a corner, each with every chunk."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    steps = several(ranks) * (mesh_nx + mesh_ny + mesh_nz - 3.0 + chunks - 1.0)
    sent = several(mesh_nx) + several(mesh_ny) + several(mesh_nz)
    return flat(steps, steps / chunks, sent=sent, carried=ranks - 1.0)


PHASES = over("where({n} > 1, {n} - 2 + chunks, 0)")


@on_mesh(
    "broadcast",
    "phased",
    time=f"({PHASES})*{CHUNK}",
    carried=MINIMAL,
    source="derivation",
    assumes=(CORNER, "a dimension begins when the one before has ended"),
    mirrored=True,
)
def broadcast_phased(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Chain from a corner along x, then from there along y, then along z."""

    def one(size: Array) -> Cost:
        return ring.broadcast_chain(size, chunks)

    return spread(one, mesh_nx, mesh_ny, mesh_nz)


# all_to_all

SENT = f"({over('({n} - 1)/{n}')})*message_bytes"
CARRIED = f"ranks*({over('({n} - 1)*({n} + 1)/(3*{n})')})*message_bytes"


def _shifted(size: Array) -> Cost:
    """Return the cost of shifts along a line, the messages past its end all the way back."""
    steps = size - 1.0
    half = xp.floor(size * size / 4.0)
    return flat(
        steps,
        half / size,
        latencies=size * steps - half,
        messages=steps,
        sent=steps / size,
        carried=(size * size - 1.0) / 3.0,
    )


@on_mesh(
    "all_to_all",
    "shift_line",
    source="derivation",
    assumes=("one shift at a time", "x, y, z sequentially, each with the full buffer"),
)
def shift_line(mesh_nx, mesh_ny, mesh_nz):
    """Shift by 1, 2, .. ranks along a line, one dimension after the other."""
    return exchange(_shifted, mesh_nx, mesh_ny, mesh_nz)


@on_mesh(
    "all_to_all",
    "multi_shift_line",
    sent=SENT,
    carried=CARRIED,
    source="derivation",
    assumes=(PARTS,),
    requires=(EQUAL_SIZES,),
)
def multi_shift_line(mesh_nx, mesh_ny, mesh_nz):
    """Shift by 1, 2, .. ranks along lines, all dimensions at once, a part of the buffer on each."""
    ring_cost = _shifted(longest(mesh_nx, mesh_ny, mesh_nz))
    return side_by_side(ring_cost, mesh_nx, mesh_ny, mesh_nz)


@on_mesh(
    "all_to_all",
    "direct",
    source="derivation",
    assumes=("all messages concurrent, along x, then y, then z",),
)
def direct(mesh_nx, mesh_ny, mesh_nz):
    """All pairs at once, each message straight along every dimension."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    loads = [xp.floor(size * size / 4.0) / size for size in sizes]
    ranks = mesh_nx * mesh_ny * mesh_nz
    passed = sum(((size * size - 1.0) / (3.0 * size) for size in sizes), start=0.0)
    return flat(
        several(ranks),
        reduce(xp.maximum, loads),
        latencies=mesh_nx + mesh_ny + mesh_nz - 3.0,
        messages=several(ranks),
        sent=(ranks - 1.0) / ranks,
        carried=ranks * passed,
    )
