"""One plan: a split of the GPUs and the way it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sweeps.plans.space import Space

__all__ = ["Execution", "executions_at"]

SCHEDULES = {"one_f_one_b": "1F1B", "interleaved": "interleaved", "gpipe": "GPipe",
             "zero_bubble_h1": "ZB-H1", "zero_bubble_h2": "ZB-H2",
             "dual_pipe": "DualPipe"}  # fmt: skip


@dataclass(frozen=True)
class Execution:
    """One plan."""

    given: Mapping[str, float]  # Every quantity that is given: the plan, the model, the machine
    labels: Mapping[str, str]  # The labels that hold
    # Quantities that the search has computed
    known: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """Return a number of the plan."""
        if name in self.given:
            return self.given[name]
        if name == "etp":
            return self.given["tp"]
        if name == "micro_batches":
            several = self["dp"] * self["micro_batch"]
            return max(float(np.ceil(self["global_batch"] / several)), 1.0)
        if name == "edp":
            ranks = self["tp"] * self["cp"] * self["dp"]
            return float(np.ceil(ranks / (self["etp"] * self["ep"])))
        raise KeyError(name)

    @property
    def routed(self) -> bool:
        """Whether the model has experts."""
        return self.given.get("experts", 0.0) > 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other plans of the same question."""
        numbers = ("tp", "cp", "pp", "dp", "ep", "etp", "virtual_stages", "micro_batch",
                   "zero_stage", "sequence_parallel")  # fmt: skip
        more = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "embedding_as_layer")
        return (
            *(self[name] for name in numbers),
            *(self.given.get(name, 0.0) for name in more),
            *(self.labels[name] for name in ("recompute", "schedule", "context_parallel")),
        )

    @property
    def split(self) -> str:
        """The degrees, in words."""
        names = ["tp", "pp", "dp"]
        if self["cp"] > 1.0:
            names.insert(1, "cp")
        if self.routed:
            names += ["ep"] + (["etp"] if self["tp"] > 1.0 else [])
        return ", ".join(f"{name} {self[name]:g}" for name in names)

    @property
    def way(self) -> str:
        """How it is run, in words."""
        parts = [f"micro-batch {self['micro_batch']:g}", f"ZeRO {self['zero_stage']:g}"]
        if self["pp"] > 1.0:
            schedule = self.labels["schedule"]
            name = SCHEDULES.get(schedule, schedule)
            chunks = self["virtual_stages"]
            parts.insert(0, f"{name}, {chunks:g} chunks" if chunks > 1.0 else name)
        if self["tp"] > 1.0:
            parts.append("sequence parallel" if self["sequence_parallel"] else
                         "no sequence parallelism")  # fmt: skip
        if self["cp"] > 1.0:
            parts.append(f"context by {self.labels['context_parallel']}")
        again = self.labels["recompute"]
        parts.append("nothing recomputed" if again == "none" else f"recompute {again}")
        return ", ".join(parts)

    @property
    def name(self) -> str:
        """The plan, in words."""
        return f"{self.split}; {self.way}"

    @property
    def flag(self) -> str:
        """The degrees as one word, but for what they leave to data parallelism."""
        parts = [part for part in self.split.split(", ") if not part.startswith("dp ")]
        return "_".join(part.replace(" ", "") for part in parts)

    def changed(
        self, numbers: Mapping[str, float] | None = None, labels: Mapping[str, str] | None = None
    ) -> Execution:
        """Return the plan with some numbers and labels changed."""
        return Execution({**self.given, **(numbers or {})}, {**self.labels, **(labels or {})})


def executions_at(
    space: Space,
    places: NDArray[np.int64],
    known: Mapping[str, NDArray[np.float64]] | None = None,
) -> tuple[Execution, ...]:
    """Return the plans at places of the grid (flat indices, in C order)."""
    if space.plan is None or not len(places):
        return ()
    grid = space.plan.grid
    index = np.unravel_index(places, grid.shape)
    columns = {
        name: np.broadcast_to(values[tuple(
            at if length > 1 else 0 for at, length in zip(index, values.shape, strict=True)
        )], len(places)).tolist()
        for name, values in grid.columns.items()
    }  # fmt: skip
    labels = [
        dict(case.labels)
        for at in zip(*(one.tolist() for one in index), strict=True)
        for case in space.plan.cases
        if all(part.start == at[position] for position, part in case.fixed.items())
    ]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    values = {name: own.tolist() for name, own in (known or {}).items()}
    return tuple(
        Execution(given, own, {name: column[place] for name, column in values.items()})
        for place, (given, own) in enumerate(zip(rows, labels, strict=True))
    )
