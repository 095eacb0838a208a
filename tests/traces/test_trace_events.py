"""Events as msgspec decodes them, beside what the standard library's parser makes of them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.traces import events as decoding
from sweeps.traces import parts
from sweeps.traces.columns import Trace
from sweeps.traces.events import decoded, decoded_foreign
from sweeps.traces.reader import read_trace
from tests.traces.make import GEMM, NCCL, call, kernel, step, write
from tests.traces.test_trace_reading import contents

SPACES = st.sampled_from(["", "", " ", "\n    ", "\t", " \r\n "])
TEXTS = st.one_of(
    st.sampled_from([GEMM, NCCL, "ProfilerStep#2", "nccl:all_reduce", "Event Sync", "stream 7"]),
    st.text(max_size=8),
)
# Numbers as JSON and its dialects write them, and what isn't one.
NUMBERS = st.sampled_from(
    "0 -0 7 -1 7.0 0.1 1e3 1E+2 -2.5e-3 1365627862757.064 9007199254740993 4503599627370497.5 "
    "9223372036854775807 9223372036854775808 -9223372036854775808 18446744073709551615 "
    "123456789012345678901234567890 1e400 NaN Infinity -Infinity true null [1] {} [] "
    '"7" "stream 7" "0x0" "12.5" "soon"'.split(" ")
)
KEYS = "ph cat name pid tid ts dur args".split()
ARGUMENTS = [
    *("device", "stream", "correlation", "Collective name", "Group size", "Process Group Ranks"),
    *("name", "hlo_category", "Task Type", "Stream Id", "other"),
]


@st.composite
def strings(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> str:
    """Draw a text as JSON, escaped where it need not be or bare where it may be."""
    text = draw(texts)
    if draw(st.booleans()):
        units = text.encode("utf-16-be", errors="surrogatepass")
        pairs = [units[k : k + 2].hex() for k in range(0, len(units), 2)]
        return '"' + "".join(f"\\u{each}" for each in pairs) + '"'
    return json.dumps(text, ensure_ascii=draw(st.booleans()))


@st.composite
def objects(draw: st.DrawFn, keys: list[str], values: st.SearchStrategy[str]) -> str:
    """Draw an object, of which a key may stand twice."""
    named = draw(st.lists(st.sampled_from(keys), max_size=8))
    pairs = [f"{draw(strings(st.just(key)))}{draw(SPACES)}:{draw(values)}" for key in named]
    return "{" + ",".join(f"{draw(SPACES)}{pair}{draw(SPACES)}" for pair in pairs) + "}"


VALUES = st.one_of(NUMBERS, strings())
NESTED = st.one_of(VALUES, objects(["stream", "ph"], VALUES), st.just('[{"ph": "X"}, [[], {}]]'))
LIKELY = {
    "ph": st.sampled_from(['"X"', '"X"', '"X"', '"s"', '"M"', '""', '"XX"', "null"]),
    "cat": st.sampled_from(['"kernel"', '"Memcpy"', '"cpu_op"', '"cuda_runtime"', "null", "5"]),
    "name": strings(),
    "args": objects(ARGUMENTS, NESTED),
}


@st.composite
def written(draw: st.DrawFn) -> str:
    """Draw an event as text: most of its members are as profilers write them."""
    chosen = draw(st.lists(st.sampled_from(KEYS), min_size=5, max_size=10))
    pairs = []
    for key in chosen:
        likely = LIKELY.get(key, NUMBERS) if draw(st.integers(0, 9)) else NESTED
        pairs.append(f'"{key}"{draw(SPACES)}:{draw(SPACES)}{draw(likely)}')
    return "{" + ",".join(pairs) + draw(SPACES) + "}"


class Refusing:
    """A decoder that leaves all to the standard library."""

    def decode(self, _: object) -> object:
        raise msgspec.DecodeError


def only_json() -> object:
    return patch.multiple(decoding, _DECODER=Refusing(), _FOREIGN=Refusing())


def told(path: Path) -> object:
    try:
        trace: Trace = read_trace(path)
    except InputError as error:
        return error.faults
    return contents(trace), trace.notes, trace.fractional, trace.tool, trace.collectives


@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    made=st.lists(written(), max_size=8),
    head=st.sampled_from(["", '"external": "Ascend Hardware", ', '"a": "/device:GPU:0", ']),
    read=st.sampled_from([64, 1 << 20]),
)
def test_any_event_is_what_json_makes_of_it(
    tmp_path: Path, made: list[str], head: str, read: int
) -> None:
    path = tmp_path / "t.json"
    path.write_text(f'{{{head}"traceEvents": [{", ".join(made)}], "end": 1}}', errors="replace")
    with patch.object(parts, "_READ", read):
        found = told(path)
        with only_json():  # type: ignore[attr-defined]
            assert found == told(path)


@given(
    st.lists(written(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(',:{}[]"\\ x1-.e\t\x00\xff'))),
)
def test_what_is_no_json_is_never_read(made: list[str], bends: list[tuple[int, str]]) -> None:
    text = f"[{', '.join(made)}]"
    for place, put in bends:
        at = place % len(text)
        text = text[:at] + put + text[at + 1 :]
    data = text.encode(errors="replace")
    try:
        fine = isinstance(json.loads(data.decode(errors="replace"), strict=False), list)
    except ValueError:
        fine = False
    if data.startswith(b"["):
        assert (decoded(data) is not None) == fine
        assert (decoded_foreign(data) is not None) == fine


def test_numbers_are_those_of_json(tmp_path: Path) -> None:
    """Each float is the nearest to its text, and a whole number is no float."""
    texts = [f"{k}.{k % 1000:03d}" for k in range(1365627862757, 1365627862757 + 999)]
    texts += [
        "0.1",
        "1e-7",
        "123456.7890123456789",
        "4503599627370497.5",
        "2.2250738585072011e-308",
    ]
    rows = [kernel(GEMM, 0, 1) | {"ts": f"@{text}@"} for text in texts]
    path = write(tmp_path / "t.json", rows)
    path.write_text(path.read_text().replace('"@', "").replace('@"', ""))
    trace = read_trace(path)
    assert trace.rows.start.tolist() == [float(text) for text in texts]
    assert trace.fractional
    assert not read_trace(write(tmp_path / "whole.json", [kernel(GEMM, 7, 1.5)])).fractional


def test_events_are_decoded_not_parsed(tmp_path: Path) -> None:
    """What a profiler writes comes to the standard library's parser with its last event alone."""
    events = [
        step(1, 0, 9),
        *[each for k in range(400) for each in (call(k, k), kernel(GEMM, k, 1))],
    ]
    flow = {"ph": "s", "id": 1, "pid": 9, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g"}
    path = write(tmp_path / "t.json", [*events, flow, flow])
    with patch.object(decoding, "_args", side_effect=AssertionError):
        assert len(read_trace(path).rows) == 400


def test_no_thread_outlives_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel(GEMM, k, 1) for k in range(4000)])
    path.write_text(path.read_text().replace('"ts": 9,', '"ts": 9 oops,'))
    before = threading.active_count()
    with patch.object(parts, "_READ", 1 << 12), pytest.raises(InputError):
        read_trace(path)
    assert threading.active_count() == before
