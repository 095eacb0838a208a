"""A study's spec file: read whole, every fault at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from overhead.hops import SWITCHING, HopMatrix, Hops, LevelHops, Links
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.hops.study import TENSOR, VOLUMES, Case, Study, from_machine, levels_of
from sweeps.spec.catalog import find_sweep, load_hardware, load_model, read_toml, spec_names
from sweeps.spec.figures import FigureReader
from sweeps.spec.ranges import parse_values
from sweeps.spec.units import parse_quantity

__all__ = ["find_study", "read_study"]

KEYS = (
    "title", "summary", "model", "sequence_length", "element_bytes", "strategies", "messages",
    "networks", "cases",
)  # fmt: skip
STRATEGIES = ("data_parallel", "tensor_parallel", "pipeline")
CASE = (
    "name", "hardware", "network", "link_names", "switching", "gated", "tensor", "volume", "note",
)  # fmt: skip
NETWORK = ("links", "sizes", "paths", "matrix")
LINK = {"latency": "s", "bandwidth": "byte s-1", "energy_per_bit": "J bit-1"}


def find_study(name_or_path: str) -> Path:
    """Find a study's spec by its name or path, among the sweeps."""
    named = Path(name_or_path).name == name_or_path and not name_or_path.endswith(".toml")
    if named and f"{name_or_path}-hops" in spec_names("sweeps"):
        return find_sweep(f"{name_or_path}-hops")
    return find_sweep(name_or_path)


def is_study(path: Path) -> bool:
    """Return whether a spec file is a study of hops rather than a sweep; a broken one isn't."""
    try:
        return {"strategies", "cases"} <= set(read_toml(path))
    except InputError:
        return False


def read_study(path: Path, folders: Sequence[Path] = ()) -> Study:
    """Read a study."""
    reader = _Reader(path, read_toml(path), folders)
    study = reader.study()
    if reader.faults or study is None:
        raise InputError(list(dict.fromkeys(reader.faults)))
    return study


