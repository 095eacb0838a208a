"""Computation and communication at once: ``sweeps overlap``, and ``sweeps trace``, measured."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Unpack

import click

from overhead.evaluation import Evaluation
from overhead.overlap.mechanisms import MECHANISMS
from overhead.overlap.pipeline import pipeline_timeline
from overhead.overlap.timeline import DERIVED, Span, timeline
from overhead.quantity import VOCABULARY
from sweeps import display
from sweeps.asked import command_line
from sweeps.bands import percent
from sweeps.cli.given import Given, texts_of
from sweeps.cli.kept import keep
from sweeps.cli.option_table import flags_in, options
from sweeps.cli.options import (
    default_lines,
    defaults_line,
    file_options,
    output_options,
)
from sweeps.cli.overlap_case import (
    BOTH,
    CHOSEN,
    QUANTITIES,
    check_cell,
    figures_of,
    job_of,
    report_lines,
    statement_lines,
    sure_words,
    values_of,
)
from sweeps.cli.progress import tell_drawn
from sweeps.cli.sections import further_lines, show_options, wanted_sections
from sweeps.cli.typed import Command, flag_of, folders_of
from sweeps.cli.write import Output, default_folder
from sweeps.engine.grid import LabelCase
from sweeps.errors import Fault, InputError, refuse
from sweeps.job import Job
from sweeps.plots.names import worded
from sweeps.plots.recorded import draw_traces
from sweeps.plots.style import plain, unbroken
from sweeps.plots.timeline import draw_stages, draw_timelines
from sweeps.result import Record, table_lines
from sweeps.spec.units import format_quantity, parse_quantity
from sweeps.traces.patterns import load_patterns
from sweeps.traces.ranks import analyse_files, result_of
from sweeps.traces.report import part_lines, reason_lines, report

PIPELINE = "pipeline"
# A difference of a form from its course that is more than rounding.
ROUNDING = 1e-9


@click.command("overlap", cls=Command)
@options("overlap")
@show_options("overlap")
@output_options
def command(**given: Unpack[Given]) -> int:
    """Overlap of computation and communication.

    One value for every argument prints a report; several print a table.  Kinds: two_durations
    with an --efficiency, ddp_buckets, fsdp_prefetch, fsdp_backward, zero3_prefetch,
    layer_by_layer, gradient_accumulation, ring_exchange, ring_exchange_aggregate,
    reduce_scatter_ring, reduce_scatter_pipeline, bulk_margin, bulk_shared, bulk_queued, pipeline,
    fused_messages.
    """
    from sweeps.own_formulas import load_formulas

    load_formulas(given["formulas"])
    asked = texts_of(given, (*CHOSEN, *flags_in(QUANTITIES)))
    job = job_of(
        asked,
        given["hardware"],
        folders=folders_of(given),
        command=command_line(),
        options=file_options(given),
    )
    single = all(axis.labels for axis in job.sweep.axes)
    if given["timeline"] or (given["plot"] and single):
        _check_one(job, given["timeline"])
        # What can't be drawn isn't written either.
        courses = _courses(job)
    figures = figures_of(job) if given["plot"] and (given["output"] or not single) else []
    out = Output({**given, "plot": bool(figures)}, "overlap")
    show = wanted_sections(given, "overlap")
    out.evaluate(job, lambda _: _lines(job, show, asked), figures, lambda: _records(job))
    if single:
        keep(draw=lambda stem: _timelines(job, _courses(job), stem))
    if given["timeline"] or (given["plot"] and single):
        _draw(job, courses, given)
    return 0


_NUMBER = re.compile(r"[0-9.]+(?:e[+-]?[0-9]+)?")
# Of an overlap the values that weren't given and matter most.
MATTERING = ("mechanism", "efficiency_of", "overlap_efficiency", "schedule")


def _readings(asked: Mapping[str, str | None]) -> Iterator[str]:
    """Yield how durations without a unit are read: in seconds, where others have milliseconds."""
    for name, text in asked.items():
        seconds = text is not None and name in VOCABULARY and VOCABULARY[name].units == "s"
        if text is not None and seconds and _NUMBER.fullmatch(text.strip()) and float(text):
            yield f"  ({flag_of(name)} {text} is read as {text} s; {text}ms is milliseconds)"


def _lines(job: Job, show: Sequence[str], asked: Mapping[str, str | None]) -> Iterator[str]:
    """Yield what people read: a report of one cell, a table of many."""
    if job.program.grid.cells == 1:
        (case,) = job.program.cases
        yield from report_lines(job, case)
        yield from _as_tuned(job, case)
        yield ""
    else:
        rows = [*_rows(job)]
        yield _gain(rows, sure_words(case.labels["mechanism"] for case in job.program.cases))
        yield from table_lines(rows, total=job.program.grid.cells)
        yield ""
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "formulas": lambda: (
            line for case in job.program.cases for line in statement_lines(job, case)
        ),
        "defaults": lambda: default_lines(job),
    }
    yield from _readings(asked)
    yield from defaults_line(job, MATTERING)
    yield from further_lines(show, bodies)


def _cells(job: Job) -> Iterator[dict[str, object]]:
    """Yield what each cell has: labels, what is given once, coordinates, outputs, status."""
    constants = {name: float(value) for name, value in job.sweep.constants.items()}
    for record in job.evaluated().values():
        labels = {name: record[name] for name in CHOSEN if name in record}
        labels = {"mechanism": job.program.labels.get("mechanism"), **labels}
        yield {**labels, **constants, **record}


def _records(job: Job) -> Iterator[dict[str, object]]:
    """Yield cells with the names that programs know: times in seconds."""
    for cell in _cells(job):
        yield {f"{name}_s" if name.endswith("_time") else name: v for name, v in cell.items()}


def _rows(job: Job) -> Iterator[dict[str, object]]:
    """Yield what a table for people shows."""
    hidden = {
        "ideal_overlapped_time",
        "overlapped_communication_fraction",
        "communication_fraction",
    }
    hidden |= set(job.sweep.constants) | ({"mechanism"} & set(job.program.labels))
    for record in _cells(job):
        row = {name: value for name, value in record.items() if name not in hidden}
        status = row.pop("status")
        if status != "ok":
            row["why"] = status
        yield row


def _gain(rows: Sequence[Record], sure: str) -> str:
    """Return the answer in a line: where overlap gains most and least."""
    from sweeps.result import shown

    done = [row for row in rows if row.get("overlap_speedup", 0.0) > 0.0]
    if not done:
        return f"overlap gains nothing in any of {len(rows)} cases ({sure})"
    asked = [*itertools.takewhile(lambda name: name != "overlapped_time", done[0])]

    def described(row: Record) -> str:
        texts = {name: shown(name, row[name]) for name in asked}
        return ", ".join(
            text if isinstance(row[name], str) else f"{name.replace('_', ' ')} {text}"
            for name, text in texts.items()
        )

    most, least = (best(done, key=lambda row: row["overlap_speedup"]) for best in (max, min))
    return (
        f"overlap gains most, {most['overlap_speedup']:.4g}x, with {described(most)}; "
        f"least, {least['overlap_speedup']:.4g}x, with {described(least)} ({sure})"
    )


# What says that a tile, or the rate of one, is the user's own.
OWN_TILE = {
    "tile_rows",
    "tile_columns",
    "tile_time",
    "peak_measured_matmul_flops",
    "activation_bytes",
}


def _as_tuned(job: Job, case: LabelCase) -> Iterator[str]:
    """Yield what a cut product takes with the tiles that libraries choose, as a tuning has it.

    One tile in whole waves shows what a cut does to a shape; measured pieces cost less, for a
    library takes smaller tiles, and pieces run side by side.
    """
    from sweeps.tuner.rates import TAKEN, read_rates

    machines = job.resolved.machines
    cut = values_of(job, case, ("matmul_chunks",)).get("matmul_chunks", 1.0) > 1.0
    if case.labels.get("compute") != "waves" or len(machines) != 1 or not cut:
        return
    if OWN_TILE & job.sweep.given:
        return
    try:
        rates = read_rates(machines[0])
    except InputError:  # such as a torus, which has no userbuffers
        return
    sizes = ("matmul_m", "matmul_n", "matmul_k", "communication_time", "sms")
    takes = [name for name in MECHANISMS[case.labels["mechanism"]].takes if name not in BOTH]
    inputs = {name: rates[name] for name in TAKEN}
    inputs |= values_of(job, case, (*sizes, *takes, "num_sm"))
    labels = {"compute": "tiles", "mechanism": case.labels["mechanism"]}
    tuned = Evaluation(inputs, labels)
    names = ("unsplit_matmul_time", "overlapped_time")
    alone, both = (format_quantity(float(tuned[name]), "s") for name in names)
    yield (
        "  (with the best of seven tiles, pieces side by side, in a long run, as 'sweeps tune' has "
        f"it: the product {alone}, overlapped {both}, {tuned['overlap_speedup']:.4g}x)"
    )


# Timelines.


def _check_one(job: Job, timeline: str | None) -> None:
    if timeline and Path(timeline).suffix == ".et":
        wrong = "Chakra traces are of a step, whose messages are known"
        refuse("--timeline", timeline, wrong, "FILE.json, or sweeps analysis")
    axes = [axis for axis in job.sweep.axes if not axis.labels]
    if axes:
        shown = ", ".join(f"{axis.name} {len(axis)}" for axis in axes)
        wrong = "a timeline shows one case"
        refuse("--timeline", shown, wrong, "one value for each argument but --mechanism")
    if "overlapped_time" in job.sweep.constants:
        wrong = "a measured overlap has no timeline: only its time is known"
        refuse("--measured", "..", wrong, "leave it out, or the timeline")


def _courses(job: Job) -> dict[str, list[Span]]:
    varied = [axis.name for axis in job.sweep.axes if axis.name != "mechanism"]
    courses: dict[str, list[Span]] = {}
    for case in job.program.cases:
        mechanism = case.labels["mechanism"]
        name = " ".join([mechanism, *(case.labels[label] for label in varied)])
        check_cell(job, case)
        values = values_of(job, case, (*MECHANISMS[mechanism].takes, *DERIVED))
        try:
            if mechanism == PIPELINE:
                courses[name] = pipeline_timeline(case.labels["schedule"], values)
            else:
                courses[name] = timeline(mechanism, values)
        except ValueError as error:
            raise InputError(Fault(("--timeline",), (name,), str(error))) from None
    return courses


def _one_mechanism(job: Job) -> str:
    """Return the mechanism of all cases; empty where they have several."""
    kinds = {case.labels["mechanism"] for case in job.program.cases}
    return kinds.pop() if len(kinds) == 1 else ""


def _draw(job: Job, courses: Mapping[str, list[Span]], given: Given) -> None:
    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    if given["timeline"]:
        from sweeps.traces.write import write_trace

        path = Path(given["timeline"])
        write_trace(courses, path, overwrite=given["overwrite"])
        notes.write(f"wrote {path}: open it in Perfetto or chrome://tracing\n")
    notes.writelines(f"  ({line})\n" for line in _differences(job, courses))
    if given["plot"]:
        mechanism = _one_mechanism(job)
        name = f"overlap-{mechanism}" if mechanism else "overlap"
        output = given["output"]
        stem = Path(output).with_suffix("") if output else default_folder() / name
        tell_drawn(_timelines(job, courses, stem), notes)


def _timelines(job: Job, courses: Mapping[str, list[Span]], stem: Path) -> list[Path]:
    """Draw the courses of one overlap, beside a file; return the files of the figure."""
    mechanism = _one_mechanism(job)
    constants = {
        name: format_quantity(value, VOCABULARY[name].units)
        for name, value in job.sweep.constants.items()
    }
    about = [
        unbroken(display.phrase(name, text) or f"{plain(name)} {text}")
        for name, text in constants.items()
    ]
    fixed = " · ".join([plain(mechanism), *about] if mechanism not in ("", PIPELINE) else about)
    sequential = {
        name: values_of(job, case, ["sequential_time"])["sequential_time"]
        for name, case in zip(courses, job.program.cases, strict=True)
    }
    sequential = {plain(name): time for name, time in sequential.items()}
    courses = {plain(name): spans for name, spans in courses.items()}
    stem = stem.with_name(f"{stem.name}-timeline")
    if any(case.labels["mechanism"] == PIPELINE for case in job.program.cases):
        names = [worded("schedule", case.labels["schedule"], "1") for case in job.program.cases]
        by = f" by {names[0]}" if len(names) == 1 else "s"
        title = f"Pipeline timeline{by}, predicted"
        return draw_stages(_staged(courses), stem, title=title, fixed=fixed, marks=sequential)
    title = "Timeline of computation and communication, predicted"
    return draw_timelines(courses, stem, title=title, fixed=fixed, sequential=sequential)


def _staged(courses: Mapping[str, list[Span]]) -> dict[str, dict[str, list[Span]]]:
    """Return the courses of pipelines, with what each stage does and sends on a row."""
    staged: dict[str, dict[str, list[Span]]] = {}
    for name, spans in courses.items():
        rows = staged.setdefault(name, {})
        for span in spans:
            rows.setdefault(span.row.partition(" sends")[0], []).append(span)
    return staged


def _differences(job: Job, courses: Mapping[str, list[Span]]) -> Iterator[str]:
    """Yield a line for each course of a pipeline that doesn't end when its form says."""
    from sweeps.cli.numbers import shown

    for (name, spans), case in zip(courses.items(), job.program.cases, strict=True):
        if case.labels["mechanism"] != PIPELINE:
            continue
        end = max(span.end for span in spans)
        time = values_of(job, case, ["overlapped_time"])["overlapped_time"]
        if abs(time - end) > ROUNDING * end:
            more = f"{percent(abs(time / end - 1.0))} {'more' if time > end else 'less'}"
            ends, form = shown("time", end), shown("time", time)
            yield (
                f"{name}: the course ends at {ends}; its form gives {form}, {more}: it isn't exact"
                " where a transfer takes longer than a chunk's pass"
            )


