"""Speed and memory of long sweeps: to a file, by workers, with checkpoints, into reductions."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.blocks.estimate import estimate, limits_for
from sweeps.blocks.run import Cut, Means, Pool, cut_for, here, processes, run_in_blocks, write_sweep
from sweeps.job import Job, prepare
from sweeps.store.netcdf import write
from tests.benchmarks.conftest import raw_file

Ratio = Callable[[str, float, float, str], None]
MEMORY = "2 GiB"
# What takes its time: every plan of a model, on many networks.
STEPS: dict[str, Any] = {
    "quantities": ["step_time"],
    "axes": {
        "plan": {"every": "tp,cp,pp", "world_size": 1024, "tp": [1, 2, 4, 8]},
        "micro_batch_size": [1, 2, 4],
        "zero_stage": [1, 3],
        "inter_bandwidth": "5e9:4e11:log97",
        "inter_latency": "1e-6:2e-5:log21",
    },
    "constants": {
        "model": "llama3-70b",
        "hardware": "dgx-h100",
        "sequence_length": 8192,
        "global_batch_size": 1024,
        "sequence_parallel": 1,
    },
}
RING: dict[str, Any] = {
    "axes": {
        "ranks": "2:101:lin100",
        "message_bytes": "1e3:1e10:log1000",
        "latency": "1e-6:1e-5:lin10",
    },
    "constants": {"algorithm": "ring"},
}


def ring(bandwidths: int, **more: Any) -> Job:
    """Return a sweep of so many million cells."""
    axes = {**RING["axes"], "bandwidth": f"1e9:1e12:log{bandwidths}"}
    return prepare({**RING, "axes": axes, **more})


def cpu() -> float:
    """Return the CPU seconds of this process, and of those that it has started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def best_of(rounds: int, *works: Callable[[], object]) -> list[tuple[float, float]]:
    """Return the best time and the best CPU time of each work, in turns."""
    best = [(float("inf"), float("inf"))] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start, used = time.perf_counter(), cpu()
            work()
            spent, took = time.perf_counter() - start, cpu() - used
            best[index] = (min(best[index][0], spent), min(best[index][1], took))
    return best


def test_a_file(ratio: Ratio, tmp_path: Path) -> None:
    job = ring(1000, quantities=["time"])
    raw = np.ones(1 << 24, dtype=np.float64)
    plain = raw_file(tmp_path / "raw", raw, 10**9 // raw.size)

    def work() -> None:
        write_sweep(job, tmp_path / "x.nc", Means())
        (tmp_path / "x.nc").unlink()

    (bare, bare_cpu), (spent, spent_cpu) = best_of(2, plain, work)
    note = f"{spent:.1f} s; of CPU time {spent_cpu / bare_cpu:.2g}"
    ratio("10^9 cells to a file by raw bytes", spent / bare, 5.0, note)


def in_blocks(job: Job, path: Path, cut: Cut, pool: Pool) -> Callable[[], None]:
    """Return the work of a run by blocks."""

    def work() -> None:
        run_in_blocks(job, path, cut, pool=pool)
        path.unlink()

    return work


def test_two_workers(ratio: Ratio, tmp_path: Path) -> None:
    # Each plan's steps are computed for themselves: blocks of 0.1 s and more.
    more = {"recompute": ["none", "full"], "inter_latency": "1e-6:2e-5:log42"}
    job = prepare({**STEPS, "axes": {**STEPS["axes"], **more}})
    limits = limits_for(job, MEMORY, 2)
    found = estimate(job, limits)
    cut = Cut(limits, max(1, round(0.15 * found.steps / found.seconds)))
    blocks = -(-found.steps // cut.per_block)
    one, two = (in_blocks(job, tmp_path / "x.nc", cut, processes(n)) for n in (1, 2))
    (first, first_cpu), (second, second_cpu) = best_of(2, one, two)
    note = (
        f"{blocks} blocks of {found.seconds / blocks:.2f} s, {first:.1f} s and {second:.1f} s; by "
        f"CPU time at most {2 * first_cpu / second_cpu:.3g}"
    )
    ratio("two workers as fast as one, times", first / second, 1.7, note)


def test_checkpoints(ratio: Ratio, tmp_path: Path) -> None:
    job = prepare(STEPS)
    limits = limits_for(job, MEMORY)
    found = estimate(job, limits)
    cut = cut_for(found, limits, 1)
    path = tmp_path / "x.nc"

    def plain() -> None:
        write(path, *job.result(None, limits))
        path.unlink()

    (bare, bare_cpu), (spent, spent_cpu) = best_of(3, plain, in_blocks(job, path, cut, here))
    blocks = -(-found.steps // cut.per_block)
    note = f"{blocks} blocks, {job.nbytes / 1e6:.0f} MB, {bare:.1f} s; of CPU time "
    note += f"{spent_cpu / bare_cpu:.3g}"
    ratio("a sweep that keeps its blocks by one that doesn't", spent / bare, 1.15, note)


REDUCED = """
import sys
from pathlib import Path
from sweeps.blocks.run import Means, write_sweep
from tests.benchmarks.test_run_speed import ring
from tests.benchmarks.test_speed import peak_memory

reductions = [{"quantity": "time", "operation": "min", "over": ["latency", "bandwidth"]}]
job = ring(int(sys.argv[1]), quantities=[], reductions=reductions)
write_sweep(job, Path(sys.argv[2]), Means())
print(peak_memory())
"""


def test_a_reduction(ratio: Ratio, tmp_path: Path) -> None:
    begin = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", REDUCED, "10000", str(tmp_path / "x.nc")],
        check=True,
        capture_output=True,
        text=True,
    )
    note = f"{time.perf_counter() - begin:.0f} s"
    ratio("10^10 cells into a reduction, peak MiB", float(process.stdout), 2048, note)
