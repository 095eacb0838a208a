"""The events of a trace, with what of each is read and nothing else.

msgspec decodes typed JSON several times faster than the standard library does: what isn't asked for
is checked and passed over. It takes less than that does, so that text it refuses (NaN, bytes that
are no UTF-8, a start in words) is decoded by ``json`` and made good, to the same events.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, UnsetType, field

_LARGEST = 1 << 63
NEVER = 1 << 62  # A start that isn't stated: after all that can be, and no fraction
Whole = Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST - 1)]


class Args(msgspec.Struct, frozen=True, gc=False):
    """What is read of an event's arguments; unset where the file doesn't state it."""

    device: Whole | UnsetType = UNSET
    stream: Whole | str | UnsetType = UNSET  # A call of HIP states it as text: an address
    correlation: Whole | UnsetType = UNSET
    collective: Any = field(default=UNSET, name="Collective name")
    size: Any = field(default=UNSET, name="Group size")
    description: Any = field(default=UNSET, name="Process Group Description")
    group: Any = field(default=UNSET, name="Process Group Name")
    ranks: Any = field(default=UNSET, name="Process Group Ranks")


class ForeignArgs(Args, frozen=True, gc=False):
    """The arguments that other profilers write."""

    name: Any = UNSET  # Of a process or a thread
    category: Any = field(default=UNSET, name="hlo_category")
    task: Any = field(default=UNSET, name="Task Type")
    stream_id: Any = field(default=UNSET, name="Stream Id")


class Event(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """An event with a duration, its members in the order in which PyTorch writes them."""

    cat: str | None = None
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: Whole | float = NEVER
    dur: Whole | float = math.nan
    args: Args = Args()


class ForeignEvent(msgspec.Struct, gc=False):
    """An event of another profiler, which may name a process, and whose times may be text."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: Whole | float | str = NEVER
    dur: Whole | float | str = math.nan
    args: ForeignArgs = ForeignArgs()


def _decoder() -> msgspec.json.Decoder[list[Any]]:
    """Return a decoder that passes over events of another kind: flows, counters, names."""
    marks = string.printable.replace("X", "")
    others = [msgspec.defstruct("Other", [], tag_field="ph", tag=m, gc=False) for m in marks]
    return msgspec.json.Decoder(GenericAlias(list, (reduce(or_, others, Event),)))


_DECODER, _FOREIGN = _decoder(), msgspec.json.Decoder(list[ForeignEvent])


def decoded(text: bytes | memoryview) -> list[Event] | None:
    """Return the events with a duration in a JSON list; None where it isn't JSON."""
    with suppress(msgspec.DecodeError, RecursionError):
        return [event for event in _DECODER.decode(text) if event.__class__ is Event]
    values = _objects(text)
    return None if values is None else made(values)


def decoded_foreign(text: bytes | memoryview) -> list[ForeignEvent] | None:
    """Return the events of another profiler in a JSON list; None where it isn't JSON."""
    with suppress(msgspec.DecodeError, RecursionError):
        return _FOREIGN.decode(text)
    values = _objects(text)
    return None if values is None else made_foreign(values)


def _objects(text: bytes | memoryview) -> list[Any] | None:
    try:
        return cast(list[Any], json.loads(as_text(text), strict=False))
    except (ValueError, RecursionError):
        return None


def as_text(data: bytes | bytearray | memoryview) -> str:
    """Return bytes as text; what isn't UTF-8 is within names, and of no interest."""
    return str(data, "utf-8", "replace")


def made(values: Iterable[Any]) -> list[Event]:
    """Return events, with what can't be read in them made good: no time, no stream, no name."""
    return [
        Event(*_made(value, Args))
        for value in values
        if isinstance(value, dict) and value.get("ph") == "X"
    ]


def made_foreign(values: Iterable[Any]) -> list[ForeignEvent]:
    """Return events of another profiler, likewise."""
    return [
        ForeignEvent(str(value.get("ph")), *_made(value, ForeignArgs))
        for value in values
        if isinstance(value, dict)
    ]


def _made(value: Mapping[str, Any], kind: type[Args]) -> Iterator[Any]:
    category, args = value.get("cat"), value.get("args")
    yield category if isinstance(category, str) else None
    yield str(value.get("name", ""))
    yield _number_or_text(value.get("pid", -1))
    yield _number_or_text(value.get("tid", -1))
    yield _start(value.get("ts"))
    yield number(value.get("dur"), math.nan)
    yield _args(args if isinstance(args, dict) else {}, kind)


def _args(args: Mapping[str, Any], kind: type[Args]) -> Any:
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    told = {name: args[written] for name, written in names if written in args}
    for name in ("stream", "correlation"):
        if told.get(name, 0) is None:
            del told[name]
    if "stream" in told:
        told["stream"] = _number_or_text(told["stream"], _LARGEST)
    for name in told.keys() & {"device", "correlation"}:
        told[name] = whole(told[name])
    return kind(**told)


def _start(value: Any) -> float:
    if value.__class__ is int:
        return value if abs(value) < _LARGEST else NEVER
    return number(value, NEVER)


def number(value: Any, otherwise: float) -> float:
    """Return a number, also from text, as Ascend's profiler writes times."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _number_or_text(value: Any, largest: float = math.inf) -> int | str:
    if isinstance(value, str) or (value.__class__ is int and abs(value) < largest):
        return value
    return whole(value)


def whole(value: Any) -> int:
    """Return a whole number, also from text that ends in one (``stream 7``); else -1."""
    if isinstance(value, str):
        last = value.rpartition(" ")[2]
        return int(last) if last.isascii() and last.isdigit() and len(last) < 18 else -1
    if isinstance(value, int | float) and abs(value) < _LARGEST:
        return int(value)
    return -1
