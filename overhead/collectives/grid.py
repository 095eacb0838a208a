"""What meshes and tori have in common: sizes along three dimensions, of which some may be 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from overhead.arrays import xp
from overhead.collectives.algorithm import Requirement
from overhead.collectives.cost import Cost, scale, stack
from overhead.quantity import Array

SIZES = ("mesh_nx", "mesh_ny", "mesh_nz")
# The size whose dimension a part of the buffer goes along next; before x comes z.
FOLLOWING = ("mesh_ny", "mesh_nz", "mesh_nx")
SHARES = ("message_bytes", "message_bytes/mesh_nx", "message_bytes/(mesh_nx*mesh_ny)")
DIMENSIONS = " + ".join(f"where({size} > 1, 1, 0)" for size in SIZES)
DIMENSIONS = f"maximum({DIMENSIONS}, 1)"
LONGEST = "maximum(maximum(mesh_nx, mesh_ny), mesh_nz)"
SHORTEST = "minimum(minimum(mesh_nx, mesh_ny), mesh_nz)"
MIDDLE = f"(mesh_nx + mesh_ny + mesh_nz - {LONGEST} - {SHORTEST})"


# Conditions on the sizes.


def dimensions(*sizes: Array) -> Array:
    """Return how many dimensions are above 1."""
    return xp.asarray(sum(xp.asarray(size > 1.0, dtype=xp.float64) for size in sizes))


def longest(*sizes: Array) -> Array:
    """Return the largest size."""
    return xp.asarray(reduce(xp.maximum, sizes))


def _equal(mesh_nx, mesh_ny, mesh_nz):
    largest = longest(mesh_nx, mesh_ny, mesh_nz)
    masks = [(size == largest) | (size == 1.0) for size in (mesh_nx, mesh_ny, mesh_nz)]
    return xp.asarray(masks[0] & masks[1] & masks[2])


def _equal_even(mesh_nx, mesh_ny, mesh_nz):
    largest = longest(mesh_nx, mesh_ny, mesh_nz)
    even = (largest % 2.0 == 0.0) & (largest > 2.0)
    return xp.asarray(_equal(mesh_nx, mesh_ny, mesh_nz) & (even | (largest == 1.0)))


def _two_dimensions(mesh_nx, mesh_ny, mesh_nz):
    count = dimensions(mesh_nx, mesh_ny, mesh_nz)
    return xp.asarray((count == 2.0) | (longest(mesh_nx, mesh_ny, mesh_nz) == 1.0))


EQUAL_SIZES = Requirement("dimensions_unequal", "the dimensions must be of equal size", _equal)
EQUAL_EVEN_SIZES = Requirement(
    "dimensions_not_equal_and_even",
    "the dimensions must be of equal, even size above 2",
    _equal_even,
)
TWO_DIMENSIONS = Requirement(
    "not_two_dimensions", "there must be two dimensions above 1", _two_dimensions
)
ONE_DIMENSION = Requirement(
    "not_one_dimension",
    "there must be one dimension above 1",
    lambda mesh_nx, mesh_ny, mesh_nz: dimensions(mesh_nx, mesh_ny, mesh_nz) <= 1.0,
)
GRID_FITS = Requirement(
    "mesh_sizes_do_not_multiply_to_ranks",
    "mesh_nx x mesh_ny x mesh_nz must be the number of ranks, each a whole number",
    lambda ranks, mesh_nx, mesh_ny, mesh_nz: xp.asarray(
        (mesh_nx * mesh_ny * mesh_nz == ranks)
        & (mesh_nx == xp.floor(mesh_nx))
        & (mesh_ny == xp.floor(mesh_ny))
        & (mesh_nz == xp.floor(mesh_nz))
    ),
)


# One dimension after another.


def over(template: str) -> str:
    """Return the sum over dimensions of an expression."""
    return " + ".join(
        template.format(n=size, m=share) for size, share in zip(SIZES, SHARES, strict=True)
    )


def bucket(kernel: Callable[[Array], Cost], nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of a reduce_scatter or all_gather, one dimension after the other."""
    return stack(
        [
            scale(kernel(nx), 1.0, ny * nz),
            scale(kernel(ny), 1.0 / nx, nx * nz),
            scale(kernel(nz), 1.0 / (nx * ny), nx * ny),
        ]
    )


def exchange(kernel: Callable[[Array], Cost], nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of an all_to_all, one dimension after the other, each with all bytes."""
    return stack(
        [
            scale(kernel(nx), 1.0, ny * nz),
            scale(kernel(ny), 1.0, nx * nz),
            scale(kernel(nz), 1.0, nx * ny),
        ]
    )


def spread(kernel: Callable[[Array], Cost], nx: Array, ny: Array, nz: Array) -> Cost:
    """Return the cost of a broadcast along x, then from there along y, then along z."""
    return stack([kernel(nx), scale(kernel(ny), 1.0, nx), scale(kernel(nz), 1.0, nx * ny)])


def count(*sizes: Array) -> Array:
    """Return how many dimensions are above 1, at least 1."""
    return xp.maximum(dimensions(*sizes), 1.0)


# Sizes that are given in part.


def factors(ranks: int, dimensions: int) -> tuple[int, ...]:
    """Split a number of ranks into sizes as near to each other as they get."""
    if dimensions == 1:
        return (ranks,)
    best: tuple[int, ...] = (ranks,) + (1,) * (dimensions - 1)
    for first in range(1, int(ranks ** (1.0 / dimensions) + 1e-9) + 1):
        if ranks % first == 0:
            sizes = tuple(sorted((first, *factors(ranks // first, dimensions - 1)), reverse=True))
            if max(sizes) < max(best) or (max(sizes) == max(best) and sum(sizes) < sum(best)):
                best = sizes
    return best
