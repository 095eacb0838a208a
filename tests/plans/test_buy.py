"""``sweeps buy``: the least number of GPUs that makes it, in the same numbers as ``plan``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweeps
from overhead.evaluation import derive
from sweeps.bands import money, tie
from sweeps.cli.buy_command import _of_machine
from sweeps.cli.buy_question import _amounts, _unpriced
from sweeps.errors import InputError
from sweeps.search.buy import (
    Offer,
    Searched,
    Tried,
    Wish,
    _Attempts,
    _bound,
    may_take,
    offer,
)
from sweeps.search.numbers import Numbers
from sweeps.search.search import blocks_of
from sweeps.search.sizes import LARGEST_CLUSTER, Sizes, largest_of, slices_of
from sweeps.search.space import Space, common_of, space_of
from tests.cli_runner import Runner
from tests.plans.cases import best_run, point
from tests.tables import examples

WISH = Wish(tokens=100e9, days=10.0)


@pytest.fixture(scope="module")
def found() -> Offer:
    return offer(point(gpu_hour_price=2.5), WISH, "dgx-h100")


def test_numbers_of_nodes_divide_well() -> None:
    several = Sizes({}, 8, LARGEST_CLUSTER).rising(60.0)
    assert [next(several) for _ in range(8)] == [64, 72, 80, 96, 112, 120, 128, 144]
    assert next(Sizes({}, 72, LARGEST_CLUSTER).rising(1.0)) == 72


@pytest.mark.thorough
def test_the_least_number_makes_it_and_the_next_smaller_fails(found: Offer) -> None:
    assert found.least is not None
    assert found.least.in_time(WISH)
    assert found.why == ""
    less = found.neighbour
    assert less is not None
    assert less.gpus < found.least.gpus
    assert "misses" in less.fails(WISH)
    # Each smaller number by itself, too.
    for gpus in range(8, found.least.gpus, 8):
        assert not best_run(point(gpus=gpus), WISH.tokens).in_time(WISH), gpus


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("asked", "tokens", "days"),
    [
        ({"global_batch_size": 96}, 100e9, 10.0),
        ({"model": "llama3-70b", "global_batch_size": 120}, 20e9, 14.0),
        ({"model": "mixtral-8x7b", "global_batch_size": 80, "hardware": "dgx-h200"}, 60e9, 9.0),
        ({"model": "qwen3-30b-a3b", "global_batch_size": 64, "hardware": "dgx-a100"}, 60e9, 12.0),
    ],
)
def test_no_smaller_number_makes_it(asked: dict[str, Any], tokens: float, days: float) -> None:
    question = point(**asked)
    got = offer(question, Wish(tokens, days), "..")
    assert got.least is not None
    given = common_of(question)[2].constants
    node, bound = _bound(given, Wish(tokens, days), "..")
    searched = {trial.gpus for trial in got.tried}
    smaller = Sizes(given, node, LARGEST_CLUSTER).between(bound, got.least.gpus)
    assert got.ruled_out == len({*smaller} - searched)
    for gpus in smaller:
        assert best_run(question.with_constants(world_size=float(gpus)), tokens).days > days, gpus
    # A deadline that one of them just makes has it as the answer.
    if smaller:
        other = best_run(question.with_constants(world_size=float(smaller[-1])), tokens)
        late = offer(question, Wish(tokens, other.days), "..").least
        assert late is None or late.gpus <= smaller[-1]


@pytest.mark.thorough
def test_bounds_rule_out_what_takes_longer_and_nothing_else() -> None:
    for gpus in (8, 24, 32, 40, 56):
        detail = best_run(point(gpus=gpus), 100e9).detail
        if detail is not None:
            assert may_take(Numbers(point(), [gpus]), detail["step_time"]) == {gpus}
            assert not may_take(Numbers(point(), [gpus]), 0.5 * detail["step_time"])
        else:
            assert not may_take(Numbers(point(), [gpus]), np.inf)


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({}, (8, 40)),
        pytest.param(
            {"model": "deepseek-v3", "global_batch_size": 15360},
            (640, 896),
            marks=pytest.mark.thorough,
        ),
        # Domains are cut by the number, so that each is looked at by itself
        pytest.param({"hardware": "gb200-nvl72"}, (36, 48, 72, 144), marks=pytest.mark.thorough),
    ],
)
def test_numbers_together_have_the_plans_of_each_alone(
    asked: dict[str, Any], numbers: tuple[int, ...]
) -> None:
    question = point(**asked)
    numbers_of = Numbers(question, numbers)
    together = least_steps(numbers_of.spaces(dict.fromkeys(numbers, np.inf)))
    alone: dict[int, dict[tuple[float, ...], float]] = {}
    for gpus in numbers:
        with suppress(InputError):
            request = question.with_constants(world_size=float(gpus))
            alone |= least_steps([space_of(request)])
    assert together == alone
    for step in sorted(min(steps.values()) for steps in alone.values()):
        each = {gpus for gpus in numbers if may_take(Numbers(question, [gpus]), step)}
        assert may_take(numbers_of, step) == each


def least_steps(spaces: Iterable[Space]) -> dict[int, dict[tuple[float, ...], float]]:
    """Return the least bound of a step, by GPUs and row, of all ways to run the row."""
    found: dict[int, dict[tuple[float, ...], float]] = {}
    for space in spaces:
        columns = space.rows.columns
        names = sorted(name for name in columns if not name.endswith("layer_weight"))
        rows = [*zip(*(columns[name].tolist() for name in names), strict=True)]
        for block in blocks_of(space):
            least = np.broadcast_to(block.least("step_time"), block.lengths)
            values = np.where(block.reasons() == 0, least, np.inf)
            other_indexes = tuple(at for at in range(values.ndim) if at != block.axis)
            for row, value in zip(block.rows, values.min(axis=other_indexes).tolist(), strict=True):
                own = found.setdefault(int(columns["world_size"][row]), {})
                own[rows[row]] = min(value, own.get(rows[row], np.inf))
    return found


def test_a_budget_is_kept_or_missed_by_so_much(found: Offer) -> None:
    assert found.least is not None
    cost = found.least.cost
    assert found.least.fails(Wish(WISH.tokens, WISH.days, cost)) == ""
    assert "1,000 USD over the budget" in found.least.fails(
        Wish(WISH.tokens, WISH.days, cost - 1000.0)
    )


@pytest.mark.thorough
def test_too_few_days_say_so() -> None:
    none = offer(point(global_batch_size=8), Wish(tokens=1e12, days=10.0), "dgx-h100")
    assert none.least is None
    best = min(none.tried, key=lambda one: one.days)
    assert f"none makes it: the fastest, {best.gpus:,} GPUs, take {best.days:.4g} days" in none.why


@pytest.mark.thorough
def test_progress_rises_while_smaller_numbers_are_looked_at() -> None:
    """Each of them tells how far it is, though bounds rule most of them out unsearched."""
    told: list[float] = []
    wish = Wish(tokens=1e12, days=10.0)
    got = offer(point(), wish, "dgx-h100", lambda result, total: told.append(result / total))
    assert told == sorted(told)
    assert told[0] > 0.0
    assert told[-1] < 1.0
    assert len(told) > len(got.tried)
    assert got.ruled_out > 0


def test_more_gpus_that_cost_less_are_taken(found: Offer) -> None:
    """Not where both tie, nor where they are too late."""
    least = found.least
    assert least is not None
    assert least.detail is not None

    def with_cost(gpus: int, cost: float, days: float = 2.0) -> Offer:
        values = {**least.detail.values, "run_days": days, "run_cost": cost}
        trial = Tried(gpus, replace(least.detail, values=values))
        return replace(found, tried=(least, trial))

    assert with_cost(512, least.cost / 2.0).best(WISH).gpus == 512
    assert with_cost(512, least.cost * 0.97).best(WISH) is least
    assert with_cost(512, least.cost * 0.95).best(WISH).gpus == 512
    assert with_cost(512, least.cost / 2.0, days=99.0).best(WISH) is least
    lines = [*_of_machine(with_cost(512, least.cost / 2.0), WISH)]
    assert any(f"fewer make it, and cost more: {least.gpus:,} GPUs" in line for line in lines)


@pytest.mark.parametrize("days", [1e-6, 1e-320])
def test_days_that_no_cluster_can_meet_are_said_at_once(days: float) -> None:
    none = offer(point(), Wish(tokens=1e12, days=days), "dgx-h100")
    assert none.least is None
    assert not none.tried
    given = common_of(point())[2].constants
    peak = given["peak_flops"] * LARGEST_CLUSTER * 86400.0
    flops = float(derive("causal_model_flops_per_token", given)) * 1e12
    assert f"are below the {flops / peak:.3g} days of 131,072 GPUs at 100 % MFU" in none.why


def test_a_pod_is_let_in_slices() -> None:
    """Hosts of four chips in powers of two; from 4 x 4 x 4 on all sides are multiples of four."""
    common = common_of(point(hardware="tpu-v5p"))[2]
    assert slices_of(common) == (4, 64)
    assert largest_of(common) == 8960
    sizes = Sizes({}, 4, 8960, 64)
    assert sizes.between(1, 400) == [4, 8, 16, 32, 64, 128, 192, 256, 320, 384]
    # Nodes of a torus that are let whole, and switches, have none.
    for hardware in ("trainium2", "dgx-h100"):
        common = common_of(point(hardware=hardware))[2]
        assert slices_of(common) == (0, 0)
        assert largest_of(common) == LARGEST_CLUSTER


@pytest.mark.thorough
def test_a_pod_is_bought_in_the_fewest_chips_that_do() -> None:
    got = offer(point(hardware="tpu-v5p", global_batch_size=512), Wish(1e11, 10.0), "tpu-v5p")
    assert got.least is not None
    assert got.least.gpus < 256


@pytest.mark.thorough
def test_no_number_beyond_the_largest_pod_is_tried() -> None:
    asked = point(hardware="tpu-v5e", global_batch_size=512)
    none = offer(asked, Wish(tokens=1e12, days=15.0), "tpu-v5e")
    assert largest_of(common_of(asked)[2]) == 256
    assert none.tried
    assert max(trial.gpus for trial in none.tried) <= 256
    assert "of one number in each doubling up to 256 none makes it" in none.why


@pytest.mark.thorough
def test_a_start_that_no_plan_divides_is_no_end() -> None:
    """840 GPUs and twice as many have the factors 3, 5 and 7, which a batch of 2048 hasn't."""
    long = Wish(tokens=1e12, days=1.0)
    asked = point(global_batch_size=2048)
    given = common_of(asked)[2].constants
    node, least = _bound(given, long, "..")
    wish = Wish(long.tokens, least / (830.0 / long.days))
    sizes = Sizes(given, node, LARGEST_CLUSTER)
    assert next(sizes.rising(_bound(given, wish, "..")[1])) == 840
    assert sizes.filled(840) == 0.0
    assert best_run(asked.with_constants(world_size=840.0), wish.tokens).detail is None
    got = offer(asked, wish, "dgx-h100")
    assert got.least is not None
    assert got.least.days <= wish.days


