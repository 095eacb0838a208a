"""One fit of a step's constants to all measured steps: priors, robust weights, left-out errors.

Constants vary as c = prior * exp(z), with z near nought by a width of its own, so that few rows
can't pull far.  Rows weigh by the root of their group's number, and less the further off they are.
What a row's error is without its model or its source follows from the fit linearised at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.everything import load
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.origin import MEASURED
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.fields import Figure
from sweeps.spec.files import read_toml
from sweeps.spec.framework import Framework
from sweeps.spec.known import FITTED
from sweeps.spec.machine import KERNELS, PRECISIONS, Machine, rates_of
from sweeps.validate.predict import CHOOSING, Constants, MeasuredRow
from sweeps.validate.scores import LEFT_OUT
from sweeps.validate.training_rows import Case

Floats = NDArray[np.float64]

# Where a constant stands: ``hardware`` or ``framework``, the file, the generation of GPUs for which
# a framework has it, or nothing, and the figure.
Place = tuple[str, str, str, str]
# Relative size of a constant's change by which a derivative is taken, and most change of a round.
SHIFT, STRIDE = 0.01, 0.5
ROUNDS, ENOUGH = 12, 1e-3
# Errors below which a row counts whole, by whether it has experts; degrees of Student's law.
SCALES, DEGREES = {"dense": 0.04, "experts": 0.08}, 5.0


@dataclass(frozen=True, slots=True)
class Term:
    """A constant that is fitted, in one file or in several alike."""

    kind: str  # ``hardware`` or ``framework``
    files: tuple[str, ...]  # Machines or frameworks that have it in common
    generation: str  # Of GPUs, for which a framework has it; empty: all
    figure: str  # Its quantity, of a machine with the precision
    prior: float  # Around which it is sought, in canonical units
    width: float  # How far from it, as the standard deviation of its logarithm

    @property
    def name(self) -> str:
        """What reports call it."""
        where = f"{'/'.join(self.files)}{f' on {self.generation}' if self.generation else ''}"
        return f"{self.figure}, {where}"

    def places(self) -> tuple[Place, ...]:
        """Return where it stands."""
        return tuple((self.kind, file, self.generation, self.figure) for file in self.files)


@dataclass(frozen=True, slots=True)
class FitPlan:
    """What is fitted, to which rows."""

    terms: tuple[Term, ...]
    leave: Mapping[str, str]  # Sources that are left out, and why


@dataclass(slots=True)
class Fit:
    """Fitted constants, and the rows' errors with and without what they are left out with."""

    terms: tuple[Term, ...]
    cases: tuple[Case, ...]
    logs: Floats  # Of each constant over its prior
    spread: Floats  # Standard deviations of these
    residuals: Floats  # Logarithm of predicted over measured, by row
    jacobian: Floats  # Its derivatives, rows by terms
    weights: Floats = field(default_factory=lambda: np.ones(0))
    left_out: dict[str, Floats] = field(default_factory=dict)  # Residuals by what is left out

    def values(self) -> Floats:
        """Return the constants, in canonical units."""
        return np.array([term.prior for term in self.terms]) * np.exp(self.logs)


def read_plan(path: Path | None = None) -> FitPlan:
    """Read what is fitted: terms with priors, and sources that are left out."""
    where = path or Path(__file__).with_name("fit.toml")
    content = read_toml(where)
    faults: list[str] = []
    terms = []
    for number, entry in enumerate(content.get("terms", []), 1):
        text = f"{where.name}, term {number}"
        faults += [
            fault(f"{text}, {key}", "..", "no such key", nearest(key, _KEYS))
            for key in entry
            if key not in _KEYS
        ]
        lacking = [key for key in ("files", "figure", "prior", "width") if key not in entry]
        faults += [f"{text}: {key} is missing" for key in lacking]
        if not lacking:
            terms.append(
                Term(
                    entry.get("kind", "hardware"),
                    tuple(entry["files"]),
                    entry.get("generation", ""),
                    entry["figure"],
                    float(entry["prior"]),
                    float(entry["width"]),
                )
            )
    if faults:
        raise InputError(faults)
    return FitPlan(tuple(terms), dict(content.get("leave", {})))


