"""Where an axis has its ticks, and what stands at them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweeps.plots.readable import number, scale_of

__all__ = ["Ticks", "linear_ticks", "log_ticks", "value_ticks"]

_FEWEST = 3  # ticks that an axis should have at least
_MANY_MINOR = 40
_TWO_DECADES = 100.0
_STEPS = {2.0: (1, 2, 5, 10, 20, 30), 10.0: (1, 2, 3, 6, 9)}  # powers from tick to tick
_MANTISSAS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Ticks of one axis."""

    positions: tuple[float, ...]  # In the axis' canonical unit
    labels: tuple[str, ...]  # What stands at each
    minor: tuple[float, ...] = ()  # Positions of ticks without text
    # The unit for the axis' label: of all ticks, or from the smallest to the largest
    units: str = ""


def _with_units(positions: list[float], units: str, minor: list[float]) -> Ticks:
    scale = scale_of(units)
    labels = tuple(scale.text(position, 4) for position in positions)
    names = [scale.pick(position)[1] for position in positions if position]
    span = names[0] if names and names[0] == names[-1] else " to ".join(names[:1] + names[-1:])
    return Ticks(tuple(positions), labels, tuple(minor), span)


def value_ticks(values: list[float], units: str) -> Ticks:
    """Return ticks at given values."""
    return _with_units(values, units, [])


def log_ticks(low: float, high: float, units: str, room: float, *, binary: bool = False) -> Ticks:
    """Return ticks of a logarithmic axis."""
    if binary or scale_of(units).binary:
        return _power_ticks(low, high, units, room, 2.0)
    lowest, highest = math.floor(math.log10(low)), math.ceil(math.log10(high))
    fine = [m * 10.0**e for e in range(lowest, highest + 1) for m in _MANTISSAS]
    fine = [position for position in fine if low <= position <= high]
    decades = sum(1 for position in fine if math.log10(position).is_integer())
    if decades > _FEWEST or (high / low >= _TWO_DECADES and len(fine) > room):
        return _power_ticks(low, high, units, room, 10.0)
    if len(fine) >= _FEWEST:
        return _with_units(fine, units, [])
    # A short axis: evenly spaced numbers, each with its unit as on every logarithmic axis.
    even = linear_ticks(low, high, units, room)
    return _with_units(list(even.positions), units, [])


def _power_ticks(low: float, high: float, units: str, room: float, base: float) -> Ticks:
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    if last - first < 1:
        even = linear_ticks(low, high, units, room)
        return _with_units(list(even.positions), units, [])
    chosen: list[int] = []
    for step in _STEPS[base]:
        chosen = [power for power in range(first, last + 1) if power % step == 0]
        if len(chosen) <= room:
            break
    if len(chosen) < 2:
        chosen = [first, last]
    between = [base**power for power in range(first, last + 1) if power not in chosen]
    minor = between if len(between) <= _MANY_MINOR else []
    return _with_units([base**power for power in chosen], units, minor)


def linear_ticks(low: float, high: float, units: str, room: float) -> Ticks:
    """Return ticks of a linear axis: round numbers in one unit, which belongs in the label."""
    factor, name = scale_of(units).pick(max(abs(low), abs(high)))
    low, high = low / factor, high / factor
    rough = (high - low) / max(room, 2.0) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    marks = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    positions = [float(mark * step) for mark in marks]
    labels = tuple(number(position, 6) for position in positions)
    return Ticks(tuple(position * factor for position in positions), labels, (), name)
