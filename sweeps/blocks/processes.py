"""Blocks computed by several processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context, parent_process

from sweeps.blocks.run import Assignment, Pool
from sweeps.blocks.work import compute_block
from sweeps.errors import RunError, fault

__all__ = ["processes"]

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
