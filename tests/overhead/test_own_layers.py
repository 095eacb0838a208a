"""Times and counts of a hybrid's stages by their own layers: by hand, enumerated, and simulated."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.completion import features
from overhead.evaluation import Evaluation
from overhead.model.order import NUMBERS, numbers_of
from overhead.overlap.pipeline import Slot, run_orders, stage_orders
from overhead.special import heaviest_stage
from overhead.step.parts import PARTS
from sweeps.spec.catalog import load_model, model_names
from tests.overhead.step_cases import SILENT, evaluation
from tests.tables import examples

NANO, SUPER = "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b"
NEXT = "qwen3-next-80b-a3b"
HYBRIDS = [name for name in model_names() if load_model(name).pattern]
ENDLESS = {**SILENT, "embedding_time": 0.0, "output_time": 0.0}


def at(model: str, pp: int, labels: dict[str, str] | None = None, **more: Any) -> Evaluation:
    shapes = load_model(model).shapes
    given = {
        **shapes,
        "dp": 8.0,
        "pp": float(pp),
        "ep": 8.0 if shapes.get("experts") else 1.0,
        "num_micro_batches": 16.0,
        "sequence_length": 4096.0,
        "micro_batch_size": 1.0,
        **more,
    }
    return evaluation(given, **features(given) | (labels or {}))


def held(pattern: str, pp: int, chunks: int = 1) -> list[list[str]]:
    """Return the layers of each chunk of each stage, first to last."""
    size = -(-len(pattern) // (pp * chunks))
    parts = [pattern[k * size : (k + 1) * size] for k in range(pp * chunks)]
    return [parts[stage::pp] for stage in range(pp)]


def times(known: Evaluation, stages: list[list[str]]) -> np.ndarray:
    """Return the chunks' times by their own layers, a row a stage.

    Of layers with attention and with linear attention each by its own, of which the mean's follow.
    """
    dense, moe = (float(known[f"{of}_layer_time"]) for of in ("dense", "moe"))
    more = float(known["attention_beyond_time"])
    layers, linear = float(known["layers"]), float(known["linear_layers"])
    mixture = moe - dense
    # A model whose mixtures are layers of their own, or in every layer.
    alone = float(known["separate_moe_layers"]) > 0.0
    less = more * (layers - linear) / linear
    letter = {"*": dense + more, "M": dense - less, "E": mixture}
    if not alone:
        share = float(known["moe_layers"]) / layers
        mean = dense + share * mixture
        letter = {"*": mean + more, "L": mean - less}
    return np.array([[sum(letter[one] for one in chunk) for chunk in stage] for stage in stages])


@pytest.mark.parametrize("model", HYBRIDS)
@pytest.mark.parametrize(("pp", "chunks"), [(2, 1), (3, 2), (4, 1), (8, 1), (16, 2)])
def test_the_stages_together_compute_the_model(model: str, pp: int, chunks: int) -> None:
    labels = {"schedule": "interleaved"}
    known = at(model, pp, labels, virtual_pipeline_size=float(chunks), stage=np.arange(float(pp)))
    for excess in ("stage_attention_excess", "stage_moe_excess"):
        assert known[excess].sum() == pytest.approx(0.0, abs=1e-12)
    places = pp * chunks * -(-known["pipeline_layers"] // (pp * chunks))
    if places == known["pipeline_layers"] and known["dense_layers"] == 0.0:
        one = at(model, 1)
        for way in ("forward", "backward"):
            each = known["stage_spare_mixers"] * known[f"dense_layer_{way}_time"]
            each = each + known["stage_moe_layers"] * known[f"moe_layer_{way}_time"]
            beyond = known["attention_beyond_forward_time"]
            beyond = beyond if way == "forward" else known["attention_beyond_time"] - beyond
            each = each + known["stage_attention_excess"] * beyond
            whole = one[f"middle_layers_{way}_time"]
            assert each.sum() == pytest.approx(float(whole), rel=1e-12)


def test_the_slowest_stage_by_hand() -> None:
    """Of nemotron-3-nano's quarters of 13 (6M 2* 5E, 6M * 6E, 5M 2* 6E, 6M * 6E) the second.

    A mixture takes longer than a mixer, and attention less than Mamba-2.  Attention in the second:
    1 of 13 layers, 6 of 52 in the model; its 7 mixers are 1/4 fewer than the mean of 29/4.
    """
    known = at(NANO, 4)
    assert known["attention_beyond_time"] < 0.0
    assert known["slowest_stage"] == 1.0
    assert [known[f"middle_{kind}_layers"] for kind in ("mlp", "moe")] == [1.0, 6.0]
    excess = (1.0 - 6.0 / 4.0 + 0.25 * 6.0 / 29.0) * 29.0 / 23.0
    assert known["middle_attention_excess"] == pytest.approx(excess, rel=1e-12)
    other = known["first_mlp_layers"], known["first_moe_layers"]
    assert other == (3.0, 5.0)


@pytest.mark.parametrize("mechanism", ["fsdp_prefetch", "zero3_prefetch"])
def test_what_is_fetched_ahead_waits_for_no_time(mechanism: str) -> None:
    """The slowest stage follows from what is recomputed, that from memory, that from the window."""
    labels = {"dp_mechanism": mechanism, "recompute": "block"}
    taken = {"zero_stage": 3.0, "memory_capacity": 8e10, "prefetched_elements": 5e7}
    known = at(NANO, 4, labels, **taken)
    assert known["step_time"] > 0.0
    if mechanism == "zero3_prefetch":
        spread = at(NANO, 4, {**labels, "order": "spread"}, **taken)
        assert known["layer_elements"] == spread["layer_elements"]


def test_two_unlike_halves() -> None:
    """All linear layers first, then all of attention: each half has its own layers' times."""
    pattern = "L" * 24 + "*" * 24
    settings = {**numbers_of(pattern), "linear_layers": 24.0, **ENDLESS}
    known = at(NEXT, 2, **settings)
    assert known["order_holds"] == 1.0
    first, last = times(known, held(pattern, 2))[:, 0]
    own_time = known["stage_forward_time"] + known["stage_backward_time"]
    assert own_time == pytest.approx(float(first), rel=1e-12)
    assert known["last_stage_extra_time"] == pytest.approx(last - first, rel=1e-11)
    one = at(NEXT, 1, **settings)
    whole = one["stage_forward_time"] + one["stage_backward_time"]
    assert first + last == pytest.approx(float(whole), rel=1e-12)
    # The slower half by itself takes as long as its layers alone would.
    attention = at(NEXT, 1, linear_attention_fraction=0.0, layers=24.0, **ENDLESS)
    alone = attention["stage_forward_time"] + attention["stage_backward_time"]
    assert last == pytest.approx(float(alone), rel=1e-3)


