"""Collectives on a torus: ring by ring along its dimensions, and trees over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations

from overhead.arrays import xp
from overhead.collectives import ring
from overhead.collectives.algorithm import BOTH, CHAIN, CHUNK, EVERY, MINIMAL, algorithm, network
from overhead.collectives.bounds import across_halves
from overhead.collectives.cost import Cost, flat, several
from overhead.collectives.grid import (
    DIMENSIONS,
    EQUAL_EVEN_SIZES,
    FOLLOWING,
    GRID_FITS,
    LONGEST,
    MIDDLE,
    ONE_DIMENSION,
    SHORTEST,
    SIZES,
    bucket,
    count,
    exchange,
    longest,
    over,
    spread,
)
from overhead.formula import derived
from overhead.quantity import Array

on_torus = partial(algorithm, "torus")
on_rings = partial(on_torus, BOTH, sent=EVERY, carried=MINIMAL, doubled=True)

Part = tuple[Array, Array]  # Its length and its height

# Parts of the buffer side by side, each on another dimension: a step lasts as long as the slowest
# part that still is at work.


def staircase(lengths: Sequence[Array], heights: Sequence[Array]) -> Array:
    """Return the sum over steps of the slowest of several parts."""
    parts = list(zip(lengths, heights, strict=True))
    # Sorted pair by pair, the longest first, as a page's tracing can follow: it holds no array.
    for end in range(len(parts) - 1, 0, -1):
        for position in range(end):
            parts[position : position + 2] = _longer_first(*parts[position : position + 2])
    total: Array | float = 0.0
    slowest = parts[0][1]
    for index, (length, height) in enumerate(parts):
        slowest = xp.maximum(slowest, height)
        after = parts[index + 1][0] if index + 1 < len(parts) else 0.0
        total = total + (length - after) * slowest
    return xp.asarray(total)


def _longer_first(first: Part, other: Part) -> list[Part]:
    """Return two parts, each of a length and a height, in the order of their lengths."""
    swapped = other[0] > first[0]
    return [
        (xp.maximum(first[0], other[0]), xp.where(swapped, other[1], first[1])),
        (xp.minimum(first[0], other[0]), xp.where(swapped, first[1], other[1])),
    ]


def in_three_phases(
    slowest: Callable[[tuple[Array, ...]], Array], nx: Array, ny: Array, nz: Array
) -> Array:
    """Return the transfer of parts that go along the dimensions in turn, in messages."""
    ranks = nx * ny * nz
    parts = count(nx, ny, nz)
    first = slowest((1.0 / nx, 1.0 / ny, 1.0 / nz))
    second = xp.where(parts > 2.0, slowest((ny / ranks, nz / ranks, nx / ranks)), 0.0)
    last = xp.where(parts > 1.0, slowest((1.0 / ranks, 1.0 / ranks, 1.0 / ranks)), 0.0)
    return (first + second + last) / parts


def bytes_side_by_side(sent: Callable[[Array], Array], nx: Array, ny: Array, nz: Array) -> Array:
    """Return what a rank sends when parts of the buffer go along the dimensions in turn."""
    x, y, z = sent(nx), sent(ny), sent(nz)
    parts = (
        xp.where(nx > 1.0, x + y / nx + z / (nx * ny), 0.0)
        + xp.where(ny > 1.0, y + z / ny + x / (ny * nz), 0.0)
        + xp.where(nz > 1.0, z + x / nz + y / (nz * nx), 0.0)
    )
    return parts / count(nx, ny, nz)


def union(shared: Callable[[tuple[str, ...], tuple[str, ...]], str], heights: str) -> str:
    """Return the expression of the sum over steps of the slowest of three parts.

    It is the area of a union, the area below each part's staircase over its steps: by inclusion
    and exclusion.
    """
    high = {
        size: heights.format(n=size, other=other)
        for size, other in zip(SIZES, FOLLOWING, strict=True)
    }
    terms = {
        number: [
            shared(sizes, tuple(high[size] for size in sizes))
            for sizes in combinations(SIZES, number)
        ]
        for number in (1, 2, 3)
    }
    return " - ".join([" + ".join(terms[1]), *terms[2]]) + f" + {terms[3][0]}"


REACH = f"({over('floor({n}/2)')})"
IN_TURN = "the dimensions x, y, z sequentially (all-gather: z, y, x), with a shrinking buffer"

network(
    "torus",
    position=6,
    standard={
        **dict.fromkeys(("all_reduce", *BOTH), "ring"),
        **dict.fromkeys(("broadcast", "reduce"), "tree_pipe"),
        "all_to_all": "shift_bidir",
        "p2p": "direct",
    },
    tree="tree_pipe",
    requires=(GRID_FITS,),
    grid=True,
)


# Measures: the distance, the ports and the cut that no schedule can do without.


@derived(returns="diameter", when={"topology": "torus"})
def torus_diameter(mesh_nx, mesh_ny, mesh_nz):
    """Distance half round a torus in every dimension."""
    return xp.floor(mesh_nx / 2.0) + xp.floor(mesh_ny / 2.0) + xp.floor(mesh_nz / 2.0)


@derived(returns="min_degree", when={"topology": "torus"})
def torus_ports(mesh_nx, mesh_ny, mesh_nz):
    """Links out of a rank of a torus; a dimension of two ranks has one cable."""
    ports = sum(xp.minimum(size - 1.0, 2.0) for size in (mesh_nx, mesh_ny, mesh_nz))
    return xp.maximum(ports, 1.0)


@derived(returns="all_to_all_cut_load", when={"topology": "torus"})
def torus_pair_cut(mesh_nx, mesh_ny, mesh_nz):
    """Load of the torus links at the bisection across the worst dimension."""
    loads = [across_halves(n) / xp.where(n > 2.0, 2.0, 1.0) for n in (mesh_nx, mesh_ny, mesh_nz)]
    return longest(*loads)


# Algorithms.


def fan(nx: Array, ny: Array, nz: Array) -> Array:
    """Return the neighbours to which the root of a tree sends."""
    x, y, z = (xp.minimum(2.0, size - 1.0) for size in (nx, ny, nz))
    return x + y + z


def _reach(nx, ny, nz):
    return xp.floor(nx / 2.0) + xp.floor(ny / 2.0) + xp.floor(nz / 2.0)


@on_rings(
    "ring",
    time="(mesh_nx + mesh_ny + mesh_nz - 3)*latency + (ranks - 1)/ranks*message_bytes/bandwidth",
    source="jain2010",
    where="bucket algorithms",
    assumes=("full-duplex links", IN_TURN),
)
def ring_by_ring(mesh_nx, mesh_ny, mesh_nz):
    """Ring along one dimension after the other."""
    return bucket(ring.bucket, mesh_nx, mesh_ny, mesh_nz)


@on_rings(
    "ring_split",
    source="scalingbook",
    where="chapter 3 (bandwidth of both directions)",
    assumes=("full-duplex links", "both directions concurrent", IN_TURN),
)
def ring_split(mesh_nx, mesh_ny, mesh_nz):
    """Two rings along one dimension after the other, half of the buffer each way round."""
    return bucket(ring.bucket_split, mesh_nx, mesh_ny, mesh_nz)


@on_rings(
    "ring_short",
    source="scalingbook",
    where="chapter 3 (every block spreads both ways)",
    assumes=("full-duplex links", "both directions concurrent", IN_TURN),
)
def ring_short(mesh_nx, mesh_ny, mesh_nz):
    """Every block spreads both ways round, along one dimension after the other."""
    return bucket(ring.bucket_short, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    ("torus", "mesh"),
    "all_reduce",
    "tree_pipe",
    time=f"where(ranks > 1, 2*{REACH} + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("reduce to a centre and broadcast from it overlap, chunk by chunk",),
)
def all_reduce_tree_pipe(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Reduce to a centre and broadcast from it, pipelined over chunks."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    steps = several(ranks) * (2.0 * _reach(mesh_nx, mesh_ny, mesh_nz) + chunks - 1.0)
    sent = fan(mesh_nx, mesh_ny, mesh_nz)
    return flat(steps, steps / chunks, sent=sent, carried=2.0 * (ranks - 1.0), reduced=sent)


@on_torus(
    "broadcast",
    "tree_pipe",
    time=f"where(ranks > 1, {REACH} + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("the root sends on all links concurrently",),
    mirrored=True,
)
def broadcast_tree_pipe(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Tree of shortest ways from the root, each with every chunk."""
    ranks = mesh_nx * mesh_ny * mesh_nz
    steps = several(ranks) * (_reach(mesh_nx, mesh_ny, mesh_nz) + chunks - 1.0)
    sent = fan(mesh_nx, mesh_ny, mesh_nz)
    return flat(steps, steps / chunks, sent=sent, carried=ranks - 1.0)


