"""Courses of training steps: they end at the step's time, and their parts are the step's parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from overhead.evaluation import Evaluation
from overhead.labels import FOLDED
from overhead.overlap.pipeline import EXPOSED, OPTIMIZER, PAIR, UNEXPLAINED, WAITING
from overhead.overlap.timeline import MOST_SPANS, Span
from overhead.step.timeline import (
    COPIES,
    OFFLOAD,
    PARTS,
    PASSES,
    SENDS,
    STREAMS,
    TABLES,
    StepTimeline,
    step_timeline,
)
from sweeps.job import evaluation_of
from sweeps.traces.columns import Trace
from sweeps.traces.overlap import Overlap
from sweeps.traces.ranks import analyse_files
from sweeps.traces.write import chrome_trace, write_trace
from tests.analysis_cases import job_of
from tests.cli_runner import Runner
from tests.overlap.test_pipeline_timeline import check_rows
from tests.tables import examples

LLAMA = "--model llama3-8b --seq-length 8192 --num-gpus 64 --sp"
MIXTRAL = "--model mixtral-8x7b --seq-length 4096 --num-gpus 64 --tp 2 --sp --ep 8 --zero-stage 1"
DEEPSEEK = "--model deepseek-v3 --num-gpus 2048 --ep 64 --zero-stage 1 --seq-length 4096"
OFFLOADED = "--activation-offload 1 --optimizer-offload 0.5 --host-bandwidth 5GB/s"
PLANS = examples(__file__, "plans", LLAMA=LLAMA, MIXTRAL=MIXTRAL, OFFLOADED=OFFLOADED)
# Its first stage has dense layers, its last three layers fewer.
LIGHT = f"{DEEPSEEK} --pp 16 --micro-batches 24"
INTERLEAVED = (
    f"{LLAMA} --zero-stage 1 --tp 2 --pp 4 --micro-batches 16 --virtual-stages 2",
    f"{LLAMA} --zero-stage 1 --tp 2 --pp 8 --micro-batches 16 --virtual-stages 4",
    f"{MIXTRAL} --pp 4 --micro-batches 8 --virtual-stages 4 {OFFLOADED}",
)
SPLIT = ("zero_bubble_h1", "zero_bubble_h2", "dual_pipe")
STEP = f"{LLAMA} --zero-stage 1 --tp 2 --pp 4 --micro-batches 8"


def evaluation(line: str, **more: float) -> Evaluation:
    found = evaluation_of(job_of(line))
    return Evaluation({**found.given, **more}, found.labels)


def course(line: str, **more: float) -> StepTimeline:
    with np.errstate(all="ignore"):
        return step_timeline(evaluation(line, **more))


def of(spans: list[Span], row: str) -> list[Span]:
    return [span for span in spans if span.row == row]


# When it ends.


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize("line", PLANS)
def test_a_step_ends_at_its_time(line: str) -> None:
    """Exactly where transfers take no time, or the schedule's form is exact with them, too."""
    step = course(line, p2p_time=0.0)
    assert step.step_time == pytest.approx(step.end, rel=1e-12)
    with_transfers = course(line)
    exact = any(f"--schedule {name}" in line for name in ("gpipe", "forward_only"))
    assert abs(with_transfers.difference) < (1e-12 if exact or "--pp" not in line else 0.03)
    # The form of 1F1B is never above its course.
    assert with_transfers.difference < 1e-12


@pytest.mark.thorough
def test_a_step_with_light_ends_ends_near_its_time() -> None:
    """The form takes the ends' extra work to be a fraction of a stage's: here they have half."""
    known = evaluation(LIGHT)
    whole = known["stage_forward_time"] + known["stage_backward_time"]
    assert known["first_stage_extra_time"] < -0.4 * whole
    assert known["last_stage_extra_time"] < -0.4 * whole
    assert -0.01 < course(LIGHT, p2p_time=0.0).difference < 0.0
    assert -0.03 < course(LIGHT).difference < 0.0


