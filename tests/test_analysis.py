"""``sweeps analysis``: what it prints for the usual configurations, with the arithmetic by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead import build_topology, collective
from overhead.communication.operation import DIMENSIONS
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps.bands import fit_of, percent
from sweeps.display import MEAN_OF_KINDS, OWN_KINDS
from sweeps.job import evaluation_of
from sweeps.spec.catalog import load_framework
from tests.analysis_cases import LLAMA, SIZES, job_of, record
from tests.cli_runner import Done, Runner
from tests.tables import examples, keyed

# DGX H100 by its data sheet: bandwidths, and latencies of a step.
INSIDE, BETWEEN = 450e9, 50e9
STEP_INSIDE, STEP_BETWEEN = 0.8e-6, 2.7e-6
P = 70e9
MIB = 2.0**20


class Bare(Runner):
    """Where a network is named the arithmetic by hand is of bare links, without a library."""

    def __call__(self, line: str, *more: str, fine: bool = True) -> Done:
        bare = " --software none" if "--topology" in line and "tpu" not in line else ""
        return super().__call__(line + bare, *more, fine=fine)


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    monkeypatch.chdir(tmp_path)
    return Bare(capsys)


def ring_all_reduce(ranks: int, message: float, latency: float, bandwidth: float) -> float:
    # Twice round the ring but for one step: each sends 1/ranks of the message.
    return 2 * (ranks - 1) * (latency + message / ranks / bandwidth)


# Memory that an H100 of 80 GB reports [byte].
H100 = 79.11 * 2**30

# The usual examples, each with its arithmetic.


def test_data_parallelism_on_a_ring(cli: Runner) -> None:
    line = "--topology ring --num-gpus 8 --dp 8 --params 70e9"
    actual_record = record(cli, line)
    # 2 + 2 + 12 bytes a parameter, nothing sharded: each GPU has the whole model.
    assert actual_record["weight_memory_bytes"] == 140e9
    assert actual_record["gradient_memory_bytes"] == 140e9
    assert actual_record["optimizer_memory_bytes"] == 840e9
    assert actual_record["first_stage_model_state_memory_bytes"] == 1120e9
    # 14 steps of 140 GB / 8 at 450 GB/s: 0.544 s.
    time = ring_all_reduce(8, 2 * P, STEP_INSIDE, INSIDE)
    assert actual_record["dp_communication_time_s"] == pytest.approx(time, rel=1e-12)
    assert time == pytest.approx(0.544, abs=1e-3)
    out = cli(f"analysis {line} --show communication").out
    assert "1,120 of 84.9 GB per GPU for model states alone (band not known): does not fit" in out
    # A rank sends 2 x 7/8 x 140 GB = 245 GB.
    assert re.search(r"backward +1 x 140 GB +245 GB +544.5 ms +544.5 ms", out)
    assert re.search(r"upper bound of a step's communication +245 GB +544.5 ms", out)


def test_gradients_of_four_bytes_are_twice_the_message(cli: Runner) -> None:
    actual_record = record(
        cli, "--topology ring --num-gpus 8 --dp 8 --params 70e9 --gradient-bytes 4"
    )
    time = ring_all_reduce(8, 280e9, STEP_INSIDE, INSIDE)
    assert actual_record["dp_communication_time_s"] == pytest.approx(time, rel=1e-12)


@pytest.mark.thorough
def test_data_parallelism_on_two_nodes(cli: Runner) -> None:
    base = "--topology hierarchical --num-gpus 8 --dp 8 --gpus-per-node 4 --params 70e9"
    # NCCL's double tree: chains of 4 in a node, one level between two nodes, where the buffer
    # goes through 4 cards of 42.5 GB/s once; a ring through both nodes takes 14/8 as long.
    tree = 6 * STEP_INSIDE + 2 * STEP_BETWEEN + 140e9 / 4 / BETWEEN
    assert record(cli, base)["dp_communication_time_s"] == pytest.approx(tree, rel=1e-12)
    outer = STEP_BETWEEN + 140e9 / 8 / 4 / BETWEEN
    assert outer > STEP_INSIDE + 0.75 * 140e9 / 8 / INSIDE
    ring = record(cli, f"{base} --algorithm flat_ring_channels")
    assert ring["dp_communication_time_s"] == pytest.approx(14 * outer, rel=1e-12)
    # On two levels: 2 x 3/4 x 140 GB inside, 2 x 1/2 x a quarter of it between.
    two = 2 * (3 * STEP_INSIDE + STEP_BETWEEN + 0.75 * 140e9 / INSIDE + 140e9 / 8 / BETWEEN)
    result = record(cli, f"{base} --algorithm standard")
    assert result["dp_communication_time_s"] == pytest.approx(two, rel=1e-12)
    assert "on 2 nodes x 4" in cli(f"analysis {base} --show communication").out


def test_without_parallelism_there_is_memory_alone(cli: Runner) -> None:
    line = "--topology ring --num-gpus 1 --dp 1 --tp 1 --cp 1 --params 70e9"
    out = cli(f"analysis {line} --show communication").out
    assert "communication of a step: none, for nothing is split" in out
    assert re.search(r"total +1120\.00$", out, re.MULTILINE)
    assert "upper bound" not in out


def test_tensor_parallelism_of_one_layer(cli: Runner) -> None:
    line = f"--topology ring --num-gpus 8 --dp 4 --tp 2 {SIZES}"
    actual_record = record(cli, line)
    # 1024 tokens x 4096 x 2 bytes = 8 MiB, over 2 ranks: 2 steps of half of it.
    each = ring_all_reduce(2, 8 * MIB, STEP_INSIDE, INSIDE)
    # A layer has two blocks, each with an all_reduce in each direction.
    assert actual_record["tp_communication_time_s"] == pytest.approx(4 * each, rel=1e-12)
    # The embedding forward and the logits backward; and 3 numbers a token for the loss.
    loss = 3 * ring_all_reduce(2, 4 * 1024, STEP_INSIDE, INSIDE)
    result = actual_record["vocabulary_communication_time_s"]
    assert result == pytest.approx(2 * each + loss, rel=1e-12)
    # Half of the model a GPU: 2 x 35e9 bytes of gradients over 4 ranks.
    time = ring_all_reduce(4, 2 * P / 2, STEP_INSIDE, INSIDE)
    assert actual_record["dp_communication_time_s"] == pytest.approx(time, rel=1e-12)
    assert actual_record["weight_memory_bytes"] == 70e9
    assert "total_comm_time_per_step_upper_bound_s" not in actual_record
    out = cli(f"analysis {line} --show communication").out
    assert "communication of one layer a stage for tp (layers aren't given)" in out
    assert "upper bound" not in out
    assert "communication of a whole step: needs --num-layers, or --model" in out
    assert "a GPU holds 1/(tp*pp) = 1/2 of the parameters" in out
    assert "each group of ranks is a ring of its own size" in out


def test_context_parallelism_by_all_to_all(cli: Runner) -> None:
    actual_record = record(cli, f"--topology ring --num-gpus 8 --dp 2 --cp 4 {SIZES}")
    # 256 tokens a rank x 4096 x 2 bytes = 2 MiB; the short way round a ring of 4 that is
    # 4 x 4 / 4 = 4 steps of a quarter.  Queries, keys, values and results, and back again.
    each = 4 * (STEP_INSIDE + 2 * MIB / 4 / INSIDE)
    assert actual_record["cp_communication_time_s"] == pytest.approx(8 * each, rel=1e-12)
    # All 8 GPUs have equal weights, and reduce their gradients together.
    time = ring_all_reduce(8, 2 * P, STEP_INSIDE, INSIDE)
    assert actual_record["dp_communication_time_s"] == pytest.approx(time, rel=1e-12)


def test_three_dimensions_and_all_layers(cli: Runner) -> None:
    line = f"--topology ring --num-gpus 8 --dp 2 --tp 2 --cp 2 {SIZES} --num-layers 32"
    actual_record = record(cli, line)
    # 512 tokens a rank: messages of 4 MiB; 32 layers x 2 blocks x 2 directions.
    each = ring_all_reduce(2, 4 * MIB, STEP_INSIDE, INSIDE)
    assert actual_record["tp_communication_time_s"] == pytest.approx(128 * each, rel=1e-12)
    # Half of the heads a rank: 2 MiB, over 2 ranks one step of half; 32 x 4 x 2 times.
    exchange = STEP_INSIDE + 2 * MIB / 2 / INSIDE
    assert actual_record["cp_communication_time_s"] == pytest.approx(256 * exchange, rel=1e-12)
    gradients = ring_all_reduce(4, 2 * P / 2, STEP_INSIDE, INSIDE)
    assert actual_record["dp_communication_time_s"] == pytest.approx(gradients, rel=1e-12)
    ends = 2 * each + 3 * ring_all_reduce(2, 4 * 512, STEP_INSIDE, INSIDE)
    total = 128 * each + 256 * exchange + gradients + ends
    result = actual_record["total_comm_time_per_step_upper_bound_s"]
    assert result == pytest.approx(total, rel=1e-12)
    out = cli(f"analysis {line} --show communication").out
    assert re.search(rf"upper bound of a step's communication +\S+ GB +{total * 1e3:.4g} ms", out)


def test_pipeline_parallelism(cli: Runner) -> None:
    line = f"--topology ring --num-gpus 8 --dp 2 --pp 4 {SIZES} --num-layers 32"
    actual_record = record(cli, f"{line} --micro-batches 6")
    # 8 MiB to the next stage and back, each of 6 micro-batches.
    each = STEP_INSIDE + 8 * MIB / INSIDE
    assert actual_record["pp_communication_time_s"] == pytest.approx(12 * each, rel=1e-12)
    assert actual_record["weight_memory_bytes"] == 2 * P / 4


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize(
    ("model", "stages", "said"),
    [
        ("kimi-k3", 2, OWN_KINDS),
        ("kimi-k3", 1, ""),
        ("llama3-8b", 2, ""),
        ("gpt-oss-20b", 2, MEAN_OF_KINDS),
    ],
)
def test_stages_of_layers_of_several_kinds_are_said_to_be_a_mean(
    model: str, stages: int, said: str, cli: Runner
) -> None:
    line = f"--model {model} --hardware dgx-h100 --gpus 16 --pp {stages} --global-batch 64"
    out = " ".join(cli(f"analysis {line} --seq-len 4096").out.split())
    actual = [phrase for phrase in (OWN_KINDS, MEAN_OF_KINDS) if phrase in out]
    assert actual[:1] == [said][: bool(said)]


@pytest.mark.thorough
def test_a_hybrid_s_order_is_told_in_letters(cli: Runner) -> None:
    line = "analysis --model nemotron-3-nano-30b-a3b --num-gpus 8 --seq-len 4096 --show defaults"
    assert "layer_order_1 = MEMEM*EMEMEM*EMEMEM*EMEMEM" in " ".join(cli(line).out.split())


def test_a_tree_algorithm(cli: Runner) -> None:
    base = "--topology switch --num-gpus 8 --dp 8 --params 7e9"
    plain = record(cli, base)["dp_communication_time_s"]
    network = build_topology("switch", 8, bandwidth=INSIDE, latency=STEP_INSIDE)
    tree = collective("all_reduce", 14e9, network, algorithm="dbt")
    result = record(cli, f"{base} --tree-algo")["dp_communication_time_s"]
    assert result == pytest.approx(float(tree.latency_s), rel=1e-12)
    assert plain < result


@pytest.mark.thorough
def test_sides_of_a_mesh_are_those_of_the_whole(cli: Runner) -> None:
    base = "--topology torus --num-gpus 16 --params 7e9 --seq-length 1024 --hidden-size 4096"
    link: dict[str, Any] = {"bandwidth": BETWEEN, "latency": STEP_BETWEEN}
    for more, sides in (("", (4, 4)), ("--mesh-nx 8 --mesh-ny 2", (8, 2))):
        network = build_topology("torus", 16, mesh_nx=sides[0], mesh_ny=sides[1], **link)
        time = float(collective("all_reduce", 14e9, network, algorithm="nccl").latency_s)
        result = record(cli, f"{base} --dp 16 {more}")["dp_communication_time_s"]
        assert result == pytest.approx(time, rel=1e-12)
    # Half of it, every second rank, is as near to a square as can be, whatever the whole is.
    network = build_topology("torus", 8, mesh_nx=4, mesh_ny=2, **link)
    time = float(collective("all_reduce", 7e9, network, algorithm="nccl").latency_s)
    result = record(cli, f"{base} --dp 8 --tp 2 --mesh-nx 16 --mesh-ny 1")
    assert result["dp_communication_time_s"] == pytest.approx(time, rel=1e-12)


# A whole step of a real model.


def test_a_whole_step(cli: Runner) -> None:
    out = cli(f"analysis {LLAMA} --show parts,memory,communication").out
    actual_record = record(cli, LLAMA)
    assert out.startswith("8.41 s per step (-12/+18 %), MFU 47 %, 35.3 of 84.9 GB per GPU ")
    assert "(-8/+10 %): fits\n  llama3-70b on 512 GPUs: dp 16, tp 8, cp 1, pp 4\n" in out
    assert "32 micro-batches of 1 on a rank" in out
    for words in (
        "memory of the fullest GPU",
        "fits, ",
        "upper bound of a step's",
        "MFU",
        "8.413 s, -12/+18 %",
        "35.26 GB, -8/+10 %",
    ):
        assert words in out
    # Parts make up the whole.
    parts = sum(v for name, v in actual_record.items() if name.startswith("peak_"))
    assert parts == pytest.approx(actual_record["per_gpu_memory_bytes"], rel=1e-12)
    assert actual_record["memory_headroom_bytes"] == H100 - actual_record["per_gpu_memory_bytes"]
    times = sum(actual_record[f"{name}_communication_time_s"] for name in DIMENSIONS)
    assert times == pytest.approx(
        actual_record["total_comm_time_per_step_upper_bound_s"], rel=1e-12
    )
    step = sum(actual_record.get(f"{name}_s", actual_record.get(name, 0.0)) for name in STEP_PARTS)
    overhead = evaluation_of(job_of(LLAMA))["step_overhead"]
    assert step + float(overhead) == pytest.approx(actual_record["step_time_s"], rel=1e-9)
    tokens = 512 * 8192 / actual_record["step_time_s"]
    assert actual_record["tokens_per_second"] == pytest.approx(tokens, rel=1e-12)
    # What a person reads is what a program reads.
    assert re.search(rf"total +{actual_record['step_time_s']:.4g} s, -12/\+18 %", out)
    assert f"MFU {percent(actual_record['mfu'])}" in out


def test_a_plan_that_does_not_fit_is_told_loudly(cli: Runner) -> None:
    line = "analysis --model llama3-70b --num-gpus 8 --tp 8 --seq-length 8192"
    out = cli(f"{line} --show parts,memory").out
    assert out.count("does not fit") == 2
    assert "step, if the GPU's memory sufficed" in out


@pytest.mark.thorough
def test_flags_that_mean_the_same(cli: Runner) -> None:
    outputs = {
        json.dumps(record(cli, f"--topology ring {n} 8 --dp 8 --params 7e9 {b} 2 {s} 512"))
        for n in ("--num-gpus", "--gpus")
        for b in ("--batch-size", "--micro-batch", "--batch-size 2 --micro-batch")
        for s in ("--seq-length", "--seq-len")
    }
    assert len(outputs) == 1
    on = [record(cli, f"{LLAMA.replace('--sp', sp)}") for sp in ("--sp", "--sp on", "--sp 1")]
    assert on[0] == on[1] == on[2] != record(cli, LLAMA.replace("--sp", "--sp off"))


@pytest.mark.thorough_cases(every=6)
@pytest.mark.parametrize(
    ("more", "name", "rises"),
    [
        *examples(__file__, "each_flag_changes_what_it_says"),
        ("--framework deepspeed", "error_band_high", None),
        ("--hardware dgx-a100", "step_time_s", True),
    ],
)
def test_each_flag_changes_what_it_says(
    cli: Runner, more: str, name: str, rises: bool | None
) -> None:
    flag, *_ = more.split()
    text = re.sub(rf"{flag} \S+ ?", "", LLAMA)  # an option is given once
    before, after = record(cli, LLAMA)[name], record(cli, f"{text} {more}")[name]
    if rises is not None:
        assert (after > before) if rises else (after < before)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line", ["collective --message-size 1GiB", "analysis --model llama3-8b --seq-len 8k"]
)
def test_an_oversubscription_that_nothing_meets_is_said(cli: Runner, line: str) -> None:
    """All nodes are below one leaf switch: buying uplinks by this screen would be a mistake."""
    said = "oversubscription changes nothing here: one leaf switch has 32 nodes"
    line = f"{line} --hardware dgx-b200"
    assert said in cli(f"{line} --gpus 128 --oversubscription 2").out
    assert said.split(":", maxsplit=1)[0] in cli(f"{line} --gpus 128 --oversubscription 1,2").out
    assert said not in cli(f"{line} --gpus 128").out
    assert said not in cli(f"{line} --gpus 128 --oversubscription 1").out
    assert said not in cli(f"{line} --gpus 512 --oversubscription 2").out
    assert said not in cli(f"{line} --gpus 128 --oversubscription 2 --nodes-per-leaf 4").out


def test_a_plan_says_that_nothing_meets_the_oversubscription(cli: Runner) -> None:
    line = "plan --model llama3-8b --seq-len 8k --global-batch 128 --tp 1 --cp 1 --pp 1"
    line += " --micro-batch-size 1 --hardware dgx-b200 --gpus 128"
    said = "oversubscription changes nothing here: one leaf switch has 32 nodes"
    assert said in cli(f"{line} --oversubscription 2").out
    assert said not in cli(line).out


@pytest.mark.thorough
def test_the_heading_says_how_experts_are_split(cli: Runner) -> None:
    """ETP is TP unless given, and the one costs a multiple of the other."""
    step = "analysis --model mixtral-8x22b --gpus 128 --tp 8 --ep 8 --global-batch 256 --seq-len 4k"
    assert "pp 1, ep 8, etp 8\n" in cli(step).out
    assert "pp 1, ep 8, etp 1\n" in cli(f"{step} --etp 1").out
    dense = cli("analysis --model llama3-8b --gpus 16 --tp 8 --seq-len 4k").out
    assert "pp 1\n" in dense
    assert "etp" not in dense


@pytest.mark.thorough
def test_experts(cli: Runner) -> None:
    base = "--model mixtral-8x7b --num-gpus 64 --tp 2 --zero-stage 1 --seq-length 4096"
    base += " --global-batch 256"
    one, eight = record(cli, base), record(cli, f"{base} --ep 8")
    assert one["ep_communication_time_s"] < eight["ep_communication_time_s"]
    assert one["per_gpu_memory_bytes"] > eight["per_gpu_memory_bytes"]
    worse = record(cli, f"{base} --ep 8 --imbalance 2")
    assert worse["ep_communication_time_s"] > eight["ep_communication_time_s"]
    assert "ep: expert parallelism" in cli(f"analysis {base} --ep 8 --show communication").out
    # The busiest rank's experts have 1.2 times the mean, times what chance adds: 1.218.  Of the
    # exchange's time that's the part which grows with its bytes, not its latencies.
    hot = record(cli, f"{base} --ep 8 --expert-heat 1.2")
    for name, bounds in (
        ("per_gpu_memory_bytes", (1.0, 1.1)),
        ("ep_communication_time_s", (1.15, 1.218)),
    ):
        assert bounds[0] < hot[name] / eight[name] < bounds[1]
    for name in ("per_gpu_memory_bytes", "ep_communication_time_s", "step_time_s"):
        assert hot[name] < worse[name]


@pytest.mark.thorough
def test_a_price(cli: Runner) -> None:
    actual_record = record(cli, f"{LLAMA} --price 2.5USD/h --training-tokens 1e12")
    hours = 1e12 / (512 * 8192) * actual_record["step_time_s"] * 512 / 3600
    assert actual_record["gpu_hours"] == pytest.approx(hours, rel=1e-12)
    assert actual_record["cost_usd"] == pytest.approx(2.5 * hours, rel=1e-12)
    assert "cost" in cli(f"analysis {LLAMA} --price 2.5USD/h --training-tokens 1e12").out


@pytest.mark.thorough
def test_a_model_of_hugging_face(cli: Runner, tmp_path: Path) -> None:
    shapes = keyed(
        "model_type=llama num_hidden_layers=32 hidden_size=4096 num_attention_heads=32 "
        "num_key_value_heads=8 intermediate_size=14336 vocab_size=128256 tie_word_embeddings=False"
    )
    (tmp_path / "config.json").write_text(json.dumps(shapes), encoding="utf-8")
    base = "--num-gpus 64 --tp 8 --global-batch 64 --seq-length 8192"
    own = record(cli, f"--model ./config.json {base}")
    assert own["step_time_s"] == record(cli, f"--model llama3-8b {base}")["step_time_s"]


# Many configurations.


@pytest.mark.thorough
def test_several_values_make_a_table(cli: Runner) -> None:
    line = "--model llama3-8b --num-gpus 64 --zero-stage 0,1 --tp 1,4,8 --seq-length 8192"
    result = cli(f"analysis {line} --global-batch 64").out
    answer, table, *_ = result.split("\n\n")
    assert answer.endswith("1 of 6 don't fit or can't be")
    head, *rows = table.splitlines()
    assert head.split()[:5] == ["ZeRO", "tp", "dp", "step", "(s)"]
    assert len(rows) == 6
    assert rows[0].split()[:4] == ["0", "1", "64", "-"]
    assert rows[0].endswith("  does_not_fit")
    records = cli(f"analysis {line} --global-batch 64 --json").records
    assert [one["status"] for one in records] == ["does_not_fit", *["ok"] * 5]
    # What only a step that runs has is missing; memory and communication are told.
    assert records[0]["step_time_s"] is None
    assert records[0]["per_gpu_memory_bytes"] > H100
    rows_of = cli(f"analysis {line} --global-batch 64 --csv").rows
    for row, one in zip(rows_of, records, strict=True):
        assert one.pop("schema_version") == 1
        assert list(row) == list(one)
        for name, value in one.items():
            result = row[name]
            assert result == value if isinstance(value, str) else (result == "") == (value is None)
    for one in records:
        alone = f"--model llama3-8b --num-gpus 64 --tp {one['tp']:g} --seq-length 8192"
        alone += f" --zero-stage {one['zero_stage']:g} --global-batch 64"
        assert record(cli, alone)["per_gpu_memory_bytes"] == one["per_gpu_memory_bytes"]


def test_plans_that_cannot_be_are_masked_with_their_reasons(cli: Runner) -> None:
    line = f"analysis --topology ring --num-gpus 8 --dp 4,8 --tp 1,2 {SIZES} --json"
    result = {(one["dp"], one["tp"]): one for one in cli(line).records}
    assert result[4, 2]["status"] == result[8, 1]["status"] == "ok"
    assert result[4, 1]["status"] == result[8, 2]["status"] == "product_of_degrees"
    assert result[8, 2]["dp_communication_time_s"] is None
    assert result[4, 2]["dp_communication_time_s"] > 0.0


@pytest.mark.thorough
def test_machines_models_and_labels_are_axes(cli: Runner) -> None:
    line = "--model llama3-8b,mixtral-8x7b --hardware dgx-a100,dgx-h100 --num-gpus 64 --tp 2"
    line += " --recompute none,full --zero-stage 1 --seq-length 4096 --global-batch 128"
    records = cli(f"analysis {line} --json").records
    assert len(records) == 8
    assert {one["model"] for one in records} == {"llama3-8b", "mixtral-8x7b"}
    table = cli(f"analysis {line}").out
    assert "Defaults: framework = megatron-lm; " in table
    every = cli(
        "analysis --model llama3-8b --tp 2 --seq-length 4096 --recompute all --json"
    ).records
    assert len(every) >= 4


@pytest.mark.thorough
def test_a_file_recomputes_from_its_own_spec(cli: Runner, tmp_path: Path) -> None:
    line = "analysis --model llama3-8b --num-gpus 64 --tp 4,8 --seq-length 8192"
    out = cli(f"{line} --global-batch 64 --output plans.nc").out
    assert "wrote plans.nc" in out
    stored = sweeps.open(tmp_path / "plans.nc")
    (tmp_path / "plans.toml").write_text(stored.attrs["spec"], encoding="utf-8")
    dataset = sweeps.run("plans.toml")
    for name in stored.data_vars:
        np.testing.assert_array_equal(stored[name].values, dataset[name].values)


@pytest.mark.thorough
def test_communication_says_what_it_hides_behind(cli: Runner) -> None:
    asked = "--hardware dgx-h100 --gpus 256 --tp 4 --pp 4 --ep 8 --etp 1 --seq-len 4096"
    line = f"analysis --model mixtral-8x22b {asked} --global-batch 512 --zero-stage 1 --sp"
    plain = cli(f"{line} --show overlap").out.split("what communication hides behind")[1]
    rows = {row.split()[0]: row for row in plain.splitlines()[2:7] if row.strip()}
    assert {"tp", "ep", "pp", "dp"} <= set(rows)
    # Nothing of expert parallelism may hide: all of it is exposed.
    assert "0 s (0 %)" in rows["ep"]
    assert "ep_overlap = 0" in rows["ep"]
    repeated = cli(f"{line} --recompute full --show overlap").out.split(
        "what communication hides behind"
    )[1]
    repeated_line = next(row for row in repeated.splitlines() if row.split()[:1] == ["ep"])
    assert "0 s (0 %)" in repeated_line
    # A backward sends tokens to their experts once more, which is exposed, too.
    once, twice = (re.search(r"ep +([0-9.]+) ms", row) for row in (rows["ep"], repeated_line))
    assert once
    assert twice
    assert float(twice[1]) == pytest.approx(1.5 * float(once[1]), rel=1e-3)


@pytest.mark.thorough
def test_megatron_hides_reductions_of_gradients_unless_told_otherwise(cli: Runner) -> None:
    plan = "--gpus 64 --tp 8 --pp 8 --global-batch 64 --seq-length 2048"
    line = f"analysis --model gpt3-175b --hardware dgx-a100 {plan} --software none --sp 0"

    def exposed(more: str = "") -> str:
        out = cli(f"{line} {more} --show parts").out.partition("More:")[2]
        return next(row for row in out.splitlines() if "TP communication, exposed" in row)

    # 1536 all_reduces of 308 us each way; those of the backward cost 8 % of themselves.
    assert "511.4 ms" in exposed()
    assert exposed("--framework megatron-lm+serial_tp --recompute none") == exposed()
    # A share that is given holds for all of it; before 2022 nothing hid.
    assert "947.1 ms" in exposed("--tp-overlap 0")
    assert "947.1 ms" in exposed("--framework megatron-lm+runs_2021")
    # torchtitan waits.
    plain = "--recompute none --zero-stage 0 --embedding-as-layer 0 --loss-as-layer 0"
    assert "947.1 ms" in exposed(f"--framework torchtitan {plain}")


@pytest.mark.thorough
def test_software_that_is_not_named_trains_as_if_it_were(cli: Runner) -> None:
    """A machine or model of the catalogue brings the habits of what trains; bare sizes don't."""
    step = "analysis --model llama3-70b --gpus 64 --tp 8 --pp 2 --seq-len 8192 --json"
    (usual,), (result,) = (
        cli(f"{step}{more}").records for more in ("", " --framework megatron-lm")
    )
    # One setting less is unknown.
    band = {"error_band_low": 0, "error_band_high": 0}
    assert result | band == usual | band
    assert "ZeRO stage 1; sequence parallelism on" in cli(step.replace(" --json", "")).out
    cuts = cli(f"{step} --virtual-stages 2 --micro-batches 4 --framework megatron-lm").records[0]
    assert cuts["schedule"] == "interleaved"
    # Along an axis each has its own, as alone.
    names = ("megatron-lm", "torchtitan", "deepspeed")
    step = step.replace(" --pp 2", " --pp 1")
    records = cli(f"{step} --framework {','.join(names)}").records
    for name, row in zip(names, records, strict=True):
        (alone,) = cli(f"{step} --framework {name}").records
        assert {key: alone.get(key, name) for key in row} == row
    (bare,) = cli("analysis --params 7e9 --dp 8 --json").records
    assert bare["optimizer_memory_bytes"] == 84e9
    (first, *_) = cli("analysis --params 7e9 --dp 8 --zero-stage 1").out.splitlines()
    assert first.startswith("38.5 of 84.9 GB per GPU for model states alone (band not known)")


