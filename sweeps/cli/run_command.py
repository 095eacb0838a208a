"""Sweeps and their files: ``sweeps run``, ``info``, ``plot``, and ``run-all`` with its list."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

import click
import numpy as np

from sweeps.asked import command_line
from sweeps.bands import UNKNOWN, bands_of, in_powers_of_two
from sweeps.blocks.estimate import estimate, limits_for
from sweeps.blocks.estimate import lines as estimate_lines
from sweeps.cli.analysis_command import analysis_of_options, write_stored
from sweeps.cli.analysis_command import command as analysis
from sweeps.cli.files import draw_figures, lines_of, row_lines
from sweeps.cli.given import Given, Options
from sweeps.cli.option_table import options
from sweeps.cli.options import (
    default_lines,
    defaults_line,
    file_options,
    result_options,
    unused_lines,
)
from sweeps.cli.sections import further_lines, show_options, wanted_sections, wrapped
from sweeps.cli.typed import Command, folders_of, refuse_given
from sweeps.cli.write import Output
from sweeps.contracts import check_asserted
from sweeps.display import of_records
from sweeps.engine.grid import FLAGS, STATUS
from sweeps.errors import InputError, RunError, fault, nearest, needs, refuse, tell_all
from sweeps.impossible import impossible_rows
from sweeps.job import Job, bounds_of, prepare
from sweeps.plots.data import Subject, subject_of
from sweeps.plots.declare import check_figures
from sweeps.plots.style import suffix_of
from sweeps.result import Field, Result, of_dataset, of_rows, provenance_of
from sweeps.spec.catalog import find_sweep, spec_names
from sweeps.spec.files import read_toml
from sweeps.spec.sweep import load_sweep
from sweeps.spec.units import format_quantity
from sweeps.store.netcdf import describe, open_dataset, verify
from sweeps.store.publish import check_output
from sweeps.wrapping import aligned, fitted

if TYPE_CHECKING:
    import xarray as xr

FORMATS = ("netcdf", "zarr")
# Of any sweep the values that were not given and matter most.
MATTERING = ("model", "hardware", "framework", "precision", "software", "collective", "topology")


@click.command("run", cls=Command)
@click.argument("spec", required=False)
@options("run")
@show_options("run")
@options("run contracts")
def command(spec: str | None, **given: Unpack[Given]) -> int:
    """Run a sweep: dataset to outputs/, table to the terminal, and its figures.

    SPEC is a path, or the name of a sweep that is shipped; without it these are listed.
    """
    if spec is None:
        context = click.get_current_context()
        line = click.core.ParameterSource.COMMANDLINE
        if any(context.get_parameter_source(name) is line for name in given):
            wrong = needs("sweeps run", "SPEC", "a name that 'sweeps run' lists, or a path")
            raise InputError(wrong)
        sys.stdout.writelines(fitted(_shipped()))
        return 0
    from sweeps.hop_study.study_file import is_study
    from sweeps.own_formulas import load_formulas

    _check_options(given)
    load_formulas(given["formulas"])
    path = find_sweep(spec)
    if is_study(path):
        from sweeps.cli.hops_command import run_study

        refuse_given(OF_SWEEPS, "is of a sweep of formulas, and this is a study of hops")
        return run_study(path, {**given, "plot": given["plot"] is not False})
    folders = folders_of(given)
    sweep, text = load_sweep(path, given["settings"], folders)
    options = file_options(given)
    job = prepare(
        sweep,
        text=text,
        command=command_line(),
        folders=folders,
        options=options,
        where=f"{path.name}: ",
    )
    # Undrawn unless asked for: figures of what is large, which declares none of its own.
    asked = bool(sweep.figures) if given["plot"] is None else given["plot"]
    _check_valid(job, path.name)
    units = {reduction.name: reduction.units for reduction in sweep.reductions}
    out = Output({**given, "plot": asked}, path.stem, units)
    check_asserted((*sweep.asserts, *out.contracts), job.computed)
    if asked and sweep.figures:
        check_figures(sweep.figures, Subject(*job.shape_of_result()))
    if given["dry_run"]:
        limits = limits_for(job, given["max_memory"], max(1, given["workers"]))
        *shapes, _ = job.estimate()
        sys.stdout.writelines(fitted((*shapes, *estimate_lines(estimate(job, limits)))))
        return 0
    if out.programs and job.stored:
        out.is_printed(job, must=True)
    page = out.stem.with_name(f"{out.stem.name}.html")
    if given["page"]:
        check_output(page, overwrite=True)
    bounds = bounds_of(sweep, folders) if job.measured is not None else None
    _deliver(out, job, bounds, wanted_sections(given, "run"))
    if given["page"]:
        write_stored(out.path, page, {}, overwrite=True, notes=out.notes)
    out.hold_stored((*sweep.asserts, *out.contracts))
    return 0


def _shipped() -> Iterator[str]:
    """Yield the sweeps that `run` finds by name, with their titles."""
    titles = {name: read_toml(find_sweep(name)).get("title", "") for name in spec_names("sweeps")}
    yield f"{len(titles)} sweeps to run: sweeps run NAME, or the path of a spec"
    width = max(map(len, titles), default=0)
    yield from (f"  {name.ljust(width)}  {title}" for name, title in titles.items())


def _deliver(out: Output, job: Job, bounds: xr.DataArray | None, show: Sequence[str]) -> None:
    """Write a sweep's file and figures; print its records, or its answer before all else."""
    from sweeps.cli.collective_command import statement_lines
    from sweeps.cli.validate_report import error_table
    from sweeps.validate.scores import error_answer, error_lines, error_rows

    if out.programs:
        out.write(job, job.sweep.figures)
        with open_dataset(out.path) as dataset:
            out.show(of_dataset(dataset, of_records(), job.masks))
        notes = (*(touched.words for touched in job.touched), *unused_lines(job, str))
        out.notes.writelines(line + "\n" for line in notes)
        return
    with out.answered_first():
        out.write(job, job.sweep.figures)
        with open_dataset(out.path) as dataset:
            if bounds is not None:
                rows = error_rows(dataset)
                answer = [*error_answer(dataset), *impossible_rows(dataset, bounds)]
                answer += ["Median error by table and message size", *error_table(rows), ""]
            elif answer := [*lines_of(dataset)]:
                # How far measurements may be from its times
                answer[0] += f" ({bands_of(dataset) or UNKNOWN})"
        sys.stdout.writelines(fitted(answer))
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "rows": lambda: row_lines(out.path) if bounds is None else error_lines(rows),
        "variables": lambda: summary(out.path),
        "formulas": lambda: statement_lines(job),
        "defaults": lambda: default_lines(job),
    }
    lines = [] if answer else [*summary(out.path)]
    lines += [touched.words for touched in job.touched]
    lines += [*unused_lines(job, str), *defaults_line(job, MATTERING)]
    sys.stdout.writelines(fitted((*lines, *further_lines(show, bodies))))


