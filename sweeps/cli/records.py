"""A result's cells as a table for people, and values as people write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps import display
from sweeps.engine.validity import ONE_RANK
from sweeps.result import FIELDS, Result, aligned
from sweeps.spec.units import format_quantity

PLAN = display.rows("plan", place="table")
STATES = "first_stage_model_state_memory"


def _wanted(result: Result, *, training: bool) -> list[str]:
    """Return the variables that a table shows."""
    values = {column.name: np.asarray(column.values) for column in result.layout.variables}
    if not training:
        shown = display.rows("collective", place="table")
        wanted = [name for name in shown if name in values]
        return wanted + [name for name in values if name not in (*FIELDS, *wanted)]
    memory = "peak_memory" if "peak_memory" in values else STATES
    times = [name for name in values if name.endswith("_communication_time")]
    # Of what some plans have alone, what none here has is left out.
    perhaps = {*times, "bubble_fraction"}
    more = display.rows("communication", "step", "rates", "cost", place="table")
    usual = (*PLAN, memory, *times, *more)
    return [
        name
        for name in usual
        if name in values and (name not in perhaps or np.any(values[name] > 0.0))
    ] or list(values)


def as_table(result: Result, *, training: bool, most: int = 40) -> Iterator[str]:
    """Yield the cells as a table with aligned columns, cut after some rows."""
    rows = []
    wanted = _wanted(result, training=training)
    variables = {column.name for column in result.layout.variables}
    for record in result.values(most):
        row = {
            name: shown(name, value)
            for name, value in record.items()
            if name not in variables or name in wanted
        }
        why = set(str(record.get("status", "ok")).split()) - {"ok", ONE_RANK}
        if why:
            row["why"] = " ".join(sorted(why))
        rows.append(row)
    header = list(dict.fromkeys(name for row in rows for name in row))
    titles = [display.title(name) if name in variables else name for name in header]
    table = [titles, *([row.get(name, "") for name in header] for row in rows)]
    yield from (line + "\n" for line in aligned(table, left=len(header), indent=""))
    if result.cells > most:
        yield f"... and {result.cells - most:,} more: --csv, --json or --output give them all\n"


def shown(name: str, value: Any) -> str:
    """Return a value as people write it."""
    if isinstance(value, str):
        return value
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    value = float(value)
    if np.isfinite(value):
        if display.percent(name):
            return f"{value:.1%}"
        if units in ("s-1", "h", "d"):
            words = {"s-1": "/s", "h": "h", "d": "days"}[units]
            return f"{value:,.0f} {words}" if abs(value) >= 1000 else f"{value:.4g} {words}"
        if units == "USD":
            return f"{value:,.2f} USD" if abs(value) < 1000 else f"{value:,.0f} USD"
    return format_quantity(value, units)