@pytest.mark.thorough
@pytest.mark.parametrize("line", INTERLEAVED)
def test_an_interleaved_step_ends_at_its_time(line: str) -> None:
    known = evaluation(line)
    first, last = known["first_stage_extra_time"], known["last_stage_extra_time"]
    step = course(line, p2p_time=0.0)
    if 0.0 <= first <= last:
        assert step.step_time == pytest.approx(step.end, rel=1e-12)
    assert -1e-12 < step.difference < 0.08
    assert abs(course(line).difference) < 0.08


@pytest.mark.thorough_cases(every=6)
@pytest.mark.parametrize(
    ("model", "pp", "chunks"),
    [
        (model, pp, chunks)
        for model in ("nemotron-3-nano-30b-a3b", "qwen3.5-27b", "qwen3.5-35b-a3b")
        for pp, chunks in ((2, 2), (2, 4), (4, 2), (4, 3), (8, 2), (8, 3))
    ],
)
def test_an_interleaved_hybrid_ends_at_its_time(model: str, pp: int, chunks: int) -> None:
    """Its chunks have their own layers, however unevenly these are split."""
    plan = f"--seq-length 4096 --num-gpus 64 --zero-stage 1 --pp {pp} --virtual-stages {chunks}"
    step = course(f"--model {model} {plan} --micro-batches {4 * pp}", p2p_time=0.0)
    assert abs(step.difference) < 1e-4


@pytest.mark.thorough_cases("h1")
@pytest.mark.parametrize("schedule", SPLIT)
def test_a_split_backward_ends_before_its_form(schedule: str) -> None:
    """For the forms have every stage take as long as the slower end."""
    line = f"{STEP} --schedule {schedule}"
    step = course(line)
    assert step.end < step.step_time
    # Where no stage has more than another, H1's and H2's forms are exact.
    known = evaluation(line)
    even = dict.fromkeys(
        tuple(
            (
                "embedding_time output_time vocabulary_first_time vocabulary_last_time "
                "logits_weight_gradient_time"
            ).split()
        ),
        0.0,
    )
    equal = course(line, **even)
    if schedule == "dual_pipe":
        assert 0.0 <= equal.difference < 0.06
    else:
        assert equal.step_time == pytest.approx(equal.end, rel=1e-12)
    assert known["step_time"] == step.step_time


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("schedule", FOLDED)
def test_a_folded_step_ends_near_its_time(schedule: str) -> None:
    """The forms have every micro-batch wait for both ends' work, or are bounds."""
    line = f"{STEP} --schedule {schedule}"
    step = course(line)
    assert -0.01 < step.difference < 0.15
    # Both ends are in the first rank.
    names = {stage: {one.name for one in own} for stage, own in step.stages.items()}
    assert {"embedding", "LM head and loss"} <= names["stage 1"]
    assert not any("LM head and loss" in names[f"stage {at}"] for at in (2, 3, 4))
    known = evaluation(line)
    assert known["virtual_pipeline_size"] == 2.0
    assert known["peak_memory_stage"] == 0.0


# What it holds.


