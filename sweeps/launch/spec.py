"""A plan as a sweep's spec: ``sweeps run`` gives its numbers again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overhead.memory.quantities import MODULES
from overhead.quantity import VOCABULARY
from sweeps.search.request import CHOICES, MODULE_CHOICES, OVERLAPS, Execution, Point
from sweeps.spec.units import to_toml

QUANTITIES = ("step_time", "tokens_per_second_per_gpu", "mfu", "peak_memory", "step_energy")
# What only some plans choose: the layers that are recomputed, what the model's ends count as.
FURTHER = ("recompute_layers", "embedding_layer_weight", "head_layer_weight")


def spec_of_plan(point: Point, plan: Execution) -> str:
    """Return the question and the plan as TOML."""
    constants: dict[str, Any] = {**point.labels}
    numbers: Mapping[str, float] = {**plan.known, **plan.given}
    usual = {name for name in OVERLAPS if name not in point.choices} | {*MODULE_CHOICES}
    names = [name for name in (*CHOICES, *FURTHER) if name not in usual]
    if plan.labels["recompute"] not in ("block", "uniform"):
        names.remove("recompute_layers")
    if not plan.routed:
        names = [name for name in names if name not in ("ep", "etp")]
    if plan.labels["recompute"] == "selective":
        names += [f"recompute_{name}" for name in MODULES if f"recompute_{name}" in plan.given]
    constants |= {name: plan.labels[name] for name in names if name in plan.labels}
    given = {**point.constants, **{name: numbers[name] for name in names if name in numbers}}
    constants |= {name: _with_unit(name, value) for name, value in given.items()}
    return to_toml({"title": plan.name, "quantities": list(QUANTITIES), "constants": constants})


def _with_unit(name: str, value: float) -> Any:
    units = VOCABULARY[name].units
    number = int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value)
    return number if units == "1" else f"{number!r} {units}"
