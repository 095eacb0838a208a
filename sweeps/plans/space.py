"""The space of a search: every split of the GPUs, times all ways to run it, as a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.feasibility import training_faults
from sweeps.engine.plan import Plan
from sweeps.errors import InputError, fault
from sweeps.plans.choices import DEGREES, Habits, habits_of, micro_batches, virtual_stages
from sweeps.plans.degrees import Columns, every_split
from sweeps.plans.limits import AGAIN, REPEATED_TEXT, Limits
from sweeps.plans.request import Point
from sweeps.plans.rows import Rows, rows_of
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_framework, load_model
from sweeps.spec.model import complete_shapes
from sweeps.spec.resolve import Resolved, resolve
from sweeps.spec.resolve_training import DEFAULT_FRAMEWORK
from sweeps.spec.sweep import Sweep

__all__ = ["PLAN", "Space", "space_of"]

# More than this are a slip of the pen: they would take an hour.
MOST_CELLS = 4 * 10**9
# The axis of splits with their chunks and micro-batches.
PLAN = "plan"
# Where these aren't given, the error to expect is larger.
SETTINGS = ("attention_kernel", "precision", "framework")
IN_ROWS = (*DEGREES, "virtual_stages", "micro_batch")


@dataclass(frozen=True)
class Space:
    """All plans of one point."""

    point: Point  # The question
    rows: Rows  # Splits with chunks and micro-batches that can be, and why others can't
    resolved: Resolved  # With all constants
    plan: Plan | None  # The graph on the grid of plans; None where no row is left
    limits: Limits | None  # What decides beside the model which plans count
    choices: Mapping[str, NDArray[Any]]  # What varies, and over what

    @property
    def ways(self) -> int:
        """In how many ways each row can be run, under one schedule."""
        own = (*IN_ROWS, "schedule")
        sizes = [len(values) for name, values in self.choices.items() if name not in own]
        return int(np.prod(sizes, dtype=object))

    @property
    def texts(self) -> Mapping[str, str]:
        """What must hold of a plan, by the name of the reason why it falls where it doesn't."""
        if self.limits is not None:
            return self.limits.texts
        return {**training_faults().texts, AGAIN: REPEATED_TEXT}

    @property
    def cells(self) -> int:
        """All plans, those that can't be among them."""
        return self.ways * self.rows.all


def space_of(point: Point) -> Space:
    """Span the space of a point."""
    shapes = _shapes(point)
    constants, labels, common = _common(point)
    limits = {name: values for name, values in point.choices.items() if name in DEGREES}
    routed = shapes.get("experts", 0.0) > 0.0
    splits = every_split(point.world_size, limits, experts=routed)
    habits = habits_of(labels["framework"], common.labels["attention_kernel"])
    stated = {name: v for name, v in point.choices.items() if name not in DEGREES}
    choices = _agreeing({**_free(point, shapes, splits, habits), **stated})
    rows = rows_of(
        splits,
        choices["virtual_stages"],
        choices["micro_batch"],
        {**common.constants, **constants},
        _of_all(common),
        [str(one) for one in choices["schedule"]],
    )
    _check_size(rows, choices)
    if not len(rows):
        return Space(point, rows, common, None, None, choices)
    axes, numbers, names = _axes(choices, rows)
    sweep = Sweep(
        "", axes=tuple(axes), constants={**constants, **numbers}, labels={**labels, **names}
    )
    resolved = _told(resolve(sweep, point.folders), point)
    plan = _graph(resolved, point)
    return Space(
        point, rows, resolved, plan, Limits(plan, point.threshold, labels["framework"]), choices
    )


def _shapes(point: Point) -> dict[str, float]:
    """Return the shapes of the model, completed."""
    if "model" in point.labels:
        return load_model(point.labels["model"], point.folders).shapes
    given = dict(point.constants)
    return {**given, **{name: value for name, (value, _) in complete_shapes(given).items()}}


def _common(point: Point) -> tuple[dict[str, float], dict[str, str], Resolved]:
    """Return what all plans have in common, and what follows from it."""
    labels = dict(point.labels)
    labels.setdefault("framework", DEFAULT_FRAMEWORK)
    framework = load_framework(labels["framework"], point.folders)
    if "context_parallel" in framework.choices and "context_parallel" not in point.choices:
        labels["context_parallel"] = framework.choices["context_parallel"].value
    if "hsdp_shard" in point.choices:
        labels.setdefault("sharding", "hybrid")
    constants = dict(point.constants)
    unknown = [name for name in SETTINGS if name not in point.labels]
    constants.setdefault("unknown_settings", float(len(unknown)))
    kinds = point.choices.get("context_parallel")
    some = {} if kinds is None else {"context_parallel": str(kinds[0])}
    once = resolve(Sweep("", constants=constants, labels={**labels, **some}), point.folders)
    return constants, labels, once


