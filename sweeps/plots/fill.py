"""Defaults of a declaration that depend on what there is to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sweeps.plots.data import Subject
from sweeps.plots.kinds import BREAKDOWNS, KINDS, OF_PLANS
from sweeps.plots.parts import known_parts
from sweeps.plots.plans import plan_dims
from sweeps.plots.schema import Figure

__all__ = ["CAPACITY", "COMPARED", "fill", "taken", "with_options"]

CAPACITY = "memory_capacity"
COMPARED: tuple[str, ...] = ("topology", "algorithm")  # what is compared, where it varies
_TRAINED: tuple[str, ...] = ("model", "hardware")
_CHOICE = "chosen_"  # variables that already say which is best
_OF_MEMORY = ("memory", "peak_memory")


def with_options(figure: Figure, **options: Any) -> Figure:
    """Return a figure with some options changed."""
    return replace(figure, options=MappingProxyType({**figure.options, **options}))


def fill(figure: Figure, subject: Subject) -> Figure:
    """Give a figure the defaults that follow from the names there are."""
    options: dict[str, Any] = {}
    given = figure.options
    if figure.kind in {"curves", "scaling"}:
        options = _of_lines(figure, subject)
    elif figure.kind in BREAKDOWNS:
        # A part that is the same everywhere, or by machine, is a coordinate.
        there = {*subject.variables, *subject.dims, *(subject.columns or ())}
        parts = known_parts(figure.kind, there, given.get("of") or "time")
        parts = parts if {*parts} & {*subject.variables} else ()
        options = {"parts": given["parts"] or parts or None}
        if "above" in given and given["above"] is None and "mfu" in subject.variables:
            options["above"] = "mfu"
    elif str(given.get("value")).startswith(_CHOICE) and given["over"] is None:
        options = {"over": ()}
    wanted = figure.kind == "memory" or given.get("x") in _OF_MEMORY
    if wanted and "capacity" in given and given["capacity"] is None and _holds(subject, CAPACITY):
        options["capacity"] = CAPACITY
    return with_options(figure, **options) if options else figure


def _of_lines(figure: Figure, subject: Subject) -> dict[str, Any]:
    given = figure.options
    training = "ranks" not in subject.dims
    relative = given["relative_to"] is not None
    options: dict[str, Any] = {
        "x": given["x"] or ("world_size" if training else "ranks"),
        "y": given["y"] or ("tokens_per_second" if training else "time"),
        "yscale": given["yscale"] or ("linear" if relative else "log"),
        "crossovers": given["crossovers"],
    }
    if given["crossovers"] is None:
        options["crossovers"] = figure.kind == "curves" and not relative
    if figure.kind == "scaling":
        ideal = options["y"] == "tokens_per_second" and not relative
        options["ideal"] = ideal if given["ideal"] is None else given["ideal"]
        if options["x"] == "world_size":
            options["xscale"] = given["xscale"] or "log"
    return options


def _holds(subject: Subject, name: str) -> bool:
    return name in subject.variables or name in subject.dims or name in (subject.columns or ())


def taken(figure: Figure, left: Sequence[str], subject: Subject) -> tuple[str, ...]:
    """Return the dimensions that a figure spreads out by itself, of those left over.

    Topology and algorithm are what is compared, or model and machine; where they vary, another
    dimension isn't mixed in without being named. Figures of plans spread all of a plan's choices.
    """
    labels = [dim for dim in left if subject.labels(dim)]
    if figure.kind in OF_PLANS:
        return tuple(plan_dims(left, subject.dims) or (labels or list(left))[:1])
    most = KINDS[figure.kind].most
    first = [dim for dim in COMPARED if dim in labels]
    if not first and "model" in labels:
        first = [dim for dim in _TRAINED if dim in labels]
    others = [dim for dim in labels if dim not in first]
    if figure.kind != "bars":
        others = [] if first else others[:1]
    return tuple([*first, *others][:most])
