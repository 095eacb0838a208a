"""Examples in files of their own, and settings in a line: one reader for both."""

from __future__ import annotations

import ast
import shlex
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["examples", "keyed"]

NOT_IN_TOML = {"{None}": None, "{...}": ...}


def examples(test: str, name: str, **texts: str) -> Any:
    """Return what the TOML file beside a test has under a name: rows of cases, or values.

    Where a text of the file has ``{NAME}``, it is the text given for it; ``{None}`` is None.
    """
    return _filled(_read(Path(test).with_suffix(".toml"))[name], texts)


def keyed(text: str) -> dict[str, Any]:
    """Return ``"tp=2 kind=ring"`` as a dictionary; what is no number or such is a text."""
    return {
        key: _value(value) for key, _, value in (word.partition("=") for word in shlex.split(text))
    }


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


@cache
def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        if value in NOT_IN_TOML:
            return NOT_IN_TOML[value]
        for name, text in texts.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, texts) for key, item in value.items()}
    return value
