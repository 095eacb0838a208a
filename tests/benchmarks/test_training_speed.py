"""Speed of whole training steps: every plan of GPT-3 175B on 512 GPUs, by part."""

from __future__ import annotations

import resource
from collections.abc import Callable
from time import perf_counter

import numpy as np

from overhead.graph import Evaluation
from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps.job import Job, prepare

Ratio = Callable[[str, float, float, str], None]
QUANTITIES = [
    "step_time",
    "mfu",
    "tokens_per_second_per_gpu",
    "bubble_fraction",
    "peak_memory",
    "communication_upper_bound",
    *PARTS,
    *PEAK_PARTS,
]
# Plans a second that a complete breakdown must reach on one core.
WANTED = 1e6


def space() -> Job:
    """Return the sweep: 55 splits x micro-batches x interleaving x ZeRO x recomputation x SP."""
    return prepare(
        {
            "quantities": QUANTITIES,
            "axes": {
                "plan": {"every": "tp,cp,pp", "world_size": 512},
                "micro_batch": "1:32:+1",
                "virtual_stages": "1:12:+1",
                "zero_stage": [0, 1, 2, 3],
                "recompute": ["none", "selective", "full"],
                "sequence_parallel": [0, 1],
                "sequence_length": [1024, 2048, 4096],
            },
            "constants": {"model": "gpt3-175b", "hardware": "dgx-h100", "global_batch": 1536},
        }
    )


def test_every_plan_by_part(benchmark: object, ratio: Ratio) -> None:
    job = space()
    cells = job.program.grid.cells
    assert cells >= 5e6
    start = perf_counter()
    variables = 0
    for block in job.program.blocks():
        variables += block.values.size
    spent = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert peak < 2.0, f"{peak:.2f} GiB"
    told = f"{cells / spent:.3g} plans/s, {cells:.3g} plans, {variables:.3g} values, {peak:.2f} GiB"
    ratio(
        "a million plans a second, by ours (seconds by seconds)", spent * WANTED / cells, 1.0, told
    )
    scalar = _one_by_one(job, 20)
    ratio(
        "a plan, by one of the scalar interface", spent / cells / scalar, 1.0, f"{1 / scalar:.3g}"
    )
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]


def _one_by_one(job: Job, count: int) -> float:
    """Return the seconds of a plan where each is evaluated alone, in a loop."""
    columns = job.program.grid.columns
    labels = job.program.cases[0].labels
    start = perf_counter()
    for index in range(count):
        given = {name: np.ravel(values)[index % values.size] for name, values in columns.items()}
        alone = Evaluation(given, labels)
        for name in QUANTITIES:
            _ = alone[name]
    return (perf_counter() - start) / count
