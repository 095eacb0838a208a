"""Recipe presets: what recipes of releases set, what is given by hand, one road for all."""

import csv
from pathlib import Path
from typing import Any

import pytest

import sweeps
from overhead.completion import TENSORS
from sweeps.cli import run
from sweeps.errors import InputError
from sweeps.job import prepare
from sweeps.spec.catalog import find_preset, framework_names, load_framework, presets_of
from sweeps.spec.preset import Run
from sweeps.validate.run_table import Run as Row
from sweeps.validate.training_rows import cases_of_runs
from tests.tables import examples, keyed

RECIPES = Path(__file__).parents[1] / "data" / "bridge_recipes.csv"
# What graphs are called there, and the option that has them.
GRAPHS = {
    "none": "",
    "router": "graphs_router",
    "attention": "graphs_attention",
    "mixers": "graphs_mixers",
    "whole": "cuda_graphs",
}
DEEPSEEK: dict[str, Any] = keyed(
    "model=deepseek-v3 hardware=gb200-nvl72 world_size=256 pp=4 ep=64 virtual_pipeline_size=4 "
    "global_batch_size=4096 sequence_length=4096 precision=mxfp8"
)
WANTED = ["step_time", "peak_memory", "error_band_low", "error_band_high"]


def recipes() -> list[dict[str, str]]:
    lines = RECIPES.read_text(encoding="utf-8").splitlines()
    return [*csv.DictReader(line for line in lines if not line.startswith("#"))]


def answer(**given: Any) -> list[float]:
    dataset = prepare({"constants": given, "quantities": WANTED}).dataset()
    return [float(dataset[name]) for name in WANTED]


@pytest.mark.parametrize("preset", dict.fromkeys(row["preset"] for row in recipes()))
def test_a_release_sets_what_its_recipes_do(preset: str) -> None:
    framework = load_framework("megatron-lm")
    wrong = []
    for row in recipes():
        if row["preset"] != preset:
            continue
        generation = "hopper" if row["hardware"] == "dgx-h100" else "blackwell"
        taken = framework.presets[preset].taken(
            Run(row["model"], True, row["hardware"], generation, row["precision"])
        )
        on = framework.acting(taken.options)
        modules = {name.removeprefix("recompute_") for name, flag in taken.modules.items() if flag}
        graphs = {name for name in GRAPHS.values() if name in on}
        found = (graphs, "ep_overlap" in on, taken.labels["dispatcher"], modules)
        said = (
            {*filter(None, [GRAPHS[row["graphs"]]])},
            row["ep_overlap"] == "1",
            row["dispatcher"],
            {*row["recompute"].split()},
        )
        if found != said:
            wrong.append((row, found))
    assert not wrong


def test_a_preset_is_what_its_options_are_by_hand() -> None:
    by_hand = keyed(
        "framework=megatron-lm+fused_loss+fp8_parameters+cuda_graphs+ep_overlap "
        "dispatcher=deduplicated recompute=selective recompute_core_attn=0 recompute_mla_up_proj=1 "
        "optimizer_bytes=8"
    )
    # What a run's own flags are is known by hand alone, so that the band is narrower.
    assert answer(**DEEPSEEK, preset="bridge-26.06")[:2] == answer(**DEEPSEEK, **by_hand)[:2]


def test_published_steps_are_near_with_the_release_alone() -> None:
    # NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md @067f987df0, 26.06: DeepSeek
    # V3 on 256 GB200, 4,969 tokens/s a GPU; four stages of four chunks, 64 ranks of experts.
    measured = 4096 * 4096 / (4969 * 256)
    time, _, low, high = answer(**DEEPSEEK, preset="bridge-26.06")
    bare, *_ = answer(**DEEPSEEK)
    assert abs(time / measured - 1.0) < 0.1 < abs(bare / measured - 1.0)
    assert (low, high) == (-0.18, 0.4)


