"""A sweep as the user states it: axes, constants, quantities, reductions and figures."""

from __future__ import annotations

import tomllib
from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.frozen import frozen
from overhead.labels import CHOICES, LABELS, SWITCHES, usual_spelling
from overhead.overlap.mechanisms import HEEDED, OUTPUTS
from overhead.quantity import VOCABULARY
from sweeps.errors import Faults, InputError, fault, nearest, refuse, tell_all
from sweeps.former import renamed
from sweeps.spec.axis import (
    CATALOGUED,
    DEFAULT_QUANTITIES,
    OF_A_PLAN,
    OF_TRAINING,
    TRAINING_QUANTITIES,
    Axis,
    every_plan,
    is_overlap,
    is_training,
    label_values,
    parse_values,
    pieces,
    typed,
)
from sweeps.spec.catalog import find_spec, has_spec, load_model, spec_names, usual_name
from sweeps.spec.contract import Contract, read_contract
from sweeps.spec.fields import declared_keys
from sweeps.spec.names import GPUS, NODES, OTHER_NAMES, quantity_of
from sweeps.spec.nccl_words import refused_algorithm, refused_protocol
from sweeps.spec.nodes import gpus_of_nodes
from sweeps.spec.reduction import NAME, Reduction, read_reductions
from sweeps.spec.units import (
    counts_tokens,
    spelled_out,
    to_toml,
    with_unit,
)

# Keys of a spec, with what they say.
SETTINGS_KEYS = declared_keys("sweep")[""]


def changed(spec: dict[str, object], settings: Sequence[str]) -> dict[str, object]:
    """Return a stated sweep with changes (--set); a bare name of an axis or constant is found."""
    faults = []
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign or not name:
            faults.append(fault("--set", setting, "not a change", "KEY=VALUE"))
            continue
        section, dot, key = name.partition(".")
        if not dot and name not in SETTINGS_KEYS:
            many = "," in value or ":" in value or value.strip() == "all"
            section, key = ("axes" if many else "constants"), name
        if dot and section not in ("axes", "constants"):
            allowed = "title, quantities, axes.NAME or constants.NAME"
            faults.append(fault("--set", setting, "no such key", allowed))
        elif key:
            meant = {quantity_of(key, training=training) for training in (True, False)}
            tables = (spec.get("axes"), spec.get("constants"))
            for table in (table_given for table_given in tables if isinstance(table_given, dict)):
                for same in {key, *meant} & set(table):
                    del table[same]
            values = spec.setdefault(section, {})
            if isinstance(values, dict):
                values[key] = with_unit(min(meant), value)
        else:
            spec[section] = value.split(",") if section == "quantities" else value
    tell_all(faults)
    return spec


# What says that a sweep is of an operation, too, where it is of a training step.
OF_OPERATION = ("collective", "message_bytes")


@frozen(slots=True)
class Sweep:
    """A sweep, checked."""

    title: str  # What it is about
    summary: str = ""
    quantities: tuple[str, ...] = DEFAULT_QUANTITIES  # What is asked for
    axes: tuple[Axis, ...] = ()  # The axes that the user gave
    constants: Mapping[str, float] = field(default_factory=dict)  # Quantities of one value
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of one value
    reductions: tuple[Reduction, ...] = ()  # Reductions
    figures: tuple[Mapping[str, object], ...] = ()  # Figure declarations, as written
    # A table of measurements to lay beside the predictions, as written; empty: none
    measured: Mapping[str, object] = field(default_factory=dict)
    asserts: tuple[Contract, ...] = ()  # What has to hold of the results
    optional: bool = False  # Whether quantities are left out that what is given doesn't suffice for
    usual: bool = False  # Whether the quantities are the usual ones, for none was asked for

    @property
    def training(self) -> bool:
        """Whether it is of training steps, rather than of collective operations."""
        return is_training(self.given)

    @property
    def joint(self) -> bool:
        """Whether it is of collective operations beside training steps."""
        return self.training and not self.given.isdisjoint(OF_OPERATION)

    def split(self) -> tuple[Sweep, Sweep]:
        """Return the sweep of the operation and that of the step, of one that is of both.

        Each has what it takes, and asks for nothing yet.  The number of GPUs is given once for
        both, as ``ranks`` or as ``world_size``.
        """
        of_step = {*OF_A_PLAN, *OF_TRAINING}
        ranks = {} if "ranks" in self.given else {"world_size": "ranks"}
        gpus = {} if {"world_size", "dp"} & self.given else {"ranks": "world_size"}
        return self._part(of_step, ranks), self._part({*OF_OPERATION, "ranks"}, gpus)

    def _part(self, left: Container[str], renamed: Mapping[str, str]) -> Sweep:
        """Return what is given without some names, and with others for some."""

        def kept(given: Mapping[str, object]) -> dict[str, Any]:
            names = {name: renamed.get(name, name) for name in given}
            return {names[name]: value for name, value in given.items() if names[name] not in left}

        axes, constants = [], kept(self.constants)
        for axis in self.axes:
            columns = kept(axis.columns)
            alone = columns.keys() <= {*renamed.values()} and len(columns) < len(axis.columns)
            if alone and all((values == values[0]).all() for values in columns.values()):
                # Plans of one number of GPUs are no axis of it.
                constants |= {name: float(values[0]) for name, values in columns.items()}
            else:
                axes.append(Axis(axis.name, columns))
        return replace(
            self,
            quantities=(),
            axes=tuple(axes),
            constants=constants,
            labels=kept(self.labels),
            reductions=(),
            figures=(),
            asserts=(),
        )

    @property
    def overlap(self) -> bool:
        """Whether it is of computation and communication at once, by themselves."""
        return is_overlap(self.given)

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
        refuse("SPEC", str(path), reason, "a TOML file")
    try:
        spec = renamed(tomllib.loads(text), path.name)
    except ValueError as error:  # also from a number with thousands of digits
        message = f"{path.name}: not TOML: {error}"
        raise InputError(message) from None
    except RecursionError:
        message = f"{path.name}: not a sweep: nested too deeply"
        raise InputError(message) from None
    if settings:
        spec = changed(spec, settings)
        text = to_toml(spec)
    sweep = read_sweep(spec, bare_is_si=False, where=f"{path.name}: ", folders=folders)
    return sweep, text


