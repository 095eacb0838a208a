"""A program's layout: its coordinates and variables with their declarations' metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.formula import Call, Formula
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from overhead.statements import statement, statements
from sweeps.engine.grid import Column, Layout, Variable, dtype_of, row_numbers
from sweeps.engine.program import Program
from sweeps.latex import equation
from sweeps.origin import Origin, Origins, attributes
from sweeps.spec.axis import Axis

# A formula's text grows with the networks and algorithms of a sweep; this many are told.
MOST_PARTS = 60
# What a step's operations are asked on every network, also on a flat one, whose times don't depend
# on it: without these a stored step can't be computed again.
ASKED = (
    "gpus_per_node",
    "nics_per_node",
    *(f"{level}_{what}" for level in ("intra", "inter") for what in ("efficiency", "bandwidth")),
    "oversubscription",
)


def layout_of(
    program: Program,
    origins: Origins,
    attrs: Mapping[str, str],
    *,
    brief: bool = False,
) -> Layout:
    """Describe the dataset that a program gives; briefly, without formulas and sources."""
    coordinates: list[Column] = []
    # A training step has more constants than it takes: those of what it doesn't do.
    whole = program.collective or brief
    asked = {*ASKED} if program.labels.get("topology") != "hierarchical" else set()
    used = set(program.grid.columns) if whole else program.used() | asked
    kept = used | {name for name in program.grid.columns if name not in origins}
    for axis in program.grid.axes:
        coordinates += _axis_columns(axis, origins, kept)
    for name, (dims, values) in program.grid.fields.items():
        if name in kept:
            coordinates.append(coordinate(name, dims, values, origins.get(name, ())))
    for name, value in {**program.grid.constants, **program.assumed}.items():
        if name in kept:
            coordinates.append(coordinate(name, (), np.array(value), origins.get(name, ())))
    for name, label in program.labels.items():
        coordinates.append(coordinate(name, (), np.array(label), origins.get(name, ())))
    return Layout(
        sizes=dict(program.grid.sizes),
        coordinates=tuple(coordinates),
        variables=tuple(
            _variable(program, variable, brief=brief) for variable in program.variables
        ),
        attrs=attrs,
    )


def _axis_columns(axis: Axis, origins: Origins, kept: set[str]) -> list[Column]:
    columns = []
    if axis.name not in axis.columns:
        columns.append(row_numbers(axis.name, len(axis)))
    for name, values in axis.columns.items():
        if values.dtype.kind not in "UO" and name not in kept and name != axis.name:
            continue
        columns.append(coordinate(name, (axis.name,), values, origins.get(name, ())))
    return columns


def coordinate(
    name: str, dims: tuple[str, ...], given: Any, origins: Sequence[Origin] = (), words: str = ""
) -> Column:
    """Return a coordinate of a quantity or label; without origins it was given."""
    values = np.asarray(given)
    if values.dtype.kind in "UO":
        text = np.asarray(values, dtype=np.str_)
        meaning = words or (LABELS[name].meaning if name in LABELS else name)
        attrs: dict[str, Any] = {"long_name": meaning, **attributes(origins)}
        return Column(name, dims, text.dtype, attrs, text)
    numbers = np.asarray(values, dtype=np.float64)
    attrs = {**VOCABULARY[name].attrs(), **attributes(origins)}
    return Column(name, dims, numbers.dtype, attrs, numbers)


def _variable(program: Program, variable: Variable, *, brief: bool) -> Column:
    dtype = dtype_of(variable.name)
    if variable.name == program.status_name:
        return Column(variable.name, variable.dims, dtype, _status_attrs(program))
    if variable.name == "chosen_algorithm":
        codes = {
            "none": 0,
            **{algorithm.name: algorithm.code for algorithm in program.algorithms()},
        }
        attrs: dict[str, Any] = {
            "long_name": "algorithm whose time this is",
            "flag_values": list(codes.values()),
            "flag_meanings": " ".join(codes),
        }
        return Column(variable.name, variable.dims, dtype, attrs)
    attrs = dict(VOCABULARY[variable.name].attrs())
    if not brief:
        attrs |= _sources(program, variable)
        if variable.name == "time" or (program.training and attrs.get("units") == "s"):
            attrs |= _upper_bound(program, variable)
    attrs["ancillary_variables"] = program.status_name
    return Column(variable.name, variable.dims, dtype, attrs)


def _status_attrs(program: Program) -> dict[str, Any]:
    texts = program.faults.texts
    meaning = "; ".join(f"{fault}: {text}" for fault, text in texts.items())
    return {
        "long_name": "why a value doesn't exist (0: it does)",
        "flag_masks": [program.faults.bits[fault] for fault in texts],
        "flag_meanings": " ".join(texts),
        "comment": meaning,
    }


def _sources(program: Program, variable: Variable) -> dict[str, str]:
    called = [declaration for declaration in variable.declarations if isinstance(declaration, Call)]
    if called:
        return {
            "formula": "; ".join(dict.fromkeys(declaration.statement for declaration in called))
        }
    declared: list[Formula | Algorithm] = list(variable.declarations)
    if variable.name in ("time", "steps", "sent_bytes", "link_bytes"):
        declared = [*program.algorithms(), *declared]
    if not declared:
        return {}
    stated = list(dict.fromkeys(_statement(declaration, variable.name) for declaration in declared))
    more = f"; and {len(stated) - MOST_PARTS} more" if len(stated) > MOST_PARTS else ""
    attrs = {
        "formula": "; ".join(stated[:MOST_PARTS]) + more,
        "references": "; ".join(references(declared)),
    }
    if variable.name == "chunks":
        attrs["comment"] = "The whole number of chunks with the least time."
        return attrs
    if len(declared) == 1 or not isinstance(declared[0], Algorithm):
        attrs["formula_latex"] = f"${_latex(declared[0], variable.name)}$"
    assumed = dict.fromkeys(phrase for declaration in declared for phrase in declaration.assumes)
    if assumed:
        attrs["comment"] = f"Assumes {'; '.join(assumed)}."
    return attrs


def _upper_bound(program: Program, variable: Variable) -> dict[str, str]:
    """Return which algorithms' times, on which a time depends, are upper bounds, and where."""
    bounds = {
        declaration.name: declaration.bound
        for declaration in program.declarations(variable.name)
        if isinstance(declaration, Algorithm) and declaration.bound
    }
    words = f"{', '.join(sorted(bounds))}: {'; '.join(sorted({*bounds.values()}))}"
    return {"upper_bound": words} if bounds else {}


def _statement(declared: Formula | Algorithm, name: str) -> str:
    if isinstance(declared, Formula):
        return declared.statement
    if name == "chunks":
        return f"{'.'.join(declared.key)}: chunks of the least {statement(declared)}"
    return f"{'.'.join(declared.key)}: {name} = {statements(declared)[name]}"


def _latex(declared: Formula | Algorithm, name: str) -> str:
    if isinstance(declared, Formula):
        return equation(declared.returns, declared.expression)
    return equation(name, statements(declared)[name])


def references(declared: Iterable[Formula | Algorithm]) -> list[str]:
    """Return the publications of declarations, each once, without the places in them."""
    sources = {id(declaration.source): declaration.source for declaration in declared}
    return list(dict.fromkeys(source.at() for source in sources.values()))
