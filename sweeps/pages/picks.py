"""The models and machines of a page: for each the numbers that differ from the first one's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.measured_step import MEASURED_STEP
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import hardware_names, load_hardware, model_names
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.resolve_training import WORLD, per_node
from sweeps.spec.sweep import Sweep

Numbers = dict[str, float]
Domain = Mapping[str, Any]
KINDS = ("model", "hardware")
# The number that says which formulas a model has.
FORMULAS = "formulas"
# Without these figures of a GPU no step has a time: what has a network alone is no pick.
OF_A_GPU = ("peak_flops", "memory_bandwidth", "memory_capacity")


@dataclass(frozen=True, slots=True)
class Picks:
    """What may be picked in place of a plan's model and machine, and all numbers of each."""

    names: Mapping[str, tuple[str, ...]]  # By kind, the first one being the plan's own
    each: Mapping[str, tuple[Numbers, ...]]  # The numbers of each, in this order
    domains: tuple[Domain | None, ...]  # Of each machine the hosts that share a network
    left_out: Mapping[str, tuple[str, ...]]  # By kind those of which other formulas hold
    labels: tuple[Mapping[str, str], ...]  # The labels of each of several sets of formulas
    moving: Mapping[str, tuple[str, Sequence[str]]]  # What moves with a label: that, its values

    @property
    def first(self) -> Numbers:
        """The numbers of the plan's own model and machine."""
        return self.each[KINDS[0]][0]

    def columns(self, kind: str) -> dict[str, list[float]]:
        """Return the numbers in which models or machines differ, by name."""
        every = self.each[kind]
        return {
            name: [numbers[name] for numbers in every]
            for name, value in self.first.items()
            if any(not same(numbers[name], value) for numbers in every[1:])
        }

    def lacking(self, machine: int) -> frozenset[str]:
        """Return the names of what isn't known with a machine."""
        numbers = self.each["hardware"][machine]
        return frozenset(name for name, value in numbers.items() if math.isnan(value))


def picks_of(
    sweep: Sweep, resolved: Resolved, labels: Mapping[str, tuple[str, ...]], folders: Sequence[Path]
) -> Picks:
    """Return the models and machines that one program can be of.

    Parameters
    ----------
    sweep : Sweep
        The plan, as the user stated it.
    resolved : Resolved
        The same with all that follows.
    labels : mapping of str to tuple of str
        The labels that the page's reader sets, with their values.
    folders : sequence of Path
        Folders of own machines.
    """
    known = {"model": model_names(), "hardware": hardware_names(folders)}
    tables = along_labels(sweep, resolved, labels, folders)
    first = numbers_of(resolved, tables, labels)
    names: dict[str, tuple[str, ...]] = {}
    each: dict[str, list[Numbers]] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    machines, moving = [resolved], dict(tables.moving)
    # What a model has alone decides its formulas: those of a hybrid are no others' to follow.
    implied = [resolved.implied]
    for kind in KINDS:
        chosen = resolved.labels.get(kind)
        # A measured step is one of this model on this machine.
        fixed = chosen is None or MEASURED_STEP in sweep.given
        others = [] if fixed else [name for name in known[kind] if name != chosen]
        names_found: list[str] = []
        each[kind] = [first]
        for name in others:
            changed = replace(sweep, labels={**sweep.labels, kind: name})
            other = _alike(changed, resolved, kind, {*labels, kind}, folders)
            if other is not None:
                names_found.append(name)
                # What a label moves is the software's and the machine's.
                if kind == "hardware":
                    machines.append(other)
                    tables = along_labels(changed, other, labels, folders)
                    moving |= tables.moving
                else:
                    implied.append(other.implied)
                each[kind].append(numbers_of(other, tables, labels))
        names[kind] = (*([chosen] if chosen else []), *names_found)
        left_out[kind] = tuple(name for name in others if name not in names_found)
    _complete([row for of_kind in each.values() for row in of_kind], moving)
    sets = [told for index, told in enumerate(implied) if told not in implied[:index]]
    held = tuple({**resolved.labels, **told} for told in sets)
    for kind in KINDS:
        for position, numbers in enumerate(each[kind]):
            numbers[FORMULAS] = float(sets.index(implied[position])) if kind == "model" else 0.0
    domains = tuple(domain_of(sweep, machine, folders) for machine in machines)
    return Picks(names, {k: tuple(v) for k, v in each.items()}, domains, left_out, held, moving)


