"""Runs commands that must be refused, and looks at the lines that say why."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from sweeps.cli import run
from sweeps.engine.grid import Block
from sweeps.engine.group import Group

__all__ = ["BASE", "Refused", "one"]

BASE = "collective --topology ring --N 8 --M 1e6"
# More than this isn't computed for a command that is refused.
FEW_CELLS = 10_000


class Refused:
    """Runs a command that must be refused, and returns the lines that say why."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, line: str, *more: str, code: int = 2) -> list[str]:
        self.capsys.readouterr()
        cells, original = 0, Group.at

        def counted(*args: Any, **named: Any) -> list[Block]:
            nonlocal cells
            blocks = original(*args, **named)
            cells += sum(block.values.size for block in blocks)
            assert cells <= FEW_CELLS
            return blocks

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Group, "at", counted)
            returned = run([*shlex.split(line), *more])
        found = self.capsys.readouterr()
        assert returned == code, (found.out, found.err)
        assert found.out == ""
        lines = found.err.splitlines()
        assert lines
        assert all(one.startswith("sweeps: ") for one in lines), lines
        assert "Traceback" not in found.err
        return [one.removeprefix("sweeps: ") for one in lines]


def one(lines: list[str], *parts: str) -> None:
    """Check that there is one line, that has the form of a fault, with these parts in order."""
    (line,) = lines
    assert re.fullmatch(r".+: .+; .+|.+ needs? .+; give .+", line), line
    place = 0
    for part in parts:
        assert part in line[place:], (part, line)
        place = line.index(part, place) + len(part)
