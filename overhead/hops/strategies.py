"""What parallel strategies send over typed hops: volume, time and energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from overhead.hops.paths import message_energy, message_time
from overhead.quantity import Array

__all__ = ["Hops", "Links", "Traffic", "messages", "ring_all_reduce"]


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
