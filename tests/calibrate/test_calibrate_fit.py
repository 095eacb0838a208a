"""Constants from rows of known ones; what rows don't tell; published rows, and held-out sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.calibrate.fit import Fit, bounded, fall_out, fit_links
from sweeps.calibrate.logs import LogTest, read_table_log
from sweeps.calibrate.model import CONSTANTS, Model, Stated, cases_of, rows_of, vector
from sweeps.errors import InputError
from sweeps.spec.catalog import load_hardware
from tests.calibrate.simulated import Group, timed

H100 = load_hardware("dgx-h100")
A100 = load_hardware("dgx-a100")
FEW = tuple(2.0**power for power in range(10, 33, 2))
# Stated uncertainties are one standard deviation; five, and what five digits round.
SPREADS, ROUNDED = 5.0, 2e-3
IN_NODE: list[Group] = [("all_reduce", 8, 1), ("all_gather", 8, 1), ("broadcast", 4, 1)]
# Without the several algorithms of an all_reduce, which cost time.
PLAIN: list[Group] = [("all_gather", 8, 1), ("broadcast", 4, 1)]
OUTSIDE: list[Group] = [("all_reduce", 32, 4), ("all_to_all", 16, 2)]


def agrees(fit: Fit, name: str, true: float) -> bool:
    return abs(fit.values[name] - true) <= SPREADS * fit.deviation[name] + ROUNDED * true


@settings(max_examples=5, deadline=None)
@given(
    bandwidth=st.floats(100e9, 500e9),
    card=st.floats(0.02, 0.1),
    latency=st.floats(0.5e-6, 4e-6),
    further=st.floats(1.5, 6.0),
    launch=st.floats(2e-6, 2e-5),
    outside=st.sampled_from([OUTSIDE, [("reduce_scatter", 64, 8)], [("p2p", 16, 2)]]),
    seed=st.integers(0, 2**16),
)
def test_known_constants_are_found(
    bandwidth: float,
    card: float,
    latency: float,
    further: float,
    launch: float,
    outside: list[Group],
    seed: int,
) -> None:
    true = {
        "intra_bandwidth": bandwidth, "inter_bandwidth": card * bandwidth, "intra_latency": latency,
        "inter_latency": further * latency, "launch": launch,
    }  # fmt: skip
    rows = timed([*IN_NODE, *outside], true, "dgx-a100", FEW, noise=0.01, seed=seed)
    fit = fit_links(rows, A100)
    assert {"intra_bandwidth", "intra_latency", "inter_bandwidth", "inter_latency"} <= set(
        fit.fitted
    )
    for name in fit.fitted:
        assert agrees(fit, name, true[name]), (name, fit.values[name], fit.deviation[name])
    assert np.median(np.abs(fit.after / rows.time - 1.0)) < 0.03


def test_without_noise_all_six_are_exact() -> None:
    true = {
        "intra_bandwidth": 371e9, "inter_bandwidth": 41e9, "intra_latency": 1.3e-6,
        "inter_latency": 4.1e-6, "in_network_latency": 9e-6, "launch": 5.2e-6,
    }  # fmt: skip
    groups = [*IN_NODE, ("all_to_all", 8, 1), ("all_reduce", 16, 2), ("p2p", 16, 2)]
    fit = fit_links(timed(groups, true), H100)
    assert set(fit.fitted) == set(CONSTANTS)
    for name, value in true.items():
        assert fit.values[name] == pytest.approx(value, rel=1e-4)


def test_rows_of_one_proportion_put_the_launch_into_latency() -> None:
    rows = timed([("all_gather", 8, 1)], {"launch": 7e-6, "intra_latency": 1e-6}, "dgx-a100")
    fit = fit_links(rows, A100)
    assert "launch" not in fit.fitted
    assert "one proportion" in fit.kept["launch"]
    assert fit.values["intra_latency"] == pytest.approx(2e-6, rel=1e-3)


def test_one_node_leaves_what_is_between_nodes() -> None:
    fit = fit_links(timed(PLAIN, {}), A100)
    assert fit.values["inter_bandwidth"] == fit.base["inter_bandwidth"]
    assert fit.kept["inter_bandwidth"] == fit.kept["inter_latency"] == "no log spans nodes"


@pytest.mark.parametrize("sizes", [(2.0**33,), (2.0**28, 2.0**30, 2.0**32)])
def test_long_messages_leave_latency(sizes: tuple[float, ...]) -> None:
    fit = fit_links(timed([("all_gather", 8, 1)], {"intra_bandwidth": 200e9}, sizes=sizes), H100)
    assert fit.fitted == ("intra_bandwidth",)
    assert fit.values["intra_bandwidth"] == pytest.approx(200e9, rel=1e-2)
    assert fit.values["intra_latency"] == fit.base["intra_latency"]
    assert np.isnan(fit.deviation["intra_bandwidth"]) == (len(sizes) == 1)


def test_short_messages_leave_bandwidth() -> None:
    sizes = tuple(2.0**power for power in range(3, 13))
    rows = timed([("all_gather", 8, 1)], {"intra_latency": 3e-6}, "dgx-a100", sizes)
    fit = fit_links(rows, A100)
    assert fit.fitted == ("intra_latency",)
    assert "long enough" in fit.kept["intra_bandwidth"]


def test_one_short_size_tells_nothing() -> None:
    with pytest.raises(InputError, match="intra_latency can't be fitted") as caught:
        fit_links(timed([("all_reduce", 8, 1)], {}, sizes=(1024.0,)), H100)
    assert any("intra_bandwidth" in line for line in caught.value.faults)


def test_slow_rows_fall_out_and_pull_nothing() -> None:
    rows = timed(PLAIN, {"intra_bandwidth": 200e9, "launch": 6e-6}, "dgx-a100", noise=0.01, seed=3)
    slow = [5, 20, 35]
    times = rows.time.copy()
    times[slow] *= 2.5
    struck = replace(rows, time=times)
    fit = fit_links(struck, A100)
    assert fit.values["intra_bandwidth"] == pytest.approx(200e9, rel=0.02)
    found = fall_out(struck, fit.after)
    assert {one.row for one in found[:3]} == set(slow)
    assert all(one.excess == pytest.approx(1.5, abs=0.25) for one in found[:3])


def test_clean_rows_have_few_outliers() -> None:
    rows = timed(PLAIN, {"launch": 6e-6}, "dgx-a100", noise=0.01, seed=4)
    assert len(fall_out(rows, fit_links(rows, A100).after)) <= 0.03 * len(rows)


@given(seed=st.integers(0, 2**16), count=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_bounded_least_squares_is_optimal(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    terms, target = random.uniform(0, 1, (20, count)), random.normal(0.5, 1, 20)
    weights, least = random.uniform(0.1, 2, 20), random.uniform(0, 0.3, count)
    found = bounded(terms, target, weights, least)
    assert (found >= least - 1e-9).all()
    # Karush, Kuhn and Tucker: no descent where it is free, none inwards where it is at its bound.
    slope = terms.T @ (weights * (target - terms @ found))
    free = found > least + 1e-9
    assert np.abs(slope[free]).max(initial=0.0) < 1e-6
    assert slope[~free].max(initial=0.0) < 1e-6


# The published collection: fitted on every second size, told on the others.


@cache
def collected() -> list[LogTest]:
    left_out = ("coreweave-sharp", "ml-engineering-nvls-off")
    return [one for one in read_table_log("nccl-collectives") if one.part not in left_out]


@pytest.mark.parametrize(
    ("name", "gain"),
    [("dgx-a100", 2.0), ("dgx-h100", 2.0), ("dgx-h200", 2.0), ("dgx-b200", 2.0)],
)
def test_held_out_sizes_of_published_rows_get_better(name: str, gain: float) -> None:
    machine = load_hardware(name)
    rows = rows_of(cases_of(collected(), machine, Stated()), ("out-of-place",))
    sizes = np.unique(rows.message_bytes)
    even = np.isin(rows.message_bytes, sizes[::2])
    fit = fit_links(rows.where(even), machine)
    others = rows.where(~even)
    model = Model(others, machine)
    errors = [
        float(np.median(np.abs(model.design(one) @ vector(one) / others.time - 1.0)))
        for one in (fit.base, fit.values)
    ]
    assert errors[1] * gain < errors[0]
