"""Records and tables of a result's cells, for programs and for people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import ALGORITHMS
from overhead.quantity import VOCABULARY
from sweeps import display
from sweeps.engine.plan import Plan
from sweeps.engine.validity import ONE_RANK
from sweeps.spec.units import format_quantity

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
    # Of a training step.
    "peak_memory": "per_gpu_memory_bytes",
    "headroom": "headroom_bytes",
    "communication_upper_bound": "total_comm_time_per_step_upper_bound_s",
    "communication_volume": "communication_volume_bytes",
    "communication_energy": "communication_energy_j",
    "step_time": "step_time_s",
    "step_energy": "step_energy_j",
}
# Other quantities' names end in their units.
ENDINGS = {"s": "_s", "byte": "_bytes", "J": "_j", "USD": "_usd", "1 s-1": "_per_s"}

# Of what is the same in all cells, what records hold.
FIXED_LABELS = (
    *("model", "hardware", "collective", "topology"),
    *("precision", "recompute", "schedule", "context_parallel"),
)
FIXED_NUMBERS = (
    *("ranks", "message_bytes"),
    *("world_size", "dp", "tp", "cp", "pp", "ep", "zero_stage", "micro_batch", "global_batch"),
)


def algorithm_name(code: int) -> str:
    """Return the name of an algorithm by its code in the dataset."""
    return ALGORITHMS.name_of(code)


@dataclass(frozen=True, slots=True)
class Cells:
    """A result, a cell at a time."""

    plan: Plan  # What was computed
    arrays: Mapping[str, NDArray[Any]]  # The variables, each over its own dimensions

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
        faults = self.plan.faults
        masking = {name: faults.masking(name) for name in places}
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
            status = int(cell.get("status", 0))
            yield record | {
                name: self._value(name, cell[name], not status & masking[name]) for name in cell
            }

    def _value(self, name: str, value: Any, exists: bool) -> Any:
        if name == "status":
            return " ".join(self.plan.faults.named(int(value))) or "ok"
        # A value that doesn't vary along some dimensions may stand beside a cell that can't be.
        if name == "chosen_algorithm":
            return algorithm_name(int(value) if exists else 0)
        return float(value) if exists else float("nan")


def named_records(cells: Cells) -> Iterator[dict[str, Any]]:
    """Yield a record for each cell, with the names of the Python results."""
    fixed = cells.fixed()
    for record in cells.records():
        yield {**fixed, **{_field(name, cells): value for name, value in record.items()}}


def _field(name: str, cells: Cells) -> str:
    """Return a quantity's name in a record."""
    if name in FIELDS or name not in cells.arrays or not cells.plan.training:
        return FIELDS.get(name, name)
    ending = ENDINGS.get(VOCABULARY[name].units, "")
    return name if name.endswith(ending) else name + ending


def as_json(cells: Cells) -> Iterator[str]:
    """Yield the cells as a JSON array, a record a line; what doesn't exist is null."""
    yield from json_lines(named_records(cells))


def json_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield records as a JSON array, each on a line of its own."""
    first = True
    for record in records:
        members = (f"{json.dumps(k)}: {_json(v)}" for k, v in record.items())
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
    yield from csv_lines(named_records(cells))


def csv_lines(
    records: Iterable[Mapping[str, Any]], header: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield records as CSV, each on a line of its own."""
    for count, record in enumerate(records):
        header = header or list(record)
        if count == 0:
            yield _line(header)
        yield _line([_plain(record.get(name, "")) for name in header])


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else repr(value)
    return str(value)


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


PLAN = display.rows("plan", place="table")
STATES = "first_stage_model_state_memory"


def _wanted(cells: Cells) -> list[str]:
    """Return the variables that a table shows."""
    if not cells.plan.training:
        shown = display.rows("collective", place="table")
        wanted = [name for name in shown if name in cells.arrays]
        return wanted + [name for name in cells.arrays if name not in (*FIELDS, *wanted)]
    memory = "peak_memory" if "peak_memory" in cells.arrays else STATES
    times = [name for name in cells.arrays if name.endswith("_communication_time")]
    # Of what some plans have alone, what none here has is left out.
    perhaps = {*times, "bubble_fraction"}
    more = display.rows("communication", "step", "rates", "cost", place="table")
    usual = (*PLAN, memory, *times, *more)
    return [
        name
        for name in usual
        if name in cells.arrays and (name not in perhaps or np.any(cells.arrays[name] > 0.0))
    ] or list(cells.arrays)


def as_table(cells: Cells, most: int = 40) -> Iterator[str]:
    """Yield the cells as a table with aligned columns, cut after some rows."""
    rows = []
    wanted = _wanted(cells)
    for record in cells.records(most):
        row = {
            name: shown(name, value)
            for name, value in record.items()
            if name not in cells.arrays or name in wanted
        }
        why = set(str(record.get("status", "ok")).split()) - {"ok", ONE_RANK}
        if why:
            row["why"] = " ".join(sorted(why))
        rows.append(row)
    header = list(dict.fromkeys(name for row in rows for name in row))
    titles = [display.title(name) if name in cells.arrays else name for name in header]
    lines = [titles, *([row.get(name, "") for name in header] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells_of = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield "  ".join(cells_of).rstrip() + "\n"
    if len(cells) > most:
        yield f"... and {len(cells) - most:,} more: --csv, --json or --output give them all\n"


def shown(name: str, value: Any) -> str:
    """Return a value as people write it."""
    if isinstance(value, str):
        return value
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    value = float(value)
    if np.isfinite(value):
        if display.percent(name):
            return f"{value:.1%}"
        if units in ("s-1", "h", "d"):
            words = {"s-1": "/s", "h": "h", "d": "days"}[units]
            return f"{value:,.0f} {words}" if abs(value) >= 1000 else f"{value:.4g} {words}"
        if units == "USD":
            return f"{value:,.2f} USD" if abs(value) < 1000 else f"{value:,.0f} USD"
    return format_quantity(value, units)
