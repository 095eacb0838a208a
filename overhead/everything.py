"""Imports every module of the package, so that the registry holds all that it declares."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import overhead
from overhead.collectives import ALGORITHMS, Algorithm
from overhead.formula import REGISTRY, Formula

__all__ = ["algorithms", "formulas", "load"]


def load() -> None:
    """Import every module of the package."""
    for module in pkgutil.walk_packages(overhead.__path__, "overhead."):
        importlib.import_module(module.name)


def formulas(*, others: bool = False) -> tuple[Formula, ...]:
    """Return the package's formulas; a user's, too, where `others` are wanted."""
    load()
    return tuple(one for one in REGISTRY.values() if others or _own(one.kernel))


def algorithms(*, others: bool = False) -> tuple[Algorithm, ...]:
    """Return the package's algorithms; a user's, too, where `others` are wanted."""
    load()
    return tuple(one for one in ALGORITHMS.values() if others or _own(one.kernel))


def _own(kernel: Callable[..., object]) -> bool:
    return kernel.__module__.startswith("overhead.")
