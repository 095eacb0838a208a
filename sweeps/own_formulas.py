"""A user's own file of formulas."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

import numpy as np

from overhead.collectives.algorithm import ALGORITHMS
from overhead.expression import evaluate
from overhead.formula import REGISTRY, Formula
from overhead.quantity import VOCABULARY, Array, Quantity
from overhead.recording import RecordingError
from sweeps.errors import InputError, fault

# Where a stated expression is compared with the code.
POINTS = 200


def load_formulas(path: Path) -> None:
    """Run a user's file of formulas: what it declares joins the registry."""
    found = importlib.util.spec_from_file_location(f"formulas_{path.stem}", path)
    if found is None or found.loader is None or not path.is_file():
        raise InputError(fault("--formulas", str(path), "no such file", "a Python file"))
    # All of ours first: a file's formulas may take any of them, and must not tie with any.
    VOCABULARY.load_everything()
    module = importlib.util.module_from_spec(found)
    before = set(REGISTRY)
    try:
        sys.modules[found.name] = module
        found.loader.exec_module(module)
        REGISTRY.complete()
        ALGORITHMS.complete()
        for name in sorted(set(REGISTRY) - before):
            _check_statement(REGISTRY[name])
    except (Exception, SystemExit) as error:
        wrong = _told(error, path)
        raise InputError(fault("--formulas", str(path), wrong, "a sound file")) from None


def _check_statement(own: Formula) -> None:
    """Refuse a stated expression that isn't what the code computes, and code that has none."""
    if not own.stated:
        try:
            own.tree  # noqa: B018
        except RecordingError as error:
            message = f"{own.name}: no expression follows from its code ({error}); state it"
            raise ValueError(message) from None
        return
    draw = np.random.default_rng(0)
    points = {name: _some_of(VOCABULARY[name], draw) for name in own.inputs}
    with np.errstate(all="ignore"):
        stated = np.broadcast_to(evaluate(own.stated, points), POINTS)
        try:
            computed = np.broadcast_to(own.kernel(*points.values()), POINTS).astype(np.float64)
        except Exception:
            # It fails where it is asked for as well, and is named there.
            return
        both = np.isfinite(stated) & np.isfinite(computed)
        wrong = both & ~np.isclose(stated, computed, rtol=1e-6, atol=0.0)
    if wrong.any():
        at = int(np.argmax(wrong))
        where = ", ".join(f"{name} = {values[at]:.6g}" for name, values in points.items())
        message = (
            f"{own.name}: the expression {own.stated} gives {stated[at]:.6g} and the code "
            f"{computed[at]:.6g} where {where}"
        )
        raise ValueError(message)


def _some_of(quantity: Quantity, draw: np.random.Generator) -> Array:
    """Return values of a quantity all over its domain."""
    low = quantity.minimum if np.isfinite(quantity.minimum) else -1e3
    values = low + 10.0 ** draw.uniform(-3.0, 3.0, POINTS)
    if np.isfinite(quantity.maximum):
        values = draw.uniform(low, quantity.maximum, POINTS)
    return np.round(values) if quantity.integer else values


def _told(error: BaseException, path: Path) -> str:
    """Return an error in a user's file as one line, with its place."""
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    text = " ".join(str(message).split())
    frames = traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if Path(one.filename).resolve() == path.resolve()]
    place = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {text}{place}"