@pytest.mark.parametrize(
    ("by_hand", "more"),
    [
        ({"recompute": "full"}, {"recompute": "full"}),
        ({"optimizer_bytes": 12}, {"optimizer_bytes": 12}),
        ({"dispatcher": "all_to_all"}, {"dispatcher": "all_to_all"}),
    ],
)
def test_what_is_given_by_hand_wins(by_hand: dict[str, Any], more: dict[str, Any]) -> None:
    spec = {"constants": {**DEEPSEEK, "preset": "bridge-26.06", **by_hand}, "quantities": WANTED}
    job = prepare(spec)
    values = {**job.resolved.constants, **job.resolved.labels}
    assert {name: values[name] for name in more} == more
    assert not {*more} & {*job.resolved.origins}
    modules = {name for name in values if name.startswith("recompute_") and values[name] == 1.0}
    wanted = {"recompute_core_attn"} if "recompute" in by_hand else {"recompute_mla_up_proj"}
    assert modules == wanted


def test_options_given_by_hand_come_after_the_preset_s() -> None:
    given = {**DEEPSEEK, "preset": "bridge-26.06", "framework": "megatron-lm+graphs_router"}
    job = prepare({"constants": given, "quantities": WANTED})
    # Whole iterations' graphs say no more than graphs of routers do, which come later.
    software = "megatron-lm+fused_loss+fp8_parameters+ep_overlap+graphs_router"
    assert job.resolved.labels["framework"] == software
    assert job.resolved.constants["eager_launch_fraction"] == 0.75


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("option", "name", "value"),
    [("eager", "loss", "eager"), ("full_recompute", "recompute", "full")],
)
def test_an_option_by_hand_wins_over_what_a_preset_sets(option: str, name: str, value: str) -> None:
    plan = {"model": "llama3-8b", "hardware": "dgx-h100", "world_size": 8, "zero_stage": 3}
    batch = {"global_batch_size": 8, "sequence_length": 8192}
    software = {"framework": f"torchtitan+{option}", "preset": "torchtitan-2025"}
    job = prepare({"constants": {**plan, **batch, **software}, "quantities": WANTED})
    assert job.resolved.labels[name] == value


def test_a_preset_brings_its_framework_and_refuses_another() -> None:
    with pytest.raises(InputError, match=r"preset = 'bridge-26.06': is of megatron-lm, and the"):
        answer(**DEEPSEEK, preset="bridge-26.06", framework="torchtitan")
    with pytest.raises(InputError, match=r"is no preset of a release; did you mean"):
        answer(**DEEPSEEK, preset="bridge-26.6")
    assert find_preset("bridge_26.06").name == "bridge-26.06"


def test_presets_and_machines_may_be_axes() -> None:
    axes = {"preset": ["bridge-26.02", "bridge-26.06"], "hardware": ["gb200-nvl72", "dgx-h100"]}
    given = keyed(
        "model=qwen3-30b-a3b world_size=16 ep=16 precision=bf16 sequence_length=4096 "
        "global_batch_size=256"
    )
    spec = {"axes": axes, "constants": given, "quantities": WANTED}
    dataset = prepare(spec).dataset()
    for preset in axes["preset"]:
        for machine in axes["hardware"]:
            one = answer(**given, preset=preset, hardware=machine)
            cell = dataset.sel(preset=preset, hardware=machine)
            assert [float(cell[name]) for name in WANTED] == one


def test_no_preset_sets_a_parallel_degree_and_each_has_a_source() -> None:
    for name, preset in presets_of().items():
        assert preset.framework in framework_names(), name
        assert len(preset.source) > 20, name
        numbers = {key for rule in preset.rules for key in rule.numbers}
        assert not numbers & {*TENSORS, "tp", "pp", "cp", "dp", "ep", "etp", "zero_stage"}


