"""An axis: one dimension of a sweep, as a small table, and its values from text or lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.frozen import frozen
from overhead.labels import CHOICES, LABELS, SWITCHES, usual_spelling
from overhead.plan import BATCHES, DEGREES
from overhead.quantity import VOCABULARY
from overhead.transformer import SHAPES
from sweeps import display
from sweeps.errors import InputError, fault, nearest, needs, refuse, tell_all
from sweeps.spec.units import format_quantity, has_unit, parse_quantity

Floats = NDArray[np.float64]

LARGEST_AXIS = 10**8
_RULE = re.compile(r"(?P<kind>x|\+|log|lin)\s*(?P<amount>.+)")
_RULES = "write first:last:x2 (factor), :+1 (step), :log9 or :lin9 (number of points)"


@frozen(slots=True)
class _Field:
    """What the values are of."""

    name: str
    units: str
    integer: bool
    bare_is_si: bool
    allow_infinite: bool

    def read(self, text: object, *, finite: bool = False) -> float:
        value = parse_quantity(
            text,
            self.units,
            field=self.name,
            bare_is_si=self.bare_is_si,
            allow_infinite=self.allow_infinite and not finite,
        )
        if self.integer and math.isfinite(value) and not value.is_integer():
            raise self.error(text, "is not whole", "write a whole number")
        return value

    def error(self, text: object, wrong: str, allowed: str) -> InputError:
        return InputError(fault(self.name, text, wrong, allowed))


def parse_values(
    text: object,
    units: str,
    *,
    field: str,
    integer: bool = False,
    bare_is_si: bool,
    allow_infinite: bool = False,
) -> Floats:
    """Read the values of a numeric axis."""
    about = _Field(field, units, integer, bare_is_si, allow_infinite)
    pieces = list(_pieces(text))
    if not pieces:
        raise about.error(text, "holds no value", "give one value at least")
    if "" in [piece for piece in pieces if isinstance(piece, str)]:
        raise about.error(text, "has a comma without a value", "put single commas between values")
    if isinstance(text, str) and _GROUPED.fullmatch(text):
        wrong, allowed = "commas separate values", f"write {text.replace(',', '')}"
        raise about.error(text, wrong, allowed)
    faults = _half_labelled(pieces, about)
    arrays: list[Floats] = []
    for piece in pieces:
        try:
            ranged = isinstance(piece, str) and ":" in piece
            arrays.append(_range(str(piece), about) if ranged else np.array([about.read(piece)]))
        except InputError as error:
            faults += error.faults
        if sum(map(len, arrays)) > LARGEST_AXIS:
            faults += _too_many(about, text, sum(map(len, arrays))).faults
            break
    tell_all(list(dict.fromkeys(faults)))
    values = np.sort(np.concatenate(arrays))
    twice = list(dict.fromkeys(values[1:][values[1:] == values[:-1]].tolist()))
    if twice:
        raise InputError(
            [
                fault(field, format_quantity(value, units), "is given twice", "give it once")
                for value in twice[:10]
            ]
        )
    return values


def _pieces(text: object) -> Iterable[object]:
    """Return what stands between commas, in lists or texts."""
    if isinstance(text, str):
        return [piece.strip() for piece in text.split(",")] if text.strip() else []
    if isinstance(text, np.ndarray):
        text = text.ravel().tolist()
    if isinstance(text, (list, tuple, range)):
        return [
            piece for part in text for piece in (_pieces(part) if isinstance(part, str) else [part])
        ]
    return [text]


def _half_labelled(pieces: Iterable[object], about: _Field) -> list[str]:
    """Refuse numbers without a unit beside numbers with one."""
    numbers = [
        part.strip() if isinstance(part, str) else part
        for piece in pieces
        for part in (_ends(piece) if isinstance(piece, str) else [piece])
    ]
    # A zero is the same in every unit, and so is what isn't finite.
    bare = [part for part in numbers if not has_unit(part) and not _needs_no_unit(part)]
    labelled = [part for part in numbers if has_unit(part)]
    if about.units == "1" or not bare or not labelled or not about.bare_is_si:
        return []
    allowed = f"give it one, as '{labelled[0]}' has"
    return [
        fault(about.name, part, "has no unit beside values that have one", allowed) for part in bare
    ]


def _ends(piece: str) -> list[str]:
    parts = piece.split(":")
    step = [parts[2].strip()[1:]] if len(parts) == 3 and parts[2].strip()[:1] == "+" else []
    return parts[:2] + step


def _needs_no_unit(part: object) -> bool:
    try:
        value = float(str(part))
    except ValueError:
        return True  # what can't be read is refused for that
    return not value or not math.isfinite(value)


def _range(text: str, about: _Field) -> Floats:
    """Return a range's values; every fault of its three parts at once."""
    parts = [part.strip() for part in text.split(":")]
    rule = _RULE.fullmatch(parts[2]) if len(parts) == 3 else None
    if rule is None:
        raise about.error(text, "is not a range", _RULES)
    faults: list[str] = []
    ends: list[float] = []
    for part in parts[:2]:
        try:
            ends.append(about.read(part, finite=True))
        except InputError as error:
            faults += error.faults
    try:
        amount = _amount(rule["kind"], rule["amount"], text, about)
    except InputError as error:
        faults += error.faults
    tell_all(faults)
    first, last = ends
    if first > last:
        raise about.error(text, "runs downwards", "write the smaller end first")
    if rule["kind"] in {"x", "log"} and first <= 0:
        raise about.error(text, "starts at or below zero", "use :lin9 or :+1, or start above zero")
    return _MAKERS[rule["kind"]](first, last, amount, text, about)


