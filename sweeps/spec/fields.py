"""Figures with their sources, as files of the catalogue state them, and the reader of such files.

A file of the catalogue says of every figure what it is and where it comes from; nothing in it is
code.  What a kind of file may hold is declared in ``specs/fields``.  Unknown keys, missing sources,
wrong units and impossible values are all reported together, each with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from overhead.frozen import frozen
from overhead.quantity import VOCABULARY
from sweeps.errors import Faults, fault, nearest
from sweeps.origin import ASSUMED, MEASURED, SPECIFICATION, Origin
from sweeps.spec.files import read_rows, shipped
from sweeps.spec.units import parse_quantity

ORIGINS = (SPECIFICATION, MEASURED, ASSUMED)
DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


@frozen(slots=True)
class Figure:
    """One number of a machine or of software, and where it comes from."""

    value: float  # In `units`
    units: str  # The canonical unit
    kind: str  # ``specification`` (the maker's), ``measured``, or ``assumed`` (nobody's: a choice)
    source: str  # Who says so, where; of an assumption, why this value
    uncertainty: float = 0.0  # Relative; 0 where nobody says
    date: str = ""  # Since when it holds, as 2024-12; of prices

    @property
    def origin(self) -> Origin:
        """Its value with where it comes from."""
        dated = f"of {self.date}: {self.source}" if self.date else self.source
        return Origin(self.value, self.kind, dated)


class Entry(NamedTuple):
    """A figure that a file may hold: the quantity it gives, in which unit, and its domain."""

    quantity: str
    units: str
    minimum: float = 0.0
    above: bool = False
    integer: bool = False
    required: bool = False
    maximum: float = math.inf

    def allows(self, value: float) -> bool:
        """Return whether a value is in the domain."""
        low = value <= self.minimum if self.above else value < self.minimum
        return not (low or value > self.maximum or (self.integer and not value.is_integer()))

    def domain(self) -> str:
        """Return the domain in words."""
        number = "a whole number" if self.integer else "a value"
        least = f"{'above' if self.above else 'from'} {self.minimum:g}"
        return f"{number} {least}" + (
            f" to {self.maximum:g}" if math.isfinite(self.maximum) else ""
        )


def entry_of(name: str) -> Entry:
    """Return a quantity as a file may hold it, in the vocabulary's unit and domain."""
    quantity = VOCABULARY[name]
    low, high = quantity.minimum, quantity.maximum
    return Entry(name, quantity.units, low, quantity.above, quantity.integer, maximum=high)


_DOMAIN = re.compile(r"(whole )?(>?=?)([\d.]+?)(?:\.\.([\d.]+))?")


def _declared(row: Mapping[str, str]) -> Entry:
    """Return the entry that a row of ``figures.csv`` declares."""
    quantity, needed = row["quantity"] or row["key"], bool(row["needed"])
    if not row["domain"]:
        return entry_of(quantity)._replace(required=needed)
    domain = _DOMAIN.fullmatch(row["domain"])
    assert domain is not None, row
    whole, sign, low, high = domain.groups()
    most = float(high or "inf")
    return Entry(quantity, row["units"], float(low), sign == ">", bool(whole), needed, most)


@cache
def _rows(name: str) -> list[dict[str, str]]:
    return read_rows(shipped("fields") / f"{name}.csv")


@cache
def declared_figures(file: str) -> dict[str, dict[str, Entry]]:
    """Return the figures that a kind of file may hold, by table and key."""
    tables: dict[str, dict[str, Entry]] = {}
    for row in _rows("figures"):
        if row["file"] == file:
            tables.setdefault(row["table"], {})[row["key"]] = _declared(row)
    return tables


def declared_keys(file: str) -> dict[str, dict[str, str]]:
    """Return the keys of a kind of file that aren't figures, by table, and what they say."""
    tables: dict[str, dict[str, str]] = {}
    for row in _rows("keys"):
        if row["file"] == file:
            tables.setdefault(row["table"], {})[row["key"]] = row["words"]
    return tables


def declared_list(of: str) -> tuple[str, ...]:
    """Return the quantities or labels of a list, in its order."""
    return tuple(row["name"] for row in _rows("lists") if row["list"] == of)


