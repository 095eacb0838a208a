"""Least, greatest and ranked values; what all reductions have in common."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.engine.grid import Block, Column, Layout
from sweeps.engine.reduce import reducer
from sweeps.engine.reduce_base import flag_words
from sweeps.errors import InputError, RunError
from sweeps.job import prepare
from sweeps.spec.reduction import REDUCTIONS, Reduction
from sweeps.store.encode import check_layout
from sweeps.store.netcdf import to_dataset
from tests.engine.reduce_cases import (
    ATTRS,
    Case,
    cases,
    feed,
    in_any_blocks,
    named,
    numbers,
    partitions,
    results,
    singles,
    whole,
)

# Of one quantity; fronts of two are in a file of their own.
SINGLE = tuple(operation for operation in REDUCTIONS if operation != "pareto")


def expected(case: Case, operation: str, count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Values (NaN where none) and places (-1 where none); a row a kept cell, a column a rank."""
    sign = -1.0 if operation == "max" else 1.0
    rows = case.rows()
    values = np.full((len(rows), count), np.nan)
    places = np.full(values.shape, -1)
    for number, row in enumerate(rows):
        cells = [(sign * float(v), index) for index, v in enumerate(row) if not np.isnan(v)]
        for rank, (key, position) in enumerate(sorted(cells)[:count]):
            values[number, rank], places[number, rank] = sign * key + 0.0, position
    return values, places


def check(case: Case, arrays: dict[str, np.ndarray], operation: str, count: int = 1) -> None:
    values, places = expected(case, operation, count)
    shape = (*case.kept_shape, count) if operation == "top" else case.kept_shape
    assert arrays["r"].tobytes() == values.reshape(shape).tobytes()
    indices = np.unravel_index(np.maximum(places, 0), case.reduced_shape or (1,))
    for dim, index in zip(case.reduced_dims, indices, strict=False):
        wanted = np.where(places < 0, -1, index).reshape(shape)
        np.testing.assert_array_equal(arrays[f"r_{dim}"], wanted)
    named_dims = {f"r_{dim}" for dim in case.reduced_dims}
    assert set(arrays) == {"r", *named_dims} | ({"r_rank"} if operation == "top" else set())


@pytest.mark.thorough
@given(case=cases(), operation=st.sampled_from(["min", "max"]), data=st.data())
@settings(max_examples=200, deadline=None)
def test_extremes_in_any_blocks(case: Case, operation: str, data: st.DataObject) -> None:
    alone = in_any_blocks(case, data, operation)
    check(case, results(alone), operation)


@pytest.mark.thorough
@given(case=cases(), count=st.integers(1, 20), data=st.data())
@settings(max_examples=200, deadline=None)
def test_ranked_in_any_blocks(case: Case, count: int, data: st.DataObject) -> None:
    alone = in_any_blocks(case, data, "top", count=count)
    check(case, results(alone), "top", min(count, int(np.prod(case.reduced_shape))))


@pytest.mark.parametrize("shape", [(3, 200), (200, 3)])
def test_the_best_few_may_be_the_greatest(shape: tuple[int, int]) -> None:
    values = numbers("usual", 1, shape, 0.2)
    made = Case(values, ("a", "b"), ("b",)).reducer("top", count=3, greatest=("time",))
    best = results(feed(made, values, [whole(shape)]))
    wanted = -np.sort(np.where(np.isnan(values), np.inf, -values), axis=1)[:, :3]
    np.testing.assert_array_equal(best["r"], np.where(np.isinf(wanted), np.nan, wanted))


# The ways that shapes go inside: few slices, few rows, many of both; and large blocks cut.
SHAPES = [(3, 200), (200, 3), (40, 50), (1, 4000), (4000, 1), (2, 30, 40)]


