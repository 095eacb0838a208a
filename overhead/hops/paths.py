"""Paths over links of any number of types: what lies between two ranks, and what a message costs.

Arrays of hops have the types of links as their leading axis, then whatever else; figures of links
(latency, bandwidth, energy) have the types as their only or their leading axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from overhead.quantity import Array

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
    """Ranks on nested levels: a path passes what the outermost level that it crosses says."""

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


# What parallel strategies send over typed hops: volume, time and energy.


class Hops(Protocol):
    """What lies between ranks: `LevelHops` or `HopMatrix`."""

    @property
    def ranks(self) -> int | None:
        """How many ranks there are; None: as many as are asked for."""

    def hops(self, source: ArrayLike, destination: ArrayLike) -> Array:
        """Return the links between ranks, types along the first axis."""


@dataclass(frozen=True)
class Links:
    """Types of links."""

    names: tuple[str, ...]  # What they are called
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    latency: tuple[float, ...]
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    bandwidth: tuple[float, ...]
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    energy_per_bit: tuple[float, ...]

    def mix(self, hops: ArrayLike) -> str:
        """Return a path in words, such as ``2 NVLink + 1 InfiniBand``."""
        counts = np.asarray(hops, dtype=np.float64).reshape(-1)
        pairs = zip(counts, self.names, strict=True)
        return " + ".join(f"{count:.0f} {name}" for count, name in pairs if count) or "no link"


@dataclass(frozen=True)
class Traffic:
    """What a strategy sends."""

    rank_bytes: Array  # Bytes that one rank sends, all steps together
    total_bytes: Array  # Bytes that all ranks send together
    time: Array  # How long it takes [s]
    energy: Array  # Energy of all bytes on all links [J]


def ring_all_reduce(
    message_bytes: ArrayLike,
    ranks: int,
    network: Hops,
    links: Links,
    switching: str = "store_and_forward",
) -> Traffic:
    """Return what an all_reduce round the ring 0, 1, .., ranks - 1 costs.

    A step costs its slowest link, and every link takes energy; reduce_scatter and all_gather have
    ranks - 1 steps each.
    """
    size = np.asarray(message_bytes, dtype=np.float64)
    if ranks == 1:
        nothing = 0.0 * size
        return Traffic(nothing, nothing, nothing, nothing)
    source = np.arange(ranks)
    hops = network.hops(source, (source + 1) % ranks)
    # Links that are alike cost the same.
    kinds, counts = np.unique(hops, axis=1, return_counts=True)
    chunk = size[..., np.newaxis] / ranks
    times = message_time(chunk, kinds, links.latency, links.bandwidth, switching)
    energies = message_energy(chunk, kinds, links.energy_per_bit)
    steps = 2.0 * (ranks - 1.0)
    return Traffic(
        rank_bytes=steps * size / ranks,
        total_bytes=steps * size,
        time=steps * times.max(axis=-1),
        energy=steps * (energies * counts).sum(axis=-1),
    )


def messages(
    message_bytes: ArrayLike,
    hops: ArrayLike,
    links: Links,
    switching: str = "store_and_forward",
    *,
    count: int = 1,
    senders: int = 1,
) -> Traffic:
    """Return what messages that follow one another over one path cost."""
    size = np.asarray(message_bytes, dtype=np.float64)
    time = message_time(size, hops, links.latency, links.bandwidth, switching)
    energy = message_energy(size, hops, links.energy_per_bit)
    return Traffic(count * size, senders * count * size, count * time, count * energy)
