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
from overhead.quantity import amount

OPERATIONS: dict[str, Operation] = {
    one.name: one
    for dimension in DIMENSIONS
    for module in (activations, context, expert, data)
    for one in module.OPERATIONS
    if one.dimension == dimension
}

# A dimension's totals by the end of their names: symbol, unit, meaning, and parts of operations.
TOTALS: dict[str, tuple[str, str, str, str]] = {
    "forward_communication_time": ("T_f", "s", "time in forwards", "forward_time"),
    "backward_communication_time": ("T_b", "s", "time in backwards", "backward_time"),
    "communication_count": ("N", "1", "operations of the rank that has most", "forward_count "
                            "backward_count"),
    "communication_volume": ("V", "byte", "most bytes that a rank sends", "volume"),
    "communication_energy": ("E", "J", "energy, of all groups", "total_energy"),
}  # fmt: skip


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


for _dimension, _title in DIMENSIONS.items():
    _mark = rf"\mathrm{{{_dimension}}}"
    for _end, (_symbol, _units, _meaning, _parts) in TOTALS.items():
        _returns = f"{_dimension}_{_end}"
        _meaning = f"communication of a step for {_title}: {_meaning}"
        amount(_returns, f"{_symbol}^{{{_mark}}}", _units, _meaning)
        for _kind in LABELS["context_parallel"].values if _dimension == "cp" else ("",):
            _names = [
                one.quantity(part)
                for part in _parts.split()
                for one in of_dimension(_dimension, _kind)
            ]
            _declare(_returns, _names, _kind)
    amount(
        f"{_dimension}_communication_time",
        f"T^{{{_mark}}}",
        "s",
        f"communication of a step for {_title}: time, if nothing overlaps",
    )
    total(
        f"{_dimension}_communication_time",
        [f"{_dimension}_{way}_communication_time" for way in ("forward", "backward")],
    )

for _returns, _symbol, _units, _meaning, _end in (
    ("communication_upper_bound", r"T^\Sigma", "s", "time of a step's communication, if nothing "
     "overlaps: an upper bound", "communication_time"),
    ("communication_volume", r"V^\Sigma", "byte", "most bytes that a rank sends in a step",
     "communication_volume"),
    ("communication_energy", r"E^\Sigma", "J", "energy of a step's communication, of all GPUs",
     "communication_energy"),
):  # fmt: skip
    amount(_returns, _symbol, _units, _meaning)
    total(_returns, [f"{dimension}_{_end}" for dimension in DIMENSIONS])
