"""Torn, damaged and foreign files; what a file says about itself."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from sweeps.engine.grid import Column
from sweeps.errors import InputError
from sweeps.store.netcdf import describe, is_complete, open_dataset, verify, write
from tests.store.layouts import GLOBAL, STATUS, axis, blocks, layout, number, usual


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    made, values = usual()
    write(tmp_path / "x.nc", made, blocks(values))
    return tmp_path / "x.nc"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    with netCDF4.Dataset(tmp_path / "foreign.nc", "w") as dataset:
        dataset.createDimension("x", 2)
        dataset.createVariable("x", "f8", ("x",))[:] = [1, 2]
        dataset.createVariable("t", "f4", ("x",), fill_value=-1)[:] = [-1, 3]
    return tmp_path / "foreign.nc"


def refusal(path: Path) -> str:
    texts = set()
    for function in (open_dataset, verify, describe):
        with pytest.raises(InputError) as caught:
            function(path)
        texts.add(str(caught.value))
    assert not is_complete(path, "abc")
    (text,) = texts
    assert text.startswith(f"file = '{path}': ")
    assert "\n" not in text
    return text


def test_a_torn_file(stored: Path) -> None:
    whole = stored.read_bytes()
    torn = stored.with_name("torn.nc")
    for length in (8, 100, len(whole) // 2, len(whole) - 1):
        torn.write_bytes(whole[:length])
        assert "can't be read, it was cut short or damaged" in refusal(torn)


def test_what_is_no_netcdf_file(tmp_path: Path) -> None:
    for content, said in ((b"", "is empty"), (b"a,b\n1,2\n", "is not a netCDF file")):
        (tmp_path / "x.nc").write_bytes(content)
        assert said in refusal(tmp_path / "x.nc")
    assert "no such file" in refusal(tmp_path / "y.nc")
    assert "is a folder; name a file in it" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "x.nc" / "y.nc")


def test_a_foreign_file_opens_only_with_leave(foreign: Path) -> None:
    assert "a netCDF file that no sweep has written; name a file that" in refusal(foreign)
    with open_dataset(foreign, require_ours=False) as dataset:
        np.testing.assert_array_equal(dataset["t"], [np.nan, 3])


def test_a_later_format_is_refused(stored: Path) -> None:
    with netCDF4.Dataset(stored, "a") as dataset:
        dataset.sweeps_format = "3"
    assert "written in format 3; this version reads formats 1 and 2" in refusal(stored)


def test_complete_is_the_same_fingerprint(stored: Path, foreign: Path) -> None:
    assert is_complete(stored, GLOBAL["fingerprint"])
    assert not is_complete(stored, "another")
    assert not is_complete(foreign, "abc")
    assert not is_complete(stored.with_name("none.nc"), "abc")


def test_verify_names_what_differs(stored: Path) -> None:
    with netCDF4.Dataset(stored, "a") as dataset:
        dataset["message_bytes"][2] = 7
        dataset["chosen_algorithm"][0, 0] = 3
    assert verify(stored) == ("message_bytes", "chosen_algorithm")


def same(path: Path, expected: xr.Dataset) -> bool:
    with open_dataset(path) as dataset:
        return expected.identical(dataset) and all(
            expected[name].values.tobytes() == dataset[name].values.tobytes()
            for name in expected.variables
        )


def flip(stored: Path, every: int) -> dict[str, int]:
    """Flip a bit of every so many bytes, one after the other; count who notices."""
    with open_dataset(stored) as dataset:
        expected = dataset.load()
    whole = stored.read_bytes()
    broken = stored.with_name("broken.nc")
    noticed = {"refused": 0, "verified": 0, "harmless": 0}
    for position in range(0, len(whole), every):
        mutated = bytearray(whole)
        mutated[position] ^= 1 << position % 8
        broken.write_bytes(mutated)
        try:
            if verify(broken):
                noticed["verified"] += 1
                continue
            assert same(broken, expected), f"a flip at {position} is silent"
            noticed["harmless"] += 1
        except InputError:
            noticed["refused"] += 1
    return noticed


@pytest.fixture
def mostly_numbers(tmp_path: Path) -> Path:
    made = layout((axis("x", np.arange(5000.0)),), (number("time", ("x",)),))
    write(tmp_path / "x.nc", made, blocks({"time": np.linspace(1, 2, 5000)}))
    return tmp_path / "x.nc"


def test_a_flipped_bit_in_numbers_is_noticed(mostly_numbers: Path) -> None:
    noticed = flip(mostly_numbers, 1201)
    assert noticed["verified"] > 50


@pytest.mark.slow
def test_no_flipped_bit_is_silent(stored: Path) -> None:
    noticed = flip(stored, 29)
    assert noticed["verified"] > 10
    assert noticed["refused"] > 10


def test_description(stored: Path) -> None:
    description = describe(stored)
    _, values = usual()
    assert description.nbytes == stored.stat().st_size
    assert description.sizes == {"topology": 3, "plan": 4, "message_bytes": 5}
    assert description.attrs == GLOBAL
    assert description.spec == ""
    coordinates = {coordinate.name: coordinate for coordinate in description.coordinates}
    variables = {variable.name: variable for variable in description.variables}
    assert (
        list(coordinates) == "topology rate vendor plan dp message_bytes latency collective".split()
    )
    assert coordinates["topology"].labels == ("ring", "torus", "多級交換")
    assert coordinates["topology"].dims == ("topology",)
    assert coordinates["message_bytes"].attrs["units"] == "byte"
    assert (coordinates["dp"].minimum, coordinates["dp"].maximum) == (1, 8)
    assert list(variables) == ["time", "steps", "bound", "status", "chosen_algorithm"]
    assert (variables["time"].minimum, variables["time"].maximum) == (-np.inf, np.inf)
    assert (variables["time"].shape, variables["time"].missing) == ((3, 4, 5), 1)
    assert (variables["steps"].minimum, variables["steps"].maximum) == (0, 1)
    assert variables["status"].flags == {"not_defined": 1, "out_of_domain": 0}
    chosen = values["chosen_algorithm"]
    assert variables["chosen_algorithm"].flags == dict(
        none=(chosen == 0).sum(), ring=(chosen == 1).sum(), tree=(chosen == 2).sum()
    )


def test_description_of_nothing_but_holes_and_of_masks(tmp_path: Path) -> None:
    made = layout(
        (axis("x", np.arange(3.0)),),
        (number("time", ("x",)), Column("status", ("x",), np.dtype("i1"), STATUS)),
    )
    values = {"time": np.full(3, np.nan), "status": np.array([1, 2, 3], "i1")}
    write(tmp_path / "x.nc", made, blocks(values))
    time, status = describe(tmp_path / "x.nc").variables
    assert (time.minimum, time.maximum, time.missing) == (None, None, 3)
    assert status.flags == {"not_defined": 2, "out_of_domain": 2}
