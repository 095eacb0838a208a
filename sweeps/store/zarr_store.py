"""A dataset as a Zarr store (version 2): a folder whose chunks several processes write."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column, Layout
from sweeps.errors import InputError, fault, refuse
from sweeps.store.encode import (
    Storage,
    Stored,
    checksum,
    chunk_shape,
    file_attributes,
    is_label,
    normalised,
)
from sweeps.store.publish import to_disk, write_whole

if TYPE_CHECKING:
    import xarray as xr

LEVEL = 3
CHUNK_BYTES = 1 << 20
CONSOLIDATED = ".zmetadata"


def require_zarr(output: str) -> None:
    """Check that Zarr can be written."""
    if importlib.util.find_spec("zarr") is None:
        refuse("--format", "zarr", f"'{output}' needs zarr", "pip install 'overhead-sweeps[zarr]'")


def crc(values: NDArray[Any]) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def zarr_variables(layout: Layout, plan: Sequence[Stored]) -> list[Stored]:
    """Return a store's variables: as a netCDF file has them, but with labels as text."""
    columns: dict[str, Column] = {column.name: column for column in layout.coordinates}
    found = []
    for each in plan:
        column = columns.get(each.name)
        if column is None or not is_label(column):
            found.append(each)
            continue
        attrs = {key: value for key, value in each.attrs.items() if key != "_Encoding"}
        text = np.asarray(column.values).astype(np.str_)
        found.append(
            Stored(each.name, column.dims, text.shape, text.dtype, attrs, False, 0, values=text)
        )
    return found


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


class ZarrStore:
    """A store that is being written."""

    def __init__(self, path: Path, storage: Storage) -> None:
        self.path, self.storage = path, storage
        self._arrays: dict[str, Any] = {}
        self._touched: set[Path] = set()

    def prepare(self, variables: Sequence[Stored], chunks: Mapping[str, tuple[int, ...]]) -> None:
        """Make the metadata of variables, each file whole; chunks that are there stay."""
        zarr: Any = importlib.import_module("zarr")
        self.path.mkdir(exist_ok=True)
        aside = self.path.with_name(f"{self.path.name}.metadata")
        shutil.rmtree(aside, ignore_errors=True)
        group = zarr.create_group(aside, zarr_format=2, overwrite=True)
        for variable in variables:
            self._create(group, variable, chunks.get(variable.name))
        for file in sorted(aside.rglob(".z*")):
            own = self.path / file.relative_to(aside)
            own.parent.mkdir(exist_ok=True)
            # On the disk at the end: a run that goes on makes them again.
            file.replace(own)
        shutil.rmtree(aside)

    def _create(self, group: Any, each: Stored, chunks: tuple[int, ...] | None) -> None:
        numcodecs: Any = importlib.import_module("numcodecs")
        size = max(1, each.dtype.itemsize)
        if chunks is None:
            chunks = tuple(chunk_shape(each.shape, size, CHUNK_BYTES)) if each.shape else ()
        filtered = each.level > 0 and self.storage.filtered
        compressor = numcodecs.Zstd(level=LEVEL, checksum=True) if filtered else None
        shuffle = [numcodecs.Shuffle(size)] if filtered and size > 1 else []
        checked = each.dtype.kind != "U" and not filtered
        fill: Any = np.nan if each.missing else ("" if each.dtype.kind == "U" else None)
        attrs = {name: _plain(value) for name, value in each.attrs.items()}
        group.create_array(
            each.name,
            shape=each.shape,
            chunks=chunks,
            dtype=each.dtype,
            fill_value=fill,
            # A chunk that has changed isn't read silently.
            filters=[numcodecs.CRC32()] if checked else shuffle or None,
            compressors=compressor,
            attributes={"_ARRAY_DIMENSIONS": list(each.dims), **attrs},
        )

    def array(self, name: str) -> Any:
        """Return a variable to read and to write."""
        if name not in self._arrays:
            zarr: Any = importlib.import_module("zarr")
            # A chunk of holes is written, too: what isn't there hasn't been computed.
            with zarr.config.set({"array.write_empty_chunks": True}):
                found = zarr.open_array(self.path / name, mode="r+", zarr_format=2)
            self._arrays[name] = found
        return self._arrays[name]

    def put(self, name: str, region: tuple[slice, ...], values: NDArray[Any]) -> NDArray[Any]:
        """Write a region, which is a whole chunk, or whole chunks."""
        array = self.array(name)
        ready = self.storage.numbers(values, name, array.dtype)
        array[region or ...] = ready
        first = [part.start // size for part, size in zip(region, array.chunks, strict=True)]
        last = [-(-part.stop // size) for part, size in zip(region, array.chunks, strict=True)]
        for point in np.ndindex(*(b - a for a, b in zip(first, last, strict=True))):
            key = ".".join(str(a + n) for a, n in zip(first, point, strict=True)) or "0"
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

    def finish(
        self, layout: Layout, variables: Sequence[Stored], checksums: dict[str, str]
    ) -> dict[str, str]:
        """Write what is known from the start, checksums and global attributes."""
        zarr: Any = importlib.import_module("zarr")
        found = dict(checksums)
        for variable in variables:
            array = self.array(variable.name)
            if variable.values is not None:
                array[...] = variable.values
                found[variable.name] = checksum(variable.values)
            array.attrs["checksum"] = found[variable.name]
        group = zarr.open_group(self.path, mode="r+", zarr_format=2)
        attrs = file_attributes(layout, variables)
        group.attrs.update({name: _plain(value) for name, value in attrs.items()})
        self._consolidate()
        for folder, _, files in os.walk(self.path):
            for file in files:
                to_disk(Path(folder) / file)
            to_disk(Path(folder))
        return {each.name: found[each.name] for each in variables}

    def _consolidate(self) -> None:
        """Write all metadata into one file, as readers like it."""
        found = {
            path.relative_to(self.path).as_posix(): json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(self.path.rglob(".z*"))
            if path.name != CONSOLIDATED
        }
        text = json.dumps({"metadata": found, "zarr_consolidated_format": 1}, indent=1)
        write_whole(self.path / CONSOLIDATED, text.encode())

    def nbytes(self) -> int:
        """Return the bytes of all files."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())


# A Zarr store seen as an open netCDF file, as far as reading one's metadata and values goes.

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
