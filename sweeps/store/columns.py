"""Values on named dimensions as a dataset, and records as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from overhead.formula import Call, Formula
from overhead.quantity import VOCABULARY
from sweeps.engine.case import Column
from sweeps.origin import Origin, attributes
from sweeps.spec.units import format_quantity


def number_column(
    name: str, dims: Sequence[str], values: Any, origin: Sequence[Origin] = (), long_name: str = ""
) -> Column:
    """Return a coordinate that holds numbers of a quantity."""
    attrs = {**VOCABULARY[name].attrs(), **attributes(origin)}
    if long_name:
        attrs["long_name"] = long_name
    return Column(name, tuple(dims), np.dtype(np.float64), attrs, np.asarray(values, np.float64))


def label_column(name: str, dims: Sequence[str], values: Any, long_name: str) -> Column:
    """Return a coordinate that holds names."""
    text = np.asarray(values, dtype=np.str_)
    return Column(name, tuple(dims), text.dtype, {"long_name": long_name, **attributes()}, text)


def attrs_of(name: str, declared: Iterable[Formula | Call | None]) -> dict[str, Any]:
    """Return the metadata of a variable that holds a quantity: unit, formulas, sources."""
    attrs: dict[str, Any] = dict(VOCABULARY[name].attrs())
    known = [one for one in declared if one is not None]
    if known:
        attrs["formula"] = "; ".join(dict.fromkeys(one.statement for one in known))
    formulas = [one for one in known if isinstance(one, Formula)]
    if formulas:
        attrs["references"] = "; ".join(dict.fromkeys(one.source.at() for one in formulas))
    assumed = dict.fromkeys(phrase for one in formulas for phrase in one.assumes)
    if assumed:
        attrs["comment"] = f"Assumes {'; '.join(assumed)}."
    return attrs


# Records as a table for people.

Record = Mapping[str, Any]


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
