"""What one change would do to a plan: to its degrees, to how it runs, to the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.frozen import frozen
from sweeps.bands import MAY_NOT_FIT, NO_ROOM, band_of, change_by, difference_words, percent, tie
from sweeps.search.details import Detail, details
from sweeps.search.request import Execution, Objective
from sweeps.search.search import SearchResult
from sweeps.spec.axis import divisors
from sweeps.spec.units import format_quantity

ASKED = ("step_time", "peak_memory")
TRADED = (("tp", "tp"), ("cp", "cp"), ("pp", "pp"))
RECOMPUTE = {
    "none": "nothing recomputed",
    "full": "whole layers recomputed",
    "selective": "attention's scores recomputed",
    "block": "as few layers recomputed as fit",
    "per_op": "every second product recomputed",
    "full_early_stop": "layers recomputed up to their last product",
}


@frozen()
class Change:
    """One change of a plan or of what it runs on."""

    words: str  # What is changed
    numbers: Mapping[str, float] = field(default_factory=dict)  # The new values
    labels: Mapping[str, str] = field(default_factory=dict)  # The new values
    machine: bool = False  # Whether it is of the machine rather than of the plan


@frozen()
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


def effects(detail: Detail, choices: Mapping[str, NDArray[Any]]) -> tuple[Effect, ...]:
    """Compute what changes of a plan do."""
    wanted = tuple(changes(detail.plan, choices))
    plans = [
        detail.plan.changed(wanted_change.numbers, wanted_change.labels) for wanted_change in wanted
    ]
    before = detail["step_time"] / detail.plan["global_batch_size"]
    outcomes = details(plans, ASKED, check=True)
    return tuple(
        Effect(change, after, _slower(after, before))
        for change, after in zip(wanted, outcomes, strict=True)
    )


def _slower(after: Detail, before: float) -> float:
    if after.faults:
        return float("nan")
    return after["step_time"] / after.plan["global_batch_size"] / before - 1.0


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
            yield _traded(plan, words, name, {name: plan[name] / factor, "dp": plan["dp"] * factor})


def _traded(plan: Execution, words: str, name: str, numbers: dict[str, float]) -> Change:
    text = f"{words} {numbers[name]:g}, dp {numbers['dp']:g}"
    new: dict[str, float] = dict(numbers)
    if name == "tp":
        if "etp" in plan.given and plan["etp"] == plan["tp"]:
            new["etp"] = numbers["tp"]
        # Where there was nothing to split along the sequence, there is now.
        new["sequence_parallel"] = float(
            numbers["tp"] > 1.0 and (plan["sequence_parallel"] > 0.0 or plan["tp"] == 1.0)
        )
    labels: dict[str, str] = {}
    if name == "pp" and plan["virtual_pipeline_size"] > 1.0:
        # As many layers in a chunk as before.
        chunks = max(np.floor(plan["virtual_pipeline_size"] * plan["pp"] / numbers["pp"]), 1.0)
        new["virtual_pipeline_size"] = chunks if numbers["pp"] > 1.0 else 1.0
        several = new["virtual_pipeline_size"] > 1.0
        text += f", {new['virtual_pipeline_size']:g} chunks" if several else ", not interleaved"
        if new["virtual_pipeline_size"] == 1.0:
            labels = {"schedule": "one_f_one_b"}
    return Change(text, new, labels)


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
    for name, words in (("micro_batch_size", "micro-batch"), ("virtual_pipeline_size", "chunks")):
        if name == "virtual_pipeline_size" and plan["pp"] == 1.0:
            continue
        values = np.asarray(choices[name], dtype=float)
        if name == "virtual_pipeline_size":
            values = values[plan["pipeline_layers"] % (plan["pp"] * values) == 0.0]
        for near in _neighbours(values, plan[name]):
            labels = {}
            if name == "virtual_pipeline_size":
                labels = {"schedule": "interleaved" if near > 1.0 else "one_f_one_b"}
            yield Change(f"{words} {near:g}", {name: near}, labels)
    for stage in choices["zero_stage"].tolist():
        if stage != plan["zero_stage"]:
            yield Change(f"ZeRO {stage:g}", {"zero_stage": stage})
    if plan["tp"] > 1.0:
        other = 1.0 - plan["sequence_parallel"]
        words = "sequence parallelism" if other else "no sequence parallelism"
        yield Change(words, {"sequence_parallel": other})


def _neighbours(values: NDArray[np.float64], current: float) -> list[float]:
    below, above = values[values < current], values[values > current]
    return [*below[-1:].tolist(), *above[:1].tolist()]


def _labels(plan: Execution, choices: Mapping[str, NDArray[Any]]) -> Iterator[Change]:
    for label in dict.fromkeys(("none", *map(str, choices["recompute"]))):
        if label not in (plan.labels["recompute"], "block"):
            yield Change(RECOMPUTE.get(label, f"recompute {label}"), {}, {"recompute": label})
    kinds = choices.get("context_parallel", np.empty(0, dtype=str))
    for label in map(str, kinds):
        if plan["cp"] > 1.0 and label != plan.labels["context_parallel"]:
            yield Change(f"context by {label}", {}, {"context_parallel": label})


def _overlap(plan: Execution) -> Iterator[Change]:
    for name, words, degrees in (
        ("tp_overlap", "TP communication", ("tp",)),
        ("cp_overlap", "CP communication", ("cp",)),
        ("dp_overlap", "DP communication", ("dp", "cp")),
    ):
        ranks = float(np.prod([plan[degree] for degree in degrees]))
        if ranks > 1.0 and plan.given.get(name, 0.0) > 0.0:
            more = {"tp_gradient_overlap": 0.0} if name == "tp_overlap" else {}
            yield Change(f"no overlap of {words}", {name: 0.0, **more})


def _machine(plan: Execution) -> Iterator[Change]:
    given = plan.given
    several = plan["world_size"] > given.get("gpus_per_node", np.inf)
    for level, words, there in (("inter", "inter-node", several), ("intra", "intra-node", True)):
        bandwidth = given.get(f"{level}_bandwidth", np.nan)
        if not there or not np.isfinite(bandwidth):
            continue
        yield Change(
            f"twice the {words} bandwidth", {f"{level}_bandwidth": 2.0 * bandwidth}, machine=True
        )
        if level == "inter":
            yield Change(
                f"half the {words} bandwidth", {f"{level}_bandwidth": 0.5 * bandwidth}, machine=True
            )
    latencies = {
        name: 0.5 * given[name] for name in ("intra_latency", "inter_latency") if name in given
    }
    if latencies:
        yield Change("half the latencies", latencies, machine=True)


# Why a plan is recommended, in words that come from its numbers.

ENDS = "embedding, LM head and loss"
OFFLOADING, UPDATING = "CPU offload", "optimizer and fixed overhead"
# What a step's parts are, gathered as people speak of them.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "GEMMs": ("matmul_part_time",),
    "attention": ("attention_part_time",),
    "element-wise work": ("elementwise_part_time",),
    "recomputation": ("recompute_part_time",),
    "host wait": ("host_part_time",),
    "TP communication": ("exposed_tp_time",),
    "CP communication": ("exposed_cp_time",),
    "EP communication": ("exposed_ep_time",),
    OFFLOADING: ("exposed_offload_time",),
    "DP communication": ("exposed_dp_time", "tied_all_reduce_backward_time"),
    "pipeline bubble": ("bubble_time",),
    "PP communication": ("exposed_pp_time",),
    ENDS: ("stage_imbalance_time",),
    UPDATING: ("optimizer_time", "step_overhead"),
}
COMPUTING = ("GEMMs", "attention", "element-wise work")
SENDING = tuple(name for name in GROUPS if name.endswith("communication"))
# Memory by part, as people speak of it.
MEMORY_GROUPS: Mapping[str, tuple[str, ...]] = {
    "weights": ("peak_weight_memory", "peak_weight_cast_memory", "peak_zero3_gathered_memory"),
    "gradients": ("peak_gradient_memory", "peak_unsharded_gradient_memory", "peak_bucket_memory"),
    "optimizer": ("peak_optimizer_memory",),
    "activations": ("peak_saved_activation_memory", "peak_recompute_activation_memory"),
    "logits": ("peak_logits_memory",),
}
# Parts below this share of the step aren't worth a word.
NOTABLE = 0.01


def seconds(value: float) -> str:
    """Return a time as people write it."""
    return format_quantity(value, "s")


def _groups(detail: Detail) -> dict[str, float]:
    """Return the parts of a step, gathered, the largest first."""
    sums = {
        name: sum(detail.values.get(part, 0.0) for part in parts) for name, parts in GROUPS.items()
    }
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def because(
    result: SearchResult,
    details: Sequence[Detail],
    changes: Sequence[Effect],
) -> Iterator[str]:
    """Yield why a plan is recommended."""
    best = details[0]
    objective = result.space.point.objective
    yield _first(result, best, objective)
    known = bool(np.isfinite(best["step_time"]))
    if known:
        yield bound_by(best)
    yield memory_words(best, result.space.point.threshold)
    if known and len(details) > 1:
        yield _next(best, details[1], objective)
    yield from _within(result, best)
    yield from _placed(best)
    yield from tempting(changes, best, result.space.point.threshold)
    yield from network(changes)


def _first(result: SearchResult, best: Detail, objective: Objective) -> str:
    runnable = result.counts.feasible
    several = f"{runnable:,} feasible plans" if runnable > 1 else "plans: no other can run"
    if not np.isfinite(best["step_time"]):
        text = "the step time is not known"
    elif objective.name in ("time", "tokens"):
        rate = best["tokens_per_second_per_gpu"]
        text = f"a step takes {seconds(best['step_time'])}, {rate:,.0f} tokens/s per GPU"
        mfu = best["mfu"]
        text += f", MFU {percent(mfu)}" if np.isfinite(mfu) else ""
    else:
        text = f"a step takes {seconds(best['step_time'])}"
    least = min(result.values)
    if result.values[0] > least:
        gap = result.values[0] / least - 1.0 if least else 0.0
        return (
            f"it is within {percent(abs(gap))} of {objective.words} of {several}, and has the "
            f"fewest settings: {text}"
        )
    return f"it has {objective.words} of {several}: {text}"


# Below this share of the MFU that of causal attention is told.
CAUSAL = 0.8


def of_causal(detail: Detail) -> Iterator[str]:
    """Yield what a plan's MFU is without the half of attention that a causal mask leaves out."""
    (told,) = details([detail.plan], ("mfu", "causal_mfu"))
    if told["causal_mfu"] < CAUSAL * told["mfu"]:
        yield (
            "Note: MFU counts attention as if it weren't causal, as is usual; of causal attention "
            f"it is {percent(told['causal_mfu'])}"
        )