_KEYS = ("kind", "files", "generation", "figure", "prior", "width", "because")


def taken(cases: Sequence[Case], plan: FitPlan) -> list[Case]:
    """Return the cases that are fitted: steps, but for sources that are left out."""
    return [
        case
        for case in cases
        if case.kind == "step_time"
        and rates_of(case.labels["precision"]) in PRECISIONS
        and not any(case.source.startswith(label) for label in plan.leave)
    ]


def catalogued(plan: FitPlan, folders: Sequence[Path] = ()) -> Floats:
    """Return logarithms of the catalogue's constants over their priors, NaN where it has none."""
    found = []
    for term in plan.terms:
        figures: Mapping[str, Figure]
        if term.kind == "hardware":
            figures = load_hardware(term.files[0], folders).figures
        else:
            figures = load_framework(term.files[0], folders).on(term.generation)
        figure = figures.get(term.figure)
        found.append(np.nan if figure is None else np.log(figure.value / term.prior))
    return np.array(found, dtype=np.float64)


class _Changed(Constants):
    """The constants of machines and software, some with other values, by where they stand."""

    def __init__(self, folders: Sequence[Path], changes: Mapping[Place, float]) -> None:
        super().__init__(folders)
        self.changes = changes

    def _others(
        self, figures: Mapping[str, Figure], kind: str, file: str, generation: str = ""
    ) -> dict[str, Figure]:
        """Return figures of a file with the other values that are of it."""
        changed = {
            name: Figure(
                value, VOCABULARY[name].units if name in VOCABULARY else "1", MEASURED, "fitted"
            )
            for (of, where, on, name), value in self.changes.items()
            if (of, where, on) == (kind, file, generation)
        }
        return {**figures, **changed}

    def machine(self, name: str) -> Machine:
        machine = super().machine(name)
        return replace(machine, figures=self._others(machine.figures, "hardware", machine.name))

    def framework(self, name: str) -> Framework:
        base, *options = name.split("+")
        plain = super().framework(base)
        places = {place[2]: None for place in self.changes if place[:2] == ("framework", base)}
        generations = {
            generation: self._others(
                plain.generations.get(generation, {}), "framework", base, generation
            )
            for generation in (*plain.generations, *filter(None, places))
        }
        parts = {
            option: replace(
                part, figures=self._others(part.figures, "framework", f"{base}+{option}")
            )
            for option, part in plain.options.items()
        }
        figures = self._others(plain.figures, "framework", base)
        changed = replace(plain, figures=figures, generations=generations, options=parts)
        return changed.with_options(options)


