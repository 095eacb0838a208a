"""Readers of measured rows as a CSV table.

One reads the columns of the shipped collection, and refuses what isn't as it should be; the other
takes the columns that people's own tables have, by their usual names, row by row.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.calibration.log import (
    GIGA,
    PLACEMENTS,
    WORDS,
    Left,
    LogRow,
    Logs,
    LogTest,
    known_operations,
    operation_of,
)
from sweeps.errors import InputError, few, needs, refuse, reject
from sweeps.validate.table import find_table, read_table

# Columns that tell tests apart; one without a number or word counts as nothing.
_KEYS = (
    "table",
    "collective",
    "hardware",
    "ranks",
    "nodes",
    "gpus_per_node",
    "algorithm",
    "fabric",
    "inter_bandwidth",
)
# Of these, what is read where the table has it.
_FURTHER = ("algorithm", "fabric", "inter_bandwidth")


def read_table_log(name: str, operation: str = "") -> list[LogTest]:
    """Read a table with ``collective``, ``ranks``, ``message_bytes``, ``time_us`` and more."""
    path = find_table(name)
    try:
        table = read_table(path, _further(path))
    except InputError as error:
        raise InputError([line.replace("measured.table", "LOG") for line in error.faults]) from None
    columns: dict[str, Any] = {**table.columns, "line": table.lines}
    count = len(columns["time"])
    each: dict[tuple[Any, ...], list[int]] = {}
    keys = [columns[key].tolist() if key in columns else [""] * count for key in _KEYS]
    for index, key in enumerate(zip(*keys, strict=True)):
        each.setdefault(key, []).append(index)
    return [
        _test(path, operation, dict(zip(_KEYS, key, strict=True)), rows, columns)
        for key, rows in each.items()
    ]


def _further(path: Path) -> dict[str, str]:
    """Return the headings of what a table may have beside what every one has."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = (row for row in csv.reader(file) if row and not row[0].lstrip().startswith("#"))
            header = [cell.strip() for cell in next(lines, [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}  # whoever reads it whole says why
    each = {name: [h for h in header if h == name or h.startswith(f"{name}_")] for name in _FURTHER}
    return {name: values[0] for name, values in each.items() if values}


def _test(
    path: Path, operation: str, key: dict[str, Any], indices: list[int], columns: Any
) -> LogTest:
    name = key["collective"] or operation
    if key["collective"] and operation and operation != key["collective"]:
        wrong = f"the table has rows of {key['collective']}"
        refuse("--op", operation, wrong, "leave it out: the table says it")
    if not name:
        who = f"{path.name}, which has no column 'collective',"
        give = f"--op ({known_operations('')})"
        raise InputError(needs(who, "the name of its operation", give))
    rows = [
        LogRow(
            int(columns["line"][row]),
            float(columns["message_bytes"][row]),
            float(columns["time"][row]),
        )
        for row in indices
        if columns["message_bytes"][row] > 0.0
    ]
    return LogTest(
        path=path,
        line=1,
        operation=name,
        rows=tuple(rows),
        ranks=int(key["ranks"] or 0),
        hardware=key["hardware"],
        nodes=int(key["nodes"] or 0),
        part=key["table"],
        forced=WORDS["forms"].get(key["algorithm"], ""),
        fabric=key["fabric"],
        card=float(key["inter_bandwidth"] or 0.0),
    )


# Tables of people's own: columns by their usual names.

_TIMES, _RATES, _HEADINGS = WORDS["times"], WORDS["rates"], WORDS["headings"]
_SUFFIX = re.compile(
    rf"^(.+?)[\s_]*[\s_\[(]\s*({'|'.join([*_TIMES, *_RATES, 'bytes', 'byte', 'b'])})\s*[\])]?$"
)
_SIZE = re.compile(r"^(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*([kmgt]?)(i?)b?(?:ytes?)?$", re.I)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST, _LONGEST_NAME = 4096, 60  # characters of a line of headings, and of one
_MOST_FAULTS = 3  # lines that a note names


def header_of(text: str) -> tuple[int, str, dict[str, tuple[int, str]]] | None:
    """Return the line of headings of a table, its delimiter, and by meaning columns and units."""
    for number, line in enumerate(text.splitlines()[:200], start=1):
        plain = line[:_LONGEST].lstrip("# ").strip()
        for delimiter in _DELIMITERS:
            if plain.count(delimiter) < 1:
                continue
            cells = next(csv.reader([plain.strip("|")], delimiter=delimiter), [])
            columns = _columns(cells)
            if "size" in columns and (
                "time" in columns or "algbw" in columns or "busbw" in columns
            ):
                return number, delimiter, columns
    return None


def _columns(cells: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the column of each meaning, the first of its likeliest name, and its unit."""
    return {meaning: place[1:] for meaning, place in _ranked(cells).items()}


def _ranked(cells: Sequence[str]) -> dict[str, tuple[int, int, str]]:
    """Return the same, each after the rank of its name among those that are usual."""
    columns: dict[str, tuple[int, int, str]] = {}
    for index, cell in enumerate(cells):
        plain = cell.strip()[:_LONGEST_NAME].lower().replace("#", "").replace("-", "_")
        names = {re.sub(r"[\s_]+", "_", plain).strip("_"): ""}
        if match := _SUFFIX.match(plain):
            names.setdefault(re.sub(r"[\s_]+", "_", match[1]).strip("_"), match[2])
        for meaning, usual in _HEADINGS.items():
            for name, unit in names.items():
                if name in usual:
                    order = usual.index(name)
                    if meaning not in columns or order < columns[meaning][0]:
                        columns[meaning] = (order, index, unit)
    return columns


def _one_unit_each(where: str, line: str, delimiter: str) -> None:
    """Refuse a heading that is there in two units: nothing tells which of them is meant."""
    each: dict[tuple[str, int], tuple[str, float]] = {}
    scales = {**_RATES, **_TIMES}
    for cell in _split(line.lstrip("# ").strip().strip("|"), delimiter):
        for meaning, (order, _, unit) in _ranked([cell]).items():
            if unit not in scales:
                continue
            other, scale = each.setdefault((meaning, order), (cell.strip(), scales[unit]))
            if scale != scales[unit]:
                reject(where, f"{other} and {cell.strip()} are both its {meaning}; leave out one")


def read_usual_table(path: Path, text: str, operation: str = "") -> Logs:
    """Read a table with the columns that people's tables have."""
    header = header_of(text)
    if header is None:
        wrong = "no headings of a size and a time; name the columns size_bytes, time_us, op, ranks"
        reject(f"{path.name}, line 1", wrong)
    first, delimiter, columns = header
    lines = text.splitlines()[first:]
    _one_unit_each(f"{path.name}, line {first}", text.splitlines()[first - 1], delimiter)
    cells = [
        (number, [cell.strip() for cell in _split(line, delimiter)])
        for number, line in enumerate(lines, start=first + 1)
        if line.strip()
        and not line.lstrip().startswith("#")
        and not re.fullmatch(r"[\s|:\-+]+", line)
    ]
    reader = _Reader(path, columns, cells, operation)
    each: dict[tuple[Any, ...], list[LogRow]] = {}
    for number, row in cells:
        if (entry := reader.row(number, row)) is not None:
            each.setdefault(entry[0], []).append(entry[1])
    return reader.logs(each)


def _split(line: str, delimiter: str) -> list[str]:
    plain = line.strip().strip("|") if delimiter == "|" else line
    try:
        return next(csv.reader(io.StringIO(plain), delimiter=delimiter), [])
    except csv.Error:
        return []


class _Reader:
    """A table while its rows are read."""

    def __init__(
        self,
        path: Path,
        columns: dict[str, tuple[int, str]],
        cells: Sequence[tuple[int, list[str]]],
        operation: str,
    ) -> None:
        self.path, self.columns, self.given = path, columns, operation
        if "operation" in columns and not any(
            operation_of(self._cell(row, "operation")) for _, row in cells
        ):
            del columns["operation"]  # It is a type of numbers, or of reductions
        self.time_unit, self.rate_unit = self._scales(cells)
        self.dead: list[str] = []  # lines without a size or a time
        self.uncounted: list[str] = []  # lines whose ranks or nodes are no whole number

    def _cell(self, row: Sequence[str], name: str) -> str:
        position = self.columns.get(name, (len(row), ""))[0]
        return row[position] if position < len(row) else ""

    def _scales(self, cells: Sequence[tuple[int, list[str]]]) -> tuple[float, float]:
        """Return the units of times and of rates; NaN where nothing tells the times'."""
        time_scale = _TIMES.get(self.columns.get("time", (0, ""))[1], math.nan)
        rate = _RATES.get(self.columns.get("algbw", (0, ""))[1], GIGA)
        times = [time_scale] if math.isfinite(time_scale) else [1e-6, 1e-3, 1.0, 1e-9]
        for unit in times:
            for each in (rate, GIGA / 8):
                agree = known = 0
                for _, row in cells:
                    size, time = _size(self._cell(row, "size")), _float(self._cell(row, "time"))
                    alg = _float(self._cell(row, "algbw"))
                    if size > 0.0 and time > 0.0 and alg > 0.1:
                        known += 1
                        agree += abs(size / (time * unit) / (alg * each) - 1.0) < 0.05
                if known and 2 * agree > known:
                    return unit, each
        return time_scale, rate

    def row(self, number: int, row: Sequence[str]) -> tuple[tuple[Any, ...], LogRow] | None:
        """Return a row with what tells its test from others; None where it can't be read."""
        cells = {name: self._cell(row, name) for name in _HEADINGS}
        size = _size(cells["size"])
        time, algbw, busbw, wrong, ranks, nodes = (
            _float(cells[name]) for name in ("time", "algbw", "busbw", "wrong", "ranks", "nodes")
        )
        rates = algbw * self.rate_unit, busbw * self.rate_unit
        if time > 0.0 and math.isnan(self.time_unit):
            unknown = f"the unit of column {self.columns['time'][0] + 1} isn't known"
            where = f"{self.path.name}, line {number}"
            reject(where, f"{unknown}; call it time_us (or _ms, _s)")
        time *= self.time_unit
        if not time > 0.0 and rates[0] > 0.0 and "time" not in self.columns:
            time = size / rates[0]
        placed = cells["placement"].lower().replace("_", "-")
        inside = placed in ("1", "true", "yes", "in-place", "inplace", "in")
        measured = LogRow(number, size, time, PLACEMENTS[inside], *rates, wrong)
        if not measured.whole:
            if size != 0.0:
                self.dead.append(f"line {number}")
            return None
        for name, count in (("ranks", ranks), ("nodes", nodes)):
            if cells[name] and not (1.0 <= count < 1e9 and count.is_integer()):
                self.uncounted.append(f"line {number} ({name} {cells[name]})")
                return None
        key = (
            cells["operation"],
            0 if math.isnan(ranks) else int(ranks),
            0 if math.isnan(nodes) else int(nodes),
            cells["hardware"],
            cells["fabric"],
        )
        return key, measured

    def logs(self, each: Mapping[tuple[Any, ...], list[LogRow]]) -> Logs:
        """Return the tests."""
        collected = Logs()
        lacking = {"a size and a time": self.dead, "a whole number of ranks": self.uncounted}
        for what, lines in lacking.items():
            if lines and each:
                listed = few(lines, _MOST_FAULTS)
                collected.left.append(Left(f"{self.path.name}: rows without {what}: {listed}"))
        for (name, ranks, nodes, hardware, fabric), rows in each.items():
            operation = operation_of(name)
            if name and not operation:
                reason = f"{self.path.name}, line {rows[0].line}: '{name}' is no operation that is "
                collected.left.append(Left(f"{reason}modelled; {known_operations(name)}"))
                continue
            collected.tests.append(
                LogTest(
                    path=self.path,
                    line=rows[0].line,
                    operation=operation,
                    rows=tuple(rows),
                    ranks=ranks,
                    nodes=nodes,
                    hardware=hardware,
                    fabric=fabric,
                )
            )
        if not collected.tests and not collected.left:
            if self.uncounted:
                where = f"{self.path.name}, {self.uncounted[0]}"
                reject(where, "no row has a whole number of ranks; give such rows")
            where = self.dead[0] if self.dead else "line 1"
            reject(f"{self.path.name}, {where}", "no row has a size and a time; give such rows")
        return collected


def _float(text: str) -> float:
    """Return a cell's number; NaN where it has none."""
    try:
        value = float(text.replace(" ", "").replace(",", ""))
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _size(text: str) -> float:
    """Return a size [byte]: a number, or one with a unit, whose letters are powers of 1024."""
    match = _SIZE.match(text.strip())
    if not match:
        return math.nan
    value = float(match[1]) * 1024.0 ** _POWERS[match[2].lower()]
    return value if math.isfinite(value) else math.nan
