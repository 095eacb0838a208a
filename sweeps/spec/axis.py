"""An axis: one dimension of a sweep, as a small table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from overhead.collectives.algorithm import ALGORITHMS, COLLECTIVES, TOPOLOGIES
from overhead.plan.defaults import DEGREES
from overhead.transformer.quantities import SHAPES
from sweeps import display

# Labels that decide which formulas hold, rather than what goes into them.
SWITCHES = (
    "collective",
    "topology",
    "algorithm",
    "latency_per",
    "link",
    "recompute",
    "attention_kernel",
    "schedule",
    "context_parallel",
    "mask",
    "sharding",
    "dispatcher",
    "tp_mechanism",
    "cp_mechanism",
    "dp_mechanism",
)
# Labels of what the catalogue holds, and of what chooses among its figures.
LABELS = (*SWITCHES, "hardware", "model", "framework", "precision", "recipe")
# Labels that only the model of a training step has.
OF_TRAINING = (*SWITCHES[5:], "model", "framework", "precision", "recipe")


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a sweep: a small table, a row a point, with a column or several."""

    name: str  # The dimension
    columns: Mapping[str, NDArray[Any]]  # Values along it by quantity or label; all of one length
    # Where a column comes from, if the user didn't give it
    origins: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def switching(self) -> tuple[str, ...]:
        """Its columns that decide which formulas hold."""
        return tuple(name for name in self.columns if name in SWITCHES)

    @property
    def labels(self) -> bool:
        """Whether the dimension's own column holds labels."""
        own = self.columns.get(self.name)
        return own is not None and own.dtype.kind in "UO"


# What makes a sweep one of training steps, and what it asks for if nothing is said.

OF_A_PLAN = (
    *(name for name, _, _ in DEGREES),
    *SHAPES,
    "world_size",
    "zero_stage",
    "sequence_parallel",
    "sequence_length",
    "parameters",
)

# What is computed where nothing is asked for by name: of collective operations, of training steps.
# What can't be had is left out, and told.
DEFAULT_QUANTITIES = display.rows("collective", place="usual")
TRAINING_QUANTITIES = display.rows(*display.OF_A_STEP, place="usual")


def is_training(given: Collection[str]) -> bool:
    """Return whether what is given is of a training step rather than of one operation."""
    return bool({*OF_A_PLAN, *OF_TRAINING} & set(given))


def training_label_values(name: str) -> dict[str, tuple[str, ...]]:
    """Return the values of a label of training steps, by its name; empty where it is none."""
    if name not in OF_TRAINING:
        return {}
    from overhead.labels import OVERLAPS
    from overhead.memory.breakdown import LABELS as MEMORY_LABELS
    from overhead.memory.quantities import RECIPES
    from overhead.schedule.quantities import SCHEDULES
    from sweeps.spec.figures import PRECISIONS

    known = {
        "recompute": MEMORY_LABELS["recompute"],
        "attention_kernel": MEMORY_LABELS["attention_kernel"],
        "sharding": MEMORY_LABELS["sharding"],
        "schedule": SCHEDULES,
        "context_parallel": ("all_to_all", "ring", "all_gather"),
        "mask": ("causal", "full"),
        "dispatcher": ("all_to_all", "deduplicated"),
        **OVERLAPS,
        "precision": PRECISIONS,
        "recipe": tuple(RECIPES),
    }
    return {name: tuple(known.get(name, ()))}


# The values that labels may have: of a list, or of the catalogue.

CHOICES = ("standard", "nccl", "auto")
# Labels whose values are files, with the folder where they are.
CATALOGUED = {"hardware": "hardware", "model": "models", "framework": "frameworks"}


def label_values(name: str) -> tuple[str, ...]:
    """Return the values that a label may have; empty where the catalogue says."""
    return {
        "collective": COLLECTIVES,
        "topology": TOPOLOGIES,
        "algorithm": (*CHOICES, *ALGORITHMS.names()),
        "latency_per": ("hop", "message"),
        "link": ("auto", "intra", "inter"),
        **training_label_values(name),
    }.get(name, ())
