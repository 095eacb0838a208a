"""A sweep as the user states it: axes, constants, quantities, reductions and figures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.axis import LABELS, SWITCHES, Axis
from sweeps.spec.catalog import find_spec, load_model
from sweeps.spec.dump import to_toml
from sweeps.spec.labels import CATALOGUED, CHOICES, label_values
from sweeps.spec.plans import every_plan
from sweeps.spec.ranges import parse_values, pieces
from sweeps.spec.reductions import NAME, REDUCTIONS, Reduction, read_reductions
from sweeps.spec.settings import KEYS, changed
from sweeps.spec.usual_quantities import (
    DEFAULT_QUANTITIES,
    TRAINING_QUANTITIES,
    declare_for,
    is_training,
)

__all__ = ["DEFAULT_QUANTITIES", "REDUCTIONS", "Reduction", "Sweep", "read_sweep"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep, checked."""

    title: str  # What it is about
    summary: str = ""  # What it is about
    quantities: tuple[str, ...] = DEFAULT_QUANTITIES  # What is asked for
    axes: tuple[Axis, ...] = ()  # The axes that the user gave
    constants: Mapping[str, float] = field(default_factory=dict)  # Quantities of one value
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of one value
    reductions: tuple[Reduction, ...] = ()  # Reductions
    figures: tuple[Mapping[str, Any], ...] = ()  # Figure declarations, as written
    # A table of measurements to lay beside the predictions, as written; empty: none
    measured: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False  # Whether quantities are left out that what is given doesn't suffice for

    @property
    def training(self) -> bool:
        """Whether it is of training steps, rather than of collective operations."""
        return is_training(self.given)

    @property
    def given(self) -> frozenset[str]:
        """The names of all quantities and labels that the user gave."""
        columns = (name for axis in self.axes for name in axis.columns)
        return frozenset((*columns, *self.constants, *self.labels))


