"""What a log of nccl-tests says: tests, each an operation on some ranks, and their rows."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.errors import InputError, fault, nearest, needs, of_each, refuse
from sweeps.spec.catalog import is_file
from sweeps.validate.table import find_table, read_table

PLACEMENTS = ("out-of-place", "in-place")
# The program's name without its ending, and the operation it times.
OPERATIONS: Mapping[str, str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "sendrecv": "p2p",
    "p2p": "p2p",
}


# Which algorithm a run's settings leave, as its environment or a table of rows calls it.
NO_NVLS = "no nvls"
_FORCED = re.compile(r"NCCL_ALGO(?:\s+set by environment to|\s*[=:])\s*\"?(\w+)\"?(?![\w,])")
_NVLS_OFF = re.compile(r"NCCL_NVLS_ENABLE(?:\s+set by environment to|\s*[=:])\s*\"?0\b")
_FORMS = {
    "ring": "ring", "ring_path": "ring", "tree": "tree", "tree_path": "tree", "nvls": "nvls",
    "nvlstree": "nvls_tree", "nvls_tree": "nvls_tree", "collnetchain": "sharp",
    "collnetdirect": "sharp", "nvls_sharp": "sharp",
}  # fmt: skip


def forced_by(line: str) -> str:
    """Return what a line says of the algorithm that is left; empty where it says nothing."""
    if found := _FORCED.search(line):
        return _FORMS.get(found[1].lower(), "")
    return NO_NVLS if _NVLS_OFF.search(line) else ""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One measured message size."""

    line: int  # Its line in the file; of JSON its place among the results
    size: float  # Message size [byte]: the whole buffer, as nccl-tests counts it
    placement: str  # One of `PLACEMENTS`
    time: float  # Time of one operation [s]
    algbw: float  # As the log has them [byte s-1]; NaN where it hasn't
    busbw: float
    wrong: float  # Elements that came out wrong; NaN where nothing was checked


@dataclass(frozen=True, slots=True)
class LogTest:
    """One test: an operation on some ranks, over message sizes."""

    path: Path  # The log
    line: int  # Where the test begins
    operation: str  # The collective's name; empty where the log doesn't say it
    rows: Sequence[LogRow]  # What was measured; both placements
    # Ranks of each host; empty where the log doesn't list them
    hosts: Mapping[str, int] = field(default_factory=dict)
    ranks: int = 0  # Their number; 0 where the log doesn't say it
    device: str = ""  # What the GPUs are called
    # Of ``nccl-tests``, ``NCCL`` and ``rccl-tests``, as far as the log has them
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()  # What was left out, and what to know of the run
    # Whether algbw counts what the first versions did: without a rank's own share
    old_rates: bool = False
    part: str = ""  # What a table calls this part of it
    hardware: str = ""  # As a table states them; empty and 0 elsewhere
    nodes: int = 0
    # The form of the algorithm that its settings leave (`ring`, `tree`, `nvls`, ..), or `NO_NVLS`
    forced: str = ""
    fabric: str = ""  # The network between nodes, and a card's rate [byte s-1], as a table has them
    card: float = 0.0

    @property
    def name(self) -> str:
        """The file's name, and what a table calls the part of it."""
        return f"{self.path.name}:{self.part}" if self.part else self.path.name

    @property
    def where(self) -> str:
        """The file and line where it begins, for messages."""
        return f"{self.path.name}, line {self.line}"


def operation_of(text: str) -> str:
    """Return the operation that a program's or a file's name tells; empty if it tells none."""
    plain = text.lower().replace("-", "_").replace("allreduce", "all_reduce")
    plain = plain.replace("allgather", "all_gather").replace("reducescatter", "reduce_scatter")
    # Longest first: reduce is a part of all_reduce and of reduce_scatter.
    for name in sorted(OPERATIONS, key=len, reverse=True):
        if name in plain:
            return OPERATIONS[name]
    return ""


def known_operations(text: str) -> str:
    """Return which operations there are, for a fault about `text`."""
    return nearest(text, dict.fromkeys(OPERATIONS.values()))


# Reader of the text that nccl-tests and rccl-tests print, of all their versions.
#
# The line of headings says which columns there are, so that layouts needn't be told apart: 2017
# (``bytes N type op time algbw busbw res``, times in ms), 2019 (``size count type redop ..``, with
# the root where an operation has one), and since 2022 (``#wrong`` in place of a largest error;
# further columns of single iterations, and a time stamp, at the end).  Lines may have a prefix of
# the program that started the ranks, and other programs' lines may stand between.

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
_MOST_LINES = 3  # lines that a note names
_LONGEST = 4096  # characters; a longer line is another program's
GIGA = 1e9


