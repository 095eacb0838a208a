"""The sweep behind ``sweeps analysis``: what it asks for, and what it can't do without."""

from __future__ import annotations

import copy
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from overhead.analysis import Faulty, analyze, faults, is_needed
from overhead.collectives.algorithm import ALGORITHMS
from overhead.communication.operation import DIMENSIONS
from overhead.completion import needed_shapes
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.labels import (
    CHOICES,
    EVEN_SCHEDULES,
    FOLDED,
    LABELS,
    PAIRED,
)
from overhead.memory.quantities import PARTS as MEMORY_PARTS
from overhead.memory.stage import PEAK_PARTS
from overhead.overlap.pipeline import EXPOSED, TRANSFER, WAITING
from overhead.overlap.timeline import Span
from overhead.plan import NO_ALGORITHM, NOT_OF_GROUPS
from overhead.shipped import loss_figures
from overhead.step.parts import PARTS as STEP_PARTS
from overhead.step.timeline import COPIES, PARTS, PASSES, STREAMS, StepTimeline, step_timeline
from overhead.transformer import SHAPES
from sweeps import display
from sweeps.bands import percent
from sweeps.cli.given import Given
from sweeps.cli.numbers import shown
from sweeps.cli.progress import tell_drawn
from sweeps.cli.typed import flag_of
from sweeps.display import noun
from sweeps.errors import InputError, fault, needs, refuse, tell_all
from sweeps.job import Job, prepare
from sweeps.search.request import habits_of
from sweeps.spec.catalog import load_hardware, usual_operation
from sweeps.spec.sweep import Sweep, read_sweep

# The predicted course of one plan's step, to a Chrome trace and a figure.

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
        wrong, _, allowed = str(error).partition("; ")
        schedule = evaluation.labels["schedule"]
        raise InputError(fault("--timeline", schedule, wrong, allowed)) from None


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
        notes=notes,
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
            for row, short in zip((*STREAMS, COPIES), ("tp", "cp", "ep", "dp", "host"), strict=True)
        }
    shown = {name: drawn_spans for name, drawn_spans in rows.items() if drawn_spans}
    # More would be too thin to read: the trace has them.
    return shown if len(shown) <= MOST_ROWS else {name: rows[name] for name in step.stages}


def _what_fits(again: Evaluation) -> str:
    """Return the time, where it is known, and the memory of a plan that fits; else nothing."""
    least = analyze(again).per_gpu_memory_bytes
    if least > again["memory_capacity"] or faults(again):
        return ""
    time = again.value("step_time", {})
    takes = "" if time is None else f"{shown('step_time', float(time))}, "
    return f"{takes}{shown('memory', least)}"


def sharded_line(evaluation: Evaluation, memory: float) -> str:
    """Return, where a plan doesn't fit, the first stage of ZeRO with which it does; or nothing."""
    capacity, stage = evaluation["memory_capacity"], evaluation["zero_stage"]
    if not memory > capacity or "hsdp_shard_size" in evaluation.given:
        return ""
    for more in range(int(stage) + 1, 4 if evaluation["dp"] > 1.0 else 0):
        again = Evaluation({**evaluation.given, "zero_stage": float(more)}, evaluation.labels)
        if takes := _what_fits(again):
            return f"  with --zero-stage {more} it fits: {takes}"
    return ""


# What says which loss there is, or what of its logits is kept.
OF_LOSS = frozenset(("loss", "loss_chunks", "logit_bytes"))


def fused_line(evaluation: Evaluation, memory: float, given: Collection[str]) -> str:
    """Return, where a plan doesn't fit and says nothing of its loss, one with which it does."""
    capacity, labels = evaluation["memory_capacity"], evaluation.labels
    if not memory > capacity or not OF_LOSS.isdisjoint(given):
        return ""
    for loss in habits_of(labels["framework"], labels["attention_kernel"]).losses:
        figures = {
            name: loss_figure.value
            for name, loss_figure in loss_figures(loss, labels["loss"]).items()
        }
        again = Evaluation({**evaluation.given, **figures}, {**labels, "loss": loss})
        if takes := _what_fits(again):
            return f"  it fits with a fused loss, --loss {loss}: {takes}"
    return ""


