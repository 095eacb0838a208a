"""What each given and each assumed constant moves an answer by: its honest error bar.

Each constant is taken at x0.9 and x1.1, all others as they are: set-ups along one axis, which the
engine evaluates in one pass.  A constant is moved before anything is resolved, as if a user gave
it, so that what follows from it follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from overhead.frozen import frozen
from overhead.quantity import VOCABULARY, Quantity
from sweeps.bands import band_of, change_by, percent, written
from sweeps.display import BANDS
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column
from sweeps.engine.program import Program
from sweeps.errors import InputError, nearest, refuse
from sweeps.job import Job, evaluation_of
from sweeps.origin import GIVEN, Origin, words_of
from sweeps.result import Result, of_columns
from sweeps.spec.axis import Axis
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.sweep import Sweep
from sweeps.wrapping import aligned, prose, wrap

# What constants are multiplied by.
LOWER, UPPER = 0.9, 1.1
# What isn't known to some percent: how units convert, what is asked, formats of numbers, and
# choices.  Whole numbers, which are counted or chosen, aren't either.
_FIXED = (
    "hour day kilowatt_hour message_bytes training_tokens parameters document_length "
    "target_memory_fraction weight_bytes gradient_bytes optimizer_bytes "
    "activation_bytes matmul_input_bytes gathered_bytes weight_copy_bytes "
    "tp_gather_byte_ratio communication_bytes mask_bytes single_bytes logit_bytes "
    "placeholder_bytes optimizer_traffic_bytes bf16_layers bf16_attention bf16_experts "
    "attention_tile buckets loss_chunks gathered_layers gathered_sequences "
    "max_live_parameters gathered_non_layer_fraction recompute_layers optimizer_offload "
    "parameter_offload activation_offload offloaded_layers "
    # Rates of which the share that is sustained is varied.
    "peak_measured_matmul_flops output_matmul_flops peak_flops attention_peak_flops "
)
FIXED = frozenset(_FIXED.split())
UNVARIED = "not varied: labels, whole numbers, sizes and formats of numbers"
# The dimension along which set-ups lie.
POINT = "setup"
# Rows of the table; what moves an answer by less than can be read isn't worth a row.
SHOWN, LEAST = 15, 5e-4
# Moved by more than this, the answer isn't the same number; by less, two changes are one.
SAME, ALIKE = 1e-12, 1e-9


def is_constant(name: str) -> bool:
    """Whether a quantity is known to some percent, rather than chosen, counted or asked."""
    return name not in FIXED and not VOCABULARY[name].integer


@frozen()
class Side:
    """A constant at one of its two points."""

    value: float = math.nan  # NaN where its domain has no such point
    answer: float = math.nan  # NaN where there is none
    change: float = math.nan  # Of the answer, as a share of it
    note: str = ""  # Where the point isn't the one asked for, or why there is no answer


@frozen()
class Moved:
    """A constant, and what it moves."""

    name: str
    value: float
    origins: tuple[Origin, ...]  # Where its value comes from
    lower: Side
    upper: Side
    # Other names of one thing with it: factors of a product that are nowhere alone
    factors: tuple[str, ...] = ()

    @property
    def most(self) -> float:
        """The larger of its two changes, without its sign; NaN where neither has an answer."""
        return float(np.fmax(abs(self.lower.change), abs(self.upper.change)))

    def record(self) -> dict[str, object]:
        """Return it as a row, by the names of `COLUMNS`."""
        lower, upper = self.lower, self.upper
        notes = dict.fromkeys(side.note for side in (lower, upper) if side.note)
        return {
            "constant": self.name,
            "value": self.value,
            "units": VOCABULARY[self.name].units,
            "kind": self.origins[0].kind,
            "origin": words_of(self.origins),
            "lower_value": lower.value,
            "upper_value": upper.value,
            "lower_answer": lower.answer,
            "upper_answer": upper.answer,
            "lower_change": lower.change,
            "upper_change": upper.change,
            "note": "; ".join(notes),
        }

    @property
    def holes(self) -> Iterator[Side]:
        """Yield the points at which there is no answer."""
        for side in (self.lower, self.upper):
            if math.isnan(side.answer) and not math.isnan(side.value):
                yield side


@frozen()
class Sensitivity:
    """What constants move an answer by."""

    quantity: str
    answer: float
    moved: tuple[Moved, ...]  # The one that moves it most first
    asked: Mapping[str, object]  # What was given, numbers and labels
    models: tuple[str, ...]  # Whose shapes aren't varied
    band: str = ""  # How far measurements may be from the answer, in words

    def result(
        self, given: Mapping[str, object], more: Sequence[Column] = (), command: Sequence[str] = ()
    ) -> Result:
        """Return it as a labelled dataset with its provenance, and as records.

        `more`: further columns along the constants.
        """
        asked, rows = VOCABULARY[self.quantity], [moved.record() for moved in self.moved]
        own = [_column(name, [row[name] for row in rows], asked) for name in COLUMNS]
        answer = np.array(self.answer)
        about = {**asked.attrs(), "long_name": asked.meaning}
        record = {"quantity": self.quantity, self.quantity: self.answer}
        for column in more:
            assert column.values is not None
            for row, value in zip(rows, column.values.tolist(), strict=True):
                row[column.name] = value
        # Words are coordinates.
        texts, numbers = (
            [
                [column for column in columns if (column.dtype.kind == "U") is text]
                for columns in (own, more)
            ]
            for text in (True, False)
        )
        given_columns = [coordinate(name, (), value) for name, value in self.asked.items()]
        return of_columns(
            [*texts[0], *given_columns, *texts[1]],
            [Column(self.quantity, (), answer.dtype, about, answer), *numbers[0], *numbers[1]],
            title=f"What constants move the {self.quantity.replace('_', ' ')} by",
            spec={"sensitivity": {"quantity": self.quantity, **self.asked}},
            given=given,
            summary=f"Of the {self.quantity}: each constant by itself at x0.9 and x1.1, "
            "all others as they are",
            rows=[record | row for row in rows],
            command=command,
        )

    def lines(self, *, every: bool = False) -> Iterator[str]:
        """Yield it for people, the answer first; `every`: all constants, with their sources."""
        effects = [constant for constant in self.moved if constant.most > SAME]
        shown = effects if every else [effect for effect in effects if effect.most >= LEAST][:SHOWN]
        value = written(self.quantity, self.answer)
        band = self.band and f" ({self.band})"
        if effects:
            first = effects[0]
            sides = [end for end in (first.lower, first.upper) if not math.isnan(end.change)]
            texts = (
                f"{change_by(side.change)} at {_shown(first.name, side.value)}" for side in sides
            )
            setting = _shown(first.name, first.value)
            yield f"{self.quantity} is {value}{band}; {first.name}, {setting}, moves it most:"
            yield f"  {', '.join(texts)}"
        else:
            yield f"{self.quantity} is {value}{band}; no constant moves it"
        yield "each constant by itself at x0.9 and x1.1, all others as they are:"
        rows: list[Sequence[str]] = [("", "value", "x0.9", "x1.1", "from")]
        for moved in shown:
            cells = (_cell(moved, moved.lower, LOWER), _cell(moved, moved.upper, UPPER))
            origin = words_of(moved.origins) if every else _brief(moved.origins)
            rows.append((moved.name, _shown(moved.name, moved.value), *cells, origin))
        body = aligned([row[:-1] for row in rows])
        yield from (f"{line}  {row[-1]}" for line, row in zip(body, rows, strict=True))
        if rest := effects[len(shown) :]:
            most = rest[0].most
            size = "less than 0.1 %" if most < LEAST else f"{percent(most)} at most"
            yield f"  ... and {len(rest)} more move it, by {size} (--verbose)"
        yield from self._rest(every=every)

    def _rest(self, *, every: bool) -> Iterator[str]:
        """Yield what stands below the table: factors, holes, and what moves nothing."""
        texts = [
            f"{name} with {constant.name}" for constant in self.moved for name in constant.factors
        ]
        yield from _listed("factors of one product, so named once", texts)
        holes = [
            f"{constant.name} = {_shown(constant.name, side.value)} ({side.note})"
            for constant in self.moved
            for side in constant.holes
        ]
        yield from _listed("no answer at", holes)
        zero = [
            constant.name
            for constant in self.moved
            if math.isnan(constant.lower.value) and math.isnan(constant.upper.value)
        ]
        yield from _listed("0, or at its limits, so not moved", zero)
        idle = [constant.name for constant in self.moved if constant.most <= SAME]
        if every:
            yield from _listed("move nothing", idle)
        elif idle:
            yield f"{len(idle)} more move nothing (--verbose)"
        kept = f", and the shapes of {', '.join(self.models)}" if self.models else ""
        yield from wrap(UNVARIED + kept, prose())


def _listed(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"{title}:"
        yield from wrap("; ".join(texts), prose(), initial_indent="  ", subsequent_indent="  ")


def _shown(name: str, value: float) -> str:
    return written(name, value)


def _cell(moved: Moved, side: Side, factor: float) -> str:
    """Return what one point moves, and the point where it isn't the usual one."""
    if math.isnan(side.value):
        return side.note
    text = "no answer" if math.isnan(side.change) else change_by(side.change)
    usual = math.isclose(side.value, factor * moved.value, rel_tol=SAME)
    return text if usual else f"{text} at {_shown(moved.name, side.value)}"


