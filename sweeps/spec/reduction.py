"""Reductions as a sweep states them: the mean, the best few, a front."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from overhead.expression import evaluate, names
from overhead.frozen import frozen
from overhead.quantity import VOCABULARY
from sweeps.errors import Faults, fault, nearest, refuse
from sweeps.spec.contract import read_contract
from sweeps.spec.fields import declared_keys

# Reductions as a sweep states them.

REDUCTIONS = ("min", "max", "mean", "top", "quantile", "histogram", "pareto")
# Names that a file's variables and dimensions can have everywhere.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# A quantity and a number: it needs a unit, as where it is asserted, unless the quantity has none.
COMPARED = re.compile(r"[A-Za-z]\w*\s*[<>]=?\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?")
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
    greatest: tuple[str, ...] = ()  # Those of which more is better
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
    rows: Sequence[Mapping[str, object]],
    dims: Sequence[str],
    given: Container[str],
    *,
    bare_is_si: bool,
) -> tuple[tuple[Reduction, ...], list[str]]:
    """Check the reductions that a sweep states; return those without faults, and all faults."""
    readers = [_Row(row, dims, given, bare_is_si=bare_is_si) for row in rows]
    reductions = [reader.reduction() for reader in readers]
    faults = [line for reader in readers for line in reader.faults]
    names = [reduction.name for reduction in reductions]
    for name in sorted({name for name in names if names.count(name) > 1}):
        allowed = "a name = '..' for each"
        faults.append(fault("reductions.name", name, "is given twice", allowed))
    whole = zip(reductions, readers, strict=True)
    return tuple(reduction for reduction, reader in whole if not reader.faults), faults


class _Row(Faults):
    """A stated reduction that is being read."""

    def __init__(
        self,
        row: Mapping[str, Any],
        dims: Sequence[str],
        given: Container[str],
        *,
        bare_is_si: bool,
    ) -> None:
        super().__init__()
        self.row, self.dims, self.given, self.bare_is_si = row, dims, given, bare_is_si

    def wrong(self, key: str, value: object, wrong: str, allowed: str) -> None:
        """Note what is wrong with a key."""
        self.add(f"reductions.{key}", value, wrong, allowed)

    def reduction(self) -> Reduction:
        """Return what is stated."""
        row = self.row
        self.check_keys("reductions", row, KEYS)
        quantity, operation = str(row.get("quantity", "time")), str(row.get("operation", "min"))
        if quantity not in VOCABULARY:
            self.wrong("quantity", quantity, "is unknown", nearest(quantity, VOCABULARY))
        elif quantity in self.given:
            self.wrong("quantity", quantity, "is given, not computed", "another one")
        if operation not in REDUCTIONS:
            self.wrong("operation", operation, "unknown", nearest(operation, REDUCTIONS))
        over = self._over()
        name = str(row.get("name", f"{quantity}_{operation}"))
        if not NAME.fullmatch(name):
            self.wrong("name", name, "isn't allowed", "letters, digits and _")
        pareto = operation == "pareto"
        against, greatest = self._against(quantity, pareto=pareto), self._greatest(operation)
        self._check_greatest(greatest, [quantity, *filter(None, [against])])
        count = row.get("count", 0 if pareto else 3)
        most = count if isinstance(count, int) and not isinstance(count, bool) else -1
        if most < 0 or (most == 0 and not pareto):
            self.wrong("count", count, "isn't allowed", "a whole number, 1 or more")
        quantiles = row.get("quantiles", [0.05, 0.5, 0.95])
        listed = quantiles if isinstance(quantiles, list) else [quantiles]
        if not listed or not all(map(_is_fraction, listed)):
            self.wrong("quantiles", quantiles, "isn't allowed", "a list of numbers from 0 to 1")
        where = self._where()
        if self.faults:
            return Reduction(quantity, operation, over, name)
        fractions = tuple(map(float, listed))
        return Reduction(quantity, operation, over, name, most, fractions, against, greatest, where)

    def _where(self) -> str:
        """Return the condition on the cells that count, in canonical units."""
        conditions = self.row.get("where", [])
        listed = conditions if isinstance(conditions, list) else [conditions]
        pieces = [piece for text in listed for piece in re.split(r"\band\b", str(text))]
        parts = [self.of(self._condition, piece) for piece in map(str.strip, pieces)]
        return " & ".join(f"({condition})" for condition in parts if condition)

    def _condition(self, piece: str) -> str:
        """Return a comparison of quantities in canonical units."""
        location = "reductions.where"
        if other := re.search(r"\b(or|not)\b", piece):
            allowed = "conditions joined by 'and'"
            refuse(location, piece, f"{other[0]!r} can't be asked", allowed)
        try:
            asked = names(piece)
            bare = None if self.bare_is_si else COMPARED.fullmatch(piece)
            valued = bare and VOCABULARY.keys() >= {*asked}
        except (SyntaxError, ValueError):
            valued = True  # With a unit, which is no expression
        if valued:
            contract = read_contract(piece, location)
            piece = f"{contract.name} {contract.sign} {contract.value!r}"
            asked = names(piece)
        for name in asked:
            if name not in VOCABULARY:
                refuse(location, piece, f"{name} is unknown", nearest(name, VOCABULARY))
        try:
            truth = evaluate(piece, {name: np.float64(1.0) for name in asked})
        except ValueError:
            truth = None
        if not asked or not isinstance(truth, bool | np.bool_):
            allowed = "a comparison of quantities: 'peak_memory <= 0.9*memory_capacity'"
            refuse(location, piece, "is no condition", allowed)
        return piece

    def _greatest(self, operation: str) -> tuple[str, ...]:
        """Return of which quantities more is better, of a front or the best few."""
        if operation not in ("pareto", "top") and "greatest" in self.row:
            allowed = "operation = 'pareto' or 'top'"
            self.wrong("greatest", self.row["greatest"], "is a front's or of the best few", allowed)
            return ()
        listed = self.row.get("greatest", [])
        return tuple(map(str, listed if isinstance(listed, list) else [listed]))

    def _check_greatest(self, greatest: Sequence[str], known: Sequence[str]) -> None:
        for name in greatest:
            if name not in known:
                self.wrong("greatest", name, "isn't of this reduction", ", ".join(known))

    def _against(self, quantity: str, *, pareto: bool) -> str:
        """Return a front's other quantity."""
        if not pareto:
            if "against" in self.row:
                wrong, allowed = "is a front's", "operation = 'pareto'"
                self.wrong("against", self.row["against"], wrong, allowed)
            return ""
        against = str(self.row.get("against", ""))
        if against not in VOCABULARY:
            wrong = "is unknown" if against else "a front is of two quantities"
            offer = nearest(against, VOCABULARY) if against else "such as against = 'peak_memory'"
            self.wrong("against", against, wrong, offer)
        elif against in self.given or against == quantity:
            wrong = "is the first quantity" if against == quantity else "is given, not computed"
            self.wrong("against", against, wrong, "another one")
        return against

    def _over(self) -> tuple[str, ...]:
        """Return the dimensions that disappear, in the sweep's order."""
        entries = self.row.get("over", [])
        listed = entries if isinstance(entries, list) else str(entries).split(",")
        over = [str(dim).strip() for dim in listed]
        for dim in over:
            if dim not in self.dims:
                self.wrong("over", dim, "not an axis", nearest(dim, self.dims))
        if not over:
            self.wrong("over", "[]", "empty", f"some of {', '.join(self.dims)}")
        return tuple(dim for dim in self.dims if dim in over)


def _is_fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
