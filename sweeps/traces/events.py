"""The events of a trace file, a part of them at a time, so that any file fits into memory.

A file is an object with ``traceEvents``, or a bare list of events, as JSON, plain or gzipped. It is
read in parts of a quarter megabyte. Each part is cut between two events, and only those events are
parsed that say something about the GPU: a profile of Python holds few of them. A cut in a wrong
place (in a list within an event, in a string) leaves text that isn't JSON, and is then moved.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from sweeps.errors import InputError, fault

__all__ = ["EventFile", "readable_size"]

Event = dict[str, Any]

_READ = 1 << 18
_PART = 1 << 18
_MOST = 1 << 26  # bytes that are held while no place to cut is found
_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"  # some editors put it before UTF-8
_SPACE = b" \t\r\n"
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id)"')
# What says that an event is about the GPU: a call of the host or its row, a row without a call, the
# name of a collective operation, a step. The first is most frequent by far.
_TELLING = (
    b'"correlation"',
    b'"stream"',
    b'ernel"',
    b'emcpy"',
    b'emset"',
    b'"nccl:',
    b"ProfilerStep",
)
_ALLOWED = "a PyTorch profiler's trace: JSON with traceEvents, plain or gzipped"


class EventFile:
    """A trace file, read once from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self.nbytes = 0
        self._digest = hashlib.blake2b(digest_size=16)  # twice as fast as SHA-256
        self._bare = False

    @property
    def digest(self) -> str:
        """BLAKE2b (128 bits) of the bytes read, as they lie on the disk."""
        return self._digest.hexdigest()

    def events(self) -> Iterator[list[Event]]:
        """Yield the events that tell something, some at a time."""
        try:
            with self.path.open("rb") as file:
                yield from self._events(self._parts(file))
        except OSError as error:
            self._refuse(f"can't be read: {error.strerror or error}")

    def _refuse(self, wrong: str) -> NoReturn:
        raise InputError(fault("trace", str(self.path), wrong, _ALLOWED)) from None

    # Bytes.

    def _parts(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the JSON's bytes."""
        first = file.read(_READ)
        if not first:
            self._refuse("is empty")
        self._digest.update(first)
        parts = self._inflated(file, first) if first.startswith(_GZIP) else self._plain(file, first)
        for part in parts:
            self.nbytes += len(part)
            yield part

    def _plain(self, file: BinaryIO, data: bytes) -> Iterator[bytes]:
        while data:
            yield data
            data = self._more(file)

    def _more(self, file: BinaryIO) -> bytes:
        data = file.read(_READ)
        self._digest.update(data)
        return data

    def _inflated(self, file: BinaryIO, data: bytes) -> Iterator[bytes]:
        inflater = zlib.decompressobj(wbits=31)
        while True:
            try:
                part = inflater.decompress(data, _PART)
            except zlib.error as error:
                detail = str(error).rpartition(": ")[2]
                self._refuse(
                    f"its gzip data is damaged after {readable_size(self.nbytes)} ({detail})"
                )
            if part:
                yield part
            data = inflater.unconsumed_tail
            if inflater.eof:
                # A further member may follow, and zeros that fill a block.
                data = (inflater.unused_data or self._more(file)).lstrip(b"\0")
                if not data:
                    return
                inflater = zlib.decompressobj(wbits=31)
            elif not data:
                data = self._more(file)
                if not data and not part:
                    self._refuse(
                        f"its gzip data is torn off after {readable_size(self.nbytes)} of JSON"
                    )

    # Events.

    def _events(self, parts: Iterator[bytes]) -> Iterator[list[Event]]:
        buffer = self._opened(parts)
        cut: _Cut | None = None
        wanted = _PART
        for part in parts:
            buffer += part
            if len(buffer) < wanted:
                continue
            cut = cut or _place_to_cut(buffer)
            place = buffer.rfind(cut.text) if cut else -1
            found = _telling(bytes(buffer[:place]), cut) if cut and place >= 0 else None
            if cut and found is not None:
                del buffer[: place + cut.brace]
                wanted = _PART
                yield found
            elif len(buffer) > _MOST:
                self._not_json(buffer)
            else:
                cut, wanted = None, 2 * len(buffer)
        yield self._last(buffer)

    def _opened(self, parts: Iterator[bytes]) -> bytearray:
        """Read to the first event; return what was read behind it."""
        buffer = bytearray()
        searched = 0
        for part in parts:
            buffer += part
            if not searched:
                buffer = buffer.removeprefix(_MARK).lstrip(_SPACE)
            if buffer.startswith(b"["):
                self._bare = True
                return buffer[1:]
            found = _ARRAY.search(buffer, max(0, searched - 64))
            if found:
                self._take_members(bytes(buffer[: found.start()]).rstrip(_SPACE + b",") + b"}")
                return buffer[found.end() :]
            searched = len(buffer)
            if searched > _MOST:
                self._refuse(f"has no traceEvents in its first {readable_size(searched)}")
        return self._without_events(buffer)

    def _without_events(self, buffer: bytearray) -> NoReturn:
        if not buffer:
            self._refuse("is empty")
        try:
            content = json.loads(_text(bytes(buffer)), strict=False)
        except (ValueError, RecursionError):
            self._not_json(buffer)
        if isinstance(content, dict):
            names = ", ".join(list(map(str, content))[:6]) or "nothing"
            self._refuse(f"is JSON but not a trace: it has no traceEvents, but {names}")
        self._refuse(f"is JSON but not a trace: {type(content).__name__}")

    def _take_members(self, text: bytes) -> None:
        try:
            content = json.loads(_text(text), strict=False)
        except (ValueError, RecursionError) as error:
            self._refuse(f"isn't JSON before its traceEvents ({error})")
        self.members |= content

    def _last(self, buffer: bytearray) -> list[Event]:
        """Parse what lies before the end of the file: the last events, and what follows them."""
        text = "[" + _text(bytes(buffer))
        try:
            found, end = json.JSONDecoder(strict=False).raw_decode(text)
            rest = text[end:].strip()
            if rest and not self._bare:
                self.members |= json.loads("{" + rest.lstrip(", \t\r\n"), strict=False)
        except (ValueError, RecursionError):
            self._not_json(buffer)
        if self._bare and rest:
            self._not_json(buffer)
        if not (self._bare or rest):
            self._refuse_cut_off()
        return [event for event in found if isinstance(event, dict)]

    def _not_json(self, buffer: bytearray) -> NoReturn:
        """Say where a file stops being JSON."""
        before = self.nbytes - len(buffer)
        text = ("[" if before else "") + _text(bytes(buffer)).rstrip()
        try:
            json.JSONDecoder(strict=False).raw_decode(text)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string") or error.pos >= len(text):
                self._refuse_cut_off()
            self._refuse(f"isn't JSON near its byte {before + error.pos:,} ({error.msg})")
        except RecursionError:
            self._refuse(f"isn't a trace: nested too deeply near its byte {before:,}")
        self._refuse(f"isn't JSON after its events, near its byte {self.nbytes:,}")

    def _refuse_cut_off(self) -> NoReturn:
        self._refuse(f"is cut off after {readable_size(self.nbytes)} of JSON: its end is missing")


class _Cut:
    """Text that stands between two events: the end of one, the beginning of the next."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.brace = text.index(b"{")
        self.opening = text[self.brace :]


def _place_to_cut(buffer: bytearray) -> _Cut | None:
    """Return the most frequent text between events, if cutting there leaves JSON."""
    candidates = Counter(_BETWEEN.findall(buffer))
    for text, _ in candidates.most_common(4):
        cut = _Cut(text)
        if _parsed(bytes(buffer[: buffer.rfind(text)]).lstrip(_SPACE)) is not None:
            return cut
    return None


def _telling(chunk: bytes, cut: _Cut) -> list[Event] | None:
    """Parse the events of a chunk, without the last one's brace, that tell something.

    Looking for the few places where something is told is many times faster than looking at each
    event, and most marks stand in events that the first one has found.
    """
    # Cut within an event's list, or braces in a string: parsing everything tells.
    if chunk.count(b"{") != chunk.count(b"}") + 1:
        return _parsed(chunk)
    ends: dict[int, int] = {}
    outside = chunk
    for mark in _TELLING:
        if mark not in outside:
            continue
        place = chunk.find(mark)
        while place >= 0:
            before, end = chunk.rfind(cut.text, 0, place), chunk.find(cut.text, place)
            end = len(chunk) if end < 0 else end
            ends[0 if before < 0 else before + cut.brace] = end
            place = chunk.find(mark, end)
        starts = sorted(ends)
        gaps = zip([0, *(ends[start] for start in starts)], [*starts, None], strict=True)
        outside = b"".join([chunk[after:start] for after, start in gaps])
    if not ends:
        return []
    events = _parsed(b"},".join([chunk[start:end] for start, end in sorted(ends.items())]))
    # What isn't JSON on its own may be the half of an event.
    return _parsed(chunk) if events is None else events


def _parsed(events: bytes) -> list[Event] | None:
    """Parse events, the last one's brace missing; None where that isn't JSON."""
    try:
        found = json.loads(f"[{_text(events)}}}]", strict=False)
    except (ValueError, RecursionError):
        return None
    return [event for event in found if isinstance(event, dict)]


def _text(data: bytes) -> str:
    """Return bytes as text; what isn't UTF-8 is within names, and of no interest."""
    return data.decode("utf-8", errors="replace")


def readable_size(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    return f"{nbytes / 1e6:,.1f} MB" if nbytes >= 1e6 else f"{nbytes:,} bytes"
