"""Which tool wrote a file, what is advised then, and streams that carry no more than fewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import InputError
from sweeps.traces.overlap import analyse
from sweeps.traces.reader import read_trace
from tests.tables import examples
from tests.traces.make import GEMM, NCCL, call, kernel, write

JAX: list[dict[str, Any]] = examples(__file__, "jax")
ASCEND: list[dict[str, Any]] = examples(__file__, "ascend")


def told(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        analyse(read_trace(path))
    (line,) = caught.value.faults
    return line


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("t.json", json.dumps({"traceEvents": JAX[:2]}), "JAX's profiler"),
        ("t.xplane.pb", "\n\x10/device:GPU:0", "JAX's profiler"),
        ("trace_view.json", json.dumps(ASCEND[:1]), "Ascend's profiler"),
        ("r.nsys-rep", "\x00\x01binary", "Nsight Systems"),
        ("r.sqlite", "SQLite format 3\x00", "Nsight Systems"),
        ("r.json", '{"Type": 79, "CudaEvent": {"startNs": "1"}}', "Nsight Systems"),
        ("r.json", '{"rocprofiler-sdk-tool": []}', "rocprof"),
        ("flops.txt", "--- DeepSpeed Flops Profiler ---\nparams: 7 M", "DeepSpeed's flops"),
    ],
)
def test_advice_is_of_the_tool(tmp_path: Path, name: str, text: str, tool: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    line = told(path)
    assert f"; of {tool}" in line or f"; of ROCm's {tool}" in line
    assert "ProfilerActivity" not in line


def test_rows_with_a_category_are_read(tmp_path: Path) -> None:
    """What others made of these files, rows with a category and a stream, is read as it is."""
    for events in (JAX, ASCEND):
        settings = {"cat": "kernel", "args": {"stream": 14}}
        path = tmp_path / "t.json"
        path.write_text(
            json.dumps([event | settings if event["ph"] == "X" else event for event in events])
        )
        assert analyse(read_trace(path)).computation == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (json.dumps({"traceEvents": []}).encode("utf-16"), "is UTF-16 text"),
        (b"\x28\xb5\x2f\xfd" + bytes(9), "is packed by zstd: unpack it"),
        (b"PK\x03\x04" + bytes(9), "is a zip archive: unpack it"),
    ],
)
def test_what_isn_t_json_is_named(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    assert words in told(path)


def test_pytorch_is_advised_as_before(tmp_path: Path) -> None:
    assert "of PyTorch's profiler: a trace recorded with ProfilerActivity.CUDA" in told(
        write(tmp_path / "t.json", [call(1, 2)])
    )
    (note,) = analyse(read_trace(write(tmp_path / "g.json", [kernel(NCCL, 0, 9)]))).notes
    assert "no launches (record it with ProfilerActivity.CPU)" in note


def test_what_an_unknown_tool_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"ph": "X", "name": "f", "ts": 1, "dur": 1, "cat": "mine"}]))
    assert "rows of GPU work have cat kernel, gpu_memcpy" in told(path)
    path.write_text(json.dumps([kernel(NCCL, 0, 9)]))
    (note,) = analyse(read_trace(path)).notes
    assert note.startswith("the trace has no launches: what is host bound")
    assert read_trace(path).tool.name == ""


@pytest.mark.parametrize(("streams", "at_once", "words"), examples(__file__, "many_streams"))
def test_streams_beyond_what_can_help(
    tmp_path: Path, streams: int, at_once: int, words: str
) -> None:
    # Each carries for 10 us, as many at once as are said, one after another without a gap.
    carried = [kernel(NCCL, 10 * (k // at_once), 10, stream=20 + k) for k in range(streams)]
    events = [kernel(GEMM, 0, 100), *carried]
    analysis = analyse(read_trace(write(tmp_path / "t.json", events)))
    remarks = [note for note in analysis.notes if "communication runs on" in note]
    assert len(remarks) == bool(words)
    assert all(words in note for note in remarks)
