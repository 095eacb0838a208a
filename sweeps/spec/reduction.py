"""Reductions as a sweep states them: the mean, the best few, a front."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from overhead.expression import evaluate, names
from overhead.frozen import frozen
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.contract import read_contract
from sweeps.spec.fields import declared_keys

# Reductions as a sweep states them.

REDUCTIONS = ("min", "max", "mean", "top", "quantile", "histogram", "pareto")
# Names that a file's variables and dimensions can have everywhere.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Keys of a reduction, with what they say.
KEYS = declared_keys("reduction")[""]


@frozen(slots=True)
class Reduction:
    """A reduction of one quantity along dimensions, while its blocks stream by."""

    quantity: str  # What is reduced
    operation: str  # One of `REDUCTIONS`
    over: tuple[str, ...]  # The dimensions that disappear
    name: str  # The result's name
    count: int = 1  # How many, of ``top``; of ``pareto`` the most, 0 for all
    quantiles: tuple[float, ...] = (0.5,)  # Which, of ``quantile``
    against: str = ""  # The other quantity of ``pareto``
    greatest: tuple[str, ...] = ()  # Those of the two of which more is better
    where: str = ""  # The condition on cells that count, in canonical units; empty: all do

    @property
    def units(self) -> str:
        """Of its result, where that is a value of the quantity."""
        return "1" if self.operation == "histogram" else VOCABULARY[self.quantity].units

    @property
    def quantities(self) -> tuple[str, ...]:
        """What has to be computed for it."""
        return (self.quantity, self.against) if self.against else (self.quantity,)


def partners(reductions: Sequence[Reduction]) -> dict[str, tuple[str, ...]]:
    """Return by quantity the others, and the conditions, that reductions take beside it."""
    others: dict[str, tuple[str, ...]] = {}
    for reduction in reductions:
        for other in (reduction.against, reduction.where):
            if other:
                known = others.get(reduction.quantity, ())
                others[reduction.quantity] = tuple(dict.fromkeys((*known, other)))
    return others


def read_reductions(
    rows: Sequence[Mapping[str, object]], dims: Sequence[str], given: Container[str]
) -> tuple[tuple[Reduction, ...], list[str]]:
    """Check the reductions that a sweep states."""
    read = [_read(row, dims, given) for row in rows]
    faults = [line for _, lines in read for line in lines]
    names = [reduction.name for reduction, _ in read]
    for name in sorted({name for name in names if names.count(name) > 1}):
        allowed = "a name = '..' for each"
        faults.append(fault("reductions.name", name, "is given twice", allowed))
    return tuple(reduction for reduction, lines in read if not lines), faults


def _read(
    row: Mapping[str, object], dims: Sequence[str], given: Container[str]
) -> tuple[Reduction, list[str]]:
    faults = [
        fault(f"reductions.{key}", "..", "no such key", nearest(key, KEYS))
        for key in row
        if key not in KEYS
    ]
    quantity, operation = str(row.get("quantity", "time")), str(row.get("operation", "min"))
    if quantity not in VOCABULARY:
        offer = nearest(quantity, VOCABULARY)
        faults.append(fault("reductions.quantity", quantity, "is unknown", offer))
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
        wrong.append(fault("reductions.name", name, "isn't allowed", "letters, digits and _"))
    pareto = operation == "pareto"
    count, quantiles = row.get("count", 0 if pareto else 3), row.get("quantiles", [0.05, 0.5, 0.95])
    listed = quantiles if isinstance(quantiles, list) else [quantiles]
    against, greatest, wrong_pair = _pair(row, quantity, given, pareto=pareto)
    wrong += wrong_pair
    most = count if isinstance(count, int) and not isinstance(count, bool) else -1
    if most < 0 or (most == 0 and not pareto):
        wrong.append(fault("reductions.count", count, "isn't allowed", "a whole number, 1 or more"))
    if not listed or not all(map(_is_fraction, listed)):
        allowed = "a list of numbers from 0 to 1"
        wrong.append(fault("reductions.quantiles", quantiles, "isn't allowed", allowed))
    where, wrong_where = _where(row.get("where", []))
    faults += wrong + wrong_where
    if faults:
        return Reduction(quantity, operation, over, name), faults
    fractions = tuple(map(float, listed))
    reduction = Reduction(
        quantity, operation, over, name, most, fractions, against, greatest, where
    )
    return reduction, faults


def _where(conditions: Any) -> tuple[str, list[str]]:
    """Return the condition on the cells that count, in canonical units, and the faults."""
    listed = conditions if isinstance(conditions, list) else [conditions]
    pieces = [piece for text in listed for piece in re.split(r"\band\b", str(text))]
    parts, faults = [], []
    for piece in map(str.strip, pieces):
        if other := re.search(r"\b(or|not)\b", piece):
            wrong, allowed = f"{other[0]!r} can't be asked", "conditions joined by 'and'"
            faults.append(fault("reductions.where", piece, wrong, allowed))
            continue
        try:
            try:
                asked = names(piece)
            except (SyntaxError, ValueError):
                # A value with a unit, which is no expression.
                contract = read_contract(piece, "reductions.where")
                piece = f"{contract.name} {contract.sign} {contract.value!r}"  # noqa: PLW2901
                asked = names(piece)
            unknown = [name for name in asked if name not in VOCABULARY]
            if unknown:
                wrong, allowed = f"{unknown[0]} is unknown", nearest(unknown[0], VOCABULARY)
                faults.append(fault("reductions.where", piece, wrong, allowed))
                continue
            truth = evaluate(piece, {name: np.float64(1.0) for name in asked})
            if not asked or not isinstance(truth, bool | np.bool_):
                raise ValueError
        except InputError as error:
            faults += error.faults
            continue
        except ValueError:
            allowed = "a comparison of quantities: 'peak_memory <= 0.9*memory_capacity'"
            faults.append(fault("reductions.where", piece, "is no condition", allowed))
            continue
        parts.append(piece)
    return " & ".join(f"({condition})" for condition in parts), faults


def _pair(
    row: Mapping[str, object], quantity: str, given: Container[str], *, pareto: bool
) -> tuple[str, tuple[str, ...], list[str]]:
    """Return a front's other quantity, and of which more is better, with the faults."""
    keys = [key for key in ("against", "greatest") if key in row]
    if not pareto:
        allowed = "operation = 'pareto'"
        return (
            "",
            (),
            [fault(f"reductions.{key}", row[key], "is a front's", allowed) for key in keys],
        )
    against, listed = str(row.get("against", "")), row.get("greatest", [])
    greatest = tuple(map(str, listed if isinstance(listed, list) else [listed]))
    faults = []
    if against not in VOCABULARY:
        wrong = "is unknown" if against else "a front is of two quantities"
        offer = nearest(against, VOCABULARY) if against else "such as against = 'peak_memory'"
        faults.append(fault("reductions.against", against, wrong, offer))
    elif against in given or against == quantity:
        wrong = "is the first quantity" if against == quantity else "is given, not computed"
        faults.append(fault("reductions.against", against, wrong, "another one"))
    faults += [
        fault("reductions.greatest", name, "isn't of this front", f"{quantity}, {against}")
        for name in greatest
        if name not in (quantity, against)
    ]
    return against, greatest, faults


def _over(entries: Any, dims: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the dimensions that disappear, in the sweep's order, and the faults."""
    listed = entries if isinstance(entries, list) else str(entries).split(",")
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


def _is_fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