def lightest_lines(evaluation: Evaluation, memory: float) -> Iterator[str]:
    """Yield, where a plan doesn't fit and doesn't say what it recomputes, the least that fits."""
    capacity = evaluation["memory_capacity"]
    if not memory > capacity:
        return
    again = Evaluation(evaluation.given, {**evaluation.labels, "recompute": "block"})
    least = analyze(again).per_gpu_memory_bytes
    if least > capacity:
        yield f"  nor with all layers recomputed (--recompute full): {shown('memory', least)}"
        return
    layers, whole = again["recompute_layers"], again["chunk_layers"]
    time = again.value("step_time", {})
    takes = "" if time is None else f"{shown('step_time', float(time))}, "
    yield (
        f"  with --recompute block it fits: {layers:g} of each chunk's {whole:g} layers recomputed,"
        f" as few as fit {percent(float(again['target_memory_fraction']))} of the memory: {takes}"
        f"{shown('memory', least)}"
    )


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


# Why one training configuration can't be, a line a reason.

DEGREES = ("dp", "tp", "cp", "pp")
# Conditions whose fault another one has said already: of the attention heads and of K and V's.
SAID_BY = {
    "kv_heads_not_divisible": "heads_not_divisible",
    "kv_heads_not_divisible_by_cp": "heads_not_divisible_by_cp",
}


