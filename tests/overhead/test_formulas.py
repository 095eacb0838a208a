"""Every formula of the registry, and every algorithm's statements: values, units, shapes, LaTeX."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest
from matplotlib.mathtext import MathTextParser

from overhead import ALGORITHMS, REGISTRY, VOCABULARY, Algorithm, Formula, Quantity
from overhead import expression as ex
from overhead.evaluation import Evaluation
from overhead.everything import formulas
from overhead.statements import statements
from sweeps.latex import equation, latex
from tests.each import each
from tests.strategies import POINTS, drawing, networks, prices, quantities
from tests.tables import examples

# Other tests may declare formulas of their own.
FORMULAS = formulas()
KEYS = tuple(ALGORITHMS)
NETWORKS = tuple(dict.fromkeys(key[:2] for key in KEYS))
SHORT_LATEX = 350
COMMAND = re.compile(r"\\[A-Za-z]+|[_^]")
STATEMENT_UNITS = {"steps": "1", "time": "s", "sent_bytes": "byte", "link_bytes": "byte"}

every_formula = pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
every_algorithm = each("key", KEYS)
every_network = pytest.mark.parametrize(
    ("topology", "collective"), NETWORKS, ids=map("-".join, NETWORKS)
)
fewer = drawing(0.125, least=6)


# Values.


def test_declarations_hold_together() -> None:
    for formula in FORMULAS:
        formula.check()
        # What takes nothing is a number.
        assert formula.inputs or re.fullmatch(r"[\d.]+", formula.expression), formula.name
        assert formula.reference.startswith(formula.source.citation), formula.name
        for label, value in formula.when.items():
            assert label.isidentifier(), formula.name
            assert all(value.split("|")), formula.name


@every_formula
@fewer
def test_a_kernel_is_what_it_states(formula: Formula, rng: np.random.Generator) -> None:
    columns = quantities(formula.inputs, rng)
    before = {name: column.copy() for name, column in columns.items()}
    for column in columns.values():
        column.flags.writeable = False
    with np.errstate(divide="raise", invalid="raise"):
        given_by_kernel = np.asarray(formula.kernel(*columns.values()))
    with np.errstate(all="ignore"):
        given_by_text = ex.evaluate(formula.expression, columns)

    shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
    assert given_by_kernel.shape == shape
    assert given_by_kernel.dtype == np.float64
    np.testing.assert_allclose(
        given_by_kernel, np.broadcast_to(given_by_text, shape), rtol=1e-11, atol=0.0
    )
    for name, column in before.items():
        assert np.array_equal(columns[name], column)
    outside = formula.result.outside(given_by_kernel)
    assert not outside.any(), f"{given_by_kernel[outside]} isn't {formula.result.domain()}"

    spread = {name: np.broadcast_to(column, shape) for name, column in columns.items()}
    alone = [
        formula.kernel(*(np.asarray(column[cell]) for column in spread.values()))
        for cell in np.ndindex(shape)
    ]
    assert {np.shape(value) for value in alone} == {()}
    np.testing.assert_allclose(given_by_kernel.ravel(), alone, rtol=1e-15, atol=0.0)


def test_ufuncs_are_their_kernels() -> None:
    columns = np.random.default_rng(1).uniform(1.0, 9.0, (8, 3))
    for formula in FORMULAS:
        if formula.ufunc is not None:
            values = columns[: len(formula.inputs)]
            ours, theirs = formula.kernel(*values), formula.ufunc(*values, out=np.empty(3))
            np.testing.assert_array_equal(ours, theirs, formula.name)


@every_network
@fewer
def test_an_algorithm_costs_what_it_states(
    topology: str, collective: str, rng: np.random.Generator
) -> None:
    """On all shapes of networks at once, with the registry's formulas from cost to time."""
    drawn = prices(topology, rng)
    for algorithm in ALGORITHMS.of(topology, collective):
        columns = {**networks(algorithm), **drawn, "hops": np.asarray(3.0)}
        evaluation = Evaluation(columns, labels(algorithm), algorithm)
        known = {name: evaluation[name] for name in named(algorithm)}
        for quantity, text in statements(algorithm).items():
            with np.errstate(all="ignore"):
                given = ex.evaluate(text, known)
            ours = evaluation[quantity]
            shape = (POINTS, len(columns["ranks"]))
            assert np.broadcast_shapes(np.shape(ours), shape) == shape
            assert not VOCABULARY[quantity].outside(np.asarray(ours)).any()
            one, other = np.broadcast_to(ours, shape), np.broadcast_to(given, shape)
            what = f"{algorithm.name}: {quantity}"
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=0.0, err_msg=what)


