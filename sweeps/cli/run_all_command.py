"""``sweeps run-all``: all predefined combinations as one table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.options import result_options

if TYPE_CHECKING:
    from sweeps.job import Job
    from sweeps.result import Result

TITLE = "Predefined combinations: collective operations and training steps"


@click.command("run-all")
@result_options
def command(**given: Any) -> int:
    """Evaluate every predefined combination; print one table, as CSV where nothing is said.

    Every network, operation and several numbers of ranks, and each suggested analysis.
    """
    from sweeps.cli.write import Output
    from sweeps.result import csv_lines, of_rows, provenance_of

    out = Output(given, "run-all")
    out.check()
    collectives = _collectives()
    found = {"collective": collectives.evaluated(), **dict(_analyses())}
    rows = [{"command": name, **row} for name, own in found.items() for row in own.records()]
    attrs = provenance_of(title=TITLE, stated={"commands": list(found)}, given=given)
    result = of_rows(rows, _fields(found.values()), attrs)
    if out.wanted:
        out.write(result, draw=lambda stem: _draw(collectives, stem))
    out.show(result, csv_lines(rows, result.header()))
    return 0


def _fields(results: Any) -> list[Any]:
    """Return the columns of all results, each once."""
    from sweeps.result import Field

    known = {one.record: one for result in results for one in result.fields()}
    return [Field("command", "command", "command that gives the row"), *known.values()]


def _collectives() -> Job:
    from sweeps.cli.suggestions import combinations
    from sweeps.job import prepare

    return prepare(combinations(), command=["sweeps", "run-all"])


def _analyses() -> Iterator[tuple[str, Result]]:
    from sweeps.cli.analysis_command import command as analysis
    from sweeps.cli.analysis_command import stated_analysis
    from sweeps.cli.analysis_job import analysis_job
    from sweeps.cli.suggestions import analyses

    for line in analyses():
        given = analysis.make_context("analysis", shlex.split(line)).params
        job = analysis_job(stated_analysis(given), command=["sweeps", "run-all"])
        yield f"analysis {line}", job.evaluated()


def _draw(job: Job, stem: Path) -> Iterator[Path]:
    """Draw the figures that suit the collective operations."""
    from sweeps.plots.data import subject_of
    from sweeps.plots.declare import check_figures
    from sweeps.plots.defaults import default_figures
    from sweeps.plots.draw import draw

    dataset = job.dataset()
    subject = subject_of(dataset)
    for figure in check_figures(default_figures(dataset), subject.dims, subject.variables):
        yield from draw(dataset, figure, stem.with_name(f"{stem.name}-{figure.name}"))
