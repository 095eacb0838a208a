"""What a command computed, whole: a labelled dataset with its provenance, as records, as tables.

A command that computes makes a `Result` (of a grid: its layout with values; of rows: `of_rows`) or
has a `Job`, and gives it to `sweeps.cli.write.Output`, which prints it and is the only way to a
file.  In a command with ``@output_options``::

    out = Output(given, "hops")  # the options; outputs/hops.nc where no file is named
    attrs = provenance_of(title=.., spec={"hops": ..}, given=given)
    result = Result(Layout(sizes, coordinates, variables, attrs))  # columns with their values
    out.write(result, figures=[..])  # --output, --plot: whole or not at all
    out.show(result, lines)  # --csv, --json; else lines for people

Coordinates come from `sweeps.engine.describe.coordinate`, each with its `sweeps.origin.Origin`s.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.asked import command_line
from sweeps.bands import written
from sweeps.engine.grid import STATUSES, SUBJECT, Block, Column, Layout, is_row_number
from sweeps.origin import GIVEN, Origin, attributes
from sweeps.spec.units import to_toml
from sweeps.store.constants import with_constants
from sweeps.wrapping import aligned

if TYPE_CHECKING:
    import xarray as xr

Record = Mapping[str, Any]
AT_ONCE = 1 << 14  # Cells of which records are made

# What records call a quantity, where that isn't its name and unit.
FIELDS = {
    "time": "latency_s",
    "latency_time": "latency_part_s",
    "bandwidth_time": "bandwidth_part_s",
    "reduction_time": "reduction_part_s",
    "intra_time": "intra_latency_s",
    "inter_time": "inter_latency_s",
    "pod_time": "pod_latency_s",
    "sent_bytes": "volume_bytes",
    "algbw": "algbw_bytes_per_s",
    "busbw": "busbw_bytes_per_s",
    "chosen_algorithm": "algorithm",
    "status": "status",  # No quantity: the vocabulary would load all formulas to see that
    # Of a training step.
    "peak_memory": "per_gpu_memory_bytes",
    "communication_upper_bound": "total_comm_time_per_step_upper_bound_s",
}
# What records call those of a row's times that are upper bounds in places, as files say of each.
UPPER_BOUNDS, BOUNDED_WORDS = "upper_bounds", "times that are upper bounds in places"
# What follows from machines, where they vary: records have it beside what they always have.
CHOSEN = ("topology", "framework")
# Other quantities' names end in their units.
ENDINGS = {"s": "_s", "byte": "_bytes", "J": "_j", "USD": "_usd", "1 s-1": "_per_s"}


@dataclass(frozen=True)
class Result:
    """A result in memory."""

    layout: Layout  # Columns with their values, and the provenance as its attributes
    # Constants that records have, first and in this order; None: all, where the layout has them
    constants: Sequence[str] | None = None
    # By variable: the bits of a status with which it has no value, though it may not vary there
    masks: Mapping[str, int] = field(default_factory=dict)
    # Where records aren't the cells of the grid: what they are
    rows: Sequence[Record] | Callable[[], Iterator[Record]] | None = None
    # Where programs that read JSON are told more than records: all of it
    whole: Mapping[str, Any] | None = None

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return int(np.prod(list(self.layout.sizes.values()), dtype=object))

    @property
    def numbers(self) -> dict[str, Column]:
        """The variables that are numbers: what can be asserted."""
        columns = self.layout.variables
        return {
            column.name: column
            for column in columns
            if column.dtype.kind in "fiu" and "flag_meanings" not in column.attrs
        }

    @property
    def bare(self) -> Layout:
        """The layout as writers take it: values of variables come as `blocks`."""
        variables = (Column(c.name, c.dims, c.dtype, c.attrs) for c in self.layout.variables)
        return Layout(
            self.layout.sizes, self.layout.coordinates, tuple(variables), self.layout.attrs
        )

    @property
    def blocks(self) -> Iterator[Block]:
        """The values of the variables, each as one block."""
        for column in self.layout.variables:
            values = values_of(column)
            yield Block(column.name, tuple(slice(0, n) for n in values.shape), values)

    def dataset(self) -> xr.Dataset:
        """Return it as a labelled dataset."""
        from sweeps.store.netcdf import to_dataset

        return to_dataset(self.bare, self.blocks)

    def records(self) -> Iterator[dict[str, object]]:
        """Yield a record for each cell or row, by names that say the unit."""
        if self.rows is not None:
            yield from map(dict, self.rows() if callable(self.rows) else self.rows)
            return
        names, constants = self._names, self._constants
        for record in self.values():
            yield constants | {names[name]: value for name, value in record.items()} | self._bounded

    def header(self) -> list[str]:
        """Return the names of all that records have."""
        if callable(self.rows):
            return list(next(self.rows(), {}))
        if self.rows is not None:
            return list(dict.fromkeys(name for row in self.rows for name in row))
        parts = [
            [*self._coordinates_of(dims), *columns_of_part] for dims, columns_of_part in self._parts
        ]
        names = (self._names[column.name] for part in parts for column in part)
        return list(dict.fromkeys((*self._constants, *names, *self._bounded)))

    def fields(self) -> list[Field]:
        """Return what records have, as columns of rows."""
        by_record = {}
        for column in (*self.layout.coordinates, *self.layout.variables):
            flags, text = "flag_meanings" in column.attrs, column.dtype.kind in "UO"
            units = "" if flags or text else str(column.attrs.get("units", "1"))
            record = self._names[column.name]
            origin = None if column in self.layout.variables else Origin(None, GIVEN)
            words = str(column.attrs.get("long_name", column.name.replace("_", " ")))
            by_record[record] = Field(record, column.name, words, units, origin)
        by_record[UPPER_BOUNDS] = Field(UPPER_BOUNDS, UPPER_BOUNDS, BOUNDED_WORDS)
        return [by_record[name] for name in self.header() if name in by_record]

    def values(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield what each cell has by quantity: coordinates, then values; some cells at most.

        Variables with dimensions that others don't have are apart: cells of the one, then of the
        other.
        """
        for dims, variables in self._parts:
            shape = tuple(self.layout.sizes[dim] for dim in dims)
            last = int(np.prod(shape, dtype=object))
            last = last if most is None else min(last, most)
            columns = (*self._coordinates_of(dims), *variables)
            status = next((column for column in columns if column.name in STATUSES), None)
            for first in range(0, last, AT_ONCE):
                cells = np.arange(first, min(first + AT_ONCE, last))
                at = np.unravel_index(cells, shape) if dims else ()
                index = dict(zip(dims, at, strict=True))
                bits = None if status is None else codes_of(_cells(status, index))
                texts = [self._told(column, _cells(column, index), bits) for column in columns]
                names = [column.name for column in columns]
                for row in zip(*texts, strict=True):
                    yield dict(zip(names, row, strict=True))
            if most is not None:
                most -= last

    # What records hold.

    @cached_property
    def _variables(self) -> dict[str, Column]:
        return {column.name: column for column in self.layout.variables}

    @property
    def _parts(self) -> list[tuple[tuple[str, ...], list[Column]]]:
        """The variables by the largest sets of dimensions that contain theirs.

        Those of an operation are apart from those of a training step.
        """
        order, groups = tuple(self.layout.sizes), []
        for subject in dict.fromkeys(
            variable.attrs.get(SUBJECT) for variable in self.layout.variables
        ):
            columns = [
                variable
                for variable in self.layout.variables
                if variable.attrs.get(SUBJECT) == subject
            ]
            dims_of = dict.fromkeys(frozenset(column.dims) for column in columns)
            largest = [shape for shape in dims_of if not any(shape < other for other in dims_of)]
            parts: dict[frozenset[str], list[Column]] = {shape: [] for shape in largest}
            for column in columns:
                parts[next(shape for shape in largest if set(column.dims) <= shape)].append(column)
            groups += [
                (tuple(d for d in order if d in dims), columns_of_part)
                for dims, columns_of_part in parts.items()
            ]
        return groups

    @cached_property
    def _names(self) -> dict[str, str]:
        """What records call columns: coordinates by their own name where constants are chosen."""
        layout, bare = self.layout, self.constants is not None
        names = {c.name: c.name if bare else _field(c) for c in layout.coordinates}
        return names | {column.name: _field(column) for column in layout.variables}

    def _coordinates_of(self, dims: Sequence[str]) -> list[Column]:
        return [column for column in self._coordinates if set(column.dims) <= set(dims)]

    @cached_property
    def _coordinates(self) -> list[Column]:
        """The coordinates that tell cells apart, and the constants where all of them are told."""
        names = {c.name for c in self.layout.coordinates if not is_row_number(c.attrs)}
        columns, told = [], (*CHOSEN, *(self.constants or ()))
        for column in self.layout.coordinates:
            if not column.dims:
                if self.constants is None:
                    columns.append(column)
            elif len(column.dims) == 1 and (
                column.name in (*column.dims, *told) or column.dims[0] not in names
            ):
                columns.append(column)
        return columns

    @cached_property
    def _constants(self) -> dict[str, object]:
        scalars = {c.name: c for c in self.layout.coordinates if not c.dims}
        names = [name for name in self.constants or () if name in scalars]
        return {name: _plain(values_of(scalars[name])[()]) for name in names}

    @cached_property
    def _bounded(self) -> dict[str, str]:
        """The times that are upper bounds in places, where no column says it of each cell."""
        told = "time_is_upper_bound" in self._variables
        columns = [
            column for column in self.layout.variables if not told and "upper_bound" in column.attrs
        ]
        names = " ".join(self._names[column.name] for column in columns)
        return {UPPER_BOUNDS: names} if names else {}

    def _told(self, column: Column, values: NDArray[Any], status: NDArray[Any] | None) -> list[Any]:
        """Return a column's values at some cells of a status as records have them."""
        attrs, mask = column.attrs, self.masks.get(column.name, 0)
        meanings = str(attrs.get("flag_meanings", "")).split()
        if "flag_masks" in attrs:
            bits = dict(zip(meanings, np.atleast_1d(attrs["flag_masks"]).tolist(), strict=True))
            told_codes = [
                " ".join(name for name, bit in bits.items() if code & bit) or "ok"
                for code in codes_of(values).tolist()
            ]
            left_out = np.isnan(values.astype(np.float64)).tolist()
            return ["" if out else code for code, out in zip(told_codes, left_out, strict=True)]
        holes = np.zeros(values.shape, np.bool_) if status is None else (status & mask) != 0
        if meanings:
            codes = np.atleast_1d(attrs.get("flag_values", np.arange(len(meanings)))).tolist()
            known = dict(zip(codes, meanings, strict=True))
            return [known.get(code, "") for code in np.where(holes, 0, values).tolist()]
        plain = values.astype(np.str_) if values.dtype.kind in "OS" else values
        told = zip(plain.tolist(), holes.tolist(), strict=True)
        return [float("nan") if hole else value for value, hole in told]


