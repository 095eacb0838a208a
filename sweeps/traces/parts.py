"""A file's bytes, a part at a time: read, unpacked and digested by a thread while others are used.

None of these three holds the interpreter, so that they cost time only where they are slowest.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import BinaryIO

_READ = 1 << 20
_PART = 1 << 18  # what is used at once stays in a core's cache
_AHEAD = 2  # reads that wait at most
_GZIP = b"\x1f\x8b"
# How files begin that are packed otherwise, or as another text, and what they are.
_PACKED = {
    b"\xff\xfe": "is UTF-16 text, where JSON is UTF-8: save it so",
    b"\xfe\xff": "is UTF-16 text, where JSON is UTF-8: save it so",
    b"\x28\xb5\x2f\xfd": "is packed by zstd: unpack it",
    b"PK\x03\x04": "is a zip archive: unpack it",
    b"BZh": "is packed by bzip2: unpack it",
    b"\xfd7zXZ": "is packed by xz: unpack it",
}


class PackedError(Exception):
    """Why bytes can't be unpacked."""


def parts(file: BinaryIO, digest: Callable[[bytes], object]) -> Generator[memoryview, None, None]:
    """Yield a file's bytes, unpacked where they are gzipped; digest them as they lie there."""
    ready: Queue[bytes | Exception] = Queue(_AHEAD)
    wanted = True

    def prepare() -> None:
        try:
            for part in _unpacked(file, digest):
                ready.put(part)
                if not wanted:
                    return
            ready.put(b"")
        except Exception as error:
            ready.put(error)

    thread = Thread(target=prepare, daemon=True)
    thread.start()
    try:
        while part := ready.get():
            if isinstance(part, Exception):
                raise part
            for start in range(0, len(part), _PART):
                yield memoryview(part)[start : start + _PART]
    finally:
        wanted = False
        while thread.is_alive():
            with suppress(Empty):
                ready.get(timeout=0.01)


def _unpacked(file: BinaryIO, digest: Callable[[bytes], object]) -> Iterator[bytes]:
    first = file.read(_READ)
    if packed := next((what for mark, what in _PACKED.items() if first.startswith(mark)), ""):
        raise PackedError(packed)
    read = _read(file, digest, first)
    yield from _inflated(read) if first.startswith(_GZIP) else read
    for _ in read:  # what follows gzip's last member
        pass


def _read(file: BinaryIO, digest: Callable[[bytes], object], data: bytes) -> Iterator[bytes]:
    while data:
        yield data
        digest(data)
        data = file.read(_READ)


def _inflated(read: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=31)
    nbytes = 0
    data = next(read)
    while True:
        try:
            part = inflater.decompress(data, _READ)
        except zlib.error as error:
            detail = str(error).rpartition(": ")[2]
            wrong = f"its gzip data is damaged after {readable_size(nbytes)} ({detail})"
            raise PackedError(wrong) from None
        if part:
            nbytes += len(part)
            yield part
        data = inflater.unconsumed_tail
        if inflater.eof:
            # A further member may follow, and zeros that fill a block.
            data = (inflater.unused_data or next(read, b"")).lstrip(b"\0")
            if not data:
                return
            inflater = zlib.decompressobj(wbits=31)
        elif not data:
            data = next(read, b"")
            if not data and not part:
                wrong = f"its gzip data is torn off after {readable_size(nbytes)} of JSON"
                raise PackedError(wrong)


def readable_size(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    return f"{nbytes / 1e6:,.1f} MB" if nbytes >= 1e6 else f"{nbytes:,} bytes"
