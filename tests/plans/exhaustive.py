"""Every plan of a small space one by one, by the scalar interface: a search must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from overhead.analysis import faults
from overhead.evaluation import Evaluation
from overhead.labels import CHUNKED
from sweeps.search.request import Point
from sweeps.search.space import space_of

Row = dict[str, float]


@dataclass
class Everything:
    """All plans of a space.

    Attributes
    ----------
    times : dict
        Of plans that can run: the step time and the memory.
    fallen : Counter
        How many fall for each of the engine's reasons, of those with whole degrees.
    """

    times: dict[tuple[Any, ...], tuple[float, float]] = field(default_factory=dict)
    fallen: Counter[str] = field(default_factory=Counter)

    def best(self) -> tuple[tuple[Any, ...], tuple[float, float]]:
        """Return the best plan: the shortest step, of equals the one with the least memory."""
        return min(self.times.items(), key=lambda item: item[1])

    def front(self) -> set[tuple[float, float]]:
        """Return the times and memories that no other plan beats in both ways."""
        values = set(self.times.values())
        return {
            value
            for value in values
            if not any(o != value and o[0] <= value[0] and o[1] <= value[1] for o in values)
        }

    def of_splits(self) -> dict[tuple[Any, ...], tuple[float, float]]:
        """Return the best time and memory of each split."""
        splits: dict[tuple[Any, ...], tuple[float, float]] = {}
        for key, values in self.times.items():
            splits[key[:6]] = min(splits.get(key[:6], (np.inf, np.inf)), values)
        return splits


def divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]


def rows(point: Point, choices: Mapping[str, Any], experts: int) -> Iterator[Row]:
    """Yield all plans, those that can't be among them."""
    world = point.world_size
    for tp, cp, pp in product(divisors(world), repeat=3):
        if world % (tp * cp * pp):
            continue
        dp = world // (tp * cp * pp)
        split = (
            [(1, tp)]
            if not experts
            else [(ep, etp) for ep in divisors(world // pp) for etp in {1, tp}]
        )
        for ep, etp in split:
            for v, b, z, sp in product(
                *(
                    choices[name]
                    for name in tuple(
                        (
                            "virtual_pipeline_size micro_batch_size zero_stage sequence_parallel"
                        ).split()
                    )
                )
            ):
                yield {
                    "tp": tp,
                    "cp": cp,
                    "pp": pp,
                    "dp": dp,
                    "ep": ep,
                    "etp": etp,
                    "virtual_pipeline_size": v,
                    "micro_batch_size": b,
                    "zero_stage": z,
                    "sequence_parallel": sp,
                    "world_size": world,
                }


def repeated(row: Row, experts: int) -> bool:
    """Tell whether a plan is another one, written with a setting that has no effect."""
    shards = row["dp"] * row["cp"] > 1 or (
        experts and row["tp"] * row["cp"] * row["dp"] > row["etp"] * row["ep"]
    )
    return bool(
        (row["sequence_parallel"] and row["tp"] == 1)
        or (row["virtual_pipeline_size"] > 1 and row["pp"] == 1)
        or (row["zero_stage"] and not shards)
    )


def everything(point: Point) -> Everything:
    """Evaluate every plan of a point's space."""
    space = space_of(point)
    assert space.plan is not None
    given = {
        name: float(value.reshape(-1)[0])
        for name, value in space.plan.grid.columns.items()
        if value.size == 1
    }
    base = dict(space.plan.cases[0].labels)
    experts = int(given.get("experts", 0.0))
    megatron = base["framework"].startswith("megatron-lm")
    every = list(rows(point, space.choices, experts))
    exhaustive_result = Everything()
    for again, schedule in product(
        map(str, space.choices["recompute"]), map(str, space.choices["schedule"])
    ):
        several = schedule in CHUNKED
        own = [
            row
            for row in every
            if (row["virtual_pipeline_size"] > 1) == several
            and not (megatron and row["zero_stage"] > 1 and several)
            and not repeated(row, experts)
        ]
        if not own:
            continue
        labels = {**base, "recompute": again, "schedule": schedule}
        columns = {name: np.array([row[name] for row in own], dtype=float) for name in own[0]}
        evaluation = Evaluation({**given, **columns}, labels)
        with np.errstate(all="ignore"):
            wrong = np.zeros(len(own), dtype=bool)
            for fallen in faults(evaluation):
                mask = np.broadcast_to(fallen.where, (len(own),))
                exhaustive_result.fallen[fallen.requirement.fault] += int(mask.sum())
                wrong |= mask
            time = np.broadcast_to(evaluation["step_time"], (len(own),))
            memory = np.broadcast_to(evaluation["peak_memory"], (len(own),))
        limit = point.threshold * given["memory_capacity"]
        share = np.broadcast_to(evaluation["recomputed_fraction"], (len(own),))
        # Of no layer a block is nothing, of all layers the full recomputation that is there too.
        if again == "block":
            wrong |= share >= 1.0
        for position in np.nonzero(~wrong & (memory <= limit))[0]:
            result = "none" if again == "block" and share[position] == 0.0 else again
            key = (
                *(own[position][name] for name in own[0] if name != "world_size"),
                result,
                schedule,
            )
            exhaustive_result.times[key] = (float(time[position]), float(memory[position]))
    return exhaustive_result
