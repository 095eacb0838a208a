"""What quantities were called before, which files and options may still have for one release.

``renames.csv`` has a row for each: its former name, and its name.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

with Path(__file__).with_name("renames.csv").open(encoding="utf-8", newline="") as _rows:
    FORMER: Mapping[str, str] = {row["former"]: row["name"] for row in csv.DictReader(_rows)}
# Changed names that one warning lists.
MOST_TOLD = 4
# In texts, of which names of one word may be words.
_NAMES = re.compile(r"\w*_\w*")
_PROSE = ("title", "source", "where", "note", "description")


def renamed(content: Any, where: str) -> Any:
    """Return tables with the names that quantities have, and warn of former ones.

    Parameters
    ----------
    content : mapping, list or value
        What a file states.
    where : str
        The file, for the warning.

    Returns
    -------
    mapping, list or value
        The same with names in keys and texts replaced.
    """
    met: dict[str, str] = {}
    changed = _renamed(content, met)
    warn_of(met, where)
    return changed


def renamed_table(rows: Sequence[Sequence[str]], where: str) -> list[list[str]]:
    """Return a table's cells with the names of today in its headings and where cells hold names."""
    met: dict[str, str] = {}
    header = [cell.strip() for cell in rows[0]]
    named = {index for index, cell in enumerate(header) if cell in ("quantity", "settings")}
    first = [_present(cell, met) for cell in header]
    below = [
        [_renamed(cell, met) if index in named else cell for index, cell in enumerate(row)]
        for row in rows[1:]
    ]
    warn_of(met, where)
    return [first, *below]


def warn_of(met: Mapping[str, str], where: str) -> None:
    """Warn of former names that were met, with those of today."""
    if met:
        told = [f"{old} is {new}" for old, new in tuple(met.items())[:MOST_TOLD]]
        more = len(met) - len(told)
        listed = ", ".join(told) + (f", and {more} more" if more else "")
        warnings.warn(f"{where}: names have changed: {listed}", FutureWarning, stacklevel=3)


def _renamed(content: Any, met: dict[str, str]) -> Any:
    if isinstance(content, dict):
        tables = {}
        for key, value in content.items():
            name = FORMER.get(key, key)
            if name != key and name not in content:
                met[key] = name
            else:
                name = key
            tables[name] = value if key in _PROSE else _renamed(value, met)
        return tables
    if isinstance(content, list):
        return [_renamed(value, met) for value in content]
    if not isinstance(content, str):
        return content

    if content in FORMER:
        return _present(content, met)
    return _NAMES.sub(lambda match: _present(match[0], met), content)


def _present(name: str, met: dict[str, str]) -> str:
    """Return what a name is today, and keep it if it was another."""
    if name not in FORMER:
        return name
    met[name] = FORMER[name]
    return FORMER[name]
