"""Values on named dimensions as a dataset, and records as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.formula import Call, Formula
from overhead.quantity import VOCABULARY
from sweeps.engine.case import Block, Column, Layout
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


def status_attrs(faults: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Return the metadata of a variable whose flags say why a value doesn't exist."""
    return {
        "long_name": "why a value doesn't exist (0: it does)",
        "flag_masks": [bit for bit, _ in faults.values()],
        "flag_meanings": " ".join(faults),
        "comment": "; ".join(f"{name}: {text}" for name, (_, text) in faults.items()),
    }


def store(
    coordinates: Sequence[Column],
    variables: Sequence[Column],
    blocks: Iterable[Block] | Mapping[str, NDArray[Any]],
    *,
    title: str,
    stated: Mapping[str, Any],
    given: Mapping[str, Any],
    output: Path,
    summary: str = "",
) -> None:
    """Write a dataset as netCDF, and say so."""
    from sweeps.store.metadata import code_digest, fingerprint, provenance
    from sweeps.store.publish import readable
    from sweeps.store.read import is_complete
    from sweeps.store.write import write

    kept = {name: given[name] for name in ("compress", "digits", "dtype")}
    text = _toml({"title": title, **stated})
    sources = (str(column.attrs.get("references", "")) for column in variables)
    told = dict.fromkeys(one for text in sources for one in text.split("; ") if one)
    attrs = provenance(
        title=title,
        summary=summary,
        spec_text=text,
        command=["sweeps", *sys.argv[1:]],
        fingerprint=fingerprint(text, code_digest(), {**kept, "coordinates": _digest(coordinates)}),
        references="; ".join(told),
    )
    # Programs read records from standard output, so what is for people goes elsewhere.
    notes = sys.stderr if given.get("as_csv") or given.get("as_json") else sys.stdout
    if not given["overwrite"] and is_complete(output, attrs["fingerprint"]):
        notes.write(f"{output} is complete already: the same sweep by the same code\n")
    else:
        if isinstance(blocks, Mapping):
            blocks = [
                Block(name, tuple(slice(0, n) for n in values.shape), values)
                for name, values in blocks.items()
            ]
        sizes = {
            column.name: len(column.values)
            for column in coordinates
            if column.values is not None and column.dims == (column.name,)
        }
        layout = Layout(sizes, tuple(coordinates), tuple(variables), attrs)
        written = write(output, layout, blocks, overwrite=bool(given["overwrite"]), **kept)
        notes.write(f"wrote {output} ({readable(written.nbytes)})\n")


def _toml(stated: Mapping[str, Any]) -> str:
    from sweeps.spec.units import to_toml

    return to_toml(stated)


def _digest(coordinates: Sequence[Column]) -> str:
    """Return what tells coordinates apart: machines' figures change without the request."""
    return repr([(c.name, np.asarray(c.values).tolist()) for c in coordinates if not c.dims])


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
