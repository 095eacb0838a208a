"""What keyword arguments of Python state, as a spec file would state it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def spec_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a spec file would state of values by quantity or label."""
    table: dict[str, Any] = {"title": "Sweep"}
    varying: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in values.items():
        plain = _plain(value)
        single = not isinstance(plain, list | Mapping) and not (
            isinstance(plain, str) and ("," in plain or ":" in plain or plain == "all")
        )
        (constants if single else varying)[name] = plain
    table |= {"axes": varying} if varying else {}
    return table | ({"constants": constants} if constants else {})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple | range) else value
