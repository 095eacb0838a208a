"""A sweep beside a table of measurements: its axes from the table, its errors from both.

A spec's ``[measured]`` says which::

    [measured]
    table = "nccl-collectives"        # shipped, in specs/measured here, or a path to a CSV file
    where = { hardware = "dgx-h100", collective = ["all_reduce", "all_gather"] }
    columns = { message_bytes = "size", time = "elapsed" }   # headings, where they are others
    units = { time = "us" }           # where the headings don't end with it

The table gives the sweep the axis ``case`` (an operation on so many ranks of a machine, by one
source) and the axis ``message_bytes``.  What it doesn't say of collective, hardware and ranks the
spec has to state as a constant.  Its ``fabric`` and ``inter_bandwidth``, where it has them, are of
the network between nodes; an empty cell stands for the machine's.  Nothing is fitted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column
from sweeps.errors import Faults, nearest, refuse
from sweeps.origin import Origin, Origins, assumed
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_hardware
from sweeps.spec.machine import Machine
from sweeps.spec.sweep import Sweep
from sweeps.validate import SIZE_CLASSES, class_of, medians
from sweeps.validate.table import TEXTS, USUAL, Table, find_table, read_table

# The cases of a table of measurements: which rows belong to one curve, and what it is called.
#
# A node is what the catalogue's machine calls one: all GPUs of its fastest network, so of a GB200
# NVL72 the rack, not the tray.

# What the axes hold of a table, rather than what tells its cases apart.
_VALUES = ("message_bytes", "time", "source")
_NEEDED = ("collective", "hardware", "ranks")
_CHOSEN = assumed(None, "a switch within one node, hierarchical over several")


@dataclass(frozen=True, slots=True)
class TableCases:
    """The cases of a table."""

    axis: Axis  # The cases, with their columns
    of_row: NDArray[np.intp]  # Each row's case
    origins: Origins  # Where columns come from that the table doesn't have


def cases_of(table: Table, sweep: Sweep, folders: Sequence[Path] = ()) -> TableCases:
    """Group a table's rows to cases, and complete these to what the engine needs."""
    _check_conflicts(table, sweep)
    names = [name for name in table.columns if name not in _VALUES]
    columns = [table.columns[name].tolist() for name in names]
    keys = list(zip(*columns, strict=True)) or [()] * len(table.columns["time"])
    numbers = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    of_row = np.array([numbers[key] for key in keys], dtype=np.intp)
    rows = [_Row(dict(zip(names, key, strict=True)), sweep) for key in numbers]
    _place(rows, folders, "topology" in names or "topology" in sweep.given)
    axis, origins = _axis(table, rows, of_row)
    return TableCases(axis, of_row, origins)


