"""``sweeps catalog``: machines, their figures and where these come from."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["command"]


@click.command("catalog")
@click.argument("names", nargs=-1)
@click.option("--hardware-folder", multiple=True, metavar="FOLDER", help="Own machines.")
def command(names: tuple[str, ...], hardware_folder: tuple[str, ...]) -> int:
    """List the machines; with NAMES, every figure of these with its source."""
    from sweeps.spec.catalog import hardware_names, load_hardware
    from sweeps.spec.units import format_quantity

    folders = [Path(folder) for folder in hardware_folder]
    if not names:
        known = hardware_names(folders)
        width = max(map(len, known), default=0)
        for name in known:
            sys.stdout.write(f"{name.ljust(width)}  {load_hardware(name, folders).title}\n")
        return 0
    for name in names:
        machine = load_hardware(name, folders)
        sys.stdout.write(f"{machine.name}  {machine.title}\n  {machine.summary}\n")
        width = max(map(len, machine.figures), default=0)
        for quantity, figure in machine.figures.items():
            shown = format_quantity(figure.value, figure.units)
            line = f"  {quantity.ljust(width)}  {shown:<14} {figure.kind:<14} {figure.source}"
            sys.stdout.write(line.rstrip() + "\n")
        for level, abilities in (
            ("node", machine.in_network),
            ("fabric", machine.scale_out_in_network),
        ):
            told = ", ".join(abilities) or "nothing"
            sys.stdout.write(f"  the {level}'s switch reduces in the network by: {told}\n")
    return 0
