"""Runs commands as a user does, in this process, and returns what they tell."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shlex
import time
from dataclasses import dataclass
from typing import Any

import pytest

from sweeps.cli import run
from sweeps.engine.grid import Block
from sweeps.engine.group import Group

__all__ = ["Done", "Runner", "drawn_in"]

# More than this isn't computed for a command that is refused.
FEW_CELLS = 10_000


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))

    @property
    def records(self) -> list[dict[str, Any]]:
        return json.loads(self.out)  # type: ignore[no-any-return]


class Runner:
    """Runs commands in this process, in a folder of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, line: str, *more: str, fine: bool = True) -> Done:
        self.capsys.readouterr()
        ticks = itertools.count()
        with pytest.MonkeyPatch.context() as patch:
            # What a command tells of how long it takes doesn't depend on how fast the machine is.
            patch.setattr(time, "monotonic", lambda: 1e-6 * next(ticks))
            patch.setattr(time, "perf_counter", lambda: 1e-3 * next(ticks))
            code = run([*shlex.split(line), *more])
        captured = self.capsys.readouterr()
        if fine:
            assert code == 0, captured.err
            assert captured.err == ""
        return Done(code, captured.out, captured.err)

    def refused(self, line: str, *more: str) -> str:
        """Run a command that must be refused before it computes much, and return why."""
        cells, original = 0, Group.at

        def counted(*args: Any, **named: Any) -> list[Block]:
            nonlocal cells
            blocks = original(*args, **named)
            cells += sum(block.values.size for block in blocks)
            assert cells <= FEW_CELLS
            return blocks

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Group, "at", counted)
            done = self(line, *more, fine=False)
        assert (done.code, done.out) == (2, ""), done
        lines = done.err.splitlines()
        assert lines
        assert all(fault.startswith("sweeps: ") for fault in lines), lines
        assert "Traceback" not in done.err
        return "\n".join(fault.removeprefix("sweeps: ") for fault in lines)


def drawn_in(text: str) -> list[str]:
    """Return the files that a command says it drew: "drew a.png and .svg" are two."""
    lines = []
    for first, endings in re.findall(r"^drew (\S+)((?: and \.\w+)*)$", text, re.M):
        lines += [
            first,
            *(first.rpartition(".")[0] + match for match in re.findall(r"\.\w+", endings)),
        ]
    return lines
