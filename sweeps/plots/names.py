"""Plans and cells as figures name them: which dimensions plans vary along, what tells one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.labels import PLAN_LABELS
from overhead.plan import DEGREES
from sweeps import display
from sweeps.origin import GIVEN, read
from sweeps.plots.style import plain, scale_of

if TYPE_CHECKING:
    import xarray as xr

# What a plan chooses, in the order in which people name it.
PLACE = "best plan at"  # how the heading begins of where a table's best values were found
PLAN_NAMES = (*DEGREES, "zero_stage", "sequence_parallel", *PLAN_LABELS)
_WORDS = {"zero_stage": "ZeRO", "hsdp_shard_size": "HSDP", "micro_batch_size": "micro-batch"}
_VALUES = {"none": "no", "one_f_one_b": "1F1B"}
# Of a plan that does without a choice nothing is said, but of these.
_ALWAYS = ("tp", "pp", "dp", "micro_batch_size", "schedule", "world_size", "hardware", "model")
WAYS = {"context_parallel": "cp", "schedule": "pp", "dispatcher": "ep"}  # of splitting, by degree
_SWITCHED = ("zero_stage", "sequence_parallel")  # without at 0; degrees are without at 1


def is_without(name: str, value: Any) -> bool:
    """Return whether a plan does without a choice at this value of it."""
    if isinstance(value, str | bytes):
        return value in ("none", b"none")
    return bool(value == without_at(name))


def without_at(name: str) -> float | None:
    """Return the number at which a plan does without a choice; None of what is always named."""
    return None if name in _ALWAYS else 0.0 if name in _SWITCHED else 1.0


def is_of_plans(dim: str, values: Sequence[Any] | int) -> bool:
    """Return whether plans vary along a dimension: a choice of theirs, or a table's rows."""
    return dim in PLAN_NAMES or isinstance(values, int)


def plan_dims(dims: Iterable[str], known: Mapping[str, Sequence[Any] | int]) -> list[str]:
    """Return those of some dimensions along which plans vary."""
    return [dim for dim in dims if is_of_plans(dim, known.get(dim, ()))]


def cell_names(
    dataset: xr.Dataset, dims: Sequence[str], indices: Sequence[NDArray[np.int64]]
) -> list[str]:
    """Return what tells some cells from all others along some dimensions."""
    if not dims:
        return [""]
    named = naming(dataset, dims)
    values = {}
    for name in named:
        coordinate = dataset.variables[name]
        at = tuple(indices[list(dims).index(str(dim))] for dim in coordinate.dims)
        values[name] = coordinate.values[at].tolist()
    columns = _telling(values, len(indices[0]))
    texts: list[list[str]] = []
    plans = [name for name in columns if name in PLAN_NAMES]
    for name in columns:
        units = str(dataset.variables[name].attrs.get("units", "1"))
        without = len(plans) > 1 and name not in _ALWAYS
        split: Iterable[bool] = itertools.repeat(True)
        if plans and name not in dims:
            split = _split(dataset, values, name)
        texts.append(
            [
                worded(name, value, units)
                if acts and not (without and is_without(name, value))
                else ""
                for value, acts in zip(values[name], split, strict=False)
            ]
        )
    cells = [" · ".join(filter(None, parts)) for parts in zip(*texts, strict=True)] if texts else []
    rows = [index for index, dim in enumerate(dims) if dim not in dataset.coords]
    if len(set(cells)) == len(indices[0]) or not rows:
        return cells
    # Rows that no column tells apart: by their places.
    cells = cells or [plain(dims[rows[0]])] * len(indices[0])
    marks = zip(*(indices[row].tolist() for row in rows), strict=True)
    return [f"{cell} #{', '.join(map(str, mark))}" for cell, mark in zip(cells, marks, strict=True)]


