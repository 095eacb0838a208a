"""Reader of the text that nccl-tests and rccl-tests print, of all their versions.

The line of headings says which columns there are, so that layouts needn't be told apart: 2017
(``bytes N type op time algbw busbw res``, times in ms), 2019 (``size count type redop ..``, with
the root where an operation has one), and since 2022 (``#wrong`` in place of a largest error;
further columns of single iterations, and a time stamp, at the end).  Lines may have a prefix of
the program that started the ranks, and other programs' lines may stand between.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sweeps.calibrate.log import PLACEMENTS, LogRow, LogTest, operation_of
from sweeps.errors import InputError

__all__ = ["read_text_log"]

_PROGRAM = re.compile(r"#\s*Collective test (?:starting|concluded):\s*(\S+)")
_CALLED = re.compile(r"(\S*?([a-z_]+)_perf(?:_mpi)?)(?=\s|$)")
_RUN = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)(.*)")
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+(\d+)"
    r"\s+(?:\[([^\]]*)\]\s*)?(.*)"
)
_VERSIONS = (
    ("nccl-tests", re.compile(r"#\s*nccl-tests version\s+(\S+)")),
    ("rccl-tests", re.compile(r"rccl-tests:\s*Version\s+(\S+)")),
    ("NCCL", re.compile(r"nccl-library=(\d+)")),
    ("RCCL", re.compile(r"RCCL version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")),
    ("NCCL", re.compile(r"\bNCCL version\s+(\d+\.\d+(?:\.\d+)?)")),
    ("NCCL", re.compile(r"# NCCL Tests compiled with NCCL\s+(\d+\.\d+)")),
)
_HEADINGS = re.compile(r"#\s+((?:size|bytes)\s+(?:count|N)\s+type\s.*)")
_PLACED = re.compile(r"#\s+((?:out-of-place|in-place)[^#]*)$")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_ROW = re.compile(r"(?<![\w.-])(\d+)\s+(\d+)\s+([a-z]\w*)\s+(.*)$")
_START = (
    "# nccl-tests version",
    "# Collective test starting",
    "# nThread",
    "# NCCL Tests compiled",
)
_TIMES = ("time", "cputime")
_COLUMNS = 4  # of a placement: time, algbw, busbw, and what was wrong
_OLD = "bytes"  # heading of the first versions, whose times are in ms
_TOLD = 3  # lines that a note names
GIGA = 1e9


def read_text_log(path: Path, text: str) -> list[LogTest]:
    """Read what nccl-tests printed."""
    if not text.strip():
        message = f"{path.name}: is empty; a log of nccl-tests has lines such as '# nThread 1 ..'"
        raise InputError(message)
    sections: list[_Section] = []
    last = ""
    for number, line in enumerate(text.splitlines(), start=1):
        starts = any(mark in line for mark in _START) or _HEADINGS.search(line)
        if not sections or (starts and sections[-1].done):
            sections.append(_Section(path, number, last))
            last = ""
        last = sections[-1].read(number, line) or last
    tests = [section.test() for section in sections if section.rows]
    if not tests:
        raise InputError(_nothing(path, sections))
    return tests


def _nothing(path: Path, sections: Sequence[_Section]) -> str:
    for section in sections:
        if section.cut:
            line = section.cut[0]
            return f"{path.name}, line {line}: every row is cut off; let the test run to its end"
        if section.columns:
            line = section.heading_line
            return f"{path.name}, line {line}: no rows below the headings; did the test fail?"
        if section.ranks or section.started:
            line = section.line
            return f"{path.name}, line {line}: a test begins and has no rows; did it fail?"
    return (
        f"{path.name}, line 1: not a log of nccl-tests: no headings '# size count type ..' and no "
        "rows below; give what all_reduce_perf and the like print, their JSON, or a CSV table"
    )


class _Section:
    """One test while its lines are read."""

    def __init__(self, path: Path, line: int, program: str) -> None:
        self.path, self.line, self.program = path, line, program
        self.started = False
        self.columns: list[str] = []
        self.heading_line = 0
        self.placed = ""
        self.ranks: dict[int, tuple[str, str, str, str]] = {}
        self.versions: dict[str, str] = {}
        self.rows: list[LogRow] = []
        self.cut: list[int] = []
        self.empty = 0
        self.notes: list[str] = []

    @property
    def done(self) -> bool:
        """Whether a line that begins a test begins another one."""
        return bool(self.rows or self.cut)

    def read(self, number: int, line: str) -> str:
        """Take in one line; return the program that it names for a test to come."""
        for name, pattern in _VERSIONS:
            if found := pattern.search(line):
                self.versions.setdefault(name, _version(found[1]))
        if found := _PROGRAM.search(line):
            self.program = self.program or found[1]
        elif found := _RUN.search(line):
            self.started = True
            self._remark(found[3])
        elif found := _RANK.search(line):
            self._rank(number, found)
        elif found := _HEADINGS.search(line):
            self._headings(number, found[1])
        elif found := _PLACED.search(line):
            self.placed = found[1]
        elif found := _ROW.search(line):
            self._row(number, line, found)
        elif not self.done and (found := _CALLED.search(line)):
            self.program = self.program or found[1]
        elif found := _CALLED.search(line):
            return found[1]
        return ""

    def _remark(self, rest: str) -> None:
        if found := re.search(r"graph:\s*([1-9]\d*)", rest):
            self.notes.append(f"CUDA graphs ({found[1]}): a launch costs less than usual")
        if (found := re.search(r"agg iters:\s*(\d+)", rest)) and int(found[1]) > 1:
            self.notes.append(f"{found[1]} operations at once (-m): launches are shared")

    def _rank(self, number: int, found: re.Match[str]) -> None:
        rank, group, _, host, device, bus, name = found.groups()
        if int(rank) in self.ranks:
            message = (
                f"{self.path.name}, line {number}: rank {rank} stands there twice in one test; are "
                "these several runs at once (nccl-tests built without MPI)? give one log of each"
            )
            raise InputError(message)
        self.ranks[int(rank)] = (group or "", host, f"{device} {bus or ''}", name.strip())

    def _headings(self, number: int, text: str) -> None:
        words = text.split()
        if "cputime" in words:
            message = (
                f"{self.path.name}, line {number}: times are the processor's (-C 1), not the "
                "operations'; run the test without"
            )
            raise InputError(message)
        self.columns, self.heading_line = words, number

    def _row(self, number: int, line: str, found: re.Match[str]) -> None:
        words = [*found.groups()[:3], *_STAMP.sub("", found[4]).split()]
        columns = [name for name in self.columns if name != "timestamp"]
        if not columns:
            columns = _assumed(len(words))
        if not columns or len(words) != len(columns):
            # Only what has numbers behind its type was meant to be a row.
            if self.columns and re.match(r"\S+\s+-?\d", found[4]):
                self.cut.append(number)
            return
        starts = [place for place, name in enumerate(columns) if name in _TIMES]
        size = float(words[0])
        for place, start in enumerate(starts):
            row = self._placement(number, size, words[start : start + _COLUMNS], columns, start)
            if row is None:
                self.cut.append(number)
                return
            if math.isnan(row[0]):
                continue
            if size == 0.0:
                self.empty += 1
                continue
            own = self._placement_name(place, len(starts))
            self.rows.append(LogRow(number, size, own, *row))

    def _placement(
        self, number: int, size: float, words: Sequence[str], columns: Sequence[str], start: int
    ) -> tuple[float, float, float, float] | None:
        """Return time, algbw, busbw and wrong elements; None if they can't be read."""
        values = [_number(word) for word in words]
        if len(values) < _COLUMNS or None in values[:3]:
            return None
        time, algbw, busbw = (value for value in values[:3] if value is not None)
        if time <= 0.0 and not math.isnan(time):
            return None
        unit = 1e-3 if columns[0] == _OLD else 1e-6
        # Before 2022 the fourth column was the largest difference, which rounding explains.
        counted = columns[start + 3] == "#wrong" and values[3] is not None
        wrong = values[3] if counted else math.nan
        assert wrong is not None
        return time * unit, algbw * GIGA, busbw * GIGA, wrong

    def _placement_name(self, place: int, count: int) -> str:
        if count == 1 and "in-place" in self.placed and "out-of-place" not in self.placed:
            return PLACEMENTS[1]
        return PLACEMENTS[place]

    def test(self) -> LogTest:
        """Return what was read."""
        operation = operation_of(Path(self.program).name) if self.program else ""
        if self.program and "_perf" in self.program and not operation:
            name = Path(self.program).name
            message = (
                f"{self.path.name}, line {self.line}: {name} times no operation that is modelled; "
                "known: all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, "
                "sendrecv"
            )
            raise InputError(message)
        hosts, device = self._hosts()
        return LogTest(
            path=self.path,
            line=self.line,
            operation=operation,
            rows=tuple(self.rows),
            hosts=hosts,
            ranks=sum(hosts.values()),
            device=device,
            versions=self.versions,
            notes=(*self.notes, *self._left_out()),
            old_rates=bool(self.columns) and self.columns[0] == _OLD,
        )

    def _hosts(self) -> tuple[Mapping[str, int], str]:
        """Return the ranks of each host, of the first group; and the device's name."""
        hosts: dict[str, int] = {}
        seen: dict[tuple[str, str], int] = {}
        first = next((group for _, (group, *_) in sorted(self.ranks.items())), "")
        names = {name: None for *_, name in self.ranks.values() if name}
        for rank, (group, host, device, _) in sorted(self.ranks.items()):
            if (host, device) in seen:
                message = (
                    f"{self.path.name}, line {self.line}: ranks {seen[host, device]} and {rank} "
                    f"have the same device of one host, {host}: are these hosts of one name? "
                    "give each its own"
                )
                raise InputError(message)
            seen[host, device] = rank
            if group == first:
                hosts[host] = hosts.get(host, 0) + 1
        groups = {group for group, *_ in self.ranks.values()}
        if len(groups) > 1:
            self.notes.append(
                f"{len(groups)} groups at once: the numbers are those of group {first}"
            )
        return hosts, " and ".join(names)

    def _left_out(self) -> Iterator[str]:
        if self.cut:
            lines = ", ".join(map(str, self.cut[:_TOLD]))
            more = f" and {len(self.cut) - _TOLD} more" if len(self.cut) > _TOLD else ""
            plural = "rows that are" if len(self.cut) > 1 else "a row that is"
            yield f"left out {plural} cut off or mixed with other output: line {lines}{more}"
        if self.empty:
            yield f"left out {self.empty} values of messages of 0 bytes"


def _assumed(count: int) -> list[str]:
    """Return the headings of a row that has none above it, by the number of its words."""
    one = ["time", "algbw", "busbw", "#wrong"]
    leading = ["size", "count", "type", "redop", "root"]
    return {13: [*leading, *one, *one], 9: [*leading, *one]}.get(count, [])


def _number(word: str) -> float | None:
    """Return a word's number, NaN for N/A, None where it is neither."""
    if word == "N/A":
        return math.nan
    try:
        return float(word)
    except ValueError:
        return None


def _version(text: str) -> str:
    """Return a version as people write it: 22907 is 2.29.7, 2708 is 2.7.8."""
    if not text.isdigit():
        return text
    code = int(text)
    large = 10000 if code >= 10000 else 1000
    return f"{code // large}.{code % large // 100}.{code % 100}"
