"""Predictions of measured cases: those with equal labels together, their numbers as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.completion import (
    Statement,
    complete,
    features,
    following,
    follows,
    implied,
    library_labels,
    take_usual,
)
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.everything import load
from overhead.labels import IN_A_STEP, LABELS, NO_LIBRARY
from overhead.memory.quantities import RECIPES, Recipe
from overhead.memory.stage import CANDIDATES
from overhead.model.order import NUMBERS
from overhead.quantity import VOCABULARY
from overhead.shipped import Usual, loss_figures, usual_table
from overhead.together import compute
from sweeps.bands import change_by, percent
from sweeps.errors import InputError, nearest, refuse
from sweeps.origin import MEASURED, UNKNOWN
from sweeps.result import Field, Result, of_rows
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import (
    RECIPE_RULE,
    Framework,
    training_constants,
)
from sweeps.spec.known import known_of_run
from sweeps.spec.machine import Machine, rates_of
from sweeps.spec.resolve_operation import FIGURES, figure_of
from sweeps.spec.software import own_library, priced
from sweeps.spec.units import format_quantity, parse_quantity
from sweeps.validate.run_table import read_csv
from sweeps.validate.training_rows import Case
from sweeps.wrapping import aligned

Floats = NDArray[np.float64]

# What is told of each step.
OF_STEPS = ("error_band_low", "error_band_high", "causal_mfu", "step_time")
# Labels that choose constants, not formulas.
CHOOSING = ("hardware", "framework", "preset", "precision", "recipe", "fp8_scaling", "fabric")


@dataclass(frozen=True, slots=True)
class Predictions:
    """What is predicted of cases."""

    values: Floats  # In canonical units; NaN where nothing could be predicted
    # The ends of the bands that measurements are said to lie in; NaN where nothing says so
    low: Floats
    high: Floats
    # Of those without a prediction, by their place: why
    reasons: dict[int, str] = field(default_factory=dict)


def predict(cases: Sequence[Case], folders: Sequence[Path] = ()) -> Predictions:
    """Predict all cases."""
    load()
    predictions = Predictions(*np.full((3, len(cases)), np.nan))
    constants = Constants(folders)
    groups: list[_Group] = []
    for indices in _groups(cases):
        first = cases[indices[0]]
        try:
            row = _row(cases, indices, constants)
            step = None if first.kind == "memory" else row.of_step()
        except (InputError, MissingQuantities) as error:
            predictions.reasons.update(dict.fromkeys(indices, str(error).replace("\n", "; ")))
            continue
        groups.append(_Group(indices, first, row, step))
    steps = [candidate for candidate in groups if candidate.step is not None]
    with np.errstate(all="ignore"):
        compute(
            [candidate.step for candidate in steps if candidate.step is not None],
            [(*OF_STEPS, candidate.first.quantity) for candidate in steps],
        )
    for group in groups:
        indices = group.places
        try:
            *three, least = _values(group)
        except (InputError, MissingQuantities) as error:
            predictions.reasons.update(dict.fromkeys(indices, str(error).replace("\n", "; ")))
            continue
        for values, target in zip(
            three, (predictions.values, predictions.low, predictions.high), strict=True
        ):
            target[indices] = np.broadcast_to(values, len(indices))
        predictions.reasons.update(_impossible(cases, indices, least))
        for index in indices:
            if math.isnan(predictions.values[index]):
                numbers = group.row.numbers
                nothing = [name for name, value in numbers.items() if np.isnan(value).any()]
                predictions.reasons[index] = f"not known: {', '.join(nothing) or 'why'}"
    return replace(predictions, reasons=dict(sorted(predictions.reasons.items())))


def _row(cases: Sequence[Case], indices: Sequence[int], constants: Constants) -> MeasuredRow:
    """Return cases of equal labels as one configuration, their numbers as arrays."""
    first = cases[indices[0]]
    numbers = {
        name: np.array([cases[index].numbers[name] for index in indices]) for name in first.numbers
    }
    unknown = np.array([float(len(cases[index].assumed)) for index in indices])
    step = first.kind == "step_time"
    return MeasuredRow(
        numbers | {"unknown_settings": unknown},
        first.labels,
        constants.of(first.labels, step=step),
        constants.library(first.labels)[0] if step else NO_LIBRARY,
    )


def _impossible(
    cases: Sequence[Case], indices: Sequence[int], least: Floats
) -> Iterator[tuple[int, str]]:
    """Yield the places of steps that are said to be faster than the GPUs' peak, and why."""
    for index, time in zip(indices, np.broadcast_to(least, len(indices)).tolist(), strict=True):
        if cases[index].measured < time:
            share = time / cases[index].measured
            at_best = format_quantity(time, "s")
            yield (
                index,
                f"impossible: {100.0 * share:.0f} % of the GPUs' peak, {at_best} a step at least",
            )