def _split(dataset: xr.Dataset, values: Mapping[str, Sequence[Any]], name: str) -> Iterable[bool]:
    """Return in which rows a way of splitting acts: none where its degree is 1."""
    degree = WAYS.get(name, "")
    if degree in values:
        return [value != 1.0 for value in values[degree]]
    alone = degree in dataset.variables and dataset.variables[degree].ndim == 0
    return itertools.repeat(not (alone and float(dataset.variables[degree]) == 1.0))


def _telling(values: Mapping[str, Sequence[Any]], rows: int) -> list[str]:
    """Return the columns that name rows.

    Where each has a machine, or a model, of its own, what else it has goes with that; likewise
    where a machine and one thing more tell each, unless rows are plans.
    """
    plans = any(name in PLAN_NAMES and name not in PLAN_LABELS for name in values)
    for name in ("hardware", "model"):
        others = [value for value in values if value not in (name, *PLAN_NAMES) and not plans]
        for few in ([name], *([name, other] for other in others)) if name in values else ():
            if len(set(zip(*(values[row] for row in few), strict=True))) == rows:
                return few
    return [*values]


def coordinates_of(dataset: xr.Dataset) -> list[tuple[str, xr.Variable]]:
    """Return the coordinates without one another: each of `coords` brings all that fit it."""
    return [(str(name), dataset.variables[name]) for name in dataset.coords]


def naming(dataset: xr.Dataset, dims: Sequence[str]) -> list[str]:
    """Return the coordinates that name cells: labels, then what plans choose, then others."""
    named = [dim for dim in dims if dim in dataset.coords]
    rows = [dim for dim in dims if dim not in dataset.coords]
    candidates = [*named]
    for dim in rows:
        columns = [
            name
            for name, coordinate in coordinates_of(dataset)
            if coordinate.dims == (dim,) and _varies(coordinate)
        ]
        given = [name for name in columns if kinds_of(dataset.variables[name]) == {GIVEN}]
        candidates += given or columns
    candidates += [
        name
        for name, coordinate in coordinates_of(dataset)
        if name in PLAN_NAMES
        and coordinate.dims
        and set(map(str, coordinate.dims)) <= set(dims)
        and _varies(coordinate)
    ]
    candidates = list(dict.fromkeys(candidates))
    texts = [name for name in candidates if dataset.variables[name].dtype.kind in "OUS"]
    first = [name for name in texts if name not in PLAN_NAMES]
    order = {name: index for index, name in enumerate(PLAN_NAMES)}
    rest = (name for name in candidates if name not in first)
    return first + sorted(rest, key=lambda name: order.get(name, len(order)))


def _varies(coordinate: xr.Variable) -> bool:
    values = coordinate.values
    return bool(values.size and (values != values.reshape(-1)[0]).any())


def word_of(name: str) -> str:
    """Return what people call a coordinate beside its value."""
    return _WORDS.get(name, plain(name))


def worded(name: str, value: Any, units: str) -> str:
    """Return a coordinate's value with the name that it needs to be understood."""
    word = word_of(name)
    if name == "sequence_parallel":
        return word if value else f"no {word}"
    if not isinstance(value, str | bytes):
        number = scale_of(units).given(float(value))
        if name == "training_tokens":
            number = f"{value / 1e12:.4g} T" if value >= 1e12 else f"{value / 1e9:.4g} B"
        other = name == "world_size" or name not in PLAN_NAMES
        said = display.phrase(name, number) if other else None
        return said or f"{word} {number}"
    text = value.decode() if isinstance(value, bytes) else value
    if name not in PLAN_NAMES:
        return plain(text) if name.endswith("mechanism") else text
    said = display.phrase(name, text)
    if said:
        return said
    text = _VALUES.get(text, plain(text))
    return text if name == "schedule" else f"{text} {word}"


def kinds_of(coordinate: xr.Variable) -> set[str]:
    """Return what kinds of origins a coordinate's values have."""
    return {origin.kind for origin in read(coordinate.attrs)}
