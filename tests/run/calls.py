"""A process whose system calls are logged, or of which one fails: by a preloaded library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.sweep import EPOCH, ROOT

__all__ = ["library", "preloaded"]

SOURCE = Path(__file__).with_name("calls.c")


def library(folder: Path) -> Path:
    """Compile the library, where that can be."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler to log system calls with")
    made = folder / "calls.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


def preloaded(made: Path, folder: Path, code: str, *arguments: str, log: Path | None = None) -> str:
    """Run Python code with the library in it; return what it says."""
    settings = {"LD_PRELOAD": str(made), "CALLS_FOLDER": str(folder)}
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            **settings,
            **({"CALLS_LOG": str(log)} if log else {}),
            "PYTHONPATH": str(ROOT),
            "SOURCE_DATE_EPOCH": EPOCH,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
