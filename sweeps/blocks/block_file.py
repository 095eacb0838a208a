"""A block's file: arrays, what they are, and a checksum over all of it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.store.durable import NewFile

__all__ = ["BlockFile", "Record", "looks_complete", "read_block"]

MAGIC = b"sweeps block 1\n\0"
# Where the index begins, its length, whose block this is, and the checksum of all before it.
TRAILER = struct.Struct("<QQ32sI16s")
ALIGNED = 16


@dataclass(frozen=True, slots=True)
class Record:
    """One array of a block."""

    about: Mapping[str, Any]  # What it is, as JSON has it
    values: NDArray[Any]  # Its values


class BlockFile:
    """Writes a block's file: records as they come, then the index and the checksum."""

    def __init__(self, file: NewFile, owner: bytes) -> None:
        self._file, self._owner = file, owner
        self._crc = 0
        self._index: list[dict[str, Any]] = []
        self._write(MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        self._crc = zlib.crc32(data, self._crc)
        self._file.write(data)

    def put(self, about: Mapping[str, Any], values: NDArray[Any]) -> None:
        """Append an array."""
        array = np.asarray(values)
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        self._write(bytes(-self._file.nbytes % ALIGNED))
        entry = {"at": self._file.nbytes, "dtype": plain.dtype.str, "shape": list(array.shape)}
        self._index.append({**about, **entry})
        self._write(plain.reshape(-1).view(np.uint8).data)

    def finish(self) -> int:
        """Write the index and the checksum."""
        at = self._file.nbytes
        index = json.dumps(self._index).encode()
        self._write(index)
        head = TRAILER.pack(at, len(index), self._owner, 0, MAGIC)[:-20]
        self._write(head)
        self._file.write(struct.pack("<I16s", self._crc, MAGIC))
        return self._crc


def looks_complete(path: Path, owner: bytes | None = None) -> bool:
    """Tell whether a block's file is there and ends as it should, without reading all of it."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < TRAILER.size + len(MAGIC):
                return False
            stream.seek(-TRAILER.size, 2)
            at, length, found, _, magic = TRAILER.unpack(stream.read())
    except OSError:
        return False
    whole = magic == MAGIC and at + length + TRAILER.size == size
    return bool(whole and owner in {None, found})


def read_block(path: Path, owner: bytes) -> list[Record] | None:
    """Read a block's file, if it is what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < TRAILER.size + len(MAGIC):
        return None
    at, length, found, crc, magic = TRAILER.unpack(content[-TRAILER.size :])
    if found != owner or magic != MAGIC or at + length + TRAILER.size != len(content):
        return None
    if zlib.crc32(memoryview(content)[:-20]) != crc:
        return None
    records = []
    for entry in json.loads(content[at : at + length]):
        dtype, shape = np.dtype(entry.pop("dtype")), tuple(entry.pop("shape"))
        count = int(np.prod(shape, dtype=np.int64))
        values = np.frombuffer(content, dtype, count, entry.pop("at")).reshape(shape)
        native = values.astype(dtype.newbyteorder("="), copy=False)
        records.append(Record(entry, native))
    return records