def _cells(column: Column, index: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return a column's values at some cells: the places along each dimension."""
    count = len(next(iter(index.values()), ())) or 1
    values = values_of(column)[tuple(index[dim] for dim in column.dims)]
    return np.broadcast_to(values, (count,))


def codes_of(status: NDArray[Any]) -> NDArray[np.int64]:
    """Return a status as whole numbers: where xarray left cells out it has holes, as 0 here."""
    return np.nan_to_num(status).astype(np.int64)


def values_of(column: Column) -> NDArray[Any]:
    """Return the values of a column that has them."""
    assert column.values is not None
    return column.values


def _plain(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return value.decode() if isinstance(value, bytes) else str(value)
    return value.item()


def _field(column: Column) -> str:
    """Return what records call a variable."""
    name = column.name
    if name in FIELDS:
        return FIELDS[name]
    units = VOCABULARY[name].units if name in VOCABULARY else column.attrs.get("units", "1")
    return record_name(name, str(units))


def record_name(name: str, units: str) -> str:
    """Return what records call a quantity: its name, with its unit's ending."""
    ending = ENDINGS.get(units, "")
    return FIELDS.get(name) or (name if name.endswith(ending) else name + ending)


# Rows that are no cells of a grid: what was measured, or looked at one by one.


class Field(NamedTuple):
    """A column of rows: its name in records and in files, in words, and its unit."""

    record: str
    name: str
    words: str
    units: str = ""  # None of text
    origin: Origin | None = None  # Of a number that isn't computed: where it comes from
    scale: float = 1.0  # Of the unit in records, in the file's unit
    comment: str = ""  # What else to know of its numbers


def of_rows(
    rows: Sequence[Record],
    fields: Sequence[Field],
    attrs: Mapping[str, str],
    whole: Mapping[str, object] | None = None,
    dim: str = "row",
) -> Result:
    """Return rows as a result along a dimension, a field of each row's own value if it is one.

    Text and what was given are coordinates.
    """
    coordinates: list[Column] = []
    variables: list[Column] = []
    for described in fields:
        cells = [row.get(described.record) for row in rows]
        about = {"long_name": described.words}
        if not described.units:
            values: NDArray[Any] = np.array(["" if c is None else str(c) for c in cells])
        else:
            about["units"] = described.units
            about |= {} if described.origin is None else attributes([described.origin])
            about |= {"comment": described.comment} if described.comment else {}
            numbers = [float("nan") if cell is None else cell for cell in cells]
            values = (
                np.asarray(numbers)
                if described.scale == 1.0
                else described.scale * np.asarray(numbers)
            )
            if values.dtype.kind == "b":
                values = values.astype(np.int8)
        column = Column(described.name, (dim,), values.dtype, about, values)
        (variables if described.units and described.origin is None else coordinates).append(column)
    layout = Layout({dim: len(rows)}, tuple(coordinates), tuple(variables), attrs)
    return Result(layout, rows=rows, whole=whole)


def of_columns(
    coordinates: Sequence[Column],
    variables: Sequence[Column],
    *,
    title: str,
    spec: Mapping[str, object],
    given: Mapping[str, object],
    summary: str = "",
    rows: Sequence[Record] | None = None,
    command: Sequence[str] = (),
) -> Result:
    """Return columns with their values as a result; sources are those that variables name."""
    sizes = {c.name: len(values_of(c)) for c in coordinates if c.dims == (c.name,)}
    sources = (str(column.attrs.get("references", "")) for column in variables)
    attrs = provenance_of(
        title=title,
        summary=summary,
        spec=spec,
        given=given,
        references="; ".join(
            dict.fromkeys(source for text in sources for source in text.split("; ") if source)
        ),
        # Machines' figures change without what is asked.
        inputs=[(c.name, values_of(c).tolist()) for c in coordinates if not c.dims],
        command=command,
    )
    return Result(Layout(sizes, tuple(coordinates), tuple(variables), attrs), rows=rows)


def of_dataset(
    dataset: xr.Dataset,
    constants: Sequence[str] | None = None,
    masks: Mapping[str, int] | None = None,
) -> Result:
    """Return a labelled dataset, of a file maybe, as a result."""

    def column(name: Any) -> Column:
        variable = dataset[name]
        return Column(
            str(name),
            tuple(map(str, variable.dims)),
            variable.dtype,
            variable.attrs,
            variable.to_numpy(),
        )

    dataset = with_constants(dataset)
    sizes = {str(dim): int(size) for dim, size in dataset.sizes.items()}
    attrs = {str(name): str(value) for name, value in dataset.attrs.items()}
    coordinates, variables = map(column, dataset.coords), map(column, dataset.data_vars)
    return Result(
        Layout(sizes, tuple(coordinates), tuple(variables), attrs), constants, masks or {}
    )


# Records as text for programs, and tables for people.

# Of records' names, and what they hold; another where these change.
SCHEMA_VERSION = 1


def json_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as a JSON array, each on a line of its own; what doesn't exist is null."""
    first = True
    for record in records:
        members = (f"{json.dumps(name)}: {_json(value)}" for name, value in record.items())
        yield ("[\n" if first else ",\n") + "{" + ", ".join(members) + "}"
        first = False
    yield "[\n]\n" if first else "\n]\n"


def _json(value: Any) -> str:
    if isinstance(value, float) and np.isnan(value):
        return "null"
    # JSON has no infinity; every reader makes one of a number that is too large.
    return str(json.dumps(value)).replace("Infinity", "1e999")


def csv_lines(records: Iterable[Record], header: Sequence[str] | None = None) -> Iterator[str]:
    """Yield records as CSV, the first line their names; what doesn't exist is empty."""
    for count, record in enumerate(records):
        header = header or list(record)
        if count == 0:
            yield _line(header)
        yield _line([_cell(record.get(name, "")) for name in header])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else repr(float(value))
    return "" if value is None else str(value)


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def shown(name: str, value: Any) -> str:
    """Return a value as people read it."""
    if isinstance(value, str):
        return value
    return written(name, value)


def table_lines(
    records: Iterable[Record],
    write: Callable[[str, Any], str] = shown,
    *,
    most: int = 40,
    total: int | None = None,
    title: Callable[[str], str] = str,
    keys: int = 0,
) -> Iterator[str]:
    """Yield records as a table with aligned columns, cut after some rows."""
    rows = list(itertools.islice(records, most))
    header = list(dict.fromkeys(name for row in rows for name in row))
    titles = [title(name) for name in header]
    table = [titles, *([write(n, row[n]) if n in row else "" for n in header] for row in rows)]
    yield from (line + "\n" for line in aligned(table, left=len(header), indent="", keys=keys))
    if total is not None and total > len(rows):
        left = total - len(rows)
        yield f"... and {left:,} more: --csv, --json or --output give them all\n"


# Where a result comes from: the same of every command.


def provenance_of(
    *,
    title: str,
    spec: Mapping[str, object],
    given: Mapping[str, object],
    summary: str = "",
    references: str = "",
    comment: str = "",
    inputs: Any = None,
    command: Sequence[str] = (),
) -> dict[str, str]:
    """Return the global attributes of a result: what was asked, by which code, when, of what.

    `spec` says what was asked, and `inputs` what it depends on beside: a digest of a file, or
    figures of machines that can change.
    """
    from sweeps.store.encode import code_digest, fingerprint, provenance

    text = to_toml({"title": title, **spec})
    depends = {"compress": given.get("compress", False), "inputs": inputs}
    return provenance(
        title=title,
        summary=summary,
        spec_text=text,
        command=command or command_line(),
        fingerprint=fingerprint(text, code_digest(), depends),
        references=references,
        comment=comment,
    )
