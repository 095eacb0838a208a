"""The search against every plan one by one, by the scalar interface."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from sweeps.bands import tie
from sweeps.search.request import Point, read_request
from sweeps.search.search import SearchResult, search
from sweeps.search.space import space_of
from tests.plans.exhaustive import Everything, everything
from tests.tables import keyed

SMALL = {"hardware": "dgx-h100", "global_batch_size": 16, "sequence_length": 4096}
SPACES: dict[str, dict[str, Any]] = {
    "dense": {**SMALL, "model": "llama3-8b", "gpus": 8},
    "odd nodes": dict(
        SMALL, model="llama2-7b", gpus=12, gpus_per_node=4, global_batch_size=24, zero_stage="0,1"
    ),
    "experts": {
        **SMALL,
        "model": "mixtral-8x7b",
        "hardware": "dgx-h200",
        "gpus": 16,
        "global_batch_size": 32,
        "virtual_pipeline_size": "1,2",
        "micro_batch_size": "1,2,3",
    },
    "sharded": {**SMALL, "model": "llama3-8b", "gpus": 16, "framework": "torchtitan"},
    "flat network": SMALL
    | keyed("model=llama3-8b gpus=8 topology=switch bandwidth=100GB/s latency=3us"),
}


def point(name: str) -> Point:
    return read_request(SPACES[name]).first


@pytest.fixture(scope="module", params=list(SPACES))
def both(request: pytest.FixtureRequest) -> tuple[SearchResult, Everything]:
    asked = point(request.param)
    return search(space_of(asked), keep=100000), everything(asked)


def values(search_result: SearchResult) -> list[tuple[float, float]]:
    return [(plan.known["step_time"], plan.known["peak_memory"]) for plan in search_result.best]


def key(one: Any) -> tuple[Any, ...]:
    numbers = tuple(
        (
            "tp cp pp dp ep etp virtual_pipeline_size micro_batch_size zero_stage sequence_parallel"
        ).split()
    )
    return (*(int(one[name]) for name in numbers), one.labels["recompute"], one.labels["schedule"])


@pytest.mark.thorough
def test_it_finds_every_plan_that_can_run(both: tuple[SearchResult, Everything]) -> None:
    actual, every = both
    assert actual.counts.feasible == len(every.times) > 10
    assert len(actual.best) == len(every.times)
    assert {key(plan) for plan in actual.best} == {
        tuple(int(part) if isinstance(part, float | int) else part for part in time)
        for time in every.times
    }


@pytest.mark.thorough_cases(every=3)
def test_times_and_memories_are_the_scalar_interfaces(
    both: tuple[SearchResult, Everything],
) -> None:
    found, every = both
    ours = {key(plan): pair for plan, pair in zip(found.best, values(found), strict=True)}
    for name, pair in every.times.items():
        own = tuple(int(part) if isinstance(part, float | int) else part for part in name)
        assert ours[own] == pytest.approx(pair, rel=1e-9)


def test_the_best_are_in_order(both: tuple[SearchResult, Everything]) -> None:
    """The simplest of those among which the model can't tell comes first, then all by time."""
    found, every = both
    first, *times = [time for time, _ in values(found)]
    assert times == sorted(times)
    best = min(first, times[0])
    assert best == pytest.approx(every.best()[1][0], rel=1e-12)
    assert first <= best * (1.0 + tie())


def test_the_best_of_every_split(both: tuple[SearchResult, Everything]) -> None:
    found, every = both
    theirs = {tuple(map(int, split)): pair for split, pair in every.of_splits().items()}
    ours = {
        key(best_of_split)[:6]: best_of_split.known["step_time"] for best_of_split in found.splits
    }
    assert set(ours) == set(theirs)
    recommended = key(found.best[0])[:6]
    for split, time in ours.items():
        more = tie() if split == recommended else 0.0
        assert theirs[split][0] * (1.0 - 1e-9) <= time <= theirs[split][0] * (1.0 + more + 1e-9)


def test_the_front(both: tuple[SearchResult, Everything]) -> None:
    found, every = both
    ours = np.array([(plan.known["step_time"], plan.known["peak_memory"]) for plan in found.front])
    assert (np.diff(ours[:, 0]) > 0.0).all()
    assert (np.diff(ours[:, 1]) < 0.0).all()
    pairs = np.array(sorted(every.times.values()))
    for time, memory in ours:
        beats = (pairs[:, 0] < time * (1 - 1e-9)) & (pairs[:, 1] < memory * (1 - 1e-9))
        assert not beats.any()
    # Rounding aside, no plan is outside of what the front dominates.
    for time, memory in pairs:
        assert ((ours[:, 0] <= time * (1 + 1e-9)) & (ours[:, 1] <= memory * (1 + 1e-9))).any()