def named(algorithm: Algorithm) -> set[str]:
    return {name for text in statements(algorithm).values() for name in ex.names(text)}


def labels(algorithm: Algorithm) -> dict[str, str]:
    return {
        "shape": "three_levels" if algorithm.topology == "hierarchical" else "flat",
        "phases": "sequential",
        "reduction": "free",
        "latency_per": "hop",
        "link": "auto" if algorithm.topology == "hierarchical" else "intra",
    }


# Units: seconds, joules and bytes.  A bit is one of a byte, so that 8 has no unit.


class UnitError(Exception):
    """Quantities of different units are added, compared or chosen from."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Powers of base units; `any` for the literal 0 beside something else: it has every unit."""

    powers: tuple[tuple[str, float], ...] = ()
    any: bool = False

    @staticmethod
    def of(value: Any) -> Unit:
        return value if isinstance(value, Unit) else Unit(any=value == 0.0)

    @staticmethod
    def parse(text: str) -> Unit:
        powers: Counter[str] = Counter()
        for word in re.sub(r"\bW\b", "J s-1", text).split():
            name, power = re.fullmatch(r"([A-Za-z]*)(-?\d*)", word).groups()  # type: ignore[union-attr]
            powers["byte" if name == "bit" else name] += int(power or 1)
        powers.pop("", None)
        return Unit(tuple(sorted(powers.items())))

    def same(self, other: Any) -> Unit:
        """Return the unit of both, which must be one."""
        other = Unit.of(other)
        if self.any or other.any:
            return other if self.any else self
        if self.powers != other.powers:
            message = f"{self.powers} beside {other.powers}"
            raise UnitError(message)
        return self

    def pure(self) -> Unit:
        """Return that there is no unit; there must be none."""
        self.same(Unit())
        return Unit()

    def times(self, other: Any, sign: int = 1) -> Unit:
        powers = dict(self.powers)
        for name, power in Unit.of(other).powers:
            powers[name] = powers.get(name, 0.0) + sign * power
        return Unit(tuple(sorted((name, power) for name, power in powers.items() if power)))

    def __add__(self, other: Any) -> Unit:
        return self.same(other)

    __radd__ = __sub__ = __rsub__ = __mod__ = __add__

    def __neg__(self) -> Unit:
        return self

    def __mul__(self, other: Any) -> Unit:
        return self.times(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Unit:
        return self.times(other, -1)

    def __rtruediv__(self, other: Any) -> Unit:
        return Unit().times(self, -1)

    def __pow__(self, other: Any) -> Unit:
        if isinstance(other, Unit):
            return self.pure().same(other.pure())
        return Unit(tuple((name, power * other) for name, power in self.powers))

    def __rpow__(self, other: Any) -> Unit:
        return self.pure()

    def _truth(self, other: Any) -> Unit:
        self.same(other)
        return Unit()

    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = _truth
    __eq__ = __ne__ = _truth  # type: ignore[assignment]


def pure(value: Any) -> Unit:
    return Unit.of(value).pure()


def same(left: Any, right: Any) -> Unit:
    return Unit.of(left).same(right)


UNITS: dict[str, Callable[..., Unit]] = {
    **dict.fromkeys(
        ("ceil", "floor", "log2", "exp", "expm1", "popcount_sum", "square_divisor"), pure
    ),
    "layers_of_kind": lambda *all_of_them: next(map(pure, all_of_them)),
    "interleaved_time": lambda _, pp, chunks, *work: reduce(same, work[:9]),
    "heaviest_stage": lambda left, right, *cut: (same(left, right), next(map(pure, cut)))[1],
    **dict.fromkeys(("minimum", "maximum", "gcd"), same),
    "never_drawn": lambda *counts: next(pure(count) for count in counts),
    **dict.fromkeys(
        ("negative_binomial_tail", "negative_binomial_quantile"),
        lambda *all_of_them: reduce(same, map(pure, all_of_them)),
    ),
    "power_sum": lambda left, right, power: (pure(power), same(left, right))[1],
    "where": lambda condition, left, right: (pure(condition), same(left, right))[1],
    "sqrt": lambda value: Unit.of(value) ** 0.5,
}


def unit(text: str) -> Unit:
    result = {name: Unit.parse(VOCABULARY[name].units) for name in ex.names(text)}
    return Unit.of(ex.evaluate(text, result, UNITS))


def test_formulas_have_their_results_units() -> None:
    for formula in FORMULAS:
        try:
            unit(formula.expression).same(Unit.parse(formula.result.units))
        except UnitError as error:
            pytest.fail(f"{formula.name}: {error}")


@every_algorithm
def test_an_algorithm_s_statements_have_their_units(key: tuple[str, str, str]) -> None:
    stated = statements(ALGORITHMS[key])
    assert set(stated) == set(STATEMENT_UNITS)
    for quantity, units in STATEMENT_UNITS.items():
        assert VOCABULARY[quantity].units == units
        unit(stated[quantity]).same(Unit.parse(units))


@pytest.mark.parametrize("text", examples(__file__, "units_that_do_not_fit_are_found"))
def test_units_that_do_not_fit_are_found(text: str) -> None:
    with pytest.raises(UnitError):
        unit(text)


def test_units_of_products() -> None:
    assert unit("message_bytes/bandwidth").powers == (("s", 1),)
    assert unit("8*message_bytes*energy_per_bit").powers == (("J", 1),)
    assert unit("sqrt(latency*latency)").powers == (("s", 1.0),)
    assert unit("ranks*2**ceil(log2(ranks)) % 2").powers == ()


def test_a_byte_has_eight_bits() -> None:
    energy = REGISTRY["energy"].kernel(np.asarray(1.0), np.asarray(1.0))
    assert float(energy) == 8.0
    levels = REGISTRY["level_energy"].kernel(*(np.asarray(1.0) for _ in range(7)))
    assert float(levels) == 24.0


# The vocabulary and LaTeX.


def test_quantities_are_described() -> None:
    for quantity in VOCABULARY.values():
        check_described(quantity)


def check_described(quantity: Quantity) -> None:
    assert quantity.meaning
    assert not quantity.meaning.endswith(".")
    assert all(name.isalpha() for name, _ in Unit.parse(quantity.units).powers)
    assert quantity.minimum <= quantity.maximum
    assert quantity.outside(np.array([np.nan]))[0]
    if np.isfinite(quantity.minimum):
        low = np.array([quantity.minimum])
        assert quantity.outside(low)[0] == quantity.above
        assert quantity.outside(np.array([quantity.minimum - 1.0]))[0]
    if quantity.integer:
        assert quantity.outside(np.array([quantity.minimum + 0.5]))[0]


def test_no_statement_has_a_symbol_twice() -> None:
    stated = {(*formula.inputs, formula.returns) for formula in FORMULAS}
    stated |= {tuple(sorted(named(ALGORITHMS[key]))) for key in KEYS}
    for names in stated:
        symbols = Counter(VOCABULARY[name].symbol for name in names)
        assert max(symbols.values()) == 1, (names, symbols)


@pytest.mark.thorough
def test_latex_parses() -> None:
    parser = MathTextParser("path")
    texts = {quantity.symbol for quantity in VOCABULARY.values()}
    texts |= {equation(formula.returns, formula.expression) for formula in FORMULAS}
    stated = {text for key in KEYS for text in statements(ALGORITHMS[key]).values()}
    # What runs twice is written as twice what runs once.
    once = {text for text in stated if text[:3] != "2*(" or text[3:-1] not in stated}
    texts |= {latex(text) for text in once}
    # The parser takes ever longer the longer a text is: of those that are made of the same things
    # it reads the shortest.
    shortest: dict[frozenset[str], str] = {}
    for text in sorted(texts, key=len):
        shortest.setdefault(frozenset(COMMAND.findall(text)), text)
    known: set[str] = set()
    for kind, text in shortest.items():
        # However long, if nothing shorter has such a command.
        if len(text) <= SHORT_LATEX or not kind <= known:
            parser.parse(f"${text}$")
            known |= kind
    for text in texts:
        assert set(COMMAND.findall(text)) <= known
        assert text.count("{") == text.count("}")
        assert text.count(r"\left") == text.count(r"\right")


@pytest.mark.parametrize(("text", "expected"), examples(__file__, "latex_says_the_same"))
def test_latex_says_the_same(text: str, expected: str) -> None:
    assert latex(text) == expected
