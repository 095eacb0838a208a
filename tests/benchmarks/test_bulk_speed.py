"""Bulk work by CPU time, in pairs with what the same machine does in the same run: a gate.

Seconds are those of a machine on which `usual` takes a tenth of one: others, and other programs,
change both.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import sweeps
from overhead import labels
from sweeps.blocks.run import Means, write_sweep
from sweeps.engine import kept
from sweeps.engine.kept import BEFORE
from sweeps.engine.program import Program
from sweeps.job import Job, prepare
from sweeps.spec.axis import Axis
from sweeps.traces.reader import read_trace
from tests.benchmarks.conftest import BULK, aim_of, limit_of, raw_file
from tests.benchmarks.test_plan_speed import SEARCH
from tests.benchmarks.test_prepared_speed import GIVEN, PLAN, QUANTITIES
from tests.benchmarks.test_run_speed import STEPS, cpu
from tests.benchmarks.test_speed import CONSTANTS, LABELS, grid
from tests.benchmarks.test_trace_speed import repeat_traces
from tests.benchmarks.test_training_speed import TRILLION, space

Ratio = Callable[[str, float, float, str], None]
Work = Callable[[], object]
# A ratio over what passes is measured again, in so many more pairs at most.
AGAIN = 6


def usual() -> None:
    """Do in Python and in numpy what takes a tenth of a second of CPU where aims were set."""
    left, right, out = (np.full(1 << 14, 2.0) for _ in range(3))
    counts: dict[int, int] = {}
    for number in range(18_500):
        np.multiply(left, right, out=out)
        for key in range(number % 40):
            counts[key] = counts.get(key, 0) + 1


def seconds(work: Work) -> float:
    """Return the CPU seconds of a work, of processes that it starts, too."""
    start = cpu()
    work()
    return cpu() - start


def compare(
    ratio: Ratio,
    name: str,
    work: Work,
    other_work: Work = usual,
    *,
    pairs: int = 3,
    scale: float = 1.0,
) -> None:
    """Record the time of a work by that of another, in pairs; by the best of more where over."""
    other_work()
    each: list[tuple[float, float]] = []
    note = ""
    while True:
        each.append((seconds(work), seconds(other_work)))
        if len(each) < pairs:
            continue
        among = median if len(each) == pairs else min
        spent, bare = (among(one) for one in zip(*each, strict=True))
        if scale * spent / bare <= limit_of(name) or len(each) >= pairs + AGAIN:
            break
        note = f", the best of {len(each) + 1} pairs"
    ratio(name, scale * spent / bare, aim_of(name), f"{spent:.3g} s of CPU{note}")


def alone(script: str, *arguments: str) -> Work:
    """Return the work of a script in a process of its own."""
    line = [sys.executable, "-c", script, *arguments]
    return lambda: subprocess.run(line, check=True, capture_output=True)


def test_a_kernel(ratio: Ratio) -> None:
    plan = Program(grid(10, 1000, 10, 100), CONSTANTS, LABELS, ["time"])
    out = np.ones(plan.grid.shape)
    name = "all_reduce on a ring, 10^7 cells, by a fill"
    plan.fill({"time": out})
    compare(ratio, name, lambda: plan.fill({"time": out}), lambda: out.fill(2.0), pairs=7)


def test_the_best_of_algorithms(ratio: Ratio) -> None:
    several = {
        "ranks": np.array([4.0, 8.0, 16.0, 32.0, 64.0]),
        "mesh_nx": np.array([2.0, 4.0, 4.0, 8.0, 8.0]),
        "mesh_ny": np.array([2.0, 2.0, 4.0, 4.0, 8.0]),
        "mesh_nz": np.ones(5),
    }
    axes = [*grid(1, 1000, 10, 100)[1:], Axis("ranks", several)]
    plan = Program(
        axes,
        {**CONSTANTS, "hops": 1.0, "chunks": 16.0},
        {**LABELS, "algorithm": "auto", "topology": "torus"},
        ["time"],
    )
    count = len(Program(axes, plan.grid.constants, plan.labels, ["chosen_algorithm"]).algorithms())
    assert count == 7
    out = np.ones(plan.shape(plan.variables[0]))
    plan.fill({"time": out})

    def fills() -> None:
        for _ in range(count):
            out.fill(2.0)

    name = f"best of {count} algorithms, by {count} fills"
    compare(ratio, name, lambda: plan.fill({"time": out}), fills, pairs=5)


def test_a_file(ratio: Ratio, tmp_path: Path) -> None:
    axes = {"ranks": "2:101:lin100", "message_bytes": "1e3:1e10:log1000"}
    axes |= {"latency": "1e-6:1e-5:lin10", "bandwidth": "1e9:1e12:log100"}
    job = prepare({"quantities": ["time"], "axes": axes, "constants": {"algorithm": "ring"}})
    plain = raw_file(tmp_path / "raw", np.ones(10**7), 10)

    def work() -> None:
        write_sweep(job, tmp_path / "x.nc", Means())
        (tmp_path / "x.nc").unlink()

    compare(ratio, "10^8 numbers to a file, by their raw bytes", work, plain)


def test_a_trillion_points(ratio: Ratio) -> None:
    name = "10^12 points, least and first ten: seconds"
    compare(ratio, name, alone(TRILLION, "few"), pairs=1, scale=0.1)


def test_plans_by_part(ratio: Ratio) -> None:
    job = space()
    next(iter(job.program.blocks()))

    def work() -> None:
        for _ in job.program.blocks():
            pass

    name = "10^7 plans, each by part: seconds"
    compare(ratio, name, work, pairs=2, scale=0.1 * 1e7 / job.program.grid.cells)


def test_the_whole_space(ratio: Ratio) -> None:
    name = "GPT-3 175B on 512 GPUs, 2.3 x 10^7 plans: seconds"
    compare(ratio, name, alone(SEARCH, "4"), pairs=2, scale=0.1)


def test_one_step(ratio: Ratio) -> None:
    model = sweeps.prepare(QUANTITIES, **GIVEN)
    model(**PLAN)
    name = "a step by a prepared function: ms"
    compare(ratio, name, lambda: [model(**PLAN) for _ in range(200)], scale=0.1 / 200 * 1e3)
    asked = {**GIVEN, **PLAN}
    for _ in range(BEFORE):
        sweeps.sweep(QUANTITIES, **asked)
    name = "a step by sweeps.sweep: ms"
    compare(
        ratio, name, lambda: [sweeps.sweep(QUANTITIES, **asked) for _ in range(5)], scale=0.1 / 5e-3
    )


CONFIGURATION = {
    **{"model": "llama3-70b", "hardware": "dgx-h100", "gpus": 512, "tp": 8, "pp": 4},
    **{"micro_batch": 1, "global_batch": 512, "seq_len": 8192},
}
NETWORKS = ["hierarchical", "switch", "torus", "mesh", "ring"]


def each_set(ratio: Ratio, name: str, axes: dict[str, list[str]]) -> None:
    """Compare what a step takes by each set of labels, after it was asked for once."""
    statement = {"quantities": ["step_time"], "axes": axes, "constants": CONFIGURATION}

    count = math.prod(map(len, axes.values()))
    times = -(-100 // count)  # As often as it takes to be as long as what it is compared with

    def work() -> None:
        for _ in range(times):
            prepare(statement).program.evaluate()

    work()
    compare(ratio, name, work, pairs=2, scale=0.1 / (times * count) * 1e3)


def test_a_thousand_sets_of_labels(ratio: Ratio) -> None:
    axes = {
        "recompute": ["none", "selective", "full", "per_op", "uniform"],
        "loss": list(labels.LABELS["loss"].values),
        "attention_kernel": list(labels.LABELS["attention_kernel"].values),
        "topology": NETWORKS,
    }
    each_set(ratio, "a step by each of 1,000 sets of labels: ms", axes)


def test_each_network(ratio: Ratio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_KEPT", {})
    monkeypatch.setattr(kept, "BEFORE", 0)  # No function of numbers is written
    each_set(ratio, "a step on each of 5 networks: ms", {"topology": NETWORKS})


def test_each_network_asked_often(ratio: Ratio) -> None:
    each_set(ratio, "a step on each of 5 networks, asked often: ms", {"topology": NETWORKS})


@pytest.fixture(scope="module")
def steps() -> Job:
    axes = {**STEPS["axes"], "recompute": ["none", "full"], "inter_latency": "1e-6:2e-5:log42"}
    return prepare({**STEPS, "axes": axes})


def test_two_workers(ratio: Ratio, steps: Job, tmp_path: Path) -> None:
    """Work that two do, by work that one does: each takes half of it, where two cores are free."""

    def run(workers: int) -> None:
        write_sweep(steps, tmp_path / "x.nc", Means(workers=workers))
        (tmp_path / "x.nc").unlink()

    compare(ratio, "two workers, by one", lambda: run(2), lambda: run(1), pairs=1)


@pytest.fixture(scope="module")
def trace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        repeat_traces(path, 50 * 10**6)
        yield path


def test_a_trace(ratio: Ratio, trace: Path) -> None:
    text = trace.read_bytes()
    name = "traces of A100s, by json.loads"
    compare(ratio, name, lambda: read_trace(trace), lambda: json.loads(text))


def test_each_row_is_measured() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    for title in BULK:
        assert title in source or title.replace("7", "{count}") in source, title
