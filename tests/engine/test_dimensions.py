"""A variable has the dimensions on which it depends and no others, in memory and in the file."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import sweeps
from sweeps.job import prepare
from sweeps.origin import read
from sweeps.spec.axis import DEFAULT_QUANTITIES
from sweeps.store.netcdf import write

# The exact forms alone.
BARE = {"software": "none", "algorithm": "standard"}
# Dimensions of each variable over: every axis below, ring and hierarchical networks.
AXES = {
    **BARE,
    "hardware": ["dgx-a100", "dgx-h100"],
    "collective": ["all_reduce", "all_gather", "broadcast"],
    "topology": ["ring", "hierarchical"],
    "latency_per": ["hop", "message"],
    "ranks": [8, 16, 32],
    "oversubscription": [1, 2, 3, 4],
    "message_bytes": [1e3, 1e5, 1e6, 1e7, 1e9],
}
ORDER = tuple(
    "hardware latency_per collective topology ranks oversubscription message_bytes".split()
)


def stored(
    path: Path, axes: dict[str, object], quantities: list[str]
) -> dict[str, tuple[str, ...]]:
    """Write a sweep and return its variables' dimensions as a plain reader finds them."""
    job = prepare({"axes": axes, "quantities": quantities})
    layout, blocks = job.result()
    write(path, layout, blocks)
    with netCDF4.Dataset(path) as file:
        return {
            name: file[name].dimensions
            for name in (*quantities, "status")
            if name in file.variables
        }


@pytest.fixture(scope="module")
def whole() -> xr.Dataset:
    return sweeps.sweep([*DEFAULT_QUANTITIES, "bus_factor", "serialization_time", "nodes"], **AXES)


def test_each_variable_varies_along_what_it_depends_on(whole: xr.Dataset) -> None:
    # How a broadcast by a chain is cut into chunks depends on all of its links, but neither the
    # bytes that it sends nor their energy depend on that.
    bytes_along = ("hardware", "collective", "topology", "ranks", "message_bytes")
    assert {str(name): variable.dims for name, variable in whole.data_vars.items()} == {
        **dict.fromkeys(DEFAULT_QUANTITIES, ORDER),
        "sent_bytes": bytes_along,
        "link_bytes": bytes_along,
        "energy": bytes_along,
        "chosen_algorithm": ("collective", "topology"),
        "bus_factor": ("collective", "ranks"),
        "serialization_time": ("hardware", "ranks", "message_bytes"),
        "nodes": ("hardware", "topology", "ranks"),
        "status": ("hardware", "topology", "ranks"),
    }


def test_of_a_ring_in_memory_and_in_the_file(tmp_path: Path) -> None:
    axes = {
        **BARE,
        "hardware": ["dgx-a100", "dgx-h100"],
        "collective": ["all_reduce", "all_gather"],
        "topology": ["ring"],
        "ranks": [2, 4, 8],
        "message_bytes": [1e3, 1e6, 1e7, 1e9],
    }
    by_link = ("hardware", "collective", "ranks", "message_bytes")
    by_message = ("collective", "ranks", "message_bytes")
    wanted = {
        **dict.fromkeys(DEFAULT_QUANTITIES, by_link),
        "latency_time": ("hardware", "collective", "ranks"),
        "steps": ("collective", "ranks"),
        "sent_bytes": by_message,
        "link_bytes": by_message,
        "bus_factor": ("collective", "ranks"),
        "chosen_algorithm": (),
    }
    dataset = sweeps.sweep(list(wanted), **axes)
    assert {name: dataset[name].dims for name in wanted} == wanted
    assert dataset["status"].dims == ()
    in_file = stored(tmp_path / "x.nc", axes, list(wanted))
    assert in_file == {**wanted, "status": ()}
    # The file is no larger than its variables together and a header.
    assert (tmp_path / "x.nc").stat().st_size < dataset.nbytes + 150_000


