"""Event simulation of messages over typed links, with exact arithmetic.

The independent witness of the forms of typed hops; it imports neither of the two packages.  A
message goes in packets; a link sends one packet after another, and passes on what it has whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Link", "Ring", "ring_all_reduce", "send"]


@dataclass(frozen=True)
class Link:
    """A link: its latency, what it sends a second, what a bit costs on it."""

    latency: Fraction
    bandwidth: Fraction
    energy: Fraction


@dataclass(frozen=True)
class Ring:
    """What an all_reduce round a ring costs."""

    time: Fraction
    energy: Fraction
    sent: tuple[Fraction, ...]


def send(size: Fraction, path: Sequence[Link], packets: int) -> Fraction:
    """Send a message over links in packets; return when the last one is there."""
    arrived = [Fraction(0)] * packets
    for link in path:
        free = Fraction(0)
        for index, at in enumerate(arrived):
            free = max(free, at) + size / packets / link.bandwidth
            arrived[index] = free + link.latency
    return arrived[-1]


def ring_all_reduce(size: Fraction, paths: Sequence[Sequence[Link]]) -> Ring:
    """Reduce and gather blocks round a ring; `paths` lead from each rank to the next one.

    Every rank holds a part of each block; the parts are followed to see that all end whole.
    """
    ranks = len(paths)
    parts: list[dict[int, set[int]]] = [
        {block: {rank} for block in range(ranks)} for rank in range(ranks)
    ]
    sent = [Fraction(0)] * ranks
    time = energy = Fraction(0)
    block_bytes = size / ranks
    for step in range(2 * (ranks - 1)):
        moved = []
        for rank, path in enumerate(paths):
            gathering = step - (ranks - 1)
            block = (rank - step if gathering < 0 else rank + 1 - gathering) % ranks
            moved.append(((rank + 1) % ranks, block, set(parts[rank][block])))
            sent[rank] += block_bytes
            energy += sum((8 * block_bytes * link.energy for link in path), Fraction(0))
        time += max(send(block_bytes, path, 1) for path in paths)
        for to, block, held in moved:
            parts[to][block] |= held
    assert all(held == set(range(ranks)) for part in parts for held in part.values())
    return Ring(time, energy, tuple(sent))
