"""Shapes that are given in part: sizes of a mesh from its ranks, and levels that aren't there."""

from __future__ import annotations

from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["grid_ny", "grid_ranks"]

OWN = "derivation"
GRID = {"topology": "mesh|torus"}
TWO = {"topology": "hierarchical", "shape": "two_levels"}


@formula(returns="ranks", expression="mesh_nx*mesh_ny*mesh_nz", source=OWN, when=GRID)
def grid_ranks(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    """Ranks of a mesh or torus."""
    return mesh_nx * mesh_ny * mesh_nz


@formula(returns="mesh_ny", expression="ranks/(mesh_nx*mesh_nz)", source=OWN, when=GRID)
def grid_ny(ranks: Array, mesh_nx: Array, mesh_nz: Array) -> Array:
    """Ranks along y, from the others."""
    return ranks / (mesh_nx * mesh_nz)


# Kernels of hierarchies take three levels.  Where there are two, the third is like the second;
# nothing passes it.


@formula(returns="pod_latency", expression="1*inter_latency", source=OWN, when=TWO)
def no_pod_latency(inter_latency: Array) -> Array:
    """Latency between pods, where there are none: as between nodes."""
    return 1.0 * inter_latency


@formula(returns="pod_bandwidth", expression="1*inter_bandwidth", source=OWN, when=TWO)
def no_pod_bandwidth(inter_bandwidth: Array) -> Array:
    """Bandwidth between pods, where there are none: as between nodes."""
    return 1.0 * inter_bandwidth


@formula(returns="pod_oversubscription", expression="1*oversubscription", source=OWN, when=TWO)
def no_pod_oversubscription(oversubscription: Array) -> Array:
    """Oversubscription between pods, where there are none: as between nodes."""
    return 1.0 * oversubscription