def test_the_algorithm_chosen_varies_along_the_message() -> None:
    axes = {"topology": "switch", "ranks": [4, 64], "message_bytes": [1e2, 1e4, 1e9]}
    auto = sweeps.sweep(["chosen_algorithm", "steps", "bus_factor"], algorithm="auto", **axes)
    assert auto["chosen_algorithm"].dims == ("ranks", "message_bytes")
    assert auto["steps"].dims == ("ranks", "message_bytes")
    assert auto["bus_factor"].dims == ("ranks",)
    assert len(np.unique(auto["chosen_algorithm"])) > 1
    standard = sweeps.sweep(["chosen_algorithm", "steps"], **BARE, **axes)
    assert standard["chosen_algorithm"].dims == ()
    assert standard["steps"].dims == ("ranks",)
    # What a library takes depends on the message, and so does its time beside links.
    nccl = sweeps.sweep(["chosen_algorithm", "latency_time"], **axes)
    assert nccl["chosen_algorithm"].dims == nccl["latency_time"].dims == ("ranks", "message_bytes")


def test_counts_do_not_vary_along_what_pays_a_latency() -> None:
    axes = {**BARE, "topology": "torus", "ranks": [16, 64], "message_bytes": 1e6}
    names = ["latency_time", "steps", "sent_bytes", "link_bytes", "bandwidth_time", "energy"]
    dataset = sweeps.sweep(names, collective="all_to_all", latency_per=["hop", "message"], **axes)
    assert dataset["latency_time"].dims == ("latency_per", "ranks")
    for name in names[1:]:
        assert dataset[name].dims == ("ranks",), name


def test_labels_select(whole: xr.Dataset) -> None:
    at = {"hardware": "dgx-h100", "collective": "all_gather", "topology": "ring"}
    cell = whole["time"].sel(at).sel(latency_per="hop", ranks=16, message_bytes=1e6)
    alone = sweeps.sweep("time", ranks=16, message_bytes=1e6, **BARE, **at)
    np.testing.assert_array_equal(cell.isel(oversubscription=0), alone["time"])


def test_order_is_labels_then_numbers_with_the_longest_last(whole: xr.Dataset) -> None:
    assert whole["time"].dims == ORDER
    # However the user says it, and a table of labels counts as labels.
    backwards = sweeps.sweep("time", **dict(reversed(AXES.items())))
    assert backwards["time"].dims == ORDER
    table = {"topology": ["ring", "torus"], "ranks": [8, 16]}
    mixed = sweeps.sweep("time", message_bytes=[1e3, 1e6, 1e9], latency=[1e-6], case=table)
    assert mixed["time"].dims == ("case", "latency", "message_bytes")


def test_an_axis_of_one_is_kept_and_a_single_value_is_none() -> None:
    listed = sweeps.sweep("time", topology=["ring"], ranks=[8], message_bytes=[1e6])
    assert dict(listed.sizes) == {"topology": 1, "ranks": 1, "message_bytes": 1}
    assert listed["time"].dims[-2:] == ("ranks", "message_bytes")
    single = sweeps.sweep("time", topology="ring", ranks=8, message_bytes=1e6)
    assert dict(single.sizes) == {}
    assert single["time"].dims == ()
    assert single["time"].item() == listed["time"].item()
    assert single.attrs["ranks"] == 8.0
    assert single.attrs["topology"] == "ring"


