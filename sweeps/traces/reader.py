"""A trace file to columns."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.traces.foreign import Foreign
from sweeps.traces.origin import UNKNOWN, Tool, named_rank, tool_of

# The events of a trace file, a part of them at a time, so that any file fits into memory.
#
# A file is an object with ``traceEvents``, or a bare list of events, as JSON, plain or gzipped. It
# is read in parts of a quarter megabyte. Each part is cut between two events, and only those events
# are parsed that say something about the GPU: a profile of Python holds few of them. A cut in a
# wrong place (in a list within an event, in a string) leaves text that isn't JSON, and is then
# moved.

Event = dict[str, object]

_READ = 1 << 18
_PART = 1 << 18
_MOST = 1 << 26  # bytes that are held while no place to cut is found
_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"  # some editors put it before UTF-8
# How files begin that aren't JSON, and what they are.
_PACKED = {
    b"\xff\xfe": "is UTF-16 text, where JSON is UTF-8: save it so",
    b"\xfe\xff": "is UTF-16 text, where JSON is UTF-8: save it so",
    b"\x28\xb5\x2f\xfd": "is packed by zstd: unpack it",
    b"PK\x03\x04": "is a zip archive: unpack it",
    b"BZh": "is packed by bzip2: unpack it",
    b"\xfd7zXZ": "is packed by xz: unpack it",
}
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
_HEAD = 1 << 16


class EventFile:
    """A trace file, read once from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self.nbytes = 0
        self.head = b""  # Of the JSON's bytes, for what wrote it
        self._digest = hashlib.blake2b(digest_size=16)  # twice as fast as SHA-256
        self._bare = False
        self._every = False  # Whether all events are parsed, as another profiler has other marks

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
            absent = isinstance(error, FileNotFoundError)
            self._refuse("no such file" if absent else f"can't be read: {error.strerror or error}")

    def tool(self) -> Tool:
        """Return what wrote the file."""
        return tool_of(self.head, json.dumps(list(self.members)), self.path.name)

    def _refuse(self, wrong: str) -> NoReturn:
        tool = self.tool()
        allowed = f"of {tool.name}: {tool.rows}" if tool.name and not tool.read else _ALLOWED
        raise InputError(fault("trace", str(self.path), wrong, allowed)) from None

    # Bytes.

    def _parts(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the JSON's bytes."""
        first = file.read(_READ)
        if not first:
            self._refuse("is empty")
        self._digest.update(first)
        if packed := next((wrong for mark, wrong in _PACKED.items() if first.startswith(mark)), ""):
            self._refuse(packed)
        parts = self._inflated(file, first) if first.startswith(_GZIP) else self._plain(file, first)
        for part in parts:
            self.nbytes += len(part)
            if len(self.head) < _HEAD:
                self.head += part[:_HEAD]
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
            self._every = bool(self.tool().form) if cut is None else self._every
            cut = cut or _place_to_cut(buffer)
            offset = buffer.rfind(cut.text) if cut else -1
            chunk = bytes(buffer[:offset]) if cut and offset >= 0 else b""
            events = _telling(chunk, cut, every=self._every) if cut and offset >= 0 else None
            if cut and events is not None:
                del buffer[: offset + cut.brace]
                wanted = _PART
                yield events
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
            match = _ARRAY.search(buffer, max(0, searched - 64))
            if match:
                self._take_members(bytes(buffer[: match.start()]).rstrip(_SPACE + b",") + b"}")
                return buffer[match.end() :]
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
            if "traceEvents" in content:
                self._refuse("is JSON but not a trace: its traceEvents aren't a list")
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
        return [event for event in events if isinstance(event, dict)]

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


def _telling(chunk: bytes, cut: _Cut, *, every: bool) -> list[Event] | None:
    """Parse the events of a chunk, without the last one's brace, that tell something.

    Looking for the few places where something is told is many times faster than looking at each
    event, and most marks stand in events that the first one has found.
    """
    # Cut within an event's list, or braces in a string: parsing everything tells.
    if every or chunk.count(b"{") != chunk.count(b"}") + 1:
        return _parsed(chunk)
    ends: dict[int, int] = {}
    outside = chunk
    for mark in _TELLING:
        if mark not in outside:
            continue
        offset = chunk.find(mark)
        while offset >= 0:
            before, end = chunk.rfind(cut.text, 0, offset), chunk.find(cut.text, offset)
            end = len(chunk) if end < 0 else end
            ends[0 if before < 0 else before + cut.brace] = end
            offset = chunk.find(mark, end)
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
        values = json.loads(f"[{_text(events)}}}]", strict=False)
    except (ValueError, RecursionError):
        return None
    return [event for event in values if isinstance(event, dict)]


def _text(data: bytes) -> str:
    """Return bytes as text; what isn't UTF-8 is within names, and of no interest."""
    return data.decode("utf-8", errors="replace")


def readable_size(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    return f"{nbytes / 1e6:,.1f} MB" if nbytes >= 1e6 else f"{nbytes:,} bytes"


# A profiler trace as columns: what ran on the GPU, what launched it, and the steps.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEP = re.compile(r"ProfilerStep\s*[#*]?\s*(\d+)")


def nanoseconds(microseconds: Floats) -> Ints:
    """Return times as whole nanoseconds."""
    whole = np.floor(microseconds)
    part = np.rint((microseconds - whole) * 1000.0)
    return whole.astype(np.int64) * 1000 + part.astype(np.int64)


def counted(rows: int) -> str:
    """Return a number of rows in words."""
    return f"{rows:,} row" + "s" * (rows != 1)


class _Columns:
    """Columns of one length, that can be chosen from together."""

    __slots__ = ()

    start: Floats

    def __len__(self) -> int:
        return len(self.start)

    def only(self, chosen: NDArray[Any]) -> Any:
        """Return the chosen entries: by a mask, or by their places."""
        columns = {field.name: getattr(self, field.name)[chosen] for field in fields(self)}  # type: ignore[arg-type]
        return replace(self, **columns)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Rows(_Columns):
    """Events with a stream, a column each: what ran on the GPU, and what looks like it."""

    start: Floats  # In microseconds, as in the file
    duration: Floats
    # Places in the trace's tables; -1 for no collective
    name: NDArray[np.int32]
    category: NDArray[np.int32]
    collective: NDArray[np.int32]
    # As in the file; -1 for what it doesn't say
    device: Ints
    stream: Ints
    correlation: Ints

    def bounds(self) -> tuple[Ints, Ints]:
        """Return where rows start and end, in nanoseconds."""
        starts = nanoseconds(self.start)
        return starts, starts + nanoseconds(self.duration)


@dataclass(frozen=True, slots=True)
class Launches(_Columns):
    """What the host called to have the GPU do something: when, and which row it became."""

    start: Floats  # In microseconds
    correlation: Ints  # That of the row on the GPU
    thread: NDArray[np.int32]  # Of the host

    def of(self, correlation: Ints) -> NDArray[np.intp]:
        """Return for each correlation the place of its launch; -1 where there is none."""
        if not len(self):
            return np.full(len(correlation), -1, dtype=np.intp)
        order = np.argsort(self.correlation, kind="stable")
        known = self.correlation[order]
        index = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
        known_rows = (known[index] == correlation) & (correlation >= 0)
        return np.where(known_rows, order[index], -1)


@dataclass(frozen=True, slots=True)
class Spans(_Columns):
    """Annotations of the host that are of use: steps, and names of collective operations."""

    start: Floats  # In microseconds
    duration: Floats
    name: NDArray[np.int32]  # Places in the trace's tables
    category: NDArray[np.int32]
    thread: NDArray[np.int32]  # Of the host


@dataclass(frozen=True, slots=True)
class Collective:
    """Which collective operation a kernel belongs to, as newer traces say it."""

    name: str  # Such as ``allreduce``
    group: str  # The process group: its description, name and ranks
    size: int  # How many ranks the group has; 0 if that isn't said


@dataclass(frozen=True, slots=True)
class Trace:
    """One profiler trace, as columns."""

    file: str  # The file's name, without its folder
    digest: str  # BLAKE2b (128 bits) of the file
    nbytes: int  # Bytes of JSON
    rank: int | None  # As the file says, or its name
    world_size: int | None
    properties: Mapping[int, Mapping[str, Any]]  # The GPUs of the machine, by number
    names: tuple[str, ...]  # The tables that columns point into
    categories: tuple[str, ...]
    collectives: tuple[Collective, ...]  # Likewise
    rows: Rows  # What ran on the GPU
    launches: Launches  # What the host called for it
    spans: Spans  # Steps and names of collective operations
    fractional: bool  # Whether starts have fractions of a microsecond (files since 2024)
    notes: tuple[str, ...] = ()  # What was left out, and why
    tool: Tool = UNKNOWN  # What wrote the file

    @property
    def label(self) -> str:
        """What the trace is called in a table: its rank, or its file's name."""
        return self.file if self.rank is None else f"rank {self.rank}"

    @property
    def device(self) -> str:
        """The GPU's name; empty if the file doesn't say."""
        used = self.rows.device[:1].tolist()
        properties = self.properties.get(used[0] if used else 0) or {}
        properties = properties or next(iter(self.properties.values()), {})
        return str(properties.get("name", ""))

    def step_numbers(self) -> Ints:
        """Return each span's number of a ProfilerStep; -1 for another span."""
        numbers = np.full(len(self.names), -1, dtype=np.int64)
        for name in np.unique(self.spans.name).tolist():
            match = _STEP.match(self.names[name])
            if match and len(match[1]) < 18:
                numbers[name] = int(match[1])
        return numbers[self.spans.name]


AnyEvent = Mapping[str, Any]

# Categories of rows of the GPU, whatever their letters' case: those of new files and of old ones.
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
# On no stream, and yet no calls of the host.
_SYNCHRONISATION = frozenset({"Event Sync", "Context Sync"})
_COLLECTIVE = ("Collective name", "Group size", "Process Group Description", "Process Group Name",
               "Process Group Ranks")  # fmt: skip
_SPANS = ("ProfilerStep", "nccl:")
_LATEST = 9e15  # microseconds that are nanoseconds in 64 bits
_LARGEST = 1 << 62
_NOTHING: dict[str, object] = {}
_ROWS = (np.float64, np.float64, np.int32, np.int32, np.int32, np.int64, np.int64, np.int64)
_LAUNCHES = (np.float64, np.int64, np.int32)
_SPANNING = (np.float64, np.float64, np.int32, np.int32, np.int32)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a profiler trace, with memory for its GPU rows alone."""
    file = EventFile(Path(path))
    taken = _Taken()
    foreign = Foreign(file.tool)
    for events in file.events():
        taken.take(foreign.taken(events))
    taken.take(foreign.rest())
    trace = taken.trace(file)
    return replace(trace, notes=(*trace.notes, *foreign.notes(trace.tool.name)))


class _Table(dict[Any, int]):
    """Things that occur often, each once with a number; columns hold the numbers."""

    def __missing__(self, thing: Any) -> int:
        index = self[thing] = len(self)
        return index


class _Kinds(dict[Any, str]):
    """What rows of a category are."""

    def __missing__(self, category: Any) -> str:
        known = isinstance(category, str)
        kind = ("gpu" if category.lower() in _ON_GPU else "host") if known else "none"
        self[category] = kind
        return kind


class _ColumnParts:
    """Columns that grow by some rows at a time."""

    def __init__(self, types: Sequence[Any]) -> None:
        self.types = types
        self.parts: list[list[NDArray[Any]]] = [[np.empty(0, kind)] for kind in types]

    def made(self, *values: Sequence[Any]) -> list[NDArray[Any]]:
        """Return some rows' columns; raise where a value can't be."""
        made = [np.array(v, dtype=t) for v, t in zip(values, self.types, strict=True)]
        if any(column.ndim > 1 for column in made):
            raise TypeError  # lists of one length, such as an address in two halves
        return made

    def add(self, made: list[NDArray[Any]]) -> None:
        """Add some rows."""
        for parts, part in zip(self.parts, made, strict=True):
            parts.append(part)

    def whole(self) -> list[NDArray[Any]]:
        """Return the columns."""
        return [np.concatenate(parts) for parts in self.parts]


class _Taken:
    """What has been taken from a file so far."""

    def __init__(self) -> None:
        self.names, self.categories, self.threads = _Table(), _Table(), _Table()
        self.collectives, self.kinds = _Table(), _Kinds()
        self.rows, self.launches = _ColumnParts(_ROWS), _ColumnParts(_LAUNCHES)
        self.spans = _ColumnParts(_SPANNING)
        self.fractional = False

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Take what is of use from some events."""
        try:
            made = self._made(events)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            made = self._made([_sound(event) for event in events])
        for columns, part in zip((self.rows, self.launches, self.spans), made, strict=True):
            columns.add(part)

    def _made(self, events: Iterable[AnyEvent]) -> tuple[list[NDArray[Any]], ...]:
        rows: list[AnyEvent] = []
        launches: list[AnyEvent] = []
        spans: list[AnyEvent] = []
        kinds = self.kinds
        for event in events:
            if event.get("ph") != "X":
                continue
            kind = kinds[event.get("cat")]
            args = event.get("args") or _NOTHING
            if kind == "none":
                continue
            stream = args.get("stream", -1)
            # A call of HIP says its stream as text: an address.
            if kind == "gpu" or (stream.__class__ is int and stream != -1):
                rows.append(event)
            elif event["name"].startswith(_SPANS):
                spans.append(event)
            elif "correlation" in args and event["name"] not in _SYNCHRONISATION:
                launches.append(event)
        return self._made_rows(rows), self._made_launches(launches), self._made_spans(spans)

    def _made_rows(self, rows: Sequence[AnyEvent]) -> list[NDArray[Any]]:
        starts = [event.get("ts") for event in rows]
        args = [event.get("args") or _NOTHING for event in rows]
        both = list(zip(rows, args, strict=True))
        self.fractional |= float in set(map(type, starts))
        return self.rows.made(
            starts,
            [event.get("dur") for event in rows],
            [self.names[event["name"]] for event in rows],
            [self.categories[event["cat"]] for event in rows],
            [self._collective(arg) if "Collective name" in arg else -1 for arg in args],
            [arg["device"] if "device" in arg else event.get("pid", -1) for event, arg in both],
            [arg["stream"] if "stream" in arg else event.get("tid", -1) for event, arg in both],
            [arg.get("correlation", -1) for arg in args],
        )

    def _made_launches(self, launches: Sequence[AnyEvent]) -> list[NDArray[Any]]:
        return self.launches.made(
            [event.get("ts") for event in launches],
            [event["args"]["correlation"] for event in launches],
            [self.threads[event.get("tid")] for event in launches],
        )

    def _made_spans(self, spans: Sequence[AnyEvent]) -> list[NDArray[Any]]:
        return self.spans.made(
            [event.get("ts") for event in spans],
            [event.get("dur") for event in spans],
            [self.names[event["name"]] for event in spans],
            [self.categories[event["cat"]] for event in spans],
            [self.threads[event.get("tid")] for event in spans],
        )

    def _collective(self, args: Mapping[str, Any]) -> int:
        name, size, *group = _COLLECTIVE
        said = " ".join(str(args[each]) for each in group if each in args)
        return self.collectives[(str(args[name]), said, max(_whole(args.get(size, 0)), 0))]

    def trace(self, file: EventFile) -> Trace:
        """Return what has been taken as a trace."""
        rows, notes = _possible(Rows(*self.rows.whole()))
        launches, spans = Launches(*self.launches.whole()), Spans(*self.spans.whole())
        about = _mapping(file.members.get("distributedInfo"))
        rank = _known(about.get("rank"))
        return Trace(
            file=file.path.name,
            digest=file.digest,
            nbytes=file.nbytes,
            rank=named_rank(file.path) if rank is None else rank,
            world_size=_known(about.get("world_size")),
            properties=_properties(file.members.get("deviceProperties")),
            names=tuple(map(str, self.names)),
            categories=tuple(map(str, self.categories)),
            collectives=tuple(Collective(*collective) for collective in self.collectives),
            rows=rows,
            launches=launches.only(_in_time(launches.start)),
            spans=spans.only(_in_time(spans.start) & (spans.duration >= 0.0)),
            fractional=self.fractional,
            notes=notes,
            tool=file.tool(),
        )


def _possible(rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """Leave out rows that can't be; say so."""
    timed = _in_time(rows.start) & _in_time(rows.duration)
    negative = timed & (rows.duration < 0.0)
    notes = []
    if count := int(np.count_nonzero(~timed)):
        notes.append(f"left out: {counted(count)} without a start or a duration")
    if count := int(np.count_nonzero(negative)):
        notes.append(f"left out: {counted(count)} of negative duration")
    return rows.only(timed & ~negative) if notes else rows, tuple(notes)


def _sound(event: AnyEvent) -> AnyEvent:
    """Return an event with what can't be read in it made good: no time, no stream, no name."""
    args = _mapping(event.get("args"))
    device = args.get("device", event.get("pid"))
    numbers = {"stream": args.get("stream"), "correlation": args.get("correlation")}
    kept = {name: _whole(value) for name, value in numbers.items() if value is not None}
    labels = {name: args[name] for name in _COLLECTIVE if name in args}
    return {
        "ph": event.get("ph"),
        "cat": event["cat"] if isinstance(event.get("cat"), str) else None,
        "name": str(event.get("name", "")),
        "ts": _time(event.get("ts")),
        "dur": _time(event.get("dur")),
        "tid": _whole(event.get("tid")),
        "args": {**labels, **kept, "device": _whole(device)},
    }


def _time(value: Any) -> float:
    try:
        return value if value.__class__ is int and abs(value) < _LATEST else float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _whole(value: Any) -> int:
    """Return a whole number, also from text that ends in one (``stream 7``); else -1."""
    if isinstance(value, str):
        last = value.rpartition(" ")[2]
        return int(last) if last.isascii() and last.isdigit() and len(last) < 18 else -1
    if isinstance(value, int | float) and abs(value) < _LARGEST:
        return int(value)
    return -1


def _in_time(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.abs(values) < _LATEST  # neither is NaN


def _known(value: Any) -> int | None:
    number = _whole(value)
    return None if number < 0 else number


def _mapping(value: Any) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _properties(value: Any) -> dict[int, Mapping[str, object]]:
    listed = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return {_whole(each.get("id", index)): each for index, each in enumerate(listed)}