def _groups(cases: Sequence[Case]) -> Iterator[list[int]]:
    """Yield the places of cases that one evaluation serves."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, case in enumerate(cases):
        labels = tuple(sorted(case.labels.items()))
        key = (case.quantity, labels, tuple(sorted(case.numbers)))
        groups.setdefault(key, []).append(index)
    yield from groups.values()


def _values(group: _Group) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the values of a group, bands' ends, and the least that can be."""
    nothing = np.array(np.nan)
    case, row, evaluation = group.first, group.row, group.step
    if evaluation is None:
        memory = row.of_memory()
        values = _fullest(memory, case.quantity)
        if not case.is_measured or memory.labels.get("shapes") == "unknown":
            return values, nothing, nothing, nothing
        band = Evaluation({"software_kind": memory["software_kind"]}, {})
        return values, band["memory_error_band_low"], band["memory_error_band_high"], nothing
    with np.errstate(all="ignore"):
        low, high = evaluation["error_band_low"], evaluation["error_band_high"]
        # Masked scores and what is computed again left out: no GPU is faster than that at its peak.
        at_peak = evaluation["causal_mfu"] * evaluation["step_time"]
        least = np.asarray(at_peak if case.is_measured else np.nan)
        return evaluation[case.quantity], low, high, least


def _fullest(memory: Evaluation, quantity: str) -> Floats:
    """Return a part of memory on the stage that has most of it."""
    if memory.labels.get("shapes") == "unknown":
        return Evaluation({**memory.given, "stage": 0.0}, memory.labels)[quantity]
    stages = np.stack(np.broadcast_arrays(*(memory[name] for name in CANDIDATES)))
    given = {**memory.given, "stage": stages}
    if NUMBERS[0] in given:
        share = Evaluation(given, memory.labels)["stage_linear_fraction"]
        given.setdefault("linear_attention_fraction", share)
    values = Evaluation(given, memory.labels)[quantity]
    # A part that is alike in all stages has no axis of them.
    return values.max(axis=0) if values.ndim > 1 else values


# Labels that memory depends on; where there is no schedule, what is in flight is given.
OF_MEMORY = ("recompute", "attention_kernel", "loss", "sharding", "dispatcher")


class MeasuredRow(Statement):
    """A measured configuration, or several alike, with the constants of what it ran on."""

    def __init__(
        self,
        numbers: Mapping[str, Any],
        labels: Mapping[str, str],
        constants: Mapping[str, Any],
        library: str = NO_LIBRARY,
    ) -> None:
        super().__init__(numbers, {k: v for k, v in labels.items() if k not in CHOOSING})
        self.constants, self.runs = constants, library

    def of_step(self) -> Evaluation:
        """Return the evaluation of its step."""
        complete(self)
        labels = {**implied(self.given), **following(self.labels, self.given)}
        return Evaluation(self.numbers, labels)

    def of_memory(self) -> Evaluation:
        """Return the evaluation of its memory, for which less has to be known."""
        self.take_constants()
        given = {name: value for name, value in self.numbers.items() if name in VOCABULARY}
        usual = {name: LABELS[name].default for name in OF_MEMORY}
        labels = usual | features(given) | self.labels
        of_loss = loss_figures(labels["loss"], LABELS["loss"].default)
        taken = {**usual_table()["memory"], **of_loss}
        rest = {name: one.value for name, one in taken.items() if not follows(name, given)}
        return Evaluation({**rest, **given}, labels)

    def take_model(self) -> None:
        """Take what a model lacks of which nothing is said."""
        take_usual(self, "shapes")

    def take_constants(self) -> None:
        """Take the constants of the machine and its software."""
        for name, value in self.constants.items():
            if not follows(name, self.given):
                self.number(name, Usual(value, MEASURED, ""))

    def take_library(self) -> None:
        """Take the labels of the library that ran; its constants are the machine's."""
        self.labels |= library_labels(self.runs, self.numbers)


