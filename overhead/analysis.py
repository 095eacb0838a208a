"""What a training configuration takes: memory by part, communication by dimension and operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from overhead.collectives.algorithm import Requirement
from overhead.communication.operation import DIMENSIONS, WAYS, Count, Operation, multiplied
from overhead.communication.totals import of_dimension
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.formula import REGISTRY, Call
from overhead.memory.quantities import PARTS
from overhead.memory.stage import PEAK_PARTS
from overhead.plan import requirements
from overhead.quantity import Array

if TYPE_CHECKING:
    from overhead.config import Config

# Of one operation's report, the quantities by the end of their names.
FIELDS = {
    "time": "latency_s",
    "sent_bytes": "volume_bytes",
    "energy": "energy_j",
}
STATES = tuple(PARTS)[:3]
# By dimension, all of its communication in a step.
TOTALS = {name: f"{name}_communication_time" for name in DIMENSIONS}


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """One operation of a step's communication.

    Attributes
    ----------
    operation : Operation
        What it is: its name, title, dimension, collective and kind of groups.
    ranks, nodes, members_in_node : ndarray
        Of one group; on a flat network all ranks are as in one node.
    message_bytes : ndarray
        One message as nccl-tests counts it [byte].
    latency_s, volume_bytes, energy_j : ndarray
        Of one: its time [s], the most bytes that a rank sends [byte], its energy [J].
    forward_count, backward_count : ndarray
        How often there is one in a step, on the rank that has most.
    forward_time_s, backward_time_s : ndarray
        All of these together [s].
    total_volume_bytes, total_energy_j : ndarray
        Most bytes that a rank sends in a step [byte], and the energy of all groups [J].
    is_upper_bound : ndarray
        Whether its time is an upper bound (1) rather than exact (0).
    """

    operation: Operation
    ranks: Array
    nodes: Array
    members_in_node: Array
    message_bytes: Array
    latency_s: Array
    volume_bytes: Array
    energy_j: Array
    forward_count: Array
    backward_count: Array
    forward_time_s: Array
    backward_time_s: Array
    total_volume_bytes: Array
    total_energy_j: Array
    is_upper_bound: Array

    @property
    def title(self) -> str:
        """What it is, and whether its time is an upper bound."""
        bound = " (its time is an upper bound)" * bool(np.any(self.is_upper_bound))
        return f"{self.operation.title}{bound}"


@dataclass(frozen=True, slots=True)
class Faulty:
    """A condition that a plan doesn't fulfil.

    Attributes
    ----------
    requirement : Requirement
        The condition.
    where : ndarray
        A mask of the configurations that don't fulfil it.
    values : mapping of str to ndarray
        What it looks at.
    """

    requirement: Requirement
    where: Array
    values: Mapping[str, Array]

    @property
    def text(self) -> str:
        """One line: the quantities with their values, and what must hold."""
        names = ", ".join(self.values)
        shown = ", ".join(f"{value.reshape(-1)[0]:g}" for value in self.values.values())
        return f"{names} = {shown}: {self.requirement.text}"


def faults(
    evaluation: Evaluation, asked: Iterable[Requirement] | None = None
) -> tuple[Faulty, ...]:
    """Return the conditions on a plan that don't hold everywhere; what isn't given is left out.

    Where some are asked for, these alone are looked at.
    """
    flat = evaluation.labels["topology"] != "hierarchical"
    faulty = []
    for requirement in requirements(evaluation.labels) if asked is None else asked:
        if flat and requirement.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        values = {name: evaluation.value(name, {}) for name in requirement.inputs}
        known = {name: value for name, value in values.items() if value is not None}
        if len(known) == len(values):
            wrong = ~np.asarray(requirement.holds(**known), dtype=bool)
            if wrong.any():
                faulty.append(Faulty(requirement, wrong, known))
    return tuple(faulty)


def memory_by_part(
    evaluation: Evaluation, missing: dict[str, tuple[str, ...]] | None = None
) -> tuple[dict[str, Array], bool]:
    """Return the parts of the fullest GPU's memory, and whether they are all."""
    lacking = {} if missing is None else missing
    try:
        peaks = {name: evaluation[name] for name in PEAK_PARTS}
    except MissingQuantities as error:
        lacking["peak_memory"] = error.missing
    else:
        return {name.removeprefix("peak_"): value for name, value in peaks.items()}, True
    try:
        return {name: evaluation[name] for name in STATES}, False
    except MissingQuantities as error:
        lacking["model_state_memory"] = error.missing
    return {}, False


def dimension_times(
    evaluation: Evaluation, missing: dict[str, tuple[str, ...]]
) -> dict[str, Array]:
    """Return the time of a step's communication by dimension, nothing hidden."""
    times: dict[str, Array] = {}
    for name, total in TOTALS.items():
        try:
            times[name] = evaluation[total]
        except MissingQuantities as error:
            if is_needed(evaluation, name):
                missing[total] = error.missing
            else:
                times[name] = np.zeros(())
    return times


def is_needed(evaluation: Evaluation, dimension: str) -> bool:
    """Return whether a step has an operation of a dimension, as far as what is given tells."""
    for operation in of_dimension(dimension, evaluation.labels):
        counts = [_known(count, evaluation) for count in operation.counts]
        known = [count for count in counts if count is not None]
        if any(np.any(count > 0.0) for count in known):
            return True
        size = evaluation.value(f"{operation.group}_ranks", {})
        if len(known) < len(counts) and (size is None or bool(np.any(size > 1.0))):
            return True
    return False


