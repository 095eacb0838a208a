"""Fixed bins of float64: an octave in a power of two of equal parts, edges exact, any sign.

A float64's bits, read as an integer with the sign applied, are in the numbers' own order; leaving
out low bits makes bins.  The bin of a key holds the numbers from its lower edge (included) to the
next bin's (excluded).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["INFINITE", "bin_edge", "bin_middle", "bins_of", "relative_error"]

MANTISSA_BITS = 52
SIGN_BIT = 63
INFINITE_BITS = 0x7FF << MANTISSA_BITS
# The octave of minus infinity, which is none of a finite number: the least that int64 has.
INFINITE = 1 << 11


def bins_of(values: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return the keys of the bins that values are in."""
    keys = values.view(np.int64)
    if keys.size and keys.min() < 0:
        magnitude = keys & ((1 << SIGN_BIT) - 1)
        keys = np.where(keys < 0, -magnitude, keys)
        keys[keys == -INFINITE_BITS] = -(1 << SIGN_BIT)
    found: NDArray[np.int64] = keys >> (MANTISSA_BITS - bits)
    return found


def bin_edge(keys: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """Return the lower edges of finite numbers' bins."""
    return _decoded(keys << (MANTISSA_BITS - bits))


def bin_middle(keys: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """Return what stands for the numbers of a bin: its middle; 0 for the first of 0, and inf.

    Off by at most `relative_error` of a normal number.
    """
    shift = MANTISSA_BITS - bits
    low = keys << shift
    middle = _decoded(low + (1 << shift >> 1))
    middle[keys == 0] = 0.0
    middle[keys >= (INFINITE - 1) << bits] = np.inf
    middle[keys <= -INFINITE << bits] = -np.inf
    return middle


def relative_error(bits: int) -> float:
    """Return how far the middle of a bin is from a number in it at most, relative to that."""
    return math.ldexp(1.0, -bits - 1)


def _decoded(ordered: NDArray[np.int64]) -> NDArray[np.float64]:
    sign = np.int64(-(1 << SIGN_BIT))
    return np.where(ordered < 0, -ordered | sign, ordered).view(np.float64)