def _amount(kind: str, amount: str, text: str, about: _Field) -> float:
    """Read what follows a rule's name: a factor, a step, a number of points."""
    if kind == "+":
        step = about.read(amount, finite=True)
        if step <= 0:
            raise about.error(text, "has a step that leads nowhere", "give a step above zero")
        return step
    value = parse_quantity(amount, "1", field=about.name, bare_is_si=True)
    if kind == "x" and value <= 1:
        raise about.error(text, "has a factor that leads nowhere", "give a factor above 1")
    if kind != "x" and (value < 2 or not value.is_integer()):
        points = "1 point" if value == 1 else f"{amount} points"
        raise about.error(text, f"is a range of {points}", "2 or more, a whole number")
    return value


def _factor(first: float, last: float, factor: float, text: str, about: _Field) -> Floats:
    count = _steps((math.log2(last) - math.log2(first)) / math.log2(factor), text, about)
    values = _tidy(first * np.power(factor, np.arange(count, dtype=np.float64)))
    values[0] = first
    return _whole(_up_to(last, values), about)


def _step(first: float, last: float, step: float, text: str, about: _Field) -> Floats:
    return _up_to(last, _multiples(first, step, _steps((last - first) / step, text, about), 1))


def _steps(steps: float, text: str, about: _Field) -> int:
    """Return how many values to compute for a number of steps: one that may be too many."""
    # Rounding alone must not cost the last value, nor add one to what a refusal tells.
    count = steps * (1 + 1e-14) + 1
    _check_size(math.floor(count) if count < 1e15 else count, text, about)
    return math.floor(steps) + 2


def _linear(first: float, last: float, points: float, text: str, about: _Field) -> Floats:
    _check_points(first, last, points, text, about)
    if not math.isfinite(last - first):
        raise about.error(text, "is too wide for 64-bit numbers", "write ends that are nearer")
    values = _multiples(first, last - first, int(points), int(points) - 1)
    values[0], values[-1] = first, last
    return _whole(values, about)


def _logarithmic(first: float, last: float, points: float, text: str, about: _Field) -> Floats:
    _check_points(first, last, points, text, about)
    octaves = math.log2(last) - math.log2(first)
    part, whole = np.modf(np.arange(points) * octaves / (points - 1))
    values = _tidy(np.ldexp(first * np.exp2(part), whole.astype(np.int64)))
    values[0], values[-1] = first, last
    return _whole(values, about)


_MAKERS: dict[str, Callable[[float, float, float, str, _Field], Floats]] = {
    "x": _factor,
    "+": _step,
    "lin": _linear,
    "log": _logarithmic,
}


def _check_points(first: float, last: float, points: float, text: str, about: _Field) -> None:
    if first == last:
        raise about.error(text, "has one end twice", "write the value alone")
    _check_size(points, text, about)


def _check_size(count: float, text: str, about: _Field) -> None:
    if count > LARGEST_AXIS:
        raise _too_many(about, text, count)


def _too_many(about: _Field, text: object, count: float) -> InputError:
    shown = f"{int(count):,}" if count < 1e15 else f"{count:.3g}"
    allowed = f"{LARGEST_AXIS:,} at most in one axis: a coarser step or a log range has fewer"
    return about.error(text, f"is {shown} values", allowed)