def _check_options(given: Given) -> None:
    """Refuse options that would do nothing beside one another."""
    if str(given["output"]).endswith(".csv"):
        refuse("--output", given["output"], "no dataset", "FILE.nc, and --csv")
    kind = given["kind"]
    every: Options = given
    if kind not in (None, *FORMATS):
        refuse("--format", kind, "is unknown", nearest(kind, FORMATS))
    if kind and given["output"] and (kind == "zarr") != given["output"].endswith(".zarr"):
        refuse("--format", kind, "is another format than the output's", "one of the two")
    wrong = "is of results, and a dry run has none"
    of_results = {"as_csv": "--csv", "as_json": "--json", "asserts": "--assert", "page": "--page"}
    tell_all(
        [
            fault("--dry-run", "set", f"{option} {wrong}", "one of the two")
            for name, option in of_results.items()
            if given["dry_run"] and every[name]
        ]
    )


# What is of sweeps of formulas alone: a study has a way of its own.
OF_SWEEPS = (
    "settings",
    "verbose",
    "show",
    "max_memory",
    "resume",
    "workers",
    "scheduler",
    "formulas",
    "page",
)


# Configurations that are tried before anything is written.
MOST_TRIED = 200_000


def _check_valid(job: Job, name: str) -> None:
    """Refuse a sweep none of whose configurations is valid, before it writes anything."""
    if job.parts or job.program.grid.cells > MOST_TRIED:
        return
    status = job.program.evaluate((STATUS,)).get(STATUS)
    known = job.program.faults
    if status is None or not all(
        np.all(status & known.masking(variable.name))
        for variable in job.program.variables
        if variable.name not in FLAGS
    ):
        return
    always = int(np.bitwise_and.reduce(status, axis=None))
    any_of = int(np.bitwise_or.reduce(status, axis=None))
    why = [
        f"{fault_name.replace('_', ' ')} ({known.texts[fault_name]})"
        for fault_name in known.named(always or any_of)
    ]
    listed = "; ".join(why[:3]) + f"; and {len(why) - 3} more" * (len(why) > 3)
    wrong = f"{name}: no configuration is valid: {listed}"
    raise InputError(wrong)


def summary(path: Path) -> Iterator[str]:
    """Yield a table of a file's variables: dimensions, ranges, units."""
    rows = [("variable", "dimensions", "values", "min", "max", "missing")]
    for variable in describe(path).variables:
        dims = ", ".join(
            f"{dim} {size}" for dim, size in zip(variable.dims, variable.shape, strict=True)
        )
        cells = math.prod(variable.shape)
        ends = ("", "")
        if variable.minimum is not None and variable.maximum is not None and not variable.flags:
            units = str(variable.attrs.get("units", "1"))
            binary = in_powers_of_two(variable.name)
            low, high = variable.minimum, variable.maximum
            ends = (
                format_quantity(low, units, binary=binary),
                format_quantity(high, units, binary=binary),
            )
        holes = f"{variable.missing:,}" if variable.missing else ""
        rows.append((variable.name, dims or "(none)", f"{cells:,}", *ends, holes))
    yield from aligned(rows, left=len(rows[0]), indent="")


