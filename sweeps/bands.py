"""How sure an answer is, in words: its band, whether memory fits, whether two answers differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from overhead.quantity import VOCABULARY
from overhead.shipped import error_bands
from sweeps.display import BANDS
from sweeps.spec.units import format_quantity, plain

if TYPE_CHECKING:
    import xarray as xr

UNKNOWN = "band not known"
# What memory does, by the formula's number.
FIT = ("does not fit", "fits, at risk", "fits")
NO_ROOM, AT_RISK, FITS = FIT
# At risk where the prediction itself is above the capacity, and its band reaches below.
MAY_NOT_FIT = "may not fit"
# The share of a GPU's memory that a plan which is recommended may take: the rest goes to fragments
# and to what the prediction is off.
MEMORY_LIMIT = 0.9
# Of plans that tie the one that is recommended has the fewest of these above 1.
SET_UP = ("tp", "cp", "pp", "ep", "virtual_pipeline_size")
# Rounding of a share in binary, which isn't to be rounded outwards.
NOISE = 1e-9


TIE = "a tie"


def tie() -> float:
    """Return the relative difference below which two plans can't be told apart."""
    return float(error_bands()["tie"])


def band_words(low: float, high: float) -> str:
    """Return a band in whole percents, rounded outwards: ``-8/+10 %``, ``±9 %``."""
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    below, above = (math.ceil(abs(end) * 100.0 - NOISE) for end in (low, high))
    return f"±{above} %" if below == above else f"-{below}/+{above} %"


def band_of(quantity: str, value: Callable[[str], float | None]) -> str:
    """Return the words of a quantity's band; `value` gives quantities, or nothing."""
    low, high = (value(name) for name in BANDS[quantity])
    return UNKNOWN if low is None or high is None else band_words(low, high)


def bands_of(dataset: xr.Dataset) -> str:
    """Return how far measurements may be from a dataset's times, the narrowest and widest band.

    Nothing where it holds none.
    """
    names = next((ends for ends in BANDS.values() if {*ends} <= {*dataset.data_vars}), None)
    if names is None:
        return ""
    low, high = (dataset[name].to_numpy().ravel().tolist() for name in names)
    pairs = [pair for pair in zip(low, high, strict=True) if pair[0] <= pair[1]]
    return f"measured {' to '.join(bands_words(pairs))}" if pairs else ""


def bands_words(pairs: Iterable[tuple[float, float]]) -> list[str]:
    """Return the narrowest and the widest of several bands, in words; one where they agree.

    Where one isn't known, none is.
    """
    order = sorted(set(pairs), key=lambda pair: pair[1] - pair[0])
    if any(math.isnan(end) for pair in order for end in pair):
        return [UNKNOWN]
    return list(dict.fromkeys(band_words(*pair) for pair in (*order[:1], *order[-1:])))


def memory_words(needed: float, capacity: float, low: float, high: float) -> str:
    """Return what memory is needed, of how much, how sure that is, and whether it fits.

    ``35.3 of 84.9 GB per GPU (-8/+10 %): fits``.
    """
    band = band_words(low, high)
    if math.isnan(capacity):
        return f"{three(needed / 1e9)} GB per GPU ({band}), of a memory that isn't known"
    size = f"{three(needed / 1e9)} of {three(capacity / 1e9)} GB per GPU ({band})"
    return f"{size}: {fit_of(needed, capacity, low, high)}"


def fit_of(needed: float, capacity: float, low: float, high: float) -> str:
    """Return whether memory fits, in words; without a band what is needed decides."""
    ends = (0.0, 0.0) if math.isnan(low) or math.isnan(high) else (low, high)
    if needed * (1.0 + ends[0]) > capacity:
        return NO_ROOM
    if needed > capacity:
        return MAY_NOT_FIT
    return AT_RISK if needed * (1.0 + ends[1]) > capacity else FITS


# Below this two numbers of a report are no different.
SAME = 0.01


def meets(value: float, limit: float) -> bool:
    """Return whether a value is no more than what it may be at most, as far as is told."""
    return value <= limit * (1.0 + SAME)


def limit_words(value: float, limit: float, low: float, high: float) -> str:
    """Return how a value compares with what it may be at most, by its band."""
    if meets(value, limit):
        return "meets" if value * (1.0 + high) <= limit else "meets within the error"
    return "misses" if value * (1.0 + low) > limit else "misses within the error"


def difference_words(slower: float) -> str:
    """Return what a relative difference of two plans' times says of which is faster."""
    size = abs(slower)
    if size <= tie():
        return TIE
    which = "slower" if slower > 0.0 else "faster"
    return which if size >= error_bands()["faster"] else f"likely {which}"


def class_words(kind: str, name: str) -> str:
    """Return what a class of errors is."""
    return str(error_bands()[kind][name]["words"])


def three(value: float) -> str:
    """Return a number in three digits, with separators and without an exponent."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    if abs(value) < 1e-3:
        return f"{value:.3g}"
    rounded = float(f"{value:.3g}")
    digits = max(2 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded:,.{digits}f}"


def percent(fraction: float, digits: int | None = None) -> str:
    """Return a fraction in percent: whole from 10 % on, one decimal below; a dash where missing.

    Cells of a column have all as many `digits` behind the point.
    """
    if not math.isfinite(fraction):
        return "-" if math.isnan(fraction) else plain(fraction)
    size = 100.0 * fraction
    decimals = int(abs(size) < 9.95) if digits is None else digits
    text = f"{size:,.{decimals}f}"
    text = text.removesuffix(".0") if digits is None else text
    return f"{text.removeprefix('-') if float(text.replace(',', '')) == 0.0 else text} %"


def change_by(fraction: float, digits: int | None = None) -> str:
    """Return a relative change in percent, with its sign: ``+4.4 %``."""
    text = percent(fraction, digits)
    return f"+{text}" if fraction > 0.0 and text[:2] != "0 " else text


def money(dollars: float) -> str:
    """Return an amount of money in three digits: ``21,100 USD``, ``24.6 M USD``."""
    if math.isfinite(dollars) and abs(float(f"{dollars:.3g}")) >= 1e6:
        return f"{three(dollars / 1e6)} M USD"
    return f"{three(dollars)} USD"


def brief(value: float, units: str, *, binary: bool = True) -> str:
    """Return a quantity in three digits with its unit."""
    text = format_quantity(value, units, digits=3, binary=binary)
    return format_quantity(value, units) if "e" in text.partition(" ")[0] else text


def in_powers_of_two(name: str) -> bool:
    """Return whether bytes of a quantity may be GiB: of messages and buffers, not of memory."""
    return "memory" not in name and "volume" not in name


def written(name: str, value: float) -> str:
    """Return a quantity's value with its unit, memory in powers of ten."""
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    return format_quantity(value, units, binary=in_powers_of_two(name))
