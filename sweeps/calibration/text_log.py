"""Reader of the text that nccl-tests and rccl-tests print, of all their versions.

The line of headings says which columns there are, so that layouts needn't be told apart: 2017
(``bytes N type op time algbw busbw res``, times in ms), 2019 (``size count type redop ..``, with
the root where an operation has one), and since 2022 (``#wrong`` in place of a largest error;
further columns of single iterations, and a time stamp, at the end).  Cells may be blank; which, a
row's own numbers say: its rate is size by time.  Lines may have a prefix of the program that
started the ranks, other programs' lines may stand between, and within a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from sweeps.calibration.log import (
    GIGA,
    PLACEMENTS,
    Left,
    LogRow,
    Logs,
    LogTest,
    operation_of,
    version_text,
)
from sweeps.calibration.settings import setting_of
from sweeps.errors import InputError, few, reject

_PROGRAM = re.compile(r"Collective test (?:starting|concluded):\s*(\S+)")
_CALLED = ("_perf", "_perf_mpi")  # How a program's name ends
_RUN = re.compile(r"nThread:?\s+(\d+)\s+nGpus:?\s+(\d+)(.*)")
_RANK = re.compile(
    r"(?:#\s*|^\s*)Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+"
    r"(\d+)\s+(?:\[([^\]]*)\]\s*)?(.*)"
)
_VERSIONS = (
    ("nccl-tests", re.compile(r"#\s*nccl-tests version\s+(\S+)")),
    ("rccl-tests", re.compile(r"rccl-tests:\s*Version\s+(\S+)")),
    ("NCCL", re.compile(r"nccl-library=(\d+)")),
    ("RCCL", re.compile(r"RCCL version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")),
    ("NCCL", re.compile(r"\bNCCL version\s+(\d+\.\d+(?:\.\d+)?)")),
    ("NCCL", re.compile(r"# NCCL Tests compiled with NCCL\s+(\d+\.\d+)")),
)
_HEADINGS = re.compile(r"(?:^|[#\s:])((?:size|bytes)\s+(?:count|N)\s+type\s.*\b(?:cpu)?time\b.*)")
_PLACED = re.compile(r"(?:^|[#\s])((?:out-of-place|in-place)[^#]*)$")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_TYPES = (
    "u?int(?:8|32|64)?|char|half|float(?:16|32|64)?|double|bfloat16|bf16|fp16|fp32|fp64"
    r"|(?:f|fp|float)8_?e[45]m[23]"
)
_ROW = re.compile(rf"(?<![\w.-])(\d+)\s+(\d+)\s+({_TYPES})(?![\w.])(.*)$")
_NUMBER = r"(?:-?\d+(?:\.\d*)?(?:e[-+]?\d+)?|-?nan|-?inf|N/A)"
# What a row has behind its type: a word, and numbers, up to another program's output.
_TAIL = re.compile(rf"\s*(?:[a-z]+(?=\s|$|-?\d))?(?:\s*{_NUMBER})*\s*", re.I)
_WORD = re.compile(rf"{_NUMBER}|[a-z]+", re.I)
_GOES_ON = re.compile(rf"\s*(?:{_NUMBER}|\.?\d*)(?:\s+{_NUMBER})*\s*$", re.I)
# What a program that starts ranks puts before each line.
_PREFIX = re.compile(r"^\s*(?:\(.{0,80}?pid=\d+\)\s*)?(?:\[\d+,\d+\]<std\w+>:|\d+:\s|\[\d+\]\s)")
_CODE = re.compile(r"^\s*(?::\w+:)?`+(.*?)`+$")  # A line of a page's source
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# By which lines a test begins, in their order.
_START = (
    "nccl-tests version",
    "Collective test starting",
    "nThread ",
    "NCCL Tests compiled",
)
_TIMES = ("time", "cputime")
_BLANK = ("root", "#wrong", "error", "res", "err")  # Columns whose cells may be blank
_GROUP = ("time", "algbw", "busbw", "#wrong")
_OLD = "bytes"  # heading of the first versions, whose times are in ms
_MOST_LINES = 3  # lines that a note names
_LONGEST = 4096  # characters; a longer line is another program's
_LARGEST = 1e15  # byte: no message is longer
_MOST_PIECES = 40  # lines of others within one row
# Rates are printed with two digits behind the point, long times with fewer.
_ROUNDING, _RELATIVE = 0.0051, 2e-3
# Times from 10 s on have two digits, 1.6e+07: their rates have more.
_SHORTENED, _DIGITS = 9_999_999.5, 0.055

Place = tuple[float, float, float, float]  # time, algbw, busbw [as printed], wrong elements


def read_text_log(path: Path, text: str) -> Logs:
    """Read what nccl-tests printed."""
    if not text.strip():
        reject(path.name, "is empty; a log of nccl-tests has lines such as '# nThread 1 ..'")
    sections: list[_Section] = []
    last = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _LONGEST:
            continue
        plain = _COLOR.sub("", line).rstrip()
        if plain.endswith("`"):
            plain = _CODE.sub(r"\1", plain)
        if not sections or sections[-1].ends(plain):
            settings = sections[-1].settings if sections else {}
            sections.append(_Section(path, number, last, settings))
            last = ""
        last = sections[-1].read(number, plain) or last
    logs = Logs()
    for section in sections:
        try:
            if (test := section.test()) is not None:
                logs.tests.append(test)
        except InputError as error:
            logs.left += [Left(line) for line in error.faults]
    if not logs.tests and not logs.left:
        wrong = (
            "not a log of nccl-tests: no headings '# size count type ..' and no rows below; give "
            "what all_reduce_perf and the like print, their JSON, or a CSV table"
        )
        reject(f"{path.name}, line 1", wrong)
    return logs


class _Section:
    """One test while its lines are read."""

    def __init__(self, path: Path, line: int, program: str, settings: Mapping[str, str]) -> None:
        self.path, self.line, self.program = path, line, program
        self.settings = dict(settings)
        self.marks: set[str] = set()
        self.columns: list[str] = []
        self.heading_line = 0
        self.placed = ""
        self.ranks: dict[int, tuple[str, str, str, str]] = {}
        self.versions: dict[str, str] = {}
        # Rows as they were printed: line, size, what stands behind the type, lines of others in it
        self.raw: list[tuple[int, float, str]] = []
        self.open: tuple[int, float, str, int] | None = None
        self.joined: list[int] = []
        self.cut: list[int] = []
        self.empty = 0
        self.notes: list[str] = []
        self.fault = ""

    def ends(self, line: str) -> bool:
        """Return whether a line begins another test."""
        marks = {mark for mark in _START if mark in line}
        done = bool(self.raw or self.cut)
        return bool(marks and (done or marks & self.marks)) or bool(done and _HEADINGS.search(line))

    def read(self, number: int, line: str) -> str:
        """Take in one line; return the program that it names for a test to come."""
        self.marks |= {mark for mark in _START if mark in line}
        for name, pattern in _VERSIONS:
            if match := pattern.search(line):
                self.versions.setdefault(name, version_text(match[1]))
        if setting := setting_of(line):
            self.settings[setting[0]] = setting[1]
        if match := _PROGRAM.search(line):
            self.program = self.program or match[1]
        elif match := _RUN.search(line):
            self._remark(match[3])
        elif match := _RANK.search(line):
            self._rank(number, match)
        elif match := _HEADINGS.search(line):
            self._headings(number, match[1])
        elif match := _ROW.search(line):
            self._row(number, match)
        elif self.open is not None and self._more(line):
            pass
        elif match := _PLACED.search(line):
            self.placed = match[1]
        elif called := next((word for word in line.split() if word.endswith(_CALLED)), ""):
            if self.raw or self.cut:
                return called
            self.program = self.program or called
        return ""

    def _remark(self, rest: str) -> None:
        if match := re.search(r"graph:\s*([1-9]\d*)", rest):
            self.notes.append(f"CUDA graphs ({match[1]}): a launch costs less than usual")
        if (match := re.search(r"agg iters:\s*(\d+)", rest)) and int(match[1]) > 1:
            self.notes.append(f"{match[1]} operations at once (-m): launches are shared")

    def _rank(self, number: int, match: re.Match[str]) -> None:
        rank, group, _, host, device, bus, name = match.groups()
        if int(rank) in self.ranks:
            self.fault = self.fault or (
                f"{self.path.name}, line {number}: rank {rank} is given twice in one test; are "
                "these several runs at once (nccl-tests built without MPI)? give one log of each"
            )
            return
        name = name.strip(" `|")
        self.ranks[int(rank)] = (group or "", host, f"{device} {bus or ''}", name)

    def _headings(self, number: int, text: str) -> None:
        words = [{"wrong": "#wrong"}.get(word, word) for word in text.strip(" `|").split()]
        if "cputime" in words:
            self.fault = self.fault or (
                f"{self.path.name}, line {number}: times are the processor's (-C 1), not the "
                "operations'; run the test without"
            )
            return
        self.columns, self.heading_line = words, number

    def _row(self, number: int, row_match: re.Match[str]) -> None:
        self._close()
        size, tail = float(row_match[1]), _STAMP.sub("", row_match[4]).rstrip("` |")
        match = _TAIL.match(tail)
        numbers = match[0] if match else ""
        if size < float(row_match[2]):
            return  # No row: an element has a byte at least
        if size > _LARGEST:
            self.cut.append(number)
            return
        if self._values(size, numbers) is not None:
            self.raw.append((number, size, numbers))
        elif self.columns and re.search(r"\s-?\d", tail):
            # Only what has numbers behind its type was meant to be a row.
            self.open = (number, size, numbers, 0)

    def _more(self, line: str) -> bool:
        """Take in a line behind a row that isn't whole; return whether it is the row's."""
        assert self.open is not None
        number, size, numbers, pieces = self.open
        plain = _STAMP.sub("", _PREFIX.sub("", line)).rstrip("` |")
        if not plain.strip() or not _GOES_ON.match(plain):
            self.open = (number, size, numbers, pieces + 1) if pieces < _MOST_PIECES else None
            if self.open is None:
                self.cut.append(number)
            return False
        numbers += plain
        self.open = (number, size, numbers, pieces + 1)
        if self._values(size, numbers) is not None:
            self.raw.append((number, size, numbers))
            self.joined.append(number)
            self.open = None
        return True

    def _close(self) -> None:
        """End a row that was never whole."""
        if self.open is not None:
            self.cut.append(self.open[0])
            self.open = None

    def _layouts(self, count: int) -> Iterator[list[str]]:
        """Yield the numeric columns that a row of so many numbers may have, likeliest first."""
        known = [name for name in self.columns[3:] if name not in ("redop", "op", "timestamp")]
        every = [known] if known else [["root", *_GROUP, *_GROUP], ["root", *_GROUP]]
        for columns in every:
            missing = len(columns) - count
            blank = [index for index, name in enumerate(columns) if name in _BLANK]
            if 0 <= missing <= len(blank):
                for gone in combinations(blank, missing):
                    yield ["" if index in gone else name for index, name in enumerate(columns)]

    def _values(self, size: float, text: str) -> list[Place] | None:
        """Return each placement's time, rates and wrong elements; None if the row isn't whole."""
        words = _WORD.findall(text)
        if words and words[0][0].isalpha() and words[0].lower() not in ("nan", "inf", "n"):
            words = words[1:]
        numbers = [_number(word) for word in words]
        if None in numbers:
            return None
        values = [value for value in numbers if value is not None]
        whole = len([name for name in self.columns[3:] if name not in ("redop", "op", "timestamp")])
        for layout in self._layouts(len(values)):
            cells = iter(values)
            row = [next(cells) if name else math.nan for name in layout]
            starts = [index for index, name in enumerate(layout) if name in _TIMES]
            timings = [
                self._place(row[start : start + 4], layout[start : start + 4]) for start in starts
            ]
            if not timings or any(timing is None for timing in timings):
                continue
            kept = [timing for timing in timings if timing is not None]
            # A row that has all its cells is as it stands; of one that hasn't, its rates tell.
            if len(values) == whole or all(self._agrees(size, timing) for timing in kept):
                return kept
        return None

    def _place(self, cells: Sequence[float], names: Sequence[str]) -> Place | None:
        if len(cells) < 3 or cells[0] <= 0.0 or any(map(math.isinf, cells[:3])):
            return None
        time, algbw, busbw = cells[:3]
        # Before 2022 the fourth column was the largest difference, which rounding explains.
        wrong = cells[3] if len(cells) > 3 and names[3] == "#wrong" else math.nan
        if wrong < 0.0 or not (math.isnan(wrong) or float(wrong).is_integer()):
            return None
        return time, algbw, busbw, wrong

    def _agrees(self, size: float, timing: Place) -> bool:
        """Return whether a rate is size by time, or may be that of the first versions."""
        if math.isnan(timing[0]) or math.isnan(timing[1]) or not size:
            return True
        unit = 1e6 if self.columns[:1] == [_OLD] else 1e3
        rate = size / timing[0] / unit
        printed = _DIGITS if timing[0] >= _SHORTENED else _RELATIVE
        slack = _ROUNDING + rate * (printed + _ROUNDING / timing[0])
        return abs(rate - timing[1]) <= slack or (unit == 1e6 and 0.4 * rate <= timing[1] <= rate)

    def _shortened(self, size: float, timing: Place) -> bool:
        """Return whether a rate tells the time better than the time does."""
        old = self.columns[:1] == [_OLD]
        return (
            not old and timing[0] >= _SHORTENED and timing[1] > 0.1 and self._agrees(size, timing)
        )

    def test(self) -> LogTest | None:
        """Return what was read; None of lines that are no test."""
        self._close()
        operation = operation_of(Path(self.program).name) if self.program else ""
        began = bool(self.ranks or self.marks or self.columns)
        if self.fault and (self.raw or self.cut or began):
            raise InputError(self.fault)
        if self.program and "_perf" in self.program and not operation and (self.raw or began):
            known = "all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, sendrecv"
            wrong = f"{Path(self.program).name} times no operation that is modelled"
            reject(f"{self.path.name}, line {self.line}", f"{wrong}; known: {known}")
        rows = [*self._rows()]
        if not rows:
            if began or self.cut:
                raise InputError(self._nothing())
            return None
        hosts, device, ranks = self._hosts()
        return LogTest(
            path=self.path,
            line=self.line,
            operation=operation,
            rows=tuple(rows),
            hosts=hosts,
            ranks=ranks,
            device=device,
            versions=self.versions,
            notes=(*self.notes, *self._told()),
            old_rates=bool(self.columns) and self.columns[0] == _OLD,
            settings={name: setting for name, setting in self.settings.items() if setting},
        )

    def _nothing(self) -> str:
        name = self.path.name
        if self.cut:
            lines = f"line {self.cut[0]}" + (" and others" if len(self.cut) > 1 else "")
            return (
                f"{name}, line {self.cut[0]}: no row can be read: {lines}: cells aren't those of "
                "the headings, or cut off; let the test run to its end"
            )
        if self.columns:
            line = self.heading_line
            return (
                f"{name}, line {line}: no rows below the headings; did the test fail? run it again"
            )
        return f"{name}, line {self.line}: a test begins and has no rows; did it fail? run it again"

    def _rows(self) -> Iterator[LogRow]:
        unit = 1e-3 if self.columns[:1] == [_OLD] else 1e-6
        for number, size, text in self.raw:
            timings = self._values(size, text) or []
            for index, (time, algbw, busbw, wrong) in enumerate(timings):
                if math.isnan(time):
                    continue
                if size == 0.0:
                    self.empty += 1
                    continue
                inside = "in-place" in self.placed and "out-of" not in self.placed
                placement = PLACEMENTS[index > 0 or (len(timings) == 1 and inside)]
                rates = algbw * GIGA, busbw * GIGA
                exact = size / rates[0] if self._shortened(size, timings[index]) else time * unit
                yield LogRow(number, size, exact, placement, *rates, wrong)

    def _hosts(self) -> tuple[Mapping[str, int], str, int]:
        """Return the ranks of each host, of the first group; the device's name; all ranks."""
        hosts: dict[str, int] = {}
        seen: dict[tuple[str, str], int] = {}
        first = next((group for _, (group, *_) in sorted(self.ranks.items())), "")
        names = {name: None for *_, name in self.ranks.values() if name}
        for rank, (group, host, device, _) in sorted(self.ranks.items()):
            if (host, device) in seen:
                wrong = (
                    f"ranks {seen[host, device]} and {rank} have the same device of one host, "
                    f"{host}: are these hosts of one name? give each its own"
                )
                reject(f"{self.path.name}, line {self.line}", wrong)
            seen[host, device] = rank
            if group == first:
                hosts[host] = hosts.get(host, 0) + 1
        groups = {group for group, *_ in self.ranks.values()}
        if len(groups) > 1:
            self.notes.append(
                f"{len(groups)} groups at once: the numbers are those of group {first}"
            )
        elif self.ranks and {*self.ranks} != {*range(len(self.ranks))}:
            most = max(self.ranks)
            self.notes.append(f"its list of ranks is cut ({len(self.ranks)} lines, to rank {most})")
            return {}, " and ".join(names), 0
        return hosts, " and ".join(names), sum(hosts.values())

    def _told(self) -> Iterator[str]:
        for numbers, done, why in (
            (self.cut, "left out", "cut off or mixed with other output"),
            (self.joined, "joined", "split by other output"),
        ):
            if numbers:
                plural = "rows that are" if len(numbers) > 1 else "a row that is"
                shown = few([str(number) for number in numbers], _MOST_LINES)
                yield f"{done} {plural} {why}: line {shown}"
        if self.empty:
            yield f"left out {self.empty} values of messages of 0 bytes"


def _number(word: str) -> float | None:
    """Return a word's number, NaN for N/A, None where it is neither."""
    if word in ("N/A", "N", "A"):
        return math.nan
    try:
        value = float(word)
    except ValueError:
        return None
    # What is no number though it should be is as far from one as can be.
    return math.inf if math.isnan(value) else value
