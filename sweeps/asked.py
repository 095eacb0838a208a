"""The command that runs, as the file of its result tells it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar

# Options that decide how a command is run, not what is in its file: with a value, and alone.
VALUED = {"--workers", "--scheduler", "--max-memory", "--output", "--style"}
ALONE = {"--resume", "--overwrite", "--plot", "--no-plot", "--csv", "--json", "--verbose", "-v"}


def recorded(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments as its file tells them: the same however it was run."""
    kept, skipped = [], False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if skipped:
            skipped = False
        elif name in VALUED | ALONE:
            skipped = name in VALUED and not value
        else:
            kept.append(argument)
    return kept


ASKED: ContextVar[Sequence[str]] = ContextVar("asked")  # By Python, in place of what is typed


def command_line() -> list[str]:
    """Return the command that runs, as its file tells it."""
    return ["sweeps", *recorded(ASKED.get(sys.argv[1:]))]
