"""Blocks as they come: each is checked, and every cell is to be given exactly once."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.layout import Block, Column, Layout
from sweeps.errors import RunError, nearest

__all__ = ["Coverage", "Target", "target_of", "targets"]

_PRIME = 2**127 - 1


class Coverage:
    """Tells whether regions cover an array exactly once, without remembering them.

    Cell ``(i, j, ..)`` weighs ``r**i * s**j * ..`` modulo a prime, r, s, .. being random. The
    weight of a region is a product over its dimensions of geometric sums, so it costs the same
    whatever the region's size. All cells given once each weigh what the whole array weighs; for
    any other collection the two are polynomials in r, s, .. that differ, and they agree by chance
    with a probability below ``sum(shape) / 2**126`` (Schwartz and Zippel).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        draw = random.Random(str(shape))  # repeatable: nobody chooses blocks to deceive it
        self._bases = [draw.randrange(2, _PRIME - 1) for _ in shape]
        self._whole = self._weight([(0, size) for size in shape])
        self._weighed = 0
        self.total = math.prod(shape)
        self.cells = 0

    def _weight(self, bounds: list[tuple[int, int]]) -> int:
        # The common factors 1/(r - 1) of the geometric sums are left out on both sides.
        weight = 1
        for base, (start, stop) in zip(self._bases, bounds, strict=True):
            weight = weight * (pow(base, stop, _PRIME) - pow(base, start, _PRIME)) % _PRIME
        return weight

    def add(self, region: tuple[slice, ...]) -> None:
        """Count a region."""
        bounds = [(each.start, each.stop) for each in region]
        self._weighed = (self._weighed + self._weight(bounds)) % _PRIME
        self.cells += math.prod(stop - start for start, stop in bounds)

    @property
    def complete(self) -> bool:
        """Whether every cell has been given exactly once."""
        return self.cells == self.total and self._weighed == self._whole

    def fault(self) -> str:
        """Return what is wrong, in words."""
        if self.cells < self.total:
            return f"{self.total - self.cells} of its {self.total} cells were not computed"
        if self.cells > self.total:
            return f"{self.cells - self.total} cells were computed more than once"
        return "some cells were not computed, and others more than once"


class Target:
    """One variable that blocks are placed into."""

    def __init__(self, column: Column, shape: tuple[int, ...]) -> None:
        self.column = column
        self.shape = shape
        self.coverage = Coverage(shape)

    def place(self, block: Block) -> tuple[tuple[slice, ...], NDArray[np.generic]]:
        """Check a block and count its cells."""
        name = self.column.name
        if len(block.region) != len(self.shape):
            ours = ", ".join(self.column.dims)
            message = f"{name}: a block of {len(block.region)} dimensions; it has ({ours})"
            raise RunError(message)
        region = tuple(
            slice(*each.indices(size)[:2])
            for each, size in zip(block.region, self.shape, strict=True)
        )
        wanted = tuple(max(0, each.stop - each.start) for each in region)
        values = np.asarray(block.values)
        if values.shape != wanted or any(each.step not in {None, 1} for each in block.region):
            message = f"{name}: a block of shape {values.shape} for the region {block.region}"
            raise RunError(message)
        if not fits(values, self.column.dtype):
            message = f"{name}: a block of {values.dtype} has values that {self.column.dtype} lacks"
            raise RunError(message)
        self.coverage.add(region)
        return region, values

    def finish(self) -> None:
        """Check that nothing is missing."""
        if not self.coverage.complete:
            message = f"{self.column.name}: {self.coverage.fault()}; nothing was kept"
            raise RunError(message)


def fits(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether values keep their meaning in a type."""
    if values.dtype == dtype:
        return True
    if dtype.kind == "f":
        return values.dtype.kind in "fiub"
    if values.dtype.kind not in "iub" or dtype.kind not in "iub":
        return False
    if np.can_cast(values.dtype, dtype, "safe") or values.size == 0:
        return True
    limits = np.iinfo(np.int8 if dtype.kind == "b" else dtype)
    return int(values.min()) >= limits.min and int(values.max()) <= limits.max


def targets(layout: Layout) -> dict[str, Target]:
    """Return a target for each variable of a layout."""
    return {each.name: Target(each, layout.shape(each)) for each in layout.variables}


def target_of(block: Block, known: Mapping[str, Target]) -> Target:
    """Return the target that a block is for."""
    if block.name not in known:
        message = f"a block of '{block.name}', which the layout lacks; {nearest(block.name, known)}"
        raise RunError(message)
    return known[block.name]
