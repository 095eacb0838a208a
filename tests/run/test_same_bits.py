"""However a sweep is cut, whoever computes it, wherever it goes on: the same file, bit for bit."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.blocks import run as processes_module
from sweeps.blocks.estimate import names_of
from sweeps.blocks.run import Assignment, Cut, Pool, here, processes, run_in_blocks
from sweeps.blocks.work import compute_block
from sweeps.engine.evaluate import Limits
from sweeps.engine.program import Steps
from sweeps.errors import RunError
from sweeps.store.netcdf import verify
from tests.engine.reduce_cases import Case, bits, cases, feed, partitions, results
from tests.engine.reduce_cases import whole as all_of
from tests.run.sweep import large, names, whole

EVERYTHING = 10**9


@pytest.mark.parametrize("cells", [1, 7, 64, EVERYTHING])
def test_steps_are_the_plan_s_blocks(cells: int) -> None:
    plan = large().program
    variables = [variable.name for variable in plan.variables]
    steps = Steps(plan, variables, Limits(block=cells))
    alone = [
        (block.name, block.region, block.values.tobytes())
        for number in range(len(steps))
        for block in steps.run(number, number + 1)
    ]
    assert alone == [(b.name, b.region, b.values.tobytes()) for b in plan.blocks(None, cells)]


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("per_block", [1, 7, 64, EVERYTHING])
@pytest.mark.parametrize("cells", [13, 1 << 17])
def test_blocks_of_any_size(tmp_path: Path, cells: int, per_block: int) -> None:
    written = run_in_blocks(large(), tmp_path / "x.nc", Cut(Limits(block=cells), per_block))
    assert (tmp_path / "x.nc").read_bytes() == whole(large)
    assert verify(written.path) == ()
    assert names(tmp_path) == ["x.nc"]


@pytest.mark.parametrize("limits", [Limits(7, 1), Limits(64, 64), Limits(5, 1 << 18)])
def test_little_memory_gives_the_same_numbers(tmp_path: Path, limits: Limits) -> None:
    run_in_blocks(large(), tmp_path / "x.nc", Cut(limits, 64))
    assert (tmp_path / "x.nc").read_bytes() == whole(large)


def counted(pool: Pool, computed: list[int]) -> Pool:
    def counting(assignment: Assignment) -> Iterator[int]:
        for index in pool(assignment):
            computed.append(index)
            yield index

    return counting


@pytest.mark.thorough
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_however_processes_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr(processes_module, "_start", lambda: start)
    run_in_blocks(large(), tmp_path / "x.nc", Cut(Limits(block=64), 7), pool=processes(2))
    assert (tmp_path / "x.nc").read_bytes() == whole(large)


def test_each_process_has_a_run_of_blocks_and_every_block_comes_once() -> None:
    assert list(processes_module._in_runs([1, 2, 4, 5, 8], 2)) == [1, 5, 2, 8, 4]
    for blocks, count in itertools.product(range(1, 12), range(1, 6)):
        actual = list(processes_module._in_runs(list(range(blocks)), count))
        assert sorted(actual) == list(range(blocks))
        runs = -(-blocks // -(-blocks // count))
        assert actual[:runs] == [-(-blocks // count) * run for run in range(runs)]


def test_processes_are_copies_where_that_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(threads: int, platform: str, *modules: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(threading, "active_count", lambda: threads)
            patch.setattr(sys, "platform", platform)
            patch.setattr(sys, "modules", dict.fromkeys(("numpy", *modules)))
            return processes_module._start()

    assert started(1, "linux") == "fork"
    for other in ((2, "linux"), (1, "darwin"), (1, "linux", "torch"), (1, "linux", "jax")):
        assert started(*other) == "spawn", other


class Stop(Exception):
    """What ends a run here."""


@pytest.mark.thorough_cases(but=("64-1",))
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("per_block", [1, 7, 64, EVERYTHING])
def test_workers_and_resume_points(tmp_path: Path, workers: int, per_block: int) -> None:
    # Starting processes takes its time: at all points for one of the cuts alone.
    everywhere = not workers or (workers, per_block) == (2, 7)
    at_resume_points(tmp_path, workers, per_block, everywhere=everywhere)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("per_block", [1, 7, 64, EVERYTHING])
def test_workers_and_all_resume_points(tmp_path: Path, workers: int, per_block: int) -> None:
    at_resume_points(tmp_path, workers, per_block, everywhere=True)


def at_resume_points(tmp_path: Path, workers: int, per_block: int, *, everywhere: bool) -> None:
    cut = Cut(Limits(block=64), per_block)
    count = -(-len(Steps(large().program, names_of(large()), cut.limits)) // per_block)
    path = tmp_path / "x.nc"
    # Stopped after some blocks by this process, it goes on here or with workers.
    stops = sorted({0, 1, count // 2, count - 1} & set(range(count)))
    for stop in stops if everywhere else [stops[len(stops) // 2]]:

        def some(assignment: Assignment, stop: int = stop) -> Iterator[int]:
            yield from itertools.islice(here(assignment), stop)
            raise Stop

        with pytest.raises(Stop):
            run_in_blocks(large(), path, cut, pool=some)
        computed: list[int] = []
        pool = counted(processes(workers) if workers else here, computed)
        run_in_blocks(large(), path, cut, pool=pool, resume=True)
        assert sorted(computed) == list(range(stop, count))
        assert path.read_bytes() == whole(large)
        assert names(tmp_path) == ["x.nc"]
        path.unlink()


@pytest.mark.thorough_cases("False-max", every=2)
@pytest.mark.parametrize("operation", ["min", "max", "top", "mean", "quantile", "histogram"])
@pytest.mark.parametrize("in_memory", [True, False])
@settings(max_examples=12)
@given(case=cases(longest=20), data=st.data())
def test_parts_are_merged_to_the_same_bits(
    operation: str, in_memory: bool, case: Case, data: st.DataObject
) -> None:
    from sweeps.engine import reduce_quantile

    before = reduce_quantile.MOST_VALUES
    reduce_quantile.MOST_VALUES = before if in_memory else 0
    try:
        made = case.reducer(operation, **({"count": 3} if operation == "top" else {}))
        alone = feed(type(made)(made.task), case.values, [all_of(case.values.shape)])
        for region in data.draw(partitions(case.values.shape)):
            box = made.task.split.box(region)
            part = made.part(box)
            part.update(region, case.values[region])
            again = made.part(box)
            again.restore({name: _read_only(value) for name, value in part.state().items()})
            made.merge(again)
        assert bits(results(made)) == bits(results(alone))
    finally:
        reduce_quantile.MOST_VALUES = before


def _read_only(values: np.ndarray) -> np.ndarray:
    copy = np.array(values)
    copy.flags.writeable = False
    return copy


def test_what_lacks_a_block_gives_nothing(tmp_path: Path) -> None:
    def lazy(assignment: Assignment) -> Iterator[int]:
        yield from ()

    # What no one computes is computed when the blocks are gathered.
    run_in_blocks(large(), tmp_path / "x.nc", Cut(Limits(block=64), 7), pool=lazy)
    assert (tmp_path / "x.nc").read_bytes() == whole(large)


def test_processes_that_die_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(task: tuple[str, str, str], blocks: list[int], count: int) -> Iterator[int]:
        yield compute_block(task[0], task[1], blocks[0], task[2])[0]
        raise BrokenProcessPool

    monkeypatch.setattr(processes_module, "_computed", dying)
    with pytest.raises(RunError, match=r"processes died 5 times.*--resume goes on"):
        run_in_blocks(large(), tmp_path / "x.nc", Cut(Limits(block=64), 1), pool=processes(2))
    computed: list[int] = []
    cut, pool = Cut(Limits(block=64), 1), counted(here, computed)
    run_in_blocks(large(), tmp_path / "x.nc", cut, pool=pool, resume=True)
    assert min(computed) == 5
    assert (tmp_path / "x.nc").read_bytes() == whole(large)


@pytest.mark.thorough
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    import multiprocessing

    def one_dies(assignment: Assignment) -> Iterator[int]:
        for number, index in enumerate(processes(2)(assignment)):
            if number == 0:
                multiprocessing.active_children()[0].kill()
            yield index

    run_in_blocks(large(), tmp_path / "x.nc", Cut(Limits(block=64), 1), pool=one_dies)
    assert (tmp_path / "x.nc").read_bytes() == whole(large)
    assert names(tmp_path) == ["x.nc"]
