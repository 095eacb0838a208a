"""Paths over links of any number of types: what lies between two ranks, and what a message costs.

Arrays of hops have the types of links as their leading axis, then whatever else; figures of links
(latency, bandwidth, energy) have the types as their only or their leading axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from overhead.quantity import Array

__all__ = ["SWITCHING", "HopMatrix", "LevelHops", "message_energy", "message_time"]

SWITCHING = ("store_and_forward", "cut_through")


def _aligned(values: ArrayLike, axes: int) -> Array:
    """Return values, types along the first axis, with so many axes behind it."""
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(array.shape[:1] + (1,) * (axes + 1 - array.ndim) + array.shape[1:])


def message_time(
    message_bytes: ArrayLike,
    hops: ArrayLike,
    latency: ArrayLike,
    bandwidth: ArrayLike,
    switching: str = "store_and_forward",
) -> Array:
    """Return the time of a message over a path."""
    if switching not in SWITCHING:
        message = f"'{switching}' is no switching; known: {', '.join(SWITCHING)}"
        raise ValueError(message)
    size = np.asarray(message_bytes, dtype=np.float64)
    axes = max(size.ndim, *(np.ndim(values) - 1 for values in (hops, latency, bandwidth)))
    passed, paid, rate = (_aligned(values, axes) for values in (hops, latency, bandwidth))
    paid = (passed * paid).sum(axis=0)
    if switching == "store_and_forward":
        return np.asarray(paid + size * (passed / rate).sum(axis=0))
    slowest = np.where(passed > 0.0, 1.0 / rate, 0.0).max(axis=0)
    return np.asarray(paid + size * slowest)


def message_energy(message_bytes: ArrayLike, hops: ArrayLike, energy_per_bit: ArrayLike) -> Array:
    """Return the energy of a message over a path."""
    size = np.asarray(message_bytes, dtype=np.float64)
    axes = max(size.ndim, np.ndim(hops) - 1, np.ndim(energy_per_bit) - 1)
    passed, each = (_aligned(values, axes) for values in (hops, energy_per_bit))
    return np.asarray(8.0 * size * (passed * each).sum(axis=0))


@dataclass(frozen=True)
class LevelHops:
    """Ranks on nested levels: what a path passes follows from the outermost level that it crosses."""

    # Ranks of a node, nodes of a pod, ..; of the outermost level there are as many as needed
    sizes: tuple[int, ...]
    # For each level, innermost first, the links of each type between two ranks that it parts: one
    # more than sizes
    paths: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.sizes) + 1 or len({len(path) for path in self.paths}) != 1:
            message = "a path for each level, one more than sizes, and all of the same link types"
            raise ValueError(message)
        if min(self.sizes, default=1) < 1 or min(min(path) for path in self.paths) < 0:
            message = "sizes from 1 and hops from 0"
            raise ValueError(message)

    @property
    def ranks(self) -> int | None:
        """How many ranks there are: no limit."""
        return None

    def hops(self, source: ArrayLike, destination: ArrayLike) -> Array:
        """Return the links between ranks, types along the first axis; none to a rank itself."""
        one, other = np.broadcast_arrays(
            np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
        )
        level = np.where(one == other, 0, 1)
        span = 1
        for size in self.sizes:
            span *= size
            level = level + (one // span != other // span)
        table = np.array([(0,) * len(self.paths[0]), *self.paths], dtype=np.float64)
        return np.moveaxis(table[level], -1, 0)


@dataclass(frozen=True)
class HopMatrix:
    """Links between any two ranks, as they are given."""

    counts: Array  # Links of each type: shape (types, ranks, ranks); none from a rank to itself

    def __post_init__(self) -> None:
        counts = self.counts
        if counts.ndim != 3 or counts.shape[1] != counts.shape[2] or not counts.size:
            message = "hops have the shape (types, ranks, ranks)"
            raise ValueError(message)
        if np.any(counts < 0) or np.any(counts != np.floor(counts)):
            message = "hops are whole numbers from 0"
            raise ValueError(message)
        ranks = np.arange(counts.shape[1])
        if np.any(counts[:, ranks, ranks]):
            message = "from a rank to itself there is no hop"
            raise ValueError(message)

    @property
    def ranks(self) -> int | None:
        """How many ranks there are."""
        return int(self.counts.shape[1])

    def hops(self, source: ArrayLike, destination: ArrayLike) -> Array:
        """Return the links between ranks, types along the first axis."""
        return np.asarray(self.counts[:, np.asarray(source), np.asarray(destination)])

    @staticmethod
    def of(rows: Sequence[Sequence[Sequence[int]]]) -> HopMatrix:
        """Make a matrix of rows of cells, each a list of hops by type."""
        return HopMatrix(np.moveaxis(np.asarray(rows, dtype=np.float64), -1, 0))
