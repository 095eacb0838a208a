"""What a command was given: text to numbers and names, with every fault at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.ranges import parse_values

__all__ = ["Faults", "names_of", "numbers_of"]

Value = TypeVar("Value")


class Faults:
    """Faults that are gathered, to be told together."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, field: str, value: object, wrong: str, allowed: str) -> None:
        """Add a fault."""
        self.lines.append(fault(field, value, wrong, allowed))

    def of(self, read: Callable[..., Value], *arguments: Any) -> Value | None:
        """Call what may find faults; return None where it does, and keep them."""
        try:
            return read(*arguments)
        except InputError as error:
            self.lines += error.faults
            return None

    def tell(self) -> None:
        """Tell all faults, if there are any."""
        if self.lines:
            raise InputError(list(dict.fromkeys(self.lines)))


def numbers_of(name: str, text: str, flag: str) -> NDArray[np.float64]:
    """Read one value or many of a quantity."""
    quantity = VOCABULARY[name]
    values = parse_values(
        text,
        quantity.units,
        field=flag,
        integer=quantity.integer,
        bare_is_si=True,
        allow_infinite=name.endswith("bandwidth"),
    )
    wrong = quantity.outside(values)
    if wrong.any():
        shown = f"{values[wrong][0]:g}"
        raise InputError(fault(flag, shown, "outside of its domain", quantity.domain()))
    return values


def names_of(text: str, known: Sequence[str], flag: str) -> tuple[str, ...]:
    """Read one name or many, or ``all``."""
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return tuple(known)
    faults = [
        fault(flag, word, "there is no such one", nearest(word, known, shown=20))
        for word in words
        if word not in known
    ]
    twice = {word for word in words if words.count(word) > 1}
    faults += [fault(flag, word, "stands there twice", "give it once") for word in sorted(twice)]
    if faults:
        raise InputError(faults)
    return tuple(words)
