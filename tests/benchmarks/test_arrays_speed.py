"""Speed with a GPU's arrays, as ratios to its memory and to numpy; skipped where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sweeps.engine.evaluate import Cuts, Evaluator, Limits, limits_of, settings
from sweeps.engine.program import Program
from tests.benchmarks.test_speed import CONSTANTS, LABELS, grid

Ratio = Callable[[str, float, float, str], None]
BLOCK = 1 << 26  # Half a GiB, so that starting a kernel doesn't count


def least(program: Program, limits: Limits) -> tuple[float, float]:
    """Return the least time of all cells, found where the arrays lie, and the seconds it took."""
    case = program.cases[0]
    node, shape = case.nodes["time"], program.grid.shape
    evaluator = Evaluator(program.grid, {}, limits)
    start, found = time.perf_counter(), np.inf
    with settings(shape[-1]):
        for region in Cuts(shape, limits.block):
            found = min(found, float(evaluator.value(node, region).min()))
    return found, time.perf_counter() - start


def written(torch: Any, cells: int) -> float:
    """Return the seconds in which the GPU writes so many numbers."""
    out = torch.empty(BLOCK, dtype=torch.float64, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(-(-cells // BLOCK)):
        out.fill_(2.0)
    torch.cuda.synchronize()
    return time.perf_counter() - start


@pytest.mark.parametrize("sizes", [1000, 10_000], ids=["10^9 cells", "10^10 cells"])
def test_a_gpu_by_torch(ratio: Ratio, sizes: int) -> None:
    torch = pytest.importorskip("torch", reason="torch isn't installed: the extra arrays has it")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    program = Program(grid(100, sizes, 100, 100), CONSTANTS, LABELS, ["time"])
    limits = replace(limits_of("torch"), block=BLOCK)
    least(program, limits)
    actual, seconds = least(program, limits)
    cells = program.grid.cells
    ratio(
        f"a GPU's time by its fill, {cells:.0e} cells",
        seconds / written(torch, cells),
        8.0,
        f"{cells / seconds:.3g} cells/s",
    )
    part = Program(grid(100, 100, 100, 100), CONSTANTS, LABELS, ["time"])
    plain, spent = least(part, Limits())
    share = spent / part.grid.cells * cells
    ratio(f"numpy's time by a GPU's, {cells:.0e} cells", share / seconds, 10.0, "higher is better")
    assert actual <= plain * (1.0 + 1e-12)
