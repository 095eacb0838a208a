"""Speed of whole training steps: every plan of GPT-3 175B on 512 GPUs, by part."""

from __future__ import annotations

import resource
import subprocess
import sys
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


# Of 10^12 plans, machines, links and prices the cheapest training, and the ten cheapest.
TRILLION = """
import sys, time
import numpy as np
from sweeps.engine.reduce import feed
from sweeps.job import prepare
axes = {"model": ["llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b", "gpt3-175b"],
        "hardware": ["dgx-h100", "dgx-a100", "dgx-h200", "dgx-b200"],
        "world_size": [256, 512, 1024, 2048], "tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8, 16],
        "cp": [1, 2], "micro_batch": [1, 2, 4, 8], "zero_stage": [0, 1, 2, 3],
        "global_batch": [256, 512, 1024, 2048, 4096, 8192, 16384], "recompute": ["none", "full"],
        "inter_bandwidth": np.linspace(1e10, 8e10, 1000).tolist(),
        "price": np.linspace(1.0, 9.0, 1400).tolist()}
over = {"quantity": "cost", "over": list(axes)}
reductions = [{**over, "name": "least", "operation": "min"},
              {**over, "name": "first", "operation": "top", "count": 10}]
job = prepare({"title": "trillion points", "quantities": [], "axes": axes,
               "constants": {"sequence_length": 4096, "sequence_parallel": 1,
                             "training_tokens": 1e12}, "reductions": reductions})
start = time.process_time()
least, first = feed(job.program, job.reducers())
spent = time.process_time() - start
from tests.benchmarks.test_speed import peak_memory
print(spent, peak_memory(), least.total, least.cells, least.boxes)
"""


def test_trillion_points(benchmark: object, ratio: Ratio) -> None:
    """The best and the ten best of 10^12 points, on one core, exactly."""

    def found() -> list[float]:
        done = subprocess.run(
            [sys.executable, "-c", TRILLION], check=True, capture_output=True, text=True
        )
        return list(map(float, done.stdout.split()))

    seconds, peak, total, cells, boxes = found()
    assert total >= 1e12
    note = f"{total:.3g} points: {cells:,.0f} computed, {boxes:,.0f} boxes bounded"
    ratio("trillion points: least and first ten (seconds)", seconds, 60.0, note)
    ratio("the same, peak MiB", peak, 1024.0, "")
    benchmark.pedantic(found, rounds=1)  # type: ignore[attr-defined]