class _Reader(FigureReader):
    """A walk over a study's file."""

    def __init__(self, path: Path, content: Mapping[str, Any], folders: Sequence[Path]) -> None:
        super().__init__(path, content)
        self.folders = folders

    def study(self) -> Study | None:
        """Read all of it."""
        content = self.content
        self.unknown("", content, KEYS)
        strategies = self.table("strategies")
        self.unknown("strategies", strategies, STRATEGIES)
        sizes = self.table("messages")
        self.unknown("messages", sizes, ("message_bytes",))
        networks = self._networks()
        cases = self._cases(networks)
        title = self.text("", content, "title")
        summary = self.text("", content, "summary", default="")
        try:
            model = load_model(self.text("", content, "model"))
        except InputError as error:
            self.faults += error.faults
            return None
        lengths = self._values("sequence_length", content.get("sequence_length", 2048))
        element = self._quantity("element_bytes", content.get("element_bytes", "2 B"), "byte")
        ranks = {
            name: self._values(f"strategies.{name}", strategies.get(name, []), "ranks")
            for name in STRATEGIES[:2]
        }
        lowest = sizes.get("message_bytes", "1 KiB:1 GiB:log21")
        message_bytes = self._values("messages.message_bytes", lowest, "message_bytes")
        levels = self._pipeline(strategies.get("pipeline", {}), cases)
        self._check_ranks(cases, ranks)
        if self.faults or not cases:
            return None
        return Study(
            title, summary, model, lengths, element,
            tuple(int(n) for n in ranks["data_parallel"]),
            tuple(int(n) for n in ranks["tensor_parallel"]),
            levels, message_bytes, tuple(cases),
        )  # fmt: skip

    def _pipeline(self, levels: Any, cases: Sequence[Case]) -> dict[str, int]:
        whole = isinstance(levels, dict) and all(
            isinstance(level, int) and not isinstance(level, bool) for level in levels.values()
        )
        if not whole:
            self.fault("strategies.pipeline", levels, "is not levels by name", "{ NV = 0 }")
            return {}
        for case in cases:
            known = levels_of(case.network)
            for name, level in levels.items():
                if not 0 <= level < known:
                    wrong = f"'{case.name}' has no such level"
                    self.fault(f"strategies.pipeline.{name}", level, wrong, f"0 to {known - 1}")
        return dict(levels)

    def _check_ranks(self, cases: Sequence[Case], ranks: Mapping[str, Any]) -> None:
        for case in cases:
            for name, values in ranks.items():
                for value in values:
                    if case.network.ranks is not None and value > case.network.ranks:
                        allowed = f"at most {case.network.ranks}"
                        wrong = f"'{case.name}' has fewer ranks"
                        self.fault(f"strategies.{name}", int(value), wrong, allowed)

    def _values(self, place: str, given: Any, name: str = "sequence_length") -> Any:
        quantity = VOCABULARY[name]
        if isinstance(given, list) and not given:
            return np.empty(0)
        where = f"{self.path}: {place}"
        try:
            values = parse_values(
                given, quantity.units, field=where, integer=quantity.integer, bare_is_si=False
            )
        except InputError as error:
            self.faults += error.faults
            return np.empty(0)
        wrong = quantity.outside(values)
        if wrong.any():
            self.fault(place, f"{values[wrong][0]:g}", "outside of its domain", quantity.domain())
        return values

    def _quantity(self, place: str, given: Any, units: str) -> float:
        where = f"{self.path}: {place}"
        try:
            value = parse_quantity(
                given, units, field=where, bare_is_si=False, allow_infinite=units == "byte s-1"
            )
        except InputError as error:
            self.faults += error.faults
            return 1.0
        least = 0.0 if units in ("s", "J bit-1") else None
        if value < 0.0 or (least is None and value == 0.0):
            allowed = "from 0" if least == 0.0 else "above 0"
            self.fault(place, given, "outside of its domain", allowed)
        return value

    # Networks and cases.

    def _networks(self) -> dict[str, tuple[Links, Hops]]:
        found: dict[str, tuple[Links, Hops]] = {}
        for name, table in self.table("networks").items():
            place = f"networks.{name}"
            if not isinstance(table, dict):
                self.fault(place, table, "is not a table", f"[{place}] with links and paths")
                continue
            self.unknown(place, table, NETWORK)
            links = self._links(place, table.get("links"))
            hops = self._hops(place, table)
            if links is not None and hops is not None:
                types = hops.hops(0, 0).shape[0]
                if types != len(links.names):
                    wrong = f"paths have {types} types, links are {len(links.names)}"
                    self.fault(place, "..", wrong, "as many of both")
                    continue
                found[name] = (links, hops)
        return found

    def _links(self, place: str, given: Any) -> Links | None:
        if not isinstance(given, list) or not given or not all(isinstance(o, dict) for o in given):
            form = "{ name = .., latency = .., bandwidth = .., energy_per_bit = .. }"
            self.fault(f"{place}.links", given, "is not a list of links", f"one or more {form}")
            return None
        columns: dict[str, list[float]] = {name: [] for name in LINK}
        names = []
        for index, link in enumerate(given):
            where = f"{place}.links[{index}]"
            self.unknown(where, link, ("name", *LINK))
            names.append(self.text(where, link, "name"))
            for name, units in LINK.items():
                columns[name].append(self._quantity(f"{where}.{name}", link.get(name), units))
        return Links(tuple(names), *(tuple(columns[name]) for name in LINK))

    def _hops(self, place: str, table: Mapping[str, Any]) -> Hops | None:
        try:
            if "matrix" in table:
                return HopMatrix.of(table["matrix"])
            paths = tuple(tuple(int(n) for n in path) for path in table["paths"])
            return LevelHops(tuple(int(n) for n in table.get("sizes", ())), paths)
        except KeyError:
            self.fault(place, "..", "has neither paths nor a matrix", "sizes and paths, or matrix")
        except (TypeError, ValueError) as error:
            form = "sizes = [8], paths = [[1, 0], [2, 1]], or matrix = [[[0, 0], [1, 0]], ..]"
            self.fault(place, "..", f"hops can't be read ({error})", form)
        return None

    def _cases(self, networks: Mapping[str, tuple[Links, Hops]]) -> list[Case]:
        given = self.content.get("cases", [])
        if not isinstance(given, list) or not given or not all(isinstance(o, dict) for o in given):
            self.fault("cases", "..", "there are none", "one [[cases]] or more, each with a name")
            return []
        found = []
        for index, table in enumerate(given):
            case = self._case(f"cases[{index}]", table, networks)
            if case is not None:
                found.append(case)
        names = [case.name for case in found]
        for name in {name for name in names if names.count(name) > 1}:
            self.fault("cases.name", name, "stands there twice", "a name of its own for each")
        return found

    def _names(self, place: str, table: Mapping[str, Any]) -> tuple[str, ...]:
        names = table.get("link_names", [])
        if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
            self.fault(f"{place}.link_names", names, "is not a list of names", '["NVLink", ..]')
            return ()
        return tuple(names)

    def _case(
        self, place: str, table: Mapping[str, Any], networks: Mapping[str, tuple[Links, Hops]]
    ) -> Case | None:
        self.unknown(place, table, CASE)
        name = self.text(place, table, "name")
        chosen = {
            key: self.choice(place, {key: table.get(key, known[0])}, key, known)
            for key, known in (("switching", SWITCHING), ("tensor", TENSOR), ("volume", VOLUMES))
        }
        gated = table.get("gated")
        if gated is not None and not isinstance(gated, bool):
            self.fault(f"{place}.gated", gated, "is neither true nor false", "true or false")
        if ("hardware" in table) == ("network" in table):
            self.fault(place, name, "needs a machine or a network", "hardware, or network")
            return None
        try:
            if "hardware" in table:
                where = self.text(place, table, "hardware")
                machine = load_hardware(where, self.folders)
                network: tuple[Links, Hops] = from_machine(machine, self._names(place, table))
            else:
                where = self.choice(place, table, "network", tuple(networks))
                network = networks[where]
        except InputError as error:
            self.faults += error.faults
            return None
        except KeyError:
            return None
        note = self.text(place, table, "note", default="")
        links, hops = network
        return Case(name, links, hops, where, gated=gated, note=note, **chosen)
