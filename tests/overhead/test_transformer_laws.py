"""What holds of every transformer, of many at once, and of the declarations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from overhead.evaluation import derive
from overhead.transformer import SHAPES
from tests.overhead.transformers import Shapes, count, models

sequences = st.integers(1, 10**5).map(float)


@given(models())
def test_a_token_meets_no_more_than_there_is(model: Shapes) -> None:
    total, active = count(model), count(model, "active_parameters")
    idle = model["experts"] - model["experts_per_token"]
    expert = count(model, "expert_parameters")
    assert total - active == count(model, "moe_layers") * idle * expert
    assert count(model, "weight_flops_per_token") <= 2 * active
    if not model["experts"]:
        assert total == active
        assert count(model, "dense_mlp_layers") == model["layers"]


@given(models())
def test_more_layers_have_more_parameters(model: Shapes) -> None:
    more = {**model, "layers": model["layers"] + 1}
    layer = {count(model, f"{kind}_layer_parameters") for kind in ("dense", "moe")}
    assert count(more) > count(model)
    if model["moe_layer_frequency"] == 1:
        assert count(more) - count(model) in layer


@given(models())
def test_tied_embeddings_save_a_table(model: Shapes) -> None:
    tied, untied = ({**model, "tied_embeddings": flag} for flag in (1.0, 0.0))
    table = model["vocabulary_size"] * model["hidden_size"]
    assert count(untied) - count(tied) == table
    # The product with the table stays.
    given = {"sequence_length": 100.0}
    names = ("forward_flops_per_token", "weight_flops_per_token")
    assert all(count(tied, name, **given) == count(untied, name, **given) for name in names)


@given(models())
def test_as_many_key_heads_as_query_heads_is_multi_head_attention(model: Shapes) -> None:
    plain = {**model, "kv_heads": model["heads"], "q_lora_rank": 0.0, "kv_lora_rank": 0.0}
    width = model["heads"] * model["head_size"]
    assert count(plain, "mixer_weights") == 4 * model["hidden_size"] * width
    fewer = {**plain, "kv_heads": 1.0}
    # Grouping changes weights, not the work on scores.
    assert count(fewer, "mixer_weights") <= count(plain, "mixer_weights")
    flops = [count(one, "attention_flops_per_token", sequence_length=64) for one in (fewer, plain)]
    assert flops[0] == flops[1]


@given(models(), sequences, st.integers(0, 1000))
def test_a_window_as_long_as_the_sequence_is_none(
    model: Shapes, sequence: float, beyond: int
) -> None:
    wide = {**model, "sliding_window": sequence + beyond}
    settings = {**model, "sliding_window": 0.0}
    for name in ("forward_flops_per_token", "causal_forward_flops_per_token"):
        assert derive(name, {**wide, "sequence_length": sequence}) == derive(
            name, {**settings, "sequence_length": sequence}
        )


@given(sequences, st.integers(1, 10**5))
def test_a_narrower_window_costs_less(sequence: float, window: int) -> None:
    for name in ("attention_span", "causal_attention_span"):
        narrow, wide = (
            float(derive(name, {"sequence_length": sequence, "sliding_window": size, "layers": 1}))
            for size in (window, window + 1)
        )
        assert narrow <= wide <= sequence


@given(st.integers(1, 400), st.integers(0, 500))
def test_the_causal_span_is_the_mean_over_tokens(sequence: int, window: int) -> None:
    given = {"sequence_length": sequence, "sliding_window": window, "layers": 1}
    attended = [min(index, window or sequence) for index in range(1, sequence + 1)]
    ours = float(derive("causal_attention_span", given))
    # The closed form leaves out half of each token's attention to itself.
    assert 0.0 <= sum(attended) / sequence - ours <= 0.5 + 1e-9
    if window == 0 or window >= sequence:
        assert ours == sequence / 2
    assert ours <= float(derive("attention_span", given)) <= 2 * ours * (1 + 1e-12)


@given(models(), sequences)
def test_parts_add_up(model: Shapes, sequence: float) -> None:
    given = {**model, "sequence_length": sequence}

    def value(name: str) -> float:
        return float(derive(name, given))

    layers = value("dense_mlp_layers") * value("dense_layer_parameters")
    layers += value("moe_layers") * value("moe_layer_parameters")
    assert value("parameters") == layers + value("non_layer_parameters")
    assert value("moe_layers") + value("dense_mlp_layers") == model["layers"]
    assert value("forward_flops_per_token") == pytest.approx(
        value("weight_flops_per_token")
        + value("attention_flops_per_token")
        + value("logits_flops_per_token"),
        rel=1e-15,
    )
    half = 0.5 * value("attention_flops_per_token")
    causal = value("causal_attention_flops_per_token")
    assert half * (1 - 1e-12) <= causal <= 2 * half
    assert value("model_flops_per_token") == 3 * value("forward_flops_per_token")


@given(st.lists(models(), min_size=2, max_size=4), st.lists(sequences, min_size=1, max_size=3))
def test_many_at_once_are_each_alone(drawn: list[Shapes], lengths: list[float]) -> None:
    table: dict[str, Any] = {name: np.array([[shape[name]] for shape in drawn]) for name in SHAPES}
    table["sequence_length"] = np.array([lengths])
    together = derive("causal_model_flops_per_token", table)
    assert together.shape == (len(drawn), len(lengths))
    for row, shape in enumerate(drawn):
        for column, length in enumerate(lengths):
            alone = derive("causal_model_flops_per_token", {**shape, "sequence_length": length})
            assert together[row, column] == alone
    # Without sequences there is no axis of them.
    assert derive("parameters", table).shape == (len(drawn), 1)


@given(models())
def test_totals_are_exact_in_float64(model: Shapes) -> None:
    total = count(model)
    assume(total < 2**53)
    whole = {name: int(value) for name, value in model.items()}
    dense, moe = (count(model, f"{kind}_layer_parameters") for kind in ("dense", "moe"))
    routed_layers = count(model, "moe_layers")
    tables = (2 - whole["tied_embeddings"]) * whole["vocabulary_size"] + whole["learned_positions"]
    outside = (tables + 1 + whole["layer_norm"]) * whole["hidden_size"]
    assert total == (whole["layers"] - routed_layers) * dense + routed_layers * moe + outside
