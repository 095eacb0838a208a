"""Quantiles along dimensions: exact where the values can be held, else from fine fixed bins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.float_bins import bin_middle, relative_error
from sweeps.engine.layout import Column
from sweeps.engine.reduce_base import Reducer, Task
from sweeps.engine.reduce_binned import BinnedCells
from sweeps.engine.reduce_split import Piece, Split

__all__ = ["MOST_HELD", "Quantile", "is_exact"]

Values = NDArray[np.float64]
# Values that are held until the end: 128 MiB.
MOST_HELD = 1 << 24
# Cells of a row that a block may have whole, so that it needn't be held: 1 MiB.
MOST_IN_ROW = 1 << 17
# An octave has 4096 bins, and no fewer than 32 if memory is short.
BITS, LEAST_BITS = 12, 5
SORTED_AT_ONCE = 1 << 20

DEFINITION = (
    "A quantile q of n cells lies at (n - 1) q between the sorted cells, counted from 0, "
    "linearly between its neighbours"
)


class Store(Protocol):
    """What quantiles are taken from."""

    @property
    def error(self) -> float:
        """The largest error, relative to a value."""

    def add(self, piece: Piece) -> None:
        """Take a piece in."""

    def merge(self, other: Any, where: tuple[slice, ...]) -> None:
        """Take in what another has of the cells in a place."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what there is, as arrays by name."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set it."""

    def quantiles(self) -> Values:
        """Return the quantiles; shape: kept cells, quantiles."""


def is_exact(split: Split) -> bool:
    """Return whether quantiles are exact: it depends on the dimensions alone."""
    total = split.kept_cells * split.reduced_cells
    return total <= MOST_HELD or (split.trailing and split.reduced_cells <= MOST_IN_ROW)


class Quantile(Reducer):
    """``quantile``: along a new dimension, with the largest error that they may have."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        # A part is gathered as the whole is.
        split, whole = task.split, task.whole or task.split
        # Coordinates ascend, each once.
        self._wanted = np.unique(np.array(task.reduction.quantiles, dtype=np.float64))
        self._store: Store
        if whole.kept_cells * whole.reduced_cells <= MOST_HELD:
            self._store = Held(split, self._wanted) if split is whole else Pieces(split)
        elif is_exact(whole):
            self._store = Rows(split, self._wanted)
        else:
            self._store = Binned(split, self._wanted, task.name)

    def _take(self, piece: Piece) -> None:
        self._store.add(piece)

    def _absorb(self, other: Quantile, where: tuple[slice, ...]) -> None:
        self._store.merge(other._store, where)

    def _state(self) -> dict[str, NDArray[Any]]:
        return self._store.state()

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._store.restore(state)

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task, dim = self.task, f"{self.task.name}_quantile"
        values = self._store.quantiles()
        error = self._store.error
        comment = f"{DEFINITION}; the cells were sorted, so this is exact."
        if error:
            comment = (
                f"{DEFINITION}, each of which is taken as the middle of a fixed bin: it is off by "
                f"at most {error:.2g} of itself."
            )
        long_name = f"quantiles of {task.quantity(attrs)} over {task.over}"
        told = {**task.attrs(attrs, long_name, comment), "relative_error": error}
        which = {"long_name": f"quantile of {task.quantity(attrs)}", "units": "1"}
        return [
            task.column(values, task.name, told, dim),
            Column(dim, (dim,), self._wanted.dtype, which, self._wanted),
        ]


