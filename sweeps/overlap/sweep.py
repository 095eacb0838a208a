"""What ``sweeps overlap`` is asked: its flags as a sweep, and what a mechanism lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.formula import REGISTRY
from overhead.graph import Builder, Missing
from overhead.labels import LABELS
from overhead.overlap.mechanisms import HEEDED, MECHANISMS, OUTPUTS
from overhead.overlap.pipeline import PIPELINES
from overhead.quantity import VOCABULARY
from sweeps.engine.case import Case
from sweeps.engine.evaluate import Evaluator
from sweeps.engine.plan import Plan
from sweeps.errors import Faults, InputError, fault
from sweeps.job import Job, prepare
from sweeps.overlap.flags import FLAGS, flag_of
from sweeps.spec.axis import Axis
from sweeps.spec.ranges import names_of, numbers_of
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep
from sweeps.spec.units import to_toml, with_unit

BOTH = ("compute_time", "communication_time")
# Labels: what they may be, and their flags.
CHOSEN = {
    "mechanism": (LABELS["mechanism"].values, "--kind"),
    "efficiency_of": (LABELS["efficiency_of"].values, "--efficiency-of"),
    "schedule": (PIPELINES, "--schedule"),
}
# Labels that say how a duration or a count comes about.
WAYS = ("communication", "compute", "buckets", "sm_law", "mechanism")
TITLE = "Overlap of computation and communication"
SUMMARY = "What of computation and communication overlaps, by closed forms."
MOST_LINES = 16


def job_of(
    asked: Mapping[str, str | None],
    hardware: str | None = None,
    *,
    folders: Sequence[Path] = (),
    command: Sequence[str] = ("sweeps",),
    options: Mapping[str, Any] | None = None,
) -> Job:
    """Make of what the flags say a sweep that is ready to run."""
    faults = Faults()
    labels: dict[str, tuple[str, ...]] = {}
    for name, (known, flag) in CHOSEN.items():
        default = LABELS[name].default
        found = faults.of(names_of, asked.get(name) or default, known, flag)
        labels[name] = found or (default,)
    values: dict[str, NDArray[np.float64]] = {}
    for name, text in asked.items():
        if text is not None and name not in CHOSEN:
            read = faults.of(numbers_of, name, text, flag_of(name))
            if read is not None:
                values[name] = read
    faults.tell()
    every = asked.get("mechanism") == "all"
    labels["mechanism"] = _suited(_sweep(labels, values, hardware), labels, folders, every)
    sweep = _sweep(labels, values, hardware)
    job = prepare(
        sweep,
        text=_text(sweep, asked),
        command=command,
        folders=folders,
        options=options,
    )
    _check_taken(job, values, labels)
    return job


def _sweep(
    labels: Mapping[str, tuple[str, ...]],
    values: Mapping[str, NDArray[np.float64]],
    hardware: str | None,
) -> Sweep:
    kept = {
        name: found
        for name, found in labels.items()
        if name == "mechanism" or len(found) > 1 or HEEDED[name] in labels["mechanism"]
    }
    varied = {name: np.array(found) for name, found in kept.items() if len(found) > 1}
    varied |= {name: found for name, found in values.items() if len(found) > 1}
    derived = [name for name in BOTH if name not in values]
    single = {name: found[0] for name, found in kept.items() if len(found) == 1}
    return Sweep(
        TITLE,
        SUMMARY,
        quantities=(*derived, *(name for name in OUTPUTS if name not in values)),
        axes=tuple(Axis(name, {name: found}) for name, found in varied.items()),
        constants={name: float(found[0]) for name, found in values.items() if len(found) == 1},
        labels=single if hardware is None else {**single, "hardware": hardware},
    )


def _text(sweep: Sweep, asked: Mapping[str, str | None]) -> str:
    """Return the spec that states the sweep."""
    stated: dict[str, Any] = {"title": sweep.title, "summary": sweep.summary}
    stated["quantities"] = list(sweep.quantities)

    def text(name: str) -> Any:
        return with_unit(name, asked[name]) if name in sweep.given and name in VOCABULARY else None

    axes = {a.name: text(a.name) or [str(v) for v in a.columns[a.name]] for a in sweep.axes}
    constants = {**sweep.labels, **{name: text(name) for name in sweep.constants}}
    tables = {"axes": axes, "constants": constants}
    return to_toml({**stated, **{name: table for name, table in tables.items() if table}})


# What mechanisms take of what is given, and what they lack.


def _suited(
    sweep: Sweep, labels: Mapping[str, tuple[str, ...]], folders: Sequence[Path], every: bool
) -> tuple[str, ...]:
    """Return the mechanisms that what is given suffices for; of those named it must for all."""
    faults: dict[str, list[str]] = {}
    resolved = resolve(sweep, folders)
    columns = {name: v[0] for axis in resolved.axes for name, v in axis.columns.items()}
    numbers = {name: float(v) for name, v in columns.items() if name in VOCABULARY}
    measured = "overlapped_time" in sweep.given
    for choice in product(*labels.values()):
        chosen = dict(zip(labels, choice, strict=True))
        mechanism = chosen["mechanism"]
        takes = BOTH if measured else MECHANISMS[mechanism].takes
        held = {**resolved.constants, **numbers}
        plan = Plan((), held, chosen, takes, optional=True)
        builder = plan.builder(plan.cases[0])
        lacking = [lack for name in takes for lack in _lacking(builder, name, takes)]
        faults.setdefault(mechanism, []).extend(_needed(name, mechanism) for name in lacking)
    suited = tuple(mechanism for mechanism, lines in faults.items() if not lines)
    if len(suited) < len(faults) and not (every and suited):
        lines = [line for one in faults.values() for line in one]
        raise InputError(
            [_needed(name, "all") for name in BOTH] if every else list(dict.fromkeys(lines))
        )
    return suited


def _lacking(builder: Builder, name: str, takes: Sequence[str]) -> list[str]:
    """Return what has to be given for a quantity: itself, or what the way asked for takes."""
    lacking = _roots(builder, name)
    # What follows from others that are lacking isn't told beside them.
    if not lacking or (name not in lacking and lacking <= set(takes)):
        return []
    declared = REGISTRY.returning(name, builder.labels)
    by_way = declared is not None and any(way in declared.when for way in WAYS)
    flagged = [one for _, one, _ in FLAGS if one in lacking]
    return flagged if by_way and flagged else [name]


def _roots(builder: Builder, name: str) -> set[str]:
    """Return what nothing gives and a quantity needs."""
    try:
        builder.node(name)
    except Missing as missing:
        return set(missing.roots)
    return set()


def _needed(name: str, mechanism: str) -> str:
    meaning = VOCABULARY[name].meaning if name in VOCABULARY else name
    return fault(flag_of(name), "(not given)", f"--kind {mechanism} needs it", f"the {meaning}")


def _check_taken(
    job: Job, values: Mapping[str, Any], labels: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse what no mechanism takes."""
    used, kinds = job.plan.used(), ", ".join(labels["mechanism"])
    faults = [
        fault(flag_of(name), "..", f"--kind {kinds} doesn't take it", "leave it out")
        for name in values
        if name not in used
    ]
    faults += [
        fault(CHOSEN[label][1], ",".join(labels[label]), f"only --kind {one} takes it", "leave it")
        for label, one in HEEDED.items()
        if len(labels[label]) > 1 and one not in labels["mechanism"]
    ]
    if faults:
        raise InputError(faults)


