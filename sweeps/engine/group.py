"""Variables of the same dimensions in one case, computed together block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from overhead.choose import Builder
from sweeps.engine import validity
from sweeps.engine.evaluators import Evaluators
from sweeps.engine.grid import (
    Array,
    Block,
    Grid,
    LabelCase,
    Region,
    Variable,
    dtype_of,
)


class Group:
    """Variables of the same dimensions in one case, computed together block by block.

    Points of a dimension at which no cell can be aren't computed.
    """

    def __init__(
        self,
        grid: Grid,
        cases: Sequence[LabelCase],
        case: LabelCase,
        builder: Callable[[LabelCase], Builder],
        evaluators: Evaluators,
        dims: tuple[str, ...],
        bits: int,
        faults: validity.Faults,
        status_name: str,
    ) -> None:
        self.faults, self.status_name = faults, status_name
        self.case, self.evaluators = case, evaluators
        self.positions = [grid.position(dim) for dim in dims]
        self.lengths = [1 if p in case.fixed else grid.shape[p] for p in self.positions]
        self.idle = set(range(len(grid.shape))) - set(self.positions) - set(case.fixed)
        # Values that another case shares may be there where this one's cells can't be.
        alone = set(case.fixed) <= set(self.positions)
        self.evaluator = evaluators.of(case, bits if alone else 0, validity.alive)
        self.everything = evaluators.of(case).everything
        self.holes = validity.Holes(
            cases, builder, case, evaluators, self.evaluator, self.positions
        )
        self.buffers: dict[str, Array] = {}
        # Where the points computed lie in a block, and the buffers that are blank elsewhere.
        self._index: tuple[Any, Any] = (None, None)
        self._blank: dict[str, tuple[Array, Any]] = {}

    def at(
        self,
        part: Region,
        variables: Sequence[Variable],
        arrays: Mapping[str, Array] | None = None,
        partners: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Block]:
        """Return the variables' blocks at one part of the case's own points."""
        region, pieces = list(self.everything), []
        shape = [1] * len(region)
        for position, piece in zip(self.positions, part, strict=True):
            actual = self.case.fixed.get(position, piece)
            region[position] = actual
            pieces.append(actual)
            shape[position] = actual.stop - actual.start
        for position in self.idle:
            region[position] = slice(0, 1)
        whole = tuple(region)
        inside = self._inside(whole)
        blocks = []
        for variable in variables:
            name, box = variable.name, tuple(pieces)
            if arrays and name in arrays:
                # With the ellipsis a variable without dimensions gives its array, too.
                index: tuple[Any, ...] = (*box, ...)
                out = np.reshape(arrays[name][index], shape, copy=False)
            else:
                out = self._buffer(name, shape, dtype_of(name))
            extents = [piece.stop - piece.start for piece in pieces]
            others: dict[str, Array] = {}
            self._fill(name, whole, inside, out)
            for other in (partners or {}).get(name, ()):
                values = self._buffer(f"{name} with {other}", shape, np.dtype(np.float64))
                self._fill(other, whole, inside, values)
                others[other] = values.reshape(extents)
                others[other].flags.writeable = False
            values = out.reshape(extents)
            values.flags.writeable = False
            blocks.append(Block(name, box, values, others))
        return blocks

    def _buffer(self, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return an array that holds a variable's values until its next block."""
        if name not in self.buffers or self.buffers[name].shape != tuple(shape):
            self.buffers[name] = np.empty(shape, dtype=dtype)
        return self.buffers[name]

    def _inside(self, region: Region) -> tuple[Region, Any] | None:
        """Return a region among the points computed, and where these are; None if it has none."""
        inside, rows = list(region), {}
        for dim, points in self.evaluator.points.items():
            position = self.evaluator.grid.position(dim)
            if position in self.idle:
                if not len(points):
                    return None
                continue
            part = region[position]
            first, last = (int(end) for end in np.searchsorted(points, (part.start, part.stop)))
            inside[position], rows[position] = slice(first, last), points[first:last] - part.start
            if first == last:
                return None
        if not rows:
            return tuple(inside), None
        lengths = [part.stop - part.start for part in region]
        key = lengths, {row: (inside[row], region[row]) for row in rows}
        if self._index[0] != key:
            # Places along neighbouring dimensions: of others, numpy would put dimensions first.
            start, stop = min(rows), max(rows) + 1
            every = [rows.get(at, np.arange(lengths[at])) for at in range(start, stop)]
            self._index = key, (*[slice(None)] * start, *np.ix_(*every))
        return tuple(inside), self._index[1]

    def _fill(
        self, name: str, region: Region, inside: tuple[Region, Any] | None, out: Array
    ) -> None:
        """Fill an array with a variable's values over a region, NaN where there are none."""
        if name == self.status_name:
            out[...] = self.evaluators.of(self.case).reasons(self.case.status, region)
            return
        node, missing = self.case.nodes.get(name), 0 if out.dtype.kind == "i" else np.nan
        inner, index = inside or (region, None)
        if node is None or inside is None or index is not None:
            # A buffer stays blank where nothing is computed.
            known = self._blank.get(name)
            if known is None or known[0] is not out or known[1] is not index:
                out[...] = missing
                self._blank[name] = (out, index)
        if node is None or inside is None:
            return
        values = out
        if index is not None:
            values = self._buffer("", [part.stop - part.start for part in inner], out.dtype)
        self.evaluator.into(node, inner, values)
        self.holes.blank(inner, self.faults.masking(name), values, missing)
        if index is not None:
            out[index] = values
