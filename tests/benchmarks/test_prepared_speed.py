"""Speed of a prepared question: a call of numbers, beside a sweep of them and what numpy does."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np

import sweeps
from sweeps.engine.kept import BEFORE

Ratio = Callable[[str, float, float, str], None]
GIVEN = {"model": "llama3-70b", "hardware": "dgx-h100", "gpus": 512, "global_batch_size": 1024}
PLAN = {"tp": 8, "pp": 4, "micro_batch": 1}
QUANTITIES = ["step_time", "peak_memory"]
CALLS = 100


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Return the least CPU time of each work, in turns."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = process_time()
            work()
            best[index] = min(best[index], process_time() - start)
    return best


def bundle() -> None:
    """Call numpy a hundred times, on one number each."""
    one = np.ones(1)
    for _ in range(CALLS):
        np.multiply(one, one)


def test_a_call_of_numbers(ratio: Ratio) -> None:
    model = sweeps.prepare(QUANTITIES, **GIVEN)
    model(**PLAN)
    for _ in range(BEFORE):
        sweeps.sweep(QUANTITIES, **GIVEN, **PLAN)

    def calls() -> None:
        for _ in range(CALLS):
            model(**PLAN)

    swept, called, numpy = best_of(
        5, lambda: sweeps.sweep(QUANTITIES, **GIVEN, **PLAN), calls, bundle
    )
    own = called / CALLS
    ratio("a prepared call by one sweep", own / swept, 1 / 50, f"{own * 1e6:.0f} us a call")
    ratio("a prepared call by 100 of numpy", own / numpy, 3.0, f"{numpy * 1e6:.0f} us")


def test_an_array_of_plans(ratio: Ratio) -> None:
    model = sweeps.prepare(QUANTITIES, **GIVEN)
    tp, pp, micro = np.meshgrid([1, 2, 4, 8], [1, 2, 4, 8], np.arange(1, 513))
    model(**PLAN)
    model(tp=tp, pp=pp, micro_batch=micro)
    called, array = best_of(
        3, lambda: model(**PLAN), lambda: model(tp=tp, pp=pp, micro_batch=micro)
    )
    each = array / tp.size
    ratio("a point of an array by a prepared call", each / called, 0.1, f"{each * 1e6:.2f} us")
