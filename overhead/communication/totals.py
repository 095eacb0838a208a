"""Communication of a step: of each dimension, and of all, as if nothing overlapped.

Each operation counts for the rank that does most of it.  These may be different ranks, so that the
sums are no less than what any rank does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overhead.communication import activations, context, data, expert
from overhead.communication.operation import (
    DIMENSIONS,
    OPERATIONS,
    WAYS,
    Factors,
    added,
    of_dimension,
)
from overhead.labels import LABELS

__all__ = ["OPERATIONS", "of_dimension"]
# They declare what is added up here.
FAMILIES = (activations, context, expert, data)


def time_of(dimension: str, way: str, labels: Mapping[str, str], known: Any) -> Any:
    """Return the time of a dimension's operations in one direction of a step."""
    counts = [(operation, operation.count(way)) for operation in of_dimension(dimension, labels)]
    times = (count.of(known) * known[op.quantity("time")] for op, count in counts if count)
    return sum(times, start=0.0)


def _declare(dimension: str, labels: Mapping[str, str]) -> None:
    """Declare a dimension's totals, where operations depend on labels for these."""
    every = of_dimension(dimension, labels)
    times = [
        (count, operation.quantity("time"))
        for way in WAYS
        for operation in every
        if (count := operation.count(way)) is not None
    ]
    sums: dict[str, list[Factors]] = {
        "communication_time": [*times],
        "communication_volume": [operation.volume for operation in every],
        "communication_energy": [operation.total_energy for operation in every],
    }
    for end, terms in sums.items():
        added(f"{dimension}_{end}", terms, when=labels)


for _dimension in DIMENSIONS:
    if _dimension == "cp":
        for _kind in LABELS["context_parallel"].values:
            _declare(_dimension, {"context_parallel": _kind})
            _declare(_dimension, {"context_parallel": _kind, "mixers": "hybrid"})
    else:
        _declare(_dimension, {})