def test_torchtitan_keeps_a_pipeline_s_stages_whole(cli: Runner) -> None:
    """Weights stay gathered and gradients whole until the last micro-batch."""
    line = "analysis --model llama3-70b --hardware dgx-h100 --seq-len 8192 --tp 8 --dp 4 --json"
    titan = f"{line} --framework torchtitan --micro-batches 4"
    (whole,), (sharded,) = (cli(f"{titan} --pp 4{more}").records for more in ("", SHARDED))
    kept = ("peak_zero3_gathered_memory_bytes", "peak_unsharded_gradient_memory_bytes")
    # The second stage's 21 of 82 places in 16 bits, and gradients in single precision.
    assert whole[kept[1]] == 2 * whole[kept[0]] > 10 * sharded[kept[0]]
    assert sharded[kept[1]] == 0
    assert whole["dp_communication_time_s"] < sharded["dp_communication_time_s"] / 3


def test_gradients_reduced_once_a_step_wait_whole(cli: Runner) -> None:
    """With no_sync FSDP reduces a step's gradients once, and has room for all of them."""
    line = "analysis --model llama3-8b --hardware dgx-h200 --seq-len 4096 --dp 4 --micro-batches 4"
    each, once = (
        cli(f"{line} --framework torchtitan{option} --json").records[0]
        for option in ("", "+no_sync")
    )
    gradients = "peak_unsharded_gradient_memory_bytes"
    assert each[gradients] == 0
    assert once[gradients] == pytest.approx(4 * 8.03e9, rel=1e-3)
    halved = cli(f"{line} --framework torchtitan+no_sync --reduction-bytes 2 --json").records[0]
    assert halved[gradients] == once[gradients] / 2
    # Of four micro-batches each gathers twice; four reductions in single precision or one.
    kept = (4 * 2 * 2 + 4) / (4 * 2 * 2 + 4 * 4)
    moved = "dp_communication_time_s"
    assert once[moved] == pytest.approx(kept * each[moved], rel=0.05)


