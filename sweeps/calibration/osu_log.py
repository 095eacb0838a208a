"""Reader of tables of the OSU micro-benchmarks: ``# OSU NCCL-CUDA Allreduce Latency Test v7.5``.

Sizes of an all-gather and of an all-to-all are what a rank sends to each: the message is as many
times as large.  Layouts are those of versions 5.6 to 7.5: a size and its average latency in us,
or its bandwidth in MB/s, and further columns with ``-f``, and the check with ``-c``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from sweeps.calibration.log import WORDS, Left, LogRow, Logs, LogTest
from sweeps.calibration.settings import setting_of
from sweeps.errors import InputError, reject

_TITLE = re.compile(r"#\s*OSU\s+(\S+?)(-\w+)?\s+(.*?)\s+Test\b(?:\s+v(\S+))?")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+(?:\.\d+)?)((?:\s+\S+)*)\s*$")
_COUNT = re.compile(r"\bosu_\w+")
_RANKS = re.compile(r"(?:^|\s)(?:-n|-np|--np|--ntasks)[ =](\d+)\b")
_LONGEST = 500  # characters of a line of these programs
_SHARES = ("all_gather", "all_to_all")


def is_osu(text: str) -> bool:
    """Return whether a text has tables of these benchmarks."""
    return any(_title(line) for line in text.splitlines() if "OSU" in line)


def _title(line: str) -> re.Match[str] | None:
    return _TITLE.search(" ".join(line[:_LONGEST].split()))


def read_osu_log(path: Path, text: str) -> Logs:
    """Read the tables of a text."""
    logs = Logs()
    ranks, settings = 0, dict[str, str]()
    title: re.Match[str] | None = None
    begin, rows, dead = 0, list[LogRow](), list[int]()
    lines = [*enumerate(text.splitlines(), start=1), (0, "# OSU END end Test")]
    for number, whole in lines:
        line = whole[:_LONGEST]
        if setting := setting_of(line):
            settings[setting[0]] = setting[1]
        if _COUNT.search(line) and (given := _RANKS.search(line)):
            ranks = int(given[1])
        if match := _title(line):
            if title is not None:
                try:
                    logs.tests.append(_test(path, title, begin, rows, dead, ranks, settings))
                except InputError as error:
                    logs.left += [Left(fault) for fault in error.faults]
            title, begin, rows, dead = match, number, [], []
        elif title is not None and (cells := _ROW.match(line)):
            row = _row(number, title, cells)
            if row is None:
                dead.append(number)
            else:
                rows.append(row)
    return logs


def _row(number: int, title: re.Match[str], cells: re.Match[str]) -> LogRow | None:
    size, value = float(cells[1]), float(cells[2])
    if not (0.0 < size < math.inf and 0.0 < value < math.inf):
        return None
    time = size / (value * 1e6) if "andwidth" in title[3] else value * 1e-6
    checked = cells[3].lower().split()[-1:]
    wrong = float(checked == ["fail"]) if checked in (["pass"], ["fail"]) else math.nan
    return LogRow(number, size, time, wrong=wrong)


def _test(
    path: Path,
    title: re.Match[str],
    line: int,
    rows: list[LogRow],
    dead: list[int],
    ranks: int,
    settings: dict[str, str],
) -> LogTest:
    where, name = f"{path.name}, line {line}", title[3].strip()
    operation = WORDS["osu"].get(name.lower(), "")
    if not operation:
        known = "Allreduce, Allgather, Reduce_scatter, Broadcast, Reduce, All-to-All, Bandwidth"
        reject(where, f"'{name}' is no operation that is modelled; known: {known}")
    if not title[2]:
        reject(where, "buffers are in the host's memory; run it with those of GPUs (-d cuda D D)")
    if not rows:
        reject(where, "no rows below the title; did the test fail? run it again")
    notes = []
    library = "" if "CCL" in title[1].upper() else title[1]
    if dead:
        notes.append(f"left out rows without a size and a time: line {dead[0]}")
    if "andwidth" in name:
        notes.append("a window of messages in flight: times are size by bandwidth")
    return LogTest(
        path=path,
        line=line,
        operation=operation,
        rows=tuple(rows),
        ranks=2 if operation == "p2p" else ranks,
        notes=tuple(notes),
        versions={"OSU": title[4]} if title[4] else {},
        settings={key: value for key, value in settings.items() if value},
        shares=operation in _SHARES,
        library=library,
    )
