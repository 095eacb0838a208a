"""Maps: the best topology or algorithm over two numeric dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps import display
from sweeps.bands import percent
from sweeps.plots.axis import Axis, axis_of, better_of, scale_for
from sweeps.plots.data import View, evenly
from sweeps.plots.frame import Legend, frame, panel_size
from sweeps.plots.placing import Box, box_of, extent, in_panel, is_free, label_place, write_at
from sweeps.plots.regions import EQUAL, HOLE, edges, regions_of, runs
from sweeps.plots.schema import Figure
from sweeps.plots.style import (
    HATCHES,
    HOLE_COLOUR,
    INK,
    MUTED,
    STIPPLE,
    UNBROKEN,
    Look,
    Scale,
    launched,
    number,
    plain,
    region_colour,
    scale_of,
    use,
)
from sweeps.plots.words import joined, panels_of, sheet_of, short_name, status_bits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import PathPatch


_ROWS, _COLUMNS = 4, 5  # of a panel's table
_GRID = (120, 200)  # rows and columns on which a place for a region's name is sought
_OWN_COLOURS = 8
_MOST_NAMED = 12  # regions that the legend names one by one
_CLOSE: dict[str, object] = {
    "facecolor": "none",
    "edgecolor": INK,
    "linewidth": 0.0,
    "hatch": STIPPLE,
}
_STRIPES = ("//", "\\\\", "--", "||")  # of regions where several are equally good
_NEAR = 0.1  # how much worse than the best, or above its bound, is as good as that
_NO_REASON = "no value in the file"


@dataclass(frozen=True, slots=True)
class _Region:
    """A region of the maps: its name, colour and stripes."""

    name: str
    colour: str
    stripes: str | None = None
    hatch: str = ""


@dataclass(frozen=True, slots=True)
class _Map:
    """What is drawn: `which` and `near` have the shape (panels, rows, columns).

    Holes have the numbers from `first_hole` on.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    which: NDArray[np.int64]
    regions: list[_Region]
    first_hole: int
    notes: list[str]
    near: NDArray[np.bool_]  # What is stippled: near to a bound, or to the second best


