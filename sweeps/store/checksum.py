"""A checksum of every variable: CRC-32 of its bytes, little-endian, in C order."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_CHECKSUM", "RunningChecksum", "checksum", "slabs", "stored_checksum"]

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
