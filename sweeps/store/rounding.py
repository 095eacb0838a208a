"""Fewer significant digits, so that what remains compresses well."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_DIGITS", "round_digits"]

MOST_DIGITS = {8: 15, 4: 7}
"""The most decimal digits that can be asked for, by bytes of the type."""


def round_digits(values: NDArray[np.floating], digits: int) -> NDArray[np.float64]:
    """Round numbers to a power of two that keeps a number of decimal digits (GranularBR).

    Each number becomes the nearest multiple of the largest power of two that isn't above one
    unit of its last digit to keep: the mantissa ends in zeros, and the error stays within half
    a unit of that digit. NaN, infinities and zeros stay as they are.
    """
    numbers = np.asarray(values, dtype=np.float64)
    usual = np.isfinite(numbers) & (numbers != 0)
    magnitude = np.where(usual, np.abs(numbers), 1.0)
    leading = np.floor(np.log10(magnitude)) + 1
    step = np.floor((leading - digits) * math.log2(10)).astype(np.int32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(numbers, -step)), step)
    # The largest numbers could round up to infinity, the smallest have no digit to lose.
    usable = usual & np.isfinite(rounded) & (rounded != 0)
    return np.where(usable, rounded, numbers)
