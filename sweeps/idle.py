"""What is given and changes nothing: which labels and numbers can't act, why, and their refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.completion import TAKEN_SMS
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.engine.program import Program
from sweeps.errors import InputError, fault, tell_all
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
    "virtual_pipeline_size": "pp",
    "embedding_layer_weight": "pp",
    "head_layer_weight": "pp",
    "tp_overlap": "tp",
    "cp_overlap": "cp",
    "ep_overlap": "ep",
}
# What slows computing down acts where overlap isn't a fraction or of buckets, which contain it.
CONTENDED = "changes nothing: overlap by fractions or by gradient buckets contains it"
# None of a GPU's multiprocessors, streams or channels, and more than any has.
ENDS = (0.0, 1e4)
# Of more cells or plans it takes too long to look at each.
MOST_TRIED = 100_000
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
    # What a library's step takes follows from a machine's latency, or a flat network's.
    latencies = {latency for step, latency in LATENCIES.items() if step in used}
    latencies |= {"latency"} if latencies else set()
    known = {*used, *latencies, *job.program.labels, *job.resolved.origins, *NEEDED}
    unsplit = [
        name
        for name in (*job.sweep.labels, *job.sweep.constants)
        if split_needed(name, columns) and not _taken_anyway(job.sweep, name)
    ]
    idle = (
        name
        for name in columns
        if name not in known and not as_not_given(name, job.sweep.constants)
    )
    return [*dict.fromkeys((*idle, *unsplit))]


def _taken_anyway(sweep: Sweep, name: str) -> bool:
    """Return whether a label or number is what is taken where it isn't given."""
    labels = {key: value for key, value in sweep.labels.items() if key != name}
    constants = {key: value for key, value in sweep.constants.items() if key != name}
    given = sweep.labels.get(name, sweep.constants.get(name))
    try:
        without = resolve(replace(sweep, labels=labels, constants=constants))
    except InputError:
        return False  # such as a machine from the user's own folder
    return without.labels.get(name, without.constants.get(name)) == given


def check_taken(
    job: Job,
    options: Mapping[str, str | None],
    folders: Sequence[Path],
    beside: Sequence[Job] = (),
) -> None:
    """Refuse what nothing here takes, nor where jobs beside it are asked for, too."""
    used, faults = job.program.used().union(*(other.program.used() for other in beside)), []
    pods, jobs = "nodes_per_pod" in job.sweep.given, (job, *beside)
    for name in (name for name, text in options.items() if text is not None):
        alone = name.startswith("pod_") and not pods
        if name not in job.sweep.given or name in LABELS or name in NEEDED:
            continue
        why = split_needed(name, jobs[-1].program.grid.columns)
        if name in TAKEN_SMS and name in used and not any(_slowed(other, name) for other in jobs):
            faults.append(fault(name, str(options[name]), CONTENDED, "leave it out"))
            continue
        if (name in used and not alone and not why) or as_not_given(name, job.sweep.constants):
            continue
        without = _without(job, name, folders)
        if without is None:
            continue
        # What comes along with it and nothing takes either changes as little.
        along = job.resolved.constants.keys() - without.constants.keys() - used
        if alone or why or alike(without, job.resolved, {name, *along}):
            allowed = "--nodes-per-pod, too" if alone else "leave it out"
            faults.append(fault(name, str(options[name]), why or IDLE, allowed))
    tell_all(faults)
    if not beside:
        _check_labels(job, options, folders)


def _check_labels(job: Job, options: Mapping[str, str | None], folders: Sequence[Path]) -> None:
    """Refuse labels that change nothing: of one cell any, of many those of a split none has."""
    single, faults = job.program.grid.cells == 1, []
    for name, value in job.sweep.labels.items():
        without = None
        if name not in ALWAYS and options.get(name) is not None:
            without = _without(job, name, folders)
        if without is None:
            continue
        why = split_needed(name, job.program.grid.columns)
        # Forwards alone are another question, whatever the split.
        if _is_idle(job, name, without, folders) if single else why and name != "schedule":
            faults.append(fault(name, value, why or IDLE, "leave it out"))
    tell_all(faults)


def _is_idle(job: Job, name: str, without: Resolved, folders: Sequence[Path]) -> bool:
    """Return whether one cell has the same numbers whatever a label is, or without it."""
    same = _same_numbers(job, without)
    if not same or split_needed(name, job.program.grid.columns):
        return same
    for value in LABELS[name].values:
        try:
            other = resolve(replace(job.sweep, labels={**job.sweep.labels, name: value}), folders)
        except InputError:
            continue
        if not _same_numbers(job, other):
            return False  # what is given is what would be taken here, by another name
    return True


def _slowed(job: Job, name: str) -> bool:
    few = job.program.grid.cells <= MOST_TRIED
    return not few or slows(job.resolved, name, job.program.wanted)


def slows(resolved: Resolved, name: str, wanted: tuple[str, ...]) -> bool:
    """Return whether what communication takes of a GPU's multiprocessors changes any number."""

    def numbers(value: float) -> Mapping[str, NDArray[Any]]:
        axes = tuple(
            replace(axis, columns={name: np.full(len(axis), value)}) if axis.name == name else axis
            for axis in resolved.axes
        )
        given = {name: value} if name in resolved.constants else {}
        other = replace(resolved, axes=axes, constants={**resolved.constants, **given})
        return Program.of_sweep(other, wanted, optional=True).evaluate(wanted)

    low, high = (numbers(min(end, VOCABULARY[name].maximum)) for end in ENDS)
    return not _equal(low, high)


def _without(job: Job, name: str, folders: Sequence[Path]) -> Resolved | None:
    """Return what is taken where one thing isn't given: nothing where that is the same, or none."""
    sweep = job.sweep
    axes = tuple(axis for axis in sweep.axes if axis.name != name)
    constants = {key: value for key, value in sweep.constants.items() if key != name}
    labels = {key: label for key, label in sweep.labels.items() if key != name}
    # It may decide what is taken of a machine, or which network it is.
    try:
        without = resolve(replace(sweep, axes=axes, constants=constants, labels=labels), folders)
    except InputError:
        return None
    told = sweep.labels.get(name, sweep.constants.get(name))
    return None if told is not None and is_taken(without, name, told) else without


def is_taken(without: Resolved, name: str, told: object) -> bool:
    """Return whether a value is what holds where it isn't given, taken or by formulas."""
    taken = without.labels.get(name, without.constants.get(name))
    if taken is not None or told is None or name not in VOCABULARY:
        return bool(taken == told)
    known = Program.of_sweep(without, (name,), optional=True).evaluate((name,))
    return name in known and bool(np.all(known[name] == told))


def _same_numbers(job: Job, other: Resolved) -> bool:
    """Return whether one cell has the same numbers with what else is taken."""
    wanted = job.program.wanted
    # What most labels change is looked at first.
    first = tuple(name for name in ("step_time", "peak_memory", "time") if name in wanted)
    for names in (first, wanted):
        program = Program.of_sweep(other, names, optional=True)
        if not _equal(job.program.evaluate(names), program.evaluate(names)):
            return False
    return True


def _equal(known: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether both have the same numbers by the same names."""
    return known.keys() == other.keys() and all(
        np.array_equal(values, other[name], equal_nan=values.dtype.kind == "f")
        for name, values in known.items()
    )