@pytest.mark.thorough
def test_the_plan_command_has_the_same_numbers(cli: Runner) -> None:
    base = "--model llama3-8b --batch-size 64 --seq-len 4096 --price 2.5"
    rows = cli(f"buy {base} --tokens 100B --days 10 --json").records
    (least,) = (row for row in rows if row["verdict"] == "least")
    line = f"plan {base} --gpus {least['world_size']:g} --tokens 100B"
    (best, *_) = cli(f"{line} --json").records
    shared = [name for name in best if name in least and name != "plan"]
    assert set(
        (
            "step_time_s mfu tp pp dp run_days run_cost_usd spare_nodes goodput training_energy_j"
        ).split()
    ) <= set(shared)
    for name in shared:
        assert least[name] == best[name], name
    output = cli(line).out
    assert f"{least['run_days']:.4g} days" in output
    assert money(least["run_cost_usd"]) in output
    assert (
        least["run_days"]
        <= 10.0
        < max(row["run_days"] for row in rows if row["verdict"] == "too_slow")
    )


def test_of_each_doubling_the_number_is_tried_whose_stages_are_fullest() -> None:
    """80 layers are 3 and 7 stages badly, and none of nine times a power of two."""
    given = {"layers": 80.0, "heads": 64.0, "global_batch_size": 512.0, "sequence_length": 4096.0}
    sizes = Sizes(given, 8, LARGEST_CLUSTER)
    several = sizes.rungs(1030.0)
    assert [next(several) for _ in range(4)] == [1280, 2560, 5120, 10240]
    assert sizes.filled(5120) == 1.0
    assert sizes.filled(6144) == pytest.approx(80 / 81)
    assert sizes.filled(4608) == pytest.approx(80 / 81)
    assert sizes.filled(8 * 11) == pytest.approx(80 / 88)
    assert sizes.filled(8 * 83) == 0.0