# A job's cells.


def values_of(job: Job, case: Case, names: Sequence[str]) -> dict[str, float]:
    """Return quantities that a case has one value of; what can't be had is left out."""
    builder = job.plan.builder(case)
    evaluator = Evaluator(job.plan.grid, dict(case.fixed))
    nodes = {name: builder.perhaps(name) for name in names}
    with np.errstate(all="ignore"):
        return {
            name: float(np.asarray(evaluator.value(node)).reshape(-1)[0])
            for name, node in nodes.items()
            if node is not None and evaluator.cells(node) == 1
        }


# What figures suit.


def figures_of(job: Job) -> list[dict[str, Any]]:
    """Return declarations of figures that suit: lines over the longest axis, else bars."""
    axes = job.sweep.axes
    sizes = {axis.name: len(axis) for axis in axes}
    at = {axis.name: axis.columns[axis.name][0 if axis.labels else len(axis) // 2].item()
          for axis in axes}  # fmt: skip
    numbers = [axis.name for axis in axes if not axis.labels]
    if not numbers:
        return _bars(job, at) if "mechanism" in sizes else []
    x = max(numbers, key=lambda name: sizes[name])
    free = [name for name in sizes if name != x]
    lines: list[str] = []
    for name in sorted(free, key=lambda name: name != "mechanism"):
        if int(np.prod([sizes[n] for n in (*lines, name)])) <= MOST_LINES:
            lines.append(name)
    lines = lines[:2]
    common = {
        "kind": "curves", "x": x, "lines": lines, "crossovers": False,
        "at": {name: at[name] for name in free if name not in lines},
    }  # fmt: skip
    speedup = {"y": "overlap_speedup", "yscale": "linear", "better": "more",
               "title": "Speedup by overlap"}  # fmt: skip
    return [
        {**common, "name": "time", "y": "overlapped_time", "title": "Time with overlap"},
        {**common, "name": "speedup", **speedup},
    ]


def _bars(job: Job, at: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return bars of what hides and what shows, for each mechanism."""
    # What costs time hides nothing: no bar of less than nothing.
    saves = bool(np.all(job.plan.evaluate(("hidden_time",))["hidden_time"] >= 0.0))
    parts = ["hidden_time", "exposed_time"] if saves else ["exposed_time"]
    fixed = {name: value for name, value in at.items() if name != "mechanism"}
    title = "What hides of the communication, and what shows"
    return [{"kind": "bars", "name": "hidden", "parts": parts, "x": ["mechanism"], "at": fixed,
             "title": title}]  # fmt: skip
