"""The step as a whole: its parts, its limits, its pipeline, the optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from overhead.step.parts import PARTS
from tests.overhead.step_cases import (
    DEEPSEEK,
    EVEN_ONLY,
    GPT,
    LLAMA,
    MIXTRAL,
    MODELS,
    SILENT,
    UNEVEN,
    evaluation,
    value,
)

SCHEDULES = (*UNEVEN, *EVEN_ONLY)
# A number for each communication, so that parts can be told apart.
TIMES = {name: 1e-5 * (index + 1) for index, name in enumerate(SILENT)} | {
    "communication_energy": 0.0
}
PLANS = {
    "tp": np.array([1.0, 2.0, 8.0])[:, None, None],
    "pp": np.array([1.0, 2.0, 4.0, 8.0])[:, None],
    "zero_stage": np.array([0.0, 1.0, 3.0]),
    "num_micro_batches": 16.0,
    "sequence_parallel": 1.0,
    "host_launch_time": 4e-5,
    "tp_overlap": 0.5,
    "dp_overlap": 0.5,
    "step_overhead": 1e-3,
}


# Parts.


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("schedule", [*SCHEDULES, "forward_only"])
def test_parts_sum_to_the_step(model: Mapping[str, float], schedule: str) -> None:
    for recompute in ("none", "selective", "full", "full_early_stop", "per_op"):
        virtual = 2.0 if schedule == "interleaved" else 1.0
        plan = {**model, **TIMES, **PLANS, "virtual_pipeline_size": virtual}
        values = evaluation(plan, schedule=schedule, recompute=recompute)
        together = sum(np.asarray(values[part]) for part in PARTS)
        np.testing.assert_allclose(together, values["step_time"], rtol=1e-12, atol=0)


def test_parts_sum_where_pairs_overlap() -> None:
    plan = {**DEEPSEEK, **TIMES, "pp": 4, "num_micro_batches": 16, "weight_copies": 2}
    values = evaluation(plan, schedule="dual_pipe")
    both = float(values["stage_forward_time"]) + float(values["stage_backward_time"])
    none = evaluation({**plan, "stage_overlapped_time": both}, schedule="dual_pipe")
    for share in (1.0, 0.9, 0.7):
        paired = evaluation({**plan, "stage_overlapped_time": share * both}, schedule="dual_pipe")
        together = sum(float(paired[part]) for part in PARTS)
        assert together == pytest.approx(float(paired["step_time"]), rel=1e-12)
        assert float(paired["step_time"]) <= float(none["step_time"])


@pytest.mark.parametrize("bandwidth", [1e9, 5e10, 1e14])
def test_pairs_hide_experts_communication_behind_the_other_direction_s_computing(
    bandwidth: float,
) -> None:
    links = dict.fromkeys(("inter_bandwidth", "intra_bandwidth"), bandwidth)
    plan = {
        **DEEPSEEK,
        **TIMES,
        **links,
        "ep": 8,
        "pp": 4,
        "dp": 8,
        "num_micro_batches": 16,
        "weight_copies": 2,
    }
    values = {
        share: evaluation({**plan, "pair_overlapped_fraction": share}, schedule="dual_pipe")
        for share in (0.0, 0.5, 0.96)
    }
    sent = float(values[0.0]["middle_moe_layers"] * values[0.0]["layer_exposed_ep_time"])
    both = float(values[0.0]["stage_forward_time"] + values[0.0]["stage_backward_time"])
    for share, one in values.items():
        pair = float(one["stage_overlapped_time"])
        # At best the longer of communication and computing; at worst one after the other.
        assert max(sent, both - sent) <= pair * (1 + 1e-12) <= both * (1 + 1e-9)
        # 11 of 16 micro-batches run in pairs.
        exposed = float(one["exposed_ep_time"])
        assert exposed == pytest.approx(16 * sent - 11 * (both - pair), rel=1e-9)
        assert (both - pair) == pytest.approx(0.92 * share * min(sent, both - sent), abs=1e-12)


def test_parts_are_what_their_names_say() -> None:
    plan = {**LLAMA, **SILENT, "num_micro_batches": 8, "pp": 4, "host_launch_time": 1e-5}
    values = evaluation(plan, recompute="full")
    layers = 8 * 8
    for part, quantity in (
        ("matmul_part_time", "dense_layer_matmul_time"),
        ("attention_part_time", "attention_time"),
        ("elementwise_part_time", "dense_layer_elementwise_time"),
        ("recompute_part_time", "dense_layer_recompute_time"),
    ):
        assert float(values[part]) == pytest.approx(layers * float(values[quantity])), part
        assert float(values[part]) > 0
    of_host = sum(
        float(values[f"dense_layer_{way}_time"] - values[f"dense_layer_{way}_gpu_time"])
        for way in ("forward", "backward")
    )
    assert float(values["host_part_time"]) == pytest.approx(layers * of_host)
    assert of_host > 0
    busy = float(values["dense_layer_time"]) * layers
    assert float(values["busy_time"]) == pytest.approx(busy)


# Limits.


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("num_micro_batches", [1, 5])
def test_one_gpu_alone(model: Mapping[str, float], num_micro_batches: int) -> None:
    """No parallelism: nothing but layers, ends and the update, with communication unaided."""
    plan = {**model, "num_micro_batches": num_micro_batches, "step_overhead": 0}
    values = evaluation(plan)
    assert float(values["communication_upper_bound"]) == 0.0
    for part in tuple(
        (
            "exposed_tp_time exposed_cp_time exposed_ep_time exposed_pp_time bubble_time "
            "exposed_dp_time host_part_time"
        ).split()
    ):
        assert float(values[part]) == pytest.approx(0.0, abs=1e-12), part
    layers = float(model["layers"])
    dense = layers if not model["experts"] else float(model["dense_layers"])
    each = dense * values["dense_layer_time"] + (layers - dense) * values["moe_layer_time"]
    ends = values["embedding_time"] + values["output_time"]
    whole = num_micro_batches * float(each + ends) + float(values["optimizer_time"])
    assert float(values["step_time"]) == pytest.approx(whole, rel=1e-12)


def test_infinite_bandwidth_leaves_operations_and_floors() -> None:
    plan = {
        **LLAMA,
        **SILENT,
        "memory_bandwidth": np.inf,
        "matmul_min_time": 0,
        "matmul_time_per_k": 0,
        "attention_half_length": 0,
    }
    values = evaluation(plan)
    weights = 2 * 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) * 4096
    logits = 2 * 4096 * 128000 * 4096
    assert float(values["optimizer_time"]) == 0.0
    assert float(values["elementwise_part_time"]) == 0.0
    products = 3 * (weights + logits) / (0.8 * 8e14)
    scores = 32 * 2 * 4096 * 4096 * 4096 * (1 + 2.5 / 0.85) / (0.5 * 1e15)
    assert float(values["step_time"]) == pytest.approx(products + scores, rel=1e-9)


def test_a_model_as_large_costs_as_much_however_it_is_cut() -> None:
    """Without communication, floors, copies and ends, tensor and pipeline parallelism are even."""
    plan = {
        **LLAMA,
        **SILENT,
        "matmul_min_time": 0,
        "matmul_time_per_k": 0,
        "memory_bandwidth": np.inf,
        "num_micro_batches": 64,
    }
    whole = value(plan, "busy_time")
    assert value({**plan, "tp": 8}, "busy_time") == pytest.approx(whole / 8)
    assert value({**plan, "pp": 8}, "busy_time") == pytest.approx(whole / 8)
    assert value({**plan, "cp": 8}, "busy_time") == pytest.approx(whole / 8)


# Pipelines.


@pytest.mark.parametrize("schedule", [*UNEVEN, "forward_only"])
def test_the_pipeline_is_the_schedule_s(schedule: str) -> None:
    plan = {**GPT, **SILENT, "pp": 4, "num_micro_batches": 16, "virtual_pipeline_size": 2}
    values = evaluation(plan, schedule=schedule)
    forward = float(values["stage_forward_time"])
    backward = 0.0 if schedule == "forward_only" else float(values["stage_backward_time"])
    bubble = 3 * (forward + backward) / (2 if schedule == "interleaved" else 1)
    even = 16 * (forward + backward) + bubble
    assert float(values["pipeline_time"]) - float(values["stage_imbalance_time"]) == pytest.approx(
        even
    )
    last = float(values["last_stage_extra_time"])
    assert float(values["stage_imbalance_time"]) == pytest.approx(16 * last, rel=0.01)


def test_a_bubble_is_shorter_beside_shorter_ends() -> None:
    """Of 29 layers on 8 stages the ends have three and those between them four."""
    plan = {**GPT, **SILENT, "layers": 29, "pp": 8, "num_micro_batches": 16}
    values = evaluation(plan, schedule="one_f_one_b")
    idle = float(values["pipeline_time"] - values["busy_time"])
    assert float(values["uneven_time"]) < 0.0
    assert float(values["stage_imbalance_time"]) == 0.0
    assert float(values["bubble_time"]) == pytest.approx(idle)
    assert float(values["bubble_time"]) < float(values["balanced_bubble_time"])
    assert float(values["bubble_fraction"]) == pytest.approx(idle / float(values["pipeline_time"]))


@pytest.mark.parametrize("schedule", EVEN_ONLY)
def test_schedules_for_even_stages_work_with_either_label(schedule: str) -> None:
    plan = {**GPT, **SILENT, "pp": 4, "global_batch_size": 16}
    even, uneven = (evaluation(plan, schedule=schedule, stages=kind) for kind in ("even", "uneven"))
    for quantity in ("step_time", "bubble_fraction", "mfu"):
        assert float(even[quantity]) == float(uneven[quantity])
    late = value(plan, "step_time", stages="even")
    if schedule != "dual_pipe":
        assert float(even["step_time"]) < late


def test_uneven_stages_are_no_slower_than_even_ones() -> None:
    plan = {**LLAMA, **SILENT, "pp": np.array([1.0, 2.0, 4.0, 8.0]), "num_micro_batches": 16}
    for schedule in UNEVEN:
        even = evaluation(plan, schedule=schedule, stages="even")["step_time"]
        uneven = evaluation(plan, schedule=schedule)["step_time"]
        assert np.all(uneven <= even * (1 + 1e-12))
        assert uneven[0] == pytest.approx(even[0])


def test_fewer_layers_at_the_ends_are_faster() -> None:
    """Llama 3.1 405B's 126 layers, with embedding and output layer as one each."""
    plan = {
        **LLAMA,
        "layers": 126,
        "hidden_size": 16384,
        "heads": 128,
        "ffn_size": 53248,
        "tp": 8,
        "pp": 16,
        "num_micro_batches": 64,
        **SILENT,
    }
    ends = {**plan, "embedding_layer_weight": 1, "head_layer_weight": 1}
    assert value(ends, "step_time") < 0.99 * value({**plan, "layers": 128}, "step_time")


