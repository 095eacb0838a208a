"""What meshes and tori share: one-dimensional schedules composed over the dimensions x, y, z.

The buffer of an all_gather or a reduce_scatter shrinks from dimension to dimension; that of an
all_to_all does not, and a broadcast brings the whole of it everywhere.  Sizes of 1 cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from overhead.collectives.cost import Cost, scale, stack
from overhead.quantity import Array

BOTH = ("reduce_scatter", "all_gather")
EVERY = "(ranks - 1)/ranks*message_bytes"
MINIMAL = "(ranks - 1)*message_bytes"
WHOLE = "where(ranks > 1, message_bytes, 0)"

SIZES = ("mesh_nx", "mesh_ny", "mesh_nz")
# The size whose dimension a part of the buffer goes along next; before x comes z.
FOLLOWING = ("mesh_ny", "mesh_nz", "mesh_nx")
SHARES = ("message_bytes", "message_bytes/mesh_nx", "message_bytes/(mesh_nx*mesh_ny)")
DIMENSIONS = " + ".join(f"where({size} > 1, 1, 0)" for size in SIZES)
DIMENSIONS = f"maximum({DIMENSIONS}, 1)"
LONGEST = "maximum(maximum(mesh_nx, mesh_ny), mesh_nz)"
SHORTEST = "minimum(minimum(mesh_nx, mesh_ny), mesh_nz)"
MIDDLE = f"(mesh_nx + mesh_ny + mesh_nz - {LONGEST} - {SHORTEST})"


def over(template: str) -> str:
    """Return the sum over dimensions of an expression."""
    return " + ".join(
        template.format(n=size, m=share) for size, share in zip(SIZES, SHARES, strict=True)
    )


def bucket(one: Callable[[Array], Cost], nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of a reduce_scatter or all_gather, one dimension after the other."""
    return stack(
        [
            scale(one(nx), 1.0, ny * nz),
            scale(one(ny), 1.0 / nx, nx * nz),
            scale(one(nz), 1.0 / (nx * ny), nx * ny),
        ]
    )


def exchange(one: Callable[[Array], Cost], nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of an all_to_all, one dimension after the other, each with the whole buffer.

    Parameters and result are as of `bucket`.
    """
    return stack(
        [
            scale(one(nx), 1.0, ny * nz),
            scale(one(ny), 1.0, nx * nz),
            scale(one(nz), 1.0, nx * ny),
        ]
    )


def spread(one: Callable[[Array], Cost], nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of a broadcast along x, then from there along y, then along z.

    Parameters and result are as of `bucket`.
    """
    return stack([one(nx), scale(one(ny), 1.0, nx), scale(one(nz), 1.0, nx * ny)])


def count(*sizes: Array) -> Array:
    """Return how many dimensions are above 1, at least 1."""
    above = [np.asarray(size > 1.0, dtype=np.float64) for size in sizes]
    return np.maximum(above[0] + above[1] + above[2], 1.0)


def longest(*sizes: Array) -> Array:
    """Return the largest size."""
    return np.maximum(np.maximum(sizes[0], sizes[1]), sizes[2])


# Parts of the buffer side by side, each on another dimension: a step lasts as long as the slowest
# part that still is at work.


def staircase(lengths: Sequence[Array], heights: Sequence[Array]) -> Array:
    """Return the sum over steps of the slowest of several parts."""
    together = np.broadcast_arrays(*lengths, *heights)
    long = np.stack(together[: len(lengths)])
    high = np.stack(together[len(lengths) :])
    order = np.argsort(-long, axis=0)
    long = np.take_along_axis(long, order, axis=0)
    high = np.maximum.accumulate(np.take_along_axis(high, order, axis=0), axis=0)
    after = np.concatenate([long[1:], np.zeros_like(long[:1])])
    return np.asarray(np.sum((long - after) * high, axis=0))


def in_three_phases(
    slowest: Callable[[tuple[Array, ...]], Array], nx: Array, ny: Array, nz: Array
) -> Array:
    """Return the transfer of parts that go along the dimensions in turn, in messages."""
    ranks = nx * ny * nz
    dimensions = count(nx, ny, nz)
    first = slowest((1.0 / nx, 1.0 / ny, 1.0 / nz))
    second = np.where(dimensions > 2.0, slowest((ny / ranks, nz / ranks, nx / ranks)), 0.0)
    last = np.where(dimensions > 1.0, slowest((1.0 / ranks, 1.0 / ranks, 1.0 / ranks)), 0.0)
    return (first + second + last) / dimensions


def side_by_side(sent: Callable[[Array], Array], nx: Array, ny: Array, nz: Array) -> Array:
    """Return what a rank sends when parts of the buffer go along the dimensions in turn."""
    x, y, z = sent(nx), sent(ny), sent(nz)
    parts = (
        np.where(nx > 1.0, x + y / nx + z / (nx * ny), 0.0)
        + np.where(ny > 1.0, y + z / ny + x / (ny * nz), 0.0)
        + np.where(nz > 1.0, z + x / nz + y / (nz * nx), 0.0)
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
