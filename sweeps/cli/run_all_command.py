"""``sweeps run-all``: all predefined combinations as one table."""

from __future__ import annotations

import sys

import click

__all__ = ["command"]


@click.command("run-all")
@click.option("--json", "as_json_too", is_flag=True, help="Records as JSON instead of CSV.")
def command(as_json_too: bool) -> int:
    """Evaluate every network, operation and several numbers of ranks; print one CSV table."""
    from sweeps.cli.records import Cells, as_csv, as_json
    from sweeps.cli.suggestions import combinations
    from sweeps.job import prepare

    job = prepare(combinations(), command=["sweeps", "run-all"])
    cells = Cells(job.plan, job.plan.evaluate())
    for line in as_json(cells) if as_json_too else as_csv(cells):
        sys.stdout.write(line)
    return 0
