"""The report of one cell for a person: values, and what they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from overhead.collectives import Algorithm
from overhead.expression import evaluate, names
from overhead.quantity import VOCABULARY
from sweeps.cli.records import Cells, reasons
from sweeps.engine.evaluate import Evaluator
from sweeps.engine.validity import ONE_RANK, fault_texts
from sweeps.errors import InputError, fault
from sweeps.job import Job
from sweeps.spec.units import format_quantity

__all__ = ["assumed_lines", "report", "statements"]

LINES = (
    ("time", "time"),
    ("latency_time", "  latency part"),
    ("bandwidth_time", "  bandwidth part"),
    ("intra_time", "  inside nodes"),
    ("inter_time", "  between nodes"),
    ("pod_time", "  between pods"),
    ("steps", "steps"),
    ("sent_bytes", "most bytes a rank sends"),
    ("link_bytes", "bytes over all links"),
    ("energy", "energy"),
    ("algbw", "algbw"),
    ("busbw", "busbw"),
    ("lower_bound", "lower bound"),
    ("lower_bound_ratio", "time / lower bound"),
)


def report(job: Job, cells: Cells, verbose: bool) -> Iterator[str]:
    """Yield the report's lines.

    Raises
    ------
    InputError
        If the cell can't be: with the reason.
    """
    (record,) = cells.records()
    status = int(np.asarray(cells.arrays["status"]).reshape(-1)[0])
    _refuse(job, status)
    constants, labels = job.plan.grid.constants, job.plan.labels
    for axis in job.plan.grid.axes:
        for name, values in axis.columns.items():
            if values.dtype.kind in "UO":
                labels = {**labels, name: str(values[0])}
            else:
                constants = {**constants, name: float(values[0])}
    ranks = format_quantity(constants["ranks"], "1") if "ranks" in constants else ""
    message = format_quantity(constants["message_bytes"], "byte")
    used = record["chosen_algorithm"]
    where = f"{labels['topology']} network of {ranks or _sizes(constants)} ranks"
    yield f"{labels['collective']} of {message} on a {where}, algorithm {used}"
    for name, words in LINES:
        if name in record:
            shown = format_quantity(record[name], VOCABULARY[name].units)
            yield f"  {words:<26}{shown}"
    if status:
        yield f"  ({fault_texts()[ONE_RANK]})"
    if verbose:
        yield from _terms(job, record)
    yield from assumed_lines(job)


def _sizes(constants: Mapping[str, float]) -> str:
    sizes = [f"{constants[f'mesh_n{x}']:g}" for x in "xyz" if f"mesh_n{x}" in constants]
    return " x ".join(sizes)


def _refuse(job: Job, status: int) -> None:
    texts = fault_texts()
    found = [name for name in reasons(status).split() if name != ONE_RANK]
    if not found:
        return
    labels = {**job.plan.labels}
    if found == ["algorithm_not_defined_on_topology"]:
        from overhead.collectives import ALGORITHMS

        known = [a.name for a in ALGORITHMS.of(labels["topology"], labels["collective"])]
        wrong = f"no algorithm of {labels['collective']} on {labels['topology']}"
        raise InputError(fault("algorithm", labels["algorithm"], wrong, ", ".join(known)))
    constants = job.plan.grid.constants
    lines = []
    for name in found:
        given = {n: f"{constants[n]:g}" for n in _about(name) if n in constants}
        shown = ", ".join(given.values()) or labels["algorithm"]
        lines.append(fault(", ".join(given) or "algorithm", shown, name, texts[name]))
    raise InputError(lines)


def _about(name: str) -> tuple[str, ...]:
    if name.startswith(("mesh", "dimensions", "not_")):
        return ("ranks", "mesh_nx", "mesh_ny", "mesh_nz")
    if "gpus_per_node" in name:
        return ("ranks", "gpus_per_node")
    if "nodes_per_pod" in name:
        return ("ranks", "gpus_per_node", "nodes_per_pod")
    return ("ranks",) if name.startswith("ranks") else ()


def assumed_lines(job: Job) -> Iterator[str]:
    """Yield what the user didn't give, with its values and origin."""
    origins = job.resolved.origins
    columns = {n: v for axis in job.plan.grid.axes for n, v in axis.columns.items()}
    used = _used(job)
    lines = []
    for name, origin in origins.items():
        if name not in used:
            continue
        if name in job.plan.labels:
            lines.append(f"  {name} = {job.plan.labels[name]}  [{origin}]")
        elif name in job.plan.grid.constants:
            shown = format_quantity(job.plan.grid.constants[name], VOCABULARY[name].units)
            lines.append(f"  {name} = {shown}  [{origin}]")
        elif name in columns and " | " in origin:
            lines.append(f"  {name}")
            lines += _by_machine(job, name, columns[name], origin)
        elif name in columns:
            lines.append(f"  {name} = {_several(name, columns[name])}  [{origin}]")
    if lines:
        yield "not given, so taken as:"
        yield from lines


