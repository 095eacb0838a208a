"""Communication of a step: of each dimension, and of all, as if nothing overlapped.

Each operation counts for the rank that does most of it.  These may be different ranks, so that the
sums are no less than what any rank does.
"""

from __future__ import annotations

from collections.abc import Mapping

from overhead.communication import activations, context, data, expert
from overhead.communication.operation import (
    DIMENSIONS,
    OPERATIONS,
    WAYS,
    Factors,
    Operation,
    added,
    of_dimension,
)
from overhead.formula import total
from overhead.labels import LABELS

__all__ = ["OPERATIONS", "of_dimension"]
# They declare what is added up here.
FAMILIES = (activations, context, expert, data)


def _declare(dimension: str, labels: Mapping[str, str]) -> None:
    """Declare a dimension's totals, where operations depend on labels for these."""
    every = of_dimension(dimension, labels)
    counts = [(operation, way) for way in WAYS for operation in every if way in operation.ways]

    def time(operation: Operation, way: str) -> Factors:
        return operation.quantity(f"{way}_count"), operation.quantity("time")

    sums: dict[str, list[Factors]] = {
        f"{way}_communication_time": [
            time(operation, each) for operation, each in counts if each == way
        ]
        for way in WAYS
    }
    sums["communication_count"] = [
        (operation.quantity(f"{way}_count"),) for operation, way in counts
    ]
    sums["communication_volume"] = [operation.volume for operation in every]
    sums["communication_energy"] = [operation.total_energy for operation in every]
    for end, terms in sums.items():
        added(f"{dimension}_{end}", terms, when=labels)


for _dimension in DIMENSIONS:
    if _dimension == "cp":
        for _kind in LABELS["context_parallel"].values:
            _declare(_dimension, {"context_parallel": _kind})
    else:
        _declare(_dimension, {})
    total(
        f"{_dimension}_communication_time",
        [f"{_dimension}_{way}_communication_time" for way in WAYS],
    )

for _returns, _end in (
    ("communication_upper_bound", "communication_time"),
    ("communication_volume", "communication_volume"),
    ("communication_energy", "communication_energy"),
):
    total(_returns, [f"{dimension}_{_end}" for dimension in DIMENSIONS])
