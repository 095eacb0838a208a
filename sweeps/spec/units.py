"""Text with units to numbers in canonical units, and back for people.

A number, a prefix and a unit (``400 Gbit/s``, ``64MiB``, ``5 pJ/bit``) are read by the small table
below, and so is arithmetic with them (``18 * 25 GB/s``): exactly, and rounded once.  Bits and bytes
are never guessed: ``Gb`` is a gigabit, ``GB`` a gigabyte, and what could be either, or decimal as
well as binary (``gb``, ``KB``), is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from overhead.frozen import frozen
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.errors import nearest, refuse
from sweeps.spec.names import names_of

if TYPE_CHECKING:
    from fractions import Fraction


class _Unit(NamedTuple):
    """A unit as an exact fraction of the base units, and its powers of them."""

    numerator: int
    denominator: int
    powers: tuple[int, ...]


# Of byte, second, joule, USD and floating-point operation, as `_Unit.powers`.  UDUNITS has none of
# the last (they are a plain number there), so where that is wanted a text may name them or not.
_PLAIN = (0, 0, 0, 0, 0)
_OPERATIONS = {"1": (0, 0, 0, 0, 1), "1 s-1": (0, -1, 0, 0, 1)}

_SMALL = {"m": -3, "u": -6, "µ": -6, "μ": -6, "n": -9, "p": -12, "f": -15}
_LARGE = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# Names, the unit, and which prefixes it takes.  No part of a byte is a thing, and `Ms` is far more
# often a slip for `ms` than a megasecond, so neither is read.
_TABLE: tuple[tuple[str, _Unit, str], ...] = (
    ("B byte bytes Byte Bytes", _Unit(1, 1, (1, 0, 0, 0, 0)), "large binary"),
    ("b bit bits Bit Bits", _Unit(1, 8, (1, 0, 0, 0, 0)), "large binary"),
    ("Bps", _Unit(1, 1, (1, -1, 0, 0, 0)), "large binary"),
    ("bps", _Unit(1, 8, (1, -1, 0, 0, 0)), "large binary"),
    ("s sec second seconds", _Unit(1, 1, (0, 1, 0, 0, 0)), "small"),
    ("min minute minutes", _Unit(60, 1, (0, 1, 0, 0, 0)), ""),
    ("h hr hour hours", _Unit(3600, 1, (0, 1, 0, 0, 0)), ""),
    ("day days d", _Unit(86400, 1, (0, 1, 0, 0, 0)), ""),
    ("year years", _Unit(31557600, 1, (0, 1, 0, 0, 0)), ""),
    ("J joule joules", _Unit(1, 1, (0, 0, 1, 0, 0)), "small large"),
    ("Wh", _Unit(3600, 1, (0, 0, 1, 0, 0)), "large"),
    ("W watt watts", _Unit(1, 1, (0, -1, 1, 0, 0)), "small large"),
    ("FLOP FLOPs flop", _Unit(1, 1, (0, 0, 0, 0, 1)), "large"),
    ("FLOPS", _Unit(1, 1, (0, -1, 0, 0, 1)), "large"),
    ("USD $", _Unit(1, 1, (0, 0, 0, 1, 0)), ""),
    ("%", _Unit(1, 100, _PLAIN), ""),
)

_DOWN, _UP = "f p n µ m", "k M G T P E"


class _Canonical(NamedTuple):
    """A canonical unit: what it measures, examples, and how people write it."""

    words: str
    examples: str
    symbol: str
    prefixes: str


_CANONICAL = {
    "1": _Canonical("a plain number", "'8'", "", ""),
    "s": _Canonical("a time", "'2 us'", "s", _DOWN),
    "byte": _Canonical("an amount of data", "'64 MiB' or '140 GB'", "B", _UP),
    "byte s-1": _Canonical("a bandwidth", "'450 GB/s' or '400 Gbit/s'", "B/s", _UP),
    "J": _Canonical("an energy", "'4.1 kJ'", "J", f"{_DOWN} {_UP}"),
    "J bit-1": _Canonical("an energy per bit", "'5 pJ/bit'", "J/bit", f"{_DOWN} {_UP}"),
    "s byte-1": _Canonical("a time per byte", "'11 ps/B'", "s/B", _DOWN),
    "W": _Canonical("a power", "'700 W'", "W", f"{_DOWN} {_UP}"),
    "1 s-1": _Canonical("a rate of operations", "'989 TFLOP/s'", "FLOP/s", _UP),
    "s-1": _Canonical("a rate", "'1000/s'", "/s", _UP),
    "d-1": _Canonical("a rate", "'0.004/d'", "/d", ""),
    "USD h-1": _Canonical("a price per hour", "'2.5 USD/h'", "USD/h", ""),
    "USD kWh-1": _Canonical("a price of energy", "'0.08 USD/kWh'", "USD/kWh", ""),
    "USD": _Canonical("an amount of money", "'1000 USD'", "USD", ""),
}

_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>\d[\d_]*)(?:\.(?P<part>[\d_]*))?|\.(?P<only>\d[\d_]*))"
    r"(?:[eE](?P<exponent>[+-]?\d+))?"
)
_NOT_FINITE = re.compile(r"(?P<sign>[+-]?)(?P<word>infinity|inf|unlimited|nan)\b", re.IGNORECASE)
UNLIMITED = "unlimited"  # how people write an infinite rate or size
_TOKEN = re.compile(r"(?P<symbol>[^\W\d_]+|%|\$)(?P<power>-?\d)?")
_UNDERSCORES = re.compile(r"_(?!\d)|__")
# Powers of powers, which take forever, and characters without a meaning here.
_UNREADABLE = re.compile(r"(\*\*|\^).*(\*\*|\^)|[^\w\s.+\-*/^()]")
_PIECE = re.compile(r"(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?|[^\W\d_]+|\*\*|\S")
_EXPONENT = re.compile(r"(?<![^\W\d])(\d[\d_.]*|\.\d+)[eE][+-]?\d+")
_ARITHMETIC = re.compile(r"[*()^]|/\s*\d|\d\s*[+-]\s*\d")
_LONGEST, _LARGEST_EXPONENT = 120, 400
_LARGE_SUM = re.compile(r"(?P<count>\$?\s*[\d_.]+)\s*(?P<step>[kKMB])\s*(?P<unit>USD|\$|)")


def _symbols() -> dict[str, _Unit]:
    """Return every name that can stand in a text: the table's, with their prefixes."""
    symbols = {prefix: _Unit(2**power, 1, _PLAIN) for prefix, power in _BINARY.items()}
    for names, unit, prefixes in _TABLE:
        scales = [("", 1, 1)]
        if "small" in prefixes:
            scales += [(prefix, 1, 10**-power) for prefix, power in _SMALL.items()]
        if "large" in prefixes:
            scales += [(prefix, 10**power, 1) for prefix, power in _LARGE.items()]
        if "binary" in prefixes:
            scales += [(prefix, 2**power, 1) for prefix, power in _BINARY.items()]
        for name in names.split():
            for prefix, above, below in scales:
                size = unit.numerator * above, unit.denominator * below
                symbols[prefix + name] = _Unit(*size, unit.powers)
    return symbols


