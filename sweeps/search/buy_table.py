"""What was tried for one purchase or several, as a table: a row each, or a cell of their axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from overhead.labels import LABELS
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column, Layout, row_numbers
from sweeps.errors import InputError, fault
from sweeps.origin import attributes
from sweeps.search.answer import PLAN, placed, plan_choices
from sweeps.search.buy import Offer, Tried, Wish
from sweeps.search.repair import choice_columns, flag_column, number_column, quantities
from sweeps.search.request import Point


@dataclass(frozen=True)
class Bought:
    """What was found for one model, so many tokens and days."""

    offers: Sequence[Offer]
    wish: Wish
    first: Point  # The question about the first machine
    gpus: tuple[int, ...] = ()  # The numbers that were asked for; none where the fewest were

    def rows(self) -> Iterator[tuple[Offer, Tried]]:
        """Yield all that was tried and can run."""
        yield from (
            (offer, attempt)
            for offer in self.offers
            for attempt in offer.tried
            if attempt.detail is not None
        )


def layout(several: Sequence[Bought], attrs: Mapping[str, str]) -> Layout:
    """Return what was tried: a cell of the axes each where GPUs were asked for, else a row."""
    if not any(row for bought in several for row in bought.rows()):
        wrong = "none can run, so that there is no table"
        allowed = "more days, another machine or a smaller batch"
        raise InputError(fault("plans", "..", wrong, allowed))
    return (_grid if several[0].gpus else _rows)(several, attrs)


def _rows(several: Sequence[Bought], attrs: Mapping[str, str]) -> Layout:
    """Return all that was tried and can run as a table: numbers of GPUs differ among machines."""
    rows = [(bought, offer, attempt) for bought in several for offer, attempt in bought.rows()]
    known = [attempt.detail for *_, attempt in rows if attempt.detail is not None]
    variables = []
    for name in known[0].values:
        values = [detail[name] for detail in known]
        if not np.all(np.isnan(values)):
            variables.append(placed(number_column(name, values)))
    computed = [column.name for column in variables]
    verdicts = [_verdict(offer, attempt, bought.wish) for bought, offer, attempt in rows]
    variables.append(placed(flag_column("verdict", "whether it makes it in time", verdicts)))
    words = {"hardware": [offer.machine for _, offer, _ in rows]}
    asked = {
        "world_size": [float(attempt.gpus) for *_, attempt in rows],
        "global_batch_size": [offer.batch for _, offer, _ in rows],
        "tokens_per_step": [
            offer.batch * bought.first.constants["sequence_length"] for bought, offer, _ in rows
        ],
    }
    if len(several) > 1:
        words["model"] = [bought.first.labels.get("model", "") for bought, *_ in rows]
        asked["training_tokens"] = [bought.wish.tokens for bought, *_ in rows]
    for name, each in words.items():
        variables.append(placed(flag_column(name, LABELS[name].meaning, each)))
    columns = [
        row_numbers(PLAN, len(rows)),
        *(
            placed(replace(coordinate(name, (), np.array(values)), dims=()))
            for name, values in asked.items()
        ),
        *(placed(column) for column in plan_choices([detail.plan for detail in known])),
    ]
    if len(several) > 1:
        columns.append(placed(_days([bought.wish.days for bought, *_ in rows])))
    given = _shared(several)
    for name in (*asked, *words, *computed):
        given.pop(name, None)
    constants = [coordinate(name, (), np.array(value)) for name, value in given.items()]
    return Layout({PLAN: len(rows)}, (*columns, *constants), tuple(variables), attrs)


# The axes of purchases: what is asked of each, and what is tried for it.
DAYS = "days_allowed"
AXES = (
    "model",
    "hardware",
    "training_tokens",
    DAYS,
    "gpu_hour_price",
    "global_batch_size",
    "world_size",
)

Key = tuple[str | float, ...]


def _cells(several: Sequence[Bought]) -> dict[Key, tuple[Bought, Offer, Tried]]:
    """Return what was tried by its place on the axes, whether it can run or not."""
    cells: dict[Key, tuple[Bought, Offer, Tried]] = {}
    for bought in several:
        given, wish = bought.first.constants, bought.wish
        model, price = bought.first.labels.get("model", ""), given.get("gpu_hour_price", 0.0)
        for offer in bought.offers:
            for attempt in offer.tried:
                asked = (model, offer.machine, wish.tokens, wish.days, price)
                cells[(*asked, offer.batch, float(attempt.gpus))] = bought, offer, attempt
    return cells


def axes_of(several: Sequence[Bought]) -> dict[str, list[str | float]]:
    """Return the values of axes that have several, and the numbers of GPUs."""
    axes: dict[str, list[str | float]] = {}
    for name, column in zip(AXES, zip(*_cells(several), strict=True), strict=True):
        values = dict.fromkeys(column)
        if len(values) > 1 or name == AXES[-1]:
            words = name in LABELS
            axes[name] = [*values] if words else sorted(values, key=float)
    return axes


def _grid(several: Sequence[Bought], attrs: Mapping[str, str]) -> Layout:
    """Return the best plan of each number of GPUs on the axes of what was asked."""
    axes, cells = axes_of(several), _cells(several)
    whole = [axes.get(name, [next(iter(cells))[at]]) for at, name in enumerate(AXES)]
    rows = [cells.get(key) for key in itertools.product(*whole)]
    known = [None if row is None else row[2].detail for row in rows]
    verdicts = [
        _verdict(row[1], row[2], row[0].wish) if row and row[2].detail else None for row in rows
    ]
    columns = [
        *(column for column in quantities(known) if column.name not in axes),
        *choice_columns([None if detail is None else detail.plan for detail in known]),
        flag_column("verdict", "whether it makes it in time", verdicts),
    ]
    shape = tuple(map(len, axes.values()))
    variables = tuple(
        replace(column, dims=tuple(axes), values=np.reshape(column.values, shape))
        for column in columns
        if column.values is not None
    )
    coordinates = [
        replace(_days(values), dims=(name,))
        if name == DAYS
        else coordinate(name, (name,), np.array(values))
        for name, values in axes.items()
    ]
    given = {**_shared(several), DAYS: several[0].wish.days}
    named = {*axes, *(column.name for column in variables)}
    for name, value in given.items():
        if name not in named:
            constant = _days(value) if name == DAYS else coordinate(name, (), np.array(value))
            coordinates.append(constant)
    sizes = {name: len(values) for name, values in axes.items()}
    return Layout(sizes, tuple(coordinates), variables, attrs)


def _days(allowed: object) -> Column:
    """Return the days in which trainings have to be done."""
    values = np.array(allowed, dtype=np.float64)
    about = {"long_name": "days in which the training has to be done", "units": "d"}
    return Column(DAYS, (), values.dtype, {**about, **attributes()}, values)


def _shared(several: Sequence[Bought]) -> dict[str, Any]:
    """Return what is given alike to all."""
    each: list[dict[str, Any]] = [
        {**bought.first.constants, **bought.first.labels, "training_tokens": bought.wish.tokens}
        for bought in several
    ]
    return {
        name: value
        for name, value in each[0].items()
        if all(name in other and other[name] == value for other in each)
    }


def _verdict(offer: Offer, attempt: Tried, wish: Wish) -> str:
    """Return what a number of GPUs is, among those of its machine and batch."""
    if not attempt.in_time(wish):
        return "too_slow"
    if attempt is offer.least:
        return "least"
    return "best" if attempt is offer.best(wish) else "in_time"


def figure_of(several: Sequence[Bought], answer: Tried | None = None) -> dict[str, Any]:
    """Return the figure of what was tried, with the answer and the days, if these are one."""
    offers = [offer for bought in several for offer in bought.offers]
    grid = several[0].gpus
    priced = any(not np.isnan(attempt.cost) for offer in offers for attempt in offer.tried)
    figure: dict[str, Any] = {
        "title": "Days of the training over what it costs, by machine",
        "kind": "best_plans",
        "name": "days-over-dollars" if priced else "days-over-gpu-hours",
        "plans": [*axes_of(several)] if grid else [PLAN],
        "x": "run_cost" if priced else "run_gpu_hours",
        "y": "run_days",
        "by": "hardware",
        "better": "less",
    }
    if len(several) == 1:
        figure["deadline"] = several[0].wish.days
    rows = [
        attempt for offer in offers for attempt in offer.tried if grid or attempt.detail is not None
    ]
    row = next((index for index, attempt in enumerate(rows, 1) if attempt is answer), None)
    return figure if row is None else {**figure, "answer": row}
