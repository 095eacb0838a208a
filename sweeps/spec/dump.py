"""A stated sweep as TOML text, for the file that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["to_toml"]


def to_toml(stated: Mapping[str, Any]) -> str:
    """Write a stated sweep as TOML.

    Parameters
    ----------
    stated : mapping
        Text, numbers, lists and tables, as a spec file has them.

    Returns
    -------
    str
        TOML that reads back as the same.
    """
    plain = [f"{key} = {_value(value)}" for key, value in stated.items() if not _table(value)]
    parts = ["\n".join(plain)] if plain else []
    for key, value in stated.items():
        if isinstance(value, Mapping):
            parts += _tables(key, value)
        elif _table(value):
            for row in value:
                lines = [f"{name} = {_value(item)}" for name, item in row.items()]
                parts.append("\n".join([f"[[{key}]]", *lines]))
    return "\n\n".join(parts) + "\n"


def _table(value: Any) -> bool:
    listed = isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    return isinstance(value, Mapping) or listed


def _tables(key: str, table: Mapping[str, Any]) -> list[str]:
    lines = [f"{k} = {_value(v)}" for k, v in table.items() if not isinstance(v, Mapping)]
    parts = ["\n".join([f"[{key}]", *lines])] if lines else []
    for name, inner in table.items():
        if isinstance(inner, Mapping):
            parts += _tables(f"{key}.{name}", inner)
    return parts


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
