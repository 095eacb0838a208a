"""Predictions of measured cases: those with equal labels together, their numbers as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from overhead.communication import groups as communication
from overhead.everything import load
from overhead.graph import Evaluation, MissingQuantities
from overhead.labels import STEP_DEFAULTS, complete
from overhead.memory.quantities import RECIPES, Recipe
from overhead.memory.stage import DEFAULTS as MEMORY_DEFAULTS
from overhead.memory.stage import Derivation, stage_memory
from overhead.quantity import VOCABULARY
from overhead.step import quantities as step_model
from sweeps.errors import InputError
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import (
    NUMBER_DEFAULTS,
    RECIPE_RULE,
    Framework,
    training_constants,
)
from sweeps.spec.machine import Machine
from sweeps.spec.resolve import DEFAULTS, FIGURES
from sweeps.validate.training_rows import Case

Floats = NDArray[np.float64]

# Labels that choose constants, not formulas.
CHOOSING = ("hardware", "framework", "precision", "recipe")


@dataclass(frozen=True, slots=True)
class Predictions:
    """What is predicted of cases."""

    values: Floats  # In canonical units; NaN where nothing could be predicted
    # The error that a prediction is said to have, as a fraction; NaN where nothing says so
    bands: Floats
    # Of those without a prediction, by their place: why
    reasons: dict[int, str] = field(default_factory=dict)


def predict(cases: Sequence[Case], folders: Sequence[Path] = ()) -> Predictions:
    """Predict all cases."""
    load()
    found = Predictions(np.full(len(cases), np.nan), np.full(len(cases), np.nan))
    constants = _Constants(folders)
    for places in _groups(cases):
        first = cases[places[0]]
        numbers = {
            name: np.array([cases[place].numbers[name] for place in places])
            for name in first.numbers
        }
        unknown = np.array([float(len(cases[place].assumed)) for place in places])
        try:
            given = {**constants.of(first.labels, step=first.kind == "step_time"), **numbers}
            pair = _values(first, given, unknown)
        except (InputError, MissingQuantities) as error:
            found.reasons.update(dict.fromkeys(places, str(error).replace("\n", "; ")))
            continue
        for values, target in zip(pair, (found.values, found.bands), strict=True):
            target[places] = np.broadcast_to(values, len(places))
        for place in places:
            if math.isnan(found.values[place]):
                nothing = [name for name, value in given.items() if np.isnan(value).any()]
                found.reasons[place] = f"not known: {', '.join(nothing) or 'why'}"
    return found


def _groups(cases: Sequence[Case]) -> Iterator[list[int]]:
    """Yield the places of cases that one evaluation serves."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, case in enumerate(cases):
        labels = tuple(sorted(case.labels.items()))
        key = (case.quantity, labels, tuple(sorted(case.numbers)))
        groups.setdefault(key, []).append(place)
    yield from groups.values()


def _values(case: Case, given: Mapping[str, Floats], unknown: Floats) -> tuple[Floats, Floats]:
    """Return the values of a group like one case, and their bands."""
    labels = {name: value for name, value in case.labels.items() if name not in CHOOSING}
    if case.kind == "memory":
        of_memory = {name: value for name, value in given.items() if name in VOCABULARY}
        if labels.get("shapes") == "unknown":
            return Derivation({**of_memory, "stage": 0.0}, labels)[case.quantity], np.array(np.nan)
        parts = stage_memory(of_memory, labels).parts
        values = parts[case.quantity]
        # The stages that can be the fullest lead; a part that is alike in all has no such axis.
        return (values.max(axis=0) if values.ndim > 1 else values), np.array(np.nan)
    labels = complete({**STEP_DEFAULTS, "shapes": "known", **labels}, given)
    evaluation = Evaluation({**given, "unknown_settings": unknown}, labels)
    with np.errstate(all="ignore"):
        return evaluation[case.quantity], evaluation["error_band"]


class _Constants:
    """The constants of machines and software, by labels."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._machines: dict[str, Machine] = {}
        self._frameworks: dict[str, Framework] = {}

    def of(self, labels: Mapping[str, str], *, step: bool) -> dict[str, Floats]:
        found = dict(MEMORY_DEFAULTS)
        if step:
            found |= {**communication.DEFAULTS, **step_model.DEFAULTS}
            found |= {name: one.value for name, one in {**DEFAULTS, **NUMBER_DEFAULTS}.items()}
        framework = self._framework(labels["framework"])
        if "hardware" in labels:
            machine = self._machine(labels["hardware"])
            constants = training_constants(
                machine,
                framework,
                precision=labels["precision"],
                attention_kernel=labels.get("attention_kernel"),
                recipe=labels.get("recipe"),
            )
            found |= {name: one.value for name, one in constants.items()}
            if step:
                found |= {**_network(machine), "unseen_device": float(not _compared(machine))}
        else:
            found |= {name: figure.value for name, figure in framework.figures.items()}
            found |= _recipe(framework, labels).given()
        return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}

    def _machine(self, name: str) -> Machine:
        if name not in self._machines:
            self._machines[name] = load_hardware(name, self.folders)
        return self._machines[name]

    def _framework(self, name: str) -> Framework:
        if name not in self._frameworks:
            self._frameworks[name] = load_framework(name, self.folders)
        return self._frameworks[name]


def _compared(machine: Machine) -> bool:
    """Return whether a machine's rates come from runs on it."""
    rates = (f for name, f in machine.figures.items() if name.startswith("matmul_efficiency"))
    return any(figure.kind == "measured" for figure in rates)


def _recipe(framework: Framework, labels: Mapping[str, str]) -> Recipe:
    """Return the recipe of bytes a parameter where no machine is stated."""
    precision = labels["precision"]
    chosen = framework.precisions.get(precision)
    usual = RECIPE_RULE[precision] if chosen is None else chosen.value
    return RECIPES[labels.get("recipe", usual)]


def _network(machine: Machine) -> dict[str, float]:
    """Return a machine's figures of its links, and what its switches can do."""
    figures = machine.figures
    found = {name: figures[name].value for name in FIGURES if name in figures}
    found["intra_nvls"] = float("nvls" in machine.in_network)
    for level, abilities in (
        ("intra", machine.in_network),
        ("inter", machine.scale_out_in_network),
    ):
        found[f"{level}_inc"] = float(bool({"inc", "sharp"} & set(abilities)))
    plain = found.get("intra_latency", 0.0)
    slow = figures["in_network_latency"].value if "in_network_latency" in figures else plain
    found["in_network_latency_factor"] = slow / plain if plain > 0.0 else 1.0
    return found
