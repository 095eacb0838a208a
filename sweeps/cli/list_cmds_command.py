"""``sweeps list-cmds``: suggested commands, one a line."""

from __future__ import annotations

import sys

import click

from sweeps.cli.suggestions import COMMANDS


@click.command("list-cmds")
def command() -> int:
    """List suggested commands, one a line: ``sweeps list-cmds | sh`` runs them all."""
    sys.stdout.writelines(line + "\n" for line in COMMANDS)
    return 0
