"""Memory against published formulas, figures and tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.memory.quantities import RECIPES
from tests.overhead.memory_cases import GIB, K22, MIB, MIXED, UNFUSED, Given, gpt, held
from tests.tables import examples

# Activations: Korthikanti et al. 2022, table 2, with any shapes.


@settings(max_examples=25, deadline=None)
@given(
    heads=st.integers(1, 12).map(lambda n: 8.0 * n),
    size=st.sampled_from([64.0, 80.0, 128.0]),
    tp=st.sampled_from([1.0, 2.0, 4.0, 8.0]),
    sequence=st.sampled_from([512.0, 2048.0, 8192.0]),
    batch=st.integers(1, 8).map(float),
)
def test_table_2_of_korthikanti(
    heads: float, size: float, tp: float, sequence: float, batch: float
) -> None:
    h, a, s, t = heads * size, heads, sequence, tp
    plan = {**gpt(2, h, a), "sequence_length": s, "micro_batch_size": batch, "tp": t}
    sbh, scores = s * batch * h, 5 * a * s / h

    def kept(values: Given, recompute: str) -> float:
        memory = held(values, **UNFUSED, recompute=recompute)
        return float(memory["rank_tokens"] * memory["kept_dense_layer_activations"])

    sequence_parallel = {**plan, "sequence_parallel": 1}
    alone = {**plan, "tp": 1}
    cases = {
        "none": (kept(alone, "none"), 34 + scores),
        "tensor": (kept(plan, "none"), 10 + 24 / t + scores / t),
        "tensor + sequence": (kept(sequence_parallel, "none"), (34 + scores) / t),
        "tensor + selective": (kept(plan, "selective"), 10 + 24 / t),
        "tensor + sequence + selective": (kept(sequence_parallel, "selective"), 34 / t),
        "full": (kept(plan, "full"), 2.0),
        "full, split": (kept(sequence_parallel, "full"), 2.0 / t),
    }
    for name, (ours, theirs) in cases.items():
        assert ours == pytest.approx(sbh * theirs, rel=1e-12), name


@pytest.mark.parametrize(
    ("model", "batch", "sp", "recompute", "tp", "mebibytes"),
    examples(__file__, "layers_of_the_paper_s_models"),
)
def test_layers_of_the_paper_s_models(
    model: str, batch: int, sp: int, recompute: str, tp: int, mebibytes: float
) -> None:
    plan = {**K22[model], "micro_batch_size": batch, "sequence_parallel": sp, "tp": tp}
    memory = held(plan, **UNFUSED, recompute=recompute)
    layer = memory["rank_tokens"] * memory["kept_dense_layer_activations"]
    assert float(layer) / MIB == pytest.approx(mebibytes, rel=1e-9)


# Figure 1: activations of the first stage; interleaving has L(1 + (p - 1)/(p v)) layers in flight.
FIGURE_1 = [
    ("22B", 4, 1, 1, 59.25, 9.5625, 45.5625),
    ("175B", 1, 8, 3, 66.84375, 12.3515625, 45.5625),
    ("530B", 1, 35, 3, 114.0234375, 23.076171875, 31.640625),
    ("1T", 1, 64, 1, 131.25, 26.5625, 32.958984375),
]


@pytest.mark.parametrize(("model", "batch", "pp", "v", "value", "selective", "states"), FIGURE_1)
def test_figure_1_of_korthikanti(
    model: str, batch: int, pp: int, v: int, value: float, selective: float, states: float
) -> None:
    plan = {
        **K22[model],
        **RECIPES["megatron_bf16"].given(),
        "micro_batch_size": batch,
        "tp": 8,
        "pp": pp,
        "virtual_pipeline_size": v,
        "in_flight_micro_batches": pp if v == 1 else pp + (pp - 1) / v,
    }
    whole = held(plan, **UNFUSED)
    assert float(whole["saved_activation_memory"]) / GIB == pytest.approx(value, rel=1e-12)
    split = held({**plan, "sequence_parallel": 1}, **UNFUSED, recompute="selective")
    assert float(split["saved_activation_memory"]) / GIB == pytest.approx(selective, rel=1e-12)
    # The figure counts the layers' matrices alone, 18 bytes each.
    matrices = whole["stage_layers"] * (whole["mixer_weights"] + whole["mlp_weights"]) / 8
    assert float(matrices) * 18 / GIB == pytest.approx(states, rel=1e-12)
    # Beyond it we have the embedding, positions, biases and norms.
    h, layers = K22[model]["hidden_size"], float(whole["stage_layers"])
    more = 51200 * h / 8 + 2048 * h + layers * (7 * h / 8 + 6 * h) + 2 * h * (pp == 1)
    assert float(whole["model_state_memory"]) == pytest.approx(18 * (float(matrices) + more))


# Figure 7, in percent of tensor parallelism alone; read off a plot.
@pytest.mark.parametrize(("model", "sp", "recompute", "percent"), examples(__file__, "figure_7"))
def test_figure_7_of_korthikanti(model: str, sp: int, recompute: str, percent: float) -> None:
    plan = {**K22[model], "tp": 8}
    ours = held({**plan, "sequence_parallel": sp}, **UNFUSED, recompute=recompute)
    base = held(plan, **UNFUSED)
    share = ours["saved_activation_memory"] / base["saved_activation_memory"]
    assert 100 * float(share) == pytest.approx(percent, abs=0.15)


# Model states: ZeRO's and Megatron's tables, FSDP.


def test_zero_s_table_of_7_5_billion_parameters() -> None:
    plan = {"parameters": 7.5e9, "dp": 64, "zero_stage": np.arange(4.0), **MIXED}
    states = held(plan, shapes="unknown")["model_state_memory"] / 1e9
    np.testing.assert_allclose(states, [120.0, 31.4, 16.6, 1.9], atol=0.05)
    exact = [120.0, 7.5 * (4 + 12 / 64), 7.5 * (2 + 14 / 64), 7.5 * 16 / 64]
    np.testing.assert_allclose(states, exact, rtol=1e-12)


@pytest.mark.parametrize(("dp", "stage", "gigabytes"), examples(__file__, "zero_s_table_1"))
def test_zero_s_table_1_of_a_trillion_parameters(dp: int, stage: int, gigabytes: float) -> None:
    plan = {"parameters": 1e12, "dp": dp, "zero_stage": stage, **MIXED}
    assert float(held(plan, shapes="unknown")["model_state_memory"]) / 1e9 == gigabytes


@settings(max_examples=20, deadline=None)
@given(dp=st.integers(1, 4096), cp=st.sampled_from([1, 2, 8]))
def test_bytes_a_parameter_of_megatron_and_fsdp(dp: int, cp: int) -> None:
    def each(recipe: str, stage: int, **more: float) -> float:
        plan = {"parameters": 1.0, "dp": dp, "cp": cp, "zero_stage": stage}
        values = {**plan, **RECIPES[recipe].given(), **more}
        labels = {"sharding": "hybrid"} if more else {}
        return float(held(values, shapes="unknown", **labels)["model_state_memory"])

    d = dp * cp
    assert each("megatron_bf16", 0) == 18.0
    assert each("megatron_bf16", 1) == pytest.approx(6 + 12 / d)
    assert each("megatron_fp16", 0) == 20.0
    assert each("megatron_fp16", 1) == pytest.approx(4 + 16 / d)
    assert each("fp32_adam", 0) == 16.0
    assert each("fp32_adam", 1) == pytest.approx(8 + 8 / d)
    assert each("fsdp_adam", 3) == pytest.approx(16 / d)
    assert each("fsdp_adam", 3, hsdp_shard_size=4) == pytest.approx(4.0)
    assert each("two_moments", 0) == 12.0
    assert each("fp8_adam", 1) == pytest.approx(3 + 12 / d)
