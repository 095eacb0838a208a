"""A user's own file of formulas."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from overhead.collectives.algorithm import ALGORITHMS
from overhead.formula import REGISTRY
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault


def load_formulas(path: Path) -> None:
    """Run a user's file of formulas: what it declares joins the registry."""
    found = importlib.util.spec_from_file_location(f"formulas_{path.stem}", path)
    if found is None or found.loader is None or not path.is_file():
        raise InputError(fault("--formulas", str(path), "no such file", "a Python file"))
    # All of ours first: a file's formulas may take any of them, and must not tie with any.
    VOCABULARY.load_everything()
    module = importlib.util.module_from_spec(found)
    try:
        sys.modules[found.name] = module
        found.loader.exec_module(module)
        REGISTRY.complete()
        ALGORITHMS.complete()
    except (Exception, SystemExit) as error:
        wrong = _told(error, path)
        raise InputError(fault("--formulas", str(path), wrong, "a sound file")) from None


def _told(error: BaseException, path: Path) -> str:
    """Return an error in a user's file as one line, with its place."""
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    text = " ".join(str(message).split())
    frames = traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if Path(one.filename).resolve() == path.resolve()]
    place = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {text}{place}"