def plan_faults(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for each condition that one plan doesn't fulfil."""
    every = list(faults(evaluation))
    known = {faulty.requirement.fault for faulty in every}
    for fallen in every:
        values = {name: f"{value.reshape(-1)[0]:g}" for name, value in fallen.values.items()}
        if SAID_BY.get(fallen.requirement.fault) in known:
            continue
        match fallen.requirement.fault:
            case "heads_not_divisible":
                wrong = f"does not divide the {values['heads']} attention heads"
                allowed = _divisors(float(values["heads"]))
                yield fault(flag_of("tp"), values["tp"], wrong, allowed)
            case "product_of_degrees":
                yield _product(values)
            case "batch_not_divisible":
                yield _batch(values)
            case NO_ALGORITHM.fault:
                yield _no_algorithm(evaluation.labels)
            case NOT_OF_GROUPS.fault:
                name, wrong = evaluation.labels["algorithm"], "isn't defined for a group's ranks"
                yield fault(flag_of("algorithm"), name, wrong, NOT_OF_GROUPS.text)
            case _:
                yield _fault_line(fallen, values)


def _fault_line(faulty: Faulty, values: Mapping[str, str]) -> str:
    # A degree of 1 isn't what is wrong.
    idle = {
        name for name, value in values.items() if name in ("ep", "etp", *DEGREES) and value == "1"
    }
    shown = {name: value for name, value in values.items() if name not in idle} or values
    wrong = faulty.requirement.fault.replace("_", " ")
    names = ", ".join(map(flag_of, shown))
    return fault(names, ", ".join(shown.values()), wrong, faulty.requirement.text)


def _no_algorithm(labels: Mapping[str, str]) -> str:
    network = labels["topology"]
    wrong = f"a {network} network has no such algorithm"
    allowed = f"one of {', '.join((*CHOICES, *ALGORITHMS.names(network)))}"
    return fault(flag_of("algorithm"), labels["algorithm"], wrong, allowed)


def _product(values: Mapping[str, str]) -> str:
    product = 1.0
    for name in DEGREES:
        product *= float(values[name])
    gpus = float(values["world_size"])
    uneven = [name for name in DEGREES if name != "dp" and gpus % float(values[name])]
    if uneven:
        wrong = f"does not divide {gpus:g} GPUs"
        return fault(flag_of(uneven[0]), values[uneven[0]], wrong, _divisors(gpus))
    wrong = f"multiply to {product:g}, not to {gpus:g} GPUs"
    flags = ", ".join(map(flag_of, DEGREES))
    return fault(flags, ", ".join(values[name] for name in DEGREES), wrong, _divisors(gpus))


def _divisors(gpus: float) -> str:
    """Return which degrees a number of GPUs allows."""
    each = [f"{divisor}" for divisor in range(1, int(gpus) + 1) if gpus % divisor == 0.0]
    return f"use {', '.join(each[:4])}" + ", .." * (len(each) > 4)


def _batch(values: Mapping[str, str]) -> str:
    at_once = float(values["dp"]) * float(values["micro_batch_size"])
    batch = values["global_batch_size"]
    if not float(batch).is_integer():
        wrong = f"makes {batch} sequences of a step, and only whole ones can be"
        return fault(
            flag_of("tokens_per_step"), "..", wrong, f"a multiple of {flag_of('sequence_length')}"
        )
    few = "is fewer than" if float(batch) < at_once else "isn't a multiple of"
    wrong = f"{few} the {at_once:g} sequences that dp*micro_batch_size compute at once"
    return fault(flag_of("global_batch_size"), batch, wrong, f"a multiple of {at_once:g}")


STATES = (*tuple(MEMORY_PARTS)[:3], "first_stage_model_state_memory")
PLAN = ("world_size", "dp", "num_micro_batches", "global_batch_size")
TIMES = {f"{name}_communication_time": name for name in DIMENSIONS}
# What files and records say of each dimension's communication beside its time.
SENT = tuple(
    f"{name}_communication_{part}" for name in DIMENSIONS for part in ("count", "volume", "energy")
)
BOUND = "communication_upper_bound"
WHOLE_STEP = display.rows("communication")
COSTS = display.rows("cost")
FAILURES = display.rows("failures")
# Beside what has a default, what a run's failures follow from.
FAILING = ("staging_bandwidth", "checkpoint_interval", "spare_nodes")
ASKED = tuple(
    dict.fromkeys(
        (
            *(*PLAN, "peak_memory", "memory_headroom", *PEAK_PARTS, *STATES),
            *(*TIMES, *SENT, *WHOLE_STEP),
            *(*display.rows("step"), *STEP_PARTS),
            *display.rows("memory", "rates", "training"),
        )
    )
)
# What a reader looks for and may not find, in words.
LACKING = {
    "peak_memory": "activations, and total memory",
    "step_time": "step time",
    BOUND: "communication of a whole step",
    "cost": "cost of the training",
}


def analysis_job(
    spec: Mapping[str, object],
    *,
    command: Sequence[str] = ("sweeps", "analysis"),
    folders: Sequence[Path] = (),
    options: Mapping[str, object] | None = None,
) -> Job:
    """Make a sweep of training steps ready to run."""
    sweep = read_sweep(spec, bare_is_si=True, folders=folders)
    _check_model(sweep.given)
    job = prepare(
        replace(sweep, quantities=(*ASKED, *_of_a_run(sweep, folders)), optional=True),
        text=" ",
        command=command,
        folders=folders,
        options=options,
    )
    _check_sides(job)
    _check_needed(job)
    wanted = [name for name in job.program.wanted if not _of_one_layer(job, name)]
    sweep = replace(job.sweep, quantities=tuple(wanted))
    return replace(job, sweep=sweep, stated=copy.deepcopy({**spec, "quantities": wanted}))


def _of_a_run(sweep: Sweep, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return what to ask for of a whole run: costs and failures, where anything is said of them."""
    failing = {"training_tokens", *FAILING, *usual_operation()} & sweep.given
    return (*(FAILURES if failing else ()), *_costs(sweep, folders))


def _costs(sweep: Sweep, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the costs to ask for: none where no price is known."""
    if {"gpu_hour_price", "capital_cost"} & sweep.given:
        return COSTS
    axes = [axis.columns["hardware"] for axis in sweep.axes if "hardware" in axis.columns]
    names = axes[0] if axes else [sweep.labels.get("hardware", LABELS["hardware"].default)]
    priced = ("gpu_hour_price" in load_hardware(str(name), folders).figures for name in names)
    return COSTS if any(priced) else ()


def _check_sides(job: Job) -> None:
    """Refuse sides of a mesh or torus that aren't all there, or no plan's GPUs."""
    given = {"mesh_nx", "mesh_ny"} & job.sweep.given
    if not given:
        return
    for name in sorted({"mesh_nx", "mesh_ny"} - given):
        other = flag_of(given.pop())
        raise InputError(needs(other, "the other side", f"{flag_of(name)}, too"))
    values = evaluation_of(job, whole=True)
    each = [values[name] for name in ("mesh_nx", "mesh_ny", "mesh_nz")]
    sides, world = each[0] * each[1] * each[2], values["world_size"]
    if not np.any(sides == world):
        text = ", ".join(f"{side.flat[0]:g}" for side in each)
        wrong = f"multiply to {sides.flat[0]:g}, not to {world.flat[0]:g} GPUs"
        flags = ", ".join(map(flag_of, ("mesh_nx", "mesh_ny", "mesh_nz")))
        refuse(flags, text, wrong, "sides of all GPUs")


def _check_model(given: Collection[str]) -> None:
    """Refuse a number of parameters beside the shapes from which it follows."""
    if "parameters" in given and all(name in given for name in needed_shapes(given)):
        wrong = "can't be given with shapes, from which it follows"
        refuse(flag_of("parameters"), "..", wrong, "leave it out, or some of the shapes")


def _of_one_layer(job: Job, name: str) -> bool:
    """Return whether a total of a step would be one of a step of one layer a stage."""
    split = (job.program.grid.columns.get(degree) for degree in ("tp", "cp", "ep"))
    deep = job.program.implied.get("depth") != "unknown"
    return name in WHOLE_STEP and not deep and any(np.any(n > 1.0) for n in split if n is not None)


def evaluation_of(job: Job, *, whole: bool = False) -> Evaluation:
    """Return the evaluation of a result's first cell, for what isn't among its variables."""
    (case, *_), grid = job.program.cases, job.program.grid
    if grid.cells == 1 and not whole:
        return Evaluation.of_cell(job.program.builder(case), grid.values)
    columns = grid.columns
    first = {name: values.reshape(-1)[:1].reshape(()) for name, values in columns.items()}
    return Evaluation(columns if whole else first, case.labels)


def roots(job: Job, name: str) -> tuple[str, ...]:
    """Return what would have to be given for a quantity, in order of need; empty if nothing.

    The communication of a step needs nothing for what the plan doesn't split.
    """
    if name == BOUND:
        return ("layers",) if _of_one_layer(job, name) else ()
    try:
        evaluation_of(job)[name]
    except MissingQuantities as error:
        return error.missing
    return ()


def _check_needed(job: Job) -> None:
    """Refuse one plan that can't be, or whose dimensions or model can't be told."""
    why: dict[str, list[str]] = {}
    if {"peak_memory", "weight_memory"} <= set(job.program.missing):
        # A model's own shapes give the parameters; then it's activations that lack something.
        shaped = all(
            name in job.program.grid.columns for name in needed_shapes(job.program.grid.columns)
        )
        for name in roots(job, "peak_memory" if shaped else "weight_memory"):
            why.setdefault(name, []).append("memory")
    with np.errstate(all="ignore"):
        every = evaluation_of(job, whole=True)
        for total, dimension in TIMES.items():
            if total in job.program.missing and is_needed(every, dimension):
                for name in roots(job, total):
                    why.setdefault(name, []).append(_split(job, dimension))
        lines = list(plan_faults(evaluation_of(job))) if job.program.grid.cells == 1 else []
    lines += [_lacking(name, list(dict.fromkeys(needing))) for name, needing in why.items()]
    tell_all(lines)


def _split(job: Job, dimension: str) -> str:
    """Return a dimension in words, with its degree."""
    degree = "tp" if dimension == "vocabulary" else dimension
    values = job.program.grid.columns.get(degree, np.empty(0))
    shown = f" ({degree} {values.flat[0]:g})" if values.size == 1 else ""
    return f"{DIMENSIONS[degree]}{shown}"


def _lacking(name: str, needing: Sequence[str]) -> str:
    known = name in (*SHAPES, "parameters")
    allowed = flag_of(name) + ", or --model with a model that has it" * known
    return needs(needing, noun(name), allowed)
