"""Speed of whole training steps: every plan of GPT-3 175B on 512 GPUs, by part."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pytest

from overhead.evaluation import Evaluation
from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps.blocks.estimate import estimate
from sweeps.engine import bounds
from sweeps.engine.evaluate import Limits
from sweeps.engine.reduce import feed
from sweeps.job import Job, prepare

ROOT = Path(__file__).parents[2]
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
                "micro_batch_size": "1:32:+1",
                "virtual_pipeline_size": "1:12:+1",
                "zero_stage": [0, 1, 2, 3],
                "recompute": ["none", "selective", "full"],
                "sequence_parallel": [0, 1],
                "sequence_length": [1024, 2048, 4096],
            },
            "constants": {"model": "gpt3-175b", "hardware": "dgx-h100", "global_batch_size": 1536},
        }
    )


BY_PART = """
from time import perf_counter
from tests.benchmarks.test_speed import peak_memory
from tests.benchmarks.test_training_speed import space
job = space()
start, variables = perf_counter(), 0
for block in job.program.blocks():
    variables += block.values.size
print(perf_counter() - start, variables, peak_memory() / 1024.0)
"""


def test_every_plan_by_part(benchmark: object, ratio: Ratio) -> None:
    job = space()
    cells = job.program.grid.cells
    assert cells >= 5e6
    # In a process of its own, whose peak is of nothing that ran before.
    process = subprocess.run(
        [sys.executable, "-c", BY_PART], check=True, capture_output=True, text=True
    )
    spent, variables, peak = map(float, process.stdout.split())
    assert peak < 2.0, f"{peak:.2f} GiB"
    result = (
        f"{cells / spent:.3g} plans/s, {cells:.3g} plans, {variables:.3g} values, {peak:.2f} GiB"
    )
    ratio(
        "a million plans a second, by ours (seconds by seconds)",
        spent * WANTED / cells,
        1.0,
        result,
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


# Of 10^12 plans, machines, links and prices the cheapest training, and the ten cheapest; and the
# cheapest where 2 x 10^7 are discrete choices.
TRILLION = """
import sys, time
import numpy as np
from sweeps.engine.reduce import feed
from sweeps.job import prepare
many = sys.argv[1] == "many"
axes = {"model": ["llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b", "gpt3-175b"],
        "hardware": ["dgx-h100", "dgx-a100", "dgx-h200", "dgx-b200"],
        "world_size": [256, 512, 1024, 2048], "tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8, 16],
        "cp": [1, 2], "micro_batch_size": [1, 2, 4, 8], "zero_stage": [0, 1, 2, 3],
        "global_batch_size": [256, 512, 1024, 2048, 4096, 8192, 16384],
        "recompute": ["none", "full"],
        "inter_bandwidth": np.linspace(1e10, 8e10, 60 if many else 1000).tolist(),
        "gpu_hour_price": np.linspace(1.0, 9.0, 40 if many else 1400).tolist()}
if many:
    axes |= {"world_size": [256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192],
             "cp": [1, 2, 4], "sequence_parallel": [0, 1], "virtual_pipeline_size": [1, 2],
             "global_batch_size": [b * 2**n for n in range(7) for b in (256, 384)],
             "inter_latency": np.linspace(1e-6, 8e-5, 20).tolist()}
over = {"quantity": "cost", "over": list(axes)}
reductions = [{**over, "name": "least", "operation": "min"}]
if not many:
    reductions += [{**over, "name": "first", "operation": "top", "count": 10}]
constants = {"sequence_length": 4096, "training_tokens": 1e12}
if not many:
    constants["sequence_parallel"] = 1
job = prepare({"title": "trillion points", "quantities": [], "axes": axes,
               "constants": constants, "reductions": reductions})
