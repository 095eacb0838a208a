"""Rates, energy, cost and error band of a step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.evaluation import MissingQuantities, derive
from overhead.shipped import error_bands
from tests.overhead.step_cases import DEEPSEEK, GPT, LLAMA, MIXTRAL, SILENT, evaluation, value
from tests.tables import examples, keyed

PLAN = {**LLAMA, **SILENT, "tp": 2, "dp": 4, "pp": 2, "global_batch_size": 64, "step_time": 2.0}


def test_tokens() -> None:
    values = evaluation(PLAN)
    assert float(values["tokens_per_second"]) == 64 * 4096 / 2
    assert float(values["tokens_per_second_per_gpu"]) == 64 * 4096 / 2 / 16


def test_utilisation_is_of_the_peak() -> None:
    values = evaluation(PLAN)
    flops = float(derive("model_flops_per_token", LLAMA)) * 64 * 4096
    assert float(values["model_flops_per_second_per_gpu"]) == pytest.approx(flops / 2 / 16)
    assert float(values["mfu"]) == pytest.approx(flops / 2 / 16 / 1e15)
    causal = float(derive("causal_model_flops_per_token", LLAMA)) * 64 * 4096
    assert float(values["causal_mfu"]) == pytest.approx(causal / 2 / 16 / 1e15)
    # A fused kernel leaves out what the mask hides; another one, or no mask, leaves nothing out.
    assert float(values["hfu"]) == float(values["causal_mfu"])
    for labels in ({"attention_kernel": "unfused"}, {"mask": "full"}):
        assert value(PLAN, "hfu", **labels) == float(values["mfu"])
    assert value({**PLAN, "peak_flops": 2e15}, "mfu") == pytest.approx(flops / 2 / 16 / 2e15)


def test_recomputed_operations_count_in_hfu_alone() -> None:
    layers = float(derive("weight_flops_per_token", LLAMA))
    scores = float(derive("causal_attention_flops_per_token", LLAMA))
    whole = float(derive("causal_model_flops_per_token", LLAMA))
    down = 32 * 2 * 4096 * 14336
    kept = 32 * 2 * 4096 * (1024 + 4096 + 14336)
    for mode, repeated_flops in (
        ("none", 0.0),
        ("selective", scores),
        ("full", layers + scores),
        ("full_early_stop", layers + scores - down),
        ("per_op", kept),
    ):
        values = evaluation(PLAN, recompute=mode)
        assert float(values["recomputed_flops_per_token"]) == pytest.approx(repeated_flops), mode
        ratio = float(values["hfu"]) / float(values["causal_mfu"])
        assert ratio == pytest.approx((whole + repeated_flops) / whole), mode
        assert float(values["mfu"]) == value(PLAN, "mfu")


def test_recomputed_operations_take_the_time_of_their_own() -> None:
    """On a machine where operations alone take time, HFU is what of the peak is used."""
    bare = {
        **GPT,
        **SILENT,
        **keyed(
            "matmul_min_time=0 matmul_time_per_k=0 matmul_efficiency=1 memory_bandwidth=1e300 "
            "unfused_efficiency=1 peak_flops=1e15 attention_peak_flops=1e15 "
            "peak_measured_matmul_flops=1e15 global_batch_size=4"
        ),
    }
    for mode in ("none", "selective", "full", "full_early_stop"):
        actual = value(bare, "hfu", recompute=mode, attention_kernel="unfused")
        assert actual == pytest.approx(1.0, rel=1e-9), mode


def test_prefill_counts_its_forward() -> None:
    values = evaluation(PLAN, schedule="forward_only", recompute="full")
    flops = float(derive("forward_flops_per_token", LLAMA)) * 64 * 4096
    assert float(values["model_flops"]) == pytest.approx(flops)
    assert float(values["mfu"]) == pytest.approx(flops / 2 / 16 / 1e15)
    causal = float(derive("causal_forward_flops_per_token", LLAMA)) * 64 * 4096
    assert float(values["hfu"]) == pytest.approx(causal / 2 / 16 / 1e15)


@given(
    length=st.integers(10, 24),
    recompute=st.sampled_from(["none", "selective", "full"]),
    kernel=st.sampled_from(["unfused", "flash_1", "flash_2", "flash_3", "cudnn"]),
    mask=st.sampled_from(["full", "causal"]),
)
def test_kernels_compute_no_more_than_the_peak(
    length: int, recompute: str, kernel: str, mask: str
) -> None:
    """However long sequences are: what a kernel leaves out isn't counted as computed."""
    bare = {
        **GPT,
        **SILENT,
        **keyed(
            "matmul_min_time=0 matmul_time_per_k=0 matmul_efficiency=1 memory_bandwidth=1e300 "
            "unfused_efficiency=1 peak_flops=1e15 attention_peak_flops=1e15 "
            "peak_measured_matmul_flops=1e15 global_batch_size=4 attention_efficiency=1 "
            "attention_backward_efficiency=1 attention_half_length=0"
        ),
        "sequence_length": 2**length,
    }
    actual = value(bare, "hfu", recompute=recompute, attention_kernel=kernel, mask=mask)
    assert 0.5 < actual <= 1.0 + 1e-12


