"""Laws of whole answers: how what a user asks for moves with what a user gives.

The laws of a formula (`overhead.law`) hold whatever else it takes; those here hold of a training
step as a whole, over all formulas between a question and its answer.  A row of ``answer_laws.csv``
stands for one answer or several.  Of what any row names, an answer moves with nothing else than its
own row says: that is a law, too.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from overhead.law import Law, parsed

TABLE = Path(__file__).parent / "answer_laws.csv"


@dataclass(frozen=True)
class Bent:
    """A direction from which an answer strays by no more than a share, for a reason."""

    way: str
    most: float
    reason: str


@dataclass(frozen=True)
class AnswerLaw:
    """The laws of one answer.

    Attributes
    ----------
    law : Law
        What goes one way, and what is free with its reason.
    nearly : mapping of str to Bent
        Inputs with which it goes one way but for little.
    where : tuple of str
        Two quantities of which the first is the smaller one where all this holds; empty where it
        holds everywhere.
    """

    law: Law
    nearly: Mapping[str, Bent]
    where: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs with which it moves."""
        return (*self.law.moving, *self.nearly, *self.law.free)

    def way(self, name: str) -> str:
        """Return ``up``, ``down``, ``free`` or ``flat``: how it moves with an input."""
        if name in self.nearly:
            return self.nearly[name].way
        return self.law.direction(name) if name in self.inputs else "flat"

    def lines(self) -> Iterator[str]:
        """Yield the laws in words."""
        yield from self.law.lines()
        alike: dict[Bent, list[str]] = {}
        for name, bent in self.nearly.items():
            alike.setdefault(bent, []).append(name)
        for bent, names in alike.items():
            never = "falls" if bent.way == "up" else "rises"
            listed = f"{', '.join(names)}, but for at most {bent.most:.0%}"
            yield f"never {never} with {listed}: {bent.reason}"
        yield f"independent of all else in {TABLE.name}"
        if self.where:
            yield f"all of these where {' < '.join(self.where)}"


def _nearly(text: str) -> dict[str, Bent]:
    """Read cells such as ``down 5%: memory_bandwidth power: why``."""
    nearly: dict[str, Bent] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        head, names, reason = (field.strip() for field in part.split(":", 2))
        way, share = head.split()
        if way not in ("up", "down") or not reason:
            message = f"'{part}': is no direction with a share and a reason"
            raise ValueError(message)
        bent = Bent(way, float(share.removesuffix("%")) / 100.0, reason)
        nearly |= dict.fromkeys(names.split(), bent)
    return nearly


@cache
def answer_laws() -> Mapping[str, AnswerLaw]:
    """Return the laws of all answers, by quantity."""
    by_quantity: dict[str, AnswerLaw] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            law, nearly = parsed(row["laws"], row["free"]), _nearly(row["nearly"])
            if twice := nearly.keys() & {*law.moving, *law.free}:
                message = f"{row['answer']}: {', '.join(sorted(twice))} has two laws"
                raise ValueError(message)
            where = tuple(row["where"].split(" < ")) if row["where"] else ()
            by_quantity |= dict.fromkeys(row["answer"].split(), AnswerLaw(law, nearly, where))
    return by_quantity


@cache
def given() -> tuple[str, ...]:
    """Return all inputs that some row names."""
    return tuple(dict.fromkeys(name for answer in answer_laws().values() for name in answer.inputs))
