"""Failing disks, damaged blocks, other sweeps, other runs."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.blocks import run as run_module
from sweeps.blocks.folder import Folder
from sweeps.blocks.run import Assignment, here, run_in_blocks
from sweeps.blocks.work import Work
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError, RunError
from sweeps.job import Job, prepare
from sweeps.store import encode, publish
from sweeps.store.netcdf import open_dataset, verify
from tests.run.sweep import HANG_SECONDS, SMALL, SMALL_CUT, child, finish, names, small, whole

CODES = (errno.ENOSPC, errno.EIO, errno.EROFS)


def begun(path: Path, blocks: int = 2, job: Job | None = None) -> Folder:
    """Run a sweep until it has some blocks."""

    def some(assignment: Assignment) -> Iterator[int]:
        yield from itertools.islice(here(assignment), blocks)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_blocks(job or small(), path, SMALL_CUT, pool=some)
    return Folder(path)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that are computed."""
    computed: list[int] = []
    original = Work.write

    def write(self: Work, index: int, path: Path, output: Path) -> int:
        computed.append(index)
        return original(self, index, path, output)

    monkeypatch.setattr(Work, "write", write)
    return computed


def calls_of(operation: str, path: Path, how: dict[str, Any]) -> int:
    """Return how often a run does something."""
    with pytest.MonkeyPatch.context() as patch:
        original, count = getattr(os, operation), itertools.count()

        def wrapped(*args: Any, **kw: Any) -> Any:
            next(count)
            return original(*args, **kw)

        patch.setattr(os, operation, wrapped)
        run_in_blocks(small(), path, SMALL_CUT, **how)
    path.unlink()
    return next(count)


@pytest.mark.thorough_cases("open", "fsync", "replace", "write")
@pytest.mark.parametrize("operation", ["open", "write", "fsync", "replace", "link", "mkdir"])
def test_every_operation_may_fail(tmp_path: Path, operation: str) -> None:
    fail_at(tmp_path / "x.nc", operation)


def fail_at(path: Path, operation: str) -> None:
    """Let the n-th operation fail, for n one after the other; then finish the run."""
    total = calls_of(operation, path, {})
    assert total > 0
    for number in range(total):
        code = CODES[number % len(CODES)]
        with pytest.MonkeyPatch.context() as patch:
            original, count = getattr(os, operation), itertools.count()

            def failing(
                *args: Any,
                original: Any = original,
                count: Any = count,
                number: int = number,
                code: int = code,
                **kw: Any,
            ) -> Any:
                if next(count) == number:
                    raise OSError(code, os.strerror(code))
                return original(*args, **kw)

            patch.setattr(os, operation, failing)
            try:
                run_in_blocks(small(), path, SMALL_CUT)
            except (InputError, RunError) as error:
                result = str(error)
                assert result.startswith(f"output = '{path}': ")
                assert os.strerror(code).lower() in result
                assert "\n" not in result
        # Absent or complete, and a rerun ends the same.
        assert not path.exists() or path.read_bytes() == whole(small)
        finish(small(), path)
        assert path.read_bytes() == whole(small)
        assert [name for name in names(path.parent) if name != ".x.nc.lock"] == ["x.nc"]
        path.unlink()


def test_finished_blocks_are_not_computed_again(tmp_path: Path, counting: list[int]) -> None:
    path = tmp_path / "x.nc"
    begun(path, 3)
    assert counting == [0, 1, 2]
    counting.clear()
    run_in_blocks(small(), path, SMALL_CUT, resume=True)
    assert min(counting) == 3
    assert path.read_bytes() == whole(small)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_a_damaged_block_is_computed_again(
    tmp_path: Path, counting: list[int], damage: str
) -> None:
    path = tmp_path / "x.nc"
    folder = begun(path, 3)
    block = folder.block(1)
    content = bytearray(block.read_bytes())
    if damage == "flip":
        for position in range(0, len(content), 97):
            content[position] ^= 1 << position % 8
            block.write_bytes(content)
            work = Work(recipe(small()), small().program)
            assert folder.records(1, work.recipe.owner) is None
            content[position] ^= 1 << position % 8
        content[40] ^= 4
    elif damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "empty":
        content.clear()
    else:
        content = bytearray(folder.block(0).read_bytes()[:-60] + content[-60:])
    block.write_bytes(content)
    counting.clear()
    run_in_blocks(small(), path, SMALL_CUT, resume=True)
    assert sorted(counting)[0] == 1
    assert 0 not in counting
    assert path.read_bytes() == whole(small)


