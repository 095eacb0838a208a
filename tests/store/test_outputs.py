"""Outputs that can't be written are refused in one line, before anything is computed."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

from sweeps.engine.grid import Block
from sweeps.errors import InputError, RunError
from sweeps.store import publish
from sweeps.store.netcdf import open_dataset, verify, write
from sweeps.store.publish import NETCDF, check_output, hold, readable
from tests.store.layouts import axis, blocks, layout, names, number, usual

ROOT = Path(__file__).parents[2]


def never() -> Iterator[Block]:
    pytest.fail("something was computed")
    yield


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises((InputError, RunError)) as caught:
        write(path, usual()[0], never(), **options)
    text = str(caught.value)
    assert text.startswith(f"output = '{path}': ")
    assert "\n" not in text
    assert "; " in text
    return f"{'2' if isinstance(caught.value, InputError) else '1'} {text}"


def test_an_existing_file_is_refused_and_replaced_only_with_leave(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    path.write_bytes(b"old")
    assert refusal(path) == f"2 output = '{path}': exists already; --overwrite replaces it"
    assert path.read_bytes() == b"old"
    write(path, usual()[0], blocks(usual()[1]), overwrite=True)
    assert verify(path) == ()


def test_places_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert "'none' is a folder that does not exist" in refusal(tmp_path / "none" / "x.nc")
    assert "'file' is a file, not a folder" in refusal(tmp_path / "file" / "x.nc")
    assert "is not a file but a folder; name a file" in refusal(tmp_path / "folder")
    assert "is not a file; name a file" in refusal(tmp_path / "pipe", overwrite=True)
    assert "its name is too long; at most" in refusal(tmp_path / ("x" * 250 + ".nc"))
    assert refusal(tmp_path / ("x" * 3000 + ".nc")).startswith("2 ")
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(tmp_path / "loop").startswith("2 ")
    longest = "x" * 238 + ".nc"
    write(tmp_path / longest, usual()[0], blocks(usual()[1]))
    assert verify(tmp_path / longest) == ()


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    wrong = "its folder can't be written to; choose one that can be"
    assert refusal(tmp_path / "x.nc") == f"2 output = '{tmp_path / 'x.nc'}': {wrong}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for mode in (0o555, 0o000):
        folder.chmod(mode)
        assert refusal(folder / "x.nc").startswith("2 ")
    folder.chmod(0o755)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.EROFS, "2 output = '{}': can't be written, read-only file system; choose"),
        (errno.EACCES, "2 output = '{}': can't be written, permission denied; choose"),
    ],
)
def test_a_folder_that_fails_at_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    def failing(*_: Any, **__: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", failing)
    assert refusal(tmp_path / "x.nc").startswith(text.format(tmp_path / "x.nc"))


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "x.nc").symlink_to(tmp_path / "there" / "y.nc")
    write(tmp_path / "x.nc", usual()[0], blocks(usual()[1]))
    assert (tmp_path / "x.nc").is_symlink()
    assert verify(tmp_path / "there" / "y.nc") == ()
    assert check_output(tmp_path / "x.nc", overwrite=True) == tmp_path / "there" / "y.nc"


def test_a_disk_without_room_is_noticed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil._ntuple_diskusage(10**6, 10**6, 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    text = refusal(tmp_path / "x.nc")
    assert text.startswith("1 ")
    assert "kB of disk, 100 byte are free; free some space" in text


def test_a_disk_that_cannot_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (errno.ENOSPC, errno.EDQUOT):

        def full(*_: Any, _code: int = code) -> None:
            raise OSError(_code, os.strerror(_code))

        monkeypatch.setattr(os, "posix_fallocate", full)
        text = refusal(tmp_path / "x.nc")
        assert text.startswith("1 ")
        assert "the disk is full (" in text
        assert " left);" in text
        assert os.strerror(code).lower() in text
        assert names(tmp_path) == []


def test_a_filesystem_without_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    write(tmp_path / "x.nc", usual()[0], blocks(usual()[1]))
    assert verify(tmp_path / "x.nc") == ()


def test_the_disk_s_space_is_taken_at_the_start(tmp_path: Path) -> None:
    # Tried by hand on a small tmpfs, which another program filled up while blocks were coming.
    (tmp_path / "probe").touch()
    with (tmp_path / "probe").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 1 << 20)
        if os.fstat(stream.fileno()).st_blocks * 512 < 1 << 20:
            pytest.skip("this filesystem doesn't reserve")
    made = layout(
        (axis("x", np.arange(50.0)), axis("y", np.arange(9000.0))), (number("time", ("x", "y")),)
    )
    values = {"time": np.ones((50, 9000))}

    def looking() -> Iterator[Block]:
        (growing,) = tmp_path.glob(".x.nc.*.tmp")
        assert growing.stat().st_size >= values["time"].nbytes
        assert growing.stat().st_blocks * 512 >= growing.stat().st_size
        yield from blocks(values)

    write(tmp_path / "x.nc", made, looking())


def test_heavy_libraries_are_imported_late() -> None:
    modules = " ".join(path.stem for path in (ROOT / "sweeps" / "store").glob("*.py"))
    code = (
        "import importlib, sys\n"
        f"for name in '{modules}'.split(): importlib.import_module('sweeps.store.' + name)\n"
        "print(sorted({'netCDF4', 'xarray', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from sweeps.errors import RunError
from sweeps.store.netcdf import write
from tests.store.layouts import axis, blocks, layout, number

noise = np.random.default_rng(0).random((200, 2000))
made = layout((axis("x", np.arange(200.0)), axis("y", np.arange(2000.0))),
              (number("time", ("x", "y")),))
resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
try:
    write(Path(sys.argv[1]), made, blocks({"time": noise}, 1), compress=sys.argv[2] == "compress")
except RunError as error:
    print(error)
    sys.exit(1)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["plain", "compress"])
def test_the_cause_behind_the_library_s_error_is_found(tmp_path: Path, how: str) -> None:
    # A file that may not grow: plainly written it shows when space is reserved; compressed, the
    # netCDF library meets it in the middle and says "HDF error".
    path = tmp_path / "x.nc"
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), how],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1, process.stderr
    assert process.stdout == (
        f"output = '{path}': larger than a file may be there; write elsewhere, or a smaller grid\n"
    )
    assert process.stderr == ""
    assert names(tmp_path) == []


def test_a_library_failure_without_a_cause_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        message = "NetCDF: HDF error"
        raise RuntimeError(message)

    monkeypatch.setattr(netCDF4, "Dataset", failing)
    text = refusal(tmp_path / "x.nc")
    assert text.startswith("1 ")
    assert "the netCDF library failed (NetCDF: HDF error); check" in text
    assert names(tmp_path) == []


@pytest.mark.thorough
def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with hold(tmp_path / "x.nc"):
        text = refusal(tmp_path / "x.nc")
        assert text.startswith("1 ")
        assert "is being written by another run; wait for it" in text
        write(tmp_path / "y.nc", usual()[0], blocks(usual()[1]))
    write(tmp_path / "x.nc", usual()[0], blocks(usual()[1]))
    assert names(tmp_path) == ["x.nc", "y.nc"]


def test_a_lock_s_file_that_was_left_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / ".x.nc.lock").touch()
    write(tmp_path / "x.nc", usual()[0], blocks(usual()[1]))
    assert names(tmp_path) == ["x.nc"]


def test_only_this_output_s_strays_are_swept(tmp_path: Path) -> None:
    others = [".y.nc.00000000.tmp", ".x.nc.tmp", "x.nc.00000000.tmp", ".x.nc.0000000g.tmp"]
    for name in (*others, ".x.nc.00000000.tmp", ".x.nc.deadbeef.tmp"):
        (tmp_path / name).touch()
    write(tmp_path / "x.nc", usual()[0], blocks(usual()[1]))
    assert names(tmp_path) == sorted([*others, "x.nc"])


def test_a_filesystem_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    # Whose the temporary is can't be known then, so it stays.
    (tmp_path / ".x.nc.00000000.tmp").touch()
    write(tmp_path / "x.nc", usual()[0], blocks(usual()[1]))
    assert verify(tmp_path / "x.nc") == ()
    assert (tmp_path / ".x.nc.00000000.tmp").exists()


def test_threads_write_and_read_different_files(tmp_path: Path) -> None:
    # Without the lock around the library this dies by a signal.
    made = layout(
        (axis("x", np.arange(60.0)), axis("y", np.arange(500.0))), (number("time", ("x", "y")),)
    )
    values = {"time": np.random.default_rng(0).random((60, 500))}
    write(tmp_path / "read.nc", made, blocks(values))
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            with open_dataset(tmp_path / "read.nc") as stored:
                write(tmp_path / f"{index}.nc", made, blocks(values, 1), compress=index % 2 == 0)
                for row in range(60):
                    np.testing.assert_array_equal(stored["time"][row], values["time"][row])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [verify(tmp_path / f"{index}.nc") for index in range(4)] == [()] * 4


def test_the_lock_is_one_however_it_is_copied() -> None:
    assert pickle.loads(pickle.dumps(NETCDF)) is NETCDF is publish.NETCDF
    with NETCDF, NETCDF:
        assert NETCDF.acquire(blocking=False)
        NETCDF.release()


def test_a_lazy_dataset_can_be_pickled(tmp_path: Path) -> None:
    made, values = usual()
    write(tmp_path / "x.nc", made, blocks(values))
    with open_dataset(tmp_path / "x.nc") as stored:
        copy = pickle.loads(pickle.dumps(stored))
        np.testing.assert_array_equal(copy["time"], values["time"])
        copy.close()


def test_sizes_for_a_person() -> None:
    assert [readable(n) for n in (0, 999, 1000, 4_100_000_000)] == [
        "0 byte",
        "999 byte",
        "1.0 kB",
        "4.1 GB",
    ]
