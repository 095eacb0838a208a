"""Loading of the modules in which formulas stand, in whatever order."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from overhead.collectives.algorithm import ALGORITHMS, Algorithm
from overhead.formula import REGISTRY, Formula
from overhead.identities import read_identities

SUBJECTS = (
    "collectives",
    "communication",
    "compute",
    "folded",
    "hops",
    "memory",
    "model",
    "overlap",
    "plan",
    "run",
    "schedule",
    "software",
    "step",
    "transformer",
)
HERE = str(Path(__file__).parent)


def load(*subjects: str) -> None:
    """Import every module of some subjects (of all), in whatever order.

    Formulas of others are checked here, the package's own where all are listed, as tests do.
    """
    for subject in subjects or SUBJECTS:
        package = importlib.import_module(f"overhead.{subject}")
        # A small subject is a file, a large one a folder of them.
        for module in pkgutil.iter_modules(
            getattr(package, "__path__", ()), f"{package.__name__}."
        ):
            importlib.import_module(module.name)
        read_identities(subject)
    REGISTRY.complete(HERE)
    ALGORITHMS.complete()


def formulas(*, others: bool = False) -> tuple[Formula, ...]:
    """Return the package's formulas, checked; a user's, too, where `others` are wanted."""
    load()
    REGISTRY.complete()
    declared = (
        declaration for declaration in REGISTRY.values() if others or _own(declaration.location)
    )
    return tuple(sorted(declared, key=lambda entry: (entry.returns, entry.name)))


def algorithms(*, others: bool = False) -> tuple[Algorithm, ...]:
    """Return the package's algorithms; a user's, too, where `others` are wanted."""
    load()
    declared = (
        algorithm for algorithm in ALGORITHMS.values() if others or _own(algorithm.location)
    )
    return tuple(sorted(declared, key=lambda declaration: declaration.line))


def _own(location: str) -> bool:
    return location.startswith(HERE)
