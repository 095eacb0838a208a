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

# Combinations up to which values are kept, and how many times as many rows there have to be.
MOST, FEWER = 1 << 15, 4


@dataclass(frozen=True, slots=True)
class Fold:
    """The combinations of some columns."""

    names: int  # The columns, as bits
    rows: Places  # Of each combination the first row
    of: Codes  # Which combination each row has


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
        self._codes: dict[int, tuple[Codes, int]] = {}

    def of(self, node: Node) -> Fold | None:
        """Return the combinations with which a node varies; None where these are many."""
        names = below(node, self._below) & self._mask
        if names not in self._folds:
            self._folds[names] = self._fold(names)
        fold = self.known[id(node)] = self._folds[names]
        return fold

    def _fold(self, names: int) -> Fold | None:
        """Return the combinations of some columns; None where they are many."""
        length = self.grid.sizes[self.dim]
        numbers, count = np.zeros(length, dtype=np.int64), 1
        for bit in self._columns:
            if bit & names:
                codes, several = self._coded(bit)
                if several > MOST:
                    return None
                numbers, count = _numbered(numbers * several + codes, count * several)
                if count * FEWER > length or count > MOST:
                    return None
        rows = np.empty(count, dtype=np.int64)
        rows[numbers[::-1]] = np.arange(length)[::-1]
        return Fold(names, rows, numbers.astype(np.uint16))

    def _coded(self, bit: int) -> tuple[Codes, int]:
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
