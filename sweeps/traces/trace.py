"""A profiler trace as columns: what ran on the GPU, what launched it, and the steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Collective", "Launches", "Rows", "Spans", "Trace", "counted", "nanoseconds"]

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

    def only(self, chosen: NDArray[Any]) -> Any:
        """Return the chosen entries: by a mask, or by their places."""
        columns = {each.name: getattr(self, each.name)[chosen] for each in fields(self)}  # type: ignore[arg-type]
        return replace(self, **columns)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Rows(_Columns):
    """Events with a stream, a column each: what ran on the GPU, and what looks like it."""

    start: Floats  # In microseconds, as in the file
    duration: Floats  # In microseconds, as in the file
    name: NDArray[np.int32]  # Places in the trace's tables; -1 for no collective
    category: NDArray[np.int32]  # Places in the trace's tables; -1 for no collective
    collective: NDArray[np.int32]  # Places in the trace's tables; -1 for no collective
    device: Ints  # As in the file; -1 for what it doesn't say
    stream: Ints  # As in the file; -1 for what it doesn't say
    correlation: Ints  # As in the file; -1 for what it doesn't say

    def __len__(self) -> int:
        return len(self.start)

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

    def __len__(self) -> int:
        return len(self.start)

    def of(self, correlation: Ints) -> NDArray[np.intp]:
        """Return for each correlation the place of its launch; -1 where there is none."""
        if not len(self):
            return np.full(len(correlation), -1, dtype=np.intp)
        order = np.argsort(self.correlation, kind="stable")
        known = self.correlation[order]
        place = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
        found = (known[place] == correlation) & (correlation >= 0)
        return np.where(found, order[place], -1)


@dataclass(frozen=True, slots=True)
class Spans(_Columns):
    """Annotations of the host that are of use: steps, and names of collective operations."""

    start: Floats  # In microseconds
    duration: Floats  # In microseconds
    name: NDArray[np.int32]  # Places in the trace's tables
    category: NDArray[np.int32]  # Places in the trace's tables
    thread: NDArray[np.int32]  # Of the host

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Collective:
    """Which collective operation a kernel belongs to, as newer traces say it."""

    name: str  # Such as ``allreduce``
    group: str  # The process group: its name and ranks
    size: int  # How many ranks the group has; 0 if that isn't said


@dataclass(frozen=True, slots=True)
class Trace:
    """One profiler trace, as columns."""

    file: str  # The file's name, without its folder
    digest: str  # BLAKE2b (128 bits) of the file
    nbytes: int  # Bytes of JSON
    rank: int | None  # As the file says
    world_size: int | None  # As the file says
    properties: Mapping[int, Mapping[str, Any]]  # The GPUs of the machine, by number
    names: tuple[str, ...]  # The tables that columns point into
    categories: tuple[str, ...]  # The tables that columns point into
    collectives: tuple[Collective, ...]  # Likewise
    rows: Rows  # What ran on the GPU
    launches: Launches  # What the host called for it
    spans: Spans  # Steps and names of collective operations
    fractional: bool  # Whether starts have fractions of a microsecond (files since 2024)
    notes: tuple[str, ...] = ()  # What was left out, and why

    @property
    def label(self) -> str:
        """What the trace is called in a table: its rank, or its file's name."""
        return self.file if self.rank is None else f"rank {self.rank}"

    @property
    def device(self) -> str:
        """The GPU's name; empty if the file doesn't say."""
        used = self.rows.device[:1].tolist()
        found = self.properties.get(used[0] if used else 0) or {}
        found = found or next(iter(self.properties.values()), {})
        return str(found.get("name", ""))

    def step_numbers(self) -> Ints:
        """Return each span's number of a ProfilerStep; -1 for another span."""
        numbers = np.full(len(self.names), -1, dtype=np.int64)
        for place in np.unique(self.spans.name).tolist():
            found = _STEP.match(self.names[place])
            if found and len(found[1]) < 18:
                numbers[place] = int(found[1])
        return numbers[self.spans.name]
