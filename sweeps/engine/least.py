"""The least keys of many cells, with the places where they are, whatever order they come in."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.reduce_split import FEW, Piece, Split, over_slices

__all__ = ["Least"]

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
