"""Traces of other profilers, their rows as those that PyTorch's profiler writes.

XLA's (``*.trace.json.gz`` of JAX) have a process for each device, ``/device:GPU:0``, with a thread
for each stream, ``Stream #14(Compute)``, or of a TPU ``XLA Ops`` and ``Async XLA Ops``; operations
have their ``hlo_category`` (openxla/xla, xla/tsl/profiler/utils/xplane_schema.cc).  Other threads
tell the same once more.  Ascend's (``trace_view.json`` of torch_npu) have a process ``Ascend
Hardware`` with ``Task Type``, and ``Communication`` (formerly ``HCCL``) with ``hcom_`` operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweeps.traces.origin import Tool

Event = Mapping[str, object]
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

    def __init__(self, tool: Callable[[], Tool]) -> None:
        self.tool = tool  # What wrote the file, known from its first part on
        self.form: str | None = None
        self.processes: dict[Any, str] = {}
        self.threads: dict[tuple[Any, Any], str] = {}
        self.waiting: list[Event] = []  # Their process or thread has no name yet
        self.rows = 0
        self.plain = 0  # Operations of a TPU without their category

    def taken(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return what some events become."""
        if self.form is None:
            self.form = self.tool().form
        if not self.form:
            return events
        rows: list[Event] = []
        for event in events:
            if event.get("ph") == "M":
                self._named(event)
            elif event.get("ph") == "X":
                if isinstance(event.get("cat"), str) and "stream" in _args(event):
                    rows.append(event)
                elif self._key(event) in self.threads:
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

    def _key(self, event: Event) -> tuple[Any, Any]:
        return _hashable(event.get("pid")), _hashable(event.get("tid"))

    def _named(self, event: Event) -> None:
        name = str(_args(event).get("name", ""))
        process, thread = self._key(event)
        if event.get("name") == "process_name":
            self.processes[process] = name
        elif event.get("name") == "thread_name":
            self.threads[process, thread] = name

    def _rows(self, event: Event) -> Iterator[Event]:
        process, _ = key = self._key(event)
        whose, thread = self.processes.get(process, ""), self.threads.get(key, "")
        name = str(event.get("name", ""))
        if name.startswith("ProfilerStep"):
            yield {**event, **_times(event), "cat": "user_annotation", "name": name, "args": {}}
            return
        row_kind = self._of_xla(event, whose, thread) if self.form == XLA else None
        if self.form == ASCEND:
            row_kind = _of_ascend(event, whose, thread)
        if row_kind is not None:
            category, device, stream = row_kind
            args = {"device": device, "stream": stream}
            yield {"ph": "X", "cat": category, "name": name, **_times(event), "args": args}

    def _of_xla(self, event: Event, whose: str, thread: str) -> tuple[str, int, int] | None:
        """Return a row's category, device and stream; None where it is none."""
        device, stream = _DEVICE.search(whose), _STREAM.match(thread)
        operations = device is not None and device[1] == "TPU" and thread in (_OPERATIONS, _ASYNC)
        if device is None or not (stream or operations):
            return None
        name, number = str(event.get("name", "")), int(device[2])
        if stream is not None:
            moved = re.match(r"(?i)memcpy|memset", name)
            return (f"gpu_{moved[0].lower()}" if moved else "kernel"), number, int(stream[1])
        kind = str(_args(event).get("hlo_category", "")).strip('"')
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


def _of_ascend(event: Event, whose: str, thread: str) -> tuple[str, int, int] | None:
    """Return a row's category, device and stream; None where it is none."""
    name, args = str(event.get("name", "")), _args(event)
    task = str(args.get("Task Type", ""))
    if whose in _COMMUNICATION:
        number = _whole(event.get("tid"))
        return ("communication", 0, _BEHIND + number) if name.startswith("hcom_") else None
    if whose != _HARDWARE or _WAITS.search(task or name):
        return None
    match = _STREAM.match(thread)
    stream = int(match[1]) if match else _whole(args.get("Stream Id", event.get("tid")))
    if name.startswith("hcom_"):
        return "communication", 0, stream
    return ("memcpy" if _MOVES.search(task or name) else "kernel"), 0, stream


def _times(event: Event) -> dict[str, float]:
    """Return a start and a duration, which Ascend writes as text."""
    times = {}
    for name in ("ts", "dur"):
        try:
            times[name] = float(event.get(name))  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            times[name] = float("nan")
    return times


def _args(event: Event) -> Mapping[str, object]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | str | float) else str(value)


def _whole(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
