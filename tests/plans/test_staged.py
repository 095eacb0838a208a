"""A search by bounds gives what computing every plan gives, bit for bit."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest

from sweeps.engine.evaluate import Evaluator
from sweeps.search import search as engine
from sweeps.search.buy import Searched
from sweeps.search.numbers import Numbers
from sweeps.search.recommended import least_steps, recommended
from sweeps.search.request import Execution
from sweeps.search.search import OF_TIME, TERMS, SearchResult, blocks_of, search
from sweeps.search.space import space_of
from tests.plans.cases import point

MODELS = ("llama3-8b", "llama3-70b", "mixtral-8x7b", "qwen3-30b-a3b")
CHOICES: dict[str, list[Any]] = {
    "dp_overlap": [0.0, 0.5, 1.0],
    "recompute": ["none", "full", "block"],
    "zero_stage": [0.0, 1.0, 2.0, 3.0],
    "hsdp_shard_size": [1.0, 2.0, 4.0],
}


SLOWER = {"step_time": 4.0, "tokens_per_second": 2.0}


def asked(seed: int) -> dict[str, Any]:
    """Return a random question, a small one."""
    random = np.random.default_rng(seed)
    settings = {
        "model": str(random.choice(MODELS)),
        "hardware": str(random.choice(["dgx-h100", "dgx-a100", "gb200-nvl72"])),
        "gpus": int(random.choice([8, 16, 24, 32, 48])),
        "global_batch_size": int(random.choice([16, 32, 48, 64])),
        "sequence_length": int(random.choice([2048, 4096])),
        "objective": str(random.choice(["time", "time", "memory", "cost", "tokens"])),
        "threshold": float(random.choice([0.5, 0.9, 1.0])),
        "gpu_hour_price": 2.0,
    }
    for name, values in CHOICES.items():
        if random.random() < 0.4:
            kept = random.permutation(len(values))[: random.integers(1, len(values) + 1)]
            settings[name] = [values[position] for position in kept]
    if random.random() < 0.2:
        settings["framework"] = str(random.choice(["torchtitan", "deepspeed"]))
        settings.pop("recompute", None)
    return settings


def told(search_result: SearchResult) -> list[Any]:
    """Return all that is told of a search."""

    def plans(several: Any) -> list[Any]:
        return [(plan.key, plan.labels, dict(plan.known)) for plan in several]

    counts = search_result.counts
    return [
        plans(search_result.best),
        plans(search_result.splits),
        plans(search_result.front),
        search_result.values,
        counts.all,
        counts.evaluated,
        counts.feasible,
        counts.fallen,
        counts.alone,
    ]


def cut_small(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Make blocks, trials and pools so small that a few plans make many of them."""
    random = np.random.default_rng(seed)
    patch.setattr(engine, "WORTH", 0)
    patch.setattr(engine, "ROWS", int(random.choice([61, 1 << 14])))
    patch.setattr(engine, "TOGETHER", int(random.choice([1, 3, 64])))
    patch.setattr(engine, "TRIED", int(random.choice([1, 5, 64])))
    patch.setattr(engine, "FULL", float(random.choice([0.0, 0.8, 2.0])))
    patch.setattr(engine, "PAYS", float(random.choice([0.2, 1.0, 9.0])))
    patch.setattr(engine, "WAITING", int(random.choice([50, 1000, 1 << 21])))
    patch.setattr(engine, "KEPT", int(random.choice([1, 5, 50])))


@pytest.mark.thorough_cases(every=13)
@pytest.mark.parametrize("seed", range(14))
def test_bounds_change_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    question = point(**asked(seed))
    with monkeypatch.context() as patch:
        cut_small(patch, seed)
        staged = search(space_of(question))
        patch.setattr(engine, "WORTH", 1 << 60)
        assert told(staged) == told(search(space_of(question)))


