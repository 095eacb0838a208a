"""Bars of a sweep: parts of a step's memory, time and communication, and any variables stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweeps import display
from sweeps.plots.chosen import Bars, are_plans, select
from sweeps.plots.data import View
from sweeps.plots.declare import with_options
from sweeps.plots.names import cell_names
from sweeps.plots.schema import (
    BREAKDOWNS,
    STEP_TOTAL,
    Figure,
    known_parts,
    labelled,
    stacked,
    total_of,
)
from sweeps.plots.stacks import TOGETHER, Stacks, draw_stacks
from sweeps.plots.style import canonical, number, plain, scale_of, sentence
from sweeps.plots.words import heading, joined, panels_of, sheet_of, short_name, status_bits

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


_ADDED_UP = 1e-6  # relative difference from which parts aren't all of their total
_REASON_LETTERS = 40
_REST = 15  # the colour of what no part is
_MOST_PARTS = 7  # that one tells apart at a glance; the least are put together
# Of a step what is no work of its own, by how names begin
_WAITING = ("exposed_", "bubble_", "stage_imbalance_", "tied_")
_WAITS, _WORKS = "other communication and waiting", "other computation and overhead"
_TITLES = {
    "memory": "{memory} per GPU by part",
    "step_parts": "Step time by part",
    "time": "Communication time, before overlap",
    "volume": "Bytes sent per GPU and step",
    "energy": "Communication energy per step",
}
_QUANTITIES = {"s": "time", "byte": "bytes", "J": "energy", "W": "power"}


def draw_bars(figure: Figure, view: View) -> Canvas:
    """Draw a figure of kind ``bars``, ``memory``, ``step_parts`` or ``communication``."""
    panels = panels_of(figure, view)
    bars = select(figure, view, [figure["panels"]] if len(panels) > 1 else [])
    if figure.kind == "bars" and len(bars.dims) > 1:
        # Two dimensions are a product with holes: what has no value in any panel isn't a bar.
        every = [np.isfinite(bars.values(view, part)).any(axis=0) for part in figure["parts"]]
        bars = replace(bars, cells=bars.cells[np.any(every, axis=0)])
    stacks, notes = _stacks(figure, view, panels, bars)
    title = _title(figure, view, bars, stacks.quantity)
    if bars.said:
        figure = with_options(figure, title=f"{figure['title'] or title} ({bars.said})")
    return draw_stacks(stacks, sheet_of(figure, view, title, notes, panels))


def _title(figure: Figure, view: View, bars: Bars, quantity: str) -> str:
    along = ["plan"] if are_plans(view, bars.dims) else bars.dims
    along = [] if bars.said else along[: len(bars.dims)]
    if figure.kind != "communication" and len(figure["parts"]) == 1:
        return heading(view, figure["parts"][0], along)
    if figure.kind == "bars" and quantity == "time":
        return heading(view, "time", along)
    memory = "Peak memory" if figure["parts"][0].startswith("peak_") else "Memory"
    of = figure["of"] if figure.kind == "communication" else figure.kind
    title = _TITLES.get(of, f"{quantity} by part").format(memory=memory)
    by = joined([display.axis(dim) or dim for dim in along])
    return f"{title}, by {by}" if along else title


def _unit(figure: Figure, view: View, names: Sequence[str]) -> str:
    """Return the unit of variables that are stacked."""
    units = {view.units(name) for name in names}
    if len(units) > 1:
        text = ", ".join(f"{name} ({view.units(name)})" for name in names)
        figure.refuse("parts", "different units can't be stacked", "parts of one unit", text)
    return units.pop()


def _stacks(figure: Figure, view: View, panels: list[str], bars: Bars) -> tuple[Stacks, list[str]]:
    """Return what is drawn, and what to note of it."""
    units = _unit(figure, view, figure["parts"])
    there = {*map(str, view.dataset.variables)}
    measure = figure.options.get("of") or "time"
    known = known_parts(figure.kind, there, measure) if figure.kind in BREAKDOWNS else ()
    chosen = tuple(figure["parts"]) != known
    parts = stacked(figure.kind, figure["parts"], chosen=chosen)
    every = {name: bars.values(view, name) for part in parts for name in part.variables}
    values = np.stack(
        [np.sum([every[name] for name in part.variables], axis=0) for part in parts], axis=1
    )
    colours = [part.colour for part in parts]
    labels = labelled(parts, {name: view.attrs(name) for name in every})
    quantity = "memory" if figure.kind == "memory" else measure
    if figure.kind == "bars":
        labels = [short_name(view, name) for name in every]
        first, *others = {label.split()[0].lower() for label in labels}
        quantity = first if not others else _QUANTITIES.get(units, "total")
        quantity = quantity if len(labels) > 1 else labels[0]
        if all(map(display.percent, every)):
            values, units = 100.0 * values, "%"
    rest = _rest(figure, view, bars, values.sum(axis=1), units)
    notes = [*bars.notes, *_notes(figure, view, rest, chosen=chosen)]
    if len(parts) > 1 and not chosen and np.any(rest > 0):
        values = np.concatenate([values, rest[:, None]], axis=1)
        labels, colours = [*labels, "the rest"], [*colours, _REST]
    values, below = folded(values)
    if below and len(labels) > 1:
        taken = ", ".join(labels[part].split(": ")[-1] for part in below)
        notes.append(f"Below zero, so taken off the part beside it: {taken}.")
    if not chosen:
        names = [part.variables[0] for part in parts] + [""] * (len(labels) - len(parts))
        values, labels, colours = _few(values, labels, colours, names)
    kept = [part for part in range(len(labels)) if np.any(np.nan_to_num(values[:, part]))]
    kept = kept or [0]
    limits, limit = _limits(figure, view, bars, units)
    missing = ~np.isfinite(values.sum(axis=1))
    halted = _halted(figure, view, bars)
    stacks = Stacks(
        panels,
        cell_names(view.dataset, bars.dims, bars.places(view)),
        [sentence(labels[part]) for part in kept],
        # Parts that are nothing anywhere are left out; those without a value aren't.
        np.where(missing[:, None], np.nan, values[:, kept]),
        units,
        quantity=quantity,
        colours=tuple(colours[part] for part in kept),
        capacity=limits,
        limit=limit,
        bar_notes=_bar_notes(figure, view, bars, halted),
        missing=_reasons(view, bars, missing),
        alarm=halted & ~missing,
    )
    return stacks, notes


def _few(
    values: NDArray[np.float64], labels: list[str], colours: list[int], names: Sequence[str]
) -> tuple[NDArray[np.float64], list[str], list[int]]:
    """Put the parts that are least, wherever they are most, together: what waits, what works.

    As many have names of their own as make what is put together no larger than any of them.
    """
    whole = values.sum(axis=1, keepdims=True)
    shares = np.nan_to_num(values / whole).max(axis=(0, 2))
    there = [part for part in range(len(labels)) if shares[part] > 0.0]
    if len(there) <= _MOST_PARTS:
        return values, labels, colours
    order = sorted(there, key=lambda part: -shares[part])
    for named in range(_MOST_PARTS - 2, len(order) + 1):
        rest = [
            [part for part in order[named:] if names[part].startswith(_WAITING) == waits]
            for waits in (True, False)
        ]
        together = np.stack([values[:, parts].sum(axis=1) for parts in rest], axis=1)
        if np.nan_to_num(together / whole).max() <= shares[order[named - 1]]:
            break
    groups = [([part], labels[part]) for part in sorted(order[:named])]
    for members, word in zip(rest, (_WAITS, _WORKS), strict=True):
        if members:
            groups.append((members, word if len(members) > 1 else labels[members[0]]))
    return (
        np.stack([values[:, parts].sum(axis=1) for parts, _ in groups], axis=1),
        [label for _, label in groups],
        [
            colours[parts[0]] if len(parts) == 1 else TOGETHER[parts is rest[0]]
            for parts, _ in groups
        ],
    )


def folded(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """Return parts of which those below zero are taken off the next, and which these are."""
    values = values.copy()
    last = values.shape[1] - 1
    below = [part for part in range(last + 1) if np.nanmin(values[:, part], initial=0.0) < 0]
    for part, neighbour in [
        *((k, k + 1) for k in range(last)),
        *((k, k - 1) for k in range(last, 0, -1)),
    ]:
        under = np.minimum(np.nan_to_num(values[:, part]), 0.0)
        values[:, part] -= under
        values[:, neighbour] += under
    return values, below


def _rest(
    figure: Figure, view: View, bars: Bars, sums: NDArray[np.float64], units: str
) -> NDArray[np.float64]:
    """Return what the parts leave of their total: nothing where that isn't in the file."""
    name = total_of(figure.kind, figure["parts"], figure.options.get("of") or "time")
    nothing = np.zeros_like(sums)
    if figure.kind == "bars" or name not in view.dataset or view.units(name) != units:
        return nothing
    if not {str(dim) for dim in view.dataset[name].dims} <= {*bars.panel_dims, *bars.dims}:
        return nothing
    totals = bars.values(view, name)
    rest = totals - sums
    rest = np.where(np.abs(rest) <= _ADDED_UP * np.abs(totals), 0.0, rest)
    # A plan that doesn't run has parts and no total: they are all there is if others' are.
    complete = not np.any(np.nan_to_num(rest))
    return np.where(np.isnan(totals) & np.isfinite(sums) & complete, 0.0, rest)


