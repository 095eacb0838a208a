"""A user's own file of formulas."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from overhead.collectives.algorithm import ALGORITHMS, STATEMENTS, Algorithm
from overhead.expression import evaluate, names
from overhead.formula import REGISTRY, Formula
from overhead.quantity import VOCABULARY, Array, Quantity
from overhead.recording import RecordingError
from overhead.statements import recorded
from sweeps.errors import Fault, InputError, fault, refuse
from sweeps.former import FORMER

# Where a stated expression is compared with the code.
POINTS = 200


def load_formulas(paths: Iterable[str | Path]) -> None:
    """Run a user's files of formulas: what they declare joins the registry."""
    for path in paths:
        _load(Path(path))


def _load(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"formulas_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        refuse("--formulas", str(path), "no such file", "a Python file")
    # All of ours first: a file's formulas may take any of them, and must not tie with any.
    REGISTRY.load_everything()
    module = importlib.util.module_from_spec(spec)
    before = {*REGISTRY, *ALGORITHMS}
    try:
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        REGISTRY.complete()
        ALGORITHMS.complete()
        for name in sorted(set(REGISTRY) - before):
            _check_formula(REGISTRY[name])
        for key in sorted(set(ALGORITHMS) - before):
            _check_algorithm(ALGORITHMS[key])
    except RecordingError as error:
        raise InputError(Fault(("--formulas",), (str(path),), str(error))) from None
    except (Exception, SystemExit) as error:
        wrong = _error_text(error, path)
        now = [
            f"'{name}' is called '{FORMER[name]}' now"
            for name in re.findall(r"'(\w+)'", wrong)
            if name in FORMER
        ]
        allowed = "; ".join(now) or "a sound file"
        raise InputError(fault("--formulas", str(path), wrong, allowed)) from None


def _check_formula(formula: Formula) -> None:
    """Refuse a stated expression that isn't what the code computes, and code that has none."""
    if not formula.own_expression:
        formula.tree  # noqa: B018
        return

    def computed(points: Mapping[str, Array]) -> Any:
        try:
            return np.broadcast_to(formula.kernel(*points.values()), POINTS).astype(np.float64)
        except Exception:
            # It fails where it is asked for as well, and is named there.
            return np.nan

    _compare(f"{formula.name}: the expression", formula.own_expression, formula.inputs, computed)


def _check_algorithm(algorithm: Algorithm) -> None:
    """Refuse a statement that isn't what the code gives, and code that gives none."""
    for quantity in STATEMENTS:
        name = f"{'.'.join(algorithm.key)}: {quantity}"
        expression = algorithm.own_statements.get(quantity, "")
        try:
            derived = recorded(algorithm, quantity)
        except RecordingError:
            if expression:
                continue
            raise
        if not expression:
            continue

        def computed(points: Mapping[str, Array], derived: str = derived) -> Any:
            numbers = np.broadcast_to(evaluate(derived, points), POINTS)
            for requirement in algorithm.requires:
                holds = requirement.holds(**{name: points[name] for name in requirement.inputs})
                numbers = np.where(holds, numbers, np.nan)
            return numbers

        needed = (name for rule in algorithm.requires for name in rule.inputs)
        _compare(f"{name} =", expression, (*names(expression), *names(derived), *needed), computed)


def _compare(
    what: str,
    expression: str,
    inputs: Sequence[str],
    computed: Callable[[Mapping[str, Array]], Any],
) -> None:
    """Refuse a statement that differs from the code, naming both values and the point."""
    draw = np.random.default_rng(0)
    points = {name: _some_of(VOCABULARY[name], draw) for name in dict.fromkeys(inputs)}
    for sizes in (("mesh_nx", "mesh_ny", "mesh_nz"), ("node_ranks", "nodes", "pods")):
        if points.keys() >= {"ranks", *sizes}:
            points["ranks"] = np.prod([points[size] for size in sizes], axis=0)
    with np.errstate(all="ignore"):
        ours = np.broadcast_to(evaluate(expression, points), POINTS)
        theirs = np.broadcast_to(computed(points), POINTS)
        both = np.isfinite(ours) & np.isfinite(theirs)
        wrong = both & ~np.isclose(ours, theirs, rtol=1e-6, atol=0.0)
    if wrong.any():
        at = int(np.argmax(wrong))
        where = ", ".join(f"{name} = {values[at]:.6g}" for name, values in points.items())
        message = (
            f"{what} {expression} gives {ours[at]:.6g} and the code {theirs[at]:.6g} where {where}"
        )
        raise ValueError(message)


def _some_of(quantity: Quantity, draw: np.random.Generator) -> Array:
    """Return values of a quantity all over its domain."""
    low = quantity.minimum if np.isfinite(quantity.minimum) else -1e3
    values = low + 10.0 ** draw.uniform(-3.0, 3.0, POINTS)
    if np.isfinite(quantity.maximum):
        values = draw.uniform(low, quantity.maximum, POINTS)
    if not quantity.integer:
        return values
    # Some algorithms are for powers of two alone.
    return np.where(draw.random(POINTS) < 0.5, np.round(values), 2.0 ** draw.integers(0, 7, POINTS))


def _error_text(error: BaseException, path: Path) -> str:
    """Return an error in a user's file as one line, with its place."""
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    text = " ".join(str(message).split())
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    line_words = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {text}{line_words}"
