"""Axes as tables, and the open grid that they span."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.arrays import xp
from overhead.collectives.algorithm import Algorithm
from overhead.formula import OUT, Formula
from overhead.frozen import frozen
from overhead.graph import Node
from sweeps.errors import RunError
from sweeps.spec.axis import Axis

Array = NDArray[Any]
Region = tuple[slice, ...]
# A region, or some points of a dimension by their places.
Picking = tuple[slice | NDArray[np.int64], ...]
# Values over several axes: the axes' names, in order, and an array of these dimensions.
Field = tuple[tuple[str, ...], Array]

# Cells of the values that sets of labels share, each counted as so many more: 16 MiB.
ROOM, BESIDE = 1 << 21, 16


class Grid:
    """The open grid of some axes: every column shaped to broadcast along its own dimension."""

    def __init__(
        self,
        axes: Sequence[Axis],
        constants: Mapping[str, float],
        fields: Mapping[str, Field] | None = None,
    ) -> None:
        self.axes = tuple(sorted(axes, key=_order))
        self.names = tuple(axis.name for axis in self.axes)
        lengths = tuple(len(axis) for axis in self.axes)
        self.sizes = dict(zip(self.names, lengths, strict=True))
        # Without axes one dimension of one cell: numpy gives scalars, not arrays, for none.
        self.shape = lengths or (1,)
        self.constants = dict(constants)
        # What is known of nodes at all their points: each is computed once, whoever asks for it.
        self.values: dict[int, Any] = {}
        # The same of nodes along dimensions of which one point is held, by these points
        self._held: dict[tuple[tuple[int, int], ...], dict[int, Any]] = {(): self.values}
        self.room = ROOM
        self.columns: dict[str, Array] = {}
        self._assumed: dict[tuple[Any, ...], Array] = {}
        self.dims: dict[str, frozenset[str]] = {}
        for position, axis in enumerate(self.axes):
            for name, values in axis.columns.items():
                self._place(name, values, position, axis.name)
        self.fields = dict(fields or {})
        for name, (dims, values) in self.fields.items():
            positions = [self.position(dim) for dim in dims]
            order = np.argsort(positions)
            shape = [1] * len(self.shape)
            for dimension, length in zip(positions, values.shape, strict=True):
                shape[dimension] = length
            turned = np.array(np.transpose(values, order), dtype=np.float64, order="C")
            self.columns[name] = turned.reshape(shape)
            self.dims[name] = frozenset(dims)
        for name, value in constants.items():
            self.columns[name] = np.full((1,) * len(self.shape), value, dtype=np.float64)
            self.dims[name] = frozenset()

    def _place(self, name: str, values: Array, position: int, dim: str) -> None:
        if values.dtype.kind in "UO":
            return
        shape = [1] * len(self.shape)
        shape[position] = len(values)
        # Reversed or strided columns would give other bits; what may change is copied.
        made = np.array if values.flags.writeable else np.asarray
        self.columns[name] = made(values, dtype=np.float64, order="C").reshape(shape)
        self.dims[name] = frozenset({dim})

    @property
    def ndim(self) -> int:
        """The dimensions that every value has."""
        return len(self.shape)

    def given(self, node: Node) -> Array | None:
        """Return the values of a node that is given, or assumed; None of one that is computed."""
        if node.run is not None:
            return None
        kind, name, *assumed = node.what
        if kind == "given":
            return self.columns[name]
        # One array of each: kernels look at whether inputs are the same.
        if node.what not in self._assumed:
            self._assumed[node.what] = np.full((1,) * self.ndim, *assumed)
        return self._assumed[node.what]

    def formula(self, declared: Formula) -> Callable[..., Any]:
        """Return a formula's kernel, its value an array of the grid's dimensions."""
        # What works in an array of the grid's has its dimensions.
        given_an_array = OUT in (declared.kernel.__kwdefaults__ or ())
        return declared.kernel if given_an_array else shaped(declared, self.ndim)

    def cost(self, algorithm: Algorithm) -> Callable[..., Any]:
        """Return an algorithm's cost as a function of its inputs."""
        return costing(algorithm)

    def known(self, dims: frozenset[str], fixed: Mapping[int, slice]) -> dict[int, Any]:
        """Return what is known of nodes over some dimensions, where some points are held."""
        if self.cells == 1:
            return self.values
        held = (
            (position, part.start)
            for position, part in fixed.items()
            if self.names[position] in dims
        )
        return self._held.setdefault(tuple(held), {})

    @cached_property
    def cells(self) -> int:
        """Cells of the whole grid."""
        return int(np.prod([int(n) for n in self.shape], dtype=object))

    def position(self, dim: str) -> int:
        """Return where a dimension stands in the order."""
        return self.names.index(dim)

    def ordered(self, dims: frozenset[str]) -> tuple[str, ...]:
        """Return dimensions in the grid's order."""
        return tuple(name for name in self.names if name in dims)

    def size(self, dims: frozenset[str]) -> int:
        """Return the number of cells over some dimensions."""
        total = 1
        for dim in dims:
            total *= self.sizes[dim]
        return total


