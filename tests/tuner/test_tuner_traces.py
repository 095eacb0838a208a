"""Times from recorded traces, and cases run by a command."""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import InputError, RunError
from sweeps.tuner.recorded import read_case, read_folder
from sweeps.tuner.report import TuningReport
from sweeps.tuner.running import Runner, write_case, write_workload
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.tuner import TPOverlapTuner
from sweeps.tuner.userbuffers import OPERATORS, LayerOverlap, grid_cases
from tests.tables import examples
from tests.traces.make import GEMM, NCCL, OTHER, launched, step, write

NVJET = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
PTOP = "Memcpy PtoP (Device -> Device)"
RING = LayerOverlap(2, "fc1", "fprop", "ring_exchange")
CONFIG = TPOverlapTunerConfig("llama3-8b", max_tp_size=2)
Row = tuple[Any, ...]
COPY = {"cat": "gpu_memcpy"}


def trace(path: Path, forward: Sequence[Row], backward: Sequence[Row], **members: Any) -> Path:
    """Write a trace of rows (name, start, duration, stream[, more]), launched by two threads."""
    events = []
    for number, (thread, rows) in enumerate(((1, forward), (2, backward))):
        for k, (name, start, duration, stream, *more) in enumerate(rows):
            own = launched(
                name,
                10.0 * number + k,
                start,
                duration,
                stream,
                100 * number + k + 1,
                **(more[0] if more else {}),
            )
            own[0]["tid"] = thread
            events += own
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, events, **members)


# In microseconds, from 1000: two products and a copy that hides behind the second.
FORWARD = [(NVJET, 1000, 100, 7), (PTOP, 1050, 120, 20, COPY), (NVJET, 1100, 100, 7)]
BACKWARD = [(NVJET, 1300, 200, 7), (NCCL, 1450, 100, 30), (OTHER, 1500, 20, 7)]


def measured(folder: Path, case: LayerOverlap = RING) -> Any:
    found = read_case(folder, case)
    assert found.status == "done", found.reason
    return found


def test_a_case(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.pt.trace.json", FORWARD, BACKWARD)
    found = measured(tmp_path)
    forward, backward = found.passes
    assert (forward.gemm, forward.comm, forward.overlap) == pytest.approx((200e-6, 120e-6, 120e-6))
    assert forward.e2e == pytest.approx(200e-6)
    assert forward.ratio == pytest.approx(1.0)
    assert (backward.gemm, backward.comm) == pytest.approx((200e-6, 100e-6))
    # Behind a product, not behind the element-wise kernel.
    assert backward.overlap == pytest.approx(50e-6)
    assert backward.e2e == pytest.approx(250e-6)
    assert backward.ratio == pytest.approx(0.5)
    assert (forward.gemm_events, forward.comm_events) == (2, 1)
    assert found.e2e == pytest.approx(450e-6)


def test_the_payload_of_rings_counts(tmp_path: Path) -> None:
    """There only kernels are seen, and the copies between GPUs never."""
    trace(tmp_path / "t.json", FORWARD, [])
    assert measured(tmp_path).forward.comm == pytest.approx(120e-6)


@pytest.mark.parametrize("name", ["ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", NCCL])
def test_old_and_new_names_of_nccl_count(tmp_path: Path, name: str) -> None:
    """There names of before 2.18 are missed."""
    trace(tmp_path / "t.json", [(NVJET, 0, 10, 7), (name, 5, 10, 8)], [])
    found = measured(tmp_path, LayerOverlap(2, "fc1", "fprop"))
    assert found.forward.comm == pytest.approx(10e-6)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (NVJET, True),
        (GEMM, True),
        ("void fbgemm_gpu::split_embedding_codegen_forward_kernel", False),
        ("void flash_fwd_kernel<cutlass::half_t>", False),
    ],
)
def test_products_are_products(tmp_path: Path, name: str, counts: bool) -> None:
    """There embedding and attention kernels count as products, and cuBLAS' newest don't."""
    trace(tmp_path / "t.json", [(name, 0, 10, 7), (PTOP, 5, 10, 8, COPY)], [])
    assert measured(tmp_path).forward.gemm == pytest.approx(10e-6 if counts else 0.0)


