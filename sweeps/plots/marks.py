"""Marks on curves: crossover points, and the names of the lines at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.crossing import Crossover
from sweeps.plots.readable import Scale
from sweeps.plots.style import INK, MUTED, SIZE_NOTE, SIZE_TEXT, text_width, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["End", "in_panel", "label_ends", "mark_crossovers", "room_for_labels", "spread"]

_LABEL_WIDTH = 2.3  # inches of a label beside the panel
_SAMPLE = 0.42  # inches of the sample stroke before it
_LEADER = 0.3
_TRIES = 8


def mark_crossovers(
    axes: Axes,
    found: Sequence[Crossover],
    scale: Scale,
    panel: tuple[float, float],
    *,
    above: bool,
) -> None:
    """Mark where the best line changes: a ring on the curve, the size beside it."""
    size = SIZE_NOTE
    taken: list[tuple[float, float, float]] = []
    for crossover in found:
        axes.plot(
            crossover.x, crossover.y, marker="o", markersize=9, markerfacecolor="none",
            markeredgecolor=INK, markeredgewidth=1.4, linestyle="none", zorder=4,
        )  # fmt: skip
        text = scale.text(crossover.x)
        x, y = in_panel(axes, crossover.x, crossover.y)
        wide, high = (text_width(text, size) + 0.06) / panel[0], size * 1.5 / 72 / panel[1]
        step = (0.3 if above else -0.3) / panel[1]
        place = _free_place((x, y + step), (wide, high), taken, above=above)
        axes.annotate(
            text, (x, y), place, xycoords="axes fraction", textcoords="axes fraction", size=size,
            ha="left", va="center", zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.8, "shrinkB": 5},
        )  # fmt: skip


def in_panel(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Return a point of the data as fractions of its panel."""
    where = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(where[0]), float(where[1])


def _free_place(
    wanted: tuple[float, float],
    size: tuple[float, float],
    taken: list[tuple[float, float, float]],
    *,
    above: bool,
) -> tuple[float, float]:
    """Return where a text may stand: near where it is wanted, clear of the others."""
    left = min(max(wanted[0] + 0.02, 0.0), 1.0 - size[0])
    middle = wanted[1]
    for _ in range(_TRIES):
        middle = min(max(middle, size[1] / 2), 1 - size[1] / 2)
        if not any(
            left < end and left + size[0] > start and abs(other - middle) < size[1]
            for start, end, other in taken
        ):
            break
        middle += size[1] if above else -size[1]
    taken.append((left, left + size[0], middle))
    return left, middle


@dataclass(frozen=True, slots=True)
class End:
    """A line whose name stands at its right end."""

    label: str  # The name
    x: NDArray[np.float64]  # The line
    y: NDArray[np.float64]  # The line
    look: dict[str, Any]  # How it is drawn


def room_for_labels(labels: Sequence[str]) -> float:
    """Return the width in inches that the names beside a panel take."""
    lines = [line for label in labels for line in wrap(label, _LABEL_WIDTH, SIZE_TEXT)]
    return _LEADER + _SAMPLE + max(text_width(line, SIZE_TEXT) for line in lines) + 0.25


def label_ends(axes: Axes, ends: Sequence[End], panel: tuple[float, float]) -> None:
    """Write the lines' names beside a panel, in the order in which the lines end."""
    found = []
    for end in ends:
        last = int(np.nonzero(np.isfinite(end.y))[0][-1])
        found.append((in_panel(axes, end.x[last], end.y[last]), end))
    # Of lines that end together the first one named stands on top.
    found = [
        item for _, item in sorted(enumerate(found), key=lambda item: (item[1][0][1], -item[0]))
    ]
    texts = [wrap(end.label, _LABEL_WIDTH, SIZE_TEXT) for _, end in found]
    sizes = [len(lines) * SIZE_TEXT * 1.3 / 72 / panel[1] for lines in texts]
    places = spread([place[1] for place, _ in found], sizes)
    inch = 1.0 / panel[0]
    start = 1.0 + _LEADER * inch
    for (place, end), lines, y in zip(found, texts, places, strict=True):
        how: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        leader = ([place[0], start - 0.04 * inch], [place[1], y])
        axes.plot(*leader, color=end.look["color"], linewidth=0.8, alpha=0.7, **how)
        sample = np.array([start, start + _SAMPLE * inch / 2, start + _SAMPLE * inch])
        axes.plot(sample, np.full(3, y), markevery=[1], **end.look, **how)
        axes.text(
            start + (_SAMPLE + 0.08) * inch, y, "\n".join(lines), va="center",
            transform=axes.transAxes,
        )  # fmt: skip


def spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move places apart until boxes of the given sizes don't overlap."""
    groups: list[tuple[float, float, list[int]]] = []  # middle, size, members
    for index, (place, size) in enumerate(zip(wanted, sizes, strict=True)):
        middle, whole, members = place, size, [index]
        while groups and groups[-1][0] + groups[-1][1] / 2 > middle - whole / 2:
            before, length, others = groups.pop()
            middle = before * len(others) + middle * len(members)
            members = others + members
            middle, whole = middle / len(members), whole + length
        groups.append((middle, whole, members))
    places = [0.0] * len(wanted)
    for middle, whole, members in groups:
        low = middle - whole / 2
        for member in members:
            places[member] = low + sizes[member] / 2
            low += sizes[member]
    # Then into the panel, as far as there is room.
    floor = 0.0
    for member, size in enumerate(sizes):
        places[member] = max(places[member], floor + size / 2)
        floor = places[member] + size / 2
    ceiling = max(1.0, sum(sizes))
    for member, size in reversed(list(enumerate(sizes))):
        places[member] = min(places[member], ceiling - size / 2)
        ceiling = places[member] - size / 2
    return places
