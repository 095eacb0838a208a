"""Constants of a dataset: attributes of the whole, not coordinates of every variable.

Each value is an attribute under its quantity's name, and the attribute ``constants`` has, as JSON,
what is known of each: units, meaning, origin.  What computes or draws a dataset takes them as
scalar coordinates, which `with_constants` makes of them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray as xr

CONSTANTS = "constants"
CHECKSUM = "constants_checksum"
"""Of a file alone: of the values and what is known of them."""
_DTYPE = "dtype"  # Of a number that isn't a double


def as_attributes(
    constants: Iterable[tuple[str, NDArray[Any], Mapping[str, object]]],
) -> dict[str, object]:
    """Return constants, each a name, a value and its attributes, as attributes of the whole."""
    values: dict[str, Any] = {}
    about: dict[str, dict[str, object]] = {}
    for name, value, attrs in constants:
        about[name] = {key: _plain(each) for key, each in attrs.items()}
        if value.dtype.kind in "UOST":
            values[name] = str(value[()])
            continue
        values[name] = value[()]
        if value.dtype != np.float64:
            about[name][_DTYPE] = value.dtype.name
    return values | {CONSTANTS: json.dumps(about, ensure_ascii=False)} if values else {}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def constants_of(attrs: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[Any], dict[str, object]]]:
    """Yield the constants among a dataset's attributes: names, values, and their attributes."""
    for name, about in json.loads(attrs.get(CONSTANTS, "{}")).items():
        if name not in attrs:
            continue  # Left out by whoever has had the dataset in between
        dtype = about.pop(_DTYPE, None)
        yield name, np.asarray(attrs[name], dtype=dtype), about


def without_constants(attrs: Mapping[str, Any]) -> dict[str, object]:
    """Return the other attributes of a dataset."""
    names = {CONSTANTS, CHECKSUM, *json.loads(attrs.get(CONSTANTS, "{}"))}
    return {name: value for name, value in attrs.items() if name not in names}


def checksum_of(attrs: Mapping[str, object]) -> str:
    """Return the checksum of the constants among a dataset's attributes."""
    content = [
        [name, value.dtype.kind, value.tolist(), about]
        for name, value, about in constants_of(attrs)
    ]
    return f"crc32:{zlib.crc32(json.dumps(content).encode()):08x}"


def with_constants(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with its constants as scalar coordinates."""
    if CONSTANTS not in dataset.attrs:
        return dataset
    coordinates = {
        name: ((), value, about)
        for name, value, about in constants_of(dataset.attrs)
        if name not in dataset.variables and name not in dataset.dims
    }
    extended = dataset.assign_coords(coordinates)
    extended.attrs = without_constants(dataset.attrs)
    extended.set_close(dataset.close)
    return extended


def constants_aside(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with its scalar coordinates as attributes."""
    scalars = [str(name) for name in dataset.coords if not dataset.variables[name].dims]
    if not scalars:
        return dataset
    variables = [(name, dataset.variables[name]) for name in scalars]
    reduced = dataset.drop_vars(scalars)
    constants = as_attributes((name, each.to_numpy(), each.attrs) for name, each in variables)
    reduced.attrs = {**dataset.attrs, **constants}
    reduced.set_close(dataset.close)
    return reduced


def unstacked(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset whose stacked dimensions have their parts as columns, not tuples."""
    stacked = [
        name
        for name, coordinate in dataset.coords.items()
        if coordinate.dtype == object
        and coordinate.size
        and all(isinstance(value, tuple) for value in coordinate.values.flat)
    ]
    flat = dataset.reset_index([name for name in stacked if name in dataset.dims])
    return flat.drop_vars(stacked, errors="ignore")