def test_no_row_is_cut_or_lost_between_the_passes(tmp_path: Path) -> None:
    """There rows across the moment at which the host begins the backward vanish."""
    late = [(NVJET, 1000, 900, 7), (PTOP, 1800, 300, 20, COPY)]
    early = [(NVJET, 1900, 100, 7)]
    trace(tmp_path / "t.json", late, early)
    forward, backward = measured(tmp_path).passes
    assert forward.gemm == pytest.approx(900e-6)
    assert forward.comm == pytest.approx(300e-6)
    assert forward.e2e == pytest.approx(1100e-6)
    assert backward.gemm == pytest.approx(100e-6)


def test_the_optimizer_belongs_to_neither(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.json", FORWARD, BACKWARD)
    content = json.loads(path.read_text())
    content["traceEvents"] += launched(OTHER, 50.0, 9000.0, 500.0, 7, 999)
    path.write_text(json.dumps(content))
    forward, backward = measured(tmp_path).passes
    assert forward.e2e == pytest.approx(200e-6)
    assert backward.e2e == pytest.approx(250e-6)


def test_the_step_in_the_middle(tmp_path: Path) -> None:
    events = []
    for number, length in enumerate((500.0, 100.0, 120.0)):
        at = 10000.0 * number
        events.append(step(number, at, 5000.0))
        events += launched(NVJET, at + 10, at + 100, length, 7, 10 * number + 1)
        events += launched(PTOP, at + 11, at + 110, 20.0, 8, 10 * number + 2, **COPY)
    write(tmp_path / "t.json", events)
    assert measured(tmp_path).forward.gemm == pytest.approx(120e-6)


def test_the_slowest_rank(tmp_path: Path) -> None:
    for rank, length in enumerate((100, 400, 200)):
        rows = [(NVJET, 0, length, 7), (PTOP, 5, 10, 8, COPY)]
        trace(tmp_path / f"{rank}.json.gz", rows, [], distributedInfo={"rank": rank})
    assert measured(tmp_path).forward.gemm == pytest.approx(400e-6)


def test_one_thread_launched_everything(tmp_path: Path) -> None:
    trace(tmp_path / "t.json", [*FORWARD, *BACKWARD], [])
    found = measured(tmp_path)
    assert "one thread" in found.reason
    assert found.backward.e2e == 0.0


def test_what_ran_isn_t_what_was_meant(tmp_path: Path) -> None:
    """There the tuned file isn't handed on, and a baseline overlaps."""
    trace(tmp_path / "a" / "t.json", [(NVJET, 0, 10, 7), (NCCL, 5, 10, 8)], [])
    found = read_case(tmp_path / "a", RING)
    assert found.status == "failed"
    assert "didn't reach Transformer Engine" in found.reason
    trace(tmp_path / "b" / "t.json", [(NVJET, 0, 10, 7)], [])
    found = read_case(tmp_path / "b", RING)
    assert (found.status, found.reason) == ("failed", "no communication was found")
    rows = [(NVJET, 0, 10, 7), ("kuserbuffers_pushsend<8>(int)", 5, 10, 8)]
    trace(tmp_path / "c" / "t.json", rows, [])
    found = read_case(tmp_path / "c", LayerOverlap(2, "fc1", "fprop"))
    assert found.status == "failed"
    assert "no case without overlap" in found.reason


# A folder.

CASES = grid_cases((2,), ("fc1",), (1, 2))


def record(root: Path, cases: Sequence[LayerOverlap], more: str = "") -> None:
    """Write a trace for each case, in which every overlap saves some time."""
    for case in cases:
        hidden = 0 if case.is_baseline else 60
        comm = (NCCL, 1200 - hidden, 100, 8)
        if not case.is_baseline:
            name = (
                PTOP
                if case.method == "ring_exchange"
                else ("userbuffers_fp16_sum_inplace_gpu_rr_ag")
            )
            comm = (name, 1200 - hidden, 100, 8, COPY if name == PTOP else {})
        rows = [(NVJET, 1000, 200, 7), comm]
        plain = [(NVJET, 3000, 200, 7), (NCCL, 3200, 100, 8)]
        mask = case.phase == "fprop"
        trace(
            root / case.run_id / f"rank0{more}.pt.trace.json",
            rows if mask else plain,
            plain if mask else rows,
        )


def tuned(traces: Path, **more: Any) -> TuningReport:
    config = TPOverlapTunerConfig(
        **{
            "model_name": "llama3-8b",
            "max_tp_size": 2,
            "operators": ["fc1"],
            "from_traces": traces,
            "max_token_len": 512,
            "hardware": "dgx-b200",
            **more,
        }
    )
    return TPOverlapTuner(config).run(write=False)


def test_a_folder_of_traces(tmp_path: Path) -> None:
    cases = [*grid_cases((2,), ("fc1",), (1, 2, 4, 8, 16)), LayerOverlap(1, "fc1", "fprop")]
    record(tmp_path / "traces", cases)
    for folder in (tmp_path, tmp_path / "traces"):
        report = tuned(folder)
        assert report.missing == report.failed == []
        (choice,) = report.choices
        assert choice.layers["fc1_fprop"].case == RING
        # Each of the three phases hides 60 us, both gradients' together all 100 us that there are;
        # bulk for both gradients beats a ring for one.
        base = choice.baselines["fc1"].e2e
        assert base - choice.e2e("fc1") == pytest.approx(60e-6 + 100e-6)
        # Equal times: the fewest multiprocessors.
        assert choice.layers["fc1_dgrad"].case.num_sm == 1
        record_of = report.record()
        assert "rates" not in record_of
        assert {c["source"] for c in record_of["cases"]} == {"traces"}


def test_some_cases_are_missing(tmp_path: Path) -> None:
    record(tmp_path, [c for c in CASES if c.phase != "wgrad"])
    report = tuned(tmp_path, max_num_sm=2)
    missing = {result.case.config_id for result in report.missing}
    assert missing == {
        "tp2_fc1_wgrad_bulk_sm1",
        "tp2_fc1_wgrad_bulk_sm2",
        *(f"tp1_fc1_{phase}_baseline" for phase in ("fprop", "dgrad", "wgrad")),
    }
    assert "Not recorded" in report.summary()
    assert report.recommendations
    assert report.scaling.optimal is None


def test_a_torn_trace_fails_alone(tmp_path: Path) -> None:
    record(tmp_path, CASES)
    path = tmp_path / RING.run_id / "rank0.pt.trace.json"
    path.write_text(path.read_text()[:300])
    report = tuned(tmp_path, max_num_sm=2)
    (failed,) = report.failed
    assert failed.case == RING
    assert "cut off" in failed.reason or "JSON" in failed.reason
    assert report.choices[0].layers["fc1_fprop"].case.aggregate == 1


def test_folders_that_aren_t_cases_are_named(tmp_path: Path) -> None:
    record(tmp_path, CASES)
    (tmp_path / "old").mkdir()
    (tmp_path / "tp2_fc1_wgrad_bulk_sm3").mkdir()
    results, notes = read_folder(tmp_path, CASES)
    assert notes == ["old: isn't the name of a case; left out"]
    (more,) = [result for result in results if result.case not in CASES]
    assert (more.case.num_sm, more.status) == (3, "missing")


def test_a_case_beyond_the_grid_counts(tmp_path: Path) -> None:
    more = LayerOverlap(2, "fc1", "wgrad", "bulk", num_sm=3)
    record(tmp_path, [c for c in CASES if c.layer != "fc1_wgrad" or c.is_baseline] + [more])
    assert tuned(tmp_path, max_num_sm=2).choices[0].layers["fc1_wgrad"].case == more


def test_a_folder_without_cases(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder with the name of a case"):
        tuned(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        tuned(tmp_path / "nowhere")
    (tmp_path / RING.run_id).mkdir()
    with pytest.raises(RunError, match="no case with overlap has times"):
        tuned(tmp_path)


# What a trace can't be.

BASE = LayerOverlap(2, "fc1", "fprop")


@pytest.mark.parametrize(
    ("duration", "tokens", "words"),
    [
        (200, 512, ""),
        (200, 8192, "its forward's products would run at 4,810 TFLOP/s, and the GPU reaches 1,655"),
        (9000, 512, "another product's trace, or another GPU's"),
    ],
)
def test_products_of_other_work_are_refused(
    tmp_path: Path, duration: int, tokens: int, words: str
) -> None:
    rows = [(NVJET, 1000, duration, 7), (NCCL, 1000 + duration, 100, 8)]
    trace(tmp_path / "t.json", rows, [(NVJET, 50000, 2 * duration, 7)])
    config = TPOverlapTunerConfig(
        "llama3-8b", max_tp_size=2, max_token_len=tokens, hardware="dgx-b200"
    )
    found = read_case(tmp_path, BASE, config)
    assert found.status == ("failed" if words else "done")
    assert words in found.reason


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([[512, 4096], [14336, 4096]], ""),
        ([[512, 4096], [4096, 4096]], "no operation has a weight of 14336 x 4096, which fc1 has"),
        ([[640, 4096], [14336, 4096]], "no operation has 512 tokens, which are tuned for"),
        ([[256, 1, 4096], [14336, 4096], []], ""),
    ],
)
def test_other_shapes_are_refused(tmp_path: Path, shapes: list[list[int]], words: str) -> None:
    rows = [(NVJET, 0, 200, 7), (NCCL, 200, 100, 8)]
    path = trace(tmp_path / "t.json", rows, [(NVJET, 900, 400, 7)])
    content = json.loads(path.read_text())
    op = {"ph": "X", "cat": "cpu_op", "name": "_Linear", "pid": 9, "tid": 1, "ts": 0, "dur": 9}
    content["traceEvents"].append({**op, "args": {"Input Dims": shapes, "x": 1}})
    path.write_text(json.dumps(content))
    config = TPOverlapTunerConfig(
        "llama3-8b", max_tp_size=2, max_token_len=512, hardware="dgx-b200"
    )
    found = read_case(tmp_path, BASE, config)
    assert found.status == ("failed" if words else "done")
    assert words in found.reason


def test_ranks_that_say_nothing_are_no_baseline(tmp_path: Path) -> None:
    """A trace of one GPU says nothing of what overlap would gain on two."""
    trace(tmp_path / "t.json", [(NVJET, 0, 200, 7)], [(NVJET, 900, 400, 7)])
    found = read_case(tmp_path, BASE)
    assert (found.status, found.reason) == ("failed", "no communication was found")
    assert read_case(tmp_path, LayerOverlap(1, "fc1", "fprop")).done


def test_a_case_shorter_than_its_products_is_refused(tmp_path: Path) -> None:
    record(tmp_path, CASES)
    rows = [(NVJET, 1000, 100, 7), (PTOP, 1050, 60, 8, COPY)]
    plain = [(NVJET, 3000, 200, 7), (NCCL, 3200, 100, 8)]
    trace(tmp_path / RING.run_id / "rank0.pt.trace.json", rows, plain)
    (failed,) = tuned(tmp_path, max_num_sm=2).failed
    assert failed.case == RING
    assert failed.reason == (
        "its forward takes 110.0 µs, and the products alone take 200.0 µs without overlap: another "
        "product's trace"
    )


def test_gains_add_up_to_what_there_was_to_hide(tmp_path: Path) -> None:
    """Both gradients' cases hide all of the backward's communication, each by itself."""
    for case in CASES:
        own = (NCCL, 1200, 100, 8)
        if not case.is_baseline:
            name = "userbuffers_fp16_sum_inplace_gpu_rr_ag"
            own = (
                PTOP if case.method == "ring_exchange" else name,
                1100,
                100,
                8,
                COPY if case.method == "ring_exchange" else {},
            )
        rows, plain = [(NVJET, 1000, 200, 7), own], [(NVJET, 3000, 200, 7), (NCCL, 3200, 100, 8)]
        first = case.phase == "fprop"
        trace(
            tmp_path / case.run_id / "rank0.pt.trace.json",
            rows if first else plain,
            plain if first else rows,
        )
    (choice,) = tuned(tmp_path, max_num_sm=2).choices
    assert {"fc1_dgrad", "fc1_wgrad"} <= set(choice.layers)
    forward, backward = choice.passes["fc1"]
    assert backward.overlap == pytest.approx(100e-6)
    assert backward.e2e == pytest.approx(backward.gemm)
    assert forward.e2e == pytest.approx(200e-6)


# A command.

SCRIPT = """
import json, pathlib, sys
folder, case, flags = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
with (folder.parent.parent / "ran.txt").open("a") as log:
    log.write(case + "\\n")
if case == "tp2_fc1_fprop_ring_agg1":
    print("out of memory")
    sys.exit(3)
yaml = (folder / "tp_comm_overlap_cfg.yaml").read_text()
overlaps = "method:" in yaml
assert overlaps == ("--tp-comm-overlap" in flags), (yaml, flags)
assert not overlaps or str(folder / "tp_comm_overlap_cfg.yaml") in flags
sms = int(yaml.split("num_sm: ")[1].split()[0]) if overlaps else 0
name = "userbuffers_fp16_sum_inplace_gpu_rr_ag" if overlaps else "ncclDevKernel_AllGather"
start = 1200 if not overlaps else 1100 + 10 * abs(sms - 5)
rows = [("nvjet_tst_1", 1000, 200, 7), (name, start, 100, 8)]
events = []
for k, (name, start, length, stream) in enumerate(rows):
    events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9,
                   "tid": 1, "ts": k, "dur": 1, "args": {"correlation": k}})
    events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start,
                   "dur": length, "args": {"device": 0, "stream": stream, "correlation": k}})
(folder / "rank0.pt.trace.json").write_text(json.dumps({"traceEvents": events, "t": 1}))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "fake.py").write_text(SCRIPT)
    return f"{sys.executable} {tmp_path / 'fake.py'} {{folder}} {{config_id}} {{flags}}"


def ran(tmp_path: Path, script: str, **more: Any) -> TuningReport:
    config = TPOverlapTunerConfig(
        "llama3-8b",
        max_tp_size=2,
        operators=["fc1"],
        output_dir=tmp_path / "run",
        command=script,
        max_token_len=512,
        hardware="dgx-b200",
        **more,
    )
    return TPOverlapTuner(config).run(overwrite=True)


@pytest.mark.thorough
def test_a_command_runs_each_case_once(tmp_path: Path, script: str) -> None:
    report = ran(tmp_path, script)
    names = (tmp_path / "run" / "ran.txt").read_text().split()
    assert len(names) == len(set(names))
    # One baseline does for three phases, and a ring's reduce_scatter for both its aggregates.
    assert {"tp1_fc1_baseline", "tp2_fc1_baseline"} < set(names)
    assert "tp2_fc1_dgrad_ring_agg1" not in names
    # The script's best number lies between those of the grid.
    assert report.choices[0].layers["fc1_wgrad"].case.num_sm in (4, 5, 6)
    assert any(result.refined for result in report.results)
    assert (tmp_path / "run" / "tuning_report.json").is_file()


@pytest.mark.thorough
def test_a_failing_case_doesn_t_end_the_run(tmp_path: Path, script: str) -> None:
    """There the first one that fails aborts all."""
    report = ran(tmp_path, script)
    (failed,) = report.failed
    assert failed.case.config_id == "tp2_fc1_fprop_ring_agg1"
    assert failed.reason == "exit code 3: out of memory"
    assert report.choices[0].layers["fc1_fprop"].case == RING


@pytest.mark.thorough
def test_what_has_traces_isn_t_run_again(tmp_path: Path, script: str) -> None:
    ran(tmp_path, script)
    (tmp_path / "run" / "ran.txt").write_text("")
    ran(tmp_path, script, resume=True)
    words = (tmp_path / "run" / "ran.txt").read_text().split()
    assert words == ["tp2_fc1_fprop_ring_agg1"]


def run_one(tmp_path: Path, command: str, **more: Any) -> str:
    runner = Runner(command, tmp_path, {"tokens": "8192", "model": "m"}, CONFIG, **more)
    found = runner(RING)
    assert found.status == "failed"
    return found.reason


def test_commands_that_fail(tmp_path: Path) -> None:
    assert "can't be started" in run_one(tmp_path / "a", "/nowhere/x {folder}")
    assert "left no trace" in run_one(tmp_path / "b", "true {folder}")
    assert "longer than 0.2 s" in run_one(tmp_path / "c", "sh -c 'sleep 60' {yaml}", timeout=0.2)


@pytest.mark.parametrize(("command", "words"), examples(__file__, "commands_that_can_t_be"))
def test_commands_that_can_t_be(tmp_path: Path, command: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Runner(command, tmp_path, {}, CONFIG)
    assert any(words in line for line in caught.value.faults)


def test_words_of_a_command(tmp_path: Path) -> None:
    runner = Runner("go --tp {tp_size} '{model} x' {flags}", tmp_path, {"model": "a b"}, CONFIG)
    words = runner.arguments(tmp_path, LayerOverlap(4, "qkv", "wgrad", "bulk", num_sm=2))
    assert words[:4] == ["go", "--tp", "4", "a b x"]
    assert words[4:7] == ["--tp-comm-overlap", "--sequence-parallel", "--tp-comm-overlap-cfg"]


def test_all_operators_from_traces_are_checked(tmp_path: Path) -> None:
    cases = grid_cases((2,), OPERATORS, (1,))
    record(tmp_path, cases)
    report = tuned(tmp_path, operators=[], max_num_sm=1)
    assert len(report.missing) == 12
    assert set(report.choices[0].passes) == set(OPERATORS)


# The program that records cases, with a stub of what it imports.


class Stub:
    """Anything: it notes what it is called with, and gives itself."""

    def __init__(self, name: str, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        self.name, self.calls = name, calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{self.name}.{name}", self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((self.name, args, kwargs))
        return Stub(f"{self.name}()", self.calls)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.parametrize(
    ("case", "module", "on", "sizes"),
    [
        (RING, "LayerNormLinear", {"ub_overlap_ag"}, (4096, 28672)),
        (LayerOverlap(2, "fc1", "dgrad", "ring_exchange"), "LayerNormLinear",
         {"ub_overlap_rs_dgrad"}, (4096, 28672)),
        (LayerOverlap(2, "qkv", "wgrad", "bulk", num_sm=4), "LayerNormLinear", {"ub_bulk_wgrad"},
         (4096, 6144)),
        (LayerOverlap(2, "fc2", "fprop", "pipeline", num_sm=8), "Linear", {"ub_overlap_rs"},
         (14336, 4096)),
        (LayerOverlap(2, "proj", "fprop"), "Linear", set(), (4096, 4096)),
    ],
)  # fmt: skip
def test_the_workload_runs_what_a_case_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: LayerOverlap,
    module: str,
    on: set[str],
    sizes: tuple[int, int],
) -> None:
    command = write_workload(tmp_path / "work", CONFIG)
    assert f"torchrun --nproc-per-node {{tp_size}} {tmp_path / 'work' / 'workload.py'}" in command
    assert "NVTE_FUSED_ATTN=0" in (tmp_path / "work" / "README.md").read_text()
    folder = tmp_path / case.run_id
    write_case(folder, case, CONFIG)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    root = Stub("torch", calls)
    for name in ("torch", "torch.distributed", "transformer_engine", "transformer_engine.pytorch"):
        monkeypatch.setitem(sys.modules, name, root)  # type: ignore[misc]
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NVTE_FLASH_ATTN", raising=False)
    program = runpy.run_path(str(tmp_path / "work" / "workload.py"))
    assert (os.environ["NVTE_FLASH_ATTN"], os.environ["NVTE_FUSED_ATTN"]) == ("1", "0")
    program["main"](folder, case.config_id)
    every = {name.rsplit(".", 1)[1]: (args, kwargs) for name, args, kwargs in calls}
    args, kwargs = every[module]
    assert args == sizes
    assert {
        name for name, value in kwargs.items() if name.startswith("ub_") and value is True
    } == on
    assert kwargs["sequence_parallel"]
    if case.is_baseline:
        assert "initialize_ub" not in every
    else:
        values = every["initialize_ub"][1]["ub_cfgs"]
        assert set(values) == {case.layer}
        assert values[case.layer]["num_sm"] == case.num_sm
        assert every["initialize_ub"][0] == ([8192, 4096], 2)
    ((path,), _) = every["export_chrome_trace"]
    assert path == str(folder / "rank1.pt.trace.json")
    with pytest.raises(SystemExit, match="is for 4 ranks, and 2 run"):
        program["main"](folder, "tp4_fc1_baseline")
    with pytest.raises(InputError, match="is there already"):
        write_workload(tmp_path / "work", CONFIG)


def test_without_baselines_the_tuner_abstains(tmp_path: Path) -> None:
    """Nothing says what overlap saves: no gain is made up, and no configuration is written."""
    record(tmp_path / "traces", [case for case in CASES if not case.is_baseline])
    config = TPOverlapTunerConfig(
        "llama3-8b",
        max_tp_size=2,
        operators=["fc1"],
        from_traces=tmp_path / "traces",
        max_token_len=512,
        hardware="dgx-b200",
        output_dir=str(tmp_path / "run"),
    )
    report = TPOverlapTuner(config).run()
    summary = report.summary()
    assert summary.startswith("not known: no baseline was recorded at TP 2 (tp2_fc1_baseline")
    assert not re.search(r"\bnan|-0\.0|\bon at\b|flags:", summary)
    assert report.recommendations == []
    assert "its baseline is missing: nothing says what overlap saves" in summary
    assert not list((tmp_path / "run").glob("*.yaml"))
    assert not list((tmp_path / "run").glob("*.flags.sh"))
    assert (tmp_path / "run/tuning_report.json").exists()
