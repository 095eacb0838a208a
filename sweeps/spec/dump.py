"""A stated sweep as TOML text, for the file that it makes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from overhead.quantity import VOCABULARY

__all__ = ["to_toml", "with_si_units", "with_unit"]

UNITS = {
    "byte": "B",
    "s": "s",
    "byte s-1": "B/s",
    "J bit-1": "J/bit",
    "s byte-1": "s/B",
    "J": "J",
    "W": "W",
    "1 s-1": "FLOP/s",
    "USD h-1": "USD/h",
    "USD": "USD",
}
# A piece of a range that is no quantity: a factor or a number of points.
_RULE = re.compile(r"\s*(x|log|lin)")
_ARITHMETIC = re.compile(r"[\d.eE+*/()\s-]+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def with_si_units(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Give the numbers without a unit in a stated sweep their SI unit."""
    tables = ("axes", "constants")
    return {
        key: _labelled(value) if key in tables and isinstance(value, Mapping) else value
        for key, value in stated.items()
    }


def _labelled(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _labelled(value) if isinstance(value, Mapping) else with_unit(name, value)
        for name, value in table.items()
    }


def with_unit(name: str, value: Any) -> Any:
    """Give numbers without a unit the SI unit of their quantity."""
    unit = UNITS.get(VOCABULARY[name].units) if name in VOCABULARY else None
    if unit is None:
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return [with_unit(name, one) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value!r} {unit}" if math.isfinite(value) else value
    if not isinstance(value, str):
        return value
    parts = [part for piece in value.split(",") for part in piece.split(":")]
    parts = [part for part in parts if not _RULE.match(part)]
    mixed = not all(_is_number(part.strip().removeprefix("+")) for part in parts)
    return ",".join(
        ":".join(_part(part, unit, mixed) for part in piece.split(":"))
        for piece in value.split(",")
    )


def _part(text: str, unit: str, mixed: bool) -> str:
    """Return one number with its unit; among others with units only a zero may lack it."""
    sign = "+" if text.strip().startswith("+") else ""
    number = text.strip().removeprefix("+")
    if _RULE.match(text) or not _is_number(number):
        return text
    try:
        value = float(number)
    except ValueError:
        return text if mixed else f"{sign}({number}) {unit}"
    return f"{sign}{number} {unit}" if math.isfinite(value) and not (mixed and value) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return bool(_ARITHMETIC.fullmatch(text))
    return True


def to_toml(stated: Mapping[str, Any]) -> str:
    """Write a stated sweep as TOML."""
    plain = [f"{_key(k)} = {_value(v)}" for k, v in stated.items() if not _table(v)]
    parts = ["\n".join(plain)] if plain else []
    for key, value in stated.items():
        if isinstance(value, Mapping):
            parts.append(_lines(f"[{_key(key)}]", value))
        elif _table(value):
            parts += [_lines(f"[[{_key(key)}]]", row) for row in value]
    return "\n\n".join(parts) + "\n"


def _table(value: Any) -> bool:
    listed = isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    return isinstance(value, Mapping) or listed


def _lines(head: str, table: Mapping[str, Any]) -> str:
    # Tables inside are written inline, so that the order of axes stays.
    return "\n".join([head, *(f"{_key(name)} = {_value(item)}" for name, item in table.items())])


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    # JSON escapes what TOML does, but for one character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
