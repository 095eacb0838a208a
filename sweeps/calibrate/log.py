"""What a log of nccl-tests says: tests, each an operation on some ranks, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.errors import nearest

__all__ = ["OPERATIONS", "PLACEMENTS", "LogRow", "LogTest", "known_operations", "operation_of"]

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


@dataclass(frozen=True, slots=True)
class LogRow:
    """One measured message size.

    Attributes
    ----------
    line : int
        Its line in the file; of JSON its place among the results.
    size : float
        Message size [byte]: the whole buffer, as nccl-tests counts it.
    placement : str
        One of `PLACEMENTS`.
    time : float
        Time of one operation [s].
    algbw, busbw : float
        As the log has them [byte s-1]; NaN where it hasn't.
    wrong : float
        Elements that came out wrong; NaN where nothing was checked.
    """

    line: int
    size: float
    placement: str
    time: float
    algbw: float
    busbw: float
    wrong: float


@dataclass(frozen=True, slots=True)
class LogTest:
    """One test: an operation on some ranks, over message sizes.

    Attributes
    ----------
    path : Path
        The log.
    line : int
        Where the test begins.
    operation : str
        The collective's name; empty where the log doesn't say it.
    rows : sequence of LogRow
        What was measured; both placements.
    hosts : mapping of str to int
        Ranks of each host; empty where the log doesn't list them.
    ranks : int
        Their number; 0 where the log doesn't say it.
    device : str
        What the GPUs are called.
    versions : mapping of str to str
        Of ``nccl-tests``, ``NCCL`` and ``rccl-tests``, as far as the log has them.
    notes : sequence of str
        What was left out, and what to know of the run.
    old_rates : bool
        Whether algbw counts what the first versions did: without a rank's own share.
    part : str
        What a table calls this part of it.
    hardware, nodes : str and int
        As a table states them; empty and 0 elsewhere.
    """

    path: Path
    line: int
    operation: str
    rows: Sequence[LogRow]
    hosts: Mapping[str, int] = field(default_factory=dict)
    ranks: int = 0
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    old_rates: bool = False
    part: str = ""
    hardware: str = ""
    nodes: int = 0

    @property
    def name(self) -> str:
        """The file's name, and what a table calls the part of it."""
        return f"{self.path.name}:{self.part}" if self.part else self.path.name

    @property
    def where(self) -> str:
        """The file and line where it begins, for messages."""
        return f"{self.path.name}, line {self.line}"


def operation_of(text: str) -> str:
    """Return the operation that a program's or a file's name tells; empty if it tells none.

    Parameters
    ----------
    text : str
        Such as ``./build/all_reduce_perf``, or ``reduce_scatter-2024-05.log``.
    """
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
