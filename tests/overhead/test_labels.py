"""Labels stand in one table: nothing else lists their values, their defaults or what follows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from overhead.collectives.algorithm import ALGORITHMS
from overhead.completion import following, implied
from overhead.everything import load
from overhead.formula import REGISTRY, Formula
from overhead.labels import FOLLOWING, LABELS, OPERATION_DEFAULTS, STEP_DEFAULTS
from tests.tables import examples

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "overhead" / "labels.py"
FILES = [
    path
    for folder in ("overhead", "sweeps")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != TABLE
]
# Lists of all of a label's values; a label of one value says nothing.
LISTS = {
    name: frozenset(values)
    for name, values in {
        **{name: label.values for name, label in LABELS.items()},
        **FOLLOWING,
    }.items()
    if len(values) > 1
}
# What holds where nothing else is said.
DEFAULTS = STEP_DEFAULTS | {name: values[0] for name, values in FOLLOWING.items()}
# Defaults that mean nothing else wherever they stand.
NAMES = {LABELS[name].default for name in ("hardware", "framework")}


def texts(nodes: list[ast.expr]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def repeated(node: ast.AST) -> Iterator[str]:
    """Yield what a piece of code repeats of the table of labels."""
    match node:
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts) if len(texts(elts)) == len(elts):
            lines = frozenset(texts(elts))
            yield from (f"the values of {name}" for name, own in LISTS.items() if own == lines)
        case ast.Dict(keys, values):
            pairs = list(zip(texts([k for k in keys if k]), texts(values), strict=False))
            if len(pairs) == len(values) > 2 and all(DEFAULTS.get(k) == v for k, v in pairs):
                yield f"what holds of {', '.join(name for name, _ in pairs)}"
        case ast.Assign(value=ast.Constant(value)) if value in NAMES:
            yield f"the default {value}"
        case ast.AnnAssign(value=ast.Constant(value)) if value in NAMES:
            yield f"the default {value}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_other_file_repeats_the_table(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [
        f"line {node.lineno}: {name}"
        for node in ast.walk(tree)
        for name in repeated(node)
        if hasattr(node, "lineno")
    ]


@pytest.mark.parametrize(("code", "lines"), examples(__file__, "what_repeats_is_found"))
def test_what_repeats_is_found(code: str, lines: list[str]) -> None:
    assert [name for node in ast.walk(ast.parse(code)) for name in repeated(node)] == lines


def test_what_formulas_ask_of_labels_is_in_the_table() -> None:
    load()
    conditions = [
        (formula.name, formula.holds) for formula in (*REGISTRY.values(), *REGISTRY.calls)
    ]
    for name, holds in conditions:
        for label, values in holds.items():
            known = LABELS[label].values if label in LABELS else FOLLOWING.get(label, ())
            assert not known or values <= set(known), f"{name}: {label} = {values}"


def test_defaults_are_values() -> None:
    for name, label in LABELS.items():
        for value in filter(None, (label.default, label.alone)):
            assert not label.values or value in label.values, name
    networks = {algorithm.topology for algorithm in ALGORITHMS.values()}
    assert {STEP_DEFAULTS["topology"], OPERATION_DEFAULTS["topology"]} <= networks


@pytest.mark.parametrize(
    ("labels", "given", "follows"),
    [
        ({"topology": "ring"}, (), "flat sequential free"),
        ({"topology": "hierarchical"}, (), "two_levels sequential free"),
        ({"topology": "hierarchical"}, ("nodes_per_pod",), "three_levels sequential free"),
        ({"topology": "torus"}, ("phase_chunks", "reduction_cost"), "flat pipelined counted"),
    ],
)
def test_what_follows_of_a_network(
    labels: dict[str, str], given: tuple[str, ...], follows: str
) -> None:
    found = following(labels, given)
    assert [found[name] for name in ("shape", "phases", "reduction")] == follows.split()


def test_what_follows_of_a_plan() -> None:
    for schedule in LABELS["schedule"].values:
        forms = [
            candidate
            for candidate in REGISTRY.candidates("balanced_bubble_time")
            if isinstance(candidate, Formula) and schedule in candidate.holds.get("schedule", ())
        ]
        even = all("stages" not in form.holds or "even" in form.holds["stages"] for form in forms)
        assert even or following({"schedule": schedule}, ())["stages"] == "uneven"
    assert implied(("layers", "dp", "global_batch_size")) == {"shapes": "unknown"}
    assert set(implied(())) == {"shapes", "depth"}
    assert implied(("mesh_nx", "mesh_ny"))["grid"] == "given"
