"""Means are those of an exact sum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.engine.reduce_base import MOST_LOAD, ExactSum, rounded
from tests.engine.reduce_cases import Case, cases, feed, in_any_blocks, results, singles, whole


def mean_of(row: list[float]) -> float:
    """The oracle: the standard library's exact sum."""
    cells = [value for value in row if not math.isnan(value)]
    if not cells:
        return math.nan
    infinite = {value for value in cells if math.isinf(value)}
    if infinite:
        return sum(infinite)
    try:
        return math.fsum(cells) / len(cells)
    except OverflowError:
        total = sum(map(Fraction, cells))
    try:
        return float(total) / len(cells)
    except OverflowError:
        return float(total / len(cells))


@pytest.mark.thorough
@given(case=cases(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_mean_in_any_blocks(case: Case, data: st.DataObject) -> None:
    actual = results(in_any_blocks(case, data, "mean"))
    rows = case.rows()
    wanted = np.array([mean_of(row) for row in rows.tolist()]).reshape(case.kept_shape)
    finite = np.abs(np.where(np.isfinite(wanted), wanted, 0.0)) < 1e307
    np.testing.assert_array_equal(actual["r"][finite], wanted[finite])
    # Near the end of float64 the sum may overflow, and the oracle divides before it rounds.
    np.testing.assert_allclose(actual["r"], wanted, rtol=4e-16, atol=0.0)
    counts = np.count_nonzero(~np.isnan(rows), axis=1).reshape(case.kept_shape)
    np.testing.assert_array_equal(actual["r_count"], counts)
    assert set(actual) == {"r", "r_count"}


@pytest.mark.thorough
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60))
@settings(max_examples=300, deadline=None)
def test_sums_of_any_floats_are_those_of_fsum(numbers: list[float]) -> None:
    values = np.array(numbers)
    actual = results(
        feed(Case(values, ("a",), ("a",)).reducer("mean"), values, [whole((len(numbers),))])
    )
    assert actual["r"] == pytest.approx(mean_of(numbers), rel=4e-16, abs=0.0)
    if sum(map(abs, numbers)) < 1e307:
        assert actual["r"] == math.fsum(numbers) / len(numbers)


HARD = [
    [8e307, 8e307, -8e307, -8e307, 5e-324],
    [1.0, 1e100, 1.0, -1e100],
    [2.0**53, 1.0, 2.0**-60],
    [2.0**53, 1.0, -(2.0**-60)],
    [2.0**53, 3.0, 0.0],
    [-(2.0**53), -1.0, -(2.0**-1074)],
    [2.0**-1022, -(2.0**-1074)],
    [5e-324] * 7,
    [0.1] * 10,
    [-0.1] * 10 + [1.0],
    [2.0**k for k in range(-1074, 1023)],
    [-(2.0**k) for k in range(-1074, 1023, 31)],
    [(-1.0) ** k * 2.0**k for k in range(-1074, 1023, 32)],
    [0.0, -0.0],
    [-0.0],
]


@pytest.mark.parametrize("numbers", HARD, ids=range(len(HARD)))
def test_hard_sums(numbers: list[float]) -> None:
    values = np.array(numbers)
    case = Case(values, ("a",), ("a",))
    for regions in ([whole(values.shape)], list(singles(values.shape))[::-1]):
        found = results(feed(case.reducer("mean"), values, regions))["r"]
        assert found == math.fsum(numbers) / len(numbers)
        assert not (found == 0.0 and np.signbit(found))


def test_a_mean_below_a_sum_that_overflows() -> None:
    values = np.array([1.7e308, 1.6e308, 1.7e308])
    actual = results(feed(Case(values, ("a",), ("a",)).reducer("mean"), values, [whole((3,))]))
    assert actual["r"] == pytest.approx(5.0 / 3.0 * 1e308, rel=1e-15)


def test_infinities() -> None:
    values = np.array([[1.0, np.inf], [np.nan, -np.inf], [np.inf, -np.inf], [np.nan, np.nan]])
    case = Case(values, ("a", "b"), ("b",))
    found = results(feed(case.reducer("mean"), values, list(singles((4, 2)))))
    np.testing.assert_array_equal(found["r"], [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(found["r_count"], [2, 1, 2, 0])


@pytest.mark.parametrize("load", [1, 3, 1000])
def test_carries_in_time_change_nothing(load: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(size=(3, 400)) * 10.0 ** generator.integers(-20, 20, (3, 400))
    case = Case(values, ("a", "b"), ("b",))
    usual = results(feed(case.reducer("mean"), values, [whole(values.shape)]))
    monkeypatch.setattr("sweeps.engine.reduce_base.MOST_LOAD", load)
    regions = [(slice(0, 3), slice(n, n + 8)) for n in range(0, 400, 8)]
    reducer, other_reducer = case.reducer("mean"), case.reducer("mean")
    feed(reducer, values, regions[::2])
    feed(other_reducer, values, regions[1::2])
    reducer.merge(other_reducer)
    np.testing.assert_array_equal(results(reducer)["r"], usual["r"])
    np.testing.assert_array_equal(usual["r"], [math.fsum(row) / 400 for row in values.tolist()])


def test_limbs_do_not_overflow_where_carries_are_due() -> None:
    sums = ExactSum((1,))
    sums.limbs = {40: np.array([2**62]), 41: np.array([-(2**62)])}
    before, exponent = sums.rounded()
    exact = Fraction(2) ** (62 + 32 * 40 - 1088) - Fraction(2) ** (62 + 32 * 41 - 1088)
    assert Fraction(float(before[0])) * Fraction(2) ** int(exponent[0]) == exact
    sums._carry()
    assert all(abs(int(limb[0])) <= 2**32 for limb in sums.limbs.values())
    after, _ = sums.rounded()
    assert after == before


@pytest.mark.thorough
@given(st.dictionaries(st.integers(0, 67), st.integers(-(2**62), 2**62), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_limbs_are_rounded_to_nearest_even(limbs: dict[int, int]) -> None:
    total = sum(value << (32 * limb) for limb, value in limbs.items())
    arrays = {limb: np.array([value, 0]) for limb, value in limbs.items()}
    numbers, exponents = rounded(arrays)
    # Python rounds the ratio of integers to nearest, ties to even.
    scale = max(0, abs(total).bit_length() - 64)
    assert numbers[1] == 0.0
    assert Fraction(float(numbers[0])) * Fraction(2) ** (int(exponents[0]) + 1088 - scale) == (
        Fraction(total / (1 << scale))
    )


def test_merging_many_sums_does_not_overflow() -> None:
    total = ExactSum((1,))
    for _ in range(9):
        exact_sum = ExactSum((1,))
        exact_sum.limbs, exact_sum._load = {40: np.array([2**61 - 1])}, MOST_LOAD
        total.merge(exact_sum)
    number, exponent = total.rounded()
    wanted = float(9 * (2**61 - 1))
    assert math.ldexp(float(number[0]), int(exponent[0]) - 32 * 40 + 1088) == wanted
