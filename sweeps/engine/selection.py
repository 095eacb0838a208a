"""What a graph's nodes are made of: their keys, and choices between algorithms."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.collectives.cost import COST_PARTS
from sweeps.engine.axes import Array
from sweeps.engine.node import costing

__all__ = ["all_of", "depends_on_chunks", "select", "short", "where_defined"]


def short(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key of small integers in place of nested ones (interning keeps them apart)."""
    return ("k", _NUMBERS.setdefault(key, len(_NUMBERS)))


_NUMBERS: dict[tuple[Any, ...], int] = {}


@cache
def depends_on_chunks(algorithm: Algorithm, quantity: str) -> bool:
    """Return whether a part of a chunked algorithm's cost varies with the number of chunks."""
    names = tuple(algorithm.inputs)
    values = (np.array([2.0, 4.0]) if name == "chunks" else np.array(4.0) for name in names)
    with np.errstate(all="ignore"):
        cost = costing(algorithm, names)(*values)
        parts = [COST_PARTS[quantity](cost, per_message) for per_message in (True, False)]
    return any(np.asarray(part).size > 1 for part in parts)


def all_of(*reasons: Array) -> Array:
    """Return all candidates' reasons where each has one, else none."""
    every = reasons[0] != 0
    total = reasons[0]
    for reason in reasons[1:]:
        every = every & (reason != 0)
        total = total | reason
    return np.where(every, total, 0)


def where_defined(time: Array, undefined: Array) -> Array:
    """Return times, infinite where an algorithm isn't defined."""
    return np.where(undefined != 0, np.inf, time) if undefined.any() else time


def select(best: tuple[Array, Array], *values: Array) -> Array:
    """Return the value of the algorithm that was the best, cell by cell."""
    shape = np.broadcast_shapes(best[1].shape, *(value.shape for value in values))
    chosen = np.broadcast_to(best[1], shape)
    return np.choose(chosen, [np.broadcast_to(value, shape) for value in values])
