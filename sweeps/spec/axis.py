"""An axis: one dimension of a sweep, as a small table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

__all__ = ["LABELS", "OF_TRAINING", "SWITCHES", "Axis"]

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
