"""What plans are ranked by."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.errors import InputError, fault, nearest

__all__ = ["OBJECTIVES", "Objective", "objective_of"]


@dataclass(frozen=True, slots=True)
class Objective:
    """What plans are ranked by."""

    name: str  # What users call it
    quantity: str  # The quantity
    # What decides between equals, and what the Pareto front lays beside it: less is better
    second: str = "peak_memory"
    more: bool = False  # Whether more of the quantity is better
    words: str = ""  # What is best, in words


OBJECTIVES: dict[str, Objective] = {
    one.name: one
    for one in (
        Objective("time", "step_time", words="the shortest step"),
        Objective("memory", "peak_memory", "step_time", words="the least memory"),
        Objective("energy", "step_energy", words="the least energy of a step"),
        Objective("cost", "cost_per_trillion_tokens", words="the least cost of tokens"),
        Objective("tokens", "tokens_per_second_per_gpu", more=True, words="the most tokens a GPU"),
    )
}


def objective_of(name: str) -> Objective:
    """Return an objective by its name, or by its quantity's."""
    for one in OBJECTIVES.values():
        if name in (one.name, one.quantity):
            return one
    known = (*OBJECTIVES, *(one.quantity for one in OBJECTIVES.values()))
    raise InputError(fault("objective", name, "unknown", nearest(name, known)))
