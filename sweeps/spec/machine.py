"""A machine's file: what it may hold, checked whole.

A hardware file says of every figure what it is and where it comes from; nothing in it is code.
Unknown keys, missing sources, wrong units and impossible values are all reported together, each
with its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sweeps.errors import InputError, fault, nearest
from sweeps.spec.units import parse_quantity

__all__ = ["Figure", "Machine", "read_machine"]

ORIGINS = ("specification", "measured", "assumed")
LINK_KINDS = ("switch", "torus", "mesh", "fully_connected")
REDUCTIONS = ("nvls", "sharp")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a machine, and where it comes from.

    Attributes
    ----------
    value : float
        In `units`.
    units : str
        The canonical unit.
    kind : str
        ``specification`` (the maker's), ``measured``, or ``assumed`` (nobody's: a choice).
    source : str
        Who says so, where; of an assumption, why this value.
    """

    value: float
    units: str
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its links, its devices, and a source for every figure.

    Attributes
    ----------
    name, title, summary : str
        What the catalogue calls it, what people call it, and what to know of it.
    path : Path
        Its file.
    figures : mapping of str to Figure
        By quantity: ``intra_bandwidth``, ``gpus_per_node``, ``peak_flops_bf16``, ..  What the
        file doesn't state isn't there.
    scale_up_kind : str
        How ranks of a node are connected: ``switch``, ``torus``, ``mesh``, ``fully_connected``.
    torus_dimensions : int
        Dimensions of a torus or mesh; 0 where there is none.
    in_network : tuple of str
        What the switch inside a node can do: ``nvls``, ``sharp``, or nothing.
    scale_out_in_network : tuple of str
        What the switches between nodes can do.
    """

    name: str
    title: str
    summary: str
    path: Path
    figures: Mapping[str, Figure]
    scale_up_kind: str
    torus_dimensions: int
    in_network: tuple[str, ...]
    scale_out_in_network: tuple[str, ...]


class _Entry(NamedTuple):
    """A figure that a file may hold: the quantity it gives, in which unit, and its domain."""

    quantity: str
    units: str
    minimum: float = 0.0
    above: bool = False
    integer: bool = False
    required: bool = False


def _count(quantity: str, *, required: bool = False) -> _Entry:
    return _Entry(quantity, "1", minimum=1.0, integer=True, required=required)


def _link(level: str) -> dict[str, _Entry]:
    return {
        "bandwidth": _Entry(f"{level}_bandwidth", "byte s-1", above=True, required=True),
        "latency": _Entry(f"{level}_latency", "s", required=True),
        "energy_per_bit": _Entry(f"{level}_energy_per_bit", "J bit-1"),
    }


def _rates(quantity: str) -> dict[str, _Entry]:
    precisions = ("fp4", "fp8", "fp16", "bf16", "tf32", "fp32", "int8")
    return {name: _Entry(f"{quantity}_{name}", "1 s-1", above=True) for name in precisions}


_FIGURES: dict[str, dict[str, _Entry]] = {
    "scale_up": {
        **_link("intra"),
        "gpus_per_node": _count("gpus_per_node", required=True),
        "in_network_latency": _Entry("in_network_latency", "s", above=True),
        "links": _count("intra_links"),
        "link_bandwidth": _Entry("intra_link_bandwidth", "byte s-1", above=True),
    },
    "scale_out": {
        **_link("inter"),
        "nics_per_node": _count("nics_per_node", required=True),
        "oversubscription": _Entry("oversubscription", "1", minimum=1.0),
    },
    "pod": {
        **_link("pod"),
        "nodes_per_pod": _count("nodes_per_pod", required=True),
        "oversubscription": _Entry("pod_oversubscription", "1", minimum=1.0),
    },
    "device": {
        "memory_capacity": _Entry("memory_capacity", "byte", above=True),
        "memory_bandwidth": _Entry("memory_bandwidth", "byte s-1", above=True),
        "last_level_cache": _Entry("last_level_cache", "byte", above=True),
        "power": _Entry("power", "W", above=True),
        "price": _Entry("price", "USD h-1"),
    },
    "device.peak_flops": _rates("peak_flops"),
    "device.best_matmul_flops": _rates("best_matmul_flops"),
}
# Keys that aren't figures.
_OTHERS = {
    "": ("name", "title", "summary", "scale_up", "scale_out", "pod", "device"),
    "scale_up": ("kind", "dimensions", "in_network_reduction"),
    "scale_out": ("in_network",),
    "device": ("peak_flops", "best_matmul_flops"),
}


def read_machine(path: Path, content: Mapping[str, Any]) -> Machine:
    """Make a machine of a hardware file's content.

    Parameters
    ----------
    path : Path
        The file, for messages and for the name.
    content : mapping
        What it holds, as TOML gives it.

    Returns
    -------
    Machine
        The machine, with its figures in canonical units.

    Raises
    ------
    InputError
        With a line for every fault, each with file and key.
    """
    reader = _Reader(path, content)
    machine = reader.machine()
    if reader.faults:
        raise InputError(reader.faults)
    return machine


class _Reader:
    """A walk over a hardware file that collects its faults."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path, self.content = path, content
        self.faults: list[str] = []
        self.figures: dict[str, Figure] = {}

    def machine(self) -> Machine:
        name = self._text("", self.content, "name", default=self.path.stem)
        if name != self.path.stem:
            self._fault("name", name, "is not the file's name", f"write '{self.path.stem}'")
        self._unknown("", self.content)
        tables = {place: self._table(place) for place in _FIGURES}
        if not tables["scale_up"] and "scale_up" not in self.content:
            self.faults.append(f"{self.path}: scale_up: is missing; every machine has one")
        for place, table in tables.items():
            self._section(place, table)
        up, out = tables["scale_up"], tables["scale_out"]
        kind = self._choice("scale_up", up, "kind") if up else ""
        dimensions = self._dimensions(kind, up)
        self._check_links(kind)
        return Machine(
            name=name,
            title=self._text("", self.content, "title"),
            summary=self._text("", self.content, "summary", default=""),
            path=self.path,
            figures=self.figures,
            scale_up_kind=kind,
            torus_dimensions=dimensions,
            in_network=self._reductions("scale_up", up, "in_network_reduction"),
            scale_out_in_network=self._reductions("scale_out", out, "in_network"),
        )

    def _fault(self, place: str, value: object, wrong: str, allowed: str) -> None:
        self.faults.append(fault(f"{self.path}: {place}", value, wrong, allowed))

    def _table(self, place: str) -> dict[str, Any]:
        table: Any = self.content
        for key in place.split("."):
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict):
            return table
        self._fault(place, table, "is not a table", f"write [{place}] and its keys below")
        return {}

    def _unknown(self, place: str, table: Mapping[str, Any]) -> None:
        known = (*_OTHERS.get(place, ()), *_FIGURES.get(place, ()))
        for key in table:
            if key not in known:
                where = f"{place}.{key}".strip(".")
                self.faults.append(f"{self.path}: {where}: no such key; {nearest(key, known)}")

    def _section(self, place: str, table: Mapping[str, Any]) -> None:
        if place:
            self._unknown(place, table)
        for key, entry in _FIGURES[place].items():
            if key in table:
                self._figure(f"{place}.{key}", table[key], entry)
            elif entry.required and table:
                where = f"{self.path}: {place}.{key}"
                self.faults.append(f"{where}: is missing; every [{place}] has one")

    def _figure(self, place: str, given: object, entry: _Entry) -> None:
        form = "write { value = .., kind = .., source = .. }"
        if not isinstance(given, dict):
            self._fault(place, given, "is not a figure", form)
            return
        for key in given:
            if key not in {"value", "kind", "source"}:
                near = nearest(key, ("value", "kind", "source"))
                self.faults.append(f"{self.path}: {place}.{key}: no such key; {near}")
        kind = self._choice(place, given, "kind", ORIGINS)
        source = self._text(place, given, "source")
        if "value" not in given:
            self.faults.append(f"{self.path}: {place}.value: is missing; {form}")
            return
        try:
            value = parse_quantity(
                given["value"],
                entry.units,
                field=f"{self.path}: {place}.value",
                bare_is_si=False,
                allow_infinite=entry.units == "byte s-1",
            )
        except InputError as error:
            self.faults += error.faults
            return
        low = value <= entry.minimum if entry.above else value < entry.minimum
        if low or (entry.integer and not value.is_integer()):
            least = f"{'above' if entry.above else 'from'} {entry.minimum:g}"
            number = "a whole number" if entry.integer else "a value"
            self._fault(f"{place}.value", given["value"], "can't be", f"{number} {least}")
        self.figures[entry.quantity] = Figure(value, entry.units, kind, source)

    def _text(
        self, place: str, table: Mapping[str, Any], key: str, default: str | None = None
    ) -> str:
        value = table.get(key, default)
        if isinstance(value, str) and (value.strip() or value == default):
            return value
        where = f"{self.path}: {place}.{key}".replace(": .", ": ")
        wrong = "is missing" if key not in table else "is not a text with something in it"
        self.faults.append(f"{where}: {wrong}")
        return ""

    def _choice(
        self, place: str, table: Mapping[str, Any], key: str, known: Sequence[str] = LINK_KINDS
    ) -> str:
        value = self._text(place, table, key)
        if value and value not in known:
            self._fault(f"{place}.{key}", value, "is unknown", nearest(value, known))
        return value

    def _reductions(self, place: str, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        given = table.get(key, [])
        names = tuple(str(name) for name in given) if isinstance(given, list) else ()
        if not isinstance(given, list):
            self._fault(f"{place}.{key}", given, "is not a list", f"a list of {REDUCTIONS}")
        for name in names:
            if name not in REDUCTIONS:
                self._fault(f"{place}.{key}", name, "is unknown", nearest(name, REDUCTIONS))
        return names

    def _dimensions(self, kind: str, table: Mapping[str, Any]) -> int:
        given = table.get("dimensions", 0)
        grid = kind in {"torus", "mesh"}
        allowed = (1, 2, 3) if grid else (0,)
        if isinstance(given, int) and not isinstance(given, bool) and given in allowed:
            return given
        wrong = "is missing" if "dimensions" not in table else "can't be"
        what = f"a {kind} has 1, 2 or 3" if grid else "only a torus or a mesh has dimensions"
        self._fault("scale_up.dimensions", given, wrong, what)
        return 0

    def _check_links(self, kind: str) -> None:
        """Refuse a port that isn't its links together: bits for bytes, or both directions."""
        names = ("intra_bandwidth", "intra_links", "intra_link_bandwidth")
        if kind in {"switch", "fully_connected"} and all(name in self.figures for name in names):
            port, links, link = (self.figures[name].value for name in names)
            if not math.isclose(port, links * link, rel_tol=0.01):
                together = f"{links:g} links of {link:g} byte/s are {links * link:g}"
                self._fault("scale_up.bandwidth", f"{port:g}", "is not its links'", together)