@pytest.mark.thorough_cases(every=5)
@pytest.mark.parametrize(
    "line", [*PLANS, LIGHT, *INTERLEAVED, *(f"{STEP} --schedule {s}" for s in (*SPLIT, *FOLDED))]
)
def test_rows_are_whole_and_do_not_overlap(line: str) -> None:
    step = course(line)
    check_rows(chrome_trace(step.stages))
    known = evaluation(line)
    assert len(step.stages) == known["pp"]
    for spans in step.stages.values():
        after = (EXPOSED, OPTIMIZER, UNEXPLAINED)
        passes = [span for span in of(list(spans), PASSES) if span.kind not in after]
        parts = of(list(spans), PARTS)
        assert sum(part.duration for part in parts) == pytest.approx(
            sum(pass_index.duration for pass_index in passes), rel=1e-9
        )
        # A part lies in a pass.
        for part in parts:
            assert any(
                pass_index.start - 1e-12 <= part.start and part.end <= pass_index.end + 1e-12
                for pass_index in passes
            )


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(
    "line",
    [*(line for line in PLANS if "--pp 4" in line or "--pp 8" in line), LIGHT, INTERLEAVED[0]],
)
def test_a_middle_stage_has_the_parts_of_the_step(line: str) -> None:
    known, step = evaluation(line), course(line)
    spans = list(step.stages[f"stage {int(known['pp']) - 1}"])
    parts: dict[str, float] = {}
    for span in of(spans, PARTS):
        parts[span.name] = parts.get(span.name, 0.0) + span.duration
    computing = ("matmul_part_time", "attention_part_time", "elementwise_part_time")
    expected = {
        "computing": sum(float(known[name]) for name in computing),
        "recomputation": float(known["recompute_part_time"]),
        "TP communication, exposed": float(known["exposed_tp_time"]),
        "CP communication, exposed": float(known["exposed_cp_time"]),
        "EP communication, exposed": float(known["exposed_ep_time"]),
        OFFLOAD: float(known["exposed_offload_time"]),
        "host wait": float(known["host_part_time"]),
    }
    assert set(parts) <= set(expected)
    for name, time in expected.items():
        assert parts.get(name, 0.0) == pytest.approx(time, rel=1e-8, abs=1e-12), name
    after = {span.kind: 0.0 for span in of(spans, PASSES)}
    for span in of(spans, PASSES):
        after[span.kind] += span.duration
    assert after.get(EXPOSED, 0.0) == pytest.approx(float(known["exposed_dp_time"]), abs=1e-12)
    assert after.get(OPTIMIZER, 0.0) == pytest.approx(float(known["optimizer_time"]), abs=1e-12)
    assert after.get(UNEXPLAINED, 0.0) == pytest.approx(float(known["step_overhead"]), abs=1e-12)


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize(
    "line",
    [
        PLANS[1],
        *PLANS[5:7],
        PLANS[9],
        PLANS[10],
        INTERLEAVED[0],
        f"{STEP} --tp-mechanism userbuffers",
        f"{STEP} --schedule dual_pipe",
        f"{MIXTRAL} --micro-batches 2 --ep-overlap 0.5 --dp-mechanism megatron_buckets",
    ],
)
def test_traces_say_what_analysis_says_of_overlap(line: str, tmp_path: Path) -> None:
    """Each dimension is a stream; read back, so much of it is hidden and exposed as in the step."""
    known, step = evaluation(line), course(line)
    path = tmp_path / "step.json"
    write_trace(step.stages, path, overwrite=False)
    stage = max(int(known["pp"]) - 1, 1)
    (own,) = (
        overlap for trace, overlap in zip(*read(path), strict=True) if trace.rows.device[0] == stage
    )
    rows = list(dict.fromkeys(span.row for span in step.stages[f"stage {stage}"]))
    for row, dimension in zip(STREAMS, ("tp", "cp", "ep", "dp"), strict=True):
        whole = float(known[f"{dimension}_communication_time"])
        if row not in rows:
            assert whole == 0.0
            continue
        actual = own.by_stream[rows.index(row) + 1]
        assert actual.communication == pytest.approx(whole, rel=1e-5), row
        exposed = float(known[f"exposed_{dimension}_time"])
        assert actual.exposed == pytest.approx(exposed, rel=1e-4, abs=1e-6), row
        # No more hides than there is to hide, and to hide behind.
        assert actual.overlapped <= min(actual.communication, own.computation)
    # What a stage between others sends both ways, be it on several streams at once.
    if known["pp"] > 2.0:
        sends = [at for at, row in enumerate(rows, 1) if row.startswith(SENDS)]
        sent = sum(own.by_stream[at].communication for at in sends)
        assert sent == pytest.approx(float(known["pp_communication_time"]), rel=1e-5)


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(
    "line",
    [PLANS[2], f"{PLANS[-1]} --tp 2", f"{STEP} --schedule dual_pipe", f"{STEP} --schedule v_half"],
)
def test_traces_have_what_the_ends_communicate(line: str, tmp_path: Path) -> None:
    """Embedding, output layer and loss have a stream at the ends, and all of it is exposed."""
    known, step = evaluation(line), course(line)
    write_trace(step.stages, tmp_path / "step.json", overwrite=False)
    sent = dict.fromkeys(step.stages, 0.0)
    for stage, own in zip(step.stages, read(tmp_path / "step.json")[1], strict=True):
        rows = list(dict.fromkeys(span.row for span in step.stages[stage]))
        if TABLES in rows:
            actual = own.by_stream[rows.index(TABLES) + 1]
            assert actual.exposed == actual.communication > 0.0
            sent[stage] = actual.communication
    first, *between, last = sent.values()
    tied = float(known["tied_all_reduce_backward_time"])
    assert (tied > 0.0) == ("3.2-1b" in line)
    passes = float(known["num_micro_batches"])
    each = [passes * float(known[f"vocabulary_{end}_time"]) for end in ("first", "last")]
    if "--schedule" in line:
        # Both ways of two directions, or both ends on one stage.
        assert first + last == pytest.approx(sum(each), rel=1e-5)
    else:
        assert (first, last) == pytest.approx([one + tied for one in each], rel=1e-5)
    assert not any(between)


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("line", [PLANS[12], INTERLEAVED[2], PLANS[12].replace("5GB/s", "1TB/s")])
def test_copies_to_the_host_have_a_stream(line: str, tmp_path: Path) -> None:
    known, step = evaluation(line), course(line)
    write_trace(step.stages, tmp_path / "step.json", overwrite=False)
    own = read(tmp_path / "step.json")[1][1]
    rows = list(dict.fromkeys(span.row for span in step.stages["stage 2"]))
    copies = own.by_stream[rows.index(COPIES) + 1]
    whole = 2.0 * float(known["num_micro_batches"] * known["offload_transfer_time"])
    assert copies.times["copy"] == pytest.approx(whole, rel=1e-5)
    assert copies.communication == 0.0
    kinds = {span.kind: 0.0 for span in step.stages["stage 2"] if span.row == COPIES}
    for span in of(list(step.stages["stage 2"]), COPIES):
        kinds[span.kind] += span.duration
    exposed = float(known["exposed_offload_time"])
    assert kinds.get(EXPOSED, 0.0) == pytest.approx(exposed, rel=1e-6, abs=1e-12)
    assert (exposed == 0.0) == ("1TB/s" in line)