# ``sweeps info``: what is in a stored sweep, and whether it is intact.


@click.command("info", cls=Command)
@click.argument("file", metavar="FILE.nc")
@options("info")
@show_options("info")
def info_command(
    file: str, verifying: bool, showing: bool, show: tuple[str, ...], **_: bool
) -> int:
    """Describe a stored sweep: dimensions, variables, origin."""
    path = Path(file)
    if verifying:
        wrong = verify(path)
        if wrong:
            message = f"{path}: differs from its checksums: {', '.join(wrong)}"
            raise RunError(message)
        sys.stdout.write(f"{path}: every checksum holds\n")
        return 0
    about = describe(path)
    if showing:
        sys.stdout.write(str(about.attrs.get("spec", "")))
        return 0
    sys.stdout.writelines(fitted(_info_lines(path, about.attrs, show)))
    return 0


# Rows of a stored sweep's variables that its screen has.
FEW = 16


def _info_lines(path: Path, attrs: Mapping[str, object], show: Sequence[str]) -> Iterator[str]:
    for name in ("title", "summary", "history", "source", "Conventions"):
        if attrs.get(name):
            yield from wrapped(f"{name:<12}{' '.join(str(attrs[name]).split())[:320]}")
    rows = [*summary(path)]
    yield from ("", *rows[:FEW])
    if len(rows) > FEW:
        yield f"  {len(rows) - FEW} more lines: --show variables"
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "variables": lambda: summary(path),
        "sources": lambda: wrapped(" ".join(str(attrs.get("references", "")).split())),
    }
    yield from further_lines(show, bodies, "--spec, --verify")


# ``sweeps plot``: figures from a stored sweep alone.


@click.command("plot", cls=Command)
@click.argument("file", metavar="FILE.nc")
@options("plot")
def plot_command(file: str, wanted: tuple[str, ...], style: str | None) -> int:
    """Draw the figures that a stored sweep declares, or those that suit it."""
    draw_figures(Path(file), wanted=wanted, suffix=suffix_of(style))
    return 0


def suggested() -> tuple[str, ...]:
    """Return the suggested commands of ``suggested.txt``."""
    text = Path(__file__).with_name("suggested.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def combinations() -> dict[str, object]:
    """Return the predefined sweep: every network, operation and several numbers of ranks."""
    return {
        "title": "Predefined combinations",
        "axes": {"collective": "all", "topology": "all", "ranks": [2, 4, 8, 16, 32, 64, 128]},
        "constants": {"message_bytes": "140 GB"},
    }


def analyses() -> tuple[str, ...]:
    """Return the suggested analyses: the commands' arguments, each once."""
    start = "sweeps analysis "
    output = (" --verbose", " --csv")
    lines = [line.removeprefix(start) for line in suggested() if line.startswith(start)]
    for end in output:
        lines = [line.removesuffix(end) for line in lines]
    return tuple(dict.fromkeys(lines))


# ``sweeps list-cmds``: suggested commands, one a line.


@click.command("list-cmds", cls=Command)
def list_cmds_command() -> int:
    """List suggested commands, one a line: ``sweeps list-cmds | sh`` runs them all."""
    sys.stdout.writelines(line + "\n" for line in suggested())
    return 0


# ``sweeps run-all``: all predefined combinations as one table.

TITLE = "Predefined combinations: collective operations and training steps"


@click.command("run-all", cls=Command)
@result_options
def run_all_command(**given: Unpack[Given]) -> int:
    """Evaluate every predefined combination; print one table, as CSV where nothing is said.

    Every network, operation and several numbers of ranks, and each suggested analysis.
    """
    out = Output({**given, "as_csv": not given["as_json"]}, "run-all").checked()
    collectives = prepare(combinations(), command=["sweeps", "run-all"])
    evaluated = {"collective": collectives.evaluated(), **dict(_analyses())}
    rows = [
        {"command": name, **row} for name, report in evaluated.items() for row in report.records()
    ]
    attrs = provenance_of(title=TITLE, spec={"commands": list(evaluated)}, given=given)
    fields = [Field("command", "command", "command that gives the row")]
    fields += {f.record: f for report in evaluated.values() for f in report.fields()}.values()
    out.deliver(of_rows(rows, fields, attrs), draw=lambda stem: _draw(collectives, stem))
    return 0


def _analyses() -> Iterator[tuple[str, Result]]:
    from sweeps.cli.analysis_job import analysis_job

    for line in analyses():
        given = analysis.make_context("analysis", shlex.split(line)).params
        job = analysis_job(
            analysis_of_options(cast("Given", given))[0], command=["sweeps", "run-all"]
        )
        yield f"analysis {line}", job.evaluated()


def _draw(job: Job, stem: Path) -> Iterator[Path]:
    """Draw the figures that suit the collective operations."""
    from sweeps.plots.defaults import default_figures
    from sweeps.plots.draw import draw

    dataset = job.dataset()
    for figure in check_figures(default_figures(dataset), subject_of(dataset)):
        yield from draw(dataset, figure, stem.with_name(f"{stem.name}-{figure.name}"))
