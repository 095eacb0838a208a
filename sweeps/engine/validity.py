"""Why a cell can't be: conditions on the shape of a network, and the flags that name them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from overhead.collectives.algorithm import ALGORITHMS, Requirement
from overhead.quantity import Array

NODES_FILLED = Requirement(
    "ranks_not_multiple_of_gpus_per_node",
    "gpus_per_node must divide the number of ranks",
    lambda ranks, gpus_per_node: np.asarray(
        (ranks <= gpus_per_node) | (ranks % gpus_per_node == 0.0)
    ),
)


def _pods_filled(ranks: Array, gpus_per_node: Array, nodes_per_pod: Array) -> Array:
    per_pod = gpus_per_node * nodes_per_pod
    return np.asarray((ranks <= per_pod) | (ranks % per_pod == 0.0))


PODS_FILLED = Requirement(
    "nodes_not_multiple_of_nodes_per_pod",
    "nodes_per_pod must divide the number of nodes",
    _pods_filled,
)
GRID_FITS = Requirement(
    "mesh_sizes_do_not_multiply_to_ranks",
    "mesh_nx x mesh_ny x mesh_nz must be the number of ranks, each a whole number",
    lambda ranks, mesh_nx, mesh_ny, mesh_nz: np.asarray(
        (mesh_nx * mesh_ny * mesh_nz == ranks)
        & (mesh_nx == np.floor(mesh_nx))
        & (mesh_ny == np.floor(mesh_ny))
        & (mesh_nz == np.floor(mesh_nz))
    ),
)
STRUCTURAL = (NODES_FILLED, PODS_FILLED, GRID_FITS)
NOT_DEFINED = "algorithm_not_defined_on_topology"
ONE_RANK = "one_rank_has_no_bandwidth"
NOT_CHUNKED = "algorithm_without_chunks"
NOT_KNOWN = "figure_of_the_machine_not_known"
NO_TIME = "nothing_takes_time"
NOT_OF_NETWORK = "quantity_not_of_this_network"
# What only some quantities of a cell lack; the cell itself exists.
NOTES = (ONE_RANK, NO_TIME, NOT_OF_NETWORK, NOT_CHUNKED, NOT_KNOWN)
# What a single rank doesn't have.
NOT_OF_ONE_RANK = ("algbw", "busbw", "lower_bound_ratio")


def topology_requirements(
    labels: Mapping[str, str], given: Container[str]
) -> tuple[Requirement, ...]:
    """Return what must hold for a network to exist at all."""
    match labels["topology"]:
        case "hierarchical":
            pods = (PODS_FILLED,) if labels["shape"] == "three_levels" else ()
            return (NODES_FILLED, *pods)
        case "mesh" | "torus":
            return (GRID_FITS,)
    return ()


@dataclass(frozen=True)
class Faults:
    """The reasons why a cell, or a value in it, doesn't exist."""

    texts: Mapping[str, str]  # Each fault's name with what must hold, in the order of their bits
    # Takes a fault's and a variable's name: whether the variable is missing where the fault is
    concerns: Callable[[str, str], bool]

    @cached_property
    def bits(self) -> dict[str, int]:
        """Every fault's bit."""
        return {fault: 1 << index for index, fault in enumerate(self.texts)}

    def masking(self, variable: str) -> int:
        """Return the bits of all faults that a variable's value doesn't survive."""
        return sum(bit for fault, bit in self.bits.items() if self.concerns(fault, variable))

    def named(self, status: int) -> tuple[str, ...]:
        """Return the names of the faults in a status."""
        return tuple(fault for fault, bit in self.bits.items() if status & bit)


def collective_faults() -> Faults:
    """Return what can be wrong with a collective operation on a network."""
    texts = {requirement.fault: requirement.text for requirement in STRUCTURAL}
    texts[NOT_DEFINED] = "the algorithm must be defined for this collective on this network"
    texts[ONE_RANK] = "one rank has no algbw, busbw and lower_bound_ratio"
    texts[NO_TIME] = "where nothing takes time, ratios to the time aren't defined"
    texts[NOT_OF_NETWORK] = "some quantities, such as nodes, are of some networks alone"
    texts[NOT_CHUNKED] = "the algorithm cuts its message into no chunks of a number to choose"
    texts[NOT_KNOWN] = "the machine's file lacks a figure that a quantity needs, such as an energy"
    for algorithm in ALGORITHMS.values():
        texts.update({requirement.fault: requirement.text for requirement in algorithm.requires})
    return Faults(texts, _concerns)


def _concerns(fault: str, variable: str) -> bool:
    return fault not in NOTES or (fault == ONE_RANK and variable in NOT_OF_ONE_RANK)
