"""Points of plans: which no other beats in both ways, which to draw, the numbers of the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import Axis
from sweeps.plots.marks import in_panel, spread
from sweeps.plots.style import INK, MUTED, SIZE_NOTE, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["numbers_at", "pareto", "thinned"]

_CELLS = (600, 480)  # points in one cell of so many across and up cover each other
_AWAY = 0.32  # inches from the best points to their numbers


def pareto(
    x: NDArray[np.float64], y: NDArray[np.float64], valid: NDArray[np.bool_], *, more: bool
) -> NDArray[np.int64]:
    """Find the points that no other point beats in both ways."""
    places = np.nonzero(valid)[0]
    cost = -y[places] if more else y[places]
    order = np.lexsort((cost, x[places]))
    places, cost = places[order], cost[order]
    least = np.minimum.accumulate(np.concatenate([[np.inf], cost[:-1]])) if len(cost) else cost
    return np.asarray(places[cost < least], dtype=np.int64)


def thinned(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    valid: NDArray[np.bool_],
    axes: tuple[Axis, Axis],
) -> NDArray[np.int64]:
    """Return the points to draw: of those that would cover each other on paper the first one."""
    places = np.nonzero(valid)[0]
    cells = np.zeros(len(places), dtype=np.int64)
    for values, axis, count in zip((x, y), axes, _CELLS, strict=True):
        low, high, own = axis.low, axis.high, values[places]
        if axis.scale == "log":
            low, high, own = np.log(low), np.log(high), np.log(own)
        inside = np.clip((own - low) / (high - low), 0.0, 1.0)
        cells = cells * (count + 1) + np.round(count * inside).astype(np.int64)
    _, first = np.unique(cells, return_index=True)
    return np.asarray(places[np.sort(first)], dtype=np.int64)


def numbers_at(
    axes: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    panel: tuple[float, float],
    *,
    above: bool,
) -> None:
    """Number points, from 1 on, in a row beside them."""
    places = [in_panel(axes, *point) for point in zip(x.tolist(), y.tolist(), strict=True)]
    order = sorted(range(len(places)), key=lambda rank: places[rank])
    sizes = [(text_width(f"{rank + 1}", SIZE_NOTE) + 0.12) / panel[0] for rank in order]
    across = spread([places[rank][0] for rank in order], sizes)
    heights = [place[1] for place in places]
    # All in a row, clear of the lines and of the panel's ends.
    row = max(heights) + _AWAY / panel[1] if above else min(heights) - _AWAY / panel[1]
    row = min(max(row, 0.1 / panel[1]), 1.0 - 0.1 / panel[1])
    for rank, place in zip(order, across, strict=True):
        axes.annotate(
            f"{rank + 1}", places[rank], (place, row), xycoords="axes fraction",
            textcoords="axes fraction", size=SIZE_NOTE, weight="bold", color=INK, ha="center",
            va="center", zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.8, "shrinkB": 3},
        )  # fmt: skip
