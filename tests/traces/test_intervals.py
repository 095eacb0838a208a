"""Unions and intersections beside a count of the points that are covered."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sweeps.traces.overlap import intersection, measure, sweep, union

EDGE = 30
INTERVALS = st.lists(st.tuples(st.integers(0, EDGE), st.integers(0, 8)), max_size=12)
Pairs = list[tuple[int, int]]


def arrays(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    return starts, starts + np.array([length for _, length in pairs], dtype=np.int64)


def points(pairs: Pairs) -> set[int]:
    """Return the unit pieces of the time line that intervals cover."""
    return {at for start, length in pairs for at in range(start, start + length)}


def covered(intervals: tuple[np.ndarray, np.ndarray]) -> set[int]:
    return {at for low, high in zip(*intervals, strict=True) for at in range(low, high)}


@given(INTERVALS)
def test_a_union_covers_the_same_points(pairs: Pairs) -> None:
    actual = union(*arrays(pairs))
    assert covered(actual) == points(pairs)
    assert measure(actual) == len(points(pairs))
    starts, ends = actual
    assert np.all(starts < ends)
    assert np.all(ends[:-1] < starts[1:])  # those that touch are one


@given(INTERVALS, INTERVALS)
def test_an_intersection_covers_what_both_cover(left: Pairs, right: Pairs) -> None:
    intervals = intersection(union(*arrays(left)), union(*arrays(right)))
    assert covered(intervals) == points(left) & points(right)
    both = measure(union(*arrays(left + right)))
    assert both == measure(union(*arrays(left))) + measure(union(*arrays(right))) - measure(
        intervals
    )


@given(st.tuples(INTERVALS, INTERVALS, INTERVALS))
def test_a_sweep_tells_what_covers_each_piece(classes: tuple[Pairs, Pairs, Pairs]) -> None:
    pairs = [pair for class_name in classes for pair in class_name]
    labels = np.array(
        [k for k, class_name in enumerate(classes) for _ in class_name], dtype=np.int64
    )
    cut = sweep(*arrays(pairs), labels, 3)
    for class_name, active in zip(classes, cut.active, strict=True):
        assert cut.length(active) == len(points(class_name))
    first, second, third = cut.active
    expected = (points(classes[0]) & points(classes[1])) - points(classes[2])
    assert cut.length(first & second & ~third) == len(expected)
    if pairs:
        low, high = min(p[0] for p in pairs), max(p[0] + p[1] for p in pairs)
        assert cut.span == high - low
    else:
        assert cut.span == 0


def test_inverted_intervals_are_empty() -> None:
    starts, ends = union(np.array([5, 3]), np.array([2, 4]))
    assert (starts.tolist(), ends.tolist()) == ([3], [4])
