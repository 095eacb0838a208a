"""Pages that hold what they show: ``sweeps page``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import click


@click.command("page")
@click.argument("file", metavar="FILE.nc")
@click.option("--output", metavar="FILE.html", help="The page.  [default: beside FILE.nc]")
@click.option("--overwrite", is_flag=True, help="Replace a page that exists.")
@click.option("--at", "held", multiple=True, metavar="DIMENSION=VALUE",
              help="Hold a dimension at one entry.")  # fmt: skip
@click.option("--quantity", "quantities", multiple=True, metavar="NAME",
              help="Take only these results.")  # fmt: skip
def command(file: str, **given: Any) -> int:
    """Write a stored sweep as one page: a file to open, to touch and to pass on.

    It needs no server and no network: a control for every dimension, the best cell within limits
    that its reader sets, each number with its reasons and source.
    """
    path = Path(file)
    output = Path(given["output"] or path.with_suffix(".html"))
    write_stored(path, output, given, overwrite=given["overwrite"])
    return 0


def write_stored(
    source: Path,
    output: Path,
    given: Mapping[str, Any],
    *,
    overwrite: bool,
    notes: TextIO | None = None,
) -> None:
    """Write the page of a stored sweep, and say so."""
    from sweeps.cli.write import figures_of, readable
    from sweeps.errors import InputError, fault
    from sweeps.page.pack import page_of
    from sweeps.page.write import write_page
    from sweeps.store.publish import check_output
    from sweeps.store.read import open_dataset

    if output.suffix not in (".html", ".htm"):
        raise InputError(fault("--output", str(output), "is no page", "FILE.html"))
    pairs = [text.partition("=") for text in given.get("held", ())]
    wrong = [
        fault("--at", dim, "has no value", "--at DIMENSION=VALUE") for dim, _, v in pairs if not v
    ]
    if wrong:
        raise InputError(wrong)
    check_output(output, overwrite=overwrite)
    with open_dataset(source, require_ours=False) as dataset:
        page = page_of(
            dataset,
            figures_of(dataset),
            source.name,
            at={dim: value for dim, _, value in pairs},
            quantities=given.get("quantities", ()),
        )
    written = write_page(page, output, overwrite=overwrite)
    (notes or sys.stdout).write(f"wrote {output} ({readable(written)})\n")
