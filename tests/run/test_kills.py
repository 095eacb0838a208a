"""Killed at random moments until it is done: the same file, and little computed twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeps.blocks.folder import Folder
from sweeps.blocks.recipe import recipe_of
from sweeps.store.read import verify
from tests.run.sweep import ROOT, SMALL_CUT, child, names, small

RUNNER = """
import sys, time
from pathlib import Path
from sweeps.blocks.pools import processes
from sweeps.blocks.run import here
from sweeps.blocks.work import Work
from tests.run.sweep import finish, small

write = Work.write

def slowly(self, index, path, output):
    print("computing", index, flush=True)
    time.sleep(0.03)
    return write(self, index, path, output)

Work.write = slowly
job = small()
job.attrs
print("ready", flush=True)
finish(job, Path(sys.argv[1]))
"""


def killed_run(path: Path, after: float) -> tuple[list[int], bool]:
    """Run, and kill it after so many seconds; return the blocks begun, and whether it ended."""
    one = child(RUNNER, str(path))
    assert one.stdout is not None
    line = one.stdout.readline()
    if line != "ready\n":
        raise AssertionError(one.communicate()[1])
    time.sleep(after)
    one.kill()
    out, err = one.communicate()
    if one.returncode != -9:
        assert one.returncode == 0, err
    return [int(line.split()[1]) for line in out.splitlines()], one.returncode == 0


def until_done(path: Path, draw: random.Random, most_kills: int) -> int:
    """Kill runs at random moments; return how often, with the file checked."""
    computed: list[int] = []
    kills = 0
    while True:
        after = draw.uniform(0.0, 0.25) if kills < most_kills else 60.0
        if after == 60.0:
            one = child(RUNNER, str(path))
            out, err = one.communicate(timeout=120)
            assert one.returncode == 0, err
            begun, done = [int(x.split()[1]) for x in out.splitlines()[1:]], True
        else:
            begun, done = killed_run(path, after)
        computed += begun
        if done:
            break
        kills += 1
    blocks = len(set(computed))
    assert sorted(set(computed)) == list(range(blocks))
    # Of each killed run at most the block that it was at.
    assert len(computed) - blocks <= kills
    assert verify(path) == ()
    assert names(path.parent) == [path.name]
    return kills


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("complete") / "x.nc"
    _, err = child(RUNNER, str(path)).communicate(timeout=120)
    assert path.exists(), err
    return path.read_bytes()


def test_a_few_kills(tmp_path: Path, complete: bytes) -> None:
    kills = until_done(tmp_path / "x.nc", random.Random(1), 4)
    assert kills >= 2
    assert (tmp_path / "x.nc").read_bytes() == complete


@pytest.mark.slow
def test_many_kills(tmp_path: Path, complete: bytes) -> None:
    draw, kills, number = random.Random(2), 0, 0
    while kills < 50:
        folder = tmp_path / str(number)
        folder.mkdir()
        kills += until_done(folder / "x.nc", draw, 8)
        assert (folder / "x.nc").read_bytes() == complete
        number += 1


PARENT = """
import sys
from pathlib import Path
from sweeps.blocks.pools import processes
from sweeps.blocks.run import Cut, run_in_blocks
from sweeps.engine.evaluate import Limits
from tests.run.sweep import large

if __name__ == "__main__":
    def telling(assignment):
        for index in processes(2)(assignment):
            import multiprocessing
            print(*(one.pid for one in multiprocessing.active_children()), flush=True)
            yield index

    run_in_blocks(large(), Path(sys.argv[1]), Cut(Limits(block=13), 1), pool=telling)
"""


def is_running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    one = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "x.nc")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert one.stdout is not None
    children = [int(pid) for pid in one.stdout.readline().split()]
    assert len(children) == 2
    one.kill()
    one.wait()
    until = time.monotonic() + 10
    while any(map(is_running, children)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, children))


def test_a_recipe_says_whose_block_it_is() -> None:
    one = recipe_of(small(), SMALL_CUT.limits, 2)
    other = recipe_of(small(), SMALL_CUT.limits, 3)
    assert one.owner != other.owner
    assert Folder(Path("/x/y.nc")).path == Path("/x/.y.nc.run")
