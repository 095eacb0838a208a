"""What one change would do to a plan: to its degrees, to how it runs, to the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plans.choices import divisors
from sweeps.plans.detail import Detail, details
from sweeps.plans.execution import Execution

__all__ = ["Change", "Effect", "changes", "effects"]

ASKED = ("step_time", "peak_memory")
TRADED = (("tp", "tp"), ("cp", "cp"), ("pp", "pp"))
RECOMPUTE = {"none": "nothing recomputed", "full": "whole layers recomputed",
             "selective": "attention's scores recomputed",
             "per_op": "every second product recomputed",
             "full_early_stop": "layers recomputed up to their last product"}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change of a plan or of what it runs on."""

    words: str  # What is changed
    numbers: Mapping[str, float] = field(default_factory=dict)  # The new values
    labels: Mapping[str, str] = field(default_factory=dict)  # The new values
    machine: bool = False  # Whether it is of the machine rather than of the plan


@dataclass(frozen=True)
class Effect:
    """What a change does."""

    change: Change  # The change
    detail: Detail  # The plan after it
    # The time of a token after it by the one before, less one; NaN of a plan that can't be
    slower: float

    @property
    def note(self) -> str:
        """Why it can't be, or can't run; empty where it can."""
        if self.detail.faults:
            return "; ".join(name.replace("_", " ") for name in self.detail.faults)
        return "" if self.detail.fits else "does not fit"


def effects(
    detail: Detail, choices: Mapping[str, NDArray[Any]], changed: Sequence[Change] | None = None
) -> tuple[Effect, ...]:
    """Compute what changes of a plan do."""
    wanted = tuple(changes(detail.plan, choices)) if changed is None else tuple(changed)
    plans = [detail.plan.changed(one.numbers, one.labels) for one in wanted]
    before = detail["step_time"] / detail.plan["global_batch"]
    found = details(plans, ASKED, check=True)
    return tuple(
        Effect(change, after, _slower(after, before))
        for change, after in zip(wanted, found, strict=True)
    )


def _slower(after: Detail, before: float) -> float:
    if after.faults:
        return float("nan")
    return after["step_time"] / after.plan["global_batch"] / before - 1.0


def changes(plan: Execution, choices: Mapping[str, NDArray[Any]]) -> Iterator[Change]:
    """Yield one change of each kind."""
    yield from _degrees(plan)
    yield from _experts(plan)
    yield from _numbers(plan, choices)
    yield from _labels(plan, choices)
    yield from _overlap(plan)
    yield from _machine(plan)


def _least_factor(number: float) -> int:
    """Return the smallest factor above 1; 1 for 1."""
    several = divisors(int(number))
    return several[1] if len(several) > 1 else 1


def _degrees(plan: Execution) -> Iterator[Change]:
    """Yield degrees that grow and shrink, data parallelism making up for it."""
    for name, words in TRADED:
        factor = _least_factor(plan["dp"])
        if factor > 1:
            more = {name: plan[name] * factor, "dp": plan["dp"] / factor}
            yield _traded(plan, words, name, more)
        factor = _least_factor(plan[name])
        if factor > 1:
            yield _traded(plan, words, name,
                          {name: plan[name] / factor, "dp": plan["dp"] * factor})  # fmt: skip


def _traded(plan: Execution, words: str, name: str, numbers: dict[str, float]) -> Change:
    told = f"{words} {numbers[name]:g}, dp {numbers['dp']:g}"
    new: dict[str, float] = dict(numbers)
    if name == "tp":
        if "etp" in plan.given and plan["etp"] == plan["tp"]:
            new["etp"] = numbers["tp"]
        # Where there was nothing to split along the sequence, there is now.
        new["sequence_parallel"] = float(numbers["tp"] > 1.0 and (
            plan["sequence_parallel"] > 0.0 or plan["tp"] == 1.0))  # fmt: skip
    labels: dict[str, str] = {}
    if name == "pp" and plan["virtual_stages"] > 1.0:
        # As many layers in a chunk as before.
        chunks = max(np.floor(plan["virtual_stages"] * plan["pp"] / numbers["pp"]), 1.0)
        new["virtual_stages"] = chunks if numbers["pp"] > 1.0 else 1.0
        several = new["virtual_stages"] > 1.0
        told += f", {new['virtual_stages']:g} chunks" if several else ", not interleaved"
        if new["virtual_stages"] == 1.0:
            labels = {"schedule": "one_f_one_b"}
    return Change(told, new, labels)


