"""Axes: their scale, ends, ticks and label, from the metadata of what they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.readable import long_name, sentence, shortened, symbol
from sweeps.plots.style import SIZE_NOTE, UNBROKEN, text_width
from sweeps.plots.ticks import Ticks, linear_ticks, log_ticks, value_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Axis", "axis_of", "better_of", "scale_for"]

_LABEL_WIDTH = 0.72  # inches that a tick's label and its space take
_LABEL_HEIGHT = 0.3
_COUNTS_ROOM = 1.4  # so many more counts fit than numbers with a unit
_LONGEST_NAME = 72  # letters of a name beside an axis; symbol and unit come after it
_LOG_FROM = 16.0  # ratio of the ends from which an axis is logarithmic
_CLEARANCE = 0.08  # inches between the labels of two ticks
_FEW_VALUES = 12  # so many values may each have a tick of their own


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a figure."""

    scale: Literal["log", "linear"]  # ``log`` or ``linear``
    low: float  # Its ends
    high: float  # Its ends
    ticks: Ticks  # Its ticks
    label: str  # Long name, symbol and units

    def apply(self, axes: Axes, direction: Literal["x", "y"], *, labels: bool = True) -> None:
        """Set one direction of some axes up; without tick labels where a neighbour has them."""
        axis = axes.xaxis if direction == "x" else axes.yaxis
        if direction == "x":
            axes.set_xscale(self.scale)
            axes.set_xlim(self.low, self.high)
        else:
            axes.set_yscale(self.scale)
            axes.set_ylim(self.low, self.high)
        texts = self.ticks.labels if labels else [""] * len(self.ticks.labels)
        axis.set_ticks(list(self.ticks.positions), labels=list(texts))
        axis.set_ticks(list(self.ticks.minor), labels=[""] * len(self.ticks.minor), minor=True)


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
    attrs: Mapping[str, Any],
    values: NDArray[np.float64],
    scale: Literal["log", "linear"],
    inches: float,
    *,
    pad: float = 0.03,
    vertical: bool = False,
    discrete: bool = False,
    ends: tuple[float, float] | None = None,
) -> Axis:
    """Make an axis for values."""
    units = str(attrs.get("units", "1"))
    usable = values[np.isfinite(values) & ((values > 0) | (scale == "linear"))]
    usable = usable if usable.size else np.array([1.0, 10.0])
    low, high = ends or _ends(float(usable.min()), float(usable.max()), scale, pad)
    room = inches / (_LABEL_HEIGHT if vertical else _LABEL_WIDTH)
    own = value_ticks(np.unique(usable).tolist(), units) if discrete else Ticks((), ())
    if own.labels and _fit(own, low, high, scale, inches, vertical=vertical):
        ticks = own
    elif scale == "log":
        counts = units == "1" and bool(np.all(usable == np.round(usable)))
        room *= _COUNTS_ROOM if counts else 1.0
        ticks = log_ticks(low, high, units, room, binary=counts)
    else:
        ticks = linear_ticks(low, high, units, room)
    if not vertical:
        ticks = _thinned(ticks, low, high, scale, inches)
    words = [shortened(sentence(long_name(name, attrs)), _LONGEST_NAME)]
    words += [mark] if (mark := symbol(str(attrs.get("symbol", "")))) else []
    unit = f" ({ticks.units.replace(' ', UNBROKEN)})" if ticks.units else ""
    return Axis(scale, low, high, ticks, f",{UNBROKEN}".join(words) + unit)


def _fit(
    ticks: Ticks, low: float, high: float, scale: str, inches: float, *, vertical: bool
) -> bool:
    """Return whether the ticks' labels keep clear of each other."""
    if len(ticks.labels) > _FEW_VALUES:
        return False
    places, sizes = _extents(ticks, low, high, scale, inches)
    if vertical:
        sizes = np.full(len(places), _LABEL_HEIGHT * 0.7)
    return bool(np.all(np.diff(places) >= (sizes[1:] + sizes[:-1]) / 2))


def _extents(
    ticks: Ticks, low: float, high: float, scale: str, inches: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where the ticks of a horizontal axis lie, and how wide their labels are [inches]."""
    turn = np.log if scale == "log" else np.asarray
    places = turn(np.array(ticks.positions)) / (turn(high) - turn(low)) * inches
    sizes = [text_width(label, SIZE_NOTE + 0.5) + _CLEARANCE for label in ticks.labels]
    return places, np.array(sizes)


def _thinned(ticks: Ticks, low: float, high: float, scale: str, inches: float) -> Ticks:
    """Return ticks of which those lose their labels that would touch one before."""
    places, sizes = _extents(ticks, low, high, scale, inches)
    kept: list[int] = []
    for index, (place, size) in enumerate(zip(places, sizes, strict=True)):
        last = kept[-1] if kept else None
        if last is None or place - places[last] >= (size + sizes[last]) / 2:
            kept.append(index)
    bare = {position for index, position in enumerate(ticks.positions) if index not in kept}
    return replace(
        ticks,
        positions=tuple(ticks.positions[index] for index in kept),
        labels=tuple(ticks.labels[index] for index in kept),
        minor=tuple(sorted({*ticks.minor, *bare})),
    )


def _ends(low: float, high: float, scale: str, pad: float) -> tuple[float, float]:
    if scale == "log":
        wide = max(np.log(high / low), np.log(1.5))
        return low * float(np.exp(-pad * wide)), high * float(np.exp(pad * wide))
    if low >= 0:  # lengths are compared from zero on
        return 0.0, high * (1 + 2 * pad) or 1.0
    wide = (high - low) or 1.0
    return low - pad * wide, high + pad * wide


def better_of(wanted: str | None, units: str) -> bool:
    """Return whether more is better: as declared, else for rates only."""
    if wanted is not None:
        return wanted == "more"
    return "s-1" in units.split()
