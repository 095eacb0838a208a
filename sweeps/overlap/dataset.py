"""A request's cells as a dataset in a file, and what figures suit it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from overhead.formula import REGISTRY
from sweeps.engine.layout import Column
from sweeps.overlap.arrays import attrs_of, label_column, number_column, status_attrs, store
from sweeps.overlap.evaluate import FAULTS, blocks, records
from sweeps.overlap.request import Request

__all__ = ["figures_of", "write_dataset"]

LABEL_NAMES = {
    "mechanism": "mechanism of overlap",
    "efficiency_of": "what the efficiency is of",
    "schedule": "schedule of the pipeline",
}
TITLE = "Overlap of computation and communication"
MOST_LINES = 16


def write_dataset(
    request: Request, asked: Mapping[str, str], given: Mapping[str, Any], output: Path
) -> None:
    """Write a request's cells as netCDF."""
    variables = [_variable(request, name) for name in request.outputs]
    status = status_attrs(FAULTS)
    variables.append(Column("status", request.dims, np.dtype(np.int32), status))
    store(
        _coordinates(request),
        variables,
        blocks(request),
        title=TITLE,
        summary="What of computation and communication overlaps, by closed forms.",
        stated={"overlap": dict(asked)},
        given=given,
        output=output,
    )


def _coordinates(request: Request) -> list[Column]:
    found: list[Column] = []
    for name, values in request.labels.items():
        found.append(label_column(name, (name,), values, LABEL_NAMES[name]))
    for name, numbers in request.axes.items():
        found.append(number_column(name, (name,), numbers))
    for name, value in request.constants.items():
        found.append(number_column(name, (), value))
    # What is taken besides is one value where all mechanisms that take it take the same.
    for name, origin in request.origins.items():
        taken = {case.defaults[name] for case in request.cases if name in case.defaults}
        if len(taken) == 1:
            found.append(number_column(name, (), taken.pop(), origin))
    first = request.cases[0].labels
    found += [
        label_column(name, (), first[name], words)
        for name, words in LABEL_NAMES.items()
        if name not in request.labels and (name == "mechanism" or _heeded(request, name))
    ]
    return found


def _heeded(request: Request, label: str) -> bool:
    heeding = {"efficiency_of": "two_durations", "schedule": "pipeline"}[label]
    return any(case.mechanism == heeding for case in request.cases)


def _variable(request: Request, name: str) -> Column:
    declared = [REGISTRY.returning(name, case.labels) for case in request.cases]
    attrs = {**attrs_of(name, declared), "ancillary_variables": "status"}
    return Column(name, request.dims, np.dtype(np.float64), attrs)


def figures_of(request: Request) -> list[dict[str, Any]]:
    """Return declarations of figures that suit: lines over the longest axis, else bars."""
    if not request.axes:
        return _bars(request)
    x = max(request.axes, key=lambda name: len(request.axes[name]))
    free = [name for name in request.dims if name != x]
    lines: list[str] = []
    for name in sorted(free, key=lambda name: name != "mechanism"):
        if int(np.prod([_size(request, n) for n in (*lines, name)])) <= MOST_LINES:
            lines.append(name)
    lines = lines[:2]
    at = {name: _middle(request, name) for name in free if name not in lines}
    common = {"kind": "curves", "x": x, "lines": lines, "at": at, "crossovers": False}
    speedup = {
        "y": "overlap_speedup",
        "yscale": "linear",
        "better": "more",
        "title": "Speedup by overlap",
    }
    return [
        {**common, "name": "time", "y": "overlapped_time", "title": "Time with overlap"},
        {**common, "name": "speedup", **speedup},
    ]


def _bars(request: Request) -> list[dict[str, Any]]:
    """Return bars of what hides and what shows, for each mechanism."""
    if "mechanism" not in request.labels:
        return []
    at = {name: values[0] for name, values in request.labels.items() if name != "mechanism"}
    # What costs time hides nothing: no bar of less than nothing.
    saves = all(record["hidden_time"] >= 0.0 for record in records(request))
    parts = ["hidden_time", "exposed_time"] if saves else ["exposed_time"]
    title = "What hides of the communication, and what shows"
    shown = {"parts": parts, "x": ["mechanism"], "at": at, "title": title}
    return [{"kind": "bars", "name": "hidden", **shown}]


def _size(request: Request, name: str) -> int:
    return dict(zip(request.dims, request.shape, strict=True))[name]


def _middle(request: Request, name: str) -> Any:
    if name in request.labels:
        return request.labels[name][0]
    values = request.axes[name]
    return float(values[len(values) // 2])
