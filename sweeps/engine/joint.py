"""Several programs as one: an operation's beside a training step's, on axes that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.formula import Formula
from overhead.graph import Node
from sweeps.engine.evaluate import Limits
from sweeps.engine.grid import (
    OPERATION,
    STATUS,
    STEP,
    SUBJECT,
    Column,
    Field,
    Grid,
    Layout,
    Variable,
    is_row_number,
)
from sweeps.engine.program import Program
from sweeps.spec.axis import Axis

# What both parts have and differ in is called so of the operation: ``collective_status``, ..
OF_OPERATION = "collective_"


class Joint(Program):
    """Programs whose variables are computed side by side, each on its own part of the axes.

    Each part is the program that it would be alone, so that it gives the same bits.
    """

    def __init__(
        self,
        parts: Sequence[Program],
        axes: Sequence[Axis],
        constants: Mapping[str, float],
        fields: Mapping[str, Field],
    ) -> None:
        self._parts = tuple(parts)
        self.grid = Grid(axes, constants, fields)
        self.labels = {name: label for part in parts for name, label in part.labels.items()}
        self.implied = {name: words for part in parts for name, words in part.implied.items()}
        self.missing = {name: words for part in parts for name, words in part.missing.items()}
        self.conditions = tuple(text for part in parts for text in part.conditions)
        self.wanted = tuple(name for part in parts for name in part.wanted)
        self.cases = tuple(case for part in parts for case in part.cases)
        self.optional, self.published = (
            any(getattr(part, name) for part in parts) for name in ("optional", "published")
        )
        self.collective, self.overlap, self.training = False, False, True
        self.status_name = STATUS
        self.limits = Limits()

    @property
    def parts(self) -> tuple[Program, ...]:
        """The programs of one subject each."""
        return self._parts

    def of(self, name: str) -> Program:
        """Return the part that computes a variable."""
        owners = (part for part in self.parts if name in (*part.wanted, part.status_name))
        return next(owners, self.parts[-1])

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of all parts."""
        return tuple(variable for part in self.parts for variable in part.variables)

    @property
    def assumed(self) -> Mapping[str, float]:
        """The defaults on which results depend."""
        return {name: value for part in self.parts for name, value in part.assumed.items()}

    def nodes(self, *names: str) -> Iterator[Node]:
        """Yield every node on which a result, or some variables of it, depends, each once."""
        for part in self.parts:
            wanted = [name for name in names if self.of(name) is part]
            if wanted or not names:
                yield from part.nodes(*wanted)

    def used(self) -> set[str]:
        """Return the names of given quantities on which a result depends."""
        return {name for part in self.parts for name in part.used()}

    def declarations(self, *names: str) -> tuple[Formula | Algorithm, ...]:
        """Return the declarations of all parts, or of some variables of them."""
        declared: list[Formula | Algorithm] = []
        for part in self.parts:
            wanted = [name for name in names if self.of(name) is part]
            declared += part.declarations(*wanted) if wanted or not names else ()
        return tuple({id(declaration): declaration for declaration in declared}.values())


def joined(layouts: Sequence[Layout], sizes: Mapping[str, int], attrs: Mapping[str, str]) -> Layout:
    """Return the layouts of an operation's part and of a step's as one.

    What differs between them has two names, and what only one of them takes says so.
    """
    operation, step = ({c.name: c for c in layout.coordinates} for layout in layouts)
    coordinates: list[Column] = []
    for name in dict.fromkeys((*operation, *step)):
        first, other = operation.get(name), step.get(name)
        if first and other and not (is_row_number(first.attrs) or is_row_number(other.attrs)):
            if first.dims == other.dims and _same(first.values, other.values):
                coordinates.append(other)
                continue
            coordinates += [
                _owned(first, OPERATION, OF_OPERATION + name),
                _owned(other, STEP, name),
            ]
        elif first and (not other or is_row_number(other.attrs)):
            coordinates.append(_owned(first, OPERATION, name))
        elif other:
            coordinates.append(_owned(other, STEP, name))
    variables = tuple(
        _owned(column, subject, column.name)
        for layout, subject in zip(layouts, (OPERATION, STEP), strict=True)
        for column in layout.variables
    )
    # Axes in the order in which variables have them, then what varies along several or none.
    order = {dim: index for index, dim in enumerate(sizes)}
    coordinates.sort(
        key=lambda coordinate: (
            order[coordinate.dims[0]] if len(coordinate.dims) == 1 else len(order)
        )
    )
    return Layout(dict(sizes), tuple(coordinates), variables, attrs)


def _owned(column: Column, subject: str, name: str) -> Column:
    if is_row_number(column.attrs):
        return column
    attrs = {**column.attrs, SUBJECT: subject}
    return Column(name, column.dims, column.dtype, attrs, column.values)


def _same(first: Any, other: Any) -> bool:
    """Whether two coordinates have the same values, holes and all."""
    return np.array_equal(first, other, equal_nan=first.dtype.kind == other.dtype.kind == "f")
