"""Tables of plans for people, and records of them for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.cli.records import ENDINGS, FIELDS, shown
from sweeps.engine.layout import Column, Layout
from sweeps.plans.detail import Detail

__all__ = ["MARK", "aligned", "plan_rows", "range_rows", "records"]

MARK = "*"
RECOMPUTED = {"none": "-"}
SCHEDULED = {"one_f_one_b": "1F1B", "interleaved": "interl."}


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1, indent: str = "  ") -> Iterator[str]:
    """Yield rows as lines with aligned columns: the first ones to the left, others to the right."""
    if not rows:
        return
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = (
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield (indent + "  ".join(cells)).rstrip()


def plan_rows(plans: Sequence[Detail], first: float = 0.0) -> list[list[str]]:
    """Return plans as rows of a table, with a header."""
    base = first or (plans[0]["step_time"] if plans else 1.0)
    columns: list[tuple[str, list[str], bool]] = [
        (name, [_degree(plan, name) for plan in plans], shown_always)
        for name, shown_always in (
            ("tp", True), ("cp", False), ("pp", True), ("dp", True), ("ep", False), ("etp", False),
        )
    ]  # fmt: skip
    columns += [
        ("chunks", [f"{plan.plan['virtual_stages']:g}" for plan in plans], False),
        ("schedule", [_schedule(plan) for plan in plans], False),
        ("mb", [f"{plan.plan['micro_batch']:g}" for plan in plans], True),
        ("ZeRO", [f"{plan.plan['zero_stage']:g}" for plan in plans], True),
        ("sp", ["on" if plan.plan["sequence_parallel"] else "-" for plan in plans], False),
        ("recompute", [_recompute(plan) for plan in plans], False),
        *((name, [f"{plan.plan.given[name]:g}" for plan in plans], False)
          for name in ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap")
          if all(name in plan.plan.given for plan in plans)
          and len({plan.plan.given[name] for plan in plans}) > 1),
        ("step time", [shown("step_time", plan["step_time"]) for plan in plans], True),
        ("", [_by(plan["step_time"], base) for plan in plans], True),
        ("memory", [f"{plan['peak_memory'] / 1e9:.1f} GB" for plan in plans], True),
        ("MFU", [shown("mfu", plan["mfu"]) for plan in plans], True),
        ("tokens/s a GPU", [f"{plan['tokens_per_second_per_gpu']:,.0f}" for plan in plans], True),
    ]  # fmt: skip
    idle = ({"1"}, {"-"}, {"1", "-"})
    routed = any(plan.plan.routed for plan in plans)
    kept = [(title, texts) for title, texts, always in columns
            if (always or set(texts) not in idle) and (title != "etp" or routed)]  # fmt: skip
    return [[title for title, _ in kept],
            *([texts[place] for _, texts in kept] for place in range(len(plans)))]  # fmt: skip


def _by(time: float, base: float) -> str:
    return "" if time == base else f"{time / base - 1.0:+.1%}"


def _degree(plan: Detail, name: str) -> str:
    value = plan.plan[name]
    node = plan.plan.given.get("gpus_per_node", np.inf)
    crossing = name == "tp" and plan.plan.labels["topology"] == "hierarchical" and value > node
    return f"{value:g}{MARK if crossing else ''}"


def _schedule(plan: Detail) -> str:
    if plan.plan["pp"] == 1.0:
        return "-"
    schedule = plan.plan.labels["schedule"]
    return SCHEDULED.get(schedule, schedule)


def _recompute(plan: Detail) -> str:
    label = plan.plan.labels["recompute"]
    return RECOMPUTED.get(label, label)


# Tables of the store's form: of one point a row a plan, of many a cell a point.


def records(layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield a record for each cell of a table: coordinates, then values, for programs."""
    dims = tuple(layout.sizes)
    shape = tuple(layout.sizes.values())
    for index in np.ndindex(*shape):
        record: dict[str, Any] = {}
        for column in (*layout.coordinates, *layout.variables):
            record[_field(column)] = _value(column, dims, index)
        yield record


def _field(column: Column) -> str:
    name = column.name
    if name in FIELDS or name not in VOCABULARY:
        return FIELDS.get(name, name)
    ending = ENDINGS.get(VOCABULARY[name].units, "")
    return name if name.endswith(ending) else name + ending


def _value(column: Column, dims: Sequence[str], index: Sequence[int]) -> Any:
    assert column.values is not None
    places = tuple(index[dims.index(dim)] for dim in column.dims)
    value = column.values[places]
    if column.dtype.kind in "UO":
        return str(value)
    meanings = str(column.attrs.get("flag_meanings", "")).split()
    if meanings:
        return meanings[int(value)]
    return int(value) if column.dtype.kind in "iu" else float(value)


def range_rows(layout: Layout, names: Mapping[str, str]) -> list[list[str]]:
    """Return a table of many points for people: what varies, then some of the plan."""
    dims = tuple(layout.sizes)
    coordinates = [column for column in layout.coordinates if column.dims
                   and (column.name not in dims or "row of the table" not in
                        str(column.attrs.get("long_name", "")))]  # fmt: skip
    variables = {column.name: column for column in layout.variables}
    wanted = [variables[name] for name in names if name in variables]
    titles = [column.name.replace("_", " ") for column in coordinates]
    rows = [[*titles, *(names[column.name] for column in wanted)]]
    for index in np.ndindex(*layout.sizes.values()):
        cells = [_value(column, dims, index) for column in (*coordinates, *wanted)]
        columns = (*coordinates, *wanted)
        rows.append([_text(column, cell) for column, cell in zip(columns, cells, strict=True)])
    return rows


def _text(column: Column, value: Any) -> str:
    if column.name == "peak_memory" and np.isfinite(value):
        return f"{value / 1e9:.1f} GB"
    if column.name == "best_split":
        return str(value).replace("_", ", ").replace("none", "none can run")
    return shown(column.name, value)
