"""Why a plan is recommended, in words that come from its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sweeps.plans.detail import Detail
from sweeps.plans.execution import Execution
from sweeps.plans.objective import Objective
from sweeps.plans.search import Found
from sweeps.plans.what_if import Effect
from sweeps.spec.units import format_quantity

__all__ = ["GROUPS", "because", "bound_by", "differences", "memory_words", "percent", "seconds"]

ENDS = "embedding, output layer and loss"
# What a step's parts are, gathered as people speak of them.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "matrix products": ("matmul_part_time",),
    "attention": ("attention_part_time",),
    "element-wise work": ("elementwise_part_time",),
    "recomputation": ("recompute_part_time",),
    "waiting for the host": ("host_part_time",),
    "tensor parallelism's communication": ("exposed_tp_time",),
    "context parallelism's communication": ("exposed_cp_time",),
    "expert parallelism's communication": ("exposed_ep_time",),
    "data parallelism's communication": ("exposed_dp_time",),
    "the pipeline's bubble": ("bubble_time",),
    "the pipeline's transfers": ("exposed_p2p_time",),
    ENDS: ("imbalance_time",),
    "the optimizer": ("optimizer_time", "step_overhead"),
}
COMPUTING = ("matrix products", "attention", "element-wise work")
SENDING = tuple(name for name in GROUPS if name.endswith(("communication", "transfers")))
# Memory by part, as people speak of it.
HELD: Mapping[str, tuple[str, ...]] = {
    "weights": ("peak_weight_memory", "peak_gathered_memory"),
    "gradients": ("peak_gradient_memory", "peak_pending_gradient_memory", "peak_bucket_memory"),
    "the optimizer": ("peak_optimizer_memory",),
    "activations": ("peak_stored_activation_memory", "peak_live_activation_memory"),
    "logits": ("peak_logits_memory",),
}
# Parts below this share of the step aren't worth a word.
NOTABLE = 0.01
CLOSE = 0.01


def seconds(value: float) -> str:
    """Return a time as people write it."""
    return format_quantity(value, "s")


def percent(value: float, digits: int = 1) -> str:
    """Return a share in percent."""
    return f"{value:.{digits}%}"


def _groups(detail: Detail) -> dict[str, float]:
    """Return the parts of a step, gathered, the largest first."""
    sums = {name: sum(detail.values.get(part, 0.0) for part in parts)
            for name, parts in GROUPS.items()}  # fmt: skip
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def because(
    found: Found,
    details: Sequence[Detail],
    changes: Sequence[Effect],
) -> Iterator[str]:
    """Yield why a plan is recommended."""
    best = details[0]
    objective = found.space.point.objective
    yield _first(found, best, objective)
    yield bound_by(best)
    yield memory_words(best, found.space.point.threshold)
    if len(details) > 1:
        yield _next(best, details[1], objective)
    yield from _within(found, best)
    yield from _placed(best)
    told = list(_tempting(changes, best, found.space.point.threshold))
    yield from told[:1]
    yield from _network(changes)


def _first(found: Found, best: Detail, objective: Objective) -> str:
    runnable = found.counts.feasible
    several = f"{runnable:,} plans that can run" if runnable > 1 else "plans: no other can run"
    if objective.name in ("time", "tokens"):
        rate = best["tokens_per_second_per_gpu"]
        told = f"a step takes {seconds(best['step_time'])}, {rate:,.0f} tokens a second and GPU"
        mfu = best["mfu"]
        told += f", MFU {percent(mfu)}" if np.isfinite(mfu) else ""
    else:
        told = f"a step takes {seconds(best['step_time'])}"
    return f"it has {objective.words} of {several}: {told}"


def bound_by(detail: Detail) -> str:
    """Say what a plan's step is made of, and what bounds it."""
    sums = _groups(detail)
    whole = detail["step_time"]
    shares = [f"{name} {percent(value / whole, 0)}" for name, value in sums.items()
              if value >= NOTABLE * whole]  # fmt: skip
    # Where there is a pipeline it waits for the stages that have them.
    piped = detail.plan["pp"] > 1.0
    computing = sum(sums[name] for name in (*COMPUTING, *(() if piped else (ENDS,)))) / whole
    sending = sum(sums[name] for name in SENDING) / whole
    waiting = (sums["the pipeline's bubble"] + (sums[ENDS] if piped else 0.0)) / whole
    host = sums["waiting for the host"] / whole
    ranked = {"computing": computing, "communication": sending, "the pipeline": waiting,
              "the host": host, "recomputation": sums["recomputation"] / whole}  # fmt: skip
    most = max(ranked, key=lambda name: ranked[name])
    if most == "computing" or ranked[most] < computing:
        most = "computing"
        rest = sorted(((value, name) for name, value in ranked.items() if name != most))[-1]
        more = f"; of what isn't computing most is {rest[1]}" if rest[0] >= NOTABLE else ""
    else:
        more = ""
    return f"bound by {most}: {', '.join(shares)} of the step{more}"


