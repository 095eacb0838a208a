"""What options and keyword arguments of Python state, as a spec file would state it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class Stated(TypedDict, total=False):
    """A sweep as it is stated, before it is checked."""

    title: str
    quantities: list[str]
    axes: dict[str, object]
    constants: dict[str, object]
    reductions: list[dict[str, object]]


def spec_of(values: Mapping[str, object]) -> Stated:
    """Return what a spec file would state of values by quantity or label."""
    table: Stated = {"title": "Sweep"}
    varying: dict[str, object] = {}
    constants: dict[str, object] = {}
    for name, value in values.items():
        plain = _plain(value)
        single = not isinstance(plain, list | Mapping) and not (
            isinstance(plain, str) and ("," in plain or ":" in plain or plain == "all")
        )
        (constants if single else varying)[name] = plain
    if varying:
        table["axes"] = varying
    if constants:
        table["constants"] = constants
    return table


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple | range) else value