def _multiples(first: float, step: float, count: int, parts: int) -> Floats:
    """Return first + step k / parts for k from 0, rounded once where the decimals are short."""
    steps = np.arange(count, dtype=np.float64)
    for decimals in range(23):  # 10**22 is the largest power of ten that a float64 holds exactly
        scale = 10**decimals
        if max(abs(first), abs(step)) * scale >= 2**53:
            break
        start, stride = round(first * scale), round(step * scale)
        if start / scale != first or stride / scale != step:
            continue
        if (
            abs(start * parts) + stride * count < 2**53
            and int(float(scale * parts)) == scale * parts
        ):
            return np.asarray((start * parts + stride * steps) / float(scale * parts))
        break
    return np.asarray(first + step * (steps / parts))


def _tidy(values: Floats) -> Floats:
    """Put values that are a hair off one of 12 digits onto it: 1000 for 999.9999999999998."""
    with np.errstate(over="ignore", invalid="ignore"):
        scale = 10.0 ** (11 - np.floor(np.log10(values)))
        near = np.round(values * scale) / scale
    return np.where(np.abs(near - values) <= 1e-14 * values, near, values)


def _up_to(last: float, values: Floats) -> Floats:
    """Drop what lies above the end; what is there but for rounding is the end."""
    hair = min(1e-13 * max(abs(last), abs(values[0])), 1e-6 * (values[1] - values[0]))
    values = values[values <= last + hair]
    if abs(values[-1] - last) <= hair:
        values[-1] = last
    return values


def _whole(values: Floats, about: _Field) -> Floats:
    return np.unique(np.rint(values)) if about.integer else values


def pieces(value: Any) -> list[Any]:
    """Return the values of a table's column one by one: what stands between commas."""
    listed = value if isinstance(value, list) else [value]
    return [
        piece for item in listed for piece in (item.split(",") if isinstance(item, str) else [item])
    ]


# All parallel plans of a number of GPUs, as the columns of one axis.

# Degrees that an enumeration may vary; what they leave of the GPUs is data-parallel.
ENUMERATED = ("tp", "cp", "pp", "ep")
# More plans than this are a slip of the pen, as are more GPUs or sequences to divide.
MOST_PLANS = 10**6
MOST_DIVIDED = 10**12


