"""The least keys of many cells, with the places where they are, whatever order they come in."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column
from sweeps.engine.reduce_base import (
    FEW,
    ExactSum,
    Piece,
    Reducer,
    Split,
    Task,
    over_slices,
    position,
)

Keys = NDArray[np.float64]
Places = NDArray[np.int64]
# Up to so many ranks a key is put in its place by comparing neighbours, beyond by sorting.
BUBBLED = 8


class Least:
    """The least so many keys of each kept cell; of equal ones, those of the first places."""

    def __init__(self, split: Split, count: int, *, greatest: bool = False) -> None:
        self.split, self.count, self.greatest = split, count, greatest
        shape = (count, *split.kept_shape)
        self.keys = np.full(shape, np.inf)
        self.places = np.full(shape, split.reduced_cells, dtype=np.int64)

    def add(self, piece: Piece) -> None:
        """Take a piece's values in; NaN is passed over."""
        region = (slice(None), *piece.where)
        keys, places = self.keys[region], self.places[region]
        if piece.cells <= FEW and self.count <= BUBBLED:
            for point, values in piece.slices():
                absolute = tuple(map(operator.add, piece.starts, point))
                offered = -values if self.greatest else np.ascontiguousarray(values)
                put(keys, places, offered, self.split.place(absolute))
            return
        best = -over_slices(np.fmax, piece) if self.greatest else over_slices(np.fmin, piece)
        # A piece's places are none before its first.
        first = self.split.place(piece.starts)
        better = before(best, first, keys[-1], places[-1])
        found = np.count_nonzero(better)
        if not found:
            return
        if found == better.size:
            rows = piece.rows()
        else:
            rows = piece.values[better].reshape(found, piece.cells)
        rows = -rows if self.greatest else rows
        offered, local = candidates(rows, best[better], keys[-1][better], self.count)
        where = self.split.places(piece, local)
        where[local < 0] = self.split.reduced_cells
        keys[:, better], places[:, better] = merged(
            keys[:, better], places[:, better], offered, where
        )

    def merge(self, other: Least, where: tuple[slice, ...]) -> None:
        """Take in what another has found of the cells in a place."""
        here = (slice(None), *where)
        self.keys[here], self.places[here] = merged(
            self.keys[here], self.places[here], other.keys, other.places
        )

    def values(self) -> NDArray[np.float64]:
        """Return the values found, first ranks first; NaN where there is none, and no -0.0."""
        values = -self.keys if self.greatest else self.keys
        return np.where(self.places >= self.split.reduced_cells, np.nan, values + 0.0)


def before(keys: Keys, places: Places | int, than: Keys, than_places: Places) -> NDArray[np.bool_]:
    """Return where a key comes before another: it is less, or equal and at an earlier place."""
    found = np.less(keys, than)
    equal = np.equal(keys, than)
    if equal.any():
        found |= equal & (places < than_places)
    return found


def put(keys: Keys, places: Places, offered: Keys, place: Places | int) -> None:
    """Put one more key a cell in its place among sorted ones, in place."""
    better = before(offered, place, keys[-1], places[-1])
    if not better.any():
        return
    # Minimum, maximum and putmask are several times as fast as masked copies.
    np.putmask(places[-1], better, place)
    if len(keys) == 1:
        np.fmin(keys[-1], offered, out=keys[-1])
    else:
        np.putmask(keys[-1], better, offered)
    for rank in range(len(keys) - 1, 0, -1):
        (low, high), (first, second) = keys[rank - 1 : rank + 1], places[rank - 1 : rank + 1]
        better = before(high, second, low, first)
        if not better.any():
            return
        keys[rank - 1], keys[rank] = np.minimum(low, high), np.maximum(low, high)
        places[rank - 1], places[rank] = (
            np.where(better, second, first),
            np.where(better, first, second),
        )


