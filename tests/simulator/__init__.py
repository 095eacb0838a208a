"""Independent simulator of collective operations: schedules on explicit links, exact arithmetic."""

from __future__ import annotations

import pkgutil
from fractions import Fraction
from importlib import import_module

from tests.simulator import streams
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

# Every module's schedules: a network's stand in a file of their own.
NAMES = (
    iter_module.name
    for iter_module in pkgutil.iter_modules(__path__)
    if not iter_module.name.startswith("test_")
)
MODULES = [import_module(f"{__name__}.{name}") for name in NAMES]
SCHEDULES: Table = {
    key: one for module in MODULES for key, one in getattr(module, "SCHEDULES", {}).items()
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