def _known(count: Count, evaluation: Evaluation) -> Array | None:
    """Return a count, or None where what it follows from isn't given."""
    try:
        return np.asarray(count.of(evaluation))
    except MissingQuantities:
        return None


def collective_reports(evaluation: Evaluation, dimension: str) -> tuple[CollectiveReport, ...]:
    """Return a report of each operation of a dimension that there is in a step."""
    return tuple(
        _report(evaluation, operation)
        for operation in of_dimension(dimension, evaluation.labels)
        if any(np.any(count.of(evaluation) > 0.0) for count in operation.counts)
    )


def _report(evaluation: Evaluation, operation: Operation) -> CollectiveReport:
    group = Evaluation(evaluation.given, evaluation.labels | {"group": operation.group})
    ranks, members = group["group_size"], group["members_in_node"]
    uneven = group.value("uneven_placement", {})
    spanned = group.value("group_nodes", {})
    nodes = np.ceil(ranks / members)
    if uneven is not None and spanned is not None:
        nodes = np.where(uneven > 0.0, spanned, nodes)
    once = {field: evaluation[operation.quantity(part)] for part, field in FIELDS.items()}
    forward, backward = (
        np.zeros(()) if count is None else np.asarray(count.of(evaluation))
        for count in map(operation.count, WAYS)
    )
    return CollectiveReport(
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        members_in_node=members,
        message_bytes=evaluation[operation.message],
        is_upper_bound=_is_upper_bound(evaluation, operation),
        forward_count=forward,
        backward_count=backward,
        forward_time_s=forward * once["latency_s"],
        backward_time_s=backward * once["latency_s"],
        total_volume_bytes=np.asarray(multiplied(operation.volume, evaluation)),
        total_energy_j=np.asarray(multiplied(operation.total_energy, evaluation)),
        **once,
    )


def _is_upper_bound(evaluation: Evaluation, operation: Operation) -> Array:
    """Return whether the time of an operation is an upper bound, as few algorithms' are."""
    declared = REGISTRY.returning(operation.quantity("time"), evaluation.labels)
    if isinstance(declared, Call):
        _, collective = evaluation.called(declared, one=False)
        if any(algorithm.bound for algorithm in collective.algorithms):
            return collective["time_is_upper_bound"]
    return np.zeros(())


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
    statement = config.completed()
    with np.errstate(all="ignore"):
        result = analyze(Evaluation(statement.numbers, statement.labels))
    lines = [f"{name} needs {', '.join(needed)}" for name, needed in _needed(result).items()]
    if result.valid.size == 1 and not result.valid.all():
        lines += [fault.text for fault in result.faults]
    if lines:
        raise ValueError("\n".join(lines))
    return result


def _needed(result: AnalysisResult) -> dict[str, tuple[str, ...]]:
    """Return what is missing that has to be given: what the plan's own dimensions need."""
    needs = {
        DIMENSIONS[name]: result.missing[total]
        for name, total in TOTALS.items()
        if total in result.missing
    }
    if not result.memory:
        first, *others = result.missing["model_state_memory"]
        needs["memory"] = (f"num_parameters, or {first}", *others)
    return needs


def analyze(evaluation: Evaluation) -> AnalysisResult:
    """Return what a configuration takes, from the evaluation of its quantities."""
    missing: dict[str, tuple[str, ...]] = {}
    wrong = faults(evaluation)
    world = evaluation["tp"] * evaluation["cp"] * evaluation["pp"] * evaluation["dp"]
    valid = np.asarray(
        ~np.any(np.broadcast_arrays(*(fault.where for fault in wrong), world < 0), 0)
    )
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


def _kept(value, valid):
    """Return a value as it is where all configurations can be, else with NaN where they can't."""
    return value if valid.all() else np.where(valid, value, np.nan)


def _all_reduce_time(reports: Mapping[str, Iterable[CollectiveReport]]) -> Array:
    """Return the time of one all_reduce of all gradients."""
    for report in reports.get("dp", ()):
        if report.operation.name == "dp_all_reduce":
            return np.where(report.backward_count > 0.0, report.latency_s, np.nan)
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
    what = "memory of a GPU" if result.memory_is_whole else "model states of a GPU"
    yield f"{_range(size)} GPUs on {_range(result.num_nodes)} nodes"
    yield f"{what}: {_range(result.per_gpu_memory_bytes / 1e9)} GB"
    for name, time in result.dimension_times.items():
        if name in result.collective_reports:
            yield f"{DIMENSIONS[name]}: {_range(time)} s"
    if not result.collective_reports and not result.missing.keys() & {*TOTALS.values()}:
        yield "no communication: nothing is split"
    if result.total_comm_time_per_step_upper_bound_s is not None:
        total = _range(result.total_comm_time_per_step_upper_bound_s)
        yield f"communication of a step, if nothing overlaps: {total} s"
    for name, needed in result.missing.items():
        yield f"{name} needs {', '.join(needed)}"


def _range(values: Array) -> str:
    """Return a number, or the least and the most of several."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return "-"
    least, most = f"{known.min():.4g}", f"{known.max():.4g}"
    return least if least == most else f"{least} to {most}"
