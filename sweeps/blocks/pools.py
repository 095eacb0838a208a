"""Blocks computed by several processes of this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any

from sweeps.blocks.run import Assignment, Pool
from sweeps.blocks.work import compute_block
from sweeps.errors import InputError, RunError, fault

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
    waiting = iter(blocks)
    executor = ProcessPoolExecutor(
        min(count, len(blocks)), get_context("spawn"), initializer=_begin, initargs=(sys.path,)
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

# Blocks that wait for each thread of the cluster.
CONNECTING_SECONDS = 15
# How often it is asked how many threads there are.
ASKING_SECONDS = 2.0


def cluster(address: str) -> Pool:
    """Return a pool of a cluster's workers."""
    if importlib.util.find_spec("distributed") is None:
        wrong, allowed = "needs dask and distributed", "pip install 'overhead-sweeps[dask]'"
        raise InputError(fault("--scheduler", address, wrong, allowed))

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
    import logging

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
            _await_workers(client, address)
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)


def _await_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=CONNECTING_SECONDS)
    except Exception as error:
        wrong, allowed = "has no workers", f"start some ('dask worker {address}')"
        raise RunError(fault("--scheduler", address, wrong, allowed)) from error


def _cluster_computed(
    client: Any, task: tuple[str, str, str], missing: tuple[int, ...]
) -> Iterator[int]:
    folder, digest, output = task
    waiting = iter(missing)
    # Names of this run alone: a worker may still be at a block for a client that was killed, and
    # fail with it, for its temporary file is gone by now.
    run = f"sweeps-{secrets.token_hex(8)}"

    def submit(count: int) -> list[Any]:
        return [
            client.submit(
                compute_block, folder, digest, index, output, key=f"{run}-{index}", pure=False
            )
            for index in islice(waiting, count)
        ]

    window, asked = _window(client), time.monotonic()
    queue = _distributed().as_completed(submit(window), loop=client.loop)
    for future in queue:
        # Larger than a pair of numbers is never sent; files hold the results.
        yield future.result()[0]
        more = 1
        if time.monotonic() - asked > ASKING_SECONDS:
            # Workers come and go.
            before, window, asked = window, _window(client), time.monotonic()
            more += window - before
        queue.update(submit(max(more, 0)))


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
