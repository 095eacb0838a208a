"""What an evaluation tells of a plan: memory by part, communication by operation, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from overhead.collectives.requirement import Requirement
from overhead.communication import DIMENSIONS, OPERATIONS, Operation, groups
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.memory import PARTS
from overhead.peak_memory import PEAK_PARTS
from overhead.placement_requirements import requirements
from overhead.quantity import Array

__all__ = [
    "CollectiveReport",
    "Faulty",
    "collective_reports",
    "dimension_times",
    "faults",
    "is_needed",
    "memory_by_part",
]

# Of one operation's report, the quantities by the end of their names.
FIELDS = {
    "time": "latency_s",
    "sent_bytes": "volume_bytes",
    "energy": "energy_j",
    "forward_count": "forward_count",
    "backward_count": "backward_count",
    "forward_time": "forward_time_s",
    "backward_time": "backward_time_s",
    "volume": "total_volume_bytes",
    "total_energy": "total_energy_j",
}
STATES = PARTS[:3]
WAYS = ("forward", "backward")


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


def faults(evaluation: Evaluation) -> tuple[Faulty, ...]:
    """Return the conditions on a plan that don't hold everywhere; what isn't given is left out."""
    flat = evaluation.labels["topology"] != "hierarchical"
    found = []
    for one in requirements(evaluation.labels):
        if flat and one.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        values = {name: evaluation.value(name, {}) for name in one.inputs}
        known = {name: value for name, value in values.items() if value is not None}
        if len(known) == len(values):
            wrong = ~np.asarray(one.holds(**known), dtype=bool)
            if wrong.any():
                found.append(Faulty(one, wrong, known))
    return tuple(found)


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
    for name in DIMENSIONS:
        total = f"{name}_communication_time"
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
    for one in _operations(evaluation, dimension):
        counts = [evaluation.value(one.quantity(f"{way}_count"), {}) for way in WAYS]
        known = [count for count in counts if count is not None]
        if any(np.any(count > 0.0) for count in known):
            return True
        size = evaluation.value(groups.ranks_of(one.group), {})
        if len(known) < len(counts) and (size is None or bool(np.any(size > 1.0))):
            return True
    return False


def _operations(evaluation: Evaluation, dimension: str) -> Iterator[Operation]:
    """Yield the operations of a dimension that the labels have."""
    for one in OPERATIONS.values():
        apart = any(evaluation.labels.get(key) != value for key, value in one.when.items())
        if one.dimension == dimension and not apart:
            yield one


def collective_reports(evaluation: Evaluation, dimension: str) -> tuple[CollectiveReport, ...]:
    """Return a report of each operation of a dimension that there is in a step."""
    return tuple(
        _report(evaluation, one)
        for one in _operations(evaluation, dimension)
        if any(np.any(evaluation[one.quantity(f"{way}_count")] > 0.0) for way in WAYS)
    )


def _report(evaluation: Evaluation, one: Operation) -> CollectiveReport:
    group = Evaluation(evaluation.given, evaluation.labels | {"group": one.group})
    ranks, members = group["group_size"], group["members_in_node"]
    uneven = group.value("uneven_placement", {})
    spanned = group.value("group_nodes", {})
    nodes = np.ceil(ranks / members)
    if uneven is not None and spanned is not None:
        nodes = np.where(uneven > 0.0, spanned, nodes)
    return CollectiveReport(
        operation=one,
        ranks=ranks,
        nodes=nodes,
        members_in_node=members,
        message_bytes=evaluation[one.message],
        **{field: evaluation[one.quantity(part)] for part, field in FIELDS.items()},
    )
