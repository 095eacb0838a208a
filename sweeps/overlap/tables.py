"""Records as CSV, as JSON and as a table for people."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from overhead.quantity import VOCABULARY
from sweeps.spec.units import format_quantity

__all__ = ["csv_lines", "json_lines", "shown", "table_lines"]

Record = Mapping[str, Any]


def csv_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as CSV, the first line their names; what doesn't exist is empty."""
    header: list[str] | None = None
    for record in records:
        if header is None:
            header = list(record)
            yield _line(header)
        yield _line([_plain(record[name]) for name in header])


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return str(value)


def json_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as a JSON array, one a line; what doesn't exist is null."""
    first = True
    for record in records:
        members = (f"{json.dumps(name)}: {_json(value)}" for name, value in record.items())
        yield ("[\n" if first else ",\n") + "{" + ", ".join(members) + "}"
        first = False
    yield "[\n]\n" if first else "\n]\n"


def _json(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "null"
    # JSON has no infinity; every reader makes one of a number that is too large.
    return str(json.dumps(value)).replace("Infinity", "1e999")


def shown(name: str, value: Any) -> str:
    """Return a value as people read it."""
    if isinstance(value, str):
        return value
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    return format_quantity(value, units)


def table_lines(
    records: Iterable[Record],
    write: Callable[[str, Any], str] = shown,
    *,
    most: int = 40,
    total: int | None = None,
) -> Iterator[str]:
    """Yield records as a table with aligned columns, cut after some rows."""
    rows: list[Record] = []
    for count, record in enumerate(records):
        if count == most:
            break
        rows.append(record)
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [header, *([write(n, row[n]) if n in row else "" for n in header] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip() + "\n"
    if total is not None and total > len(rows):
        left = total - len(rows)
        yield f"... and {left:,} more: --csv, --json or --output give them all\n"
