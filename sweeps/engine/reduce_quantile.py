"""Quantiles along dimensions: exact where the values can be held, else from fine fixed bins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column
from sweeps.engine.reduce_base import Piece, Reducer, Split, Task
from sweeps.errors import RunError

# Fixed bins of float64: an octave in a power of two of equal parts, edges exact, any sign.
#
# A float64's bits, read as an integer with the sign applied, are in the numbers' own order; leaving
# out low bits makes bins.  The bin of a key holds the numbers from its lower edge (included) to the
# next bin's (excluded).

MANTISSA_BITS = 52
SIGN_BIT = 63
INFINITE_BITS = 0x7FF << MANTISSA_BITS
# The octave of minus infinity, which is none of a finite number: the least that int64 has.
INFINITE = 1 << 11


def bins_of(values: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return the keys of the bins that values are in."""
    keys = values.view(np.int64)
    if keys.size and keys.min() < 0:
        magnitude = keys & ((1 << SIGN_BIT) - 1)
        keys = np.where(keys < 0, -magnitude, keys)
        keys[keys == -INFINITE_BITS] = -(1 << SIGN_BIT)
    codes: NDArray[np.int64] = keys >> (MANTISSA_BITS - bits)
    return codes


def bin_edge(keys: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """Return the lower edges of finite numbers' bins."""
    return _decoded(keys << (MANTISSA_BITS - bits))


def bin_middle(keys: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """Return what stands for the numbers of a bin: its middle; 0 for the first of 0, and inf.

    Off by at most `relative_error` of a normal number.
    """
    shift = MANTISSA_BITS - bits
    low = keys << shift
    middle = _decoded(low + (1 << shift >> 1))
    middle[keys == 0] = 0.0
    middle[keys >= (INFINITE - 1) << bits] = np.inf
    middle[keys <= -INFINITE << bits] = -np.inf
    return middle


def relative_error(bits: int) -> float:
    """Return how far the middle of a bin is from a number in it at most, relative to that."""
    return math.ldexp(1.0, -bits - 1)


def _decoded(ordered: NDArray[np.int64]) -> NDArray[np.float64]:
    sign = np.int64(-(1 << SIGN_BIT))
    return np.where(ordered < 0, -ordered | sign, ordered).view(np.float64)


# Counts by integer code, of which few of very many occur; the same in any order of addition.

Codes = NDArray[np.int64]
# How many counts of new codes wait at least, before they are sorted in.
WAITING = 1 << 14
# Codes of a block are counted in a table that has at most so many entries a code.
TABLE = 4


class SparseCounts:
    """How often each code came, with fewer bits of the codes if they become too many.

    The bits that are left depend on the codes alone, not on their order: a bit goes when more
    codes than the limit differ without it.
    """

    def __init__(self, bits: int, limit: int, refusal: str) -> None:
        self.bits, self.limit, self.refusal = bits, limit, refusal
        self.dropped = 0
        self._codes = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Codes, Codes]] = []
        self._waits = 0

    def add(self, codes: Codes) -> None:
        """Count codes."""
        if codes.size == 0:
            return
        codes = codes >> self.dropped
        low = int(codes.min())
        if int(codes.max()) - low < TABLE * codes.size:
            table = np.bincount(codes - low)
            filled = np.flatnonzero(table)
            self._add(filled + low, table[filled])
        else:
            self._add(*np.unique(codes, return_counts=True))

    def merge(self, other: SparseCounts) -> None:
        """Add another's counts."""
        self.take(*other.items(), other.dropped)

    def take(self, codes: Codes, counts: Codes, dropped: int) -> None:
        """Add counts of codes without some bits."""
        self._drop(dropped)
        self._add(*_summed(codes >> (self.dropped - dropped), counts))

    def state(self) -> dict[str, Codes]:
        """Return the counts as arrays by name."""
        codes, counts = self.items()
        return {"codes": codes, "counts": counts, "dropped": np.array(self.dropped)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the counts, as `state` gives them."""
        self._codes, self._counts = state["codes"], state["counts"]
        self.dropped, self._waiting, self._waits = int(state["dropped"]), [], 0

    def items(self) -> tuple[Codes, Codes]:
        """Return the codes, ascending and without the bits dropped, and their counts."""
        self._settle()
        return self._codes, self._counts

    def _add(self, codes: Codes, counts: Codes) -> None:
        """Add counts of codes that are ascending, each once."""
        if self._codes.size:
            at = np.minimum(np.searchsorted(self._codes, codes), self._codes.size - 1)
            known = self._codes[at] == codes
            self._counts[at[known]] += counts[known]
            codes, counts = codes[~known], counts[~known]
        if codes.size:
            self._waiting.append((codes, counts))
            self._waits += codes.size
        if self._waits > max(WAITING, self._codes.size // 2):
            self._settle()

    def _settle(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waits = self._waiting, [], 0
        codes, counts = zip((self._codes, self._counts), *waiting, strict=True)
        self._codes, self._counts = _summed(np.concatenate(codes), np.concatenate(counts))
        while self._codes.size > self.limit:
            if self.dropped == self.bits:
                raise RunError(self.refusal)
            self._drop(self.dropped + 1)

    def _drop(self, bits: int) -> None:
        """Leave out bits, until so many are left out."""
        if bits <= self.dropped:
            return
        self._settle()
        if bits > self.dropped:
            codes = self._codes >> (bits - self.dropped)
            self._codes, self._counts = _summed(codes, self._counts)
            self.dropped = bits


def _summed(codes: Codes, counts: Codes) -> tuple[Codes, Codes]:
    """Return codes ascending, each once, with the sums of their counts."""
    if codes.size == 0:
        return codes, counts
    order = np.argsort(codes, kind="stable")
    codes, counts = codes[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return codes[starts], np.add.reduceat(counts, starts)


# What comes from counts in fixed bins: a histogram, and quantiles of what can't be held.

# Bins that are kept, over all cells of the result: 64 MiB of codes and counts.
MOST_BINS = 1 << 22
# Cells of a result that bins are counted for: each then has room for some hundred of them.
MOST_BINNED = 1 << 15
# Bits of a bin's key beyond those of its place within an octave: octaves of both signs.
OCTAVE_BITS = 12
# An octave has eight bins in a histogram.
HISTOGRAM_BITS = 3
# More empty bins than this, next to each other, make one.
MOST_EMPTY = 64


class BinnedCells:
    """How many values of each kept cell are in each fixed bin."""

    def __init__(self, split: Split, bits: int, least_bits: int, name: str) -> None:
        self.split, self.most_bits = split, bits
        refusal = f"{name}: the values are spread over more than {MOST_BINS} bins; reduce over more"
        self.counts = SparseCounts(bits - least_bits, MOST_BINS, f"{refusal} dimensions at once")

    @property
    def bits(self) -> int:
        """An octave has ``2**bits`` bins now."""
        return self.most_bits - self.counts.dropped

    def add(self, piece: Piece) -> None:
        """Count a piece's values; NaN is passed over."""
        values = piece.values
        codes = self._cells(piece)
        holes = np.isnan(values)
        if holes.any():
            chosen = ~holes
            codes = np.broadcast_to(codes, values.shape)[chosen]
            values = values[chosen]
        keys = bins_of(np.ascontiguousarray(values), self.most_bits)
        self.counts.add((codes + keys).reshape(-1))

    def items(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return kept cells (ascending), keys of bins (ascending in each), and counts."""
        codes, counts = self.counts.items()
        width = OCTAVE_BITS + self.bits
        cells = codes >> width
        return cells, codes - (cells << width) - (INFINITE << self.bits), counts

    def merge(self, other: BinnedCells, where: tuple[slice, ...]) -> None:
        """Add another's counts of the kept cells in a place."""
        codes, counts = other.counts.items()
        if other.split.kept_shape != self.split.kept_shape:
            width = OCTAVE_BITS + other.bits
            cells = codes >> width
            points = np.unravel_index(cells, other.split.kept_shape)
            moved = tuple(point + part.start for point, part in zip(points, where, strict=True))
            moved_cells = np.ravel_multi_index(moved, self.split.kept_shape)
            codes = codes + ((moved_cells - cells) << width)
        self.counts.take(codes, counts, other.counts.dropped)

    def _cells(self, piece: Piece) -> NDArray[np.int64]:
        """Return what each kept cell adds to its values' keys, shaped to broadcast with them."""
        shape = self.split.kept_shape
        cells = np.zeros((1,) * len(shape), dtype=np.int64)
        for axis, (part, size) in enumerate(zip(piece.where, shape, strict=True)):
            along = np.arange(part.start, part.stop, dtype=np.int64)
            along = along.reshape([-1 if n == axis else 1 for n in range(len(shape))])
            cells = cells * size + along
        width = OCTAVE_BITS + self.most_bits
        offset = (cells << width) + (INFINITE << self.most_bits)
        return offset.reshape(*piece.kept, *(1 for _ in piece.extents))


class Histogram(Reducer):
    """``histogram``: how many cells are in each of fixed bins, eight an octave.

    The bins go from the first to the last that has a cell.  Infinite cells are counted apart.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._binned = BinnedCells(task.split, HISTOGRAM_BITS, HISTOGRAM_BITS, task.name)

    @property
    def _dim(self) -> str:
        return f"{self.task.name}_bin"

    def _take(self, piece: Piece) -> None:
        self._binned.add(piece)

    def _absorb(self, other: Histogram, where: tuple[slice, ...]) -> None:
        self._binned.merge(other._binned, where)

    def _state(self) -> dict[str, NDArray[Any]]:
        return dict(self._binned.counts.state())

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._binned.counts.restore(state)

    def _bins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the keys of the bins' lower edges, and of their upper ones."""
        _, keys, _ = self._binned.items()
        keys = np.unique(keys[_is_finite(keys)])
        if keys.size == 0:
            keys = np.zeros(1, dtype=np.int64)
        wide = np.flatnonzero(np.diff(keys) - 1 > MOST_EMPTY)
        firsts = keys[np.append(0, wide + 1)]
        ends = keys[np.append(wide, len(keys) - 1)] + 1
        # Between two runs of bins, the end of the first is the lower edge of an empty bin.
        runs = [np.arange(*pair) for pair in zip(firsts, ends, strict=True)]
        edges = np.union1d(np.concatenate(runs), ends[:-1])
        return edges, np.append(edges[1:], ends[-1])

    def _edges(self, attrs: Mapping[str, Any]) -> list[Column]:
        columns = []
        quantity, dim = self.task.quantity(attrs), self._dim
        named = {dim: "lower edge (included)", f"{dim}_upper": "upper edge (excluded)"}
        for (name, words), keys in zip(named.items(), self._bins(), strict=True):
            edges = bin_edge(keys, HISTOGRAM_BITS)
            attributes = {"long_name": f"{words} of a bin of {quantity}"}
            attributes |= {"units": attrs["units"]} if "units" in attrs else {}
            columns.append(Column(name, (dim,), edges.dtype, attributes, edges))
        return columns

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task, quantity = self.task, self.task.quantity(attrs)
        cells, keys, counts = self._binned.items()
        edges, _ = self._bins()
        table = np.zeros((task.split.kept_cells, len(edges)), dtype=np.int64)
        finite = _is_finite(keys)
        table[cells[finite], np.searchsorted(edges, keys[finite])] = counts[finite]
        infinite = np.zeros(task.split.kept_cells, dtype=np.int64)
        np.add.at(infinite, cells[~finite], counts[~finite])
        comment = (
            f"Over {task.over}. Edges are fixed: an octave has {1 << HISTOGRAM_BITS} bins of equal "
            f"width; more than {MOST_EMPTY} empty bins in a row are joined. Holes (NaN) are in "
            f"none, infinite cells are counted in {task.name}_infinite."
        )
        attributes = {
            "long_name": f"number of cells by {quantity}",
            "units": "1",
            "comment": comment,
        }
        apart = {"long_name": f"number of cells of infinite {quantity}", "units": "1"}
        return [
            task.column(table, task.name, attributes, self._dim),
            task.column(infinite, f"{task.name}_infinite", apart),
            *self._edges(attrs),
        ]


def _is_finite(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    highest = (INFINITE - 1) << HISTOGRAM_BITS
    return (keys > -INFINITE << HISTOGRAM_BITS) & (keys < highest)


Values = NDArray[np.float64]
# Values that are held until the end: 128 MiB.
MOST_VALUES = 1 << 24
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
    return total <= MOST_VALUES or (split.trailing and split.reduced_cells <= MOST_IN_ROW)


class Quantile(Reducer):
    """``quantile``: along a new dimension, with the largest error that they may have."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        # A part is gathered as the whole is.
        split, whole = task.split, task.whole or task.split
        # Coordinates ascend, each once.
        self._wanted = np.unique(np.array(task.reduction.quantiles, dtype=np.float64))
        self._store: Store
        if whole.kept_cells * whole.reduced_cells <= MOST_VALUES:
            self._store = AllValues(split, self._wanted) if split is whole else Pieces(split)
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
        attributes = {**task.attrs(attrs, long_name, comment), "relative_error": error}
        which = {"long_name": f"quantile of {task.quantity(attrs)}", "units": "1"}
        return [
            task.column(values, task.name, attributes, dim),
            Column(dim, (dim,), self._wanted.dtype, which, self._wanted),
        ]


class AllValues:
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

    def merge(self, other: AllValues | Pieces, where: tuple[slice, ...]) -> None:
        """Put another's values in their places."""
        if isinstance(other, AllValues):
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
        values = np.empty((len(rows), len(self.wanted)))
        step = max(1, SORTED_AT_ONCE // rows.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            values[part] = of_rows(rows[part], self.wanted)
        return values


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
        locations = [
            [*(part.start for part in piece.where), *piece.starts, *piece.values.shape]
            for piece in self.pieces
        ]
        values = [chunk.values.reshape(-1) for chunk in self.pieces]
        rank = 2 * len(self.split.kept_shape) + 2 * len(self.split.reduced_shape)
        return {
            "places": np.array(locations, dtype=np.int64).reshape(-1, rank),
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
        state = self.found[where]
        np.copyto(state, other.found, where=np.isnan(state))
        for index, values in other._open.items():
            cell = tuple(part.start + n for part, n in zip(where, index, strict=True))
            row = self._row(cell)
            np.copyto(row, values, where=np.isnan(row))
            self._fill(cell, other._filled[index])

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
        values = np.full(lower.shape, np.nan)
        filled = number > 0
        start = before[:-1][filled, np.newaxis]
        low, high = (
            middle[np.searchsorted(ends[:-1], start + rank[filled], side="right")]
            for rank in (lower, upper)
        )
        values[filled] = between(low, high, weight[filled])
        return values


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
        result = np.where(weight < 0.5, low + step * weight, high - step * (1.0 - weight))
        # Neighbours so far apart that the step is too large, or infinite ones.
        mixed = low * (1.0 - weight) + high * weight
    result = np.where(np.isinf(step), mixed, result)
    result = np.where((low == high) | (weight == 0.0), low, result)
    return np.where(weight == 1.0, high, result)
