"""Every cell exactly once; checksums that don't depend on blocks."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sweeps.engine.grid import Block, Column
from sweeps.errors import RunError
from sweeps.store.encode import Coverage, RunningChecksum, Target, checksum, fits, slabs
from tests.store.layouts import Case, layouts, number, partitions

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)


@st.composite
def regions(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[slice, ...]:
    bounds = [sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2))) for n in shape]
    return tuple(slice(start, stop) for start, stop in bounds)


@given(data=st.data(), shape=SHAPES)
def test_coverage_agrees_with_counting_every_cell(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    chosen = data.draw(st.lists(regions(shape), max_size=6))
    counts = np.zeros(shape, int)
    coverage = Coverage(shape)
    for region in chosen:
        counts[region] += 1
        coverage.add(region)
    assert coverage.complete == bool((counts == 1).all())
    assert coverage.cells == counts.sum()


@given(data=st.data(), case=layouts())
def test_a_partition_is_complete_and_without_any_piece_is_not(
    data: st.DataObject, case: Case
) -> None:
    layout, values = case
    pieces = data.draw(partitions(values))
    dropped = data.draw(st.integers(0, len(pieces) - 1))
    for left_out in (None, dropped):
        coverage = {
            variable.name: Coverage(layout.shape(variable)) for variable in layout.variables
        }
        for index, piece in enumerate(pieces):
            if index != left_out:
                coverage[piece.name].add(piece.region)
        assert all(each.complete for each in coverage.values()) == (left_out is None)


def test_one_cell_missing_and_another_twice_is_noticed_and_said() -> None:
    target = Target(number("time", ("x",)), (4,))
    for start in (0, 1, 1, 3):
        target.place(Block("time", (slice(start, start + 1),), np.zeros(1)))
    with pytest.raises(RunError, match=r"time: some cells were not computed, and others more"):
        target.finish()


def test_missing_cells_are_counted() -> None:
    target = Target(number("time", ("x", "y")), (4, 5))
    target.place(Block("time", (slice(0, 3), slice(None)), np.zeros((3, 5))))
    with pytest.raises(RunError, match=r"time: 5 of its 20 cells were not computed"):
        target.finish()


@pytest.mark.parametrize(
    ("region", "values"),
    [
        ((slice(0, 2),), np.zeros(3)),
        ((slice(2, 9),), np.zeros(7)),
        ((slice(0, 4, 2),), np.zeros(2)),
        ((slice(0, 2), slice(0, 1)), np.zeros((2, 1))),
        ((slice(0, 1),), np.array(["a"])),
        ((slice(0, 1),), np.zeros(())),
    ],
)
def test_a_block_that_does_not_fit_is_refused(
    region: tuple[slice, ...], values: NDArray[Any]
) -> None:
    with pytest.raises(RunError, match=r"^time: a block"):
        Target(number("time", ("x",)), (4,)).place(Block("time", region, values))


def test_integers_that_a_flag_cannot_hold_are_refused() -> None:
    target = Target(Column("status", ("x",), np.dtype("i1")), (2,))
    whole = (slice(0, 2),)
    target.place(Block("status", whole, np.array([-128, 127])))
    with pytest.raises(RunError, match="status"):
        target.place(Block("status", whole, np.array([0, 128])))
    with pytest.raises(RunError, match="status"):
        target.place(Block("status", whole, np.array([0.0, 1.0])))
    assert fits(np.array([True]), np.dtype("i1"))


@given(shape=SHAPES, limit=st.integers(1, 200))
def test_slabs_are_runs_in_order_that_cover_everything(shape: tuple[int, ...], limit: int) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype="f8").reshape(shape)
    actual = [array[region].ravel() for region in slabs(shape, 8, limit)]
    np.testing.assert_array_equal(np.concatenate(actual), array.ravel())
    assert all(piece.nbytes <= max(8, limit) for piece in actual)


@given(data=st.data(), shape=SHAPES)
def test_a_running_checksum_is_the_checksum_or_unknown(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    array = np.random.default_rng(0).random(shape)
    limit = data.draw(st.integers(1, 200))
    running = RunningChecksum(shape)
    for region in slabs(shape, 8, limit):
        running.add(region, array[region])
    assert running.result() == checksum(array)

    pieces = data.draw(partitions({"v": array}))
    shuffled = RunningChecksum(shape)
    for piece in pieces:
        shuffled.add(piece.region, piece.values)
    assert shuffled.result() in {checksum(array), None}
    in_order = [piece.region for piece in pieces] == list(
        itertools.chain([tuple(slice(0, n) for n in shape)])
    )
    assert not in_order or shuffled.result() is not None


def test_a_region_that_is_no_run_of_cells_has_no_running_checksum() -> None:
    array = np.arange(8.0).reshape(2, 4)
    running = RunningChecksum((2, 4))
    for start in (0, 2):
        running.add((slice(0, 2), slice(start, start + 2)), array[:, start : start + 2])
    assert running.result() is None


def test_a_checksum_is_that_of_little_endian_bytes_in_c_order() -> None:
    array = np.arange(6, dtype="<f8").reshape(2, 3)
    assert checksum(array) == checksum(array.astype(">f8")) == checksum(np.asfortranarray(array))
    assert checksum(array) != checksum(array.T)
    # CRC-32 of the eight bytes of 1.0: 00 00 00 00 00 00 f0 3f
    assert checksum(np.array(1.0)) == f"crc32:{zlib.crc32(bytes.fromhex('000000000000f03f')):08x}"
