"""Reader of measured rows as a CSV table, with the columns of the shipped collection."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

from sweeps.calibrate.log import LogRow, LogTest, known_operations
from sweeps.errors import InputError, fault
from sweeps.validate.table import find_table, read_table

__all__ = ["read_table_log"]

# Columns that tell tests apart; one without a number or word counts as nothing.
_KEYS = ("table", "collective", "hardware", "ranks", "nodes", "gpus_per_node")


def read_table_log(name: str, operation: str = "") -> list[LogTest]:
    """Read a table: ``collective``, ``ranks``, ``message_bytes``, ``time_us`` and what it has more."""
    path = find_table(name)
    try:
        table = read_table(path)
    except InputError as error:
        raise InputError([line.replace("measured.table", "LOG") for line in error.faults]) from None
    columns: dict[str, Any] = {**table.columns, "line": _lines(path)}
    count = len(columns["time"])
    each: dict[tuple[Any, ...], list[int]] = {}
    keys = [columns[key].tolist() if key in columns else [""] * count for key in _KEYS]
    for place, key in enumerate(zip(*keys, strict=True)):
        each.setdefault(key, []).append(place)
    return [
        _test(path, operation, dict(zip(_KEYS, key, strict=True)), places, columns)
        for key, places in each.items()
    ]


def _lines(path: Path) -> list[int]:
    """Return the line of each row, below the headings and without remarks."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        found = [
            rows.line_num
            for row in rows
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    return found[1:]


def _test(
    path: Path, operation: str, key: dict[str, Any], places: list[int], columns: Any
) -> LogTest:
    name = key["collective"] or operation
    if key["collective"] and operation and operation != key["collective"]:
        wrong = f"the table has rows of {key['collective']}"
        raise InputError(fault("--op", operation, wrong, "leave it out: the table says it"))
    if not name:
        wrong = f"{path.name} has no column 'collective'"
        raise InputError(fault("--op", "(not given)", wrong, known_operations("")))
    rows = [
        LogRow(
            int(columns["line"][place]),
            float(columns["message_bytes"][place]),
            "out-of-place",
            float(columns["time"][place]),
            math.nan,
            math.nan,
            math.nan,
        )
        for place in places
        if columns["message_bytes"][place] > 0.0
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
    )