def _brief(origins: Sequence[Origin]) -> str:
    first = origins[0]
    return f"{first.short} ({first.owner})" if first.owner else first.short


# Of a file: the columns, what they are, and their units; empty: the answer's.
COLUMNS = {
    "constant": ("name of the constant", "1"),
    "units": ("unit of the constant", "1"),
    "kind": ("whether it is given, of a specification, measured or assumed", "1"),
    "origin": ("where its value comes from", "1"),
    "note": ("where a point isn't at x0.9 or x1.1, and why there is no answer", "1"),
    "value": ("value of the constant, in its unit", "1"),
    "lower_value": ("value at its lower point, x0.9, in its unit", "1"),
    "upper_value": ("value at its upper point, x1.1, in its unit", "1"),
    "lower_answer": ("{}, with the constant at its lower point", ""),
    "upper_answer": ("{}, with the constant at its upper point", ""),
    "lower_change": ("change of the answer at the constant's lower point, as a share of it", "1"),
    "upper_change": ("change of the answer at the constant's upper point, as a share of it", "1"),
}


def _column(name: str, values: Sequence[object], asked: Quantity) -> Column:
    words, units = COLUMNS[name]
    array = np.array(values)
    about = {"long_name": words.format(asked.meaning)}
    if array.dtype.kind == "f":
        about["units"] = units or asked.units
    return Column(name, ("constant",), array.dtype, about, array)


