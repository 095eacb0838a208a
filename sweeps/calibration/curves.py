"""Measured rows as a dataset: curves, each a log's operation, over the message size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column, Layout, row_numbers
from sweeps.origin import MEASURED, Origin, attributes
from sweeps.result import Field, Record
from sweeps.spec.files import read_rows, shipped

CURVE, SIZE = "curve", "message_bytes"

_LOGGED = Origin(None, MEASURED, "the log")


def fields_of(table: str) -> tuple[Field, ...]:
    """Return the columns of records: of curves, sizes, cells, or of what is normal."""
    rows = (row for row in read_rows(shipped("logs") / "records.csv") if row["table"] == table)
    return tuple(
        Field(row["record"], row["variable"] or row["record"], row["words"], row["units"], origin)
        for row in rows
        for origin in (_origin(row["origin"]),)
    )


def _origin(text: str) -> Origin | None:
    kind, _, source = text.partition(": ")
    return Origin(None, kind, source) if kind else None


OF_CURVES, OF_SIZES, OF_CELLS = map(fields_of, ("curve", "size", "cell"))
FIELDS = (*OF_CURVES, *OF_SIZES, *OF_CELLS)


def layout_of_rows(
    rows: Sequence[Record], cases: Sequence[int], attrs: Mapping[str, str]
) -> Layout:
    """Return measured rows as curves over the message size; NaN where a curve lacks a size.

    `cases` has the test of each row.  What measured a size several times is as many curves.
    """
    sizes = sorted({row[SIZE] for row in rows})
    seen: Counter[tuple[int, str, float]] = Counter()
    curves: dict[tuple[int, str, int], int] = {}
    at = np.empty((2, len(rows)), dtype=np.int64)
    for index, (row, case) in enumerate(zip(rows, cases, strict=True)):
        cell = (case, row["placement"], row[SIZE])
        curve = (case, row["placement"], seen[cell])
        seen[cell] += 1
        at[:, index] = curves.setdefault(curve, len(curves)), sizes.index(row[SIZE])
    shape = {CURVE: len(curves), SIZE: len(sizes)}
    repeat = {"long_name": "earlier measurements of the same sizes by the same test", "units": "1"}
    counts = np.array([count for _, _, count in curves], dtype=np.int32)
    columns = [
        row_numbers(CURVE, len(curves)),
        *(_column(field, (CURVE,), rows, at[:1], shape) for field in OF_CURVES),
        Column("repeat", (CURVE,), counts.dtype, repeat | attributes([_LOGGED]), counts),
        *(_column(field, (SIZE,), rows, at[1:], shape) for field in OF_SIZES),
    ]
    cells = [_column(field, (CURVE, SIZE), rows, at, shape) for field in OF_CELLS]
    texts = [column for column in cells if column.dtype.kind == "U"]
    numbers = [column for column in cells if column.dtype.kind != "U"]
    return Layout(shape, (*columns, *texts), tuple(numbers), attrs)


def _column(
    field: Field,
    dims: tuple[str, ...],
    rows: Sequence[Record],
    at: NDArray[np.int64],
    shape: Mapping[str, int],
) -> Column:
    """Return what rows have of a field, each at its place."""
    about: dict[str, object] = {"long_name": field.words}
    values_of_rows = np.array([row[field.record] for row in rows])
    if field.units:
        about["units"] = field.units
        about |= {} if field.origin is None else attributes([field.origin])
    # A cell of a curve may have no row.
    if len(dims) > 1 and field.units:
        values_of_rows = values_of_rows.astype(np.float64)
    empty: Any = (
        np.nan
        if values_of_rows.dtype.kind == "f"
        else ""
        if values_of_rows.dtype.kind == "U"
        else 0
    )
    values = np.full([shape[dim] for dim in dims], empty, dtype=values_of_rows.dtype)
    values[tuple(at)] = values_of_rows
    return Column(field.name, dims, values.dtype, about, values)
