"""Values that vary with few columns of a long axis: computed once for each of their combinations.

An axis is a table, such as the splits of a search with their micro-batches, and most nodes depend
on some of its columns alone: then few of its rows are different ones to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from overhead.dependencies import bits
from overhead.graph import Node, below

if TYPE_CHECKING:
    from sweeps.engine.grid import Grid

Places = NDArray[np.int64]
Codes = NDArray[np.uint16]
Numbered = tuple[Codes, int]

# Combinations up to which values are kept, and how many times as many rows there have to be.
MOST, FEWER = 1 << 15, 4


@dataclass(frozen=True, slots=True)
class Fold:
    """The combinations of some columns."""

    names: int  # The columns, as bits
    count: int  # How many there are
    of: Codes  # Which combination each row has

    def rows(self) -> Places:
        """Return the first row of each combination."""
        rows = np.empty(self.count, dtype=np.int64)
        rows[self.of[::-1]] = np.arange(len(self.of))[::-1]
        return rows


class Folds:
    """The combinations of an axis's columns."""

    def __init__(self, grid: Grid, dim: str) -> None:
        self.grid, self.dim = grid, dim
        self.position = grid.position(dim)
        columns = {name: grid.columns[name] for name, dims in grid.dims.items() if dim in dims}
        self._columns = {bits([name]): column.reshape(-1) for name, column in columns.items()}
        self._mask = bits(columns)
        self._below: dict[int, int] = {}
        self._folds: dict[int, Fold | None] = {}
        self.known: dict[int, Fold | None] = {}  # Of nodes
        self._codes: dict[int, Numbered] = {}
        self._numbers: dict[int, Numbered | None] = {}  # Of columns, as bits

    def of(self, node: Node) -> Fold | None:
        """Return the combinations with which a node varies; None where these are many."""
        names = below(node, self._below) & self._mask
        if names not in self._folds:
            self._folds[names] = self._fold(names)
        fold = self.known[id(node)] = self._folds[names]
        return fold

    def _fold(self, names: int) -> Fold | None:
        """Return the combinations of some columns; None where they are many."""
        numbered = self._combined(names)
        if numbered is None:
            return None
        numbers, count = numbered
        return Fold(names, count, numbers)

    def _combined(self, names: int) -> Numbered | None:
        """Return the number of each row's combination of some columns, and how many there are."""
        if names not in self._numbers:
            self._numbers[names] = self._combine(names)
        return self._numbers[names]

    def _combine(self, names: int) -> Numbered | None:
        """Combine the last of some columns with the others, of which others may have the rest."""
        last = next((bit for bit in reversed(self._columns) if bit & names), None)
        if last is None:
            return np.zeros(self.grid.sizes[self.dim], dtype=np.uint16), 1
        before = self._combined(names ^ last)
        codes, several = self._coded(last)
        if before is None or several > MOST:
            return None
        first, count = before
        numbers, count = _numbered(first.astype(np.int64) * several + codes, count * several)
        many = count * FEWER > len(numbers) or count > MOST
        return None if many else (numbers.astype(np.uint16), count)

    def _coded(self, bit: int) -> Numbered:
        if bit not in self._codes:
            values = self._columns[bit]
            codes = values.astype(np.int64)
            if not (np.all(codes == values) and codes.min() >= 0 and codes.max() < MOST):
                codes = np.unique(values, return_inverse=True)[1]
            numbers, count = _numbered(codes, int(codes.max()) + 1)
            self._codes[bit] = numbers.astype(np.uint16), count
        return self._codes[bit]


def _numbered(keys: Places, most: int) -> tuple[Places, int]:
    """Return the numbers of keys below some number, without gaps."""
    there = np.zeros(most, dtype=np.bool_)
    there[keys] = True
    return (np.cumsum(there) - 1)[keys], int(np.count_nonzero(there))