def recipe(job: Job) -> Any:
    from sweeps.blocks.work import recipe_of

    return recipe_of(job, SMALL_CUT.limits, SMALL_CUT.per_block)


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_torn_plan_is_none_unless_there_are_blocks(tmp_path: Path, blocks: int) -> None:
    path = tmp_path / "x.nc"
    folder = begun(path, blocks)
    plan = folder.path / "plan.json"
    text = plan.read_text(encoding="utf-8")
    for torn in ("", text[: len(text) // 2], text.replace('"steps": ', '"steps": 1')):
        plan.write_text(torn, encoding="utf-8")
        assert folder.first_start() is None
        if blocks:
            # No crash leaves that: a disk that changes bytes does. Work isn't thrown away unasked.
            result = refusal(small(), path, resume=True)
            assert "'plan.json' is damaged" in result
            assert "--overwrite starts afresh" in result
    finish(small(), path, overwrite=bool(blocks))
    assert path.read_bytes() == whole(small)


def test_blocks_without_a_plan_are_nobody_s(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    (begun(path).path / "plan.json").unlink()
    finish(small(), path)
    assert path.read_bytes() == whole(small)
    assert names(tmp_path) == ["x.nc"]


def test_a_full_disk_is_told_with_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.nc"
    begun(path, 2)
    with monkeypatch.context() as patch:

        def full(*_: Any) -> Iterator[int]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(Work, "records", full)
        patch.setattr(run_module, "free_bytes", lambda _: 10)
        with pytest.raises(RunError) as caught:
            run_in_blocks(small(), path, SMALL_CUT, resume=True)
    result = str(caught.value)
    assert result.startswith(f"output = '{path}': the disk is full (no space left on device; ")
    assert "2 of 4 blocks are kept: --resume goes on with them (needs " in result
    run_in_blocks(small(), path, SMALL_CUT, resume=True)
    assert path.read_bytes() == whole(small)


def test_room_is_asked_for_what_isn_t_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.nc"
    begun(path, 3)
    # Room for the file and a block, not for all of them once more.
    monkeypatch.setattr(publish, "free_bytes", lambda _: int(1.5 * small().nbytes))
    with pytest.raises(RunError, match=r"needs .* of disk, .* are free"):
        run_in_blocks(small(), tmp_path / "y.nc", SMALL_CUT)
    monkeypatch.setattr(publish, "free_bytes", lambda _: 1 << 20)
    asked: list[int] = []
    monkeypatch.setattr(run_module, "require", lambda nbytes, _: asked.append(nbytes))
    run_in_blocks(small(), path, SMALL_CUT, resume=True)
    assert asked == [int(1.25 * small().nbytes)]


def refusal(job: Job, path: Path, **how: Any) -> str:
    with pytest.raises(InputError) as caught:
        run_in_blocks(job, path, SMALL_CUT, **how)
    return str(caught.value)


def test_another_sweep_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.nc"
    begun(path)
    spec = {**SMALL, "axes": {**SMALL["axes"], "ranks": [2, 3, 8, 32]}}
    result = refusal(prepare(spec), path, resume=True)
    assert result.startswith(
        f"--resume = '{path}': has blocks of another sweep: the spec changed since "
    )
    assert "--overwrite to start afresh" in result
    own = prepare(SMALL, options={"formulas": "another"})
    assert "own formulas changed" in refusal(own, path, resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(encode, "code_digest", lambda: "0")
        assert "the code changed" in refusal(prepare(SMALL), path, resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(encode, "versions", lambda *_: {"numpy": "0.1"})
        assert "versions changed" in refusal(prepare(SMALL), path, resume=True)
    # Nothing of all this has touched the blocks.
    run_in_blocks(small(), path, SMALL_CUT, resume=True)
    assert path.read_bytes() == whole(small)


def test_unfinished_blocks_are_not_thrown_away_unasked(tmp_path: Path, counting: list[int]) -> None:
    path = tmp_path / "x.nc"
    begun(path)
    result = refusal(small(), path)
    assert "has 2 of" in result
    assert "--resume goes on with it, --overwrite starts afresh" in result
    counting.clear()
    run_in_blocks(small(), path, SMALL_CUT, overwrite=True)
    assert counting[:3] == [0, 1, 2]
    assert path.read_bytes() == whole(small)
    # Where there is no block yet, there is nothing to throw away.
    begun(tmp_path / "y.nc", 0)
    run_in_blocks(small(), tmp_path / "y.nc", SMALL_CUT)


def test_dates_and_the_command_are_those_of_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.nc"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    begun(path, job=prepare(SMALL, command=["sweeps", "first"]))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1500000000")
    run_in_blocks(prepare(SMALL, command=["sweeps", "second"]), path, SMALL_CUT, resume=True)
    with open_dataset(path) as dataset:
        assert dataset.attrs["date_created"].startswith("2001-09-09")
        assert dataset.attrs["history"].endswith("sweeps first")


def test_how_it_was_cut_first_stays(tmp_path: Path, counting: list[int]) -> None:
    from sweeps.blocks.run import Cut

    path = tmp_path / "x.nc"
    folder = begun(path)
    start = folder.first_start()
    assert start is not None
    run_in_blocks(small(), path, Cut(Limits(block=1), 1), resume=True)
    assert sorted(set(counting)) == list(range(start.blocks))
    assert path.read_bytes() == whole(small)


RACER = """
import sys
from pathlib import Path
from sweeps.blocks.run import here, run_in_blocks
from sweeps.errors import InputError, RunError
from tests.run.sweep import SMALL_CUT, small

def waiting(assignment):
    print("computing", flush=True)
    sys.stdin.readline()
    yield from here(assignment)

try:
    run_in_blocks(small(), Path(sys.argv[1]), SMALL_CUT, pool=waiting)
except (InputError, RunError) as error:
    print(error, file=sys.stderr)
    sys.exit(2 if isinstance(error, InputError) else 1)
"""


@pytest.mark.thorough
def test_of_two_racing_runs_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    racers = [child(RACER, str(path)) for _ in range(2)]
    # The winner waits until the other one has given up.
    first = {racer.stdout.readline(): racer for racer in racers if racer.stdout is not None}
    assert set(first) == {"computing\n", ""}
    _, wrong = first[""].communicate(timeout=HANG_SECONDS)
    assert first[""].returncode == 1
    assert "is being written by another run" in wrong
    winner = first["computing\n"]
    assert winner.communicate("go on\n", timeout=HANG_SECONDS) == ("", "")
    assert winner.returncode == 0
    assert verify(path) == ()
    assert names(tmp_path) == ["x.nc"]


@pytest.mark.thorough
def test_a_killed_run_s_lock_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    one = child(RACER, str(path))
    assert one.stdout is not None
    assert one.stdout.readline() == "computing\n"
    with pytest.raises(RunError, match="is being written by another run"):
        run_in_blocks(small(), path, SMALL_CUT, resume=True)
    one.kill()
    one.communicate()
    assert Folder(path).first_start() is not None
    run_in_blocks(small(), path, SMALL_CUT, overwrite=True)
    assert path.read_bytes() == whole(small)
    assert names(tmp_path) == ["x.nc"]


def test_the_plan_says_what_it_is_of(tmp_path: Path) -> None:
    folder = begun(tmp_path / "x.nc")
    content = json.loads((folder.path / "plan.json").read_text(encoding="utf-8"))
    assert set(content["identity"]) == {
        "the spec",
        "the code",
        "versions",
        "own formulas",
        "machines, models or options",
    }
    assert "numpy" in content["identity"]["versions"]
