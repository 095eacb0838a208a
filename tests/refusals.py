"""Looks at the lines that say why a command is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["BASE", "Refused", "one"]

BASE = "collective --topology ring --N 8 --M 1e6"
# Runs a command that must be refused, and returns the lines that say why.
Refused = Callable[..., list[str]]


def one(lines: list[str], *parts: str) -> None:
    """Check that there is one line, that has the form of a fault, with these parts in order."""
    (line,) = lines
    assert re.fullmatch(r".+: .+; .+|.+ needs? .+; give .+", line), line
    position = 0
    for part in parts:
        assert part in line[position:], (part, line)
        position = line.index(part, position) + len(part)
