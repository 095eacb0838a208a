"""Traces of XLA's and of Ascend's profilers, made by hand in the forms that these write.

XLA: processes, threads and ``hlo_category`` as openxla/xla writes them (xplane_schema.cc,
trace_viewer); Ascend: as torch_npu's trace_view.json, whose starts are text.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from sweeps.traces.overlap import analyse
from sweeps.traces.ranks import analyse_files
from sweeps.traces.reader import read_trace
from tests.bending import bent
from tests.traces.test_bent_traces import JUNK, read_or_refused

Event = dict[str, Any]
NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def named(pid: int, name: str, tid: int | None = None) -> Event:
    kind = {"name": "process_name"} if tid is None else {"name": "thread_name", "tid": tid}
    return {"ph": "M", "pid": pid, "args": {"name": name}, **kind}


def row(pid: int, tid: int, name: str, start: float | str, duration: float, **args: Any) -> Event:
    return dict(ph="X", pid=pid, tid=tid, ts=start, dur=duration, name=name, args=args)


# Two streams of a GPU; the line "XLA Ops" tells what they ran once more, the host another thing.
GPU = [
    named(1, "/device:GPU:0"),
    named(1, "Stream #14(Compute)", 14),
    named(1, "Stream #20", 20),
    named(1, "XLA Ops", 100),
    named(9, "/host:CPU"),
    named(9, "python", 3),
    row(1, 14, "sm90_xmma_gemm_bf16bf16", 0, 50, hlo_op="custom-call.3", correlation_id=4),
    row(1, 14, "loop_add_fusion", 50, 20, hlo_op="fusion.2"),
    row(1, 20, NCCL, 30, 60, hlo_op="all-gather-start"),
    row(1, 14, "MemcpyD2D", 70, 5),
    row(1, 100, "custom-call.3", 0, 50),
    row(9, 3, "Execute", 0, 1000),
]
# A TPU's core: a loop encloses its operations, a gather runs beside them.
TPU = [
    named(3, "/device:TPU:1"),
    named(3, "XLA Modules", 1),
    named(3, "XLA Ops", 2),
    named(3, "Async XLA Ops", 3),
    named(3, "Steps", 4),
    row(3, 1, "jit_train_step(123)", 0, 100),
    row(3, 4, "5", 0, 100),
    row(3, 2, "while.5", 0, 100, hlo_category="while"),
    row(3, 2, "fusion.253", 0, 40, hlo_category="convolution fusion"),
    row(3, 2, "fusion.3", 40, 20, hlo_category="loop fusion"),
    row(3, 2, "all-reduce.104", 60, 20, hlo_category="all-reduce"),
    row(3, 2, "all-gather-done.2", 80, 5, hlo_category="async-done"),
    row(3, 3, "all-gather-start.2", 30, 55, hlo_category="async-start"),
    row(3, 2, "copy.4", 85, 10, hlo_category="data formatting"),
]
LATE = 1_699_529_623_106_750
# Two streams, of which one waits; an all_reduce by its group, and by its plane once more.
ASCEND = [
    named(1, "Python"), named(1, "Thread 1", 1), named(4, "Ascend Hardware"),
    named(4, "Stream 2", 2), named(4, "Stream 5", 5), named(5, "Communication"),
    named(5, "Group 0 Communication", 1), named(5, "Plane 0", 2), named(6, "Overlap Analysis"),
    named(6, "Computing", 0),
    row(4, 2, "aclnnMatmul_MatMulV2_MatMulV2", f"{LATE + 10}.000", 100, **{"Task Type": "AI_CORE"}),
    row(4, 2, "aclnnAdd_Add_Add", f"{LATE + 110}.000", 20, **{"Task Type": "AI_VECTOR_CORE"}),
    row(4, 5, "Notify_Wait", f"{LATE}.000", 90, **{"Task Type": "NOTIFY_WAIT"}),
    row(4, 2, "FlashAttentionScore_1", f"{LATE + 130}.000", 20, **{"Task Type": "MIX_AIC"}),
    row(5, 1, "hcom_allReduce__123_0_1", f"{LATE + 60}.000", 120),
    row(5, 2, "Memcpy", f"{LATE + 60}.000", 120), row(6, 0, "Computing", f"{LATE}.000", 100),
]  # fmt: skip
# By file: events, computation, GEMMs, communication and what of it is hidden [us].
TRACES: list[tuple[str, list[Event], float, float, float, float]] = [
    ("gpu", GPU, 70, 50, 60, 40),
    ("tpu", TPU, 60, 40, 55, 30),
    ("ascend", ASCEND, 140, 100, 120, 90),
]


def written(path: Path, events: list[Event]) -> Path:
    whole = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}
    text = json.dumps(events if path.name == "trace_view.json" else whole)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(("name", "events", "compute", "gemm", "sent", "hidden"), TRACES)
def test_times(
    name: str,
    events: list[Event],
    compute: float,
    gemm: float,
    sent: float,
    hidden: float,
    tmp_path: Path,
) -> None:
    file = "trace_view.json" if name == "ascend" else "host.trace.json.gz"
    analysis = analyse(read_trace(written(tmp_path / file, events)))
    times = (
        analysis.computation,
        analysis.times["gemm"],
        analysis.communication,
        analysis.overlapped,
    )
    assert times == pytest.approx([value * 1e-6 for value in (compute, gemm, sent, hidden)])
    assert any("no whole public trace was there" in note for note in analysis.notes)


def test_names_may_come_after_events(tmp_path: Path) -> None:
    """Of a device's rows none is lost where its name stands at the end of the file."""
    for name, events, compute, *_ in TRACES:
        late = [event for event in events if event["ph"] == "X"]
        if name != "ascend":  # what XLA's rows are known by
            late = [{**event, "args": {**event["args"], "hlo_op": "x"}} for event in late]
        late += [event for event in events if event["ph"] == "M"]
        file = "trace_view.json" if name == "ascend" else "t.json"
        analysis = analyse(read_trace(written(tmp_path / file, late)))
        assert analysis.computation == pytest.approx(compute * 1e-6), name