_SYMBOLS = _symbols()
_UNITLESS = _Unit(1, 1, _PLAIN)


@frozen(slots=True)
class _Asked:
    """What was given for a field, and what is wanted there."""

    field: str
    given: object
    units: str
    bare_is_si: bool
    allow_infinite: bool

    def refuse(self, wrong: str, hint: str = "") -> NoReturn:
        """Raise the one line that says what is wrong with the value and how to write it."""
        allowed = f"write it for example as {example(self.units)}"
        refuse(self.field, self.given, wrong, f"{hint}; {allowed}" if hint else allowed)

    def check_kind(self, powers: tuple[int, ...]) -> None:
        """Refuse a unit of another kind than the wanted one."""
        if not _is_kind(powers, self.units):
            kinds = (about.words for known, about in _CANONICAL.items() if _is_kind(powers, known))
            kind = next(kinds, "another kind of quantity")
            name = self.field.lstrip("-").replace("-", "_")
            if any(name in names_of(unit) for unit in (*_BY_1024, "global_batch_size")):
                plain = str(self.given).rstrip("Bb").rstrip("i").strip()
                count = float(spelled_out("tokens_per_step", plain))
                said = f"write {plain} for {count:,.0f} tokens"
                refuse(self.field, self.given, "is not a number of tokens", said)
            self.refuse(f"is {kind}, not {_about(self.units).words}")

    def bare(self, value: float) -> float:
        """Return a value that came without a unit, or refuse it."""
        value = self.finite(value)
        # Nothing is nothing in every unit.
        if self.units != "1" and not self.bare_is_si and math.isfinite(value) and value != 0.0:
            self.refuse("has no unit")
        return value

    def finite(self, value: float) -> float:
        """Return a value, or refuse it for its size."""
        said = str(self.given).lower().replace(UNLIMITED, "inf")
        if "nan" in said and math.isnan(value):
            self.refuse("is not a number")
        if "inf" in said and math.isinf(value) and not self.allow_infinite:
            self.refuse("is not finite")
        if not math.isfinite(value) and "inf" not in said:
            size = "large" if math.isinf(value) else "small"
            self.refuse(f"is too {size} for a 64-bit number")
        return value + 0.0  # a negative zero is a zero


