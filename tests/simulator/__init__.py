"""Independent simulator of collective operations: schedules on explicit links, exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

from tests.simulator import binary_tree, grid, hierarchical, ring, streams, switch
from tests.simulator.core import Outcome, run
from tests.simulator.model import (
    Block,
    Case,
    Link,
    Message,
    Network,
    ScheduleFault,
    Steps,
    Undefined,
)
from tests.simulator.patterns import Table

SCHEDULES: Table = {
    **ring.SCHEDULES,
    **switch.SCHEDULES,
    **binary_tree.SCHEDULES,
    **grid.SCHEDULES,
    **hierarchical.SCHEDULES,
}

# What streams instead of going step by step.
STREAMS = streams.STREAMS

__all__ = [
    "SCHEDULES",
    "STREAMS",
    "Block",
    "Case",
    "Link",
    "Message",
    "Network",
    "Outcome",
    "ScheduleFault",
    "Steps",
    "Undefined",
    "run",
    "simulate",
]


def simulate(case: Case) -> Outcome:
    """Run a case's schedule; raise `Undefined` where the algorithm does not exist for its sizes."""
    key = case.topology, case.collective, case.algorithm
    zero = Fraction(0)
    if case.ranks == 1:
        return Outcome(zero, 0, zero, (zero,) * len(case.latency), zero)
    if key in streams.STREAMS:
        return streams.STREAMS[key](case)
    network, steps = SCHEDULES[key](case)
    return run(case, network, steps)
