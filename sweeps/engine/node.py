"""A node of the graph: one computation, or something given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.formula import Formula
from sweeps.engine.axes import Array
from sweeps.errors import RunError

__all__ = ["Missing", "Node", "costing", "shaped"]


class Missing(LookupError):
    """A quantity that nothing gives; `chain` says what needs it."""

    def __init__(self, quantity: str, chain: tuple[str, ...] = ()) -> None:
        super().__init__(quantity)
        self.quantity = quantity
        self.chain = chain


@dataclass(eq=False, slots=True)
class Node:
    """One computation of the graph."""

    name: str  # What it gives
    key: tuple[Any, ...]  # What it is: two nodes of one key give the same
    inputs: tuple[Node, ...]  # What it takes
    run: Callable[..., Any] | None  # From the inputs' values to its own; None for what is given
    dims: frozenset[str]  # The dimensions that its inputs have together
    given: Array | None = None  # The value, if it is given
    ufunc: np.ufunc | None = None  # The one ufunc that `run` is, if it is one
    origin: Formula | Algorithm | None = None  # The declaration that it comes from


def costing(algorithm: Algorithm, names: Sequence[str]) -> Callable[..., Any]:
    """Return an algorithm's cost as a function of the inputs named; a user's own may fail."""

    def run(*values: Array) -> Any:
        try:
            return algorithm.cost(**dict(zip(names, values, strict=True)))
        except Exception as error:
            kind, key = type(error).__name__, ".".join(algorithm.key)
            message = f"the algorithm '{key}' failed: {kind}: {error}"
            raise RunError(message) from error

    return run


def shaped(declared: Formula, ndim: int) -> Callable[..., Array]:
    """Return a kernel that gives an array of the grid's dimensions, whatever a user's own gives."""

    def run(*values: Array) -> Array:
        try:
            value = np.asarray(declared.kernel(*values), dtype=np.float64)
        except Exception as error:
            kind = type(error).__name__
            message = f"the formula '{declared.name}' failed: {kind}: {error}"
            raise RunError(message) from error
        if value.ndim == ndim:
            return value
        if value.size == 1:
            return value.reshape((1,) * ndim)
        shapes = ", ".join(str(one.shape) for one in values)
        message = f"the formula '{declared.name}' gave shape {value.shape} for inputs of {shapes}"
        raise RunError(message)

    return run