@pytest.mark.thorough
def test_each_machine_has_its_own_price(cli: Runner) -> None:
    line = (
        "buy --model llama3-8b -b 64 -s 4096 --tokens 100B --days 10 "
        "--hardware dgx-h100,dgx-b200 --price dgx-h100=2,dgx-b200=4"
    )
    rows = cli(f"{line} --json").records
    assert {(row["hardware"], row["gpu_hour_price"]) for row in rows} == {
        ("dgx-h100", 2),
        ("dgx-b200", 4),
    }
    for row in rows:
        paid = row["provisioned_gpus"] * row["run_days"] * 24 * row["gpu_hour_price"]
        assert row["run_cost_usd"] == pytest.approx(paid, rel=1e-9)
        counted = row["training_energy_j"] / row["goodput"]
        assert row["run_energy_j"] == pytest.approx(counted, rel=1e-9)


@pytest.mark.thorough
def test_a_cost_that_is_not_known_says_why(cli: Runner) -> None:
    line = "buy --model llama3-8b -b 64 -s 4096 --tokens 1B --days 30 --hardware grand-teton-h100"
    output = "no price is known of grand-teton-h100; give --price grand-teton-h100=2.5"
    assert output in cli(line).out
    assert output not in cli(f"{line} --price 2").out


def test_a_budget_says_which_machines_it_doesn_t_bind() -> None:
    points = {name: point(hardware=name) for name in ("grand-teton-h100", "aws-p5")}
    (note,) = _unpriced(points, "1M")
    assert "no price is known of grand-teton-h100, which" in note
    assert list(_unpriced({"aws-p5": points["aws-p5"]}, "1M")) == []