# ``sweeps trace``: what of it profiler traces show.


@click.command("trace", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options("trace")
@show_options("trace")
def trace_command(files: tuple[str, ...], **given: Unpack[Given]) -> int:
    """Say how GPUs spent their time: profiler traces, .json or .json.gz, one a rank.

    FILE is a trace of PyTorch's profiler, of JAX's (XLA) or of Ascend's (torch_npu), or a folder as
    PyTorch's writes it: the last trace of each worker is read.

    Unions of intervals are exact; the overlap of communication and computation is given as a share
    of communication and of the shorter of the two.
    """
    window = _window(given)
    patterns = load_patterns(given["patterns"])
    out = Output(given, "trace").checked()
    ranks = analyse_files(
        files, given["mode"], patterns=patterns, include_last_step=given["include_last_step"]
    )
    if window is not None and window[0] >= max(overlap.end_to_end for overlap in ranks.overlaps):
        refuse("--window", given["window"], "is after the last GPU work", WINDOW)
    result = result_of(ranks, given)
    bodies = {"overlap": lambda: reason_lines(ranks), "rows": lambda: part_lines(ranks)}
    shown = further_lines(wanted_sections(given, "trace"), bodies)
    lines = itertools.chain(report(ranks), shown)
    out.deliver(result, lines, draw=lambda stem: draw_traces(ranks, stem, window))
    return 0


WINDOW = "two times from the first row of GPU work on, such as 0:20ms"


def _window(given: Given) -> tuple[float, float] | None:
    """Read what the timeline is to show; check options that go together."""
    if given["include_last_step"] and given["mode"] != "hta":
        refuse("--include-last-step", "set", "the full mode leaves out no step", "--mode hta")
    text = given["window"]
    if text is None:
        return None
    ends = text.split(":")
    if len(ends) != 2:
        refuse("--window", text, "is not a window", WINDOW)
    start, end = (parse_quantity(e, "s", field="--window", bare_is_si=True) for e in ends)
    if not 0.0 <= start < end:
        refuse("--window", text, "ends before it starts", WINDOW)
    return start, end
