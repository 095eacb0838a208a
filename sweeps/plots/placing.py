"""Where texts stand so that none meets another: what matplotlib's own layout doesn't do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.optima import Crossover
from sweeps.plots.style import (
    BEHIND,
    INK,
    MUTED,
    Look,
    Scale,
    launched,
    text_width,
    together,
    use,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL_WIDTH = 2.3  # inches of a label beside the panel
_SAMPLE = 0.42  # inches of the sample stroke before it
_LEADER = 0.3
_EARLY = 0.9  # of the panel's width: a line that ends before it
_TRIES = 8


def mark_crossovers(
    axes: Axes,
    crossings: Sequence[Crossover],
    scale: Scale,
    panel: tuple[float, float],
    curves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    *,
    above: bool,
) -> None:
    """Mark where the best line changes: a ring on the curve, the size clear of all curves."""
    size = use().note
    taken: list[tuple[float, float, float]] = []
    drawn = np.concatenate([_dots(axes, x, y) for x, y in curves])
    for crossover in crossings:
        axes.plot(
            crossover.x,
            crossover.y,
            marker="o",
            markersize=9,
            markerfacecolor="none",
            markeredgecolor=INK,
            markeredgewidth=1.4,
            linestyle="none",
            zorder=4,
        )
        text = scale.text(crossover.x)
        x, y = in_panel(axes, crossover.x, crossover.y)
        wide, high = (text_width(text, size) + 0.06) / panel[0], size * 1.5 / 72 / panel[1]
        step = (0.3 if above else -0.3) / panel[1]
        spot = _free_place((x, y + step), (wide, high), taken, drawn, above=above)
        _write_for(axes, text, (x, y), spot, ha="left")


def _write_for(
    axes: Axes, text: str, point: tuple[float, float], spot: tuple[float, float], **how: Any
) -> None:
    """Write a text into a panel, with a line to the point that it is about."""
    axes.annotate(
        text,
        point,
        spot,
        xycoords="axes fraction",
        textcoords="axes fraction",
        size=use().note,
        va="center",
        zorder=5,
        bbox=BEHIND,
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.8, "shrinkB": 4},
        **how,
    )


def in_panel(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Return a point of the data as fractions of its panel."""
    where = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(where[0]), float(where[1])


def _free_place(
    wanted: tuple[float, float],
    size: tuple[float, float],
    taken: list[tuple[float, float, float]],
    drawn: NDArray[np.float64],
    *,
    above: bool,
) -> tuple[float, float]:
    """Return where a text may stand: near where it is wanted, clear of the others."""
    lefts = [wanted[0] + 0.02, wanted[0] - size[0] - 0.02, wanted[0] - size[0] / 2]
    lefts = [min(max(left, 0.0), 1.0 - size[0]) for left in lefts]
    low, high = size[1] / 2, 1 - size[1] / 2
    steps = [0.0, *(sign * step for sign in (1, -1) for step in range(1, _TRIES))]
    away = size[1] if above else -size[1]
    heights = [wanted[1] + step * away for step in steps]
    inside = [height for height in heights if low <= height <= high] or [
        min(max(wanted[1], low), high)
    ]

    def covers(left: float, middle: float) -> int:
        """How many dots of curves a text there would cover; others' texts count as many."""
        x, y = drawn.T
        within = (left - 0.01 < x) & (x < left + size[0] + 0.01)
        dots = int(np.count_nonzero(within & (np.abs(y - middle) < 0.6 * size[1])))
        others = (
            left < end and left + size[0] > start and abs(other - middle) < size[1]
            for start, end, other in taken
        )
        return dots + len(drawn) * sum(others)

    every = [(left, middle) for middle in inside for left in lefts]
    left, middle = min(every, key=lambda spot: covers(*spot))
    taken.append((left, left + size[0], middle))
    return left, middle


