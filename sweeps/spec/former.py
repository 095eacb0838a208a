"""What quantities were called before, which files and options may still have for one release.

``renames.csv`` has a row for each: its former name, and its name.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

with Path(__file__).with_name("renames.csv").open(encoding="utf-8", newline="") as _rows:
    FORMER: Mapping[str, str] = {row["former"]: row["name"] for row in csv.DictReader(_rows)}
# In texts, of which names of one word may be words.
_NAMES = re.compile(rf"\b(?:{'|'.join(name for name in FORMER if '_' in name)})\b")
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


def warn_of(met: Mapping[str, str], where: str) -> None:
    """Warn of former names that were met, with those of today."""
    if met:
        listed = ", ".join(f"{old} is {new}" for old, new in met.items())
        warnings.warn(f"{where}: names have changed: {listed}", FutureWarning, stacklevel=3)


def _renamed(content: Any, met: dict[str, str]) -> Any:
    if isinstance(content, dict):
        tables = {}
        for key, value in content.items():
            own = FORMER.get(key, key)
            if own != key and own not in content:
                met[key] = own
            else:
                own = key
            tables[own] = value if key in _PROSE else _renamed(value, met)
        return tables
    if isinstance(content, list):
        return [_renamed(value, met) for value in content]
    if not isinstance(content, str):
        return content

    if content in FORMER:
        met[content] = FORMER[content]
        return FORMER[content]

    def replaced(found: re.Match[str]) -> str:
        met[found[0]] = FORMER[found[0]]
        return FORMER[found[0]]

    return _NAMES.sub(replaced, content)
