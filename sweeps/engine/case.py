"""What a plan consists of: sets of labels with their nodes, and the result's variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import Algorithm
from overhead.graph import Node

# Variables that hold flags rather than numbers.
FLAGS = ("status", "chosen_algorithm")


@dataclass(frozen=True, slots=True)
class Case:
    """One set of the labels that decide which formulas hold."""

    labels: Mapping[str, str]  # The labels
    fixed: Mapping[int, slice]  # Where on the grid: one point of each dimension that switches
    nodes: Mapping[str, Node]  # The wanted quantities' nodes; empty where no algorithm is defined
    status: Node  # Why cells don't exist
    algorithms: tuple[Algorithm, ...]  # The algorithms that the labels leave


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the result."""

    name: str  # The quantity
    dims: tuple[str, ...]  # The dimensions on which it depends, in the grid's order
    declarations: tuple[Any, ...]  # The formulas and algorithms that give it, each once


# What a labelled dataset holds, before it is in memory or in a file: the shape of the answer.


@dataclass(frozen=True, slots=True)
class Column:
    """One variable of a dataset: its name, dimensions, type and metadata."""

    name: str  # The variable's name (of a label coordinate: the dimension's own)
    dims: tuple[str, ...]  # Its dimensions, in order; empty for a scalar
    dtype: np.dtype[Any]  # float64, an integer type (flags), or a string type (labels)
    # CF attributes: text, numbers, or lists of numbers
    attrs: Mapping[str, Any] = field(default_factory=dict)
    # The values where they are known from the start (coordinates); None for what is computed
    values: NDArray[Any] | None = None


# What says of a coordinate that it only numbers the rows of a table.
ROW = {"role": "row"}


def row_numbers(name: str, count: int) -> Column:
    """Return the coordinate of a dimension whose columns say what its rows are."""
    about = {"long_name": f"{name} (a row of the table)", "units": "1", **ROW}
    return Column(name, (name,), np.dtype(np.int32), about, np.arange(count, dtype=np.int32))


def is_row_number(attrs: Mapping[str, Any]) -> bool:
    """Whether a coordinate's attributes say that it only numbers rows."""
    return ROW.items() <= attrs.items()


@dataclass(frozen=True, slots=True)
class Layout:
    """A dataset's dimensions, coordinates, variables and global attributes."""

    sizes: Mapping[str, int]  # The dimensions, in the order in which variables have them
    coordinates: tuple[Column, ...]  # Coordinates, with values
    variables: tuple[Column, ...]  # What is computed
    attrs: Mapping[str, str]  # Global attributes

    def shape(self, column: Column) -> tuple[int, ...]:
        """Return the shape of a column."""
        return tuple(self.sizes[dim] for dim in column.dims)

    def nbytes(self) -> int:
        """Return the size in bytes of all variables together, uncompressed."""
        return sum(
            int(np.prod(self.shape(column), dtype=np.int64)) * column.dtype.itemsize
            for column in self.variables
        )


@dataclass(frozen=True, slots=True)
class Block:
    """Values of one variable at one region of it (slices over the variable's own dimensions).

    `beside`: other variables' values at the same cells, where they were asked for.
    """

    name: str
    region: tuple[slice, ...]
    values: NDArray[Any]
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)
