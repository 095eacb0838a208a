from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import sweeps
from sweeps.api import recompute
from sweeps.engine.grid import Column
from sweeps.errors import InputError
from sweeps.job import prepare
from sweeps.origin import read
from sweeps.plots.data import Subject
from sweeps.plots.declare import check_figures
from sweeps.spec.catalog import find_sweep, hardware_names
from sweeps.spec.sweep import load_sweep, read_sweep
from sweeps.store.netcdf import open_dataset, write
from sweeps.validate.measured import join_measured
from sweeps.validate.scores import error_lines, error_rows
from sweeps.validate.table import find_table, read_table
from tests.tables import keyed

DATA = Path(__file__).parents[1] / "data" / "measured.csv"
FOUR = "all_reduce, dgx-h100, 4 ranks, first"
NODES = "all_gather, dgx-h100, 2 x 8 ranks, first"
SIX = "all_reduce, dgx-a100, 6 ranks, second"
LINKS = keyed(
    "intra_latency='1 us' intra_bandwidth='100 GB/s' inter_latency='3 us' "
    "inter_bandwidth='20 GB/s' software=none"
)


def spec(**more: object) -> dict[str, object]:
    statement: dict[str, object] = {
        "title": "Measured",
        "quantities": ["time"],
        "constants": {**LINKS, "algorithm": "ring"},
        "measured": {"table": str(DATA), "where": {"collective": "all_reduce"}},
    }
    return {**statement, **more}


