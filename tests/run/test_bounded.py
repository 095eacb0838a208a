"""What bounds leave is kept part by part: killed, resumed or shared out, it is the same file."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.blocks import run, work
from sweeps.blocks.folder import Folder
from sweeps.blocks.run import Cut, Means, processes, run_in_blocks, write_sweep
from sweeps.engine import bounds
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError
from sweeps.job import Job, prepare
from tests.run.sweep import EPOCH, HANG_SECONDS, ROOT

OVER = ["tp", "pp", "micro_batch_size", "recompute", "inter_bandwidth", "gpu_hour_price"]
COST = "cost_per_trillion_tokens"
SPEC: dict[str, Any] = {
    "title": "The least, and the ten least, of plans",
    "quantities": [],
    "constants": {"model": "llama3-8b", "hardware": "dgx-h100", "world_size": 64,
                  "global_batch_size": 64, "sequence_length": 4096},
    "axes": {"tp": [1, 2, 4, 8], "pp": [1, 2, 4], "micro_batch_size": [1, 2], "zero_stage": [0, 1],
             "recompute": ["none", "full"], "inter_bandwidth": "10GB/s:100GB/s:lin20",
             "gpu_hour_price": "1:3:lin10"},
    "reductions": [
        {"name": "least", "quantity": COST, "operation": "min", "over": OVER},
        {"name": "most", "quantity": COST, "operation": "top", "count": 10, "over": OVER},
        {"name": "front", "quantity": COST, "operation": "pareto", "against": "peak_memory",
         "over": OVER},
    ],
}  # fmt: skip
CUT = Cut(Limits(), 1, bounded=True)
# Kills itself when it begins its fifth part.
CHILD = """
import os, signal, sys
from pathlib import Path
from tests.run import test_bounded as case
records = case.work.Work.records
def announced(self, index):
    if index == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return records(self, index)
case.work.Work.records = announced
case.small(lambda name, value: setattr(*name, value))
case.run_in_blocks(case.job(), Path(sys.argv[1]), case.CUT)
"""


def job() -> Job:
    return prepare(SPEC, text="the same", command=["sweeps"])


def small(put: Any) -> None:
    """Make parts so small that there are some of each set of labels."""
    put((bounds, "POINTS"), 8)
    put((work, "PARTS"), 3)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of all cells, each computed."""
    path = tmp_path_factory.mktemp("computed") / "whole.nc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        patch.setattr(bounds, "WORTH", np.inf)
        write_sweep(job(), path, Means())
    return path


@pytest.fixture
def whole(computed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, beside small parts."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    small(lambda name, value: monkeypatch.setattr(*name, value))
    return computed


@pytest.mark.thorough
def test_parts_give_what_computing_everything_gives(tmp_path: Path, whole: Path) -> None:
    path, made = tmp_path / "parts.nc", job()
    run_in_blocks(made, path, CUT)
    assert path.read_bytes() == whole.read_bytes()
    assert [block.name for block in made.touched] == ["least", "most", "front"]
    assert all(0 < block.cells < block.total for block in made.touched)


@pytest.mark.thorough
def test_a_killed_run_goes_on_with_what_it_has(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "killed.nc"
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], cwd=ROOT, timeout=HANG_SECONDS, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert not path.exists()
    kept = sorted(one.name for one in Folder(path).path.glob("*.block"))
    assert kept == [f"{index:08d}.block" for index in range(5)]
    with pytest.raises(InputError, match="--resume goes on with it"):
        write_sweep(job(), path, Means())
    records, begun = work.Work.records, []

    def counted(self: Any, index: int) -> Any:
        begun.append(index)
        return records(self, index)

    monkeypatch.setattr(work.Work, "records", counted)
    write_sweep(job(), path, Means(resume=True))
    assert begun[0] == min(begun) == 5
    assert path.read_bytes() == whole.read_bytes()
    assert not Folder(path).exists()


@pytest.mark.thorough
def test_processes_that_share_parts_give_the_same(tmp_path: Path, whole: Path) -> None:
    path = tmp_path / "shared.nc"
    # Processes of their own have parts of the usual size, of which there is one for each label.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "POINTS", 1 << 16)
        patch.setattr(work, "PARTS", 16)
        run_in_blocks(job(), path, CUT, pool=processes(2))
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.thorough
def test_bounds_that_take_long_are_kept(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LASTING", 0.0)
    estimate, actual = run.estimate, []
    monkeypatch.setattr(
        run, "estimate", lambda *args: replace(estimate(*args), seconds=1e9, kept_nbytes=0)
    )

    def told(*args: Any, **more: Any) -> Any:
        actual.append(args[2].bounded)
        return run_in_blocks(*args, **more)

    monkeypatch.setattr(run, "run_in_blocks", told)
    path = tmp_path / "long.nc"
    write_sweep(job(), path, Means())
    assert actual == [True]
    assert path.read_bytes() == whole.read_bytes()
