"""What is asserted of a sweep's results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from overhead.quantity import VOCABULARY
from sweeps.errors import nearest, refuse
from sweeps.spec.units import parse_quantity

_CONTRACT = re.compile(r"\s*(?P<name>[A-Za-z]\w*)\s*(?P<sign><=|>=|<|>)\s*(?P<value>.+)")


class Contract(NamedTuple):
    """What is asserted of a quantity, wherever it has a value."""

    text: str
    name: str
    sign: str
    value: float  # In the quantity's unit
    units: str


def read_contract(
    text: str, field: str = "--assert", further: Mapping[str, str] | None = None
) -> Contract:
    """Read an assertion, such as ``step_time < 8 s``, of a quantity or another with a unit."""
    match = _CONTRACT.fullmatch(text)
    if match is None:
        allowed = "a quantity, <, <=, > or >=, and a value: 'step_time < 8 s'"
        refuse(field, text, "can't be read", allowed)
    name = match["name"]
    if name not in VOCABULARY and name not in (further or {}):
        near = nearest(name, (*(further or {}), *VOCABULARY), shown=0)
        usual = "such as step_time, peak_memory, mfu, time or busbw"
        refuse(field, text, f"unknown quantity {name}", usual if near.startswith("known") else near)
    units = (further or {}).get(name) or VOCABULARY[name].units
    value = parse_quantity(match["value"].strip(), units, field=field, bare_is_si=False)
    return Contract(text.strip(), name, match["sign"], value, units)
