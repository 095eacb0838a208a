"""All plans as points of time against memory: those that don't fit, the best, the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.bands import MEMORY_LIMIT, percent
from sweeps.plots.axis import Axis, axis_of, better_of, scale_for
from sweeps.plots.data import View, is_label, said, shown
from sweeps.plots.frame import Legend, Sample, frame, panel_size
from sweeps.plots.names import cell_names, coordinates_of
from sweeps.plots.optima import pareto, thinned
from sweeps.plots.placing import numbers_at
from sweeps.plots.schema import MEMORY_TOTAL, STEP_TOTAL, Figure
from sweeps.plots.style import (
    ALARM,
    CAPACITY,
    COLOURS,
    HOLE_COLOUR,
    INK,
    MUTED,
    Look,
    canonical,
    launched,
    line_look,
    plain,
    scale_of,
    sentence,
    together,
    unbroken,
    use,
    wrap,
)
from sweeps.plots.words import reasons, sheet_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_PANEL = (5.6, 4.4)
_BEYOND = 1.35  # how far the axis goes on after the capacity, by it
_MOST_COLOURS = 7
_NUMBERED = 5  # of the best plans
_LOG_FROM = 4.0  # ratio of the times from which their axis is logarithmic: the best ones matter
_PALE = "#b8b8b8"
_DEADLINE: Look = {"color": COLOURS[4], "linewidth": 1.8, "linestyle": (0, (1.5, 1.2))}
_ANSWER: Look = {
    "color": INK,
    "marker": "*",
    "markersize": 15,
    "markeredgecolor": "white",
    "markeredgewidth": 1.0,
    "linestyle": "none",
}
_FRONT: Look = {"color": ALARM, "linewidth": 1.4}


@dataclass(frozen=True, slots=True)
class _Points:
    """All plans, flat: NaN where a value is missing."""

    dims: list[str]  # The dimensions that are spread out
    x: NDArray[np.float64]  # Where each plan stands
    y: NDArray[np.float64]
    fits: NDArray[np.bool_]  # Which have both values, and need no more than the capacity
    limit: float  # The capacity; infinite where none is shown
    colour: NDArray[np.int64]  # The place in `names` of each plan's colour
    names: list[str]  # What the colours show; one empty text where they show nothing
    ordered: bool  # Whether they show a number

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Which plans don't fit."""
        return np.asarray(np.isfinite(self.x) & (self.x > self.limit))

    def look(self, index: int) -> Look:
        """Return how the points of one colour are drawn."""
        of = len(self.names) if self.ordered else 0
        return {**line_look(index, index, of), "linestyle": "none"}


def _panel() -> tuple[float, float]:
    return panel_size(1) if use().above else _PANEL