@pytest.mark.thorough_cases(every=14)
@pytest.mark.parametrize("seed", range(14))
def test_reasons_are_those_of_each_plan(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Found once for plans that differ in what hides alone, they are counted as one by one."""
    shares = {"tp_overlap": [0.0, 0.5], "dp_overlap": [0.0, 0.25, 0.5]}
    space = space_of(point(**{**asked(seed), **shares}))
    if space.limits is None:
        return
    fallen, alone = Counter[str](), Counter[str]()
    for block in blocks_of(space):
        block.known.clear()
        bits = np.broadcast_to(block.reasons(), block.lengths)
        for name, bit in space.limits.bits.items():
            fallen[name] += int(np.count_nonzero(bits & bit))
            alone[name] += int(np.count_nonzero(bits == bit))
    for name, rows in space.rows.fallen.items():
        fallen[name] += rows * space.ways
    cut_small(monkeypatch, seed)
    counts = search(space).counts
    assert counts.fallen == {name: number for name, number in fallen.items() if number}
    assert counts.alone == {name: number for name, number in alone.items() if number}


@pytest.mark.thorough
def test_bounds_leave_plans_out(monkeypatch: pytest.MonkeyPatch) -> None:
    question = point(model="mixtral-8x7b", gpus=64, global_batch_size=256)
    monkeypatch.setattr(engine, "WORTH", 0)
    counts = search(space_of(question)).counts
    assert 0 < counts.computed < counts.feasible / 3
    monkeypatch.setattr(engine, "WORTH", 1 << 60)
    assert search(space_of(question)).counts.computed == counts.feasible


def test_a_user_s_formulas_have_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORTH", 0)
    monkeypatch.setattr(engine, "OURS", "elsewhere")
    counts = search(space_of(point(model="mixtral-8x7b", gpus=64, global_batch_size=256))).counts
    assert counts.computed == counts.feasible


@pytest.mark.parametrize("objective", ["time", "cost", "tokens"])
def test_no_plan_is_better_than_its_bound(objective: str) -> None:
    space = space_of(point(objective, model="mixtral-8x7b", gpus=32, gpu_hour_price=2.0))
    name = space.point.objective.quantity
    sign = -1.0 if space.point.objective.more else 1.0
    for block in blocks_of(space):
        bound, value = sign * block.least(name), sign * block.value(name)
        assert (bound <= value).all()
        assert np.median(bound / value) > (0.9 if sign > 0.0 else 1.0)


def test_terms_are_none_below_zero() -> None:
    from overhead.quantity import VOCABULARY

    space = space_of(point())
    assert space.plan is not None
    (step,) = {
        id(case.nodes["step_time"]): case.nodes["step_time"]
        for case in space.plan.cases
        if case.labels["recompute"] == "full" and case.labels["schedule"] == "one_f_one_b"
    }.values()
    assert {*TERMS} < {name.name for name in step.inputs}
    assert all(VOCABULARY[name.name].minimum == 0 for name in step.inputs)


def test_what_follows_from_a_step_s_time_gets_worse_with_it() -> None:
    from overhead.formula import REGISTRY

    for name in OF_TIME:
        (formula,) = (each for each in REGISTRY.values() if each.returns == name)
        values = dict.fromkeys(formula.inputs, 3.0)
        slower = {**values, **{n: v for n, v in SLOWER.items() if n in values}}
        low, high = (formula.kernel(*given.values()) for given in (values, slower))
        assert high > low if name.startswith("cost") else high < low


def test_plans_of_splits_are_made_when_asked_for() -> None:
    made: list[slice] = []

    def make(some: slice) -> list[Execution]:
        made.append(some)
        return [Execution({"tp": float(at)}, {}) for at in range(some.start, some.stop)]

    several = engine.Ranked((), 9, make)
    assert len(several) == 9
    assert not made
    assert [plan["tp"] for plan in several[:2]] == [0.0, 1.0]
    assert several[-1]["tp"] == 8.0
    assert [plan["tp"] for plan in several] == [*map(float, range(9))]
    assert made == [slice(0, 2), slice(2, 9)]


@pytest.mark.thorough_cases(every=14)
@pytest.mark.parametrize("seed", range(14))
def test_what_is_recommended_alone_is_what_a_search_recommends(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    question = point(**asked(seed))
    cut_small(monkeypatch, seed)
    whole = search(space_of(question)).best
    alone = recommended(space_of(question)).get(question.world_size)
    assert (alone is None) == (not whole)
    if alone is not None:
        assert said(alone) == said(whole[0])


def said(plan: Execution) -> list[Any]:
    return [plan.key, plan.given, plan.labels, plan.known]


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b"])
def test_numbers_searched_as_one_have_the_plans_of_each_alone(model: str) -> None:
    question, numbers = point(model=model, global_batch_size=96), (16, 24, 32, 48, 64)
    together: dict[int, Execution] = {}
    for space in Numbers(question, numbers).spaces(dict.fromkeys(numbers, np.inf)):
        together |= recommended(space)
    for gpus in numbers:
        request = question.with_constants(world_size=float(gpus))
        assert said(together[gpus]) == said(search(space_of(request)).recommended)


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["llama3-70b", "mixtral-8x7b"])
def test_what_few_columns_decide_is_what_each_row_has(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Computed once for their combinations, bit for bit: all that is told of a search."""
    question = point(model=model, gpus=96, global_batch_size=192)
    monkeypatch.setattr("sweeps.search.space.MANY_ROWS", 1 << 40)
    plain = space_of(question)
    assert plain.folds is None
    expected = told(search(plain))
    monkeypatch.setattr("sweeps.search.space.MANY_ROWS", 0)
    folded = space_of(question)
    assert told(search(folded)) == expected
    assert folded.folds is not None
    assert len(folded.folds.evaluators) > 10


@pytest.mark.thorough_cases(every=14)
@pytest.mark.parametrize("seed", range(14))
def test_plans_that_bounds_leave_have_the_recommended_one(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Bounded by layers, from few plans on: what a search of all plans recommends."""
    question = point(**{**asked(seed), "objective": "time"})
    whole = search(space_of(question)).best
    monkeypatch.setattr("sweeps.search.numbers.WORTH", 0)
    for first in (0.8, 1.05, 2.0):
        monkeypatch.setattr("sweeps.search.buy.FIRST_LOOK", first)
        kept = Searched()
        kept.search(question, [question.world_size])
        plan = kept.plans[question.world_size]
        assert (plan is None) == (not whole)
        if plan is not None:
            assert said(plan) == said(whole[0])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"model": "gpt-oss-120b", "global_batch_size": 48},
        {"model": "qwen3.5-122b-a10b", "hardware": "gb200-nvl72", "gpus": 24},
        {"model": "deepseek-v3", "gpus": 64, "sequence_length": 8192},
        {"model": "llama3-8b", "hardware": "tpu-v5p", "gpus": 64},
        {"model": "mixtral-8x7b", "framework": "torchtitan", "gpus": 32},
        {"model": "qwen3-30b-a3b", "schedule": "zero_bubble_h1", "gpus": 32},
        {"model": "llama3-70b", "tp_overlap": [0.0, 0.5], "gpus": 48, "global_batch_size": 96},
    ],
)
def test_no_step_is_shorter_than_its_layers(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """Neither by the table of layers nor by what recomputes nothing; all other rows are there."""
    monkeypatch.setattr("sweeps.search.numbers.WORTH", 0)
    question = point(**changed)
    gpus, exact = question.world_size, space_of(question)
    numbers = Numbers(question, [gpus])
    steps = np.full(len(exact.rows), np.inf)
    for block in blocks_of(exact):
        values = np.broadcast_to(block.value("step_time"), block.lengths)
        other_indexes = tuple(at for at in range(values.ndim) if at != block.axis)
        steps[block.rows] = np.fmin(steps[block.rows], values.min(axis=other_indexes))
    ((least, most),) = numbers.least_steps().values()
    asked_names = ("tp", "cp", "pp", "dp", "virtual_pipeline_size", "micro_batch_size")
    if "ep" in exact.rows.columns:
        asked_names += ("ep", "etp")
    rows = [*zip(*(exact.rows.columns[name].tolist() for name in asked_names), strict=True)]
    left = 0
    for longest in (least, 1.5 * least, 4.0 * least, most):
        spaces = [*numbers.spaces({gpus: longest})]
        if not spaces:  # No split of these GPUs has degrees that may be so fast
            assert (steps > longest).all()
            continue
        (space,) = spaces
        columns = [space.rows.columns.get(name, np.empty(0)).tolist() for name in asked_names]
        there = {*zip(*columns, strict=True)}
        assert all(row in there for row, step in zip(rows, steps, strict=True) if step <= longest)
        left = len(there)
        near, bounds = least_steps(space, {})
        known = dict(zip(rows, steps, strict=True))
        for at, bound in zip(near.tolist(), bounds.tolist(), strict=True):
            assert bound <= known[tuple(column[at] for column in columns)] * (1.0 + 1e-9)
    assert np.isinf(most) or left == len(rows)


def test_what_a_search_kept_is_let_go_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of many numbers of GPUs would else add up, until cycles are looked for."""
    made: list[weakref.ref[Evaluator]] = []
    begin = Evaluator.__init__

    def counted(self: Evaluator, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Evaluator, "__init__", counted)
    monkeypatch.setattr("sweeps.search.space.MANY_ROWS", 0)
    question = point(model="llama3-8b", gpus=8)
    gc.disable()
    try:
        assert recommended(space_of(question))
        assert len(made) > 2  # Of combinations of columns, too
        assert not [evaluator for evaluator in made if evaluator() is not None]
    finally:
        gc.enable()
