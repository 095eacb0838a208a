"""What a figure's declaration may hold: its kinds, their keys, forms and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType
from typing import Any

__all__ = ["FORMS", "KINDS", "Figure", "Form", "Key", "Kind", "listed"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A checked declaration of one figure.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    name : str
        What the figure's file is called after; unique among the figures of a sweep.
    where : str
        What faults call it, such as ``figures[1]``.
    options : mapping of str to Any
        Every key of its kind; None where a default depends on the data and isn't known yet.
    """

    kind: str
    name: str
    where: str = "figure"
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
    """A key of a declaration.

    Attributes
    ----------
    form : str
        One of `FORMS`.
    default : Any
        None where it depends on the data, or where there is none.
    meaning : str
        What it does, in a phrase.
    """

    form: str
    default: Any
    meaning: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure.

    Attributes
    ----------
    meaning : str
        What it shows, in a phrase.
    keys : mapping of str to Key
        Its keys.
    shown : tuple of str
        The keys that name the variables it shows.
    used : tuple of str
        The keys that name the dimensions it spreads out.
    filled : str
        The key of `used` that takes the label dimensions left over when it isn't given.
    most : int
        How many dimensions `filled` takes.
    """

    meaning: str
    keys: Mapping[str, Key]
    shown: tuple[str, ...]
    used: tuple[str, ...]
    filled: str
    most: int = 2


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
    "dimensions": Form(_texts, "a dimension's name, or a list of them"),
    "variable": Form(_text, "a variable's name"),
    "variables": Form(_some_texts, "a variable's name, or a list of them"),
    "number": Form(_number, "a number from 0"),
    "numbers": Form(_numbers, "numbers from 0"),
    "selection": Form(
        _table, 'a table of dimensions, such as { ranks = 64, topology = ["ring", "torus"] }'
    ),
    "scale": _choice("log", "linear"),
    "better": _choice("less", "more"),
}

_COMMON = {
    "kind": Key("text", None, "the kind of figure"),
    "name": Key("text", None, "what its file is called after"),
    "title": Key("text", None, "its title; composed from the metadata by default"),
    "at": Key("selection", {}, "dimensions held at one value, or cut down to a list of values"),
    "panels": Key("dimension", None, "a panel for every entry of this dimension"),
}
_SCALES = {
    "xscale": Key("scale", None, "scale of the horizontal axis; by default as the values suggest"),
    "yscale": Key("scale", "log", "scale of the vertical axis"),
}
_BETTER = Key("better", None, "whether less or more is better; more for rates by default")


def _lines(x: str, *, crossovers: bool) -> dict[str, Key]:
    return {
        **_COMMON,
        **_SCALES,
        "x": Key("dimension", x, "the horizontal axis"),
        "y": Key("variable", "time", "the variable to show"),
        "lines": Key("dimensions", None, "a line for each entry of one or two dimensions"),
        "best_of": Key("dimensions", (), "dimensions over which a line takes its best value"),
        "better": _BETTER,
        "crossovers": Key("flag", crossovers, "mark where the best line changes"),
        "lower_bound": Key("flag", False, "draw the lower bound of the time as well"),
    }


KINDS: Mapping[str, Kind] = {
    "curves": Kind(
        "a variable against message size, with the crossover points",
        _lines("message_bytes", crossovers=True),
        ("y",),
        ("x", "lines", "best_of", "panels"),
        "lines",
    ),
    "scaling": Kind(
        "a variable against the number of ranks",
        _lines("ranks", crossovers=False),
        ("y",),
        ("x", "lines", "best_of", "panels"),
        "lines",
    ),
    "best": Kind(
        "a map of the best topology or algorithm over two numeric dimensions",
        {
            **_COMMON,
            "x": Key("dimension", "message_bytes", "the horizontal axis"),
            "y": Key("dimension", "ranks", "the vertical axis"),
            "xscale": _SCALES["xscale"],
            "yscale": Key("scale", None, "scale of the vertical axis; by default as for x"),
            "value": Key(
                "variable", "time", "what is compared, or a flag variable such as chosen_algorithm"
            ),
            "over": Key("dimensions", None, "the dimensions whose best entry is shown"),
            "better": _BETTER,
            "within": Key(
                "number", 0.1, "stipple where the second best is worse by at most this fraction"
            ),
            "levels": Key("numbers", (), "lines at these ratios of the second best to the best"),
        },
        ("value",),
        ("x", "y", "over", "panels"),
        "over",
    ),
    "measured": Kind(
        "predictions beside measurements, and their ratio",
        {
            **_COMMON,
            **_SCALES,
            "x": Key("dimension", "message_bytes", "the horizontal axis"),
            "y": Key("variable", "time", "the prediction"),
            "measured": Key("variable", "measured_time", "the measurement"),
            "lines": Key("dimensions", None, "a line for each entry of one dimension"),
            "band": Key(
                "number", 0.25, "the error, as a fraction, up to which the ratio is shaded"
            ),
        },
        ("y", "measured"),
        ("x", "lines", "panels"),
        "lines",
        1,
    ),
    "bars": Kind(
        "several variables stacked, for every entry of one or two dimensions",
        {
            **_COMMON,
            "parts": Key("variables", None, "the variables to stack"),
            "x": Key("dimensions", None, "a bar for each entry of one or two dimensions"),
            "capacity": Key("variable", None, "a variable drawn as the limit, such as the memory"),
        },
        ("parts",),
        ("x", "panels"),
        "x",
    ),
}
