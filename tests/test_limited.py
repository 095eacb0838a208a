"""Limited machines: their compute rate told, derived from a power limit, or fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.config import Config
from overhead.evaluation import Evaluation
from overhead.shipped import error_bands
from sweeps.errors import InputError
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import training_constants
from tests.cli_runner import Runner
from tests.tables import examples, keyed

# torchtitan's own configuration of Llama-3 8B, as pytorch/ao measured it.
OF_8B: dict[str, Any] = keyed(
    "model=llama3-8b world_size=8 global_batch_size=8 sequence_length=8192 framework=torchtitan"
)


def one(quantity: str, **given: Any) -> float:
    """Return one quantity of one configuration."""
    return float(sweeps.sweep([quantity], **{**OF_8B, **given})[quantity])


def test_a_share_of_the_clock_moves_compute_rates_alone() -> None:
    for name, factor in (
        ("qkv_forward_time", None),
        ("attention_forward_time", 2.0),
        ("attention_backward_time", 2.0),
        ("sized_matmul_efficiency", 0.5),
        ("dense_layer_elementwise_time", 1.0),
        ("dp_communication_time", 1.0),
        ("peak_memory", 1.0),
    ):
        whole, half = one(name), one(name, clock_ratio=0.5)
        if factor is None:  # a minimum time and bytes stay
            assert whole < half < 2.0 * whole
        else:
            assert half == pytest.approx(factor * whole, rel=1e-12), name


def test_the_whole_clock_restated_changes_nothing() -> None:
    assert one("step_time", clock_ratio=1) == one("step_time")
    assert one("step_time", power_limit=700) == one("step_time")


def test_a_power_limit_is_a_share_of_the_clock() -> None:
    """(500 / 700)^0.6: specs/operation/usual.toml."""
    share = (500.0 / 700.0) ** 0.6
    assert one("clock_ratio", power_limit=500) == pytest.approx(share, rel=1e-12)
    limited = one("step_time", power_limit=500)
    assert limited == pytest.approx(one("step_time", clock_ratio=share), rel=1e-12)
    # Of the power that is used and of the share that is told each says something else.
    assert one("step_time", power_limit=500, clock_ratio=1) == one("step_time")
    # A rate that is given is that without a limit.
    given = one("step_time", power_limit=500, matmul_efficiency=0.832)
    assert given == pytest.approx(limited, rel=1e-3)


@pytest.mark.parametrize(
    ("machine", "limit", "most"), [("dgx-h100", 701, 700), ("grand-teton-h100", 600, 500)]
)
def test_no_limit_is_above_the_gpu_s_own(machine: str, limit: float, most: float) -> None:
    """H100 SXM takes 700 W; Grand Teton's are set to 500 W: specs/hardware."""
    with pytest.raises(InputError, match=f"'{limit} W': is more.*at most power = {most} W"):
        one("step_time", hardware=machine, power_limit=limit)


def test_a_machine_that_is_limited_itself_is_not_limited_twice() -> None:
    """Grand Teton's H100 were fitted at their 500 W."""
    settings = {"hardware": "grand-teton-h100"}
    assert one("step_time", **settings, power_limit=500) == one("step_time", **settings)
    assert one("clock_ratio", **settings, power_limit=500) == 1.0


# Step times of Llama-3 8B by torchtitan on 8 GPUs: pytorch/ao @36027d82d,
# docs/source/workflows/training.md (8,192 tokens x 8 by tokens a second).
MEASURED = {
    "grand-teton-h100": {"bf16": 1.3320, "tensor": 1.0653, "row": 1.2104},
    "mi300x": {"bf16": 1.5237, "tensor": 1.3286, "row": 1.3906},
    "dgx-b200": {"bf16": 0.9861, "tensor": 0.7864, "row": 0.9481, "mx": 0.8217},
}


def scaled(name: str) -> dict[str, str]:
    """Return the labels of a precision, or of the scales of 8 bits."""
    return {"precision": name} if name == "bf16" else {"precision": "fp8", "fp8_scaling": name}


def test_scales_of_8_bits_are_as_slow_as_measured() -> None:
    """Without a scaling rowwise would be a fifth too fast."""
    for name, measured in MEASURED["grand-teton-h100"].items():
        step_time = one("step_time", hardware="grand-teton-h100", **scaled(name))
        assert step_time == pytest.approx(measured, rel=0.015), name