def _experts(plan: Execution) -> Iterator[Change]:
    if not plan.routed:
        return
    for factor in (2.0, 0.5):
        ep = plan["ep"] * factor
        if ep >= 1.0 and ep.is_integer():
            yield Change(f"ep {ep:g}", {"ep": ep})
    if plan["tp"] > 1.0:
        other = plan["tp"] if plan["etp"] == 1.0 else 1.0
        yield Change(f"etp {other:g}", {"etp": other})


def _numbers(plan: Execution, choices: Mapping[str, NDArray[Any]]) -> Iterator[Change]:
    for name, words in (("micro_batch", "micro-batch"), ("virtual_stages", "chunks")):
        if name == "virtual_stages" and plan["pp"] == 1.0:
            continue
        values = np.asarray(choices[name], dtype=float)
        if name == "virtual_stages":
            values = values[plan["layers"] % (plan["pp"] * values) == 0.0]
        for near in _neighbours(values, plan[name]):
            labels = {}
            if name == "virtual_stages":
                labels = {"schedule": "interleaved" if near > 1.0 else "one_f_one_b"}
            yield Change(f"{words} {near:g}", {name: near}, labels)
    for stage in choices["zero_stage"].tolist():
        if stage != plan["zero_stage"]:
            yield Change(f"ZeRO {stage:g}", {"zero_stage": stage})
    if plan["tp"] > 1.0:
        other = 1.0 - plan["sequence_parallel"]
        words = "sequence parallelism" if other else "no sequence parallelism"
        yield Change(words, {"sequence_parallel": other})


def _neighbours(values: NDArray[np.float64], own: float) -> list[float]:
    below, above = values[values < own], values[values > own]
    return [*below[-1:].tolist(), *above[:1].tolist()]


def _labels(plan: Execution, choices: Mapping[str, NDArray[Any]]) -> Iterator[Change]:
    for label in map(str, choices["recompute"]):
        if label != plan.labels["recompute"]:
            yield Change(RECOMPUTE.get(label, f"recompute {label}"), {}, {"recompute": label})
    kinds = choices.get("context_parallel", np.empty(0, dtype=str))
    for label in map(str, kinds):
        if plan["cp"] > 1.0 and label != plan.labels["context_parallel"]:
            yield Change(f"context by {label}", {}, {"context_parallel": label})


def _overlap(plan: Execution) -> Iterator[Change]:
    for name, words, degrees in (
        ("tp_overlap", "tensor parallelism", ("tp",)),
        ("cp_overlap", "context parallelism", ("cp",)),
        ("dp_overlap", "data parallelism", ("dp", "cp")),
    ):
        ranks = float(np.prod([plan[degree] for degree in degrees]))
        if ranks > 1.0 and plan.given.get(name, 0.0) > 0.0:
            yield Change(f"no overlap of {words}", {name: 0.0})


def _machine(plan: Execution) -> Iterator[Change]:
    given = plan.given
    several = plan["world_size"] > given.get("gpus_per_node", np.inf)
    for level, words, there in (("inter", "between nodes", several), ("intra", "in nodes", True)):
        bandwidth = given.get(f"{level}_bandwidth", np.nan)
        if not there or not np.isfinite(bandwidth):
            continue
        yield Change(f"twice the bandwidth {words}", {f"{level}_bandwidth": 2.0 * bandwidth},
                     machine=True)  # fmt: skip
        if level == "inter":
            yield Change(f"half the bandwidth {words}", {f"{level}_bandwidth": 0.5 * bandwidth},
                         machine=True)  # fmt: skip
    latencies = {
        name: 0.5 * given[name] for name in ("intra_latency", "inter_latency") if name in given
    }
    if latencies:
        yield Change("half the latencies", latencies, machine=True)
