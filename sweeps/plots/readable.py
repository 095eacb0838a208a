"""Numbers and names as people read them: 64 KiB, 12.5 µs, 450 GB/s, α₁."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.errors import InputError
from sweeps.spec.units import parse_quantity

__all__ = [
    "Scale",
    "long_name",
    "number",
    "parse",
    "plain",
    "scale_of",
    "sentence",
    "shortened",
    "symbol",
]

_STEPS = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PLAIN_DIGITS = 6  # whole numbers of at most so many digits are written out
_NOT_A_NUMBER = "none"


@dataclass(frozen=True, slots=True)
class Scale:
    """The multiples in which a unit is read."""

    # Factor and text of each, from small to large; one of them has the factor 1
    multiples: tuple[tuple[float, str], ...]
    binary: bool = False  # Whether they are powers of 1024

    def pick(self, value: float) -> tuple[float, str]:
        """Return the factor and text of the multiple in which a value is read best."""
        size = abs(value) * (1 + 1e-9)
        if size == 0:
            return next(multiple for multiple in self.multiples if multiple[0] == 1)
        fitting = [multiple for multiple in self.multiples if multiple[0] <= size]
        return fitting[-1] if fitting else self.multiples[0]

    def text(self, value: float, digits: int = 3) -> str:
        """Return a value with its unit, rounded to some significant digits."""
        factor, unit = self.pick(value)
        return f"{number(value / factor, digits)} {unit}".strip()

    def given(self, value: float, digits: int = 4) -> str:
        """Return a value that somebody chose: bytes round in powers of ten so (``140 GB``)."""
        if self.binary and not _short(value / self.pick(value)[0], digits):
            decimal = _prefixed("B", 0, 15)
            if _short(value / decimal.pick(value)[0], digits):
                return decimal.text(value, digits)
        return self.text(value, digits)


def _short(value: float, digits: int) -> bool:
    return abs(float(f"{value:.{digits}g}") - value) <= 1e-9 * abs(value)


def _prefixed(unit: str, least: int, most: int) -> Scale:
    steps = [step for step in _STEPS if least <= step <= most]
    return Scale(tuple((10.0**step, f"{_STEPS[step]}{unit}") for step in steps))


_SCALES = {
    "byte": Scale(tuple((1024.0**i, text) for i, text in enumerate(_BINARY)), binary=True),
    "bit": _prefixed("bit", 0, 15),
    "s": _prefixed("s", -12, 0),
    "byte s-1": _prefixed("B/s", 0, 15),
    "bit s-1": _prefixed("bit/s", 0, 15),
    "s byte-1": _prefixed("s/B", -12, 0),
    "J": _prefixed("J", -12, 15),
    "J bit-1": _prefixed("J/bit", -12, 0),
    "J byte-1": _prefixed("J/B", -12, 0),
    "W": _prefixed("W", -3, 12),
    "s-1": _prefixed("/s", 0, 15),
    "1": Scale(((1.0, ""),)),
    "": Scale(((1.0, ""),)),
}


def scale_of(units: str) -> Scale:
    """Return the multiples in which a canonical unit is read; its own name if it isn't known."""
    return _SCALES.get(units, Scale(((1.0, units),)))


def number(value: float, digits: int = 3) -> str:
    """Return a number without a needless exponent or zeros."""
    if value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return _NOT_A_NUMBER
    whole = abs(value) < 10.0**_PLAIN_DIGITS
    if whole and (value == round(value) or abs(value) >= 10.0**digits):
        return f"{value:.0f}"
    text = f"{value:.{digits}g}"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def parse(text: str) -> float | None:
    """Read a number with or without a unit, whatever it is a number of."""
    for units in filter(None, _SCALES):
        try:
            return parse_quantity(text, units, field="", bare_is_si=True)
        except InputError:
            continue
    return None


_SUBSCRIPTS = dict(zip("0123456789", "₀₁₂₃₄₅₆₇₈₉", strict=True))


def symbol(latex: str) -> str:
    """Return a LaTeX symbol as plain text, or nothing where plain text has no such form."""
    text = latex.strip().strip("$").replace("{", "").replace("}", "")
    text = re.sub(r"\\([A-Za-z]+)", lambda found: _greek(found[1]), text)
    text = re.sub(r"_([0-9])$", lambda found: _SUBSCRIPTS[found[1]], text)
    return "" if re.search(r"[\\_^\s]", text) else text


def _greek(name: str) -> str:
    """Return a Greek letter by its LaTeX name; a backslash for any other command."""
    size = "SMALL" if name.islower() else "CAPITAL"
    letter = {"LAMBDA": "LAMDA"}.get(name.upper(), name.upper())  # as Unicode spells it
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {letter}")
    except KeyError:
        return "\\"


def long_name(name: str, attrs: Mapping[str, Any], *, short: bool = False) -> str:
    """Return what a variable is, in words; `short` leaves out what stands in parentheses."""
    words = str(attrs.get("long_name") or plain(name))
    return re.sub(r"\s*\([^)]*\)", "", words) if short else words


def sentence(text: str) -> str:
    """Return text with a capital first letter; a name such as all_reduce stays as it is."""
    first = text.split(" ", 1)[0]
    return text if "_" in first or not first.islower() else text[:1].upper() + text[1:]


def shortened(text: str, letters: int) -> str:
    """Return text cut to some letters, at a space where there is one."""
    if len(text) <= letters:
        return text
    cut = text[: letters - 1]
    return f"{cut.rsplit(' ', 1)[0] if ' ' in cut else cut}…"


def plain(name: str) -> str:
    """Return a name with spaces for underscores."""
    return name.replace("_", " ")
