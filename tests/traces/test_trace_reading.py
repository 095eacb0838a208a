"""Trace files in all the forms they come in, beside a plain parse of the whole file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.traces import parts
from sweeps.traces.columns import Trace, nanoseconds
from sweeps.traces.file import EventFile
from sweeps.traces.overlap import analyse
from sweeps.traces.ranks import split_devices
from sweeps.traces.reader import read_trace
from tests.tables import keyed
from tests.traces.make import GEMM, NCCL, OTHER, call, kernel, launched, step, write

Event = dict[str, Any]

ROWS = [
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "GPU 0"}},
    step(3, 0, 50),
    *launched(GEMM, 1, 10, 20, 7, 1),
    *launched(NCCL, 2, 15, 20, 20, 2),
    {"ph": "s", "id": 1, "pid": 9, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g"},
    kernel("Memcpy DtoD (Device -> Device)", 40, 5, cat="gpu_memcpy"),
]


def contents(trace: Trace) -> list[Any]:
    """Return all columns, with texts for their places in tables: these depend on the parts."""
    tables = {"name": trace.names, "category": trace.categories}
    found: list[Any] = []
    for columns in (trace.rows, trace.launches, trace.spans):
        for name in columns.__slots__:
            values = getattr(columns, name).tolist()
            table = tables.get(name)
            found.append([table[value] for value in values] if table else values)
    return found


def same(left: Trace, right: Trace) -> bool:
    return contents(left) == contents(right)


def test_what_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", ROWS, distributedInfo={"rank": 2, "world_size": 4})
    trace = read_trace(path)
    assert (trace.rank, trace.world_size, trace.file) == (2, 4, "t.json")
    assert [trace.names[k] for k in trace.rows.name] == [GEMM, NCCL, ROWS[-1]["name"]]
    assert trace.rows.stream.tolist() == [7, 20, 7]
    assert trace.rows.correlation.tolist() == [1, 2, -1]
    assert trace.launches.correlation.tolist() == [1, 2]
    assert trace.step_numbers().tolist() == [3]
    assert not trace.fractional
    assert trace.notes == ()


FORMS: dict[str, Callable[[str, list[Event]], bytes]] = {
    "plain": lambda text, _: text.encode(),
    "gzipped": lambda text, _: gzip.compress(text.encode()),
    "several members": lambda text, _: b"".join(
        gzip.compress(text.encode()[k : k + 100]) for k in range(0, len(text), 100)
    ),
    "gzip, padded": lambda text, _: gzip.compress(text.encode()) + b"\0" * 700,
    "bare list": lambda _, events: json.dumps(events).encode(),
    "bare list, indented": lambda _, events: json.dumps(events, indent=1).encode(),
    "indented": lambda text, _: json.dumps(json.loads(text), indent=2).encode(),
    "on one line, dense": lambda text, _: json.dumps(
        json.loads(text), separators=(",", ":")
    ).encode(),
    "one event a line": lambda _, events: (
        b'{"traceEvents": [\n' + b",\n".join(json.dumps(e).encode() for e in events) + b"\n]}\n"
    ),
    "commas before": lambda _, events: (
        b'{"traceEvents":[' + b"\n , ".join(json.dumps(e).encode() for e in events) + b"]}"
    ),
    "byte order mark": lambda text, _: b"\xef\xbb\xbf" + text.encode(),
    "space around": lambda text, _: b" \r\n" + text.encode() + b"\n\n",
    "bytes that are no text": lambda text, _: text.encode().replace(b"ac2g", b"a\xff\xfeg"),
    "control characters": lambda text, _: text.encode().replace(b"ac2g", b"a\x07\tg"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [64, 400, 1 << 18])
def test_forms_of_files(tmp_path: Path, form: str, part: int) -> None:
    plain = write(tmp_path / "plain.json", ROWS)
    folder = tmp_path / "other"
    folder.write_bytes(FORMS[form](plain.read_text(), ROWS))
    with patch.object(parts, "_READ", part):
        trace = read_trace(folder)
    assert same(trace, read_trace(plain))


def test_members_on_both_sides_of_the_events(tmp_path: Path) -> None:
    file = EventFile(write(tmp_path / "t.json", ROWS, distributedInfo={"rank": 1}))
    for _ in file.events():
        pass
    assert file.members == {"schemaVersion": 1, "distributedInfo": {"rank": 1}, "traceName": "t"}
    assert file.nbytes == file.path.stat().st_size
    event_file = EventFile(file.path)
    list(event_file.events())
    assert event_file.digest == file.digest


# Names that look like what stands between events, and arguments that hold lists of objects.
TEXTS = st.sampled_from(
    [
        GEMM,
        '}, {"ph": "X", "cat": "kernel"',
        '"},\n{"name": "',
        "]",
        "\\",
        "ProfilerStep#2",
        "é",
        "",
    ]
)
NESTED = st.sampled_from(
    [{}, {"list": [{"ph": 1}, {"ph": 2}, {"name": "a", "stream": 3}]}, {"list": [[], {}, [{}]]}]
)
CATEGORIES = st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "python_function", "Memcpy"])


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    made = []
    for number in range(draw(st.integers(0, 25))):
        args: Event = dict(draw(NESTED))
        category = draw(CATEGORIES)
        if draw(st.booleans()):
            args["correlation"] = number
        if category in {"kernel", "Memcpy"} and draw(st.booleans()):
            args["stream"] = draw(st.integers(0, 3))
        event = {"ph": "X", "cat": category, "name": draw(TEXTS), "ts": number, "dur": 1, "tid": 5}
        event = (
            {**event, "pid": 0, "args": args} if draw(st.booleans()) else {"args": args, **event}
        )
        made.append(event)
    return made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=events(), indent=st.sampled_from([None, 1]), part=st.sampled_from([32, 200, 1000]))
def test_parts_give_what_the_whole_gives(
    tmp_path: Path, made: list[Event], indent: int | None, part: int
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": made, "end": 1}, indent=indent))
    whole = read_trace(path)
    with patch.object(parts, "_READ", part):
        in_parts = read_trace(path)
    assert same(whole, in_parts)
    gpu = [event for event in made if event["cat"] in {"kernel", "Memcpy"}]
    assert whole.rows.start.tolist() == [event["ts"] for event in gpu]
    assert [whole.names[k] for k in whole.rows.name] == [event["name"] for event in gpu]
    calls = [e for e in made if e not in gpu and "correlation" in e["args"]]
    calls = [e for e in calls if not e["name"].startswith("ProfilerStep")]
    assert whole.launches.correlation.tolist() == [e["args"]["correlation"] for e in calls]


def test_old_files(tmp_path: Path) -> None:
    """Categories with capitals, streams as text in tid, whole microseconds."""
    old = [
        {
            **keyed("ph=X cat=Kernel pid=0 tid='stream 7' ts=10 dur=20"),
            "name": GEMM,
            "args": {"device": 0, "correlation": 4, "external id": 9},
        },
        {
            **keyed("ph=X cat=Memset name='Memset (Device)' pid=0 tid='stream 21' ts=40 dur=2"),
            "args": {"stream": 21, "correlation": 5, "device": 0},
        },
        {
            **keyed("ph=X cat=Runtime name=cudaLaunchKernel pid=9 ts=1 dur=2"),
            "tid": "1",
            "args": {"correlation": 4},
        },
        {**keyed("ph=X cat=Operator name=ProfilerStep#8 pid=9 ts=0 dur=9"), "tid": "1", "args": {}},
    ]
    overlap = analyse(read_trace(write(tmp_path / "old.json.gz", old)))
    assert list(overlap.by_stream) == [7, 21]
    assert overlap.times["gemm"] == pytest.approx(20e-6)
    assert overlap.times["copy"] == pytest.approx(2e-6)
    assert list(overlap.by_step) == [8]
    assert overlap.by_step[8].rows == 1


def test_calls_of_hip_are_launches(tmp_path: Path) -> None:
    hip = call(1, 4)
    hip["args"]["stream"] = "0x0"
    trace = read_trace(write(tmp_path / "t.json", [hip, kernel("Cijk_A", 5, 2, correlation=4)]))
    assert trace.launches.correlation.tolist() == [4]
    assert len(trace.rows) == 1


def test_several_gpus_are_several_traces(tmp_path: Path) -> None:
    rows = [kernel(GEMM, 0, 10, device=0), kernel(NCCL, 0, 10, stream=9, device=1)]
    sync = kernel("Stream Wait Event", 0, 1, cat="cuda_sync", device=5)
    left, right = split_devices(read_trace(write(tmp_path / "t.json", [*rows, sync])))
    assert left.file == "t.json (GPU 0)"
    assert analyse(left).communication == 0.0
    assert analyse(right).computation == 0.0


@pytest.mark.parametrize("whole", [0, 1365627862757, 4458676983543, (1 << 43) - 1])
def test_nanoseconds_are_exact(whole: int) -> None:
    parts = np.arange(1000)
    times = np.array([float(f"{whole}.{part:03d}") for part in parts])
    assert nanoseconds(times).tolist() == [whole * 1000 + int(part) for part in parts]
    assert nanoseconds(-times[1:]).tolist() == [-whole * 1000 - int(part) for part in parts[1:]]


def test_rows_that_cannot_be_are_left_out_and_told(tmp_path: Path) -> None:
    bad = [
        kernel(GEMM, 0, -5),
        kernel(GEMM, 0, float("nan")),
        kernel(GEMM, 1e300, 1),
        {**kernel(GEMM, 0, 1), "dur": None},
        {**kernel(GEMM, 0, 1), "ts": "soon"},
        {**kernel(GEMM, 0, 1), "ts": [1]},
        {k: v for k, v in kernel(GEMM, 0, 1).items() if k != "dur"},
        {**kernel(GEMM, 10**400, 1)},
    ]
    odd = [
        "no event",
        7,
        None,
        [],
        {"ph": "X"},
        {"ph": "X", "cat": ["kernel"], "name": {}},
        {**call(1, 2), "args": ["correlation"]},
        {**call(1, 2), "name": 5},
        {**kernel(OTHER, 50, 2), "args": {"stream": "three", "correlation": 1 << 80}},
        {**kernel(OTHER, 60, 2), "name": None},
        {**kernel(OTHER, 70, 2), "tid": [], "args": None},
    ]
    path = write(tmp_path / "t.json", [kernel(GEMM, 5, 10), *bad, *odd, *ROWS])
    trace = read_trace(path)
    assert trace.notes == (
        "left out: 7 rows without a start or a duration",
        "left out: 1 row of negative duration",
    )
    assert sorted(trace.rows.start.tolist()) == [5.0, 10.0, 15.0, 40.0, 50.0, 60.0, 70.0]
    assert analyse(trace).notes[:2] == trace.notes
