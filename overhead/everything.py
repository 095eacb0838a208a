"""Imports every module of the package, so that the registry holds all that it declares."""

from __future__ import annotations

import importlib
import pkgutil

import overhead
from overhead.collectives import ALGORITHMS, Algorithm
from overhead.formula import REGISTRY, Formula

__all__ = ["algorithms", "formulas", "load"]


def load() -> None:
    """Import every module of the package."""
    for module in pkgutil.walk_packages(overhead.__path__, "overhead."):
        importlib.import_module(module.name)


def formulas() -> tuple[Formula, ...]:
    """Return the package's own formulas, without a user's."""
    load()
    return tuple(one for one in REGISTRY.values() if one.kernel.__module__.startswith("overhead."))


def algorithms() -> tuple[Algorithm, ...]:
    """Return the package's own algorithms, without a user's."""
    load()
    own = (one for one in ALGORITHMS.values() if one.kernel.__module__.startswith("overhead."))
    return tuple(own)
