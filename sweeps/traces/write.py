"""Predicted courses as trace files: Chrome's for people's eyes, Chakra's for simulators."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from overhead.communication.operation import Operation
from overhead.communication.totals import OPERATIONS, of_dimension
from overhead.evaluation import Evaluation
from overhead.overlap.pipeline import (
    EXPOSED,
    HIDDEN,
    OPTIMIZER,
    UNEXPLAINED,
    Ran,
    Task,
    slot_name,
    stage_row,
)
from overhead.overlap.timeline import COMMUNICATION, COMPUTATION, Span
from overhead.step import timeline as step
from sweeps.errors import refuse
from sweeps.store.publish import check_output, publish, system_calls, temporary

# Predicted timelines as Chrome trace JSON, which Perfetto and chrome://tracing open.

# Trace files have microseconds.
SCALE = 1e6
COPY = "gpu_memcpy"  # As the profiler of PyTorch names it


def chrome_trace(
    courses: Mapping[str, Sequence[Span]], marks: Mapping[str, float] | None = None
) -> dict[str, object]:
    """Return timelines as a Chrome trace: a process each, a thread each of its rows."""
    events: list[dict[str, object]] = []
    for pid, (name, spans) in enumerate(courses.items(), 1):
        rows = {row: tid for tid, row in enumerate(dict.fromkeys(s.row for s in spans), 1)}
        events.append(_about("process_name", pid, 0, name=name))
        # Without a place readers sort by name: stage 10 before stage 2.
        events.append(_about("process_sort_index", pid, 0, sort_index=pid))
        for row, tid in rows.items():
            events.append(_about("thread_name", pid, tid, name=row))
            events.append(_about("thread_sort_index", pid, tid, sort_index=tid))
        events += [
            {
                "ph": "X",
                "name": span.name,
                **_category(span, rows[span.row]),
                "pid": pid,
                "tid": rows[span.row],
                **_times(span),
            }
            for span in spans
        ]
    events += [
        {"ph": "i", "s": "g", "name": name, "cat": "mark", "pid": 1, "tid": 1, "ts": at * SCALE}
        for name, at in (marks or {}).items()
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"kind": "predicted"}}


def _times(span: Span) -> dict[str, float]:
    """Return start and duration in whole nanoseconds: what follows another begins as it ends."""
    start, end = (round(at * SCALE, 3) for at in (span.start, span.end))
    return {"ts": start, "dur": round(end - start, 3)}


def _category(span: Span, stream: int) -> dict[str, object]:
    """Return what a span is to readers of traces: work on a stream, or what holds it."""
    computing = span.row == step.PARTS and span.kind in step.COMPUTING_KINDS
    if computing or span.kind == OPTIMIZER:
        category = COMPUTATION
    elif span.row in (*step.STREAMS, step.TABLES) or span.row.startswith(step.SENDS):
        category = COMMUNICATION
    elif span.row == step.COPIES:
        category = COPY
    else:
        category = span.kind or span.row
    known = {"kind": span.kind} if span.kind else {}
    works = {"stream": stream} if category in (COMPUTATION, COMMUNICATION, COPY) else {}
    return {"cat": category, "args": {**works, **known}}


def _about(what: str, pid: int, tid: int, **details: Any) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": details}


def write_trace(
    courses: Mapping[str, Sequence[Span]],
    path: Path,
    *,
    overwrite: bool,
    marks: Mapping[str, float] | None = None,
) -> None:
    """Write timelines as a Chrome trace file, whole or not at all."""
    text = json.dumps(chrome_trace(courses, marks), indent=1)
    _write({path: [text.encode() + b"\n"]}, overwrite=overwrite)


def _write(files: Mapping[Path, Iterable[bytes]], *, overwrite: bool) -> None:
    """Write files, all of them whole or none."""
    targets = {path: check_output(path, overwrite=overwrite) for path in files}
    fresh = {path: temporary(target) for path, target in targets.items()}
    try:
        for path, parts in files.items():
            with system_calls(path), fresh[path].open("wb") as file:
                file.writelines(parts)
        for path, target in targets.items():
            with system_calls(path):
                publish(fresh[path], target, overwrite=overwrite)
    finally:
        for fresh_path in fresh.values():
            with contextlib.suppress(OSError):
                fresh_path.unlink()


# MLCommons Chakra's execution traces, which ASTRA-sim and others replay on a network of theirs: a
# file a rank of messages of its schema/protobuf/et_def.proto, each with its length before it.

SCHEMA = "1.0.0"
# Kinds of nodes and of collectives by their numbers in the schema.
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
# Fields of an attribute by type.
INT32, INT64, BOOL, TEXT = 7, 9, 27, 29
# Of all ranks' files together.
MOST_NODES = 2_000_000


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _field(number: int, value: int | bytes | str) -> bytes:
    """Return a field of a message; numbers that are 0 are left out, as the format has it."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