@dataclass(frozen=True, slots=True)
class _Group:
    """Cases that one evaluation serves."""

    places: list[int]  # Among all cases
    first: Case  # One of them
    row: MeasuredRow  # All of them
    step: Evaluation | None  # Of their steps; None of memory


class Constants:
    """The constants of machines and software, by labels."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._machines: dict[str, Machine] = {}
        self._frameworks: dict[str, Framework] = {}
        self._profiles: dict[tuple[str, str], tuple[str, dict[str, float]]] = {}

    def of(self, labels: Mapping[str, str], *, step: bool) -> dict[str, float]:
        """Return the constants of the machine and its software that a prediction takes."""
        framework = self.framework(labels["framework"])
        machine = self.machine(labels["hardware"]) if "hardware" in labels else None
        words = labels["framework"], labels["precision"], labels.get("preset", "")
        origins = known_of_run(machine, *words)
        if machine is not None:
            origins |= training_constants(
                machine,
                framework,
                precision=labels["precision"],
                attention_kernel=labels.get("attention_kernel"),
                recipe=labels.get("recipe"),
                fp8_scaling=labels.get("fp8_scaling"),
                loss=labels.get("loss"),
            )
            network = {name: figure_of(machine, name) for name in FIGURES if step}
            origins |= {name: link for name, link in network.items() if link.kind != UNKNOWN}
            further = self.library(labels)[1] if step else {}
        else:
            origins |= {name: figure.origin for name, figure in framework.figures.items()}
            origins |= framework.of_loss(labels.get("loss"))
            further = _recipe(framework, labels).given()
        return {name: origin.value for name, origin in origins.items()} | further

    def library(self, labels: Mapping[str, str]) -> tuple[str, dict[str, float]]:
        """Return the library that runs collectives, and its constants, in a step."""
        key = labels["hardware"], labels.get("fabric", "")
        if key not in self._profiles:
            machine = Constants.machine(self, key[0])  # No fit is of a library
            words = {"environment": IN_A_STEP, "software": own_library(machine).value}
            words |= {"fabric": key[1]} if key[1] else {}
            name, constants = priced(machine, words)
            self._profiles[key] = name, {n: constant.value for n, constant in constants.items()}
        return self._profiles[key]

    def machine(self, name: str) -> Machine:
        """Return a machine of the catalogue; a fit has one with other figures."""
        if name not in self._machines:
            self._machines[name] = load_hardware(name, self.folders)
        return self._machines[name]

    def framework(self, name: str) -> Framework:
        """Return a framework with its options; a fit has one with other figures."""
        if name not in self._frameworks:
            self._frameworks[name] = load_framework(name, self.folders)
        return self._frameworks[name]


def _recipe(framework: Framework, labels: Mapping[str, str]) -> Recipe:
    """Return the recipe of bytes a parameter where no machine is stated."""
    precision = rates_of(labels["precision"])
    chosen = framework.precisions.get(precision)
    usual = RECIPE_RULE[precision] if chosen is None else chosen.value
    return RECIPES[labels.get("recipe", usual)]


# What running takes: rows of any quantity, each with what it is predicted from.

RUNNING = ("row_id", "source_ref", "quantity", "measured", "given", "notes")
# What a table may say beside: of what kind a row is, and with which it shares a kernel's rate.
KINDS = ("class", "group")


Asking = Callable[[Mapping[str, Any], str], float]


def running_rows(path: Path, ask: Asking) -> list[dict[str, Any]]:
    """Return rows of what running takes with what is predicted of each.

    Its quantity is asked for as a sweep of what ``given`` says, as ``name=value; ..``, and where.
    """
    _, ((_, heading), *lines) = read_csv(path, "TABLE")
    lacking = [name for name in RUNNING if name not in heading]
    if lacking:
        wrong = f"has no column {', '.join(lacking)}"
        refuse("TABLE", str(path), wrong, ", ".join(RUNNING))
    known: dict[str, float] = {}

    def once(table: Mapping[str, Any], where: str) -> float:
        key = repr(table)
        if key not in known:
            known[key] = ask(table, where)
        return known[key]

    rows = [
        _running(dict(zip(heading, cells, strict=False)), f"{path.name}, line {line}: ", once)
        for line, cells in lines
    ]
    return [
        {**row, "left_out_error": _left_out(row, rows)} if "group" in row else row for row in rows
    ]


def _left_out(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> float:
    """Return a row's error where the rate is that of its group's rows of other classes."""
    others = [
        other["measured"] / other["predicted"]
        for other in rows
        if other["group"] == row["group"] and other["class"] != row["class"]
    ]
    return float(np.median(others)) * (1.0 + row["error"]) - 1.0 if others else math.nan


def _running(row: Mapping[str, str], where: str, ask: Asking) -> dict[str, Any]:
    quantity = row["quantity"]
    if quantity not in VOCABULARY:
        refuse(f"{where}quantity", quantity, "unknown", nearest(quantity, VOCABULARY))
    pairs = (piece.partition("=") for piece in row["given"].split(";"))
    constants = {name.strip(): value.strip() for name, _, value in pairs}
    predicted = ask({"constants": constants, "quantities": [quantity]}, where)
    measured = parse_quantity(
        row["measured"], VOCABULARY[quantity].units, field=f"{where}measured", bare_is_si=True
    )
    known = {name: row[name] for name in (*RUNNING, *KINDS) if name in row and name != "measured"}
    return {
        **known,
        "measured": measured,
        "predicted": predicted,
        "units": VOCABULARY[quantity].units,
        "error": predicted / measured - 1.0,
    }


def running_result(rows: Sequence[dict[str, Any]], attrs: Mapping[str, str]) -> Result:
    """Return rows of what running takes as a result."""
    kinds = KINDS if rows and "group" in rows[0] else ()
    texts = (
        Field(name, name, name.replace("_", " "))
        for name in (*RUNNING, *kinds, "units")
        if name != "measured"
    )
    numbers = (
        Field(name, f"{name}_value", f"{name} value of the row's quantity, in its units", "1")
        for name in ("measured", "predicted")
    )
    error = Field("error", "prediction_error", "prediction by the measured value, less one", "1")
    left = Field(
        "left_out_error",
        "left_out_error",
        "prediction by the measured value, less one, "
        "with the rate of the group's rows of other classes",
        "1",
    )
    return of_rows(rows, [*texts, *numbers, error, *([left] if kinds else [])], attrs)


def running_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what was measured of any quantity beside what is predicted, and the errors by kind."""
    if rows and "group" in rows[0]:
        yield from _kinds(rows)
        return
    yield "Predicted and measured, by row"
    table = [["row", "quantity", "measured", "predicted", "error"]]
    for row in rows:
        shown = (
            format_quantity(row[name], row["units"], binary=False)
            for name in ("measured", "predicted")
        )
        table.append([row["row_id"], row["quantity"], *shown, change_by(row["error"])])
    yield from aligned(table, left=2)
    for name in dict.fromkeys(str(row["quantity"]) for row in rows):
        errors = [abs(float(row["error"])) for row in rows if row["quantity"] == name]
        yield f"{name}: {len(errors)} rows, MAPE {percent(float(np.mean(errors)))}"


