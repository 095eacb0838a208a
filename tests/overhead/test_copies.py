"""A variant by label that lacks an input of its general form says why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest

from overhead import REGISTRY, Formula
from overhead.completion import following
from overhead.everything import formulas
from overhead.formula import Call
from overhead.labels import STEP_DEFAULTS, expanded, implies
from overhead.transformer import FURTHER_SHAPES, SHAPES

# A model's own shapes: what a copy of a formula forgets without anything else noticing.
OWN = frozenset((*SHAPES, *FURTHER_SHAPES))
FORMULAS = formulas()
# What a model may have beyond others, and what then holds.
FEATURES = {"mixers": "hybrid", "selection": "indexed"}


def is_constant(formula: Formula) -> bool:
    """Whether it is a number."""
    return not formula.inputs


def general_form(variant: Formula) -> Formula | None:
    """Return the most special formula that holds wherever a variant does, and elsewhere."""
    condition = expanded(variant.holds)
    for candidate in REGISTRY.candidates(variant.returns):
        wider = expanded(candidate.holds)
        if implies(condition, wider) and not implies(wider, condition):
            return (
                candidate if isinstance(candidate, Formula) and not is_constant(candidate) else None
            )
    return None


def labels_of(variant: Formula) -> dict[str, str]:
    """Return labels for which a variant holds, the others as they are by default."""
    words_by_name = {name: values.split("|")[0] for name, values in variant.when.items()}
    return {
        "shapes": "known",
        **FEATURES,
        **following({**STEP_DEFAULTS, **words_by_name}, ()),
        **words_by_name,
    }


def followed(
    names: Iterable[str], labels: Mapping[str, str], seen: set[str], calls: set[object]
) -> set[str]:
    """Return quantities and all that they follow from, down to a model's shapes."""
    for name in names:
        if name in seen:
            continue
        seen.add(name)
        declared = None if name in OWN else REGISTRY.returning(name, labels)
        if isinstance(declared, Formula) and not is_constant(declared):
            followed(declared.inputs, labels, seen, calls)
        elif isinstance(declared, Call):
            followed(declared.bind.values(), labels, seen, calls)
            inner = {**labels, **declared.labels}
            position = (declared.of, frozenset(inner.items()))
            if position not in calls:
                calls.add(position)
                seen |= followed([declared.of], inner, set(), calls) - set(declared.bind)
    return seen


def lacking(variant: Formula, general: Formula) -> dict[str, set[str]]:
    """Return by input of the general form the shapes of it that a variant doesn't follow from."""
    labels = labels_of(variant)
    used = followed(variant.inputs, labels, set(), set())
    found = {
        name: (followed([name], labels, set(), set()) & OWN) - used
        for name in general.inputs
        if name not in used
    }
    return {name: shapes for name, shapes in found.items() if shapes}


def variants() -> Iterator[tuple[Formula, Formula]]:
    """Yield variants with their general forms; where a model has no shapes, none can be used."""
    for formula in FORMULAS:
        general = general_form(formula) if formula.when else None
        known = formula.when.get("shapes") != "unknown"
        if general is not None and known and not is_constant(formula):
            yield formula, general


def test_a_variant_that_lacks_an_input_says_why() -> None:
    """And says it of nothing that it has: what is declared is what is missing."""
    missing = {variant.name: lacking(variant, general) for variant, general in variants()}
    silent = {
        name: {one: sorted(shapes) for one, shapes in missing_inputs.items() if one not in declared}
        for name, missing_inputs in missing.items()
        if not set(missing_inputs) <= set(declared := REGISTRY[name].lacks)
    }
    assert not silent
    idle = {
        formula.name: sorted(set(formula.lacks) - set(missing.get(formula.name, ())))
        for formula in FORMULAS
    }
    assert {name: declared for name, declared in idle.items() if declared} == {}


def made(**lacks: str) -> Formula:
    return Formula("made", lambda tp: tp, ("tp",), "pp", "derivation", lacks=lacks)


def test_a_reason_is_of_something_that_is_missing() -> None:
    made(hidden_size="the width plays no part").check()
    for lacks, wrong in (
        ({"hidden_size": " "}, "has no reason"),
        ({"tp": "unused"}, "is one of its inputs"),
        ({"hiden_size": "unused"}, "isn't in the vocabulary"),
    ):
        with pytest.raises(ValueError, match=wrong):
            made(**lacks).check()


def test_a_copy_that_forgets_an_input_is_found() -> None:
    """As a copy for adapters once forgot residual streams."""
    general = REGISTRY["attention_elementwise_bytes"]
    names = tuple(name for name in general.inputs if name != "residual_streams")
    copy = Formula(
        "copy", general.kernel, names, general.returns, "hu2021", when={"tuning": "lora"}
    )
    assert lacking(copy, general) == {"residual_streams": {"residual_streams"}}
    whole = Formula("copy", general.kernel, general.inputs, general.returns, "hu2021")
    assert lacking(whole, general) == {}
