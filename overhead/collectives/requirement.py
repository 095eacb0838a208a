"""Where an algorithm is defined: conditions on a network's shape, each with its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from overhead.formula import parameters
from overhead.quantity import Array

__all__ = ["Requirement"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that must hold for an algorithm to be defined.

    Attributes
    ----------
    fault : str
        The name of the fault where it doesn't hold, as the flag of a masked cell.
    text : str
        What must hold, in words.
    holds : callable
        Takes quantities as arrays, by name; gives a mask.
    """

    fault: str
    text: str
    holds: Callable[..., Array]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The quantities that it looks at."""
        return parameters(self.holds)


def _power_of_two(values: Array) -> Array:
    return np.asarray(np.exp2(np.round(np.log2(np.maximum(values, 1.0)))) == values)


def _ranks_power_of_two(ranks: Array) -> Array:
    return _power_of_two(ranks)


def _ones(*sizes: Array) -> tuple[Array, Array]:
    """Return how many of the sizes are above 1, and the largest."""
    count = sum((np.asarray(size > 1.0, dtype=np.float64) for size in sizes), start=np.float64(0))
    largest = sizes[0]
    for size in sizes[1:]:
        largest = np.maximum(largest, size)
    return np.asarray(count), np.asarray(largest)


def _equal(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    _, largest = _ones(mesh_nx, mesh_ny, mesh_nz)
    masks = [(size == largest) | (size == 1.0) for size in (mesh_nx, mesh_ny, mesh_nz)]
    return np.asarray(masks[0] & masks[1] & masks[2])


def _equal_even(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    _, largest = _ones(mesh_nx, mesh_ny, mesh_nz)
    even = (largest % 2.0 == 0.0) & (largest > 2.0)
    return np.asarray(_equal(mesh_nx, mesh_ny, mesh_nz) & (even | (largest == 1.0)))


def _two_dimensions(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    count, largest = _ones(mesh_nx, mesh_ny, mesh_nz)
    return np.asarray((count == 2.0) | (largest == 1.0))


def _one_dimension(mesh_nx: Array, mesh_ny: Array, mesh_nz: Array) -> Array:
    count, _ = _ones(mesh_nx, mesh_ny, mesh_nz)
    return np.asarray(count <= 1.0)


POWER_OF_TWO = Requirement(
    "ranks_not_power_of_two",
    "the number of ranks must be a power of two",
    _ranks_power_of_two,
)
NODES_POWER_OF_TWO = Requirement(
    "nodes_not_power_of_two",
    "the number of nodes, and of pods, must be a power of two",
    lambda nodes, pods: _power_of_two(nodes) & _power_of_two(pods),
)
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
    "not_one_dimension", "there must be one dimension above 1", _one_dimension
)
TWO_LEVELS = Requirement(
    "three_levels", "there must be no more than two levels", lambda pods: np.asarray(pods == 1.0)
)
NVLS = Requirement(
    "no_nvls_in_the_network",
    "the switch must reduce and multicast (NVLS): has_nvls = 1",
    lambda has_nvls: np.asarray(has_nvls == 1.0),
)
INC = Requirement(
    "no_reduction_in_the_network",
    "the switch must reduce in the network (SHARP): has_inc = 1",
    lambda has_inc: np.asarray(has_inc == 1.0),
)
