"""What comes from counts in fixed bins: a histogram, and quantiles of what can't be held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.float_bins import INFINITE, bin_edge, bins_of
from sweeps.engine.layout import Column
from sweeps.engine.reduce_base import Reducer, Task
from sweeps.engine.reduce_split import Piece, Split
from sweeps.engine.sparse_counts import SparseCounts

__all__ = ["MOST_BINNED", "BinnedCells", "Histogram"]

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
        told = f"{name}: the values are spread over more than {MOST_BINS} bins; reduce over more"
        self.counts = SparseCounts(bits - least_bits, MOST_BINS, f"{told} dimensions at once")

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
            own = np.ravel_multi_index(moved, self.split.kept_shape)
            codes = codes + ((own - cells) << width)
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
        found = []
        quantity, dim = self.task.quantity(attrs), self._dim
        named = {dim: "lower edge (included)", f"{dim}_upper": "upper edge (excluded)"}
        for (name, words), keys in zip(named.items(), self._bins(), strict=True):
            edges = bin_edge(keys, HISTOGRAM_BITS)
            told = {"long_name": f"{words} of a bin of {quantity}"}
            told |= {"units": attrs["units"]} if "units" in attrs else {}
            found.append(Column(name, (dim,), edges.dtype, told, edges))
        return found

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
        told = {"long_name": f"number of cells by {quantity}", "units": "1", "comment": comment}
        apart = {"long_name": f"number of cells of infinite {quantity}", "units": "1"}
        return [
            task.column(table, task.name, told, self._dim),
            task.column(infinite, f"{task.name}_infinite", apart),
            *self._edges(attrs),
        ]


def _is_finite(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    highest = (INFINITE - 1) << HISTOGRAM_BITS
    return (keys > -INFINITE << HISTOGRAM_BITS) & (keys < highest)