def candidates(
    rows: NDArray[np.float64], least: Keys, bar: Keys, count: int
) -> tuple[Keys, Places]:
    """Return the keys of each row that may be among its least."""
    if count == 1:
        column = (rows == least[:, np.newaxis]).argmax(axis=1)
        return least[np.newaxis], column[np.newaxis]
    wanted = min(count, rows.shape[1])
    if wanted < rows.shape[1]:
        last = np.partition(rows, wanted - 1, axis=1)[:, wanted - 1]
        bar = np.fmin(bar, last)
    row, column = np.nonzero(rows <= bar[:, np.newaxis])
    keys = rows[row, column]
    # Stable, so that of equal keys the first columns stay first.
    order = np.lexsort((keys, row))
    row, column, keys = row[order], column[order], keys[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    kept = rank < wanted
    found = np.full((wanted, len(rows)), np.inf)
    where = np.full(found.shape, -1, dtype=np.int64)
    found[rank[kept], row[kept]] = keys[kept]
    where[rank[kept], row[kept]] = column[kept]
    return found, where


def merged(
    keys: Keys, places: Places, offered: Keys, offered_places: Places
) -> tuple[Keys, Places]:
    """Return the least of two sorted tables (a row a rank), as many as before."""
    if len(keys) <= BUBBLED:
        keys, places = keys.copy(), places.copy()
        for one, place in zip(offered, offered_places, strict=True):
            put(keys, places, one, place)
        return keys, places
    both = np.concatenate([keys, offered])
    both_places = np.concatenate([places, offered_places])
    order = np.lexsort((both_places, both), axis=0)[: len(keys)]
    return np.take_along_axis(both, order, 0), np.take_along_axis(both_places, order, 0)


# The least or greatest values along dimensions, and where they are.

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
            values, attributes = position(task, dim, index, place)
            found.append(self._column(values, f"{task.name}_{dim}", attributes))
        return found if not self._rank else [*found, self._ranks(quantity)]

    def _ranks(self, quantity: str) -> Column:
        ranks = np.arange(1, self._least.count + 1, dtype=np.int32)
        attributes = {"long_name": f"rank by {quantity}, the least first", "units": "1"}
        return Column(self._rank, (self._rank,), ranks.dtype, attributes, ranks)

    def _column(self, values: NDArray[Any], name: str, attrs: Mapping[str, Any]) -> Column:
        if self._rank:
            return self.task.column(np.moveaxis(values, 0, -1), name, attrs, self._rank)
        return self.task.column(values[0], name, attrs)


# The mean along dimensions, of an exact sum.


class Mean(Reducer):
    """``mean``: the exact sum, rounded to float64, divided by the number of cells.

    With an infinite cell the mean is infinite, with both infinities NaN.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._sum = ExactSum(task.split.kept_shape)
        self._count = np.zeros(task.split.kept_shape, dtype=np.int64)
        # How many cells are infinite, by sign; kept only where that happens.
        self._infinite: dict[float, NDArray[np.int64]] = {}

    def _take(self, piece: Piece) -> None:
        values = piece.values
        # One pass each, without temporaries: NaN and infinities show in the extremes.
        if math.isfinite(values.max()) and math.isfinite(values.min()):
            self._count[piece.where] += piece.cells
            self._sum.add(piece)
            return
        axes = tuple(range(len(piece.where), values.ndim))
        self._count[piece.where] += np.count_nonzero(~np.isnan(values), axis=axes)
        for sign in (np.inf, -np.inf):
            found = values == sign
            if found.any():
                self._of(sign)[piece.where] += np.count_nonzero(found, axis=axes)
        finite = np.where(np.isfinite(values), values, 0.0)
        self._sum.add(Piece(piece.where, piece.starts, piece.extents, finite))

    def _absorb(self, other: Mean, where: tuple[slice, ...]) -> None:
        self._sum.merge(other._sum, where)
        self._count[where] += other._count
        for sign, count in other._infinite.items():
            self._of(sign)[where] += count

    def _state(self) -> dict[str, NDArray[Any]]:
        infinite = {f"infinite.{sign}": count for sign, count in self._infinite.items()}
        return {"count": self._count, **infinite, **self._sum.state()}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._count = state["count"]
        self._infinite = {
            sign: state[f"infinite.{sign}"]
            for sign in (np.inf, -np.inf)
            if f"infinite.{sign}" in state
        }
        self._sum.restore(state)

    def _of(self, sign: float) -> NDArray[np.int64]:
        if sign not in self._infinite:
            self._infinite[sign] = np.zeros(self._count.shape, dtype=np.int64)
        return self._infinite[sign]

    def _mean(self) -> NDArray[np.float64]:
        numbers, exponents = self._sum.rounded()
        with np.errstate(all="ignore"):
            total = np.ldexp(numbers, exponents)
            # A sum may be too large for float64 where the mean isn't.
            mean = np.where(
                np.isfinite(total),
                total / self._count,
                np.ldexp(numbers / self._count, exponents),
            )
            for sign, count in self._infinite.items():
                mean = np.where(count > 0, mean + sign, mean)
        return np.where(self._count == 0, np.nan, mean)

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task = self.task
        long_name = f"mean {task.quantity(attrs)} over {task.over}"
        comment = "The sum is exact, rounded once, then divided by the number of cells."
        count = {"long_name": f"number of cells in the {long_name}", "units": "1"}
        return [
            task.column(self._mean(), task.name, task.attrs(attrs, long_name, comment)),
            task.column(self._count.copy(), f"{task.name}_count", count),
        ]
