"""What a log of collectives says: tests, each an operation on some ranks, and their rows."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.errors import nearest
from sweeps.spec.files import shipped

PLACEMENTS = ("out-of-place", "in-place")
GIGA = 1e9
# What programs that measure call things, by meaning.
WORDS: Mapping[str, Any] = tomllib.loads(
    (shipped("logs") / "words.toml").read_text(encoding="utf-8")
)
OPERATIONS: Mapping[str, str] = WORDS["operations"]
# What is no operation here, though the name of one is a part of its name.
_OTHERS = ("alltoallv", "all_to_allv", "all_to_all_v", "allgatherv", "all_gatherv", "scatterv")


@dataclass(frozen=True, slots=True)
class LogRow:
    """One measured message size."""

    line: int  # Its line in the file; of JSON its place among the results
    size: float  # Message size [byte]: the whole buffer, as nccl-tests counts it
    time: float  # Time of one operation [s]
    placement: str = PLACEMENTS[0]  # One of `PLACEMENTS`
    algbw: float = math.nan  # As the log has them [byte s-1]; NaN where it hasn't
    busbw: float = math.nan
    wrong: float = math.nan  # Elements that came out wrong; NaN where nothing was checked

    @property
    def whole(self) -> bool:
        """Whether size and time are numbers above 0."""
        return all(0.0 < value < math.inf for value in (self.size, self.time))


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
    # The algorithm that a table's row is of (`ring`, `tree`, `nvls`, ..), or `NO_NVLS`
    forced: str = ""
    fabric: str = ""  # The network between nodes, and a card's rate [byte s-1], as a table has them
    card: float = 0.0
    settings: Mapping[str, str] = field(default_factory=dict)  # NCCL's variables, as it has them
    shares: bool = False  # Whether sizes are a rank's share of the message
    library: str = ""  # Whose times these are where they are neither NCCL's nor RCCL's
    digest: str = ""  # SHA-256 of the file
    dated: float = 0.0  # When the file was written [s since 1970]; 0: not known

    @property
    def name(self) -> str:
        """The file's name, and what a table calls the part of it."""
        return f"{self.path.name}:{self.part}" if self.part else self.path.name

    @property
    def where(self) -> str:
        """The file and line where it begins, for messages."""
        return f"{self.path.name}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Left:
    """What was left out, and why: a line with the file and its place in it."""

    reason: str
    # Whether somebody counts on it: a test that died, not another program's file in a folder
    counts: bool = True


@dataclass(slots=True)
class Logs:
    """What was read of logs, and what was left out."""

    tests: list[LogTest] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


def operation_of(text: str) -> str:
    """Return the operation that a program's or a file's name tells; empty if it tells none."""
    plain = text.lower().replace("-", "_").replace("allreduce", "all_reduce")
    plain = plain.replace("allgather", "all_gather").replace("reducescatter", "reduce_scatter")
    if any(name in plain for name in _OTHERS):
        return ""
    # Longest first: reduce is a part of all_reduce and of reduce_scatter.
    for name in sorted(OPERATIONS, key=len, reverse=True):
        if name in plain:
            return OPERATIONS[name]
    return ""


def known_operations(text: str) -> str:
    """Return which operations there are, for a fault about `text`."""
    return nearest(text, dict.fromkeys(OPERATIONS.values()))


def version_text(code: int | str) -> str:
    """Return a version as people write it: 22907 is 2.29.7, 2708 is 2.7.8."""
    if isinstance(code, str) and not code.isdigit():
        return code
    number = int(code)
    large = 10000 if number >= 10000 else 1000
    return f"{number // large}.{number % large // 100}.{number % 100}"
