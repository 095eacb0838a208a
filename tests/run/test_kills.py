"""Killed at any moment until it is done: the same file, and little computed twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sweeps.blocks.folder import Folder
from sweeps.blocks.work import recipe_of
from sweeps.errors import RunError
from sweeps.store.netcdf import verify
from sweeps.store.publish import hold
from tests.run.sweep import HANG_SECONDS, SMALL_CUT, child, names, small
from tests.tables import examples

# Runs in processes of its own, one for each line that it is told. Each says at which moment it is,
# and waits there until it is told to go on, or is killed.
RUNNER = """
import os, sys, traceback
from pathlib import Path
from sweeps.blocks.work import Work
from tests.run.sweep import finish, small

def moment(text):
    print(text, flush=True)
    if not sys.stdin.readline():
        os._exit(3)

def named(path):
    name = Path(os.fspath(path)).name
    return "temporary" if name.endswith(".tmp") else name

def watched(operation):
    call = getattr(os, operation)
    def wrapped(*paths, **more):
        what = f"{operation} {named(paths[-1])}"
        moment(f"before {what}")
        found = call(*paths, **more)
        moment(f"after {what}")
        return found
    setattr(os, operation, wrapped)

records = Work.records

def announced(self, index):
    moment(f"block {index} begins")
    yield from records(self, index)

def progress(stage):
    return lambda done, total: moment(f"{stage} {done} of {total}")

def run(path):
    status = 1
    try:
        Work.records = announced
        for operation in ("replace", "link", "unlink", "rmdir"):
            watched(operation)
        moment(f"process {os.getpid()}")
        finish(job, Path(path), progress=progress)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)

job = small()
job.attrs
for line in iter(sys.stdin.readline, ""):
    process = os.fork()
    if process == 0:
        run(line.rstrip())
    print("ended", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class Runs:
    """Runs of the small sweep, each of which can be killed at any of its moments."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line.rstrip()

    def __call__(self, path: Path, kill_at: int | str = 0) -> list[str]:
        """Run, and kill it at a moment, its number or beginning; return the moments until then."""
        self.say(str(path))
        process, moments = int(self.hear().removeprefix("process ")), list[str]()
        while True:
            self.say("go on")
            moments.append(self.hear())
            if moments[-1].startswith("ended "):
                # Nothing has failed, and what was to be killed has come to its moment.
                assert (moments.pop(), kill_at) == ("ended 0", 0)
                return moments
            if kill_at == len(moments) or moments[-1].startswith(str(kill_at)):
                os.kill(process, signal.SIGKILL)
                assert self.hear() == f"ended -{signal.SIGKILL:d}"
                return moments


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with child(RUNNER) as process:
        yield Runs(process)
        process.kill()


@pytest.fixture(scope="module")
def complete(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """What the file is, and how many moments a run has that nobody kills."""
    path = tmp_path_factory.mktemp("complete") / "x.nc"
    moments = runs(path)
    return path.read_bytes(), len(moments)


def begun(moments: Sequence[str]) -> list[int]:
    return [int(text.split()[1]) for text in moments if text.endswith(" begins")]


def check(path: Path, computed: list[int], kills: int, content: bytes) -> None:
    blocks = len(set(computed))
    assert sorted(set(computed)) == list(range(blocks))
    # Of each killed run at most the block that it was at.
    assert len(computed) - blocks <= kills
    assert path.read_bytes() == content
    assert verify(path) == ()
    assert names(path.parent) == [path.name]


# Where runs of one sweep are killed, one after the other, and the blocks that each has begun.
KILLED = examples(__file__, "killed")


@pytest.mark.thorough
def test_killed_at_every_stage(tmp_path: Path, runs: Runs, complete: tuple[bytes, int]) -> None:
    path, computed = tmp_path / "x.nc", list[int]()
    for moment, blocks in KILLED:
        assert begun(runs(path, moment)) == blocks
        computed += blocks
        assert path.exists() == (moment in {"after link x.nc", "after unlink plan.json"})
    assert begun(runs(path)) == []
    check(path, computed, len(KILLED), complete[0])


@pytest.mark.slow
def test_killed_at_every_moment(tmp_path: Path, runs: Runs, complete: tuple[bytes, int]) -> None:
    content, count = complete
    for moment in range(1, count + 1):
        path = tmp_path / str(moment) / "x.nc"
        path.parent.mkdir()
        first = runs(path, moment)
        check(path, begun(first) + begun(runs(path)), 1, content)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path, runs: Runs, complete: tuple[bytes, int]) -> None:
    draw = random.Random(2)
    for folder in range(50):
        path, computed = tmp_path / str(folder) / "x.nc", list[int]()
        path.parent.mkdir()
        kills = 0
        # Early in what is left: later the sweep would be complete.
        while kills < 8 and not path.exists():
            computed += begun(runs(path, draw.randint(1, 12)))
            kills += 1
        computed += begun(runs(path))
        check(path, computed, kills, complete[0])


PARENT = """
import multiprocessing, sys
from pathlib import Path
from sweeps.blocks.run import processes
from sweeps.blocks.run import Cut, run_in_blocks
from sweeps.engine.evaluate import Limits
from tests.run.sweep import large

if __name__ == "__main__":
    def announced(assignment):
        for index in processes(2)(assignment):
            print(len(multiprocessing.active_children()), flush=True)
            sys.stdin.readline()
            yield index

    run_in_blocks(large(), Path(sys.argv[1]), Cut(Limits(block=13), 1), pool=announced)
"""


@pytest.mark.thorough
def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    one = child(str(script), str(tmp_path / "x.nc"), file=True)
    assert one.stdout is not None
    assert one.stdout.readline() == "2\n"
    one.kill()
    # The processes have the same standard output: it ends when the last of them has ended.
    one.communicate(timeout=HANG_SECONDS)


# A process whose copy lives on: the copy tells its number while the process holds a lock.
COPIED = """
import os, sys
from pathlib import Path
from sweeps.store.publish import hold

with hold(Path(sys.argv[1])):
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    sys.stdin.readline()
"""


def test_a_lock_is_dropped_with_its_holder_and_not_with_a_copy_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with child(COPIED, str(path)) as one:
        assert one.stdout is not None
        process = int(one.stdout.readline())
        with pytest.raises(RunError, match="being written by another run"), hold(path):
            pass
        one.kill()
        one.wait()
        try:
            with hold(path) as lock:
                assert lock
        finally:
            os.kill(process, signal.SIGKILL)


def test_a_recipe_says_whose_block_it_is() -> None:
    recipe = recipe_of(small(), SMALL_CUT.limits, 2)
    other_recipe = recipe_of(small(), SMALL_CUT.limits, 3)
    assert recipe.owner != other_recipe.owner
    assert Folder(Path("/x/y.nc")).path == Path("/x/.y.nc.run")