def bound_by(detail: Detail) -> str:
    """Say what a plan's step is made of, and what bounds it."""
    sums = _groups(detail)
    whole = detail["step_time"]
    shares = [
        f"{name} {percent(value / whole, 0)}"
        for name, value in sums.items()
        if value >= NOTABLE * whole
    ]
    # Where there is a pipeline it waits for the stages that have them.
    piped = detail.plan["pp"] > 1.0
    computing = sum(sums[name] for name in (*COMPUTING, *(() if piped else (ENDS,)))) / whole
    sending = sum(sums[name] for name in SENDING) / whole
    waiting = (sums["pipeline bubble"] + (sums[ENDS] if piped else 0.0)) / whole
    host = sums["host wait"] / whole
    ranked = {
        "compute": computing,
        "communication": sending,
        "the pipeline": waiting,
        "the host": host,
        "recomputation": sums["recomputation"] / whole,
        **{name: sums[name] / whole for name in (OFFLOADING, UPDATING)},
    }
    most = max(ranked, key=lambda name: ranked[name])
    if most == "compute" or ranked[most] < computing:
        most = "compute"
        rest = sorted(((value, name) for name, value in ranked.items() if name != most))[-1]
        more = f"; next: {rest[1]}" if rest[0] >= NOTABLE else ""
    else:
        more = ""
    return f"limited by {most}: {', '.join(shares)} of the step{more}"


