"""Measurements of others beside predictions; the size classes of messages that errors have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Short messages pay latency, long ones bandwidth, and what measurements scatter by differs as
# much: an error over all of them together says little.  The ends are where a class begins.
SIZE_CLASSES = {"small": 0.0, "medium": 256.0 * 2**10, "large": 16.0 * 2**20}


def class_of(message_bytes: Floats) -> NDArray[np.intp]:
    """Return the place of each message size's class in `SIZE_CLASSES`."""
    starts = np.array(list(SIZE_CLASSES.values()))
    return np.searchsorted(starts, message_bytes, side="right") - 1


def medians(values: NDArray[Any]) -> tuple[Floats, NDArray[np.int32]]:
    """Return the median along the last dimension, of the values that exist."""
    padded = np.concatenate([values, np.full((*values.shape[:-1], 1), np.nan)], axis=-1)
    ordered = np.sort(padded, axis=-1)  # NaN last
    counts = np.count_nonzero(~np.isnan(values), axis=-1)
    pair = [np.maximum(counts - 1, 0) // 2, counts // 2]
    middle = [np.take_along_axis(ordered, index[..., None], axis=-1)[..., 0] for index in pair]
    return (middle[0] + middle[1]) / 2.0, counts.astype(np.int32)
