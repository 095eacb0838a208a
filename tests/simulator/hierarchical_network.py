"""Nodes of GPUs, and pods of nodes: a switch in each group, adapters shared by neighbours.

Rank = local + g (node + G pod). Inside a node a rank has a port to the node's switch. Outside it
has one adapter (NIC) a level, which it shares with the `ranks_sharing_nic` - 1 ranks beside it: its
cable to the switch of the pod, or of all pods, is what the level's bandwidth belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from tests.simulator.grid_network import Grid
from tests.simulator.model import Case, Link, Network


@dataclass(frozen=True)
class Hierarchy(Grid):
    """Places are (local, node) or (local, node, pod)."""

    ranks_sharing_nic: int = 1

    def switch(self, rank: int, level: int) -> int:
        """Return the node that stands for the switch of a rank's group at a level."""
        group = rank // prod(self.sizes[: level + 1])
        return -1 - level - len(self.sizes) * group

    def adapter(self, rank: int, level: int) -> int:
        """Return the node that stands for a rank's adapter at a level above the first."""
        node, local = divmod(rank, self.sizes[0])
        first = node * self.sizes[0] + local // self.ranks_sharing_nic * self.ranks_sharing_nic
        return -1 - level - len(self.sizes) * (prod(self.sizes) + first)

    def ports(self, rank: int, level: int) -> tuple[int, ...]:
        """Return the way from a rank to its switch at a level."""
        if not level:
            return rank, self.switch(rank, level)
        return rank, self.adapter(rank, level), self.switch(rank, level)

    def level(self, one: int, other: int) -> int:
        """Return the level at which two ranks meet: the outermost where their places differ."""
        places = zip(self.place(one), self.place(other), strict=True)
        return max(level for level, (here, there) in enumerate(places) if here != there)

    def between(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the path from one rank to another."""
        level = self.level(source, destination)
        return self.ports(source, level) + self.ports(destination, level)[-2::-1]

    def path(self, line: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
        """Return the path between the ends of one given in positions on a line."""
        return self.between(line[positions[0]], line[positions[-1]])

    def network(self, case: Case) -> Network:
        """Return the links; a path's latency and count are halved between its two cables."""
        network = Network()
        half = Fraction(1, 2)
        for level, (latency, bandwidth) in enumerate(
            zip(case.latency, case.bandwidth, strict=True)
        ):
            cable = Link(half * latency, bandwidth, level, half)
            # Inside the node's board, between a rank and its adapter, nothing is lost: this link
            # carries a part of what the cable does.
            board = Link(Fraction(0), bandwidth, level, Fraction(0))
            for rank in range(case.ranks):
                *inside, port, switch = self.ports(rank, level)
                network.cable(port, switch, cable)
                for start in inside:
                    network.cable(start, port, board)
        return network