def load_sweep(
    path: Path, settings: Sequence[str] = (), folders: Sequence[Path] = ()
) -> tuple[Sweep, str]:
    """Read a sweep's file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(fault("SPEC", str(path), reason, "a TOML file")) from None
    try:
        stated = tomllib.loads(text)
    except ValueError as error:  # also from a number with thousands of digits
        message = f"{path.name}: not TOML: {error}"
        raise InputError(message) from None
    except RecursionError:
        message = f"{path.name}: not a sweep: nested too deeply"
        raise InputError(message) from None
    if settings:
        stated = changed(stated, settings)
        text = to_toml(stated)
    sweep = read_sweep(stated, bare_is_si=False, where=f"{path.name}: ", folders=folders)
    return sweep, text


def read_sweep(
    stated: Mapping[str, Any],
    *,
    bare_is_si: bool,
    where: str = "",
    folders: Sequence[Path] | None = None,
) -> Sweep:
    """Check what a user states and make a sweep of it."""
    reader = _Reader(stated, bare_is_si, folders)
    sweep = reader.read()
    if reader.faults:
        raise InputError([where + line for line in reader.faults])
    return sweep


class _Reader:
    """Reads a stated sweep, gathering faults."""

    def __init__(
        self, stated: Mapping[str, Any], bare_is_si: bool, folders: Sequence[Path] | None
    ) -> None:
        self.stated, self.bare_is_si, self.folders = stated, bare_is_si, folders
        self.faults: list[str] = []

    def read(self) -> Sweep:
        for key in self.stated:
            if key not in KEYS:
                self.faults.append(fault(key, "..", "no such key", nearest(key, KEYS)))
        declare_for(self._named())
        axes = self._axes()
        constants, labels = self._constants()
        self._twice(axes, constants, labels)
        # Axes with faults are axes too.
        dims = list(stated) if isinstance(stated := self.stated.get("axes"), Mapping) else []
        given = {*constants, *labels, *(name for axis in axes for name in axis.columns)}
        training = is_training(given)
        quantities = self._quantities(training=training)
        if training and "collective" in given:
            why = "of a single operation, beside a training step's"
            self.faults.append(fault("collective", "..", why, "one of the two"))
        reductions, wrong = read_reductions(self._tables("reductions"), dims, given)
        self.faults += wrong
        nothing = set(quantities) <= given and not (reductions or self.stated.get("measured"))
        if nothing and not self.faults:
            shown = ", ".join(quantities)
            why = "are given" if quantities else "ask for nothing"
            self.faults.append(fault("quantities", shown, why, "what is to be computed"))
        return Sweep(
            title=str(self.stated.get("title", "")),
            summary=str(self.stated.get("summary", "")),
            quantities=quantities,
            axes=tuple(axes),
            constants=constants,
            labels=labels,
            reductions=reductions,
            figures=tuple(self._tables("figures")),
            measured=self._table("measured"),
            optional=training and "quantities" not in self.stated,
        )

    def _table(self, key: str) -> Mapping[str, Any]:
        value = self.stated.get(key, {})
        if not isinstance(value, Mapping):
            self.faults.append(fault(key, value, "not a table", f"[{key}] with keys below it"))
            return {}
        return value

    def _tables(self, key: str) -> Sequence[Mapping[str, Any]]:
        value = self.stated.get(key, [])
        if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
            self.faults.append(fault(key, value, "not a list of tables", f"[[{key}]]"))
            return []
        return value

    def _named(self) -> set[str]:
        """Return every name that might be a quantity's."""
        named = set(self._table("constants"))
        for name, value in self._table("axes").items():
            named |= set(value) - {"every"} if isinstance(value, Mapping) else {name}
        asked = self.stated.get("quantities", [])
        return named | {str(one).strip() for one in asked if isinstance(asked, list)}

    # Values.

    def _axes(self) -> list[Axis]:
        axes = []
        for name, value in self._table("axes").items():
            if isinstance(value, Mapping):
                axis = self._joint(name, value)
            else:
                column = self._column(name, value)
                axis = None if column is None else Axis(name, {name: column})
            if axis is not None:
                axes.append(axis)
        return axes

    def _joint(self, name: str, table: Mapping[str, Any]) -> Axis | None:
        if name in LABELS or name in VOCABULARY:
            self.faults.append(
                fault(f"axes.{name}", "{..}", "a table needs a name of its own", "such as 'case'")
            )
            return None
        if not NAME.fullmatch(name) or name in ("status", "chosen_algorithm"):
            allowed = "letters, digits and _, such as 'case'"
            self.faults.append(fault("axes", name, "can't be a dimension's name", allowed))
            return None
        columns: dict[str, NDArray[Any]] = {}
        stated = table.get("every", [])
        every = stated if isinstance(stated, list) else str(stated).split(",")
        for key, value in table.items():
            if key == "every":
                continue
            column = self._column(key, value, joint=True)
            if column is not None:
                columns[key] = column
        if every:
            try:
                return Axis(name, every_plan([str(one).strip() for one in every], columns))
            except InputError as error:
                self.faults += [f"axes.{name}: {line}" for line in error.faults]
                return None
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{key} has {count}" for key, count in lengths.items())
            self.faults.append(
                fault(f"axes.{name}", "{..}", f"columns of unequal length ({told})", "equal ones")
            )
            return None
        if not columns:
            self.faults.append(fault(f"axes.{name}", "{}", "no columns", "one or more"))
            return None
        return Axis(name, columns)

    def _column(self, name: str, value: Any, *, joint: bool = False) -> NDArray[Any] | None:
        if name in LABELS:
            return self._labels(name, value, joint=joint)
        if name not in VOCABULARY:
            known = (*LABELS, *VOCABULARY)
            self.faults.append(fault(name, str(value), "no such quantity", nearest(name, known)))
            return None
        quantity = VOCABULARY[name]
        try:
            if joint:
                # Rows of a table stay in their order, and may have the same value.
                parts = [self._parse(name, item) for item in pieces(value)]
                values = np.concatenate(parts) if parts else np.empty(0)
            else:
                values = self._parse(name, value)
        except InputError as error:
            self.faults += error.faults
            return None
        wrong = quantity.outside(values)
        if wrong.any():
            shown = f"{values[wrong][0]:g}"
            self.faults.append(fault(name, shown, "outside of its domain", quantity.domain()))
            return None
        return values

    def _parse(self, name: str, value: Any) -> NDArray[Any]:
        quantity = VOCABULARY[name]
        return parse_values(
            value,
            quantity.units,
            field=name,
            integer=quantity.integer,
            bare_is_si=self.bare_is_si,
            allow_infinite=name.endswith(("bandwidth", "memory_capacity")),
        )

    def _labels(self, name: str, value: Any, *, joint: bool) -> NDArray[Any] | None:
        listed = value if isinstance(value, list) else str(value).split(",")
        words = [str(word).strip() for word in listed]
        known = label_values(name)
        if words == ["all"] and name in ("collective", "topology", "algorithm"):
            chosen = [word for word in known if word not in CHOICES]
            words = [w for w in chosen if w != "binary_tree"] if name == "topology" else chosen
        before = len(self.faults)
        if not words or words == [""]:
            self.faults.append(fault(name, str(value), "empty", "one value or more"))
        for word in dict.fromkeys(words) if known else ():
            if word not in known:
                self.faults.append(fault(name, word, "unknown", nearest(word, known)))
        if name in CATALOGUED and self.folders is not None:
            self._find_specs(name, words, self.folders)
        if not joint:
            for word in sorted({word for word in words if words.count(word) > 1}):
                self.faults.append(fault(name, word, "stands there twice", "each value once"))
        return None if len(self.faults) > before else np.array(words, dtype=np.str_)

    def _find_specs(self, name: str, words: Sequence[str], folders: Sequence[Path]) -> None:
        for word in dict.fromkeys(words):
            try:
                if name == "model":
                    load_model(word, folders)
                else:
                    find_spec(CATALOGUED[name], word, folders)
            except InputError as error:
                self.faults += error.faults

    def _constants(self) -> tuple[dict[str, float], dict[str, str]]:
        numbers: dict[str, float] = {}
        labels: dict[str, str] = {}
        for name, value in self._table("constants").items():
            column = self._column(name, value)
            if column is None:
                continue
            if len(column) != 1:
                self.faults.append(
                    fault(name, str(value), "a constant has one value", "several make an axis")
                )
            elif column.dtype.kind in "UO":
                labels[name] = str(column[0])
            else:
                numbers[name] = float(column[0])
        return numbers, labels

    def _twice(
        self, axes: Sequence[Axis], constants: Mapping[str, float], labels: Mapping[str, str]
    ) -> None:
        names = [name for axis in axes for name in axis.columns]
        names += [*constants, *labels]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.faults.append(fault(name, "..", "given twice", "one axis or one constant"))

    # What is asked for.

    def _quantities(self, *, training: bool) -> tuple[str, ...]:
        # The parts inside nodes, between them and between pods are the time.
        told = {**self._table("axes"), **self._table("constants")}
        networks = str(told.get("topology", ""))
        pods = "nodes_per_pod" in told and ("hierarchical" in networks or networks == "all")
        usual = [*DEFAULT_QUANTITIES, *(["pod_time"] if pods else [])]
        usual = list(TRAINING_QUANTITIES) if training else usual
        value = self.stated.get("quantities", usual)
        listed = value if isinstance(value, list) else str(value).split(",")
        names = tuple(str(name).strip() for name in listed if str(name).strip())
        known = [*VOCABULARY, "chosen_algorithm"]
        for name in names:
            if name not in (*known, "status"):
                self.faults.append(
                    fault("quantities", name, "no such quantity", nearest(name, known))
                )
        # The status is stored beside whatever is asked for.
        return tuple(dict.fromkeys(name for name in names if name != "status"))


assert set(SWITCHES) < set(LABELS)