def parse_quantity(
    text: object, units: str, *, field: str, bare_is_si: bool, allow_infinite: bool = False
) -> float:
    """Read a value with its unit."""
    asked = _Asked(field, text, units, bare_is_si, allow_infinite)
    if isinstance(text, str):
        return _from_text(text.strip(), asked)
    # numpy's numbers are numbers by this method, not by their class.
    if isinstance(text, bool) or not hasattr(text, "__float__"):
        asked.refuse("is not a number or a text with a unit")
    try:
        return asked.bare(float(text))
    except (TypeError, OverflowError):
        asked.refuse("can't be read as one number")


def has_unit(text: object) -> bool:
    """Tell whether a text has more than a number: a unit that says what it is."""
    if not isinstance(text, str):
        return False
    match = _NOT_FINITE.match(text.strip()) or _NUMBER.match(text.strip())
    return match is None or match.end() < len(text.strip())


# Tokens as people count them: of a sequence and of a batch by 1024 (8k is 8,192, as is 8Ki), of a
# training, as parameters, by 1000.
_COUNTS = {
    "sequence_length": 1024,
    "tokens_per_step": 1024,
    "training_tokens": 1000,
    "parameters": 1000,
}
_BY_1024 = ("sequence_length", "tokens_per_step")
_STEPS = {"k": 1, "K": 1, "M": 2, "B": 3, "G": 3, "T": 4}
_COUNT = re.compile(r"(?P<count>\d[\d_]*(?:\.\d*)?)\s*(?P<step>[kKMBGT])(?P<i>i?)(?=\s*(?:[,:]|$))")


def counts_tokens(value: object) -> bool:
    """Tell whether a text, or one of a list, is a count with k, M, B or T behind it."""
    if isinstance(value, list | tuple):
        return any(map(counts_tokens, value))
    return isinstance(value, str) and _COUNT.search(value) is not None


def spelled_out(name: str, value: Any) -> Any:
    """Return what is stated of tokens with the numbers that k, M, B and T mean there."""
    if name not in _COUNTS or not counts_tokens(value):
        return value
    if isinstance(value, list | tuple):
        return [spelled_out(name, item) for item in value]

    def number(match: re.Match[str]) -> str:
        size = 1024 if match["i"] else _COUNTS[name]
        return f"{float(match['count']) * size ** _STEPS[match['step']]:.17g}"

    return _COUNT.sub(number, value)


def example(units: str) -> str:
    """Return examples, quoted, of how a value in some canonical unit can be written."""
    return _about(units).examples


