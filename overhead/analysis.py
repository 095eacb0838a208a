"""What a training configuration takes: memory by part, communication by dimension and operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from overhead.breakdown import (
    CollectiveReport,
    Faulty,
    collective_reports,
    dimension_times,
    faults,
    memory_by_part,
)
from overhead.communication import DIMENSIONS
from overhead.config import Config
from overhead.evaluation import Evaluation
from overhead.quantity import Array

__all__ = [
    "AnalysisResult",
    "CollectiveReport",
    "Faulty",
    "analyze",
    "analyze_config",
]


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """What a configuration takes; arrays, each of the shape to which what it depends on broadcasts.

    Attributes
    ----------
    per_gpu_memory_bytes : ndarray
        Memory of the fullest GPU [byte]; model states alone where shapes don't tell activations.
    memory : mapping of str to ndarray
        Its parts [byte].
    memory_is_whole : bool
        Whether activations, logits and buffers are in it.
    collective_reports : mapping of str to tuple of CollectiveReport
        By dimension, each operation that some configuration has; empty without parallelism.
    dimension_times : mapping of str to ndarray
        Time of a step's communication by dimension, nothing hidden [s].
    dp_allreduce_latency_s : ndarray
        Time of one all_reduce of all gradients [s]; NaN where they aren't reduced so.
    total_comm_time_per_step_upper_bound_s : ndarray or None
        Time of a step's communication if nothing is hidden [s]; None where it depends on the
        layers, and they aren't given.
    gpus_per_node, num_nodes : ndarray
        Ranks of a node, and nodes.
    valid : ndarray of bool
        Which configurations can be; where they can't, numbers are NaN.
    faults : tuple of Faulty
        Why the others can't.
    missing : mapping of str to tuple of str
        What can't be told, and what would have to be given for it.
    summary : str
        All of it in a few lines.
    """

    per_gpu_memory_bytes: Array
    memory: Mapping[str, Array]
    memory_is_whole: bool
    collective_reports: Mapping[str, tuple[CollectiveReport, ...]]
    dimension_times: Mapping[str, Array]
    dp_allreduce_latency_s: Array
    total_comm_time_per_step_upper_bound_s: Array | None
    gpus_per_node: Array
    num_nodes: Array
    valid: Array
    faults: tuple[Faulty, ...]
    missing: Mapping[str, tuple[str, ...]]
    summary: str


def analyze_config(config: Config) -> AnalysisResult:
    """Return what a configuration takes.

    Parameters
    ----------
    config : Config
        The configuration, or many: its numbers may be arrays.

    Returns
    -------
    AnalysisResult
        Memory, communication by dimension, and what can't be told.

    Raises
    ------
    ValueError
        If a value can't be, what a dimension needs isn't given, or the one configuration can't be:
        with a line for each reason.
    """
    with np.errstate(all="ignore"):
        result = analyze(Evaluation(config.given(), config.labels()))
    lines = [f"{name} needs {', '.join(needed)}" for name, needed in _needed(result).items()]
    if result.valid.size == 1 and not result.valid.all():
        lines += [one.text for one in result.faults]
    if lines:
        raise ValueError("\n".join(lines))
    return result


def _needed(result: AnalysisResult) -> dict[str, tuple[str, ...]]:
    """Return what is missing that has to be given: what the plan's own dimensions need."""
    dimensions = {f"{name}_communication_time": DIMENSIONS[name] for name in DIMENSIONS}
    found = {
        dimensions[name]: result.missing[name] for name in result.missing if name in dimensions
    }
    if not result.memory:
        first, *others = result.missing["model_state_memory"]
        found["memory"] = (f"num_parameters, or {first}", *others)
    return found


