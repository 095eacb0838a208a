"""How a layout is stored in netCDF-4: names, types, filters, chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.layout import Column, Layout
from sweeps.store.attributes import attributes, is_label, normalised, stored_dtype, values_of
from sweeps.store.checksum import NO_CHECKSUM
from sweeps.store.storage import Storage

if TYPE_CHECKING:
    import netCDF4

__all__ = ["FORMAT", "Stored", "create", "stored"]

FORMAT = ("sweeps_format", "1")
"""The global attribute that marks a file as ours, and the version of this format."""

_CHUNK_BYTES = 1 << 18
_CACHE_BYTES = 1 << 23
_FLAG_LEVEL = 1
_LEVEL = 4


@dataclass(frozen=True, slots=True)
class Stored:
    """One variable of the file."""

    name: str  # As they are in the file
    dims: tuple[str, ...]  # As they are in the file
    shape: tuple[int, ...]  # As they are in the file
    dtype: np.dtype[Any]  # As they are in the file
    attrs: dict[str, Any]  # Its attributes, but the checksum and the fill value
    missing: bool  # Whether NaN is its fill value
    level: int  # Of zlib; 0 where there is no filter
    values: NDArray[Any] | None  # What is known before anything is computed

    @property
    def nbytes(self) -> int:
        """Bytes of its values before any filter."""
        return math.prod(self.shape) * self.dtype.itemsize


def file_name(column: Column) -> str:
    """Return a column's name in the file: a label dimension's text can't have the dimension's."""
    if is_label(column) and column.name in column.dims:
        return f"{column.name}_name"
    return column.name


def stored(layout: Layout, storage: Storage) -> list[Stored]:
    """Plan the file's variables."""
    known = [_coordinate(layout, each) for each in layout.coordinates]
    return known + [_variable(layout, each, storage) for each in layout.variables]


def _coordinate(layout: Layout, column: Column) -> Stored:
    values = values_of(column)
    attrs = attributes(layout, column)
    name, dims = file_name(column), column.dims
    if is_label(column):
        values = _characters(values)
        dims = (*dims, f"{column.name}_strlen")
        attrs["_Encoding"] = "utf-8"
    return Stored(name, dims, values.shape, values.dtype, attrs, False, 0, values)


def _characters(text: NDArray[np.str_]) -> NDArray[np.bytes_]:
    """Return text as an array of UTF-8 bytes with one dimension more."""
    encoded = [each.encode() for each in text.reshape(-1).tolist()]
    width = max(1, *(len(each) for each in encoded))
    flat = np.array(encoded, dtype=f"S{width}").view("S1")
    return flat.reshape(*text.shape, width)


def _variable(layout: Layout, column: Column, storage: Storage) -> Stored:
    number = column.dtype.kind == "f"
    dtype = np.dtype(storage.dtype) if number else stored_dtype(column)
    attrs = attributes(layout, column)
    named = [file_name(each) for each in referenced(layout, column)]
    if named:
        attrs["coordinates"] = " ".join(named)
    if number and storage.digits is not None:
        attrs["significant_digits"] = np.int32(storage.digits)
        attrs["quantization"] = "granular bit rounding"
    level = 0
    is_flag = "flag_meanings" in attrs or dtype.itemsize <= np.dtype(np.int16).itemsize
    if column.dims and not number and is_flag:
        level = _FLAG_LEVEL
    elif column.dims and storage.filtered:
        level = _LEVEL
    shape = layout.shape(column)
    return Stored(column.name, column.dims, shape, dtype, attrs, number, level, None)


def referenced(layout: Layout, column: Column) -> list[Column]:
    """Return the coordinates that readers can't tell from their dimension's name alone."""
    return [
        each
        for each in layout.coordinates
        if file_name(each) not in layout.sizes and set(each.dims) <= set(column.dims)
    ]


def create(dataset: netCDF4.Dataset, layout: Layout, plan: list[Stored]) -> None:
    """Make dimensions, variables and attributes in an empty file; coordinates with their values.

    The caller holds the netCDF lock.
    """
    # Every cell is going to be written, so none is filled before.
    dataset.set_fill_off()
    for each in plan:
        for dim, size in zip(each.dims, each.shape, strict=True):
            if dim not in dataset.dimensions:
                dataset.createDimension(dim, size)
        _create_variable(dataset, each)
    texts = normalised(layout.attrs)
    named = {name for each in plan for name in str(each.attrs.get("coordinates", "")).split()}
    unnamed = [
        file_name(each)
        for each in layout.coordinates
        if file_name(each) not in layout.sizes and file_name(each) not in named
    ]
    if unnamed:
        texts["coordinates"] = " ".join(unnamed)
    dataset.setncatts({**texts, FORMAT[0]: FORMAT[1]})


def _create_variable(dataset: netCDF4.Dataset, each: Stored) -> None:
    options: dict[str, Any] = {"contiguous": True}
    if each.level:
        shuffle = each.dtype.itemsize > 1
        chunks = chunk_shape(each.shape, each.dtype.itemsize)
        options = {"compression": "zlib", "complevel": each.level, "shuffle": shuffle}
        options |= {"chunksizes": chunks, "chunk_cache": _CACHE_BYTES}
    fill = np.nan if each.missing else None
    variable = dataset.createVariable(each.name, each.dtype, each.dims, fill_value=fill, **options)
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    # The checksum is known at the end; its room is taken now.
    variable.setncatts({**each.attrs, "checksum": NO_CHECKSUM})
    if each.values is not None:
        variable[...] = each.values
    elif not each.level:
        # Its place in the file doesn't depend on which variable's block comes first.
        variable[(0,) * len(each.shape) or ...] = 0


def chunk_shape(shape: tuple[int, ...], itemsize: int, limit: int = _CHUNK_BYTES) -> list[int]:
    """Return a chunk that is a run of cells in C order, as blocks come: each is filtered once."""
    cells = max(1, limit // itemsize)
    chunk = []
    for size in reversed(shape):
        pieces = math.ceil(size / cells)
        chunk.append(math.ceil(size / pieces))
        cells = cells // size if pieces == 1 else 1
        cells = max(1, cells)
    return chunk[::-1]
