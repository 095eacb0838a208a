"""Files of specs: where those are that come with the package, and TOML read once."""

from __future__ import annotations

import csv
import os
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from sweeps.errors import RunError, reject
from sweeps.former import FORMER, renamed

StrPath = str | os.PathLike[str]


@lru_cache
def _package(file: str) -> Path:
    return Path(file).resolve().parents[1]


def shipped(kind: str) -> Path:
    """Return the folder of the specs that come with the package."""
    package = _package(__file__)
    checkout = package.parent / "specs" / kind
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    inside = package / "specs" / kind
    if inside.is_dir():
        return inside
    message = f"the folder specs/{kind} is missing from the installation of sweeps: install again"
    raise RunError(message)


def is_file(path: StrPath) -> bool:
    """Return whether there is such a file; no file has a name that is too long for one."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table that comes with the package, below lines of comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    heading, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    return [dict(zip(heading, row, strict=False)) for row in rows]


# A search reads the same few files for each number of GPUs.
@lru_cache(maxsize=256)
def _parsed(text: str, where: str) -> Any:
    content = tomllib.loads(text)
    # Few files have a name of before, and all words of one are looked at faster than its tables.
    today = FORMER.keys().isdisjoint(re.findall(r"\w+", text))
    return content if today else renamed(content, where)


def copied(content: Any) -> Any:
    """Return tables and lists of one's own, for who reads a file may change them."""
    if isinstance(content, dict):
        return {key: copied(value) for key, value in content.items()}
    return [copied(value) for value in content] if isinstance(content, list) else content


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    return copied(shared_toml(path))


def text_of(path: Path, encoding: str = "utf-8") -> str:
    """Return a file's text, or refuse what has none."""
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        reject(path, f"can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        reject(path, f"is not UTF-8 text (byte {error.start})")


def shared_toml(path: Path) -> Any:
    """Read a TOML file for who changes nothing: as long as it says the same it is one object."""
    text = text_of(path)
    try:
        return _parsed(text, path.name)
    except ValueError as error:  # also from a number with thousands of digits
        reject(path, f"is not TOML: {error}")
    except RecursionError:
        reject(path, "is not a spec: nested too deeply")