@dataclass(frozen=True, slots=True)
class Tables:
    """What follows from a plan along all values of some labels."""

    constants: Mapping[str, float]  # What only some of them take
    moving: Mapping[str, tuple[str, tuple[str, ...]]]  # What moves with a label: that, its values
    numbers: Numbers  # Of what moves, for each value of the label


def numbers_of(
    resolved: Resolved, tables: Tables, labels: Mapping[str, tuple[str, ...]]
) -> Numbers:
    """Return all given numbers of a plan, the codes of its labels, and what moves with a label.

    What moves with one is called after its value, too: ``attention_efficiency@flash_2``.
    """
    numbers = {**tables.constants, **resolved.constants}
    numbers = {name: value for name, value in numbers.items() if name not in tables.moving}
    codes = {name: float(each.index(resolved.labels[name])) for name, each in labels.items()}
    return numbers | tables.numbers | codes


def along_labels(
    sweep: Sweep,
    resolved: Resolved,
    labels: Mapping[str, tuple[str, ...]],
    folders: Sequence[Path],
) -> Tables:
    """Resolve a plan along all values of some labels."""
    constants: Numbers = {}
    moving: dict[str, tuple[str, tuple[str, ...]]] = {}
    numbers: Numbers = {}
    # By itself, for with others there are as many plans as all their values have products.
    for alone in (("loss",), tuple(name for name in labels if name != "loss")):
        axes = tuple(Axis(name, {name: np.array(labels[name])}) for name in alone if name in labels)
        plain = {name: value for name, value in sweep.labels.items() if name not in alone}
        other = resolve(replace(sweep, labels=plain, axes=axes), folders)
        known = resolved.constants
        constants |= {name: value for name, value in other.constants.items() if name not in known}
        for axis in other.axes:
            values = tuple(map(str, axis.columns[axis.name]))
            for name in sorted(axis.columns.keys() - {axis.name}):
                moving[name] = (axis.name, values)
                each = zip(values, axis.columns[name], strict=True)
                numbers |= {f"{name}@{value}": float(number) for value, number in each}
    return Tables(constants, moving, numbers)


def _alike(
    sweep: Sweep, base: Resolved, kind: str, free: Iterable[str], folders: Sequence[Path]
) -> Resolved | None:
    """Return what follows with another model or machine; None where other formulas hold."""
    try:
        resolved = resolve(sweep, folders)
    except InputError:
        return None
    labels, other = (
        {k: v for k, v in side.labels.items() if k not in free} for side in (base, resolved)
    )
    # Each model has its own formulas.
    same_implied = kind == "model" or resolved.implied == base.implied
    either = base.constants.keys() ^ resolved.constants.keys()
    usual = all(VOCABULARY[name].default is not None for name in either)
    computes = not any(math.isnan(resolved.constants.get(name, math.nan)) for name in OF_A_GPU)
    fine = labels == other and same_implied and not resolved.fields and usual and computes
    return resolved if fine else None


def _complete(every: Sequence[Numbers], moving: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    """Give each what the others have and it lacks: what a quantity is by itself."""
    for numbers in every:
        # With some machines a number is the same for all values of a label.
        for name in moving.keys() & numbers.keys():
            value = numbers.pop(name)
            numbers |= {f"{name}@{label}": value for label in moving[name][1]}
    names = dict.fromkeys(name for table in every for name in table)
    for numbers in every:
        for name in names:
            if name not in numbers:
                default = VOCABULARY[name].default if name in VOCABULARY else None
                numbers[name] = math.nan if default is None else default


def domain_of(sweep: Sweep, resolved: Resolved, folders: Sequence[Path]) -> Domain | None:
    """Return the domain of a machine's hosts, where a job's size says how much of it is taken."""
    machine = load_hardware(resolved.labels["hardware"], folders)
    if "gpus_per_host" not in machine.figures or "gpus_per_node" in sweep.given:
        return None
    most = per_node(machine, "gpus")
    shares = {"gpus_per_node": 1.0, "nics_per_node": per_node(machine, "nics") / most}
    degrees = ("world_size",) if "world_size" in sweep.given else WORLD
    return {
        "most": most,
        "shares": {
            name: share
            for name, share in shares.items()
            if name in resolved.constants and name not in sweep.given
        },
        "degrees": {name: resolved.constants.get(name, 1.0) for name in degrees},
    }


def same(first: float, other: float) -> bool:
    """Whether two numbers are the same, or both unknown."""
    return first == other or (math.isnan(first) and math.isnan(other))
