"""A study's spec file: read whole, every fault at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from overhead.hops import SWITCHING, HopMatrix, Hops, LevelHops, Links
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.hop_study.study import (
    TENSOR,
    VOLUMES,
    WIRINGS,
    HopStudy,
    Scenario,
    from_machine,
    levels_of,
    of_both,
    too_many_ranks,
)
from sweeps.spec.axis import label_values, parse_values
from sweeps.spec.catalog import find_sweep, load_hardware, load_model, spec_names
from sweeps.spec.fields import FigureReader, declared_keys
from sweeps.spec.files import read_toml
from sweeps.spec.units import parse_quantity

KEYS = declared_keys("study")  # By table
LAYERS = ("one", "all")
LINK = {"latency": "s", "bandwidth": "byte s-1", "energy_per_bit": "J bit-1"}


def combination(text: str) -> tuple[int, int] | None:
    """Return the ranks of tensor and of data parallelism of a text such as ``tp8-dp2``."""
    match = re.fullmatch(r"tp([1-9]\d*)-dp([1-9]\d*)", text.strip())
    return None if match is None else (int(match[1]), int(match[2]))


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


def read_study(path: Path, folders: Sequence[Path] = ()) -> HopStudy:
    """Read a study."""
    reader = _StudyFile(path, read_toml(path), folders)
    study = reader.checked(reader.study())
    assert study is not None
    return study


class _StudyFile(FigureReader):
    """A walk over a study's file."""

    def __init__(self, path: Path, content: Mapping[str, Any], folders: Sequence[Path]) -> None:
        super().__init__(path, content)
        self.folders = folders

    def study(self) -> HopStudy | None:
        """Read all of it."""
        content = self.content
        self.unknown("", content, KEYS[""])
        strategies = self.table("strategies")
        self.unknown("strategies", strategies, KEYS["strategies"])
        sizes = self.table("messages")
        self.unknown("messages", sizes, KEYS["messages"])
        networks = self._networks()
        cases = self._cases(networks)
        title = self.text("", content, "title")
        summary = self.text("", content, "summary", default="")
        model = self.of(load_model, self.text("", content, "model"))
        if model is None:
            return None
        lengths = self._values("sequence_length", content.get("sequence_length", 2048))
        element = content.get("element_bytes", "2 B")
        gradient, activation = (
            self._quantity(name, content.get(name, element), "byte")
            for name in ("gradient_bytes", "activation_bytes")
        )
        layers = self.choice("", {"layers": content.get("layers", LAYERS[0])}, "layers", LAYERS)
        combined = self._combined(strategies.get("combined", []), cases)
        ranks = {
            name: self._values(f"strategies.{name}", strategies.get(name, []), "ranks")
            for name in ("data_parallel", "tensor_parallel")
        }
        lowest = sizes.get("message_bytes", "1 KiB:1 GiB:log21")
        message_bytes = self._values("messages.message_bytes", lowest, "message_bytes")
        levels = self._pipeline(strategies.get("pipeline", {}), cases)
        wanted = {f"strategies.{name}": [(int(n), int(n)) for n in ranks[name]] for name in ranks}
        for wrong in too_many_ranks(cases, wanted):
            self.fault(*wrong)
        if self.faults or not cases:
            return None
        return HopStudy(
            title,
            summary,
            model,
            lengths,
            gradient,
            activation,
            tuple(int(n) for n in ranks["data_parallel"]),
            tuple(int(n) for n in ranks["tensor_parallel"]),
            levels,
            message_bytes,
            tuple(cases),
            layers == "all",
            combined,
        )

    def _combined(self, given: Any, cases: Sequence[Scenario]) -> tuple[tuple[int, int], ...]:
        texts = given if isinstance(given, list) else [given]
        combinations = [combination(text) for text in texts if isinstance(text, str)]
        if None in combinations or len(combinations) < len(texts):
            self.fault("strategies.combined", given, "is no combination", '["tp8-dp2"]')
        pairs = tuple(pair for pair in combinations if pair is not None)
        for wrong in too_many_ranks(cases, {"strategies.combined": of_both(pairs)}):
            self.fault(*wrong)
        return pairs

    def _pipeline(self, levels: Any, cases: Sequence[Scenario]) -> dict[str, int]:
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

    def _values(self, location: str, given: Any, name: str = "sequence_length") -> Any:
        quantity = VOCABULARY[name]
        if isinstance(given, list) and not given:
            return np.empty(0)
        where = f"{self.path}: {location}"
        values = self.of(
            parse_values,
            given,
            quantity.units,
            field=where,
            integer=quantity.integer,
            bare_is_si=False,
        )
        if values is None:
            return np.empty(0)
        wrong = quantity.outside(values)
        if wrong.any():
            allowed = f"must be {quantity.domain()}"
            self.fault(location, f"{values[wrong][0]:g}", "out of range", allowed)
        return values

    def _quantity(self, location: str, given: Any, units: str) -> float:
        where = f"{self.path}: {location}"
        infinite = units == "byte s-1"
        value = self.of(
            parse_quantity, given, units, field=where, bare_is_si=False, allow_infinite=infinite
        )
        if value is None:
            return 1.0
        nothing = units in ("s", "J bit-1")  # It may be nothing
        if value < 0.0 or (value == 0.0 and not nothing):
            self.fault(location, given, "out of range", "from 0" if nothing else "above 0")
        return value

    # Networks and cases.

    def _networks(self) -> dict[str, tuple[Links, Hops]]:
        networks: dict[str, tuple[Links, Hops]] = {}
        for name, table in self.table("networks").items():
            location = f"networks.{name}"
            if not isinstance(table, dict):
                self.fault(location, table, "is not a table", f"[{location}] with links and paths")
                continue
            self.unknown(location, table, KEYS["networks"])
            links = self._links(location, table.get("links"))
            hops = self._hops(location, table)
            if links is not None and hops is not None:
                types = hops.hops(0, 0).shape[0]
                if types != len(links.names):
                    wrong = f"paths have {types} types, links are {len(links.names)}"
                    self.fault(location, "..", wrong, "as many of both")
                    continue
                networks[name] = (links, hops)
        return networks

    def _links(self, location: str, given: Any) -> Links | None:
        if not isinstance(given, list) or not given or not all(isinstance(o, dict) for o in given):
            form = "{ name = .., latency = .., bandwidth = .., energy_per_bit = .. }"
            self.fault(f"{location}.links", given, "is not a list of links", f"one or more {form}")
            return None
        columns: dict[str, list[float]] = {name: [] for name in LINK}
        names = []
        for index, link in enumerate(given):
            where = f"{location}.links[{index}]"
            self.unknown(where, link, KEYS["links"])
            names.append(self.text(where, link, "name"))
            for name, units in LINK.items():
                columns[name].append(self._quantity(f"{where}.{name}", link.get(name), units))
        return Links(tuple(names), *(tuple(columns[name]) for name in LINK))

    def _hops(self, location: str, table: Mapping[str, Any]) -> Hops | None:
        try:
            if "matrix" in table:
                return HopMatrix.of(table["matrix"])
            paths = tuple(tuple(int(n) for n in path) for path in table["paths"])
            return LevelHops(tuple(int(n) for n in table.get("sizes", ())), paths)
        except KeyError:
            self.fault(
                location, "..", "has neither paths nor a matrix", "sizes and paths, or matrix"
            )
        except (TypeError, ValueError) as error:
            form = "sizes = [8], paths = [[1, 0], [2, 1]], or matrix = [[[0, 0], [1, 0]], ..]"
            self.fault(location, "..", f"hops can't be read ({error})", form)
        return None

    def _cases(self, networks: Mapping[str, tuple[Links, Hops]]) -> list[Scenario]:
        given = self.content.get("cases", [])
        if not isinstance(given, list) or not given or not all(isinstance(o, dict) for o in given):
            self.fault("cases", "..", "there are none", "one [[cases]] or more, each with a name")
            return []
        cases = []
        for index, table in enumerate(given):
            case = self._case(f"cases[{index}]", table, networks)
            if case is not None:
                cases.append(case)
        names = [case.name for case in cases]
        for name in {name for name in names if names.count(name) > 1}:
            self.fault("cases.name", name, "is given twice", "a name of its own for each")
        return cases

    def _names(self, location: str, table: Mapping[str, Any]) -> tuple[str, ...]:
        names = table.get("link_names", [])
        if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
            self.fault(f"{location}.link_names", names, "is not a list of names", '["NVLink", ..]')
            return ()
        return tuple(names)

    def _case(
        self, location: str, table: Mapping[str, Any], networks: Mapping[str, tuple[Links, Hops]]
    ) -> Scenario | None:
        self.unknown(location, table, KEYS["cases"])
        name = self.text(location, table, "name")
        chosen: dict[str, Any] = {
            key: self.choice(location, {key: table.get(key, known[0])}, key, known)
            for key, known in (
                ("switching", SWITCHING),
                ("tensor", TENSOR),
                ("volume", VOLUMES),
                ("wiring", WIRINGS),
            )
        }
        gated = table.get("gated_mlp")
        if gated is not None and not isinstance(gated, bool):
            self.fault(f"{location}.gated_mlp", gated, "is neither true nor false", "true or false")
        if ("hardware" in table) == ("network" in table):
            self.fault(location, name, "needs a machine or a network", "hardware, or network")
            return None
        names = self._names(location, table)
        try:
            if "hardware" in table:
                where = self.text(location, table, "hardware")
                machine = load_hardware(where, self.folders)
                network: tuple[Links, Hops] = from_machine(machine, names, chosen["wiring"])
            else:
                where = self.choice(location, table, "network", tuple(networks))
                network = networks[where]
        except InputError as error:
            self.faults += error.faults
            return None
        except KeyError:
            return None
        algorithm = ""
        if "algorithm" in table:
            algorithm = self.choice(location, table, "algorithm", label_values("algorithm"))
            if "network" in table:
                self.fault(f"{location}.algorithm", algorithm, "is a machine's", "hardware")
        note = self.text(location, table, "note", default="")
        links, hops = network
        return Scenario(
            name,
            links,
            hops,
            where,
            gated=gated,
            note=note,
            algorithm=algorithm,
            machine="hardware" in table,
            folders=tuple(self.folders),
            link_names=names,
            **chosen,
        )
