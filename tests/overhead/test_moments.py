"""Memory at moments of a step: what lives at once, against sums by hand."""

from __future__ import annotations

import pytest

from overhead.memory.quantities import RECIPES
from tests.overhead.memory_cases import LLAMA3_70B, MIXED, held

ONE = {"num_micro_batches": 1, "dp": 64, "zero_stage": 3, "gathered_layers": 3}
FSDP = {**LLAMA3_70B, **RECIPES["fsdp_adam"].given(), **ONE}
LAYER = 8192 * 64 * 128 * 2 + 2 * 8192 * 8 * 128 + 3 * 8192 * 28672 + 2 * 8192
TABLE = 128256 * 8192


def test_buffers_that_are_allocated_once_are_there_throughout() -> None:
    """Without recomputation all but the allocator's cache is there as the loss is computed."""
    memory = held({**LLAMA3_70B, **MIXED, "num_micro_batches": 1, "dp": 64, "zero_stage": 1})
    assert float(memory["allocated_memory"]) == float(memory["reserved_memory"])


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_logits_are_gone_when_a_layer_is_recomputed(recompute: str) -> None:
    plan = {**LLAMA3_70B, **MIXED, "num_micro_batches": 1, "dp": 64, "zero_stage": 1}
    memory = held(plan, recompute=recompute)
    less = min(float(memory["logits_memory"]), float(memory["recompute_activation_memory"]))
    expected = float(memory["reserved_memory"]) - less
    assert float(memory["allocated_memory"]) == pytest.approx(expected)


def test_gradients_of_one_micro_batch_come_with_the_backward_pass() -> None:
    static = held(FSDP, recompute="full")
    one = held({**FSDP, "preallocated_gradients": 0}, recompute="full")
    several = held({**FSDP, "preallocated_gradients": 0, "num_micro_batches": 2}, recompute="full")
    gradients = float(static["gradient_memory"])
    assert gradients == pytest.approx(4 * float(static["rank_parameters"]) / 64)
    for moment in ("loss_time_memory", "allocated_memory"):
        assert float(static[moment]) == float(several[moment])
    assert float(static["loss_time_memory"]) - float(one["loss_time_memory"]) == gradients
    # A layer's gradients are reduced in single precision, while the next layer is recomputed.
    assert float(one["reduced_gradient_memory"]) == 4 * LAYER
    start = float(one["backward_start_memory"]) + gradients - 4 * LAYER
    assert start == pytest.approx(float(static["backward_start_memory"]))
    assert float(one["reserved_memory"]) == float(static["reserved_memory"])


def test_fewer_layers_are_gathered_at_once_than_have_blocks() -> None:
    three = held({**FSDP, "live_gathered_layers": 3}, recompute="full")
    two = held({**FSDP, "live_gathered_layers": 2}, recompute="full")
    assert float(three["live_gathered_memory"]) == float(three["zero3_gathered_memory"])
    less = float(three["backward_start_memory"]) - float(two["backward_start_memory"])
    assert less == pytest.approx(2 * LAYER)
    assert float(three["loss_time_memory"]) == float(two["loss_time_memory"])


def test_the_update_needs_most_where_a_batch_is_small() -> None:
    plan = {**FSDP, "sequence_length": 16, "gathered_layers": 0, "preallocated_gradients": 0}
    plan = {**plan, "gathered_non_layer_fraction": 0, "dp": 2, "update_bytes": 4}
    memory = held(plan, recompute="full")
    parameters = float(memory["rank_parameters"])
    expected = 20 * parameters / 2 + float(memory["workspace_bytes"])
    assert float(memory["allocated_memory"]) == pytest.approx(expected)
    assert float(memory["update_temporary_memory"]) == pytest.approx(4 * parameters / 2)


def test_ddp_has_every_gradient_in_a_bucket_too() -> None:
    plan = {**FSDP, "zero_stage": 0, "bucketed_gradient_fraction": 1}
    memory = held(plan)
    assert float(memory["bucket_memory"]) == 4 * float(memory["rank_parameters"])
    assert float(held({**plan, "dp": 1})["bucket_memory"]) == 0.0
    assert float(held({**plan, "zero_stage": 2})["bucket_memory"]) == 0.0


def test_autocast_keeps_casts_of_weights() -> None:
    """DDP's as long as autocast is on; others' until their backward, of recomputed layers one."""
    plan = {**FSDP, "zero_stage": 0, "cast_weight_bytes": 2}
    whole = 2 * (80 * LAYER + TABLE + 8192)
    one = 2 * (LAYER + TABLE + 8192)
    for stage, recompute, expected in (
        (0, "none", whole),
        (0, "full", whole),
        (3, "none", whole),
        (3, "full", one),
    ):
        memory = held({**plan, "zero_stage": stage}, recompute=recompute)
        assert float(memory["weight_cast_memory"]) == expected
    assert float(held(plan, recompute="full")["saved_cast_memory"]) == one
    assert float(held(FSDP)["weight_cast_memory"]) == 0.0


def test_a_layers_gradients_are_within_what_is_reserved() -> None:
    """Few tokens: the input of a layer's reduction is more than all activations."""
    plan = {**FSDP, "sequence_length": 16, "gathered_layers": 2, "preallocated_gradients": 0}
    memory = held(plan, recompute="full")
    assert float(memory["backward_end_memory"]) > float(memory["reserved_memory"])
    assert float(memory["allocated_memory"]) == float(memory["reserved_memory"])
