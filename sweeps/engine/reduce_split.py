"""How a variable's dimensions split into those that a reduction keeps and those that it reduces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEW", "Piece", "Split", "over_slices", "split"]

# Up to so many slices, numpy is faster slice by slice than with very short inner loops.
FEW = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a variable, seen with the kept dimensions first."""

    where: tuple[slice, ...]  # Its place along the kept dimensions
    starts: tuple[int, ...]  # Its place along the reduced dimensions
    extents: tuple[int, ...]  # Its place along the reduced dimensions
    values: NDArray[np.float64]  # Shape: the kept extents, then the reduced ones (a view)

    @property
    def kept(self) -> tuple[int, ...]:
        """The extents along the kept dimensions."""
        return self.values.shape[: len(self.where)]

    @property
    def cells(self) -> int:
        """Cells along the reduced dimensions."""
        return math.prod(self.extents)

    def rows(self) -> NDArray[np.float64]:
        """Return the values as a table: a row for each kept cell (a view where that can be)."""
        return self.values.reshape(math.prod(self.kept), self.cells)

    def slices(self) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
        """Yield each reduced point (from the piece's start) with the kept cells' values there."""
        for point in np.ndindex(*self.extents):
            yield point, self.values[(..., *point)]


@dataclass(frozen=True, slots=True)
class Split:
    """A variable's dimensions, kept and reduced."""

    shape: tuple[int, ...]  # The variable's
    kept_axes: tuple[int, ...]  # Positions of the dimensions, in the variable's order
    reduced_axes: tuple[int, ...]  # Positions of the dimensions, in the variable's order
    kept_dims: tuple[str, ...]  # Their names
    reduced_dims: tuple[str, ...]  # Their names
    # Lengths of the kept dimensions; ``(1,)`` where none is kept, so that results are arrays
    kept_shape: tuple[int, ...]
    reduced_shape: tuple[int, ...]  # Lengths of the reduced ones
    # How far apart neighbours along each reduced dimension are in canonical order
    strides: tuple[int, ...]
    # Where along the kept dimensions this begins, if it is a part of another (`within`)
    origin: tuple[int, ...] = ()

    @property
    def where(self) -> tuple[slice, ...]:
        """The place of this along the whole's kept dimensions."""
        begins = self.origin or (0,) * len(self.kept_shape)
        sizes = zip(begins, self.kept_shape, strict=True)
        return tuple(slice(begin, begin + size) for begin, size in sizes)

    def within(self, where: Sequence[slice]) -> Split:
        """Return the split of a part of the results: regions are still those of the variable."""
        return replace(
            self,
            kept_shape=tuple(part.stop - part.start for part in where),
            origin=tuple(part.start for part in where),
        )

    def box(self, region: Sequence[slice]) -> tuple[slice, ...]:
        """Return the part of the results that a region of the variable belongs to."""
        if not self.kept_axes:
            return (slice(0, 1),)
        return tuple(slice(region[axis].start, region[axis].stop) for axis in self.kept_axes)

    @property
    def kept_cells(self) -> int:
        """Cells of the result."""
        return math.prod(self.kept_shape)

    @property
    def reduced_cells(self) -> int:
        """Cells that each cell of the result comes from."""
        return math.prod(self.reduced_shape)

    @property
    def trailing(self) -> bool:
        """Whether the reduced dimensions are the last: blocks in C order can have them whole."""
        return self.reduced_axes == tuple(range(len(self.kept_axes), len(self.shape)))

    def piece(self, region: Sequence[slice], values: NDArray[np.float64]) -> Piece:
        """Return a block as the reduction sees it."""
        bounds = [part.indices(size) for part, size in zip(region, self.shape, strict=True)]
        extents = tuple(stop - start for start, stop, _ in bounds)
        if values.shape != extents or any(step != 1 for *_, step in bounds):
            message = f"values of shape {values.shape} don't fill the region {tuple(region)}"
            raise ValueError(message)
        view = values.transpose(*self.kept_axes, *self.reduced_axes)
        begins = self.origin or (0,) * len(self.kept_axes)
        where = tuple(
            slice(bounds[axis][0] - begin, bounds[axis][1] - begin)
            for axis, begin in zip(self.kept_axes, begins, strict=False)
        )
        if not where:
            where, view = (slice(0, 1),), view[np.newaxis]
        starts = tuple(bounds[axis][0] for axis in self.reduced_axes)
        return Piece(where, starts, view.shape[len(where) :], view)

    def place(self, point: Sequence[int]) -> int:
        """Return a reduced point's place in canonical (lexicographic) order."""
        return sum(index * stride for index, stride in zip(point, self.strides, strict=True))

    def places(self, piece: Piece, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return places in canonical order of points that are counted within a piece."""
        found = np.full(local.shape, self.place(piece.starts), dtype=np.int64)
        within = 1
        for extent, stride in zip(reversed(piece.extents), reversed(self.strides), strict=True):
            found += local // within % extent * stride
            within *= extent
        return found

    def indices(self, places: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the index along each reduced dimension; -1 for a place beyond the last."""
        none = places >= self.reduced_cells
        found = {}
        for dim, size, stride in zip(
            self.reduced_dims, self.reduced_shape, self.strides, strict=True
        ):
            found[dim] = np.where(none, -1, places // stride % size)
        return found


def split(dims: Sequence[str], sizes: Mapping[str, int], over: Sequence[str]) -> Split:
    """Split a variable's dimensions."""
    shape = tuple(int(sizes[dim]) for dim in dims)
    reduced = tuple(axis for axis, dim in enumerate(dims) if dim in over)
    kept = tuple(axis for axis, dim in enumerate(dims) if dim not in over)
    reduced_shape = tuple(shape[axis] for axis in reduced)
    strides = tuple(math.prod(reduced_shape[n + 1 :]) for n in range(len(reduced)))
    return Split(
        shape=shape,
        kept_axes=kept,
        reduced_axes=reduced,
        kept_dims=tuple(dims[axis] for axis in kept),
        reduced_dims=tuple(dims[axis] for axis in reduced),
        kept_shape=tuple(shape[axis] for axis in kept) or (1,),
        reduced_shape=reduced_shape,
        strides=strides,
    )


def over_slices(ufunc: np.ufunc, piece: Piece) -> NDArray[np.float64]:
    """Reduce a piece's reduced dimensions by a ufunc, in whatever order is fast."""
    values, kept = piece.values, piece.kept
    if piece.cells <= FEW:
        slices = piece.slices()
        total = next(slices)[1].copy()
        for _, one in slices:
            ufunc(total, one, out=total)
        return total
    if math.prod(kept) <= FEW:
        rows = [ufunc.reduce(values[point], axis=None) for point in np.ndindex(*kept)]
        return np.array(rows, dtype=np.float64).reshape(kept)
    axes = tuple(range(len(kept), values.ndim))
    return np.asarray(ufunc.reduce(values, axis=axes))