def _kinds(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the errors of each class, then medians of its rows that differ in little."""
    for name in dict.fromkeys(str(row["class"]) for row in rows):
        yield _kind_line(name, [row for row in rows if row["class"] == name])
    yield ""
    yield "Medians of equal rows; --csv, --json and --output have each row"
    table = [["class", "of", "rows", "measured", "predicted", "error", "held out"]]
    for pair in dict.fromkeys((str(row["class"]), str(row["group"])) for row in rows):
        rows_of_pair = [row for row in rows if (row["class"], row["group"]) == pair]
        middle = {
            name: float(np.median([row[name] for row in rows_of_pair]))
            for name in ("measured", "predicted", "error", "left_out_error")
        }
        shown = (
            format_quantity(middle[n], rows_of_pair[0]["units"], binary=False)
            for n in ("measured", "predicted")
        )
        left = middle["left_out_error"]
        text = "-" if math.isnan(left) else change_by(left)
        table.append([*pair, str(len(rows_of_pair)), *shown, change_by(middle["error"]), text])
    yield from aligned(table, left=2)


def _kind_line(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the errors of one class: as predicted, and with the other classes' rate."""
    errors = np.array([row["error"] for row in rows])
    left = np.array([row["left_out_error"] for row in rows])
    line = f"{name}: {len(rows)} rows, MAPE {percent(np.mean(np.abs(errors)))}"
    line += f" (median {change_by(np.median(errors))})"
    if np.all(np.isnan(left)):
        return line
    other = f"{percent(np.nanmean(np.abs(left)))} ({change_by(np.nanmedian(left))})"
    return f"{line}; held out, with the attention rate of the other kinds, {other}"