class _Model:
    """The engine's predictions of all rows, and their derivatives by the constants."""

    def __init__(self, cases: Sequence[Case], terms: Sequence[Term], folders: Sequence[Path]):
        load()
        self.cases, self.terms = cases, terms
        self.constants = Constants(folders)
        self.measured = np.log([case.measured for case in cases])
        groups: dict[Any, list[int]] = {}
        for index, case in enumerate(cases):
            labels = {n: v for n, v in case.labels.items() if n not in CHOOSING}
            names = self.constants.of(case.labels, step=True)
            library = self.constants.library(case.labels)[0]
            key = (library, tuple(sorted(labels.items())), tuple(sorted({*case.numbers, *names})))
            groups.setdefault(key, []).append(index)
        self.groups = list(groups.values())

    def __call__(self, logs: Floats) -> tuple[Floats, Floats]:
        """Return the residuals, and their derivatives, rows by terms."""
        residuals = np.full(len(self.cases), np.nan)
        jacobian = np.zeros((len(self.cases), len(self.terms)))
        changes = [self._changes(logs)]
        for index in range(len(self.terms)):
            shifted = logs.copy()
            shifted[index] += SHIFT
            changes.append(self._changes(shifted))
        for places in self.groups:
            predicted = self._predict(places, changes)
            residuals[places] = np.log(predicted[0]) - self.measured[places]
            jacobian[places] = (np.log(predicted[1:] / predicted[0]) / SHIFT).T
        return residuals, jacobian

    def _changes(self, logs: Floats) -> Constants:
        changes = {
            place: term.prior * float(np.exp(log))
            for term, log in zip(self.terms, logs, strict=True)
            for place in term.places()
        }
        return _Changed(self.constants.folders, changes)

    def _predict(self, places: Sequence[int], changes: Sequence[Constants]) -> Floats:
        """Return predictions of some rows, by which constant is changed, the first by none."""
        cases = [self.cases[place] for place in places]
        known: dict[tuple[str, ...], list[dict[str, float]]] = {}
        for case in cases:
            key = _chosen(case)
            if key not in known:
                base = changes[0].of(case.labels, step=True)
                known[key] = [
                    change.of(case.labels, step=True) if self._touches(index - 1, case) else base
                    for index, change in enumerate(changes)
                ]
        rows: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for name in {*cases[0].numbers, *known[_chosen(cases[0])][0]}:
            columns = [
                [case.numbers[name]] * len(changes)
                if name in case.numbers
                else [one[name] for one in known[_chosen(case)]]
                for case in cases
            ]
            table = np.array(columns).T
            table = table[:1] if (table == table[:1]).all() else table
            (rows if name in cases[0].numbers else constants)[name] = table
        labels, library = cases[0].labels, self.constants.library(cases[0].labels)[0]
        with np.errstate(all="ignore"):
            times = MeasuredRow(rows, labels, constants, library).of_step()["step_time"]
        return np.broadcast_to(times, (len(changes), len(cases)))

    def _touches(self, index: int, case: Case) -> bool:
        """Return whether a term's file is the case's machine or software; -1 is none of them."""
        if index < 0:
            return False
        term = self.terms[index]
        if term.kind == "hardware":
            return case.labels["hardware"] in term.files
        base, *options = case.labels["framework"].split("+")
        return not {base, *(f"{base}+{option}" for option in options)}.isdisjoint(term.files)


def _chosen(case: Case) -> tuple[str, ...]:
    return tuple(case.labels.get(name, "") for name in (*CHOOSING, "attention_kernel"))


def fit(
    cases: Sequence[Case],
    plan: FitPlan,
    folders: Sequence[Path] = (),
    *,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] | None = None,
) -> Fit:
    """Fit the constants to rows; with no rounds the catalogue's constants stay as they are."""
    model = _Model(cases, plan.terms, folders)
    precision = np.array([term.width**-2 for term in plan.terms])
    logs = np.nan_to_num(catalogued(plan, folders))
    residuals, jacobian = model(logs)
    known = np.isfinite(residuals)
    cases = tuple(case for case, one in zip(cases, known, strict=True) if one)
    base = weights_of(cases)
    for count in range(rounds):
        r, j = residuals[known], jacobian[known]
        step = _solve(r, j, base, precision, logs) - logs
        step = np.clip(step, -STRIDE, STRIDE)
        logs = logs + step
        residuals, jacobian = model(logs)
        if tell:
            size = float(np.mean(np.abs(np.expm1(residuals[known]))))
            tell(
                f"round {count + 1}: mean error {100.0 * size:.2f} %, most change "
                f"{float(np.max(np.abs(step))):.4f}"
            )
        if np.max(np.abs(step)) < ENOUGH:
            break
    r, j = residuals[known], jacobian[known]
    weights = base * student(r, base)
    covariance = np.linalg.inv((j * weights[:, None]).T @ j + np.diag(precision))
    found = Fit(plan.terms, tuple(cases), logs, np.sqrt(np.diag(covariance)), r, j, weights)
    for name, key in _LEFT_OUT.items():
        found.left_out[name] = left_out(found, base, precision, [key(case) for case in cases])
    return found


_LEFT_OUT: dict[str, Callable[[Case], str]] = {
    "row": lambda case: case.name,
    "model": lambda case: case.model,
    "source": lambda case: case.source,
}


def weights_of(cases: Sequence[Case]) -> Floats:
    """Return each row's weight before robust ones: its group's number counts by its root."""
    groups: dict[tuple[str, ...], int] = {}
    keys = []
    for case in cases:
        labels = case.labels
        keys.append((case.source, case.model, labels["hardware"], rates_of(labels["precision"])))
        groups[keys[-1]] = groups.get(keys[-1], 0) + 1
    scales = np.array([_scale(case) for case in cases])
    return np.array([groups[key] for key in keys], dtype=np.float64) ** -0.5 / scales**2


