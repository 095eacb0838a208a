"""Which column of a table holds what, and in which unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.axis import LABELS
from sweeps.spec.units import parse_quantity

__all__ = ["TEXTS", "USUAL", "Heading", "headings_of"]

TEXTS = ("table", "source")
# What is read where the table has it; anything else only where the spec names its column.
USUAL = (
    *TEXTS,
    "collective",
    "hardware",
    "ranks",
    "nodes",
    "gpus_per_node",
    "message_bytes",
    "time",
)
NEEDED = ("message_bytes", "time")
_LISTED = 20
_UNIT = re.compile(r"(?:_|\s*[(\[])(?P<unit>[^_()\[\]]+)[)\]]?$")


@dataclass(frozen=True, slots=True)
class Heading:
    """One column: what it holds, how the table calls it, where it stands, in which unit."""

    name: str
    text: str
    place: int
    unit: str

    @property
    def is_text(self) -> bool:
        """Whether it holds words rather than numbers."""
        return self.name in (*TEXTS, *LABELS)


def headings_of(
    path: Path, header: Sequence[str], headings: Mapping[str, str], units: Mapping[str, str]
) -> list[Heading]:
    """Find the columns of a table."""
    faults = [
        fault(f"{path.name}, heading", name, "stands there twice", "each heading once")
        for name in sorted({name for name in header if name and header.count(name) > 1})
    ]
    known = (*TEXTS, *LABELS, *VOCABULARY)
    for key in {**headings, **units}:
        if key not in known:
            where = "columns" if key in headings else "units"
            faults.append(
                fault(f"measured.{where}.{key}", "..", "no such quantity", nearest(key, known))
            )
        elif key in units and not (key in VOCABULARY and _reads(units[key], VOCABULARY[key].units)):
            canonical = VOCABULARY[key].units if key in VOCABULARY else "none: it is text"
            offer = f"one that measures the same as {canonical}"
            faults.append(fault(f"measured.units.{key}", units[key], "no unit of it", offer))
    if faults:
        raise InputError(faults)
    found = []
    for name in dict.fromkeys((*USUAL, *headings)):
        place = _place(name, header, headings)
        if place is None:
            if name in headings:
                offer = nearest(headings[name], header)
                faults.append(
                    fault(f"measured.columns.{name}", headings[name], "no such column", offer)
                )
            elif name in NEEDED:
                faults.append(_missing(path, name, header))
            continue
        unit = "" if name in (*TEXTS, *LABELS) else _unit(name, header[place], units)
        if unit is None:
            faults.append(
                fault(
                    f"{path.name}, heading", header[place], "its unit isn't known",
                    f'end it with one, as in {name}_us, or give units = {{ {name} = "us" }}',
                )
            )  # fmt: skip
            continue
        found.append(Heading(name, header[place], place, unit))
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    return found


def _missing(path: Path, name: str, header: Sequence[str]) -> str:
    listed = ", ".join(header[:_LISTED])
    if len(header) == 1:
        return f"{path.name}: the line of headings has one column, '{listed}'; put commas between"
    return (
        f"{path.name}: no column '{name}'; name the one that holds it: "
        f'columns = {{ {name} = ".." }}, out of {listed}'
    )


def _place(name: str, header: Sequence[str], headings: Mapping[str, str]) -> int | None:
    """Return where a quantity's column stands; None if it isn't there."""
    if name in headings:
        return header.index(headings[name]) if headings[name] in header else None
    if name in header:
        return header.index(name)
    for place, heading in enumerate(header):
        match = _UNIT.search(heading)
        if match is None or heading[: match.start()] != name or name not in VOCABULARY:
            continue
        if _reads(match["unit"], VOCABULARY[name].units):
            return place
    return None


def _unit(name: str, heading: str, units: Mapping[str, str]) -> str | None:
    """Return the unit of a quantity's column; None if nothing tells."""
    canonical = VOCABULARY[name].units
    if name in units:
        return units[name]
    if canonical == "1":
        return ""
    match = _UNIT.search(heading)
    if match and _reads(match["unit"], canonical):
        return match["unit"]
    return "byte" if name == "message_bytes" else None


def _reads(unit: str, canonical: str) -> bool:
    try:
        parse_quantity(f"1 {unit}", canonical, field="", bare_is_si=False)
    except InputError:
        return False
    return True
