"""Constants are attributes of a dataset, labels are indexes of their dimensions."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import sweeps
from sweeps.store.constants import constants_aside, constants_of, with_constants
from sweeps.store.netcdf import describe, open_dataset, to_dataset, verify, write
from tests.store.layouts import blocks, usual

ASKED = {"topology": ["ring", "torus"], "ranks": [16, 32], "message_bytes": [1024, 2**30]}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    made, values = usual()
    write(tmp_path / "x.nc", made, blocks(values))
    return tmp_path / "x.nc"


def as_former(new: Path, old: Path) -> None:
    """Write a stored file's content in the layout of format 1."""
    with netCDF4.Dataset(new) as source, netCDF4.Dataset(old, "w") as made:
        source.set_auto_maskandscale(False)
        source.set_auto_chartostring(False)
        made.set_auto_maskandscale(False)
        attrs = {name: source.getncattr(name) for name in source.ncattrs()}
        constants = [*constants_of(attrs)]
        gone = {"constants", "constants_checksum", *(name for name, _, _ in constants)}
        for dim, size in source.dimensions.items():
            made.createDimension(dim, size.size)
        labels = {name for name, each in source.variables.items() if each.dtype == "S1"} & {
            *source.dimensions
        }
        scalars = [name for name, _, _ in constants]
        for name, each in source.variables.items():
            own = f"{name}_name" if name in labels else name
            about = {key: each.getncattr(key) for key in each.ncattrs()}
            fill = about.pop("_FillValue", None)
            variable = made.createVariable(own, each.dtype, each.dimensions, fill_value=fill)
            variable.set_auto_chartostring(False)
            named = [f"{dim}_name" for dim in each.dimensions if dim in labels]
            named += [*str(about.get("coordinates", "")).split(), *scalars]
            if name not in source.dimensions and "_Encoding" not in about:
                about["coordinates"] = " ".join(named)
            variable.setncatts(about)
            variable[...] = each[...]
        for name, value, about in constants:
            text = value.dtype.kind == "U"
            letters = np.frombuffer(str(value).encode(), "S1") if text else value
            dims = (f"{name}_strlen",) if text else ()
            if text:
                made.createDimension(*dims, len(letters))
            variable = made.createVariable(name, letters.dtype, dims)
            variable.set_auto_chartostring(False)
            variable.setncatts({**about, **({"_Encoding": "utf-8"} if text else {})})
            variable[...] = letters
        made.setncatts({name: value for name, value in attrs.items() if name not in gone})
        made.sweeps_format = "1"


def test_plain_xarray_selects_by_labels(stored: Path) -> None:
    _, values = usual()
    with xr.open_dataset(stored) as plain:
        torus = plain.sel(topology="torus")
        np.testing.assert_array_equal(torus["time"], values["time"][1])
        assert plain.indexes["topology"].tolist() == ["ring", "torus", "多級交換"]


def test_a_table_of_two_variables_has_no_constants(tmp_path: Path) -> None:
    dataset = sweeps.sweep(["time", "steps"], **{**ASKED, "ranks": 16})
    table = dataset[["time", "steps"]].to_dataframe()
    assert table.columns.tolist() == ["time", "steps"]
    assert dataset.attrs["hardware"] == "dgx-h100"
    assert dataset.attrs["gpus_per_node"] == 8.0
    assert dataset.gpus_per_node == 8.0  # As xarray finds attributes


def test_constants_are_scalar_coordinates_where_these_are_wanted() -> None:
    made, values = usual()
    dataset = to_dataset(made, blocks(values))
    request = with_constants(dataset)
    assert request["latency"].item() == 1e-6
    assert request["latency"].attrs["units"] == "s"
    assert not {"latency", "constants"} & {*request.attrs}
    xr.testing.assert_identical(constants_aside(request), dataset)
    # What became a dimension is no constant any more.
    widened = dataset.expand_dims(latency=[1e-6, 2e-6])
    assert with_constants(widened)["latency"].dims == ("latency",)


def test_a_changed_constant_does_not_verify(stored: Path) -> None:
    assert verify(stored) == ()
    with netCDF4.Dataset(stored, "a") as dataset:
        dataset.latency = 2e-6
    assert verify(stored) == ("constants",)


def test_a_description_has_constants(stored: Path) -> None:
    description = describe(stored)
    named = {coordinate.name: coordinate for coordinate in description.coordinates}
    assert named["latency"].minimum == named["latency"].maximum == 1e-6
    assert named["collective"].labels == ("all_reduce",)
    assert not {"latency", "collective", "constants", "constants_checksum"} & {*description.attrs}


def test_the_former_layout_is_read(stored: Path, tmp_path: Path) -> None:
    as_former(stored, tmp_path / "former.nc")
    with xr.open_dataset(tmp_path / "former.nc") as plain, pytest.raises(KeyError):
        plain.sel(topology="torus")
    with open_dataset(stored) as now, open_dataset(tmp_path / "former.nc") as former:
        xr.testing.assert_identical(now.load(), former.load())
    now, former = (
        {coordinate.name: coordinate.shape for coordinate in describe(path).coordinates}
        for path in (stored, tmp_path / "former.nc")
    )
    assert now == former


def test_a_sweep_of_the_former_layout_is_computed_again(tmp_path: Path) -> None:
    from sweeps.job import prepare

    job = prepare({"axes": ASKED})
    layout, made = job.result()
    write(tmp_path / "now.nc", layout, made)
    as_former(tmp_path / "now.nc", tmp_path / "former.nc")
    with sweeps.open(tmp_path / "now.nc") as now, sweeps.open(tmp_path / "former.nc") as former:
        dataset = sweeps.recompute(former)
        assert {"time", "status"} <= {*dataset.data_vars}
        for name in dataset.data_vars:
            assert dataset[name].values.tobytes() == now[name].values.tobytes(), name
