"""What is given and changes nothing: which labels and numbers can't act, and why."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.software import LATENCIES
from sweeps.spec.sweep import Sweep

if TYPE_CHECKING:
    from sweeps.job import Job

# What a question is about, whether or not its answer is a hole.
NEEDED = ("ranks", "message_bytes", "measured_step_time")
UNUSED = "given, but nothing here depends on it"
IDLE = "changes nothing: nothing that is computed here depends on it"
# Labels and shares that act where a plan is split so.
SPLIT_BY = {
    "tp_mechanism": "tp",
    "cp_mechanism": "cp",
    "context_parallel": "cp",
    "ep_mechanism": "ep",
    "dispatcher": "ep",
    "schedule": "pp",
    "tp_overlap": "tp",
    "cp_overlap": "cp",
    "ep_overlap": "ep",
}
# What acts where a model has experts.
OF_EXPERTS = ("expert_load_imbalance", "rank_load_imbalance")
# Labels that always say what is computed, or which files it is taken of.
ALWAYS = (
    "collective",
    "topology",
    "algorithm",
    "hardware",
    "model",
    "framework",
    "preset",
    "precision",
    "fp8_scaling",
    "software",
)

# Numbers that say what holds where they aren't given: a rank of no adapters is full training.
AS_NOT_GIVEN = {"lora_rank": 0.0}


def as_not_given(name: str, constants: Mapping[str, object]) -> bool:
    """Return whether a number says what holds where it isn't given."""
    return name in AS_NOT_GIVEN and constants.get(name) == AS_NOT_GIVEN[name]


def split_needed(name: str, columns: Mapping[str, NDArray[Any]]) -> str:
    """Return why something can't act with what plans may have; empty where it can."""
    if name in OF_EXPERTS and not np.any(columns.get("experts", np.zeros(1)) > 0.0):
        return "changes nothing: the model has no experts"
    degree = SPLIT_BY.get(name, "")
    values = columns.get(degree)
    unsplit = values is not None and bool(np.all(values == 1.0))
    return f"changes nothing: {degree} is 1, and it acts where that is more" if unsplit else ""


def alike(resolved: Resolved, other: Resolved, names: Set[str]) -> bool:
    """Return whether two sweeps have the same values, but for some that one of them lacks."""

    def values(settled: Resolved) -> dict[str, Any]:
        columns = {
            key: column.tolist() for axis in settled.axes for key, column in axis.columns.items()
        }
        fields = {key: array.tolist() for key, (_, array) in settled.fields.items()}
        every = {**columns, **fields, **settled.constants, **settled.labels, **settled.implied}
        return {key: repr(value) for key, value in every.items() if key not in names}

    return values(resolved) == values(other)


def unused(job: Job) -> list[str]:
    """Return the quantities and labels that the user gave and no result depends on."""
    columns = job.program.grid.columns
    used = job.program.used()
    # What a library's step takes follows from a machine's latency.
    latencies = (latency for step, latency in LATENCIES.items() if step in used)
    known = {*used, *latencies, *job.program.labels, *job.resolved.origins, *NEEDED}
    labels = [
        name
        for name in job.sweep.labels
        if split_needed(name, columns) and not _taken_anyway(job.sweep, name)
    ]
    idle = (
        name
        for name in columns
        if name not in known and not as_not_given(name, job.sweep.constants)
    )
    return [*idle, *labels]


def _taken_anyway(sweep: Sweep, name: str) -> bool:
    """Return whether a label is what is taken where it isn't given."""
    labels = {key: value for key, value in sweep.labels.items() if key != name}
    try:
        return resolve(replace(sweep, labels=labels)).labels.get(name) == sweep.labels[name]
    except InputError:
        return False  # such as a machine from the user's own folder
