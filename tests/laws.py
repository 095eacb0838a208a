"""Check of formulas' laws on points drawn from their inputs' domains.

One call of a kernel evaluates all moves of all its inputs at all points.  What is drawn is bytes:
0 is the lowest value of a domain, so that hypothesis shrinks a failure to small numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from overhead import VOCABULARY, Formula, Quantity
from overhead.law import Law, power_of
from overhead.quantity import Array
from tests.strategies import LARGEST, POSITIVE

# Sums of unlike terms lose digits: with more of them at hand than the product has, a law is not
# broken by rounding.
EXACT = np.longdouble
FAR = (-3.0, 4.0) if np.finfo(EXACT).eps < 1e-18 else (-2.0, 3.0)
NEAR = (-2.0, 3.0)
POINTS, WIDTH = 32, 2
INPUTS = 40
BYTES = POINTS * WIDTH * INPUTS
ROUNDING = 1e-9
LONG = 1e12  # Longer than all that is drawn
# Factors by which numbers move, and steps of whole ones; the first two are equally far apart.
FACTORS = (1.5, 2.0, 7.0, 300.0)
STEPS = (1.0, 2.0, 7.0, 60.0)
MOVES = 1 + len(FACTORS)  # To the lowest of the domain, too
# Units that are made of others.
MADE = {"W": {"J": 1.0, "s": -1.0}, "bit": {"byte": 1.0}}


def outside_at_lowest(quantity: Quantity) -> bool:
    return quantity.above or quantity.name in POSITIVE


def spread(quantity: Quantity, part: Array) -> Array:
    """Return numbers in a quantity's domain for numbers in 0 to 1, of which 0 is the lowest."""
    low = quantity.minimum if math.isfinite(quantity.minimum) else 0.0
    high = min(quantity.maximum, LARGEST.get(quantity.name, math.inf))
    above = np.maximum(part - 0.15, 0.0) / 0.85
    if quantity.integer:
        # Half of them small, where most cases of a formula are told apart.
        values = low + np.floor(np.where(above < 0.5, 10.0 * above, 5.0 + 120.0 * (above - 0.5)))
        return np.minimum(np.where(part < 0.15, low, values), high)
    if high < math.inf:
        values = low + (high - low) * np.maximum(above, 1e-3)
    else:
        # Near one another, so that no term of a sum hides the others; some far away.
        near = NEAR[0] + (NEAR[1] - NEAR[0]) * np.minimum(above / 0.9, 1.0)
        far = FAR[0] + (FAR[1] - FAR[0]) * 10.0 * (above - 0.9)
        values = low + 10.0 ** np.where(above < 0.9, near, far)
    return values if outside_at_lowest(quantity) else np.where(part < 0.15, low, values)


def drawn(formula: Formula, data: bytes) -> dict[str, Array]:
    """Return points for a formula's inputs out of bytes, the first of which are the first's."""
    parts = np.frombuffer(data, dtype="<u2").reshape(INPUTS, -1) / 65536.0
    return {name: spread(VOCABULARY[name], parts[k]) for k, name in enumerate(formula.inputs)}


def moved(quantity: Quantity, values: Array) -> Array:
    """Return values moved up in their domain in several ways, and to its lowest: a row a way."""
    low = quantity.minimum if math.isfinite(quantity.minimum) else 0.0
    if outside_at_lowest(quantity) and low == 0.0:
        low = 1e-6
    if quantity.integer:
        ways = [values + step for step in STEPS]
    else:
        base = np.where(values == 0.0, 0.5, values)
        ways = [base * factor for factor in FACTORS]
        if quantity.maximum < math.inf:
            room = quantity.maximum - values
            ways = [values + room * part for part in (0.25, 0.5, 0.9, 1.0)]
    high = min(quantity.maximum, LARGEST.get(quantity.name, math.inf))
    return np.stack([*(np.minimum(way, high) for way in ways), np.full_like(values, low)])


