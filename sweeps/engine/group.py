"""Variables of the same dimensions, computed together block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.engine.axes import Array, Region
from sweeps.engine.case import FLAGS, Case, Variable
from sweeps.engine.evaluate import Evaluator, blocks_over, settings
from sweeps.engine.holes import Holes
from sweeps.engine.layout import Block

if TYPE_CHECKING:
    from sweeps.engine.plan import Plan

__all__ = ["Group", "dtype_of"]


class Group:
    """Variables of the same dimensions in one case, computed together block by block."""

    def __init__(self, plan: Plan, case: Case, evaluator: Evaluator, dims: tuple[str, ...]) -> None:
        self.case, self.evaluator, self.faults = case, evaluator, plan.faults
        grid = plan.grid
        self.run_length = grid.shape[-1]
        self.positions = [grid.position(dim) for dim in dims]
        self.lengths = [1 if p in case.fixed else grid.shape[p] for p in self.positions]
        self.idle = set(range(len(grid.shape))) - set(self.positions) - set(case.fixed)
        self.everything = evaluator.everything
        self.holes = Holes(plan, case, evaluator, self.positions)
        self.buffers: dict[str, Array] = {}

    def run(
        self, variables: Sequence[Variable], cells: int, arrays: Mapping[str, Array]
    ) -> Iterator[Block]:
        """Yield the variables' blocks, or fill the arrays given with them."""
        for part in blocks_over(self.lengths, cells):
            yield from self.at(part, variables, arrays)

    def at(
        self,
        part: Region,
        variables: Sequence[Variable],
        arrays: Mapping[str, Array] | None = None,
        beside: Mapping[str, Sequence[str]] | None = None,
    ) -> Iterator[Block]:
        """Yield the variables' blocks at one part of the case's own points."""
        region, place = list(self.everything), []
        shape = [1] * len(region)
        for position, piece in zip(self.positions, part, strict=True):
            actual = self.case.fixed.get(position, piece)
            region[position] = actual
            place.append(actual)
            shape[position] = actual.stop - actual.start
        for position in self.idle:
            region[position] = slice(0, 1)
        for variable in variables:
            name, own = variable.name, tuple(place)
            if arrays and name in arrays:
                # With the ellipsis a variable without dimensions gives its array, too.
                index: tuple[Any, ...] = (*own, ...)
                out = np.reshape(arrays[name][index], shape, copy=False)
            else:
                out = self._buffer(name, shape, dtype_of(name))
            extents = [piece.stop - piece.start for piece in place]
            others: dict[str, Array] = {}
            with settings(self.run_length):
                self._fill(name, tuple(region), out)
                for other in (beside or {}).get(name, ()):
                    values = self._buffer(f"{name} beside {other}", shape, np.dtype(np.float64))
                    self._fill(other, tuple(region), values)
                    others[other] = values.reshape(extents)
            yield Block(name, own, out.reshape(extents), others)

    def _buffer(self, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return an array that holds a variable's values until its next block."""
        if name not in self.buffers or self.buffers[name].shape != tuple(shape):
            self.buffers[name] = np.empty(shape, dtype=dtype)
        return self.buffers[name]

    def _fill(self, name: str, region: Region, out: Array) -> None:
        """Fill an array with a variable's values over a region, NaN where there are none."""
        if name == "status":
            out[...] = self.evaluator.reasons(self.case.status, region)
            return
        node = self.case.nodes.get(name)
        if node is None:
            out[...] = 0 if name in FLAGS else np.nan
            return
        self.evaluator.into(node, region, out)
        wrong = self.holes.at(region, self.faults.masking(name))
        if wrong is not None:
            np.copyto(out, 0 if name in FLAGS else np.nan, where=wrong)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of a variable's values."""
    return np.dtype(np.int32 if name in FLAGS else np.float64)
