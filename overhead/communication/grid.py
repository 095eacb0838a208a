"""Groups of ranks on a mesh or torus: each of its own size, as near to a square as can be."""

from __future__ import annotations

import numpy as np

from overhead.communication import quantities
from overhead.expression import square_divisor
from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["group_nx", "group_ny", "group_nz", "quantities"]

OWN = "derivation"
# Where the sides of a mesh or torus are given, a group of as many ranks is that one.
GIVEN = {"grid": "given"}
WHOLE = "group_size == mesh_nx*mesh_ny*mesh_nz"
SQUARE = ("a group is a network of its own, of two dimensions",)


@formula(
    returns="group_ny",
    expression="square_divisor(group_size)",
    source=OWN,
    assumes=SQUARE,
)
def group_ny(group_size: Array) -> Array:
    """Ranks along y of the mesh or torus that a group is: the shorter side."""
    return square_divisor(group_size)


@formula(
    returns="group_nx",
    expression="maximum(ceil(group_size/(group_ny*group_nz)), 1)",
    source=OWN,
    assumes=SQUARE,
)
def group_nx(group_size: Array, group_ny: Array, group_nz: Array) -> Array:
    """Ranks along x of the mesh or torus that a group is: what the other sides leave."""
    return np.asarray(np.maximum(np.ceil(group_size / (group_ny * group_nz)), 1.0))


@formula(
    returns="group_ny",
    expression=f"where({WHOLE}, mesh_ny, square_divisor(group_size))",
    source=OWN,
    assumes=SQUARE,
    when=GIVEN,
)
def given_group_ny(group_size: Array, mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    """Ranks along y of the mesh or torus that a group is: as given, of a group of that size."""
    whole = group_size == mesh_nx * mesh_ny * mesh_nz
    return np.where(whole, mesh_ny, square_divisor(group_size))


@formula(
    returns="group_nz",
    expression=f"where({WHOLE}, mesh_nz, 1)",
    source=OWN,
    assumes=SQUARE,
    when=GIVEN,
)
def given_group_nz(group_size: Array, mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    """Ranks along z of the mesh or torus that a group is: as given, of a group of that size."""
    return np.where(group_size == mesh_nx * mesh_ny * mesh_nz, mesh_nz, 1.0)


@formula(returns="group_nz", expression="1 + 0*group_size", source=OWN, assumes=SQUARE)
def group_nz(group_size: Array) -> Array:
    """Ranks along z of the mesh or torus that a group is: one."""
    return 1.0 + 0.0 * group_size
