"""``sweeps run-all``: all predefined combinations as one table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import click


@click.command("run-all")
@click.option("--json", "as_json_too", is_flag=True, help="Records as JSON instead of CSV.")
def command(as_json_too: bool) -> int:
    """Evaluate every predefined combination; print one CSV table.

    Every network, operation and several numbers of ranks, and each suggested analysis.
    """
    from sweeps.cli.records import csv_lines, json_lines

    records = [*_collectives(), *_analyses()]
    header = list(dict.fromkeys(name for record in records for name in record))
    for line in json_lines(records) if as_json_too else csv_lines(records, header):
        sys.stdout.write(line)
    return 0


def _collectives() -> Iterator[dict[str, Any]]:
    from sweeps.cli.records import Cells, named_records
    from sweeps.cli.suggestions import combinations
    from sweeps.job import prepare

    job = prepare(combinations(), command=["sweeps", "run-all"])
    for record in named_records(Cells(job.plan, job.plan.evaluate())):
        yield {"command": "collective", **record}


def _analyses() -> Iterator[dict[str, Any]]:
    from sweeps.cli.analysis_command import command as analysis
    from sweeps.cli.analysis_command import stated_analysis
    from sweeps.cli.analysis_job import analysis_job
    from sweeps.cli.records import Cells, named_records
    from sweeps.cli.suggestions import analyses

    for line in analyses():
        given = analysis.make_context("analysis", shlex.split(line)).params
        job = analysis_job(stated_analysis(given), command=["sweeps", "run-all"])
        for record in named_records(Cells(job.plan, job.plan.evaluate(job.stored))):
            yield {"command": f"analysis {line}", **record}
