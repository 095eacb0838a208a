"""``sweeps plot``: figures from a stored sweep alone."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("plot")
@click.argument("file", metavar="FILE.nc")
@click.option("--figure", "wanted", multiple=True, metavar="NAME", help="Only these figures.")
def command(file: str, wanted: tuple[str, ...]) -> int:
    """Draw the figures that a stored sweep declares, or those that suit it."""
    from sweeps.cli.write import draw_figures

    draw_figures(Path(file), wanted=wanted)
    return 0