def read_text_log(path: Path, text: str) -> list[LogTest]:
    """Read what nccl-tests printed."""
    if not text.strip():
        message = f"{path.name}: is empty; a log of nccl-tests has lines such as '# nThread 1 ..'"
        raise InputError(message)
    sections: list[_Section] = []
    last = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _LONGEST:
            continue
        starts = any(mark in line for mark in _START) or _HEADINGS.search(line)
        if not sections or (starts and sections[-1].done):
            forced = sections[-1].forced if sections else ""
            sections.append(_Section(path, number, last, forced))
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

    def __init__(self, path: Path, line: int, program: str, forced: str) -> None:
        self.path, self.line, self.program, self.forced = path, line, program, forced
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
        self.forced = forced_by(line) or self.forced
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
                f"{self.path.name}, line {number}: rank {rank} is given twice in one test; are "
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
            forced=self.forced,
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
            lines = ", ".join(map(str, self.cut[:_MOST_LINES]))
            more = f" and {len(self.cut) - _MOST_LINES} more" if len(self.cut) > _MOST_LINES else ""
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


# Reader of the JSON that nccl-tests writes (``-J FILE.json``).
#
# The keys are those of NVIDIA/nccl-tests, src/util.cu @a0b82b2 (version 2.19.6, file version 3).


def read_json_log(path: Path, text: str) -> list[LogTest]:
    """Read one test's JSON."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        message = (
            f"{path.name}, line {error.lineno}: is not whole JSON: {error.msg}; was the test "
            "stopped before its end? what it printed can be read instead"
        )
        raise InputError(message) from None
    except RecursionError:
        message = f"{path.name}, line 1: is nested too deeply; give what nccl-tests wrote by -J"
        raise InputError(message) from None
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list):
        message = f"{path.name}, line 1: no list 'results'; give what nccl-tests wrote by -J"
        raise InputError(message)
    rows: list[LogRow] = []
    empty = 0
    for number, result in enumerate(results, start=1):
        found = _rows(path, number, result)
        kept = [row for row in found if row.size > 0.0]
        empty += len(found) - len(kept)
        rows += kept
    if not rows:
        message = f"{path.name}, line 1: 'results' holds no times; did the test fail?"
        raise InputError(message)
    config = content.get("config") if isinstance(content.get("config"), dict) else {}
    hosts, device = _hosts(path, config)
    args = content.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    version = content.get("nccl_version")
    notes = [f"left out {empty} values of messages of 0 bytes"] if empty else []
    if _count(config.get("graph")) > 0:
        notes.append(f"CUDA graphs ({config['graph']}): a launch costs less than usual")
    if _count(config.get("aggregated_iterations")) > 1:
        together = config["aggregated_iterations"]
        notes.append(f"{together} operations at once (-m): launches are shared")
    test = LogTest(
        path=path,
        line=1,
        operation=operation_of(Path(program).name),
        rows=tuple(rows),
        hosts=hosts,
        ranks=sum(hosts.values()),
        device=device,
        versions={"NCCL": _json_log_version(version)} if isinstance(version, int) else {},
        notes=tuple(notes),
    )
    return [test]


def _rows(path: Path, number: int, result: object) -> list[LogRow]:
    """Return a result's placements that have a time."""
    where = f"{path.name}, result {number}"
    if not isinstance(result, dict) or not isinstance(result.get("size"), int):
        message = f"{where}: has no size; give what nccl-tests wrote by -J"
        raise InputError(message)
    rows = []
    for placement in PLACEMENTS:
        part = result.get(placement.replace("-", "_"))
        if not isinstance(part, dict):
            continue
        if "cpu_time" in part:
            message = (
                f"{where}: times are the processor's (-C 1), not the operations'; run the test "
                "without"
            )
            raise InputError(message)
        time = _json_log_number(part.get("time"))
        if not time > 0.0:
            continue
        rates = (
            _json_log_number(part.get("alg_bw")) * GIGA,
            _json_log_number(part.get("bus_bw")) * GIGA,
        )
        wrong = _json_log_number(part.get("nwrong"))
        size = float(result["size"])
        rows.append(LogRow(number, size, placement, time * 1e-6, *rates, wrong))
    return rows