# The points of a constant.


def points_of(name: str, value: float) -> tuple[Side, Side]:
    """Return a constant's lower and upper point, without answers."""
    quantity = VOCABULARY[name]
    sides = []
    for wanted in (LOWER * value, UPPER * value):
        taken = min(max(wanted, quantity.minimum), quantity.maximum)
        if taken == value or (quantity.above and taken <= quantity.minimum):
            sides.append(Side(note="at its limit" if value else "0 has no share"))
        else:
            sides.append(Side(taken, note="" if taken == wanted else f"the limit, {taken:g}"))
    lower, upper = sides
    return lower, upper


def sensitivity_of(job: Job, quantity: str, folders: Sequence[Path] = ()) -> Sensitivity:
    """Return what each constant moves a quantity of a job's one cell by."""
    job = _of_one_cell(job)
    if quantity not in VOCABULARY:
        refuse("sensitivity", quantity, "is unknown", nearest(quantity, VOCABULARY))
    if quantity in job.program.grid.columns:
        refuse("sensitivity", quantity, "is given", "what is computed")
    base = _program([job.resolved], quantity)
    given, known = job.sweep.constants, job.resolved.constants
    model_figures = {name for model in job.resolved.models for name in model.figures} - given.keys()
    used = (base.used() | given.keys()) - model_figures
    names = [
        name
        for name, value in known.items()
        if name in used and is_constant(name) and math.isfinite(value)
    ]
    setups = Setups(job.resolved, names, given, lambda name, v: _moved(job, name, v, folders))
    answers, reasons = _answers(setups.every, quantity)
    (answer, *_) = answers
    if not math.isfinite(answer) or answer == 0.0:
        wrong = f"is {answer:g}: shares of it aren't defined"
        wrong = reasons[0] if reasons[0] and math.isnan(answer) else wrong
        refuse("sensitivity", quantity, wrong, "a question that has an answer")
    models = tuple(model.name for model in job.resolved.models)
    band = ""
    if quantity in BANDS:
        cell = evaluation_of(job)
        ends = {end: cell.value(end, {}) for end in BANDS[quantity]}
        band = band_of(quantity, {n: float(v) for n, v in ends.items() if v is not None}.get)
    asked = {**given, **job.sweep.labels}
    return Sensitivity(quantity, answer, setups.rows(answers, reasons), asked, models, band)


