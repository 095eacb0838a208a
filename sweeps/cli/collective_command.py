"""``sweeps collective``: a report for one cell, a table for many."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.options import (
    COLLECTIVE_FLAGS,
    collective_options,
    file_options,
    output_options,
    stated_sweep,
    tree_algorithms,
)

if TYPE_CHECKING:
    from sweeps.job import Job

__all__ = ["command"]

# More cells than this are evaluated for a file or a reduction, not for the terminal; beside a file
# fewer, for only the first of them are shown.
MOST_SHOWN = 10**7
MOST_BESIDE = 10**5


@click.command("collective")
@collective_options
@click.option("--tree-algo", is_flag=True, help="The tree algorithm of an all_reduce.")
@click.option("--verbose", "-v", is_flag=True, help="Formula, source, and the numbers put in.")
@output_options
def command(**given: Any) -> int:
    """Cost of a collective operation on a network.

    One value for every argument prints a report; several print a table.
    """
    from sweeps.errors import InputError
    from sweeps.job import prepare
    from sweeps.own_formulas import load_formulas

    for path in given["formulas"]:
        load_formulas(Path(path))
    names = [name for _, name, _ in COLLECTIVE_FLAGS]
    options = {name: given[name] for name in names}
    if given["tree_algo"]:
        options["algorithm"] = tree_algorithms(options["topology"], options["algorithm"])
    _check_needed(options)
    stated = stated_sweep(options, "Collective operations")
    folders = [Path(folder) for folder in given["hardware_folder"]]
    job = prepare(
        stated,
        command=["sweeps", *sys.argv[1:]],
        folders=folders,
        options=file_options(given),
    )
    writing = given["output"] or given["plot"]
    beside = writing and not (given["as_csv"] or given["as_json"])
    small = job.plan.grid.cells <= (MOST_BESIDE if beside else MOST_SHOWN)
    if not (writing or small):
        from sweeps.errors import fault

        job.check_size()
        shown = f"{job.plan.grid.cells:,} cells"
        allowed = "use --output FILE.nc, or 'sweeps run' with a reduction"
        raise InputError(fault("axes", shown, "too many to print", allowed))
    # What can't be printed isn't written either.
    lines: Iterable[str] = _lines(job, job.plan.evaluate(), given) if small else ()
    if writing:
        from sweeps.cli.write import write_result

        lines = list(lines) if job.plan.grid.cells == 1 else lines
        write_result(job, given)
    sys.stdout.writelines(lines)
    return 0


def _check_needed(options: dict[str, Any]) -> None:
    from sweeps.errors import InputError, fault

    faults = []
    if options["message_bytes"] is None:
        faults.append(fault("--M", "(not given)", "needed", "a message size, such as 64MiB"))
    if options["ranks"] is None and options["mesh_nx"] is None:
        faults.append(fault("--N", "(not given)", "needed", "a number of ranks, such as 8"))
    if faults:
        raise InputError(faults)


def _lines(job: Job, arrays: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is printed: records for programs, a report or a table for people."""
    from sweeps.cli.origins import assumed_lines
    from sweeps.cli.records import Cells, as_csv, as_json, as_table
    from sweeps.cli.report import report, statements

    cells = Cells(job.plan, arrays)
    if given["as_json"] or given["as_csv"]:
        yield from as_json(cells) if given["as_json"] else as_csv(cells)
    elif len(cells) == 1:
        yield from (line + "\n" for line in report(job, cells, given["verbose"]))
    else:
        yield from as_table(cells)
        yield from (line + "\n" for line in assumed_lines(job, brief=True))
        if given["verbose"]:
            yield from (line + "\n" for line in statements(job))
