"""Files of the catalogue that formulas and their defaults come from."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY


def _path(kind: str, file: str) -> Path:
    """Return where a file of the catalogue is: in an installation a copy, or beside the code."""
    package = Path(__file__).parent
    paths = (package / "machines" / file, package.parent / "specs" / kind / file)
    path = next((candidate for candidate in paths if candidate.exists()), None)
    if path is None:
        message = f"{file} is missing from the installation of overhead: install again"
        raise FileNotFoundError(message)
    return path


def read_shipped(kind: str, name: str) -> dict[str, Any]:
    """Read a TOML file of the catalogue."""
    return tomllib.loads(_path(kind, f"{name}.toml").read_text(encoding="utf-8"))


@cache
def error_bands() -> Mapping[str, Any]:
    """Return the bands of every class of predictions, and what tells classes apart."""
    return read_shipped("measured", "bands")


class Usual(NamedTuple):
    """What is taken where neither the user nor the catalogue says it: a row of a table."""

    value: Any  # A number in the canonical unit; of several configurations, one each
    kind: str  # ``specification``, ``measured``, ``assumed``, or ``unknown`` where none is known
    source: str  # What is told of it


# What is told of a row that has no source, by what takes it.
DEFAULT_OF = {
    taker: f"the default of the model of {model}"
    for taker, model in (("step", "the step"), ("communication",) * 2, ("memory",) * 2)
}


@cache
def losses() -> Mapping[str, Mapping[str, Usual]]:
    """Return what each value of the label `loss` says of memory and time, by quantity."""
    tables: dict[str, dict[str, Usual]] = {name: {} for name in LABELS["loss"].values}
    with _path("training", "losses.csv").open(encoding="utf-8", newline="") as lines:
        for loss, name, value, kind, source, *_ in list(csv.reader(lines))[1:]:
            tables[loss][name] = Usual(float(value), kind, source)
    return tables


def loss_figures(loss: str, recipe_loss: str) -> Mapping[str, Usual]:
    """Return what a loss changes where software has another, its own."""
    return {} if loss == recipe_loss else losses()[loss]


@cache
def usual_table() -> Mapping[str, Mapping[str, Usual]]:
    """Return what is taken of a training where nothing is said, by what takes it and by name.

    A row without a value has the default of the vocabulary, which formulas take silently.
    """
    tables: dict[str, dict[str, Usual]] = {}
    with _path("training", "usual.csv").open(encoding="utf-8", newline="") as lines:
        for name, value, takers, kind, source, *_ in list(csv.reader(lines))[1:]:
            number = float(value) if value else VOCABULARY[name].default
            assert number is not None
            for taker in takers.split():
                told = source or DEFAULT_OF.get(taker, "")
                tables.setdefault(taker, {})[name] = Usual(number, kind, told)
    return tables
