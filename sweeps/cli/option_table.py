"""The options of commands: a row each of ``options.csv``, by groups that commands share.

A row has the group, what the option gives, and its flags (empty: all names of a quantity or
label).  Its type is text, or

- ``switch``, or ``either`` with the flags of both;
- ``usual word``: the word where it is given without a value;
- ``whole 1``: a whole number, here from 1 on; ``choice a b``: one of some words;
- ``several``: the option may be given again and again;
- ``group``: here stand the options of the group that is named in its place;
- another group's name: the option is that group's.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import click

from sweeps.cli.typed import flags_of

Command = TypeVar("Command", bound=Callable[..., Any])
Row = Mapping[str, str]


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a table that stands beside this file."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as rows:
        head, *rest = csv.reader(rows)
    return [dict(zip(head, row, strict=True)) for row in rest]


@cache
def _groups() -> Mapping[str, Mapping[str, Row]]:
    groups: dict[str, dict[str, Row]] = {}
    for row in read_table("options.csv"):
        groups.setdefault(row["group"], {})[row["name"]] = row
    return groups


def _rows(group: str) -> Iterator[Row]:
    """Yield a group's rows, with those of the groups that it names in their places."""
    groups = _groups()
    for name, row in groups[group].items():
        if row["type"] == "group":
            yield from _rows(name)
        elif row["type"] in groups:
            yield from (other for other in _rows(row["type"]) if other["name"] == name)
        else:
            yield row


def options(group: str, *names: str) -> Callable[[Command], Command]:
    """Return what adds the options of a group to a command, or those that are named."""

    def add(command: Command) -> Command:
        rows = [row for row in _rows(group) if not names or row["name"] in names]
        for row in reversed(rows):
            command = _option(row)(command)
        return command

    return add


def _option(row: Row) -> Callable[[Command], Command]:
    kind, *words = row["type"].split() or [""]
    settings: dict[str, Any] = {"help": row["help"] or None}
    if row["value"]:
        settings["metavar"] = row["value"]
    if row["default"]:
        settings["default"] = row["default"]
    match kind:
        case "switch":
            settings["is_flag"] = True
        case "either":
            settings["default"] = None
        case "usual":
            settings |= {"is_flag": False, "flag_value": words[0]}
        case "several":
            settings["multiple"] = True
        case "choice":
            settings["type"] = click.Choice(words)
        case "whole":
            settings["type"] = click.IntRange(int(words[0])) if words else int
    return click.option(*_flags(row), row["name"], **settings)


def _flags(row: Row) -> list[str]:
    return row["flags"].split() or [*flags_of(row["name"])]


@cache
def flags_in(group: str) -> Mapping[str, str]:
    """Return the first flag of each option of a group, by what it gives."""
    return {row["name"]: _flags(row)[0] for row in _rows(group)}