@pytest.mark.thorough_cases(every=5)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("over", [("a",), ("b",), ("a", "c"), ("a", "b", "c")])
@pytest.mark.parametrize("kind", ["tied", "usual", "special"])
@pytest.mark.parametrize(("operation", "count"), [("min", 1), ("max", 1), ("top", 3), ("top", 12)])
def test_shapes(
    shape: tuple[int, ...],
    over: tuple[str, ...],
    kind: str,
    operation: str,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dims = ("a", "b", "c")[: len(shape)]
    case = Case(numbers(kind, 7, shape, 0.2), dims, tuple(d for d in over if d in dims))
    count = min(count, int(np.prod(case.reduced_shape)))
    for cells in (1 << 20, 500):
        monkeypatch.setattr("sweeps.engine.reduce_base.MOST_CELLS", cells)
        made = feed(case.reducer(operation, count=count), case.values, [whole(shape)])
        check(case, results(made), operation, count)


def test_ties_go_to_the_first_place_whatever_comes_first() -> None:
    values = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 2.0], [1.0, 0.0, -0.0]])
    case = Case(values, ("a", "b"), ("a", "b"))
    for regions in (list(singles((3, 3))), list(singles((3, 3)))[::-1]):
        top = results(feed(case.reducer("top", count=5), values, regions))
        np.testing.assert_array_equal(top["r"], [0.0, 0.0, 1.0, 1.0, 1.0])
        assert not np.signbit(top["r"]).any()
        np.testing.assert_array_equal(top["r_a"], [2, 2, 0, 1, 1])
        np.testing.assert_array_equal(top["r_b"], [1, 2, 1, 0, 1])
        greatest = results(feed(case.reducer("max"), values, regions))
        assert (greatest["r"], greatest["r_a"], greatest["r_b"]) == (3.0, 0, 0)


@pytest.mark.parametrize("operation", ["min", "max", "top"])
def test_ties_between_blocks_that_interlace(operation: str) -> None:
    # The first place of the second block is just before the first of the first.
    case = Case(np.ones((40, 2)), ("a", "b"), ("a", "b"))
    columns = [(slice(0, 40), slice(n, n + 1)) for n in (1, 0)]
    actual = results(feed(case.reducer(operation, count=2), case.values, columns))
    assert (actual["r_a"].flat[0], actual["r_b"].flat[0]) == (0, 0)