def test_a_table_is_one_dimension_with_its_columns_as_coordinates() -> None:
    case = {
        "topology": ["torus", "ring", "hierarchical", "ring"],
        "hardware": ["tpu-v5p", "dgx-h100", "dgx-a100", "dgx-h100"],
        "ranks": [64, 8, 16, 8],
        "collective": ["all_to_all", "all_reduce", "all_gather", "broadcast"],
    }
    dataset = sweeps.sweep(["time", "steps", "nodes"][:2], case=case, message_bytes=[1e4, 1e8])
    assert dataset["time"].dims == ("case", "message_bytes")
    assert dataset["case"].to_numpy().tolist() == [0, 1, 2, 3]
    for name, values in case.items():
        assert dataset.coords[name].dims == ("case",)
        assert dataset.coords[name].to_numpy().tolist() == values
    # What follows from the machine goes along with it.
    assert dataset.coords["intra_bandwidth"].dims == ("case",)
    for row in range(4):
        at = {name: values[row] for name, values in case.items()}
        alone = sweeps.sweep(["time", "steps"], message_bytes=[1e4, 1e8], **at)
        np.testing.assert_array_equal(dataset["time"][row], alone["time"])
        steps = dataset["steps"].isel(case=row)
        np.testing.assert_array_equal(np.broadcast_to(steps, 2), np.broadcast_to(alone["steps"], 2))


def test_rows_of_a_table_stay_in_their_order_however_they_are_written() -> None:
    """A column given as text is not sorted: its values belong to those beside them."""
    text = {"topology": "ring, switch,torus", "ranks": "8,4, 16", "latency": "3us,1us,2 us"}
    listed = dict(
        topology=["ring", "switch", "torus"], ranks=[8, 4, 16], latency=[3e-6, 1e-6, 2e-6]
    )
    pieces = dict(topology=["ring", "switch", "torus"], ranks=["8,4", 16], latency="3us,1us,2us")
    datasets = [
        sweeps.sweep("time", case=case, message_bytes=1e6) for case in (text, listed, pieces)
    ]
    assert datasets[0].coords["ranks"].to_numpy().tolist() == [8, 4, 16]
    for dataset in datasets[1:]:
        np.testing.assert_array_equal(datasets[0]["time"], dataset["time"])
        np.testing.assert_allclose(
            datasets[0].coords["latency"], dataset.coords["latency"], rtol=1e-15
        )


def test_a_table_may_hold_a_value_twice_and_a_number_without_labels() -> None:
    link = {"bandwidth": [1e11, 1e11, 4e11], "latency": [1e-6, 2e-6, 1e-6]}
    dataset = sweeps.sweep("time", topology="ring", ranks=8, message_bytes=[1e6], link_kind=link)
    assert dataset["time"].dims == ("message_bytes", "link_kind")
    times = dataset["time"].to_numpy()[0]
    assert times[1] - times[0] == pytest.approx(14e-6)
    assert times[2] < times[0]


def test_eight_dimensions() -> None:
    axes = {
        "collective": ["all_reduce", "all_gather"],
        "topology": ["hierarchical", "ring"],
        "algorithm": ["standard", "auto"],
        "hardware": ["dgx-h100", "dgx-a100"],
        "ranks": [8, 32],
        "oversubscription": [1, 2, 3],
        "inter_latency": [1e-6, 2e-6],
        "message_bytes": [1e3, 1e6, 1e9],
    }
    dataset = sweeps.sweep(["time", "steps"], **axes)
    assert dataset["time"].ndim == 8
    assert dataset["time"].size == 2 * 2 * 2 * 2 * 2 * 3 * 2 * 3
    cell = {name: values[-1] for name, values in axes.items()}  # type: ignore[index]
    alone = sweeps.sweep("time", **cell)
    assert dataset["time"].sel(cell).item() == alone["time"].item()


def test_names_and_units_stand_on_every_variable_and_coordinate(whole: xr.Dataset) -> None:
    for name, variable in whole.variables.items():
        assert variable.attrs["long_name"], name
        if variable.dtype.kind == "f":
            assert variable.attrs["units"], name
            assert variable.attrs["symbol"].startswith("$"), name
    assert whole["time"].attrs["units"] == "s"
    first, *_ = read(whole.coords["intra_bandwidth"].attrs)
    assert (first.owner, first.kind) == ("dgx-a100", "specification")
    assert [one.kind for one in read(whole.coords["ranks"].attrs)] == ["given"]
    for name in ("time", "busbw", "steps", "energy"):
        assert whole[name].attrs["formula"], name
        assert whole[name].attrs["references"], name
