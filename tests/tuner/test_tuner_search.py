"""Bisection over multiprocessors beside trying them all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.spec.catalog import load_model
from sweeps.tuner.predict import predict
from sweeps.tuner.rates import read_rates
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.tuner import TPOverlapTuner, best_count, bracket
from sweeps.tuner.userbuffers import LayerOverlap


def brute(time: Callable[[int], float], least: int, most: int) -> int:
    return min(range(least, most + 1), key=lambda k: (time(k), k))


@given(
    st.integers(1, 32),
    st.integers(0, 31),
    st.lists(st.integers(1, 5), min_size=64, max_size=64),
    st.lists(st.integers(0, 3), min_size=64, max_size=64),
    st.integers(0, 70),
)
def test_falling_then_rising(
    least: int, more: int, falls: list[int], rises: list[int], knee: int
) -> None:
    most = min(least + more, 32)

    def time(count: int) -> float:
        left = sum(falls[count:knee]) if count < knee else 0
        return 100.0 + left + (sum(rises[knee:count]) if count > knee else 0)

    asked: list[int] = []

    def counted(count: int) -> float:
        asked.append(count)
        return time(count)

    assert best_count(counted, least, most) == brute(time, least, most)
    assert len(asked) == len(set(asked)) <= 2 * math.ceil(math.log2(most - least + 1) or 1) + 1


@given(st.integers(1, 40), st.floats(0.0, 30.0), st.floats(0.1, 400.0))
def test_a_link_that_is_full_before_the_knee(full: int, rise: float, amount: float) -> None:
    """A flat piece that the communication bounds: the smallest number that fills the link."""

    def time(count: int) -> float:
        return max(amount / min(count, full), 1.0 + rise * count / 132)

    assert time(best_count(time, 1, 32)) == min(map(time, range(1, 33)))
    assert best_count(time, 1, 32) == brute(time, 1, 32)


@pytest.mark.parametrize("margin", [False, True])
@pytest.mark.parametrize("model", ["qwen3-0.6b", "llama3-8b", "llama3-70b", "llama3-405b"])
def test_in_the_model_it_is_the_best_of_all(model: str, margin: bool) -> None:
    shapes, rates = load_model(model).shapes, read_rates("dgx-h100")
    for size in (2, 4, 8):
        for layer in ("qkv_dgrad", "qkv_wgrad", "fc1_dgrad", "fc1_wgrad"):
            operator, phase = layer.split("_")
            cases = [LayerOverlap(size, operator, phase, "bulk", num_sm=k) for k in range(1, 33)]
            actual = predict(shapes, 8192, cases, rates, sm_margin=margin).backward.e2e[0]
            times = dict(zip(range(1, 33), actual.tolist(), strict=True))
            best = best_count(times.__getitem__, 1, 32)
            assert times[best] <= min(actual) * (1 + 1e-9), (model, size, layer)


def test_noise_doesn_t_lose_what_was_seen() -> None:
    noisy = {1: 10.0, 2: 5.0, 3: 9.0, 4: 6.0, 5: 7.0, 6: 7.5, 7: 4.0, 8: 8.0}
    asked: list[int] = []

    def time(count: int) -> float:
        asked.append(count)
        return noisy[count]

    best = best_count(time, 1, 8)
    assert noisy[best] == min(noisy[count] for count in asked)


def test_between_the_neighbours_of_the_best() -> None:
    assert bracket([(1, 9.0), (2, 5.0), (4, 3.0), (8, 4.0), (16, 7.0)], 1, 16) == (2, 8)
    assert bracket([(1, 1.0), (2, 5.0)], 1, 16) == (1, 2)
    assert bracket([(8, 5.0), (16, 4.0)], 1, 20) == (8, 20)
    assert bracket([(1, 4.0), (2, 4.0), (4, 4.0)], 1, 4) == (1, 2)
    assert bracket([(1, float("nan")), (2, float("nan"))], 1, 4) == (1, 4)
    assert bracket([], 3, 9) == (3, 9)


@pytest.mark.thorough_cases("qwen3")
@pytest.mark.parametrize("model", ["qwen3-0.6b", "llama3-70b"])
def test_a_tuning_by_bisection_is_a_tuning_of_all(model: str) -> None:
    actual = {}
    for search in ("bisection", "all"):
        config = TPOverlapTunerConfig(model, search=search, max_num_sm=32)
        actual[search] = TPOverlapTuner(config).run(write=False)
    for choice, other_choice in zip(
        actual["bisection"].choices, actual["all"].choices, strict=True
    ):
        for operator in ("qkv", "fc1"):
            assert choice.e2e(operator) == pytest.approx(other_choice.e2e(operator), rel=1e-9)
    assert len(actual["bisection"].results) < len(actual["all"].results) / 1.5


def test_the_grid_alone_adds_nothing() -> None:
    config = TPOverlapTunerConfig("llama3-8b", search="grid")
    report = TPOverlapTuner(config).run(write=False)
    assert len(report.results) == 204 + 12
    assert not any(result.refined for result in report.results)


def test_a_limit_that_binds_is_told() -> None:
    notes = {}
    for most in (4, 32):
        config = TPOverlapTunerConfig(
            "llama3-70b", max_tp_size=4, operators=("qkv",), max_num_sm=most
        )
        notes[most] = TPOverlapTuner(config).run(write=False).notes
    assert notes[32] == []
    (answer,) = (note for note in notes[4] if note.startswith("tp4_qkv_wgrad"))
    assert "--max-num-sm 4 binds" in answer
    assert "µs more" in answer


@pytest.mark.parametrize("pipeline", [None, False])
def test_a_limit_that_binds_a_pipeline_is_told(pipeline: bool | None) -> None:
    """Also where a ring was chosen, for no pipeline may take as much as it needs."""
    config = TPOverlapTunerConfig("llama3-70b", operators=("proj",), pipeline=pipeline)
    report = TPOverlapTuner(config).run(write=False)
    (choice,) = (one for one in report.choices if one.tp_size == 8)
    assert choice.layers["proj_fprop"].case.method == "ring_exchange"
    answer = [
        note for note in report.notes if note.startswith("tp8_proj_fprop: --max-num-sm 16 binds")
    ]
    assert len(answer) == (pipeline is None)
    match = re.search(r"with (\d+) multiprocessors would save ([\d.]+) µs more", "".join(answer))
    if match is None:
        return
    wider = replace(config, min_num_sm=int(match[1]), max_num_sm=int(match[1]))
    (other_choice,) = (
        one for one in TPOverlapTuner(wider).run(write=False).choices if one.tp_size == 8
    )
    saved = choice.layers["proj_fprop"].e2e - other_choice.layers["proj_fprop"].e2e
    assert 1e6 * saved == pytest.approx(float(match[2]), abs=0.06)


def test_what_the_other_method_would_save_is_told() -> None:
    """A ring or a pipeline isn't told by time alone: both times stand there."""
    config = TPOverlapTunerConfig("llama3-70b", max_token_len=2048)
    report = TPOverlapTuner(config).run(write=False)
    times = {result.case.config_id: result.e2e for result in report.results if result.done}
    candidates = [candidate for candidate in report.candidates if candidate.other is not None]
    assert {finding.case.layer for finding in candidates} == {"proj_fprop", "fc2_fprop"}
    for finding in candidates:
        record = finding.record()
        assert {finding.case.method, finding.other and finding.other.method} == {
            "ring_exchange",
            "pipeline",
        }
        # What the one gains over the other is what their cases' times differ by.
        gained = times[record["other_config_id"]] - times[finding.case.config_id]
        assert finding.saved - finding.other_saved == pytest.approx(gained)
        assert finding.saved >= finding.other_saved - 1e-3 * times[finding.case.config_id]
        assert f"would save {1e6 * finding.other_saved:,.1f} µs" in str(finding)
