"""Memory stays bounded however large a grid is; each test in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
from pathlib import Path
import numpy as np
from sweeps.job import prepare

def peak():
    # Not ru_maxrss, which a new process inherits from the one that starts it.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

def plan_of(quantities, axes, **constants):
    return prepare({"quantities": quantities, "axes": axes, "constants": constants}).program

def stream(plan):
    cells = 0
    for block in plan.blocks():
        cells += block.values.size
    return cells
"""


def told(script: str) -> list[float]:
    """Run a script and return the numbers that it prints."""
    process = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [float(number) for number in process.stdout.split()]


def test_two_hundred_million_cells_in_blocks() -> None:
    before, cells, after = told("""
        axes = {
            "topology": ["ring", "torus"],
            "ranks": [2**k for k in range(1, 11)],
            "latency": "1e-7:1e-5:log100",
            "bandwidth": "1e9:1e12:log100",
            "message_bytes": "1e3:1e10:log1000",
        }
        plan = plan_of(["time"], axes)
        before = peak()
        print(before, stream(plan), peak())
    """)
    assert cells > 2 * 10**8
    assert after < 300
    assert after - before < 60


@pytest.mark.thorough
def test_a_choice_of_many_algorithms_with_all_quantities() -> None:
    """What is kept for a block doesn't add up over a dozen algorithms and their parts."""
    before, cells, after = told("""
        from sweeps.spec.sweep import DEFAULT_QUANTITIES
        axes = {"ranks": "2:260:+1", "message_bytes": "1e3:1e10:log4000"}
        plan = plan_of(list(DEFAULT_QUANTITIES), axes, topology="switch", algorithm="auto")
        before = peak()
        print(before, stream(plan), peak())
    """)
    assert cells > 10**7
    assert after - before < 200


@pytest.mark.thorough
def test_reasons_for_holes_are_streamed_too() -> None:
    """The reasons vary along four axes here; the answer along fewer."""
    before, cells, after = told("""
        axes = {
            "mesh_nx": "1:100:+1",
            "mesh_ny": "1:100:+1",
            "mesh_nz": "1:40:+1",
            "ranks": "1:60:+1",
        }
        plan = plan_of(["time", "bus_factor"], axes, topology="torus", message_bytes=1e6)
        before = peak()
        print(before, stream(plan), peak())
    """)
    assert cells > 4 * 10**7
    assert after - before < 100


@pytest.mark.thorough
def test_a_value_is_never_larger_than_its_axes() -> None:
    """Ten million latencies and a thousand messages: nothing is made for all pairs of them."""
    before, shape, after = told("""
        axes = {"latency": "1e-7:1e-5:log1000000", "message_bytes": "1e3:1e10:log1000"}
        names = ["latency_time", "bandwidth_time", "sent_bytes", "steps", "serialization_time"]
        plan = plan_of(names, axes, topology="ring", ranks=8)
        before = peak()
        arrays = plan.evaluate()
        print(before, sum(values.size for values in arrays.values()), peak())
    """)
    assert shape == 10**6 + 3 * 10**3 + 2
    assert after - before < 60
