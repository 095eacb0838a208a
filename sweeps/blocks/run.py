"""A sweep in blocks, by several processes: goes on where it was, ends as if nothing happened."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import logging
import math
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from overhead.arrays import NAMESPACES
from sweeps.blocks.estimate import (
    BLOCK_BYTES,
    BLOCK_SECONDS,
    Estimate,
    block_bytes,
    estimate,
    limits_for,
)
from sweeps.blocks.folder import FirstStart, Folder, damaged, refusal, unfinished
from sweeps.blocks.work import (
    BlockReader,
    Chunks,
    Recipe,
    Work,
    at_hand,
    compute_block,
    compute_blocks,
    gather_store,
    keep_freed,
    merge_bounds,
    merge_states,
    packed,
    prepare_store,
    recipe_of,
    stored_blocks,
)
from sweeps.engine.bounds import Long, reduce_some
from sweeps.engine.evaluate import Limits
from sweeps.engine.grid import Block, Layout
from sweeps.engine.program import Steps
from sweeps.engine.reduce_base import Reducer
from sweeps.errors import InputError, RunError, fault, refuse, tell_all
from sweeps.job import Job
from sweeps.store.netcdf import Written, output_lock, planned, write, write_under_lock
from sweeps.store.publish import (
    check_output,
    free_bytes,
    hold,
    lock_of,
    readable,
    require,
    strays,
    sweep_strays,
    system_calls,
)
from sweeps.store.zarr_store import require_zarr

# Blocks that wait for each process: enough that none idles, few enough that little is given up.
AHEAD = 2
# How often processes that died are replaced before a sweep gives up.
MOST_DEATHS = 5


def processes(count: int) -> Pool:
    """Return a pool of processes."""

    def pool(assignment: Assignment) -> Iterator[int]:
        task = assignment.send()
        missing = set(assignment.missing)
        for _ in range(MOST_DEATHS):
            try:
                with at_hand(assignment.work, task[1]):
                    for index in _computed(task, sorted(missing), count):
                        missing.discard(index)
                        yield index
            except BrokenProcessPool:
                continue
            return
        wrong = f"processes died {MOST_DEATHS} times (out of memory?)"
        raise RunError(fault("--workers", count, wrong, "fewer of them, or less --max-memory"))

    return pool


def _computed(task: tuple[str, str, str], blocks: list[int], count: int) -> Iterator[int]:
    folder, digest, output = task
    waiting = iter(_in_runs(blocks, count))
    executor = ProcessPoolExecutor(
        min(count, len(blocks)), get_context(_start()), initializer=_begin, initargs=(sys.path,)
    )
    running: set[Future[tuple[int, int]]] = set()
    try:
        while True:
            for index in islice(waiting, AHEAD * count - len(running)):
                running.add(executor.submit(compute_block, folder, digest, index, output))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()[0]
    finally:
        # Ctrl-C isn't for the processes: those blocks that they have begun become files.
        executor.shutdown(wait=True, cancel_futures=True)


def _in_runs(blocks: list[int], count: int) -> Iterator[int]:
    """Yield blocks of as many runs as there are processes, in turns.

    So each process has neighbors, mostly: these share what blocks keep for the next one.
    """
    length = -(-len(blocks) // count)
    runs = [blocks[first : first + length] for first in range(0, len(blocks), length)]
    for several in itertools.zip_longest(*runs):
        yield from (index for index in several if index is not None)


def _start() -> str:
    """Return how processes start: as copies, with all that is compiled, where these are sound.

    Locks that other threads hold stay locked in a copy, and a GPU's library works in none.
    """
    alone = threading.active_count() == 1 and sys.modules.keys().isdisjoint(NAMESPACES)
    return "fork" if alone and sys.platform == "linux" else "spawn"


def _begin(path: list[str]) -> None:
    """Prepare a process: it ignores Ctrl-C, and ends when the one that started it is gone."""
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# Blocks computed by the workers of a Dask cluster that is there already.

CONNECTING_SECONDS = 15
# How often it is asked how many threads there are.
ASKING_SECONDS = 2.0
# About how long a task takes at least, and how long a block of it does, as far as it counts.
RUN_SECONDS, LEAST_OF_A_BLOCK = 2.0, 1e-3


def cluster(address: str) -> Pool:
    """Return a pool of a cluster's workers."""
    if importlib.util.find_spec("distributed") is None:
        wrong, allowed = "needs dask and distributed", "pip install 'overhead-sweeps[dask]'"
        refuse("--scheduler", address, wrong, allowed)

    def pool(assignment: Assignment) -> Iterator[int]:
        with _client(address) as client:
            task = assignment.send()
            try:
                yield from _cluster_computed(client, task, assignment.missing)
            except (RunError, InputError):
                raise
            except Exception as error:
                raise _explained(error, address) from error

    return pool