def _limits(
    figure: Figure, view: View, bars: Bars, units: str
) -> tuple[NDArray[np.float64] | None, str]:
    """Return the bars' capacity, if it is shown, and what it is called."""
    capacity = figure.options.get("capacity")
    if capacity is None:
        return None, ""
    if view.units(capacity) != units:
        limit_units, units = canonical(view.units(capacity)), canonical(units)
        wrong = f"in {limit_units}, the parts in {units}"
        figure.refuse("capacity", wrong, f"a limit in {units}")
    return bars.values(view, capacity), sentence(short_name(view, capacity))


def _notes(figure: Figure, view: View, rest: NDArray[np.float64], *, chosen: bool) -> list[str]:
    """Say what the bars' ends show, and where parts aren't all of the whole."""
    notes = []
    above = figure.options.get("above")
    if above is not None:
        title, name = display.title(above), short_name(view, above)
        said = name if name.startswith(title) else f"{title}, {name}"
        notes.append(f"Next to each total: {said}.")
    if np.any(rest < 0) or (chosen and np.any(rest > 0)):
        whole = total_of(figure.kind, figure["parts"], figure.options.get("of") or "time")
        notes.append(f"The parts shown don't add up to the {plain(whole)}.")
    return notes


def _halted(figure: Figure, view: View, bars: Bars) -> NDArray[np.bool_]:
    """Return which bars are of plans that don't run, such as those that don't fit.

    A memory says so itself, by its capacity.
    """
    known = {*bars.panel_dims, *bars.dims}
    total = view.dataset.get(STEP_TOTAL)
    own = figure.kind in ("memory", "bars")
    if own or total is None or not {str(dim) for dim in total.dims} <= known:
        return np.zeros(bars.values(view, figure["parts"][0]).shape, dtype=np.bool_)
    return ~np.isfinite(bars.values(view, STEP_TOTAL))


