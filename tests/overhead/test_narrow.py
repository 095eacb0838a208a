"""Steps in 8 bits: attention, scales and casts, and copies of weights."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import sweeps
from sweeps.errors import InputError
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import training_constants
from tests.tables import keyed

PLAN: dict[str, Any] = keyed(
    "model=qwen3-30b-a3b hardware=gb300-nvl72 framework=megatron-lm dp=8 ep=8 precision=fp8 "
    "zero_stage=1 micro_batch_size=1 global_batch_size=64 sequence_length=4096 recompute=none "
    "memory_capacity='1000 GB'"
)


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
    for name in tuple(
        "peak_flops matmul_efficiency peak_measured_matmul_flops attention_peak_flops".split()
    ):
        assert known[name] == plain[name]


def test_hopper_has_no_products_of_scaled_blocks() -> None:
    with pytest.raises(InputError, match="precision = 'mxfp8': dgx-h100 has no products of blocks"):
        found("step_time", hardware="dgx-h100", precision="mxfp8")


def test_copies_of_weights_and_scales_are_in_memory() -> None:
    names = ("peak_weight_memory", "peak_saved_activation_memory", "step_time", "host_part_time")
    plain = found(*names)
    blocks = found(*names, precision="mxfp8")
    # Of what products take: attention, and 16 of 128 experts; tables and norms have no copies.
    products = 48 * (2048 * (2 * 4096 + 2 * 512) + 16 * 3 * 2048 * 768)
    copies = blocks["peak_weight_memory"] - plain["peak_weight_memory"]
    assert copies == pytest.approx(2.0 * 33 / 32 * products)
    stored = "peak_saved_activation_memory"
    assert plain[stored] < blocks[stored] < 33 / 32 * plain[stored]
    # The GPUs compute as long; the host launches one cast of an expert's tokens, not two.
    gpus = [one["step_time"] - one["host_part_time"] for one in (plain, blocks)]
    assert gpus[1] == pytest.approx(gpus[0], rel=0.01)
    assert 0.0 < blocks["host_part_time"] < plain["host_part_time"]


# What stays in 16 bits: layers, or modules of every layer.

STORED: dict[str, Any] = {**PLAN, "framework": "megatron-lm+fp8_parameters"}
KEPT = tuple(
    (
        "peak_weight_memory peak_saved_activation_memory dp_gather_bytes edp_gather_bytes "
        "matmul_part_time elementwise_part_time"
    ).split()
)
# Of qwen3-30b-a3b on one of 8 ranks: weights of attention and of 16 experts.
ATTENTION = 48 * 2048 * (2 * 4096 + 2 * 512)
EXPERTS = 48 * 16 * 3 * 2048 * 768


def test_weights_left_in_16_bits_are_stored_and_gathered_so() -> None:
    """By hand: of 48 layers 12 keep 2 bytes a weight, and so do tables and norms in any case."""
    wide = found(*KEPT[:4], **{**STORED, "precision": "bf16"})
    for left in (0, 12, 48, 96):
        kept = found(*KEPT[:4], **STORED, bf16_layers=left)
        share = 1.0 - min(left / 48, 1.0)
        for name, fewer in (
            ("peak_weight_memory", ATTENTION + EXPERTS),
            ("dp_gather_bytes", ATTENTION),
            ("edp_gather_bytes", EXPERTS),
        ):
            assert wide[name] - kept[name] == pytest.approx(share * fewer), (left, name)


def test_sharded_weights_left_in_16_bits_are_gathered_so() -> None:
    """ZeRO-3 gathers a layer's: 2 bytes a weight of what is left, of norms and of the router."""
    names = ("dp_layer_gather_bytes", "edp_layer_gather_bytes", "peak_zero3_gathered_memory")
    plan = {**STORED, "zero_stage": 3, "dp": 16, "gathered_layers": 2}
    wide = found(*names, **{**plan, "precision": "bf16"})
    kept = found(*names, **plan, bf16_experts=1)
    assert wide[names[0]] - kept[names[0]] == pytest.approx(ATTENTION / 48)
    assert kept[names[1]] == pytest.approx(wide[names[1]])
    assert wide[names[2]] - kept[names[2]] == pytest.approx(2 * ATTENTION / 48)


