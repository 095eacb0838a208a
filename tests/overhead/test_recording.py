"""What a function computes, as an expression."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from overhead.collectives.algorithm import STATEMENTS
from overhead.everything import algorithms, formulas
from overhead.expression import evaluate
from overhead.recording import Recorded, RecordingError, record, text, ufunc_of
from overhead.special import greatest_common_divisor as gcd
from overhead.special import popcount_sum
from overhead.statements import recorded
from sweeps.latex import latex

NAMES = ("a", "b", "c")
OPERATORS = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "%": lambda x, y: x % y,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": lambda x, y: np.where(x > y, x, 2.0 * y),
    "flag": lambda x, y: np.asarray(x > 1.0, dtype=np.float64) * y,
    "square": lambda x, y: x * x * x + np.floor(y),
    "either": lambda x, y: np.where((x > 1.0) & ((y < 2.0) | (x == y)), 0.5, y),
}


def written(function: Callable[..., Any], *names: str) -> str:
    return text(record(function, names))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: a + (b + 1.0), "a + b + 1"),
        (lambda a, b: a - (b + 1.0), "a - (b + 1)"),
        (lambda a, b: a * (b / 2.0), "a*b/2"),
        (lambda a, b: a / (b * 2.0), "a/(2*b)"),
        (lambda a, b: a * 8.0 * (2.0 * b), "16*a*b"),
        (lambda a, b: (a % b) * 3.0, "3*(a % b)"),
        (lambda a, b: -(a - b), "-(a - b)"),
        (lambda a, b: 1.0 * a + 0.0 * b, "a"),
        (lambda a, b: (3.0 * a + b) ** 2, "(3*a + b)**2"),
        (lambda a, b: np.exp2(a) + 1e12 * b, "2**a + 1e12*b"),
        (lambda a, b: a * a * a * a + b * b, "a**4 + b*b"),
        (
            lambda a, b: np.where(b > 0.0, a / np.where(b > 0.0, b, 1.0), 0.0),
            "where(b > 0, a/b, 0)",
        ),
        (lambda a, b: np.asarray(a > 1.0, dtype=np.float64) * b, "where(a > 1, b, 0)"),
        (lambda a, b: ~(a > b), "where(a <= b, 1, 0)"),
        (
            lambda a, b: (a > 0.0) & ((b > 1.0) | (a == b)),
            "where((a > 0) & ((b > 1) | (a == b)), 1, 0)",
        ),
        (
            lambda a, b: np.select([a > 1.0, b > 1.0], [a, b], 3.0),
            "where(a > 1, a, where(b > 1, b, 3))",
        ),
        (lambda a, b: np.where(2.0 * a * b > 0.0, b, 0.0), "where(a*b > 0, b, 0)"),
        (lambda a, b: np.where(a > b, b, 2.5e-7), "where(a > b, b, 2.5e-7)"),
        (lambda a, b: np.clip(a, 1.0, b), "minimum(maximum(a, 1), b)"),
        (lambda a, b: np.zeros_like(a) + b, "b"),
        (lambda a, b: sum((a, b), start=0.0), "a + b"),
        (lambda a, b: popcount_sum(a) + gcd(a, b), "popcount_sum(a) + gcd(a, b)"),
    ],
)
def test_expressions_are_as_one_would_write_them(
    function: Callable[..., Any], expected: str
) -> None:
    found = written(function, "a", "b")
    assert found == expected
    assert latex(found)


@given(data=st.data())
def test_an_expression_gives_what_the_function_gives(data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(0, 9), st.integers(0, 9)),
            min_size=1,
            max_size=7,
        )
    )

    def function(*inputs: Any) -> Any:
        known = [*inputs, 2.0, 0.5]
        for operator, left, right in steps:
            known.append(OPERATORS[operator](known[left % len(known)], known[right % len(known)]))
        return sum(known[3:], start=inputs[0])

    values = {
        name: np.array([data.draw(st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 7.0]))])
        for name in NAMES
    }
    with np.errstate(all="ignore"):
        try:
            computed = function(*values.values())
        except ZeroDivisionError:  # Of two numbers that aren't inputs
            reject()
        value = evaluate(written(function, *NAMES), values)
    if np.isfinite(computed).all():
        np.testing.assert_allclose(value, computed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a if a > b else b,
        lambda a, b: float(a) + b,
        lambda a, b: np.sort(a),
        lambda a, b: np.cos(a),
        lambda a, b: a[0],
        lambda a, b: a.nothing,
        lambda a, b: np.asarray(a / b, dtype=np.int64),
        lambda a, b: a * np.inf,
        lambda a, b: np.add.reduce([a, b], dtype=np.float32),
    ],
)
def test_what_cannot_be_recorded_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(RecordingError):
        record(function, ("a", "b"))
    assert np.asarray([1, 2]).tolist() == [1, 2]


def test_one_ufunc_is_found() -> None:
    def found(function: Callable[..., Any]) -> np.ufunc | None:
        return ufunc_of(record(function, ("a", "b")), ("a", "b"))

    assert found(lambda a, b: a / b) is np.true_divide
    assert found(np.maximum) is np.maximum
    assert found(lambda a, b: b - a) is None
    assert found(lambda a, b: a * b + a) is None
    assert found(lambda a, b: 2.0 * a) is None


def test_other_threads_make_arrays_while_one_records() -> None:
    wrong: list[Any] = []

    def arrays() -> None:
        for count in range(2000):
            made = np.asarray([count], dtype=np.float64)
            if made.dtype != np.float64 or made[0] != count:
                wrong.append(made)

    threads = [threading.Thread(target=arrays) for _ in range(3)]
    for thread in threads:
        thread.start()
    plain = np.asarray
    while any(thread.is_alive() for thread in threads):
        record(lambda a, b: np.asarray(a > b, dtype=np.float64), ("a", "b"))
    assert np.asarray is plain
    assert not wrong


@pytest.mark.thorough
def test_an_expression_is_stated_only_where_it_does_not_follow() -> None:
    for formula in formulas():
        if not formula.own_expression:
            assert isinstance(formula.tree, ast.expr)
            continue
        try:
            derived = text(record(formula.kernel, formula.inputs))
        except RecordingError:
            continue
        assert derived != formula.own_expression, f"{formula.name}: expression= says nothing new"


@pytest.mark.thorough
def test_an_algorithm_states_only_what_does_not_follow() -> None:
    for algorithm in algorithms():
        for quantity in STATEMENTS:
            if quantity not in algorithm.own_statements:
                assert recorded(algorithm, quantity)
                continue
            try:
                derived = recorded(algorithm, quantity)
            except RecordingError:
                continue
            name = ".".join((*algorithm.key, quantity))
            # A half, or what runs backwards, may need the words.
            if algorithm.collective not in ("all_reduce", "reduce"):
                assert derived != algorithm.own_statements[quantity], name


def test_a_recorded_value_is_no_number() -> None:
    value = Recorded(ast.Name("a"))
    with pytest.raises(RecordingError):
        np.asarray(value)