def _scale(case: Case) -> float:
    return SCALES["experts" if case.numbers.get("experts", 0.0) > 0.0 else "dense"]


def student(residuals: Floats, base: Floats) -> Floats:
    """Return Student's weights: near 1 for small residuals, falling for large ones."""
    size = residuals**2 * np.minimum(base, SCALES["dense"] ** -2.0)
    return (DEGREES + 1.0) / (DEGREES + size)


def _solve(
    residuals: Floats,
    jacobian: Floats,
    base: Floats,
    precision: Floats,
    logs: Floats,
    repeats: int = 6,
) -> Floats:
    """Return constants of least robust squares and prior of a linear model at some point."""
    found = logs
    for _ in range(repeats):
        now = residuals + jacobian @ (found - logs)
        weights = base * student(now, base)
        left = (jacobian * weights[:, None]).T @ jacobian + np.diag(precision)
        right = (jacobian * weights[:, None]).T @ (jacobian @ logs - residuals)
        found = np.asarray(np.linalg.solve(left, right), dtype=np.float64)
    return found


def left_out(fitted: Fit, base: Floats, precision: Floats, keys: Sequence[str]) -> Floats:
    """Return each row's residual where the rows of its own key aren't in the fit."""
    residuals = np.array(fitted.residuals)
    names = np.array(keys)
    for key in dict.fromkeys(keys):
        mask = names == key
        r, j = fitted.residuals[~mask], fitted.jacobian[~mask]
        others = base[~mask]
        logs = _solve(r, j, others, precision, fitted.logs)
        residuals[mask] += fitted.jacobian[mask] @ (logs - fitted.logs)
    return residuals


# The fitted constants in the catalogue's files.

# Fewer rows than these, or a wider error, and the file says so.
FEW_ROWS, WIDE = 5, 0.05
# A row tells a constant if it moves by this share of its change; so many sources are named.
TELLING, MOST = 0.01, 4
_VERSION = re.compile(r"github:[^;]*? @[0-9a-f]{7,}")
# What changes by less of its uncertainty than this says nothing new, and isn't written.
STAY = 0.5
# How units of a figure are written in files.
WRITTEN = {"s": (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9), ("ps", 1e12))}


def rows_of(fitted: Fit) -> list[int]:
    """Return of how many rows each constant moves the prediction by a hundredth of its change."""
    return [int(np.count_nonzero(np.abs(column) > TELLING)) for column in fitted.jacobian.T]


def write_constants(fitted: Fit, folder: Path) -> list[Path]:
    """Write fitted constants into the catalogue's files of a folder that has hardware, frameworks.

    Figures that a file hasn't are added to their table, which is added at its end; what moved by
    less than `STAY` of its uncertainty stays as it is.  Where the folder has ``measured`` too, the
    errors of rows left out of the fit are written there.
    """
    texts: dict[Path, str] = {}
    numbers = zip(fitted.terms, fitted.values(), fitted.spread, fitted.jacobian.T, strict=True)
    before = catalogued(FitPlan(fitted.terms, {}), (folder / "hardware", folder / "frameworks"))
    for (term, value, spread, column), log in zip(numbers, before.tolist(), strict=True):
        if abs(np.log(value / term.prior) - log) < STAY * spread:
            continue
        rows, sources = _telling(fitted, column)
        table, key, units = _table_of(term)
        for file in term.files:
            path = folder / ("hardware" if term.kind == "hardware" else "frameworks")
            base, _, option = file.partition("+")
            path = path / f"{base}.toml"
            text = texts.get(path) or path.read_text(encoding="utf-8")
            where = f"options.{option}.{table}" if option else table
            texts[path] = _with(text, where, key, _line(value, units, spread, rows, sources))
    if (folder / "measured").is_dir():
        texts[folder / "measured" / LEFT_OUT] = _left_out_table(fitted)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _left_out_table(fitted: Fit) -> str:
    """Return each row's error where the rows of its own model, or its source, aren't fitted."""
    lines = [
        "# Predicted by measured, less 1, where constants are fitted without the rows of a row's",
        "# own model, or its own source: tests/maintenance/fit_constants.py --no-fit --write specs",
        "row_id,source_id,without_model,without_source",
    ]
    columns = [np.expm1(fitted.left_out[name]) for name in ("model", "source")]
    for case, *errors in zip(fitted.cases, *columns, strict=True):
        lines.append(",".join([case.name, case.source, *(f"{error:.4f}" for error in errors)]))
    return "\n".join(lines) + "\n"


