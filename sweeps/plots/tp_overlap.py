"""Where tensor-parallel overlap pays: its speedup over hidden size and tokens, panel by panel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.frame import Legend, Sheet, frame
from sweeps.plots.save import save
from sweeps.plots.style import ALARM, COLOURS, INK, SIZE_NOTE, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_benefit"]

Floats = NDArray[np.float64]

_EVEN = 0.005  # a speedup nearer to 1 is none
_STRONG = 0.35  # gains from here on have the full colour
_CELL = (0.46, 0.27)  # inches


def draw_benefit(
    speedup: Floats,
    hardware: list[str],
    axes: Mapping[str, Floats],
    stem: Path,
    fixed: str = "",
) -> list[Path]:
    """Draw the speedup, with the best number of multiprocessors in each cell."""
    from matplotlib.patches import Patch

    best = speedup.max(axis=-1)
    sizes = axes["tp"].astype(int).tolist()
    cells = [(i, j) for i in range(len(hardware)) for j in range(len(sizes))]
    across, down = len(axes["tokens"]), len(axes["hidden_size"])
    panel = (max(across * _CELL[0], 1.6), max(down * _CELL[1], 1.2))
    samples = {
        "saves time": _colour(1.2), "changes nothing": _colour(1.0), "costs time": _colour(0.85),
    }  # fmt: skip
    legend = Legend([Patch(facecolor=colour) for colour in samples.values()], list(samples))
    sheet = Sheet(
        "Where tensor-parallel overlap pays",
        xlabel="Tokens that a layer works on",
        ylabel="Hidden size",
        fixed=fixed,
        notes=[
            "Numbers: time of a layer's four linear layers, forward and backward, without overlap "
            "by that with all of it, at the best number of multiprocessors; k is 1024. Predicted."
        ],
        panels=[f"{hardware[i]}, TP={sizes[j]}" for i, j in cells],
        left=0.95,
        panel=panel,
    )
    with style():
        made = frame(sheet, legend)
        for place, (i, j) in enumerate(cells):
            lowest, first = made.outer(place)
            _fill(made.axes[place], best[i, j], axes, labels=(lowest, first))
        made.legend(legend)
        return save(made.canvas, stem)


def _fill(
    axis: Axes, values: Floats, axes: Mapping[str, Floats], labels: tuple[bool, bool]
) -> None:
    from matplotlib.patches import Rectangle

    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            box = Rectangle((column - 0.5, row - 0.5), 1.0, 1.0, facecolor=_colour(value), lw=0)
            axis.add_patch(box)
            size = SIZE_NOTE - 1.5
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", size=size, color=INK)
    axis.set_xlim(-0.5, values.shape[1] - 0.5)
    axis.set_ylim(-0.5, values.shape[0] - 0.5)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    x = [_short(v) if labels[0] else "" for v in axes["tokens"]]
    y = [_short(v) if labels[1] else "" for v in axes["hidden_size"]]
    axis.set_xticks(range(len(x)), labels=x)
    axis.set_yticks(range(len(y)), labels=y)


def _short(value: float) -> str:
    whole = int(value)
    return f"{whole // 1024}k" if whole % 1024 == 0 else f"{whole}"


def _colour(speedup: float) -> Any:
    """Return blue for a gain, orange for a loss, the paler the less."""
    from matplotlib.colors import to_rgb

    gain = np.log(speedup)
    if abs(gain) < _EVEN:
        return "#f4f4f4"
    base = np.array(to_rgb(COLOURS[0] if gain > 0 else ALARM))
    share = 0.12 + 0.5 * min(abs(gain) / _STRONG, 1.0)
    return tuple((1.0 - share) + share * base)
