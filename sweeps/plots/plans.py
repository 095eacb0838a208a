"""Plans as figures name them: which dimensions plans vary along, what tells one from another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.readable import plain, scale_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["PLAN_NAMES", "cell_names", "evenly", "is_of_plans", "plan_dims", "told_first"]

# What a plan chooses, in the order in which people name it.
PLAN_NAMES = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "dp",
    "hsdp_shard",
    "virtual_stages",
    "micro_batch",
    "zero_stage",
    "sequence_parallel",
    "recompute",
    "schedule",
    "context_parallel",
    "sharding",
    "attention_kernel",
    "tp_mechanism",
    "cp_mechanism",
    "dp_mechanism",
)
_WORDS = {"zero_stage": "ZeRO", "hsdp_shard": "HSDP", "micro_batch": "micro-batch"}
_VALUES = {"none": "no", "one_f_one_b": "1F1B"}


def is_of_plans(dim: str, values: Sequence[Any] | int) -> bool:
    """Return whether plans vary along a dimension: a choice of theirs, or a table's rows."""
    return dim in PLAN_NAMES or isinstance(values, int)


def plan_dims(dims: Iterable[str], known: Mapping[str, Sequence[Any] | int]) -> list[str]:
    """Return those of some dimensions along which plans vary."""
    return [dim for dim in dims if is_of_plans(dim, known.get(dim, ()))]


def told_first(names: Iterable[str]) -> list[str]:
    """Return names of coordinates with those of plans first."""
    order = {name: place for place, name in enumerate(PLAN_NAMES)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of `count` places, evenly spread, the first and the last among them."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.round(np.linspace(0, count - 1, most)).astype(np.int64))


def cell_names(
    dataset: xr.Dataset, dims: Sequence[str], places: Sequence[NDArray[np.int64]]
) -> list[str]:
    """Return what tells some cells from all others along some dimensions."""
    if not dims:
        return [""]
    columns = _columns(dataset, dims)
    texts: list[list[str]] = []
    for name in columns:
        coordinate = dataset.coords[name]
        at = tuple(places[list(dims).index(str(dim))] for dim in coordinate.dims)
        units = str(coordinate.attrs.get("units", "1"))
        texts.append([_said(name, value, units) for value in coordinate.values[at].tolist()])
    cells = [" · ".join(parts) for parts in zip(*texts, strict=True)] if texts else []
    rows = [place for place, dim in enumerate(dims) if dim not in dataset.coords]
    if len(set(cells)) == len(places[0]) or not rows:
        return cells
    # Rows that no column tells apart: by their places.
    cells = cells or [plain(dims[rows[0]])] * len(places[0])
    marks = zip(*(places[row].tolist() for row in rows), strict=True)
    return [f"{cell} #{', '.join(map(str, mark))}" for cell, mark in zip(cells, marks, strict=True)]


def _columns(dataset: xr.Dataset, dims: Sequence[str]) -> list[str]:
    """Return the coordinates that name cells: labels, then what plans choose, then others."""
    own = [dim for dim in dims if dim in dataset.coords]
    rows = [dim for dim in dims if dim not in dataset.coords]
    found = [*own]
    for dim in rows:
        columns = [
            str(name) for name, one in dataset.coords.items() if one.dims == (dim,) and _varies(one)
        ]
        given = [name for name in columns if dataset.coords[name].attrs.get("origin") == "given"]
        found += given or columns
    found += [
        str(name)
        for name, one in dataset.coords.items()
        if name in PLAN_NAMES and one.dims and set(map(str, one.dims)) <= set(dims) and _varies(one)
    ]
    found = list(dict.fromkeys(found))
    first = [name for name in found if name not in PLAN_NAMES and _is_text(dataset.coords[name])]
    return first + told_first(name for name in found if name not in first)


def _varies(coordinate: xr.DataArray) -> bool:
    values = coordinate.values
    return bool(values.size and (values != values.reshape(-1)[0]).any())


def _is_text(coordinate: xr.DataArray) -> bool:
    return coordinate.dtype.kind in "OUS"


def _said(name: str, value: Any, units: str) -> str:
    """Return a coordinate's value with the name that it needs to be understood."""
    word = _WORDS.get(name, plain(name))
    if not isinstance(value, str | bytes):
        return f"{word} {scale_of(units).given(float(value))}"
    text = value.decode() if isinstance(value, bytes) else value
    if name not in PLAN_NAMES:
        return text
    text = _VALUES.get(text, plain(text))
    return text if name == "schedule" else f"{text} {word}"
