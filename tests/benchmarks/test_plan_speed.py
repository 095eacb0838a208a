"""Speed of the search for plans: plans a second, the whole space, the command from cold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from tests.benchmarks.conftest import best_of
from tests.benchmarks.test_speed import command

Ratio = Callable[[str, float, float, str], None]

# Every split of 512 GPUs, all chunks and micro-batches, ZeRO, recomputation, overlap.
SEARCH = """
import sys, time
from sweeps.search.request import read_request
from sweeps.search.search import search
from sweeps.search.space import space_of
shares = int(sys.argv[1])
asked = {"model": "gpt3-175b", "hardware": "dgx-h100", "gpus": 512, "global_batch_size": 1536,
         "sequence_length": 2048, "recompute": "none,selective,full"}
overlap = {name: [k / shares for k in range(shares)]
           for name in ("tp_overlap", "dp_overlap", "cp_overlap")}
start = time.perf_counter()
found = search(space_of(read_request({**asked, **overlap}).first))
spent = time.perf_counter() - start
from tests.benchmarks.test_speed import peak_memory
print(found.counts.all, found.counts.evaluated, found.counts.feasible, file=sys.stderr)
print(spent, peak_memory())
"""


def searched(shares: int) -> tuple[float, float, list[int]]:
    """Search in a process of its own, on one core; return seconds, MiB, and the plans counted."""
    process = subprocess.run(
        [sys.executable, "-c", SEARCH, str(shares)], check=True, capture_output=True, text=True
    )
    seconds, peak = map(float, process.stdout.split())
    return seconds, peak, [int(word) for word in process.stderr.split()]


def test_the_whole_space(benchmark: object, ratio: Ratio) -> None:
    """GPT-3 175B on 512 GPUs: more than 10^7 plans are looked at one by one."""
    seconds, peak, (every, evaluated, feasible) = searched(4)
    assert evaluated >= 10**7
    note = f"{every:.3g} plans, {evaluated:.3g} one by one, {feasible:,} can run"
    ratio("GPT-3 175B on 512 GPUs, whole space (seconds)", seconds, 20.0, note)
    ratio("the same, peak MiB", peak, 2048.0, f"{evaluated / seconds:.3g} plans/s")
    benchmark.pedantic(lambda: searched(2), rounds=1)  # type: ignore[attr-defined]


def test_cold_start_of_plan(benchmark: object, ratio: Ratio) -> None:
    """``sweeps plan`` for 64 GPUs, from cold to the last line."""
    asked = (
        "--model",
        "llama3-70b",
        "--hardware",
        "dgx-h100",
        "--gpus",
        "64",
        "--batch-size",
        "512",
        "--seq-len",
        "4096",
    )
    whole = command("-m", "sweeps", "plan", *asked)
    (cold,) = best_of(5, whole)
    ratio("sweeps plan, 64 GPUs, from cold (seconds)", cold, 1.0, "")
    benchmark.pedantic(whole, rounds=2)  # type: ignore[attr-defined]


def test_streamed_memory_doesnt_grow(benchmark: object, ratio: Ratio) -> None:
    """Four times the plans take no more memory."""
    _, small, _ = searched(2)
    _, large, _ = searched(4)
    ratio("peak memory of 8 times the plans, by that of one time", large / small, 1.5, "")
    benchmark.pedantic(lambda: searched(1), rounds=1)  # type: ignore[attr-defined]


# All splits of 2,048 GPUs with experts, by bounds and without; and where no bound leaves any out.
BOUNDED = """
import sys, time
import numpy as np
from sweeps.search import search as engine
from sweeps.search.request import read_request
from sweeps.search.space import space_of
space = space_of(read_request({"model": "deepseek-v3", "hardware": "dgx-h100", "gpus": 2048,
                               "global_batch_size": 15360, "sequence_length": 4096}).first)
useful = engine.Block.least
def spent(worth, least=useful):
    engine.WORTH, engine.Block.least = worth, least
    start = time.process_time()
    counts = engine.search(space).counts
    return time.process_time() - start, counts.computed, counts.feasible
def useless(block, name):
    return np.full_like(useful(block, name), -np.inf)
worth = engine.WORTH
spent(worth)
for _ in range(2):
    print(*spent(1 << 60), *spent(worth), *spent(worth, useless))
"""


def test_bounds_of_a_search(benchmark: object, ratio: Ratio) -> None:
    """DeepSeek-V3 on 2,048 GPUs: bounds leave out most plans, and cost little where they can't."""
    process = subprocess.run(
        [sys.executable, "-c", BOUNDED], check=True, capture_output=True, text=True
    )
    rows = [[*map(float, line.split())] for line in process.stdout.splitlines()]
    every, bounded, useless = (min(row[number] for row in rows) for number in (0, 3, 6))
    note = f"{rows[0][4]:,.0f} of {rows[0][5]:,.0f} plans that can run computed whole"
    ratio("DeepSeek-V3 on 2,048 GPUs by bounds, by computing all", bounded / every, 0.9, note)
    ratio("the same where no bound leaves any out", useless / every, 1.2, "")
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]
