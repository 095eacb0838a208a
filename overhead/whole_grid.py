"""A mesh or torus whose sides are given: they are those of the group that all its ranks make.

The label ``grid`` says that they are (``given``); a smaller group is as near to a square as can be,
as where nothing is said.
"""

from __future__ import annotations

import numpy as np

from overhead.communication import grid
from overhead.expression import square_divisor
from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["GIVEN", "grid", "whole_ny", "whole_nz"]

GIVEN = {"grid": "given"}
WHOLE = ("a group of as many ranks as the network has is the whole network",)


@formula(
    returns="group_ny",
    expression="where(group_size == mesh_nx*mesh_ny*mesh_nz, mesh_ny, square_divisor(group_size))",
    source="derivation",
    assumes=WHOLE,
    when=GIVEN,
)
def whole_ny(group_size: Array, mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    """Ranks along y of the mesh or torus that a group is: as given, if it is the whole."""
    whole = group_size == mesh_nx * mesh_ny * mesh_nz
    return np.where(whole, mesh_ny, square_divisor(group_size))


@formula(
    returns="group_nz",
    expression="where(group_size == mesh_nx*mesh_ny*mesh_nz, mesh_nz, 1)",
    source="derivation",
    assumes=WHOLE,
    when=GIVEN,
)
def whole_nz(group_size: Array, mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    """Ranks along z of the mesh or torus that a group is: as given, if it is the whole."""
    return np.where(group_size == mesh_nx * mesh_ny * mesh_nz, mesh_nz, 1.0)
