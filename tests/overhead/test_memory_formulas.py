"""Each declared formula of memory: where it stands, its labels and symbols."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from types import ModuleType

from overhead import REGISTRY, VOCABULARY, Formula
from overhead.labels import FOLLOWING, LABELS
from overhead.memory import activations, stage, states
from tests.each import each

MODULES = (stage, states, states, activations, activations, stage)


def declared(module: ModuleType) -> list[Formula]:
    tree = ast.parse(inspect.getsource(module))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [REGISTRY[name] for name in names if name in REGISTRY]


FORMULAS = [formula for module in MODULES for formula in declared(module)]
every_formula = each("formula", FORMULAS, lambda formula: formula.name)


def test_all_formulas_are_found() -> None:
    assert len(FORMULAS) > 60
    assert {formula.kernel.__module__ for formula in FORMULAS} == {m.__name__ for m in MODULES}


@every_formula
def test_a_declaration_holds_together(formula: Formula) -> None:
    formula.check()
    assert formula.inputs
    assert formula.where or formula.source.key == "derivation"
    for label, value in formula.when.items():
        known = LABELS[label].values if label in LABELS else FOLLOWING[label]
        assert set(value.split("|")) <= set(known)


@every_formula
def test_a_statement_has_no_symbol_twice(formula: Formula) -> None:
    names = (*formula.inputs, formula.returns)
    assert len(set(formula.inputs)) == len(formula.inputs)
    assert max(Counter(VOCABULARY[name].symbol for name in names).values()) == 1
