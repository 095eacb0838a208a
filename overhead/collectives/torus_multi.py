"""Reduce_scatter, all_gather and all_reduce on a torus with all its dimensions at work at once.

The buffer is cut into as many parts as there are dimensions above 1.  Each part goes ring by ring
along all of them, each beginning with another, and a phase lasts until its slowest part is through.
"""

from __future__ import annotations

import numpy as np

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat
from overhead.collectives.grid import (
    BOTH,
    DIMENSIONS,
    EVERY,
    LONGEST,
    MIDDLE,
    MINIMAL,
    SHORTEST,
    count,
    in_three_phases,
    longest,
    staircase,
    union,
)
from overhead.quantity import Array

__all__ = ["multi_ring", "multi_ring_short", "multi_ring_split", "rotated"]

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
    shares = [np.where(size == 2.0, 1.0, halved) for size in (nx, ny, nz)]

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


@algorithm(
    "torus",
    BOTH,
    "multi_ring",
    steps=STEPS,
    time=f"{STEPS}*latency + {RING}*message_bytes/bandwidth",
    sent=EVERY,
    carried=MINIMAL,
    source="jain2010",
    where="for equal sizes; the sum for unequal ones is derived here",
    assumes=ASSUMES,
    doubled=True,
)
def multi_ring(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Rings along all dimensions at once, a part of the buffer on each."""
    return _rings(mesh_nx, mesh_ny, mesh_nz, 1.0)


HALF = "where({n} == 2, 1, 1/2)"
SPLIT = rotated(
    _sorted(f"{HALF}/{{n}}"),
    union(_steady, f"{HALF}*{{other}}/ranks"),
    f"({LONGEST} - 1 + where((mesh_nx == 2) | (mesh_ny == 2) | (mesh_nz == 2), 1, 0))/(2*ranks)",
)


@algorithm(
    "torus",
    BOTH,
    "multi_ring_split",
    steps=STEPS,
    time=f"{STEPS}*latency + {SPLIT}*message_bytes/bandwidth",
    sent=EVERY,
    carried=MINIMAL,
    source="jain2010",
    where="for equal sizes; the sum for unequal ones is derived here",
    assumes=(*ASSUMES, "both directions at once"),
    doubled=True,
)
def multi_ring_split(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
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


@algorithm(
    "torus",
    BOTH,
    "multi_ring_short",
    steps=SHORT_STEPS,
    time=f"{SHORT_STEPS}*latency + {SHORT}*message_bytes/bandwidth",
    sent=EVERY,
    carried=MINIMAL,
    source="scalingbook",
    where="chapter 3, for equal sizes; the sum for unequal ones is derived here",
    assumes=(*ASSUMES, "both directions at once"),
    doubled=True,
)
def multi_ring_short(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Cost:
    """Every block spreads both ways round, along all dimensions at once, a part on each."""
    sizes = (mesh_nx, mesh_ny, mesh_nz)
    lengths = [np.floor(size / 2.0) for size in sizes]
    full = [np.where(size == 2.0, 1.0, np.floor((size - 1.0) / 2.0)) for size in sizes]

    def slowest(heights: tuple[Array, ...]) -> Array:
        return staircase([*full, *lengths], [*heights, *(height / 2.0 for height in heights)])

    return _whole(
        np.floor(longest(*sizes) / 2.0) * count(*sizes),
        in_three_phases(slowest, *sizes),
        mesh_nx * mesh_ny * mesh_nz,
    )
