"""What a figure's declaration is made of: keys, their forms, and how these are read."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from sweeps import display
from sweeps.errors import refuse
from sweeps.plots.style import long_name


@dataclass(frozen=True, slots=True)
class Figure:
    """A checked declaration of one figure."""

    kind: str  # One of `sweeps.plots.schema.KINDS`
    name: str  # What the figure's file is called after; unique among the figures of a sweep
    where: str = "figure"  # What faults call it, such as ``figures[1]``
    # Every key of its kind; None where a default depends on the data and isn't known yet
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, key: str) -> Any:
        """Return one of its options."""
        return self.options[key]

    def refuse(self, key: str, wrong: str, allowed: str, value: object = None) -> NoReturn:
        """Refuse one of its options, or another value under its name."""
        refuse(f"{self.where}.{key}", self.options[key] if value is None else value, wrong, allowed)


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
    most: int  # How many dimensions `filled` takes
    axes: tuple[str, ...]  # The keys that name dimensions of numbers


def listed(value: Any) -> list[str]:
    """Return the names that a key gives: none, one or several."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


class NotReadableError(ValueError):
    """A value that doesn't have its key's form."""


def _checked(fine: Callable[[Any], bool], made: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return what reads a value that is fine."""

    def read(value: Any) -> Any:
        if not fine(value):
            raise NotReadableError
        return made(value)

    return read


_text = _checked(lambda value: isinstance(value, str) and bool(value))
_flag = _checked(lambda value: isinstance(value, bool))
_number = _checked(
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value >= 0,
    float,
)
_count = _checked(
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1
)


def _texts(value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        raise NotReadableError
    return tuple(dict.fromkeys(_text(entry) for entry in several))


_some_texts = _checked(bool, _texts)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise NotReadableError
    table = {}
    for dim, wanted in value.items():
        several = wanted if isinstance(wanted, list | tuple) else [wanted]
        if not several or not all(isinstance(entry, str | Real) for entry in several):
            raise NotReadableError
        table[dim] = list(several) if isinstance(wanted, list | tuple) else wanted
    return table


def _entries(value: Any) -> dict[str, object]:
    table = _table(value)
    if not table or any(isinstance(entry, list) for entry in table.values()):
        raise NotReadableError
    return table


def _choice(*allowed: str) -> Form:
    known = ", ".join(f'"{entry}"' for entry in allowed)
    return Form(_checked(lambda value: value in allowed, str), f"one of {known}")


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
    "number": Form(_number, "0 or more"),
    "count": Form(_count, "a whole number, 1 or more"),
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

# Kinds that stack a total's known parts, and all that spread plans out.
BREAKDOWNS = ("memory", "step_parts", "communication")
OF_PLANS = (*BREAKDOWNS, "best_plans")

_TABLES = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text("utf-8"))


def _keys(table: Mapping[str, Any]) -> Iterator[tuple[str, Key]]:
    """Yield the keys of a kind: those that it shares, then its own."""
    tables = [*(_TABLES["shared"][name] for name in table["has"]), table.get("keys", {})]
    usual = table.get("usual", {})
    for keys in tables:
        for name, key in keys.items():
            default = usual.get(name, key.get("default"))
            default = tuple(default) if isinstance(default, list) else default
            yield name, Key(key["form"], default, key["meaning"])


KINDS: Mapping[str, Kind] = {
    name: Kind(
        table["meaning"],
        dict(_keys(table)),
        tuple(table["shown"]),
        tuple(table["used"]),
        table["filled"],
        table.get("most", 2),
        tuple(table.get("axes", ())),
    )
    for name, table in _TABLES["kinds"].items()
}

# What the totals of a training step are made of.

MEMORY_TOTAL = "peak_memory"
STEP_TOTAL = "step_time"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a stack."""

    variables: tuple[str, ...]  # The variables that it is the sum of
    label: str  # What it is called; empty where its only variable's metadata says so
    colour: int  # Which of the areas' colours it has


# Of the fullest stage (with the prefix) or of a stage of its own (without).
_PREFIXES = ("peak_", "")
_MEMORY = tuple(
    Part(tuple(part["variables"]), part["label"], part["colour"]) for part in _TABLES["memory"]
)
_DIMENSIONS = _TABLES["dimensions"]
_ALL_COMMUNICATION = {
    "time": "communication_upper_bound",
    "volume": "communication_volume",
    "energy": "communication_energy",
}
_COLOURS = _TABLES["step"] | {
    f"{dim}_communication_{measure}": colour
    for dim, colour in _DIMENSIONS.items()
    for measure in _ALL_COMMUNICATION
}
_MOST_COLOURS = 16


def colour_of(name: str) -> int | None:
    """Return the area's colour of a part of a step or of its memory, the same everywhere."""
    quantity = name.removeprefix("peak_")
    for part in _MEMORY:
        if quantity in part.variables:
            return part.colour + _MOST_COLOURS // 2 * (quantity != part.variables[0])
    return _COLOURS.get(name)


def known_parts(kind: str, names: Collection[str], measure: str = "time") -> tuple[str, ...]:
    """Return the variables that a kind of figure stacks by itself, of those there are."""
    if kind == "communication":
        every = [f"{dim}_communication_{measure}" for dim in _DIMENSIONS]
        return tuple(name for name in every if name in names)
    total = MEMORY_TOTAL if kind == "memory" else STEP_TOTAL
    for prefix in _PREFIXES if kind == "memory" else ("",):
        every = [name for part in _MEMORY for name in part.variables]
        every = [f"{prefix}{name}" for name in (every if kind == "memory" else _TABLES["step"])]
        parts = tuple(name for name in every if name in names)
        if len(parts) > 1:
            return parts
    return (total,) if total in names else ()


def column_of_bars(names: Collection[str]) -> str | None:
    """Return what stands at each bar's end of a step's parts, if it is there."""
    return next((name for name in display.rows("rates", screen="bar") if name in names), None)


def total_of(kind: str, parts: Sequence[str], measure: str = "time") -> str:
    """Return the variable that the parts of a kind of figure add up to."""
    if kind == "communication":
        return _ALL_COMMUNICATION[measure]
    if kind == "step_parts":
        return STEP_TOTAL
    return MEMORY_TOTAL if parts[0].startswith("peak_") else "memory"


def stacked(kind: str, variables: Sequence[str], *, chosen: bool) -> list[Part]:
    """Return the parts of a stack."""
    if kind != "memory" or chosen:
        known = {} if kind == "memory" else {**_COLOURS}
        taken = [known[name] for name in variables if name in known]
        free = [colour for colour in range(_MOST_COLOURS) if colour not in taken]
        rest = iter([*free, *range(len(variables))])
        return [
            Part((name,), "", known[name] if name in known else next(rest)) for name in variables
        ]
    parts = []
    for part in _MEMORY:
        names = tuple(name for name in variables if name.removeprefix("peak_") in part.variables)
        if names:
            parts.append(Part(names, part.label if len(names) > 1 else "", part.colour))
    return parts or [Part(tuple(variables), "", 0)]


def labelled(parts: Iterable[Part], attrs: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return what parts are called: from the metadata, without what all of it begins with."""
    parts = list(parts)
    names = {name: long_name(name, attrs[name]) for part in parts for name in part.variables}
    short = _distinct(names)
    short |= {name: display.words(name) for name in names if display.row(name).group == "step part"}
    return [part.label or short[part.variables[0]] for part in parts]


def _distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Return names without what they share: what follows or leads a colon, first, last words."""
    if len(names) < 2:
        return dict(names)
    pieces = {name: words.rpartition(": ") for name, words in names.items()}
    ends = {end for _, _, end in pieces.values()}
    if len(ends) == 1 and all(start for start, _, _ in pieces.values()):
        short = {name: start for name, (start, _, _) in pieces.items()}
    else:
        starts = Counter(start for start, _, _ in pieces.values() if start)
        common = [start for start, count in starts.items() if count > 1]
        short = {
            name: end if start in common else names[name]
            for name, (start, _, end) in pieces.items()
        }
    words = [text.split() for text in short.values()]
    while all(len(word) > 1 and word[0] == words[0][0] for word in words):
        words = [word[1:] for word in words]
    while all(len(word) > 1 and word[-1] == words[0][-1] for word in words):
        words = [word[:-1] for word in words]
    return {name: " ".join(word).rstrip(",") for name, word in zip(short, words, strict=True)}
