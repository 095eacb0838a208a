"""A small sweep with everything in it that blocks have to carry, and ways to run it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.blocks.run import Cut, clear, run_in_blocks
from sweeps.engine.evaluate import Limits
from sweeps.job import Job, prepare
from sweeps.store.netcdf import is_complete, write
from tests.tables import examples

ROOT = Path(__file__).parents[2]
OPERATIONS = ("min", "max", "top", "mean", "quantile", "histogram")
# What the files' dates are made of, so that runs at different times can be compared.
EPOCH = "1700000000"
# After this long a child is hanging: nothing that a test waits for depends on how fast it is.
HANG_SECONDS = 600


def reductions(*overs: list[str]) -> list[dict[str, Any]]:
    return [
        {"quantity": "time", "operation": operation, "over": over, "name": f"{operation}_{number}"}
        for operation in OPERATIONS
        for number, over in enumerate(overs)
    ]


SMALL: dict[str, Any] = examples(__file__, "small")
LARGE: dict[str, Any] = {
    "title": "Every reduction, and flags",
    "quantities": ["time", "chosen_algorithm", "steps"],
    "axes": {
        "topology": ["ring", "torus", "hierarchical"],
        "algorithm": ["auto", "standard"],
        "ranks": [2, 3, 8, 16],
        "message_bytes": "1KiB:1GiB:log9",
    },
    "reductions": [
        *reductions(["topology", "message_bytes"], ["ranks"]),
        {"quantity": "energy", "operation": "mean", "over": ["ranks", "algorithm"]},
        *(
            {
                "quantity": "time",
                "operation": "pareto",
                "against": "energy",
                "over": over,
                "name": f"front_{number}",
            }
            for number, over in enumerate((["topology", "message_bytes"], ["ranks"]))
        ),
    ],
}
SMALL_CUT = Cut(Limits(block=5), 3)


@functools.cache
def small() -> Job:
    return prepare(SMALL)


@functools.cache
def large() -> Job:
    return prepare(LARGE)


@functools.cache
def whole(make: Any) -> bytes:
    """What a sweep's file is that was written while it was computed."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.nc"
        write(path, *make().result())
        return path.read_bytes()


def finish(
    job: Job, path: Path, cut: Cut = SMALL_CUT, *, overwrite: bool = False, **options: Any
) -> None:
    """Run a sweep as the command does with ``--resume``: whatever there is, end with the file."""
    if is_complete(path, job.attrs["fingerprint"]):
        clear(path)
        return
    run_in_blocks(job, path, cut, resume=True, overwrite=overwrite, **options)


def child(code: str, *arguments: str, file: bool = False) -> subprocess.Popen[str]:
    """Start Python with some code, or with a file of it."""
    return subprocess.Popen(
        [sys.executable, *([] if file else ["-c"]), code, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": EPOCH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for what another process does to files."""
    until = time.monotonic() + HANG_SECONDS
    while not happened():
        assert time.monotonic() < until, "it has never happened"
        time.sleep(0.01)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
