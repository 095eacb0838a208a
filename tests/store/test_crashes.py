"""Killed, failing, interrupted or racing: an output is absent, old, or complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.engine.grid import Block, Layout
from sweeps.errors import InputError, RunError
from sweeps.store.netcdf import open_dataset, verify, write
from tests.store.layouts import axis, blocks, layout, names, number, usual, written_bytes

ROOT = Path(__file__).parents[2]
STEPS = 40
# A child that says nothing for so long (s) hangs.
HANGS = 300.0

WRITER = """
import sys
from pathlib import Path
from sweeps.errors import InputError, RunError
from sweeps.store.netcdf import write
from tests.store.test_crashes import long_sweep

print("ready", flush=True)
sys.stdin.readline()
made, pieces = long_sweep()

def say(done, total):
    print(done, flush=True)
    sys.stdin.readline()

try:
    write(Path(sys.argv[1]), made, pieces, overwrite=sys.argv[2] == "overwrite", progress=say)
except (InputError, RunError) as error:
    print("sweeps:", error, file=sys.stderr)
    sys.exit(2 if isinstance(error, InputError) else 1)
"""


def long_sweep() -> tuple[Layout, Iterator[Block]]:
    made = layout(
        (axis("x", np.arange(float(STEPS))), axis("y", np.arange(2000.0))),
        (number("time", ("x", "y")),),
    )
    return made, blocks({"time": np.arange(STEPS * 2000.0).reshape(STEPS, 2000)}, 1)


def start(path: Path, how: str = "new") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), how],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def guarded(*children: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill children that hang, so that reading what they say ends."""
    guards = [threading.Timer(HANGS, child.kill) for child in children]
    for guard in guards:
        guard.start()
    try:
        yield children[0]
    finally:
        for guard, child in zip(guards, children, strict=True):
            with child:
                child.kill()
            guard.cancel()


def kill_after(path: Path, how: str, lines: int) -> None:
    """Start a writer, which waits after each block, and kill it soon after so many of them."""
    with guarded(start(path, how)) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(lines + 1):
            assert child.stdout.readline()
            child.stdin.write("go\n")
            child.stdin.flush()
        child.kill()


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("complete") / "x.nc"
    write(path, *long_sweep())
    return path.read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["new", "overwrite"])
