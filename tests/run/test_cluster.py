"""A real Dask scheduler and two workers on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.blocks.cluster import cluster
from sweeps.blocks.run import Assignment, Cut, run_in_blocks
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError, RunError
from tests.run.sweep import ROOT, large, names, whole

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask and distributed aren't installed"
)
CUT = Cut(Limits(block=13), 2)


def test_without_dask_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "distributed" else found(name)
    )
    with pytest.raises(InputError, match="pip install 'overhead-sweeps\\[dask\\]'"):
        cluster("tcp://127.0.0.1:1")


@contextlib.contextmanager
def dask(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Run a scheduler and two workers; give the scheduler's address and the processes."""
    import json

    told = folder / "scheduler.json"
    alone = ("--no-dashboard", "--scheduler-file", str(told))
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(
            dask("scheduler", "--host", "127.0.0.1", "--port", "0", *alone)
        )
        until = time.monotonic() + 60
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.05)
        workers = [
            stack.enter_context(dask("worker", "--nthreads", "1", "--no-nanny", *alone))
            for _ in range(2)
        ]
        yield json.loads(told.read_text(encoding="utf-8"))["address"], [scheduler, *workers]


@needs_dask
def test_a_cluster_that_loses_a_worker_and_then_its_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    (tmp_path / "dask").mkdir()
    with running(tmp_path / "dask") as (address, (scheduler, first, _)):
        run_in_blocks(large(), path, CUT, pool=cluster(address))
        assert path.read_bytes() == whole(large)
        path.unlink()

        def losing(process: subprocess.Popen[bytes], computed: list[int]):  # type: ignore[no-untyped-def]
            def pool(assignment: Assignment) -> Iterator[int]:
                for number, index in enumerate(cluster(address)(assignment)):
                    if number == 3:
                        process.kill()
                        process.wait()
                    computed.append(index)
                    yield index

            return pool

        # A worker's blocks are given to the other one.
        run_in_blocks(large(), path, CUT, pool=losing(first, []))
        assert path.read_bytes() == whole(large)
        path.unlink()

        computed: list[int] = []
        with pytest.raises(RunError, match=r"is lost .*; finished blocks are kept, --resume"):
            run_in_blocks(large(), path, CUT, pool=losing(scheduler, computed))
        with pytest.raises(RunError, match=f"--scheduler = '{address}': doesn't answer"):
            _quickly(path, address)
    # What the cluster has done isn't done again, here without it.
    again: list[int] = []

    def counting(assignment: Assignment) -> Iterator[int]:
        from sweeps.blocks.run import here

        for index in here(assignment):
            again.append(index)
            yield index

    run_in_blocks(large(), path, CUT, pool=counting, resume=True)
    assert len(computed) > 2
    assert not set(computed) & set(again)
    assert path.read_bytes() == whole(large)
    assert names(tmp_path) == ["dask", "x.nc"]


def _quickly(path: Path, address: str) -> None:
    from sweeps.blocks import cluster as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CONNECTING_SECONDS", 1)
        run_in_blocks(large(), path, CUT, pool=cluster(address), resume=True)


@needs_dask
def test_workers_that_cannot_see_the_folder(tmp_path: Path) -> None:
    from sweeps.blocks.work import compute_block

    with pytest.raises(RunError, match="workers need a folder that they share"):
        compute_block(str(tmp_path / "elsewhere"), "0" * 64, 0, "x.nc")