def divisors(number: int, name: str = "number") -> tuple[int, ...]:
    """Return the divisors of a number, in order; of one too large, refuse what it is of."""
    if number > MOST_DIVIDED:
        refuse(name, f"{number:.4g}", "more than plans can divide", f"at most {MOST_DIVIDED:,}")
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return tuple(sorted({*small, *(number // k for k in small)}))


def every_plan(
    degrees: Sequence[str], limits: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Enumerate parallel plans."""
    faults = [
        fault("every", name, "no such degree", nearest(name, ENUMERATED))
        for name in degrees
        if name not in ENUMERATED
    ]
    if "world_size" not in limits:
        faults.append(needs("'every'", "the number of GPUs that it splits", "world_size"))
    tell_all(faults)
    rows: list[tuple[int, ...]] = []
    for world in limits["world_size"]:
        rows += _of_world(int(world), degrees, limits)
        if len(rows) > MOST_PLANS:
            wrong = f"more than {MOST_PLANS:,} plans"
            refuse("every", ",".join(degrees), wrong, "limit the degrees")
    if not rows:
        sizes = ", ".join(f"{v:g}" for v in limits["world_size"])
        wrong = "no degrees of those allowed divide it"
        refuse("world_size", sizes, wrong, "other degrees, or another number")
    columns = np.array(rows, dtype=np.float64).T.copy()
    return dict(zip(("world_size", *degrees, "dp"), columns, strict=True))


def _of_world(
    world: int, degrees: Sequence[str], limits: Mapping[str, NDArray[np.float64]]
) -> list[tuple[int, ...]]:
    """Return the plans of a number of GPUs: this, the degrees, and what they leave."""
    allowed = {name: {int(v) for v in limits[name]} for name in degrees if name in limits}
    every = divisors(world, "world_size")
    dense = [name for name in degrees if name != "ep"]
    splits: list[tuple[tuple[int, ...], int]] = [((), world)]
    for name in dense:
        degrees_allowed = [d for d in every if d in allowed.get(name, {d})]
        splits = [
            ((*values, d), left // d)
            for values, left in splits
            for d in degrees_allowed
            if left % d == 0
        ]
    if "ep" not in degrees:
        return [(world, *values, left) for values, left in splits]
    rows = []
    position = degrees.index("ep")
    stages = dense.index("pp") if "pp" in dense else None
    of_stage: dict[int, list[int]] = {}
    for values, left in splits:
        stage = world if stages is None else world // values[stages]
        if stage not in of_stage:
            some = divisors(stage)
            of_stage[stage] = [ep for ep in some if ep in allowed.get("ep", {ep})]
        rows += [
            (world, *values[:position], ep, *values[position:], left) for ep in of_stage[stage]
        ]
    return rows


# What flags are given: numbers of a quantity, or names.


def typed(given: object, values: Floats, value: float, units: str) -> str:
    """Return one of the values that were given, as it was typed where it stands alone."""
    alone = given[0] if isinstance(given, list | tuple) and len(given) == 1 else given
    single = values.size == 1 and not isinstance(alone, list | tuple)
    return str(alone) if single else format_quantity(value, units)


# Digits in groups of three, as people write large numbers: of values the commas are between them.
_GROUPED = re.compile(r"\s*\d{1,3}(,\d{3})*,0\d\d(,\d{3})*\s*[a-zA-Z/]*\s*")


def numbers_of(name: str, text: str, flag: str) -> NDArray[np.float64]:
    """Read one value or many of a quantity."""
    quantity = VOCABULARY[name]
    values = parse_values(
        text,
        quantity.units,
        field=flag,
        integer=quantity.integer,
        bare_is_si=True,
        # A rate may be so high that it takes no time: a part that a library doesn't have.
        allow_infinite=quantity.units == "byte s-1",
    )
    wrong = quantity.outside(values)
    if wrong.any():
        shown = typed(text, values, float(values[wrong][0]), quantity.units)
        refuse(flag, shown, "out of range", f"must be {quantity.domain()}")
    return values


def names_of(text: str, known: Sequence[str], flag: str) -> tuple[str, ...]:
    """Read one name or many, or ``all``."""
    words = [usual_spelling(word.strip(), known) for word in text.split(",")]
    if words == ["all"]:
        return tuple(known)
    faults = [
        fault(flag, word, "is unknown", nearest(word, known, shown=20))
        for word in words
        if word not in known
    ]
    twice = {word for word in words if words.count(word) > 1}
    faults += [fault(flag, word, "is given twice", "give it once") for word in sorted(twice)]
    tell_all(faults)
    return tuple(words)


# An axis: one dimension of a sweep, as a small table.

# Labels that only the model of a training step has.
OF_TRAINING = tuple(name for name, label in LABELS.items() if label.training)
# Labels that only overlap asked for by itself has.
OF_OVERLAP = tuple(name for name, label in LABELS.items() if label.overlap)


@frozen(slots=True)
class Axis:
    """One dimension of a sweep: a small table, a row a point, with a column or several."""

    name: str  # The dimension
    columns: Mapping[str, NDArray[Any]]  # Values along it by quantity or label; all of one length

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def switching(self) -> tuple[str, ...]:
        """Its columns that decide which formulas hold."""
        return tuple(name for name in self.columns if name in SWITCHES)

    @property
    def labels(self) -> bool:
        """Whether the dimension's own column holds labels."""
        column = self.columns.get(self.name)
        return column is not None and column.dtype.kind in "UO"


# What makes a sweep one of training steps, and what it asks for if nothing is said.

OF_A_PLAN = (
    *DEGREES,
    *BATCHES,
    *SHAPES,
    "world_size",
    "zero_stage",
    "sequence_parallel",
    "sequence_length",
    "parameters",
)

# What is computed where nothing is asked for by name: of collective operations, of training steps.
# What can't be had is left out, and told.
DEFAULT_QUANTITIES = display.rows("collective", screen="usual")
TRAINING_QUANTITIES = display.rows(*display.OF_A_STEP, screen="usual")


def is_overlap(given: Collection[str]) -> bool:
    """Return whether what is given is of computation and communication at once, by themselves."""
    return bool(set(OF_OVERLAP) & set(given))


def is_training(given: Collection[str]) -> bool:
    """Return whether what is given is of a training step rather than of one operation."""
    return bool({*OF_A_PLAN, *OF_TRAINING} & set(given)) and not is_overlap(given)


# The values that labels may have: of a list, or of the catalogue.

# Labels whose values are files, with the folder where they are.
CATALOGUED = {
    "hardware": "hardware",
    "model": "models",
    "framework": "frameworks",
    "software": "software",
}


def label_values(name: str) -> tuple[str, ...]:
    """Return the values that a label may have; empty where the catalogue says."""
    if name == "topology":
        return tuple(NETWORKS)
    if name == "algorithm":
        return (*CHOICES, *ALGORITHMS.names())
    if name == "recipe":
        from overhead.memory.quantities import RECIPES

        return tuple(RECIPES)
    return LABELS[name].values if name in LABELS else ()
