"""Records and tables of a result's cells, for programs and for people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives import ALGORITHMS
from overhead.quantity import VOCABULARY
from sweeps.engine.plan import Plan
from sweeps.engine.validity import NOTES, ONE_RANK, fault_bits
from sweeps.spec.units import format_quantity

__all__ = ["FIELDS", "Cells", "as_csv", "as_json", "as_table", "reasons"]

# A result's names in Python, beside the quantities'.
FIELDS = {
    "time": "latency_s",
    "latency_time": "latency_part_s",
    "bandwidth_time": "bandwidth_part_s",
    "reduction_time": "reduction_part_s",
    "intra_time": "intra_latency_s",
    "inter_time": "inter_latency_s",
    "pod_time": "pod_latency_s",
    "steps": "steps",
    "sent_bytes": "volume_bytes",
    "link_bytes": "link_bytes",
    "energy": "energy_j",
    "algbw": "algbw_bytes_per_s",
    "busbw": "busbw_bytes_per_s",
    "lower_bound": "lower_bound_s",
    "lower_bound_ratio": "lower_bound_ratio",
    "chosen_algorithm": "algorithm",
    "chunks": "chunks",
    "status": "status",
}


# Of what is the same in all cells, what records hold.
FIXED_LABELS = ("hardware", "collective", "topology")
FIXED_NUMBERS = ("ranks", "message_bytes")


def reasons(status: int) -> str:
    """Return the names of the faults in a cell's status."""
    return " ".join(fault for fault, bit in fault_bits().items() if status & bit)


def algorithm_name(code: int) -> str:
    """Return the name of an algorithm by its code in the dataset."""
    return ALGORITHMS.names()[code - 1] if code else "none"


@dataclass(frozen=True, slots=True)
class Cells:
    """A result, a cell at a time.

    Attributes
    ----------
    plan : Plan
        What was computed.
    arrays : mapping of str to ndarray
        The variables, each over its own dimensions.
    """

    plan: Plan
    arrays: Mapping[str, NDArray[Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The cells of the dimensions that have labels or vary."""
        return tuple(len(axis) for axis in self.plan.grid.axes)

    def __len__(self) -> int:
        return self.plan.grid.cells

    def fixed(self) -> dict[str, Any]:
        """Return what every cell has in common, of that which a program asks for by name."""
        labels, constants = self.plan.labels, self.plan.grid.constants
        found: dict[str, Any] = {n: labels[n] for n in FIXED_LABELS if n in labels}
        return found | {n: float(constants[n]) for n in FIXED_NUMBERS if n in constants}

    def records(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield a record for each cell: its coordinates, then its values by quantity."""
        dims = self.plan.grid.names
        variables = {variable.name: variable.dims for variable in self.plan.variables}
        places = {
            name: [dims.index(dim) for dim in own]
            for name, own in variables.items()
            if name in self.arrays
        }
        notes = sum(bit for fault, bit in fault_bits().items() if fault in NOTES)
        for count, index in enumerate(np.ndindex(*self.shape)):
            if most is not None and count >= most:
                return
            record: dict[str, Any] = {}
            for axis, at in zip(self.plan.grid.axes, index, strict=True):
                shown = [axis.name] if axis.name in axis.columns else list(axis.columns)
                for name in shown:
                    value = axis.columns[name][at]
                    record[name] = str(value) if value.dtype.kind in "UO" else float(value)
            cell = {
                name: self.arrays[name][tuple(index[p] for p in positions)]
                for name, positions in places.items()
            }
            exists = not int(cell.get("status", 0)) & ~notes
            yield record | {name: self._value(name, cell[name], exists) for name in cell}

    @staticmethod
    def _value(name: str, value: Any, exists: bool) -> Any:
        if name == "status":
            return reasons(int(value)) or "ok"
        # A value that doesn't vary along some dimensions may stand beside a cell that can't be.
        if name == "chosen_algorithm":
            return algorithm_name(int(value) if exists else 0)
        return float(value) if exists else float("nan")


def _named(record: Mapping[str, Any]) -> dict[str, Any]:
    return {FIELDS.get(name, name): value for name, value in record.items()}


def as_json(cells: Cells) -> Iterator[str]:
    """Yield the cells as a JSON array, a record a line; what doesn't exist is null."""
    first = True
    fixed = cells.fixed()
    for record in cells.records():
        named = {**fixed, **_named(record)}
        members = (f"{json.dumps(k)}: {_json(v)}" for k, v in named.items())
        yield ("[\n" if first else ",\n") + "{" + ", ".join(members) + "}"
        first = False
    yield "\n]\n"


def _json(value: Any) -> str:
    if isinstance(value, float) and np.isnan(value):
        return "null"
    # JSON has no infinity; every reader makes one of a number that is too large.
    return str(json.dumps(value)).replace("Infinity", "1e999")


def as_csv(cells: Cells) -> Iterator[str]:
    """Yield the cells as CSV, a record a line; what doesn't exist is empty."""
    header: list[str] | None = None
    fixed = cells.fixed()
    for record in cells.records():
        named = {**fixed, **_named(record)}
        if header is None:
            header = list(named)
            yield _line(header)
        yield _line([_plain(value) for value in named.values()])


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else repr(value)
    return str(value)


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


# What a table for people shows, if it is there.
SHOWN = ("chosen_algorithm", "time", "steps", "sent_bytes", "busbw", "lower_bound_ratio", "energy")


def as_table(cells: Cells, most: int = 40) -> Iterator[str]:
    """Yield the cells as a table with aligned columns, cut after some rows.

    Parameters
    ----------
    cells : Cells
        The result.
    most : int
        Most rows.
    """
    rows = []
    wanted = [name for name in SHOWN if name in cells.arrays]
    wanted += [name for name in cells.arrays if name not in (*FIELDS, *wanted)]
    for record in cells.records(most):
        row = {
            name: _shown(name, value)
            for name, value in record.items()
            if name not in cells.arrays or name in wanted
        }
        why = set(str(record.get("status", "ok")).split()) - {"ok", ONE_RANK}
        if why:
            row["why"] = " ".join(sorted(why))
        rows.append(row)
    header = list(dict.fromkeys(name for row in rows for name in row))
    titles = [{"chosen_algorithm": "algorithm used"}.get(name, name) for name in header]
    lines = [titles, *([row.get(name, "") for name in header] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells_of = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield "  ".join(cells_of).rstrip() + "\n"
    if len(cells) > most:
        yield f"... and {len(cells) - most:,} more: --csv, --json or --output give them all\n"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    return format_quantity(value, units)