def _from_text(text: str, asked: _Asked) -> float:
    if not text or len(text) > _LONGEST:
        asked.refuse("is empty" if not text else "is too long")
    if asked.units == "USD" and (money := _LARGE_SUM.fullmatch(text)):
        text = f"{money['count']}e{3 * _STEPS[money['step']]} {money['unit']}".strip()
    priced = text.startswith("$")
    plain = text[1:].lstrip() if priced else text
    match = _NOT_FINITE.match(plain) or _NUMBER.match(plain)
    rest = ("USD" if priced else "") + plain[match.end() :].strip() if match else ""
    if _ARITHMETIC.search(rest if match else plain):
        return _from_arithmetic(text, asked)
    if match is None or _UNDERSCORES.search(match.group()):
        asked.refuse("does not begin with a number")
    if not rest:
        return asked.bare(_number(match, _UNITLESS))
    unit, wanted = _read_units(rest, asked), _canonical(asked.units)
    asked.check_kind(unit.powers)
    above, below = unit.numerator * wanted.denominator, unit.denominator * wanted.numerator
    return asked.finite(_number(match, _Unit(above, below, _PLAIN)))


def _number(match: re.Match[str], unit: _Unit) -> float:
    """Return a matched number times a unit, rounded once; infinite or NaN where it doesn't fit."""
    groups = match.groupdict()
    sign = -1.0 if groups["sign"] == "-" else 1.0
    if "word" in groups:
        return sign * float(groups["word"].lower().replace(UNLIMITED, "inf"))
    part = (groups["part"] or groups["only"] or "").replace("_", "")
    mantissa = int((groups["whole"] or "").replace("_", "") + part)
    exponent = int(groups["exponent"] or 0)
    if mantissa and abs(exponent) > _LARGEST_EXPONENT:
        return math.inf if exponent > 0 else math.nan
    exponent = exponent - len(part) if mantissa else 0
    above = mantissa * unit.numerator * 10 ** max(exponent, 0)
    below = unit.denominator * 10 ** max(-exponent, 0)
    try:
        value = above / below  # of whole numbers: correctly rounded, whatever their size
    except OverflowError:
        return math.inf
    return sign * value if value or not mantissa else math.nan


def _read_units(rest: str, asked: _Asked) -> _Unit:
    """Read ``unit``, ``unit/unit``, ``/unit`` or ``unit unit-1``; refuse the rest with a hint."""
    numerator, denominator, powers = 1, 1, list(_PLAIN)
    for index, part in enumerate(re.sub(r"\bper\b", "/", rest).split("/")):
        tokens = part.split()
        if not (tokens or index) and rest.strip("/ "):
            continue
        if not tokens or (index and len(tokens) > 1):
            asked.refuse(f"has a unit '{rest}' that can't be read")
        for token in tokens:
            match = _TOKEN.fullmatch(token)
            symbol = match["symbol"] if match else token
            if match is None or symbol not in _SYMBOLS:
                asked.refuse(f"has an unknown unit '{symbol}'", _near(symbol))
            power = int(match["power"] or 1) * (-1 if index else 1)
            unit = _SYMBOLS[symbol]
            above, below = (unit.numerator, unit.denominator)[:: 1 if power > 0 else -1]
            numerator *= above ** abs(power)
            denominator *= below ** abs(power)
            powers = [
                total + power * exponent
                for total, exponent in zip(powers, unit.powers, strict=True)
            ]
    return _Unit(numerator, denominator, tuple(powers))


def _near(symbol: str) -> str:
    """Say which units are like a symbol that isn't one."""
    if symbol[0] == "K" and f"k{symbol[1:]}" in _SYMBOLS:
        return f"k{symbol[1:]} is 1000 and Ki{symbol[1:]} is 1024"
    if symbol in _LARGE:
        return f"write 1e{_LARGE[symbol]} for {symbol}, or use Ki, Mi, Gi for powers of 1024"
    same = [known for known in _SYMBOLS if known.lower() == symbol.lower()]
    if same:
        return "did you mean " + " or ".join(f"'{known}'" for known in same) + "?"
    hint = nearest(symbol, _SYMBOLS, shown=0) if len(symbol) > 2 else ""
    return hint if hint.startswith("did") else ""


