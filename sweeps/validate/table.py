"""A CSV table of measured operations: its place, columns and units; faults with their lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.errors import Faults, InputError, nearest, refuse_all
from sweeps.spec.axis import label_values
from sweeps.spec.machine import Machine, cut_domain
from sweeps.spec.units import parse_quantity
from sweeps.validate.run_table import Run, find_csv, measured_folders, read_csv

# Which column of a table holds what, and in which unit.

TEXTS = ("table", "source")
# The network between nodes; an empty cell: the machine's.
OWN = ("fabric", "inter_bandwidth")
# What is read where the table has it; anything else only where the spec names its column.
USUAL = (
    *TEXTS,
    "collective",
    "hardware",
    "ranks",
    "nodes",
    "gpus_per_node",
    "message_bytes",
    "time",
    *OWN,
)
NEEDED = ("message_bytes", "time")
_LISTED = 20
_UNIT = re.compile(r"(?:_|\s*[(\[])(?P<unit>[^_()\[\]]+)[)\]]?$")


@dataclass(frozen=True, slots=True)
class Heading:
    """One column: what it holds, how the table calls it, where it stands, in which unit."""

    name: str
    text: str
    position: int
    unit: str

    @property
    def is_text(self) -> bool:
        """Whether it holds words rather than numbers."""
        return self.name in (*TEXTS, *LABELS)


def headings_of(
    path: Path, header: Sequence[str], headings: Mapping[str, str], units: Mapping[str, str]
) -> list[Heading]:
    """Find the columns of a table."""
    faults, where = Faults(), f"{path.name}, heading"
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        faults.add(where, name, "is given twice", "each heading once")
    known = (*TEXTS, *LABELS, *VOCABULARY)
    faults.check_keys("measured.columns", headings, known, "no such quantity")
    others = [key for key in units if key not in headings]
    faults.check_keys("measured.units", others, known, "no such quantity")
    for key, unit in units.items():
        canonical = VOCABULARY[key].units if key in VOCABULARY else "none: it is text"
        if key in known and not (key in VOCABULARY and _reads(unit, canonical)):
            offer = f"one that measures the same as {canonical}"
            faults.add(f"measured.units.{key}", unit, "no unit of it", offer)
    faults.tell()
    columns = []
    for name in dict.fromkeys((*USUAL, *headings)):
        positions = _positions(name, header, headings)
        if len(positions) > 1:
            both = ", ".join(header[index] for index in positions)
            faults.add(where, both, f"are all {name}", f'one, or columns = {{ {name} = ".." }}')
            continue
        position = positions[0] if positions else None
        if position is None and name in headings:
            offer = nearest(headings[name], header)
            faults.add(f"measured.columns.{name}", headings[name], "no such column", offer)
        elif position is None and name in NEEDED:
            faults.faults.append(_missing(path, name, header))
        if position is None:
            continue
        of_column = "" if name in (*TEXTS, *LABELS) else _unit(name, header[position], units)
        if of_column is None:
            offer = f'end it with one, as in {name}_us, or give units = {{ {name} = "us" }}'
            faults.add(where, header[position], "its unit isn't known", offer)
        else:
            columns.append(Heading(name, header[position], position, of_column))
    return faults.checked(columns)


def _missing(path: Path, name: str, header: Sequence[str]) -> str:
    listed = ", ".join(header[:_LISTED])
    if len(header) == 1:
        return f"{path.name}: the line of headings has one column, '{listed}'; put commas between"
    return (
        f"{path.name}: no column '{name}'; name the one that holds it: "
        f'columns = {{ {name} = ".." }}, out of {listed}'
    )


def _positions(name: str, header: Sequence[str], headings: Mapping[str, str]) -> list[int]:
    """Return where a quantity's columns stand: several where only their units differ."""
    exact = headings.get(name, name)
    if name in headings or exact in header:
        return [header.index(exact)] if exact in header else []
    if name not in VOCABULARY:
        return []
    matches = [(index, heading, _UNIT.search(heading)) for index, heading in enumerate(header)]
    return [
        index
        for index, heading, match in matches
        if match
        and heading[: match.start()] == name
        and _reads(match["unit"], VOCABULARY[name].units)
    ]


def _unit(name: str, heading: str, units: Mapping[str, str]) -> str | None:
    """Return the unit of a quantity's column; None if nothing tells."""
    canonical = VOCABULARY[name].units
    if name in units:
        return units[name]
    if canonical == "1":
        return ""
    match = _UNIT.search(heading)
    if match and _reads(match["unit"], canonical):
        return match["unit"]
    return "byte" if name == "message_bytes" else None


