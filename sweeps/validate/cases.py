"""The cases of a table of measurements: which rows belong to one curve, and what it is called.

A node is what the catalogue's machine calls one: all GPUs of its fastest network, so of a GB200
NVL72 the rack, not the tray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import Machine, load_hardware
from sweeps.spec.sweep import Sweep
from sweeps.validate.headings import TEXTS, USUAL
from sweeps.validate.table import Table

__all__ = ["Cases", "cases_of"]

# What the axes hold of a table, rather than what tells its cases apart.
_VALUES = ("message_bytes", "time", "source")
_NEEDED = ("collective", "hardware", "ranks")
_CHOSEN = "assumed: a switch within one node, hierarchical over several"


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of a table."""

    axis: Axis  # The cases, with their columns
    of_row: NDArray[np.intp]  # Each row's case
    origins: Mapping[str, str]  # Where columns come from that the table doesn't have


def cases_of(table: Table, sweep: Sweep, folders: Sequence[Path] = ()) -> Cases:
    """Group a table's rows to cases, and complete these to what the engine needs."""
    faults = _conflicts(table, sweep)
    if faults:
        raise InputError(faults)
    names = [name for name in table.columns if name not in _VALUES]
    columns = [table.columns[name].tolist() for name in names]
    keys = list(zip(*columns, strict=True)) or [()] * len(table.columns["time"])
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    of_row = np.array([places[key] for key in keys], dtype=np.intp)
    rows = [_Row(dict(zip(names, key, strict=True)), sweep) for key in places]
    _place(rows, folders, "topology" in names or "topology" in sweep.given)
    axis, origins = _axis(table, rows, of_row)
    return Cases(axis, of_row, origins)


class _Row:
    """One case: what the table says of it, and what the spec says of all."""

    def __init__(self, own: dict[str, Any], sweep: Sweep) -> None:
        self.own = own
        stated = {**sweep.constants, **sweep.labels, **own}
        self.hardware, self.ranks = str(stated["hardware"]), int(stated["ranks"])
        self.gpus_per_node = int(stated.get("gpus_per_node", 0))
        self.nodes = int(own.get("nodes", 0))
        self.topology = ""

    def complete(self, machine: Machine, *, choose: bool) -> list[str]:
        """Fill in nodes, GPUs in a node and network; return what doesn't fit together."""
        where = f"{self.ranks} ranks of {self.hardware}"
        in_node = self.gpus_per_node or int(machine.figures["gpus_per_node"].value)
        if not self.nodes:
            self.nodes = 1 if self.ranks <= in_node else -(-self.ranks // in_node)
        share = self.ranks / self.nodes
        if share > in_node or not share.is_integer():
            return [
                fault(
                    f"{where}: nodes", self.nodes, f"{share:g} ranks a node of {in_node} GPUs",
                    "as many on each node, and at most its GPUs",
                )
            ]  # fmt: skip
        # A group that leaves some of a node's GPUs to others is as large there as its own ranks.
        self.gpus_per_node = in_node if self.nodes == 1 else int(share)
        if not choose:
            return []
        if machine.scale_up_kind != "switch":
            wrong = f"its nodes are no switch but {machine.scale_up_kind.replace('_', ' ')}"
            offer = "state the topology as a constant or a column, or leave it out by where"
            return [fault("hardware", self.hardware, wrong, offer)]
        self.topology = "switch" if self.nodes == 1 else "hierarchical"
        return []

    def label(self) -> str:
        """Return what it is called."""
        own = self.own
        parts = [own[name] for name in ("collective", "hardware") if name in own]
        if "ranks" in own:
            nodes = f"{self.nodes} x " if self.nodes > 1 else ""
            parts.append(f"{nodes}{self.ranks // self.nodes} ranks")
        if own.get("table"):
            parts.append(own["table"])
        return ", ".join(parts) or "measured"


def _conflicts(table: Table, sweep: Sweep) -> list[str]:
    taken = {axis.name for axis in sweep.axes} & {"case", *TEXTS}
    faults = [
        fault(f"axes.{name}", "..", "the measured table has an axis of it", "another name")
        for name in sorted(taken)
    ]
    given = {name: name for name in table.columns if name not in (*TEXTS, "time")}
    if "nodes" in given:
        given.setdefault("gpus_per_node", "nodes")
    faults += [
        fault(name, "..", f"given twice: by the measured table ({heading}) and by the spec", "once")
        for name, heading in given.items()
        if name in sweep.given
    ]
    for name in _NEEDED:
        if name in table.columns or name in sweep.constants or name in sweep.labels:
            continue
        several = "several, and the measured table doesn't say which"
        neither = "neither in the measured table nor in the spec"
        wrong = several if name in sweep.given else neither
        offer = f'one under [constants], or columns = {{ {name} = ".." }}'
        faults.append(fault(name, "..", wrong, offer))
    return faults


def _place(rows: Sequence[_Row], folders: Sequence[Path], known: bool) -> None:
    """Place each case's ranks on its machine's nodes."""
    faults: list[str] = []
    machines: dict[str, Machine] = {}
    for name in dict.fromkeys(row.hardware for row in rows):
        try:
            machines[name] = load_hardware(name, folders)
        except InputError as error:
            faults += error.faults
    for row in rows:
        if row.hardware in machines:
            faults += row.complete(machines[row.hardware], choose=not known)
    if faults:
        raise InputError(list(dict.fromkeys(faults)))


def _axis(
    table: Table, rows: Sequence[_Row], of_row: NDArray[np.intp]
) -> tuple[Axis, dict[str, str]]:
    columns: dict[str, NDArray[Any]] = {"case": np.array(_labels(rows), dtype=np.str_)}
    tables = [str(row.own.get("table") or table.path.stem) for row in rows]
    columns["table"] = np.array(tables, dtype=np.str_)
    if "source" in table.columns:
        texts = table.columns["source"]
        each = [dict.fromkeys(texts[of_row == place].tolist()) for place in range(len(rows))]
        columns["source"] = np.array(["; ".join(filter(None, one)) for one in each], dtype=np.str_)
    origins = {}
    if rows[0].topology:
        columns["topology"] = np.array([row.topology for row in rows], dtype=np.str_)
        origins["topology"] = _CHOSEN
    for name in rows[0].own:
        if name not in (*TEXTS, "nodes", "gpus_per_node"):
            columns[name] = np.array([row.own[name] for row in rows])
    if {"nodes", "gpus_per_node"} & set(table.columns):
        columns["gpus_per_node"] = np.array([float(row.gpus_per_node) for row in rows])
    return Axis("case", columns, origins), origins


def _labels(rows: Sequence[_Row]) -> list[str]:
    """Return what each case is called, each once."""
    labels = []
    plain = Counter(row.label() for row in rows)
    for row in rows:
        own = row.own.items() if plain[row.label()] > 1 else ()
        more = [f"{name} = {value}" for name, value in own if name not in USUAL]
        labels.append(", ".join([row.label(), *more]))
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[:place].count(label) + 1}"
        for place, label in enumerate(labels)
    ]