PHASES = over("where({n} > 1, floor({n}/2) + chunks - 1, 0)")


@on_torus(
    "broadcast",
    "phased",
    time=f"({PHASES})*{CHUNK}",
    carried=MINIMAL,
    source="derivation",
    assumes=("a dimension begins when the one before has ended",),
    mirrored=True,
)
def broadcast_phased(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Broadcast both ways round along x, then from there along y, then along z."""

    def one(size: Array) -> Cost:
        return ring.broadcast_tree_pipe(size, chunks)

    return spread(one, mesh_nx, mesh_ny, mesh_nz)


@algorithm(
    ("torus", "mesh"),
    "broadcast",
    "chain",
    time=CHAIN,
    source="chan2007",
    assumes=("a rank sends a chunk on while it receives the next",),
    requires=(ONE_DIMENSION,),
    mirrored=True,
)
def broadcast_chain(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Chain along the one dimension: the chunks follow one another."""
    return ring.broadcast_chain(mesh_nx * mesh_ny * mesh_nz, chunks)


@on_torus(
    "broadcast",
    "two_chains",
    time="where(ranks > 1, ranks - 2 + chunks, 0)"
    "*(latency + message_bytes/(where(ranks == 2, 1, 2)*chunks*bandwidth))",
    source="derivation",
    assumes=("both directions concurrent",),
    requires=(ONE_DIMENSION,),
    mirrored=True,
)
def broadcast_two_chains(mesh_nx, mesh_ny, mesh_nz, chunks):
    """Two chains round the one dimension, half of the buffer each way."""
    return ring.broadcast_two_chains(mesh_nx * mesh_ny * mesh_nz, chunks)


# Reduce_scatter, all_gather and all_reduce on a torus with all its dimensions at work at once.
#
# The buffer is cut into as many parts as there are dimensions above 1.  Each part goes ring by ring
# along all of them, each beginning with another, and a phase lasts until its slowest part is
# through.

PARTS = "as many parts of the buffer as dimensions, their order rotated"
BARRIER = "a phase begins when every part has ended the one before"
ASSUMES = ("full-duplex links", PARTS, BARRIER)


def rotated(first: str, second: str, last: str) -> str:
    """Return the expression of the transfer, in messages, from those of its three phases."""
    return (
        f"({first} + where({DIMENSIONS} > 2, {second}, 0) + where({DIMENSIONS} > 1, {last}, 0))"
        f"/{DIMENSIONS}"
    )


def _minimum(terms: tuple[str, ...]) -> str:
    least = terms[0]
    for term in terms[1:]:
        least = f"minimum({least}, {term})"
    return least


def _steady(sizes: tuple[str, ...], heights: tuple[str, ...]) -> str:
    return f"({_minimum(sizes)} - 1)*{_minimum(heights)}"


def _sorted(step: str) -> str:
    """Return the expression of a phase in which the shorter dimensions' steps are the longer."""
    short, middle, long = (step.format(n=size) for size in (SHORTEST, MIDDLE, LONGEST))
    return (
        f"({SHORTEST} - 1)*{short} + ({MIDDLE} - {SHORTEST})*{middle}"
        f" + ({LONGEST} - {MIDDLE})*{long}"
    )


STEPS = f"{DIMENSIONS}*({LONGEST} - 1)"
RING = rotated(_sorted("1/{n}"), union(_steady, "{other}/ranks"), f"({LONGEST} - 1)/ranks")


def _rings(nx: Array, ny: Array, nz: Array, halved: Array | float) -> Cost:
    """Return the cost of parts on rings; `halved` is the share of a block that a step moves."""
    lengths = (nx - 1.0, ny - 1.0, nz - 1.0)
    shares = [xp.where(size == 2.0, 1.0, halved) for size in (nx, ny, nz)]

    def slowest(heights: tuple[Array, ...]) -> Array:
        x, y, z = (height * share for height, share in zip(heights, shares, strict=True))
        return staircase(lengths, (x, y, z))

    return _whole(
        (longest(nx, ny, nz) - 1.0) * count(nx, ny, nz),
        in_three_phases(slowest, nx, ny, nz),
        nx * ny * nz,
    )


def _whole(steps: Array, transfer: Array, ranks: Array) -> Cost:
    share = (ranks - 1.0) / ranks
    return flat(steps, transfer, sent=share, carried=ranks - 1.0, reduced=share)


@on_rings(
    "multi_ring",
    steps=STEPS,
    time=f"{STEPS}*latency + {RING}*message_bytes/bandwidth",
    source="jain2010",
    where="for equal sizes; the sum for unequal ones is derived here",
    assumes=ASSUMES,
)
def multi_ring(mesh_nx, mesh_ny, mesh_nz):
    """Rings along all dimensions at once, a part of the buffer on each."""
    return _rings(mesh_nx, mesh_ny, mesh_nz, 1.0)


HALF = "where({n} == 2, 1, 1/2)"
SPLIT = rotated(
    _sorted(f"{HALF}/{{n}}"),
    union(_steady, f"{HALF}*{{other}}/ranks"),
    f"({LONGEST} - 1 + where((mesh_nx == 2) | (mesh_ny == 2) | (mesh_nz == 2), 1, 0))/(2*ranks)",
)


@on_rings(
    "multi_ring_split",
    steps=STEPS,
    time=f"{STEPS}*latency + {SPLIT}*message_bytes/bandwidth",
    source="jain2010",
    where="for equal sizes; the sum for unequal ones is derived here",
    assumes=(*ASSUMES, "both directions concurrent"),
)
def multi_ring_split(mesh_nx, mesh_ny, mesh_nz):
    """Two rings along all dimensions at once, a part of the buffer on each, half each way round."""
    return _rings(mesh_nx, mesh_ny, mesh_nz, 0.5)


# Every block both ways round: on a dimension of even size above 2 the last step moves half blocks.
# Size 2 has one cable, and moves half of the buffer in its one step: so it has twice the height.

DOUBLED = "where({n} == 2, 2, 1)"


def _treads(sizes: tuple[str, ...], heights: tuple[str, ...]) -> str:
    length = f"floor({_minimum(sizes)}/2)"
    last = tuple(
        f"{height}*minimum(1, ({size} + 1)/2 - {length})"
        for size, height in zip(sizes, heights, strict=True)
    )
    return f"(({length} - 1)*{_minimum(heights)} + {_minimum(last)})"


SHORT_STEPS = f"{DIMENSIONS}*floor({LONGEST}/2)"
SHORT = rotated(
    union(_treads, f"{DOUBLED}/{{n}}"),
    union(_treads, f"{DOUBLED}*{{other}}/ranks"),
    f"where({LONGEST} == 2, 1, ({LONGEST} - 1)/2)/ranks",
)


@on_rings(
    "multi_ring_short",
    steps=SHORT_STEPS,
    time=f"{SHORT_STEPS}*latency + {SHORT}*message_bytes/bandwidth",
    source="scalingbook",
    where="chapter 3, for equal sizes; the sum for unequal ones is derived here",
    assumes=(*ASSUMES, "both directions concurrent"),
)
def multi_ring_short(mesh_nx, mesh_ny, mesh_nz):
    """Every block spreads both ways round, along all dimensions at once, a part on each."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    lengths = [xp.floor(size / 2.0) for size in sizes]
    full = [xp.where(size == 2.0, 1.0, xp.floor((size - 1.0) / 2.0)) for size in sizes]

    def slowest(heights: tuple[Array, ...]) -> Array:
        return staircase([*full, *lengths], [*heights, *(height / 2.0 for height in heights)])

    return _whole(
        xp.floor(longest(*sizes) / 2.0) * count(*sizes),
        in_three_phases(slowest, *sizes),
        mesh_nx * mesh_ny * mesh_nz,
    )


# all_to_all on a torus: dimension by dimension, parts of the buffer side by side, or directly.

WHOLE_IN_TURN = "the dimensions x, y, z sequentially, each with the full buffer"
SENT = f"({over('({n} - 1)/{n}')})*message_bytes"
ONE_WAY = f"({over('({n} - 1)/2')})"
SHORTER = f"({over('floor({n}*{n}/4)/{n}')})"


@on_torus(
    "all_to_all",
    "shift_uni",
    carried=f"ranks*{ONE_WAY}*message_bytes",
    source="derivation",
    assumes=("one direction only", WHOLE_IN_TURN),
)
def shift_uni(mesh_nx, mesh_ny, mesh_nz):
    """Shift by 1, 2, .. ranks, all one way round, along one dimension after the other."""
    return exchange(ring.all_to_all_shift_uni, mesh_nx, mesh_ny, mesh_nz)


@on_torus(
    "all_to_all",
    "shift_min",
    source="derivation",
    assumes=("each shift the shorter way", "one shift at a time", WHOLE_IN_TURN),
)
def shift_min(mesh_nx, mesh_ny, mesh_nz):
    """Shift by 1, 2, .. ranks, each the shorter way, along one dimension after the other."""
    return exchange(ring.all_to_all_shift_min, mesh_nx, mesh_ny, mesh_nz)


@on_torus(
    "all_to_all",
    "shift_bidir",
    source="scalingbook",
    where="chapter 3 (bandwidth)",
    assumes=("shifts by +r and -r together", "the shift by half a ring is split", WHOLE_IN_TURN),
)
def shift_bidir(mesh_nx, mesh_ny, mesh_nz):
    """Shift by r ranks both ways at once, along one dimension after the other."""
    return exchange(ring.all_to_all_shift_bidir, mesh_nx, mesh_ny, mesh_nz)


@on_torus(
    "all_to_all",
    "fwd_uni",
    carried=f"ranks*{ONE_WAY}*message_bytes",
    source="derivation",
    assumes=(ring.FORWARDS, WHOLE_IN_TURN),
)
def fwd_uni(mesh_nx, mesh_ny, mesh_nz):
    """Neighbours store and forward, one way round, along one dimension after the other."""
    return exchange(ring.all_to_all_fwd_uni, mesh_nx, mesh_ny, mesh_nz)


@on_torus("all_to_all", "fwd_bidir", source="derivation", assumes=(ring.FORWARDS, WHOLE_IN_TURN))
def fwd_bidir(mesh_nx, mesh_ny, mesh_nz):
    """Neighbours store and forward, both ways round, along one dimension after the other."""
    return exchange(ring.all_to_all_fwd_bidir, mesh_nx, mesh_ny, mesh_nz)


def side_by_side(line: Cost, nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of parts that go along dimensions of one size in turn."""
    phases = count(nx, ny, nz)
    (level,) = line.levels
    lines = nx * ny * nz / longest(nx, ny, nz)
    return flat(
        phases * line.steps,
        level.transfer + xp.zeros_like(phases),
        latencies=phases * level.latencies,
        messages=phases * level.messages,
        sent=phases * line.sent,
        carried=phases * lines * level.carried,
    )


@on_torus(
    "all_to_all",
    "multi_shift_bidir",
    time=f"{DIMENSIONS}*floor({LONGEST}/2)*(floor({LONGEST}/2) + 1)/2*latency"
    f" + where(ranks > 1, {LONGEST}/8, 0)*message_bytes/bandwidth",
    sent=SENT,
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=(PARTS,),
    requires=(EQUAL_EVEN_SIZES,),
)
def multi_shift_bidir(mesh_nx, mesh_ny, mesh_nz):
    """Shift by r ranks both ways at once, along all dimensions at once, a part on each."""
    line = ring.all_to_all_shift_bidir(longest(mesh_nx, mesh_ny, mesh_nz))
    return side_by_side(line, mesh_nx, mesh_ny, mesh_nz)


@on_torus(
    "all_to_all",
    "multi_fwd_bidir",
    time=f"{DIMENSIONS}*floor({LONGEST}/2)*latency"
    f" + where(ranks > 1, {LONGEST}/8, 0)*message_bytes/bandwidth",
    sent=f"{SHORTER}*message_bytes",
    carried=f"ranks*{SHORTER}*message_bytes",
    source="derivation",
    assumes=(PARTS,),
    requires=(EQUAL_EVEN_SIZES,),
)
def multi_fwd_bidir(mesh_nx, mesh_ny, mesh_nz):
    """Neighbours store and forward, along all dimensions at once, a part of the buffer on each."""
    line = ring.all_to_all_fwd_bidir(longest(mesh_nx, mesh_ny, mesh_nz))
    return side_by_side(line, mesh_nx, mesh_ny, mesh_nz)


@on_torus(
    "all_to_all",
    "direct",
    source="derivation",
    assumes=(
        "all messages concurrent, along x, then y, then z, on the shorter path",
        "the message to half of a ring is split",
    ),
)
def direct(mesh_nx, mesh_ny, mesh_nz):
    """All pairs at once, each message the shorter way round every dimension."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    along = [ring.all_to_all_direct(size) for size in sizes]
    x, y, z = (cost.levels[0] for cost in along)
    ranks = mesh_nx * mesh_ny * mesh_nz
    return flat(
        several(ranks),
        xp.maximum(xp.maximum(x.transfer, y.transfer), z.transfer),
        latencies=x.latencies + y.latencies + z.latencies,
        messages=several(ranks),
        sent=(ranks - 1.0) / ranks,
        carried=ranks * (x.carried / mesh_nx + y.carried / mesh_ny + z.carried / mesh_nz),
    )
