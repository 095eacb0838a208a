"""Values on named dimensions as a dataset: its layout, and its file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.formula import Call, Formula
from overhead.quantity import VOCABULARY
from sweeps.engine.layout import Block, Column, Layout

__all__ = ["attrs_of", "label_column", "number_column", "status_attrs", "store"]


def number_column(
    name: str, dims: Sequence[str], values: Any, origin: str = "given", long_name: str = ""
) -> Column:
    """Return a coordinate that holds numbers of a quantity."""
    attrs = {**VOCABULARY[name].attrs(), "origin": origin}
    if long_name:
        attrs["long_name"] = long_name
    return Column(name, tuple(dims), np.dtype(np.float64), attrs, np.asarray(values, np.float64))


def label_column(
    name: str, dims: Sequence[str], values: Any, long_name: str, origin: str = "given"
) -> Column:
    """Return a coordinate that holds names."""
    text = np.asarray(values, dtype=np.str_)
    return Column(name, tuple(dims), text.dtype, {"long_name": long_name, "origin": origin}, text)


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
    from sweeps.store.read import is_complete
    from sweeps.store.space import readable
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
    from sweeps.spec.dump import to_toml

    return to_toml(stated)


def _digest(coordinates: Sequence[Column]) -> str:
    """Return what tells coordinates apart: machines' figures change without the request."""
    return repr([(c.name, np.asarray(c.values).tolist()) for c in coordinates if not c.dims])
