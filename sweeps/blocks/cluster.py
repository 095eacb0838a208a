"""Blocks computed by the workers of a Dask cluster that is there already."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sweeps.blocks.run import Assignment, Pool
from sweeps.blocks.work import compute_block
from sweeps.errors import InputError, RunError, fault

__all__ = ["cluster"]

# Blocks that wait for each thread of the cluster.
AHEAD = 2
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
                yield from _computed(client, task, assignment.missing)
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


def _computed(client: Any, task: tuple[str, str, str], missing: tuple[int, ...]) -> Iterator[int]:
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
