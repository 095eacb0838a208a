"""The background page's formulas are the product's: bytes by parallelism, states by ZeRO stage."""

from __future__ import annotations

from typing import Any

import pytest

import sweeps

pytestmark = pytest.mark.thorough

# Llama-3 8B: layers, hidden size, key-value heads and their size, parameters.
LAYERS, HIDDEN, KEYS, HEAD = 32, 4096, 8, 128
SEQUENCE, BATCH = 8192, 32
PLAN = {
    "model": "llama3-8b",
    "framework": "megatron-lm+textbook",
    "topology": "ring",
    "algorithm": "ring",
    "software": "none",
    "sequence_length": SEQUENCE,
    "global_batch_size": BATCH,
    "micro_batch_size": 1,
}


def found(name: str, **given: Any) -> float:
    """Return one quantity of one plan."""
    return float(sweeps.sweep([name], **{**PLAN, **given})[name])


def tensor(tokens: int = SEQUENCE) -> float:
    """Return the bytes of a micro-batch's activations: the page's T."""
    return 2.0 * tokens * HIDDEN


@pytest.mark.parametrize(("sp", "calls"), [(0, 4 * 2), (1, 2 + 2 + 4 + 2)])
def test_tensor_parallelism(sp: int, calls: int) -> None:
    sent = found("tp_communication_volume", world_size=8, tp=8, sequence_parallel=sp)
    # An all-reduce sends what an all-gather and a reduce-scatter do.
    assert sent == pytest.approx(BATCH * LAYERS * calls * 7 / 8 * tensor())


def test_context_parallelism() -> None:
    ring = found("cp_communication_volume", world_size=4, cp=4, context_parallel="ring")
    keys = 4.0 * SEQUENCE / 4 * KEYS * HEAD
    assert ring == pytest.approx(BATCH * LAYERS * 3 * (4 - 1) * keys)
    heads = found("cp_communication_volume", world_size=4, cp=4, context_parallel="all_to_all")
    queries, both = tensor(SEQUENCE // 4), 2.0 * SEQUENCE / 4 * KEYS * HEAD
    # Of queries and output, and of keys and values; forward and backward.
    assert heads == pytest.approx(BATCH * LAYERS * 2 * 3 / 4 * (2 * queries + 2 * both))


def test_pipeline_parallelism() -> None:
    sent = found("pp_communication_volume", world_size=4, pp=4)
    assert sent == pytest.approx(BATCH * 2 * tensor())
    split = {"world_size": 8, "pp": 4, "tp": 2, "sequence_parallel": 1}
    assert found("pp_communication_volume", **split) == pytest.approx(BATCH * tensor())


def test_expert_parallelism() -> None:
    message = found("dispatch_message_bytes", model="mixtral-8x7b", world_size=8, ep=8)
    assert message == pytest.approx(2 * tensor())


def test_zero_stages() -> None:
    parameters = found("parameters", world_size=8)
    batches = BATCH / 8
    sent = {0: 2.0, 1: 2.0, 2: batches + 1, 3: 3 * batches}
    parts = {0: (2, 2, 12), 1: (2, 2, 12 / 8), 2: (2, 2 / 8, 12 / 8), 3: (2 / 8, 2 / 8, 12 / 8)}
    names = ("peak_weight_memory", "peak_gradient_memory", "peak_optimizer_memory")
    for stage in range(4):
        plan = {"world_size": 8, "dp": 8, "zero_stage": stage}
        volume = found("dp_communication_volume", **plan)
        assert volume == pytest.approx(sent[stage] * 7 / 8 * 2 * parameters)
        for name, each in zip(names, parts[stage], strict=True):
            assert found(name, **plan) == pytest.approx(each * parameters)


def test_bubble() -> None:
    plan = {"world_size": 4, "pp": 4, "zero_stage": 0}
    assert found("bubble_over_ideal", **plan) == pytest.approx((4 - 1) / BATCH)
    assert found("bubble_over_ideal", schedule="interleaved", virtual_pipeline_size=2, **plan) == (
        pytest.approx((4 - 1) / (BATCH * 2))
    )
