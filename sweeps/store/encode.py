"""How a layout is stored in netCDF-4: names, types, filters, chunks."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Block, Column, Layout
from sweeps.errors import InputError, RunError, fault, nearest
from sweeps.store.metadata import attributes, is_label, normalised, stored_dtype, values_of

if TYPE_CHECKING:
    import netCDF4

# Fewer significant digits, so that what remains compresses well.

MOST_DIGITS = {8: 15, 4: 7}
"""The most decimal digits that can be asked for, by bytes of the type."""


def round_digits(values: NDArray[np.floating], digits: int) -> NDArray[np.float64]:
    """Round numbers to a power of two that keeps a number of decimal digits (GranularBR).

    Each number becomes the nearest multiple of the largest power of two that isn't above one
    unit of its last digit to keep: the mantissa ends in zeros, and the error stays within half
    a unit of that digit. NaN, infinities and zeros stay as they are.
    """
    numbers = np.asarray(values, dtype=np.float64)
    usual = np.isfinite(numbers) & (numbers != 0)
    magnitude = np.where(usual, np.abs(numbers), 1.0)
    leading = np.floor(np.log10(magnitude)) + 1
    step = np.floor((leading - digits) * math.log2(10)).astype(np.int32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(numbers, -step)), step)
    # The largest numbers could round up to infinity, the smallest have no digit to lose.
    usable = usual & np.isfinite(rounded) & (rounded != 0)
    return np.where(usable, rounded, numbers)


# What a user may choose about storage: types, digits, compression.


@dataclass(frozen=True, slots=True)
class Storage:
    """What a user may choose about storage."""

    compress: bool = False  # Lossless compression of the numbers
    digits: int | None = None  # Significant digits to keep; implies `compress`
    dtype: str = "f8"  # ``f8`` or ``f4``: the type that computed numbers are stored in

    def __post_init__(self) -> None:
        faults = []
        known = {"f8", "f4"}
        if self.dtype not in known:
            faults.append(fault("dtype", self.dtype, "can't hold results", "f8 or f4"))
        most = MOST_DIGITS[4 if self.dtype == "f4" else 8]
        if self.digits is not None and not 1 <= self.digits <= most:
            allowed = f"1 to {most} for {self.dtype}"
            faults.append(fault("digits", self.digits, "can't be kept", allowed))
        if faults:
            raise InputError(faults)

    @property
    def lossless(self) -> bool:
        """Whether the file holds exactly what was computed."""
        return self.digits is None and self.dtype == "f8"

    @property
    def filtered(self) -> bool:
        """Whether numbers pass through a filter."""
        return self.compress or self.digits is not None

    def numbers(self, values: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return computed numbers as they are stored."""
        if self.digits is not None and dtype.kind == "f":
            values = round_digits(values, self.digits)
        try:
            with np.errstate(over="raise", under="raise", invalid="ignore"):
                return np.ascontiguousarray(values, dtype=dtype).reshape(values.shape)
        except FloatingPointError:
            finite = np.abs(values[np.isfinite(values) & (values != 0)])
            wrong = f"{name} goes from {finite.min():.3g} to {finite.max():.3g} here"
            allowed = "f8 holds such numbers"
            raise InputError(fault("dtype", self.dtype, wrong, allowed)) from None


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
    return {each.name: Target(each, layout.shape(each)) for each in layout.variables}


def target_of(block: Block, known: Mapping[str, Target]) -> Target:
    """Return the target that a block is for."""
    if block.name not in known:
        message = f"a block of '{block.name}', which the layout lacks; {nearest(block.name, known)}"
        raise RunError(message)
    return known[block.name]
