"""Axes: their scale, ends, ticks and label, from the metadata of what they show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.style import (
    UNBROKEN,
    long_name,
    number,
    scale_of,
    sentence,
    shortened,
    symbol,
    text_width,
    use,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST = 3  # ticks that an axis should have at least
_MANY_MINOR = 40
_TWO_DECADES = 100.0
_STEPS = {2.0: (1, 2, 5, 10, 20, 30), 10.0: (1, 2, 3, 6, 9)}  # powers from tick to tick
_MANTISSAS = (1.0, 2.0, 5.0)
_FINER = (
    (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
)
# More is better of these, which are no rates.
MORE = frozenset(
    {
        *("mfu", "causal_mfu", "hfu", "goodput", "memory_headroom", "mean_time_between_failures"),
        *("hidden_time", "overlap_speedup", "ideal_speedup", "overlap_of_shorter"),
        *("overlapped_communication_fraction", "wave_efficiency", "memory_state"),
    }
)
_LEAST_SHOWN = 0.05  # of the unit that all of an axis' numbers have


@dataclass(frozen=True, slots=True)
class Ticks:
    """Ticks of one axis."""

    positions: tuple[float, ...]  # In the axis' canonical unit
    labels: tuple[str, ...]  # What stands at each
    minor: tuple[float, ...] = ()  # Positions of ticks without text
    units: str = ""  # The unit for the axis' label, unless it stands at the ticks


def value_ticks(positions: Sequence[float], units: str, minor: Sequence[float] = ()) -> Ticks:
    """Return ticks with the unit once: in the axis' label, or at each where they differ in it."""
    scale = scale_of(units)
    sizes = sorted(abs(position) for position in positions if position)
    names = {name for _, name in map(scale.pick, sizes)}
    if len(names) != 1 and units == "s-1" and max(positions, default=0.0) < _LARGEST_COUNT:
        labels = tuple(f"{position:,.10g}" for position in positions)
        return Ticks(tuple(positions), labels, tuple(minor))
    fit = [
        (factor, name)
        for factor, name in map(scale.pick, sizes)
        if len(names) == 1 or (sizes[0] >= _LEAST_SHOWN * factor and sizes[-1] < 1e4 * factor)
    ]
    if not fit or (scale.binary and len(names) > 1):
        labels = tuple(scale.text(position, 4) for position in positions)
        return Ticks(tuple(positions), labels, tuple(minor))
    factor, name = fit[0]
    labels = tuple(number(position / factor, 4) for position in positions)
    return Ticks(tuple(positions), labels, tuple(minor), name)


def log_ticks(low: float, high: float, units: str, room: float, *, binary: bool = False) -> Ticks:
    """Return ticks of a logarithmic axis."""
    if binary or scale_of(units).binary:
        return _power_ticks(low, high, units, room, 2.0)
    decades = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)

    def inside(mantissas: Sequence[float]) -> list[float]:
        return [x for x in np.outer(decades, mantissas).ravel().tolist() if low <= x <= high]

    fine = inside(_MANTISSAS)
    if len(inside((1.0,))) > _FEWEST or (high / low >= _TWO_DECADES and len(fine) > room):
        return _power_ticks(low, high, units, room, 10.0)
    if len(fine) >= _FEWEST:
        return value_ticks(fine, units)
    for finer in map(inside, _FINER):
        if _FEWEST < len(finer) <= room:
            return value_ticks(finer, units)
    # On a short axis evenly spaced numbers, each with its unit as on every logarithmic axis.
    return value_ticks(linear_ticks(low, high, units, room).positions, units)


def _power_ticks(low: float, high: float, units: str, room: float, base: float) -> Ticks:
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    if last - first < 1:
        return value_ticks(linear_ticks(low, high, units, room).positions, units)
    powers = range(first, last + 1)
    every = ([power for power in powers if power % step == 0] for step in _STEPS[base])
    chosen = next((some for some in every if len(some) <= room), [])
    if len(chosen) < 2:
        chosen = [first, last]
    minor = [base**power for power in powers if power not in chosen]
    return value_ticks(
        [base**power for power in chosen], units, minor if len(minor) <= _MANY_MINOR else ()
    )


def linear_ticks(low: float, high: float, units: str, room: float) -> Ticks:
    """Return ticks of a linear axis: round numbers in one unit, which belongs in the label."""
    from matplotlib.ticker import MaxNLocator

    factor, name = scale_of(units).pick(max(abs(low), abs(high)))
    locator = MaxNLocator(max(math.ceil(room), 2), steps=[1, 2, 2.5, 5, 10])
    marks = locator.tick_values(low / factor, high / factor)
    near = 1e-9 * (high - low)
    marks = [float(mark) for mark in marks if low - near <= mark * factor <= high + near]
    labels = tuple(number(mark, 6) for mark in marks)
    return Ticks(tuple(mark * factor for mark in marks), labels, (), name)


