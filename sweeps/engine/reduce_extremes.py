"""The least or greatest values along dimensions, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.layout import Column
from sweeps.engine.least import Least
from sweeps.engine.reduce_base import Reducer, Task
from sweeps.engine.reduce_places import position
from sweeps.engine.reduce_split import Piece

__all__ = ["Extremes"]

PLACE = {"min": "at the least", "max": "at the greatest", "top": "of each of the least values of"}


class Extremes(Reducer):
    """``min``, ``max`` and ``top``: values, each with its coordinates along what is reduced.

    Of equal values the first in lexicographic order of the reduced dimensions counts, as the
    variable orders them.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        operation = task.reduction.operation
        count = min(task.reduction.count, task.split.reduced_cells) if operation == "top" else 1
        self._least = Least(task.split, count, greatest=operation == "max")

    @property
    def _rank(self) -> str:
        return f"{self.task.name}_rank" if self.task.reduction.operation == "top" else ""

    def _take(self, piece: Piece) -> None:
        self._least.add(piece)

    def _absorb(self, other: Extremes, where: tuple[slice, ...]) -> None:
        self._least.merge(other._least, where)

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"keys": self._least.keys, "places": self._least.places}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._least.keys, self._least.places = state["keys"], state["places"]

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task, quantity = self.task, self.task.quantity(attrs)
        word = {"min": "least", "max": "greatest", "top": "least values of"}
        long_name = f"{word[task.reduction.operation]} {quantity} over {task.over}"
        comment = "Of equal values the first counts."
        found = [
            self._column(self._least.values(), task.name, task.attrs(attrs, long_name, comment))
        ]
        for dim, index in task.split.indices(self._least.places).items():
            place = f"{dim} {PLACE[task.reduction.operation]} {quantity}"
            values, told = position(task, dim, index, place)
            found.append(self._column(values, f"{task.name}_{dim}", told))
        return found if not self._rank else [*found, self._ranks(quantity)]

    def _ranks(self, quantity: str) -> Column:
        ranks = np.arange(1, self._least.count + 1, dtype=np.int32)
        told = {"long_name": f"rank by {quantity}, the least first", "units": "1"}
        return Column(self._rank, (self._rank,), ranks.dtype, told, ranks)

    def _column(self, values: NDArray[Any], name: str, attrs: Mapping[str, Any]) -> Column:
        if self._rank:
            return self.task.column(np.moveaxis(values, 0, -1), name, attrs, self._rank)
        return self.task.column(values[0], name, attrs)
