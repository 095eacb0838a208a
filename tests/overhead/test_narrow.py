"""Steps in 8 bits: attention, scales and casts, and copies of weights."""

from __future__ import annotations

from typing import Any

import pytest

import sweeps
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