class Setups:
    """What everything is as it is, and with each constant at its two points, one after the other.

    `moved` says what is with a constant at another value, as if a user gave it.
    """

    def __init__(
        self,
        base: Resolved,
        names: Sequence[str],
        given: Mapping[str, object],
        moved: Callable[[str, float], Resolved],
    ) -> None:
        self.given = given
        self.sides = {name: points_of(name, base.constants[name]) for name in names}
        self.every = [base]
        self.places: dict[tuple[str, int], int] = {}  # Of a constant's points among them
        self._refused: dict[tuple[str, int], str] = {}
        for name, at, value in (
            (n, at, side.value) for n, sides in self.sides.items() for at, side in enumerate(sides)
        ):
            if math.isnan(value):
                continue
            try:
                self.every.append(moved(name, value))
            except InputError as error:
                if name in given:
                    self._refused[name, at] = "; ".join(error.faults)
                    continue
                # What isn't for users to give.
                self.every.append(replace(base, constants={**base.constants, name: value}))
            self.places[name, at] = len(self.every) - 1

    def rows(self, answers: Sequence[float], reasons: Sequence[str]) -> tuple[Moved, ...]:
        """Return the constants with the answers at their points, the one that moves most first."""
        known, origins = self.every[0].constants, self.every[0].origins

        def side(name: str, at: int) -> Side:
            known_side, index = self.sides[name][at], self.places.get((name, at))
            if index is None:
                return replace(known_side, note=self._refused.get((name, at), known_side.note))
            value = answers[index]
            why = reasons[index] if math.isnan(value) else ""
            note = "; ".join(filter(None, (known_side.note, why)))
            return replace(known_side, answer=value, change=value / answers[0] - 1.0, note=note)

        def of(name: str) -> tuple[Origin, ...]:
            return (Origin(None, GIVEN),) if name in self.given else origins[name]

        return in_order(
            _without_factors(
                Moved(name, known[name], of(name), side(name, 0), side(name, 1))
                for name in self.sides
            )
        )


def _without_factors(rows: Iterable[Moved]) -> list[Moved]:
    """Name one thing once: of factors of a product alone the one that is given, or has a unit."""
    merged: list[Moved] = []
    first = sorted(
        rows, key=lambda row: (row.origins[0].kind != GIVEN, VOCABULARY[row.name].units == "1")
    )
    for moved in first:
        for index, other in enumerate(merged):
            if _is_factor(moved, other):
                merged[index] = replace(other, factors=(*other.factors, moved.name))
                break
        else:
            merged.append(moved)
    return merged