@pytest.mark.parametrize(("line", "output"), examples(__file__, "what_cant_be_asked"))
def test_what_cant_be_asked(cli: Runner, line: str, output: str) -> None:
    ran = cli(f"buy --model llama3-8b {line}", fine=False)
    assert ran.code == 2
    assert output in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.thorough
def test_several_purchases_have_the_numbers_of_each_alone(cli: Runner) -> None:
    base = "buy --model llama3-8b -b 64 -s 4096 --price 2.5"
    records = cli(f"{base} --tokens 50B,100B --days 10,20 --json").records
    for tokens, days in itertools.product(("50B", "100B"), ("10", "20")):
        alone = cli(f"{base} --tokens {tokens} --days {days} --json").records
        number = 1e9 * float(tokens.removesuffix("B"))
        asked = {"training_tokens": number, "days_allowed": float(days)}
        here = [row for row in records if all(row[name] == asked[name] for name in asked)]
        assert [row["world_size"] for row in here] == [row["world_size"] for row in alone]
        for several, one in zip(here, alone, strict=True):
            same = (several.keys() & one.keys()) - {"plan"}
            assert {"run_cost_usd", "run_days", "verdict", "tp", "step_time_s"} <= same
            assert {name: several[name] for name in same} == {name: one[name] for name in same}


@pytest.mark.thorough
def test_the_figure_of_several_purchases_names_each(cli: Runner, tmp_path: Path) -> None:
    line = "buy --model llama3-8b -b 64 -s 4096 --price 2.5 --tokens 50B --days 10,20"
    cli(f"{line} --output b.nc --plot")
    drawn = (tmp_path / "b-days-over-dollars.svg").read_text(encoding="utf-8")
    assert "16 GPUs, in 10 d" in drawn
    assert "16 GPUs, in 20 d" in drawn
    assert "#" not in "".join(re.findall(r">([^<]*)</text>", drawn))


def test_bounds_that_are_known_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def may_take(numbers: Numbers, step: float) -> set[int]:
        asked.extend(step for _ in numbers.several)
        return {*numbers.several} if step >= 2.0 else set()

    monkeypatch.setattr("sweeps.search.buy.may_take", may_take)
    kept = Searched()
    steps = [1.0, 0.5, 1.5, 3.0, 4.0, 2.5, 2.6, 1.2]
    found = [kept.may_take(point(), [8], step) for step in steps]
    assert found == [{8} if step >= 2.0 else set() for step in steps]
    assert asked == [1.0, 1.5, 3.0, 2.5]


def test_several_purchases_refuse_what_is_of_one(cli: Runner) -> None:
    ran = cli("buy --model llama3-8b --tokens 1B,2B --days 9 --show reasons", fine=False)
    assert ran.code == 2
    assert "--show: is of one purchase, and there are several" in ran.err


COMPARED = "buy --model llama3-8b -s 4096 --hardware dgx-h100,dgx-b200 --tp 1 --pp 1 --cp 1"


