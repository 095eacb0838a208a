"""Traces of other profilers, their rows as those that PyTorch's profiler writes.

XLA's (``*.trace.json.gz`` of JAX) have a process for each device, ``/device:GPU:0``, with a thread
for each stream, ``Stream #14(Compute)``, or of a TPU ``XLA Ops`` and ``Async XLA Ops``; operations
have their ``hlo_category`` (openxla/xla, xla/tsl/profiler/utils/xplane_schema.cc).  Other threads
tell the same once more.  Ascend's (``trace_view.json`` of torch_npu) have a process ``Ascend
Hardware`` with ``Task Type``, and ``Communication`` (formerly ``HCCL``) with ``hcom_`` operations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from sweeps.traces.events import NEVER, Args, Event, ForeignEvent, number

if TYPE_CHECKING:
    from sweeps.traces.file import EventFile

XLA, ASCEND = "xla", "ascend"

_DEVICE = re.compile(r"/device:(GPU|TPU):(\d{1,6})")
_STREAM = re.compile(r"Stream #?(\d{1,9})")
_OPERATIONS, _ASYNC = "XLA Ops", "Async XLA Ops"
_COLLECTIVE = re.compile(
    r"^%?(ragged-)?(all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast)"
    r"|send|recv)\b"
)
_CONTROL = re.compile(r"^%?(while|conditional|call)\b")
_PRODUCT = ("convolution", "convolution fusion", "dot", "dot fusion")
_COPY = re.compile(r"^%?(copy|infeed|outfeed)(-start|-done)?\b")
_HARDWARE, _COMMUNICATION = "Ascend Hardware", ("Communication", "HCCL")
_WAITS = re.compile(r"(?i)event|notify|place_?holder|profiler|^model")
_MOVES = re.compile(r"(?i)memcpy|sdma|pcie")
_BEHIND = 1 << 20  # streams of communication are numbered from here on
_MOST = 1 << 22  # events that wait for the name of their process


class Foreign:
    """Makes events of another profiler what PyTorch's would be."""

    def __init__(self, file: EventFile) -> None:
        self.file = file
        self.processes: dict[Any, str] = {}
        self.threads: dict[tuple[Any, Any], str] = {}
        self.waiting: list[ForeignEvent] = []  # Their process or thread has no name yet
        self.rows = 0
        self.plain = 0  # Operations of a TPU without their category

    def taken(self, events: Sequence[ForeignEvent]) -> list[Event]:
        """Return what some events become."""
        rows: list[Event] = []
        for event in events:
            if event.ph == "M":
                self._named(event)
            elif event.ph == "X":
                if event.cat is not None and event.args.stream is not UNSET:
                    rows.append(_row(event, event.cat, event.args))
                elif (event.pid, event.tid) in self.threads:
                    rows += self._rows(event)
                elif len(self.waiting) < _MOST:
                    self.waiting.append(event)
        self.rows += len(rows)
        return rows

    def rest(self) -> list[Event]:
        """Return what those become that waited for a name, where there is one."""
        rows = [row for event in self.waiting for row in self._rows(event)]
        self.waiting = []
        self.rows += len(rows)
        return rows

    def notes(self, tool: str) -> Iterator[str]:
        """Yield what to know of how a tool's trace was read."""
        if self.rows:
            yield f"read as {tool} writes it; no whole public trace was there to check it"
        if self.rows and self.plain:
            lacking = f"{self.plain:,} operations have no hlo_category"
            yield f"{lacking}: GEMMs among them aren't told from others"

    def _named(self, event: ForeignEvent) -> None:
        name = _said(event, "name")
        if event.name == "process_name":
            self.processes[event.pid] = name
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = name

    def _rows(self, event: ForeignEvent) -> Iterator[Event]:
        whose = self.processes.get(event.pid, "")
        thread = self.threads.get((event.pid, event.tid), "")
        row_kind: tuple[str, int, int] | None = None
        if event.name.startswith("ProfilerStep"):
            yield _row(event, "user_annotation", Args())
        elif self.file.form == XLA:
            row_kind = self._of_xla(event, whose, thread)
        elif self.file.form == ASCEND:
            row_kind = _of_ascend(event, whose, thread)
        if row_kind is not None:
            category, device, stream = row_kind
            yield _row(event, category, Args(device=device, stream=stream))

    def _of_xla(self, event: ForeignEvent, whose: str, thread: str) -> tuple[str, int, int] | None:
        """Return a row's category, device and stream; None where it is none."""
        device, stream = _DEVICE.search(whose), _STREAM.match(thread)
        operations = device is not None and device[1] == "TPU" and thread in (_OPERATIONS, _ASYNC)
        if device is None or not (stream or operations):
            return None
        name, number = event.name, int(device[2])
        if stream is not None:
            moved = re.match(r"(?i)memcpy|memset", name)
            return (f"gpu_{moved[0].lower()}" if moved else "kernel"), number, int(stream[1])
        kind = _said(event, "category").strip('"')
        if _COLLECTIVE.match(name) or _COLLECTIVE.match(kind):
            return "communication", number, int(thread == _ASYNC)
        if thread == _ASYNC or _CONTROL.match(name) or _CONTROL.match(kind):
            return None
        if kind in _PRODUCT or re.match(r"%?(convolution|dot)\b", name):
            return "matrix product", number, 0
        if _COPY.match(name):
            return "memcpy", number, 0
        self.plain += not kind
        return "computation", number, 0


def _of_ascend(event: ForeignEvent, whose: str, thread: str) -> tuple[str, int, int] | None:
    """Return a row's category, device and stream; None where it is none."""
    name, task = event.name, _said(event, "task")
    if whose in _COMMUNICATION:
        number = _whole(event.tid)
        return ("communication", 0, _BEHIND + number) if name.startswith("hcom_") else None
    if whose != _HARDWARE or _WAITS.search(task or name):
        return None
    match = _STREAM.match(thread)
    stream = int(match[1]) if match else _whole(_said(event, "stream_id") or event.tid)
    if name.startswith("hcom_"):
        return "communication", 0, stream
    return ("memcpy" if _MOVES.search(task or name) else "kernel"), 0, stream


def _row(event: ForeignEvent, category: str, args: Args) -> Event:
    start, duration = number(event.ts, NEVER), number(event.dur, math.nan)
    return Event(category, event.name, event.pid, event.tid, start, duration, args)


def _said(event: ForeignEvent, name: str) -> str:
    """Return an argument as text; nothing where there is none."""
    value = getattr(event.args, name)
    return "" if value is UNSET else str(value)


def _whole(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
