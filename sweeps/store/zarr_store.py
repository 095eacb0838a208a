"""A dataset as a Zarr store: a folder that xarray writes, and several processes region by region.

A store is of Zarr's format 3.  Its metadata are written aside and moved into it, each file whole:
a run that goes on makes them again, and chunks that are there stay.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Layout
from sweeps.errors import InputError, fault, refuse
from sweeps.store.encode import (
    Stored,
    checksum,
    chunk_shape,
    contiguous,
    file_attributes,
    is_label,
    labels,
    normalised,
    stored,
    values_of,
)
from sweeps.store.publish import to_disk

if TYPE_CHECKING:
    import xarray as xr

LEVEL = 3
CHUNK_BYTES = 1 << 20

Values = Mapping[str, NDArray[Any]]

# Attributes that xarray itself writes, or that characters have.
_OF_NETCDF = ("coordinates", "_Encoding")


def require_zarr(output: str) -> None:
    """Check that Zarr can be written."""
    if any(importlib.util.find_spec(name) is None for name in ("zarr", "dask")):
        allowed = "pip install 'overhead-sweeps[zarr]'"
        refuse("--format", "zarr", f"'{output}' needs zarr and dask", allowed)


def crc(values: NDArray[Any]) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


class ZarrStore:
    """A store that is being written."""

    def __init__(self, path: Path, *, compress: bool) -> None:
        self.path, self.compress = path, compress
        self._arrays: dict[str, Any] = {}
        self._touched: set[Path] = set()

    def prepare(self, layout: Layout, chunks: Mapping[str, tuple[int, ...]]) -> None:
        """Make the metadata of variables whose regions are put; chunks that are there stay."""
        self._write(layout, chunks, {}, {}, consolidated=False)

    def finish(
        self,
        layout: Layout,
        chunks: Mapping[str, tuple[int, ...]],
        values: Values,
        checksums: dict[str, str],
    ) -> dict[str, str]:
        """Write what wasn't put: coordinates, other variables, checksums, all attributes."""
        plan = stored(layout, compress=self.compress)
        ready = {
            each.name: contiguous(values[each.name], each.dtype)
            for each in plan
            if each.name in values
        }
        sums = checksums | {name: checksum(array) for name, array in ready.items()}
        for column in layout.coordinates:
            if column.dims:
                sums[column.name] = checksum(_known(layout, column.name))
        with warnings.catch_warnings():
            # That metadata of all variables in one file are no part of the format yet.
            warnings.simplefilter("ignore")
            self._write(layout, chunks, ready, sums, consolidated=True)
        for folder, _, files in os.walk(self.path):
            for file in files:
                to_disk(Path(folder) / file)
            to_disk(Path(folder))
        return {each.name: sums[each.name] for each in plan}

    def _write(
        self,
        layout: Layout,
        chunks: Mapping[str, tuple[int, ...]],
        values: Values,
        checksums: Mapping[str, str],
        *,
        consolidated: bool,
    ) -> None:
        """Let xarray write a dataset aside, without what is put, and move its files here."""
        aside = self.path.with_name(f"{self.path.name}.metadata")
        shutil.rmtree(aside, ignore_errors=True)
        plan = stored(layout, compress=self.compress)
        dataset = _dataset(layout, plan, values, checksums)
        dataset.to_zarr(
            aside,
            mode="w",
            compute=False,
            zarr_format=3,
            consolidated=consolidated,
            encoding={each.name: self._encoding(each, chunks.get(each.name)) for each in plan},
            # A chunk of holes is written, too: what isn't there hasn't been computed.
            write_empty_chunks=True,
        )
        for file in sorted(each for each in aside.rglob("*") if each.is_file()):
            target = self.path / file.relative_to(aside)
            target.parent.mkdir(parents=True, exist_ok=True)
            # On the disk at the end: a run that goes on makes them again.
            file.replace(target)
        shutil.rmtree(aside)
        self._arrays.clear()

    def _encoding(self, each: Stored, chunks: tuple[int, ...] | None) -> dict[str, object]:
        """Return how xarray stores a variable: a chunk that has changed isn't read silently."""
        codecs: Any = importlib.import_module("zarr.codecs")
        compressors = [codecs.Crc32cCodec()]
        if each.level and self.compress:
            size = each.dtype.itemsize
            options = {"cname": "zstd", "clevel": LEVEL, "typesize": size}
            shuffle = "shuffle" if size > 1 else "noshuffle"
            compressors.insert(0, codecs.BloscCodec(**options, shuffle=shuffle))
        encoding: dict[str, object] = {"compressors": compressors}
        if each.values is None and each.shape:
            size = each.dtype.itemsize
            encoding["chunks"] = chunks or tuple(chunk_shape(each.shape, size, CHUNK_BYTES))
        return encoding

    def array(self, name: str) -> Any:
        """Return a variable to read."""
        if name not in self._arrays:
            zarr: Any = importlib.import_module("zarr")
            self._arrays[name] = zarr.open_array(self.path / name, mode="r")
        return self._arrays[name]

    def put(self, name: str, region: tuple[slice, ...], values: NDArray[Any]) -> NDArray[Any]:
        """Write a region, which is a whole chunk, or whole chunks."""
        import xarray as xr

        array = self.array(name)
        ready = contiguous(values, np.dtype(array.dtype))
        dims = tuple(array.metadata.dimension_names or ())
        part = xr.Dataset({name: (dims, ready)})
        bounds = dict(zip(dims, region, strict=True))
        where: dict[str, Any] = {"region": bounds} if dims else {"mode": "r+"}
        part.to_zarr(self.path, **where, consolidated=False, write_empty_chunks=True)
        first = [part.start // size for part, size in zip(region, array.chunks, strict=True)]
        last = [-(-part.stop // size) for part, size in zip(region, array.chunks, strict=True)]
        for point in np.ndindex(*(b - a for a, b in zip(first, last, strict=True))):
            key = "/".join(["c", *(str(a + n) for a, n in zip(first, point, strict=True))])
            self._touched.add(self.path / name / key)
        return ready

    def get(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        """Return a region's values; None where they are missing or damaged."""
        try:
            return np.asarray(self.array(name)[region or ...])
        except (RuntimeError, ValueError, OSError):
            return None

    def sync(self) -> None:
        """Wait until what was put is on the disk."""
        for path in sorted(self._touched):
            to_disk(path)
        for folder in sorted({path.parent for path in self._touched}):
            to_disk(folder)
        self._touched.clear()

    def nbytes(self) -> int:
        """Return the bytes of all files."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())


def _known(layout: Layout, name: str) -> NDArray[Any]:
    """Return a coordinate's values as they are in a store."""
    column = next(column for column in layout.coordinates if column.name == name)
    assert column.values is not None
    return labels(column.values) if is_label(column) else values_of(column)


def _dataset(
    layout: Layout, plan: list[Stored], values: Values, checksums: Mapping[str, str]
) -> xr.Dataset:
    """Return a dataset of coordinates and known values; what is put is never computed here."""
    import xarray as xr

    dask: Any = importlib.import_module("dask.array")
    coordinates = {column.name for column in layout.coordinates}
    variables: dict[str, Any] = {}
    for each in plan:
        attrs = {key: _plain(value) for key, value in each.attrs.items() if key not in _OF_NETCDF}
        if each.name in checksums:
            attrs["checksum"] = checksums[each.name]
        dims: tuple[str, ...] = each.dims
        data: Any = values.get(each.name)
        if each.name in coordinates:
            data = _known(layout, each.name)
            dims = dims[: data.ndim]  # Without that of characters
            data = data.astype(object) if data.dtype.kind == "U" else data
        elif data is None:
            data = dask.empty(each.shape, dtype=each.dtype, chunks=-1)
        variables[each.name] = (dims, data, attrs)
    attrs = {name: _plain(value) for name, value in file_attributes(layout, plan).items()}
    attrs.pop("coordinates", None)
    made = xr.Dataset(variables, attrs=attrs)
    return made.set_coords([name for name in variables if name in coordinates])


# A Zarr store seen as an open netCDF file, as far as reading one's metadata and values goes.

_DIMENSIONS = "_ARRAY_DIMENSIONS"  # Of format 2


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
        named = getattr(self.array.metadata, "dimension_names", None)
        return tuple(named or self.attrs.get(_DIMENSIONS, ()))

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.dtype(object) if self._is_text else np.dtype(self.array.dtype)

    @property
    def _is_text(self) -> bool:
        return np.dtype(self.array.dtype).kind == "T"

    def set_auto_maskandscale(self, wanted: bool) -> None:
        """Nothing is masked or scaled."""

    def set_auto_chartostring(self, wanted: bool) -> None:
        """Text is text."""

    def __getitem__(self, region: Any) -> Any:
        return labels(self.array[region]) if self._is_text else self.array[region]


class ZarrFile(_Attributes):
    """A store, opened for reading."""

    def __init__(self, path: Path) -> None:
        try:
            zarr = importlib.import_module("zarr")
        except ImportError:
            wrong, allowed = "needs zarr to be read", "pip install 'overhead-sweeps[zarr]'"
            raise InputError(fault("file", str(path), wrong, allowed)) from None
        group = zarr.open_group(path, mode="r", use_consolidated=False)
        super().__init__(dict(group.attrs))
        variables: dict[str, _Variable] = {
            name: _Variable(array) for name, array in sorted(group.arrays())
        }
        self.variables = variables

    @property
    def dimensions(self) -> dict[str, SimpleNamespace]:
        """The dimensions with their sizes."""
        by_dim: dict[str, SimpleNamespace] = {}
        for each in self.variables.values():
            for dim, size in zip(each.dimensions, each.shape, strict=True):
                by_dim.setdefault(dim, SimpleNamespace(size=size))
        return by_dim

    def close(self) -> None:
        """Nothing is held open."""
