"""Histograms count each cell once, between fixed edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.engine.reduce_quantile import MOST_EMPTY, SparseCounts
from sweeps.errors import RunError
from tests.engine.reduce_cases import ATTRS, Case, cases, feed, in_any_blocks, named, results, whole


@pytest.mark.thorough
@given(case=cases(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_histogram_in_any_blocks(case: Case, data: st.DataObject) -> None:
    found = results(in_any_blocks(case, data, "histogram"))
    lower, upper = found["r_bin"], found["r_bin_upper"]
    counts = found["r"].reshape(-1, len(lower))
    assert (lower < upper).all()
    np.testing.assert_array_equal(lower[1:], upper[:-1])
    for row, count in zip(case.rows(), counts, strict=True):
        finite = row[np.isfinite(row)]
        inside = (finite[:, None] >= lower) & (finite[:, None] < upper)
        np.testing.assert_array_equal(inside.sum(axis=0), count)
        assert count.sum() == finite.size
    infinite = np.isinf(case.rows()).sum(axis=1).reshape(case.kept_shape)
    np.testing.assert_array_equal(found["r_infinite"], infinite)


def test_edges_are_eighths_of_octaves_trimmed_to_what_there_is() -> None:
    values = np.array([1.0, 1.1, 1.125, 1.9, 2.0, 2.24, np.nan])
    case = Case(values, ("a",), ("a",))
    columns = named(feed(case.reducer("histogram"), values, [whole((7,))]).columns(ATTRS))
    np.testing.assert_array_equal(
        columns["r_bin"].values, [1.0, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2.0]
    )
    np.testing.assert_array_equal(columns["r_bin_upper"].values[-2:], [2.0, 2.25])
    np.testing.assert_array_equal(columns["r"].values, [2, 1, 0, 0, 0, 0, 0, 1, 2])
    assert columns["r"].dims == ("r_bin",)
    assert columns["r_bin"].attrs["units"] == "s"
    assert columns["r"].attrs["units"] == "1"


def test_zero_negatives_and_gaps() -> None:
    values = np.array([[0.0, -0.0, 1e-6], [-1.0, 1e6, np.inf]])
    case = Case(values, ("a", "b"), ("b",))
    actual = results(feed(case.reducer("histogram"), values, [whole((2, 3))]))
    assert len(actual["r_bin"]) == 7
    np.testing.assert_array_equal(actual["r"], [[0, 0, 2, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1]])
    assert actual["r_bin"][[0, 2]].tolist() == [-1.0, 0.0]
    np.testing.assert_array_equal(actual["r_infinite"], [0, 1])


def test_short_gaps_stay() -> None:
    values = np.array([1.0, 2.0 ** (MOST_EMPTY // 8), 2.0 ** (MOST_EMPTY // 4 + 1)])
    case = Case(values, ("a",), ("a",))
    actual = results(feed(case.reducer("histogram"), values, [whole((3,))]))
    # Up to the second 63 empty bins, after it 71 in one.
    assert len(actual["r"]) == 1 + 63 + 1 + 1 + 1
    np.testing.assert_array_equal(np.flatnonzero(actual["r"]), [0, 64, 66])


@pytest.mark.parametrize("hole", [np.nan, np.inf])
def test_nothing_to_count(hole: float) -> None:
    values = np.full((2, 3), hole)
    case = Case(values, ("a", "b"), ("b",))
    found = results(feed(case.reducer("histogram"), values, [whole((2, 3))]))
    np.testing.assert_array_equal(found["r"], [[0], [0]])
    np.testing.assert_array_equal(found["r_infinite"], [3 * np.isinf(hole)] * 2)


@pytest.mark.thorough
@given(st.data(), st.integers(1, 60), st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_sparse_counts(data: st.DataObject, limit: int, waiting: int) -> None:
    lists = st.lists(st.integers(0, 400) | st.integers(10**9, 10**9 + 400), max_size=30)
    blocks = data.draw(st.lists(lists, max_size=8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.engine.reduce_quantile.WAITING", waiting * 5)
        parts = [SparseCounts(40, limit, "too many") for _ in range(2)]
        for block in blocks:
            data.draw(st.sampled_from(parts)).add(np.array(block, dtype=np.int64))
        parts[0].merge(parts[1])
        codes, counts = parts[0].items()
    everything = np.array([code for block in blocks for code in block], dtype=np.int64)
    dropped = 0
    while len(np.unique(everything >> dropped)) > limit:
        dropped += 1
    wanted, number = np.unique(everything >> dropped, return_counts=True)
    assert parts[0].dropped == dropped
    np.testing.assert_array_equal(codes, wanted)
    np.testing.assert_array_equal(counts, number)


def test_sparse_counts_end_where_no_bit_may_go() -> None:
    counts = SparseCounts(2, 10, "too many")
    counts.add(np.arange(40))
    assert counts.items()[0].size == 10
    counts.add(np.arange(100, 200))
    with pytest.raises(RunError, match="too many"):
        counts.items()
