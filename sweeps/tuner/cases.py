"""The cases of a search: what overlaps where, by which method, on how many multiprocessors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeps.tuner.userbuffers import (
    MOST_SMS,
    PHASES,
    REDUCE_SCATTER,
    Legality,
    collective_of,
    legality,
)

__all__ = [
    "BASELINE",
    "TP_SIZES",
    "Case",
    "base_cases",
    "grid_cases",
    "parse_case",
    "sm_counts",
    "tp_sizes",
]

BASELINE = "baseline"
"""The method of a case in which nothing overlaps."""
TP_SIZES = (2, 4, 8)
_METHODS = {BASELINE: BASELINE, "ring": "ring_exchange", "bulk": "bulk", "pipeline": "pipeline"}
_SHORT = {long: short for short, long in _METHODS.items()}
_NAME = re.compile(
    r"tp(?P<tp>\d+)_(?P<operator>qkv|proj|fc1|fc2)_(?:(?P<phase>fprop|dgrad|wgrad)_)?"
    r"(?:(?P<none>baseline)|(?P<ring>ring)_agg(?P<aggregate>[01])"
    r"|(?P<sms>bulk|pipeline)_sm(?P<num_sm>\d+))"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One case: one phase of one linear layer overlaps, everything else runs in turn."""

    tp_size: int  # Tensor-parallel ranks
    operator: str  # The linear layer, and what of it overlaps
    phase: str  # The linear layer, and what of it overlaps
    method: str = BASELINE  # Userbuffers' method, or ``baseline``
    aggregate: int = 0  # Whether a ring multiplies two chunks at a time
    num_sm: int = 1  # Multiprocessors of the communication

    @property
    def layer(self) -> str:
        """Its key in the configuration."""
        return f"{self.operator}_{self.phase}"

    @property
    def is_baseline(self) -> bool:
        """Whether nothing overlaps."""
        return self.method == BASELINE

    @property
    def config_id(self) -> str:
        """Its name, and that of its folder."""
        end = {"ring_exchange": f"_agg{self.aggregate}", BASELINE: ""}
        tail = end.get(self.method, f"_sm{self.num_sm}")
        return f"tp{self.tp_size}_{self.layer}_{_SHORT[self.method]}{tail}"

    @property
    def run_id(self) -> str:
        """The name of what has to be run for it: one baseline does for all phases."""
        if self.is_baseline:
            return f"tp{self.tp_size}_{self.operator}_{BASELINE}"
        return self.same_as.config_id

    @property
    def legality(self) -> Legality:
        """Whether it can be, and why not."""
        if self.is_baseline:
            return Legality("legal")
        found = legality(self.operator, self.phase, self.method)
        if found.level == "legal" and self.same_as != self:
            return Legality("legal", f"aggregate is ignored here: the same as {self.run_id}")
        return found

    @property
    def same_as(self) -> Case:
        """The case that it runs as: a ring's reduce_scatter knows no aggregate."""
        ring = self.method == "ring_exchange" and self.aggregate
        if ring and collective_of(self.operator, self.phase, self.method) == REDUCE_SCATTER:
            return Case(self.tp_size, self.operator, self.phase, self.method)
        return self


def tp_sizes(most: int) -> tuple[int, ...]:
    """Return the tensor-parallel sizes of a search that goes up to a size."""
    return tuple(size for size in TP_SIZES if size <= most)


def sm_counts(least: int, most: int) -> tuple[int, ...]:
    """Return the powers of two from one number of multiprocessors to another, and both ends."""
    powers = (1 << k for k in range(MOST_SMS.bit_length()))
    return tuple(sorted({least, most, *(n for n in powers if least <= n <= most)}))


def grid_cases(
    sizes: Sequence[int],
    operators: Sequence[str],
    counts: Sequence[int],
    *,
    nominal: bool = False,
    pipeline: bool = False,
) -> tuple[Case, ...]:
    """Return the grid of a search."""
    every = (
        case
        for size in sizes
        for operator in operators
        for phase in PHASES
        for case in _of_layer(size, operator, phase, counts, pipeline)
    )
    return tuple(case for case in every if nominal or case.legality.level == "legal")


def _of_layer(
    size: int, operator: str, phase: str, counts: Sequence[int], pipeline: bool
) -> Iterator[Case]:
    yield Case(size, operator, phase)
    for aggregate in (0, 1):
        yield Case(size, operator, phase, "ring_exchange", aggregate)
    for method in ("bulk", *(("pipeline",) if pipeline else ())):
        for count in counts:
            yield Case(size, operator, phase, method, num_sm=count)


def base_cases(operators: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases on one rank, where there is no communication: what sizes are compared to."""
    return tuple(Case(1, operator, phase) for operator in operators for phase in PHASES)


def parse_case(name: str) -> tuple[Case, ...]:
    """Return the case that a folder's name stands for; a baseline without phase for all three."""
    found = _NAME.fullmatch(name)
    if found is None or (found["phase"] is None and not found["none"]):
        return ()
    method = _METHODS[found["none"] or found["ring"] or found["sms"]]
    phases = (found["phase"],) if found["phase"] else PHASES
    return tuple(
        Case(
            int(found["tp"]),
            found["operator"],
            phase,
            method,
            int(found["aggregate"] or 0),
            int(found["num_sm"] or 1),
        )
        for phase in phases
    )
