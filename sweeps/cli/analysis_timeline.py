"""``sweeps analysis --timeline``: the predicted course of a plan's step, as traces and a figure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from overhead.evaluation import Evaluation, MissingQuantities
from overhead.labels import EVEN_SCHEDULES, FOLDED, PAIRED
from overhead.overlap.pipeline import EXPOSED, TRANSFER, WAITING
from overhead.overlap.timeline import Span
from overhead.step.timeline import COPIES, PARTS, PASSES, STREAMS, StepTimeline, step_timeline
from sweeps.bands import percent
from sweeps.cli.given import Given
from sweeps.cli.numbers import shown
from sweeps.cli.progress import tell_drawn
from sweeps.cli.typed import flag_of
from sweeps.errors import Fault, InputError, fault, refuse
from sweeps.job import Job, evaluation_of

# Rows of a figure up to which each stream has its own.
MOST_ROWS = 24
# A difference that is more than rounding.
ROUNDING = 1e-9
MARK = "Step time by its formula"
UNEVEN = "the form is near, not exact, with transfers or ends that differ much from other stages"
# Why the form of a schedule's time isn't that of its course.
WHY = {
    "one_f_one_b": UNEVEN,
    "interleaved": UNEVEN,
    **dict.fromkeys(EVEN_SCHEDULES, "the form has every stage take as long as the slower end"),
    **dict.fromkeys(
        PAIRED, "the form is a bound, and has every stage take as long as the slower end"
    ),
    **dict.fromkeys(
        FOLDED, "the form has every micro-batch wait for both ends' extra work, or is a bound"
    ),
    "gpipe": "the form has the slowest forward and the slowest backward in one stage",
    "forward_only": "the form has the extra work of the ends in whole",
}


def timeline_of(job: Job) -> StepTimeline:
    """Return the course of a plan's step."""
    sizes = job.program.grid.sizes
    if job.program.grid.cells != 1:
        text = ", ".join(f"{name} {size}" for name, size in sizes.items())
        refuse("--timeline", text, "a timeline shows one plan", "one value for each argument")
    evaluation = evaluation_of(job)
    try:
        with np.errstate(all="ignore"):
            return step_timeline(evaluation)
    except MissingQuantities as error:
        wrong = f"the step's time isn't known without {', '.join(map(flag_of, error.missing))}"
        allowed = "give it, or --model with a model that has it"
        raise InputError(fault("--timeline", "(step)", wrong, allowed)) from None
    except ValueError as error:
        schedule = evaluation.labels["schedule"]
        raise InputError(Fault(("--timeline",), (schedule,), str(error))) from None


def write_timeline(job: Job, step: StepTimeline, given: Given) -> None:
    """Write a step's course as traces and, where a plot is asked for, as a figure."""
    from sweeps.traces.write import write_chakra, write_trace

    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    path = Path(given["timeline"] or "")
    differs = abs(step.difference) > ROUNDING
    marks = {MARK: step.step_time} if differs else {}
    if path.suffix == ".et":
        count, groups = write_chakra(step, evaluation_of(job), path, overwrite=given["overwrite"])
        first, last = (path.with_name(f"{path.stem}.{rank}.et") for rank in (0, count - 1))
        notes.write(f"wrote {first} to {last}, {groups}: Chakra traces, for a simulator\n")
    else:
        write_trace(step.stages, path, overwrite=given["overwrite"], marks=marks)
        notes.write(f"wrote {path}: open it in Perfetto or chrome://tracing\n")
    note = _difference(job, step) if differs else ""
    if note:
        notes.write(f"  ({note})\n")
    if given["plot"]:
        made = _draw(job, step, path.with_suffix(""), [note] if note else [])
        tell_drawn(made, notes)


def _difference(job: Job, step: StepTimeline) -> str:
    """Return by how much the formula's time differs from the course's, and why."""
    schedule = job.program.cases[0].labels["schedule"]
    more = "more" if step.difference > 0.0 else "less"
    ends, time = shown("step_time", step.end), shown("step_time", step.step_time)
    by = f"{percent(abs(step.difference))} {more}"
    return f"the course ends at {ends}; the step's formula gives {time}, {by}: {WHY[schedule]}"


def _draw(job: Job, step: StepTimeline, stem: Path, notes: Sequence[str]) -> list[Path]:
    from sweeps.plots.style import sentence
    from sweeps.plots.timeline import draw_stages

    evaluation = evaluation_of(job)
    rows = _drawn(step)
    kind = "Forward" if evaluation.labels["schedule"] == "forward_only" else "Training step"
    models = [model.name for model in job.resolved.models]
    what = f"{kind} of {models[0]}" if models else kind
    title = f"Pipeline timeline: {what}, predicted"
    marks = {title: step.step_time} if notes else {}
    return draw_stages(
        {title: rows},
        stem,
        title=title,
        fixed=" · ".join(_plan(evaluation)),
        marks=marks,
        mark=MARK,
        notes=[sentence(note) for note in notes],
    )


def _drawn(step: StepTimeline) -> Mapping[str, list[Span]]:
    """Return what a figure shows: of what passes hold, what isn't computing; and streams."""
    rows: dict[str, list[Span]] = {}
    for name, spans in step.stages.items():
        rows[name] = [
            span
            for span in spans
            if span.row == PASSES
            or span.kind == TRANSFER
            or (span.row == PARTS and span.kind in (EXPOSED, WAITING))
        ]
        rows |= {
            f"{name}, {short}": [s for s in spans if s.row == row]
            for row, short in zip((*STREAMS, COPIES), ("TP", "CP", "EP", "DP", "host"), strict=True)
        }
    shown = {name: drawn_spans for name, drawn_spans in rows.items() if drawn_spans}
    # More would be too thin to read: the trace has them.
    return shown if len(shown) <= MOST_ROWS else {name: rows[name] for name in step.stages}


def _plan(evaluation: Evaluation) -> Iterator[str]:
    """Yield what the plan is, in few words."""
    from sweeps.plots.style import plain, unbroken

    degrees = ("dp", "tp", "cp", "pp", "ep")
    world = np.prod([evaluation[name] for name in degrees[:4]])
    yield unbroken(f"{world:g} GPUs" if world > 1.0 else "1 GPU")
    for name in degrees:
        if evaluation[name] > 1.0:
            yield unbroken(f"{name} {evaluation[name]:g}")
    count = evaluation["num_micro_batches"]
    yield unbroken(f"{count:g} micro-batches" if count > 1.0 else "1 micro-batch")
    if evaluation["pp"] > 1.0:
        yield unbroken(plain(evaluation.labels["schedule"]).replace("one f one b", "1F1B"))
    if evaluation["virtual_pipeline_size"] > 1.0:
        yield unbroken(f"{evaluation['virtual_pipeline_size']:g} virtual stages")
    yield unbroken(f"ZeRO {evaluation['zero_stage']:g}")
    yield unbroken(f"recompute {evaluation.labels['recompute']}")
