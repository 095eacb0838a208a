"""What was predicted beside what was measured, row by row: a panel a quantity, in its own unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.frame import Legend, Sheet, axis_of, frame, in_column, scale_for
from sweeps.plots.save import save
from sweeps.plots.style import (
    ALARM,
    COLOURS,
    INK,
    MUTED,
    Look,
    sentence,
    style,
    together,
    use,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 5.4  # inches of a panel
_SLOT = 0.3  # and of a row
# In a column of a paper: of a row's name, and of names and errors beside a panel.
_NAME, _AROUND = 1.0, 1.25
_MEASURED: Look = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 8,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.4,
}
_PREDICTED: Look = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 4.5,
    "color": COLOURS[0],
}
_DAY = 86400.0
_SEEN = 0.005  # errors below it are none
_LONG = 2.0  # days from which a time is read in days


@dataclass(frozen=True, slots=True)
class Pairs:
    """The rows of one quantity."""

    attrs: Mapping[str, str]  # ``long_name`` and ``units`` of the values
    names: Sequence[str]  # Each row's
    measured: NDArray[np.float64]
    predicted: NDArray[np.float64]

    def in_days(self) -> Pairs:
        """Return long times in days."""
        if self.attrs["units"] != "s" or self.measured.max() < _LONG * _DAY:
            return self
        attrs = {**self.attrs, "units": "days"}
        return Pairs(attrs, self.names, self.measured / _DAY, self.predicted / _DAY)


def draw_beside(quantities: Sequence[Pairs], bound: float, stem: Path, *, title: str) -> list[Path]:
    """Draw a panel a quantity, a row what was measured of it; errors above a bound stand out."""
    quantities = [pairs.in_days() for pairs in quantities]
    slot = _SLOT * use().scale
    legend = Legend([("measured", _MEASURED), ("predicted", _PREDICTED)])
    heights = tuple(slot * len(pairs.names) for pairs in quantities)
    sheet = Sheet(
        title,
        panels=[sentence(pairs.attrs["long_name"]) for pairs in quantities],
        notes=[f"At the right: the error of the prediction, bold above {100 * bound:.3g} %."],
        panel=(in_column(_WIDTH) - (_AROUND if use().column else 0.0), heights[0]),
        heights=heights,
    )
    with style():
        made = frame(sheet, legend)
        for axes, pairs in zip(made.axes, quantities, strict=True):
            _draw(axes, pairs, bound, made.panel[0])
        return save(made.finished(), stem)


def _draw(axes: Axes, pairs: Pairs, bound: float, width: float) -> None:
    every = np.concatenate([pairs.measured, pairs.predicted])
    value = axis_of(
        "value", pairs.attrs, every, scale_for(every, None), width, pad=0.04, origin=0.5
    )
    value.apply(axes, "x")
    if value.ticks.units:
        named = " ".join(axes.get_title("left").split())
        lines = wrap(f"{named} ({value.ticks.units})", width, use().text, bold=True)
        axes.set_title("\n".join(lines))
    rows = np.arange(len(pairs.names), dtype=np.float64)
    axes.hlines(rows, pairs.measured, pairs.predicted, colors=MUTED, linewidth=1.4, zorder=1.8)
    axes.plot(pairs.measured, rows, zorder=2, **_MEASURED)
    axes.plot(pairs.predicted, rows, zorder=3, **_PREDICTED)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # The first on top
    names = list(pairs.names)
    if use().column:
        names = ["\n".join(wrap(together(name), _NAME, use().tick, most=2)) for name in names]
    axes.set_yticks(rows, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for row, error in enumerate(pairs.predicted / pairs.measured - 1.0):
        far = bool(abs(error) > bound)
        axes.annotate(
            f"{100 * error:+.0f} %" if abs(error) >= _SEEN else "0 %",
            (1.0, row),
            (6, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            size=use().note,
            color=ALARM if far else MUTED,
            weight="bold" if far else "normal",
        )
