"""The vocabulary: every quantity that a formula may take or give, with its symbol, unit and domain.

The vocabulary is closed: the name of a formula's parameter is the name of a quantity here.  A
user's own formulas may add to it with `define`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.arrays import in_numpy

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named quantity in its canonical unit.

    Attributes
    ----------
    name : str
        The name, as parameters, files, specs and flags have it.
    symbol : str
        LaTeX.
    units : str
        The canonical unit as UDUNITS writes it; ``"1"`` for a bare number.
    meaning : str
        What it is, in words.
    minimum, maximum : float
        The domain's ends, both included unless `above` says otherwise.
    above : bool
        Whether the minimum itself is outside of the domain.
    integer : bool
        Whether only whole numbers are in the domain.
    default : float, optional
        The value where neither the user, nor a machine, nor a formula gives one.
    """

    name: str
    symbol: str
    units: str
    meaning: str
    minimum: float = -np.inf
    maximum: float = np.inf
    above: bool = False
    integer: bool = False
    default: float | None = None

    @property
    def flag(self) -> bool:
        """Whether it is 0 or 1."""
        return self.integer and self.maximum == 1.0

    def domain(self) -> str:
        """Return the domain in words."""
        kind = "a whole number, " if self.integer else ""
        low, high = self.minimum > -np.inf, self.maximum < np.inf
        if low and high:
            start = "above " if self.above else ""
            return f"{kind}{start}{self.minimum:g} to {self.maximum:g}"
        if low and self.above:
            return f"{kind}above {self.minimum:g}"
        if low:
            return f"{kind}{self.minimum:g} or more"
        return f"{kind}{self.maximum:g} or less" if high else kind.removesuffix(", ") or "a number"

    def outside(self, values: Array) -> Array:
        """Return a mask of the values that are outside of the domain (shape of `values`)."""
        values = in_numpy(values)
        low = values <= self.minimum if self.above else values < self.minimum
        wrong = low | (values > self.maximum) | np.isnan(values)
        if self.integer:
            wrong = wrong | (values != np.floor(values))
        return np.asarray(wrong)

    def attrs(self) -> dict[str, str]:
        """Return the metadata of a variable that holds this quantity."""
        return {"long_name": self.meaning, "units": self.units, "symbol": f"${self.symbol}$"}


# A table's words for domains: minimum, maximum, whether the minimum is outside, whether whole.
DOMAINS: dict[str, tuple[float, float, bool, bool]] = {
    "any": (-np.inf, np.inf, False, False),
    ">=0": (0, np.inf, False, False),
    ">0": (0, np.inf, True, False),
    ">=1": (1, np.inf, False, False),
    "0..1": (0, 1, False, False),
    ">0..1": (0, 1, True, False),
    "-1..0": (-1, 0, False, False),
    "1..2": (1, 2, False, False),
    "0..0.99": (0, 0.99, False, False),
    "0..0.999999": (0, 0.999999, False, False),
    "flag": (0, 1, False, True),
    "whole >=0": (0, np.inf, False, True),
    "whole >=1": (1, np.inf, False, True),
    "whole 0..2": (0, 2, False, True),
    "whole 0..3": (0, 3, False, True),
}
# The tables of what a collective by itself has to do with, in their order.
COLLECTIVE = ("network", "collective", "library")


class Vocabulary(Mapping[str, Quantity]):
    """Quantities by name; a name stands once.

    The package's stand in ``quantities/SUBJECT.csv``, a row each: its name, symbol, units, domain
    (of `DOMAINS`), default (most have none) and meaning.  A row is read when it is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._found: dict[str, Quantity | str] = {}
        self.tables: dict[str, tuple[str, ...]] = {}  # Names by subject
        for path in sorted(folder.glob("*.csv")):
            rows = path.read_text(encoding="utf-8").splitlines()[1:]
            self._found |= (table := {row.partition(",")[0]: row for row in rows})
            self.tables[path.stem] = tuple(table)
        self.of_collectives = frozenset().union(*(self.tables[name] for name in COLLECTIVE))

    def __getitem__(self, name: str) -> Quantity:
        stored = self._found.get(name)
        if stored is None:
            message = f"no quantity is called '{name}': define it in the vocabulary first"
            raise KeyError(message)
        if isinstance(stored, str):
            _, symbol, units, domain, default, meaning = next(csv.reader([stored]))
            value = float(default) if default else None
            stored = Quantity(name, symbol, units, meaning, *DOMAINS[domain], value)
            self._found[name] = stored
        return stored

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, quantity: Quantity) -> Quantity:
        """Add a quantity."""
        if quantity.name in self and self[quantity.name] != quantity:
            meaning = self[quantity.name].meaning
            message = f"the quantity '{quantity.name}' is defined already, as '{meaning}'"
            raise ValueError(message)
        self._found[quantity.name] = quantity
        return quantity


VOCABULARY = Vocabulary(Path(__file__).parent / "quantities")


def define(name: str, symbol: str, units: str, meaning: str, **domain: Any) -> Quantity:
    """Define a quantity and add it to the vocabulary.

    Parameters
    ----------
    name, symbol, units, meaning : str
        As in `Quantity`.
    **domain
        ``minimum``, ``maximum``, ``above``, ``integer`` and ``default`` of `Quantity`.

    Returns
    -------
    Quantity
        The quantity.

    Raises
    ------
    ValueError
        If another quantity has the name already.
    """
    return VOCABULARY.add(Quantity(name, symbol, units, meaning, **domain))
