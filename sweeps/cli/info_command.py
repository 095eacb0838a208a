"""``sweeps info``: what is in a stored sweep, and whether it is intact."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("info")
@click.argument("file", metavar="FILE.nc")
@click.option("--verify", "verifying", is_flag=True, help="Compare the stored checksums.")
@click.option("--spec", "showing", is_flag=True, help="Print the spec that it comes from.")
def command(file: str, verifying: bool, showing: bool) -> int:
    """Say what is in a stored sweep: dimensions, variables, origin."""
    from sweeps.cli.run_command import summary
    from sweeps.errors import RunError
    from sweeps.store.read import describe, verify

    path = Path(file)
    if verifying:
        wrong = verify(path)
        if wrong:
            message = f"{path}: differs from its checksums: {', '.join(wrong)}"
            raise RunError(message)
        sys.stdout.write(f"{path}: every checksum holds\n")
        return 0
    about = describe(path)
    if showing:
        sys.stdout.write(str(about.attrs.get("spec", "")))
        return 0
    for name in ("title", "summary", "history", "source", "Conventions", "references"):
        if about.attrs.get(name):
            sys.stdout.write(f"{name:<12}{about.attrs[name]}\n")
    sys.stdout.writelines(line + "\n" for line in summary(path))
    return 0