@lru_cache(maxsize=64)
def _canonical(units: str) -> _Unit:
    """Return a canonical unit's own size and powers (``"1 s-1"`` has a leading 1)."""
    asked = _Asked("units", units, "1", bare_is_si=True, allow_infinite=False)
    return _read_units(units.removeprefix("1"), asked) if units != "1" else _UNITLESS


def _is_kind(powers: tuple[int, ...], units: str) -> bool:
    return powers in {_canonical(units).powers, _OPERATIONS.get(units)}


def _about(units: str) -> _Canonical:
    return _CANONICAL.get(units) or _Canonical(f"a {units}", f"'1 {units}'", units, "")


class _Exact(NamedTuple):
    """A value of an expression, exactly, and its powers of the base units."""

    size: Fraction
    powers: tuple[int, ...]

    def times(self, other: _Exact, power: int = 1) -> _Exact:
        """Return this times a power of another."""
        powers = (a + power * b for a, b in zip(self.powers, other.powers, strict=True))
        return _Exact(self.size * other.size**power, tuple(powers))


def _from_arithmetic(text: str, asked: _Asked) -> float:
    """Read an expression of numbers and known units."""
    words = re.findall(r"[^\W\d]\w*", _EXPONENT.sub(r"\1", text))
    unknown = [word for word in words if word not in _SYMBOLS]
    if unknown:
        asked.refuse(f"has an unknown unit '{unknown[0]}'", _near(unknown[0]))
    if _UNREADABLE.search(text):
        asked.refuse("can't be read")
    rest = _PIECE.findall(text)[::-1]
    try:
        read = _read_sum(rest)
    except (ValueError, IndexError, ZeroDivisionError):
        asked.refuse("can't be read")
    if rest:
        asked.refuse("can't be read")
    if not words:  # without a unit, as a bare number
        return asked.finite(asked.bare(_rounded(read.size)))
    asked.check_kind(read.powers)
    wanted = _canonical(asked.units)
    return asked.finite(_rounded(read.size * wanted.denominator / wanted.numerator))


def _rounded(size: Fraction) -> float:
    """Return the nearest 64-bit number; infinite or NaN where it doesn't fit."""
    try:
        return float(size) or (math.nan if size else 0.0)
    except OverflowError:
        return math.inf


# Each of these takes what it reads off the end of a list of pieces, of which the next is the last.


def _read_sum(rest: list[str]) -> _Exact:
    total = _read_product(rest)
    while rest and rest[-1] in ("+", "-"):
        sign = -1 if rest.pop() == "-" else 1
        size, powers = _read_product(rest)
        if powers != total.powers:
            raise ValueError
        total = _Exact(total.size + sign * size, powers)
    return total


def _read_product(rest: list[str]) -> _Exact:
    product = _read_factor(rest)
    while rest and rest[-1] not in ("+", "-", ")"):
        power = -1 if rest[-1] == "/" else 1
        if rest[-1] in ("*", "/"):
            rest.pop()
        elif rest[-1][0] in ".0123456789":  # `1 000` isn't a product
            raise ValueError
        product = product.times(_read_factor(rest), power)
    return product


def _read_factor(rest: list[str]) -> _Exact:
    """Read a number, a unit or a sum in parentheses, with its sign and its power."""
    from fractions import Fraction  # few texts are arithmetic

    piece = rest.pop()
    if piece in ("+", "-"):
        size, powers = _read_factor(rest)
        return _Exact(-size if piece == "-" else size, powers)
    if piece == "(":
        value = _read_sum(rest)
        if rest.pop() != ")":
            raise ValueError
    elif piece in _SYMBOLS:
        unit = _SYMBOLS[piece]
        value = _Exact(Fraction(unit.numerator, unit.denominator), unit.powers)
    else:
        exponent = re.search(r"[eE](.*)", piece)
        if re.match(r"0\d", piece):  # a date's month isn't a number to take away
            raise ValueError
        if exponent and abs(int(exponent[1])) > _LARGEST_EXPONENT:
            raise ValueError
        value = _Exact(Fraction(piece), _PLAIN)
    if not rest or rest[-1] not in ("**", "^"):
        return value
    rest.pop()
    sign = -1 if rest[-1] == "-" else 1
    if sign < 0:
        rest.pop()
    power = rest.pop()
    if len(power) > 2:  # beyond any unit's, and soon beyond any patience
        raise ValueError
    return _Exact(Fraction(1), _PLAIN).times(value, sign * int(power))


