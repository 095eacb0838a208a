"""All that a training step is made of: importing this declares its formulas."""

from overhead import (
    collectives,
    communication,
    compute,
    memory,
    peak_memory,
    plan_defaults,
    schedule,
    step,
    transformer,
)

__all__ = [
    "collectives",
    "communication",
    "compute",
    "memory",
    "peak_memory",
    "plan_defaults",
    "schedule",
    "step",
    "transformer",
]
