"""A non-blocking switch with one port a rank."""

from __future__ import annotations

from fractions import Fraction

from tests.simulator.model import Case, Link, Network

SWITCH = -1


def switch(case: Case) -> Network:
    """Return the network: each of a path's two ports has half the latency and half the count."""
    network = Network()
    half = Fraction(1, 2)
    port = Link(case.latency[0] * half, case.bandwidth[0], share=half)
    for rank in range(case.ranks):
        network.cable(rank, SWITCH, port)
    return network


def across(source: int, destination: int) -> tuple[int, ...]:
    """Return the path between two ranks."""
    return source, SWITCH, destination
