"""Filters, types and attributes in the file, as a plain reader sees them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sweeps.engine.grid import Column
from sweeps.store.encode import chunk_shape
from sweeps.store.netcdf import open_dataset, write
from tests.store.layouts import STATUS, Case, axis, blocks, layout, number, usual


def large(count: int = 300) -> Case:
    made = layout(
        (axis("ranks", np.arange(1.0, 1.0 + count)), axis("size", np.arange(1.0, 1001.0))),
        (number("time", ("ranks", "size")),),
    )
    ranks, size = np.arange(1.0, 1.0 + count), np.arange(1.0, 1001.0)
    return made, {"time": 1e-6 * ranks[:, None] + size / 3e9 / ranks[:, None]}


def filters(path: Path, name: str) -> tuple[bool, int, bool, Any]:
    with netCDF4.Dataset(path) as dataset:
        outcome_found = dataset[name].filters()
        assert not any(outcome_found[key] for key in ("zstd", "bzip2", "szip", "fletcher32"))
        assert dataset[name].quantization() is None
        return (
            outcome_found["zlib"],
            outcome_found["complevel"],
            outcome_found["shuffle"],
            dataset[name].chunking(),
        )


def test_by_default_numbers_are_plain_and_flags_are_small(tmp_path: Path) -> None:
    made, values = usual()
    write(tmp_path / "a.nc", made, blocks(values))
    assert filters(tmp_path / "a.nc", "time") == (False, 0, False, "contiguous")
    assert filters(tmp_path / "a.nc", "message_bytes")[3] == "contiguous"
    assert filters(tmp_path / "a.nc", "chosen_algorithm")[:3] == (True, 1, False)
    assert filters(tmp_path / "a.nc", "status")[:3] == (True, 1, True)
    with netCDF4.Dataset(tmp_path / "a.nc") as dataset:
        assert dataset.data_model == "NETCDF4"
        assert not any(dimension.isunlimited() for dimension in dataset.dimensions.values())
        filled = {name for name in dataset.variables if "_FillValue" in dataset[name].ncattrs()}
        assert filled == {"time", "steps", "bound"}
        assert math.isnan(dataset["time"]._FillValue)
        assert dataset["topology"].dtype == np.dtype("S1")
        assert dataset["topology"].dimensions == ("topology", "topology_strlen")
        assert list(dataset["topology"][:]) == ["ring", "torus", "多級交換"]
        assert dataset["status"].flag_masks.dtype == np.int16
        assert dataset["chosen_algorithm"].flag_values.dtype == np.int8
        assert dataset["time"].ancillary_variables == "status"
        assert dataset["time"].coordinates == "rate vendor dp"
        assert dataset["steps"].coordinates == "dp"
        assert "coordinates" not in dataset["bound"].ncattrs()
        assert not {"latency", "collective"} & {*dataset.variables}
        assert (dataset.latency, dataset.collective) == (1e-6, "all_reduce")
        assert all("checksum" in variable.ncattrs() for variable in dataset.variables.values())
        assert not any("coordinates" in dataset[name].ncattrs() for name in ("plan", "dp"))
        assert "coordinates" not in dataset.ncattrs()


def test_flags_are_small_however_wide(tmp_path: Path) -> None:
    flag = Column("status", ("x",), np.dtype("i4"), STATUS)
    count = Column("count", ("x",), np.dtype("i4"), {"long_name": "count", "units": "1"})
    made = layout((axis("x", np.arange(9.0)),), (flag, count))
    write(tmp_path / "a.nc", made, blocks({name: np.arange(9) for name in ("status", "count")}))
    assert filters(tmp_path / "a.nc", "status")[:3] == (True, 1, True)
    assert filters(tmp_path / "a.nc", "count") == (False, 0, False, "contiguous")


def test_compress_is_lossless_in_chunks_below_a_mebibyte(tmp_path: Path) -> None:
    made, values = large()
    plain = write(tmp_path / "plain.nc", made, blocks(values, 7))
    small = write(tmp_path / "small.nc", made, blocks(values, 7), compress=True)
    assert filters(tmp_path / "small.nc", "time")[:3] == (True, 4, True)
    chunks = filters(tmp_path / "small.nc", "time")[3]
    assert math.prod(chunks) * 8 <= 1 << 20
    assert small.nbytes < plain.nbytes
    assert small.checksums == plain.checksums
    with open_dataset(tmp_path / "small.nc") as stored:
        assert stored["time"].values.tobytes() == values["time"].tobytes()


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=5), st.sampled_from([1, 2, 4, 8]))
def test_chunks_are_small_runs_of_cells(shape: list[int], itemsize: int) -> None:
    chunk = chunk_shape(tuple(shape), itemsize)
    assert all(1 <= part <= whole for part, whole in zip(chunk, shape, strict=True))
    assert math.prod(chunk) * itemsize <= 1 << 18
    # A run in C order: once a dimension is cut, all before it have length one.
    cut = [
        axis for axis, (part, whole) in enumerate(zip(chunk, shape, strict=True)) if part < whole
    ]
    assert not cut or all(part == 1 for part in chunk[: max(cut)])