@pytest.mark.thorough
def test_many_parts_are_read_like_one(tmp_path: Path) -> None:
    """A file of several megabytes is cut between events; all of them are read."""
    many = [row(1, 14, "loop_add_fusion", 10 * k, 5, hlo_op="fusion.2") for k in range(30_000)]
    trace = read_trace(written(tmp_path / "t.json", GPU[:6] + many))
    assert len(trace.rows) == 30_000


def test_what_products_a_tpu_does_not_tell(tmp_path: Path) -> None:
    bare = [{**event, "args": {}} for event in TPU]
    bare = [
        new | {"args": old["args"]} if old["ph"] == "M" else new
        for new, old in zip(bare, TPU, strict=True)
    ]
    analysis = analyse(read_trace(written(tmp_path / "t.json", bare)))
    assert any("2 operations have no hlo_category" in note for note in analysis.notes)
    assert analysis.communication == pytest.approx(55e-6)


def test_a_folder_of_jax(tmp_path: Path) -> None:
    """The profiler writes an .xplane.pb beside the trace; it is left out, and said."""
    folder = tmp_path / "plugins" / "profile" / "2026_11_29"
    folder.mkdir(parents=True)
    written(folder / "host.trace.json.gz", GPU)
    (folder / "host.xplane.pb").write_bytes(b"\n\x10/device:GPU:0")
    ranks = analyse_files([tmp_path])
    (trace,) = ranks.traces
    assert trace.file.endswith("host.trace.json.gz")


@pytest.mark.parametrize("value", [None, "x", [], {}, 1e400, "9" * 400])
def test_what_can_t_be(value: Any, tmp_path: Path) -> None:
    """Any field of any event may be anything."""
    for name, events, *_ in TRACES:
        file = "trace_view.json" if name == "ascend" else "t.json"
        for key in ("pid", "tid", "ts", "dur", "name", "args", "ph", "cat"):
            bent = [
                {**event, key: value} if k % 3 == 1 else event for k, event in enumerate(events)
            ]
            read_trace(written(tmp_path / file, bent))


def bend(seeds: range, folder: Path) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        name, events, *_ = draw.choice(TRACES)
        path = folder / ("trace_view.json" if name == "ascend" else "t.json")
        written(path, events)
        path.write_text(bent(path.read_text(), draw, JUNK, ", ", ", "), errors="replace")
        read_or_refused(path)


def test_bent(tmp_path: Path) -> None:
    bend(range(30), tmp_path)


@pytest.mark.thorough
def test_bent_a_thousand_times(tmp_path: Path) -> None:
    bend(range(30, 1030), tmp_path)
