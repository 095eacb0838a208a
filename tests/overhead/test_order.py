"""What stands in a pipeline stage of a hybrid: its own layers, by hand and by enumeration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.completion import features
from overhead.evaluation import Evaluation
from overhead.interleaved import interleaved_time
from overhead.memory.quantities import RECIPES
from overhead.model.order import LETTERS, MOST, NUMBERS, numbers_of, pattern_of
from overhead.overlap.pipeline import BACKWARD, FORWARD, run_orders, stage_orders
from overhead.shipped import usual_table
from overhead.special import heaviest_stage, layers_of_kind
from sweeps.spec.catalog import load_model, model_names
from tests.overhead.memory_cases import stage_memory
from tests.tables import keyed

NANO = "nemotron-3-nano-30b-a3b"
CONFIGS = Path(__file__).parents[1] / "data" / "models"
LABELS = keyed(
    "shapes=known schedule=one_f_one_b recompute=none sharding=full attention_kernel=flash_2 "
    "dispatcher=all_to_all"
)
FOLLOWED = {"order": "followed"}
# Mamba-2, attention and mixtures of nemotron-3-nano's slices of its 52, counted by hand.
SLICES = {
    1: ((23, 6, 23),),
    2: ((12, 3, 11), (11, 3, 12)),
    4: ((6, 2, 5), (6, 1, 6), (5, 2, 6), (6, 1, 6)),
}


def plan(stages: int, model: str = NANO, **more: Any) -> dict[str, Any]:
    given = {name: value.value for name, value in usual_table()["memory"].items()}
    given |= RECIPES["mixed_adam"].given() | dict(
        dp=8.0, pp=float(stages), num_micro_batches=8.0, sequence_length=4096.0
    )
    return given | load_model(model).shapes | {"stage": np.arange(float(stages))} | more


def at(given: Mapping[str, Any], **labels: str) -> Evaluation:
    return Evaluation(given, {**features(given), **LABELS, **FOLLOWED, **labels})


@pytest.mark.parametrize("stages", SLICES)
def test_the_layers_of_a_stage_by_hand(stages: int) -> None:
    linear, attention, mixtures = np.array(SLICES[stages], dtype=float).T
    evaluation = at(plan(stages))
    np.testing.assert_array_equal(evaluation["stage_layers"], linear + attention)
    np.testing.assert_array_equal(evaluation["stage_moe_layers"], mixtures)
    np.testing.assert_array_equal(evaluation["stage_mlp_layers"], linear + attention - mixtures)
    share = linear / (linear + attention)
    np.testing.assert_array_equal(evaluation["stage_linear_fraction"], share)


@pytest.mark.parametrize("stages", SLICES)
def test_the_parameters_of_a_stage_by_hand(stages: int) -> None:
    """Mamba-2: 8 groups of a state of 128, 64 heads of 64; 32 heads of 128 with 2 of keys."""
    h, inner, states = 2688, 64 * 64, 8 * 128
    mamba = h * (2 * inner + 2 * states + 64) + inner * h
    mamba += 5 * (inner + 2 * states) + 3 * 64 + inner
    attention = h * 128 * (2 * 32 + 2 * 2)
    shared = h * 128 + 2 * h * 3712
    expert = 2 * h * 1856
    given = plan(stages)
    share = at(given)["stage_linear_fraction"]
    evaluation = at({**given, "linear_attention_fraction": share})
    ends = np.zeros(stages)
    ends[0] += 131072 * h
    ends[-1] += 131072 * h + h
    counts = np.array(SLICES[stages], dtype=float)
    # A norm each: mixers, and mixtures.
    each = (mamba + h, attention + h, shared + h)
    np.testing.assert_allclose(evaluation["stage_parameters"], counts @ each + ends, rtol=1e-14)
    routed = 128 * expert * counts[:, 2]
    np.testing.assert_allclose(evaluation["stage_expert_parameters"], routed, rtol=1e-14)


@pytest.mark.parametrize("stages", [2, 4])
def test_stages_together_keep_what_the_model_does(stages: int) -> None:
    given = plan(stages)
    micro_batch_activation_memory = at(plan(1))["micro_batch_activation_memory"].sum()
    share = at(given)["stage_linear_fraction"]
    each = at({**given, "linear_attention_fraction": share})["micro_batch_activation_memory"]
    assert each.sum() == pytest.approx(micro_batch_activation_memory, rel=1e-13)
    assert np.ptp(each) > 0.0


@pytest.mark.parametrize(("stages", "chunks"), [(26, 2), (4, 13)])
def test_a_mixture_whose_mixer_is_in_the_stage_before_keeps_none_of_it(
    stages: int, chunks: int
) -> None:
    """Chunks of one layer: some stages have more mixtures than mixers."""
    given = plan(stages, virtual_pipeline_size=float(chunks))
    evaluation = at(given)
    layers = load_model(NANO).pattern
    mixtures = np.array([layers[stage::stages].count("E") for stage in range(stages)])
    np.testing.assert_array_equal(evaluation["stage_moe_layers"], mixtures)
    np.testing.assert_array_equal(evaluation["stage_layers"], chunks - mixtures)
    lone = np.maximum(2 * mixtures - chunks, 0)
    np.testing.assert_array_equal(evaluation["stage_lone_moe_layers"], lone)
    assert lone.any()
    share = evaluation["stage_linear_fraction"]
    micro_batch_activation_memory = at({**given, "linear_attention_fraction": share})[
        "micro_batch_activation_memory"
    ]
    one = at(plan(1))["micro_batch_activation_memory"].sum()
    assert micro_batch_activation_memory.sum() == pytest.approx(one, rel=1e-13)


@pytest.mark.parametrize("schedule", ["one_f_one_b", "zero_bubble_v", "dual_pipe"])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_kinds_in_a_stage_are_those_that_stand_there(schedule: str, chunks: int) -> None:
    folded, paired = schedule == "zero_bubble_v", schedule == "dual_pipe"
    chunks = 2 if folded else chunks
    given = plan(4, virtual_pipeline_size=float(chunks))
    evaluation = at(given, schedule=schedule)
    pattern = load_model(NANO).pattern
    size = -(-52 // (4 * chunks))
    held = ["" for _ in range(4)]
    for index, letter in enumerate(pattern):
        chunk = index // size
        turned = folded and chunk >= 4
        held[7 - chunk if turned else chunk % 4] += letter
    for letter, name in (("*", "ordered_attention_layers"), ("E", "ordered_moe_layers")):
        counts = np.array([one.count(letter) for one in held], dtype=float)
        counts = (counts + counts[::-1]) / 2.0 if paired else counts
        np.testing.assert_array_equal(np.broadcast_to(evaluation[name], (4,)), counts)
    count = np.array([len(one) for one in held], dtype=float)
    count = (count + count[::-1]) / 2.0 if paired else count
    np.testing.assert_array_equal(np.broadcast_to(evaluation["ordered_layers"], (4,)), count)


def held_by(stages: int, chunks: int, schedule: str) -> list[str]:
    """Return the letters of a stage's layers: chunks go down, and up again where they turn."""
    held, size = ["" for _ in range(stages)], -(-52 // (stages * chunks))
    for index, letter in enumerate(load_model(NANO).pattern):
        down, chunk = divmod(index // size, stages)
        turned = schedule == "zero_bubble_v" and down == 1
        held[stages - 1 - chunk if turned else chunk] += letter
    return held


@pytest.mark.parametrize("schedule", ["one_f_one_b", "zero_bubble_v", "dual_pipe"])
@pytest.mark.parametrize(("stages", "chunks"), [(4, 1), (13, 1), (13, 2), (13, 4), (2, 1)])
def test_the_stage_with_the_most_is_found_by_counting(
    schedule: str, stages: int, chunks: int
) -> None:
    folded = schedule == "zero_bubble_v"
    chunks = 2 if folded else chunks
    held = held_by(stages, chunks, schedule)
    counts = np.array(
        [[pattern.count(letter) for letter in "M*E"] for pattern in held], dtype=float
    )
    counts = (counts + counts[::-1]) / 2.0 if schedule == "dual_pipe" else counts
    given = plan(stages, virtual_pipeline_size=float(chunks))
    given.pop("stage")
    evaluation = at(given, schedule=schedule)
    norm = float(evaluation["norm_parameters"])
    mixer = float(evaluation["attention_rank_parameters"])
    every = 29.0 * float(evaluation["mixer_rank_parameters"])
    each = ((every - 6.0 * mixer) / 23.0, mixer, float(evaluation["shared_rank_parameters"]))
    weights = {
        "mixer_stage": np.array([1.0, 1.0, 0.0]),
        "mixture_stage": np.array([0.0, 0.0, 1.0]),
        "parameter_stage": np.array(each) + norm,
    }
    between = range(1, stages if folded else stages - 1)
    for name, weight in weights.items():
        most = max(between, key=lambda stage: round(float(counts[stage] @ weight), 3), default=1)
        assert evaluation[name] == most, name


def test_the_stage_with_most_mixtures_is_a_candidate() -> None:
    numbers = tuple(map(np.asarray, numbers_of("EMMMEEMMEMEEEMMM").values()))
    stages = np.arange(4.0)
    counts = layers_of_kind(3.0, stages, 0.0, 4.0, 4.0, 0.0, *numbers)
    np.testing.assert_array_equal(counts, [1.0, 2.0, 3.0, 1.0])
    assert heaviest_stage(0.0, 1.0, 4.0, 0.0, 0.0, 4.0, 0.0, *numbers) == 2.0
    assert heaviest_stage(0.0, 1.0, 2.0, 0.0, 0.0, 8.0, 0.0, *numbers) == 1.0


def test_layers_are_counted_in_every_cell() -> None:
    """Models, stages and chunks of many cells, and none; what isn't whole is told apart, too."""
    patterns = [load_model(name).pattern for name in (NANO, "qwen3.5-27b")]
    said = np.array([list(numbers_of(one).values()) for one in patterns]).T[:, :, None]
    stage, chunk = np.arange(3000.0) % 6.0, np.repeat([2.0, 3.5, 13.0], 1000)
    layers = layers_of_kind(2.0, stage, 0.0, 6.0, chunk, 1.0, *said)
    for pattern, row in zip(patterns, layers, strict=True):
        for cell in (0, 7, 1004, 2999):
            held = [(k + 1) // chunk[cell] % 6 == stage[cell] for k in range(len(pattern))]
            own = [letter for letter, held_count in zip(pattern, held, strict=True) if held_count]
            assert row[cell] == own.count("*")
    assert layers_of_kind(2.0, stage[:0], 0.0, 6.0, 4.0, 0.0, *said[:, 0]).shape == (0,)


@pytest.mark.parametrize(
    "name", [model_name for model_name in model_names() if load_model(model_name).pattern]
)
def test_an_order_has_as_many_of_each_kind_as_the_model(name: str) -> None:
    model = load_model(name)
    assert model.quantity("order_holds") == 1.0
    assert set(model.pattern) <= set(LETTERS)
    assert len(model.pattern) == model.quantity("pipeline_layers")
    assert pattern_of({**numbers_of(model.pattern), "mamba": "M" in model.pattern}) == model.pattern


@pytest.mark.parametrize(
    "name", [model_name for model_name in model_names() if load_model(model_name).pattern]
)
def test_an_order_is_that_of_the_config(name: str) -> None:
    path = CONFIGS / f"{name}.json"
    if not path.exists():
        pytest.skip("no config of it is here")
    config = json.loads(path.read_text())
    config = config.get("text_config", config)
    letters = keyed("mamba=M attention=* moe=E linear_attention=L full_attention=*")
    kinds = config.get("layers_block_type") or config.get("layer_types") or ()
    stated = config.get("hybrid_override_pattern") or "".join(letters[kind] for kind in kinds)
    if linear := config.get("linear_attn_config"):
        places = range(1, config["num_hidden_layers"] + 1)
        stated = "".join(
            "*" if position in linear["full_attn_layers"] else "L" for position in places
        )
    if not stated:
        full_attention_interval = config["full_attention_interval"]
        stated = ("L" * (full_attention_interval - 1) + "*") * (
            config["num_hidden_layers"] // full_attention_interval
        )
    assert load_model(name).pattern == stated


@pytest.mark.parametrize("more", [{"layers": 30.0}, {"linear_layers": 22.0}])
def test_other_counts_than_the_order_s_are_spread(more: dict[str, float]) -> None:
    given = plan(4, **more)
    assert at(given)["order_holds"] == 0.0
    bare = {name: value for name, value in given.items() if name not in NUMBERS}
    for name in ("stage_layers", "stage_moe_layers", "stage_mlp_layers", "stage_linear_fraction"):
        own = np.broadcast_to(at(given)[name], (4,))
        np.testing.assert_array_equal(own, Evaluation(bare, LABELS)[name])
    given.pop("stage"), bare.pop("stage")
    assert stage_memory(given, LABELS).peak_memory == stage_memory(bare, LABELS).peak_memory


def test_a_layer_s_quantity_can_be_given() -> None:
    given = plan(4, mixer_rank_parameters=1e6)
    given.pop("stage")
    known = Evaluation(given, features(given) | LABELS)
    counts = np.array(SLICES[4], dtype=float)
    more = {**given, "stage": 1.0}
    norm = known["norm_parameters"]
    shared = known["shared_rank_parameters"] + norm
    whole = (counts[1, 0] + counts[1, 1]) * (1e6 + norm) + 6.0 * shared
    assert at(more)["stage_parameters"] == pytest.approx(float(whole), rel=1e-12)


def test_every_stage_recomputes_as_many_layers() -> None:
    """What a stage's memory counts with is what is told of the model."""
    given = plan(4, num_micro_batches=32.0, ep=4.0, memory_capacity=54e9)
    given.pop("stage")
    labels = {**features(given), **LABELS, "recompute": "block"}
    known = Evaluation(given, labels)
    layers = float(known["recompute_layers"])
    assert 0.0 < layers < float(known["chunk_layers"])
    told = Evaluation({**given, "recompute_layers": layers}, labels)
    for stage in ("first", "second", "expert", "last"):
        assert known[f"{stage}_stage_memory"] == told[f"{stage}_stage_memory"]
    peak_memory = stage_memory(given, labels).peak_memory
    assert float(known["peak_memory"]) == pytest.approx(float(peak_memory), rel=1e-13)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8, 13])
def test_the_fullest_stage_is_the_same_both_ways(stages: int) -> None:
    given = plan(stages)
    given.pop("stage")
    known = Evaluation(given, features(given) | LABELS)
    peak_memory = stage_memory(given, LABELS).peak_memory
    assert float(known["peak_memory"]) == pytest.approx(float(peak_memory), rel=1e-13)


def test_a_single_stage_is_as_without_an_order() -> None:
    given = plan(1)
    given.pop("stage")
    bare = {name: value for name, value in given.items() if name not in NUMBERS}
    assert stage_memory(given, LABELS).peak_memory == stage_memory(bare, LABELS).peak_memory


def chunk_times(
    given: Mapping[str, float], work: tuple[float, ...], pattern: str
) -> tuple[list[float], list[float]]:
    """Return each chunk's forward and backward time, by counting its layers."""
    pp, chunks = (int(given[name]) for name in ("pp", "virtual_pipeline_size"))
    forward, backward, first, last, lacking, moe_f, moe_b, attention_f, attention_b = work
    size = -(-len(pattern) // (pp * chunks))
    layers = [pattern[k * size : (k + 1) * size] for k in range(pp * chunks)]
    moe, attending = pattern.count("E"), pattern.count("*")
    mixers, linear = len(pattern) - moe, max(pattern.count("L"), 1)
    times: tuple[list[float], list[float]] = ([], [])
    for index, layer in enumerate(layers):
        more = layer.count("E") - len(layer) * moe / len(pattern)
        beyond = layer.count("*") - len(layer) * attending / len(pattern)
        beyond = (beyond + more * attending / mixers) * mixers / linear
        ends = (first if index == 0 else 0.0) + (last if index == pp * chunks - 1 else 0.0)
        ends -= lacking / chunks if index % pp == pp - 1 else 0.0
        share = forward / (forward + backward)
        for each, whole, part, mixed, attended in (
            (times[0], forward, share, moe_f, attention_f),
            (times[1], backward, 1.0 - share, moe_b, attention_b),
        ):
            time = whole / chunks + ends * part + more * mixed + beyond * attended
            each.append(max(time, 0.0))
    return times


@settings(max_examples=15)
@given(
    pattern=st.text("L*E", min_size=16, max_size=60).filter(lambda one: {*one} - {"E"}),
    pp=st.integers(2, 4),
    chunks=st.integers(2, 4),
    groups=st.integers(1, 4),
    shares=st.tuples(*[st.floats(0.0, 1.0)] * 9),
)
def test_chunks_of_drawn_orders_end_as_their_events_do(
    pattern: str, pp: int, chunks: int, groups: int, shares: tuple[float, ...]
) -> None:
    """The order of passes, run event by event with the times of each chunk's own layers."""
    forward, backward, first, last, lacking, *layers = shares
    work = (10.0 + forward, 20.0 + backward, first, last, lacking, *layers)
    given = {"pp": float(pp), "virtual_pipeline_size": float(chunks)}
    count, size = pp * groups, -(-len(pattern) // (pp * chunks))
    times = dict(zip((FORWARD, BACKWARD), chunk_times(given, work, pattern), strict=True))
    runs, _ = run_orders(
        stage_orders("interleaved", pp, count, chunks),
        lambda slot: times[slot[0].kind][slot[0].chunk],
        0.0,
    )
    array = interleaved_time(count, pp, chunks, *work, size, 0.0, *numbers_of(pattern).values())
    assert float(array) == pytest.approx(max(run[-1].end for run in runs), rel=1e-12)


def test_many_groups_of_micro_batches_follow_from_few() -> None:
    order = list(numbers_of("MEMEM*EMEMEM*EMEMEM*EMEME").values())
    work = (10.0, 20.0, 1.0, 2.0, 0.5, 0.5, 1.0, 0.3, 0.6, 4.0, 0.0, *order)
    four, five, nine = (float(interleaved_time(4.0 * n, 4.0, 2.0, *work)) for n in (4, 5, 9))
    assert nine == pytest.approx(four + 5.0 * (five - four), rel=1e-12)
    given = {"pp": 4.0, "virtual_pipeline_size": 2.0}
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEME".replace("M", "L")
    times = dict(zip((FORWARD, BACKWARD), chunk_times(given, work[:9], pattern), strict=True))
    runs, _ = run_orders(
        stage_orders("interleaved", 4, 36, 2), lambda slot: times[slot[0].kind][slot[0].chunk], 0.0
    )
    assert nine == pytest.approx(max(run[-1].end for run in runs), rel=0.01)
    # Fewer layers than chunks: as even chunks.
    assert interleaved_time(8.0, 8.0, 4.0, *work) == (8.0 + 7.0 / 4.0) * 30.0


def test_no_model_has_more_layers_than_can_be_said() -> None:
    assert max(load_model(name).shapes.get("layers", 0.0) for name in model_names()) <= MOST
