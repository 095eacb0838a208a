"""What failures cost a run: limits, an event simulation, published fleets."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from overhead import special
from overhead.completion import implied
from overhead.evaluation import Evaluation
from overhead.special import negative_binomial_quantile, negative_binomial_tail
from tests.tables import keyed

# Facts of public traces and papers, each with its source.
ROWS = Path(__file__).parents[1] / "data" / "failures.csv"
DAY = 86400.0
RUN: Mapping[str, float] = {
    **keyed(
        "world_size=16384.0 gpus_per_failing_node=8.0 failure_rate=3.7887e-3 parameters=405e9 "
        "weight_bytes=2.0 optimizer_bytes=12.0 step_time=10.0 storage_bandwidth=1.2e9 "
        "checkpoint_start_time=5.0 detection_time=300.0 job_restart_time=300.0 "
        "down_dispersion=0.53 spare_coverage=0.99"
    ),
    "day": DAY,
    "total_storage_bandwidth": np.inf,
    "mean_time_to_repair": 5.5 * DAY,
    "training_time": 54 * DAY,
}
SHARES = tuple(
    "goodput checkpoint_overhead rework_fraction restart_fraction replacement_wait_fraction".split()
)


def run(**changed: Any) -> Evaluation:
    given = {**RUN, **changed}
    return Evaluation(given, implied(given))


def measured(**wanted: str) -> list[dict[str, str]]:
    with ROWS.open(encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if all(row[name] == value for name, value in wanted.items())
        ]
    assert rows
    return rows


def simulated(
    interval: float, stall: float, fault: float, outage: float, drain: float = 0.0, *, seed: int
) -> float:
    """Return the goodput of a long run, event by event: what is in storage counts."""
    random = np.random.default_rng(seed)
    clock, result, periods = 0.0, 0, 4000
    while result < periods:
        left, done = random.exponential(fault), interval + stall
        while done + drain <= left:
            done, result = done + interval + stall, result + 1
        clock += left
        while (again := random.exponential(fault)) < outage:
            clock += again
        clock += outage
    return result * interval / clock


# How often, and how long.


def test_interruptions_are_those_of_all_servers() -> None:
    values = run()
    assert float(values["run_nodes"]) == 2048
    assert float(values["mean_time_between_failures"]) == pytest.approx(DAY / (3.7887e-3 * 2048))
    (row,) = measured(row_id="F0134")
    assert float(values["mean_time_between_failures"]) / 3600 == pytest.approx(
        float(row["value"]), rel=1e-3
    )


def test_linear_in_servers_is_an_upper_bound_of_measured_interruptions() -> None:
    rate = (
        4.48424e-3  # of the same trace, a server and day: all faults, also those that come together
    )
    for row in measured(quantity="job_interruptions", statistic="mean per day"):
        values = run(world_size=8.0 * float(row["job_nodes"]), failure_rate=rate)
        per_day = DAY / float(values["mean_time_between_failures"])
        assert 0.95 * float(row["value"]) <= per_day
        assert per_day <= float(row["value"]) / 0.7


def test_a_checkpoint_is_bytes_over_storage() -> None:
    values = run()
    assert float(values["checkpoint_bytes"]) == 405e9 * 14
    flow = 405e9 * 14 / (2048 * 1.2e9)
    assert float(values["checkpoint_stall_time"]) == pytest.approx(5 + flow)
    assert float(values["recovery_time"]) == pytest.approx(600 + flow)
    slow = run(total_storage_bandwidth=100e9)
    assert float(slow["checkpoint_write_time"]) == pytest.approx(5 + 405e9 * 14 / 100e9)
    (size,), (time,) = (measured(row_id=name) for name in ("F0148", "F0149"))
    bloom = run(checkpoint_bytes=float(size["value"]), world_size=384.0, checkpoint_start_time=0.0)
    assert float(bloom["checkpoint_write_time"]) == pytest.approx(float(time["value"]), rel=0.01)


def test_a_staged_checkpoint_stops_for_its_way_to_the_host_alone() -> None:
    values = run(staging_bandwidth=20e9, total_storage_bandwidth=10e9)
    assert float(values["checkpoint_stall_time"]) == pytest.approx(405e9 * 14 / 16384 / 20e9)
    # The next one starts when the last one is written.
    assert float(values["checkpoint_interval"]) == float(values["checkpoint_write_time"])
    whole = run(total_storage_bandwidth=10e9)
    assert float(values["goodput"]) > float(whole["goodput"])


# Daly's form and its limits.


@pytest.mark.parametrize(
    ("interval", "stall", "fault", "outage", "drain"),
    [
        (400.0, 7.0, 11135.0, 600.0, 0.0),
        (3000.0, 300.0, 5000.0, 1500.0, 0.0),
        (50.0, 5.0, 1e6, 10.0, 0.0),
        (400.0, 7.0, 5000.0, 600.0, 390.0),
        (3000.0, 30.0, 5000.0, 1500.0, 2500.0),
    ],
)
def test_the_goodput_is_that_of_a_simulation(
    interval: float, stall: float, fault: float, outage: float, drain: float
) -> None:
    values = run(
        checkpoint_interval=interval,
        checkpoint_stall_time=stall,
        checkpoint_drain_time=drain,
        mean_time_between_failures=fault,
        recovery_time=outage,
        replacement_wait_fraction=0.0,
    )
    found = [simulated(interval, stall, fault, outage, drain, seed=seed) for seed in range(6)]
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    assert float(values["goodput"]) == pytest.approx(np.mean(found), abs=4 * error + 1e-6)


def test_shares_are_all_of_the_time() -> None:
    for given in (
        {},
        {"world_size": 8.0},
        {"failure_rate": 10.0},
        {"spare_nodes": 0.0},
        {"checkpoint_interval": 1e5},
        {"staging_bandwidth": 1e10},
        {"staging_bandwidth": 1e10, "failure_rate": 1.0},
    ):
        values = run(**given)
        assert sum(float(values[name]) for name in SHARES) == pytest.approx(1.0, abs=1e-12)
        assert all(0.0 <= float(values[name]) <= 1.0 for name in SHARES), given


def test_rare_interruptions_lose_what_the_first_order_says() -> None:
    for fault in (1e6, 1e8):
        values = run(mean_time_between_failures=fault, replacement_wait_fraction=0.0)
        stall, pause = (float(values[f"checkpoint_{name}"]) for name in ("stall_time", "interval"))
        first = stall / pause + (pause / 2 + float(values["recovery_time"])) / fault
        assert 1.0 - float(values["goodput"]) == pytest.approx(
            first, rel=3 * math.sqrt(stall / fault)
        )
    nothing = run(mean_time_between_failures=1e16, replacement_wait_fraction=0.0)
    assert float(nothing["goodput"]) == pytest.approx(1.0, abs=1e-6)


def test_the_best_interval_is_youngs_where_checkpoints_are_short() -> None:
    for fault in (1e7, 1e9):
        values = run(mean_time_between_failures=fault)
        young = math.sqrt(2 * float(values["checkpoint_stall_time"]) * fault)
        assert float(values["checkpoint_interval"]) == pytest.approx(young, rel=2e-3)


@pytest.mark.parametrize("stall", [1.0, 30.0, 600.0, 4000.0])
def test_no_other_interval_does_better(stall: float) -> None:
    values = run(checkpoint_stall_time=stall)
    best = float(values["checkpoint_interval"])
    evaluation = run(
        checkpoint_stall_time=stall, checkpoint_interval=np.geomspace(best / 30, best * 30, 4001)
    )
    assert float(values["goodput"]) >= 0.9995 * float(np.max(evaluation["goodput"]))


def test_goodput_falls_with_faults_and_rises_with_storage() -> None:
    faults = run(failure_rate=np.geomspace(1e-5, 1.0, 50), replacement_wait_fraction=0.0)["goodput"]
    assert np.all(np.diff(faults) < 0.0)
    storage = run(storage_bandwidth=np.geomspace(1e7, 1e12, 50))["goodput"]
    assert np.all(np.diff(storage) > 0.0)


def test_a_checkpoint_every_step_at_most() -> None:
    values = run(checkpoint_stall_time=0.0)
    assert float(values["checkpoint_interval"]) == 10.0
    assert float(values["checkpoint_overhead"]) == 0.0


def test_a_run_takes_its_training_by_the_goodput() -> None:
    values = run(training_energy=1e12)
    assert float(values["run_energy"]) == pytest.approx(1e12 / float(values["goodput"]))
    assert float(values["run_time"]) == pytest.approx(54 * DAY / float(values["goodput"]))
    assert float(values["run_days"]) == pytest.approx(54 / float(values["goodput"]))


def test_llama_3_had_the_goodput_of_at_least_nine_tenths() -> None:
    (row,) = measured(row_id="F0136")
    assert float(row["value"]) <= float(run()["goodput"]) <= 0.93


def test_bloom_lost_more_than_interruptions_explain() -> None:
    """Of its goodput evaluations are a part, and hours until somebody came."""
    (row,), (rate,) = measured(row_id="F0141"), measured(row_id="F0143")
    per_day = float(rate["value"]) / 1000
    values = run(
        world_size=384.0,
        parameters=176e9,
        step_time=105.22,
        replacement_wait_fraction=0.0,
        failure_rate=per_day,
        checkpoint_interval=105.22 * 100,
    )
    assert float(row["value"]) < float(values["goodput"]) < 1.0 - 0.01


# Servers away.


def exact(count: int, mean: float, dispersion: float) -> float:
    """Return the probability of a count, by gamma functions."""
    if dispersion == 0.0:
        return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    k = 1.0 / dispersion
    log = math.lgamma(k + count) - math.lgamma(k) - math.lgamma(count + 1)
    return math.exp(
        log
        - k * math.log1p(dispersion * mean)
        + count * math.log(dispersion * mean / (1 + dispersion * mean))
    )


@pytest.mark.parametrize("dispersion", [0.0, 0.09, 0.53, 3.0])
@pytest.mark.parametrize("mean", [0.01, 1.0, 11.6, 300.0])
def test_the_law_is_a_negative_binomial(mean: float, dispersion: float) -> None:
    for count in (0, 1, 5, int(mean), int(3 * mean)):
        above = 1.0 - sum(exact(index, mean, dispersion) for index in range(count + 1))
        array = negative_binomial_tail(np.array(count), np.array(mean), np.array(dispersion))
        assert float(array) == pytest.approx(above, abs=1e-10)
    for share in (0.5, 0.99, 0.99999):
        count = int(
            negative_binomial_quantile(np.array(share), np.array(mean), np.array(dispersion))
        )
        assert sum(exact(index, mean, dispersion) for index in range(count + 1)) >= share - 1e-10
        assert sum(exact(index, mean, dispersion) for index in range(count)) < share + 1e-10


def exact_tail(count: int, mean: Fraction, dispersion: Fraction) -> float:
    """Return the probability of more than a count, in whole fractions: (1 + d m)^(1/d) is one."""
    power = 1 / dispersion
    assert power.denominator == 1
    each = total = (1 + dispersion * mean) ** -int(power)
    for below in range(count):
        each *= mean / (1 + dispersion * mean) * (1 + dispersion * below) / (below + 1)
        total += each
    return float(1 - total)


@hypothesis.given(
    count=st.integers(0, 250),
    mean=st.fractions(Fraction(1, 1000), 60, max_denominator=1000),
    power=st.integers(1, 30),
)
def test_a_tail_has_all_its_digits_however_small(count: int, mean: Fraction, power: int) -> None:
    asked = np.array(count), np.array(float(mean)), np.array(1.0 / power)
    wanted = exact_tail(count, mean, Fraction(1, power))
    array = float(negative_binomial_tail(*asked))
    assert array == pytest.approx(wanted, rel=1e-11, abs=1e-290)


def test_a_tail_of_1e_12_has_its_digits() -> None:
    """33 more than a mean of 4: as 1 less the sum of all below it had none of them right."""
    wanted = exact_tail(37, Fraction(4), Fraction(1, 8))
    assert 1e-13 < wanted < 1e-11
    array = negative_binomial_tail(np.array(37), np.array(4.0), np.array(0.125))
    assert float(array) == pytest.approx(wanted, rel=1e-13)


CASES = st.tuples(
    st.floats(1e-6, 1.0 - 1e-9),
    st.one_of(st.floats(1e-4, 3e3), st.floats(1e-4, 3e3), st.floats(1e6, 1e17)),
    st.one_of(st.just(0.0), st.floats(1e-4, 5.0)),
    st.floats(0.0, 3.0),
)


@pytest.mark.thorough
@hypothesis.settings(max_examples=max(hypothesis.settings.default.max_examples // 3, 1))
@hypothesis.example(cases=[(0.5, 0.06, 2.5, 0.0), (0.9, 254.0, 0.86, 1.3)])
@hypothesis.example(cases=[(0.99, 3e15, 1.0, 1.0), (0.5, 2e17, 0.0, 1.0)])
@hypothesis.given(cases=st.lists(CASES, min_size=2, max_size=3))
def test_a_number_is_the_same_alone_and_among_others(cases: list[tuple[float, ...]]) -> None:
    share, mean, dispersion, part = (np.array(column) for column in zip(*cases, strict=True))
    for function, first in (
        (negative_binomial_tail, np.floor(part * mean)),
        (negative_binomial_quantile, share),
    ):
        together = function(first, mean, dispersion)
        alone = [float(function(*case)) for case in zip(first, mean, dispersion, strict=True)]
        assert together.tolist() == alone


def test_the_law_holds_for_many_servers_and_on_arrays() -> None:
    mean = np.array([[0.0, 5.0, 2000.0]])
    share = np.array([[0.5], [0.99]])
    array = negative_binomial_quantile(share, mean, np.array(1e-12))
    assert array.shape == (2, 3)
    assert array[:, 0].tolist() == [0.0, 0.0]
    assert array[0, 2] == pytest.approx(2000, abs=1)
    assert array[1, 2] == pytest.approx(2000 + 2.326 * math.sqrt(2000), abs=3)
    tail = negative_binomial_tail(array, mean, np.array(1e-12))
    assert np.all(tail <= 1.0 - share)


def test_laws_of_many_counts_are_integrated_as_they_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = np.array([0.01, 0.5, 0.9, 0.99, 0.999999])[:, None]
    mean, dispersion = np.array([3.0, 50.0, 300.0, 2000.0, 500.0]), np.array([2, 0.53, 0.09, 0, 5])
    added = negative_binomial_quantile(shares, mean, dispersion)
    tails = negative_binomial_tail(added, mean, dispersion)
    monkeypatch.setattr(special, "MOST_COUNTS", 0.0)
    assert np.all(negative_binomial_quantile(shares, mean, dispersion) == added)
    assert negative_binomial_tail(added, mean, dispersion) == pytest.approx(tails, abs=1e-9)


def test_however_many_servers_are_away_spares_are_counted() -> None:
    share, many = np.array([0.5, 0.99]), np.array(1e12)
    # With a dispersion of 1 the law is geometric; without any it comes near a normal one.
    array = negative_binomial_quantile(share, many, np.array(1.0))
    assert array == pytest.approx(-many * np.log1p(-share), rel=1e-9)
    poisson = negative_binomial_quantile(share, many, np.array(0.0))
    assert poisson == pytest.approx(1e12 + np.array([0.0, 2.3263e6]), abs=300)
    above = negative_binomial_tail(poisson[1], many, np.array(0.0))
    assert float(above) == pytest.approx(0.01, rel=1e-4)
    # The gamma law, whose shape and scale these are, at its quantile of 0.99 (from tables).
    wide = negative_binomial_quantile(share, np.array(1e15), np.array(0.5))
    assert wide[1] == pytest.approx(0.5e15 * 6.638352, rel=1e-6)


def test_both_readings_of_the_dispersion_enclose_measured_fleets() -> None:
    """With the long burst of the trace, and without one; Poisson's law buys too few."""
    for row in measured(quantity="nodes_down", statistic="p99"):
        nodes, p99 = row["job_nodes"], float(row["value"])
        (mean,) = measured(quantity="nodes_down", statistic="mean", job_nodes=nodes)
        away = float(mean["value"])
        wide, quiet, poisson = (
            float(run(nodes_down=away, down_dispersion=number)["spare_nodes"])
            for number in (0.53, 0.09, 0.0)
        )
        assert poisson <= quiet <= p99 <= wide, nodes
        (excess,) = measured(quantity="nodes_down", statistic="variance over mean", job_nodes=nodes)
        assert 1.0 + 0.53 * away == pytest.approx(float(excess["value"]), rel=0.06)


def test_spares_suffice_for_their_share_of_the_time() -> None:
    values = run(world_size=np.array([8.0, 512.0, 16384.0]))
    assert np.all(values["replacement_wait_fraction"] <= 0.01)
    evaluation = run(spare_nodes=0.0)
    assert float(evaluation["replacement_wait_fraction"]) > 0.9
    down = float(run(world_size=3200.0, failure_rate=4.18e-3)["nodes_down"])
    assert down == pytest.approx(400 * 4.18e-3 * 5.5)