def read_sweep(
    spec: Mapping[str, object],
    *,
    bare_is_si: bool,
    where: str = "",
    folders: Sequence[Path] | None = None,
) -> Sweep:
    """Check what a user states and make a sweep of it."""
    # Axes and constants are read by any name of theirs, and told of as they were given.
    given = {key: spec[key] for key in ("axes", "constants") if key in spec}
    others = {key: value for key, value in spec.items() if key not in given}
    spec = {**renamed(others, where.removesuffix(": ") or "sweep"), **given}
    reader = _SweepReader(spec, bare_is_si, folders)
    sweep = reader.read()
    if where:
        reader.faults = [where + line for line in reader.faults]
    return reader.checked(sweep)


class _SweepReader(Faults):
    """Reads a stated sweep, gathering faults."""

    def __init__(
        self, spec: Mapping[str, object], bare_is_si: bool, folders: Sequence[Path] | None
    ) -> None:
        super().__init__()
        self.spec, self.bare_is_si, self.folders = spec, bare_is_si, folders
        self.said: dict[str, str] = {}  # What the user calls a quantity, if not by its name
        names = [
            name
            for stated in (spec.get("axes"), spec.get("constants"))
            if isinstance(stated, Mapping)
            for table in (stated, *stated.values())
            if isinstance(table, Mapping)
            for name in map(str, table)
        ]
        self.training = is_training({quantity_of(name, training=False) for name in names})

    def add(self, field: str, value: object, wrong: str, allowed: str) -> None:
        """Add a fault, under the name that the user gave."""
        super().add(self.said.get(field, field), value, wrong, allowed)

    def read(self) -> Sweep:
        self.check_keys("", self.spec, SETTINGS_KEYS)
        axes = self._axes()
        constants, labels = self._constants()
        names = [*(name for axis in axes for name in axis.columns), *constants, *labels]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.add(name, "..", "given twice", "one axis or one constant")
        gpus = self._dimension(NODES)
        axes, constants, wrong = gpus_of_nodes(
            axes, constants, labels, gpus, self.said.get(gpus, gpus), self.folders or ()
        )
        self.faults += wrong
        # Axes with faults are axes too.
        dims = [self._dimension(name) for name in self._table("axes")]
        given = {*constants, *labels, *(name for axis in axes for name in axis.columns)}
        training, operation = is_training(given), not given.isdisjoint(OF_OPERATION)
        quantities = self._quantities(training=training, operation=operation or not training)
        if training and "ranks" in given and not operation:
            why = "is of an operation, and no message of one is given"
            self.add("ranks", "..", why, "world_size for a step's GPUs, or message_bytes, too")
        if is_overlap(given):
            why = "has no meaning for an overlap by itself"
            known = ("mechanism", *HEEDED, "hardware")
            strange = [name for name in LABELS if name in given and name not in known]
            self.faults += [
                fault(name, "..", why, f"leave it; {', '.join(known)} are known")
                for name in strange
            ]
        rows = [
            {**row, "over": [self._dimension(dim) for dim in pieces(row["over"])]}
            if "over" in row
            else row
            for row in self._tables("reductions")
        ]
        reductions, wrong = read_reductions(rows, dims, given, bare_is_si=self.bare_is_si)
        self.faults += wrong
        asserts = self._asserts(
            given, {reduction.name: reduction.units for reduction in reductions}
        )
        asked = {*quantities, *(reduction.name for reduction in reductions)}
        quantities = (*quantities, *dict.fromkeys(o.name for o in asserts if o.name not in asked))
        nothing = set(quantities) <= given and not (reductions or self.spec.get("measured"))
        if nothing and not self.faults:
            shown = ", ".join(quantities)
            why = "are given" if quantities else "ask for nothing"
            self.add("quantities", shown, why, "what is to be computed")
        return Sweep(
            title=str(self.spec.get("title", "")),
            summary=str(self.spec.get("summary", "")),
            quantities=quantities,
            axes=tuple(axes),
            constants=constants,
            labels=labels,
            reductions=reductions,
            figures=tuple(self._tables("figures")),
            measured=self._table("measured"),
            asserts=tuple(asserts),
            optional=training and "quantities" not in self.spec,
            usual="quantities" not in self.spec,
        )

    def _table(self, key: str) -> Mapping[str, object]:
        value = self.spec.get(key, {})
        if not isinstance(value, Mapping):
            self.add(key, value, "not a table", f"[{key}] with keys below it")
            return {}
        table: dict[str, object] = {}
        for name, stated in value.items():
            before = self.said.get(quantity := quantity_of(name, training=self.training), quantity)
            quantity = self._meant(name)
            # A batch of so many k or M is one of tokens.
            if quantity == "global_batch_size" and counts_tokens(stated):
                quantity = self.said["tokens_per_step"] = "tokens_per_step"
            # Read once more a table has the last of its names by now.
            if before != name and quantity in table and str(table[quantity]) != str(stated):
                wrong = f"stands beside {before} = {table[quantity]}, which is the same quantity"
                self.faults.append(fault(name, stated, wrong, "one of the two"))
            table[quantity] = stated
        return table

    def _dimension(self, name: Any) -> str:
        """Return the dimension that an axis of a name has: nodes are along the GPUs'."""
        dimension = str(name).strip()
        if dimension == NODES:
            return GPUS[0] if self.training else GPUS[1]
        return quantity_of(dimension, training=self.training)

    def _meant(self, name: str) -> str:
        """Return the quantity or label that a name means, and keep the name."""
        quantity = quantity_of(name, training=self.training)
        if quantity != name:
            self.said[quantity] = name
        return quantity

    def _tables(self, key: str) -> Sequence[Mapping[str, object]]:
        value = self.spec.get(key, [])
        if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
            self.add(key, value, "not a list of tables", f"[[{key}]]")
            return []
        return value

    def _asserts(self, given: Container[str], reduction_units: Mapping[str, str]) -> list[Contract]:
        contracts = []
        for row in self._tables("asserts"):
            for key in row:
                if key != "that":
                    self.faults.append(fault(f"asserts.{key}", "..", "no such key", "that = '..'"))
            try:
                contract = read_contract(str(row.get("that", "")), "asserts.that", reduction_units)
            except InputError as error:
                self.faults += error.faults
                continue
            if contract.name in given:
                why = "is given, not computed"
                self.faults.append(fault("asserts.that", contract.name, why, "another one"))
            contracts.append(contract)
        return contracts

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

    def _joint(self, name: str, table: Mapping[str, object]) -> Axis | None:
        if name in LABELS or name in VOCABULARY:
            self.add(f"axes.{name}", "{..}", "a table needs a name of its own", "such as 'case'")
            return None
        if not NAME.fullmatch(name) or name in (*FLAGS, "collective_status"):
            allowed = "letters, digits and _, such as 'case'"
            self.add("axes", name, "can't be a dimension's name", allowed)
            return None
        columns: dict[str, NDArray[Any]] = {}
        listed = table.get("every", [])
        every = listed if isinstance(listed, list) else str(listed).split(",")
        for key, value in table.items():
            if key == "every":
                continue
            column = self._column(self._meant(key), value, joint=True)
            if column is not None:
                columns[self._meant(key)] = column
        if every:
            try:
                return Axis(name, every_plan([str(plan).strip() for plan in every], columns))
            except InputError as error:
                self.faults += [f"axes.{name}: {line}" for line in error.faults]
                return None
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{key} has {count}" for key, count in lengths.items())
            self.add(f"axes.{name}", "{..}", f"columns of unequal length ({text})", "equal ones")
            return None
        if not columns:
            self.add(f"axes.{name}", "{}", "no columns", "one or more")
            return None
        return Axis(name, columns)

    def _column(self, name: str, value: Any, *, joint: bool = False) -> NDArray[Any] | None:
        if name in LABELS:
            return self._labels(name, value, joint=joint)
        if name not in VOCABULARY:
            known = (*LABELS, *VOCABULARY, *OTHER_NAMES)
            self.add(name, str(value), "no such quantity", nearest(name, known))
            return None
        quantity = VOCABULARY[name]
        values = self.of(self._rows if joint else self._parse, name, value)
        if values is None:
            return None
        wrong = quantity.outside(values)
        if wrong.any():
            shown = typed(value, values, float(values[wrong][0]), quantity.units)
            self.add(name, shown, "out of range", f"must be {quantity.domain()}")
            return None
        return values

    def _rows(self, name: str, value: Any) -> NDArray[Any]:
        # Rows of a table stay in their order, and may have the same value.
        parts = [self._parse(name, item) for item in pieces(value)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _parse(self, name: str, value: Any) -> NDArray[Any]:
        if name == "protocol":
            wrong, way_on = refused_protocol(str(value))
            refuse(self.said.get(name, name), str(value), wrong, way_on)
        quantity = VOCABULARY[name]
        return parse_values(
            spelled_out(name, value),
            quantity.units,
            field=self.said.get(name, name),
            integer=quantity.integer,
            bare_is_si=self.bare_is_si,
            allow_infinite=quantity.units == "byte s-1" or name.endswith("memory_capacity"),
        )

    def _labels(self, name: str, value: Any, *, joint: bool) -> NDArray[Any] | None:
        listed = value if isinstance(value, list) else str(value).split(",")
        words = [str(word).strip() for word in listed]
        known = label_values(name)
        if words == ["all"] and name in ("collective", "topology", "algorithm"):
            words = [word for word in known if word not in CHOICES]
        words = [usual_spelling(word, known) for word in words]
        before = len(self.faults)
        if not words or words == [""]:
            self.add(name, str(value), "empty", "one value or more")
        for word in dict.fromkeys(words) if known else ():
            if word not in known:
                told = refused_algorithm(word) if name == "algorithm" else None
                self.add(name, word, *(told or ("unknown", nearest(word, known))))
        if name in CATALOGUED and self.folders is not None:
            kind, folders = CATALOGUED[name], self.folders
            if not all(Path(word).name == word and has_spec(kind, word, folders) for word in words):
                names = spec_names(kind, folders)
                words = [usual_name(word, names) for word in words]
            for word in dict.fromkeys(words):
                if name == "model":
                    self.of(load_model, word, self.folders)
                else:
                    self.of(find_spec, CATALOGUED[name], word, self.folders)
        if not joint:
            for word in sorted({word for word in words if words.count(word) > 1}):
                self.add(name, word, "is given twice", "each value once")
        return None if len(self.faults) > before else np.array(words, dtype=np.str_)

    def _constants(self) -> tuple[dict[str, float], dict[str, str]]:
        numbers: dict[str, float] = {}
        labels: dict[str, str] = {}
        for name, value in self._table("constants").items():
            column = self._column(name, value)
            if column is None:
                continue
            if len(column) != 1:
                self.add(name, str(value), "a constant has one value", "several make an axis")
            elif column.dtype.kind in "UO":
                labels[name] = str(column[0])
            else:
                numbers[name] = float(column[0])
        return numbers, labels

    # What is asked for.

    def _quantities(self, *, training: bool, operation: bool) -> tuple[str, ...]:
        inputs = {**self._table("axes"), **self._table("constants")}
        networks = str(inputs.get("topology", ""))
        usual = [*DEFAULT_QUANTITIES, *(part for name, part in PARTS.items() if name in inputs)]
        if not ("hierarchical" in networks or networks == "all"):
            usual = [name for name in usual if name != "pod_time"]
        usual = [*(usual if operation else ()), *(TRAINING_QUANTITIES if training else ())]
        usual = list(OUTPUTS) if is_overlap(inputs) else usual
        value = self.spec.get("quantities", usual)
        listed = value if isinstance(value, list) else str(value).split(",")
        names = tuple(str(name).strip() for name in listed if str(name).strip())
        for name in names:
            if name not in FLAGS and name not in VOCABULARY:
                allowed = nearest(name, [*VOCABULARY, "chosen_algorithm"])
                self.add("quantities", name, "no such quantity", allowed)
        # The status is stored beside whatever is asked for.
        return tuple(dict.fromkeys(name for name in names if name != "status"))


# Without these parts a time wouldn't be their sum, where what comes first is given.
PARTS = {
    "nodes_per_pod": "pod_time",
    "reduction_cost": "reduction_time",
    "phase_chunks": "overlapped_phase_time",
}
# What is told beside quantities; the status is stored with whatever is asked for.
FLAGS = ("chosen_algorithm", "status")
assert set(SWITCHES) < set(LABELS)
