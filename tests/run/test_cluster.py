"""A real Dask scheduler and two workers on this machine."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.blocks import run as pools
from sweeps.blocks.run import Assignment, Cut, cluster, run_in_blocks
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError, RunError
from sweeps.job import Job, prepare
from sweeps.store.publish import is_temporary
from tests.run.slow_worker import WAIT
from tests.run.sweep import EPOCH, HANG_SECONDS, LARGE, ROOT, child, large, names, wait_until, whole

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

    result = folder / "scheduler.json"
    alone = ("--no-dashboard", "--scheduler-file", str(result))
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(
            dask("scheduler", "--host", "127.0.0.1", "--port", "0", *alone)
        )
        wait_until(result.exists)
        slow = ("--preload", "tests.run.slow_worker")
        workers = [
            stack.enter_context(dask("worker", "--nthreads", "1", "--no-nanny", *slow, *alone))
            for _ in range(2)
        ]
        yield json.loads(result.read_text(encoding="utf-8"))["address"], [scheduler, *workers]


@needs_dask
@pytest.mark.thorough
def test_a_cluster_that_loses_a_worker_and_then_its_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.nc"
    (tmp_path / "dask").mkdir()
    with running(tmp_path / "dask") as (address, (scheduler, first, _)):
        with monkeypatch.context() as patch:
            # Workers may take long to start.
            patch.setattr(pools, "CONNECTING_SECONDS", HANG_SECONDS)
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

        lose_the_client(path, address)
        path.unlink()

        # A worker's blocks are given to the other one.
        run_in_blocks(large(), path, CUT, pool=losing(first, []))
        assert path.read_bytes() == whole(large)
        path.unlink()

        computed: list[int] = []
        with pytest.raises(RunError, match=r"is lost .*--resume goes on"):
            run_in_blocks(large(), path, CUT, pool=losing(scheduler, computed))
        with pytest.raises(RunError, match=f"--scheduler = '{address}': doesn't answer"):
            _quickly(path, address)
    # What the cluster has done isn't done again, here without it.
    indexes: list[int] = []

    def counting(assignment: Assignment) -> Iterator[int]:
        from sweeps.blocks.run import here

        for index in here(assignment):
            indexes.append(index)
            yield index

    run_in_blocks(large(), path, CUT, pool=counting, resume=True)
    assert len(computed) > 2
    assert not set(computed) & set(indexes)
    assert path.read_bytes() == whole(large)
    assert names(tmp_path) == ["dask", "x.nc"]


@needs_dask
@pytest.mark.thorough
def test_the_scheduler_knows_few_tasks_and_short_blocks_share_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dask: Any = importlib.import_module("distributed")
    each = pools.RUN_SECONDS / 5
    monkeypatch.setattr(pools, "compute_blocks", lambda folder, digest, blocks, output: each)
    alone = {"processes": False, "dashboard_address": None}
    with (
        dask.LocalCluster(n_workers=2, threads_per_worker=1, **alone) as one,
        dask.Client(one.scheduler_address, set_as_default=False) as client,
    ):
        sent, submit = list[str](), client.submit

        def counting(*args: Any, key: str, **options: Any) -> Any:
            sent.append(key)
            return submit(*args, key=key, **options)

        client.submit = counting
        found, known = [], []
        for index in pools._cluster_computed(client, ("", "", ""), tuple(range(200))):
            found.append(index)
            known.append(len(one.scheduler.tasks))
    assert sorted(found) == list(range(200))
    # Those that wait or are computed, and what was told of last.
    assert max(known) <= 2 * pools.AHEAD + 4
    # The scheduler keeps a note of each of these.
    assert len(set(sent)) == len(sent) < 200 / 3


CLIENT = """
import sys
from pathlib import Path
from sweeps.blocks import run as pools
from sweeps.blocks.run import cluster
from sweeps.blocks.run import run_in_blocks
from tests.run.sweep import large
from tests.run.test_cluster import CUT

run_in_blocks(large(), Path(sys.argv[1]), CUT, pool=cluster(sys.argv[2]))
"""


def lose_the_client(path: Path, address: str) -> None:
    """Kill a client while workers are at its blocks, and go on at once on the same cluster."""
    wait, folder = path.parent / WAIT, path.parent / f".{path.name}.run"
    wait.touch()
    client = child(CLIENT, str(path), address)
    wait_until(lambda: bool(blocks_begun(folder)))
    client.kill()
    client.communicate()

    def taken_over(assignment: Assignment) -> Iterator[int]:
        # The blocks that workers have begun end only when this run has taken the folder over.
        wait.unlink()
        yield from cluster(address)(assignment)

    run_in_blocks(large_then(), path, CUT, pool=taken_over, resume=True)
    assert path.read_bytes() == whole(large_then)


def blocks_begun(folder: Path) -> list[Path]:
    found = folder.iterdir() if folder.exists() else ()
    return [block for block in found if is_temporary(block) and "block" in block.name]


def large_then() -> Job:
    """The same sweep with the date that children give it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        job = prepare(LARGE)
        assert job.attrs
    return job


def _quickly(path: Path, address: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "CONNECTING_SECONDS", 1)
        run_in_blocks(large(), path, CUT, pool=cluster(address), resume=True)


@needs_dask
def test_workers_that_cannot_see_the_folder(tmp_path: Path) -> None:
    from sweeps.blocks.work import compute_block

    with pytest.raises(RunError, match="workers need a folder that they share"):
        compute_block(str(tmp_path / "elsewhere"), "0" * 64, 0, "x.nc")


FAULTS = """
import resource, threading
import numpy as np
from sweeps.blocks.work import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(1 << 17) + 1.0
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

def work():
    faults()
    keep_freed()
    faults()

counts = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(*counts)
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="another C library")
def test_dask_s_setting_of_the_allocator_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Dask starts its workers.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    out, err = child(FAULTS).communicate(timeout=HANG_SECONDS)
    before, after = map(int, out.split())
    # Each of 200 arrays of 256 pages is cleared anew, or nearly none.
    assert before > 10_000, err
    assert after < 2_000
