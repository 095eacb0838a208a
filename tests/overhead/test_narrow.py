"""Steps in 8 bits: attention, scales and casts, and copies of weights."""

from __future__ import annotations

from typing import Any

import pytest

import sweeps
from sweeps.errors import InputError
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import training_constants

PLAN: dict[str, Any] = {
    "model": "qwen3-30b-a3b", "hardware": "gb300-nvl72", "framework": "megatron-lm", "dp": 8,
    "ep": 8, "precision": "fp8", "zero_stage": 1, "micro_batch": 1, "global_batch": 64,
    "sequence_length": 4096, "recompute": "none", "memory_capacity": "1000 GB",
}  # fmt: skip


def found(*names: str, **changed: Any) -> dict[str, float]:
    data = sweeps.sweep(list(names), **{**PLAN, **changed})
    return {name: float(data[name]) for name in names}


def test_attention_in_8_bits_is_faster_within_its_peak() -> None:
    names = ("attention_part_time", "matmul_part_time", "elementwise_part_time", "peak_memory")
    wide = found(*names)
    narrow = found(*names, framework="megatron-lm+fp8_attention")
    framework = load_framework("megatron-lm+fp8_attention")
    known = training_constants(load_hardware("gb300-nvl72"), framework, precision="fp8")
    speedup = known["attention_speedup"].value
    assert wide["attention_part_time"] == pytest.approx(speedup * narrow["attention_part_time"])
    assert [narrow[name] for name in names[1:]] == [wide[name] for name in names[1:]]
    reached = known["attention_efficiency"].value * known["attention_peak_flops"].value
    assert reached < speedup * reached < known["peak_flops"].value


@pytest.mark.parametrize(
    ("hardware", "precision", "options", "values", "gathered"),
    [
        # 16-bit weights, and beside them one in 8 bits for each layout that products take.
        ("dgx-h100", "fp8", "", 2.0, 2.0),
        ("dgx-h100", "fp8_current", "", 4.0, 2.0),
        ("dgx-h100", "fp8_delayed", "+fp8_parameters", 2.0, 1.0),
        ("gb300-nvl72", "fp8_current", "", 3.0, 2.0),
        ("gb300-nvl72", "fp8_current", "+fp8_parameters", 1.0, 1.0),
        # Blocks of 32 with a scale of 8 bits, along both sides; gathered in 16 bits.
        ("gb300-nvl72", "mxfp8", "", 2.0 + 2.0 * 33 / 32, 2.0),
        ("gb300-nvl72", "mxfp8", "+fp8_parameters", 2.0 * 33 / 32, 2.0),
    ],
)
def test_a_recipe_of_8_bits_keeps_scales_and_copies(
    hardware: str, precision: str, options: str, values: float, gathered: float
) -> None:
    machine, framework = load_hardware(hardware), load_framework(f"megatron-lm{options}")
    known = training_constants(machine, framework, precision=precision)
    assert known["weight_bytes"].value + known["weight_copy_bytes"].value == values
    assert known["weight_bytes"].value == gathered
    assert known["matmul_input_bytes"].value == (33 / 32 if precision == "mxfp8" else 1.0)
    # Rates are those of 8 bits.
    plain = training_constants(machine, framework, precision="fp8")
    for name in ("peak_flops", "matmul_efficiency", "best_matmul_flops", "attention_peak_flops"):
        assert known[name] == plain[name]


def test_hopper_has_no_products_of_scaled_blocks() -> None:
    with pytest.raises(InputError, match="precision = 'mxfp8': dgx-h100 has no products of blocks"):
        found("step_time", hardware="dgx-h100", precision="mxfp8")


def test_copies_of_weights_and_scales_are_in_memory() -> None:
    names = ("peak_weight_memory", "peak_stored_activation_memory", "step_time", "host_part_time")
    plain = found(*names)
    blocks = found(*names, precision="mxfp8")
    assert blocks["peak_weight_memory"] / plain["peak_weight_memory"] == (2.0 + 2.0 * 33 / 32) / 2.0
    stored = "peak_stored_activation_memory"
    assert plain[stored] < blocks[stored] < 33 / 32 * plain[stored]
    # The GPUs compute as long; the host launches one cast of an expert's tokens, not two.
    gpus = [one["step_time"] - one["host_part_time"] for one in (plain, blocks)]
    assert gpus[1] == pytest.approx(gpus[0], rel=0.01)
    assert 0.0 < blocks["host_part_time"] < plain["host_part_time"]
