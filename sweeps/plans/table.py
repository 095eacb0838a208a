"""The plans of one point that are worth keeping, as a table: for files, figures and programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.engine.layout import Column, Layout
from sweeps.plans.answer import Answer
from sweeps.plans.detail import COMMUNICATION, PARTS, PEAK_PARTS, details
from sweeps.plans.execution import Execution
from sweeps.plans.ranges import (
    MEASURES,
    choice_columns,
    flag_column,
    given_column,
    number_column,
)

__all__ = ["PLAN", "kept_plans", "table_layout"]

PLAN = "plan"


def kept_plans(answer: Answer, count: int) -> list[Execution]:
    """Return the best plan of each of some splits, then what else is on the Pareto front."""
    kept: dict[tuple[object, ...], Execution] = {}
    for plan in (*answer.found.splits[:count], *answer.found.front):
        kept.setdefault(plan.key, plan)
    return list(kept.values())


def table_layout(answer: Answer, count: int, attrs: Mapping[str, str]) -> Layout:
    """Return the plans of one point as a table: a row a plan."""
    plans = kept_plans(answer, count)
    rows = details(plans, (*MEASURES, *PARTS, *PEAK_PARTS, *COMMUNICATION))
    variables = []
    for name in rows[0].values:
        values = [row[name] for row in rows]
        if not np.all(np.isnan(values)):
            variables.append(_placed(number_column(name, values)))
    front = {plan.key for plan in answer.found.front}
    first = answer.found.recommended.key
    why = {**dict.fromkeys(front, "on_the_front"), first: "recommended"}
    told = [why.get(plan.key, "best_of_its_split") for plan in plans]
    variables.append(_placed(flag_column("place", "why the plan is here", told)))
    index = np.arange(len(plans), dtype=np.int32)
    about = {"long_name": "plan (a row of the table)", "units": "1"}
    coordinates = [Column(PLAN, (PLAN,), index.dtype, about, index)]
    coordinates += [_placed(column) for column in _choices(plans)]
    return Layout({PLAN: len(plans)}, (*coordinates, *_given(answer)), tuple(variables), attrs)


def _placed(column: Column) -> Column:
    return Column(column.name, (PLAN,), column.dtype, column.attrs, column.values)


def _choices(plans: list[Execution]) -> list[Column]:
    """Return what plans choose: numbers, and labels as text."""
    columns = []
    for column in choice_columns(plans):
        if column.dtype.kind == "f":
            columns.append(Column(column.name, (), column.dtype,
                                  {**column.attrs, "origin": "given"}, column.values))  # fmt: skip
            continue
        text = np.array([plan.labels[column.name] for plan in plans], dtype=np.str_)
        about: dict[str, Any] = {"long_name": column.attrs["long_name"], "origin": "given"}
        columns.append(Column(column.name, (), text.dtype, about, text))
    return columns


def _given(answer: Answer) -> list[Column]:
    """Return what all plans have in common, as far as readers need it."""
    point, resolved = answer.point, answer.found.space.resolved
    given: dict[str, Any] = {**point.constants, **point.labels}
    columns = [given_column(name, (), np.array(value)) for name, value in given.items()]
    capacity = resolved.constants.get("memory_capacity", np.nan)
    if "memory_capacity" not in given and np.isfinite(capacity):
        origin = resolved.origins.get("memory_capacity", "given")
        attrs = {**VOCABULARY["memory_capacity"].attrs(), "origin": origin}
        columns.append(
            Column("memory_capacity", (), np.dtype(np.float64), attrs, np.array(capacity))
        )
    return columns
