"""What a screen shows by default, and the sections that ``--show`` adds below it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click

from sweeps.cli import TABLE
from sweeps.cli.given import Given
from sweeps.cli.kept import keep
from sweeps.errors import InputError, fault, nearest
from sweeps.wrapping import fitted, prose, wrap

ALL = "all"
# A section is the same in every command that has it.
SECTIONS = {
    "reasons": "why this plan, against the next layout",
    "parts": "the step time by part; rates, energy and cost",
    "memory": "peak memory by part",
    "communication": "every collective: calls, bytes, time and energy, before overlap",
    "overlap": "what overlaps with what, and why the rest is exposed",
    "pareto": "step time against memory",
    "changes": "single changes: a degree, a setting, the network",
    "rejected": "invalid plans and excluded rows, by reason",
    "launch": "settings for Megatron-LM, DeepSpeed and torchtitan",
    "fit": "fitted constants, and the errors before and after",
    "rows": "all rows of the table, with all columns",
    "sources": "every value or row with its source; all names with titles",
    "variables": "the variables of the file: dimensions, ranges, missing values",
    "formulas": "formula, source, and the numbers put in",
    "defaults": "every value that was not given, with its source",
}


def sections_of(command: str) -> tuple[str, ...]:
    """Return the sections that a command has, in their order."""
    return tuple(TABLE[command]["sections"].split())


OF_BUY = "buy"  # Whose sections they are
Command = TypeVar("Command", bound=Callable[..., Any])
# What ``--verbose`` is short for, in commands that have it.
VERBOSE = ("formulas", "defaults")


def show_options(name: str) -> Callable[[Command], Command]:
    """Return the options ``--show`` and ``--verbose`` of a command that has sections."""
    sections = sections_of(name)

    def read(context: click.Context, _: click.Parameter, text: str | None) -> tuple[str, ...]:
        if text == "":
            sys.stdout.writelines(fitted(listed(sections)))
            context.exit()
        return read_show(text, sections)

    words = f"Further sections of the report: {', '.join(sections)}, or all."
    show = click.option(
        "--show",
        metavar="SECTION,..",
        is_flag=False,
        flag_value="",
        is_eager=True,
        callback=read,
        help=words,
    )
    if short := [name for name in VERBOSE if name in sections]:
        words = f"As --show {','.join(short)}."
        verbose = click.option("--verbose", "-v", is_flag=True, help=words)
        return lambda command: show(verbose(command))
    return show


def read_show(text: str | None, sections: Sequence[str]) -> tuple[str, ...]:
    """Return the sections that are asked for, in their own order."""
    asked = [name.strip() for name in (text or "").split(",") if name.strip()]
    known = (*sections, ALL)
    faults = [
        fault("--show", name, "no such section", nearest(name, known))
        for name in asked
        if name not in known
    ]
    if faults:
        raise InputError(faults)
    return tuple(name for name in sections if name in asked or ALL in asked)


def wanted_sections(given: Given, command: str) -> tuple[str, ...]:
    """Return the sections of a command that its options ask for."""
    also = VERBOSE if given.get("verbose") else ()
    return tuple(name for name in sections_of(command) if name in (*given["show"], *also))


def listed(sections: Sequence[str]) -> Iterator[str]:
    """Yield what there is to show."""
    wide = max(map(len, sections))
    yield from (f"  {name.ljust(wide)}  {SECTIONS[name]}" for name in sections)


def shown_sections(
    wanted: Iterable[str], bodies: Mapping[str, Callable[[], Iterable[str]]]
) -> Iterator[str]:
    """Yield the sections that are wanted; one that is empty says so."""
    keep(sections=bodies)
    for name in wanted:
        lines = bodies[name]() if name in bodies else ()
        text = "\n".join(line.rstrip("\n") for line in lines).strip("\n")
        yield from ("", text or f"{name}: none here")


def more_line(wanted: Iterable[str], bodies: Iterable[str], also: str = "") -> Iterator[str]:
    """Yield which further sections there are, and what else there is."""
    left = [name for name in bodies if name not in set(wanted)]
    if not left:
        return
    line = f"More: --show {left[0]}"
    for name in left[1:]:
        # Broken behind a comma, for a name in two lines is none to type.
        if len(f"{line},{name},") > prose():
            yield f"{line},"
            line = f"  {name}"
        else:
            line = f"{line},{name}"
    rest = f"; {also}" if also else ""
    indent = line[: len(line) - len(line.lstrip())]
    yield from wrap(
        f"{line.lstrip()}{rest}", prose(), initial_indent=indent, subsequent_indent="  "
    )


def further_lines(
    wanted: Sequence[str], bodies: Mapping[str, Callable[[], Iterable[str]]], also: str = ""
) -> Iterator[str]:
    """Yield what else there is to show, and the sections that are wanted."""
    yield from more_line(wanted, bodies, also)
    yield from shown_sections(wanted, bodies)


Rows = Sequence[Sequence[str]]


def first_rows(
    rows: Rows, most: int, write: Callable[[Rows], Iterable[str]], *, least: int = 1
) -> tuple[list[str], int]:
    """Return a table's head and first rows in at most so many lines, and how many rows these are.

    At least some rows stand there however many lines they take.
    """
    lines = [*write(rows)]
    while len(lines) > most and len(rows) > least + 1:
        rows = rows[:-1]
        lines = [*write(rows)]
    return lines, len(rows) - 1


def wrapped(text: str, indent: str = "") -> Iterator[str]:
    """Yield a text as lines of prose, the first indented and the others further."""
    later = f"{indent}  "
    yield from wrap(text, prose(), initial_indent=indent, subsequent_indent=later)