def test_all_plans_are_counted(both: tuple[SearchResult, Everything]) -> None:
    found, _ = both
    counts = found.counts
    assert counts.all >= counts.evaluated >= counts.feasible
    assert sum(counts.alone.values()) <= counts.evaluated - counts.feasible
    assert all(counts.fallen[name] >= count for name, count in counts.alone.items())
    # A plan that can't run falls for something.
    assert sum(counts.fallen.values()) >= counts.all - counts.feasible


def test_ends_count_as_layers_where_only_so_stages_are_even() -> None:
    """14 layers and 2 ends make 16: eight stages are even only so, and analysis takes the same."""
    shapes = keyed(
        "layers=14 hidden_size=2048 heads=16 ffn_size=8192 gated_mlp=1 vocabulary_size=32000 "
        "tied_embeddings=0"
    )
    asked = read_request({**SMALL, **shapes, "gpus": 8, "pp": 8, "virtual_pipeline_size": 1}).first
    match = search(space_of(asked))
    counted = {plan["embedding_layer_weight"] for plan in match.best}
    assert counted == {1.0}
    even = read_request({**SMALL, **shapes, "layers": 16, "gpus": 8, "pp": 8}).first
    assert "embedding_layer_weight" not in search(space_of(even)).space.rows.columns
    # Given, it is every plan's, and the output layer counts as much unless told.
    result = replace(asked, constants={**asked.constants, "embedding_layer_weight": 1.0})
    best = search(space_of(result)).best
    assert best[0].known["step_time"] == match.best[0].known["step_time"]


@pytest.mark.thorough
def test_modules_are_tried_as_if_each_were_asked_for() -> None:
    """Each set of modules by a search of its own; where nothing is repeated, layers' are there."""
    asked: dict[str, Any] = {
        **SMALL,
        **keyed(
            "model=deepseek-v2-lite gpus=8 tp=1 cp=1 zero_stage=1 virtual_pipeline_size=1 "
            "hardware=dgx-a100"
        ),
        "micro_batch_size": "1,2",
    }
    names = ("recompute_core_attn", "recompute_moe_act", "recompute_mla_up_proj")
    free = dict.fromkeys(names, "0,1")
    whole = {**asked, **free, "recompute": "block,full,selective"}
    match = search(space_of(read_request(whole).first), keep=10000)
    layers = {**asked, "recompute": "block,full", names[0]: "0,1"}
    apart = search(space_of(read_request(layers).first), keep=10000)
    expected = {(plan.key, pair) for plan, pair in zip(apart.best, values(apart), strict=True)}
    for chosen in product((0, 1), repeat=3):
        if not any(chosen):
            continue
        settings = {**asked, "recompute": "selective", **dict(zip(names, chosen, strict=True))}
        each = search(space_of(read_request(settings).first), keep=10000)
        expected |= {(plan.key, pair) for plan, pair in zip(each.best, values(each), strict=True)}
    ours = {(plan.key, pair) for plan, pair in zip(match.best, values(match), strict=True)}
    assert ours == expected
    assert match.counts.feasible == len(expected) > len(apart.best) > 10
    assert len({plan.modules for plan in match.best}) == 8
    some = next(plan for plan in match.best if len(plan.modules) == 2)
    assert f"recompute selective ({', '.join(some.modules)})" in some.name


@pytest.mark.thorough
def test_blocks_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = point("dense")
    whole = search(space_of(asked))
    monkeypatch.setattr("sweeps.search.search.BLOCK_CELLS", 97)
    monkeypatch.setattr("sweeps.search.search.ROWS", 13)
    monkeypatch.setattr("sweeps.search.rows.AT_ONCE", 29)
    parts = search(space_of(asked))
    assert [plan.key for plan in parts.best] == [plan.key for plan in whole.best]
    assert [plan.key for plan in parts.front] == [plan.key for plan in whole.front]
    assert [split.key for split in parts.splits] == [split.key for split in whole.splits]
    assert parts.counts == whole.counts