@pytest.mark.parametrize("model", [NANO, SUPER, NEXT, "qwen3.5-397b-a17b"])
@pytest.mark.parametrize(("schedule", "pp", "chunks"), examples(__file__, "own_layers"))
def test_the_pipeline_of_own_layers_is_as_simulated(
    model: str, schedule: str, pp: int, chunks: int
) -> None:
    pattern = load_model(model).pattern
    if len(pattern) % (pp * chunks):
        pytest.skip("an uneven split, of which every stage counts as the largest")
    more = {"virtual_pipeline_size": float(chunks), **ENDLESS}
    known = at(model, pp, {"schedule": schedule}, num_micro_batches=40.0, **more)
    stages = held(pattern, pp, chunks)
    array = times(known, stages)
    forward, backward = (float(known[f"stage_{way}_time"]) for way in ("forward", "backward"))
    share = 1.0 if schedule == "forward_only" else forward / (forward + backward)

    def duration(slot: Slot) -> float:
        task = slot[0]
        whole = array[task.chunk % pp, task.chunk // pp]
        return float(whole * (share if task.kind == "forward" else 1.0 - share))

    ran, _ = run_orders(stage_orders(schedule, pp, 40, chunks), duration, 0.0)
    simulated = max(runs[-1].end for runs in ran)
    exact = schedule in ("gpipe", "forward_only")
    assert known["pipeline_time"] == pytest.approx(simulated, rel=1e-9 if exact else 0.01)
    slowest = array.sum(axis=1).max()
    assert known["pipeline_time"] >= 40.0 * slowest * (1.0 - 1e-9)


@pytest.mark.parametrize("model", HYBRIDS)
@pytest.mark.parametrize(("pp", "chunks"), [(2, 1), (4, 1), (4, 2), (8, 1), (13, 1)])
def test_counts_are_those_of_the_stage_with_most(model: str, pp: int, chunks: int) -> None:
    pattern = load_model(model).pattern
    if len(pattern) % (pp * chunks):
        pytest.skip("layer slots that stay empty count as the mean")
    labels, more = {"schedule": "interleaved"}, {"virtual_pipeline_size": float(chunks)}
    known = at(model, pp, labels, **more)
    every = at(model, pp, labels, stage=np.arange(float(pp)), **more)
    texts = ["".join(stage) for stage in held(pattern, pp, chunks)]
    mixers = max(len(text) - text.count("E") for text in texts)
    assert known["max_stage_layers"] == mixers
    if "E" in pattern:
        assert known["max_stage_moe_layers"] == max(text.count("E") for text in texts)
        assert known["max_stage_tp_blocks"] == len(pattern) / pp
    for most, of in (
        ("max_stage_moe_layers", "stage_moe_layers"),
        ("max_stage_tp_blocks", "stage_tp_blocks"),
        ("max_rank_expert_parameters", "stage_expert_parameters"),
    ):
        assert known[most] == every[of].max()
    share = every["stage_linear_fraction"]
    owned = at(
        model, pp, labels, stage=np.arange(float(pp)), linear_attention_fraction=share, **more
    )["stage_parameters"]
    assert known["max_rank_dense_parameters"] == pytest.approx(float(owned.max()), rel=1e-12)


@pytest.mark.parametrize("model", HYBRIDS)
@pytest.mark.parametrize("labels", [{}, {"schedule": "forward_only"}, {"recompute": "block"}])
def test_one_stage_is_as_without_an_order(model: str, labels: dict[str, str]) -> None:
    given = at(model, 1, labels, memory_capacity=8e10)
    bare = {name: value for name, value in given.given.items() if name not in NUMBERS}
    kept = {name: value for name, value in given.labels.items() if name != "order"}
    spread = Evaluation(bare, kept)
    for name in tuple(
        (
            "step_time stage_forward_time matmul_part_time bubble_time communication_volume "
            "peak_memory attention_part_time"
        ).split()
    ):
        assert given[name] == spread[name]


@pytest.mark.parametrize(
    "schedule",
    ["one_f_one_b", "zero_bubble_h1", "zero_bubble_v", "dual_pipe", "dual_pipe_v", "v_half"],
)
@pytest.mark.parametrize("model", [NANO, NEXT])
def test_the_parts_of_a_step_are_the_step(model: str, schedule: str) -> None:
    chunks = 2.0 if schedule in ("zero_bubble_v", "dual_pipe_v", "v_half") else 1.0
    copies = {"weight_copies": 2.0} if schedule == "dual_pipe" else {}
    known = at(model, 4, {"schedule": schedule}, virtual_pipeline_size=chunks, **copies)
    whole = sum(float(known[name]) for name in PARTS)
    assert whole == pytest.approx(float(known["step_time"]), rel=1e-11)


def test_the_heaviest_stage_is_found_among_all() -> None:
    rng = np.random.default_rng(47)
    for _ in range(40):
        pattern = "".join(rng.choice(list("L*E"), size=int(rng.integers(8, 60))))
        pp, chunks = int(rng.integers(3, 9)), int(rng.integers(1, 4))
        size = -(-len(pattern) // (pp * chunks))
        numbers = tuple(numbers_of(pattern).values())
        attention, mixture = rng.normal(size=2)
        weight = {"L": 0.0, "*": attention, "E": mixture}
        mean = sum(weight[letter] for letter in pattern) / len(pattern)
        for turned, mirrored in product((0.0, 1.0), repeat=2):
            period = pp * 2 if turned else pp
            heavy = np.zeros(pp)
            for index, letter in enumerate(pattern):
                stage = index // size % period
                stage = min(stage, period - 1 - stage) if turned else stage
                heavy[stage] += weight[letter] - mean
            heavy = heavy + heavy[::-1] if mirrored else heavy
            between = heavy[1 : pp if turned else pp - 1]
            array = heaviest_stage(attention, mixture, pp, turned, mirrored, size, 0.0, *numbers)
            assert heavy[int(array)] == pytest.approx(between.max(), abs=1e-9)


@pytest.mark.parametrize("schedule", ["one_f_one_b", "v_half"])
@pytest.mark.parametrize("model", ["deepseek-v2-lite", NEXT])
def test_a_model_beside_a_hybrid_is_as_alone(model: str, schedule: str) -> None:
    """Leading dense layers make the last stage another one than that with most parameters."""
    plan = {"gpus": 64, "pp": 4, "tp": 1, "ep": 8, "zero_stage": 3, "schedule": schedule}
    job = {"hardware": "dgx-h100", "global_batch_size": 64, "micro_batch_size": 1}
    asked = {**plan, **job, "sequence_length": 4096, "dp_mechanism": "ddp_buckets"}
    alone = sweeps.sweep(["step_time", "peak_memory"], model=model, **asked)
    dataset = sweeps.sweep(["step_time", "peak_memory"], model=[model, NANO], **asked)
    for name in ("step_time", "peak_memory"):
        assert dataset[name].sel(model=model).item() == alone[name].item()