def test_a_search_takes_modules_and_options_of_a_preset() -> None:
    plans = sweeps.plan(
        model="deepseek-v3",
        hardware="dgx-b200",
        world_size=256,
        global_batch_size=512,
        precision="mxfp8",
        preset="bridge-26.06",
        tp=[1],
        pp=[8],
        ep=[32],
    )
    assert plans.recommended is not None
    best = plans.recommended
    assert best.modules == ("mla_up_proj", "mlp")
    assert best.given["ep_overlap"] == 0.8
    assert best.given["eager_launch_fraction"] == 0.36


def test_a_measured_row_takes_its_release_and_what_it_says_itself() -> None:
    texts = keyed(
        "row_id=R source_id=x model=qwen3-235b-a22b framework=megatron-lm preset=bridge-26.06 "
        "gpu_type=gb200-nvl72 precision=mxfp8"
    )
    numbers = keyed(
        "gpus=256.0 tp=1.0 pp=8.0 vpp=3.0 ep=32.0 seq_len=4096.0 global_batch_size=8192.0 "
        "micro_batch_size=1.0 step_time_s=20.0"
    )
    (case,) = cases_of_runs([Row(1, texts, numbers)]).cases
    assert case.labels["dispatcher"] == "deduplicated"
    assert case.labels["recompute"] == "none"
    assert {"cuda_graphs", "ep_overlap"} <= {*case.labels["framework"].split("+")}
    (off,) = cases_of_runs([Row(1, texts | {"moe_a2a_overlap": "no"}, numbers)]).cases
    assert "ep_overlap" not in off.labels["framework"]


@pytest.mark.thorough
def test_screens_say_what_a_preset_set(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ("--hardware", "gb200-nvl72", "--gpus", "64", "--ep", "64")
    asked = ["analysis", "--model", "deepseek-v3", *machine]
    assert run(asked) == 0
    assert (
        "(-18/+40 % with a release's preset, as --preset bridge-26.08)" in capsys.readouterr().out
    )
    assert run([*asked, "--precision", "mxfp8", "--preset", "bridge-26.06"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Preset bridge-26.06 (NVIDIA-NeMo/Megatron-Bridge v0.5.0): fused_loss, " in said
    assert "recompute_mla_up_proj = on" in said
    assert run(["catalog", "bridge-26.06"]) == 0
    assert "always: fused_loss; unfused_operations = 0; recompute none" in capsys.readouterr().out


def test_python_takes_a_preset() -> None:
    dataset = sweeps.sweep("step_time", **DEEPSEEK, preset="bridge-26.06")
    assert float(dataset["step_time"]) == answer(**DEEPSEEK, preset="bridge-26.06")[0]


WRONG = examples(__file__, "wrong")


def test_a_broken_preset_is_refused_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WRONG, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_framework(path)
    lines = str(error.value)
    assert "presets.one.options = 'nosuch': is unknown" in lines
    assert "presets.one.set.tp = 8: is not a preset's to set" in lines
    assert "when.gpus: no such key" in lines


@pytest.mark.parametrize(("stated", "line"), examples(__file__, "of_another_type"))
def test_a_preset_of_another_type_is_refused(tmp_path: Path, stated: str, line: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WRONG.replace('options = ["nosuch"]', stated), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_framework(path)
    assert f"presets.one.{line}" in str(error.value)


def test_deepspeed_holds_two_buckets_and_recomputes_nothing() -> None:
    """Its documented defaults; what is given by hand goes before them."""
    given = keyed(
        "model=llama2-7b hardware=dgx-a100 world_size=16 framework=deepspeed global_batch_size=16 "
        "sequence_length=2048"
    )
    wanted = ["peak_bucket_memory", "peak_recompute_activation_memory"]

    def memory(**more: Any) -> list[float]:
        asked = {"constants": {**given, **more}, "quantities": wanted}
        dataset = prepare(asked).dataset()
        return [float(dataset[name]) for name in wanted]

    assert memory()[0] == 0.0
    assert memory(preset="deepspeed-2026") == [2e9, 0.0]
    assert memory(preset="deepspeed-2026", buckets=1.0, recompute="full")[0] == 1e9