@cache
def _attribute(name: str, kind: int, value: int | str) -> bytes:
    body = _field(kind, value) or _varint(kind << 3) + b"\0"
    return _field(10, _field(1, name) + body)


def _message(data: bytes) -> bytes:
    return _varint(len(data)) + data


class Peer(NamedTuple):
    """What of a node differs from rank to rank: a group, or the ranks at a message's ends."""

    group: str = ""
    by: int = 0  # How many stages or, in a ring, ranks away the other end is


@dataclass
class Graph:
    """The nodes of a stage's ranks, which are alike."""

    bodies: list[tuple[bytes, Peer]] = field(default_factory=list)

    def add(
        self,
        name: str,
        kind: int,
        ends: tuple[float, float],
        after: Sequence[int],
        attributes: bytes = b"",
        peer: Peer = Peer(),  # noqa: B008
    ) -> int:
        """Add a node that runs when others are done; return its number."""
        number = len(self.bodies) + 1
        start, end = (round(SCALE * at) for at in ends)
        body = _field(1, number) + _field(2, name) + _field(3, kind)
        body += _field(5, b"".join(map(_varint, sorted(set(after))))) if after else b""
        body += _field(6, start) + _field(7, max(end - start, 0))
        body += _attribute("is_cpu_op", BOOL, 0) + attributes
        self.bodies.append((body, peer))
        return number


class Messages(NamedTuple):
    """Messages of one operation: how many, and how long each takes."""

    operation: Operation
    number: int
    time: float


@dataclass
class _Whole:
    """Whole numbers of what comes in parts, none of which is lost."""

    due: float = 0.0
    given: int = 0

    def take(self, part: float) -> int:
        self.due += part
        number = max(round(self.due) - self.given, 0)
        self.given += number
        return number