# Energy and cost.


def test_idle_gpus_take_their_share_of_power() -> None:
    plan = {**PLAN, "step_compute_time": 1.5, "idle_power_fraction": 0.2, "power": 700}
    assert value(plan, "device_energy") == pytest.approx(16 * 700 * (0.2 * 2 + 0.8 * 1.5))
    busy = {**plan, "step_compute_time": 9.0}
    assert value(busy, "device_energy") == pytest.approx(16 * 700 * 2)


@pytest.mark.parametrize("pp", [1, 4])
def test_a_gpu_computes_for_what_it_computes(pp: int) -> None:
    plan = {**GPT, **SILENT, "pp": pp, "global_batch_size": 8, "p2p_time": 1e-3 * (pp > 1)}
    values = evaluation(plan)
    layers = 48 / pp * float(values["dense_layer_time"])
    ends = float(values["embedding_time"]) + float(values["output_time"])
    expected = 8 * (layers + ends / pp) + float(values["optimizer_time"])
    assert float(values["step_compute_time"]) == pytest.approx(expected)
    assert float(values["step_compute_time"]) <= float(values["step_time"]) * (1 + 1e-12)


def test_a_training_is_its_steps() -> None:
    plan = {**PLAN, "training_tokens": 1e12, "gpu_hour_price": 3.0, "step_energy": 5.0}
    values = evaluation(plan)
    steps = 1e12 / (64 * 4096)
    assert float(values["training_steps"]) == pytest.approx(steps)
    assert float(values["training_time"]) == pytest.approx(2 * steps)
    assert float(values["training_days"]) == pytest.approx(2 * steps / 86400)
    assert float(values["gpu_hours"]) == pytest.approx(16 * 2 * steps / 3600)
    assert float(values["cost"]) == pytest.approx(3 * 16 * 2 * steps / 3600)
    assert float(values["training_energy"]) == pytest.approx(5 * steps)
    assert float(values["cost_per_trillion_tokens"]) == pytest.approx(float(values["cost"]))
    short = {**plan, "training_tokens": 1e9}
    assert value(short, "cost_per_trillion_tokens") == pytest.approx(float(values["cost"]))
    with pytest.raises(MissingQuantities, match="training_tokens"):
        value(PLAN, "cost")


# The error to expect.


@pytest.mark.parametrize(
    ("plan", "known", "assumed"),
    [
        *examples(__file__, "the_error_to_expect"),
        (MIXTRAL, "experts", "experts"),
        ({**MIXTRAL, "given_options": 0}, "experts_bare", "experts_bare"),
        ({**DEEPSEEK, "software_kind": 1}, "far", "far"),
        (DEEPSEEK, "experts", "experts"),
    ],
)
def test_the_error_to_expect(plan: dict[str, float], known: str, assumed: str) -> None:
    bands = error_bands()["step_time"]
    for name, end in (("error_band_low", "low"), ("error_band_high", "high")):
        assert value({**LLAMA, **plan}, name) == bands[known][end]
        for unknown in (1, 3):
            settings = {**LLAMA, **plan, "unknown_settings": unknown}
            assert value(settings, name) == bands[assumed][end]
    assert abs(bands[known]["low"]) <= abs(bands[assumed]["low"])
    assert bands[known]["high"] <= bands[assumed]["high"]


@pytest.mark.parametrize(("kind", "name"), [(0, "megatron"), (1, "torch_fsdp"), (2, "others")])
def test_memory_has_three_states(kind: float, name: str) -> None:
    band = error_bands()["memory"][name]
    plan = {**LLAMA, "software_kind": kind, "memory_capacity": 80e9}
    states = {}
    for peak in np.linspace(20e9, 120e9, 201).tolist():
        actual = value({**plan, "peak_memory": peak}, "memory_state")
        low, high = peak * (1 + band["low"]), peak * (1 + band["high"])
        assert actual == (0 if low > 80e9 else 1 if high > 80e9 else 2)
        states[actual] = peak
    assert set(states) == {0, 1, 2}


def test_rates_broadcast() -> None:
    plan = {
        **LLAMA,
        **SILENT,
        "tp": np.array([[1.0], [2.0]]),
        "global_batch_size": np.array([8.0, 16, 32]),
    }
    assert evaluation(plan)["mfu"].shape == (2, 3)
