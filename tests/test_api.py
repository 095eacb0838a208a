"""The interface for notebooks: `sweeps.sweep`, `run`, `open` and `recompute`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead import build_topology, collective
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from sweeps.errors import InputError
from sweeps.job import prepare
from sweeps.spec.axis import DEFAULT_QUANTITIES
from sweeps.store.netcdf import write
from sweeps.version import UNKNOWN

ROOT = Path(__file__).parents[1]


def test_a_sweep_by_names_selects_by_names() -> None:
    dataset = sweeps.sweep(
        "time", topology=["ring", "torus"], ranks=[8, 64], message_bytes=1e9, software="none"
    )
    assert dataset["time"].sel(topology="torus", ranks=64).dims == ()
    machine = build_topology("ring", 8, bandwidth=450e9, latency=8e-7)
    alone = collective("all_reduce", 1e9, machine).latency_s
    assert dataset["time"].sel(topology="ring", ranks=8).item() == float(alone)


def test_the_version_is_the_distribution_s() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert sweeps.__version__ in (stated, UNKNOWN)


def test_a_design_space_is_one_sweep_and_without_a_model_says_what_it_needs() -> None:
    """GPUs, messages, networks, links and parallel degrees: each variable has its own of them."""
    asked: dict[str, Any] = {
        "ranks": [8, 16],
        "message_bytes": [1e6, 1e9],
        "topology": ["ring", "torus"],
        "bandwidth": ["25GB/s", "50GB/s"],
        "tp": [1, 2],
    }
    with pytest.raises(InputError) as caught:
        sweeps.sweep(["time", "step_time"], **asked)
    first, length = caught.value.faults
    assert first.startswith("step_time needs a model; give model, such as llama3-70b, or each of ")
    assert length.startswith("step_time needs the sequence length in tokens; give sequence_length")
    more = {"model": "llama3-8b", "sequence_length": 4096, "global_batch_size": 16}
    dataset = sweeps.sweep(["time", "step_time"], **asked, **more)
    assert {*dataset.time.dims} == {"ranks", "message_bytes", "topology", "bandwidth"}
    assert {*dataset.step_time.dims} == {"ranks", "topology", "bandwidth", "tp"}


def test_one_cell_has_its_reason() -> None:
    dataset = sweeps.sweep(
        "time", topology="switch", algorithm="halving", ranks=12, message_bytes=1e6, software="none"
    )
    assert sweeps.reasons(dataset).item() == "ranks not power of two"


def test_reasons_say_why_there_is_no_value(tmp_path: Path) -> None:
    dataset = sweeps.sweep(
        ["step_time"],
        model="llama3-8b",
        hardware="dgx-h100",
        world_size=8,
        tp=[1, 3, 8],
        zero_stage=[0, 1],
        sequence_length=8192,
        global_batch_size=64,
    )
    result = sweeps.reasons(dataset)
    assert result.dims == dataset.status.dims
    exists = np.broadcast_to((result == "").to_numpy(), result.shape)
    assert np.array_equal(exists, (dataset.status == 0).to_numpy())
    assert "does not fit" in result.sel(tp=1, zero_stage=0).item()
    assert "heads" in result.sel(tp=3).to_numpy().ravel()[0]
    assert result.sel(tp=8, zero_stage=1).item() == ""
    with pytest.raises(InputError, match="has no status"):
        sweeps.reasons(dataset.drop_vars("status"))
    public = ["open", "prepare", "read", "reasons", "recompute", "run", "sensitivity", "sweep"]
    commands = "analysis buy calibrate catalog collective hops normal overlap page plan plot trace"
    others = ["InputError", "__version__", "to_dataframe", "tune"]
    assert dir(sweeps) == sorted([*public, *commands.split(), *others])


def test_a_table_is_tidy_and_has_words_for_codes() -> None:
    dataset = sweeps.sweep(
        ["time", "chosen_algorithm"],
        topology=["switch", "torus"],
        algorithm="halving",
        ranks=[8, 12],
        message_bytes="1MiB",
        hardware="dgx-h100",
        software="none",
    )
    table = sweeps.to_dataframe(dataset)
    assert (
        list(table)
        == "message_bytes algorithm hardware software topology ranks latency_s status".split()
    )
    assert len(table) == dataset["time"].size
    own = table[(table.topology == "switch") & (table.ranks == 8)].iloc[0]
    alone = dataset["time"].sel(topology="switch", ranks=8).item()
    assert (own.latency_s, own.algorithm, own.status) == (alone, "halving", "ok")
    hole = table[(table.topology == "switch") & (table.ranks == 12)].iloc[0]
    assert np.isnan(hole.latency_s)
    assert hole.status == "ranks_not_power_of_two"
    assert table.attrs["units"]["latency_s"] == "s"
    assert table.attrs["long_name"]["ranks"] == "ranks in the group"
    frame = sweeps.to_dataframe(dataset.sel(topology="switch"))
    assert len(frame) == 2
    assert {*frame.topology} == {"switch"}


def test_xarrays_own_plot_has_names_and_units() -> None:
    from matplotlib import pyplot

    dataset = sweeps.sweep(
        ["time"], topology="ring", ranks=[8, 16], message_bytes=["1KiB", "1MiB"], bandwidth="50GB/s"
    )
    dataset["time"].sel(ranks=8).plot()
    axes = pyplot.gca()
    words = [text.replace("\n", " ") for text in (axes.get_xlabel(), axes.get_ylabel())]
    assert words == ["message size (nccl-tests convention) [byte]", "collective time [s]"]
    assert "ranks = 8" in axes.get_title()
    pyplot.close("all")


def test_the_usual_quantities_come_by_themselves() -> None:
    dataset = sweeps.sweep(topology="ring", ranks=[8], message_bytes=1e9)
    result = {"time_band_low", "time_band_high", "error_band_samples", "status"}
    assert set(dataset.data_vars) == {*DEFAULT_QUANTITIES, *result}
    assert set(
        sweeps.sweep("time, steps", topology="ring", ranks=8, message_bytes=1).data_vars
    ) == {"time", "steps", "status"}


@pytest.mark.parametrize(
    "ranks",
    [
        [2, 4, 8],
        (2, 4, 8),
        range(2, 9, 1),
        np.array([2, 4, 8]),
        np.array([2.0, 4.0, 8.0]),
        [np.int32(2), 4.0, "8"],
        "2:8:x2",
        "8, 2,4",
        "2,4:8:x2",
    ],
)
def test_values_of_an_axis_in_any_form(ranks: object) -> None:
    dataset = sweeps.sweep("steps", topology="ring", ranks=ranks, message_bytes=1e6)
    assert dataset["steps"].dims == ("ranks",)
    expected = list(ranks) if isinstance(ranks, range) else [2, 4, 8]
    assert dataset.coords["ranks"].to_numpy().tolist() == expected


@pytest.mark.parametrize(
    "size", [1e9, "1e9", "1 GB", "1000MB", np.float64(1e9), np.array(1e9), 10**9]
)
def test_one_value_in_any_form_makes_no_axis(size: object) -> None:
    dataset = sweeps.sweep("time", topology="ring", ranks=8, message_bytes=size)
    assert dataset["time"].dims == ()
    assert dataset.attrs["message_bytes"] == 1e9


def test_numbers_are_si_and_text_may_have_units() -> None:
    plain = sweeps.sweep("time", topology="ring", ranks=8, message_bytes=2**20, bandwidth=5e10)
    units = sweeps.sweep(
        "time", topology="ring", ranks=8, message_bytes="1MiB", bandwidth="400 Gbit/s"
    )
    assert plain["time"].item() == units["time"].item()


def test_all_means_each_that_there_is() -> None:
    dataset = sweeps.sweep("time", topology="all", collective="all", ranks=8, message_bytes=1e6)
    assert dataset.sizes["topology"] == len(NETWORKS)
    assert dataset.sizes["collective"] == 7
    names = sweeps.sweep("time", topology="ring", algorithm="all", ranks=8, message_bytes=1e6)
    there = {algorithm.name for algorithm in ALGORITHMS.of("ring", "all_reduce")}
    assert set(names["algorithm"].to_numpy()) == there
    assert np.isfinite(names["time"]).all()
    both = sweeps.sweep(
        "time", topology=["ring", "mesh"], algorithm="all", ranks=8, message_bytes=1e6
    )
    assert np.isfinite(both["time"]).any("topology").all()


@pytest.mark.thorough
def test_runs_a_mapping_a_path_and_a_name(tmp_path: Path) -> None:
    statement = dict(
        quantities=["time"], axes={"ranks": [4, 8]}, constants={"message_bytes": "1 MB"}
    )
    path = tmp_path / "mine.toml"
    path.write_text(
        'quantities = ["time"]\naxes.ranks = [4, 8]\nconstants.message_bytes = "1 MB"\n'
    )
    datasets = [sweeps.run(statement), sweeps.run(path), sweeps.run(str(path))]
    for dataset in datasets[1:]:
        np.testing.assert_array_equal(datasets[0]["time"], dataset["time"])
    shipped = sweeps.run("quickstart")
    assert shipped.sizes["ranks"] == 10
    assert np.isfinite(shipped["time"].sel(topology="ring")).all()


def test_machines_of_ones_own(tmp_path: Path) -> None:
    text = (ROOT / "specs/hardware/dgx-h100.toml").read_text(encoding="utf-8")
    text = text.replace('name = "dgx-h100"', 'name = "mine"').replace('"0.8 us"', '"1.6 us"')
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    axes = {"topology": "ring", "ranks": 8, "message_bytes": 0, "software": "none"}
    dataset = sweeps.sweep("time", hardware="mine", hardware_folders=[tmp_path], **axes)
    assert dataset["time"].item() == pytest.approx(14 * 1.6e-6)
    both = sweeps.sweep(
        "time", hardware=["mine", "dgx-h100"], hardware_folders=[str(tmp_path)], **axes
    )
    assert both["time"].to_numpy().tolist() == pytest.approx([14 * 1.6e-6, 14 * 0.8e-6])
    by_path = sweeps.sweep("time", hardware=str(tmp_path / "mine.toml"), **axes)
    assert by_path["time"].item() == dataset["time"].item()
    spec = tmp_path / "spec.toml"
    spec.write_text(
        '[constants]\nhardware = "mine"\nranks = 8\nmessage_bytes = "0 B"\ntopology = "ring"\n'
        'software = "none"\n'
    )
    assert sweeps.run(spec, hardware_folders=[tmp_path])["time"].item() == dataset["time"].item()
    with pytest.raises(InputError, match=r"spec.toml: hardware = 'mine': not in the catalog"):
        sweeps.run(spec)


def test_a_machine_without_links_between_nodes_has_those_within(tmp_path: Path) -> None:
    text = (ROOT / "specs/hardware/dgx-h100.toml").read_text(encoding="utf-8")
    head, _, rest = text.replace('name = "dgx-h100"', 'name = "alone"').partition("[scale_out]")
    tail = rest[rest.index("[device]") :]
    (tmp_path / "alone.toml").write_text(head + tail, encoding="utf-8")
    dataset = sweeps.sweep(
        ["time", "busbw"],
        topology="ring",
        ranks=[8, 16],
        hardware="alone",
        hardware_folders=[tmp_path],
        message_bytes=1e6,
    )
    assert np.isfinite(dataset["time"]).to_numpy().tolist() == [True, False]
    assert (dataset["status"] != 0).any()


def test_opens_what_was_stored(tmp_path: Path) -> None:
    job = prepare(
        {
            "axes": {"topology": ["ring", "torus"], "ranks": [8, 64]},
            "constants": {"message_bytes": 1e9},
        }
    )
    layout, blocks = job.result()
    write(tmp_path / "x.nc", layout, blocks)
    with sweeps.open(tmp_path / "x.nc") as dataset:
        assert dataset["time"].sel(topology="torus", ranks=64).item() > 0
        np.testing.assert_array_equal(dataset["time"], job.dataset()["time"])
        assert dataset["topology"].to_numpy().tolist() == ["ring", "torus"]
    with pytest.raises(InputError, match="no such file"):
        sweeps.open(tmp_path / "nothing.nc")


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        sweeps.sweep(
            ["tiem"],
            topology=["ring", "rnig"],
            ranks=[0, 8],
            message_bytes="5 s",
            hardware="dgx-h10",
            chunks=1.5,
        )
    assert len(caught.value.faults) == 6
    assert all(": " in line and "; " in line for line in caught.value.faults)


def test_importing_is_light() -> None:
    """Heavy libraries come when they are used."""
    script = """
import sys, sweeps
heavy = {"xarray", "matplotlib", "netCDF4", "rich", "numpy"}
print(sorted(heavy & set(sys.modules)))
sweeps.sweep
print(sorted(heavy & set(sys.modules)))
"""
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.split("\n")[:2] == ["[]", "['numpy']"]


def test_an_unknown_name_of_the_module() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'swep'"):
        sweeps.swep  # noqa: B018


def test_a_latency_that_a_library_s_step_takes_is_no_idle_one(
    recwarn: pytest.WarningsRecorder,
) -> None:
    asked = {"collective": "all_reduce", "hardware": "dgx-h100", "ranks": 64, "message_bytes": 1e6}
    plain, slower = (
        float(sweeps.sweep("time", **asked, intra_latency=number).time) for number in (8e-7, 1e-6)
    )
    assert slower > plain
    assert not recwarn.list
