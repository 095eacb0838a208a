"""Which tool wrote a trace, and which rank's it is: what a file says of itself, or its name."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from sweeps.spec.files import read_toml, shipped


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that writes files about what a GPU did."""

    name: str  # Empty for one that isn't known
    rows: str  # What to do where a file of it has no rows of GPU work
    launches: str  # What to do where it doesn't say when these were launched
    read: bool  # Whether its files are read as they are
    form: str = ""  # How its rows are written, where another reader makes them PyTorch's


UNKNOWN = Tool(
    "",
    "rows of GPU work have cat kernel, gpu_memcpy or gpu_memset, or args.stream and a cat that an"
    " own --patterns names as activity",
    "",
    read=True,
)


def tool_of(head: bytes, members: str, file: str) -> Tool:
    """Tell the tool by a file's beginning, the names of its members, and its own name."""
    text = "\n".join((head.decode("utf-8", errors="replace"), members, file))
    for tool, marks in _tools():
        if any(mark.search(text) for mark in marks):
            return tool
    return UNKNOWN


@functools.cache
def _tools() -> tuple[tuple[Tool, tuple[re.Pattern[str], ...]], ...]:
    listed = read_toml(shipped("traces") / "tools.toml")["tools"]
    return tuple(
        (
            Tool(
                tool["name"],
                tool["rows"],
                tool["launches"],
                tool.get("read", False),
                tool.get("form", ""),
            ),
            tuple(re.compile(mark) for mark in tool["marks"]),
        )
        for tool in listed
    )


# As in rank0_trace.json, rank-70.Mar_25.pt.trace.json.gz, 1745667096-TP-30.trace.json.gz.
_RANK = re.compile(r"(?i)(?<![a-z])rank[-_ ]?(\d{1,7})(?!\d)")
_TP_RANK = re.compile(r"(?<![A-Za-z])TP-(\d{1,7})(?!\d)")


def named_rank(path: Path) -> int | None:
    """Return the rank in a file's name, or its folder's; None where there is none."""
    for name in (path.name, path.parent.name):
        if match := _RANK.search(name) or _TP_RANK.search(name):
            return int(match[1])
    return None
