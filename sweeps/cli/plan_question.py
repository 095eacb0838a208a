"""What the command `plan` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from overhead.frozen import frozen

# What the calculator takes of sizes, beside what it asks for.
CALCULATED = (
    "layers",
    "hidden_size",
    "heads",
    "vocabulary_size",
    "ffn_size",
    "experts_per_token",
    "gpus_per_node",
    "weight_bytes",
    "gradient_bytes",
    "optimizer_bytes",
)


@frozen()
class Asked:
    """What the command is asked."""

    given: Mapping[str, str]  # Values by quantity or label, as text
    readings: tuple[str, ...]  # How numbers were read that could be read in two ways
    assumed: tuple[str, ...]  # What wasn't given, as it was taken
    calculator: bool  # Whether it is a question for the strategy calculator's table
    experts: str | None = None  # How many experts, of such a model
    # The plan that is to be explained; empty where none is
    explain: Mapping[str, str] = field(default_factory=dict)
    tokens: float | None = None  # Of the whole training
    days: float | None = None