SHARDED = " --whole-in-pipeline 0"
LLAMA_405B = "--model llama3-405b --gpus 8192 --tp 8 --pp 16 --sp --seq-len 8192"


@pytest.mark.thorough
def test_feasibility_counts_places_of_stages(cli: Runner) -> None:
    """126 layers, embedding and loss are 128 places: 16 stages of 8 chunks of one place each."""
    line = f"analysis {LLAMA_405B} --global-batch 2048 --schedule interleaved"
    fits = cli(f"{line} --virtual-stages 8").out
    assert "too_few_layers" not in fits
    assert "126 layers; embedding and loss count as 1 and 1 layers: 128 to divide" in fits
    fault = cli(f"{line} --virtual-stages 8 --embedding-as-layer off", fine=False).err
    assert "too few layers" in fault
    assert "--virtual-stages 9" in cli(f"{line} --virtual-stages 9", fine=False).err
    # A last stage of two layers fewer; an end can't take more than a stage.
    fewer = f"analysis {LLAMA_405B} --global-batch 2048 --embedding-as-layer 0 --loss-as-layer"
    assert "embedding and loss count as 0 and 2 layers: 128 to divide" in cli(f"{fewer} 2").out
    assert "too few layers" in cli(f"{fewer} 18", fine=False).err