def _by_machine(job: Job, name: str, values: Any, origin: str) -> Iterator[str]:
    axis = next(axis for axis in job.plan.grid.axes if name in axis.columns)
    told = dict(clause.split(": ", 1) for clause in origin.split(" | "))
    seen = set()
    for machine, value in zip(axis.columns["hardware"], values, strict=True):
        if str(machine) not in seen:
            seen.add(str(machine))
            shown = format_quantity(float(value), VOCABULARY[name].units)
            yield f"    {machine} = {shown}  [{told[str(machine)]}]"


def _several(name: str, values: Any) -> str:
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    shown = list(dict.fromkeys(format_quantity(float(v), units) for v in values))
    return ", ".join(shown[:6]) + (", .." if len(shown) > 6 else "")


def _used(job: Job) -> set[str]:
    """Return the names that the graph of the result really takes."""
    used = {"hardware", *job.plan.labels}
    seen: set[int] = set()
    stack = [node for case in job.plan.cases for node in (*case.nodes.values(), case.status)]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.given is not None:
            used.add(node.name)
        stack += node.inputs
    return used


def statements(job: Job) -> Iterator[str]:
    """Yield the statement and source of every algorithm that takes part."""
    for algorithm in job.plan.algorithms():
        yield ".".join(algorithm.key)
        yield f"  {algorithm.title}"
        yield f"  {algorithm.statement}"
        yield f"  source  {algorithm.reference}"


def _terms(job: Job, record: Mapping[str, Any]) -> Iterator[str]:
    (case,) = job.plan.cases
    algorithm = next(a for a in case.algorithms if a.name == record["chosen_algorithm"])
    values = _values(job, algorithm)
    yield ""
    yield f"{'.'.join(algorithm.key)}: {algorithm.title}"
    for name, expression in algorithm.statements.items():
        result = _evaluated(expression, values)
        units = VOCABULARY[name].units
        yield f"  {name} = {expression}"
        yield f"    = {_put_in(expression, values)}"
        yield f"    = {format_quantity(result, units)}"
    yield "  where"
    for name in dict.fromkeys(n for text in algorithm.statements.values() for n in names(text)):
        quantity = VOCABULARY[name]
        shown = format_quantity(values[name], quantity.units)
        yield f"    {name} = {shown}  ({quantity.meaning})"
    for phrase in algorithm.assumes:
        yield f"  assumes {phrase}"
    yield f"  source  {algorithm.reference}"
    yield ""


def _values(job: Job, algorithm: Algorithm) -> dict[str, float]:
    """Return what stands for each name in an algorithm's statements."""
    (case,) = job.plan.cases
    evaluator = Evaluator(job.plan.grid, dict(case.fixed))
    builder = job.plan.builder(case)
    wanted = dict.fromkeys(n for text in algorithm.statements.values() for n in names(text))
    nodes = {
        name: builder.input(name, algorithm) for name in wanted
    }
    with np.errstate(all="ignore"):
        return {
            name: float(np.asarray(evaluator.value(node)).reshape(-1)[0])
            for name, node in nodes.items()
        }


def _evaluated(expression: str, values: Mapping[str, float]) -> float:
    with np.errstate(all="ignore"):
        arrays = {name: np.float64(value) for name, value in values.items()}
        return float(evaluate(expression, arrays))


def _put_in(expression: str, values: Mapping[str, float]) -> str:
    def number(found: re.Match[str]) -> str:
        name = found.group()
        return f"{values[name]:.6g}" if name in values else name

    return re.sub(r"[A-Za-z_][A-Za-z_0-9]*", number, expression)
