"""A batch that isn't given is searched between published ones, and the answer names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sweeps.search.batches import NEAR, Published, batches_of, published_batches
from sweeps.search.buy import Offer, Tried, Wish, best_batch, offers
from sweeps.search.buy_table import Bought, layout
from sweeps.search.space import common_of
from tests.cli_runner import Runner
from tests.plans.cases import best_run, point


def given(model: str, **changed: Any) -> dict[str, float]:
    return dict(common_of(point(model=model, **changed))[2].constants)


def test_published_batches_are_of_whole_trainings() -> None:
    known = {published_batch.model: published_batch for published_batch in published_batches()}
    assert known["llama3-405b"].batch == 16 * 2**20
    assert known["deepseek-v3"] == Published(
        "deepseek-v3", 15360 * 4096, 14.8e12, known["deepseek-v3"].active, routed=True
    )
    assert known["deepseek-v3"].active == pytest.approx(37e9, rel=0.03)
    # A training has thousands of steps.
    assert all(one.tokens / one.batch > 1e4 for one in known.values())


def test_batches_go_from_the_nearest_in_size_to_the_largest_of_the_kind() -> None:
    batches = batches_of("llama3-70b", given("llama3-70b", sequence_length=8192), 15e12)
    assert batches is not None
    assert (batches.usual.model, batches.largest.model) == ("llama2-70b", "phi-4")
    assert batches.sequences == (512, 1024, 2048)
    assert "4.19 to 16.8 M tokens" in batches.words
    # Of a published model the first is its own.
    own = batches_of("deepseek-v3", given("deepseek-v3"), 14.8e12)
    assert own is not None
    assert own.sequences == (15360,)


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-235b-a22b", "gpt3-175b"])
@pytest.mark.parametrize("tokens", [3e11, 1e12, 9e12, 4e13])
def test_no_batch_exceeds_what_was_published_of_as_short_a_training(
    model: str, tokens: float
) -> None:
    known = given(model)
    batches = batches_of(model, known, tokens)
    assert batches is not None
    most = max(
        published_batch.batch
        for published_batch in published_batches()
        if published_batch.tokens <= NEAR * tokens
    )
    assert max(batches.sequences[1:], default=0.0) * 4096 <= most
    assert all(count.is_integer() for count in batches.sequences)
    assert [
        later / first
        for first, later in zip(batches.sequences, batches.sequences[1:], strict=False)
    ] == [2.0] * (len(batches.sequences) - 1)


@pytest.mark.thorough
def test_a_training_shorter_than_any_published_has_the_usual_batch(cli: Runner) -> None:
    assert batches_of("llama3-8b", given("llama3-8b"), 1e9) is None
    out = cli("buy --model llama3-8b --tokens 20B --days 30").out
    assert "--global-batch-size 512" in " ".join(out.split())


def offered(batch: float, *runs: tuple[int, float, float]) -> Offer:
    """Return a machine's offer from GPUs, days and cost."""
    known = best_run(point(gpu_hour_price=2.5), 100e9).detail
    assert known is not None
    tried = tuple(
        Tried(gpus, replace(known, values={**known.values, "run_days": days, "run_cost": cost}))
        for gpus, days, cost in runs
    )
    made = [trial for trial in tried if trial.days <= 10.0]
    return Offer("dgx-h100", tried, made[0] if made else None, batch=batch)


@pytest.mark.thorough
def test_the_smallest_batch_is_taken_that_costs_as_little_as_any() -> None:
    wish = Wish(tokens=100e9, days=10.0)
    few = offered(64.0, (512, 12.0, 90.0), (1024, 9.0, 130.0))
    offer = offered(128.0, (512, 9.9, 103.0))
    many = offered(256.0, (512, 9.0, 100.0))
    assert best_batch([few, offer, many], wish) == 128.0
    assert best_batch([few, many], wish) == 256.0
    assert best_batch([few], wish) == 64.0
    assert best_batch([offered(64.0, (512, 12.0, 90.0))], wish) is None
    # One over the budget is none.
    assert best_batch([few, offer, many], replace(wish, budget=101.0)) == 256.0


@pytest.mark.thorough
def test_each_batch_s_run_is_that_of_the_batch_alone() -> None:
    """The best batch's numbers are all looked at, as if it alone had been asked for."""
    wish = Wish(tokens=100e9, days=10.0)
    asked = {"dgx-h100": point(gpu_hour_price=2.5)}
    told: list[tuple[str, float]] = []

    def telling(name: str, batch: float) -> Any:
        told.append((name, batch))
        return lambda result, total: None

    actual_offers = offers(asked, wish, (64.0, 128.0), telling)
    assert [actual_offer.batch for actual_offer in actual_offers] == [64.0, 128.0]
    best = best_batch(actual_offers, wish)
    assert best is not None
    assert told == [("dgx-h100", 64.0), ("dgx-h100", 128.0), ("dgx-h100", best)]
    (alone,) = offers(asked, wish, (best,), telling)
    (actual_offer,) = (one for one in actual_offers if one.batch == best)
    assert actual_offer.least is not None
    assert alone.least is not None
    assert (actual_offer.least.gpus, actual_offer.least.days) == (
        alone.least.gpus,
        alone.least.days,
    )
    # Records carry the batch.
    table = layout([Bought(actual_offers, wish, asked["dgx-h100"])], {})
    columns = {coordinate.name: np.asarray(coordinate.values) for coordinate in table.coordinates}
    assert set(columns["global_batch_size"]) == {64.0, 128.0}
    np.testing.assert_array_equal(columns["tokens_per_step"], 4096 * columns["global_batch_size"])


@pytest.mark.thorough
def test_buy_names_the_batch_gpus_and_dollars(cli: Runner) -> None:
    line = "buy --model llama3-8b --tokens 9T --days 60 --hardware dgx-h100"
    ran = cli(line)
    assert "GPUs of dgx-h100" in ran.out.splitlines()[0]
    assert "USD" in " ".join(ran.out.splitlines()[:2])
    assert "tokens per step" in ran.out.split("By batch")[0]
    assert "By batch" in ran.out
    assert "--seq-len 8192 (as llama3-8b was trained)" in " ".join(ran.out.split())
