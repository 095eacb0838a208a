"""What a recipe preset sets in a sweep, along the axes on which it depends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.labels import LABELS
from overhead.shipped import usual_table
from sweeps.errors import refuse
from sweeps.origin import SPECIFICATION, Origin
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import (
    find_preset,
    load_framework,
    load_hardware,
    load_model,
    options_of,
)
from sweeps.spec.preset import Preset, Run, Taken, beside
from sweeps.spec.resolve_operation import Resolver, varying_dims

FRAMEWORK, PRESET = "framework", "preset"
# On what it depends what a preset sets.
SUBJECTS = (PRESET, "model", "experts", "hardware", "precision")


class Told(NamedTuple):
    """What a preset sets in one run."""

    preset: Preset
    framework: str  # With its options
    taken: Taken  # Beside what is given by hand


def told(
    name: str,
    run: Run,
    framework: str = "",
    given: Collection[str] = (),
    without: Collection[str] = (),
    folders: Sequence[Path] = (),
) -> Told:
    """Return what a preset sets in a run, beside the framework and whatever is given by hand.

    `without` are options that the run is known not to have.
    """
    base, framework_options = options_of(framework)
    preset = find_preset(name, base, folders)
    taken = preset.taken(run)
    known = load_framework(base or preset.framework, folders)
    on = [option for option in taken.options if option not in without]
    options = known.acting(on, framework_options)
    # An option that is named beside the framework says more than a release's habit.
    stated = [
        name
        for option in framework_options
        if option in known.options
        for _, name in known.options[option].says
    ]
    taken = beside(taken, {*given, *stated})
    return Told(preset, "+".join((base or preset.framework, *options)), taken)


class PresetResolver(Resolver):
    """Fills in what a preset sets of a sweep of training steps."""

    def take_preset(self) -> None:
        """Take what a preset sets, unless it is given; of the framework it sets options."""
        if PRESET not in self.given:
            return
        if self._axis_of(FRAMEWORK) is not None:
            wrong = "are several, and a preset is of one"
            refuse(FRAMEWORK, "..", wrong, "leave it out: the preset brings it")
        axes = [axis for axis in self.axes if not axis.columns.keys().isdisjoint(SUBJECTS)]
        points = [self._told(values) for values in self.points(axes, (*SUBJECTS, FRAMEWORK))]
        # Where options vary along several axes, the framework is taken by its name.
        names = [point.framework for point in points]
        self.given.discard(FRAMEWORK)
        if len(varying_dims(np.array(names).reshape([len(axis) for axis in axes]))) > 1:
            names = [self.labels.get(FRAMEWORK, point.preset.framework) for point in points]
        self._set(FRAMEWORK, names, points, axes)
        for name in dict.fromkeys(name for point in points for name in point.taken.labels):
            words = [_said(point, name, self.folders) for point in points]
            self._set(name, words, points, axes)
        # The framework's options may be named nowhere; the loss is theirs.
        losses = [load_framework(point.framework, self.folders).loss for point in points]
        self._set("loss", losses, points, axes)
        usual = usual_table()["memory"]
        for name in dict.fromkeys(name for point in points for name in point.taken.modules):
            values = [point.taken.modules.get(name, usual[name].value) for point in points]
            self._set(name, values, points, axes)

    def software_at(self, labels: Mapping[str, object]) -> tuple[str, dict[str, Origin]]:
        """Return the framework with its options at one point, and constants that a preset sets."""
        if PRESET not in labels:
            return str(labels[FRAMEWORK]), {}
        point = self._told(labels)
        numbers = {
            name: Origin(value, SPECIFICATION, point.preset.words)
            for name, value in point.taken.numbers.items()
        }
        return point.framework, numbers

    def _told(self, values: Mapping[str, Any]) -> Told:
        named = str(values.get("hardware", LABELS["hardware"].default))
        machine = load_hardware(named, self.folders)
        model = load_model(str(values["model"]), self.folders) if "model" in values else None
        figure = model.figures.get("experts") if model else None
        experts = float(values.get("experts", figure.value if figure else 0.0))
        run = Run(
            model.name if model else "",
            experts > 0.0,
            machine.name,
            machine.generation,
            str(values.get("precision", LABELS["precision"].default)),
        )
        framework = str(values.get(FRAMEWORK, ""))
        return told(str(values[PRESET]), run, framework, self.sweep.given, (), self.folders)

    def _set(
        self, name: str, values: Sequence[Any], points: Sequence[Told], axes: Sequence[Axis]
    ) -> None:
        """Give a label or quantity its values at the points of some axes."""
        if name in self.given:
            return
        origins = [
            Origin(value, SPECIFICATION, point.preset.words)
            for value, point in zip(values, points, strict=True)
        ]
        varying = varying_dims(np.array(values).reshape([len(axis) for axis in axes]))
        if name in LABELS and len(varying) > 1:
            names = ", ".join(axes[position].name for position in varying)
            wrong = f"sets {name} by {names}, which are axes of their own"
            refuse(PRESET, "..", wrong, f"{name}, too, or one axis with columns of these")
        known = {axis.name: axis for axis in self.axes}
        self.give(name, origins, [known[axis.name] for axis in axes])


def _said(point: Told, label: str, folders: Sequence[Path]) -> str:
    """Return a label that a preset sets, or what the software has where it sets none."""
    choices = load_framework(point.framework, folders).choices
    usual = choices[label].value if label in choices else LABELS[label].default
    return point.taken.labels.get(label, usual)
