"""Lines as text: their values as a table, and which is best in how many cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.axis import better_of
from sweeps.plots.data import View, evenly, said
from sweeps.plots.lines import GAPS, SAME, prepare
from sweeps.plots.names import PLACE, PLAN_NAMES, word_of
from sweeps.plots.relative import by_column
from sweeps.plots.schema import Figure
from sweeps.plots.style import number, plain, scale_of
from sweeps.plots.words import heading, joined, panels_of
from sweeps.spec.units import grouped

if TYPE_CHECKING:
    pass

_COLUMNS = 5  # of a table


def table_of(figure: Figure, view: View) -> tuple[str, int, list[list[str]], list[str]]:
    """Return a figure's title and its values: a row a line, a column a sample of ``x``.

    Between them how many columns on the left are names, behind them why some lack a value.  Of a
    reduction a last column says where its last value was found.
    """
    x, y = figure["x"], figure["y"]
    view, table = by_column(view, x, y, more=better_of(figure["better"], view.units(y), y))
    panels = panels_of(figure, view)
    # A table has no logarithmic axis to leave zeros out of.
    linear = replace(figure, options={**figure.options, "xscale": "linear", "yscale": "linear"})
    plot = prepare(linear, view, panels)
    by = [dim for dim in figure["lines"] if view.has(dim)]
    labelled = [bool(panels[0]), bool(by)]
    at = evenly(len(plot.x), _COLUMNS)
    along, scale = scale_of(view.units(x)), scale_of(str(plot.attrs.get("units", "1")))
    first, *others = [along.given(value) for value in plot.x[at]]
    heads = [plain(figure["panels"] or ""), " · ".join(map(plain, by))]
    bare = {dim: view.labels(dim, bare=True) for dim in (figure["panels"], *by) if dim}
    cells = _places(view, y, [*([figure["panels"]] if labelled[0] else []), *by, x])
    values_of = [float(value) for values in plot.curves for curve in values for value in curve[at]]
    factor, unit = scale.shared(values_of)

    def text_of(value: float) -> str:
        if np.isnan(value):
            return "-"
        return grouped(value / factor) if factor else scale.given(value)

    rows = [[*compress(heads, labelled), f"{plain(x)} {first}", *others]]
    rows[0] += [f"{PLACE} {plain(x)} {others[-1]}"] if cells and others else []
    for panel, values in enumerate(plot.curves):
        name = bare[figure["panels"]][panel] if labelled[0] else ""
        for line, line_values in zip(plot.lines, values, strict=True):
            if not np.isnan(line_values).all():
                texts = [text_of(value) for value in line_values[at].tolist()]
                cell = (*([panel] if labelled[0] else []), *line.indices, -1)
                texts.append(_plan_at(cells, cell))
                entries = (bare[dim][k] for dim, k in zip(by, line.indices, strict=True))
                names = [name, " · ".join(entries)]  # The heading says what they are
                rows.append([*compress(names, labelled), *texts][: len(rows[0])])
    gaps = [note for note in plot.notes if note.startswith(GAPS)]
    title = figure["title"] or title_of(figure, view, table)
    if unit and f"in {unit}" not in title.lower():
        title += f" ({unit})"
    return title, sum(labelled), rows, gaps


_MOST_WINNERS = 3  # that a sentence names


def findings(figure: Figure, view: View) -> Iterator[str]:
    """Yield in sentences which line is best in how many cases, and what the best reach last."""
    x, y = figure["x"], figure["y"]
    view, _ = by_column(view, x, y, more=better_of(figure["better"], view.units(y), y))
    panels = panels_of(figure, view)
    plot = prepare(figure, view, panels)
    if len(plot.lines) < 2:
        return
    cost = np.where(np.isnan(plot.curves), np.inf, -plot.curves if plot.more else plot.curves)
    best = cost.min(axis=1, keepdims=True)
    tied = cost <= best + SAME * np.abs(best)
    compared = np.isfinite(cost).sum(axis=1) > 1
    won: dict[tuple[int, ...], int] = {}
    for panel, point in np.argwhere(compared).tolist():
        names = tuple(np.flatnonzero(tied[panel, :, point]).tolist())
        won[names] = won.get(names, 0) + 1
    total = int(compared.sum())
    if not total:
        return
    adjective = next(
        (word for name, word in BEST_WORDS.items() if y in (name, f"best_{name}")),
        "highest" if plot.more else "lowest",
    )
    order = sorted(won, key=lambda names: -won[names])
    texts = []
    for names in order[:_MOST_WINNERS]:
        everyone = len(names) == len(plot.lines)
        which = "all alike" if everyone else joined([plot.lines[k].label for k in names])
        texts.append(f"{which} in {won[names]:,}")
    left = total - sum(won[names] for names in order[:_MOST_WINNERS])
    texts += [f"others in {left:,}"] if left else []
    if len(won) > 1:
        yield f"{adjective} of the {total:,} cases: {', '.join(texts)}"
    else:
        next_best = np.sort(cost, axis=1)[:, 1][compared]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.abs(best[:, 0][compared] / next_best - 1.0)
        ends = [number(100 * float(end), 2) for end in (part.min(), part.max())]
        much = f", {' to '.join(dict.fromkeys(ends))} % {'more' if plot.more else 'less'}"
        where = f"in each of {total:,} cases" if total > 1 else "in the only case"
        alone = len(order[0]) == 1 and bool((next_best != 0.0).all())
        name = texts[0].rsplit(" in ", 1)[0]
        yield f"{adjective} {where}: {name}" + (f"{much} than the next" if alone else "")
    last = np.where(np.isfinite(best[:, 0, -1]), (-1 if plot.more else 1) * best[:, 0, -1], np.nan)
    if len(panels) < 2 or np.isnan(last).all():
        return
    bare = view.labels(figure["panels"], bare=True)
    cells = _places(view, y, [figure["panels"], *(d for d in figure["lines"] if view.has(d)), x])
    scale = scale_of(str(plot.attrs.get("units", "1")))
    lines = []
    for panel in (int(np.nanargmin(last)), int(np.nanargmax(last))):
        line = plot.lines[int(np.argmin(cost[panel, :, -1]))]
        cell = (panel, *line.indices, -1)
        plan = _plan_at(cells, cell)
        many = int(tied[panel, :, -1].sum()) > 1
        where = bare[panel] if many else f"{bare[panel]}, {line.label}"
        lines.append(f"{scale.given(last[panel])} ({where}{': ' if plan else ''}{plan})")
    at = said(x, scale_of(view.units(x)).given(plot.x[-1]))
    yield f"the best at {at}: from {lines[0]} to {lines[1]}"


def _plan_at(columns: Mapping[str, NDArray[Any]], cell: tuple[int, ...]) -> str:
    """Return what was chosen at a cell, in short; nothing of what is off."""
    return ", ".join(filter(None, (_said(dim, str(c[cell])) for dim, c in columns.items())))


def _said(dim: str, text: str) -> str:
    """Return an entry of a plan in short, as ``tp 8``; nothing of what is off."""
    if dim == "recompute":
        return "" if text == "none" else f"{plain(text)} recompute"
    if (
        dim in PLAN_NAMES
        and dim not in ("tp", "pp", "dp", "micro_batch_size")
        and text in ("0", "1")
    ):
        return f"ZeRO {text}" if dim == "zero_stage" and text == "1" else ""
    return f"{word_of(dim) if dim in PLAN_NAMES else plain(dim)} {text}"


def _places(view: View, y: str, dims: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return where along each reduced dimension a reduction's values were found."""
    names_of = {}
    for name in map(str, view.dataset.data_vars):
        dim, attrs = name.removeprefix(f"{y}_"), view.attrs(name)
        if dim == name or not str(attrs.get("long_name", "")).startswith(f"{dim} at the "):
            continue
        values, scale = view.values(name, dims), scale_of(view.units(name))
        words = str(attrs.get("flag_meanings", "")).split()
        texts = [words[value] if words else scale.given(value) for value in values.ravel().tolist()]
        names_of[dim] = np.array(texts).reshape(values.shape)
    order = {dim: position for position, dim in enumerate(PLAN_NAMES)}
    return {dim: names_of[dim] for dim in sorted(names_of, key=lambda dim: order.get(dim, -1))}


def title_of(figure: Figure, view: View, table: str) -> str:
    """Return the title of a figure of lines; `table` is the dimension of a table's rows."""
    over = [*([table] if table else []), *(dim for dim in figure["best_of"] if view.has(dim))]
    by = [dim for dim in figure["lines"] if view.has(dim)]
    noun = "plan" if any(dim in PLAN_NAMES for dim in over) or table else joined(over)
    end = f", with the best {noun}" if over else ""
    end += ", relatively" if figure["relative_to"] else ""
    return heading(view, figure["y"], [figure["x"], *by], end)


BEST_WORDS = {"time": "fastest", "step_time": "fastest", "overlapped_time": "fastest"}