@pytest.mark.thorough
def test_numbers_of_gpus_are_compared_on_the_axes_of_what_is_asked(
    cli: Runner, tmp_path: Path
) -> None:
    """In a file whose dimensions they are; what no plan can run on is a hole."""
    line = f"{COMPARED} -b 64,128 --tokens 50B,100B --days 4:8:+4 --price 3 --gpus 16,32,100"
    path = tmp_path / "buy.nc"
    assert cli(f"{line} --output {path}", fine=False).code == 0
    with xr.open_dataset(path) as dataset:
        assert dict(dataset.sizes) == {
            "hardware": 2,
            "training_tokens": 2,
            "days_allowed": 2,
            "global_batch_size": 2,
            "world_size": 3,
        }
        assert dataset.sizes.keys() == dataset.coords.keys() & dataset.sizes.keys()
        at = {"hardware": "dgx-h100", "training_tokens": 5e10}
        one = dataset.sel(at | {"global_batch_size": 64.0, "days_allowed": 8.0})
        assert np.isfinite(one.run_days).values.tolist() == [True, True, False]
        assert one.verdict[-1] == 0
        alone = f"{COMPARED} -b 64 --tokens 50B --days 8 --gpus 32 --price 3 --json"
        (record,) = (row for row in cli(alone).records if row["hardware"] == "dgx-h100")
        for name in ("run_days", "run_cost", "step_time", "tp", "mfu"):
            (said,) = (record[key] for key in (name, f"{name}_usd", f"{name}_s") if key in record)
            assert float(one.sel(world_size=32.0)[name]) == said
    one_machine = f"{COMPARED.replace(',dgx-b200', '')} -b 64 --tokens 50B --days 8 --gpus 32"
    rows = cli(f"{one_machine} --price 2,3 --json").records
    costs = {row["gpu_hour_price"]: row["run_cost_usd"] for row in rows}
    assert costs[3.0] == pytest.approx(1.5 * costs[2.0], rel=1e-12)


@pytest.mark.thorough
def test_the_fewest_gpus_are_the_same_when_asked_for_by_number(cli: Runner) -> None:
    base = "buy --model llama3-8b -b 64 -s 4096 --price 2.5 --tokens 100B --days 10"
    searched = {row["world_size"]: row for row in cli(f"{base} --json").records}
    asked = ",".join(f"{gpus:g}" for gpus in searched)
    compared = {row["world_size"]: row for row in cli(f"{base} --gpus {asked} --json").records}
    assert searched.keys() == compared.keys()
    for gpus, row in searched.items():
        same = (row.keys() & compared[gpus].keys()) - {"plan"}
        assert {"run_cost_usd", "verdict", "tp", "step_time_s"} <= same
        assert {name: row[name] for name in same} == {name: compared[gpus][name] for name in same}
    assert cli(f"{base} --gpus {asked}").out.split(",")[0] == cli(base).out.split(",")[0]


@pytest.mark.thorough
def test_compared_numbers_say_which_cant_make_it(cli: Runner) -> None:
    ran = cli(f"{COMPARED} -b 64 --tokens 50B --days 3 --gpus 8,16,100", fine=False)
    assert ran.code == 0
    assert ran.out.startswith("16 GPUs of dgx-b200: ")
    assert "misses by" in ran.out
    assert "No plan can run on 100 GPUs of dgx-h100" in ran.out
    result = cli(f"{COMPARED} -b 64 --tokens 50B --days 0.1 --gpus 8,16", fine=False)
    assert result.code == 1
    assert "none of these numbers makes it: the fastest, 16 GPUs, take" in result.out
    result = cli(f"{COMPARED} -b 64 --tokens 50B --days 9 --gpus 100", fine=False)
    assert result.code == 1
    assert "no plan can run on 100 GPUs" in result.out


def test_faults_of_all_that_is_asked_are_told_at_once(cli: Runner) -> None:
    ran = cli("buy --model llama3-9b,llama3-8b --tokens x,1T,1T --days 0,3 --gpus 8,x", fine=False)
    assert ran.code == 2
    assert [line.split(": ")[1] for line in ran.err.splitlines() if line] == [
        "--tokens x",
        "--tokens 1T",
        "--days 0",
        "--gpus x",
        "--model llama3-9b",
    ]