def _bar_notes(
    figure: Figure, view: View, bars: Bars, halted: NDArray[np.bool_]
) -> tuple[tuple[str, ...], ...]:
    """Return what stands after each bar's total: shares in percent, or what is wrong."""
    above = figure.options.get("above")
    if above is None and not halted.any():
        return ()
    why = _reasons(view, bars, halted) or (("",) * len(bars.cells),) * len(halted)
    if above is None:
        return why
    values = bars.values(view, above)
    units = view.units(above)
    name = display.title(above)
    share = display.percent(above)

    def text(value: float) -> str:
        if not np.isfinite(value):
            return ""
        return f"{name} {number(100 * value)} %" if share else scale_of(units).text(value)

    return tuple(
        tuple(note or text(value) for note, value in zip(notes, row, strict=True))
        for notes, row in zip(why, values.tolist(), strict=True)
    )


def _reasons(view: View, bars: Bars, concerned: NDArray[np.bool_]) -> tuple[tuple[str, ...], ...]:
    """Return why bars aren't, or can't be, by the dataset's status."""
    if not concerned.any():
        return ()
    bits, meanings = status_bits(view, [*bars.panel_dims, *bars.dims])
    sizes = tuple(view.dataset.sizes[dim] for dim in (*bars.panel_dims, *bars.dims))
    flat = np.broadcast_to(bits, sizes).reshape(len(concerned), -1)[:, bars.cells]

    def text(bit: int) -> str:
        reasons = [meaning for index, meaning in enumerate(meanings) if bit >> index & 1]
        return reasons[0][:_REASON_LETTERS] if reasons else ""

    return tuple(tuple(text(bit) for bit in row) for row in np.where(concerned, flat, 0).tolist())
