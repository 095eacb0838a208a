"""Communication of a step: of each dimension, and of all, as if nothing overlapped.

Each operation counts for the rank that does most of it.  These may be different ranks, so that the
sums are no less than what any rank does.
"""

from __future__ import annotations

from collections.abc import Sequence

from overhead.communication import activations, context, data, expert
from overhead.communication.operation import DIMENSIONS, Operation
from overhead.formula import alias, total
from overhead.labels import LABELS

OPERATIONS: dict[str, Operation] = {
    one.name: one
    for dimension in DIMENSIONS
    for module in (activations, context, expert, data)
    for one in module.OPERATIONS
    if one.dimension == dimension
}

# A dimension's totals by the end of their names, and the parts of operations that they add up.
TOTALS: dict[str, tuple[str, ...]] = {
    "forward_communication_time": ("forward_time",),
    "backward_communication_time": ("backward_time",),
    "communication_count": ("forward_count", "backward_count"),
    "communication_volume": ("volume",),
    "communication_energy": ("total_energy",),
}


def of_dimension(dimension: str, context_parallel: str = "") -> tuple[Operation, ...]:
    """Return a dimension's operations."""
    return tuple(
        one
        for one in OPERATIONS.values()
        if one.dimension == dimension
        and context_parallel in ("", one.when.get("context_parallel", context_parallel))
    )


def _declare(returns: str, names: Sequence[str], context_parallel: str = "") -> None:
    """Declare a total; the kind of context parallelism that is no label's is by all_to_all."""
    default = context_parallel in ("", LABELS["context_parallel"].default)
    when = None if default else {"context_parallel": context_parallel}
    name = returns if default else f"{returns}_by_{context_parallel}"
    if len(names) > 1:
        total(returns, names, when=when, name=name)
    else:
        alias(returns, names[0], "What has one part alone", name=name, when=when)


for _dimension in DIMENSIONS:
    for _end, _parts in TOTALS.items():
        for _kind in LABELS["context_parallel"].values if _dimension == "cp" else ("",):
            _names = [
                one.quantity(part) for part in _parts for one in of_dimension(_dimension, _kind)
            ]
            _declare(f"{_dimension}_{_end}", _names, _kind)
    total(
        f"{_dimension}_communication_time",
        [f"{_dimension}_{way}_communication_time" for way in ("forward", "backward")],
    )

for _returns, _end in (
    ("communication_upper_bound", "communication_time"),
    ("communication_volume", "communication_volume"),
    ("communication_energy", "communication_energy"),
):
    total(_returns, [f"{dimension}_{_end}" for dimension in DIMENSIONS])