def plain(value: float, digits: int = 4) -> str:
    """Write a number as people do: some significant digits, no exponent, no negative zero.

    What is missing is a dash.  All that is written for people passes here.
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return UNLIMITED if value > 0.0 else f"-{UNLIMITED}"
    text = f"{value:.{digits}g}"
    if "e" in text:
        rounded = float(text)
        if abs(rounded) >= 1.0:
            return f"{rounded:.0f}"
        if abs(rounded) >= LEAST:
            decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
            text = f"{rounded:.{decimals}f}".rstrip("0")
    return text.removeprefix("-") if float(text) == 0.0 else text


def grouped(value: float) -> str:
    """Write a number in three digits, thousands apart."""
    if abs(value) < 999.5 or not math.isfinite(value):
        return plain(value, 3)
    return f"{float(f'{value:.3g}'):,.0f}"


LEAST = 1e-15  # smaller plain numbers than this keep their exponent


def format_quantity(value: float, units: str, *, binary: bool = True, digits: int = 4) -> str:
    """Write a value in canonical units as people do: four digits at most, prefix and unit.

    Bytes are MiB or GiB where they are that exactly, unless other bytes stand beside them.
    """
    value = float(value)
    if math.isnan(value):
        return "-"
    if units == "1":
        whole = value.is_integer() and abs(value) < 1e15
        return f"{int(value)}" if whole else plain(value, digits)
    if units == "byte" and binary and (exact := _binary_size(value)):
        return exact
    symbol, prefixes = _about(units)[2:]
    if units == "s" and 7200 <= abs(value) < math.inf:
        hours = value / 3600
        return f"{plain(hours)} h" if abs(hours) < 48 else f"{plain(hours / 24)} days"
    if math.isinf(value):
        return plain(value)
    if not value:
        return f"0 {symbol}"
    powers = {"": 0, **{prefix: (_SMALL | _LARGE)[prefix] for prefix in prefixes.split()}}
    for prefix, power in sorted(powers.items(), key=lambda item: item[1]):
        scaled = value / 10**power if power > 0 else value * 10**-power
        shown = f"{plain(scaled, digits)} {prefix}{symbol}"
        # By the rounded number: 999.96 is written 1000, which belongs to the next prefix.
        if abs(float(f"{scaled:.4g}")) < 1000:
            break
    return shown


def in_one_unit(
    values: Sequence[float], units: str, *, binary: bool, write: Callable[[float], str]
) -> tuple[str, list[str]]:
    """Write values in one prefix of their unit, in which the median has one to three digits."""
    if units == "1":
        return "", [str(int(value)) if value.is_integer() else write(value) for value in values]
    symbol, prefixes = _about(units)[2:]
    if units == "byte" and binary:
        powers = {"": 1.0, **{prefix: 2.0**power for prefix, power in _BINARY.items()}}
    else:
        known = {"": 0, **{prefix: (_SMALL | _LARGE)[prefix] for prefix in prefixes.split()}}
        powers = {prefix: 10.0**power for prefix, power in known.items()}
    sizes = sorted(abs(number) for number in values if number and math.isfinite(number))
    # A little above the median, for rounding.
    median = sizes[len(sizes) // 2] * (1.0 + 1e-9) if sizes else 1.0
    ascending = sorted(powers.items(), key=lambda item: item[1])
    index = max(sum(power <= median for _, power in ascending) - 1, 0)
    prefix, power = ascending[index]
    return f"{prefix}{symbol}", [write(number / power) for number in values]


def format_bytes(value: float, *, binary: bool) -> str:
    """Write bytes in powers of two, or of ten: those of one row are all in one of the two."""
    if not binary or not math.isfinite(value) or abs(value) < 1024.0:
        return format_quantity(value, "byte", binary=False)
    prefix, power = next(
        (entry for entry in reversed(_BINARY.items()) if abs(value) >= 2.0 ** entry[1]), ("", 0)
    )
    return f"{value / 2.0**power:.4g} {prefix}B"


def is_binary(value: float) -> bool:
    """Return whether people write a number of bytes in KiB, MiB or GiB."""
    return bool(_binary_size(float(value)))


def _binary_size(value: float) -> str:
    """Return a number of bytes in KiB, MiB, .. where that is exact and the decimal isn't short."""
    if math.isinf(value) or not value.is_integer() or float(f"{value:.3g}") == value:
        return ""
    for prefix, power in _BINARY.items():
        count = value / 2.0**power
        if count.is_integer() and abs(count) < 1024:
            return f"{int(count)} {prefix}B"
    return ""