class Moves:
    """A formula at points, and at points where each of its inputs is moved alone."""

    def __init__(self, formula: Formula, data: bytes) -> None:
        self.formula = formula
        self.points = drawn(formula, data)
        count = next(iter(self.points.values())).size if self.points else 1
        names = list(self.points)
        rows = 1 + MOVES * len(names)
        columns = [np.broadcast_to(v, (rows, count)).astype(EXACT) for v in self.points.values()]
        self.ways = {}
        for k, name in enumerate(names):
            self.ways[name] = moved(VOCABULARY[name], self.points[name])
            columns[k][1 + MOVES * k : 1 + MOVES * (k + 1)] = self.ways[name]
        with np.errstate(all="ignore"):
            found = np.asarray(formula.kernel(*columns), dtype=EXACT)
        self.values = np.broadcast_to(found, (rows, count))

    @property
    def base(self) -> Array:
        return self.values[0]

    def of(self, name: str, above: float | None = None) -> tuple[Array, Array, Array, Array]:
        """Return an input's values and the formula's, before and after it is moved.

        With `above` only moves among values above that; others stay where they are.
        """
        k = list(self.points).index(name)
        after = self.values[1 + MOVES * k : 1 + MOVES * (k + 1)]
        x, f, ways = self.points[name], self.base, self.ways[name]
        if above is not None:
            stays = (x > above) & (ways > above)
            return x, f, np.where(stays, ways, x), np.where(stays, after, f)
        return x, f, ways, after


def differs(left: Array, right: Array) -> Array:
    """Return where two differ by more than rounding."""
    return ~(
        (left == right) | (np.abs(left - right) <= ROUNDING * np.maximum(abs(left), abs(right)))
    )


def signs(moves: Moves, name: str, above: float | None = None) -> tuple[bool, bool]:
    """Return whether the formula rises, and falls, somewhere as an input grows."""
    x, f, ways, after = moves.of(name, above)
    grows, moves_at_all = ways > x, (ways != x) & differs(f, after)
    if VOCABULARY[name].units == moves.formula.result.units:
        # What is added and taken away again leaves a trace of its size.
        moves_at_all &= abs(after - f) > 1e-15 * np.maximum(x, ways)
    change = np.where(grows, after - f, f - after)
    return bool((moves_at_all & (change > 0.0)).any()), bool((moves_at_all & (change < 0.0)).any())


def breaks_power(moves: Moves, name: str, power: float, above: float | None = None) -> bool:
    x, f, ways, after = moves.of(name, above)
    with np.errstate(all="ignore"):
        scaled = f * (ways / x) ** power
        wrong = differs(after, scaled) & (x != 0.0) & (ways != 0.0)
    return bool(wrong.any()) or (power > 0.0 and above is None and breaks_zero(moves, name))


def breaks_zero(moves: Moves, name: str) -> bool:
    x, f, ways, after = moves.of(name)
    return bool(((x == 0.0) & (f != 0.0)).any() or ((ways == 0.0) & (after != 0.0)).any())


def breaks_line(moves: Moves, name: str, above: float | None = None) -> bool:
    """Return whether three values of an input have a formula that is on no line."""
    x, f, ways, after = moves.of(name, above)
    a, b, c, fa, fb, fc = x, ways[0], ways[1], f, after[0], after[1]
    with np.errstate(all="ignore"):
        line = fa + (fc - fa) * ((b - a) / (c - a))
        size = np.maximum(np.maximum(abs(fa), abs(fb)), abs(fc))
        return bool(((c != a) & (abs(fb - line) > 1e-8 * size)).any())


def breaks_limit(moves: Moves, ends: Mapping[str, float]) -> bool:
    """Return whether the formula isn't 0 where inputs have some values."""
    points = [
        np.full_like(values, ends[name]) if name in ends else values
        for name, values in moves.points.items()
    ]
    with np.errstate(all="ignore"):
        return bool((np.asarray(moves.formula.kernel(*points)) != 0.0).any())


def breaks_hidden(moves: Moves, names: tuple[str, ...]) -> bool:
    """Return whether something shows where all that it hides behind is whole, or takes long."""
    return breaks_limit(moves, {name: min(VOCABULARY[name].maximum, LONG) for name in names})


