"""Filters, types and attributes in the file, as a plain reader sees them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sweeps.engine.grid import Column
from sweeps.errors import InputError
from sweeps.store.encode import chunk_shape, round_digits
from sweeps.store.netcdf import open_dataset, verify, write
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
        found = dataset[name].filters()
        assert not any(found[key] for key in ("zstd", "bzip2", "szip", "fletcher32"))
        assert dataset[name].quantization() is None
        return found["zlib"], found["complevel"], found["shuffle"], dataset[name].chunking()


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
    write(tmp_path / "a.nc", made, blocks({each: np.arange(9) for each in ("status", "count")}))
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


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_digits_round_and_say_so(tmp_path: Path, dtype: str) -> None:
    made, values = large()
    values["time"][0, :4] = np.nan, np.inf, -np.inf, 0
    full = write(tmp_path / "full.nc", made, blocks(values), compress=True, dtype=dtype)
    less = write(tmp_path / "less.nc", made, blocks(values, 9), digits=4, dtype=dtype)
    assert filters(tmp_path / "less.nc", "time")[:3] == (True, 4, True)
    assert less.nbytes < 0.8 * full.nbytes
    assert verify(tmp_path / "less.nc") == ()
    with open_dataset(tmp_path / "less.nc") as stored:
        assert stored["time"].dtype == dtype
        assert stored["time"].attrs["significant_digits"] == 4
        np.testing.assert_array_equal(stored["time"][0, :4], [np.nan, np.inf, -np.inf, 0])
        np.testing.assert_allclose(stored["time"], values["time"], rtol=0.5e-3, atol=0)
        assert not np.array_equal(stored["time"], values["time"], equal_nan=True)
        np.testing.assert_array_equal(stored["size"], np.arange(1.0, 1001.0))


def test_f4_casts_results_at_storage_only(tmp_path: Path) -> None:
    made, values = usual()
    write(tmp_path / "a.nc", made, blocks(values), dtype="f4")
    with open_dataset(tmp_path / "a.nc") as stored:
        assert stored["time"].dtype == np.float32
        assert stored["message_bytes"].dtype == np.float64
        assert stored["status"].dtype == np.int16
        np.testing.assert_array_equal(stored["time"], values["time"].astype("f4"))


@pytest.mark.parametrize("number_", [1e39, -1e39, 1e-40, 1e-50])
def test_f4_never_turns_a_number_into_infinity_or_zero(tmp_path: Path, number_: float) -> None:
    made = layout((axis("x", [1.0, 2.0]),), (number("time", ("x",)),))
    with pytest.raises(InputError, match=r"dtype = 'f4': time goes from .*; f8 holds such"):
        write(tmp_path / "a.nc", made, blocks({"time": np.array([1, number_])}), dtype="f4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "f2"}, "dtype = 'f2': can't hold results; f8 or f4"),
        ({"digits": 0}, "digits = 0: can't be kept; 1 to 15 for f8"),
        ({"digits": 8, "dtype": "f4"}, "digits = 8: can't be kept; 1 to 7 for f4"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    made, values = usual()
    with pytest.raises(InputError) as caught:
        write(tmp_path / "a.nc", made, blocks(values), **options)
    assert str(caught.value) == message


@given(arrays("f8", st.integers(0, 20)), st.integers(1, 15))
def test_rounding_keeps_the_digits(values: np.ndarray, digits: int) -> None:
    rounded = round_digits(values, digits)
    usual_numbers = np.isfinite(values) & (values != 0)
    np.testing.assert_array_equal(rounded[~usual_numbers], values[~usual_numbers])
    kept, given_ = rounded[usual_numbers], values[usual_numbers]
    assert np.isfinite(kept).all()
    assert (kept != 0).all()
    with np.errstate(over="ignore", under="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(given_))) + 1 - digits)
        error = np.abs(kept - given_)
    assert (error <= 0.5 * unit * (1 + 1e-9) + np.abs(given_) * 1e-15).all()
    below = np.abs(rounded) < 1e300  # above, what would become infinite isn't rounded
    np.testing.assert_array_equal(round_digits(rounded, 15)[below], rounded[below])


def test_rounding_worked_example() -> None:
    # 1234.567 to 3 digits: a unit is 10, the power of two below it 8: 154.3 eights, so 154 x 8
    assert round_digits(np.array(1234.567), 3) == 1232
    # 0.05 to 1 digit: a unit is 0.01, the power of two below it 1/128: 6.4 of them
    assert round_digits(np.array(0.05), 1) == 6 / 128


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
