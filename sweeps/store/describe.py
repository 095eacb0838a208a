"""What is in a file: its dimensions, coordinates and variables, with their ranges."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.store.attributes import labels
from sweeps.store.checksum import slabs
from sweeps.store.encode import FORMAT

if TYPE_CHECKING:
    import netCDF4

__all__ = ["Description", "Summary", "describe_file"]

_HIDDEN = {"_FillValue", "_Encoding", "checksum", "coordinates"}


@dataclass(frozen=True, slots=True)
class Summary:
    """One coordinate or variable of a file."""

    name: str  # As it is called in a dataset
    dims: tuple[str, ...]  # Its dimensions and their sizes
    shape: tuple[int, ...]  # Its dimensions and their sizes
    dtype: str  # ``float64``, ``int8``, .., or ``str``
    attrs: dict[str, Any]  # Its metadata
    is_coordinate: bool  # Whether it was given rather than computed
    # Of its numbers, infinities among them; None for text, flags, and where there is no number
    minimum: float | None = None
    # Of its numbers, infinities among them; None for text, flags, and where there is no number
    maximum: float | None = None
    missing: int = 0  # How many cells are NaN
    labels: tuple[str, ...] = ()  # Text, in order
    # For each meaning of a flag, how many cells have it; 0 cells are listed too
    flags: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Description:
    """A file's contents."""

    path: Path  # The file, under the name that was given
    nbytes: int  # Its size on disk
    sizes: dict[str, int]  # The dimensions
    coordinates: tuple[Summary, ...]  # What was given, and what was computed
    variables: tuple[Summary, ...]  # What was given, and what was computed
    attrs: dict[str, Any]  # Global attributes

    @property
    def spec(self) -> str:
        """The text of the sweep that the file was computed from; empty if it has none."""
        return str(self.attrs.get("spec", ""))


def describe_file(dataset: netCDF4.Dataset, path: Path, *, ranges: bool) -> Description:
    """Describe an open file; the caller holds the netCDF lock."""
    widths = {each.dimensions[-1] for each in dataset.variables.values() if each.dtype == "S1"}
    named = set(dataset.dimensions) | _named(dataset)
    for each in dataset.variables.values():
        named |= _named(each)
    found = [
        _summary(name, each, is_coordinate=name in named, ranges=ranges)
        for name, each in dataset.variables.items()
    ]
    attrs = {
        name: dataset.getncattr(name)
        for name in dataset.ncattrs()
        if name not in {"coordinates", FORMAT[0]}
    }
    return Description(
        path=path,
        nbytes=_size(path),
        sizes={name: each.size for name, each in dataset.dimensions.items() if name not in widths},
        coordinates=tuple(each for each in found if each.is_coordinate),
        variables=tuple(each for each in found if not each.is_coordinate),
        attrs=attrs,
    )


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size


def _named(holder: netCDF4.Dataset | netCDF4.Variable[Any]) -> set[str]:
    """Return what an attribute lists as coordinates."""
    has_names = "coordinates" in holder.ncattrs()
    return set(holder.getncattr("coordinates").split()) if has_names else set()


def _summary(
    name: str, variable: netCDF4.Variable[Any], *, is_coordinate: bool, ranges: bool
) -> Summary:
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    attrs = {each: variable.getncattr(each) for each in variable.ncattrs() if each not in _HIDDEN}
    dims, shape = variable.dimensions, variable.shape
    if variable.dtype != "S1" and np.dtype(variable.dtype).kind in "UO":
        text = tuple(np.asarray(variable[...]).reshape(-1).tolist())
        return Summary(name, dims, shape, "str", attrs, is_coordinate, labels=text)
    if variable.dtype == "S1":
        dims, shape = dims[:-1], shape[:-1]
        characters = np.ascontiguousarray(variable[...]).view(f"S{variable.shape[-1]}")
        name = name.removesuffix("_name") if name.removesuffix("_name") in dims else name
        found = tuple(labels(characters).reshape(-1).tolist())
        return Summary(name, dims, shape, "str", attrs, is_coordinate, labels=found)
    values: dict[str, Any] = {}
    if ranges and "flag_meanings" in attrs:
        values = {"flags": _flags(variable, attrs)}
    elif ranges:
        values = _range(variable)
    return Summary(name, dims, shape, str(variable.dtype), attrs, is_coordinate, **values)


def _range(variable: netCDF4.Variable[Any]) -> dict[str, Any]:
    """Return the least and the greatest number, and how many there are none."""
    minimum, maximum, missing = np.inf, -np.inf, 0
    for region in slabs(variable.shape, variable.dtype.itemsize):
        values = np.asarray(variable[region or ...])
        empty = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
        missing += empty
        if empty < values.size:
            minimum = min(minimum, float(np.fmin.reduce(values, axis=None)))
            maximum = max(maximum, float(np.fmax.reduce(values, axis=None)))
    if minimum > maximum:
        return {"missing": missing}
    return {"minimum": minimum, "maximum": maximum, "missing": missing}


def _flags(variable: netCDF4.Variable[Any], attrs: dict[str, Any]) -> dict[str, int]:
    """Return how many cells each meaning has."""
    counts: Counter[int] = Counter()
    for region in slabs(variable.shape, variable.dtype.itemsize):
        counts.update(_counted(np.asarray(variable[region or ...])))
    meanings = str(attrs["flag_meanings"]).split()
    if "flag_masks" in attrs:
        masks = [int(mask) for mask in np.atleast_1d(attrs["flag_masks"])]
        cells = [sum(n for value, n in counts.items() if value & mask) for mask in masks]
    else:
        cells = [counts[int(value)] for value in np.atleast_1d(attrs["flag_values"])]
    return dict(zip(meanings, cells, strict=False))


def _counted(values: NDArray[np.integer]) -> dict[int, int]:
    """Return how often each integer occurs."""
    if values.dtype.itemsize == 1:
        # Counted as bytes: far faster than by sorting.
        counts = np.bincount(values.reshape(-1).view(np.uint8), minlength=256)
        kept = np.flatnonzero(counts)
        keys = kept.astype(np.uint8).view(values.dtype)
        return dict(zip(keys.tolist(), counts[kept].tolist(), strict=True))
    keys, counts = np.unique(values, return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))