def _told(resolved: Resolved, point: Point) -> Resolved:
    """Say of what was decided here, rather than given, where it comes from."""
    origins = {
        "framework": "assumed: the default",
        "context_parallel": f"assumed: the default of {resolved.labels.get('framework', '')}",
        "sharding": "assumed: the ranks of a shard are given",
        "unknown_settings": "assumed: settings that aren't given",
    }
    asked = {*point.labels, *point.constants, *point.choices}
    new = {name: text for name, text in origins.items() if name not in asked}
    return replace(resolved, origins={**new, **resolved.origins})


def _of_all(common: Resolved) -> dict[str, str]:
    """Return the labels that hold for every plan, for the conditions on it."""
    free = ("recompute", "schedule")
    kept = {name: label for name, label in common.labels.items() if name not in free}
    return {**kept, **common.implied, "shape": "two_levels"}


def _free(
    point: Point, shapes: Mapping[str, float], splits: Columns, habits: Habits
) -> dict[str, NDArray[Any]]:
    """Return what plans may vary where the user says nothing."""
    stages = [int(pp) for pp in np.unique(splits["pp"])]
    pipelined = max(stages) > 1 and "interleaved" in habits.schedules
    schedules = habits.schedules if max(stages) > 1 else habits.schedules[:1]
    chunks = virtual_stages(int(shapes["layers"]), stages) if pipelined else (1,)
    switch = (0.0, 1.0) if float(splits["tp"].max()) > 1.0 else (0.0,)
    return {
        "micro_batch": np.array(micro_batches(point.constants["global_batch"]), dtype=float),
        "virtual_stages": np.array(chunks, dtype=float),
        "zero_stage": np.array(habits.zero_stages, dtype=float),
        "sequence_parallel": np.array(switch),
        "recompute": np.array(habits.recompute),
        "schedule": np.array(schedules),
    }


def _agreeing(choices: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Leave out schedules that none of the chunks allowed suits."""
    chunks = choices["virtual_stages"]
    kept = [
        str(name)
        for name in choices["schedule"]
        if ((chunks > 1.0) if name == "interleaved" else (chunks == 1.0)).any()
    ]
    if not kept:
        told = ",".join(f"{value:g}" for value in chunks)
        wrong = f"doesn't go with schedule {', '.join(map(str, choices['schedule']))}"
        allowed = "1, or more with schedule interleaved"
        raise InputError(fault("virtual_stages", told, wrong, allowed))
    return {**choices, "schedule": np.array(kept)}


def _axes(
    choices: Mapping[str, NDArray[Any]], rows: Rows
) -> tuple[Sequence[Axis], dict[str, float], dict[str, str]]:
    """Make axes of what varies, and constants and labels of what doesn't."""
    axes = [Axis(PLAN, rows.columns)]
    numbers: dict[str, float] = {}
    labels: dict[str, str] = {}
    for name, values in choices.items():
        if name in IN_ROWS:
            continue
        if len(values) > 1:
            axes.append(Axis(name, {name: values}))
        elif values.dtype.kind in "UO":
            labels[name] = str(values[0])
        else:
            numbers[name] = float(values[0])
    return axes, numbers, labels


def _graph(resolved: Resolved, point: Point) -> Plan:
    objective = point.objective
    wanted = dict.fromkeys(("step_time", "peak_memory", objective.quantity, objective.second))
    return Plan(
        resolved.axes,
        resolved.constants,
        resolved.labels,
        tuple(wanted),
        fields=resolved.fields,
        implied=resolved.implied,
    )


def _check_size(rows: Rows, choices: Mapping[str, NDArray[Any]]) -> None:
    others = {name: len(v) for name, v in choices.items() if name not in IN_ROWS}
    cells = len(rows) * int(np.prod(list(others.values()), dtype=object))
    if cells > MOST_CELLS:
        told = " x ".join(f"{name} {size}" for name, size in {PLAN: len(rows), **others}.items())
        allowed = f"{MOST_CELLS:,} at most: limit some of the choices"
        raise InputError(fault("choices", told, f"{cells:,} plans", allowed))