def breaks_order(moves: Moves, name: str, kind: str) -> bool:
    """Return whether the formula is below an input that it is never below (above: likewise)."""
    x, f, ways, after = moves.of(name)
    whole, values = np.vstack([x[None], ways]), np.vstack([f[None], after])
    rest = moves.values
    below = differs(values, whole) & ((values < whole) if kind == "least" else (values > whole))
    further = differs(rest, np.broadcast_to(x, rest.shape)) & (
        (rest < x) if kind == "least" else (rest > x)
    )
    k = list(moves.points).index(name)
    further[1 + MOVES * k : 1 + MOVES * (k + 1)] = False
    return bool(below.any() or further.any())


BREAKS: dict[str, Callable[[Moves, tuple[str, ...]], bool]] = {
    "zero": lambda moves, names: breaks_zero(moves, names[0]),
    "alone": lambda moves, names: breaks_limit(moves, dict.fromkeys(names, 1.0)),
    "hidden": breaks_hidden,
    "least": lambda moves, names: breaks_order(moves, names[0], "least"),
    "most": lambda moves, names: breaks_order(moves, names[0], "most"),
}
BROKEN = {
    "zero": "is not 0 where 0 is",
    "alone": "is not 0 where 1 is",
    "hidden": "is not hidden behind",
    "least": "passes its least",
    "most": "passes its most",
}


def faults(formula: Formula, law: Law, data: bytes) -> Iterator[str]:
    """Yield which laws don't hold at the points that bytes are."""
    moves = Moves(formula, data)
    if np.isnan(moves.values).any():
        yield "is not a number somewhere"
    for name, kind in law.moving.items():
        above = law.above.get(name)
        rises, falls = signs(moves, name, above)
        way, power = law.direction(name), power_of(kind)
        if way == "free":
            continue
        if way == "flat" and (rises or falls):
            yield f"moves with {name}"
        if power is not None and breaks_power(moves, name, power, above):
            yield f"is not proportional to the power {power:g} of {name}"
        elif power is None and ((way == "up" and falls) or (way == "down" and rises)):
            yield f"does not only go {way} with {name}"
        if kind.startswith("linear") and breaks_line(moves, name, above):
            yield f"is not linear in {name}"
    for kind, names in law.beside.items():
        for some in [names] if kind == "hidden" else [(name,) for name in names]:
            if BREAKS[kind](moves, some):
                yield f"{BROKEN[kind]} {', '.join(some)}"
    yield from unit_faults(formula, moves)


def worked_faults(formula: Formula, law: Law) -> Iterator[str]:
    """Yield which values aren't those worked out by hand."""
    for given, value in law.worked(formula.inputs):
        ours = float(formula.kernel(*(np.asarray(one) for one in given.values())))
        if not math.isclose(ours, value, rel_tol=1e-6, abs_tol=1e-300):
            yield f"is {ours:.9g}, by hand {value:.9g}"


def units_of(quantity: Quantity) -> Mapping[str, float]:
    """Return the power of each unit."""
    powers: dict[str, float] = {}
    for part in quantity.units.split():
        unit = part.rstrip("-0123456789")
        power = float(part[len(unit) :] or 1)
        for base, times in MADE.get(unit, {unit: 1.0} if unit else {}).items():
            powers[base] = powers.get(base, 0.0) + power * times
    return powers


def unit_faults(formula: Formula, moves: Moves) -> Iterator[str]:
    """Yield the units by whose power the formula doesn't scale where its inputs do."""
    if formula.result.integer:
        return  # A whole number, such as of the slowest stage among equals, scales with nothing
    known = {name: units_of(VOCABULARY[name]) for name in formula.inputs}
    result = units_of(formula.result)
    for unit in sorted({unit for powers in known.values() for unit in powers} | set(result)):
        scaled = [
            values.astype(EXACT) * 2.0 ** known[name].get(unit, 0.0)
            for name, values in moves.points.items()
        ]
        with np.errstate(all="ignore"):
            after = np.asarray(formula.kernel(*scaled), dtype=EXACT)
        if differs(moves.base * 2.0 ** result.get(unit, 0.0), after).any():
            yield f"does not scale as {unit}"


# Points at which what moves is looked for: the same each time.
DRAWS = tuple(np.random.default_rng(seed).bytes(BYTES) for seed in range(200))
