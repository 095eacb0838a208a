"""Numbers, names and ticks as people read them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from sweeps.plots.axis import axis_of, linear_ticks, log_ticks, value_ticks
from sweeps.plots.data import View
from sweeps.plots.frame import Legend
from sweeps.plots.names import cell_names, worded
from sweeps.plots.style import (
    launched,
    long_name,
    number,
    parse,
    scale_of,
    sentence,
    shortened,
    symbol,
)
from tests.tables import examples


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [
        (1024.0, "byte", "1 KiB"),
        (1023 * 1024.0, "byte", "1023 KiB"),
        (1536.0, "byte", "1.5 KiB"),
        (8 * 2.0**30, "byte", "8 GiB"),
        *examples(__file__, "values_with_units"),
    ],
)
def test_values_with_units(value: float, units: str, text: str) -> None:
    assert scale_of(units).text(value) == text


def test_given_bytes_keep_the_form_in_which_they_are_round() -> None:
    assert scale_of("byte").given(140e9) == "140 GB"
    assert scale_of("byte").given(2.0**20) == "1 MiB"
    assert scale_of("byte").given(1e6 + 1) == "976.6 KiB"


@pytest.mark.parametrize(
    ("value", "text"), [(1024.0, "1024"), (0.25, "0.25"), (1e9, "1e9"), (1234.5, "1234")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value, 3) == text


@pytest.mark.parametrize(
    ("text", "value"), [("64MiB", 64 * 2.0**20), *examples(__file__, "texts_with_units_are_read")]
)
def test_texts_with_units_are_read(text: str, value: float | None) -> None:
    assert parse(text) == (pytest.approx(value, rel=1e-12) if value is not None else None)


@given(st.floats(1e-6, 1e14), st.sampled_from(["byte", "byte s-1", "J", "W", "1"]))
def test_what_is_written_can_be_read(value: float, units: str) -> None:
    assert parse(scale_of(units).text(value, 12)) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(("latex", "text"), examples(__file__, "symbols"))
def test_symbols_become_plain_text_or_nothing(latex: str, text: str) -> None:
    assert symbol(latex) == text


def test_a_symbol_is_not_read_as_a_unit() -> None:
    """Nobody takes a sequence length for seconds."""
    values = np.array([1024.0, 65536.0])
    tokens = {"long_name": "sequence length in tokens", "units": "1", "symbol": "s"}
    ranks = {"long_name": "ranks", "units": "1", "symbol": "N"}
    seconds = {"long_name": "latency", "units": "s", "symbol": "h"}
    labels = [axis_of("x", attrs, values, "log", 6.0).label for attrs in (tokens, ranks, seconds)]
    assert labels[:2] == ["Sequence length in tokens", "Ranks,\u00a0N"]
    assert labels[2].startswith("Latency,\u00a0h (")


def test_names() -> None:
    attrs = {"long_name": "message size (nccl-tests convention)"}
    assert long_name("message_bytes", attrs) == attrs["long_name"]
    assert long_name("message_bytes", attrs, short=True) == "message size"
    assert long_name("message_bytes", {}) == "message bytes"
    assert sentence("time of it") == "Time of it"
    assert sentence("all_reduce time") == "all_reduce time"
    assert shortened("a name of many words", 12) == "a name of…"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("dp_mechanism", "megatron_buckets", "data parallelism overlapped by megatron buckets"),
        ("tp_mechanism", "decomposed", "tensor parallelism overlapped by products in chunks"),
        ("context_parallel", "ring", "cp by ring"),
        ("recompute", "none", "no recompute"),
    ],
)
def test_choices_of_a_plan_are_said_in_words(name: str, value: str, text: str) -> None:
    assert worded(name, value, "1") == text


def test_ticks_of_bytes_are_powers_of_two() -> None:
    ticks = log_ticks(1000.0, 9e9, "byte", 6)
    assert ticks.labels == ("1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB")
    assert not ticks.units  # Each tick has its own
    narrow = log_ticks(1000.0, 9e9, "byte", 3)
    assert narrow.labels == ("1 KiB", "1 MiB", "1 GiB")


def test_ticks_of_times_are_engineering() -> None:
    assert log_ticks(8e-6, 0.5, "s", 8).labels == ("10 µs", "100 µs", "1 ms", "10 ms", "100 ms")
    assert log_ticks(1e-3, 9e-3, "s", 8).labels == ("1", "2", "5")
    assert log_ticks(1e-3, 1.3e-3, "s", 8).labels[:2] == ("1", "1.05")
    assert log_ticks(1e-3, 1.3e-3, "s", 8).units == "ms"  # Once, where it is the same


def test_ticks_of_counts_are_powers_of_two() -> None:
    ticks = log_ticks(2.0, 1024.0, "1", 5, binary=True)
    assert ticks.labels == ("4", "16", "64", "256", "1024")
    assert value_ticks([2.0, 3.0, 6.0], "1").labels == ("2", "3", "6")


def test_linear_ticks_are_round_in_one_unit() -> None:
    ticks = linear_ticks(0.0, 80 * 2.0**30, "byte", 6)
    assert ticks.labels == ("0", "20", "40", "60", "80")
    assert ticks.units == "GiB"


@given(st.floats(1e-12, 1e12), st.floats(1.01, 1e12), st.sampled_from(["byte", "s", "J", "1"]))
def test_every_logarithmic_axis_has_ticks_inside(low: float, ratio: float, units: str) -> None:
    high = low * ratio
    ticks = log_ticks(low, high, units, 8)
    inside = [low * (1 - 1e-6) <= position <= high * (1 + 1e-6) for position in ticks.positions]
    assert 2 <= len(ticks.positions) <= 16
    assert all(inside)
    assert len(ticks.labels) == len(ticks.positions)
    assert np.all(np.diff(ticks.positions) > 0)


def test_rates_have_no_prefix_at_every_tick() -> None:
    ticks = log_ticks(60.0, 3e4, "s-1", 8)
    assert "20,000" in ticks.labels
    assert "500" in ticks.labels


def test_an_axis_uses_its_range() -> None:
    def ends(values: list[float], origin: float) -> tuple[float, float]:
        made = axis_of("x", {}, np.array(values), "linear", 4.0, origin=origin)
        return made.low, made.high

    assert ends([1.0, 1.5, 2.0], 1.0)[0] == 0.0  # bars are compared by their lengths
    assert 0.9 < ends([1.0, 1.5, 2.0], 0.1)[0] < 1.0
    assert ends([0.05, 2.0], 0.1)[0] == 0.0
    assert ends([1.2, 1.9], 0.5)[0] > 1.1
    assert ends([3.0, 3.0], 0.1)[0] == 0.0


def test_only_round_values_have_ticks_of_their_own() -> None:
    def labels(values: list[float]) -> tuple[str, ...]:
        return axis_of(
            "x", {"units": "s"}, np.array(values), "log", 6.0, discrete=True
        ).ticks.labels

    assert labels([1e-3, 3e-3, 1.6e-2, 5e-2]) == ("1", "3", "16", "50")
    assert labels([1e-3, 1.631e-3, 7.071e-3, 1.88e-2, 5e-2]) == ("1", "2", "5", "10", "20", "50")


def test_plans_are_named_by_what_they_do() -> None:
    columns = {
        "tp": [1.0, 8.0],
        "pp": [4.0, 1.0],
        "cp": [1.0, 2.0],
        "zero_stage": [1.0, 0.0],
        "sequence_parallel": [0.0, 1.0],
    }
    made = xr.Dataset(coords={name: ("plan", values) for name, values in columns.items()})
    names = cell_names(made, ["plan"], [np.arange(2)])
    assert names == ["tp 1 · pp 4 · ZeRO 1", "tp 8 · pp 1 · cp 2 · sequence parallel"]


def test_a_plan_without_a_pipeline_has_no_schedule() -> None:
    plans = {"pp": [4.0, 1.0], "tp": [1.0, 4.0], "schedule": ["interleaved", "one_f_one_b"]}
    made = xr.Dataset(coords={name: ("plan", values) for name, values in plans.items()})
    assert cell_names(made, ["plan"], [np.arange(2)]) == [
        "tp 1 · pp 4 · interleaved",
        "tp 4 · pp 1",
    ]
    # Of one number of stages for all.
    alone = made.drop_vars("pp").assign_coords(pp=1.0)
    assert cell_names(alone, ["plan"], [np.arange(2)]) == ["tp 1", "tp 4"]


def test_held_values_are_said_as_people_do() -> None:
    coords = {
        "nics_per_node": 1.0,
        "oversubscription": 2.0,
        "tp": 8.0,
        "sequence_parallel": 1.0,
        "ranks": 64.0,
        "gpu_hour_price": ((), 2.5, {"units": "USD h-1"}),
    }
    view = View(xr.Dataset(coords=coords), ())
    assert [view.phrase(name) for name in coords] == [
        "1 NIC per node",
        "2:1 oversubscription",
        "tp 8",
        "sequence parallel",
        "64 ranks",
        "2.5 USD an hour",
    ]


def test_plans_are_named_as_they_are_launched() -> None:
    name = "tp 8 · pp 4 · cp 2 · dp 16 · virtual pipeline size 5 · ZeRO 1 · block recompute"
    assert launched(name) == "TP 8, PP 4, CP 2, DP 16, VPP 5, ZeRO 1, block recompute"
    assert launched("400 Gbit/s · 8 NICs per node") == "400 Gbit/s · 8 NICs per node"


def test_an_axis_of_percentages_has_ticks_below_a_hundred() -> None:
    ticks = log_ticks(60.0, 350.0, "%", 11)
    assert ticks.labels == ("60", "70", "80", "90", "100", "120", "150", "200", "250", "300")
    assert log_ticks(60.0, 350.0, "%", 6).labels == ("70", "100", "150", "200", "300")


def test_lines_of_a_plan_end_between_its_parts() -> None:
    name = "tp 8 · pp 4 · dp 32 · virtual pipeline size 5 · ZeRO 1 · sequence parallel"
    (text,) = Legend([(name, {})]).texts()
    assert text.split("\n") == ["TP 8, PP 4, DP 32, VPP 5,", "ZeRO 1, sequence parallel"]
