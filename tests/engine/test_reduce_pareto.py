"""Fronts of two quantities: no cell beats a point of them, and no such cell is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sweeps
from sweeps.engine.reduce import part, reducer
from sweeps.engine.reduce_base import Reducer
from sweeps.errors import InputError
from sweeps.spec.reduction import Reduction
from tests.engine.reduce_cases import Case, bits, cases, numbers, partitions, results, whole
from tests.tables import examples

Point = tuple[float, float, int]


def made(case: Case, count: int = 0, greatest: tuple[str, ...] = ()) -> Reducer:
    asked = Reduction("time", "pareto", case.over, "r", count, against="energy", greatest=greatest)
    return reducer(asked, case.dims, case.sizes, {})


def feed(one: Reducer, case: Case, array: np.ndarray, regions: list[Any]) -> None:
    for region in regions:
        values, neighbour = case.values[region].copy(), array[region].copy()
        one.update(region, values, {"energy": neighbour})
        # A block's memory is used again for the next one.
        values.fill(-12345.0)
        neighbour.fill(-12345.0)


def front_of(row: list[float], others: list[float], greatest: tuple[str, ...]) -> list[Point]:
    """The oracle: each cell against each other one."""
    signs = [-1.0 if name in greatest else 1.0 for name in ("time", "energy")]
    cells = [
        (signs[0] * a, signs[1] * b, index)
        for index, (a, b) in enumerate(zip(row, others, strict=True))
        if not (np.isnan(a) or np.isnan(b))
    ]
    kept = [
        cell
        for cell in cells
        if not any(
            other_cell[0] <= cell[0]
            and other_cell[1] <= cell[1]
            and (other_cell[:2] != cell[:2] or other_cell[2] < cell[2])
            for other_cell in cells
        )
    ]
    return [(signs[0] * a + 0.0, signs[1] * b + 0.0, position) for a, b, position in sorted(kept)]


@pytest.mark.thorough
@given(
    case=cases(longest=25),
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["tied", "usual", "special"]),
    greatest=st.sampled_from([(), ("time",), ("energy",), ("time", "energy")]),
    data=st.data(),
)
@settings(max_examples=120, deadline=None)
def test_a_front_in_any_blocks(
    case: Case, seed: int, kind: str, greatest: tuple[str, ...], data: st.DataObject
) -> None:
    shape = case.values.shape
    other_numbers = numbers(kind, seed, shape, 0.2)
    workers = [made(case, greatest=greatest) for _ in range(data.draw(st.integers(1, 3)))]
    for region in data.draw(partitions(shape)):
        feed(data.draw(st.sampled_from(workers)), case, other_numbers, [region])
    first, *rest = data.draw(st.permutations(workers))
    for other in rest:
        first.merge(other)
    alone = made(case, greatest=greatest)
    feed(alone, case, other_numbers, [whole(shape)])
    actual = results(alone)
    assert bits(results(first)) == bits(actual)

    again = made(case, greatest=greatest)
    again.restore(alone.state())
    assert bits(results(again)) == bits(actual)

    rows = case.rows().tolist()
    neighbour = Case(other_numbers, case.dims, case.over).rows().tolist()
    length = actual["r_point"].size
    times, energies = (actual[f"r_{name}"].reshape(-1, length) for name in ("time", "energy"))
    longest = 1
    for cell, (row, other) in enumerate(zip(rows, neighbour, strict=True)):
        wanted = front_of(row, other, greatest)
        longest = max(longest, len(wanted))
        np.testing.assert_array_equal(times[cell, : len(wanted)], [p[0] for p in wanted])
        np.testing.assert_array_equal(energies[cell, : len(wanted)], [p[1] for p in wanted])
        assert np.isnan(times[cell, len(wanted) :]).all()
        places = np.zeros(len(wanted), dtype=np.int64)
        for dim, size in zip(case.reduced_dims, case.reduced_shape, strict=True):
            index = actual[f"r_{dim}"].reshape(-1, length)[cell, : len(wanted)]
            places = places * size + index
        np.testing.assert_array_equal(places, [p[2] for p in wanted] if case.over else places)
    assert length == longest


def test_a_part_of_the_results_is_merged_into_its_place() -> None:
    values = numbers("usual", 1, (4, 50), 0.1)
    other_numbers = numbers("usual", 2, (4, 50), 0.1)
    case = Case(values, ("topology", "ranks"), ("ranks",))
    alone, joined = made(case), made(case)
    feed(alone, case, other_numbers, [whole((4, 50))])
    for rows in ((2, 4), (0, 2)):
        region = (slice(*rows), slice(0, 50))
        own = part(joined.task, (slice(*rows),))
        feed(own, case, other_numbers, [region])
        joined.merge(own)
    assert bits(results(joined)) == bits(results(alone))


def test_a_long_front_is_thinned_to_its_ends_and_what_lies_between() -> None:
    values = np.arange(100.0)
    case = Case(values, ("ranks",), ("ranks",))
    for count in (1, 2, 5, 100, 200):
        one = made(case, count)
        feed(one, case, values[::-1].copy(), [whole((100,))])
        found = results(one)["r_time"]
        assert len(found) == min(count, 100)
        assert found[0] == 0.0
        if count > 1:
            assert found[-1] == 99.0
            assert np.diff(found).max() - np.diff(found).min() <= 1.0


def test_the_front_of_plans() -> None:
    spec = {
        "model": "llama3-8b",
        "hardware": "dgx-h100",
        "sequence_length": 4096,
        "global_batch_size": 64,
        "plan": {"every": "tp,pp", "world_size": 16},
        "recompute": ["none", "full"],
        "zero_stage": [0, 1, 3],
    }
    asked = {
        "quantity": "step_time",
        "operation": "pareto",
        "against": "peak_memory",
        "over": ["plan", "recompute", "zero_stage"],
        "name": "front",
    }
    axes = {name: spec.pop(name) for name in ("plan", "recompute", "zero_stage")}
    dataset = sweeps.run(
        dict(quantities=["step_time", "peak_memory"], axes=axes, constants=spec, reductions=[asked])
    )
    times, memory = (
        np.broadcast_to(one, dataset.step_time.shape).ravel()
        for one in (
            dataset.step_time.values,
            dataset.peak_memory.broadcast_like(dataset.step_time)
            .transpose(*dataset.step_time.dims)
            .values,
        )
    )
    wanted = front_of(times.tolist(), memory.tolist(), ())
    np.testing.assert_array_equal(dataset.front_step_time, [p[0] for p in wanted])
    np.testing.assert_array_equal(dataset.front_peak_memory, [p[1] for p in wanted])
    assert dataset.front_peak_memory.attrs["units"] == "byte"
    assert len(wanted) > 3


@pytest.mark.parametrize(
    ("more", "result"),
    examples(__file__, "what_is_no_front_is_a_fault"),
)
def test_what_is_no_front_is_a_fault(more: dict[str, Any], result: str) -> None:
    asked = {"quantity": "time", "over": ["ranks"], **more}
    with pytest.raises(InputError, match=result):
        sweeps.run(
            {
                "axes": {"ranks": [2, 4], "message_bytes": ["1MB", "2MB"]},
                "constants": {"topology": "ring", "collective": "all_reduce"},
                "quantities": [],
                "reductions": [asked],
            }
        )
