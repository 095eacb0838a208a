"""What is asked: a model, a machine, a batch; what plans may vary; at which points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.plans.choices import ALIASES, CHOICES
from sweeps.plans.objective import Objective, objective_of
from sweeps.spec.axis import Axis
from sweeps.spec.sweep import Sweep, read_sweep
from sweeps.spec.training_defaults import needed_shapes

__all__ = ["DEFAULT_THRESHOLD", "Point", "Request", "Values", "read_request"]

# Of the memory, as the strategy calculator has it: fuller ones lose time to the allocator.
DEFAULT_THRESHOLD = 0.9
# What nobody can do without, with the number that a person would give.
NEEDED = {
    "world_size": "a number of GPUs, such as 64",
    "global_batch": "sequences of a step, such as 512",
    "sequence_length": "tokens of a sequence, such as 4096",
}
# What a search decides by itself, so that it can't be given.
DERIVED = ("micro_batches",)

Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Point:
    """One question: everything has one value but what plans may vary."""

    constants: Mapping[str, float]  # Quantities that are given
    labels: Mapping[str, str]  # Labels that are given
    choices: Values  # What the user says of what plans may vary: the values allowed
    objective: Objective  # What plans are ranked by
    threshold: float = DEFAULT_THRESHOLD  # The share of a GPU's memory that a plan may take
    folders: tuple[Path, ...] = ()  # The user's own folders of machines
    # Its values along the axes of the request
    place: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """The GPUs."""
        return int(self.constants["world_size"])

    def with_constants(self, **changed: float) -> Point:
        """Return the point with other quantities."""
        return replace(self, constants={**self.constants, **changed})

    def with_choices(self, **changed: Sequence[Any] | None) -> Point:
        """Return the point with other choices; None lifts what was said of one."""
        kept = {name: values for name, values in self.choices.items() if name not in changed}
        new = {name: np.asarray(v) for name, v in changed.items() if v is not None}
        return replace(self, choices={**kept, **new})


@dataclass(frozen=True)
class Request:
    """A question, at one point or at many."""

    first: Point  # The question at the first point
    axes: tuple[Axis, ...] = ()  # What varies from point to point

    @property
    def shape(self) -> tuple[int, ...]:
        """How many points there are along each axis."""
        return tuple(len(axis) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        """Yield the points, in C order."""
        for index in product(*(range(len(axis)) for axis in self.axes)):
            constants, labels = dict(self.first.constants), dict(self.first.labels)
            place: dict[str, float | str] = {}
            for axis, at in zip(self.axes, index, strict=True):
                for name, values in axis.columns.items():
                    if values.dtype.kind in "UO":
                        labels[name] = place[name] = str(values[at])
                    else:
                        constants[name] = place[name] = float(values[at])
            yield replace(self.first, constants=constants, labels=labels, place=place)


def read_request(
    given: Mapping[str, Any],
    *,
    objective: str = "time",
    threshold: float = DEFAULT_THRESHOLD,
    folders: Sequence[Path] = (),
) -> Request:
    """Check what is asked."""
    named = {ALIASES.get(name, name): value for name, value in given.items()}
    faults = [
        fault(name, "..", "follows from the plan", "leave it out") for name in DERIVED
        if name in named
    ]  # fmt: skip
    if not 0.0 < threshold <= 1.0:
        allowed = "a share of the memory above 0, up to 1"
        faults.append(fault("memory_threshold", f"{threshold:g}", "no share", allowed))
    if faults:
        raise InputError(faults)
    sweep = _read(named, folders)
    _check(sweep)
    point, axes = _split(sweep)
    chosen = objective_of(objective)
    return Request(replace(point, objective=chosen, threshold=threshold, folders=tuple(folders)),
                   axes)  # fmt: skip


def _read(named: Mapping[str, Any], folders: Sequence[Path]) -> Sweep:
    axes: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in named.items():
        many = isinstance(value, list | Mapping) or (
            isinstance(value, str) and ("," in value or ":" in value or value.strip() == "all")
        )
        (axes if many else constants)[name] = value
    stated: dict[str, Any] = {"title": "Parallel plans", "quantities": ["step_time"]}
    stated |= {"axes": axes} if axes else {}
    stated |= {"constants": constants} if constants else {}
    return read_sweep(stated, bare_is_si=True, folders=folders)


def _check(sweep: Sweep) -> None:
    """Refuse a question that lacks what it can't do without."""
    faults = [
        fault(name, "(not given)", "needed", allowed)
        for name, allowed in NEEDED.items()
        if name not in sweep.given
    ]
    lacking = [name for name in needed_shapes(sweep.given) if name not in sweep.given]
    if "model" in sweep.given and "parameters" in sweep.given:
        wrong = "stands beside a model, whose shapes give it"
        faults.append(fault("parameters", "..", wrong, "one of the two"))
    elif "model" not in sweep.given and lacking:
        wrong = "the time of a plan needs a model's shapes"
        if "parameters" in sweep.given:
            wrong = "a number of parameters has no shapes, which the time of a plan needs"
        allowed = f"a model of the catalogue or a config.json, or {', '.join(lacking)}"
        faults.append(fault("model", "(not given)", wrong, allowed))
    if faults:
        raise InputError(faults)


def _split(sweep: Sweep) -> tuple[Point, tuple[Axis, ...]]:
    """Take apart what plans may vary, what is the same, and what varies from point to point."""
    choices: dict[str, NDArray[Any]] = {}
    axes = []
    for axis in sweep.axes:
        own = [name for name in axis.columns if name in CHOICES]
        if own and list(axis.columns) == own == [axis.name]:
            choices[axis.name] = axis.columns[axis.name]
        elif own:
            wrong = "is a choice of plans, and can't be a column of a table"
            raise InputError([fault(name, "..", wrong, "an argument of its own") for name in own])
        else:
            axes.append(axis)
    constants, labels = dict(sweep.constants), dict(sweep.labels)
    for name in CHOICES:
        if name in constants:
            choices[name] = np.array([constants.pop(name)])
        elif name in labels:
            choices[name] = np.array([labels.pop(name)])
    point = Point(constants, labels, choices, objective_of("time"))
    if "forward_only" in choices.get("schedule", ()):
        wrong = "has no backward: it is none of training"
        raise InputError(fault("schedule", "forward_only", wrong, "another schedule"))
    first = next(Request(point, tuple(axes)).points())
    return replace(first, place={}), tuple(axes)
