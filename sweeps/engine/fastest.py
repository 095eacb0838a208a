"""The least of several candidates' values, and which it is."""

from __future__ import annotations

import numpy as np

from sweeps.engine.axes import Array

__all__ = ["best_of", "keep_least"]


def best_of(*values: Array) -> tuple[Array, Array]:
    """Return the least of several arrays and the index of the first that has it.

    A value that isn't defined is infinite.
    """
    shape = np.broadcast_shapes(*(value.shape for value in values))
    best = np.broadcast_to(values[0], shape).copy()
    code = np.zeros(shape, dtype=np.int8)
    less = np.empty(shape, dtype=np.bool_)
    for index, value in enumerate(values[1:], 1):
        keep_least(best, code, value, index, less)
    return best, code


def keep_least(best: Array, code: Array, value: Array, index: int, less: Array) -> None:
    """Update the least and its index, in place, by a value of a higher index."""
    np.less(value, best, out=less)
    np.minimum(best, value, out=best)
    # Later indices are larger, so the maximum keeps the last that was less.
    marks = less.view(np.int8)
    np.multiply(marks, np.int8(index), out=marks)
    np.maximum(code, marks, out=code)
