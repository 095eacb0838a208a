"""A trace file to columns."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from sweeps.traces.columns import Collective, Launches, Rows, Spans, Trace, counted
from sweeps.traces.events import Args, Event, whole
from sweeps.traces.file import EventFile
from sweeps.traces.foreign import Foreign
from sweeps.traces.origin import named_rank

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