class Held:
    """All values, until the end."""

    error = 0.0

    def __init__(self, split: Split, wanted: Values) -> None:
        self.split, self.wanted = split, wanted
        self.values = np.full((*split.kept_shape, *split.reduced_shape), np.nan)

    def add(self, piece: Piece) -> None:
        """Put a piece in its place."""
        reduced = (
            slice(start, start + extent)
            for start, extent in zip(piece.starts, piece.extents, strict=True)
        )
        self.values[(*piece.where, *reduced)] = piece.values

    def merge(self, other: Held | Pieces, where: tuple[slice, ...]) -> None:
        """Put another's values in their places."""
        if isinstance(other, Held):
            np.copyto(self.values, other.values, where=np.isnan(self.values))
            return
        for piece in other.pieces:
            moved = tuple(
                slice(part.start + begin.start, part.stop + begin.start)
                for part, begin in zip(piece.where, where, strict=True)
            )
            self.add(Piece(moved, piece.starts, piece.extents, piece.values))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the values."""
        return {"values": self.values}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the values."""
        self.values = state["values"]

    def quantiles(self) -> Values:
        """Sort, some rows at a time."""
        rows = self.values.reshape(self.split.kept_cells, self.split.reduced_cells)
        found = np.empty((len(rows), len(self.wanted)))
        step = max(1, SORTED_AT_ONCE // rows.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            found[part] = of_rows(rows[part], self.wanted)
        return found


class Pieces:
    """Values of a part of what is held: they are put in their places when they are merged."""

    error = 0.0

    def __init__(self, split: Split) -> None:
        self.split = split
        self.pieces: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """Copy a piece."""
        self.pieces.append(
            Piece(piece.where, piece.starts, piece.extents, np.array(piece.values, order="C"))
        )

    def merge(self, other: Pieces, where: tuple[slice, ...]) -> None:
        """Take in another's pieces of the same part."""
        self.pieces += other.pieces

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the pieces, one after the other: places and values."""
        places = [
            [*(part.start for part in one.where), *one.starts, *one.values.shape]
            for one in self.pieces
        ]
        values = [one.values.reshape(-1) for one in self.pieces]
        rank = 2 * len(self.split.kept_shape) + 2 * len(self.split.reduced_shape)
        return {
            "places": np.array(places, dtype=np.int64).reshape(-1, rank),
            "values": np.concatenate(values) if values else np.empty(0),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the pieces."""
        self.pieces, end = [], 0
        kept = len(self.split.kept_shape)
        for row in state["places"].tolist():
            starts, shape = row[: len(row) // 2], tuple(row[len(row) // 2 :])
            where = tuple(
                slice(start, start + size)
                for start, size in zip(starts[:kept], shape[:kept], strict=True)
            )
            begin, end = end, end + math.prod(shape)
            values = state["values"][begin:end].reshape(shape)
            self.pieces.append(Piece(where, tuple(starts[kept:]), shape[kept:], values))

    def quantiles(self) -> Values:
        """Not to be had of a part."""
        raise NotImplementedError


class Rows:
    """Each row's quantiles as soon as it is whole; only rows that aren't yet are held.

    Blocks in C order of at least a row's cells have the rows whole; smaller ones leave one open.
    """

    error = 0.0

    def __init__(self, split: Split, wanted: Values) -> None:
        self.split, self.wanted = split, wanted
        self.found = np.full((*split.kept_shape, len(wanted)), np.nan)
        self._open: dict[tuple[int, ...], Values] = {}
        self._filled: dict[tuple[int, ...], int] = {}

    def add(self, piece: Piece) -> None:
        """Take a piece in."""
        if piece.cells == self.split.reduced_cells:
            values = of_rows(piece.rows(), self.wanted)
            self.found[piece.where] = values.reshape(*piece.kept, -1)
            return
        reduced = tuple(
            slice(start, start + extent)
            for start, extent in zip(piece.starts, piece.extents, strict=True)
        )
        for point in np.ndindex(*piece.kept):
            cell = tuple(part.start + index for part, index in zip(piece.where, point, strict=True))
            self._row(cell)[reduced] = piece.values[point]
            self._fill(cell, piece.cells)

    def merge(self, other: Rows, where: tuple[slice, ...]) -> None:
        """Take in another's rows."""
        found = self.found[where]
        np.copyto(found, other.found, where=np.isnan(found))
        for place, values in other._open.items():
            cell = tuple(part.start + n for part, n in zip(where, place, strict=True))
            row = self._row(cell)
            np.copyto(row, values, where=np.isnan(row))
            self._fill(cell, other._filled[place])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the quantiles of whole rows, and the rows that aren't whole."""
        cells = np.array(list(self._open), dtype=np.int64).reshape(-1, len(self.split.kept_shape))
        rows = np.array(list(self._open.values()), dtype=np.float64)
        filled = np.array([self._filled[cell] for cell in self._open], dtype=np.int64)
        return {"found": self.found, "cells": cells, "rows": rows, "filled": filled}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set them."""
        self.found = state["found"]
        cells = [tuple(cell) for cell in state["cells"].tolist()]
        self._open = {cell: row.copy() for cell, row in zip(cells, state["rows"], strict=True)}
        self._filled = dict(zip(cells, state["filled"].tolist(), strict=True))

    def quantiles(self) -> Values:
        """Return what has been found."""
        return self.found.reshape(self.split.kept_cells, len(self.wanted))

    def _row(self, cell: tuple[int, ...]) -> Values:
        if cell not in self._open:
            self._open[cell] = np.full(self.split.reduced_shape, np.nan)
            self._filled[cell] = 0
        return self._open[cell]

    def _fill(self, cell: tuple[int, ...], cells: int) -> None:
        self._filled[cell] += cells
        if self._filled[cell] == self.split.reduced_cells:
            del self._filled[cell]
            self.found[cell] = of_rows(self._open.pop(cell).reshape(1, -1), self.wanted)[0]


class Binned:
    """Counts in fixed bins, fine ones."""

    def __init__(self, split: Split, wanted: Values, name: str) -> None:
        self.split, self.wanted = split, wanted
        self.bins = BinnedCells(split, BITS, LEAST_BITS, name)

    @property
    def error(self) -> float:
        """The largest error, relative to a value."""
        self.bins.items()
        return relative_error(self.bins.bits)

    def add(self, piece: Piece) -> None:
        """Count a piece's values."""
        self.bins.add(piece)

    def merge(self, other: Binned, where: tuple[slice, ...]) -> None:
        """Add another's counts."""
        self.bins.merge(other.bins, where)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the counts."""
        return dict(self.bins.counts.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the counts."""
        self.bins.counts.restore(state)

    def quantiles(self) -> Values:
        """Look the ranks up in the counts."""
        cells, keys, counts = self.bins.items()
        middle = bin_middle(keys, self.bins.bits)
        # The rank at which each bin ends, over all cells in a row.
        ends = np.cumsum(counts)
        ends = np.concatenate([ends, [0]])
        begin = np.searchsorted(cells, np.arange(self.split.kept_cells + 1))
        before = np.where(begin > 0, ends[begin - 1], 0)
        number = np.diff(before)
        lower, upper, weight = neighbours(number, self.wanted)
        found = np.full(lower.shape, np.nan)
        filled = number > 0
        start = before[:-1][filled, np.newaxis]
        low, high = (
            middle[np.searchsorted(ends[:-1], start + rank[filled], side="right")]
            for rank in (lower, upper)
        )
        found[filled] = between(low, high, weight[filled])
        return found


def of_rows(rows: Values, wanted: Values) -> Values:
    """Return quantiles of each row's cells that aren't NaN."""
    # NaN is sorted to the end; 0.0 and -0.0 are made one.
    ordered = np.sort(rows, axis=1) + 0.0
    number = rows.shape[1] - np.count_nonzero(np.isnan(rows), axis=1)
    lower, upper, weight = neighbours(number, wanted)
    low, high = (np.take_along_axis(ordered, rank, axis=1) for rank in (lower, upper))
    return np.where(number[:, np.newaxis] > 0, between(low, high, weight), np.nan)


def neighbours(
    number: NDArray[np.int64], wanted: Values
) -> tuple[NDArray[np.int64], NDArray[np.int64], Values]:
    """Return the ranks below and above each quantile of so many cells, and the way between them."""
    last = np.maximum(number - 1, 0)[:, np.newaxis]
    position = last * wanted
    lower = np.floor(position).astype(np.int64)
    return lower, np.minimum(lower + 1, last), position - lower


def between(low: Values, high: Values, weight: Values) -> Values:
    """Return values between neighbours; an infinite one draws the value to itself."""
    with np.errstate(all="ignore"):
        step = high - low
        found = np.where(weight < 0.5, low + step * weight, high - step * (1.0 - weight))
        # Neighbours so far apart that the step is too large, or infinite ones.
        mixed = low * (1.0 - weight) + high * weight
    found = np.where(np.isinf(step), mixed, found)
    found = np.where((low == high) | (weight == 0.0), low, found)
    return np.where(weight == 1.0, high, found)