@pytest.mark.thorough
def test_a_scaling_is_told_in_several_ways() -> None:
    rows = one("step_time", precision="fp8", fp8_scaling="row")
    assert rows == one("step_time", precision="fp8", framework="torchtitan+rowwise_fp8")
    tensors = one("step_time", precision="fp8", fp8_scaling="tensor")
    assert tensors == one("step_time", precision="fp8") < rows
    settings = {"hardware": "dgx-b200"}
    mx = one("step_time", **settings, precision="fp8", fp8_scaling="mx")
    assert mx == one("step_time", **settings, precision="mxfp8")
    assert mx == one("step_time", **settings, precision="mxfp8", fp8_scaling="mx")


@pytest.mark.parametrize(("given", "said"), examples(__file__, "scales_that_are_not_are_refused"))
def test_scales_that_are_not_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        one("step_time", **given)


# A measured step of the user's own.


def band(**given: Any) -> tuple[float, float]:
    """Return the band of a step's time."""
    dataset = sweeps.sweep(["error_band_low", "error_band_high"], **{**OF_8B, **given})
    return float(dataset["error_band_low"]), float(dataset["error_band_high"])


def fitted(**given: Any) -> float:
    """Return the clock ratio that a measured step tells."""
    dataset = sweeps.sweep(["step_time"], **{**OF_8B, **given})
    assert float(dataset["step_time"]) == pytest.approx(given["measured_step_time"], rel=1e-9)
    return float(dataset.attrs["clock_ratio"])


@pytest.mark.parametrize("ratio", [0.05, 0.5, 0.9, 1.0, 1.3])
def test_a_measured_step_tells_the_clock(ratio: float) -> None:
    measured = one("step_time", clock_ratio=ratio)
    assert fitted(measured_step_time=measured) == pytest.approx(ratio, rel=1e-7)


@pytest.mark.thorough
def test_one_measured_step_tells_others_of_the_machine() -> None:
    """By the ratio of a bf16 row five others go from a mean error of 42 to one of 14 %."""
    before, after = [], []
    for hardware, rows in MEASURED.items():
        settings = {"hardware": hardware}
        ratio = fitted(**settings, measured_step_time=rows["bf16"])
        told = {**settings, "clock_ratio": ratio, "measured_step_time": rows["bf16"]}
        for name, measured in rows.items():
            if name == "bf16":
                continue
            error = measured / one("step_time", **told, **scaled(name)) - 1.0
            low, high = band(**told, **scaled(name))
            assert low <= error <= high or hardware == "dgx-b200"
            if hardware != "grand-teton-h100":
                after.append(1.0 - 1.0 / (1.0 + error))
                before.append(one("step_time", **settings, **scaled(name)) / measured - 1.0)
    assert len(after) == 5
    assert np.mean(np.abs(before)) == pytest.approx(0.42, abs=0.02)
    assert np.mean(np.abs(after)) == pytest.approx(0.14, abs=0.01)


@pytest.mark.thorough
def test_a_measured_step_narrows_the_band() -> None:
    bands = error_bands()["step_time"]
    assert band() == (bands["other_node"]["low"], bands["other_node"]["high"])
    difference = bands["other_node"]["difference"]
    near = one("step_time") * 1.05
    assert band(measured_step_time=near) == (-difference, difference)
    # With the clock that it told beside it nothing is fitted again.
    told = {"clock_ratio": fitted(measured_step_time=near), "measured_step_time": near}
    assert band(**told) == (-difference, difference)
    assert one("step_time", **told, global_batch_size=16) > 1.5 * near
    # A clock below the band of published runs is none that runs were compared with.
    limited = bands["limited"]["difference"]
    assert band(measured_step_time=2.0 * near) == (-limited, limited)
    assert band(measured_step_time=0) == band()


def test_a_slowdown_of_unknown_size_widens_the_band() -> None:
    limited = error_bands()["step_time"]["limited"]
    for given in (
        {"unknown_slowdown": 1},
        {"framework": "torchtitan+deterministic"},
        {"framework": "megatron-lm+deterministic"},
    ):
        assert band(**given) == (limited["low"], limited["high"])
    assert one("step_time", unknown_slowdown=1) == one("step_time")
    assert band(unknown_slowdown=0) == band()


def test_deterministic_rows_are_within_the_band_of_limited_runs() -> None:
    """Six functional tests are 11 to 45 % too fast (mcore_golden): measured by predicted."""
    limited = error_bands()["step_time"]["limited"]
    assert limited["low"] < 1.0 / (1.0 - 0.11) - 1.0
    assert limited["high"] > 1.0 / (1.0 - 0.45) - 1.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"measured_step_time": 0.3}, "impossible: 156% of the GPUs' peak; at least 0.469 s"),
        ({"measured_step_time": 1200}, "computing at a hundredth of the rate takes less"),
        ({"measured_step_time": 1.3, "tp": [1, 2]}, "is the time of one configuration"),
        ({"measured_step_time": [1.3, 1.4]}, "is the time of one configuration"),
    ],
)
def test_measured_steps_that_tell_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        one("step_time", **given)


