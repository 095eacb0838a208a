"""A profiler trace as columns: what ran on the GPU, what launched it, and the steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.traces.origin import UNKNOWN, Tool

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
