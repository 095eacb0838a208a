"""Reductions as a sweep states them."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from overhead.quantity import VOCABULARY
from sweeps.errors import fault, nearest

__all__ = ["NAME", "REDUCTIONS", "Reduction", "read_reductions"]

REDUCTIONS = ("min", "max", "mean", "top", "quantile", "histogram")
# Names that a file's variables and dimensions can have everywhere.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
KEYS = ("quantity", "operation", "over", "name", "count", "quantiles")


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of one quantity along dimensions, while its blocks stream by.

    Attributes
    ----------
    quantity : str
        What is reduced.
    operation : str
        One of `REDUCTIONS`.
    over : tuple of str
        The dimensions that disappear.
    name : str
        The result's name.
    count : int
        How many, of ``top``.
    quantiles : tuple of float
        Which, of ``quantile``.
    """

    quantity: str
    operation: str
    over: tuple[str, ...]
    name: str
    count: int = 1
    quantiles: tuple[float, ...] = (0.5,)


def read_reductions(
    rows: Sequence[Mapping[str, Any]], dims: Sequence[str], given: Container[str]
) -> tuple[tuple[Reduction, ...], list[str]]:
    """Check the reductions that a sweep states.

    Parameters
    ----------
    rows : sequence of mapping
        As a spec file has them.
    dims : sequence of str
        The sweep's dimensions.
    given : container of str
        What the sweep gives, which isn't computed.

    Returns
    -------
    tuple of Reduction, list of str
        Those without faults, and the faults.
    """
    read = [_read(row, dims, given) for row in rows]
    faults = [line for _, lines in read for line in lines]
    names = [reduction.name for reduction, _ in read]
    for name in sorted({name for name in names if names.count(name) > 1}):
        allowed = "a name = '..' for each"
        faults.append(fault("reductions.name", name, "stands there twice", allowed))
    return tuple(reduction for reduction, lines in read if not lines), faults


def _read(
    row: Mapping[str, Any], dims: Sequence[str], given: Container[str]
) -> tuple[Reduction, list[str]]:
    faults = [
        fault(f"reductions.{key}", "..", "no such key", nearest(key, KEYS))
        for key in row
        if key not in KEYS
    ]
    quantity, operation = str(row.get("quantity", "time")), str(row.get("operation", "min"))
    if quantity not in VOCABULARY:
        offer = nearest(quantity, VOCABULARY)
        faults.append(fault("reductions.quantity", quantity, "no such one", offer))
    elif quantity in given:
        faults.append(
            fault("reductions.quantity", quantity, "is given, not computed", "another one")
        )
    if operation not in REDUCTIONS:
        offer = nearest(operation, REDUCTIONS)
        faults.append(fault("reductions.operation", operation, "unknown", offer))
    over, wrong = _over(row.get("over", []), dims)
    name = str(row.get("name", f"{quantity}_{operation}"))
    if not NAME.fullmatch(name):
        wrong.append(fault("reductions.name", name, "can't be", "letters, digits and _"))
    count, quantiles = row.get("count", 3), row.get("quantiles", [0.05, 0.5, 0.95])
    listed = quantiles if isinstance(quantiles, list) else [quantiles]
    if not _is_count(count):
        wrong.append(fault("reductions.count", count, "can't be", "a whole number from 1"))
    if not listed or not all(map(_is_fraction, listed)):
        allowed = "a list of numbers from 0 to 1"
        wrong.append(fault("reductions.quantiles", quantiles, "can't be", allowed))
    faults += wrong
    if faults:
        return Reduction(quantity, operation, over, name), faults
    return Reduction(quantity, operation, over, name, count, tuple(map(float, listed))), faults


def _over(stated: Any, dims: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the dimensions that disappear, in the sweep's order, and the faults."""
    listed = stated if isinstance(stated, list) else str(stated).split(",")
    over = [str(dim).strip() for dim in listed]
    faults = [
        fault("reductions.over", dim, "not an axis", nearest(dim, dims))
        for dim in over
        if dim not in dims
    ]
    if not over:
        allowed = f"some of {', '.join(dims)}"
        faults.append(fault("reductions.over", "[]", "empty", allowed))
    return tuple(dim for dim in dims if dim in over), faults


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