@pytest.mark.thorough
def test_python_and_commands_fit_alike(cli: Runner) -> None:
    line = (
        "--model llama3-8b --gpus 8 --framework torchtitan --global-batch-size 64 --seq-len 8192 "
        "--measured-step 10s"
    )
    (record,) = cli(f"analysis {line} --json").records
    ratio = fitted(global_batch_size=64, measured_step_time=10.0)
    assert record["step_time_s"] == pytest.approx(10.0, rel=1e-9)
    output = " ".join(cli(f"analysis {line}").out.split())
    assert f"clock ratio {ratio:.3g}: fitted to the step of 10 s" in output
    assert f"--clock-ratio {ratio:.4g} --measured-step 10s" in output
    plan = cli(f"plan {line} --measured-plan tp=1")
    assert f"clock ratio {ratio:.3g}: fitted to the step of 10s" in " ".join(plan.out.split())
    plans = sweeps.plan(
        **{**OF_8B, "global_batch_size": 64}, measured_step_time=10.0, measured_plan={"tp": 1}
    )
    assert plans.recommended is not None
    assert plans.recommended["clock_ratio"] == pytest.approx(ratio, rel=1e-9)
    free = line.replace("--measured-step 10s", "--json")
    times = {
        cli(f"plan {free} {more}").records[0]["step_time_s"] for more in ("", "--measured-step 0")
    }
    assert len(times) == 1
    for wrong, why in (
        (line, "needs the plan that was measured"),
        (f"{line} --measured-plan tp=16", "can't run"),
        (f"{line} --measured-plan tp=1 --clock-ratio 0.8", "is given, which it tells"),
        (line.replace("--measured-step 10s", "--measured-plan tp=1"), "the time of its step"),
    ):
        result = cli(f"plan {wrong}", fine=False)
        assert result.code == 2
        assert why in " ".join(result.err.split())


def test_the_clock_is_fitted_for_overheads_own_configurations() -> None:
    shapes = keyed(
        "num_gpus=8 num_layers=32 hidden_size=4096 num_heads=32 num_kv_heads=8 ffn_size=14336 "
        "vocabulary_size=128256 gated_mlp=1 tied_embeddings=0 global_batch_size=8 seq_length=8192 "
        "zero_stage=3"
    )
    machine = training_constants(load_hardware("dgx-h100"), load_framework("megatron-lm"))
    taken = {*Config.__dataclass_fields__, "output_matmul_flops"}
    more = {name: value.value for name, value in machine.items() if name not in taken}
    free = Config(**shapes, more=more).completed()
    measured = 1.3 * Evaluation(free.numbers, free.labels)["step_time"]
    known = Config(**shapes, more={**more, "measured_step_time": measured}).completed()
    assert 0.1 < known.numbers["clock_ratio"] < 1.0
    step_time = Evaluation(known.numbers, known.labels)["step_time"]
    assert step_time == pytest.approx(measured, rel=1e-9)


# What launch files say of it.

MEGATRON = (
    "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 "
    "--bf16 --swiglu --ffn-hidden-size 14336 --padded-vocab-size 128256 "
)
TORCHTITAN = examples(__file__, "torchtitan")


def test_launch_files_tell_scales_and_determinism(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"{MEGATRON} --fp8-format hybrid --fp8-recipe blockwise --deterministic-mode")
    given = sweeps.read(script).given
    assert given["fp8_scaling"] == "block"
    assert given["precision"] == "fp8"
    assert "+deterministic" in given["framework"]
    file = tmp_path / "job.toml"
    file.write_text(TORCHTITAN)
    given = sweeps.read(file).given
    assert given["precision"] == "fp8_current"
    assert given["framework"].split("+")[1:] == ["deterministic", "rowwise_fp8"]


@pytest.mark.thorough
def test_launch_files_are_written_with_scales_and_determinism(cli: Runner, tmp_path: Path) -> None:
    line = "plan --model llama3-8b --gpus 8 -b 64 -s 4096 --tp 1 --precision fp8 --save"
    for options, name, lines in (
        (
            "--framework megatron-lm+deterministic --fp8-scaling block",
            "megatron-lm.sh",
            ("--fp8-recipe blockwise", "--deterministic-mode"),
        ),
        (
            "--framework torchtitan+deterministic --fp8-scaling row",
            "torchtitan.toml",
            ('recipe_name = "rowwise"', "deterministic = true"),
        ),
    ):
        folder = tmp_path / name
        cli(f"{line} {folder} {options}")
        text = (folder / name).read_text(encoding="utf-8")
        assert [one for one in lines if one not in text] == []