def memory_words(detail: Detail, threshold: float) -> str:
    """Say how far a plan is from the limit of memory, and what it holds."""
    peak, capacity = detail["peak_memory"], detail.capacity
    if not np.isfinite(capacity):
        return f"the fullest GPU needs {format_quantity(peak, 'byte')}"
    share = peak / capacity
    told = f"the fullest GPU needs {_size(peak)} of {_size(capacity)} ({percent(share, 0)})"
    left = threshold * capacity - peak
    if peak > capacity:
        told += f": {_size(peak - capacity)} too much"
    elif threshold < 1.0:
        way = f"{_size(left)} below" if left >= 0.0 else f"{_size(-left)} above"
        told += f", {way} the threshold of {percent(threshold, 0)}"
    else:
        told += f": {_size(capacity - peak)} are left"
    parts = {name: sum(detail.values.get(part, 0.0) for part in own) for name, own in HELD.items()}
    held = [f"{name} {percent(value / peak, 0)}"
            for name, value in sorted(parts.items(), key=lambda item: -item[1])
            if value >= 0.05 * peak]  # fmt: skip
    return told + (f"; {', '.join(held)}" if held else "")


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
    told = f"the next split, {other.plan.split} ({other.plan.way}), is {gap:+.1%}"
    if other["step_time"] != best["step_time"]:
        told += f" ({seconds(other['step_time'])} a step)"
    lost, gained = differences(best, other)
    told += f": it loses in {', '.join(lost[:3])}" if lost else ""
    told += f"{'; it' if lost else ': it'} gains in {', '.join(gained[:2])}" if gained else ""
    return told


def _within(found: Found, best: Detail) -> Iterator[str]:
    """Say how many plans are as good as can be told."""
    near = found.within(CLOSE)
    if len(near) < 2:
        return
    more = "at least " if len(near) == len(found.best) < found.counts.feasible else ""
    band = best.values.get("error_band", np.nan)
    error = f" (the model itself is off by {percent(band, 0)} or so)" if np.isfinite(band) else ""
    told = f"{more}{len(near)} plans are within {percent(CLOSE, 0)} of it{error}"
    simplest = min(near, key=_effort)
    if _effort(simplest) < _effort(found.recommended):
        told += f"; with less to set up: {simplest.name}"
    yield told


def _effort(plan: Execution) -> tuple[float, ...]:
    """Return how much there is to set up for a plan."""
    degrees = sum(plan[name] > 1.0 for name in ("tp", "cp", "pp", "ep"))
    return (degrees, plan["virtual_stages"], plan["zero_stage"], plan["pp"])


def _placed(best: Detail) -> Iterator[str]:
    """Say where groups that talk most lie on nodes."""
    plan = best.plan
    node = plan.given.get("gpus_per_node", np.inf)
    if plan.labels["topology"] != "hierarchical" or plan["world_size"] <= node:
        return
    told = []
    if plan["tp"] > 1.0:
        inside = plan["tp"] <= node and node % plan["tp"] == 0.0
        told.append(f"tp {plan['tp']:g} {'stays in a node' if inside else 'crosses nodes'}")
    if plan.routed and plan["ep"] > 1.0:
        ranks = plan["ep"] * plan["etp"]
        inside = ranks <= node and node % ranks == 0.0
        told.append(f"ep {plan['ep']:g} {'stays in a node' if inside else 'crosses nodes'}")
    if told:
        yield f"{', '.join(told)} of {node:g} GPUs"


def _tempting(changes: Sequence[Effect], best: Detail, threshold: float) -> Iterator[str]:
    """Say what would be faster, if memory sufficed."""
    limit = threshold * best.capacity
    faster = [
        one for one in changes
        if not one.change.machine and not one.detail.faults
        and one.slower < -1e-3 and one.detail["peak_memory"] > limit
    ]  # fmt: skip
    for one in sorted(faster, key=lambda effect: effect.slower):
        needs = _size(one.detail["peak_memory"])
        yield (
            f"memory holds it back: {one.change.words} would be {-one.slower:.1%} faster, "
            f"and needs {needs}"
        )


def _network(changes: Sequence[Effect]) -> Iterator[str]:
    """Say what more bandwidth would give."""
    told = [f"{one.change.words} {one.slower:+.1%}" for one in changes if one.change.machine]
    if told:
        yield f"the same plan on another network: {', '.join(told)} of the step"
