"""What is written is what is read, and what there is in memory."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from sweeps.engine.grid import Block, Column, Layout
from sweeps.errors import InputError, RunError
from sweeps.store.constants import without_constants
from sweeps.store.netcdf import open_dataset, to_dataset, verify, write
from tests.store.layouts import (
    GLOBAL,
    Case,
    axis,
    blocks,
    label,
    layout,
    layouts,
    names,
    number,
    partitions,
    scalar,
    usual,
)


def assert_same(left: xr.Dataset, right: xr.Dataset) -> None:
    """Names, dimensions, attributes, types and every bit."""
    xr.testing.assert_identical(left, right)
    assert {name: type(value) for name, value in left.attrs.items()} == {
        name: type(value) for name, value in right.attrs.items()
    }
    assert (list(left.sizes) and dict(left.sizes) == dict(right.sizes)) or not left.sizes
    for name in left.variables:
        assert left[name].dtype == right[name].dtype, name
        assert left[name].values.tobytes() == right[name].values.tobytes(), name
        for key, value in left[name].attrs.items():
            assert type(value) is type(right[name].attrs[key]), (name, key)
            if isinstance(value, np.generic | np.ndarray):
                assert value.dtype == right[name].attrs[key].dtype, (name, key)


def test_usual_dataset(tmp_path: Path) -> None:
    made, values = usual()
    written = write(tmp_path / "a.nc", made, blocks(values, 1))
    assert written.path == tmp_path / "a.nc"
    assert written.nbytes == (tmp_path / "a.nc").stat().st_size
    with open_dataset(tmp_path / "a.nc") as stored:
        assert_same(stored, to_dataset(made, blocks(values)))
        for name, array in values.items():
            assert stored[name].values.tobytes() == array.tobytes()
        torus = stored.sel(topology="torus", plan=3)
        np.testing.assert_array_equal(torus["time"], values["time"][1, 3])
        assert stored.sel(topology="多級交換")["vendor"] == "é"
        assert stored.attrs["latency"] == 1e-6
        assert stored.attrs["collective"] == "all_reduce"
        assert stored["time"].attrs["ancillary_variables"] == "status"
        assert "ancillary_variables" not in stored["steps"].attrs
        assert stored["status"].dtype == np.int16
        assert without_constants(stored.attrs) == GLOBAL
    assert verify(tmp_path / "a.nc") == ()


@pytest.mark.thorough
@given(data=st.data(), case=layouts())
def test_any_layout_in_any_blocks(data: st.DataObject, case: Case) -> None:
    made, values = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.nc"
        compress = data.draw(st.booleans())
        written = write(path, made, data.draw(partitions(values)), compress=compress)
        again = write(path, made, blocks(values), overwrite=True)
        assert written.checksums == again.checksums
        assert verify(path) == ()
        with open_dataset(path) as stored:
            assert_same(stored, to_dataset(made, data.draw(partitions(values))))
        assert names(folder) == ["any.nc"]


def test_coordinates_that_no_variable_has_stay_coordinates(tmp_path: Path) -> None:
    rate = Column("rate", ("machine",), np.dtype("f8"), {"units": "1"}, np.array([1.0, 2.0]))
    made = layout((label("machine", ["a", "b"]), rate), (number("bound", ()),))
    values = {"bound": np.array(1.0)}
    write(tmp_path / "a.nc", made, blocks(values))
    with open_dataset(tmp_path / "a.nc") as stored:
        assert set(stored.coords) == {"machine", "rate"}
        assert_same(stored, to_dataset(made, blocks(values)))


def test_blocks_may_reuse_their_buffer(tmp_path: Path) -> None:
    made = layout((axis("x", np.arange(3.0)),), (number("time", ("x",)),))
    buffer = np.empty(1)

    def reusing() -> Iterator[Block]:
        for index in range(3):
            buffer[0] = index
            yield Block("time", (slice(index, index + 1),), buffer)

    write(tmp_path / "a.nc", made, reusing())
    with open_dataset(tmp_path / "a.nc") as stored:
        np.testing.assert_array_equal(stored["time"], [0, 1, 2])
    np.testing.assert_array_equal(to_dataset(made, reusing())["time"], [0, 1, 2])


def test_what_is_not_covered_is_never_a_silent_hole(tmp_path: Path) -> None:
    made, values = usual()
    short = {**values, "time": values["time"][:2]}
    with pytest.raises(RunError, match="time: 20 of its 60 cells were not computed"):
        write(tmp_path / "a.nc", made, blocks(short, 1))
    with pytest.raises(RunError, match="time: 20 of its 60"):
        to_dataset(made, blocks(short, 1))
    del short["status"], short["time"]
    with pytest.raises(RunError, match="not computed"):
        write(tmp_path / "a.nc", made, blocks(short))
    with pytest.raises(RunError, match="'tine', which the layout lacks; did you mean 'time'"):
        write(tmp_path / "a.nc", made, blocks({"tine": np.zeros(3)}))
    assert names(tmp_path) == []


def test_same_spec_same_bytes(tmp_path: Path) -> None:
    made, values = usual()
    paths = [tmp_path / name for name in ("a.nc", "b.nc", "c.nc")]
    write(paths[0], made, blocks(values))
    write(paths[1], made, blocks(values))
    write(paths[2], made, reversed(list(blocks(values))))
    first, second, backwards = [path.read_bytes() for path in paths]
    assert first == second
    # Numbers have their place whichever comes first; only the order of flags' chunks may differ.
    assert len(first) == len(backwards)


def test_progress_tells_cells(tmp_path: Path) -> None:
    made, values = usual()
    seen: list[tuple[int, int]] = []
    write(tmp_path / "a.nc", made, blocks(values, 1), progress=lambda *both: seen.append(both))
    total = sum(array.size for array in values.values())
    assert seen[-1] == (total, total)
    assert [result for result, _ in seen] == sorted({result for result, _ in seen})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": {"x": 0}}, "x = 0: a dimension has no value"),
        ({"variables": (number("a b", ("x",)),)}, "name = 'a b': can't be a netCDF name"),
        ({"variables": (number("x_strlen", ("x",)),)}, "name = 'x_strlen': is taken by the file"),
        ({"coordinates": (scalar("title"),)}, "name = 'title': is taken by the file"),
        ({"coordinates": (scalar("constants"),)}, "name = 'constants': is taken by the file"),
        ({"variables": (number("t", ("x",)), number("t", ()))}, "name = 't': is given twice"),
        ({"variables": (number("t", (), coordinates="x"),)}, "t.coordinates = 'x': is set by"),
        ({"variables": (number("t", (), flag=None),)}, "flag = None: is not an attribute"),
        ({"coordinates": (axis("x", [1.0, 2.0, 3.0]),)}, "a coordinate that doesn't fit; 2 values"),
    ],
)
def test_a_layout_that_cannot_be_a_file(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    usable = Layout({"x": 2}, (label("x", ["a", "b"]),), (number("time", ("x",)),), GLOBAL)
    with pytest.raises(InputError) as caught:
        write(tmp_path / "a.nc", dataclasses.replace(usable, **change), [])
    assert message in str(caught.value)
    assert names(tmp_path) == []