def _order(axis: Axis) -> tuple[int, int]:
    if axis.labels or axis.switching:
        known = {"model": 0, "hardware": 0, "collective": 2, "topology": 3, "algorithm": 4}
        return (0, known.get(axis.name, 1))
    return (1, len(axis))


WHOLE = slice(None)


def cut(values: Array, region: Picking) -> Array:
    """Return the part of an open-grid array at a region; what doesn't vary is kept whole."""
    parts = [part if n > 1 else WHOLE for part, n in zip(region, values.shape, strict=True)]
    return values[tuple(parts)]


# What is run, with errors that name the declaration: a user's own may fail.


def costing(algorithm: Algorithm) -> Callable[..., Any]:
    """Return an algorithm's cost as a function of its inputs."""
    names = algorithm.inputs

    def run(*values: Array) -> Any:
        try:
            return algorithm.cost(**dict(zip(names, values, strict=True)))
        except Exception as error:
            kind, key = type(error).__name__, ".".join(algorithm.key)
            message = f"the algorithm '{key}' failed: {kind}: {error}"
            raise RunError(message) from error

    return run


def shaped(declared: Formula, ndim: int) -> Callable[..., Array]:
    """Return a kernel that gives an array of the grid's dimensions, whatever a user's own gives."""

    def run(*values: Array) -> Array:
        try:
            value = xp.asarray(declared.kernel(*values), dtype=xp.float64)
        except Exception as error:
            kind = type(error).__name__
            message = f"the formula '{declared.name}' failed: {kind}: {error}"
            raise RunError(message) from error
        if value.ndim == ndim:
            return value
        if math.prod(value.shape) == 1:
            return xp.reshape(value, (1,) * ndim)
        shapes = ", ".join(str(array.shape) for array in values)
        message = f"the formula '{declared.name}' gave shape {value.shape} for inputs of {shapes}"
        raise RunError(message)

    return run


# What a plan consists of: sets of labels with their nodes, and the result's variables.

# Why cells don't exist: the variable that says it, and that of operations beside training steps.
STATUSES = STATUS, OPERATION_STATUS = "status", "collective_status"
# Variables that hold flags rather than numbers.
FLAGS = (*STATUSES, "chosen_algorithm")
# The attribute that says whose a column is, where a dataset is of an operation and of a step.
SUBJECT = "subject"
OPERATION, STEP = "operation", "training step"


def status_of(attrs: Mapping[str, Any]) -> str:
    """Return the variable that says why another one's values don't exist, by its attributes."""
    return OPERATION_STATUS if attrs.get(SUBJECT) == OPERATION else STATUS


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of a variable's values."""
    return np.dtype(np.int32 if name in FLAGS else np.float64)


@frozen(slots=True)
class LabelCase:
    """One set of the labels that decide which formulas hold."""

    labels: Mapping[str, str]  # The labels
    fixed: Mapping[int, slice]  # Where on the grid: one point of each dimension that switches
    nodes: Mapping[str, Node]  # The wanted quantities' nodes; empty where no algorithm is defined
    status: Node  # Why cells don't exist
    algorithms: tuple[Algorithm, ...]  # The algorithms that the labels leave


@frozen(slots=True)
class Variable:
    """A variable of the result."""

    name: str  # The quantity
    dims: tuple[str, ...]  # The dimensions on which it depends, in the grid's order
    declarations: tuple[Any, ...]  # The formulas and algorithms that give it, each once


# What a labelled dataset holds, before it is in memory or in a file: the shape of the answer.


@frozen(slots=True)
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


@frozen(slots=True)
class Layout:
    """A dataset's dimensions, coordinates, variables and global attributes."""

    sizes: Mapping[str, int]  # The dimensions, in the order in which variables have them
    coordinates: tuple[Column, ...]  # Coordinates, with values
    variables: tuple[Column, ...]  # What is computed
    attrs: Mapping[str, str]  # Global attributes

    def shape(self, column: Column) -> tuple[int, ...]:
        """Return the shape of a column."""
        return tuple(self.sizes[dim] for dim in column.dims)


@frozen(slots=True)
class Block:
    """Values of one variable at one region of it (slices over the variable's own dimensions).

    `partners`: other variables' values at the same cells, where they were asked for.
    """

    name: str
    region: tuple[slice, ...]
    values: NDArray[Any]
    partners: Mapping[str, NDArray[Any]] = field(default_factory=dict)
