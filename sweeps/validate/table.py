"""A CSV table of measured operations: its place, columns and units; faults with their lines."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.catalog import shipped
from sweeps.spec.labels import label_values
from sweeps.spec.units import parse_quantity
from sweeps.validate.headings import TEXTS, Heading, headings_of

__all__ = ["Table", "find_table", "read_table"]

# So many faults of one file are told; the same slip is often in every line.
TOLD = 20


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it was read."""

    path: Path  # Its file
    digest: str  # SHA-256 of the file
    columns: Mapping[str, NDArray[Any]]  # Text, or float64 in canonical units, by quantity or label


def find_table(name_or_path: str) -> Path:
    """Find a table by its name or path."""
    folders = (Path("specs") / "measured", shipped("measured"))
    known = sorted({path.stem for folder in folders for path in folder.glob("*.csv")})
    if name_or_path.endswith(".csv") or Path(name_or_path).name != name_or_path:
        if Path(name_or_path).is_file():
            return Path(name_or_path)
        near = nearest(Path(name_or_path).stem, known)
        raise InputError(
            fault("measured.table", name_or_path, "there is no such file", f"as a name: {near}")
        )
    for folder in folders:
        path = folder / f"{name_or_path}.csv"
        if name_or_path and path.is_file():
            return path
    near = nearest(name_or_path, known)
    raise InputError(fault("measured.table", name_or_path, "there is no such table", near))


def read_table(
    path: Path, headings: Mapping[str, str] | None = None, units: Mapping[str, str] | None = None
) -> Table:
    """Read a table."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
        lines = [
            (number, row)
            for number, row in _numbered(text)
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    except OSError as error:
        reason = error.strerror or "can't be read"
        raise InputError(fault("measured.table", str(path), reason, "a CSV file")) from None
    except UnicodeDecodeError as error:
        wrong = f"not UTF-8 text (byte {error.start})"
        raise InputError(fault("measured.table", str(path), wrong, "a CSV file")) from None
    except csv.Error as error:
        raise InputError(fault("measured.table", str(path), str(error), "a CSV file")) from None
    if not lines[1:]:
        wrong = "has no rows" if lines else "is empty"
        raise InputError(
            fault("measured.table", str(path), wrong, "a line of headings, and rows below it")
        )
    header = [cell.strip() for cell in lines[0][1]]
    found = headings_of(path, header, headings or {}, units or {})
    digest = hashlib.sha256(content).hexdigest()
    return Table(path, digest, _values(path, found, header, lines[1:]))


def _numbered(text: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text, newline=""))
    for row in rows:
        yield rows.line_num, row


def _values(
    path: Path,
    columns: Sequence[Heading],
    header: Sequence[str],
    lines: Sequence[tuple[int, Sequence[str]]],
) -> dict[str, NDArray[Any]]:
    faults: list[str] = []
    whole = []
    for number, row in lines:
        if len(row) == len(header):
            whole.append((number, row))
        else:
            told = f"{len(row)} cells"
            faults.append(f"{path.name}, line {number}: {told}; the headings are {len(header)}")
    values: dict[str, NDArray[Any]] = {}
    for column in columns:
        cells = [(number, row[column.place].strip()) for number, row in whole]
        read = _texts if column.is_text else _numbers
        values[column.name] = read(path, column, cells, faults)
    if faults:
        more = [f"{path.name}: {len(faults) - TOLD} more faults"] if len(faults) > TOLD else []
        raise InputError([*faults[:TOLD], *more])
    return values


def _texts(
    path: Path, column: Heading, cells: Sequence[tuple[int, str]], faults: list[str]
) -> NDArray[Any]:
    known = label_values(column.name)
    for number, cell in cells:
        where = f"{path.name}, line {number}, {column.text}"
        if not cell and column.name not in TEXTS:
            faults.append(fault(where, cell, "empty", f"a {column.name}"))
        elif known and cell not in known:
            faults.append(fault(where, cell, "unknown", nearest(cell, known)))
    return np.array([cell for _, cell in cells], dtype=np.str_)


def _numbers(
    path: Path, column: Heading, cells: Sequence[tuple[int, str]], faults: list[str]
) -> NDArray[np.float64]:
    quantity = VOCABULARY[column.name]
    values = np.empty(len(cells))
    for index, (number, cell) in enumerate(cells):
        value = values[index] = _number(cell, column.unit, quantity.units)
        where = f"{path.name}, line {number}, {column.text}"
        if math.isnan(value):
            unit = f" in {column.unit}" if column.unit else ""
            faults.append(fault(where, cell, "can't be read", f"a number{unit}"))
        elif quantity.outside(np.array(value)) or (column.name == "time" and value == 0):
            least = "a time above 0" if column.name == "time" else quantity.domain()
            faults.append(fault(where, cell, "outside of its domain", least))
    return values


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
