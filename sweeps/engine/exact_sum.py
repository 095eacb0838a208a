"""Sums of float64 that are exact until they are rounded, once: the same in any order of addition.

A float64 is a whole multiple of 2**-1088 below 2**1024.  Cut into limbs of 32 bits it is a handful
of small whole numbers, whose sums are exact; the limbs that occur are kept, each an int64 a cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.reduce_split import Piece, over_slices

__all__ = ["MOST_CELLS", "ExactSum"]

LIMB_BITS = 32
# The weight of limb 0 is 2**-LOWEST_BIT: below the least float64, 2**-1074, and a whole limb.
LOWEST_BIT = 1088
MASK = (1 << LIMB_BITS) - 1
# Cells that one `add` may sum: below, sums of limbs are exact as float64.
MOST_CELLS = 1 << 20
# Cells after whose addition a limb may be near the end of int64, and carries are due.
MOST_LOAD = 1 << 29
ROUNDED_AT_ONCE = 1 << 15
# Powers of two beyond this don't fit a float64 (or not exactly), and are applied in two steps.
ONE_STEP = 1000


def weight(limb: int) -> int:
    """Return the exponent of two that a limb's unit stands for."""
    return LIMB_BITS * limb - LOWEST_BIT


def scaled(values: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Return values times a power of two; exact where the result is a normal number."""
    if abs(exponent) <= ONE_STEP:
        return values * math.ldexp(1.0, exponent)
    half = exponent // 2
    found = values * math.ldexp(1.0, half)
    found *= math.ldexp(1.0, exponent - half)
    return found


class ExactSum:
    """Sums, one a cell, of any number of finite float64."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.limbs: dict[int, NDArray[np.int64]] = {}
        # No limb is larger than so many times 2**32.
        self._load = 0

    def add(self, piece: Piece) -> None:
        """Add a piece's values over its reduced dimensions."""
        if self._load + piece.cells > MOST_LOAD:
            self._carry()
        self._load += piece.cells
        rest = piece.values
        while (largest := max(float(rest.max()), -float(rest.min()))) > 0.0:
            limb = (math.frexp(largest)[1] - 1 + LOWEST_BIT) // LIMB_BITS
            whole = scaled(rest, -weight(limb))
            np.trunc(whole, out=whole)
            part = Piece(piece.where, piece.starts, piece.extents, whole)
            self._limb(limb)[piece.where] += over_slices(np.add, part).astype(np.int64)
            if limb == 0:
                break
            # Exact: what is left are the lower bits.
            rest = rest - scaled(whole, weight(limb))

    def merge(self, other: ExactSum, where: tuple[slice, ...] | None = None) -> None:
        """Add another's sums."""
        if self._load + other._load > MOST_LOAD:
            self._carry()
            other._carry()
        self._load += other._load
        for limb, sums in other.limbs.items():
            self._limb(limb)[where or ...] += sums

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Return the sums as arrays by name."""
        limbs = {f"limb.{limb}": sums for limb, sums in self.limbs.items()}
        return {"load": np.array(self._load, dtype=np.int64), **limbs}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the sums, as `state` gives them."""
        self._load = int(state["load"])
        named = ((name.partition("."), sums) for name, sums in state.items())
        self.limbs = {int(key): sums.copy() for (kind, _, key), sums in named if kind == "limb"}

    def rounded(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the sums, each rounded once (to nearest, ties to even), as ``f * 2**e``."""
        cells = math.prod(self.shape)
        numbers, exponents = np.zeros(cells), np.zeros(cells, dtype=np.int64)
        if self.limbs:
            flat = {limb: sums.reshape(-1) for limb, sums in self.limbs.items()}
            for start in range(0, cells, ROUNDED_AT_ONCE):
                part = slice(start, start + ROUNDED_AT_ONCE)
                found = rounded({limb: sums[part] for limb, sums in flat.items()})
                numbers[part], exponents[part] = found
        return numbers.reshape(self.shape), exponents.reshape(self.shape)

    def _limb(self, limb: int) -> NDArray[np.int64]:
        if limb not in self.limbs:
            self.limbs[limb] = np.zeros(self.shape, dtype=np.int64)
        return self.limbs[limb]

    def _carry(self) -> None:
        """Bring every limb back between -2**31 and 2**31, so that there is room again.

        Digits of both signs: small negative sums have no long row of leading ones.
        """
        limb = min(self.limbs, default=0)
        while limb <= max(self.limbs, default=-1):
            if limb in self.limbs:
                carry = (self.limbs[limb] + (1 << (LIMB_BITS - 1))) >> LIMB_BITS
                if carry.any():
                    self.limbs[limb] -= carry << LIMB_BITS
                    self._limb(limb + 1)[...] += carry
            limb += 1
        self._load = 1


def rounded(
    limbs: dict[int, NDArray[np.int64]],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Round sums in limbs to float64."""
    low, high = min(limbs) - 2, max(limbs)
    cells = len(limbs[high])
    # Two limbs below, which are 0, so that three limbs can always be read; two above for carries.
    digits = np.zeros((high - low + 3, cells), dtype=np.int64)
    for limb, sums in limbs.items():
        digits[limb - low] = sums
    _propagate(digits)
    negative = digits[-1] < 0
    np.negative(digits, out=digits, where=negative)
    _propagate(digits)

    filled = digits != 0
    nothing = ~filled.any(axis=0)
    top = len(digits) - 1 - filled[::-1].argmax(axis=0)
    top[nothing] = 2
    lowest = np.where(nothing, len(digits), filled.argmax(axis=0))
    row = np.arange(cells)
    first, second, third = (digits[top - n, row].astype(np.uint64) for n in range(3))
    # The leading 64 bits, the last of them set if anything is below, so that rounding sees it.
    length = np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    shift = np.uint64(LIMB_BITS) - length
    shift[nothing] = 0
    leading = ((first << np.uint64(LIMB_BITS)) | second) << shift
    leading |= third >> (np.uint64(LIMB_BITS) - shift)
    below = ((third << shift) & np.uint64(MASK)) != 0
    leading |= below | (lowest < top - 2)
    numbers = leading.astype(np.float64)
    exponents = LIMB_BITS * (top + low - 1) - LOWEST_BIT - shift.astype(np.int64)
    return np.where(negative, -numbers, numbers), exponents


def _propagate(digits: NDArray[np.int64]) -> None:
    """Bring all digits but the last (which holds the sign) between 0 and 2**32."""
    for limb in range(len(digits) - 1):
        digits[limb + 1] += digits[limb] >> LIMB_BITS
        digits[limb] &= MASK