def draw_best(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``best``."""
    panels = panels_of(figure, view)
    drawn = _prepared(figure, view, panels)
    xaxis, yaxis = _axes(figure, view, drawn, len(panels))
    sheet = sheet_of(figure, view, _title(figure, view), drawn.notes, panels)
    size = use().text if len(panels) == 1 else use().note
    names = [
        _names_in(drawn, index, (xaxis, yaxis), panel_size(len(panels)), size)
        for index in range(len(panels))
    ]
    legend = _legend(figure, view, drawn, {code for named in names for code in named})
    made = frame(sheet, legend, xaxis, yaxis)
    given = scale_of(view.units(figure["x"]))
    for index, axes in enumerate(made.axes):
        axes.grid(visible=False)
        borders = edges(drawn.x, xaxis.scale), edges(drawn.y, yaxis.scale)
        for position, region in enumerate(drawn.regions):
            mask = drawn.which[index] == position
            if mask.any():
                axes.add_patch(_patch(_look(region), mask, *borders))
        if drawn.near[index].any():
            axes.add_patch(_patch(_CLOSE, drawn.near[index], *borders))
        _draw_borders(axes, drawn.which[index], borders)
        taken = []
        for position, where in names[index].items():
            name = launched(drawn.regions[position].name)
            write_at(axes, where, name, size)
            taken.append(box_of(where, name, size, made.panel))
        _write_crossovers(axes, drawn, index, borders, given, taken, made.panel)
    return made.finished()


def table_of(figure: Figure, view: View) -> tuple[str, int, list[list[str]], list[str]]:
    """Return a map as a table: its title, its columns of names, and the best at samples."""
    panels = panels_of(figure, view)
    drawn = _prepared(figure, view, panels)
    names = [region.name for region in drawn.regions]
    across, down = evenly(len(drawn.x), _COLUMNS), evenly(len(drawn.y), _ROWS)
    first, *others = map(scale_of(view.units(figure["x"])).given, drawn.x[across])
    given = scale_of(view.units(figure["y"])).given
    of = [plain(figure["panels"])] if panels[0] else []
    rows = [[*of, plain(figure["y"]), f"{plain(figure['x'])} {first}", *others]]
    for name, which in zip(panels, drawn.which, strict=True):
        panel = [name] if of else []
        for row in down:
            cells = [names[index] for index in which[row, across]]
            rows.append([*panel, given(drawn.y[row]), *cells])
    return figure["title"] or _title(figure, view), len(of) + 1, rows, []


def findings(figure: Figure, view: View) -> Iterator[str]:
    """Yield in sentences which are best most often, panel by panel."""
    panels = panels_of(figure, view)
    drawn = _prepared(figure, view, panels)
    for name, which in zip(panels, drawn.which, strict=True):
        there = which[which < drawn.first_hole]
        indices, counts = np.unique(there, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_MOST_REGIONS]
        shares = [
            f"{drawn.regions[indices[k]].name} in {percent(counts[k] / there.size)}" for k in order
        ]
        more = len(indices) - len(shares)
        shares += [f"{more} other{'s' * (more > 1)} in the rest"] if more > 0 else []
        yield f"{f'{name}: ' if name else ''}{', '.join(shares)} of {there.size:,} cases"


_MOST_REGIONS = 3
_MOST = {"time": "Fastest", "step_time": "Fastest", "energy": "Lowest-energy"}


def _title(figure: Figure, view: View) -> str:
    over = [dim for dim in figure["over"] if view.has(dim)]
    value = figure["value"]
    axes = ", by " + joined(
        [display.axis(name) or short_name(view, name) for name in (figure["x"], figure["y"])]
    )
    if not over:
        return f"{short_name(view, value)}{axes}"
    degree = "most" if better_of(figure["better"], view.units(value), value) else "least"
    best = _MOST.get(value) or f"Of the {degree} {short_name(view, value)}:"
    return f"{best} {joined(over)}{axes}"


def _prepared(figure: Figure, view: View, panels: Sequence[str]) -> _Map:
    """Find the regions, in all panels together."""
    x_name, y_name, value = figure["x"], figure["y"], figure["value"]
    over = [dim for dim in figure["over"] if view.has(dim)]
    panel_dims = [figure["panels"]] if len(panels) > 1 else []
    dims = [*over, *panel_dims, y_name, x_name]
    view, notes = _on_axes(figure, view)
    x, y = view.coordinate(x_name), view.coordinate(y_name)
    shape = (len(panels), len(y), len(x))
    margin = np.full(shape, np.nan)
    if "flag_meanings" in view.attrs(value):
        which, regions = _flagged(view, value, np.broadcast_to(view.values(value, dims), shape))
    else:
        values = view.numbers(value, dims).reshape(-1, *shape)
        found_regions = regions_of(
            values, more=better_of(figure["better"], view.units(value), value)
        )
        which = found_regions.which
        names = [" · ".join(texts) for texts in product(*(view.labels(dim) for dim in over))]
        regions = _compared(found_regions.sets, names)
        which, regions = _gathered(which, regions, notes)
        margin = found_regions.margin
    # Stippled is where the best is near to its bound, or the choice hardly matters; cells shared
    # by equals say so by their stripes.
    near = (margin > 1 + EQUAL) & (margin <= 1 + _NEAR)
    if figure["bound"] is not None:
        ratio = view.numbers(figure["bound"], dims)
        for _ in over:
            ratio = np.nanmin(ratio, axis=0)
        near = np.broadcast_to(ratio <= 1.0 + _NEAR, shape)
    first_hole = len(regions)
    if (which == HOLE).any():
        which = which.copy()
        for text in _fill_holes(view, which, value, over, dims[len(over) :], first_hole):
            hatch = HATCHES[(len(regions) - first_hole) % len(HATCHES)]
            regions.append(_Region(text, HOLE_COLOUR, MUTED, hatch))
    return _Map(x, y, which, regions, first_hole, notes, near)


def _on_axes(figure: Figure, view: View) -> tuple[View, list[str]]:
    """Leave out what has no place on a logarithmic axis, and say so."""
    notes = []
    for key in "xy":
        name = figure[key]
        values = view.coordinate(name)
        log = scale_for(values, figure[f"{key}scale"]) == "log"
        kept = np.isfinite(values) & ((values > 0) | (not log))
        if not kept.all():
            left = ", ".join(number(value) for value in values[~kept])
            notes.append(f"Without a place on its axis: {plain(name)} {left}.")
            view = View(view.dataset.isel({name: np.nonzero(kept)[0]}), view.chosen)
    return view, notes


def _compared(sets: Sequence[Sequence[int]], names: Sequence[str]) -> list[_Region]:
    """Return the regions; where several are equally good, striped in the second one's colour."""
    # Few entries keep the colour that they have in other figures; of many only the best get one.
    seen = dict.fromkeys(entry for entries in sets for entry in entries[:2])
    order = range(len(names)) if len(names) <= _OWN_COLOURS else seen
    colours = {entry: region_colour(index) for index, entry in enumerate(order)}
    regions = []
    # Of two with the same first entries each has stripes of its own.
    stripes: Counter[tuple[int, ...]] = Counter()
    for entries in sets:
        if len(entries) == 1:
            regions.append(_Region(names[entries[0]], colours[entries[0]]))
            continue
        every = len(entries) == len(names) > 2
        text = "all equal" if every else " = ".join(names[entry] for entry in entries)
        pair = (*entries[:2],)
        hatch = _STRIPES[stripes[pair] % len(_STRIPES)]
        stripes[pair] += 1
        regions.append(_Region(text, colours[entries[0]], colours[entries[1]], hatch))
    return regions


def _gathered(
    which: NDArray[np.int64], regions: list[_Region], notes: list[str]
) -> tuple[NDArray[np.int64], list[_Region]]:
    """Put the smallest regions together where there are more than a legend can name."""
    if len(regions) <= _MOST_NAMED:
        return which, regions
    rest = regions[_MOST_NAMED:]
    notes.append(f"Others: {'; '.join(region.name for region in rest)}.")
    which = np.minimum(which, _MOST_NAMED)
    return which, [*regions[:_MOST_NAMED], _Region(f"{len(rest)} others (below)", "#ffffff")]


def _flagged(
    view: View, name: str, values: NDArray[Any]
) -> tuple[NDArray[np.int64], list[_Region]]:
    """Read a flag variable: 0 is a hole, other values have a meaning."""
    attrs = view.attrs(name)
    flags = [int(flag) for flag in np.atleast_1d(attrs.get("flag_values", []))]
    meanings = str(attrs["flag_meanings"]).split()
    flags = flags if len(flags) == len(meanings) else list(range(len(meanings)))
    which = np.full(values.shape, HOLE, dtype=np.int64)
    regions: list[_Region] = []
    for flag, meaning in zip(flags, meanings, strict=True):
        mask = values == flag
        if flag and mask.any():
            which[mask] = len(regions)
            regions.append(_Region(meaning, region_colour(len(regions))))
    return which, regions


def _fill_holes(
    view: View,
    which: NDArray[np.int64],
    value: str,
    over: Sequence[str],
    cells: Sequence[str],
    first: int,
) -> list[str]:
    """Give each hole the number of its reason, from `first` on, and return the reasons."""
    bits, meanings = status_bits(view, [*over, *cells], value)
    for _ in over:
        bits = np.bitwise_or.reduce(bits, axis=0)
    bits = np.broadcast_to(bits if len(cells) == which.ndim else bits[None], which.shape)
    holes = which == HOLE
    texts: list[str] = []
    for code in np.unique(bits[holes]):
        names = [name for index, name in enumerate(meanings) if int(code) >> index & 1]
        text = "; ".join(names) or _NO_REASON
        if text not in texts:
            texts.append(text)
        which[holes & (bits == code)] = first + texts.index(text)
    return texts


def _axes(figure: Figure, view: View, drawn: _Map, panels: int) -> tuple[Axis, Axis]:
    made = []
    for key, values, length in zip("xy", (drawn.x, drawn.y), panel_size(panels), strict=True):
        name = figure[key]
        scale = scale_for(values, figure[f"{key}scale"])
        border = edges(values, scale)
        axis = axis_of(
            name,
            view.attrs(name),
            values,
            scale,
            length,
            vertical=key == "y",
            discrete=True,
            ends=(float(border[0]), float(border[-1])),
        )
        made.append(axis)
    return made[0], made[1]


def _patch(
    look: Look,
    mask: NDArray[np.bool_],
    columns: NDArray[np.float64],
    rows: NDArray[np.float64],
) -> PathPatch:
    """Return a region's cells as one shape, so that its stripes run through all of it."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rectangles = np.array(runs(mask))
    low, high = rows[rectangles[:, 0]], rows[rectangles[:, 0] + 1]
    left, right = columns[rectangles[:, 1]], columns[rectangles[:, 2]]
    corners = np.stack(
        [np.stack([left, right, right, left, left], 1), np.stack([low, low, high, high, low], 1)], 2
    )
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(rectangles)
    return PathPatch(Path(corners.reshape(-1, 2), codes), zorder=1, **look)


def _look(region: _Region) -> dict[str, object]:
    # The thin edge closes the hairlines between neighbouring cells; matplotlib draws stripes in
    # the edge's colour.
    if not region.hatch:
        return {"facecolor": region.colour, "edgecolor": region.colour, "linewidth": 0.3}
    return {
        "facecolor": region.colour,
        "edgecolor": region.stripes,
        "linewidth": 0.0,
        "hatch": region.hatch,
    }


def _draw_borders(axes: Axes, cells: NDArray[Any], borders: Sequence[NDArray[np.float64]]) -> None:
    """Draw lines between cells that differ, along the cells: nothing lies between."""
    from matplotlib.collections import LineCollection

    columns, rows = borders
    pieces = [
        [(columns[j + 1], rows[i]), (columns[j + 1], rows[i + 1])]
        for i, j in np.argwhere(cells[:, 1:] != cells[:, :-1])
    ]
    pieces += [
        [(columns[j], rows[i + 1]), (columns[j + 1], rows[i + 1])]
        for i, j in np.argwhere(cells[1:] != cells[:-1])
    ]
    axes.add_collection(LineCollection(pieces, colors=INK, linewidths=0.8, zorder=3))


def _names_in(
    drawn: _Map, index: int, scales: tuple[Axis, Axis], panel: tuple[float, float], size: float
) -> dict[int, tuple[float, float]]:
    """Return where the names of regions fit into them, as fractions of the panel."""
    even = []
    for axis, count in zip(scales, reversed(_GRID), strict=True):
        space = np.geomspace if axis.scale == "log" else np.linspace
        borders = space(axis.low, axis.high, count + 1)
        even.append((borders[1:] + borders[:-1]) / 2)
    columns = np.searchsorted(edges(drawn.x, scales[0].scale), even[0]) - 1
    rows = np.searchsorted(edges(drawn.y, scales[1].scale), even[1]) - 1
    columns, rows = columns.clip(0, len(drawn.x) - 1), rows.clip(0, len(drawn.y) - 1)
    cells = drawn.which[index][np.ix_(rows, columns)]
    spots = {}
    for number_, region in enumerate(drawn.regions[: drawn.first_hole]):
        spot = label_place(cells == number_, extent(region.name, size, panel))
        if spot is not None:
            spots[number_] = spot
    return spots


def _write_crossovers(
    axes: Axes,
    drawn: _Map,
    index: int,
    borders: Sequence[NDArray[np.float64]],
    scale: Scale,
    taken: list[Box],
    panel: tuple[float, float],
) -> None:
    """Write where along the horizontal axis the longest borders are, beside them."""
    which = drawn.which[index]
    left, right = which[:, :-1], which[:, 1:]
    meetings: dict[tuple[int, int], list[tuple[int, int]]] = {}
    known = (left < drawn.first_hole) & (right < drawn.first_hole)
    for row, column in np.argwhere((left != right) & known).tolist():
        pair = (int(left[row, column]), int(right[row, column]))
        meetings.setdefault(pair, []).append((row, column))
    longest = sorted(meetings.values(), key=len, reverse=True)[:_MOST_CROSSOVERS]
    for cells in (border for border in longest if len(border) >= _LEAST_BORDER * len(which)):
        middle = float(np.median([row for row, _ in cells]))
        for row, column in sorted(cells, key=lambda cell: abs(cell[0] - middle)):
            where = borders[0][column + 1]
            text = scale.text(float(where), 2)
            x, y = in_panel(axes, where, drawn.y[row])
            wide, _ = extent(text, use().note, panel)
            sides = [(x + wide / 2, y), (x - wide / 2, y)]
            boxes = [(side, box_of(side, text, use().note, panel)) for side in sides]
            spot, box = next(
                (box_and_spot for box_and_spot in boxes if is_free(box_and_spot[1], taken)),
                (None, None),
            )
            if spot is not None and box is not None:
                write_at(axes, spot, text, use().note)
                taken.append(box)
                break


_MOST_CROSSOVERS = 4  # that a panel tells in numbers
_LEAST_BORDER = 0.2  # of the panel's height


def _legend(figure: Figure, view: View, drawn: _Map, named: Collection[int]) -> Legend:
    unnamed = [region for index, region in enumerate(drawn.regions) if index not in named]
    samples = [(region.name, _look(region)) for region in unnamed]
    if drawn.near.any():
        share = f"within {100 * _NEAR:.0f}{UNBROKEN}%"
        samples.append(
            (f"{share} of the bound" if figure["bound"] else f"second best {share}", _CLOSE)
        )
    over = [dim for dim in figure["over"] if view.has(dim)]
    return Legend(samples, joined(over) if over and unnamed else "")
