"""Formulas without a function of their own, and calls: rows of ``identities/SUBJECT.csv``.

A row says what a quantity is: ``a + b``, ``a - b``, ``a * b``, ``a * b / (c * d)``, ``a``, or a
number; or ``a(b = c; group tp)``: the quantity ``a`` with ``c`` as its ``b`` and a label ``group``
(``a()`` of itself: it has to be given).  It may say for which labels that holds
(``topology=mesh|torus``, several joined by ``&``, a name in capitals is one of `overhead.labels`),
the source with the place in it (else it is a derivation), what it assumes, a title (else the
quantity's meaning is it), the name of the formula (else it is the quantity's with the labels'
values), and what it lacks of a more general form, with the reason.
"""

from __future__ import annotations

import csv
from functools import cache, reduce
from operator import add, mul
from pathlib import Path
from typing import Any

from overhead import labels
from overhead.arrays import xp
from overhead.formula import REGISTRY, Call, Formula, named

FOLDER = Path(__file__).parent / "identities"


@cache
def read_identities(subject: str) -> None:
    """Declare what the rows of a subject say, once."""
    path = FOLDER / f"{subject}.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        for line, row in enumerate(list(csv.reader(file))[1:], 2):
            _declare(*row, location=f"{path}:{line}")


def _declare(
    returns: str,
    statement: str,
    condition: str,
    source: str,
    where: str,
    assumes: str,
    title: str,
    name: str,
    lacks: str,
    *,
    location: str,
) -> None:
    when = {label: _values(text) for label, text in _pairs(condition, "&", "=").items()}
    of, _, rest = statement.rstrip(")").partition("(")
    if of.isidentifier() and of != statement:
        bound, _, around = rest.partition("; ")
        bind = _pairs(bound, ", ", " = ")
        REGISTRY.add_call(Call(returns, of, bind, _pairs(around, ", ", " "), when, location))
        return
    kernel, laws, inputs = _kernel(statement)
    once = len({*inputs}) == len(inputs)
    reasons = _pairs(lacks, " | ", ": ").items()
    REGISTRY.add(
        Formula(
            name=name or named(returns, when),
            kernel=kernel,
            inputs=inputs,
            returns=returns,
            key=source or "derivation",
            where=where,
            assumes=tuple(assumes.split(" | ")) if assumes else (),
            when=when,
            lacks={each: reason for several, reason in reasons for each in several.split()},
            words=title,
            location=location,
            laws=laws + " ".join(inputs) if laws and once else "",
        )
    )


def _pairs(text: str, between: str, within: str) -> dict[str, str]:
    return dict(part.split(within, 1) for part in text.split(between)) if text else {}


def _values(text: str) -> str:
    """Return a label's values, joined; a name in capitals is that of several."""
    values = getattr(labels, text) if text.isupper() else text
    return values if isinstance(values, str) else "|".join(values)


def _kernel(statement: str) -> tuple[Any, str, tuple[str, ...]]:
    """Return what computes a statement, how it moves with its inputs, and these."""
    for mark, kernel, laws in ((" + ", _sum, "linear"), (" * ", _product, "proportional")):
        if mark in statement and " / " not in statement and " - " not in statement:
            return kernel, f"{laws}: ", tuple(statement.split(mark))
    if " / " in statement:
        above, below = (part.strip("()").split(" * ") for part in statement.split(" / "))
        return _quotient(len(above)), "", (*above, *below)
    if " - " in statement:
        return _difference, "", tuple(statement.split(" - "))
    if statement.isidentifier():
        return _itself, "proportional: ", (statement,)
    value = float(statement)
    return (lambda: xp.asarray(value)), "", ()


def _sum(*values):
    return xp.asarray(reduce(add, values))


def _product(*values):
    return xp.asarray(reduce(mul, values))


def _quotient(above: int) -> Any:
    def quotient(*values):
        return reduce(mul, values[:above]) / reduce(mul, values[above:])

    return quotient


def _difference(value, other):
    return value - other


def _itself(value):
    return 1.0 * value
