"""A step's constants fitted to measured steps: ``python -m tests.maintenance.fit_constants``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from sweeps.cli.option_table import options
from sweeps.cli.options import result_options
from sweeps.cli.typed import Command, folders_of
from sweeps.cli.write import Output
from sweeps.errors import InputError, refuse
from sweeps.result import Field, of_rows, provenance_of
from sweeps.validate.run_table import find_runs, read_rules, read_runs, shipped_rules
from sweeps.validate.training_rows import cases_of_runs
from sweeps.wrapping import aligned
from tests.maintenance.fit import (
    Fit,
    error_table,
    fit,
    read_plan,
    rows_of,
    taken,
    write_constants,
)

# What is told of a constant, with its unit.
FITTED = {"constant": "", "prior": "1", "value": "1", "uncertainty": "1", "rows": "1"}


@click.command("fit_constants", cls=Command)
@click.argument("tables", nargs=-1, metavar="[TABLE.csv]...")
@click.option("--terms", metavar="FILE.toml", help="What is fitted, around what; fit.toml here.")
@click.option("--write", metavar="FOLDER", help="Write them into FOLDER/hardware, /frameworks.")
@click.option("--no-fit", is_flag=True, help="Errors with the constants as they are.")
@click.option("--rules", metavar="FILE.toml", help="Own rules, after those that are shipped.")
@options("folders", "hardware_folder")
@result_options
def command(tables: tuple[str, ...], **given: Any) -> int:
    """Fit the constants of a step to measured steps, with the errors of rows left out.

    TABLE is a path, or the name of a table that is shipped; training by default.
    """
    out = Output(given, "fit-constants", FITTED).checked()
    folder = Path(given["write"]) if given["write"] else None
    if folder and not (folder / "hardware").is_dir():
        wrong, allowed = "has no hardware", "a copy of specs, with hardware and frameworks"
        refuse("--write", given["write"], wrong, allowed)
    if folder and given["no_fit"] and not (folder / "measured").is_dir():
        wrong = "has no measured, where errors of constants as they are would be written"
        refuse("--write", given["write"], wrong, "a copy of specs, or no --no-fit")
    plan = read_plan(Path(given["terms"]) if given["terms"] else None)
    folders = folders_of(given)
    rules = shipped_rules()
    if given["rules"]:
        rules = (*rules, *read_rules(Path(given["rules"])))
    runs = [run for name in tables or ("training",) for run in read_runs(find_runs(name)).runs]
    cases = taken(cases_of_runs(runs, rules, folders, ("step_time",)).cases, plan)
    if not cases:
        refuse("TABLE", ", ".join(tables), "no row to fit", "steps of known plans")
    tell = None if given["no_fit"] else lambda line: click.echo(line, err=True)
    rounds = {"rounds": 0} if given["no_fit"] else {}
    fitted = fit(cases, plan, folders, tell=tell, **rounds)
    rows = [
        {
            "constant": term.name,
            "prior": term.prior,
            "value": value,
            "uncertainty": spread,
            "rows": count,
        }
        for term, value, spread, count in zip(
            fitted.terms, fitted.values(), fitted.spread, rows_of(fitted), strict=True
        )
    ]
    attrs = provenance_of(
        title="Constants of a training step, fitted to measured steps",
        spec={"tables": list(tables) or ["training"]},
        given=given,
        references="each row's source_ref says where it stands",
        inputs=rows,
        command=["python", "-m", "tests.maintenance.fit_constants", *sys.argv[1:]],
    )
    result = of_rows(rows, [Field(name, name, name, unit) for name, unit in FITTED.items()], attrs)
    out.deliver(result, fit_lines(fitted, rows, plan.leave), ())
    if folder:
        for path in write_constants(fitted, folder):
            click.echo(f"written: {path}", err=True)
    return 0


def fit_lines(fitted: Fit, rows: list[dict[str, Any]], leave: Mapping[str, str]) -> Iterator[str]:
    """Yield constants, then errors by class and by source, for people."""
    errors = [
        f"{100.0 * float(np.mean(np.abs(np.expm1(residuals)))):.2g}%{name}"
        for name, residuals in (
            ("", fitted.residuals),
            *((f" without its own {name}", found) for name, found in fitted.left_out.items()),
        )
    ]
    steps = f"{len(fitted.cases):,} measured steps"
    yield f"{len(rows)} constants fitted to {steps}: mean error of a row {', '.join(errors)}"
    yield ""
    table = [["constant", "prior", "value", "x/÷", "rows"]]
    for row in rows:
        shown = [f"{row[name]:.4g}" for name in ("prior", "value")]
        table.append([row["constant"], *shown, f"{1.0 + row['uncertainty']:.3f}", f"{row['rows']}"])
    yield from aligned(table, indent="")
    for by in ("class", "source"):
        yield ""
        yield f"error by {by}: mean, and median, with all rows, and without a row's own .."
        yield from aligned(error_table(fitted, by), indent="")
    yield ""
    yield "left out of the fit: " + "; ".join(f"{name}, {why}" for name, why in leave.items())


if __name__ == "__main__":
    try:
        command()
    except InputError as error:
        sys.exit("\n".join(error.faults))
