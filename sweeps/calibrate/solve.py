"""Least squares with bounds, and the robust fit of linear terms to relative errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounded", "loss", "resampled", "robust_weights"]

Floats = NDArray[np.float64]

# Relative errors count by their squares up to about this, by their sizes beyond: a row that a
# busy link made slow pulls no harder than others.  About what repeated runs scatter by.
SOFT = 0.02
_REPEATS = 40
_SETTLED, _RIDGE, _TINY = 1e-10, 1e-10, 1e-300


def loss(errors: Floats, weights: Floats) -> float:
    """Return the sum of the relative errors' sizes, rounded at nought."""
    return float(np.sum(weights * (np.hypot(errors, SOFT) - SOFT)))


def robust_weights(errors: Floats, weights: Floats) -> Floats:
    """Return the weights with which least squares has the gradient of `loss`."""
    return np.asarray(weights / np.hypot(errors, SOFT))


def bounded(terms: Floats, target: Floats, weights: Floats, least: Floats) -> Floats:
    """Solve weighted least squares for constants that have a least value."""
    root = np.sqrt(weights)[:, None]
    scale = np.linalg.norm(root * terms, axis=0)
    scale[scale == 0.0] = 1.0
    matrix = root * terms / scale
    wanted = root[:, 0] * (target - terms @ least)
    count = terms.shape[1]
    found = np.zeros(count)
    free = np.zeros(count, dtype=np.bool_)
    tolerance = 1e-12 * (1.0 + np.abs(matrix.T @ wanted).max(initial=0.0))
    for _ in range(4 * count + 4):
        pull = matrix.T @ (wanted - matrix @ found)
        pull[free] = -np.inf
        if free.all() or pull.max(initial=-np.inf) <= tolerance:
            break
        free[int(np.argmax(pull))] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            if (trial[free] > 0.0).all():
                found = trial
                break
            # Go towards the trial until the first of the free ones meets its bound.
            low = free & (trial <= 0.0)
            step = np.min(found[low] / (found[low] - trial[low]))
            found = found + step * (trial - found)
            free &= found > _SETTLED * found.max(initial=0.0)
            found[~free] = 0.0
            if not free.any():
                break
    return np.asarray(least + found / scale)


def resampled(terms: Floats, targets: Floats, weights: Floats, seed: int) -> Floats:
    """Fit constants again to rows that are drawn with replacement."""
    samples, (rows, count) = len(targets), terms.shape
    scale = np.linalg.norm(terms, axis=0)
    scale[scale == 0.0] = 1.0
    matrix = terms / scale
    drawn = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1.0 / rows), samples)
    counts = drawn * weights
    found = np.zeros((samples, count))
    pairs = (matrix[:, :, None] * matrix[:, None, :]).reshape(rows, -1)
    own = counts
    for _ in range(_REPEATS):
        normal = (own @ pairs).reshape(samples, count, count)
        right = (own * targets) @ matrix
        size = np.trace(normal, axis1=1, axis2=2)[:, None] + _TINY
        # A ridge far below the smallest term that counts: samples may lack a constant's rows.
        normal = normal / size[:, :, None] + _RIDGE * np.eye(count)
        last, found = found, np.linalg.solve(normal, (right / size)[:, :, None])[:, :, 0]
        if np.allclose(last, found, rtol=1e-6, atol=1e-12):
            break
        own = counts / np.hypot(targets - found @ matrix.T, SOFT)
    return np.asarray(found / scale)
