"""Speed of a library's forms, by that of the exact forms in the same run."""

from collections.abc import Callable

import numpy as np
import pytest

from sweeps.engine.program import Program
from sweeps.job import prepare
from tests.benchmarks.conftest import best_of

Ratio = Callable[[str, float, float, str], None]


def planned(software: str, topology: str, algorithm: str) -> Program:
    """Return a plan of ten million cells of one machine."""
    switch = topology == "switch"
    level = ("bandwidth", 1e9) if switch else ("inter_bandwidth", 1e8)
    spec = {
        "axes": {
            "ranks": [8.0 * nodes for nodes in range(1, 101)],
            level[0]: [level[1] * step for step in range(400, 410)],
            "message_bytes": "1KiB:8GiB:log10000",
        },
        "constants": {
            "topology": topology,
            "algorithm": algorithm,
            "hardware": "dgx-h100",
            "gpus_per_node": 1000.0 if switch else 8.0,
            "software": software,
        },
        "quantities": ["time"],
    }
    return prepare(spec, command=["test"]).program


@pytest.mark.parametrize(
    ("topology", "algorithm"),
    [("switch", "ring"), ("hierarchical", "ring_ring"), ("hierarchical", "nccl")],
)
def test_a_cell_with_a_library(ratio: Ratio, topology: str, algorithm: str) -> None:
    plans = [planned(software, topology, algorithm) for software in ("none", "nccl")]
    outs = [np.ones(plan.grid.shape) for plan in plans]
    works = [
        lambda plan=plan, out=out: plan.fill({"time": out})
        for plan, out in zip(plans, outs, strict=True)
    ]
    bare, priced = best_of(3, *works)
    cells = plans[0].grid.cells
    note = f"{cells / priced:.3g} cells/s"
    ratio(f"{topology} {algorithm} with a library by without", priced / bare, 3.0, note)
