"""Laws that memory obeys, and faults in what is given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.evaluation import MissingQuantities
from overhead.memory.quantities import PARTS, RECIPES
from tests.overhead.memory_cases import (
    DEEPSEEK_V3,
    K22,
    LLAMA3_70B,
    MIXED,
    Derivation,
    Given,
    held,
    stage_memory,
)

# Laws.

DEGREES = st.sampled_from([1.0, 2.0, 4.0, 8.0])
PLANS = st.fixed_dictionaries(
    {
        "tp": DEGREES,
        "pp": DEGREES,
        "dp": DEGREES,
        "cp": DEGREES,
        "zero_stage": st.integers(0, 3),
        "sequence_parallel": st.integers(0, 1),
        "micro_batch_size": st.integers(1, 4),
        "in_flight_micro_batches": st.integers(1, 16),
        "dropout": st.integers(0, 1),
        "unsharded_gradient_fraction": st.sampled_from([0.0, 0.5, 1.0]),
        "allocator_reserve_ratio": st.sampled_from([1.0, 1.25]),
    }
)
MODELS = st.sampled_from([LLAMA3_70B, DEEPSEEK_V3, K22["175B"]])
KERNELS = st.sampled_from(["unfused", "flash_2"])
laws = settings(max_examples=40, deadline=None)


@laws
@given(plan=PLANS, model=MODELS, kernel=KERNELS)
def test_parts_sum_to_totals(plan: dict[str, float], model: Given, kernel: str) -> None:
    report = stage_memory({**model, **MIXED, **plan}, {"attention_kernel": kernel})
    outside = {"nccl_buffer_memory", "context_bytes"}
    inside = sum(report.parts[name] for name in PARTS if name not in outside)
    reserved = plan["allocator_reserve_ratio"] * inside
    np.testing.assert_allclose(report.parts["reserved_memory"], reserved, rtol=1e-12)
    total = reserved + sum(report.parts[name] for name in sorted(outside))
    np.testing.assert_allclose(report.parts["memory"], total, rtol=1e-12)
    assert float(report.peak_memory) == np.max(report.parts["memory"])
    assert all((part >= 0).all() for part in report.parts.values())


@pytest.mark.thorough
@laws
@given(
    pp=st.sampled_from([2.0, 4.0, 8.0, 16.0]),
    chunks=st.integers(1, 4),
    layers=st.integers(48, 96),
    dense=st.integers(0, 6),
    ends=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    num_micro_batches=st.sampled_from([1.0, 4.0, 16.0, 64.0]),
)
def test_no_stage_needs_more_than_the_fullest(
    pp: float, chunks: int, layers: int, dense: int, ends: tuple[int, int], num_micro_batches: float
) -> None:
    """Leading dense layers fill chunks of the first stages: interleaved ones are short."""
    embedding, loss = ends
    values = {
        **DEEPSEEK_V3,
        **MIXED,
        "layers": layers,
        "dense_layers": dense,
        "pp": pp,
        "tp": 8.0,
        "ep": 8.0,
        "dp": 8.0,
        "virtual_pipeline_size": chunks,
        "num_micro_batches": num_micro_batches,
        "embedding_layer_weight": embedding,
        "head_layer_weight": loss,
        "sequence_parallel": 1.0,
    }
    labels = {"schedule": "interleaved" if chunks > 1 else "one_f_one_b"}
    memory = Derivation({**values, "stage": np.arange(pp)}, labels)["memory"]
    most = float(stage_memory(values, labels).peak_memory)
    assert most >= np.max(memory) * (1 - 1e-12)
    of_all = Derivation(values, labels)["peak_memory"]
    assert float(of_all) == most


@laws
@given(plan=PLANS, model=MODELS, more=st.sampled_from([2.0, 3.0, 8.0]))
def test_more_data_parallelism_never_needs_more_states(
    plan: dict[str, float], model: Given, more: float
) -> None:
    model_state_memory = stage_memory({**model, **MIXED, **plan}).parts["model_state_memory"]
    other_stage_memory = stage_memory({**model, **MIXED, **plan, "dp": plan["dp"] * more})
    assert (
        other_stage_memory.parts["model_state_memory"] <= model_state_memory * (1 + 1e-12)
    ).all()


@laws
@given(plan=PLANS, model=MODELS)
def test_a_higher_stage_of_zero_never_needs_more_states(
    plan: dict[str, float], model: Given
) -> None:
    values = {**model, **MIXED, **plan, "zero_stage": np.arange(4.0)}
    states = stage_memory(values).parts["model_state_memory"]
    assert (np.diff(states, axis=-1) <= 1e-6).all()


@laws
@given(
    plan=PLANS, model=MODELS, kernel=KERNELS, recompute=st.sampled_from(["none", "full", "per_op"])
)
def test_memory_falls_with_tensor_and_pipeline_parallelism(
    plan: dict[str, float], model: Given, kernel: str, recompute: str
) -> None:
    """Of what is reserved: communicators have buffers of their own."""
    labels = {"attention_kernel": kernel, "recompute": recompute}
    # Learned positions and router are whole on each rank; layers divide: nothing else may grow.
    # What is in flight stays: then the stages of a longer pipeline have less.
    values = {**model, **MIXED, **plan, "layers": 64, "vocabulary_multiple": 1, "zero_stage": 0}
    values = {**values, "vocabulary_size": 131072}
    for name in ("tp", "pp"):
        degrees = {**values, name: np.array([1.0, 2.0, 4.0, 8.0])}
        reserved = Derivation({**degrees, "stage": 0.0}, labels)["reserved_memory"]
        assert (np.diff(reserved) <= 1e-6 * reserved[:-1]).all(), name


@pytest.mark.thorough
@laws
@given(plan=PLANS, model=MODELS, kernel=KERNELS)
def test_recomputation_saves_memory(plan: dict[str, float], model: Given, kernel: str) -> None:
    full, selective, none = (
        stage_memory(
            {**model, **MIXED, **plan}, {"attention_kernel": kernel, "recompute": recompute}
        ).parts["activation_memory"]
        for recompute in ("full", "selective", "none")
    )
    assert (full <= selective * (1 + 1e-12)).all()
    assert (selective <= none * (1 + 1e-12)).all()


def test_no_parallelism_has_no_buffers_for_communication() -> None:
    parts = stage_memory(
        {**LLAMA3_70B, **MIXED, "in_flight_micro_batches": 1, "zero_stage": 3}
    ).parts
    for name in ("nccl_buffer_memory", "zero3_gathered_memory", "bucket_memory"):
        assert not parts[name].any()


def test_one_value_is_one_of_many() -> None:
    tp, zero = np.array([1.0, 2.0, 8.0])[:, None], np.arange(4.0)
    flight = {"in_flight_micro_batches": np.array([4.0, 3.0, 3.0, 1.0])}
    values = {**DEEPSEEK_V3, **MIXED, "pp": 4, "dp": 8, "ep": 8}
    many = stage_memory({**values, "tp": tp, "zero_stage": zero}, by_stage=flight)
    assert many.peak_memory.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        left = stage_memory({**values, "tp": tp[i, 0], "zero_stage": zero[j]}, by_stage=flight)
        assert float(left.peak_memory) == many.peak_memory[i, j]
    spare = many.headroom([80e9, 141e9, 192e9, 288e9])
    np.testing.assert_array_equal(spare[0], [80e9, 141e9, 192e9, 288e9] - many.peak_memory[0])


@pytest.mark.parametrize("pp", [1, 2, 4, 8, 16])
def test_no_stage_is_fuller_than_the_headline(pp: int) -> None:
    """Of 1F1B, on every stage."""
    values = {
        **DEEPSEEK_V3,
        **MIXED,
        "layers": 64,
        "pp": pp,
        "dp": 64,
        "ep": 16,
        "zero_stage": 1,
        "num_micro_batches": 64,
    }
    labels = {"recompute": "selective", "schedule": "one_f_one_b"}
    derivation = Derivation({**values, "stage": np.arange(float(pp))}, labels)
    np.testing.assert_array_equal(derivation["in_flight_micro_batches"], pp - np.arange(pp))
    report = stage_memory(values, labels)
    assert float(report.peak_memory) == derivation["memory"].max()


def test_without_a_backward_nothing_is_kept() -> None:
    values = {**LLAMA3_70B, **RECIPES["forward_only"].given(), "tp": 8, "logit_bytes": 2}
    report = stage_memory(values, {"schedule": "forward_only"})
    assert not report.parts["saved_activation_memory"].any()
    layer = held(values)["dense_layer_activations"] * 8192
    np.testing.assert_array_equal(report.parts["recompute_activation_memory"], layer)
    parameters = float(held(values)["rank_parameters"])
    np.testing.assert_array_equal(report.parts["model_state_memory"], 2 * parameters)


# Faults.


def test_what_is_missing_is_named() -> None:
    with pytest.raises(MissingQuantities, match="in_flight_micro_batches"):
        stage_memory({**LLAMA3_70B, **MIXED})
    with pytest.raises(MissingQuantities, match="weight_bytes"):
        stage_memory({**LLAMA3_70B, "in_flight_micro_batches": 1})
    with pytest.raises(ValueError, match="recompute = fill: no such value; did you mean 'full'"):
        stage_memory({**LLAMA3_70B, **MIXED, "in_flight_micro_batches": 1}, {"recompute": "fill"})
    with pytest.raises(
        ValueError, match="micro_bach: no such quantity; did you mean 'micro_batch_size"
    ):
        stage_memory({**LLAMA3_70B, **MIXED, "in_flight_micro_batches": 1, "micro_bach": 2})


def test_forwards_alone_have_neither_gradients_nor_optimizer() -> None:
    values = {
        **LLAMA3_70B,
        **MIXED,
        "tp": 8,
        "zero_stage": 2,
        "dp": 4,
        "unsharded_gradient_fraction": 1,
    }
    parts = stage_memory({**values, "placeholder_bytes": 2}, {"schedule": "forward_only"}).parts
    for name in PARTS:
        training = "gradient" in name or name.startswith(("optimizer", "bucket", "placeholder"))
        if training:
            assert not parts[name].any(), name
    assert (parts["weight_memory"] > 0).all()