def memory_words(detail: Detail, threshold: float) -> str:
    """Say how far a plan is from the limit of memory, and what it holds."""
    peak, capacity = detail["peak_memory"], detail.capacity
    if not np.isfinite(capacity):
        return f"peak memory {_size(peak)}"
    share = f" ({percent(peak / capacity, 0)})" if capacity > 0.0 else ""
    band = band_of("peak_memory", detail.values.get)
    text = f"peak memory {_size(peak)} of {_size(capacity)}{share}, {band}"
    left = threshold * capacity - peak
    if detail.fit == NO_ROOM:
        text += f": {_size(peak - capacity)} too much"
    elif detail.fit == MAY_NOT_FIT:
        text += f": {_size(peak - capacity)} over, {MAY_NOT_FIT}"
    elif threshold < 1.0:
        way = f"{_size(left)} below" if left >= 0.0 else f"{_size(-left)} above"
        text += f", {way} the threshold of {percent(threshold)}"
    else:
        text += f": {_size(capacity - peak)} are left"
    parts = {
        name: sum(detail.values.get(part, 0.0) for part in memory_group)
        for name, memory_group in MEMORY_GROUPS.items()
    }
    parts_of = [
        f"{name} {percent(value / peak, 0)}"
        for name, value in sorted(parts.items(), key=lambda item: -item[1])
        if value >= 0.05 * peak
    ]
    return text + (f"; {', '.join(parts_of)}" if parts_of else "")


