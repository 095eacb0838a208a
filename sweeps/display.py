"""How quantities are shown: a row each of ``display.csv``, of what the vocabulary doesn't say.

Reports, tables, figures and what sweeps compute where nothing is asked for by name read these
rows, in their order.  A quantity without one is shown by its vocabulary entry.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from overhead.frozen import frozen
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY


@frozen(slots=True)
class Row:
    """How one quantity is shown."""

    name: str  # The quantity, or a label or flag of results
    group: str = ""  # The part of reports in which it stands
    words: str = ""  # In a report's line, where the vocabulary's meaning is too long
    title: str = ""  # Above a column of a table, where the name is too long
    percent: bool = False  # Whether it is a share that people read in percent
    # Where it stands: among what a sweep computes if nothing is said (``usual``), in reports
    # (``report``), in tables for people (``table``), among what is told of every plan (``plan``),
    # in tables of the best plans (``best``), at the end of a step's bar (``bar``), in titles of
    # figures whatever says it (``title``), among what records say of all cells (``record``)
    screens: frozenset[str] = frozenset()


def _read(name: str) -> list[list[str]]:
    """Return the rows of a table beside this file, without its headings."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as rows:
        return list(csv.reader(rows))[1:]


ROWS: dict[str, Row] = {}
for _name, _group, _screens, _words, _title, _percent in _read("display.csv"):
    _shown_on = frozenset(_screens.split())
    ROWS[_name] = Row(_name, _group, _words, _title, bool(_percent), _shown_on)
# Of a quantity the ends of its band: measured by predicted, less 1.
BANDS = {
    "time": ("time_band_low", "time_band_high"),
    "step_time": ("error_band_low", "error_band_high"),
    "peak_memory": ("memory_error_band_low", "memory_error_band_high"),
}
# The groups of what is told of a training step.
OF_A_STEP = ("step", "memory", "rates", "cost", "communication")

# Fractions of a run that interruptions take; what they leave is the goodput.
LOST = (
    "checkpoint_overhead",
    "rework_fraction",
    "restart_fraction",
    "replacement_wait_fraction",
)


def rows(*groups: str, screen: str = "") -> tuple[str, ...]:
    """Return the quantities of some groups, one after another, that stand on a screen."""
    return tuple(
        name
        for group in groups
        for name, entry in ROWS.items()
        if entry.group == group and (not screen or screen in entry.screens)
    )


def of_records() -> tuple[str, ...]:
    """Return what records say first where it is the same in all cells: labels, then numbers."""
    names = rows("label", "collective", "plan", screen="record")
    return tuple(sorted(names, key=lambda name: name not in LABELS))


def row(name: str) -> Row:
    """Return a quantity's row; an empty one where it has none."""
    return ROWS.get(name) or Row(name)


def words(name: str) -> str:
    """Return what a report calls a quantity: its row's words, or what the vocabulary says."""
    return row(name).words or of_part(VOCABULARY[name].meaning)


# Parts of memory by the names of NVIDIA's software, and what they are on other machines.
_ELSEWHERE = {
    "NCCL buffers": "buffers of collectives",
    "cuBLAS and cuDNN workspaces": "workspaces of libraries",
    "CUDA context": "driver's context",
}


def words_on(name: str, library: str) -> str:
    """Return what a report calls a quantity on a machine of a collective library."""
    text = words(name)
    return text if library == "nccl" else _ELSEWHERE.get(text, text)


# What the vocabulary says before a part of it, as in ``step time: optimizer update``.
_WHOLES = ("step time", "step energy", "collective time")


def of_part(meaning: str) -> str:
    """Return what a quantity means, without the total that it is a part of."""
    whole, _, part = meaning.partition(": ")
    return part if whole in _WHOLES else meaning


def noun(name: str) -> str:
    """Return what a message calls a quantity: its meaning, with an article."""
    return f"the {VOCABULARY[name].meaning if name in VOCABULARY else name}"


# What figures say of a value that they hold, call an axis, and have above a quantity: of others the
# name comes first.  ``phrases.csv`` has a row for each, in the order in which people say values.


class Phrase(NamedTuple):
    """What figures call one quantity or label."""

    value: str = ""  # With a value in it
    axis: str = ""  # As an axis, where that is shorter than its name
    heading: str = ""  # Above a figure of it, maybe with the operation


@cache
def _phrases() -> Mapping[str, Phrase]:
    return {name: Phrase(*words) for name, *words in _read("phrases.csv")}


_SPOKEN = ("context_parallel", "dispatcher", "attention_kernel", "sharding")
_LAST = ("inter_bandwidth", "intra_bandwidth", "gpu_hour_price")  # behind what has no phrase
# Values of labels that say little by themselves.
_MEANT = {
    "efficiency": "a share given",
    "decomposed": "products in chunks",
    "chunked": "chunks",
    "userbuffers": "userbuffers",
    "deduplicated": "one copy a node",
    "unfused": "unfused kernels",
    "mixed": "all-to-all and ring",
}
_PHRASES_OF_NONE = {"software": "without a library"}


def phrased(names: Iterable[str]) -> list[str]:
    """Return names in the order in which people say their values."""
    said = [name for name, phrase in _phrases().items() if phrase.value]
    order = {name: index for index, name in enumerate(said)} | dict.fromkeys(_LAST, 1000)
    return sorted(names, key=lambda name: order.get(name, len(said)))


def phrase(name: str, value: str) -> str | None:
    """Return what people say of a value of a quantity; None where its name comes first."""
    if value == "none" and name in _PHRASES_OF_NONE:
        return _PHRASES_OF_NONE[name]
    if name.endswith("mechanism") or name in _SPOKEN:
        value = _MEANT.get(value, value.replace("_", " "))
    form = _phrases().get(name, Phrase()).value
    if not form:
        return None
    said = form.format(value)
    return said.replace("s per ", " per ").removesuffix("s") if value == "1" else said


def heading(name: str, operation: str) -> str | None:
    """Return what stands above a figure of a quantity; None where its name does."""
    return _phrases().get(name, Phrase()).heading.format(operation=operation) or None


def axis(name: str) -> str | None:
    """Return what people call an axis; None where its name does."""
    return _phrases().get(name, Phrase()).axis or None


def title(name: str) -> str:
    """Return what stands above a quantity's column."""
    return row(name).title or name.replace("_communication_time", " time")


def percent(name: str) -> bool:
    """Return whether a quantity is a share that people read in percent."""
    return row(name).percent


# Models whose layers differ in more than their MLP: of these a pipeline stage has the mean, but for
# those that say the order of their layers.
MEAN_OF_KINDS = "layers of several kinds: each pipeline stage counts the mean of the model's"
OWN_KINDS = "layers of several kinds: each pipeline stage counts its own, in the model's order"
KINDS = ("linear_layers", "sliding_window_layers", "index_layers", "pooled_layers")


def are_mixed(given: Mapping[str, ArrayLike], kinds: Iterable[str] = KINDS) -> bool:
    """Return whether a model has layers of several kinds."""
    every = given.get("layers", np.inf)
    counts = (np.asarray(given.get(name, 0.0)) for name in kinds)
    return any(bool(np.any((count > 0.0) & (count < every))) for count in counts)


def kinds_of_stages(given: Mapping[str, ArrayLike], order_holds: float) -> str:
    """Return what to say of a pipeline stage of several kinds of layers.

    With `order_holds` it has its own layers, if their kinds are those of an order.
    """
    ordered = order_holds > 0.0 and not are_mixed(given, KINDS[1:])
    return OWN_KINDS if ordered else MEAN_OF_KINDS