def _distributed() -> Any:
    return importlib.import_module("distributed")


@contextlib.contextmanager
def _client(address: str) -> Iterator[Any]:
    """Connect to a scheduler; let go of it whatever has happened to it."""
    # What happens is said in a line of ours, not in a traceback of theirs.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = _distributed().Client(address, timeout=CONNECTING_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        wrong = f"doesn't answer ({type(error).__name__})"
        allowed = "start one ('dask scheduler'), and name the address that it tells"
        raise RunError(fault("--scheduler", address, wrong, allowed)) from error
    try:
        if not client.scheduler_info().get("workers"):
            try:
                client.wait_for_workers(1, timeout=CONNECTING_SECONDS)
            except Exception as error:
                wrong, allowed = "has no workers", f"start some ('dask worker {address}')"
                raise RunError(fault("--scheduler", address, wrong, allowed)) from error
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)


def _cluster_computed(
    client: Any, task: tuple[str, str, str], missing: tuple[int, ...]
) -> Iterator[int]:
    """Yield blocks as they are there; a task computes a run of short ones.

    A scheduler keeps a note of each task that it was ever sent, and takes milliseconds for it.
    """
    folder, digest, output = task
    # Names of this run alone: a worker may still be at a block for a client that was killed, and
    # fail with it, for its temporary file is gone by now.
    name = f"sweeps-{secrets.token_hex(8)}"
    window, asked = _window(client), time.monotonic()
    runs: dict[str, tuple[int, ...]] = {}  # By task, until it is done
    sent, length = 0, 1

    def submit(count: int) -> Iterator[Any]:
        nonlocal sent
        for _ in range(count):
            # The last ones are short, so that all end at the same time.
            most = min(length, -(-(len(missing) - sent) // (2 * window)))
            if blocks := missing[sent : sent + most]:
                key, sent = f"{name}-{sent}", sent + len(blocks)
                runs[key] = blocks
                yield client.submit(
                    compute_blocks, folder, digest, blocks, output, key=key, pure=False
                )

    queue = _distributed().as_completed(list(submit(window)), loop=client.loop)
    for future in queue:
        # Larger than a number is never sent; files hold the results.
        length = max(1, int(RUN_SECONDS / max(future.result(), LEAST_OF_A_BLOCK)))
        yield from runs.pop(future.key)
        more = 1
        if time.monotonic() - asked > ASKING_SECONDS:
            # Workers come and go.
            before, window, asked = window, _window(client), time.monotonic()
            more += window - before
        queue.update(list(submit(max(more, 0))))


def _window(client: Any) -> int:
    """Return how many blocks may wait or be computed at a time."""
    return AHEAD * max(1, sum(client.nthreads().values()))


def _explained(error: Exception, address: str) -> RunError:
    """Return what a user is told of a cluster that fails."""
    kind = type(error).__name__
    allowed = "start it again, or go on without it"
    if kind == "KilledWorker":
        wrong = "several of its workers died over one block (out of memory?)"
    elif isinstance(error, ModuleNotFoundError | ImportError | AttributeError):
        wrong = f"its workers lack this program ({error})"
    else:
        wrong = f"is lost ({kind}: {' '.join(str(error).split())[:120]})"
    return RunError(fault("--scheduler", address, wrong, allowed))


Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Cut:
    """How a sweep is cut."""

    limits: Limits  # How much is computed at a time, and kept
    per_block: int  # Steps of a block
    bounded: bool = False  # Whether steps are parts of what bounds leave


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a pool is given: the blocks to compute, and where."""

    work: Work  # For blocks that are computed here
    folder: Folder  # Where their files go
    output: Path  # The output under the name that the user gave
    missing: tuple[int, ...]  # The blocks to compute

    def send(self) -> tuple[str, str, str]:
        """Write the recipe for other processes; return the folder, its digest, and the output."""
        content, digest = packed(self.work.recipe)
        with system_calls(self.output):
            self.folder.put_recipe(content)
        return str(self.folder.path), digest, str(self.output)


Pool = Callable[[Assignment], Iterator[int]]


def here(assignment: Assignment) -> Iterator[int]:
    """Compute blocks one after the other in this process."""
    for index in assignment.missing:
        path = assignment.folder.block(index)
        assignment.work.write(index, path, assignment.output)
        yield index


def run_in_blocks(
    job: Job,
    output: Path,
    cut: Cut,
    *,
    pool: Pool = here,
    overwrite: bool = False,
    resume: bool = False,
    compress: bool = False,
    zarr: bool = False,
    formulas: Sequence[tuple[str, str]] = (),
    progress: Callable[[str], Progress] | None = None,
) -> Written:
    """Run a sweep by blocks that are files, and gather them in the output."""
    with output_lock(output, overwrite=overwrite, folder=zarr) as target:
        folder = Folder(target)
        with system_calls(output):
            start = _first_start(job, output, folder, cut, overwrite=overwrite, resume=resume)
        recipe = recipe_of(
            job,
            start.limits,
            start.per_block,
            formulas,
            zarr=zarr,
            compress=compress,
            bounded=start.bounded,
        )
        work = Work(recipe, job.program)
        with _message_of_kept(job, output, folder, recipe, start):
            missing = _missing(folder, recipe, start)
            require(_needed(job, recipe, len(missing) / start.blocks), output)
            if zarr:
                prepare_store(job, work, folder, output)
            _compute(Assignment(work, folder, output, missing), start.blocks, pool, progress)
            read = BlockReader(work, folder, output, start.blocks)
            if zarr:
                report = progress("gathering") if progress else None
                written = gather_store(job, read, target, start.attrs, overwrite, report)
            else:
                written = _gather(job, read, start, target, overwrite, progress)
        with system_calls(output):
            folder.remove()
        return written


def identity(job: Job) -> dict[str, str]:
    """Return what a job's result depends on, part by part, each as a digest or a version."""
    inputs = job.identity.inputs
    versions = inputs["versions"]
    assert isinstance(versions, Mapping)
    others = {name: value for name, value in inputs.items() if name != "versions"}
    return {
        "the spec": hashlib.sha256(job.text.encode()).hexdigest(),
        "the code": job.identity.code,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "own formulas": str(others.pop("formulas", "")) and _digest(inputs["formulas"]),
        "machines, models or options": _digest(others),
    }


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _first_start(
    job: Job, output: Path, folder: Folder, cut: Cut, *, overwrite: bool, resume: bool
) -> FirstStart:
    """Return what is fixed for this sweep: by its first start, which this may be."""
    known = folder.first_start()
    wanted = identity(job)
    if not overwrite and folder.is_damaged():
        raise damaged(output)
    if known is not None and (resume or not overwrite):
        same = known.identity == wanted
        if resume and not same:
            raise refusal(output, known, wanted)
        if resume:
            folder.sweep_strays()
            return known
        recipe = recipe_of(job, known.limits, known.per_block, bounded=known.bounded)
        done = len(folder.done(recipe.owner, known.blocks))
        if done or not same:
            raise unfinished(output, known, done)
    names = recipe_of(job, cut.limits, cut.per_block).names
    steps = len(
        Chunks(job.program, [reducer.task for reducer in job.reducers()])
        if cut.bounded
        else Steps(job.program, names, cut.limits)
    )
    start = FirstStart(dict(job.attrs), wanted, cut.limits, cut.per_block, steps, cut.bounded)
    folder.begin(start)
    return start


def _missing(folder: Folder, recipe: Recipe, start: FirstStart) -> tuple[int, ...]:
    """Return the blocks that aren't there."""
    with system_calls(folder.path):
        done = folder.done(recipe.owner, start.blocks)
    return tuple(index for index in range(start.blocks) if index not in done)


@contextlib.contextmanager
def _message_of_kept(
    job: Job, output: Path, folder: Folder, recipe: Recipe, start: FirstStart
) -> Iterator[None]:
    """Add to what fails while a sweep runs what is left of it, and what it takes to go on."""
    try:
        yield
    except RunError as error:
        try:
            left = len(_missing(folder, recipe, start))
        except (InputError, RunError):
            raise error from None
        if left == start.blocks:
            raise
        needed = _needed(job, recipe, left / start.blocks)
        disk = f" (needs {readable(needed)} of disk)" if needed > free_bytes(output.parent) else ""
        done = f"{start.blocks - left} of {start.blocks} blocks are kept"
        message = f"{error}; {done}: --resume goes on with them{disk}"
        raise RunError(message) from error


def _needed(job: Job, recipe: Recipe, left: float) -> int:
    """Return the bytes that the disk has to take: blocks, and the file that gathers them."""
    file = 0 if recipe.compress else job.nbytes
    return int(left * file if recipe.zarr else file + left * job.nbytes)


def _compute(
    assignment: Assignment, blocks: int, pool: Pool, progress: Callable[[str], Progress] | None
) -> None:
    """Compute the blocks that aren't there."""
    report = progress("computing") if progress else None
    missing = assignment.missing
    for count, _ in enumerate(itertools.chain([None], pool(assignment) if missing else ())):
        if report is not None:
            report(blocks - len(missing) + count, blocks)


def _gather(
    job: Job,
    read: BlockReader,
    start: FirstStart,
    target: Path,
    overwrite: bool,
    progress: Callable[[str], Progress] | None,
) -> Written:
    """Write the blocks' contents to the file."""
    layout, blocks = _result(job, read, start, progress("reducing") if progress else None)
    plan = planned(read.output, layout, compress=read.work.recipe.compress, overwrite=overwrite)
    report = progress("gathering") if progress else None
    return write_under_lock(read.output, target, layout, blocks, plan, overwrite, report)


def _result(
    job: Job, read: BlockReader, start: FirstStart, report: Progress | None
) -> tuple[Layout, Iterator[Block]]:
    """Return the layout and the blocks of the whole result, from the blocks' files."""
    reducers: list[Reducer] = job.reducers()
    chunks = read.work.chunks_of_bounds
    for index in range(start.blocks if reducers else 0):
        if chunks is not None:
            merge_bounds(chunks, read(index))
        else:
            merge_states(reducers, read(index))
        if report is not None:
            report(index + 1, start.blocks)
    if chunks is not None:
        job.touched[:] = chunks.fill(reducers)
    stored = (
        block
        for index in range(start.blocks if read.work.recipe.stored else 0)
        for block in stored_blocks(read(index))
    )
    layout, blocks = job.result_of(reducers, stored)
    return dataclasses.replace(layout, attrs=start.attrs), blocks


# Whether a sweep is written while it is computed, or kept in blocks, and how it is cut.

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
    compress: bool = False  # Whether numbers in the output are compressed
    max_memory: str = "2GiB"  # The most memory, with a unit
    formulas: Sequence[tuple[str, str]] = ()  # Own formulas: the names of their files and the text

    def __post_init__(self) -> None:
        faults = []
        if self.workers < 0:
            faults.append(fault("--workers", self.workers, "isn't allowed", "0 or more processes"))
        if self.workers and self.scheduler:
            wrong, allowed = "are those of the cluster", "--workers or --scheduler"
            faults.append(fault("--workers", self.workers, wrong, allowed))
        tell_all(faults)

    @property
    def processes(self) -> int:
        """How many compute on this machine."""
        return max(1, self.workers)

    def pool(self) -> Pool:
        """Return what computes blocks."""
        if self.scheduler:
            return cluster(self.scheduler)
        if self.workers:
            return processes(self.workers)
        return here


def keeps_blocks(estimated: Estimate, means: Means) -> bool:
    """Return whether a sweep is worth keeping in blocks."""
    if means.scheduler or means.zarr:
        return True
    if means.workers and estimated.seconds > PARALLEL_SECONDS:
        return True
    total = estimated.seconds + estimated.writing
    if total < SHORT_SECONDS:
        return False
    return means.resume or estimated.keeping <= MOST_OVERHEAD * total


def cut_for(estimated: Estimate, limits: Limits, processes: int, nbytes: int = BLOCK_BYTES) -> Cut:
    """Return how a sweep is cut: by time, by size, and so that every process has several blocks."""
    steps = max(1, estimated.steps)
    a_second = steps / max(estimated.seconds, 1e-9)
    by_size = nbytes * steps / max(estimated.kept_nbytes, 1)
    by_number = steps / (BLOCKS_EACH * processes) if processes > 1 else math.inf
    by_number = max(by_number, LEAST_SECONDS * a_second)
    return Cut(limits, max(1, int(min(BLOCK_SECONDS * a_second, by_size, by_number, steps))))


def write_sweep(
    job: Job,
    output: Path,
    means: Means,
    *,
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
    tell: Callable[[Estimate], None] | None = None,
) -> Written:
    """Compute a sweep into a file, in whatever way suits it."""
    keep_freed()
    pool = means.pool()
    if means.zarr:
        require_zarr(str(output))
        if job.measured is not None:
            refuse("--format", "zarr", "isn't for measurements", "netcdf")
    target = check_output(output, overwrite=means.overwrite, folder=means.zarr)
    limits = limits_for(job, means.max_memory, means.processes)
    estimated = estimate(job, limits)
    with system_calls(output):
        folder = Folder(target)
        begun = folder.first_start() is not None or folder.is_damaged()
    goes_on = begun and not means.overwrite
    alone = job.measured is not None and not begun
    directly = alone or not (goes_on or (begun and means.resume) or keeps_blocks(estimated, means))
    if not (directly or begun or means.zarr or means.scheduler or job.stored or job.measured):
        reducers = job.reducers()
        report = progress("bounding") if progress else None
        by_quantity: dict[str, list[Reducer]] = {}
        for made in reducers:
            by_quantity.setdefault(made.task.reduction.quantity, []).append(made)
        # Bounds take one process, and computing everything takes as many as there are.
        seconds = estimated.seconds / max(means.processes, 1)
        try:
            touched = reduce_some(job.program, by_quantity, seconds, report, kept=True)
        except Long:
            cut = Cut(limits, 1, bounded=True)
            return run_in_blocks(
                job,
                output,
                cut,
                pool=pool,
                overwrite=means.overwrite,
                compress=means.compress,
                formulas=means.formulas,
                progress=progress,
            )
        if touched and not by_quantity:
            job.touched[:] = touched
            return _write(output, job.result_of(reducers, iter(())), means, progress)
    if tell is not None and estimated.seconds + estimated.writing > SHORT_SECONDS:
        tell(estimated)
    if directly:
        written = _write_directly(job, output, means, limits, progress)
        clear(output)
        return written
    # How many a cluster has is known only when it answers.
    count = MANY if means.scheduler else means.processes
    cut = cut_for(estimated, limits, count, block_bytes(means.max_memory, means.processes))
    return run_in_blocks(
        job,
        output,
        cut,
        pool=pool,
        overwrite=means.overwrite,
        resume=means.resume,
        compress=means.compress,
        zarr=means.zarr,
        formulas=means.formulas,
        progress=progress,
    )


def _write_directly(
    job: Job,
    output: Path,
    means: Means,
    limits: Limits,
    progress: Callable[[str], Callable[[int, int], None]] | None,
) -> Written:
    result = job.result(progress("reducing") if progress else None, limits)
    return _write(output, result, means, progress)


def _write(
    output: Path,
    result: tuple[Layout, Iterator[Block]],
    means: Means,
    progress: Callable[[str], Callable[[int, int], None]] | None,
) -> Written:
    return write(
        output,
        *result,
        overwrite=means.overwrite,
        compress=means.compress,
        progress=progress("writing") if progress else None,
    )


def clear(output: Path) -> None:
    """Remove what runs have left beside an output that is complete, unless one is at it."""
    target = Path(os.path.realpath(output))
    folder = Folder(target)
    if not folder.exists() and not strays(target) and not lock_of(target).exists():
        return
    with contextlib.suppress(RunError), system_calls(output), hold(target) as lock:
        if lock:
            sweep_strays(target)
            folder.remove()
