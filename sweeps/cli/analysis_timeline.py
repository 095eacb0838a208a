"""The predicted course of one plan's step, to a Chrome trace and a figure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.errors import InputError, fault

if TYPE_CHECKING:
    from overhead.evaluation import Evaluation
    from overhead.overlap.timeline import Span
    from overhead.step.timeline import StepTimeline
    from sweeps.job import Job

__all__ = ["timeline_of", "write_timeline"]

# A difference that is more than rounding.
TOLD = 1e-9
MARK = "Step time by its formula"
UNEVEN = "the form is near, not exact, with transfers or ends that differ much from other stages"
# Why the form of a schedule's time isn't that of its course.
WHY = {
    "one_f_one_b": UNEVEN,
    "interleaved": UNEVEN,
    "zero_bubble_h1": "the form has every stage take as long as the slower end",
    "zero_bubble_h2": "the form has every stage take as long as the slower end",
    "dual_pipe": "the form is a bound, and has every stage take as long as the slower end",
    "gpipe": "the form has the slowest forward and the slowest backward in one stage",
    "forward_only": "the form has the extra work of the ends in whole",
}


def timeline_of(job: Job) -> StepTimeline:
    """Return the course of a plan's step."""
    from overhead.evaluation import MissingQuantities
    from overhead.step.timeline import step_timeline
    from sweeps.cli.analysis_job import evaluation_of
    from sweeps.cli.analysis_options import flag_of

    sizes = job.plan.grid.sizes
    if job.plan.grid.cells != 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        wrong = "a timeline is of one plan"
        raise InputError(fault("--timeline", told, wrong, "one value for each argument"))
    evaluation = evaluation_of(job)
    try:
        with np.errstate(all="ignore"):
            return step_timeline(evaluation)
    except MissingQuantities as error:
        wrong = f"the step's time can't be told without {', '.join(map(flag_of, error.missing))}"
        allowed = "give it, or --model with a model that has it"
        raise InputError(fault("--timeline", "(step)", wrong, allowed)) from None
    except ValueError as error:
        wrong, _, allowed = str(error).partition("; ")
        schedule = evaluation.labels["schedule"]
        raise InputError(fault("--timeline", schedule, wrong, allowed)) from None


def write_timeline(job: Job, step: StepTimeline, given: Mapping[str, Any]) -> None:
    """Write a step's course as a Chrome trace and, where a plot is asked for, as a figure beside."""
    from sweeps.overlap.trace_file import write_trace

    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    path = Path(given["timeline"])
    differs = abs(step.difference) > TOLD
    marks = {MARK: step.step_time} if differs else {}
    write_trace(step.stages, path, overwrite=given["overwrite"], marks=marks)
    notes.write(f"wrote {path}: open it in Perfetto or chrome://tracing\n")
    told = _difference(job, step) if differs else ""
    if told:
        notes.write(f"  ({told})\n")
    if given["plot"]:
        for made in _draw(job, step, path.with_suffix(""), [told] if told else []):
            notes.write(f"drew {made}\n")


def _difference(job: Job, step: StepTimeline) -> str:
    """Return by how much the formula's time differs from the course's, and why."""
    from sweeps.cli.records import shown

    schedule = job.plan.cases[0].labels["schedule"]
    more = "more" if step.difference > 0.0 else "less"
    ends, time = shown("step_time", step.end), shown("step_time", step.step_time)
    by = f"{100.0 * abs(step.difference):.2g} % {more}"
    return f"the course ends at {ends}; the step's formula gives {time}, {by}: {WHY[schedule]}"


def _draw(job: Job, step: StepTimeline, stem: Path, notes: Sequence[str]) -> list[Path]:
    from sweeps.cli.analysis_job import evaluation_of
    from sweeps.plots.timeline import draw_stages

    evaluation = evaluation_of(job)
    rows = {name: list(_drawn(spans)) for name, spans in step.stages.items()}
    kind = "Forward" if evaluation.labels["schedule"] == "forward_only" else "Training step"
    models = [model.name for model in job.resolved.models]
    title = f"{kind} of {models[0]}, predicted" if models else f"{kind}, predicted"
    marks = {title: step.step_time} if notes else {}
    return draw_stages(
        {title: rows}, stem, title=title, fixed=" · ".join(_plan(evaluation)), marks=marks,
        mark=MARK, notes=notes,
    )  # fmt: skip


def _drawn(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield what a figure shows: of what passes hold, what isn't computing."""
    from overhead.overlap.pipeline_timeline import EXPOSED, WAITING
    from overhead.step.timeline import PARTS

    return (span for span in spans if span.row != PARTS or span.kind in (EXPOSED, WAITING))


def _plan(evaluation: Evaluation) -> Iterator[str]:
    """Yield what the plan is, in few words."""
    from sweeps.plots.style import unbroken

    degrees = ("dp", "tp", "cp", "pp", "ep")
    world = np.prod([evaluation[name] for name in degrees[:4]])
    yield unbroken(f"{world:g} GPUs" if world > 1.0 else "1 GPU")
    for name in degrees:
        if evaluation[name] > 1.0:
            yield unbroken(f"{name} {evaluation[name]:g}")
    count = evaluation["micro_batches"]
    yield unbroken(f"{count:g} micro-batches" if count > 1.0 else "1 micro-batch")
    if evaluation["pp"] > 1.0:
        yield evaluation.labels["schedule"]
    if evaluation["virtual_stages"] > 1.0:
        yield unbroken(f"{evaluation['virtual_stages']:g} virtual stages")
    yield unbroken(f"ZeRO {evaluation['zero_stage']:g}")
    yield unbroken(f"recompute {evaluation.labels['recompute']}")