def analyze(evaluation: Evaluation) -> AnalysisResult:
    """Return what a configuration takes, from the evaluation of its quantities."""
    missing: dict[str, tuple[str, ...]] = {}
    wrong = faults(evaluation)
    world = evaluation["tp"] * evaluation["cp"] * evaluation["pp"] * evaluation["dp"]
    valid = np.asarray(~np.any(np.broadcast_arrays(*(one.where for one in wrong), world < 0), 0))
    parts, whole = memory_by_part(evaluation, missing)
    total = sum(parts.values(), start=np.zeros(())) if not whole else evaluation["peak_memory"]
    times = dimension_times(evaluation, missing)
    reports = {
        name: collective_reports(evaluation, name) for name in times if np.any(times[name] > 0.0)
    }
    bound = _upper_bound(evaluation, times, missing)
    node = evaluation["gpus_per_node"]
    every = evaluation.value("world_size", {})
    size = world if every is None else every
    result = AnalysisResult(
        per_gpu_memory_bytes=_kept(total, valid),
        memory={name: _kept(value, valid) for name, value in parts.items()},
        memory_is_whole=whole,
        collective_reports=reports,
        dimension_times={name: _kept(value, valid) for name, value in times.items()},
        dp_allreduce_latency_s=_kept(_all_reduce_time(reports), valid),
        total_comm_time_per_step_upper_bound_s=None if bound is None else _kept(bound, valid),
        gpus_per_node=node,
        num_nodes=np.ceil(size / node),
        valid=valid,
        faults=wrong,
        missing=missing,
        summary="",
    )
    return replace(result, summary="\n".join(_summary(result, size)))


def _kept(value: Array, valid: Array) -> Array:
    """Return a value as it is where all configurations can be, else with NaN where they can't."""
    return value if valid.all() else np.where(valid, value, np.nan)


def _all_reduce_time(reports: Mapping[str, Iterable[CollectiveReport]]) -> Array:
    """Return the time of one all_reduce of all gradients."""
    for one in reports.get("dp", ()):
        if one.operation.name == "dp_all_reduce":
            return np.where(one.backward_count > 0.0, one.latency_s, np.nan)
    return np.asarray(np.nan)


def _upper_bound(
    evaluation: Evaluation, times: Mapping[str, Array], missing: dict[str, tuple[str, ...]]
) -> Array | None:
    """Return the time of all communication, or None where it can't be told."""
    if len(times) < len(DIMENSIONS):
        return None
    total = np.asarray(sum(times.values(), start=np.zeros(())))
    if evaluation.labels.get("depth") == "unknown":
        # One layer a stage was assumed.  Does it matter?
        more = {"layers": 2.0 * evaluation["layers"]}
        other = dimension_times(Evaluation(evaluation.given | more, evaluation.labels), {})
        if not np.array_equal(total, sum(other.values(), start=np.zeros(()))):
            missing["communication_upper_bound"] = ("layers",)
            return None
    return total


def _summary(result: AnalysisResult, size: Array) -> Iterable[str]:
    held = "memory of a GPU" if result.memory_is_whole else "model states of a GPU"
    yield f"{_range(size)} GPUs on {_range(result.num_nodes)} nodes"
    yield f"{held}: {_range(result.per_gpu_memory_bytes / 1e9)} GB"
    for name, time in result.dimension_times.items():
        if name in result.collective_reports:
            yield f"{DIMENSIONS[name]}: {_range(time)} s"
    if not result.collective_reports and not result.missing.keys() & set(_totals()):
        yield "no communication: nothing is split"
    if result.total_comm_time_per_step_upper_bound_s is not None:
        total = _range(result.total_comm_time_per_step_upper_bound_s)
        yield f"communication of a step, if nothing overlaps: {total} s"
    for name, needed in result.missing.items():
        yield f"{name} needs {', '.join(needed)}"


def _totals() -> tuple[str, ...]:
    return tuple(f"{name}_communication_time" for name in DIMENSIONS)


def _range(values: Array) -> str:
    """Return a number, or the least and the most of several."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return "-"
    least, most = f"{known.min():.4g}", f"{known.max():.4g}"
    return least if least == most else f"{least} to {most}"