class _Stage:
    """A stage's graph: its passes in order, each with what it computes and sends."""

    def __init__(self, course: step.StepTimeline, stage: int, evaluation: Evaluation) -> None:
        self.course, self.stage, self.evaluation = course, stage, evaluation
        self.graph = Graph()
        self.spans = course.stages[stage_row(stage)]
        self.wholes: dict[Any, _Whole] = {}
        self.pp, self.virtual = (int(evaluation[n]) for n in ("pp", "virtual_pipeline_size"))
        self.tags = [
            {message.taker: at for at, message in enumerate(send)} for send in course.sends
        ]
        self.gradients: list[int] = []  # The last of them that is under way
        done: list[int] = []
        for ran in course.runs[stage]:
            done = self._pass(ran, done)
        self._after(done)

    def _value(self, name: str) -> float:
        return float(self.evaluation[name])

    def _whole(self, key: Any, part: float) -> int:
        return self.wholes.setdefault(key, _Whole()).take(part)

    def _pass(self, ran: Ran, after: list[int]) -> list[int]:
        """Add a pass; return what has to be done before the next."""
        graph, name = self.graph, slot_name(ran.slot, self.pp, self.virtual)
        ready = [*after, *self._received(ran.slot)]
        inside = [s for s in self.spans if ran.start <= s.start < ran.end and s.row != step.PASSES]
        parts = [span for span in inside if span.row == step.PARTS]
        hidden, exposed = self._split(ran, inside)
        ends = list(self._chain(hidden, ran.start, ready, name))
        computing = [s for s in parts if s.kind in step.COMPUTING_KINDS and s.name in LAYERS]
        time, pieces = sum(span.duration for span in computing), len(exposed) + 1
        at, last = ran.start, ready
        for piece in range(pieces):
            until = at + time / pieces
            if round(SCALE * until) > round(SCALE * at):
                last = [graph.add(f"{name} computing", COMPUTE, (at, until), last)]
            at = until
            if piece < len(exposed):
                at, last = self._sent(exposed[piece], at, last, name)
        for span in parts:
            if span not in computing and span.name not in step.LAYER and span.name != VOCABULARY:
                ends_of = (at, at + span.duration)
                last = [graph.add(f"{name} {span.name}", COMPUTE, ends_of, last)]
                at += span.duration
        done = [*last, *(number for numbers in ends for number in numbers)]
        self._gradients(ran, [s for s in inside if s.row == step.DATA], ready, done)
        for message in self.course.sends[self.stage]:
            if message.task in ran.slot:
                tag = self.tags[self.stage][message.taker]
                peer = Peer("to", message.target - self.stage)
                size = round(self._value("pp_message_bytes"))
                ends_of = (message.start, message.end)
                graph.add(f"{name} sent", SEND, ends_of, done, _size(size, tag), peer)
        return done

    def _received(self, slot: Sequence[Task]) -> Iterator[int]:
        """Yield what arrives from other stages for a pass."""
        for stage, sends in enumerate(self.course.sends):
            for send in sends:
                if send.target == self.stage and send.taker in slot:
                    size = round(self._value("pp_message_bytes"))
                    attributes = _size(size, self.tags[stage][send.taker])
                    name = f"{slot_name((send.task,), self.pp, self.virtual)} received"
                    peer = Peer("from", stage - self.stage)
                    yield self.graph.add(
                        name, RECEIVE, (send.start, send.end), [], attributes, peer
                    )

    def _split(self, ran: Ran, inside: Sequence[Span]) -> tuple[list[Messages], list[Messages]]:
        """Return a pass's messages beside computing and between it: as many as time is hidden."""
        hidden: list[Messages] = []
        exposed: list[Messages] = []
        for row, counts in self.course.messages(ran.slot).items():
            spans = [span for span in inside if row in (span.row, span.name)]
            whole = sum(span.duration for span in spans)
            behind = sum(span.duration for span in spans if span.kind == HIDDEN)
            times = {name: self._value(f"{name}_time") for name in counts}
            alone = sum(counts[name] * times[name] for name in counts)
            for name, count in counts.items():
                number = self._whole((row, name), count)
                share = behind / whole if whole > 0.0 else 0.0
                behind_count = min(self._whole((row, name, HIDDEN), number * share), number)
                time = times[name] * whole / alone if alone > 0.0 else 0.0
                hidden.append(Messages(OPERATIONS[name], behind_count, time))
                exposed.append(Messages(OPERATIONS[name], number - behind_count, time))
        return hidden, _in_turns(exposed)

    def _chain(
        self, messages: Sequence[Messages], at: float, after: list[int], name: str
    ) -> Iterator[list[int]]:
        """Add messages, each dimension's one after another; yield the last of each."""
        for dimension in dict.fromkeys(message.operation.dimension for message in messages):
            last, start = after, at
            sends = [message for message in messages if message.operation.dimension == dimension]
            for each_message in _in_turns(sends):
                start, last = self._sent(each_message, start, last, name)
            if last is not after:
                yield last

    def _sent(
        self, messages: Messages, at: float, after: list[int], name: str
    ) -> tuple[float, list[int]]:
        """Add messages one after another; return when the last is done, and its nodes."""
        last = after
        operation = messages.operation
        message = self._value(operation.message)
        words = f"{name} {operation.name}".strip()
        for _ in range(messages.number):
            ends = (at, at + messages.time)
            if operation.collective == "p2p":
                tag = len(self.graph.bodies) + 1
                both = (SEND, "next"), (RECEIVE, "previous")
                attributes = _size(round(message), tag)
                last = [
                    self.graph.add(words, kind, ends, last, attributes, Peer(which))
                    for kind, which in both
                ]
            else:
                size = message / (self.size(operation) if operation.collective == GATHER else 1)
                kind = _attribute("comm_type", INT64, COLLECTIVES[operation.collective])
                attributes = kind + _size(round(size))
                group = Peer(operation.group)
                last = [self.graph.add(words, COLLECTIVE, ends, last, attributes, group)]
            at = ends[1]
        return at, last

    def size(self, operation: Operation) -> int:
        """Return how many ranks an operation's groups have."""
        return group_of(self.evaluation, operation.group)[0]

    def _gradients(
        self, ran: Ran, spans: Sequence[Span], ready: list[int], done: list[int]
    ) -> None:
        """Add data-parallel communication beside a pass; weights have to be there at its end."""
        for span in spans:
            if span.kind == HIDDEN:
                messages = self._data(span)
                before = ready if span.name == "weights" else [*self.gradients, *ready]
                for last in self._chain(messages, span.start, before, "beside"):
                    if span.name == "weights":
                        done += last
                    else:
                        self.gradients = last

    def _data(self, span: Span) -> list[Messages]:
        """Return the messages of a span of data-parallel communication: its share of the step's."""
        kind = _data_kind(span.name)
        spans = [
            each_span
            for each_span in self.spans
            if _is_data(each_span) and _data_kind(each_span.name) == kind
        ]
        whole = sum(each_span.duration for each_span in spans)
        messages = []
        for operation in of_dimension("dp"):
            role = "weights" if operation.collective == GATHER else "gradients"
            if kind in ("all", role):
                part = self._count(operation) * span.duration / whole
                number = self._whole((kind, operation.name), part)
                messages.append(Messages(operation, number, self._value(f"{operation.name}_time")))
        return messages

    def _count(self, operation: Operation) -> float:
        return sum(float(count.of(self.evaluation)) for count in operation.counts)

    def _after(self, done: list[int]) -> None:
        """Add what follows the passes, in order."""
        last = [*done, *self.gradients]
        tied = OPERATIONS["tied_all_reduce"]
        for span in self.spans:
            if span.row == step.PASSES and span.name == step.TIED:
                number = round(self._count(tied))
                message = Messages(tied, number, span.duration / number)
                _, last = self._sent(message, span.start, last, "")
            elif span.row == step.PASSES and span.kind == EXPOSED:
                *_, last = [last, *self._chain(self._data(span), span.start, last, "")]
            elif span.row == step.PASSES and span.kind in (OPTIMIZER, UNEXPLAINED):
                last = [self.graph.add(span.name, COMPUTE, (span.start, span.end), last)]


