"""What every reduction has in common: it takes blocks in any order, merges, and gives columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.exact_sum import MOST_CELLS
from sweeps.engine.layout import Column
from sweeps.engine.reduce_split import Piece, Split
from sweeps.errors import RunError
from sweeps.spec.sweep import Reduction

__all__ = ["Reducer", "Task"]

# Metadata of a quantity that is true of its reductions as well.
KEPT_ATTRS = ("units", "references")


@dataclass(frozen=True, slots=True)
class Task:
    """A reduction of a variable of known dimensions."""

    reduction: Reduction  # What the user asks for
    split: Split  # The variable's dimensions, kept and reduced
    # The labels or values along reduced dimensions, as far as they are known
    coordinates: Mapping[str, Column] = field(default_factory=dict)
    absent: tuple[str, ...] = ()  # Dimensions to reduce that the variable doesn't have
    whole: Split | None = None  # The split of all results, where this is of a part of them

    @property
    def name(self) -> str:
        """The result's name."""
        return self.reduction.name

    @property
    def over(self) -> str:
        """The reduced dimensions, in words."""
        return ", ".join(self.reduction.over)

    def attrs(self, attrs: Mapping[str, Any], long_name: str, comment: str = "") -> dict[str, Any]:
        """Compose a result's metadata."""
        said = [
            f"Over {self.over}: {self.split.reduced_cells} cells for each result.",
            "Holes (NaN) are left out; a result that has nothing else is NaN.",
        ]
        if self.absent:
            said.append(
                f"{self.reduction.quantity} is the same all along {', '.join(self.absent)}."
            )
        said += [text for text in (comment, str(attrs.get("comment", ""))) if text]
        kept = {name: attrs[name] for name in KEPT_ATTRS if name in attrs}
        return {"long_name": long_name, **kept, "comment": " ".join(said)}

    def quantity(self, attrs: Mapping[str, Any]) -> str:
        """Return the reduced quantity in words."""
        return str(attrs.get("long_name", self.reduction.quantity))

    def column(
        self, values: NDArray[Any], name: str, attrs: Mapping[str, Any], last: str = ""
    ) -> Column:
        """Compose a result's column."""
        dims = (*self.split.kept_dims, last) if last else self.split.kept_dims
        shape = tuple(self.split.shape[axis] for axis in self.split.kept_axes)
        shape = (*shape, values.shape[-1]) if last else shape
        return Column(name, dims, values.dtype, attrs, values.reshape(shape))


class Reducer(ABC):
    """A reduction of one variable while its blocks stream by.

    Whatever the blocks, and in whatever order they come, the results are the same to the bit.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._seen = 0

    @property
    def complete(self) -> bool:
        """Whether as many cells have come as the variable has."""
        return self._seen == math.prod(self.task.split.shape)

    def update(
        self,
        region: Sequence[slice],
        values: NDArray[Any],
        beside: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take a block in.  Each cell of the variable may come once."""
        piece = self.task.split.piece(region, np.asarray(values, dtype=np.float64))
        if piece.values.size == 0:
            return
        self._seen += piece.values.size
        for part in parts(piece):
            self._take(part)

    def merge(self, other: Self) -> None:
        """Take in what another reducer has gathered from other blocks."""
        mine, its = self.task, other.task
        if (mine.reduction, mine.split) != (its.reduction, its.whole or its.split):
            message = f"{mine.name} and {its.name} aren't parts of one reduction"
            raise ValueError(message)
        self._seen += other._seen
        self._absorb(other, its.split.where)

    def part(self, where: Sequence[slice]) -> Self:
        """Return a reducer of a part of the results, to be given the blocks that belong to it."""
        own = replace(self.task, split=self.task.split.within(where), whole=self.task.split)
        return type(self)(own)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what has been gathered, as arrays by name: all that `restore` needs."""
        return {"seen": np.array(self._seen, dtype=np.int64), **self._state()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set what has been gathered."""
        self._seen = int(state["seen"])
        self._restore(state)

    def columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        """Return the results, over the kept dimensions in the variable's order."""
        if not self.complete:
            total = math.prod(self.task.split.shape)
            message = f"{self.task.name}: {self._seen} of {total} cells have been reduced"
            raise RunError(message)
        return self._columns(attrs)

    @abstractmethod
    def _take(self, piece: Piece) -> None: ...

    @abstractmethod
    def _absorb(self, other: Self, where: tuple[slice, ...]) -> None: ...

    @abstractmethod
    def _state(self) -> dict[str, NDArray[Any]]: ...

    @abstractmethod
    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None: ...

    @abstractmethod
    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]: ...


def parts(piece: Piece) -> list[Piece]:
    """Cut a piece into some of at most so many cells that sums of limbs are exact."""
    if piece.values.size <= MOST_CELLS:
        return [piece]
    axis = int(np.argmax(piece.values.shape))
    middle = piece.values.shape[axis] // 2
    found = []
    for lower, upper in ((0, middle), (middle, piece.values.shape[axis])):
        kept = len(piece.where)
        values = piece.values[(*(slice(None),) * axis, slice(lower, upper))]
        where, starts = list(piece.where), list(piece.starts)
        if axis < kept:
            start = piece.where[axis].start
            where[axis] = slice(start + lower, start + upper)
        else:
            starts[axis - kept] += lower
        found += parts(Piece(tuple(where), tuple(starts), values.shape[kept:], values))
    return found
