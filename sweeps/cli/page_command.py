"""Pages that hold what they show, or compute it: ``sweeps page``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from overhead.labels import LABELS
from sweeps.cli import flags
from sweeps.cli.analysis_command import analysis_options, stated_analysis
from sweeps.cli.options import folders_of, grouped_lines
from sweeps.errors import InputError, fault, needs

if TYPE_CHECKING:
    from sweeps.page.write import Page


@click.command("page", cls=flags.SweepCommand)
@click.argument("file", metavar="[FILE.nc]", required=False)
@analysis_options
@click.option("--hardware-folder", multiple=True, metavar="FOLDER", help="Own machines.")
@click.option("--output", metavar="FILE.html",
              help="The page.  [default: beside FILE.nc; or MODEL-HARDWARE.html]")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a page that exists.")
@click.option("--at", "held", multiple=True, metavar="DIMENSION=VALUE",
              help="Hold a dimension of FILE.nc at one entry.")  # fmt: skip
@click.option("--quantity", "quantities", multiple=True, metavar="NAME",
              help="Take only these results of FILE.nc.")  # fmt: skip
def command(file: str | None, **given: Any) -> int:
    """Write one page: a file to open, to touch and to pass on.

    It needs no server and no network.  Of a stored sweep it has a control for every dimension,
    the best cell within limits that its reader sets, each number with its reasons and source.
    Of a plan (--model, --hardware, --gpus ..) it is a calculator that follows every slider.
    """
    stated = [name for name in flags.OF_TRAINING if given[name] is not None]
    if file is None:
        write_live(given)
        return 0
    if stated:
        wrong = f"a page of {file} has its own values"
        raise InputError(
            [fault(flags.flag_of(n), given[n], wrong, "one of the two") for n in stated]
        )
    path = Path(file)
    output = Path(given["output"] or path.with_suffix(".html"))
    write_stored(path, output, given, overwrite=given["overwrite"])
    return 0


def write_live(given: dict[str, Any]) -> None:
    """Write the page of one plan, and say so."""
    from sweeps.page.live import page_of
    from sweeps.result import command_line

    if not any(given[name] for name in ("model", "parameters", "layers")):
        raise InputError(needs("a page", "what it is of", "FILE.nc, or --model NAME"))
    stated, readings = stated_analysis(given)
    options = flags.given_options(given, flags.OF_TRAINING)
    names = [options["model"] or "model", options["hardware"] or LABELS["hardware"].default]
    output = Path(given["output"] or f"{'-'.join(Path(name).stem for name in names)}.html")
    _check(output, overwrite=given["overwrite"])
    page = page_of(
        stated, options, flags.flag_of, grouped_lines,
        command=command_line(), folders=folders_of(given),
    )  # fmt: skip
    sys.stdout.writelines(f"({line})\n" for line in readings)
    _write(page, output, overwrite=given["overwrite"])


def _check(output: Path, *, overwrite: bool) -> None:
    from sweeps.store.publish import check_output

    if output.suffix not in (".html", ".htm"):
        raise InputError(fault("--output", str(output), "is no page", "FILE.html"))
    check_output(output, overwrite=overwrite)


def _write(page: Page, output: Path, *, overwrite: bool, notes: TextIO | None = None) -> None:
    from sweeps.cli.write import readable
    from sweeps.page.write import write_page

    written = write_page(page, output, overwrite=overwrite)
    (notes or sys.stdout).write(f"wrote {output} ({readable(written)})\n")


def write_stored(
    source: Path,
    output: Path,
    given: Mapping[str, Any],
    *,
    overwrite: bool,
    notes: TextIO | None = None,
) -> None:
    """Write the page of a stored sweep, and say so."""
    from sweeps.cli.write import figures_of
    from sweeps.page.pack import page_of
    from sweeps.store.read import open_dataset

    pairs = [text.partition("=") for text in given.get("held", ())]
    wrong = [
        fault("--at", dim, "has no value", "--at DIMENSION=VALUE") for dim, _, v in pairs if not v
    ]
    if wrong:
        raise InputError(wrong)
    _check(output, overwrite=overwrite)
    with open_dataset(source, require_ours=False) as dataset:
        page = page_of(
            dataset,
            figures_of(dataset),
            source.name,
            at={dim: value for dim, _, value in pairs},
            quantities=given.get("quantities", ()),
        )
    _write(page, output, overwrite=overwrite, notes=notes)