GATHER, VOCABULARY = "all_gather", step.VOCABULARY
LAYERS = (step.AGAIN, step.COMPUTING)


def _size(nbytes: int, tag: int | None = None) -> bytes:
    """Return what a rank puts into a message, as Chakra counts it: of a gather its own part."""
    attribute = _attribute("comm_size", INT64, nbytes)
    return attribute if tag is None else attribute + _attribute("comm_tag", INT32, tag)


def _in_turns(messages: Sequence[Messages]) -> list[Messages]:
    """Return messages one by one, those of several operations in turns."""
    turns = [
        ((at + 0.5) / message.number, order, message._replace(number=1))
        for order, message in enumerate(messages)
        for at in range(message.number)
    ]
    return [group for *_, group in sorted(turns, key=lambda each: each[:2])]


def _is_data(span: Span) -> bool:
    hidden = span.row == step.DATA and span.kind == HIDDEN
    after = span.row == step.PASSES and span.kind == EXPOSED and span.name != step.TIED
    return hidden or after


def _data_kind(name: str) -> str:
    """Return what data-parallel communication sends: weights, gradients, or all."""
    weights, gradients = "weights" in name, "gradients" in name
    return (
        "weights"
        if weights and not gradients
        else "gradients"
        if not weights and gradients
        else "all"
    )


def group_of(evaluation: Evaluation, group: str) -> tuple[int, int]:
    """Return the size of a kind of groups, and the distance in rank of neighbours."""
    if group in ("cp_ring", "next", "previous"):
        apart = float(evaluation["tp"] * evaluation["cp_exchange_ranks"])
        return round(float(evaluation["ring_ranks"])), round(apart)
    labels = {**evaluation.labels, "group": group}
    evaluated = Evaluation(evaluation.given, labels)
    return round(float(evaluated["group_size"])), round(float(evaluated["group_stride"]))