def _table_of(term: Term) -> tuple[str, str, str]:
    """Return a constant's table, its key there, and its units."""
    quantity, _, precision = term.figure.rpartition("_")
    if term.kind == "hardware" and precision in (*PRECISIONS, *KERNELS):
        return f"training.{quantity}", precision, "1"
    table = "training" if term.kind == "hardware" else "figures"
    if term.generation:
        table = f"generations.{term.generation}"
    return table, term.figure, VOCABULARY[term.figure].units if term.figure in VOCABULARY else "1"


def _telling(fitted: Fit, column: Floats) -> tuple[int, str]:
    """Return how many rows tell a constant, and which, with the version of the most telling one."""
    order = np.argsort(-np.abs(column))[: np.count_nonzero(np.abs(column) > TELLING)]
    names = dict.fromkeys(fitted.cases[position].source for position in order)
    versions = (_VERSION.search(fitted.cases[position].reference) for position in order)
    version = next(
        (actual_version[0] for actual_version in versions if actual_version),
        "specs/measured/training.csv",
    )
    shown = ", ".join([*list(names)[:MOST], *([".."] if len(names) > MOST else [])])
    return len(order), f"{shown} (the first of {version.removeprefix('github:')})"


def _line(value: float, units: str, spread: float, rows: int, sources: str) -> str:
    few = ", few, so near what was taken before" if rows < FEW_ROWS or spread > WIDE else ""
    kind = "measured" if rows else "assumed"
    source = f"{FITTED} to {rows} rows{few}: {sources}"
    source = source if rows else "no row tells it: as taken before the fit"
    shown = f"{value:.3g}"
    if units in WRITTEN:
        unit, factor = next((u, f) for u, f in WRITTEN[units] if value * f >= 1.0)
        shown = f'"{value * factor:.3g} {unit}"'
    return (
        f'{{ value = {shown}, kind = "{kind}", source = "{source}", uncertainty = {spread:.2g} }}'
    )


def _with(text: str, table: str, key: str, line: str) -> str:
    """Return a file's text with a key of a table set."""
    lines = text.rstrip("\n").split("\n")
    heading = f"[{table}]"
    if heading not in lines:
        before = next((i for i, one in enumerate(lines) if one.startswith("[options.")), len(lines))
        lines[before:before] = [heading, ""] if before < len(lines) else ["", heading]
    start = lines.index(heading) + 1
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("[")), len(lines))
    index = next((i for i in range(start, end) if lines[i].split(" = ")[0] == key), None)
    if index is None:
        lines.insert(start, f"{key} = {line}")
    else:
        lines[index] = f"{key} = {line}"
    return "\n".join(lines) + "\n"


# Errors by class.


def error_table(fitted: Fit, by: str) -> list[list[str]]:
    """Return errors by class or source, as cells of a table."""
    groups: dict[str, list[int]] = {}
    for index, case in enumerate(fitted.cases):
        for name in case.classes if by == "class" else (case.source,):
            groups.setdefault(name, []).append(index)
    columns = {"fitted": fitted.residuals, **fitted.left_out}
    table = [[by, "rows", *(name if name == "fitted" else f".. {name}" for name in columns)]]
    for name, places in sorted(groups.items()):
        cells = []
        for residuals in columns.values():
            sizes = 100.0 * np.abs(np.expm1(residuals[places]))
            cells.append(f"{np.mean(sizes):.1f}, {np.median(sizes):.1f} %")
        table.append([name, f"{len(places)}", *cells])
    return table