def _hosts(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    """Return the ranks of each host: the file lists one device a process, not one a rank."""
    each = max(_count(config.get("nthreads")), 1) * max(_count(config.get("ngpus")), 1)
    listed = config.get("devices")
    devices: list[Any] = listed if isinstance(listed, list) else []
    hosts: dict[str, int] = {}
    names: dict[str, None] = {}
    groups = set()
    for one in devices:
        if not isinstance(one, dict) or not isinstance(one.get("hostname"), str):
            message = f"{path.name}, line 1: a device of 'config.devices' has no hostname"
            raise InputError(message)
        groups.add(one.get("group"))
        if one.get("group") == devices[0].get("group"):
            hosts[one["hostname"]] = hosts.get(one["hostname"], 0) + each
        names[str(one.get("device_info", "")).strip()] = None
    return hosts, " and ".join(name for name in names if name)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _json_log_number(value: object) -> float:
    """Return a number; NaN for null, for the text that stands for NaN, and for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return math.nan


def _json_log_version(code: int) -> str:
    large = 10000 if code >= 10000 else 1000
    return f"{code // large}.{code % large // 100}.{code % 100}"


# Reader of measured rows as a CSV table, with the columns of the shipped collection.

# Columns that tell tests apart; one without a number or word counts as nothing.
_KEYS = (
    "table", "collective", "hardware", "ranks", "nodes", "gpus_per_node", "algorithm", "fabric",
    "inter_bandwidth",
)  # fmt: skip
# Of these, what is read where the table has it.
_FURTHER = ("algorithm", "fabric", "inter_bandwidth")


def read_table_log(name: str, operation: str = "") -> list[LogTest]:
    """Read a table with ``collective``, ``ranks``, ``message_bytes``, ``time_us`` and more."""
    path = find_table(name)
    try:
        table = read_table(path, _further(path))
    except InputError as error:
        raise InputError([line.replace("measured.table", "LOG") for line in error.faults]) from None
    columns: dict[str, Any] = {**table.columns, "line": _lines(path)}
    count = len(columns["time"])
    each: dict[tuple[Any, ...], list[int]] = {}
    keys = [columns[key].tolist() if key in columns else [""] * count for key in _KEYS]
    for place, key in enumerate(zip(*keys, strict=True)):
        each.setdefault(key, []).append(place)
    return [
        _test(path, operation, dict(zip(_KEYS, key, strict=True)), places, columns)
        for key, places in each.items()
    ]


def _further(path: Path) -> dict[str, str]:
    """Return the headings of what a table may have beside what every one has."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = (row for row in csv.reader(file) if row and not row[0].lstrip().startswith("#"))
            header = [cell.strip() for cell in next(lines, [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}  # whoever reads it whole says why
    each = {name: [h for h in header if h == name or h.startswith(f"{name}_")] for name in _FURTHER}
    return {name: found[0] for name, found in each.items() if found}


def _lines(path: Path) -> list[int]:
    """Return the line of each row, below the headings and without remarks."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        found = [
            rows.line_num
            for row in rows
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    return found[1:]


def _test(
    path: Path, operation: str, key: dict[str, Any], places: list[int], columns: Any
) -> LogTest:
    name = key["collective"] or operation
    if key["collective"] and operation and operation != key["collective"]:
        wrong = f"the table has rows of {key['collective']}"
        refuse("--op", operation, wrong, "leave it out: the table says it")
    if not name:
        who = f"{path.name}, which has no column 'collective',"
        give = f"--op ({known_operations('')})"
        raise InputError(needs(who, "the name of its operation", give))
    rows = [
        LogRow(
            int(columns["line"][place]),
            float(columns["message_bytes"][place]),
            "out-of-place",
            float(columns["time"][place]),
            math.nan,
            math.nan,
            math.nan,
        )
        for place in places
        if columns["message_bytes"][place] > 0.0
    ]
    return LogTest(
        path=path,
        line=1,
        operation=name,
        rows=tuple(rows),
        ranks=int(key["ranks"] or 0),
        hardware=key["hardware"],
        nodes=int(key["nodes"] or 0),
        part=key["table"],
        forced=_FORMS.get(key["algorithm"], ""),
        fabric=key["fabric"],
        card=float(key["inter_bandwidth"] or 0.0),
    )


# Reader of logs, whatever their form: text, JSON or a table.

# What may stand above JSON.
_COMMENTS = re.compile(r"(?:\s*(?:#|//)[^\n]*\n)*\s*")
_HUGE = 1 << 28  # bytes: a log of nccl-tests has some thousand lines


def check_operation(text: str | None) -> str:
    """Return an operation by the name that people or nccl-tests give it; empty for None."""
    if text is None:
        return ""
    found = operation_of(text)
    if not found:
        refuse("--op", text, "is not an operation", known_operations(text))
    return found


def read_logs(names: Sequence[str], operation: str = "") -> list[LogTest]:
    """Read logs."""
    each = of_each(lambda name: _read(name, operation), names)
    return [test for tests in each.values() for test in tests]


def _read(name: str, operation: str) -> list[LogTest]:
    path = Path(name)
    if path.suffix == ".csv" or not (is_file(path) or path.suffix or path.name != name):
        return read_table_log(name, operation)
    try:
        if path.stat().st_size > _HUGE:
            wrong = f"{path.stat().st_size:,} bytes"
            refuse("LOG", name, wrong, "a log, of some megabytes at most")
        content = path.read_bytes()
    except OSError as error:
        absent = isinstance(error, FileNotFoundError)
        reason = "no such file" if absent else error.strerror or "can't be read"
        allowed = "expects the output of nccl-tests (text, JSON or CSV)"
        raise InputError(fault("LOG", name, reason, allowed)) from None
    # A log may hold any bytes between its lines; those that aren't text are none of its own.
    text = content.decode("utf-8-sig", errors="replace")
    whole = _COMMENTS.match(text)
    begins = whole.end() if whole else 0
    if text.startswith("{", begins):
        # Lines keep their numbers.
        return read_json_log(path, "\n" * text.count("\n", 0, begins) + text[begins:])
    return read_text_log(path, text)