class _Ranks:
    """Who belongs together, and what of nodes follows from it."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        sizes = [round(float(evaluation[name])) for name in ("tp", "cp", "dp", "pp")]
        self.block, self.pp = sizes[0] * sizes[1] * sizes[2], sizes[3]
        self.known: dict[str, tuple[int, int]] = {}
        self.groups: dict[tuple[int, ...], int] = {}  # Their numbers, from 1

    def members(self, rank: int, group: str) -> tuple[int, ...]:
        """Return the ranks of the group of a kind to which a rank belongs."""
        if group == "ends":
            stage = rank // self.block
            other = rank + (self.pp - 1 - 2 * stage) * self.block
            return tuple(sorted({rank, other}))
        if group not in self.known:
            self.known[group] = group_of(self.evaluation, group)
        size, stride = self.known[group]
        first = rank - rank // stride % size * stride
        return tuple(first + index * stride for index in range(size))

    def attributes(self, rank: int, peer: Peer) -> bytes:
        """Return what of a node is of one rank."""
        if not peer.group:
            return b""
        if peer.group in ("to", "from"):
            other = rank + peer.by * self.block
        elif peer.group in ("next", "previous"):
            ring = self.members(rank, peer.group)
            position = ring.index(rank) + (1 if peer.group == "next" else -1)
            other = ring[position % len(ring)]
        else:
            number = self.groups.setdefault(self.members(rank, peer.group), len(self.groups) + 1)
            return _attribute("pg_name", TEXT, str(number))
        ends = (rank, other) if peer.group in ("to", "next") else (other, rank)
        both = zip(("comm_src", "comm_dst"), ends, strict=True)
        return b"".join(_attribute(name, INT32, value) for name, value in both)


def chakra_traces(
    course: step.StepTimeline, evaluation: Evaluation
) -> tuple[Iterator[list[bytes]], Mapping[int, tuple[int, ...]]]:
    """Return each rank's trace, and the ranks of each group by its number once all are made.

    Times are those of the course; a simulator has its own of communication. As many messages as
    the step hides run beside computing, the others between its pieces.
    """
    stages = [_Stage(course, stage, evaluation).graph for stage in range(len(course.stages))]
    ranks = _Ranks(evaluation)
    nodes = ranks.block * sum(len(graph.bodies) for graph in stages)
    if nodes > MOST_NODES:
        wrong = f"{nodes:,} nodes in the traces of {ranks.block * ranks.pp:,} ranks"
        allowed = f"at most {MOST_NODES:,}: fewer micro-batches, or fewer GPUs"
        refuse("--timeline", "FILE.et", wrong, allowed)
    about = _field(1, SCHEMA) + _text("source", "overhead-sweeps: a predicted step")
    groups: dict[int, tuple[int, ...]] = {}

    def traces() -> Iterator[list[bytes]]:
        for rank in range(ranks.block * ranks.pp):
            known: dict[Peer, bytes] = {}
            parts = [_message(about)]
            for body, peer in stages[rank // ranks.block].bodies:
                if peer not in known:
                    known[peer] = ranks.attributes(rank, peer)
                parts.append(_message(body + known[peer]))
            yield parts
        groups.update({number: group for group, number in ranks.groups.items()})

    return traces(), groups


def _text(name: str, value: str) -> bytes:
    return _field(2, _field(1, name) + _field(TEXT, value))


def write_chakra(
    course: step.StepTimeline, evaluation: Evaluation, path: Path, *, overwrite: bool
) -> tuple[int, Path]:
    """Write a step as Chakra traces, ``name.RANK.et`` beside ``name.groups.json``: all or none.

    Returns how many ranks there are, and the file of groups.
    """
    traces, groups = chakra_traces(course, evaluation)
    files = {path.with_name(f"{path.stem}.{rank}.et"): trace for rank, trace in enumerate(traces)}
    groups_path = path.with_name(f"{path.stem}.groups.json")
    members = {str(number): group for number, group in groups.items()}
    _write({**files, groups_path: [json.dumps(members).encode() + b"\n"]}, overwrite=overwrite)
    return len(files), groups_path
