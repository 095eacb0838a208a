"""How a layout is stored in netCDF-4: names, types, filters, chunks, and where it comes from."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import random
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import OPERATION_STATUS, STATUS, Block, Column, Layout
from sweeps.errors import InputError, RunError, fault, nearest, refuse, tell_all
from sweeps.store.constants import CHECKSUM, CONSTANTS, as_attributes, checksum_of

if TYPE_CHECKING:
    import netCDF4

_ABSOLUTE = re.compile(r"(?:(?<=[=,])|^)(?:[/~]|\.\./)[^,]*")


def created() -> str:
    """Return the time now, or the one that ``SOURCE_DATE_EPOCH`` names."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        return f"{datetime.fromtimestamp(int(text), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        wrong, allowed = "is not a time", "whole seconds since 1970"
        raise InputError(fault("SOURCE_DATE_EPOCH", text, wrong, allowed)) from None


def versions(names: Sequence[str] = ("overhead-sweeps", "numpy", "netCDF4")) -> dict[str, str]:
    """Return the versions of the distributions that a result comes from."""
    return {name: version for name in names if (version := _version(name))}


@cache
def _version(name: str) -> str:
    """Return a distribution's version, empty where it isn't installed; it is read once."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(name)
    except PackageNotFoundError:
        return ""


@cache
def code_digest(packages: Sequence[str] = ("overhead", "sweeps")) -> str:
    """Return a digest of the source that computes results; it is read once a process."""
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in sorted(spec.submodule_search_locations or ()) if spec else ():
            root = Path(folder)
            for file in sorted(root.rglob("*.py")):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{package}/{file.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def fingerprint(spec_text: str, code: str, options: Mapping[str, object] | None = None) -> str:
    """Return what identifies a file: the same one means the same numbers in it."""
    parts = {"spec": spec_text, "code": code, "options": dict(options or {})}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def portable(command: Sequence[str]) -> str:
    """Return a command line without the places of the machine that it ran on."""

    def last_name(match: re.Match[str]) -> str:
        return match.group().rstrip("/").rpartition("/")[2]

    return shlex.join(_ABSOLUTE.sub(last_name, argument) for argument in command)


def provenance(
    *,
    title: str,
    spec_text: str,
    command: Sequence[str],
    fingerprint: str,
    summary: str = "",
    references: str = "",
    comment: str = "",
) -> dict[str, str]:
    """Return the global attributes of a dataset."""
    when = created()
    attrs = {
        "Conventions": "CF-1.11",
        "title": title or "Sweep",
        "summary": summary,
        "institution": "not stated",
        "source": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "history": f"{when} {portable(command)}",
        "references": references or "none",
        "comment": comment or "none",
        "date_created": when,
        "spec": spec_text,
        "spec_sha256": hashlib.sha256(spec_text.encode()).hexdigest(),
        "fingerprint": fingerprint,
    }
    return {name: text for name, text in attrs.items() if text}


# CF attributes, the same in memory and in a file: names, types, and what belongs together.

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RESERVED = {"_FillValue", "_Encoding", "coordinates", "checksum"}
_FLAGS = {"flag_values", "flag_masks"}


def is_label(column: Column) -> bool:
    """Tell whether a column holds text."""
    return column.dtype.kind in "UOST"


def labels(values: NDArray[Any]) -> NDArray[np.str_]:
    """Return text as numpy's fixed-width strings, as narrow as they can be."""
    array = np.asarray(values)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return np.array([str(each) for each in array.reshape(-1)], dtype=np.str_).reshape(array.shape)


def values_of(column: Column) -> NDArray[Any]:
    """Return a coordinate's values: labels as text, truth values as small integers."""
    values = np.asarray(column.values)
    if is_label(column):
        return labels(values)
    return values.astype(stored_dtype(column), copy=False)


def stored_dtype(column: Column) -> np.dtype[Any]:
    """Return the type of a column that isn't text, in memory and in an exact file."""
    return np.dtype(np.int8) if column.dtype.kind == "b" else column.dtype.newbyteorder("=")


def normalised(
    attrs: Mapping[str, object], flags: np.dtype[Any] | None = None
) -> dict[str, object]:
    """Return attributes as netCDF gives them back, so that memory and file agree."""
    return {
        name: value
        if type(value) is str
        else _normalised(name, value, flags if name in _FLAGS else None)
        for name, value in attrs.items()
    }


def _normalised(name: str, value: object, dtype: np.dtype[Any] | None) -> object:
    if isinstance(value, str):
        return str(value)
    array = np.asarray(value, dtype=dtype)
    if array.dtype.kind not in "iuf" or array.size == 0 or array.ndim > 1:
        refuse(name, value, "is not an attribute", "text, or one number or several")
    return array.reshape(-1)[0] if array.size == 1 else array


def attributes(layout: Layout, column: Column) -> dict[str, object]:
    """Return a column's attributes, with the names of the flags that explain its holes."""
    attrs = normalised(column.attrs, stored_dtype(column) if not is_label(column) else None)
    if column.dtype.kind == "f" and any(variable is column for variable in layout.variables):
        wanted = {f"{column.name}_status"}
        if OPERATION_STATUS not in (each.name for each in layout.variables):
            # Of two, what isn't computed cell by cell has neither.
            wanted.add(STATUS)
        names = [
            each.name
            for each in layout.variables
            if each.name in wanted and set(each.dims) <= set(column.dims)
        ]
        if names:
            attrs.setdefault("ancillary_variables", " ".join(names))
    return attrs


def check_layout(layout: Layout) -> None:
    """Check that a layout can be a CF file."""
    faults = [
        fault(dim, size, "a dimension has no value", "one or more")
        for dim, size in layout.sizes.items()
        if size < 1
    ]
    columns = (*layout.coordinates, *layout.variables)
    names = [column.name for column in columns]
    faults += [
        fault("name", name, "can't be a netCDF name", "letters, digits and underscores")
        for name in dict.fromkeys((*layout.sizes, *names))
        if not _NAME.fullmatch(name)
    ]
    faults += [
        fault("name", name, "is given twice", "each name once")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    # Of labels the characters, and of constants the names among the attributes.
    taken = {f"{dim}_strlen" for dim in (*layout.sizes, *names)}
    taken |= {each.name for each in layout.coordinates if not each.dims} & {
        *layout.attrs,
        "coordinates",
        CONSTANTS,
        CHECKSUM,
        FORMAT[0],
    }
    faults += [
        fault("name", name, "is taken by the file itself", "another name")
        for name in dict.fromkeys((*layout.sizes, *names))
        if name in taken
    ]
    faults += [
        fault(f"{each.name}.{name}", value, "is set by the file itself", "leave it out")
        for each in columns
        for name, value in each.attrs.items()
        if name in _RESERVED
    ]
    faults += [
        _wrong_values(layout, coordinate)
        for coordinate in layout.coordinates
        if _is_wrong(layout, coordinate)
    ]
    tell_all(faults)


def _is_wrong(layout: Layout, column: Column) -> bool:
    shape = None if column.values is None else np.asarray(column.values).shape
    placed = column.name not in layout.sizes or column.dims == (column.name,)
    return shape != layout.shape(column) or not placed


def _wrong_values(layout: Layout, column: Column) -> str:
    wanted = " x ".join(str(size) for size in layout.shape(column)) or "one"
    return fault(column.name, column.dims, "a coordinate that doesn't fit", f"{wanted} values")


def contiguous(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values as they are stored."""
    return np.ascontiguousarray(values, dtype=dtype).reshape(values.shape)


# A checksum of every variable: CRC-32 of its bytes, little-endian, in C order.

NO_CHECKSUM = "crc32:unknown "
"""As long as any other."""

_SLAB_BYTES = 1 << 24


def _update(values: NDArray[np.generic], crc: int) -> int:
    if values.dtype.byteorder == ">" or (values.dtype.byteorder == "=" and not _LITTLE):
        values = values.astype(values.dtype.newbyteorder("<"))
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data, crc)


_LITTLE = np.dtype("<i4") == np.dtype("i4")


def _text(crc: int) -> str:
    return f"crc32:{crc:08x}"


def checksum(values: NDArray[np.generic]) -> str:
    """Return the checksum of an array."""
    return _text(_update(values, 0))


class RunningChecksum:
    """The checksum of an array whose regions are given one after the other.

    It costs one pass over each region while that is in cache, as long as the regions follow each
    other in C order. When they don't, the array has to be read back.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._total = math.prod(shape)
        self._crc = 0
        self._next: int | None = 0

    def add(self, region: tuple[slice, ...], values: NDArray[np.generic]) -> None:
        """Take a region's values into account."""
        if self._next is None or values.size == 0:
            return
        if _offset(region, self._shape) == self._next:
            self._crc = _update(values, self._crc)
            self._next += values.size
        else:
            self._next = None

    def result(self) -> str | None:
        """Return the checksum; None if the regions came in another order."""
        return _text(self._crc) if self._next == self._total else None


def _offset(region: tuple[slice, ...], shape: tuple[int, ...]) -> int | None:
    """Return at which cell in C order a region starts; None if it isn't one run of cells."""
    offset = 0
    run_has_begun = False
    for each, size in zip(region, shape, strict=True):
        extent = each.stop - each.start
        if run_has_begun and extent != size:
            return None
        run_has_begun = run_has_begun or extent != 1
        offset = offset * size + each.start
    return offset


def slabs(
    shape: tuple[int, ...], itemsize: int, limit: int = _SLAB_BYTES
) -> Iterator[tuple[slice, ...]]:
    """Cut an array into runs of cells, in C order, each of a bounded size."""
    cells = max(1, limit // itemsize)
    axis = len(shape)
    while axis and math.prod(shape[axis - 1 :]) <= cells:
        axis -= 1
    whole = tuple(slice(0, size) for size in shape[axis:])
    if axis == 0:
        yield whole
        return
    step = max(1, cells // math.prod(shape[axis:]))
    size = shape[axis - 1]
    for index in np.ndindex(*shape[: axis - 1]):
        leading = tuple(slice(i, i + 1) for i in index)
        for start in range(0, size, step):
            yield (*leading, slice(start, min(start + step, size)), *whole)


def stored_checksum(variable: Any) -> str:
    """Return the checksum of what a file holds; the caller holds the netCDF lock."""
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    crc = 0
    for region in slabs(variable.shape, variable.dtype.itemsize):
        crc = _update(np.asarray(variable[region or ...]), crc)
    return _text(crc)


FORMAT = ("sweeps_format", "2")
"""The global attribute that marks a file as ours, and the version of this format.

Before it, labels had names of their own, ending in ``_name``, and constants were coordinates.
"""
READ = ("1", "2")
"""The versions that are read."""

_CHUNK_BYTES = 1 << 18
_CACHE_BYTES = 1 << 23
_FLAG_LEVEL = 1
_LEVEL = 4


@dataclass(frozen=True, slots=True)
class Stored:
    """One variable of the file."""

    # As they are in the file
    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any]  # Its attributes, but the checksum and the fill value
    missing: bool  # Whether NaN is its fill value
    level: int  # Of zlib; 0 where there is no filter
    values: NDArray[Any] | None  # What is known before anything is computed

    @property
    def nbytes(self) -> int:
        """Bytes of its values before any filter."""
        return math.prod(self.shape) * self.dtype.itemsize


def stored(layout: Layout, *, compress: bool) -> list[Stored]:
    """Plan the file's variables; constants are attributes of the file."""
    known = [
        _coordinate(layout, coordinate) for coordinate in layout.coordinates if coordinate.dims
    ]
    return known + [_variable(layout, variable, compress) for variable in layout.variables]


def _coordinate(layout: Layout, column: Column) -> Stored:
    values = values_of(column)
    attrs = attributes(layout, column)
    name, dims = column.name, column.dims
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


def _variable(layout: Layout, column: Column, compress: bool) -> Stored:
    number = column.dtype.kind == "f"
    dtype = np.dtype(np.float64) if number else stored_dtype(column)
    attrs = attributes(layout, column)
    named = [each.name for each in referenced(layout, column)]
    if named:
        attrs["coordinates"] = " ".join(named)
    level = 0
    is_flag = "flag_meanings" in attrs or dtype.itemsize <= np.dtype(np.int16).itemsize
    if column.dims and not number and is_flag:
        level = _FLAG_LEVEL
    elif column.dims and compress:
        level = _LEVEL
    shape = layout.shape(column)
    return Stored(column.name, column.dims, shape, dtype, attrs, number, level, None)


def referenced(layout: Layout, column: Column) -> list[Column]:
    """Return the coordinates that readers can't tell from their dimension's name alone."""
    return [
        coordinate
        for coordinate in layout.coordinates
        if coordinate.dims
        and coordinate.name not in layout.sizes
        and set(coordinate.dims) <= set(column.dims)
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
    dataset.setncatts(file_attributes(layout, plan))


def global_attributes(layout: Layout) -> dict[str, object]:
    """Return a dataset's attributes, its constants among them, as they are in memory."""
    constants = (
        (column.name, values_of(column), attributes(layout, column))
        for column in layout.coordinates
        if not column.dims
    )
    return normalised(layout.attrs) | as_attributes(constants)


def file_attributes(layout: Layout, plan: Sequence[Stored]) -> dict[str, object]:
    """Return the attributes of a file."""
    attrs = global_attributes(layout)
    if CONSTANTS in attrs:
        attrs[CHECKSUM] = checksum_of(attrs)
    named = {name for each in plan for name in str(each.attrs.get("coordinates", "")).split()}
    unnamed = [
        column.name
        for column in layout.coordinates
        if column.dims and column.name not in layout.sizes and column.name not in named
    ]
    if unnamed:
        attrs["coordinates"] = " ".join(unnamed)
    return {**attrs, FORMAT[0]: FORMAT[1]}


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


# Blocks as they come: each is checked, and every cell is to be given exactly once.

_PRIME = 2**127 - 1


class Coverage:
    """Tells whether regions cover an array exactly once, without remembering them.

    Cell ``(i, j, ..)`` weighs ``r**i * s**j * ..`` modulo a prime, r, s, .. being random. The
    weight of a region is a product over its dimensions of geometric sums, so it costs the same
    whatever the region's size. All cells given once each weigh what the whole array weighs; for
    any other collection the two are polynomials in r, s, .. that differ, and they agree by chance
    with a probability below ``sum(shape) / 2**126`` (Schwartz and Zippel).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        draw = random.Random(str(shape))  # repeatable: nobody chooses blocks to deceive it
        self._bases = [draw.randrange(2, _PRIME - 1) for _ in shape]
        self._whole = self._weight([(0, size) for size in shape])
        self._weighed = 0
        self.total = math.prod(shape)
        self.cells = 0

    def _weight(self, bounds: list[tuple[int, int]]) -> int:
        # The common factors 1/(r - 1) of the geometric sums are left out on both sides.
        weight = 1
        for base, (start, stop) in zip(self._bases, bounds, strict=True):
            weight = weight * (pow(base, stop, _PRIME) - pow(base, start, _PRIME)) % _PRIME
        return weight

    def add(self, region: tuple[slice, ...]) -> None:
        """Count a region."""
        bounds = [(each.start, each.stop) for each in region]
        self._weighed = (self._weighed + self._weight(bounds)) % _PRIME
        self.cells += math.prod(stop - start for start, stop in bounds)

    @property
    def complete(self) -> bool:
        """Whether every cell has been given exactly once."""
        return self.cells == self.total and self._weighed == self._whole

    def fault(self) -> str:
        """Return what is wrong, in words."""
        if self.cells < self.total:
            return f"{self.total - self.cells} of its {self.total} cells were not computed"
        if self.cells > self.total:
            return f"{self.cells - self.total} cells were computed more than once"
        return "some cells were not computed, and others more than once"


class Target:
    """One variable that blocks are placed into."""

    def __init__(self, column: Column, shape: tuple[int, ...]) -> None:
        self.column = column
        self.shape = shape
        self.coverage = Coverage(shape)

    def place(self, block: Block) -> tuple[tuple[slice, ...], NDArray[np.generic]]:
        """Check a block and count its cells."""
        name = self.column.name
        if len(block.region) != len(self.shape):
            ours = ", ".join(self.column.dims)
            message = f"{name}: a block of {len(block.region)} dimensions; it has ({ours})"
            raise RunError(message)
        region = tuple(
            slice(*each.indices(size)[:2])
            for each, size in zip(block.region, self.shape, strict=True)
        )
        wanted = tuple(max(0, each.stop - each.start) for each in region)
        values = np.asarray(block.values)
        if values.shape != wanted or any(each.step not in {None, 1} for each in block.region):
            message = f"{name}: a block of shape {values.shape} for the region {block.region}"
            raise RunError(message)
        if not fits(values, self.column.dtype):
            message = f"{name}: a block of {values.dtype} has values that {self.column.dtype} lacks"
            raise RunError(message)
        self.coverage.add(region)
        return region, values

    def finish(self) -> None:
        """Check that nothing is missing."""
        if not self.coverage.complete:
            message = f"{self.column.name}: {self.coverage.fault()}; nothing was kept"
            raise RunError(message)


def fits(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether values keep their meaning in a type."""
    if values.dtype == dtype:
        return True
    if dtype.kind == "f":
        return values.dtype.kind in "fiub"
    if values.dtype.kind not in "iub" or dtype.kind not in "iub":
        return False
    if np.can_cast(values.dtype, dtype, "safe") or values.size == 0:
        return True
    limits = np.iinfo(np.int8 if dtype.kind == "b" else dtype)
    return int(values.min()) >= limits.min and int(values.max()) <= limits.max


def targets(layout: Layout) -> dict[str, Target]:
    """Return a target for each variable of a layout."""
    return {
        variable.name: Target(variable, layout.shape(variable)) for variable in layout.variables
    }


def target_of(block: Block, known: Mapping[str, Target]) -> Target:
    """Return the target that a block is for."""
    if block.name not in known:
        message = f"a block of '{block.name}', which the layout lacks; {nearest(block.name, known)}"
        raise RunError(message)
    return known[block.name]
