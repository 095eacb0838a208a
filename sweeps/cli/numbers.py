"""A quantity's value as people write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY, Array
from sweeps import display
from sweeps.bands import money, percent, written
from sweeps.spec.units import format_quantity, grouped, in_one_unit, plain

# Below it a predicted time says nothing.
LEAST_TIME, SHORT = 1e-9, "below 1 ns"


def shown(name: str, value: Any) -> str:
    """Return a value as people write it."""
    text = exact(name, value)
    if isinstance(value, str) or not 0.0 < abs(float(value)) < LEAST_TIME:
        return text
    short = name in VOCABULARY and VOCABULARY[name].units == "s" and display.row(name).group
    return SHORT if short else text


def exact(name: str, value: Any) -> str:
    """Return a value as people write it, however small it is."""
    if isinstance(value, str):
        return value
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    value = float(value)
    if np.isfinite(value):
        if display.percent(name):
            return percent(value)
        if units in ("s-1", "h", "d"):
            words = {"s-1": "tokens/s" if "token" in name else "/s", "h": "h", "d": "days"}[units]
            text = f"{value:,.0f}" if abs(value) >= 1000 else plain(value)
            return f"{text} {words}"
        if units == "USD":
            return money(value)
    return written(name, value)


def column(name: str, values: Sequence[Any]) -> tuple[str, list[str]]:
    """Return a column's unit and its values in that one unit, of three digits; "-" is missing."""
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    if any(isinstance(value, str) for value in values) or units in ("USD", "d", "h"):
        return "", [shown(name, value) for value in values]
    numbers = [float(value) for value in values]
    if display.percent(name):
        return "%", ["-" if np.isnan(number) else grouped(100.0 * number) for number in numbers]
    if units == "s-1":
        return "tokens/s" if "token" in name else "1/s", [grouped(number) for number in numbers]
    return in_one_unit(numbers, units, binary=False, write=grouped)


def size_of(value: float | Array) -> str:
    """Return bytes that stand beside others."""
    return format_quantity(float(value), "byte", binary=False)
