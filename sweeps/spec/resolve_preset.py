"""What a recipe preset sets in a sweep, along the axes on which it depends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from sweeps.spec.resolve_operation import Resolver

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
    """Return what a preset sets in a run.

    Parameters
    ----------
    name : str
        The preset's.
    run : Run
        What its rules look at.
    framework : str
        The framework that is given, with options, which win.
    given : collection of str
        The quantities and labels that are given by hand.
    without : collection of str
        Options that the run is known not to have.
    folders : sequence of Path
        The user's own folders.

    Returns
    -------
    Told
        The preset, the framework with its options, and what else is set.
    """
    base, framework_options = options_of(framework)
    preset = find_preset(name, base, folders)
    taken = preset.taken(run)
    known = load_framework(base or preset.framework, folders)
    on = [option for option in taken.options if option not in without]
    options = known.acting(on, framework_options)
    return Told(preset, "+".join((base or preset.framework, *options)), beside(taken, given))


class PresetResolver(Resolver):
    """Fills in what a preset sets of a sweep of training steps."""

    def take_preset(self) -> None:
        """Take what a preset sets, unless it is given; of the framework it sets options."""
        if PRESET not in self.given:
            return
        if self._axis_of(FRAMEWORK) is not None:
            wrong = "are several, and a preset is of one"
            refuse(FRAMEWORK, "..", wrong, "leave it out: the preset brings it")
        axes = [axis.name for axis in self.axes if {*SUBJECTS} & set(axis.columns)]
        told_points = [self._told(labels) for labels in self._points(axes)]
        self._name_framework(told_points, axes)
        for name in dict.fromkeys(name for point in told_points for name in point.taken.labels):
            self._set(
                name, [_said(point, name, self.folders) for point in told_points], told_points, axes
            )
        # The framework's options may be named nowhere; the loss is theirs.
        losses = [load_framework(point.framework, self.folders).loss for point in told_points]
        self._set("loss", losses, told_points, axes)
        usual = usual_table()["memory"]
        for name in dict.fromkeys(name for point in told_points for name in point.taken.modules):
            values = [point.taken.modules.get(name, usual[name].value) for point in told_points]
            self._set(name, values, told_points, axes)

    def _name_framework(self, points: Sequence[Told], axes: Sequence[str]) -> None:
        """Take the framework with its options; where these vary along several axes, its name."""
        self.given.discard(FRAMEWORK)
        known = {axis.name: axis for axis in self.axes}
        lengths = [len(known[axis]) for axis in axes]
        names = [point.framework for point in points]
        if len(_varying(np.array(names).reshape(lengths))) > 1:
            names = [self.labels.get(FRAMEWORK, point.preset.framework) for point in points]
        self._set(FRAMEWORK, names, points, axes)

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

    def _points(self, axes: Sequence[str]) -> Iterator[dict[str, object]]:
        """Yield what a preset depends on, at each point of some axes."""
        known = {axis.name: axis for axis in self.axes}
        for point in product(*(range(len(known[name])) for name in axes)):
            values = {**self.constants, **self.labels}
            for name, index in zip(axes, point, strict=True):
                values |= {key: column[index] for key, column in known[name].columns.items()}
            yield values

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
        self, name: str, values: Sequence[Any], points: Sequence[Told], axes: Sequence[str]
    ) -> None:
        """Give a label or quantity its values at the points of some axes."""
        if name in self.given:
            return
        known = {axis.name: axis for axis in self.axes}
        along = [known[axis] for axis in axes]
        origins = [
            Origin(value, SPECIFICATION, point.preset.words)
            for value, point in zip(values, points, strict=True)
        ]
        if name in LABELS:
            self._along_one(along, name, origins)
        else:
            table = np.array(values, dtype=np.float64).reshape([len(axis) for axis in along])
            self._spread(name, table, along)
            self.origins[name] = tuple(dict.fromkeys(origins))
        self.given.add(name)

    def _along_one(self, axes: Sequence[Axis], label: str, origins: Sequence[Origin]) -> None:
        """Give a label its values along the one axis on which they vary."""
        table = np.array([str(origin.value) for origin in origins]).reshape(
            [len(axis) for axis in axes]
        )
        varying = _varying(table)
        if len(varying) > 1:
            names = ", ".join(axes[position].name for position in varying)
            wrong = f"sets {label} by {names}, which are axes of their own"
            refuse(PRESET, "..", wrong, f"{label}, too, or one axis with columns of these")
        if not varying:
            self.labels[label] = str(origins[0].value)
            self.origins[label] = tuple(dict.fromkeys(origins))[:1]
            return
        indices = np.arange(table.size).reshape(table.shape)
        index = tuple(slice(None) if position in varying else 0 for position in range(table.ndim))
        self._along(
            axes[varying[0]], label, [origins[number] for number in indices[index].tolist()]
        )


def _varying(table: NDArray[Any]) -> list[int]:
    """Return along which of its dimensions a table varies."""
    firsts = (np.take(table, [0], axis=axis) for axis in range(table.ndim))
    return [index for index, first in enumerate(firsts) if np.any(table != first)]


def _said(point: Told, label: str, folders: Sequence[Path]) -> str:
    """Return a label that a preset sets, or what the software has where it sets none."""
    choices = load_framework(point.framework, folders).choices
    usual = choices[label].value if label in choices else LABELS[label].default
    return point.taken.labels.get(label, usual)
