"""A folder of traces as profilers write it: one file a rank, perhaps several times."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import refuse
from sweeps.traces.origin import tool_of

_TRACE = re.compile(r"(?i)\.json(\.gz)?$")
# The worker and the time of torch.profiler.tensorboard_trace_handler's names.
_TIMED = re.compile(r"^(?P<worker>.+?)\.(?P<time>\d{10,20})\.pt\.trace\.json(\.gz)?$")
# Folders of which each holds all ranks at another time (torchtitan: profile_traces/iteration_10).
_AT_A_TIME = re.compile(r"(?i)iter|step|cycle|epoch|^\d{4}[-_]\d\d")
_SHOWN = 3
_WANTED = "*.json or *.json.gz, as torch.profiler.tensorboard_trace_handler writes them"


@dataclass(frozen=True, slots=True)
class Listed:
    """A file to be read."""

    path: Path
    name: str  # What it is called: from its folder on, where that was given
    asked: bool  # By its own name, rather than by its folder


def listed(paths: Sequence[str | os.PathLike[str]]) -> tuple[list[Listed], list[str]]:
    """Return files and those of folders, with what is left out of these."""
    entries: list[Listed] = []
    notes: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            files, left = _of_folder(path)
            entries += [Listed(f, str(f.relative_to(path)), asked=False) for f in files]
            notes += left
        else:
            entries.append(Listed(path, path.name, asked=True))
    single = {entry.path.resolve(): entry for entry in reversed(entries)}
    # A trace given twice, or with its folder, would be a rank of its own each time.
    return [entry for entry in entries if single[entry.path.resolve()] is entry], notes


def natural(path: Path) -> tuple[tuple[int, str], ...]:
    """Order names with numbers as people do: rank 2 before rank 10."""
    parts = re.findall(r"\d+|\D+", str(path))
    return tuple((int(part[:300]), "") if part.isdigit() else (-1, part) for part in parts)


def _of_folder(folder: Path) -> tuple[list[Path], list[str]]:
    by_folder: dict[Path, list[Path]] = {}
    others: list[Path] = []
    for path in _files(folder):
        if _TRACE.search(path.name) and path.name.isprintable():
            by_folder.setdefault(path.parent, []).append(path)
        else:
            others.append(path)
    if not by_folder:
        _refuse_empty(folder, sorted(others, key=natural))
    notes: list[str] = []
    folders = sorted(by_folder, key=natural)
    if folder in by_folder:
        folders = [folder]
    elif len(folders) > 1 and all(_AT_A_TIME.search(directory.name) for directory in folders):
        notes.append(
            f"{folder}: {len(folders)} folders, each of a time of its own: the last one is read, "
            f"{folders[-1].relative_to(folder)}"
        )
        folders = folders[-1:]
    files = [file for directory in folders for file in sorted(by_folder[directory], key=natural)]
    last: dict[str, Path] = {}
    for file in files:
        timed = _TIMED.match(file.name)
        last[str(file.parent / (timed["worker"] if timed else file.name))] = file
    if earlier := len(files) - len(last):
        notes.append(
            f"{folder}: {earlier} of {len(files)} traces are earlier ones of the same workers, and "
            "left out: give a file to have it read"
        )
    return list(last.values()), notes


def _files(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        refuse("trace", str(folder), f"can't be read: {error.strerror or error}", _WANTED)

    for directory, _, names in os.walk(folder, onerror=fail):
        yield from (Path(directory) / name for name in names if not name.startswith("."))


def _refuse_empty(folder: Path, others: Sequence[Path]) -> None:
    wrong = "is a folder without traces"
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        wrong += f": it has {', '.join(path.name for path in others[:_SHOWN])}{more}"
    tools = [tool_of(b"", "", path.name) for path in others]
    known = next((tool for tool in tools if tool.name), None)
    refuse("trace", str(folder), wrong, f"of {known.name}: {known.rows}" if known else _WANTED)
