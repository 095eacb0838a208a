"""What a report of one training configuration says first: how long, whether it fits, what would."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from overhead.analysis import AnalysisResult, analyze, faults
from overhead.evaluation import Evaluation
from overhead.quantity import Array
from overhead.shipped import loss_figures
from sweeps.bands import NO_ROOM, UNKNOWN, band_of, brief, fit_of, memory_words, percent, three
from sweeps.cli.numbers import shown
from sweeps.cli.typed import flag_of
from sweeps.display import BANDS
from sweeps.job import Job
from sweeps.measured_step import CLOCK, MEASURED_STEP
from sweeps.origin import MEASURED
from sweeps.search.request import habits_of


def answer(evaluation: Evaluation, result: AnalysisResult, step: str) -> Iterator[str]:
    """Yield what is asked first: how long a step takes, and whether it fits."""
    time = number(evaluation, "step_time")
    on_host = host(evaluation)
    if not np.isnan(time):
        mfu = number(evaluation, "mfu")
        can = fit(evaluation, result) != NO_ROOM and NO_ROOM not in on_host
        yield (
            f"{brief(time, 's')} per {step} ({band(evaluation, 'step_time')})"
            f"{'' if can else ' if the memory sufficed'}"
        )
        if not np.isnan(mfu):
            yield f"MFU {percent(mfu)}"
    elif evaluation.value("step_time", {}) is not None:
        yield f"how long a {step} takes isn't known (why: below)"
    if not np.isnan(result.per_gpu_memory_bytes):
        yield _needs(evaluation, result)
    if NO_ROOM in on_host:
        yield f"host memory: {on_host}"


def band(evaluation: Evaluation, quantity: str) -> str:
    """Return the words of a quantity's band."""
    return band_of(quantity, lambda name: number(evaluation, name))


def fit(evaluation: Evaluation, result: AnalysisResult) -> str:
    """Return whether the fullest GPU holds its part, as far as can be told."""
    ends = (number(evaluation, name) for name in BANDS["peak_memory"])
    low, high = ends if result.memory_is_whole else (np.nan, np.nan)
    capacity = number(evaluation, "memory_capacity")
    return fit_of(float(result.per_gpu_memory_bytes), capacity, low, high)


def number(evaluation: Evaluation, name: str) -> float:
    """Return a quantity; NaN where it can't be told."""
    value = evaluation.value(name, {})
    return float("nan") if value is None else float(np.ravel(value)[0])


def _needs(evaluation: Evaluation, result: AnalysisResult) -> str:
    needed, capacity = float(result.per_gpu_memory_bytes), number(evaluation, "memory_capacity")
    if result.memory_is_whole:
        low, high = (number(evaluation, name) for name in BANDS["peak_memory"])
        return memory_words(needed, capacity, low, high)
    size = f"{three(needed / 1e9)} of {three(capacity / 1e9)} GB per GPU"
    over = f": {NO_ROOM}" if needed > capacity else ""
    return f"{size} for model states alone ({UNKNOWN}){over}"


def host(evaluation: Evaluation) -> str:
    """Return what a node's host memory has to hold, and whether it can; nothing where none does."""
    least = number(evaluation, "host_node_memory")
    if not least > 0.0:
        return ""
    inside = least / number(evaluation, "host_memory")
    most = inside * number(evaluation, "host_memory_upper")
    has = inside * number(evaluation, "host_memory_capacity")
    unit, scale = ("TB", 1e12) if most >= 1e12 else ("GB", 1e9)
    size = " to ".join(dict.fromkeys(three(limit / scale) for limit in (least, most)))
    if np.isnan(has):
        return f"{size} {unit} per node, of a memory that isn't known"
    verdict = fit_of(least, has, 0.0, most / least - 1.0)
    return f"{size} of {three(has / scale)} {unit} per node: {verdict}"


def clock_notes(job: Job, evaluation: Evaluation) -> Iterator[str]:
    """Yield what a measured step tells of the machine, and how to ask for other plans of it."""
    fitted = job.resolved.origins.get(CLOCK, ())
    if not any(origin.kind == MEASURED for origin in fitted):
        return
    ratio = number(evaluation, CLOCK)
    whole = number(Evaluation({**evaluation.given, CLOCK: 1.0}, evaluation.labels), "step_time")
    time, at_one = (shown("step_time", n) for n in (number(evaluation, MEASURED_STEP), whole))
    yield f"clock ratio {ratio:.3g}: fitted to the step of {time}, which is {at_one} at 1"
    options = f"{flag_of(CLOCK)} {ratio:.4g} {flag_of(MEASURED_STEP)} {time.replace(' ', '')}"
    yield f"for other plans on this machine: {options}"


# What would fit where a plan doesn't.

# What says which loss there is, or what of its logits is kept.
OF_LOSS = frozenset(("loss", "loss_chunks", "logit_bytes"))


def fitting_lines(evaluation: Evaluation, memory: float, job: Job) -> Iterator[str]:
    """Yield, where a plan doesn't fit, a change with which it does: of ZeRO, of an unstated loss.

    Where neither is enough, and nothing is said of recomputation, what that comes to.
    """
    given, labels = evaluation.given, evaluation.labels
    if not memory > evaluation["memory_capacity"]:
        return
    stages = range(int(evaluation["zero_stage"]) + 1, 4 if evaluation["dp"] > 1.0 else 0)
    for stage in stages if "hsdp_shard_size" not in given else ():
        if fits := _what_fits(Evaluation({**given, "zero_stage": float(stage)}, labels)):
            yield f"  with --zero-stage {stage} it fits: {fits}"
            return
    habits = habits_of(labels["framework"], labels["attention_kernel"])
    for loss in habits.losses if OF_LOSS.isdisjoint(job.sweep.given) else ():
        figures = loss_figures(loss, labels["loss"])
        numbers = {name: figure.value for name, figure in figures.items()}
        if fits := _what_fits(Evaluation({**given, **numbers}, {**labels, "loss": loss})):
            yield f"  it fits with a fused loss, --loss {loss}: {fits}"
            return
    if "recompute" in job.resolved.origins:
        again = Evaluation(given, {**labels, "recompute": "block"})
        least = analyze(again).per_gpu_memory_bytes
        if least > again["memory_capacity"]:
            yield f"  nor with all layers recomputed (--recompute full): {shown('memory', least)}"
            return
        layers, whole = again["recompute_layers"], again["chunk_layers"]
        share = percent(float(again["target_memory_fraction"]))
        yield (
            f"  with --recompute block it fits: {layers:g} of each chunk's {whole:g} layers "
            f"recomputed, as few as fit {share} of the memory: {_time_and_memory(again, least)}"
        )


def _what_fits(again: Evaluation) -> str:
    """Return the time, where it is known, and the memory of a plan that fits; else nothing."""
    least = analyze(again).per_gpu_memory_bytes
    if least > again["memory_capacity"] or faults(again):
        return ""
    return _time_and_memory(again, least)


def _time_and_memory(again: Evaluation, memory: Array) -> str:
    time = again.value("step_time", {})
    takes = "" if time is None else f"{shown('step_time', float(time))}, "
    return f"{takes}{shown('memory', memory)}"
