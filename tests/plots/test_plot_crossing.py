"""Crossovers, against the crossing points of straight lines known beforehand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from sweeps.plots.optima import Crossover, crossovers, refine
from sweeps.plots.placing import mark_crossovers
from sweeps.plots.style import scale_of


def hockney(size: np.ndarray, *costs: tuple[float, float]) -> np.ndarray:
    return np.stack([latency + size / bandwidth for latency, bandwidth in costs])


@pytest.mark.parametrize("points", [97, 24, 6])
def test_the_crossing_of_two_costs_is_exact_on_any_grid(points: int) -> None:
    # 20 us + M/(10 GB/s) = 5 us + M/(2 GB/s): M (1/2 - 1/10) ns = 15 us, so M = 37500 byte.
    size = np.geomspace(1024, 2.0**33, points)
    crossings = crossovers(size, hockney(size, (20e-6, 10e9), (5e-6, 2e9)))
    assert [(crossing.before, crossing.after) for crossing in crossings] == [(1, 0)]
    assert crossings[0].x == pytest.approx(37500, rel=1e-9)
    assert crossings[0].y == pytest.approx(20e-6 + 3.75e-6, rel=1e-9)


def test_a_curve_that_is_best_between_two_samples_only_is_found() -> None:
    # At 1 and at 9 the first and the last are best; between them, from 2 to 6, the middle one.
    size = np.array([1.0, 9.0])
    curves = np.stack([2 * size, size + 2, 0.5 * size + 5])
    crossings = crossovers(size, curves)
    assert [(crossing.before, crossing.after, crossing.x) for crossing in crossings] == [
        (0, 1, pytest.approx(2.0)),
        (1, 2, pytest.approx(6.0)),
    ]


def test_equal_curves_do_not_cross() -> None:
    size = np.geomspace(1.0, 1e9, 50)
    one = 1e-6 + size / 1e9
    assert crossovers(size, np.stack([one, one * (1 + 1e-14), one])) == []


def test_where_the_best_curve_ends_there_is_no_crossover() -> None:
    size = np.arange(1.0, 7.0)
    ending = np.array([1.0, 1.0, 1.0, np.nan, np.nan, np.nan])
    assert crossovers(size, np.stack([ending, np.full(6, 2.0)])) == []


def test_of_rates_the_largest_is_the_best() -> None:
    size = np.array([1.0, 3.0])
    crossings = crossovers(size, np.stack([3 - 0 * size, 2 * size - 1]), more=True)
    assert [
        (crossing.before, crossing.after, crossing.x, crossing.y) for crossing in crossings
    ] == [(0, 1, 2.0, 3.0)]


def test_whole_numbers_change_at_a_sample() -> None:
    ranks = np.array([2.0, 4.0, 8.0])
    crossings = crossovers(ranks, np.stack([ranks, np.full(3, 5.0)]), whole=True)
    assert [(crossing.x, crossing.y) for crossing in crossings] == [(8.0, 5.0)]


costs = st.tuples(st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))


@given(st.lists(costs, min_size=2, max_size=6))
def test_crossovers_lie_on_the_lower_envelope(several: list[tuple[float, float]]) -> None:
    size = np.geomspace(64.0, 2.0**34, 20)
    crossings = crossovers(size, hockney(size, *several))
    assert [crossing.x for crossing in crossings] == sorted(crossing.x for crossing in crossings)
    for crossing in crossings:
        here = hockney(np.array([crossing.x]), *several)[:, 0]
        assert crossing.y == pytest.approx(here.min(), rel=1e-6)
        assert here[crossing.before] == pytest.approx(here[crossing.after], rel=1e-6)
    for left, right in pairwise(crossings):
        assert left.after == right.before


def test_lines_on_a_coarse_grid_are_drawn_as_they_are_crossed() -> None:
    size = np.array([1e3, 1e6, 1e9])
    time = 1e-5 + size / 1e9
    time[1] = np.nan
    fine, drawn = refine(size, time)
    assert len(fine) > 40
    assert drawn[0] == time[0]
    assert drawn[-1] == time[-1]  # a sample beside a hole stays
    assert np.isnan(drawn[5])
    fine, drawn = refine(size[::2], time[::2])
    np.testing.assert_allclose(drawn, 1e-5 + fine / 1e9, rtol=1e-12)


def test_a_crossovers_label_covers_no_line() -> None:
    canvas = Canvas(figsize=(4.0, 3.0))
    axes = canvas.add_subplot()
    x = np.linspace(0.0, 1.0, 50)
    curves = [(x, 1.0 - x), (x, x), (x, np.full(50, 0.45))]
    for curve in curves:
        axes.plot(*curve)
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    found = [Crossover(0.45, 0.45, 1, 2), Crossover(0.55, 0.45, 2, 0)]
    mark_crossovers(axes, found, scale_of("1"), (3.0, 2.3), curves, above=False)
    canvas.draw_without_rendering()
    inside = axes.transAxes.inverted()
    for text in axes.texts:
        box = Text.get_window_extent(text).transformed(inside)
        for _, y in curves:
            within = (box.x0 < x) & (x < box.x1)
            assert not np.any(within & (box.y0 < y) & (y < box.y1))
