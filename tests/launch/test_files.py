"""Launch files run: each is read by its format's own reader, and says the plan it was made of."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sweeps as package
from sweeps.launch.arguments import Override
from sweeps.launch.frameworks import launch_files
from sweeps.launch.settings import LaunchFile
from sweeps.launch.spec import spec_of_plan
from sweeps.launch.terms import keys_of
from sweeps.search.answer import answer
from sweeps.search.request import Execution, Point, read_request
from tests.cli_runner import Runner
from tests.launch import read_launch
from tests.tables import examples, keyed

DATA = Path(__file__).parents[1] / "data" / "launch"

Case = Mapping[str, str]
DENSE: Case = examples(__file__, "dense")
MIXTURE: Case = examples(__file__, "mixture")
LATENT: Case = examples(__file__, "latent")
HYBRID: Case = examples(__file__, "hybrid")
GATED_DELTA: Case = {**HYBRID, "model": "qwen3-next-80b-a3b", "world_size": "128"}
KEPT: Case = {
    **HYBRID,
    "model": "kimi-k3",
    "world_size": "2048",
    "global_batch_size": "2048",
    "hardware": "gb300-nvl72",
    "zero_stage": "3",
    "ep": "32",
}
WINDOWS: Case = {**HYBRID, "model": "gpt-oss-20b", "recompute": "selective"}
LONG: Case = examples(__file__, "long")
CASES = {
    "dense": DENSE,
    "mixture": MIXTURE,
    "latent": LATENT,
    "hybrid": HYBRID,
    "kept": KEPT,
    "gated-delta": GATED_DELTA,
    "windows": WINDOWS,
    "long": LONG,
}


def planned(case: Case) -> tuple[Point, Execution]:
    actual_answer = answer(read_request({"hardware": "dgx-h100", **case}).first, keep=1)
    assert actual_answer.recommended is not None, actual_answer.counts.fallen
    return actual_answer.point, actual_answer.recommended


@pytest.fixture(scope="module", params=CASES)
def plan(request: pytest.FixtureRequest) -> tuple[Point, Execution]:
    return planned(CASES[request.param])


def files_of(plan: Execution) -> dict[str, LaunchFile]:
    return {file.name: file for file in launch_files(plan, ("a plan", "Predicted: 1 s"))}


def rows(name: str) -> list[dict[str, str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


# Megatron-LM: the script is run, with a launcher that prints what it is given.


def given_to_megatron(text: str, folder: Path, *more: str) -> tuple[list[str], list[str]]:
    """Run a script; return what it gives the launcher, and the training script."""
    launcher = folder / "torchrun"
    launcher.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    launcher.chmod(0o755)
    script = folder / "run.sh"
    script.write_text(text)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", str(script), *more], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    words = process.stdout.splitlines()
    at = words.index("pretrain_gpt.py")
    return words[:at], words[at + 1 :]


def parsed(words: list[str]) -> dict[str, list[str]]:
    """Return arguments with their values, as argparse takes them apart."""
    takes = {name: key.value for name, key in keys_of("megatron").items()}
    names: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            assert word in takes, f"{word}: Megatron-LM has no such argument"
            assert word not in names, f"{word}: given twice"
            last = names.setdefault(word, [])
        else:
            last.append(word)
    wrong = [word for word, values in names.items() if takes[word] != bool(values)]
    assert not wrong
    return names


def test_megatron_runs(plan: tuple[Point, Execution], tmp_path: Path) -> None:
    made = plan[1]
    launcher, words = given_to_megatron(files_of(made)["megatron-lm.sh"].text, tmp_path)
    given = {name: " ".join(values) for name, values in parsed(words).items()}
    told = dict(zip(launcher[::2], launcher[1::2], strict=True))
    assert int(told["--nproc_per_node"]) * int(told["--nnodes"]) == made["world_size"]
    numbers = keyed(
        "--tensor-model-parallel-size=tp --pipeline-model-parallel-size=pp "
        "--context-parallel-size=cp --micro-batch-size=micro_batch_size "
        "--global-batch-size=global_batch_size --seq-length=sequence_length "
        "--hidden-size=hidden_size --num-attention-heads=heads"
    )
    assert {flag: float(given[flag]) for flag in numbers} == {
        flag: made[name] for flag, name in numbers.items()
    }
    assert float(given["--vocab-size"]) + 1.0 == made["vocabulary_size"]
    layers = given.get("--num-layers") or len(given["--hybrid-layer-pattern"])
    assert float(layers) == made["pipeline_layers"]
    if made.routed:
        assert float(given["--expert-model-parallel-size"]) == made["ep"]
        assert float(given["--num-experts"]) == made["experts"]


def test_arguments_after_the_script_are_added(tmp_path: Path) -> None:
    _, made = planned(DENSE)
    text = files_of(made)["megatron-lm.sh"].text
    _, words = given_to_megatron(text, tmp_path, "--save", "/checkpoints")
    assert words[-2:] == ["--save", "/checkpoints"]


LAYERS = [
    (MIXTURE, "--moe-layer-freq", "([0]*3+[1]*58)"),
    (MIXTURE, "--fp8-recipe", "tensorwise"),
    (LATENT, "--fp8-recipe", "delayed"),
    (LATENT, "--exp-avg-dtype", "bf16"),
    (LATENT, "--moe-shared-expert-intermediate-size", "2816"),
    (HYBRID, "--hybrid-layer-pattern", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
    (HYBRID, "--mamba-state-dim", "128"),
    (GATED_DELTA, "--linear-attention-freq", "4"),
    (KEPT, "--linear-attention-freq", "(" + "[1]*3+[0]*1+" * 22 + "[1]*3+[0]*2)"),
    (WINDOWS, "--window-size", "127,0"),
    (WINDOWS, "--window-attn-skip-freq", "2"),
    (WINDOWS, "--softmax-type", "learnable"),
    (GATED_DELTA, "--moe-shared-expert-gate", ""),
]


@pytest.mark.parametrize(("case", "flag", "value"), LAYERS)
def test_layers_as_megatron_has_them(case: Case, flag: str, value: str, tmp_path: Path) -> None:
    _, made = planned(case)
    _, words = given_to_megatron(files_of(made)["megatron-lm.sh"].text, tmp_path)
    assert " ".join(parsed(words)[flag]) == value


# torchtitan and DeepSpeed: a file with the keys and the types that they read.


def flat(table: Mapping[str, Any], text: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{text}{name}.") if inner else {f"{text}{name}": value}
    return found


def test_torchtitan_reads_it(plan: tuple[Point, Execution]) -> None:
    made = plan[1]
    file = files_of(made)["torchtitan.toml"]
    given = flat(tomllib.loads(file.text))
    types = {row["key"]: row["type"] for row in rows("torchtitan.csv")}
    assert {key: type(value).__name__ for key, value in given.items()} == {
        key: types[key] for key in given
    }
    ranks = [
        given[f"parallelism.{name}_degree"]
        for name in tuple(
            (
                "data_parallel_replicate data_parallel_shard tensor_parallel context_parallel "
                "pipeline_parallel"
            ).split()
        )
    ]
    product = 1
    for rank in ranks:
        product *= rank
    assert product == made["world_size"]
    known = {"llama3-70b", "deepseek-v3", "deepseek-v2-lite", "llama3-8b"}
    assert bool(given["model.name"]) == (made.labels["model"] in known)
    assert bool(given["model.name"]) != any("no model" in text for text in file.missing)


def test_deepspeed_reads_it(plan: tuple[Point, Execution]) -> None:
    made = plan[1]
    given = json.loads(files_of(made)["deepspeed.json"].text)
    ranks = given["train_batch_size"] / (
        given["train_micro_batch_size_per_gpu"] * given["gradient_accumulation_steps"]
    )
    assert ranks == made["dp"]
    assert given["zero_optimization"]["stage"] == made["zero_stage"]
    assert given["bf16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("precision", "held"),
    [("bf16", {"bf16"}), ("fp16", {"fp16"}), ("fp32", set()), ("mxfp8", {"bf16"})],
)
def test_deepspeed_holds_weights_in_the_precision_asked(precision: str, held: set[str]) -> None:
    _, made = planned(
        {
            **DENSE,
            "precision": precision,
            "hardware": "dgx-b200",
            "pp": "1",
            "virtual_pipeline_size": "1",
            "zero_stage": "3",
        }
    )
    file = files_of(made)["deepspeed.json"]
    assert json.loads(file.text).keys() & {"bf16", "fp16"} == held
    assert any("in code: GEMMs" in text for text in file.missing) == (precision == "mxfp8")


# The spec gives the plan's numbers again.


def test_the_spec_gives_the_same_step(plan: tuple[Point, Execution]) -> None:
    point, made = plan
    spec = tomllib.loads(spec_of_plan(point, made))
    dataset = package.sweep(list(spec["quantities"]), **spec["constants"])
    for name in ("step_time", "peak_memory"):
        assert float(dataset[name]) == pytest.approx(made.known[name], rel=1e-12)


LINE = "plan --model llama3-8b --gpus 16 --tp 2 --pp 1 --micro-batch-size 1 --recompute none"
NAMES = ["answer.json", "deepspeed.json", "megatron-lm.sh", "spec.toml", "torchtitan.toml"]


@pytest.mark.thorough
def test_plan_saves(cli: Runner) -> None:
    out = cli(f"{LINE} --save launch").out
    assert sorted(path.name for path in Path("launch").iterdir()) == NAMES
    assert "to launch/" in " ".join(out.split())
    (best, *_) = [
        load
        for load in json.loads(Path("launch/answer.json").read_text())
        if load["place"] == "recommended"
    ]
    records = cli("run launch/spec.toml --no-plot --json", fine=False).records
    assert records[0]["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-12)
    assert out.splitlines()[0] in Path("launch/megatron-lm.sh").read_text()


@pytest.mark.thorough
def test_buy_saves_what_to_buy(cli: Runner) -> None:
    line = "buy --model llama3-8b --tokens 100B --days 30 --global-batch-size 512 --save launch"
    out = cli(line).out
    gpus = out.split()[0]
    spec = tomllib.loads(Path("launch/spec.toml").read_text())
    assert f"{spec['constants']['world_size']:,}" == gpus


@pytest.mark.thorough
def test_nothing_is_overwritten(cli: Runner) -> None:
    cli(f"{LINE} --save launch")
    kept = Path("launch/megatron-lm.sh").read_bytes()
    result = cli(f"{LINE} --save launch --zero-stage 0", fine=False)
    assert result.code == 2
    assert result.err.startswith("sweeps: --save")
    assert "--overwrite" in result.err
    assert Path("launch/megatron-lm.sh").read_bytes() == kept
    cli(f"{LINE} --save launch --zero-stage 0 --overwrite")
    assert Path("launch/megatron-lm.sh").read_bytes() != kept


@pytest.mark.parametrize(
    ("folder", "words"), [("file", "is not a folder"), ("none/launch", "make it first")]
)
def test_a_folder_that_cant_be_is_refused(cli: Runner, folder: str, words: str) -> None:
    Path("file").touch()
    (line,) = cli.refused(f"{LINE} --save {folder}").splitlines()
    assert words in line


# What is written is read again as the same plan.


def test_a_script_is_read_as_the_plan_it_was_made_of(
    plan: tuple[Point, Execution], tmp_path: Path
) -> None:
    point, made = plan
    script = tmp_path / "run.sh"
    script.write_text(files_of(made)["megatron-lm.sh"].text)
    given = package.read(script).given
    assert given["vocabulary_size"] >= made["vocabulary_size"]
    if not made.labels["framework"].startswith("megatron-lm"):
        return
    machine = point.labels["hardware"]
    dataset = package.sweep(["step_time", "peak_memory"], hardware=machine, **given)
    for name in ("step_time", "peak_memory"):
        assert float(dataset[name]) == pytest.approx(made.known[name], rel=1e-9), name


OFFLOADED: Case = examples(__file__, "offloaded")


@pytest.mark.thorough
def test_software_that_repeats_attention_with_whole_layers_is_told() -> None:
    kept = {**OFFLOADED, "framework": "torchtitan", "recompute": "full"}
    for repeats in ("0", "1"):
        files = files_of(planned({**kept, "recompute_core_attn": repeats})[1])
        for name in ("megatron-lm.sh", "torchtitan.toml"):
            told = "its recomputation of whole layers repeats attention" in files[name].missing
            assert told == (repeats == "0")


@pytest.mark.parametrize("framework", ["deepspeed", "torchtitan"])
def test_offload_is_written_as_it_is_read(framework: str, tmp_path: Path) -> None:
    files = files_of(planned({**OFFLOADED, "framework": framework})[1])
    zero = json.loads(files["deepspeed.json"].text)["zero_optimization"]
    assert zero["offload_param"]["device"] == zero["offload_optimizer"]["device"] == "cpu"
    job = tomllib.loads(files["torchtitan.toml"].text)
    assert job["training"]["enable_cpu_offload"] is True
    assert "it has no weights in host memory" in files["megatron-lm.sh"].missing
    name = {"deepspeed": "deepspeed.json", "torchtitan": "torchtitan.toml"}[framework]
    path = tmp_path / name
    path.write_text(files[name].text)
    read = read_launch(str(path), {"world_size": Override("--gpus", "8")}).given
    assert (read["optimizer_offload"], read["parameter_offload"]) == (1.0, 1.0)
