"""A trace file, read once from its beginning to its end, a part of it at a time.

A file is an object with ``traceEvents``, or a bare list of events, as JSON, plain or gzipped. It is
cut between two events every few hundred kilobytes, so that any file fits into memory. A cut in a
wrong place (in a list within an event, in a string) leaves text that isn't JSON, and is then moved.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from sweeps.errors import InputError, fault
from sweeps.traces.events import (
    as_text,
    decoded,
    decoded_foreign,
    made,
    made_foreign,
)
from sweeps.traces.origin import Tool, tool_of
from sweeps.traces.parts import PackedError, parts, readable_size

_MOST = 1 << 26  # bytes that are held while no place to cut is found
_MARK = b"\xef\xbb\xbf"  # some editors put it before UTF-8
_SPACE = b" \t\r\n"
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id)"')
_ALLOWED = "a PyTorch profiler's trace: JSON with traceEvents, plain or gzipped"
_HEAD = 1 << 16


Events = list[Any]  # Event, or ForeignEvent where another profiler wrote the file


class EventFile:
    """A trace file, read once from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self.nbytes = 0
        self.head = b""  # Of the JSON's bytes, for what wrote it
        self.form = ""  # In which another profiler writes rows; known with the first events
        self._digest = hashlib.blake2b(digest_size=16)  # twice as fast as SHA-256
        self._bare = False
        self._begun = False
        self._cut = b""  # Text between two events: the end of one, the beginning of the next

    @property
    def digest(self) -> str:
        """BLAKE2b (128 bits) of the bytes read, as they lie on the disk."""
        return self._digest.hexdigest()

    def events(self) -> Iterator[Events]:
        """Yield the events, some at a time."""
        try:
            with (
                self.path.open("rb") as file,
                closing(parts(file, self._digest.update)) as read,
            ):
                yield from self._events(self._counted(read))
        except PackedError as error:
            self._refuse(str(error))
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            self._refuse("no such file" if absent else f"can't be read: {error.strerror or error}")

    def tool(self) -> Tool:
        """Return what wrote the file."""
        return tool_of(self.head, json.dumps(list(self.members)), self.path.name)

    def _refuse(self, wrong: str) -> NoReturn:
        tool = self.tool()
        allowed = f"of {tool.name}: {tool.rows}" if tool.name and not tool.read else _ALLOWED
        raise InputError(fault("trace", str(self.path), wrong, allowed)) from None

    def _counted(self, read: Iterator[memoryview]) -> Iterator[memoryview]:
        for part in read:
            self.nbytes += len(part)
            if len(self.head) < _HEAD:
                self.head += part[:_HEAD]
            yield part

    def _events(self, read: Iterator[memoryview]) -> Iterator[Events]:
        buffer = self._opened(read)
        wanted = 0
        for part in read:
            buffer += part
            if len(buffer) < wanted:
                continue
            if (events := self._whole(buffer)) is not None:
                wanted = 0
                yield events
            elif len(buffer) > _MOST:
                self._not_json(buffer)
            else:
                wanted = 2 * len(buffer)
        while (events := self._whole(buffer)) is not None:
            yield events
        yield self._last(buffer)

    def _whole(self, buffer: bytearray) -> Events | None:
        """Take from a buffer the events that are whole; None where none is told from the next.

        What is left begins with the list's bracket, as what was taken did.
        """
        if not self._begun:
            self.form = self.tool().form
        for cut in self._cuts(buffer):
            end = buffer.rfind(cut)
            if end < 0:
                continue
            comma = buffer.index(b",", end)
            buffer[comma : comma + 1] = b"]"
            with memoryview(buffer) as view:
                events = (decoded_foreign if self.form else decoded)(view[: comma + 1])
            buffer[comma : comma + 1] = b","
            if events is not None:
                self._cut, self._begun = cut, True
                del buffer[1 : end + cut.index(b"{")]
                return events
        return None

    def _cuts(self, buffer: bytearray) -> Iterator[bytes]:
        """Yield what may stand between events: what did, and what does most often."""
        if self._cut:
            yield self._cut
        counts = Counter(_BETWEEN.findall(buffer, 0, _HEAD)) or Counter(_BETWEEN.findall(buffer))
        yield from (text for text, _ in counts.most_common(4))

    def _opened(self, read: Iterator[memoryview]) -> bytearray:
        """Read to the first event; return what was read from the list's bracket on."""
        buffer = bytearray()
        searched = 0
        for part in read:
            buffer += part
            if not searched:
                buffer = buffer.removeprefix(_MARK).lstrip(_SPACE)
            if buffer.startswith(b"["):
                self._bare = True
                return buffer
            match = _ARRAY.search(buffer, max(0, searched - 64))
            if match:
                self._take_members(bytes(buffer[: match.start()]).rstrip(_SPACE + b",") + b"}")
                return buffer[match.end() - 1 :]
            searched = len(buffer)
            if searched > _MOST:
                self._refuse(f"has no traceEvents in its first {readable_size(searched)}")
        return self._without_events(buffer)

    def _without_events(self, buffer: bytearray) -> NoReturn:
        if not buffer:
            self._refuse("is empty")
        try:
            content = json.loads(as_text(buffer), strict=False)
        except (ValueError, RecursionError):
            self._not_json(buffer)
        if isinstance(content, dict):
            if "traceEvents" in content:
                self._refuse("is JSON but not a trace: its traceEvents aren't a list")
            names = ", ".join(list(map(str, content))[:6]) or "nothing"
            self._refuse(f"is JSON but not a trace: it has no traceEvents, but {names}")
        self._refuse(f"is JSON but not a trace: {type(content).__name__}")

    def _take_members(self, text: bytes) -> None:
        try:
            content = json.loads(as_text(text), strict=False)
        except (ValueError, RecursionError) as error:
            self._refuse(f"isn't JSON before its traceEvents ({error})")
        self.members |= content

    def _last(self, buffer: bytearray) -> Events:
        """Parse what lies before the end of the file: the last events, and what follows them."""
        text = as_text(buffer)
        try:
            events, end = json.JSONDecoder(strict=False).raw_decode(text)
            rest = text[end:].strip()
            if rest and not self._bare:
                self.members |= json.loads("{" + rest.lstrip(", \t\r\n"), strict=False)
        except (ValueError, RecursionError):
            self._not_json(buffer)
        if self._bare and rest:
            self._not_json(buffer)
        if not (self._bare or rest):
            self._refuse_cut_off()
        return made_foreign(events) if self.form else made(events)

    def _not_json(self, buffer: bytearray) -> NoReturn:
        """Say where a file stops being JSON."""
        before = self.nbytes - len(buffer)
        text = as_text(buffer).rstrip()
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