def read(path: Path) -> tuple[Sequence[Trace], Sequence[Overlap]]:
    ranks = analyse_files([path], "full")
    return ranks.traces, ranks.overlaps


def test_the_ends_have_their_own_work() -> None:
    line = f"{LLAMA} --zero-stage 1 --tp 2 --pp 4 --micro-batches 8"
    known, step = evaluation(line), course(line)
    names = {stage: {s.name for s in of(list(own), PARTS)} for stage, own in step.stages.items()}
    for stage, words in (("stage 1", "embedding"), ("stage 4", "LM head and loss")):
        assert [one for one, name in names.items() if words in name] == [stage]
    output = sum(s.duration for s in step.stages["stage 4"] if s.name == "LM head and loss")
    assert output == pytest.approx(8 * float(known["output_time"]), rel=1e-9)


@pytest.mark.thorough
def test_a_pair_gains_what_overlap_gains() -> None:
    line = f"{DEEPSEEK} --pp 8 --micro-batches 16 --schedule dual_pipe"
    known = evaluation(line)
    both = float(known["stage_forward_time"] + known["stage_backward_time"])
    gain = 0.1 * both
    plain, better = (course(line, stage_overlapped_time=both - one) for one in (0.0, gain))
    assert better.end < plain.end
    for left, right in zip(plain.stages["stage 3"], better.stages["stage 3"], strict=False):
        if left.kind == PAIR and left.row == PASSES:
            assert right.duration == pytest.approx(left.duration - gain, rel=1e-9)
    check_rows(chrome_trace(better.stages))