def _size(nbytes: float) -> str:
    """Return bytes in GB, so that numbers beside each other have one unit."""
    return f"{nbytes / 1e9:.1f} GB"


def differences(better: Detail, worse: Detail) -> tuple[list[str], list[str]]:
    """Say where a plan loses time against another, and where it gains."""
    here, there = _groups(better), _groups(worse)
    gaps = {name: there[name] - here[name] for name in here}
    least = 0.1 * max((abs(gap) for gap in gaps.values()), default=0.0)
    least = max(least, 1e-4 * better["step_time"])
    order = sorted(gaps.items(), key=lambda item: -abs(item[1]))
    lost = [f"{name} +{seconds(gap)}" for name, gap in order if gap >= least]
    gained = [f"{name} -{seconds(-gap)}" for name, gap in order if gap <= -least]
    return lost, gained


def _next(best: Detail, other: Detail, objective: Objective) -> str:
    """Say what the best plan of the next split loses, and where."""
    if objective.quantity in best.values and best[objective.quantity]:
        gap = other[objective.quantity] / best[objective.quantity] - 1.0
    else:
        gap = other["step_time"] / best["step_time"] - 1.0
    text = f"the next layout, {other.plan.split} ({other.plan.way}), is {change_by(gap)}"
    text += f", {difference_words(gap)}" if objective.timed else ""
    if other["step_time"] != best["step_time"]:
        text += f" ({seconds(other['step_time'])} per step)"
    lost, gained = differences(best, other)
    text += f": it loses in {', '.join(lost[:3])}" if lost else ""
    text += f"{'; it' if lost else ': it'} gains in {', '.join(gained[:2])}" if gained else ""
    return text


def _within(result: SearchResult, best: Detail) -> Iterator[str]:
    """Say how many splits have plans that can't be told from the best."""
    if result.tied < 2 or not result.space.point.objective.timed:
        return
    fastest = result.ranked[0]
    text = (
        f"{result.tied} of {len(result.splits):,} layouts tie with the best: below {percent(tie())}"
        " published runs do not tell which is better"
    )
    if fastest.key != best.plan.key:
        text += f"; the shortest predicted step is {fastest.name}"
    yield text


def _placed(best: Detail) -> Iterator[str]:
    """Say where groups that talk most lie on nodes."""
    plan = best.plan
    node = plan.given.get("gpus_per_node", np.inf)
    if plan.labels["topology"] != "hierarchical" or plan["world_size"] <= node:
        return
    phrases = []
    if plan["tp"] > 1.0:
        inside = plan["tp"] <= node and node % plan["tp"] == 0.0
        phrases.append(f"tp {plan['tp']:g} {'stays within a node' if inside else 'crosses nodes'}")
    if plan.routed and plan["ep"] > 1.0:
        ranks = plan["ep"] * plan["etp"]
        inside = ranks <= node and node % ranks == 0.0
        phrases.append(f"ep {plan['ep']:g} {'stays within a node' if inside else 'crosses nodes'}")
    if phrases:
        yield f"{', '.join(phrases)} of {node:g} GPUs"


def tempting(changes: Sequence[Effect], best: Detail, threshold: float) -> Iterator[str]:
    """Say what would be faster, if memory sufficed."""
    limit = threshold * best.capacity
    faster = [
        change
        for change in changes
        if not change.change.machine
        and not change.detail.faults
        and change.slower < -1e-3
        and change.detail["peak_memory"] > limit
    ]
    if faster:
        fastest = min(faster, key=lambda effect: effect.slower)
        yield (
            f"memory-limited: {fastest.change.words} would be {percent(-fastest.slower)} faster but"
            f" needs {_size(fastest.detail['peak_memory'])}"
        )


def network(changes: Sequence[Effect]) -> Iterator[str]:
    """Say what more bandwidth would give."""
    costs = [
        f"{change.change.words} {change_by(change.slower)}"
        for change in changes
        if change.change.machine and np.isfinite(change.slower)
    ]
    if costs:
        yield f"step time with {', '.join(costs)}"
