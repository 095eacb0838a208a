"""Whether a sweep is written while it is computed, or kept in blocks, and how it is cut."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.blocks.estimate import (
    BLOCK_BYTES,
    BLOCK_SECONDS,
    Estimate,
    block_bytes,
    estimate,
    limits_for,
)
from sweeps.blocks.folder import Folder
from sweeps.blocks.run import Cut, Pool, here, run_in_blocks
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError, RunError, fault
from sweeps.job import Job
from sweeps.store.failures import system_calls
from sweeps.store.lock import hold, lock_of
from sweeps.store.publish import check_output, strays, sweep_strays
from sweeps.store.storage import Storage
from sweeps.store.write import Written, write
from sweeps.store.zarr_store import require_zarr

__all__ = ["Means", "clear", "cut_for", "keeps_blocks", "write_sweep"]

# A sweep that takes less is computed again rather than kept.
SHORT_SECONDS = 10.0
# One that takes less isn't given to other processes: starting them takes as long.
PARALLEL_SECONDS = 2.0
# Blocks for each process, so that all end at about the same time, but none shorter than this.
BLOCKS_EACH = 8
LEAST_SECONDS = 0.1
MANY = 16
# What keeping blocks may cost, of the whole, where nobody asked for it.
MOST_OVERHEAD = 0.15


@dataclass(frozen=True, slots=True)
class Means:
    """With what a sweep is run."""

    overwrite: bool = False  # Whether an existing output is replaced, and blocks are given up
    # Whether to go on with blocks that are there, and to keep them at any cost
    resume: bool = False
    workers: int = 0  # Processes beside this one
    scheduler: str | None = None  # The address of a Dask scheduler
    zarr: bool = False  # Whether the output is a Zarr store
    max_memory: str = "2GiB"  # The most memory, with a unit
    formulas: Sequence[tuple[str, str]] = ()  # Own formulas: the names of their files and the text

    def __post_init__(self) -> None:
        faults = []
        if self.workers < 0:
            faults.append(fault("--workers", self.workers, "can't be", "0 or more processes"))
        if self.workers and self.scheduler:
            wrong, allowed = "are those of the cluster", "--workers or --scheduler"
            faults.append(fault("--workers", self.workers, wrong, allowed))
        if faults:
            raise InputError(faults)

    @property
    def processes(self) -> int:
        """How many compute on this machine."""
        return max(1, self.workers)

    def pool(self) -> Pool:
        """Return what computes blocks."""
        if self.scheduler:
            from sweeps.blocks.cluster import cluster

            return cluster(self.scheduler)
        if self.workers:
            from sweeps.blocks.processes import processes

            return processes(self.workers)
        return here


def keeps_blocks(found: Estimate, means: Means) -> bool:
    """Return whether a sweep is worth keeping in blocks."""
    if means.scheduler or means.zarr:
        return True
    if means.workers and found.seconds > PARALLEL_SECONDS:
        return True
    total = found.seconds + found.writing
    if total < SHORT_SECONDS:
        return False
    return means.resume or found.keeping <= MOST_OVERHEAD * total


def cut_for(found: Estimate, limits: Limits, processes: int, nbytes: int = BLOCK_BYTES) -> Cut:
    """Return how a sweep is cut: by time, by size, and so that every process has several blocks."""
    steps = max(1, found.steps)
    a_second = steps / max(found.seconds, 1e-9)
    by_size = nbytes * steps / max(found.kept_nbytes, 1)
    by_number = steps / (BLOCKS_EACH * processes) if processes > 1 else math.inf
    by_number = max(by_number, LEAST_SECONDS * a_second)
    return Cut(limits, max(1, int(min(BLOCK_SECONDS * a_second, by_size, by_number, steps))))


def write_sweep(
    job: Job,
    output: Path,
    means: Means,
    storage: Storage,
    *,
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
    tell: Callable[[Estimate], None] | None = None,
) -> Written:
    """Compute a sweep into a file, in whatever way suits it."""
    pool = means.pool()
    if means.zarr:
        require_zarr(str(output))
        if job.measured is not None:
            wrong, allowed = "isn't for measurements", "netcdf"
            raise InputError(fault("--format", "zarr", wrong, allowed))
    target = check_output(output, overwrite=means.overwrite, folder=means.zarr)
    limits = limits_for(job, means.max_memory, means.processes)
    found = estimate(job, limits)
    if tell is not None and found.seconds + found.writing > SHORT_SECONDS:
        tell(found)
    with system_calls(output):
        folder = Folder(target)
        begun = folder.stated() is not None or folder.is_damaged()
    goes_on = begun and not means.overwrite
    alone = job.measured is not None and not begun
    if alone or not (goes_on or (begun and means.resume) or keeps_blocks(found, means)):
        written = _write_directly(job, output, means, storage, limits, progress)
        clear(output)
        return written
    # How many a cluster has is known only when it answers.
    count = MANY if means.scheduler else means.processes
    cut = cut_for(found, limits, count, block_bytes(means.max_memory, means.processes))
    return run_in_blocks(
        job,
        output,
        cut,
        pool=pool,
        overwrite=means.overwrite,
        resume=means.resume,
        storage=storage,
        zarr=means.zarr,
        formulas=means.formulas,
        progress=progress,
    )


def _write_directly(
    job: Job,
    output: Path,
    means: Means,
    storage: Storage,
    limits: Limits,
    progress: Callable[[str], Callable[[int, int], None]] | None,
) -> Written:
    layout, blocks = job.result(progress("reducing") if progress else None, limits)
    return write(
        output,
        layout,
        blocks,
        overwrite=means.overwrite,
        compress=storage.compress,
        digits=storage.digits,
        dtype=storage.dtype,
        progress=progress("writing") if progress else None,
    )


def clear(output: Path) -> None:
    """Remove what runs have left beside an output that is complete, unless one is at it."""
    target = Path(os.path.realpath(output))
    folder = Folder(target)
    if not folder.exists() and not strays(target) and not lock_of(target).exists():
        return
    with contextlib.suppress(RunError), system_calls(output), hold(target) as held:
        if held:
            sweep_strays(target)
            folder.remove()
