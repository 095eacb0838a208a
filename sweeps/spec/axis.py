"""An axis: one dimension of a sweep, as a small table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.labels import CHOICES, LABELS, SWITCHES
from overhead.plan import DEGREES
from overhead.transformer import SHAPES
from sweeps import display

# Labels that only the model of a training step has.
OF_TRAINING = tuple(name for name, label in LABELS.items() if label.training)
# Labels that only overlap asked for by itself has.
OF_OVERLAP = tuple(name for name, label in LABELS.items() if label.overlap)


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a sweep: a small table, a row a point, with a column or several."""

    name: str  # The dimension
    columns: Mapping[str, NDArray[Any]]  # Values along it by quantity or label; all of one length

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


def is_overlap(given: Collection[str]) -> bool:
    """Return whether what is given is of computation and communication at once, by themselves."""
    return bool(set(OF_OVERLAP) & set(given))


def is_training(given: Collection[str]) -> bool:
    """Return whether what is given is of a training step rather than of one operation."""
    return bool({*OF_A_PLAN, *OF_TRAINING} & set(given)) and not is_overlap(given)


# The values that labels may have: of a list, or of the catalogue.

# Labels whose values are files, with the folder where they are.
CATALOGUED = {
    "hardware": "hardware",
    "model": "models",
    "framework": "frameworks",
    "software": "software",
}


def label_values(name: str) -> tuple[str, ...]:
    """Return the values that a label may have; empty where the catalogue says."""
    if name == "topology":
        return tuple(NETWORKS)
    if name == "algorithm":
        return (*CHOICES, *ALGORITHMS.names())
    if name == "recipe":
        from overhead.memory.quantities import RECIPES

        return tuple(RECIPES)
    return LABELS[name].values if name in LABELS else ()