def test_waiting_for_the_host_is_told() -> None:
    line = "--model qwen3-0.6b --seq-length 128 --num-gpus 2 --pp 2 --micro-batches 4"
    step = course(line)
    assert any(span.kind == WAITING for span in step.stages["stage 1"])
    assert step.step_time == pytest.approx(step.end, rel=0.03)


# The command.


@pytest.mark.thorough
def test_the_command_writes_a_step(cli: Runner, tmp_path: Path) -> None:
    out = cli(f"analysis {STEP} --schedule gpipe --timeline s.json --plot").out
    assert "wrote s.json: open it in Perfetto" in out
    assert "the course ends" not in out
    assert {p.name for p in tmp_path.iterdir()} == {"s.json", "s.png", "s.svg"}
    trace = json.loads((tmp_path / "s.json").read_text())
    check_rows(trace)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    (record,) = cli(f"analysis {STEP} --schedule gpipe --json").records
    end = max(event["ts"] + event["dur"] for event in events)
    assert end == pytest.approx(record["step_time_s"] * 1e6)
    assert not [event for event in trace["traceEvents"] if event["ph"] == "i"]
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["stage 1", "stage 2", "stage 3", "stage 4"]
    drawn = (tmp_path / "s.svg").read_text()
    for words in ("Training step of llama3-8b", "gpipe", "Forward", "Backward", "exposed", "Time"):
        assert words in drawn
    assert ">TP<" in drawn
    assert ">tp<" not in drawn


@pytest.mark.thorough
def test_the_command_marks_the_time_of_a_form_that_is_not_exact(
    cli: Runner, tmp_path: Path
) -> None:
    out = cli(f"analysis {STEP} --schedule zero_bubble_h1 --timeline s.json --plot").out
    assert "% more: the form has every stage take as long as the slower end" in out
    (mark,) = (
        event
        for event in json.loads((tmp_path / "s.json").read_text())["traceEvents"]
        if event["ph"] == "i"
    )
    (record,) = cli(f"analysis {STEP} --schedule zero_bubble_h1 --json").records
    assert mark["ts"] == pytest.approx(record["step_time_s"] * 1e6)
    drawn = (tmp_path / "s.svg").read_text()
    assert "Step time by its formula" in drawn
    assert ">The course ends at" in drawn


@pytest.mark.thorough
def test_many_micro_batches_are_drawn_without_names(cli: Runner, tmp_path: Path) -> None:
    for count, named in ((8, True), (80, False)):
        line = STEP.replace("--micro-batches 8", f"--micro-batches {count}")
        cli(f"analysis {line} --timeline {count}.json --plot")
        assert (f">{count - 1}<" in (tmp_path / f"{count}.svg").read_text()) == named


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{LLAMA} --tp 2,4 --micro-batches 4", "--timeline 'tp 2': a timeline shows one plan"),
        (
            "--params 7e9 --num-gpus 8 --dp 8",
            "--timeline (step): the step's time isn't known without",
        ),
        (f"{LLAMA} --tp 8 --pp 8 --micro-batches 10000", f"spans; at most {MOST_SPANS:,}"),
    ],
)
def test_what_has_no_timeline_is_told(cli: Runner, tmp_path: Path, line: str, words: str) -> None:
    done = cli(f"analysis {line} --timeline t.json", fine=False)
    assert done.code == 2
    (result,) = done.err.splitlines()
    assert words in result
    assert not done.out
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_a_file_that_is_there_is_kept(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("mine")
    result = cli(f"analysis {STEP} --timeline t.json", fine=False)
    assert result.code == 2
    assert "exists already" in result.err
    assert (tmp_path / "t.json").read_text() == "mine"
    cli(f"analysis {STEP} --timeline t.json --overwrite")
    check_rows(json.loads((tmp_path / "t.json").read_text()))


def test_a_step_of_a_program_is_noted_beside(cli: Runner) -> None:
    result = cli(f"analysis {STEP} --timeline t.json --json", fine=False)
    assert result.code == 0
    assert result.records
    assert "wrote t.json" in result.err