start = time.process_time()
least, *_ = feed(job.program, job.reducers())
spent = time.process_time() - start
from tests.benchmarks.test_speed import peak_memory
print(spent, peak_memory(), least.total, least.cells, least.boxes)
"""


@pytest.mark.parametrize(
    ("which", "text"),
    [("few", "least and first ten"), ("many", "least, of 2.15e7 discrete choices")],
)
def test_trillion_points(benchmark: object, ratio: Ratio, which: str, text: str) -> None:
    """The best and the ten best of 10^12 points, on one core, exactly."""

    def found() -> list[float]:
        line = [sys.executable, "-c", TRILLION, which]
        process = subprocess.run(line, check=True, capture_output=True, text=True)
        return list(map(float, process.stdout.split()))

    seconds, peak, total, cells, boxes = found()
    assert total >= 1e12
    note = f"{total:.3g} points: {cells:,.0f} computed, {boxes:,.0f} boxes bounded"
    ratio(f"trillion points: {text} (seconds)", seconds, 60.0, note)
    ratio("the same, peak MiB", peak, 1024.0, "")
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]


def test_bounds_that_leave_nothing_out(benchmark: object, ratio: Ratio) -> None:
    """Where each plan and bandwidth is a result, or prices are on the front, a trial notices."""
    plans = {
        "tp": [1, 2, 4, 8],
        "pp": [1, 2, 4, 8],
        "micro_batch_size": [1, 2, 4],
        "zero_stage": [0, 1, 2, 3],
        "recompute": ["none", "full"],
        "inter_bandwidth": np.linspace(1e10, 8e10, 300).tolist(),
    }
    latency = {"inter_latency": np.linspace(0.0, 5e-5, 80).tolist()}
    price = {"gpu_hour_price": np.linspace(1.0, 9.0, 400).tolist()}
    least = {"quantity": "step_time", "operation": "min", "over": list(latency), "name": "r"}
    front = {
        "quantity": "cost",
        "against": "step_time",
        "operation": "pareto",
        "name": "r",
        "over": ["inter_bandwidth"],
    }
    for name, more, reduction in (("least", latency, least), ("front", price, front)):
        job = prepare(
            {
                "title": name,
                "quantities": [],
                "axes": plans | more,
                "reductions": [reduction],
                "constants": {
                    "model": "llama3-8b",
                    "hardware": "dgx-h100",
                    "world_size": 64,
                    "global_batch_size": 128,
                    "sequence_length": 4096,
                    "training_tokens": 1e12,
                },
            }
        )
        touched = []

        times = {np.inf: [], bounds.WORTH: []}  # type: dict[float, list[float]]
        for _ in range(2):
            for worth, time in times.items():
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(bounds, "WORTH", worth)
                    start = process_time()
                    touched = feed(job.program, job.reducers())
                    time.append(process_time() - start)
        whole, own_time = map(min, times.values())
        note = f"{whole:.2f} s; {'left out' if touched else 'given up'}"
        ratio(
            f"bounds that leave out nothing, by computing all: {name}", own_time / whole, 1.2, note
        )
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["models-on-machines", "network-choice", "big-sweep"])
def test_bounds_of_shipped_sweeps(benchmark: object, ratio: Ratio, name: str) -> None:
    """What bounds are tried at, however short it is, by what computing everything takes."""
    text = (ROOT / "specs" / "sweeps" / f"{name}.toml").read_text(encoding="utf-8")
    job = prepare(tomllib.loads(text), text=text)
    by_quantity: dict[str, list[Any]] = {}
    for made in job.reducers():
        by_quantity.setdefault(made.task.reduction.quantity, []).append(made)
    seconds = estimate(job, Limits()).seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "WORTH", 0.0)
        start = process_time()
        touched = bounds.reduce_some(job.program, by_quantity, seconds)
        spent = process_time() - start
    note = f"{seconds:.3g} s; {'left out' if touched else 'no reduced axis is continuous'}"
    ratio(f"bounds tried by computing all: {name}", 1.0 + spent / seconds, 1.2, note)
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]