def _dots(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a curve as dots close to each other, as fractions of its panel."""
    there = np.isfinite(x) & np.isfinite(y)
    points = axes.transData.transform(np.column_stack((x[there], y[there])))
    points = axes.transAxes.inverted().transform(points)
    if len(points) < 2:
        return np.reshape(points, (-1, 2))
    along = np.linspace(0.0, len(points) - 1.0, 30 * len(points))
    numbers = np.arange(len(points))
    return np.column_stack([np.interp(along, numbers, points[:, way]) for way in (0, 1)])


@dataclass(frozen=True, slots=True)
class End:
    """A line whose name stands at its right end."""

    label: str  # The name
    x: NDArray[np.float64]  # The line
    y: NDArray[np.float64]
    look: Look  # How it is drawn


def label_ends(axes: Axes, ends: Sequence[End], panel: tuple[float, float]) -> None:
    """Write the lines' names beside a panel, in the order in which the lines end."""
    ends_in_panel = []
    for end in ends:
        last = int(np.nonzero(np.isfinite(end.y))[0][-1])
        ends_in_panel.append((in_panel(axes, end.x[last], end.y[last]), end))
    # Of lines that end together the first one named stands on top.
    ends_in_panel = [
        item
        for _, item in sorted(enumerate(ends_in_panel), key=lambda item: (item[1][0][1], -item[0]))
    ]
    texts = [
        wrap(together(launched(end.label)), _LABEL_WIDTH, use().text) for _, end in ends_in_panel
    ]
    sizes = [len(lines) * use().text * 1.3 / 72 / panel[1] for lines in texts]
    heights = spread([tip[1] for tip, _ in ends_in_panel], sizes)
    inch = 1.0 / panel[0]
    start = 1.0 + _LEADER * inch
    for (point, end), lines, y in zip(ends_in_panel, texts, heights, strict=True):
        how: Look = {"transform": axes.transAxes, "clip_on": False}
        leader = ([point[0], start - 0.04 * inch], [point[1], y])
        # A line that ends early isn't drawn on: its leader is dotted.
        dots = ":" if point[0] < _EARLY else "-"
        axes.plot(*leader, color=end.look["color"], linewidth=0.8, alpha=0.7, linestyle=dots, **how)
        sample = np.array([start, start + _SAMPLE * inch / 2, start + _SAMPLE * inch])
        axes.plot(sample, np.full(3, y), markevery=[1], **end.look, **how)
        axes.text(
            start + (_SAMPLE + 0.08) * inch,
            y,
            "\n".join(lines),
            va="center",
            transform=axes.transAxes,
        )


def spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move places apart until boxes of the given sizes don't overlap."""
    groups: list[tuple[float, float, list[int]]] = []  # middle, size, members
    for index, (wish, size) in enumerate(zip(wanted, sizes, strict=True)):
        middle, whole, members = wish, size, [index]
        while groups and groups[-1][0] + groups[-1][1] / 2 > middle - whole / 2:
            before, length, others = groups.pop()
            middle = before * len(others) + middle * len(members)
            members = others + members
            middle, whole = middle / len(members), whole + length
        groups.append((middle, whole, members))
    middles = [0.0] * len(wanted)
    for middle, whole, members in groups:
        low = middle - whole / 2
        for member in members:
            middles[member] = low + sizes[member] / 2
            low += sizes[member]
    # Then into the panel, as far as there is room.
    floor = 0.0
    for member, size in enumerate(sizes):
        middles[member] = max(middles[member], floor + size / 2)
        floor = middles[member] + size / 2
    ceiling = max(1.0, sum(sizes))
    for member, size in reversed(list(enumerate(sizes))):
        middles[member] = min(middles[member], ceiling - size / 2)
        ceiling = middles[member] - size / 2
    return middles


_AWAY = 0.32  # inches from the best points to their numbers


def numbers_at(
    axes: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    panel: tuple[float, float],
    *,
    above: bool,
) -> None:
    """Number points, from 1 on, in a row beside them."""
    points = [in_panel(axes, *point) for point in zip(x.tolist(), y.tolist(), strict=True)]
    order = sorted(range(len(points)), key=lambda rank: points[rank])
    sizes = [(text_width(f"{rank + 1}", use().note) + 0.12) / panel[0] for rank in order]
    across = spread([points[rank][0] for rank in order], sizes)
    heights = [spot[1] for spot in points]
    # All in a row, clear of the lines and of the panel's ends.
    row = max(heights) + _AWAY / panel[1] if above else min(heights) - _AWAY / panel[1]
    row = min(max(row, 0.1 / panel[1]), 1.0 - 0.1 / panel[1])
    for rank, column in zip(order, across, strict=True):
        point = points[rank]
        _write_for(axes, f"{rank + 1}", point, (column, row), weight="bold", color=INK, ha="center")


def label_place(mask: NDArray[np.bool_], box: tuple[float, float]) -> tuple[float, float] | None:
    """Find a place for a text inside a region."""
    rows, columns = mask.shape
    wide, high = max(int(np.ceil(box[0] * columns)), 1), max(int(np.ceil(box[1] * rows)), 1)
    if wide > columns or high > rows:
        return None
    total = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    inside = total[high:, wide:] - total[:-high, wide:] - total[high:, :-wide]
    inside = inside + total[:-high, :-wide]
    fits = np.argwhere(inside == wide * high)
    if not len(fits):
        return None
    # The fitting place nearest to the middle of all of them.
    away: NDArray[Any] = ((fits - fits.mean(axis=0)) / np.array([rows, columns])) ** 2
    row, column = fits[int(np.argmin(away.sum(axis=1)))]
    return (column + wide / 2) / columns, (row + high / 2) / rows


def extent(text: str, size: float, panel: tuple[float, float]) -> tuple[float, float]:
    """Return a text's width and height with what is kept free about it, by the panel's."""
    return (text_width(text, size) + 0.12) / panel[0], size * 1.6 / 72 / panel[1]


Box = tuple[float, float, float, float]


def box_of(middle: tuple[float, float], text: str, size: float, panel: tuple[float, float]) -> Box:
    """Return the box about a text: left, bottom, right and top, as fractions of the panel."""
    wide, high = extent(text, size, panel)
    x, y = middle
    return x - wide / 2, y - high / 2, x + wide / 2, y + high / 2


def write_at(axes: Axes, middle: tuple[float, float], text: str, size: float) -> None:
    """Write a text into a panel, about a point of it."""
    axes.text(
        *middle,
        text,
        size=size,
        ha="center",
        va="center",
        transform=axes.transAxes,
        zorder=5,
        bbox=BEHIND,
    )


def is_free(box: Box, taken: Sequence[Box]) -> bool:
    """Return whether a box lies inside the panel, and meets no other."""
    inside = min(box[:2]) >= 0.0 and max(box[2:]) <= 1.0
    return inside and not any(
        box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
        for other in taken
    )
