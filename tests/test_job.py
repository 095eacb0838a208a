"""A stored sweep holds all that it takes to compute it again."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweeps
from overhead.collectives.algorithm import NETWORKS
from sweeps.errors import InputError
from sweeps.job import Job, prepare
from sweeps.spec.sweep import load_sweep, read_sweep
from sweeps.spec.units import to_toml, with_si_units, with_unit
from sweeps.store.netcdf import write
from tests.tables import examples

SPECS: dict[str, dict[str, Any]] = examples(__file__, "specs")


def stored(path: Path, job: Job) -> Path:
    layout, blocks = job.result()
    write(path, layout, blocks)
    return path


def same(left: xr.Dataset, right: xr.Dataset) -> None:
    """Compare values, bit for bit, and labels."""
    assert set(left.data_vars) == set(right.data_vars)
    assert dict(left.sizes) == dict(right.sizes)
    for name, variable in left.data_vars.items():
        assert variable.dims == right[name].dims, name
        assert variable.dtype == right[name].dtype, name
        assert variable.to_numpy().tobytes() == right[name].to_numpy().tobytes(), name
    for name, coordinate in left.coords.items():
        np.testing.assert_array_equal(coordinate, right.coords[name], str(name))


@pytest.mark.thorough_cases("machines", "table", "auto")
@pytest.mark.parametrize("name", SPECS)
def test_a_file_computes_itself_again_bit_for_bit(name: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "x.nc", prepare(SPECS[name]))
    with sweeps.open(path) as dataset:
        same(dataset, sweeps.recompute(dataset))
        same(dataset, prepare(SPECS[name]).dataset())


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("name", SPECS)
def test_a_stored_spec_is_a_spec_file_of_the_same_dataset(name: str, tmp_path: Path) -> None:
    with sweeps.open(stored(tmp_path / "x.nc", prepare(SPECS[name]))) as dataset:
        text = dataset.attrs["spec"]
        spec = tmp_path / "again.toml"
        spec.write_text(text, encoding="utf-8")
        repeated_dataset = sweeps.run(spec)
        same(dataset, repeated_dataset)
        assert repeated_dataset.attrs["spec"] == text
        assert list(repeated_dataset.sizes) == list(dataset.sizes)


def test_what_a_notebook_gives_reads_back_as_a_spec(tmp_path: Path) -> None:
    dataset = sweeps.sweep(
        ["time", "energy"],
        topology=("ring", "torus"),
        ranks=np.array([4, 16]),
        message_bytes=range(1000, 4000, 1000),
        bandwidth=[1e9, float("inf")],
        latency=np.float32(1e-6),
        energy_per_bit="5 pJ/bit",
        phase_chunks=np.int64(2),
    )
    spec = tmp_path / "again.toml"
    spec.write_text(dataset.attrs["spec"], encoding="utf-8")
    same(dataset, sweeps.run(spec))


@pytest.mark.thorough
def test_the_same_spec_twice_makes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, spec in SPECS.items():
        files = [stored(tmp_path / f"{name}-{k}.nc", prepare(spec)).read_bytes() for k in range(2)]
        assert files[0] == files[1], name


def print_of(spec: dict[str, Any], **options: Any) -> str:
    return prepare(spec, **options).attrs["fingerprint"]


def test_the_fingerprint_tells_apart_whatever_changes_the_file(tmp_path: Path) -> None:
    spec = SPECS["machines"]
    first = print_of(spec)
    assert print_of(spec) == first
    settings = {"axes": {**spec["axes"], "ranks": "1:32:x2"}}
    prints = {first, print_of(settings), print_of(spec, options={"compress": True})}
    # A user's own machine: its figures, their sources, and what its switch can do.
    shipped = Path(__file__).parents[1] / "specs/hardware/dgx-h100.toml"
    text = shipped.read_text(encoding="utf-8").replace('name = "dgx-h100"', 'name = "mine"')
    definition = {"constants": {"hardware": "mine", "ranks": 8, "message_bytes": 1e6}}
    machine = tmp_path / "mine.toml"
    texts = {
        text,
        text.replace('"450 GB/s"', '"450.5 GB/s"'),
        text.replace('["nvls"]', "[]"),
        text.replace("all 18 NVLink 4 links", "each of 18 NVLink 4 links"),
    }
    assert len(texts) == 4
    for changed in texts:
        machine.write_text(changed, encoding="utf-8")
        prints.add(print_of(definition, folders=[tmp_path]))
    assert len(prints) == 3 + 4


# Text of specs.


def test_numbers_get_the_unit_of_their_quantity() -> None:
    cases = {
        ("message_bytes", 1e9): "1000000000.0 B",
        ("message_bytes", "1e9"): "1e9 B",
        ("message_bytes", "1:1e6:log7"): "1 B:1e6 B:log7",
        ("latency", "0:1e-6:+1e-7"): "0 s:1e-6 s:+1e-7 s",
        ("latency", "0,1us"): "0 s,1us",
        ("latency", "0:2us:lin3"): "0 s:2us:lin3",
        ("bandwidth", "4e11,inf"): "4e11 B/s,inf",
        ("bandwidth", "18*25e9"): "(18*25e9) B/s",
        ("bandwidth", float("inf")): float("inf"),
        ("energy_per_bit", (1e-12, "5 pJ/bit")): ["1e-12 J/bit", "5 pJ/bit"],
        ("reduction_cost", 0): "0 s/B",
        # Left as they are: plain numbers, labels, what has units, and a slip that reading tells.
        ("ranks", "8,16"): "8,16",
        ("topology", "ring"): "ring",
        ("message_bytes", "64MiB,128MiB"): "64MiB,128MiB",
        ("message_bytes", "64,128MiB"): "64,128MiB",
        ("message_bytes", "64 MiB"): "64 MiB",
        ("nothing", 7): 7,
    }
    for (name, value), expected in cases.items():
        assert with_unit(name, value) == expected, (name, value)


@pytest.mark.parametrize(("name", "text"), examples(__file__, "text_with_units_means_the_same"))
def test_text_with_units_means_the_same(name: str, text: str) -> None:
    given = {"ranks": 8, "message_bytes": 1e6} | {name: text}
    bare = prepare(
        {"axes": {name: text}, "constants": {k: v for k, v in given.items() if k != name}}
    )
    (axis,) = (axis for axis in bare.program.grid.axes if axis.name == name)
    read = read_sweep(tomllib.loads(bare.text), bare_is_si=False)
    (repeated_axis,) = (axis for axis in read.axes if axis.name == name)
    np.testing.assert_array_equal(repeated_axis.columns[name], axis.columns[name])


def test_toml_reads_back_as_it_was() -> None:
    statement = {
        "title": 'A "quoted" \\ title\nwith two lines,\ta tab, \x7f, \x01 and é',
        "quantities": ["time", "steps"],
        "axes": {
            "case": {"ranks": [8, 4], "topology": ["ring", "torus"]},
            "message_bytes": [1e3, 1e-7, 3],
            "latency": "1us,2us",
        },
        "constants": {"bandwidth": float("inf"), "hops": 3},
        "figures": [
            {"kind": "curves", "at": {"ranks": 8, "a key": "x"}, "lines": ["topology"]},
            {"kind": "best", "log": True},
        ],
        "reductions": [{"quantity": "time", "over": ["ranks"], "quantiles": [0.1]}],
        "measured": {"table": "x.csv", "where": {"gpu": "H100"}},
    }
    document = tomllib.loads(to_toml(statement))
    assert document == statement
    assert list(document["axes"]) == list(statement["axes"])  # type: ignore[call-overload]
    assert tomllib.loads(to_toml(with_si_units(statement)))["axes"]["latency"] == "1us,2us"


def test_numpy_numbers_are_written_as_numbers() -> None:
    statement = {
        "axes": {"ranks": np.array([8, 16]), "hops": np.int64(3), "latency": (np.float64(1e-6),)}
    }
    assert tomllib.loads(to_toml(statement)) == {
        "axes": {"ranks": [8, 16], "hops": 3, "latency": [1e-6]}
    }


# Changes from the command line.

SPEC = examples(__file__, "spec")


def changed(tmp_path: Path, *settings: str) -> Job:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC, encoding="utf-8")
    sweep, text = load_sweep(path, settings)
    return prepare(sweep, text=text)


def test_settings_change_a_spec_and_its_text(tmp_path: Path) -> None:
    job = changed(
        tmp_path,
        "ranks=8,16,32",
        "message_bytes=1e6",
        "axes.topology=all",
        "title=Another",
        "quantities=time,steps",
        "latency=0,2e-6",
        "hardware=dgx-h100",
    )
    assert job.sweep.title == "Another"
    assert job.sweep.quantities == ("time", "steps")
    assert job.program.grid.sizes == {"topology": len(NETWORKS), "latency": 2, "ranks": 3}
    assert job.program.grid.constants["message_bytes"] == 1e6
    assert read_sweep(tomllib.loads(job.text), bare_is_si=False).title == "Another"
    # An axis may become a constant and the other way round.
    assert changed(tmp_path, "ranks=8").program.grid.constants["ranks"] == 8
    assert changed(tmp_path, "topology=ring,torus").program.grid.sizes["topology"] == 2
    assert changed(tmp_path, "constants.ranks=8").program.grid.constants["ranks"] == 8
    assert changed(tmp_path, "topology=all").program.grid.sizes["topology"] == len(NETWORKS)


@pytest.mark.parametrize(("setting", "line"), examples(__file__, "settings_that_cannot_be"))
def test_settings_that_cannot_be(tmp_path: Path, setting: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        changed(tmp_path, setting)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(line)


# Sizes.


def test_a_job_says_what_it_would_compute() -> None:
    job = prepare(
        {
            "axes": {"ranks": [2, 4, 8], "message_bytes": "1:1000:log10"},
            "constants": {"software": "none"},
            "quantities": ["time", "steps"],
        }
    )
    lines = list(job.estimate())
    assert "axis message_bytes: 10" in lines
    assert "grid: 30 cells" in lines
    assert "time over ranks, message_bytes: 30 cells" in lines
    assert "steps over ranks: 3 cells" in lines
    assert sum(job.cells.values()) == 30 + 3 + 1


def test_a_sweep_that_memory_cannot_hold_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"are more than the memory holds; run it into a file"):
        sweeps.sweep(["time"], latency="1e-7:1:log100000", message_bytes="1:1e9:log900000", ranks=8)


def test_a_sweep_that_no_disk_holds_is_refused_at_once() -> None:
    axes = {"latency": "1e-7:1:log100000", "message_bytes": "1:1e9:log100000", "ranks": "2:1001:+1"}
    job = prepare({"quantities": ["time"], "axes": axes, "constants": {"topology": "switch"}})
    with pytest.raises(InputError, match=r"1e\+13 cells, 80 TB; at most .* ask for a reduction"):
        job.check_size()


@pytest.mark.thorough
def test_steps_along_links_and_networks_at_once_are_refused_before_they_fill_memory() -> None:
    axes = {"latency": "1e-7:1:log100000", "ranks": "2:1001:+1"}
    asked = {"quantities": ["time"], "axes": axes, "constants": {"message_bytes": 1e6}}
    with pytest.raises(InputError, match="values of a library's steps"):
        prepare(asked)
