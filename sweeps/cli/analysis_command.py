"""``sweeps analysis``: a report for one configuration, a table for many."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.analysis_options import analysis_options, stated_analysis
from sweeps.cli.options import file_options, output_options

if TYPE_CHECKING:
    from overhead.step.timeline import StepTimeline
    from sweeps.job import Job

__all__ = ["command"]


@click.command("analysis")
@analysis_options
@click.option("--timeline", metavar="FILE.json", help="Predicted course, as a Chrome trace.")
@click.option("--verbose", "-v", is_flag=True, help="Formula, source, and the numbers put in.")
@output_options
def command(**given: Any) -> int:
    """Memory, communication and step time of a training configuration.

    One value for every argument prints a report; several print a table.  --timeline writes when
    what of one plan's step runs; with --plot, a figure of it beside.
    """
    from sweeps.cli.analysis_job import analysis_job, check_printable
    from sweeps.own_formulas import load_formulas

    for path in given["formulas"]:
        load_formulas(Path(path))
    job = analysis_job(
        stated_analysis(given),
        command=["sweeps", *sys.argv[1:]],
        folders=[Path(folder) for folder in given["hardware_folder"]],
        options=file_options(given),
    )
    step = _timeline(job) if given["timeline"] else None
    writing = bool(given["output"] or (given["plot"] and step is None))
    small = check_printable(job, given, writing=writing)
    # What can't be printed isn't written either.
    lines: Iterable[str] = _lines(job, job.plan.evaluate(job.stored), given) if small else ()
    if writing:
        from sweeps.cli.write import default_folder, write_result

        given["output"] = given["output"] or str(default_folder() / "analysis.nc")
        lines = list(lines) if job.plan.grid.cells == 1 else lines
        write_result(job, given)
    sys.stdout.writelines(lines)
    if step is not None:
        from sweeps.cli.analysis_timeline import write_timeline

        write_timeline(job, step, given)
    return 0


def _timeline(job: Job) -> StepTimeline:
    """Return the course of a plan's step; where there is none, nothing is written either."""
    from sweeps.cli.analysis_timeline import timeline_of

    return timeline_of(job)


def _lines(job: Job, arrays: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is printed: records for programs, a report or a table for people."""
    from sweeps.cli.analysis_report import report, table_notes
    from sweeps.cli.records import Cells, as_csv, as_json, as_table

    cells = Cells(job.plan, arrays)
    if given["as_json"] or given["as_csv"]:
        yield from as_json(cells) if given["as_json"] else as_csv(cells)
    elif len(cells) == 1:
        yield from (line + "\n" for line in report(job, given["verbose"]))
    else:
        yield from as_table(cells)
        yield from (line + "\n" for line in table_notes(job, given["verbose"]))