def test_prefill_has_no_backward() -> None:
    plan = {**LLAMA, **TIMES, "pp": 4, "num_micro_batches": 4, "zero_stage": 1, "step_overhead": 0}
    values = evaluation(plan, schedule="forward_only", recompute="full")
    forward = float(values["stage_forward_time"])
    assert float(values["optimizer_time"]) == float(values["recompute_part_time"]) == 0.0
    assert float(values["busy_time"]) == 4 * forward
    assert float(values["step_time"]) < 0.5 * value(plan, "step_time")


# The optimizer.


def test_the_update_moves_bytes_of_what_a_rank_owns() -> None:
    parameters = value(LLAMA, "parameters")
    plan = {**LLAMA, "dp": 16, "global_batch_size": 16, "vocabulary_multiple": 1}
    whole = 40 * parameters / (0.85 * 3e12)
    assert value(plan, "optimizer_time") == pytest.approx(whole)
    for stage in (1, 2, 3):
        sharded = value({**plan, "zero_stage": stage}, "optimizer_time")
        assert sharded == pytest.approx(whole / 16)
    experts = {**MIXTRAL, "dp": 16, "ep": 8, "global_batch_size": 16, "zero_stage": 1}
    owned = value(experts, "owned_parameters")
    values = value(experts, "parameters")
    routed = 32 * 8 * 3 * 4096 * 14336
    assert owned == pytest.approx((values - routed) / 16 + routed / 8 / 2, rel=1e-3)
