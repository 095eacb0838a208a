"""Quantiles are numpy's where values can be held, and within the stated error else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.engine.reduce_quantile import bin_edge, bin_middle, bins_of
from sweeps.errors import RunError
from tests.engine.reduce_cases import (
    ATTRS,
    Case,
    cases,
    feed,
    in_any_blocks,
    named,
    numbers,
    results,
    singles,
    whole,
)

QUANTILES = (0.0, 0.05, 0.3, 0.5, 0.95, 1.0)
MOST = "sweeps.engine.reduce_quantile.MOST_VALUES"
IN_ROW = "sweeps.engine.reduce_quantile.MOST_IN_ROW"
MOST_BINS = "sweeps.engine.reduce_quantile.MOST_BINS"


def numpy_quantiles(case: Case, quantiles: tuple[float, ...]) -> np.ndarray:
    with np.errstate(all="ignore"):
        rows = [
            np.quantile(row[~np.isnan(row)], quantiles)
            if (~np.isnan(row)).any()
            else np.full(len(quantiles), np.nan)
            for row in case.rows() + 0.0
        ]
    return np.array(rows).reshape(*case.kept_shape, len(quantiles))


@pytest.mark.thorough
@given(case=cases(("tied", "usual")), data=st.data())
@settings(max_examples=150, deadline=None)
def test_exact_in_any_blocks(case: Case, data: st.DataObject) -> None:
    found = results(in_any_blocks(case, data, "quantile", quantiles=QUANTILES))
    np.testing.assert_array_equal(found["r"], numpy_quantiles(case, QUANTILES))
    np.testing.assert_array_equal(found["r_quantile"], QUANTILES)


@pytest.mark.thorough
@given(case=cases(), data=st.data(), row=st.sampled_from([0, 1 << 17]))
@settings(max_examples=200, deadline=None)
def test_every_store_in_any_blocks(case: Case, data: st.DataObject, row: int) -> None:
    result = results(in_any_blocks(case, data, "quantile", quantiles=QUANTILES))["r"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOST, 0)
        patch.setattr(IN_ROW, row)
        made = in_any_blocks(case, data, "quantile", quantiles=QUANTILES)
        found, attrs = results(made)["r"], named(made.columns(ATTRS))["r"].attrs
    if attrs["relative_error"] == 0.0:
        assert row
        assert found.tobytes() == result.tobytes()
        return
    if result.size == 0 or np.abs(result[np.isfinite(result)]).max(initial=0.0) > 1e308:
        return
    # The neighbours are off by the error at most; so is what lies between, of the larger one.
    rows = case.rows()
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(rows), np.abs(rows), 0.0)
    largest = finite.max(axis=1, initial=0.0).reshape(*case.kept_shape, 1)
    same_sign = not ((rows < 0).any() and (rows > 0).any())
    np.testing.assert_array_equal(np.isnan(found), np.isnan(result))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(result))
    finite = np.isfinite(result)
    bound = np.abs(result) if same_sign else np.broadcast_to(largest, result.shape)
    error = np.abs(np.where(finite, found, 0.0) - np.where(finite, result, 0.0))
    assert (error <= np.where(finite, bound, 0.0) * attrs["relative_error"] * 1.0001 + 1e-305).all()


def test_large_counts_of_usual_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOST, 0)
    values = numbers("usual", 11, (4, 30000), 0.1)
    case = Case(values, ("a", "b"), ("b",))
    monkeypatch.setattr(IN_ROW, 0)
    made = case.reducer("quantile", quantiles=QUANTILES)
    regions = [
        (slice(n, n + 1), slice(m, m + 3000)) for m in range(0, 30000, 3000) for n in range(4)
    ]
    column = named(feed(made, values, regions).columns(ATTRS))["r"]
    assert column.attrs["relative_error"] == 2.0**-13
    assert "off by at most 0.00012 of itself" in column.attrs["comment"]
    exact = numpy_quantiles(case, QUANTILES)
    np.testing.assert_allclose(column.values, exact, rtol=2.0**-13 * 1.0001)
    assert (column.values != exact).any()


def test_exact_ones_say_so() -> None:
    case = Case(np.arange(6.0).reshape(2, 3), ("a", "b"), ("b",))
    made = feed(case.reducer("quantile", quantiles=(0.5, 0.25, 0.5)), case.values, [whole((2, 3))])
    columns = named(made.columns(ATTRS))
    np.testing.assert_array_equal(columns["r_quantile"].values, [0.25, 0.5])
    np.testing.assert_array_equal(columns["r"].values, [[0.5, 1.0], [3.5, 4.0]])
    assert columns["r"].dims == ("a", "r_quantile")
    assert columns["r"].attrs["relative_error"] == 0.0
    assert "exact" in columns["r"].attrs["comment"]
    assert columns["r"].attrs["units"] == "s"


@pytest.mark.parametrize("exact", [True, False])
def test_infinities_draw_the_value_to_themselves(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exact:
        monkeypatch.setattr(MOST, 0)
        monkeypatch.setattr(IN_ROW, 0)
    inf = np.inf
    values = np.array([[1.0, inf], [inf, inf], [-inf, 1.0], [-inf, -inf], [-inf, inf]])
    case = Case(values, ("a", "b"), ("b",))
    found = results(
        feed(case.reducer("quantile", quantiles=(0.0, 0.3, 1.0)), values, [whole((5, 2))])
    )
    wanted = [
        [1.0, inf, inf],
        [inf, inf, inf],
        [-inf, -inf, 1.0],
        [-inf, -inf, -inf],
        [-inf, np.nan, inf],
    ]
    np.testing.assert_allclose(found["r"], wanted, rtol=2.0**-13)


def test_neighbours_at_the_ends_of_float64() -> None:
    values = np.array([-1.7e308, 1.7e308])
    made = Case(values, ("a",), ("a",)).reducer("quantile", quantiles=(0.5, 0.75))
    np.testing.assert_allclose(results(feed(made, values, [whole((2,))]))["r"], [0.0, 0.85e308])


@pytest.mark.parametrize("limit", [60, 400, 3000])
def test_fewer_bins_where_memory_is_short(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOST, 0)
    monkeypatch.setattr(IN_ROW, 0)
    monkeypatch.setattr(MOST_BINS, limit)
    monkeypatch.setattr("sweeps.engine.reduce_quantile.WAITING", 0)
    values = np.exp(np.random.default_rng(4).uniform(0.0, 0.6, (2, 4000)))
    case = Case(values, ("a", "b"), ("b",))
    regions = [(slice(0, 2), slice(n, n + 50)) for n in range(0, 4000, 50)]
    seen = set()
    for order in (regions, regions[::-1], regions[::2] + regions[1::2]):
        left, right = (case.reducer("quantile", quantiles=QUANTILES) for _ in range(2))
        feed(left, values, order[:30])
        feed(right, values, order[30:])
        left.merge(right)
        column = named(left.columns(ATTRS))["r"]
        seen.add((column.values.tobytes(), column.attrs["relative_error"]))
        error = column.attrs["relative_error"]
        np.testing.assert_allclose(column.values, numpy_quantiles(case, QUANTILES), rtol=error)
    assert len(seen) == 1
    # As fine as the limit allows: with one bit more there would be too many bins.
    taken = round(-math.log2(error)) - 1
    for bits, fits in ((taken, True), (taken + 1, False)):
        count = sum(len(np.unique(bins_of(row, bits))) for row in values)
        assert (count <= limit) == fits or (bits > 12)


def test_too_many_bins_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOST, 0)
    monkeypatch.setattr(IN_ROW, 0)
    monkeypatch.setattr(MOST_BINS, 20)
    values = np.geomspace(1.0, 1e6, 1000)
    made = Case(values, ("a",), ("a",)).reducer("quantile")
    with pytest.raises(RunError, match="more than 20 bins; reduce over more dimensions"):
        results(feed(made, values, [whole((1000,))]))


def test_rows_are_not_held_once_they_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOST, 0)
    values = numbers("usual", 9, (50, 4, 5), 0.2)
    case = Case(values, ("a", "b", "c"), ("b", "c"))
    made = case.reducer("quantile", quantiles=QUANTILES)
    for region in singles((50, 4, 5)):
        feed(made, values, [region])
        assert len(made._store._open) <= 1
    np.testing.assert_array_equal(results(made)["r"], numpy_quantiles(case, QUANTILES))


@pytest.mark.thorough
@given(st.lists(st.floats(allow_nan=False), min_size=1), st.integers(0, 16))
@settings(max_examples=300, deadline=None)
def test_bins(listed: list[float], bits: int) -> None:
    values = np.array(listed)
    keys = bins_of(values, bits)
    finite = np.isfinite(values)
    assert (bin_edge(keys, bits)[finite] <= values[finite]).all()
    assert (values[finite] < bin_edge(keys + 1, bits)[finite]).all()
    middle = bin_middle(keys, bits)
    np.testing.assert_array_equal(middle[~finite], values[~finite])
    normal = finite & (np.abs(values) >= 2.0**-1022)
    with np.errstate(over="ignore"):
        error = np.abs(middle[normal] / 4.0 - values[normal] / 4.0)
    assert (error <= np.abs(values[normal]) / 4.0 * 2.0 ** (-bits - 1) + 5e-324).all()
    assert (middle[values == 0.0] == 0.0).all()
    order = np.argsort(values)
    assert (np.diff(keys[order]) >= 0).all()
    # Infinities share a bin with nothing.
    assert not set(keys[~finite]) & set(keys[finite])
