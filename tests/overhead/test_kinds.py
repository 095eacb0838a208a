"""Layers of a kind that a model has in some places alone, and kinds that it lacks, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from overhead.completion import features
from overhead.evaluation import Evaluation
from sweeps.spec.catalog import load_model
from tests.tables import keyed

KIMI, QWEN, FLASH = "kimi-k3", "qwen3.5-27b", "deepseek-v4-flash"


def found(name: str, model: str, **given: Any) -> float:
    labels = {"recompute": given.pop("recompute", "none")}
    values = {**load_model(model).shapes, **given}
    return float(Evaluation(values, {**labels, **features(values)})[name])


def test_projections_up_are_made_again_where_they_are() -> None:
    """Kimi K3 has latent attention in 24 of 93 layers; DeepSeek-V4 Flash projects queries alone."""
    given = dict.fromkeys(
        ("recompute_core_attn", "recompute_mlp", "recompute_moe", "recompute_shared_experts"), 0.0
    )
    again: dict[str, Any] = given | keyed(
        "recompute=selective recompute_mla_up_proj=1.0 sequence_length=4096"
    )
    kimi = 24 * 2 * (1536 * 96 * 192 + 512 * 96 * 256)
    assert found("recomputed_flops_per_token", KIMI, **again) == pytest.approx(kimi, rel=1e-12)
    flash = 43 * 2 * 1024 * 64 * 512
    assert found("recomputed_flops_per_token", FLASH, **again) == pytest.approx(flash, rel=1e-12)


def test_every_second_gemm_of_a_hybrid() -> None:
    """Qwen3.5 27B: keys and output in 16 of 64 layers, what leads out of the state in 48."""
    whole = 16 * (5120 * 4 * 256 + 24 * 256 * 5120) + 48 * (48 * 128 * 5120)
    assert 64 * found("recomputed_mixer_weights", QWEN) == pytest.approx(whole, rel=1e-12)


def test_a_hybrid_s_attention_in_16_bits_leaves_its_other_mixers_narrow() -> None:
    """Kimi K3 on 8 ranks: 69 of 93 layers, whose GEMMs are all split, stay in fewer bits."""
    inner = 96 * 128
    linear = (7168 * (4 * inner + 2 * 96) + inner * 7168) / 8
    latent = (1536 * 96 * 192 + 512 * 96 * 256 + 2 * inner * 7168) / 8 + 7168 * (1536 + 576)
    narrow = [
        93 * found("mixer_low_precision_parameters", KIMI, tp=8, bf16_attention=left)
        for left in (0, 1)
    ]
    assert narrow == [
        pytest.approx(24 * latent + 69 * linear, rel=1e-12),
        pytest.approx(69 * linear, rel=1e-12),
    ]


def test_an_mlp_of_no_width_has_no_bias() -> None:
    """GPT-OSS has biases, and experts alone; Llama has neither biases nor experts."""
    assert found("mlp_parameters", "gpt-oss-120b") == 0.0
    assert found("expert_parameters", "gpt-oss-120b") == 3 * 2880**2 + 3 * 2880
    assert found("expert_parameters", "llama3-8b", linear_bias=1) == 0.0


def test_a_gate_counts_without_linear_layers_too() -> None:
    """As many outputs as the context's: 32 heads of 128 in Llama 3 8B."""
    gated, plain = (found("mixer_weights", "llama3-8b", output_gate=gate) for gate in (1, 0))
    assert gated - plain == 4096 * 32 * 128


def test_mixers_that_stay_narrow_are_cast() -> None:
    """Kimi K3 with attention in 16 bits: two casts a GEMM fewer in 24 of 93 layers, not in all."""
    given = {"forward_operations": 20.0, "cast_launches": 2.0, "eager_launch_fraction": 0.5}
    narrow, left = (
        found("dense_forward_launches", KIMI, **given, bf16_attention=left) for left in (0, 1)
    )
    assert narrow - left == pytest.approx(0.5 * 2 * 2 * 24 / 93, rel=1e-12)
