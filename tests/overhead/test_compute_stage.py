"""Stages: their layers, what the ends have beyond, and where every stage counts as slow as they."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.overhead.step_cases import (
    DEEPSEEK,
    EVEN_ONLY,
    GPT,
    LLAMA,
    MODELS,
    SILENT,
    evaluation,
    value,
)

KINDS = ("mlp", "moe")
PLACES = ("first", "middle", "last")


def held_layers(model: Mapping[str, float], **plan: float) -> dict[str, tuple[float, float]]:
    values = evaluation({**model, **plan})
    found = {}
    for position in PLACES:
        left, right = (float(values[f"{position}_{kind}_layers"]) for kind in KINDS)
        found[position] = left, right
    return found


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("virtual_pipeline_size", [1, 3])
def test_one_stage_has_all_layers(model: Mapping[str, float], virtual_pipeline_size: int) -> None:
    dense, experts = model["layers"], 0.0
    if model["experts"]:
        dense, experts = model["dense_layers"], model["layers"] - model["dense_layers"]
    found = held_layers(model, pp=1, virtual_pipeline_size=virtual_pipeline_size)
    assert set(found.values()) == {(dense, experts)}


@given(
    layers=st.integers(1, 130),
    pp=st.integers(1, 16),
    virtual_pipeline_size=st.integers(1, 4),
    ends=st.tuples(st.integers(0, 1), st.integers(0, 1)),
)
def test_stages_have_all_layers_together(
    layers: int, pp: int, virtual_pipeline_size: int, ends: tuple[int, int]
) -> None:
    """Unless the last stage would have to have less than nothing."""
    plan = {
        **LLAMA,
        "layers": layers,
        "pp": pp,
        "virtual_pipeline_size": virtual_pipeline_size,
        "embedding_layer_weight": ends[0],
        "head_layer_weight": ends[1],
    }
    values = evaluation(plan)
    counts = [float(values[f"{position}_mlp_layers"]) for position in PLACES]
    together = counts[0] if pp == 1 else counts[0] + counts[1] * (pp - 2) + counts[2]
    if pp == 2:
        together = counts[0] + counts[2]
    assert together >= layers
    if counts[2] > 0:
        assert together == layers
    assert counts[0] <= counts[1]


def test_the_last_stage_has_what_is_left() -> None:
    found = held_layers(DEEPSEEK, pp=16)
    assert found == {"first": (3, 1), "middle": (0, 4), "last": (0, 1)}
    found = held_layers(
        {**LLAMA, "layers": 126}, pp=16, embedding_layer_weight=1, head_layer_weight=1
    )
    assert found == {"first": (7, 0), "middle": (8, 0), "last": (7, 0)}
    # Of 94 layers and 32 chunks, which come out even where both ends count as one.
    found = held_layers({**LLAMA, "layers": 94}, pp=8, virtual_pipeline_size=4)
    assert found == {"first": (11, 0), "middle": (12, 0), "last": (11, 0)}
    found = held_layers({**LLAMA, "layers": 95}, pp=8, virtual_pipeline_size=4)
    assert found == {"first": (12, 0), "middle": (12, 0), "last": (11, 0)}


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
def test_the_ends_have_their_own_work_beside_their_layers(pp: int) -> None:
    values = evaluation({**DEEPSEEK, **SILENT, "layers": 64, "pp": pp, "micro_batch_size": 2})
    layer = {kind: float(values[f"{kind}_layer_time"]) for kind in ("dense", "moe")}
    ratio = 64 / pp
    middle = 3 * layer["dense"] + (ratio - 3) * layer["moe"] if pp < 3 else ratio * layer["moe"]
    first = 3 * layer["dense"] + (ratio - 3) * layer["moe"] - middle
    last = (3 * layer["dense"] + 61 * layer["moe"] if pp == 1 else ratio * layer["moe"]) - middle
    extra = {name: float(values[f"{name}_stage_extra_time"]) for name in ("first", "last")}
    tolerance = 1e-12 * middle
    assert extra["first"] == pytest.approx(first + float(values["embedding_time"]), abs=tolerance)
    assert extra["last"] == pytest.approx(last + float(values["output_time"]), abs=tolerance)
    both = float(values["stage_forward_time"]) + float(values["stage_backward_time"])
    assert both == pytest.approx(middle)


def test_the_ends_work_by_hand() -> None:
    plan = {**LLAMA, **SILENT, "memory_bandwidth": 1e12, "memory_efficiency": 1, "loss_bytes": 40}
    values = evaluation({**plan, "tp": 8})
    assert float(values["embedding_time"]) == pytest.approx(5 * 2 * 4096 * 4096 / 1e12)
    assert float(values["loss_time"]) == pytest.approx(40 * 4096 * 128000 / 8 / 1e12)
    products = sum(
        float(values[f"logits_{kind}_time"])
        for kind in ("forward", "input_gradient", "weight_gradient")
    )
    assert float(values["output_time"]) == pytest.approx(products + float(values["loss_time"]))
    alone = evaluation({**plan, "tp": 8}, schedule="forward_only")
    assert float(alone["output_time"]) == pytest.approx(float(values["logits_forward_time"]))
    assert float(alone["embedding_time"]) == pytest.approx(2 * 2 * 4096 * 4096 / 1e12)


@pytest.mark.parametrize(
    ("schedule", "launches"), [("one_f_one_b", (15, 40)), ("forward_only", (9, 2))]
)
def test_the_host_launches_the_ends_too(schedule: str, launches: tuple[int, int]) -> None:
    for name, count in zip(("embedding", "output"), launches, strict=True):
        values = evaluation({**GPT, **SILENT, "host_launch_time": 1.0}, schedule=schedule)
        assert float(values[f"{name}_time"]) == pytest.approx(count)
        unhindered = evaluation({**GPT, **SILENT, "host_launch_time": 0.0}, schedule=schedule)
        gpu = unhindered["embedding_gpu_time"]
        if name == "output":
            backward = 0.0 if schedule == "forward_only" else 1.0
            kinds = ("logits_input_gradient", "logits_weight_gradient", "loss")
            gradients = sum(unhindered[f"{kind}_time"] for kind in kinds)
            gpu = unhindered["logits_forward_time"] + backward * gradients
        assert float(gpu) > 0
        assert float(unhindered[f"{name}_time"]) == pytest.approx(float(gpu), rel=1e-12)


def test_communication_of_the_ends_is_theirs() -> None:
    plan = {**GPT, **SILENT, "pp": 4}
    more = {**plan, "vocabulary_first_time": 1e-3, "vocabulary_last_time": 2e-3}
    for name, time in (("first", 1e-3), ("last", 2e-3)):
        quantity = f"{name}_stage_extra_time"
        assert value(more, quantity) - value(plan, quantity) == pytest.approx(time)


@pytest.mark.parametrize("schedule", [*EVEN_ONLY, "one_f_one_b"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_even_stages_are_as_slow_as_the_slower_end(schedule: str, pp: int) -> None:
    plan = {**GPT, **SILENT, "pp": pp, "num_micro_batches": 8}
    values = evaluation(plan, schedule=schedule, stages="even")
    extra = [float(values[f"{name}_stage_extra_time"]) for name in ("first", "last")]
    slower = sum(extra) if pp == 1 else max(*extra, 0)
    uneven = evaluation(plan, schedule="one_f_one_b")
    assert float(values["stage_forward_time"]) == float(uneven["stage_forward_time"])
    backward = float(uneven["stage_backward_time"]) + slower
    assert float(values["stage_backward_time"]) == pytest.approx(backward)
    assert float(values["stage_imbalance_time"]) == pytest.approx(8 * slower)


def test_weights_are_a_part_of_the_backward() -> None:
    plan = {**DEEPSEEK, **SILENT, "pp": np.array([1.0, 4.0, 16.0])}
    values = evaluation(plan)
    assert np.all(values["stage_weight_time"] < values["stage_backward_time"])
    assert np.all(values["stage_weight_time"] > 0.25 * values["stage_backward_time"])