def test_modules_left_in_16_bits_are_all_of_a_mixture_s_layers() -> None:
    """Attention and experts are all that a mixture without a shared expert multiplies."""
    layers = found(*KEPT, **STORED, bf16_layers=48)
    modules = found(*KEPT, **STORED, bf16_attention=1, bf16_experts=1)
    # Half of what the blocks take is kept for the router, which is no module of its own.
    stored = "peak_saved_activation_memory"
    assert modules.pop(stored) <= layers.pop(stored)
    del modules["elementwise_part_time"], layers["elementwise_part_time"]
    assert modules == pytest.approx(layers)


@pytest.mark.parametrize("module", ["bf16_attention", "bf16_experts", "bf16_layers"])
def test_more_in_16_bits_takes_more_memory_and_longer_products(module: str) -> None:
    most = 48.0 if module == "bf16_layers" else 1.0
    steps = [
        found(*KEPT[:2], "matmul_part_time", **STORED, **{module: share * most})
        for share in (0.0, 0.25, 0.5, 1.0)
    ]
    for before, after in itertools.pairwise(steps):
        assert all(before[name] < after[name] for name in before)


def test_an_attention_in_16_bits_leaves_a_hybrid_s_others_narrow() -> None:
    """Nemotron-3 Super: 8 of 48 layers have attention, 4608 + 4096 wide; Mamba's stay in 4 bits."""
    plan = {**PLAN, "model": "nemotron-3-super-120b-a12b", "precision": "fp4", "ep": 64, "dp": 64}
    share = found("low_precision_attention_fraction", **plan, bf16_attention=1)[
        "low_precision_attention_fraction"
    ]
    attention = 8 * (4096 + 2 * 2 * 128 + 4096)
    mamba = 40 * ((2 * 8 * 128 + 8192) + 8192 + 128 + 8192)
    assert share == pytest.approx(mamba / (attention + mamba))
    assert (
        found("low_precision_expert_fraction", **plan, bf16_attention=1)[
            "low_precision_expert_fraction"
        ]
        == 1.0
    )


def test_tensor_parallel_ranks_gather_what_is_left_in_16_bits_as_it_is() -> None:
    plan = {**PLAN, "tp": 2, "sequence_parallel": 1}
    narrow = found("tp_gather_message_bytes", **plan)["tp_gather_message_bytes"]
    whole = found("tp_message_bytes", **plan)["tp_message_bytes"]
    assert narrow == pytest.approx(whole / 2)
    for left, share in (({"bf16_layers": 48}, 1.0), ({"bf16_attention": 1}, 0.75)):
        kept = found("tp_gather_message_bytes", **plan, **left)["tp_gather_message_bytes"]
        assert kept == pytest.approx(share * whole)


def test_torchtitan_s_experts_have_a_converter_of_their_own() -> None:
    plan = {**PLAN, "framework": "torchtitan", "hardware": "dgx-h100"}
    names = ("qkv_forward_time", "expert_up_forward_time", "ep_dispatch_time")
    wide = found(*names, **{**plan, "precision": "bf16"})
    linear = found(*names, **plan)
    every = found(*names, **{**plan, "framework": "torchtitan+fp8_experts"})
    assert linear["expert_up_forward_time"] == pytest.approx(wide["expert_up_forward_time"])
    assert linear["qkv_forward_time"] == every["qkv_forward_time"] < wide["qkv_forward_time"]
    assert every["expert_up_forward_time"] < linear["expert_up_forward_time"]
    # Tokens go to experts as activations in any case: what is cast is cast there.
    assert wide["ep_dispatch_time"] == linear["ep_dispatch_time"] == every["ep_dispatch_time"]
