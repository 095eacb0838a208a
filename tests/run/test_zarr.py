"""Zarr stores: written by several processes, the same as a netCDF file holds."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import xarray as xr

import sweeps
from sweeps.blocks.run import Assignment, Cut, Means, here, processes, run_in_blocks, write_sweep
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError
from sweeps.store.netcdf import describe, is_complete, verify
from sweeps.store.zarr_store import require_zarr
from tests.run.sweep import SMALL_CUT, large, names, small, whole

needs_zarr = pytest.mark.skipif(
    importlib.util.find_spec("zarr") is None, reason="zarr isn't installed"
)
CUT = Cut(Limits(block=1 << 17), 3)


def test_without_zarr_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "zarr" else found(name)
    )
    with pytest.raises(InputError, match="pip install 'overhead-sweeps\\[zarr\\]'"):
        require_zarr("x.zarr")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "x.nc").write_bytes(whole(large))
    return tmp_path / "x.nc"


def content(path: Path) -> dict[str, bytes]:
    return {
        each.relative_to(path).as_posix(): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


@needs_zarr
@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_holds_what_a_file_holds(tmp_path: Path, file: Path, workers: int) -> None:
    path = tmp_path / "x.zarr"
    pool = processes(workers) if workers else here
    written = run_in_blocks(large(), path, CUT, pool=pool, zarr=True)
    assert verify(path) == ()
    assert is_complete(path, large().attrs["fingerprint"])
    assert written.nbytes == describe(path).nbytes
    with sweeps.open(path) as dataset, sweeps.open(file) as expected:
        xr.testing.assert_identical(dataset.load(), expected.load())
        for name, variable in expected.variables.items():
            assert dataset[name].dtype == variable.dtype, name
    description, other_description = describe(path), describe(file)
    assert description.sizes == other_description.sizes
    assert {each.name: each for each in description.variables}.keys() == {
        v.name for v in other_description.variables
    }
    assert names(tmp_path) == ["x.nc", "x.zarr"]
    # Other readers of Zarr see it as well.
    with xr.open_zarr(path) as plain:
        assert plain.sel(topology="torus", ranks=8).time.size
        plain.to_zarr(tmp_path / "copy.zarr")
    assert json.loads((path / "zarr.json").read_text())["zarr_format"] == 3
    assert verify(tmp_path / "copy.zarr") == ()
    with sweeps.open(tmp_path / "copy.zarr") as copy, sweeps.open(file) as expected:
        xr.testing.assert_identical(copy.load(), expected.load())


@pytest.mark.thorough
@needs_zarr
def test_a_store_of_format_2_is_read(tmp_path: Path) -> None:
    path, former = tmp_path / "x.zarr", tmp_path / "former.zarr"
    run_in_blocks(small(), path, CUT, zarr=True)
    with sweeps.open(path) as now:
        plain = now.load().drop_encoding().assign_attrs(sweeps_format="2")
        plain.to_zarr(former, zarr_format=2)
    assert (former / ".zgroup").exists()
    with sweeps.open(path) as now, sweeps.open(former) as before:
        xr.testing.assert_identical(now.load(), before.load())
    assert describe(former).sizes == describe(path).sizes


@pytest.mark.thorough
@needs_zarr
@pytest.mark.parametrize("compress", [False, True])
def test_a_store_goes_on_where_it_was(tmp_path: Path, compress: bool) -> None:
    whole_path, path = tmp_path / "whole.zarr", tmp_path / "x.zarr"
    run_in_blocks(small(), whole_path, SMALL_CUT, zarr=True, compress=compress)

    def some(assignment: Assignment) -> Iterator[int]:
        yield from itertools.islice(here(assignment), 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_blocks(small(), path, SMALL_CUT, pool=some, zarr=True, compress=compress)
    assert not path.exists()
    # A chunk that is lost, or has changed, is found and computed again.
    folder = tmp_path / ".x.zarr.run" / "store" / "time" / "c"
    chunks = sorted(each for each in folder.rglob("*") if each.is_file())
    chunks[0].unlink()
    damaged = bytearray(chunks[1].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    chunks[1].write_bytes(damaged)
    run_in_blocks(small(), path, SMALL_CUT, resume=True, zarr=True, compress=compress)
    assert content(path) == content(whole_path)
    assert names(tmp_path) == ["whole.zarr", "x.zarr"]


@pytest.mark.thorough
@needs_zarr
def test_a_store_is_replaced_only_with_leave(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    run_in_blocks(small(), path, CUT, zarr=True)
    before = content(path)
    with pytest.raises(InputError, match="exists already; --overwrite replaces it"):
        run_in_blocks(small(), path, CUT, zarr=True)
    run_in_blocks(small(), path, CUT, zarr=True, overwrite=True)
    assert content(path) == before
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is not a Zarr store"):
        run_in_blocks(small(), tmp_path / "folder", CUT, zarr=True, overwrite=True)


@needs_zarr
def test_a_flipped_bit_in_a_store_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    write_sweep(small(), path, Means(zarr=True))
    for name in ("time", "message_bytes", "status", "topology"):
        chunk = next(each for each in sorted((path / name / "c").rglob("*")) if each.is_file())
        sound = chunk.read_bytes()
        chunk.write_bytes(bytes([sound[0] ^ 1, *sound[1:]]))
        assert name in verify(path)
        chunk.write_bytes(sound)
    assert verify(path) == ()
