"""A Zarr store seen as an open netCDF file, as far as reading one's metadata and values goes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.errors import InputError, fault
from sweeps.store.attributes import normalised

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["ZarrFile", "is_zarr", "open_zarr"]

_DIMENSIONS = "_ARRAY_DIMENSIONS"


def is_zarr(path: Path) -> bool:
    """Tell whether a path is a Zarr store of version 2."""
    return path.is_dir() and (path / ".zgroup").is_file()


def open_zarr(path: Path) -> xr.Dataset:
    """Open a store with xarray; values are read when they are used."""
    import xarray as xr

    dataset = xr.open_dataset(
        path,
        engine="zarr",
        consolidated=True,
        decode_times=False,
        mask_and_scale=False,
        chunks=None,
    )
    for each in dataset.variables.values():
        # JSON has lists; in memory and in a netCDF file these are arrays.
        each.attrs = normalised(each.attrs, each.dtype if each.dtype.kind in "iu" else None)
    return dataset


class _Attributes:
    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = attrs

    def ncattrs(self) -> list[str]:
        """Return the names of the attributes."""
        return [name for name in self.attrs if name != _DIMENSIONS]

    def getncattr(self, name: str) -> Any:
        """Return an attribute: a sequence of numbers as an array."""
        value = self.attrs[name]
        return np.array(value) if isinstance(value, list) else value


class _Variable(_Attributes):
    """One array."""

    def __init__(self, array: Any) -> None:
        super().__init__(dict(array.attrs))
        self.array = array

    @property
    def checksum(self) -> Any:
        """The stored checksum."""
        return self.attrs["checksum"]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the dimensions."""
        return tuple(self.attrs[_DIMENSIONS])

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.dtype(self.array.dtype)

    def set_auto_maskandscale(self, wanted: bool) -> None:
        """Nothing is masked or scaled."""

    def set_auto_chartostring(self, wanted: bool) -> None:
        """Text is text."""

    def __getitem__(self, region: Any) -> Any:
        return self.array[region]


class ZarrFile(_Attributes):
    """A store, opened for reading."""

    def __init__(self, path: Path) -> None:
        try:
            zarr = importlib.import_module("zarr")
        except ImportError:
            wrong, allowed = "needs zarr to be read", "pip install 'overhead-sweeps[zarr]'"
            raise InputError(fault("file", str(path), wrong, allowed)) from None
        group = zarr.open_group(path, mode="r", zarr_format=2, use_consolidated=False)
        super().__init__(dict(group.attrs))
        found: dict[str, _Variable] = {
            name: _Variable(array) for name, array in sorted(group.arrays())
        }
        self.variables = found

    @property
    def dimensions(self) -> dict[str, SimpleNamespace]:
        """The dimensions with their sizes."""
        found: dict[str, SimpleNamespace] = {}
        for each in self.variables.values():
            for dim, size in zip(each.dimensions, each.shape, strict=True):
                found.setdefault(dim, SimpleNamespace(size=size))
        return found

    def close(self) -> None:
        """Nothing is held open."""