_LABEL_WIDTH = 0.72  # inches that a tick's label and its space take
_LABEL_HEIGHT = 0.3
_COUNTS_ROOM = 1.4  # so many more counts fit than numbers with a unit
_UNITS = frozenset("sdhbBJW")  # symbols that are read as units where none stands behind them
_LONGEST_NAME = 72  # letters of a name beside an axis; symbol and unit come after it
_LOG_FROM = 16.0  # ratio of the ends from which an axis is logarithmic
_CLEARANCE = 0.08  # inches between the labels of two ticks
_LARGEST_COUNT = 1e7  # rates below it are read without a prefix
_FEW_VALUES = 12  # so many values may each have a tick of their own


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a figure."""

    scale: Literal["log", "linear"]  # ``log`` or ``linear``
    low: float  # Its ends
    high: float
    ticks: Ticks  # Its ticks
    label: str  # Long name, symbol and units

    def apply(self, axes: Axes, direction: Literal["x", "y"], *, labels: bool = True) -> None:
        """Set one direction of some axes up; without tick labels where a neighbour has them."""
        axes.set(**{f"{direction}scale": self.scale, f"{direction}lim": (self.low, self.high)})
        axis = axes.xaxis if direction == "x" else axes.yaxis
        texts = self.ticks.labels if labels else [""] * len(self.ticks.labels)
        # First the small ticks: those that matplotlib would make by itself take most of its time.
        axis.set_ticks(list(self.ticks.minor), labels=[""] * len(self.ticks.minor), minor=True)
        axis.set_ticks(list(self.ticks.positions), labels=list(texts))


def scale_for(values: NDArray[np.float64], wanted: str | None) -> Literal["log", "linear"]:
    """Return the scale that suits values: logarithmic from 1 to 16 on, where all are above 0."""
    if wanted is not None:
        return "linear" if wanted == "linear" else "log"
    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size and positive.max() / positive.min() >= _LOG_FROM:
        return "log"
    return "linear"


def axis_of(
    name: str,
    attrs: Mapping[str, object],
    values: NDArray[np.float64],
    scale: Literal["log", "linear"],
    inches: float,
    *,
    pad: float = 0.03,
    vertical: bool = False,
    discrete: bool = False,
    origin: float = 1.0,
    ends: tuple[float, float] | None = None,
) -> Axis:
    """Make an axis for values, from 0 where they leave at most a share `origin` of it empty."""
    units = str(attrs.get("units", "1"))
    usable = values[np.isfinite(values) & ((values > 0) | (scale == "linear"))]
    usable = usable if usable.size else np.array([1.0, 10.0])
    ends = ends or _ends(float(usable.min()), float(usable.max()), scale, pad, origin=origin)
    low, high = ends
    room = inches / (_LABEL_HEIGHT if vertical else _LABEL_WIDTH)
    each = np.unique(usable).tolist() if discrete else []
    rounds = (
        value_ticks(each, units)
        if all(_is_round(value, units) for value in each)
        else Ticks((), ())
    )
    if (
        0 < len(rounds.labels) <= _FEW_VALUES
        and _thinned(rounds, ends, scale, inches, vertical) == rounds
    ):
        ticks = rounds
    elif scale == "log":
        counts = units == "1" and bool(np.all(usable == np.round(usable)))
        room *= _COUNTS_ROOM if counts else 1.0
        ticks = log_ticks(low, high, units, room, binary=counts)
    else:
        ticks = linear_ticks(low, high, units, room)
    ticks = _thinned(ticks, ends, scale, inches, vertical)
    named = sentence(long_name(name, attrs))
    if len(named) > _LONGEST_NAME:
        named = sentence(long_name(name, attrs, short=True))
    words = [shortened(named, _LONGEST_NAME)]
    mark = symbol(str(attrs.get("symbol", "")))
    words += [mark] if mark and (ticks.units or mark not in _UNITS) else []
    unit = f" ({ticks.units.replace(' ', UNBROKEN)})" if ticks.units else ""
    return Axis(scale, low, high, ticks, f",{UNBROKEN}".join(words) + unit)


def _is_round(value: float, units: str) -> bool:
    """Return whether a value has few digits: others need no tick of their own."""
    scaled = value / scale_of(units).pick(value)[0]
    return float(f"{scaled:.3g}") == scaled or (
        scaled.is_integer() and abs(scaled) < _LARGEST_COUNT
    )


def _thinned(
    ticks: Ticks, ends: tuple[float, float], scale: str, inches: float, vertical: bool
) -> Ticks:
    """Return ticks of which those lose their labels that would touch one before."""
    turn = np.log if scale == "log" else np.asarray
    offsets = turn(np.array(ticks.positions)) / float(np.ptp(turn(np.array(ends)))) * inches
    wide = [text_width(label, use().tick) + _CLEARANCE for label in ticks.labels]
    sizes = [0.7 * _LABEL_HEIGHT] * len(wide) if vertical else wide
    kept: list[int] = []
    for index, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        last = kept[-1] if kept else None
        if last is None or offset - offsets[last] >= (size + sizes[last]) / 2:
            kept.append(index)
    bare = {position for index, position in enumerate(ticks.positions) if index not in kept}
    return replace(
        ticks,
        positions=tuple(ticks.positions[index] for index in kept),
        labels=tuple(ticks.labels[index] for index in kept),
        minor=tuple(sorted({*ticks.minor, *bare})),
    )


def _ends(low: float, high: float, scale: str, pad: float, *, origin: float) -> tuple[float, float]:
    if scale == "log":
        wide = max(np.log(high / low), np.log(1.5))
        return low * float(np.exp(-pad * wide)), high * float(np.exp(pad * wide))
    if low >= 0 and (low <= origin * high or low == high):  # lengths are compared from zero on
        return 0.0, high * (1 + 2 * pad) or 1.0
    wide = (high - low) or 1.0
    return low - pad * wide, high + pad * wide


def better_of(wanted: str | None, units: str, name: str) -> bool:
    """Return whether more of a quantity is better: as declared, else for rates and `MORE`."""
    if wanted is not None:
        return wanted == "more"
    return name in MORE or "s-1" in units.split()
