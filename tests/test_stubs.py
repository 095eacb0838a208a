"""What functions of `sweeps` take has types: those of the vocabulary, which a checker reads.

After a change of options or quantities ``PROOFS=write python -m pytest -n0 tests/test_stubs.py``
writes them anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.maintenance.options import given_text, text_of

ROOT = Path(__file__).parents[1]
STUBS = ROOT / "sweeps" / "options.pyi"
GIVEN = ROOT / "sweeps" / "cli" / "given.pyi"
WRITE = os.environ.get("PROOFS") in ("write", "new")
SCRIPT = """
from typing import Any

import numpy as np
import sweeps

found = sweeps.plan(model="llama3-70b", hardware="dgx-h100", gpus=512, tp=[4, 8], objective="cost")
best = found.recommended
degrees = int(best["tp"] * best["pp"]) if best is not None else 0
rows: int = len(found.dataframe)
one = sweeps.collective(gpus=16, message_size="1GiB", op="all_gather", latency_per="hop")
several = sweeps.analysis(model="llama3-8b", gpus=range(8, 17, 8), schedule=["gpipe"], sp=True)
grid = sweeps.sweep("time", ranks=np.array([8, 16]), message_bytes="1KiB:1GiB:x4", tp=(1, 2))
question = sweeps.prepare("step_time", model="llama3-8b", gpus=64, recompute="full")
text: str = several.explain("memory")
asked: dict[str, Any] = {"model": "llama3-8b", "gpus": 8}
written = sweeps.page(**asked, output="x.html", overwrite=True).path.name
pictures = grid.sweeps.plot()
sweeps.trace("rank0.json", mode="hta")
version: str = sweeps.__version__
"""
WRONG = {
    'sweeps.analysis(schedule="gpip")': "arg-type",
    'sweeps.plan(objectve="cost")': "call-arg",
    'sweeps.plan(objective="cheap")': "arg-type",
    'sweeps.collective(gpus=8, op="sum")': "arg-type",
    "sweeps.sweep(bandwith=1e9)": "call-arg",
    'sweeps.trace("x.json", mode="fast")': "arg-type",
}


@pytest.mark.thorough
@pytest.mark.parametrize(("path", "made"), [(STUBS, text_of), (GIVEN, given_text)])
def test_the_types_are_those_of_the_options(path: Path, made: Callable[[], str]) -> None:
    if WRITE:
        path.write_text(made(), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "-q", path], check=True)
    stored = path.read_text(encoding="utf-8")
    # Long lines are broken there.
    assert "".join(stored.split()).replace(",]", "]") == "".join(made().split())


@pytest.mark.thorough
def test_a_script_is_checked(tmp_path: Path) -> None:
    """A script that is right passes, each line that is wrong is told, by a checker's rules."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + "".join(f"{line}\n" for line in WRONG), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent",
         "--cache-dir", tmp_path / "cache", "--config-file", os.devnull, path],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    told = [line for line in process.stdout.splitlines() if ": error: " in line]
    first = SCRIPT.count("\n") + 1
    assert [int(line.split(":")[1]) for line in told] == [*range(first, first + len(WRONG))], (
        process.stdout + process.stderr
    )
    assert [line.rpartition("[")[2].rstrip("]") for line in told] == [*WRONG.values()]
