"""What is kept of plans that stream by, against all of them at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sweeps.search.search import BestOfSplits, Front, Top

numbers = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=60
)
sizes = st.integers(1, 60)


def parts(rows: list[tuple[int, int, int]], size: int) -> list[np.ndarray]:
    table = np.array([(*row, index) for index, row in enumerate(rows)], dtype=float)
    return [table[start : start + size] for start in range(0, len(table), size)]


@given(numbers, sizes, st.integers(1, 8))
def test_top(rows: list[tuple[int, int, int]], size: int, count: int) -> None:
    top = Top(count)
    for part in parts(rows, size):
        top.add(part[:, 0], part[:, 1], part[:, 3].astype(np.int64))
    expected = sorted((first, second, index) for index, (first, second, _) in enumerate(rows))
    kept = list(zip(top.first, top.second, top.places, strict=True))
    assert kept == expected[:count]


@given(numbers, sizes)
def test_front(rows: list[tuple[int, int, int]], size: int) -> None:
    front = Front()
    for part in parts(rows, size):
        inside = part[part[:, 0] < front.bounds(part[:, 1])]
        front.add(inside[:, 0], inside[:, 1], inside[:, 3].astype(np.int64))
    pairs = {(first, second) for first, second, _ in rows}
    expected = {
        pair
        for pair in pairs
        if not any(o != pair and o[0] <= pair[0] and o[1] <= pair[1] for o in pairs)
    }
    assert set(zip(front.first, front.second, strict=True)) == expected
    assert len(front) == len(expected)


@given(numbers, sizes)
def test_best_of_splits(rows: list[tuple[int, int, int]], size: int) -> None:
    best = BestOfSplits(5)
    for part in parts(rows, size):
        best.add(part[:, 0], part[:, 1], part[:, 3].astype(np.int64), part[:, 2].astype(np.int64))
    for split in range(5):
        own = [(f, s, index) for index, (f, s, of) in enumerate(rows) if of == split]
        if own:
            assert (best.first[split], best.second[split], best.places[split]) == min(own)
        else:
            assert best.places[split] == -1
    assert [best.first[split] for split in best.order()] == sorted(
        best.first[split] for split in {of for _, _, of in rows}
    )