def test_a_plan_has_the_same_memory_and_time_in_analysis(cli: Runner) -> None:
    plan = f"{LLAMA_405B} --zero-stage 2 --recompute none --framework megatron-lm --json"
    (one,) = json.loads(cli(f"analysis {plan} --global-batch 2048").out)
    line = f"plan {plan} --batch-size 2048 --cp 1 --micro-batch 1 --virtual-stages 1"
    (best,) = json.loads(cli(f"{line} --memory-threshold 1").out)
    for name, rounded in (("step_time_s", 14.301), ("per_gpu_memory_bytes", 72.81e9)):
        assert best[name] == one[name]
        assert one[name] == pytest.approx(rounded, rel=1e-3)


@pytest.mark.thorough
def test_as_few_layers_are_recomputed_as_fit(cli: Runner) -> None:
    """Llama 3 405B on 8,192 H100: published runs reach an MFU of 0.41 to 0.43."""
    more = "--batch-size 2048 --cp 1 --tp 8 --pp 16 --model llama3-405b --gpus 8192 -s 8192"
    best, *_ = json.loads(cli(f"plan {more} --json").out)
    # One of the two layers of each chunk, where all of them took 14.17 s.
    assert best["step_time_s"] == pytest.approx(12.40, rel=0.01)
    assert 0.41 < best["mfu"] < 0.45
    assert best["recompute"] == "block"
    result = cli(f"plan {more} --show launch").out
    assert "recompute 1 of each chunk's layers" in result
    assert "--recompute-method block --recompute-num-layers 1" in " ".join(result.split())
    line = f"analysis {LLAMA_405B} --global-batch 2048 --zero-stage 1 --virtual-stages 4"
    line += " --recompute block"
    (one,) = json.loads(cli(f"{line} --recompute-layers 1 --json").out)
    assert one["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-12)
    assert one["per_gpu_memory_bytes"] == best["per_gpu_memory_bytes"]
    assert "recompute block of 1 of each chunk's 2 layers, as few as fit" in cli(line).out
    module = line.replace("block", "selective --recompute-mlp 1")
    assert "recompute selective (core_attn, mlp)" in cli(module).out
    assert "give --recompute-layers" in cli(line.replace("block", "uniform"), fine=False).err


@pytest.mark.thorough
def test_both_directions_of_dual_pipe_hide_experts_communication(cli: Runner) -> None:
    line = "analysis --model deepseek-v3 --gpus 1024 --pp 16 --ep 64 --seq-len 4096"
    line += " --global-batch 15360 --schedule"
    paired, alone = (
        cli(f"{line} {name} --show overlap").out for name in ("dual_pipe", "zero_bubble_h1")
    )
    rows = [
        next(row.split() for row in out.splitlines() if row.startswith("  ep  "))
        for out in (paired, alone)
    ]
    assert rows[0][1:3] == rows[1][1:3]
    assert rows[1][3] == "0"
    assert 0.4 < float(rows[0][3]) / float(rows[0][1]) < 0.96
    assert "the other direction's forward and backward" in paired


@pytest.mark.thorough
def test_a_schedule_that_the_framework_lacks_is_flagged(cli: Runner) -> None:
    line = "analysis --model deepseek-v3 --gpus 512 --pp 8 --ep 64 --seq-len 4096 --sp 0"
    line += " --global-batch 2048"
    result = "megatron-lm has no schedule dual_pipe: it has one_f_one_b, interleaved"
    assert result in cli(f"{line} --schedule dual_pipe").out
    assert "has no schedule" not in cli(f"{line} --schedule one_f_one_b").out
    assert "torchtitan has no" in cli(f"{line} --schedule dual_pipe --framework torchtitan").out


@pytest.mark.thorough
def test_stages_of_deepspeed_send_their_parts(cli: Runner) -> None:
    """By hand: a message is 4096 tokens x 8192 x 2 bytes, of eight ranks each its eighth."""
    line = "analysis --model llama3-70b --hardware dgx-a100 --gpus 64 --tp 8 --pp 4 --sp 0"
    line += " --zero-stage 1 --global-batch 128 --seq-len 4096 --recompute none"
    for framework, message, gathers in (
        ("deepspeed", "8.389 MB", True),
        ("megatron-deepspeed-2022", "8.389 MB", True),
        ("megatron-lm", "67.11 MB", False),
    ):
        out = cli(f"{line} --framework {framework} --show communication").out
        sends = out[out.index("pp: pipeline parallelism") :].splitlines()[2]
        assert sends.split()[3:5] == message.split()
        assert ("all-gather of PP activations received in parts" in out) == gathers


def test_a_precision_that_the_machine_lacks_is_said(cli: Runner) -> None:
    plan = "--gpus 8 --tp 8 --global-batch 8 --seq-len 4096"
    out = cli(f"analysis --model llama3-8b --hardware dgx-a100 --precision fp8 {plan}").out
    assert "nan" not in out
    assert "step: its time isn't known: dgx-a100's file has no peak_flops" in out
    assert "how long a step takes isn't known" in out.splitlines()[0]


@pytest.mark.parametrize(
    "line",
    [
        "plan --gpus 8 -b 8 -s 4096 --model {}", "plan --gpus 8 -b 8 -s 4096 --hardware {}",
        "analysis --model {}", "analysis --model llama3-8b --framework {}",
        "collective --M 1MiB --N 8 --hardware {}", "run {}", "catalog {}", "validate {}",
    ],
)  # fmt: skip
def test_a_name_too_long_for_a_file_is_refused(cli: Runner, line: str) -> None:
    (line,) = cli.refused(line.format("a" * 300)).splitlines()
    assert "a" * 300 in line


@pytest.mark.thorough
def test_a_tpu_trains_on_its_torus_by_xla(cli: Runner) -> None:
    line = "--model llama3-8b --hardware tpu-v5p --gpus 64 --tp 4 --seq-len 4096"
    step = f"{line} --micro-batch 1 --global-batch 64 --json"
    (own,) = cli(f"analysis {step}").records
    named = "--topology torus --framework maxtext --algorithm auto --attention-kernel flash_2"
    (said,) = cli(f"analysis {step} {named}").records
    assert own["step_time_s"] == said["step_time_s"]
    plan = "plan --model llama3-8b --hardware tpu-v5p --gpus 64 --batch-size 64 --tp 1,2 --json"
    actual = [cli(f"{plan} {words}").records[0] for words in ("", named)]
    assert actual[0]["step_time_s"] == actual[1]["step_time_s"]
    # More chips than a pod has are several pods.
    pods = step.replace("--gpus 64", "--gpus 17920").replace("batch 64", "batch 17920")
    assert "hierarchical" in cli(f"analysis {pods}").out
    # The network is that of each number of chips: where 4 doesn't divide an axis it can't wrap.
    sizes = "--dp 1,2,4,16 --global-batch 64 --micro-batch 1 --tp 4 --seq-len 4096"
    refused = cli(f"analysis --model llama3-8b --hardware tpu-v5p {sizes}", fine=False)
    assert "chips of some plans" in refused.err
    actual = sweeps.sweep(
        "step_time", model="llama3-8b", hardware="tpu-v5p", world_size=[16, 64], tp=4,
        sequence_length=4096, global_batch_size=64,
    )  # fmt: skip
    assert actual.topology.values.tolist() == ["mesh", "torus"]
    # Another torus has no XLA of ours, and its nodes' links are used together, as in a collective.
    given = {"hardware": "trainium2", "sequence_length": 4096, "global_batch_size": 64}
    dataset = sweeps.sweep("step_time", model="llama3-8b", world_size=64, tp=4, **given)
    assert dataset.attrs["framework"] == "megatron-lm"
    one = sweeps.sweep("time", hardware="trainium2", ranks=64, message_bytes=1e9)
    for name in ("topology", "intra_bandwidth"):
        assert dataset.attrs[name] == one.attrs[name], name
    # Beside another machine each has its own software, as alone.
    machines = {"tpu-v5p": "maxtext", "dgx-h100": "megatron-lm"}
    pair = cli(f"analysis {step.replace('tpu-v5p', ','.join(machines))}").records
    for cell, (machine, framework) in zip(pair, machines.items(), strict=True):
        (alone,) = cli(f"analysis {step.replace('tpu-v5p', machine)}").records
        assert (cell["hardware"], cell["framework"]) == (machine, framework)
        numbers = {name for name, value in alone.items() if isinstance(value, float)}
        assert {name: cell[name] for name in numbers} == {name: alone[name] for name in numbers}


@pytest.mark.thorough
def test_a_table_says_which_axis_changes_nothing(cli: Runner) -> None:
    """A ring leaves a leaf switch once, so that oversubscription of eight nodes is idle."""
    line = "analysis --model llama3-8b --gpus 64,128 --batch-size 1 --global-batch-size 128 --tp 8"
    idle = "oversubscription changes nothing here: only what leaves a leaf switch pays it"
    assert idle in cli(f"{line} --oversubscription 1,2").out.replace("\n  ", " ")
    told = cli(f"{line} --oversubscription 1,2 --nodes-per-leaf 1").out
    assert "changes nothing" not in told
    plan = "plan --model llama3-8b --gpus 64 --global-batch-size 128 --tp 8 --oversubscription 1,2"
    assert idle in cli(plan).out.replace("\n  ", " ")


@pytest.mark.thorough_cases(every=7)
@pytest.mark.parametrize(
    ("gpus", "taken"), [(8, 8), (64, 64), (72, 72), (128, 64), (144, 72), (256, 64), (2048, 64)]
)
def test_a_domain_of_72_is_cut_as_jobs_are_placed(cli: Runner, gpus: int, taken: int) -> None:
    """The most GPUs, up to 72, that divide the job's; each with its own network card."""
    by_hand = max(count for count in range(1, 73) if gpus % count == 0)
    assert taken == by_hand
    line = f"analysis --model llama3-70b --hardware gb200-nvl72 --gpus {gpus} --tp 8"
    line += f" --zero-stage 1 --global-batch {gpus} --seq-len 4096 --json"
    cut, given = (cli(f"{line}{more}").records for more in ("", f" --gpus-per-node {taken}"))
    assert cut[0]["step_time_s"] == given[0]["step_time_s"] > 0.0
    # A domain that is given isn't cut.
    whole = cli(f"{line} --gpus-per-node 72", fine=False)
    assert (whole.code == 0) == (72 % gpus == 0 or gpus % 72 == 0)


@pytest.mark.parametrize(
    ("needed", "words"),
    [(70, "fits"), (80, "fits, at risk"), (88, "may not fit"), (95, "does not fit")],
)
def test_what_is_predicted_above_the_memory_may_not_fit(needed: float, words: str) -> None:
    assert fit_of(needed, 84.9, -0.08, 0.1) == words


@pytest.mark.thorough
def test_a_table_says_which_rows_may_not_fit(cli: Runner) -> None:
    line = "analysis --model llama3-70b --gpus 64 --tp 8 --sp --zero-stage 1 --global-batch 128"
    rows = cli(f"{line} --seq-len 10240,13312,16384").out.splitlines()
    risky, above = (
        next(row for row in rows if f"  {tokens}  " in row) for tokens in (10240, 13312)
    )
    assert risky.endswith("fits, at risk")
    assert above.endswith("may not fit")


@pytest.mark.thorough
def test_the_lightest_recomputation_that_fits_is_told_where_none_is_stated(cli: Runner) -> None:
    line = "analysis --model llama3-70b --gpus 64 --tp 8 --sp --zero-stage 1 --global-batch 128"
    long = cli(f"{line} --seq-len 32768").out.splitlines()
    (result,) = (one for one in long if "--recompute block it fits" in one)
    output = cli(f"{line} --seq-len 32768 --recompute block").out
    time, memory = result.rsplit(": ", 1)[1].split(", ")
    assert f"{float(time.removesuffix(' s')):.3g} s per step" in output
    assert "fits, at risk" in output.splitlines()[0]
    assert memory == "80.16 GB"
    assert "as few as fit 95 % of the memory" in result
    count = int(result.split(": ")[1].split()[0])
    assert f"recompute block of {count} of each chunk's 80 layers" in output
    fewer = cli(f"{line} --seq-len 32768 --recompute block --recompute-layers {count - 1} --json")
    (values,) = fewer.records
    assert values["per_gpu_memory_bytes"] > 0.95 * 79.11 * 2**30
    assert "--recompute" not in cli(f"{line} --seq-len 4096").out
    alone = cli(
        "analysis --model llama3-70b --gpus 8 --seq-len 4096 --global-batch 8 --zero-stage 0"
    ).out
    assert "nor with all layers recomputed (--recompute full): 1.143 TB" in alone


@pytest.mark.thorough
def test_the_first_stage_of_zero_that_fits_is_told(cli: Runner) -> None:
    line = "analysis --model llama3-8b --gpus 8 --seq-len 8192 --global-batch 64"
    (result,) = (one for one in cli(line).out.splitlines() if "--zero-stage" in one)
    stage, rest = result.split("--zero-stage ")[1].split(" it fits: ")
    time, memory = rest.split(", ")
    text = " ".join(cli(f"{line} --zero-stage {stage}").out.split())
    assert f"{time} per step" in text
    assert f"{float(memory.removesuffix(' GB')):.3g} of 84.9 GB per GPU (-8/+10 %): fits" in text
    assert "may not fit" in " ".join(cli(f"{line} --zero-stage {int(stage) - 1}").out.split())


def test_plans_on_a_part_of_a_domain_can_run(cli: Runner) -> None:
    line = "plan --model llama3-70b --hardware gb200-nvl72 --gpus 64 --batch-size 256"
    out = cli(f"{line} --seq-len 8192 --cp 1 --pp 1 --micro-batch 1").out
    assert "nodes_not_filled" not in out
    assert "recommended:" in out


@pytest.mark.thorough
def test_a_torus_is_priced_by_the_best_of_its_algorithms_where_xla_runs_it(cli: Runner) -> None:
    plan = "--gpus 128 --global-batch 2048 --micro-batch 16 --seq-len 4096 --zero-stage 3"
    line = f"analysis --model deepseek-v3 --hardware tpu-7x --topology torus {plan}"
    line += " --recompute none --memory-capacity 4TB --json"

    def time(more: str) -> float:
        (one,) = cli(f"{line} {more}").records
        return float(one["step_time_s"])

    usual = time("--framework maxtext")
    # XLA reaches 0.95 of a link; experts' products run at 0.55 of others' rate there.
    assert usual == time("--framework maxtext --algorithm auto") == pytest.approx(24.68, abs=0.05)
    # One ring, as NCCL's, leaves most of a torus's links idle; no choice beats the best.
    assert time("--framework maxtext --algorithm nccl") > 2.3 * usual
    result = cli(f"{line.replace(' --json', '')} --framework maxtext").out
    assert "algorithm auto" in result
    # On GPUs XLA calls NCCL.
    gpus = "analysis --model llama3-8b --gpus 16 --global-batch 16 --seq-len 4096 --framework"
    assert "algorithm nccl" in cli(f"{gpus} maxtext+gpu").out


def test_a_run_that_ran_fits(cli: Runner) -> None:
    """Table 2 of arXiv:2104.04473: 530B under ZeRO-3 on 640 A100 of 80 GB."""
    line = "analysis --model megatron-530b --hardware dgx-a100 --framework deepspeed --gpus 640"
    line += " --zero-stage 3 --micro-batch 4 --global-batch 2560 --seq-len 2048 --recompute full"
    assert "85 GB: fits" in cli(f"{line} --show memory").out


@pytest.mark.thorough
def test_what_recipes_set_is_an_option_of_the_framework(cli: Runner) -> None:
    """By hand: 70e9 parameters, nothing sharded, bytes of weights, gradients, master, moments."""
    line = "analysis --topology ring --num-gpus 8 --dp 8 --params 70e9 --zero-stage 0 --json"
    line += " --framework megatron-lm"
    for option, gradient, states in (
        ("", 2, 4 + 4 + 4),
        ("+fp32_gradients", 4, 4 + 4 + 4),
        ("+bf16_moments", 2, 4 + 2 + 2),
        ("+muon", 2, 4 + 4),
    ):
        (found,) = cli(f"{line}{option}").records
        assert found["weight_memory_bytes"] == 2 * 70e9
        assert found["gradient_memory_bytes"] == gradient * 70e9
        assert found["optimizer_memory_bytes"] == states * 70e9
    # Graphs of a part of a layer save a part of its launches: 33 us each without any.
    step = "analysis --model qwen3-30b-a3b --gpus 8 --ep 8 --global-batch 64 --seq-len 1024 --json"
    step += " --memory-capacity 1TB --framework megatron-lm"
    scopes = ("", "+graphs_router", "+graphs_mixers", "+graphs_attention", "+cuda_graphs")
    hosts = [cli(f"{step}{scope}").records[0]["host_part_time_s"] for scope in scopes]
    assert hosts == sorted(hosts, reverse=True)
    assert hosts[-1] == 0.0 < hosts[-2]
    # Transformer Engine's loss stands in the place of 16-bit logits, which are read twice, written
    # and scaled: 10 bytes moved where Megatron's own kernels move 40, and no softmax is kept.
    for option, values, moved in (("", 8, 40), ("+fused_loss", 2, 10)):
        (found,) = cli(f"{step}+cuda_graphs{option}").records
        assert found["peak_logits_memory_bytes"] == values * 1024 * 151936
        assert load_framework(f"megatron-lm{option}").figures["loss_bytes"].value == moved


@pytest.mark.thorough
def test_the_host_s_memory_is_an_option(cli: Runner) -> None:
    """Where a machine's file has another: what is offloaded fits, or doesn't, in that."""
    step = "analysis --model llama3-8b --gpus 8 --global-batch 64 --seq-len 8192 --recompute full"
    step += " --optimizer-offload 1 --zero-stage 0 --json --host-memory-capacity"
    full, roomy = (cli(f"{step} {size}").records[0] for size in ("100GB", "200GB"))
    assert (full["status"], roomy["status"]) == ("host_memory_full", "ok")
    assert "--host-memory-capacity" in cli("plan --help-all").out