def _is_factor(constant: Moved, other: Moved) -> bool:
    """Whether two constants move the answer by the same wherever both are at their shares."""
    both = [
        (mine.change, theirs.change)
        for factor, mine, theirs in (
            (LOWER, constant.lower, other.lower),
            (UPPER, constant.upper, other.upper),
        )
        if math.isclose(mine.value, factor * constant.value, rel_tol=SAME)
        and math.isclose(theirs.value, factor * other.value, rel_tol=SAME)
        and not (math.isnan(mine.change) or math.isnan(theirs.change))
    ]
    moved = [pair for pair in both if abs(pair[0]) > ALIKE]
    return bool(moved) and all(math.isclose(*pair, rel_tol=ALIKE) for pair in both)


def in_order(rows: Sequence[Moved]) -> tuple[Moved, ...]:
    """Return constants in the order of what they move, the most first; then by name."""
    return tuple(
        sorted(rows, key=lambda moved: (1.0 if math.isnan(moved.most) else -moved.most, moved.name))
    )


def _of_one_cell(job: Job) -> Job:
    """Return a job with what axes of one point give as constants and labels; refuse others."""
    if job.program.grid.cells != 1:
        sizes = ", ".join(f"{name} {n}" for name, n in job.program.grid.sizes.items() if n > 1)
        wrong, allowed = "a sensitivity is of one answer", "one value for each argument"
        refuse("sensitivity", sizes, wrong, allowed)

    def flat(source: Sweep | Resolved) -> Any:
        constants, labels = dict(source.constants), dict(source.labels)
        for name, values in (pair for axis in source.axes for pair in axis.columns.items()):
            if values.dtype.kind in "UO":
                labels[name] = str(values[0])
            else:
                constants[name] = float(values[0])
        return replace(source, axes=(), constants=constants, labels=labels)

    resolved = flat(job.resolved)
    constants = {name: float(v.reshape(-1)[0]) for name, (_, v) in job.resolved.fields.items()}
    resolved = replace(resolved, constants={**resolved.constants, **constants}, fields={})
    return replace(job, sweep=flat(job.sweep), resolved=resolved)


def _moved(job: Job, name: str, value: float, folders: Sequence[Path]) -> Resolved:
    """Return what everything is with one constant at another value, as if a user gave it."""
    constants = {**job.sweep.constants, name: value}
    return resolve(replace(job.sweep, constants=constants), folders)


def _program(setups: Sequence[Resolved], quantity: str) -> Program:
    """Return set-ups as one program: what differs among them lies along one axis."""
    first = setups[0]
    columns: dict[str, Any] = {}
    constants: dict[str, float] = {}
    for name in first.constants:
        values = np.array([setup.constants[name] for setup in setups])
        if np.array_equal(values, np.full_like(values, values[0]), equal_nan=True):
            constants[name] = float(values[0])
        else:
            columns[name] = values
    axes = (Axis(POINT, columns),) if columns else ()
    return Program.of_sweep(replace(first, axes=axes, constants=constants), (quantity,))


def _groups(setups: Sequence[Resolved]) -> Iterable[list[int]]:
    """Return the places of set-ups that one program serves: of which the same is known."""
    groups: dict[object, list[int]] = {}
    for number, setup in enumerate(setups):
        labels, implied = (frozenset(said.items()) for said in (setup.labels, setup.implied))
        groups.setdefault((frozenset(setup.constants), labels, implied), []).append(number)
    return groups.values()


def _answers(setups: Sequence[Resolved], quantity: str) -> tuple[list[float], list[str]]:
    """Return the quantity at every set-up, and why it isn't there."""
    answers, reasons = [math.nan] * len(setups), [""] * len(setups)
    for numbers in _groups(setups):
        program = _program([setups[number] for number in numbers], quantity)
        arrays, mask = program.evaluate(), program.faults.masking(quantity)
        columns = (
            np.broadcast_to(arrays[n].reshape(-1), (len(numbers),)) for n in (quantity, "status")
        )
        for index, answer, bits in zip(numbers, *(each.tolist() for each in columns), strict=True):
            answers[index] = answer
            reasons[index] = ", ".join(program.faults.named(bits & mask)).replace("_", " ")
    return answers, reasons