def test_a_killed_run_leaves_the_old_or_nothing(tmp_path: Path, how: str, complete: bytes) -> None:
    kill_in_rounds(tmp_path / "x.nc", how, complete, (0, 1, STEPS // 2, STEPS))


def kill_in_rounds(path: Path, how: str, complete: bytes, rounds: tuple[int, ...]) -> None:
    before = None
    if how == "overwrite":
        write(path, usual()[0], blocks(usual()[1]))
        before = path.read_bytes()
    for lines in rounds:
        kill_after(path, how, lines)
        # After the last block there is a race, which either may win.
        content = written_bytes(path)
        assert content == before or (content == complete and lines == STEPS)
        if content != before:
            path.unlink()
            if before is not None:
                path.write_bytes(before)
    write(path, *long_sweep(), overwrite=True)
    assert path.read_bytes() == complete
    assert names(path.parent) == ["x.nc"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["new", "overwrite"])
def test_many_killed_runs(tmp_path: Path, how: str, complete: bytes) -> None:
    rounds = (*range(0, STEPS, 4), *(STEPS,) * 15)
    kill_in_rounds(tmp_path / "x.nc", how, complete, rounds)


@pytest.mark.thorough
def test_of_two_racing_runs_one_wins(tmp_path: Path, complete: bytes) -> None:
    path = tmp_path / "x.nc"
    children = [start(path), start(path)]
    with guarded(*children):
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n" * (STEPS + 1))
            child.stdin.flush()
        said = [child.communicate() for child in children]
    codes = sorted(child.returncode for child in children)
    assert codes in ([0, 1], [0, 2])
    loser = next(text for child, (_, text) in zip(children, said, strict=True) if child.returncode)
    assert "is being written by another run" in loser or "exists already" in loser
    assert path.read_bytes() == complete
    assert names(tmp_path) == ["x.nc"]


# --- our own file operations, recorded and replayed -----------------------------------------

OPERATIONS = ("open", "fsync", "link", "replace", "unlink")


def name_of(argument: Any) -> str:
    if isinstance(argument, int):
        return Path(f"/proc/self/fd/{argument}").readlink().name
    return Path(argument).name


@pytest.fixture
def instrument(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a function before each of our operations."""

    def install(before: Callable[..., None], *names: str) -> None:
        for name in names:
            original = getattr(os, name)

            def wrapped(*args: Any, _name: str = name, _original: Any = original, **kw: Any) -> Any:
                before(_name, *args)
                return _original(*args, **kw)

            monkeypatch.setattr(os, name, wrapped)

    return install


@pytest.mark.parametrize("overwrite", [False, True])
def test_every_prefix_of_our_operations(
    tmp_path: Path, instrument: Callable[..., None], overwrite: bool
) -> None:
    path = tmp_path / "x.nc"
    if overwrite:
        path.write_bytes(b"old")
    states = []
    instrument(lambda *_: states.append(written_bytes(path)), *OPERATIONS)
    made, values = usual()
    write(path, made, blocks(values, 1), overwrite=overwrite)
    states.append(path.read_bytes())
    before = b"old" if overwrite else None
    switch = states.index(states[-1])
    assert states == [before] * switch + [states[-1]] * (len(states) - switch)
    assert len(states) > 5


def after_power_loss(events: list[tuple[str, ...]], old: bytes | None, new: bytes) -> set[Any]:
    """Return what may stand under the output's name after the power failed at any time.

    A file's bytes are kept from its fsync on, before that any part of them; a name is kept from
    its folder's fsync on, before that any prefix of the operations on names.
    """
    outcome_found = set()
    for stop in range(len(events) + 1):
        done = events[:stop]
        synced = {event[1] for event in done if event[0] == "fsync"}
        naming = [index for index, event in enumerate(done) if event[0] in {"link", "replace"}]
        folder = [index for index, event in enumerate(done) if event == ("fsync", "folder")]
        certain = max(folder, default=-1)
        kept = [index for index in naming if index < certain]
        for count in range(len(kept), len(naming) + 1):
            published = count > 0
            if not published:
                outcome_found.add(old)
            elif "temporary" in synced:
                outcome_found.add(new)
            else:
                outcome_found |= {b"", new[: len(new) // 2], new}
    return outcome_found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are asked")
@pytest.mark.parametrize("overwrite", [False, True])
def test_power_loss(tmp_path: Path, instrument: Callable[..., None], overwrite: bool) -> None:
    path = tmp_path / "x.nc"
    if overwrite:
        path.write_bytes(b"old")
    events: list[tuple[str, ...]] = []

    def record(operation: str, *args: Any) -> None:
        names = [name_of(arg) for arg in args]
        short = ["temporary" if name.endswith(".tmp") else name for name in names]
        short = ["folder" if content == tmp_path.name else content for content in short]
        events.append((operation, *short))

    instrument(record, "fsync", "link", "replace")
    made, values = usual()
    write(path, made, blocks(values), overwrite=overwrite)
    old, new = (b"old" if overwrite else None), path.read_bytes()
    assert events[-1] == ("fsync", "folder")
    assert after_power_loss(events, old, new) == {old, new}
    # The model has teeth: without the file's fsync a torn file gets the name.
    without = [event for event in events if event != ("fsync", "temporary")]
    assert len(without) == len(events) - 1
    assert after_power_loss(without, old, new) > {old, new}


FAULTS = [
    (code, operation, count)
    for code, operation in itertools.product(
        (errno.ENOSPC, errno.EIO, errno.EROFS), ("fsync", "link", "replace", "open")
    )
    for count in (1, 2)
]


@pytest.mark.thorough_cases(every=5)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_operation_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool, fault: tuple[int, str, int]
) -> None:
    code, operation, count = fault
    path = tmp_path / "x.nc"
    made, values = usual()
    if overwrite:
        path.write_bytes(b"old")
    calls = itertools.count(1)
    original = getattr(os, operation)

    def failing(*args: Any, **kw: Any) -> Any:
        if next(calls) == count:
            raise OSError(code, os.strerror(code))
        return original(*args, **kw)

    monkeypatch.setattr(os, operation, failing)
    raised: Exception | None = None
    try:
        write(path, made, blocks(values), overwrite=overwrite)
    except (InputError, RunError) as error:
        raised = error
    assert (raised is not None) == (next(calls) > count)
    if raised is not None:
        assert str(raised).startswith(f"output = '{path}': ")
        assert os.strerror(code).lower() in str(raised)
        assert isinstance(raised, InputError) == (code == errno.EROFS)
        assert "\n" not in str(raised)
    content = written_bytes(path)
    assert content == (b"old" if overwrite else None) or verify(path) == ()
    assert [name for name in names(tmp_path) if name.endswith(".tmp")] == []
    monkeypatch.undo()
    write(path, made, blocks(values), overwrite=True)
    assert verify(path) == ()
    assert names(tmp_path) == ["x.nc"]


def test_without_hard_links_a_name_is_still_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "no hard links")

    monkeypatch.setattr(os, "link", no_links)
    made, values = usual()
    write(tmp_path / "x.nc", made, blocks(values))
    assert verify(tmp_path / "x.nc") == ()

    def meanwhile() -> Iterator[Block]:
        yield from blocks(values)
        (tmp_path / "y.nc").write_bytes(b"another's")

    with pytest.raises(InputError, match="exists already"):
        write(tmp_path / "y.nc", made, meanwhile())
    assert (tmp_path / "y.nc").read_bytes() == b"another's"
    assert names(tmp_path) == ["x.nc", "y.nc"]


def test_a_file_made_meanwhile_is_not_lost(tmp_path: Path) -> None:
    made, values = usual()

    def meanwhile() -> Iterator[Block]:
        yield from blocks(values)
        (tmp_path / "x.nc").write_bytes(b"another's")

    with pytest.raises(InputError, match="exists already; --overwrite replaces it"):
        write(tmp_path / "x.nc", made, meanwhile())
    assert (tmp_path / "x.nc").read_bytes() == b"another's"
    assert names(tmp_path) == ["x.nc"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ZeroDivisionError, InputError("no")])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, interruption: Any) -> None:
    made, values = usual()

    def interrupted() -> Iterator[Block]:
        yield next(blocks(values))
        raise interruption

    kind = interruption if isinstance(interruption, type) else type(interruption)
    with pytest.raises(kind):
        write(tmp_path / "x.nc", made, interrupted())
    assert names(tmp_path) == []


def test_an_open_dataset_outlives_its_replacement(tmp_path: Path) -> None:
    made, values = usual()
    path = tmp_path / "x.nc"
    write(path, made, blocks(values))
    with open_dataset(path) as before:
        write(path, made, blocks({**values, "time": values["time"] + 1}), overwrite=True)
        np.testing.assert_array_equal(before["time"], values["time"])
    with open_dataset(path) as after:
        np.testing.assert_array_equal(after["time"], values["time"] + 1)