def _reads(unit: str, canonical: str) -> bool:
    try:
        parse_quantity(f"1 {unit}", canonical, field="", bare_is_si=False)
    except InputError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it was read."""

    path: Path  # Its file
    digest: str  # SHA-256 of the file
    columns: Mapping[str, NDArray[Any]]  # Text, or float64 in canonical units, by quantity or label
    lines: Sequence[int]  # The line of each row


def find_table(name_or_path: str) -> Path:
    """Find a table by its name or path."""
    known = {path.stem for folder in measured_folders() for path in folder.glob("*.csv")}
    return find_csv(name_or_path, "measured.table", known)


def read_table(
    path: Path, headings: Mapping[str, str] | None = None, units: Mapping[str, str] | None = None
) -> Table:
    """Read a table."""
    content, lines = read_csv(path, "measured.table")
    header = [cell.strip() for cell in lines[0][1]]
    headings_of_file = headings_of(path, header, headings or {}, units or {})
    digest = hashlib.sha256(content).hexdigest()
    numbers = [number for number, _ in lines[1:]]
    return Table(path, digest, _values(path, headings_of_file, header, lines[1:]), numbers)


def _values(
    path: Path,
    columns: Sequence[Heading],
    header: Sequence[str],
    lines: Sequence[tuple[int, Sequence[str]]],
) -> dict[str, NDArray[Any]]:
    faults = Faults()
    whole = []
    for number, row in lines:
        if len(row) == len(header):
            whole.append((number, row))
        else:
            count = f"{len(row)} cells"
            told = f"{path.name}, line {number}: {count}; the headings are {len(header)}"
            faults.faults.append(told)
    values: dict[str, NDArray[Any]] = {}
    for column in columns:
        cells = [(number, row[column.position].strip()) for number, row in whole]
        read = _texts if column.is_text else _numbers
        values[column.name] = read(path, column, cells, faults)
    refuse_all(path.name, faults.faults)
    return values


def _texts(
    path: Path, column: Heading, cells: Sequence[tuple[int, str]], faults: Faults
) -> NDArray[Any]:
    known = label_values(column.name)
    for number, cell in cells:
        where = f"{path.name}, line {number}, {column.text}"
        if not cell and column.name not in (*TEXTS, *OWN):
            faults.add(where, cell, "empty", f"a {column.name}")
        elif known and cell not in known:
            faults.add(where, cell, "unknown", nearest(cell, known))
    return np.array([cell for _, cell in cells], dtype=np.str_)


def _numbers(
    path: Path, column: Heading, cells: Sequence[tuple[int, str]], faults: Faults
) -> NDArray[np.float64]:
    quantity = VOCABULARY[column.name]
    values = np.empty(len(cells))
    for index, (number, cell) in enumerate(cells):
        value = values[index] = _number(cell, column.unit, quantity.units)
        if not cell and column.name in OWN:
            continue
        where = f"{path.name}, line {number}, {column.text}"
        if math.isnan(value):
            unit = f" in {column.unit}" if column.unit else ""
            faults.add(where, cell, "can't be read", f"a number{unit}")
        elif quantity.outside(np.array(value)) or (column.name == "time" and value == 0):
            least = "a time above 0" if column.name == "time" else quantity.domain()
            faults.add(where, cell, "out of range", least)
    return values


@lru_cache(maxsize=4096)
def _number(cell: str, unit: str, canonical: str) -> float:
    """Return a cell's number in the canonical unit; NaN if it can't be read."""
    for text in (f"{cell} {unit}".strip(), cell):
        try:
            value = parse_quantity(text, canonical, field="", bare_is_si=False)
        except InputError:
            continue
        if math.isfinite(value):
            return value
    return math.nan


# The nodes and network cards of a measured run, where they aren't the machine's own.

GIGABIT = 1e9 / 8


def network_of(
    machine: Machine, run: Run, settings: Mapping[str, float], gpus: float
) -> dict[str, float]:
    """Return the GPUs of a node and its network cards as a run had them."""
    gpus_per_node = machine.figures["gpus_per_node"].value
    per_node = settings.get("gpus_per_node", run.numbers.get("gpus_per_node", gpus_per_node))
    # Of a machine that reaches further than a tray, a run fills as many GPUs evenly.
    cut = settings.get("domains", 0.0) and gpus_per_node > per_node
    node = float(cut_domain(np.asarray(gpus), np.asarray(gpus_per_node))) if cut else per_node
    cards = machine.figures["nics_per_node"].value * node / gpus_per_node
    figures = {"gpus_per_node": node}
    if "card_gigabits" in settings:
        cards = settings.get("nics_per_node", cards)
        figures["inter_bandwidth"] = settings["card_gigabits"] * GIGABIT
    elif "node_gigabits" in settings:
        figures["inter_bandwidth"] = settings["node_gigabits"] * GIGABIT / max(cards, 1.0)
    elif "gpu_gigabits" in settings:
        figures["inter_bandwidth"] = settings["gpu_gigabits"] * GIGABIT * node / max(cards, 1.0)
    figures["nics_per_node"] = max(cards, 1.0)
    figures["ranks_sharing_nic"] = node / figures["nics_per_node"]
    return figures