def draw_best_plans(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``best_plans``."""
    view = _without_repeats(figure, view)
    points = _points(figure, view)
    more = better_of(figure["better"], view.units(figure["y"]), figure["y"])
    best = _best(points, _NUMBERED, more=more)
    front = pareto(points.x, points.y, points.fits, more=more)
    axes_of = _axes(figure, view, points)
    title = "Which plan is best? " + sentence(f"{plain(figure['y'])} over {plain(figure['x'])}")
    if (figure["x"], figure["y"]) == (MEMORY_TOTAL, STEP_TOTAL):
        title = "Step time of the best plans, and whether they fit"
    notes = _notes(figure, view, points, axes_of[0])
    row = figure.options.get("answer")
    answer = row - 1 if row is not None and row <= len(points.x) else int(best[0])
    sheet = sheet_of(
        figure,
        view,
        title,
        notes,
        [""],
        panel=_panel(),
        table=_table(figure, view, points, best, answer),
    )
    made = frame(sheet, _legend(figure, view, points), *axes_of)
    axes = made.axes[0]
    _draw(axes, points, axes_of, front)
    axes.plot(points.x[answer], points.y[answer], zorder=2.4, **_ANSWER)
    if figure.options.get("deadline"):
        axes.axhline(figure["deadline"], zorder=1.9, **_DEADLINE)
    numbers_at(axes, points.x[best], points.y[best], made.panel, above=more)
    return made.finished()


def _without_repeats(figure: Figure, view: View) -> View:
    """Return a view without rows that repeat others, such as of a run for several deadlines."""
    dim, *others = figure["plans"]
    rows = view.has(dim) and dim not in view.dataset.coords
    if others or not rows or figure.options.get("answer"):
        return view
    shown = [figure[key] for key in ("x", "y", "by") if figure[key] is not None]
    columns = [
        view.dataset.variables[name].values
        for name in dict.fromkeys((*shown, *(name for name, _ in coordinates_of(view.dataset))))
        if view.dataset.variables[name].dims == (dim,)
    ]
    first: dict[tuple[Any, ...], int] = {}
    for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        first.setdefault(values, row)
    return replace(view, dataset=view.dataset.isel({dim: [*first.values()]}))


def _points(figure: Figure, view: View) -> _Points:
    dims = [dim for dim in figure["plans"] if view.has(dim)]
    shape = tuple(view.dataset.sizes[dim] for dim in dims)

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(values, shape).reshape(-1)

    x, y = (flat(view.numbers(figure[key], dims)) for key in ("x", "y"))
    limits = np.full(x.shape, np.inf)
    capacity = figure["capacity"]
    if capacity is not None:
        limit_units, units = view.units(capacity), view.units(figure["x"])
        if limit_units != units:
            wrong = f"in {canonical(limit_units)}, x in {canonical(units)}"
            figure.refuse("capacity", wrong, "a limit of x")
        limits = flat(view.numbers(capacity, dims))
    if len(np.unique(limits)) > 1:
        wrong = "has several values here"
        figure.refuse("capacity", wrong, "hold the dimension that it varies along by at")
    fits = np.isfinite(x) & np.isfinite(y) & ~(x > limits)
    if not fits.any():
        why = "; ".join(reasons(view, ~fits.reshape(shape), dims))
        wrong = f"no plan has a value and fits{f' ({why})' if why else ''}"
        figure.refuse("y", wrong, "hold other entries by at")
    colour, names, ordered = _colours(figure, view, dims, shape)
    return _Points(dims, x, y, fits, float(limits[0]), colour, names, ordered)


def _colours(
    figure: Figure, view: View, dims: Sequence[str], shape: tuple[int, ...]
) -> tuple[NDArray[np.int64], list[str], bool]:
    """Return what the points' colours show."""
    by = figure["by"]
    if by is None:
        return np.zeros(int(np.prod(shape)), dtype=np.int64), [""], False
    values = view.values(by, dims)
    if "flag_meanings" in view.attrs(by):
        values = np.array(str(view.attrs(by)["flag_meanings"]).split())[values.astype(np.int64)]
    distinct, inverse = np.unique(values, return_inverse=True)
    if len(distinct) > _MOST_COLOURS:
        wrong = f"{len(distinct)} values can't be told apart"
        figure.refuse("by", wrong, f"at most {_MOST_COLOURS}")
    spread = np.broadcast_to(inverse.reshape(values.shape), shape).reshape(-1)
    named = distinct.tolist()
    label = is_label(named)
    names = [shown(level, view.units(by)) for level in named]
    return spread, [said(by, name) for name in names], not label


def _best(points: _Points, count: int, *, more: bool) -> NDArray[np.int64]:
    """Return the best plans' places: of equal times those of less memory first."""
    # As a search has it: what fills more of the memory isn't recommended, unless all do.
    roomy = points.fits & (points.x <= MEMORY_LIMIT * points.limit)
    cells = np.nonzero(roomy if roomy.any() else points.fits)[0]
    order = np.lexsort((points.x[cells], -points.y[cells] if more else points.y[cells]))
    return np.asarray(cells[order][:count])


def _axes(figure: Figure, view: View, points: _Points) -> tuple[Axis, Axis]:
    x, y = points.x[points.fits], points.y[points.fits]
    if figure.options.get("deadline"):
        y = np.append(y, figure["deadline"])
    xscale, yscale = scale_for(x, figure["xscale"]), scale_for(y, figure["yscale"])
    if figure["yscale"] is None and y.min() > 0 and y.max() >= _LOG_FROM * y.min():
        yscale = "log"
    if np.isfinite(points.limit):
        # What doesn't fit is shown up to some way beyond the capacity.
        reach = np.append(points.x[points.outside], points.limit)
        x = np.append(x, min(float(reach.max()), points.limit * _BEYOND))
    attrs = [view.attrs(figure[key]) for key in ("x", "y")]
    # Times of one order are compared around each other, not from zero on.
    wide = max(float(np.ptp(y)), 0.02 * float(np.abs(y).max()), 1e-300)
    ends = (float(y.min()) - 0.15 * wide, float(y.max()) + 0.1 * wide)
    return (
        axis_of(figure["x"], attrs[0], x, xscale, _panel()[0], pad=0.03, origin=0.1),
        axis_of(
            figure["y"],
            attrs[1],
            y,
            yscale,
            _panel()[1],
            pad=0.08,
            vertical=True,
            ends=ends if yscale == "linear" else None,
        ),
    )


def _draw(
    axes: Axes, points: _Points, axes_of: tuple[Axis, Axis], front: NDArray[np.int64]
) -> None:
    xaxis, yaxis = axes_of
    outside = points.outside & (points.x <= xaxis.high)
    timed = thinned(points.x, points.y, outside & np.isfinite(points.y), axes_of)
    axes.plot(points.x[timed], points.y[timed], color=_PALE, marker="o", linestyle="none")
    # Of those without a time the memory alone is known: strokes at the edge.
    alone = thinned(points.x, np.full(points.x.shape, yaxis.low), outside, axes_of)
    strokes: Look = {"transform": axes.get_xaxis_transform(), "clip_on": False}
    axes.vlines(points.x[alone], 0.0, 0.03, colors=_PALE, linewidth=1.2, **strokes)
    for index in range(len(points.names)):
        cells = thinned(points.x, points.y, points.fits & (points.colour == index), axes_of)
        axes.plot(
            points.x[cells],
            points.y[cells],
            **points.look(index),
            markersize=5.0,
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=2.2,
        )
    axes.step(points.x[front], points.y[front], where="post", zorder=2.1, **_FRONT)
    if np.isfinite(points.limit):
        axes.axvspan(points.limit, xaxis.high, color=HOLE_COLOUR, zorder=0)
        axes.axvline(points.limit, **CAPACITY, zorder=3)
        if points.outside.any():
            words: Look = {"xycoords": axes.get_xaxis_transform(), "color": MUTED}
            axes.annotate(
                "don't fit",
                (points.limit, 1.0),
                (5, -4),
                textcoords="offset points",
                size=use().note,
                va="top",
                **words,
            )


def _notes(figure: Figure, view: View, points: _Points, xaxis: Axis) -> list[str]:
    """Say how many plans there are, how many don't fit, and why others are missing."""
    count = int(np.count_nonzero(points.fits))
    notes = [f"{count:,} plan{'s' if count > 1 else ''} fit{'s' if count == 1 else ''}."]
    outside = points.outside
    if outside.any():
        beyond = int(np.count_nonzero(outside & (points.x > xaxis.high)))
        scale = scale_of(view.units(figure["x"]))
        most = unbroken(scale.text(float(points.x[outside].max())))
        far = f" ({beyond:,} beyond the axis, up to {most})" if beyond else ""
        notes.append(f"Grey: {np.count_nonzero(outside):,} don't{far}.")
    none = ~points.fits & ~outside
    if none.any():
        shape = tuple(view.dataset.sizes[dim] for dim in points.dims)
        why = "; ".join(reasons(view, none.reshape(shape), points.dims))
        notes.append(f"{np.count_nonzero(none):,} can't be{f' ({why})' if why else ''}.")
    return notes


def _legend(figure: Figure, view: View, points: _Points) -> Legend:
    samples: list[Sample] = []
    if points.names != [""]:
        samples += [
            (name, points.look(index))
            for index, name in enumerate(points.names)
            if (points.fits & (points.colour == index)).any()
        ]
    word = "best" if figure.options.get("answer") is None else "recommended"
    full = points.fits & (points.x > MEMORY_LIMIT * points.limit)
    if word == "best" and 0 < np.count_nonzero(full) < np.count_nonzero(points.fits):
        word += f", up to {percent(MEMORY_LIMIT)} of memory"
    samples.append((word, {**_ANSWER, "markersize": 11}))
    samples.append(("Pareto front", _FRONT))
    if figure.options.get("deadline"):
        text = scale_of(view.units(figure["y"])).given(figure["deadline"], 3)
        samples.append((f"deadline: {text}", _DEADLINE))
    if np.isfinite(points.limit):
        text = scale_of(view.units(figure["x"])).given(points.limit, 3)
        name = sentence(short_name(view, figure["capacity"]))
        samples.append((f"{name}: {text}", CAPACITY))
    return Legend(samples)


# What a row of the table has beside a plan's name, in a column of a paper [in].
_BESIDE_NAMES = 1.45
_STAR = "\N{BLACK STAR}"
_OWNERS = ("hardware", "model")  # what colours show that a plan's name doesn't say


def _table(
    figure: Figure, view: View, points: _Points, best: NDArray[np.int64], answer: int
) -> list[tuple[str, ...]]:
    """Return the numbered plans as rows: number, values, name; first the answer if it has none."""
    shape = tuple(view.dataset.sizes[dim] for dim in points.dims)
    marks = [f"{rank}" for rank in range(1, len(best) + 1)]
    if answer not in best:
        best, marks = np.concatenate([[answer], best]), [_STAR, *marks]
    indices = [np.asarray(index) for index in np.unravel_index(best, shape)] if shape else []
    names = cell_names(view.dataset, points.dims, indices)
    scales = [
        (scale_of(view.units(figure[key])), points_along)
        for key, points_along in (("y", points.y), ("x", points.x))
    ]
    owners = figure["by"] in _OWNERS
    rows: list[tuple[str, ...]] = []
    for mark, cell, name in zip(marks, best.tolist(), names, strict=True):
        name = launched(name)  # noqa: PLW2901
        owner = points.names[points.colour[cell]] if owners else ""
        if owner and owner not in name:
            name = f"{owner}, {name}"  # noqa: PLW2901
        room = use().width - _BESIDE_NAMES
        first, *rest = wrap(together(name), room, use().note) if use().column else [name]
        values = (scale.text(float(column[cell])) for scale, column in scales)
        rows += [(mark, *values, first), *(("", "", "", line) for line in rest)]
    return rows