def faults_of(statement: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        join_measured(read_sweep(statement, bare_is_si=False))
    return str(caught.value)


def ring(ranks: int, message: float) -> float:
    return 2 * (ranks - 1) * (1e-6 + message / ranks / 100e9)


def test_errors_are_predicted_over_measured() -> None:
    dataset = sweeps.run(spec())
    assert dataset["time"].dims == dataset["relative_error"].dims == ("case", "message_bytes")
    assert dataset["measured_time"].dims == ("case", "message_bytes")
    assert list(dataset["case"].values) == [FOUR, SIX]
    np.testing.assert_array_equal(dataset["message_bytes"], [2**10, 2**11, 2**20, 2**26])
    # 40 and 60 us were measured for 1 MiB: their median counts.
    measured = np.array([[12.5, np.nan, 50, 2000], [20, 30, np.nan, np.nan]]) * 1e-6
    np.testing.assert_allclose(dataset["measured_time"], measured, rtol=1e-14)
    predicted = [[ring(n, m) for m in dataset["message_bytes"].values] for n in (4, 6)]
    np.testing.assert_allclose(dataset["time"], predicted, rtol=1e-13)
    errors = np.array(predicted) / measured - 1
    np.testing.assert_allclose(dataset["relative_error"], errors, rtol=1e-12)
    sizes = np.abs(errors)
    middle = [[sizes[0, 0], sizes[0, 2], sizes[0, 3]], [sizes[1, :2].mean(), np.nan, np.nan]]
    np.testing.assert_allclose(dataset["median_error"], middle, rtol=1e-12)
    assert list(dataset["size_class"].values) == ["small", "medium", "large"]
    np.testing.assert_array_equal(dataset["measured_count"], [[1, 1, 1], [2, 0, 0]])
    signed = dataset["median_signed_error"].sel(case=SIX, size_class="small")
    assert float(signed) == pytest.approx(errors[1, :2].mean())
    assert float(signed) < 0


def test_everything_has_its_metadata() -> None:
    dataset = sweeps.run(spec())
    for name in ("measured_time", "relative_error", "median_error", "measured_count"):
        assert dataset[name].attrs["long_name"]
        assert dataset[name].attrs["units"]
    assert dataset["measured_time"].attrs["references"] == "a log"
    assert [one.kind for one in read(dataset["topology"].attrs)] == ["assumed"]
    assert list(dataset["table"].values) == ["first", "second"]


def test_network_follows_from_ranks_and_nodes() -> None:
    statement = spec(measured={"table": str(DATA)}, constants={**LINKS, "algorithm": "nccl"})
    dataset = sweeps.run(statement)
    topology = dict(zip(dataset["case"].values, dataset["topology"].values, strict=True))
    assert topology == {FOUR: "switch", NODES: "hierarchical", SIX: "switch"}
    # A ring through every card, which waits for nobody: the latencies of its path, two of its steps
    # between nodes, and the bytes of the slower link.
    for message in (2.0**10, 2.0**26):
        links = (7 / 8 * message / 16 / 100e9, message / 16 / 8 / 20e9)
        time = dataset["time"].sel(case=NODES, message_bytes=message)
        path = 13 * 1e-6 + 2 * 3e-6
        assert float(time) == pytest.approx(path + 15 * max(links), rel=1e-12)


def test_group_with_some_ranks_of_each_node(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text(
        "collective,hardware,ranks,nodes,message_bytes,time_us\n"
        "all_gather,dgx-h100,8,2,1048576,50\nall_gather,dgx-h100,16,2,1048576,50\n"
    )
    sweep, table = join_measured(read_sweep(spec(measured={"table": str(path)}), bare_is_si=False))
    axis = next(axis for axis in sweep.axes if axis.name == "case")
    np.testing.assert_array_equal(axis.columns["gpus_per_node"], [4, 8])
    assert list(axis.columns["topology"]) == ["hierarchical", "hierarchical"]
    assert list(axis.columns["case"]) == [
        "all_gather, dgx-h100, 2 x 4 ranks",
        "all_gather, dgx-h100, 2 x 8 ranks",
    ]
    assert table.references == ("few.csv",)


def test_further_axes_are_kept() -> None:
    statement = spec(constants=LINKS, axes={"algorithm": ["ring", "halving"]})
    dataset = sweeps.run(statement)
    assert set(dataset["relative_error"].dims) == {"case", "algorithm", "message_bytes"}
    assert dataset["measured_time"].dims == ("case", "message_bytes")
    expected = dataset["time"] / dataset["measured_time"] - 1
    np.testing.assert_allclose(
        dataset["relative_error"].transpose(*expected.dims), expected, rtol=1e-12
    )
    # Halving isn't defined on six ranks: measured, and nothing predicted.
    rows = {(row["table"], row["algorithm"]): row for row in error_rows(dataset)}
    assert rows["second", "halving"]["without_prediction"] == 2
    assert np.isnan(rows["second", "halving"]["median_error"])
    assert rows["second", "ring"]["without_prediction"] == 0
    assert any("not predicted" in line for line in error_lines(error_rows(dataset)))


def test_columns_in_any_order_of_dimensions() -> None:
    _, table = join_measured(read_sweep(spec(), bare_is_si=False))
    predicted = np.arange(1.0, 25.0).reshape(2, 4, 3) * 1e-5

    def of(dims: tuple[str, ...], values: np.ndarray) -> dict[str, Column]:
        return {column.name: column for column in table.columns(dims, values)}

    straight = of(("case", "message_bytes", "chunks"), predicted)
    turned = of(("chunks", "message_bytes", "case"), predicted.transpose())
    for name, dims in table.dims_of(("chunks", "message_bytes", "case")).items():
        assert turned[name].dims == dims
        left, right = straight[name].values, turned[name].values
        assert left is not None
        assert right is not None
        assert right.shape == tuple(
            {"case": 2, "message_bytes": 4, "chunks": 3, "size_class": 3}[dim] for dim in dims
        )
        order = [dims.index(dim) for dim in straight[name].dims]
        np.testing.assert_array_equal(left, right.transpose(order))


def test_a_prediction_that_varies_less_than_the_measurements() -> None:
    _, table = join_measured(read_sweep(spec(), bare_is_si=False))
    columns = {c.name: c for c in table.columns((), np.array(1e-5))}
    assert columns["relative_error"].dims == ("case", "message_bytes")
    np.testing.assert_allclose(columns["relative_error"].values, 1e-5 / table.time - 1)


def test_too_many_errors_are_refused() -> None:
    _, table = join_measured(read_sweep(spec(), bare_is_si=False))
    table.check_size({"case": 2, "message_bytes": 4, "ranks": 10**6})
    with pytest.raises(InputError, match="shorten an axis"):
        table.check_size({"case": 2, "ranks": 10**9})


def test_time_is_added_to_the_quantities() -> None:
    dataset = sweeps.run(spec(quantities=["steps"]))
    assert {"steps", "time", "relative_error"} <= set(dataset.data_vars)


def test_file_keeps_it_all(tmp_path: Path) -> None:
    job = prepare(spec())
    layout, blocks = job.result()
    write(tmp_path / "x.nc", layout, blocks)
    stored = open_dataset(tmp_path / "x.nc")
    fresh = job.dataset()
    for name in fresh.data_vars:
        np.testing.assert_array_equal(stored[name], fresh[name])
    assert error_rows(stored) == error_rows(fresh)
    dataset = recompute(stored)
    np.testing.assert_array_equal(dataset["time"], fresh["time"])


def test_another_table_is_another_result(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    statement = spec(measured={"table": str(path)})
    prints = []
    for time in ("10", "11"):
        path.write_text(
            f"collective,hardware,ranks,message_bytes,time_us\nall_reduce,dgx-h100,4,1024,{time}\n"
        )
        prints.append(prepare(statement).attrs["fingerprint"])
    assert prints[0] != prints[1]


def test_constants_stand_for_missing_columns(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text("size,time(us)\n1024,10\n65536,20\n")
    constants = {**LINKS, "algorithm": "ring", "ranks": 4, "hardware": "dgx-h100"}
    constants["collective"] = "all_reduce"
    measured = {"table": str(path), "columns": {"message_bytes": "size"}}
    dataset = sweeps.run(spec(constants=constants, measured=measured))
    assert list(dataset["case"].values) == ["measured"]
    errors = [ring(4, 1024) / 10e-6 - 1, ring(4, 65536) / 20e-6 - 1]
    np.testing.assert_allclose(np.ravel(dataset["relative_error"]), errors, rtol=1e-12)
    del constants["ranks"], constants["collective"]
    result = faults_of(spec(constants=constants, measured=measured))
    assert result.count("neither in the measured table nor in the spec") == 2


def test_further_columns_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "algorithms.csv"
    path.write_text(
        "collective,hardware,ranks,message_bytes,time_us,algo,link_GB/s\n"
        "all_reduce,dgx-h100,4,1024,10,ring,100\nall_reduce,dgx-h100,4,1024,10,halving,50\n"
    )
    columns = {"algorithm": "algo", "intra_bandwidth": "link_GB/s"}
    statement = spec(
        constants={"intra_latency": "1 us", "software": "none"},
        measured={"table": str(path), "columns": columns},
    )
    dataset = sweeps.run(statement)
    assert [str(name).split(", ")[3] for name in dataset["case"].values] == [
        "algorithm = ring",
        "algorithm = halving",
    ]
    expected = [ring(4, 1024), 4e-6 + 1.5 * 1024 / 50e9]
    np.testing.assert_allclose(np.ravel(dataset["time"]), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("measured", "result"),
    [
        ({}, "measured.table = None"),
        ({"table": "nccl-collectivs"}, "did you mean 'nccl-collectives' or"),
        ({"table": "no/such.csv"}, "no such file"),
        ({"table": str(DATA), "wher": {}}, "did you mean 'where'?"),
        ({"table": str(DATA), "where": {"hardwar": "dgx-h100"}}, "did you mean 'hardware'?"),
        ({"table": str(DATA), "where": {"hardware": "dgx-h10"}}, "did you mean 'dgx-h100'"),
        ({"table": str(DATA), "where": {"ranks": 5}}, "no row has it; known: 16.0, 4.0, 6.0"),
        (
            {"table": str(DATA), "where": {"ranks": 6, "hardware": "dgx-h100"}},
            "no row has all of it",
        ),
        ({"table": str(DATA), "columns": {"tim": "x"}}, "did you mean 'time'"),
        ({"table": str(DATA), "columns": {"time": "time_ms"}}, "did you mean 'time_us'?"),
        ({"table": str(DATA), "columns": {"time": 3}}, "not a text"),
        ({"table": str(DATA), "units": {"time": "GB"}}, "measured.units.time = 'GB'"),
    ],
)
def test_faults_of_the_spec(measured: dict[str, object], result: str) -> None:
    assert result in faults_of(spec(measured=measured))


def test_given_twice_is_a_fault() -> None:
    result = faults_of(spec(constants={"hardware": "dgx-h100", "ranks": 8, "gpus_per_node": 8}))
    for name in ("hardware", "ranks", "gpus_per_node"):
        assert f"{name} = '..': given twice" in result


@pytest.mark.parametrize(
    ("row", "result"),
    [
        ("all_reduce,dgx-h10,8,1,1024,10", "did you mean 'dgx-h100'"),
        ("all_reduce,dgx-h100,16,1,1024,10", "16 ranks a node of 8 GPUs"),
        ("all_reduce,dgx-h100,16,3,1024,10", "as many on each node"),
        ("all_reduce,mi300x,2,1,1024,10", "its nodes aren't a switch but fully connected"),
    ],
)
def test_faults_of_a_case(tmp_path: Path, row: str, result: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"collective,hardware,ranks,nodes,message_bytes,time_us\n{row}\n")
    assert result in faults_of(spec(measured={"table": str(path)}))


def test_rows_of_a_dataset_without_measurements() -> None:
    dataset = sweeps.sweep("time", topology="ring", ranks=8, message_bytes=[1e6, 1e9])
    with pytest.raises(InputError, match="a spec with"):
        error_rows(dataset)


# What is shipped.


def test_operations_outside_the_fit_are_of_other_sources() -> None:
    """They state what ran: rings where a log forced them, and on machines without NCCL."""
    fitted, outside = (
        read_table(find_table(name), {"algorithm": "algorithm"}).columns
        for name in ("nccl-collectives", "outside-collectives")
    )
    assert not set(fitted["source"].tolist()) & set(outside["source"].tolist())
    assert set(outside["hardware"].tolist()) <= set(hardware_names())
    rings = np.isin(outside["algorithm"], ["ring", "ring_path"])
    tables = {"truba-h100", "rccl-ainic", "hpe-mi300x", "hccl-demo"}
    tables |= {"mi300x-aac8", "mi300x-aac10", "mi325x-aac11", "mi355x-aac14"}
    assert set(outside["table"][rings].tolist()) == tables


def test_shipped_table_fits_the_catalogue() -> None:
    path = find_table("nccl-collectives")
    assert path.stat().st_size < 400_000
    columns = read_table(path).columns
    assert set(columns["hardware"].tolist()) <= set(hardware_names())
    assert all(columns["source"].tolist())
    assert len(columns["time"]) > 900
    # Some of them by hand, as the sources print them.
    printed = {
        ("nebius", 2.0**33): 34414.7e-6,
        ("oci", 2.0**30): 10877.45e-6,
        ("coreweave", 2.0**29): 1821.3e-6,
    }
    for (table, size), time in printed.items():
        chosen = (columns["table"] == table) & (columns["message_bytes"] == size)
        np.testing.assert_allclose(columns["time"][chosen], [time], rtol=1e-5)


def test_network_between_nodes_is_the_tables(tmp_path: Path) -> None:
    """A row is predicted as `collective` does with its fabric and its card's rate."""
    table = tmp_path / "mine.csv"
    table.write_text(
        "collective,hardware,ranks,nodes,message_bytes,time_us,fabric,inter_bandwidth_GB/s\n"
        "all_reduce,dgx-h100,16,2,1024,70,efa,12.5\n"
        "all_reduce,dgx-h100,16,2,268435456,9000,efa,12.5\n"
        "all_reduce,dgx-h100,32,4,1024,70,,\n",
        encoding="utf-8",
    )
    constants = {"algorithm": "nccl", "software": "nccl"}
    dataset = sweeps.run({"constants": constants, "measured": {"table": str(table)}})
    settings = {"efa": {"fabric": "efa", "inter_bandwidth": "12.5 GB/s"}, "none": {}}
    for case, (ranks, given) in enumerate(zip((16, 32), settings.values(), strict=True)):
        alone = sweeps.sweep(
            ["time"],
            hardware="dgx-h100",
            ranks=ranks,
            message_bytes=dataset["message_bytes"].values,
            topology="hierarchical",
            **constants,
            **given,
        )
        np.testing.assert_array_equal(dataset["time"][case], alone["time"])


@pytest.mark.thorough
def test_shipped_sweep_predicts_every_measurement() -> None:
    path = find_sweep("nccl-measured")
    sweep, text = load_sweep(path)
    job = prepare(sweep, text=text)
    dataset = job.dataset()
    rows = error_rows(dataset)
    assert sum(row["points"] for row in rows) > 800
    assert sum(row["without_prediction"] for row in rows) == 0
    # A switch's port can't be faster than its maker says, which long messages show.
    inside = (dataset["topology"] == "switch").values
    large = (dataset["message_bytes"] >= 2**24).values
    bare, priced = (dataset["relative_error"].sel(software=name) for name in ("none", "nccl"))
    assert np.nanmax(bare.values[np.ix_(inside, large)]) < 0.02
    # What the library adds makes up most of what links alone leave out.
    assert np.nanmedian(abs(priced)) < 0.15 * np.nanmedian(abs(bare))
    dims, variables = job.shape_of_result()
    assert set(dataset.data_vars) == set(variables)
    assert all(dataset[name].dims == tuple(variable) for name, variable in variables.items())
    figures = check_figures(sweep.figures, Subject(dims, variables))
    shown = {case for figure in figures for case in figure["at"]["case"]}
    assert shown <= set(dataset["case"].values)
    assert tomllib.loads(dataset.attrs["spec"])["measured"]["table"] == "nccl-collectives"
