"""What a figure's declaration is made of: keys, their forms, and how these are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType
from typing import Any

__all__ = ["FORMS", "Figure", "Form", "Key", "Kind", "NotReadableError", "listed"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A checked declaration of one figure."""

    kind: str  # One of `sweeps.plots.kinds.KINDS`
    name: str  # What the figure's file is called after; unique among the figures of a sweep
    where: str = "figure"  # What faults call it, such as ``figures[1]``
    # Every key of its kind; None where a default depends on the data and isn't known yet
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, key: str) -> Any:
        """Return one of its options."""
        return self.options[key]


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a key's value has: how to read it, and what to call it in a fault."""

    read: Callable[[Any], Any]
    meaning: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a declaration."""

    form: str  # One of `FORMS`
    default: Any  # None where it depends on the data, or where there is none
    meaning: str  # What it does, in a phrase


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure."""

    meaning: str  # What it shows, in a phrase
    keys: Mapping[str, Key]  # Its keys
    shown: tuple[str, ...]  # The keys that name the variables it shows
    used: tuple[str, ...]  # The keys that name the dimensions it spreads out
    filled: str  # The key of `used` that takes the label dimensions left over when it isn't given
    most: int = 2  # How many dimensions `filled` takes
    axes: tuple[str, ...] = ("x",)  # The keys that name dimensions of numbers


def listed(value: Any) -> list[str]:
    """Return the names that a key gives: none, one or several."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


class NotReadableError(ValueError):
    """A value that doesn't have its key's form."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise NotReadableError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NotReadableError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        raise NotReadableError
    return tuple(dict.fromkeys(_text(one) for one in several))


def _some_texts(value: Any) -> tuple[str, ...]:
    if not value:
        raise NotReadableError
    return _texts(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise NotReadableError
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotReadableError
    return value


def _numbers(value: Any) -> tuple[float, ...]:
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(sorted(_number(one) for one in several))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise NotReadableError
    table = {}
    for dim, wanted in value.items():
        several = wanted if isinstance(wanted, list | tuple) else [wanted]
        if not several or not all(isinstance(one, str | Real) for one in several):
            raise NotReadableError
        table[dim] = list(several) if isinstance(wanted, list | tuple) else wanted
    return table


def _entries(value: Any) -> dict[str, Any]:
    table = _table(value)
    if not table or any(isinstance(one, list) for one in table.values()):
        raise NotReadableError
    return table


def _choice(*allowed: str) -> Form:
    def read(value: Any) -> str:
        if value not in allowed:
            raise NotReadableError
        return str(value)

    return Form(read, "one of " + ", ".join(f'"{one}"' for one in allowed))


FORMS: Mapping[str, Form] = {
    "text": Form(_text, "text"),
    "flag": Form(_flag, "true or false"),
    "dimension": Form(_text, "a dimension's name"),
    "axis": Form(_text, "a dimension's name, or that of a table's column"),
    "dimensions": Form(_texts, "a dimension's name, or a list of them"),
    "variable": Form(_text, "a variable's name"),
    "variables": Form(_some_texts, "a variable's name, or a list of them"),
    "quantity": Form(_text, "the name of a variable or coordinate"),
    "quantities": Form(_some_texts, "the name of a variable or coordinate, or a list of them"),
    "number": Form(_number, "a number from 0"),
    "count": Form(_count, "a whole number from 1"),
    "numbers": Form(_numbers, "numbers from 0"),
    "selection": Form(
        _table, 'a table of dimensions, such as { ranks = 64, topology = ["ring", "torus"] }'
    ),
    "entries": Form(
        _entries, 'a table of dimensions with a value each, such as { inter_bandwidth = "50GB/s" }'
    ),
    "scale": _choice("log", "linear"),
    "better": _choice("less", "more"),
    "measure": _choice("time", "volume", "energy"),
}