class _Row:
    """One case: what the table says of it, and what the spec says of all."""

    def __init__(self, values: dict[str, Any], sweep: Sweep) -> None:
        self.own = values
        settings = {**sweep.constants, **sweep.labels, **values}
        self.hardware, self.ranks = str(settings["hardware"]), int(settings["ranks"])
        self.gpus_per_node = int(settings.get("gpus_per_node", 0))
        self.nodes = int(values.get("nodes", 0))
        self.topology = ""

    def complete(self, machine: Machine, faults: Faults, *, choose: bool) -> None:
        """Fill in nodes, GPUs in a node and network; add what doesn't fit together."""
        in_node = self.gpus_per_node or int(machine.figures["gpus_per_node"].value)
        if not self.nodes:
            self.nodes = 1 if self.ranks <= in_node else -(-self.ranks // in_node)
        share = self.ranks / self.nodes
        if share > in_node or not share.is_integer():
            where = f"{self.ranks} ranks of {self.hardware}: nodes"
            wrong = f"{share:g} ranks a node of {in_node} GPUs"
            faults.add(where, self.nodes, wrong, "as many on each node, and at most its GPUs")
            return
        # A group that leaves some of a node's GPUs to others is as large there as its own ranks.
        self.gpus_per_node = in_node if self.nodes == 1 else int(share)
        # An empty cell of the network between nodes stands for the machine's.
        if self.own.get("fabric") == "":
            self.own["fabric"] = machine.fabric
        if math.isnan(self.own.get("inter_bandwidth", 0.0)):
            self.own["inter_bandwidth"] = machine.figures["inter_bandwidth"].value
        if choose and machine.scale_up_kind != "switch":
            wrong = f"its nodes aren't a switch but {machine.scale_up_kind.replace('_', ' ')}"
            offer = "state the topology as a constant or a column, or leave it out by where"
            faults.add("hardware", self.hardware, wrong, offer)
        elif choose:
            self.topology = "switch" if self.nodes == 1 else "hierarchical"

    def label(self) -> str:
        """Return what it is called."""
        values = self.own
        parts = [values[name] for name in ("collective", "hardware") if name in values]
        if "ranks" in values:
            nodes = f"{self.nodes} x " if self.nodes > 1 else ""
            parts.append(f"{nodes}{self.ranks // self.nodes} ranks")
        if values.get("table"):
            parts.append(values["table"])
        return ", ".join(parts) or "measured"


def _check_conflicts(table: Table, sweep: Sweep) -> None:
    """Refuse what the table and the spec both say, and what neither does."""
    faults = Faults()
    for name in sorted({axis.name for axis in sweep.axes} & {"case", *TEXTS}):
        faults.add(f"axes.{name}", "..", "the measured table has an axis of it", "another name")
    given = {name: name for name in table.columns if name not in (*TEXTS, "time")}
    if "nodes" in given:
        given.setdefault("gpus_per_node", "nodes")
    for name, heading in given.items():
        if name in sweep.given:
            wrong = f"given twice: by the measured table ({heading}) and by the spec"
            faults.add(name, "..", wrong, "once")
    for name in _NEEDED:
        if name in table.columns or name in sweep.constants or name in sweep.labels:
            continue
        several = "several, and the measured table doesn't say which"
        neither = "neither in the measured table nor in the spec"
        offer = f'one under [constants], or columns = {{ {name} = ".." }}'
        faults.add(name, "..", several if name in sweep.given else neither, offer)
    faults.tell()


def _place(rows: Sequence[_Row], folders: Sequence[Path], known: bool) -> None:
    """Place each case's ranks on its machine's nodes."""
    faults = Faults()
    names = dict.fromkeys(row.hardware for row in rows)
    machines = {name: faults.of(load_hardware, name, folders) for name in names}
    for row in rows:
        if (machine := machines[row.hardware]) is not None:
            row.complete(machine, faults, choose=not known)
    faults.tell()


def _axis(
    table: Table, rows: Sequence[_Row], of_row: NDArray[np.intp]
) -> tuple[Axis, dict[str, tuple[Origin, ...]]]:
    columns: dict[str, NDArray[Any]] = {"case": np.array(_labels(rows), dtype=np.str_)}
    tables = [str(row.own.get("table") or table.path.stem) for row in rows]
    columns["table"] = np.array(tables, dtype=np.str_)
    if "source" in table.columns:
        texts = table.columns["source"]
        each = [dict.fromkeys(texts[of_row == number].tolist()) for number in range(len(rows))]
        columns["source"] = np.array(
            ["; ".join(filter(None, sources)) for sources in each], dtype=np.str_
        )
    origins: dict[str, tuple[Origin, ...]] = {}
    if rows[0].topology:
        columns["topology"] = np.array([row.topology for row in rows], dtype=np.str_)
        origins["topology"] = (_CHOSEN,)
    for name in rows[0].own:
        if name not in (*TEXTS, "nodes", "gpus_per_node"):
            columns[name] = np.array([row.own[name] for row in rows])
    if {"nodes", "gpus_per_node"} & set(table.columns):
        columns["gpus_per_node"] = np.array([float(row.gpus_per_node) for row in rows])
    return Axis("case", columns), origins


def _labels(rows: Sequence[_Row]) -> list[str]:
    """Return what each case is called, each once."""
    labels = []
    plain = Counter(row.label() for row in rows)
    for row in rows:
        pairs = row.own.items() if plain[row.label()] > 1 else ()
        more = [f"{name} = {value}" for name, value in pairs if name not in USUAL]
        labels.append(", ".join([row.label(), *more]))
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[:index].count(label) + 1}"
        for index, label in enumerate(labels)
    ]


Floats = NDArray[np.float64]

