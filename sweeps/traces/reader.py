"""A trace file to columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.traces.events import EventFile
from sweeps.traces.trace import Collective, Launches, Rows, Spans, Trace, counted

__all__ = ["read_trace"]

Event = Mapping[str, Any]

# Categories of rows of the GPU, whatever their letters' case: those of new files and of old ones.
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
# On no stream, and yet no calls of the host.
_SYNCHRONISATION = frozenset({"Event Sync", "Context Sync"})
_COLLECTIVE = ("Collective name", "Group size", "Process Group Name", "Process Group Ranks")
_SPANS = ("ProfilerStep", "nccl:")
_LATEST = 9e15  # microseconds that are nanoseconds in 64 bits
_LARGEST = 1 << 62
_NOTHING: dict[str, Any] = {}
_ROWS = (np.float64, np.float64, np.int32, np.int32, np.int32, np.int64, np.int64, np.int64)
_LAUNCHES = (np.float64, np.int64, np.int32)
_SPANNING = (np.float64, np.float64, np.int32, np.int32, np.int32)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a profiler trace, with memory for its GPU rows alone."""
    file = EventFile(Path(path))
    taken = _Taken()
    for events in file.events():
        taken.take(events)
    return taken.trace(file)


class _Table(dict[Any, int]):
    """Things that occur often, each once with a number; columns hold the numbers."""

    def __missing__(self, thing: Any) -> int:
        place = self[thing] = len(self)
        return place


class _Kinds(dict[Any, str]):
    """What rows of a category are."""

    def __missing__(self, category: Any) -> str:
        known = isinstance(category, str)
        kind = ("gpu" if category.lower() in _ON_GPU else "host") if known else "none"
        self[category] = kind
        return kind


class _Columns:
    """Columns that grow by some rows at a time."""

    def __init__(self, types: Sequence[Any]) -> None:
        self.types = types
        self.parts: list[list[NDArray[Any]]] = [[np.empty(0, kind)] for kind in types]

    def made(self, *values: Sequence[Any]) -> list[NDArray[Any]]:
        """Return some rows' columns; raise where a value can't be."""
        return [np.array(v, dtype=t) for v, t in zip(values, self.types, strict=True)]

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
        self.rows, self.launches = _Columns(_ROWS), _Columns(_LAUNCHES)
        self.spans = _Columns(_SPANNING)
        self.fractional = False

    def take(self, events: Sequence[Event]) -> None:
        """Take what is of use from some events."""
        try:
            made = self._made(events)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            made = self._made([_sound(event) for event in events])
        for columns, part in zip((self.rows, self.launches, self.spans), made, strict=True):
            columns.add(part)

    def _made(self, events: Iterable[Event]) -> tuple[list[NDArray[Any]], ...]:
        rows: list[Event] = []
        launches: list[Event] = []
        spans: list[Event] = []
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

    def _made_rows(self, rows: Sequence[Event]) -> list[NDArray[Any]]:
        starts = [event.get("ts") for event in rows]
        args = [event.get("args") or _NOTHING for event in rows]
        both = list(zip(rows, args, strict=True))
        self.fractional |= float in set(map(type, starts))
        return self.rows.made(
            starts,
            [event.get("dur") for event in rows],
            [self.names[event["name"]] for event in rows],
            [self.categories[event["cat"]] for event in rows],
            [self._collective(own) if "Collective name" in own else -1 for own in args],
            [own["device"] if "device" in own else event.get("pid", -1) for event, own in both],
            [own["stream"] if "stream" in own else event.get("tid", -1) for event, own in both],
            [own.get("correlation", -1) for own in args],
        )

    def _made_launches(self, launches: Sequence[Event]) -> list[NDArray[Any]]:
        return self.launches.made(
            [event.get("ts") for event in launches],
            [event["args"]["correlation"] for event in launches],
            [self.threads[event.get("tid")] for event in launches],
        )

    def _made_spans(self, spans: Sequence[Event]) -> list[NDArray[Any]]:
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
        return Trace(
            file=file.path.name,
            digest=file.digest,
            nbytes=file.nbytes,
            rank=_known(about.get("rank")),
            world_size=_known(about.get("world_size")),
            properties=_properties(file.members.get("deviceProperties")),
            names=tuple(map(str, self.names)),
            categories=tuple(map(str, self.categories)),
            collectives=tuple(Collective(*each) for each in self.collectives),
            rows=rows,
            launches=launches.only(_in_time(launches.start)),
            spans=spans.only(_in_time(spans.start) & (spans.duration >= 0.0)),
            fractional=self.fractional,
            notes=notes,
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


def _sound(event: Event) -> Event:
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


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _properties(value: Any) -> dict[int, Mapping[str, Any]]:
    listed = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return {_whole(each.get("id", place)): each for place, each in enumerate(listed)}