def test_infinity_is_a_value_and_has_a_place() -> None:
    values = np.array([np.nan, np.inf, np.inf, np.nan])
    case = Case(values, ("a",), ("a",))
    found = results(feed(case.reducer("top", count=3), values, list(singles((4,)))[::-1]))
    np.testing.assert_array_equal(found["r"], [np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(found["r_a"], [1, 2, -1])


def test_places_are_told_by_flags_and_coordinates() -> None:
    values = np.array([[[5.0, 2.0], [3.0, 4.0]], [[np.nan] * 2] * 2, [[9.0, 9.0], [1.0, 8.0]]])
    dims, sizes = ("hardware", "topology", "message_bytes"), (3, 2, 2)
    message = Column(
        "message_bytes",
        ("message_bytes",),
        np.dtype("f8"),
        {"units": "byte", "long_name": "message size", "symbol": "$M$"},
        np.array([1024.0, 4096.0]),
    )
    labels = {"topology": ["ring", "fat tree"], "message_bytes": message, "hardware": ["x"] * 3}
    made = reducer(
        Reduction("time", "min", ("topology", "message_bytes"), "best"),
        dims,
        dict(zip(dims, sizes, strict=True)),
        labels,
    )
    columns = named(feed(made, values, [whole(values.shape)]).columns(ATTRS))
    assert {column.dims for column in columns.values()} == {("hardware",)}
    best = columns["best"]
    np.testing.assert_array_equal(best.values, [2.0, np.nan, 1.0])
    assert best.attrs["long_name"] == "least time over topology, message_bytes"
    assert (best.attrs["units"], best.attrs["references"]) == ("s", "somebody")
    assert "formula" not in best.attrs
    assert "4 cells" in best.attrs["comment"]
    topology = columns["best_topology"]
    np.testing.assert_array_equal(topology.values, [1, 0, 2])
    assert topology.dtype == np.int8
    assert topology.attrs["long_name"] == "topology at the least time"
    assert topology.attrs["flag_meanings"] == "none ring fat_tree"
    np.testing.assert_array_equal(topology.attrs["flag_values"], [0, 1, 2])
    best_message_bytes = columns["best_message_bytes"]
    np.testing.assert_array_equal(best_message_bytes.values, [4096.0, np.nan, 1024.0])
    assert best_message_bytes.attrs["units"] == "byte"
    assert best_message_bytes.attrs["long_name"] == "message_bytes at the least time"


def test_values_without_a_column_have_the_units_of_the_vocabulary() -> None:
    values = np.array([2.0, 1.0])
    given = {"message_bytes": np.array([8.0, 16.0]), "other": None}
    made = reducer(
        Reduction("time", "min", ("message_bytes",), "r"),
        ("message_bytes",),
        {"message_bytes": 2},
        given,
    )
    columns = named(feed(made, values, [whole((2,))]).columns(ATTRS))
    assert columns["r_message_bytes"].values == 16.0
    assert columns["r_message_bytes"].attrs["units"] == "byte"


def test_flags_of_many_labels_are_wide_enough() -> None:
    words = [f"label{n}" for n in range(128)]
    made = reducer(Reduction("time", "max", ("a",), "r"), ("a",), {"a": 128}, {"a": words})
    columns = named(feed(made, np.arange(128.0), [whole((128,))]).columns(ATTRS))
    assert columns["r_a"].dtype == np.int16
    assert columns["r_a"].values == 128


def test_flag_words_are_allowed_ones_and_each_once() -> None:
    words = flag_words(["none", "H100 SXM", "H100/SXM", "none", "", "多級"])
    assert words == ["none", "H100_SXM", "H100_SXM_2", "none_2", "_", "__"]


def test_dimensions_that_the_variable_does_not_have() -> None:
    values = np.array([[1.0, 2.0], [4.0, 3.0]])
    reduction = Reduction("time", "min", ("topology", "plan"), "r")
    sizes = {"topology": 6, "plan": 2, "ranks": 2}
    made = reducer(reduction, ("plan", "ranks"), sizes, {"topology": list("abcdef")})
    columns = named(feed(made, values, [whole((2, 2))]).columns(ATTRS))
    np.testing.assert_array_equal(columns["r"].values, [1.0, 2.0])
    assert "r_topology" not in columns
    assert "time is the same all along topology." in columns["r"].attrs["comment"]


@pytest.mark.parametrize("operation", SINGLE)
def test_nothing_to_reduce_leaves_the_values(operation: str) -> None:
    values = np.array([[1.0, np.nan], [np.inf, 0.5]])
    reduction = Reduction("time", operation, ("topology",), "r")
    made = reducer(reduction, ("plan", "ranks"), {"topology": 6, "plan": 2, "ranks": 2}, {})
    found = results(feed(made, values, [whole((2, 2))]))["r"]
    if operation == "histogram":
        assert found.sum() == 2
    else:
        np.testing.assert_array_equal(found.reshape(2, 2), values)


@pytest.mark.parametrize("operation", SINGLE)
def test_a_variable_without_dimensions(operation: str) -> None:
    made = reducer(Reduction("time", operation, ("plan",), "r"), (), {"plan": 3}, {})
    found = results(feed(made, np.array(2.5), [()]))["r"]
    assert found.reshape(-1)[0] == (1 if operation == "histogram" else 2.5)


@pytest.mark.parametrize("operation", SINGLE)
def test_results_make_a_dataset(operation: str) -> None:
    case = Case(numbers("usual", 1, (2, 3, 4), 0.2), ("a", "b", "c"), ("b", "c"))
    made = feed(case.reducer(operation), case.values, [whole((2, 3, 4))])
    columns = made.columns(ATTRS)
    coordinates = tuple(c for c in columns if c.dims == (c.name,))
    variables = tuple(c for c in columns if c.dims != (c.name,))
    sizes = {dim: n for c in columns for dim, n in zip(c.dims, c.values.shape, strict=True)}
    layout = Layout(sizes, coordinates, variables, {})
    check_layout(layout)
    blocks = [(c.name, tuple(slice(0, n) for n in c.values.shape), c.values) for c in variables]
    dataset = to_dataset(layout, [Block(*block) for block in blocks])
    assert set(dataset.variables) == {c.name for c in columns}
    assert dataset["r"].dims[0] == "a"
    assert all("long_name" in variable.attrs for variable in dataset.variables.values())


@pytest.mark.parametrize("operation", SINGLE)
def test_incomplete_reductions_give_nothing(operation: str) -> None:
    case = Case(np.ones((2, 3)), ("a", "b"), ("a",))
    made = feed(case.reducer(operation), case.values, [(slice(0, 1), slice(0, 3))])
    assert not made.complete
    with pytest.raises(RunError, match="r: 3 of 6 cells"):
        made.columns(ATTRS)


@pytest.mark.parametrize("operation", SINGLE)
def test_a_reducer_can_be_sent_between_processes(operation: str) -> None:
    case = Case(numbers("usual", 3, (4, 30), 0.1), ("a", "b"), ("b",))
    made = feed(case.reducer(operation), case.values, [(slice(0, 4), slice(0, 20))])
    sent = pickle.loads(pickle.dumps(made))
    for one in (made, sent):
        feed(one, case.values, [(slice(0, 4), slice(20, 30))])
    for name, values in results(made).items():
        np.testing.assert_array_equal(results(sent)[name], values)


@pytest.mark.parametrize("operation", SINGLE)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_strided_and_converted_blocks(operation: str, data: st.DataObject) -> None:
    shape = (6, 25)
    case = Case(np.round(numbers("usual", 5, shape, 0.1), 2), ("a", "b"), ("b",))
    wide = np.full((12, 50), -1.0)
    wide[::2, ::2] = case.values
    plain, strided = case.reducer(operation), case.reducer(operation)
    for region in data.draw(partitions(shape)):
        plain.update(region, case.values[region])
        strided.update(region, wide[::2, ::2][region])
    for name, values in results(plain).items():
        np.testing.assert_array_equal(results(strided)[name], values)


def test_wrong_blocks_are_refused() -> None:
    case = Case(np.ones((2, 3)), ("a", "b"), ("a",))
    made = case.reducer("min")
    with pytest.raises(ValueError, match="don't fill the region"):
        made.update((slice(0, 2), slice(0, 3)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="don't fill the region"):
        made.update((slice(0, 2), slice(0, 3, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="aren't parts of one reduction"):
        made.merge(case.reducer("max"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reduction", "said"),
    [
        (Reduction("time", "median", ("a",), "r"), "reductions.operation = 'median': unknown"),
        (Reduction("time", "min", ("b",), "r"), "reductions.over = 'b': not an axis; known: a"),
        (Reduction("time", "top", ("a",), "r", count=0), "reductions.count = 0: "),
        (Reduction("time", "quantile", ("a",), "r", quantiles=()), "reductions.quantiles = "),
        (Reduction("time", "quantile", ("a",), "r", quantiles=(1.5,)), "= 1.5: no quantile"),
        (Reduction("time", "quantile", ("a",), "r", quantiles=(np.nan,)), "= nan: no quantile"),
    ],
)
def test_bad_reductions(reduction: Reduction, said: str) -> None:
    with pytest.raises(InputError, match=said):
        reducer(reduction, ("a",), {"a": 3}, {})


@pytest.mark.parametrize("operation", ["quantile", "histogram"])
def test_bins_for_too_many_cells_are_refused(operation: str) -> None:
    sizes = {"a": 1 << 10, "b": 1 << 20}
    with pytest.raises(InputError, match=r"1048576 cells.*reduce over more dimensions"):
        reducer(Reduction("time", operation, ("a",), "r"), ("a", "b"), sizes, {})


@pytest.mark.thorough
@pytest.mark.parametrize("over", [("topology", "ranks"), ("message_bytes",), ("topology",)])
def test_blocks_of_a_sweep(over: tuple[str, ...]) -> None:
    spec = {
        "quantities": ["time", "algbw"],
        "axes": dict(topology="ring,switch,mesh", ranks="1:20:x2", message_bytes="1024:1e9:log30"),
        "constants": {"latency": 1e-6, "bandwidth": 1e11, "collective": "all_reduce"},
    }
    plan = prepare(spec).program
    for variable in plan.variables[:2]:
        values = plan.evaluate((variable.name,))[variable.name]
        case = Case(values, variable.dims, over)
        for operation in SINGLE:
            reducers = [case.reducer(operation) for _ in range(3)]
            for made, cells in zip(reducers, (1, 7, 1 << 17), strict=True):
                for block in plan.blocks((variable.name,), cells):
                    made.update(block.region, block.values)
            alone = results(feed(case.reducer(operation), values, [whole(values.shape)]))
            for made in reducers:
                for name, wanted in alone.items():
                    assert results(made)[name].tobytes() == wanted.tobytes()
            if operation in {"min", "max"}:
                check(case, alone, operation)