KEYS = ("table", "columns", "units", "where")
# The errors are gathered in memory; a table of measurements with further axes is far smaller.
MOST_CELLS = 10**8
_HOLES = "NaN where the table has no measurement"


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """Measurements on the axes of a sweep."""

    name: str  # The table's file, without its folder
    digest: str  # SHA-256 of the file
    # The cases: columns ``case`` (what it is called), ``table``, and what the table says
    case: Axis
    message_bytes: Floats  # All message sizes that were measured [byte]
    time: Floats  # Measured times [s]; NaN where there is none
    references: tuple[str, ...]  # The sources, each once
    # Where columns come from that the table doesn't have
    origins: Origins = field(default_factory=dict)

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The sweep's axes that the table gives."""
        return self.case, Axis("message_bytes", {"message_bytes": self.message_bytes})

    def dims_of(self, dims: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the dimensions of what `columns` gives, by variable."""
        every = _filled(dims)
        class_dims = (*(dim for dim in every if dim != "message_bytes"), "size_class")
        by_class = ("median_error", "median_signed_error", "measured_count")
        return {
            "measured_time": ("case", "message_bytes"),
            "relative_error": every,
            **dict.fromkeys(by_class, class_dims),
        }

    def check_size(self, sizes: Mapping[str, int]) -> None:
        """Refuse a sweep whose errors wouldn't fit into memory."""
        cells = math.prod({**self._sizes, **sizes}.values())
        if cells > MOST_CELLS:
            shape = " x ".join(f"{name} {size}" for name, size in sizes.items())
            wrong = f"{cells:.3g} errors beside a table of measurements"
            refuse("axes", shape, wrong, f"at most {MOST_CELLS:.0e}; shorten an axis")

    @property
    def _sizes(self) -> dict[str, int]:
        return {"case": len(self.case), "message_bytes": len(self.message_bytes)}

    def columns(self, dims: Sequence[str], predicted: Floats) -> list[Column]:
        """Lay predictions beside the measurements."""
        about = self.dims_of(dims)
        every = about["relative_error"]
        sizes = dict(zip(dims, predicted.shape, strict=True))
        predicted = predicted.reshape([sizes.get(dim, 1) for dim in every])
        measured = self.time if every.index("case") < every.index("message_bytes") else self.time.T
        measured = measured.reshape([self._sizes.get(dim, 1) for dim in every])
        errors = predicted / measured - 1.0
        last = np.moveaxis(errors, every.index("message_bytes"), -1)
        by_class = self._by_class(about["median_error"], last)
        return [self._measured(), _error(every, errors), *by_class]

    def _measured(self) -> Column:
        attrs = {
            "long_name": "measured time of the operation",
            "units": "s",
            "symbol": r"$T_\mathrm{measured}$",
            "references": "; ".join(self.references),
            "comment": f"{_HOLES}; of repeated measurements the median.",
        }
        return Column("measured_time", ("case", "message_bytes"), self.time.dtype, attrs, self.time)

    def _by_class(self, dims: tuple[str, ...], errors: Floats) -> list[Column]:
        classes = class_of(self.message_bytes)
        parts = [errors[..., classes == number] for number in range(len(SIZE_CLASSES))]
        sizes, counts = zip(*(medians(np.abs(part)) for part in parts), strict=True)
        signed = [medians(part)[0] for part in parts]
        names = np.array(list(SIZE_CLASSES), dtype=np.str_)
        about = {
            "long_name": "class of message size (small below 256 KiB, medium below 16 MiB, "
            "large from there)"
        }
        texts = {
            "median_error": "median size of the relative error of the predicted time",
            "median_signed_error": "median relative error of the predicted time",
        }
        comment = {"units": "1", "comment": "NaN where nothing was both measured and predicted."}
        pair = (np.stack(sizes, axis=-1), np.stack(signed, axis=-1))
        columns = [Column("size_class", ("size_class",), names.dtype, about, names)]
        for (name, text), values in zip(texts.items(), pair, strict=True):
            attrs = {"long_name": text, **comment}
            columns.append(Column(name, dims, values.dtype, attrs, values))
        count = np.stack(counts, axis=-1)
        attrs = {"long_name": "message sizes both measured and predicted", "units": "1"}
        return [*columns, Column("measured_count", dims, count.dtype, attrs, count)]


def _filled(dims: Sequence[str]) -> tuple[str, ...]:
    """Return dimensions with those of the measurements, where a prediction varies along neither."""
    every = dims if "case" in dims else ("case", *dims)
    return (*every,) if "message_bytes" in every else (*every, "message_bytes")


def _error(dims: tuple[str, ...], errors: Floats) -> Column:
    attrs = {
        "long_name": "relative error of the predicted time",
        "units": "1",
        "formula": "relative_error = time/measured_time - 1",
        "comment": f"{_HOLES} or no prediction.",
    }
    return Column("relative_error", dims, errors.dtype, attrs, errors)


def join_measured(sweep: Sweep, folders: Sequence[Path] = ()) -> tuple[Sweep, MeasuredTable]:
    """Give a sweep the axes of the table that it is to be laid beside."""
    settings = _checked(sweep.measured)
    table = read_table(find_table(settings["table"]), settings["columns"], settings["units"])
    table = _where(table, settings["where"])
    cases = cases_of(table, sweep, folders)
    measured = _table(table, cases)
    quantities = tuple(dict.fromkeys((*sweep.quantities, "time")))
    return replace(sweep, axes=(*sweep.axes, *measured.axes), quantities=quantities), measured


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    faults = Faults()
    faults.check_keys("measured", settings, KEYS)
    name = settings.get("table")
    if not isinstance(name, str) or not name:
        offer = 'a name, as "nccl-collectives", or a path to a CSV file'
        faults.add("measured.table", name, "no name of a table", offer)
    content: dict[str, Any] = {"table": name}
    for key in ("columns", "units", "where"):
        value = content[key] = settings.get(key, {})
        if not isinstance(value, Mapping):
            faults.add(f"measured.{key}", value, "not a table", f"{key} = {{ .. = .. }}")
            continue
        for column, text in value.items():
            if key != "where" and not isinstance(text, str):
                faults.add(f"measured.{key}.{column}", text, "not a text", 'such as "time_us"')
    return faults.checked(content)


def _where(table: Table, where: Mapping[str, Any]) -> Table:
    """Keep the rows that the spec wants."""
    faults = Faults()
    faults.check_keys("measured.where", where, table.columns, "no column")
    rows = len(table.columns["time"])
    kept = np.ones(rows, dtype=np.bool_)
    for name, wanted in where.items():
        column = table.columns.get(name)
        if column is None:
            continue
        chosen = np.zeros(rows, dtype=np.bool_)
        for entry in wanted if isinstance(wanted, list) else [wanted]:
            alike = isinstance(entry, str) == (column.dtype.kind == "U")
            matches = column == entry if alike else np.zeros(rows, dtype=np.bool_)
            if not matches.any():
                near = nearest(f"{entry}", dict.fromkeys(f"{value}" for value in column.tolist()))
                faults.add(f"measured.where.{name}", entry, "no row has it", near)
            chosen |= matches
        kept &= chosen
    if not faults.faults and not kept.any():
        conditions = ", ".join(f"{name} = {wanted}" for name, wanted in where.items())
        faults.add("measured.where", conditions, "no row has all of it", "fewer conditions")
    faults.tell()
    return replace(table, columns={name: column[kept] for name, column in table.columns.items()})


def _table(table: Table, cases: TableCases) -> MeasuredTable:
    sizes, size_index = np.unique(table.columns["message_bytes"], return_inverse=True)
    time = np.full((len(cases.axis), len(sizes)), np.nan)
    cell = cases.of_row * len(sizes) + size_index
    order = np.argsort(cell, kind="stable")
    cells, starts = np.unique(cell[order], return_index=True)
    for index, times in zip(cells, np.split(table.columns["time"][order], starts[1:]), strict=True):
        time.flat[index] = np.median(times)
    sources = table.columns.get("source", np.array([], dtype=np.str_))
    references = tuple(dict.fromkeys(text for text in sources.tolist() if text))
    return MeasuredTable(
        table.path.name,
        table.digest,
        cases.axis,
        sizes,
        time,
        references or (table.path.name,),
        cases.origins,
    )
