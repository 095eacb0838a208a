"""Each declared formula of memory: kernel against statement, units, symbols, LaTeX."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.mathtext import MathTextParser

from overhead import REGISTRY, VOCABULARY, Formula
from overhead import expression as ex
from overhead.memory import (
    LABELS,
    activations,
    rank_parameters,
    recomputation,
    stage,
    states,
    totals,
)
from tests.overhead.test_formulas import Unit, unit
from tests.strategies import columns

MODULES = (stage, rank_parameters, states, activations, recomputation, totals)


def declared(module: ModuleType) -> list[Formula]:
    tree = ast.parse(inspect.getsource(module))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [REGISTRY[name] for name in names if name in REGISTRY]


FORMULAS = [one for module in MODULES for one in declared(module)]
every_formula = pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)


def test_all_formulas_are_found() -> None:
    assert len(FORMULAS) > 60
    assert {formula.kernel.__module__ for formula in FORMULAS} == {m.__name__ for m in MODULES}


@every_formula
def test_a_declaration_holds_together(formula: Formula) -> None:
    formula.check()
    assert formula.inputs
    assert formula.where or formula.source.key == "derivation"
    for label, value in formula.when.items():
        assert set(value.split("|")) <= set(LABELS[label])


@every_formula
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_kernel_is_what_it_states(formula: Formula, data: st.DataObject) -> None:
    drawn = data.draw(columns(formula.inputs))
    with np.errstate(divide="raise", invalid="raise"):
        ours = np.asarray(formula.kernel(*drawn.values()))
    with np.errstate(all="ignore"):
        stated = ex.evaluate(formula.expression, drawn)
    shape = np.broadcast_shapes(*(column.shape for column in drawn.values()))
    assert ours.shape == shape
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours, np.broadcast_to(stated, shape), rtol=1e-11, atol=1e-300)
    assert not formula.result.outside(ours).any()


@every_formula
def test_a_formula_has_its_result_s_units(formula: Formula) -> None:
    unit(formula.expression).same(Unit.parse(formula.result.units))


@every_formula
def test_a_statement_has_no_symbol_twice(formula: Formula) -> None:
    names = (*formula.inputs, formula.returns)
    assert len(set(formula.inputs)) == len(formula.inputs)
    assert max(Counter(VOCABULARY[name].symbol for name in names).values()) == 1


@every_formula
def test_latex_parses(formula: Formula) -> None:
    MathTextParser("path").parse(f"${formula.latex}$")


@every_formula
def test_a_ufunc_is_the_kernel(formula: Formula) -> None:
    if formula.ufunc is not None:
        one, other = np.array([3.0, 5.0, 2.0]), np.array([7.0, 4.0, 2.0])
        np.testing.assert_array_equal(formula.kernel(one, other), formula.ufunc(one, other))