# A stated sweep as TOML text, for the file that it makes.

# Of those that a number in a stated sweep is given.
UNITS = {
    units: about.symbol
    for units, about in _CANONICAL.items()
    if units not in ("1", "s-1", "d-1", "USD kWh-1")
}
# A piece of a range that is no quantity: a factor or a number of points.
_RULE = re.compile(r"\s*(x|log|lin)")
_RANGE_ARITHMETIC = re.compile(r"[\d.eE+*/()\s-]+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def with_si_units(spec: Mapping[str, object]) -> dict[str, object]:
    """Give the numbers without a unit in a stated sweep their SI unit."""
    tables = ("axes", "constants")
    return {
        key: _labelled(value) if key in tables and isinstance(value, Mapping) else value
        for key, value in spec.items()
    }


def _labelled(table: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _labelled(value) if isinstance(value, Mapping) else with_unit(name, value)
        for name, value in table.items()
    }


def with_unit(name: str, value: Any) -> Any:
    """Give numbers without a unit the SI unit of their quantity."""
    plain = name in LABELS or name not in VOCABULARY
    unit = None if plain else UNITS.get(VOCABULARY[name].units)
    if unit is None:
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return [with_unit(name, item) for item in value]
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
        return bool(_RANGE_ARITHMETIC.fullmatch(text))
    return True


def to_toml(spec: Mapping[str, object]) -> str:
    """Write a stated sweep as TOML."""
    plain: list[str] = []
    tables: list[str] = []
    for key, value in spec.items():
        if isinstance(value, Mapping):
            tables.append(_lines(f"[{_key(key)}]", value))
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables += [_lines(f"[[{_key(key)}]]", row) for row in value]
        else:
            plain.append(f"{_key(key)} = {toml_value(value)}")
    return "\n\n".join([*(["\n".join(plain)] if plain else []), *tables]) + "\n"


def _lines(head: str, table: Mapping[str, object]) -> str:
    # Tables inside are written inline, so that the order of axes stays.
    return "\n".join(
        [head, *(f"{_key(name)} = {toml_value(item)}" for name, item in table.items())]
    )


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a value as TOML has it."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    # JSON escapes what TOML does, but for one character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def without_infinities(value: Any) -> Any:
    """Return data as JSON has them: none where a number isn't finite."""
    if isinstance(value, Mapping):
        return {str(key): without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinities(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_PUT_IN = ("s", "byte", "byte s-1", "J", "W")  # Units that are read at a glance in a formula


def put_in(expression: str, values: Mapping[str, float], digits: int = 6) -> str:
    """Return an expression with values, and units, in place of names whose values are known."""

    def number(match: re.Match[str]) -> str:
        name = match.group()
        if name not in values or math.isnan(values[name]):
            return name
        units = VOCABULARY[name].units if name in VOCABULARY else "1"
        if math.isinf(values[name]):
            return plain(values[name])
        if units not in _PUT_IN:
            # Whole numbers in full: differences of large ones are exact.
            value = values[name]
            return (
                f"{value:.0f}"
                if value.is_integer() and abs(value) < 1e15
                else f"{value:.{digits}g}"
            )
        text = format_quantity(values[name], units, digits=digits)
        return f"({text})" if "/" in text else text

    return re.sub(r"[A-Za-z_][A-Za-z_0-9]*", number, expression)