class FigureReader(Faults):
    """A walk over a file of the catalogue that collects its faults."""

    # How many keys are listed where none is like an unknown one
    listed = 12

    def __init__(self, path: Path, content: Mapping[str, object]) -> None:
        super().__init__()
        self.path, self.content = path, content

    def fault(self, location: str, value: object, wrong: str, allowed: str) -> None:
        """Note what is wrong with a value."""
        self.faults.append(fault(f"{self.path}: {location}", value, wrong, allowed))

    def name(self) -> str:
        """Read the file's name, which may stand in it."""
        name = self.text("", self.content, "name", default=self.path.stem)
        if name != self.path.stem:
            self.fault("name", name, "is not the file's name", f"write '{self.path.stem}'")
        return name

    def table(self, location: str) -> dict[str, Any]:
        """Return the table of a dotted place; an empty one where there is none."""
        table: Any = self.content
        for key in location.split("."):
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict):
            return table
        self.fault(location, table, "is not a table", f"write [{location}] and its keys below")
        return {}

    def unknown(self, location: str, table: Mapping[str, object], known: Iterable[str]) -> None:
        """Note every key of a table that isn't known."""
        names = tuple(known)
        for key in table:
            if key not in names:
                where = f"{location}.{key}".strip(".")
                near = nearest(key, names, shown=self.listed)
                self.faults.append(f"{self.path}: {where}: no such key; {near}")

    def constant(self, location: str, name: str, given: object) -> Figure | None:
        """Read a quantity's constant: a figure that may have a relative uncertainty."""
        return self.figure(location, given, entry_of(name)._replace(integer=False))

    def read_figures(
        self,
        location: str,
        entries: Mapping[str, Entry],
        others: Iterable[str] = (),
        missing: str = "",
    ) -> dict[str, Figure]:
        """Read a table's figures by quantity, with what is to be told where one is missing."""
        table = self.table(location)
        self.unknown(location, table, (*others, *entries))
        figures: dict[str, Figure] = {}
        for key, entry in entries.items():
            where = f"{location}.{key}"
            if key in table:
                figure = self.figure(where, table[key], entry)
                if figure is not None:
                    figures[entry.quantity] = figure
            elif entry.required and missing:
                self.faults.append(f"{self.path}: {where}: is missing; {missing}")
        return figures

    def figure(self, location: str, given: object, entry: Entry) -> Figure | None:
        """Read ``{ value = .., kind = .., source = .. }``; nothing where it has no value."""
        form = "write { value = .., kind = .., source = .. }"
        if not isinstance(given, dict):
            self.fault(location, given, "is not a figure", form)
            return None
        self.unknown(location, given, ("value", "kind", "source", "uncertainty", "date"))
        kind = self.choice(location, given, "kind", ORIGINS)
        source = self.text(location, given, "source")
        if "value" not in given:
            self.faults.append(f"{self.path}: {location}.value: is missing; {form}")
            return None
        value = self.of(
            parse_quantity,
            given["value"],
            entry.units,
            field=f"{self.path}: {location}.value",
            bare_is_si=False,
            allow_infinite=entry.units == "byte s-1",
        )
        if value is None:
            return None
        if not entry.allows(value):
            self.fault(f"{location}.value", given["value"], "isn't allowed", entry.domain())
        share = given.get("uncertainty", 0.0)
        if not isinstance(share, int | float) or isinstance(share, bool) or not share >= 0.0:
            self.fault(f"{location}.uncertainty", share, "isn't allowed", "a relative one, from 0")
            return None
        date = given.get("date", "")
        if "date" in given and not DATE.fullmatch(str(date)):
            self.fault(f"{location}.date", date, "is not a year and month", "such as '2024-12'")
        return Figure(value, entry.units, kind, source, float(share), str(date))

    def text(
        self, location: str, table: Mapping[str, object], key: str, default: str | None = None
    ) -> str:
        """Read a text with something in it."""
        value = table.get(key, default)
        if isinstance(value, str) and (value.strip() or value == default):
            return value
        where = f"{self.path}: {location}.{key}".replace(": .", ": ")
        wrong = "is missing" if key not in table else "is not a text with something in it"
        self.faults.append(f"{where}: {wrong}")
        return ""

    def choice(
        self, location: str, table: Mapping[str, object], key: str, known: Sequence[str]
    ) -> str:
        """Read one of some known texts."""
        value = self.text(location, table, key)
        if value and value not in known:
            self.fault(f"{location}.{key}".strip("."), value, "is unknown", nearest(value, known))
        return value

    def choices(
        self, location: str, table: Mapping[str, object], key: str, known: Sequence[str]
    ) -> tuple[str, ...]:
        """Read a list of some known texts; none where there is none."""
        where, given = f"{location}.{key}", table.get(key, [])
        if not isinstance(given, list):
            self.fault(where, given, "is not a list", f"a list of {', '.join(known) or 'none'}")
            return ()
        texts = tuple(map(str, given))
        for text in texts:
            if text not in known:
                self.fault(where, text, "is unknown", nearest(text, known))
        return texts