def test_ranges_are_read_as_their_values() -> None:
    faults: list[str] = []
    assert _amounts("--tokens", "1T:8T:x2, 500B", "tokens", faults) == {
        "1T": 1e12,
        "2T": 2e12,
        "4T": 4e12,
        "8T": 8e12,
        "500B": 5e11,
    }
    assert _amounts("--days", "30:90:+30", "days", faults) == {"30": 30.0, "60": 60.0, "90": 90.0}
    assert faults == []
    assert _amounts("--days", "9,,8", "days", faults) == {"9": 9.0, "8": 8.0}
    assert "has a comma without a value" in faults.pop()
    assert _amounts("--days", "30:90:30,4", "days", faults) == {"4": 4.0}
    assert "is not a range" in faults[0]


@pytest.mark.thorough
def test_fewer_gpus_that_are_as_cheap_are_found_between_those_of_two_doublings() -> None:
    """What is bought for more days, and meets fewer, isn't better than what is bought for these."""
    days = [10, 30, 45]
    bought = sweeps.buy(
        model="llama3-70b",
        hardware=["dgx-h100", "gb200-nvl72"],
        global_batch_size=512,
        seq_len=8192,
        tokens="1T",
        days=days,
    ).dataframe
    for machine, rows in bought.groupby("hardware"):
        answers = [rows[rows.verdict == verdict] for verdict in ("least", "best")]
        # Where the fewest are the best they are told as the fewest.
        best = {row.days_allowed: row for answer in answers for row in answer.itertuples()}
        for fewer, more in itertools.combinations(map(float, days), 2):
            if best[more].run_days <= fewer:
                assert best[fewer].world_size <= best[more].world_size, (machine, fewer, more)


@pytest.mark.thorough
def test_over_the_budget_the_cheapest_is_nearest(found: Offer) -> None:
    poor = replace(WISH, budget=1.0)
    best = found.best(poor)
    assert best is not None
    assert "over the budget" in best.fails(poor)
    in_time = [attempt.cost for attempt in found.tried if attempt.in_time(WISH)]
    assert best.cost <= min(in_time) * (1.0 + tie())


def test_numbers_between_are_tried_once_each_and_end() -> None:
    """At worst each smaller number is as cheap as any, and all between are tried."""
    nodes = Sizes({}, 8, 4096)
    sizes = SimpleNamespace(between=nodes.between, filled=lambda _: 1.0)
    asked: list[int] = []

    def run(gpus: int) -> Tried:
        return Tried(gpus, {"run_days": 1.0, "run_cost": 100.0 - 0.01 * gpus})  # type: ignore[arg-type]

    class Attempts(_Attempts):
        def search(self, several: Sequence[int]) -> list[Tried]:
            asked.extend(several)
            return [run(gpus) for gpus in several]

    made = [replace(run(64), detail={"run_days": 1.0, "run_cost": 200.0}), run(2048)]  # type: ignore[arg-type]
    tried = {attempt.gpus: attempt for attempt in made}
    attempts = Attempts(point(), WISH, "", sizes, 64.0, Searched(), lambda _: None, tried)  # type: ignore[arg-type]
    fewest = attempts.with_those_between(made)
    assert fewest.gpus == 64
    assert len(asked) == len({*asked})
    assert {*asked} <= {*nodes.between(64, 2048)}


@pytest.mark.thorough
def test_what_a_run_costs_is_that_of_its_gpus_and_spares(cli: Runner) -> None:
    """By hand, from the row alone; a node of 72 GPUs is no unit of what fails."""
    machines = "--hardware dgx-h100,gb200-nvl72 --price dgx-h100=2.5,gb200-nvl72=10.5"
    out = cli(f"buy --model llama3-8b --tokens 1T --days 30 -b 4M -s 8k {machines}").out
    for machine, price in (("dgx-h100", 2.5), ("gb200-nvl72", 10.5)):
        cells = next(line for line in out.splitlines() if line.startswith(f"  {machine} ")).split()
        gpus, days, million, spares = (float(cells[at]) for at in (1, 2, 5, 9))
        assert spares % 8.0 == 0.0
        assert 1e6 * million == pytest.approx((gpus + spares) * days * 24.0 * price, rel=0.01)


@pytest.mark.thorough
def test_what_owning_is_assumed_to_cost_is_told(cli: Runner) -> None:
    line = "buy --model llama3-8b --tokens 100B --days 60 --hardware dgx-h100 --capital-cost 40000"
    told = " ".join(cli(line).out.split())
    assert "--depreciation-time 1461 days; --electricity-price 0.08 USD/kWh; --pue 1" in told
    assert "--network-cost-fraction 0 (the capital cost holds the network)" in told
    assert "--pue" not in cli(f"{line} --pue 1.3").out
    assert "--pue" not in cli(line.replace("--capital-cost 40000", "--price 2")).out
