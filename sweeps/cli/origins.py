"""What the user didn't give: the values taken, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from overhead.quantity import VOCABULARY
from sweeps.job import Job
from sweeps.spec.units import format_quantity

__all__ = ["assumed_lines", "grouped_lines"]

# An origin longer than this is cut to its kind in a table; the catalogue tells the rest.
LONGEST = 60
# What says how units convert, and a model's shapes that it doesn't have.
CONVERSIONS = ("hour", "day")
ABSENT = "assumed: not stated: none"
DEFAULT = "assumed: the default"


def assumed_lines(job: Job, *, brief: bool = False) -> Iterator[str]:
    """Yield what the user didn't give, with its values and origin."""
    columns = {n: v for axis in job.plan.grid.axes for n, v in axis.columns.items()}
    used = _used(job)
    lines: list[str] = []
    by_machine: dict[str, str] = {}
    for name, origin in job.resolved.origins.items():
        told = _kind(origin) if brief else origin
        if name not in used:
            continue
        if name in job.plan.labels:
            lines.append(f"  {name} = {job.plan.labels[name]}  [{told}]")
        elif name in job.plan.grid.constants:
            shown = format_quantity(job.plan.grid.constants[name], VOCABULARY[name].units)
            lines.append(f"  {name} = {shown}  [{told}]")
        elif name in columns and " | " in origin:
            by_machine[name] = origin
        elif name in columns:
            lines.append(f"  {name} = {_several(name, columns[name])}  [{told}]")
    if not lines and not by_machine:
        return
    machines = " ".join(machine.name for machine in job.resolved.machines)
    hint = f" (sources: sweeps catalog {machines})" if brief and machines else ""
    yield f"not given, so taken as{hint}:"
    yield from _table(job, by_machine) if brief else _listed(job, by_machine)
    yield from lines


def grouped_lines(job: Job, *, brief: bool = False) -> Iterator[str]:
    """Yield what the user didn't give as `assumed_lines` does, gathered by origin: it is much."""
    columns = {n: v for axis in job.plan.grid.axes for n, v in axis.columns.items()}
    used = _used(job)
    groups: dict[str, dict[str, list[str]]] = {}
    for name, origin in job.resolved.origins.items():
        if name not in used or name in CONVERSIONS or (brief and origin == ABSENT):
            continue
        if name in job.plan.labels:
            value = job.plan.labels[name]
        elif name in job.plan.grid.constants:
            value = format_quantity(job.plan.grid.constants[name], VOCABULARY[name].units)
        elif name in columns:
            value = _several(name, columns[name])
        else:
            value = _several(name, job.plan.grid.columns[name].reshape(-1))
        told = _owner(origin) if brief else origin
        groups.setdefault(told, {}).setdefault(value, []).append(name)
    if not groups:
        return
    named = [one.name for one in job.resolved.machines]
    machines = " ".join([*named, *(one.name for one in job.resolved.models)])
    yield "not given, so taken as" + (f" (sources: sweeps catalog {machines}):" if brief else ":")
    for told, values in groups.items():
        yield f"  {told}"
        text = "; ".join(f"{', '.join(names)} = {value}" for value, names in values.items())
        yield from wrap(text, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _owner(origin: str) -> str:
    """Return an origin in short: what stands in the catalogue for each entry, or its kind."""
    if " | " in origin:
        return "of each machine or model"
    return origin if origin == DEFAULT else origin.split(":", 1)[0]


def _kind(origin: str) -> str:
    return origin.split(":", 1)[0] if len(origin) > LONGEST else origin


def _rows(job: Job, name: str, origin: str) -> dict[str, tuple[str, str]]:
    """Return each machine's value and origin."""
    axis = next(axis for axis in job.plan.grid.axes if name in axis.columns)
    told = dict(clause.split(": ", 1) for clause in origin.split(" | "))
    owner = "model" if "model" in axis.columns else "hardware"
    pairs = zip(axis.columns[owner], axis.columns[name], strict=True)
    shown = {str(m): format_quantity(float(v), VOCABULARY[name].units) for m, v in pairs}
    return {entry: (value, told.get(entry, "")) for entry, value in shown.items()}


def _listed(job: Job, by_machine: dict[str, str]) -> Iterator[str]:
    for name, origin in by_machine.items():
        yield f"  {name}"
        for machine, (value, told) in _rows(job, name, origin).items():
            yield f"    {machine} = {value}  [{told}]"


def _table(job: Job, by_machine: dict[str, str]) -> Iterator[str]:
    rows: list[Sequence[str]] = []
    for name, origin in by_machine.items():
        found = _rows(job, name, origin)
        if not rows:
            rows.append(("", *found))
        rows.append((name, *(f"{value} {told.split(':')[0]}" for value, told in found.values())))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield f"  {line.rstrip()}"


def _several(name: str, values: Any) -> str:
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    shown = list(dict.fromkeys(format_quantity(float(v), units) for v in values))
    return ", ".join(shown[:6]) + (", .." if len(shown) > 6 else "")


def _used(job: Job) -> set[str]:
    """Return the names that the graph of the result really takes."""
    return {"hardware", *job.plan.labels, *job.plan.used()}
