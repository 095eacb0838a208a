"""What stands for all where none is named: a machine's links, its library, software that trains.

A file's numbers have units, written by hand; the few that are needed are read here, so that
formulas alone need no catalogue.  (`sweeps.spec` reads all of every file.)
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from overhead.labels import LABELS

# Powers of ten of the units in which links' figures are written, and bits in them.
UNITS = {
    "GB/s": (9, 1),
    "TB/s": (12, 1),
    "s": (0, 1),
    "B": (0, 1),
    "Gbit/s": (9, 8),
    "us": (-6, 1),
    "pJ/bit": (-12, 1),
}
# Of a file's tables the figures of links, by the quantity that each gives.
LINKS = {"intra": "scale_up", "inter": "scale_out"}
FIGURES = ("bandwidth", "latency", "energy_per_bit")
# What a switch can do, and the words for it.
ABILITIES = {
    "intra_nvls": ("in_network_reduction", ("nvls",)),
    "intra_inc": ("in_network_reduction", ("inc", "sharp")),
    "inter_inc": ("in_network", ("inc", "sharp")),
}


@cache
def default_links() -> dict[str, float]:
    """Return the default machine's nodes and links by quantity, in canonical units."""
    content = _read("hardware", LABELS["hardware"].default)
    up, out = content["scale_up"], content["scale_out"]
    found = {
        f"{level}_{figure}": _number(content[table][figure]["value"])
        for level, table in LINKS.items()
        for figure in FIGURES
    }
    for quantity, (key, words) in ABILITIES.items():
        table = content[LINKS[quantity.split("_")[0]]]
        found[quantity] = float(bool(set(words) & set(table[key])))
    within = _number(up["in_network_latency"]["value"])
    return found | {
        "gpus_per_node": _number(up["gpus_per_node"]["value"]),
        "nics_per_node": _number(out["nics_per_node"]["value"]),
        "in_network_latency_factor": within / found["intra_latency"],
    }


LIBRARY = "nccl"


@cache
def default_library() -> dict[str, float]:
    """Return what the library takes on the default machine, by quantity, in canonical units."""
    machine, content = _read("hardware", LABELS["hardware"].default), _read("software", LIBRARY)
    own = machine["software"]
    tables = (content["node"][own["generation"]], content["fabric"][own["fabric"]])
    found = {
        name: _number(figure["value"])
        for table in (*tables, content["shared"])
        for name, figure in table.items()
    }
    host = _number(machine["scale_up"]["gpus_per_node"]["value"])
    return found | {"pair_bandwidth": math.inf, "gpus_per_host": host, "issue_time": 0.0}


@cache
def default_framework() -> tuple[dict[str, str], dict[str, float]]:
    """Return the default framework's labels, and its figures by quantity in canonical units."""
    content = _read("frameworks", LABELS["framework"].default)
    labels = {name: one["value"] for name, one in content["labels"].items()}
    return labels, {name: _number(one["value"]) for name, one in content["figures"].items()}


def _read(kind: str, name: str) -> dict[str, Any]:
    """Read a file of the catalogue: a copy of it in an installation, or the one beside the code."""
    package, file = Path(__file__).parent, f"{name}.toml"
    places = (package / "machines" / file, package.parent / "specs" / kind / file)
    path = next((one for one in places if one.exists()), None)
    if path is None:
        message = f"{file} is missing from the installation of overhead: install again"
        raise FileNotFoundError(message)
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _number(value: Any) -> float:
    """Return a figure in its canonical unit, rounded once."""
    if not isinstance(value, str):
        return float(value)
    digits, unit = value.split()
    power, bits = UNITS[unit]
    return float(f"{digits}e{power}") / bits
