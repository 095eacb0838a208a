"""Boxes of a grid, and the best cells of each result that are known while boxes are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Floats = NDArray[np.float64]
# Of each result the most promising boxes are looked at first, to have something to beat.
PROMISING = 4


@dataclass(frozen=True)
class Boxes:
    """Boxes: a point of the discrete axes each, and a run of each continuous one."""

    point: Places  # Of the discrete axes, a flat index in C order
    starts: Places  # Shape: axes, boxes
    stops: Places  # Shape: axes, boxes
    bound: Floats  # Shape: keys, boxes.  No value inside comes before this

    def __len__(self) -> int:
        return len(self.point)

    def take(self, which: Any) -> Boxes:
        """Return some of them."""
        starts, stops = self.starts[:, which], self.stops[:, which]
        return Boxes(self.point[which], starts, stops, self.bound[:, which])

    @property
    def cells(self) -> Places:
        """How many cells each has."""
        return np.asarray(np.prod(self.stops - self.starts, axis=0, dtype=np.int64))

    @staticmethod
    def joined(several: Sequence[Boxes]) -> Boxes:
        """Return all of several."""
        rows = zip(*((one.starts, one.stops, one.bound) for one in several), strict=True)
        point = np.concatenate([one.point for one in several])
        return Boxes(point, *(np.concatenate(row, axis=1) for row in rows))


class Best:
    """The first so many (value, place) of each result; cells come in any order, or again."""

    def __init__(self, results: int, count: int, none: int) -> None:
        self.count, self.none = count, none
        self.keys = np.full((results, count), np.inf)
        self.places = np.full((results, count), none, dtype=np.int64)

    def add(self, results: Places, every: Floats, places: Places) -> None:
        """Take cells in."""
        (keys,) = every
        last, edge = self.keys[results, -1], self.places[results, -1]
        some = (keys < last) | ((keys == last) & (places < edge))
        if not some.any():
            return
        results, keys, places = results[some], keys[some], places[some]
        own = np.unique(results)
        results = np.concatenate([np.repeat(own, self.count), results])
        keys = np.concatenate([self.keys[own].ravel(), keys])
        places = np.concatenate([self.places[own].ravel(), places])
        order = np.lexsort((places, keys, results))
        results, keys, places = results[order], keys[order], places[order]
        again = np.r_[False, (results[1:] == results[:-1]) & (places[1:] == places[:-1])]
        again &= places != self.none
        results, keys, places = results[~again], keys[~again], places[~again]
        rank = np.arange(len(results)) - np.searchsorted(results, results)
        kept = rank < self.count
        self.keys[results[kept], rank[kept]] = keys[kept]
        self.places[results[kept], rank[kept]] = places[kept]

    def beats(self, results: Places, bound: Floats, first: Places) -> NDArray[np.bool_]:
        """Return which boxes hold nothing that is missing here."""
        last, edge = self.keys[results, -1], self.places[results, -1]
        return np.asarray((bound[0] > last) | ((bound[0] == last) & (first >= edge)))

    def promising(self, results: Places, bound: Floats) -> Places:
        """Return the boxes of each result with the best bounds."""
        order = np.lexsort((bound[0], results))
        rank = np.arange(len(order)) - np.searchsorted(results[order], results[order])
        return np.asarray(order[rank < PROMISING])

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what a reducer of `sweeps.engine.reduce` takes."""
        kept = (self.count, *shape)
        return {
            "keys": np.ascontiguousarray(self.keys.T).reshape(kept),
            "places": np.ascontiguousarray(self.places.T).reshape(kept),
        }


class Front:
    """The cells of each result that no other has both keys of better, or the same at once."""

    def __init__(self) -> None:
        whole = np.zeros(0, dtype=np.int64)
        self.points = (whole, np.zeros(0), np.zeros(0), whole)

    def add(self, results: Places, every: Floats, places: Places) -> None:
        """Take cells in."""
        from sweeps.engine.reduce import front

        offered = (results, every[0] + 0.0, every[1] + 0.0, places)
        cells, first, second, third = (
            np.concatenate(pair) for pair in zip(self.points, offered, strict=True)
        )
        self.points = front((cells, first, second, third))

    def beats(self, results: Places, bound: Floats, first: Places) -> NDArray[np.bool_]:
        """Return which boxes hold nothing that is missing here."""
        found = np.zeros(len(results), dtype=np.bool_)
        cells, keys, others, places = self.points
        order = np.argsort(results, kind="stable")
        own, begins = np.unique(results[order], return_index=True)
        for result, mine in zip(own.tolist(), np.split(order, begins[1:]), strict=True):
            low, high = np.searchsorted(cells, [result, result + 1])
            if low == high:
                continue
            # Of what has the first key as good, the last has the best second key.
            at = np.searchsorted(keys[low:high], bound[0, mine], side="right") - 1
            some, at = at >= 0, np.maximum(at, 0) + low
            less = (keys[at] < bound[0, mine]) | (others[at] < bound[1, mine])
            some &= (others[at] <= bound[1, mine]) & (less | (places[at] <= first[mine]))
            found[mine] = some
        return found

    def promising(self, results: Places, bound: Floats) -> Places:
        """Return the boxes whose bounds no other has both of better."""
        from sweeps.engine.reduce import front

        return front((results, bound[0], bound[1], np.arange(len(results))))[3]

    def state(self, _: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what a reducer of `sweeps.engine.reduce` takes."""
        return dict(zip(("cells", "first", "second", "places"), self.points, strict=True))


# Parts of boxes.


def halved(boxes: Boxes) -> Boxes:
    """Return the halves of boxes along every continuous axis."""
    middle = (boxes.starts + boxes.stops + 1) // 2
    found = []
    for corner in product((0, 1), repeat=len(boxes.starts)):
        upper = np.array(corner, dtype=bool)[:, np.newaxis]
        starts = np.where(upper, middle, boxes.starts)
        stops = np.where(upper, boxes.stops, middle)
        some = (stops > starts).all(axis=0)
        found.append(
            Boxes(boxes.point[some], starts[:, some], stops[:, some], boxes.bound[:, some])
        )
    return Boxes.joined(found)


def cells_of(boxes: Boxes) -> tuple[Places, Places]:
    """Return every cell of boxes."""
    cells = boxes.cells
    point = np.repeat(boxes.point, cells)
    local = np.arange(len(point)) - np.repeat(np.cumsum(cells) - cells, cells)
    starts = np.empty((len(boxes.starts), len(point)), dtype=np.int64)
    for at in range(len(boxes.starts) - 1, -1, -1):
        extent = np.repeat(boxes.stops[at] - boxes.starts[at], cells)
        starts[at] = np.repeat(boxes.starts[at], cells) + local % extent
        local //= extent
    return point, starts
