"""A profiler trace as columns: what ran on the GPU, what launched it, and the steps."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from sweeps.traces.events import Args, Event, whole
from sweeps.traces.file import EventFile
from sweeps.traces.foreign import Foreign
from sweeps.traces.origin import UNKNOWN, Tool, named_rank

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


# Categories of rows of the GPU, whatever their letters' case: those of new files and of old ones.
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
# On no stream, and yet no calls of the host.
_SYNCHRONISATION = frozenset({"Event Sync", "Context Sync"})
_SPANS = ("ProfilerStep", "nccl:")
_LATEST = 9e15  # microseconds that are nanoseconds in 64 bits
_TYPES = {"d": np.float64, "i": np.int32, "q": np.int64}
_ROWS, _LAUNCHES, _SPANNING = "ddiiiqqq", "dqi", "ddiii"  # Types of columns


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a profiler trace, with memory for its GPU rows alone."""
    file = EventFile(Path(path))
    taken = _Taken()
    foreign = Foreign(file)
    for events in file.events():
        taken.take(foreign.taken(events) if file.form else events)
    taken.take(foreign.rest())
    trace = taken.trace(file)
    return replace(trace, notes=(*trace.notes, *foreign.notes(trace.tool.name)))


class _Table(dict[Any, int]):
    """Things that occur often, each once with a number; columns hold the numbers."""

    def __missing__(self, thing: Any) -> int:
        index = self[thing] = len(self)
        return index


class _Grown:
    """Columns that grow by some rows at a time."""

    def __init__(self, types: str) -> None:
        self.columns = [array(kind) for kind in types]

    def add(self, *values: Sequence[Any]) -> None:
        """Add some rows."""
        for column, part in zip(self.columns, values, strict=True):
            column.extend(part)

    def whole(self) -> list[NDArray[Any]]:
        """Return the columns."""
        return [np.asarray(column, dtype=_TYPES[column.typecode]) for column in self.columns]


class _Taken:
    """What has been taken from a file so far."""

    def __init__(self) -> None:
        self.names, self.categories, self.threads = _Table(), _Table(), _Table()
        self.collectives = _Table()
        self.host: set[str | None] = {None}  # Categories that aren't the GPU's, as far as met
        self.rows, self.launches, self.spans = map(_Grown, (_ROWS, _LAUNCHES, _SPANNING))
        self.fractional = False

    def take(self, events: Sequence[Event]) -> None:
        """Take what is of use from some events."""
        rows: list[Event] = []
        launches: list[Event] = []
        spans: list[Event] = []
        host, unset = self.host, UNSET
        for event in [
            event
            for event in events
            if event.args.correlation is not unset
            or event.args.stream is not unset
            or event.cat not in host
            or event.name[:1] in "Pn"  # of _SPANS
        ]:
            category, args, name = event.cat, event.args, event.name
            if category is None:
                continue
            stream = args.stream
            # A call of HIP says its stream as text: an address.
            if (category not in host and self._on_gpu(category)) or (
                stream is not unset and stream.__class__ is int and stream != -1
            ):
                rows.append(event)
            elif name[:1] in "Pn" and name.startswith(_SPANS):
                spans.append(event)
            elif args.correlation is not unset and name not in _SYNCHRONISATION:
                launches.append(event)
        self._add_rows(rows)
        self.launches.add(
            [event.ts for event in launches],
            [event.args.correlation for event in launches],
            [self.threads[event.tid] for event in launches],
        )
        self.spans.add(
            [event.ts for event in spans],
            [event.dur for event in spans],
            [self.names[event.name] for event in spans],
            [self.categories[event.cat] for event in spans],
            [self.threads[event.tid] for event in spans],
        )

    def _on_gpu(self, category: str) -> bool:
        if category in _ON_GPU or category.lower() in _ON_GPU:
            return True
        self.host.add(category)
        return False

    def _add_rows(self, rows: Sequence[Event]) -> None:
        starts = [event.ts for event in rows]
        args = [event.args for event in rows]
        self.fractional |= float in set(map(type, starts))
        self.rows.add(
            starts,
            [event.dur for event in rows],
            [self.names[event.name] for event in rows],
            [self.categories[event.cat] for event in rows],
            [-1 if each.collective is UNSET else self._collective(each) for each in args],
            [
                whole(event.pid) if each.device is UNSET else each.device
                for event, each in zip(rows, args, strict=True)
            ],
            [
                each.stream if isinstance(each.stream, int) else _stream(event)
                for event, each in zip(rows, args, strict=True)
            ],
            [-1 if each.correlation is UNSET else each.correlation for each in args],
        )

    def _collective(self, args: Args) -> int:
        group = (args.description, args.group, args.ranks)
        said = " ".join(str(each) for each in group if each is not UNSET)
        size = 0 if args.size is UNSET else max(whole(args.size), 0)
        return self.collectives[str(args.collective), said, size]

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


def _stream(event: Event) -> int:
    stream = event.args.stream
    return whole(event.tid if stream is UNSET else stream)


def _in_time(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.abs(values) < _LATEST  # neither is NaN


def _known(value: Any) -> int | None:
    number = whole(value)
    return None if number < 0 else number


def _mapping(value: Any) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _properties(value: Any) -> dict[int, Mapping[str, object]]:
    listed = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return {whole(each.get("id", index)): each for index, each in enumerate(listed)}
