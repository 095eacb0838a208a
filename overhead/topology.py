"""A network as one object: its kind, its shape and its links."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from overhead.collectives.algorithm import NETWORKS
from overhead.collectives.network import factors
from overhead.everything import load
from overhead.labels import HIERARCHY, LABELS, NO_LIBRARY, complete, usual_spelling
from overhead.quantity import VOCABULARY, Array

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
        "leaf_nodes": _number(out["leaf_nodes"]["value"]),
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


FLAT_LINK = ("bandwidth", "latency", "energy_per_bit")
LEVEL_LINKS = tuple(f"{level}_{name}" for level in ("intra", "inter") for name in FLAT_LINK)


load("collectives")


def kinds(name: str, values: Iterable[str]) -> Any:
    """Return an enumeration of a label's values."""
    return StrEnum(name, {value.upper(): value for value in values})


TopologyKind = kinds("TopologyKind", NETWORKS)


@dataclass(frozen=True, slots=True)
class TopologyDesc:
    """A network.

    Attributes
    ----------
    kind : str
        Which: a `TopologyKind`, or the name of a network of one's own.
    values : mapping of str to ndarray
        Its shape and links by quantity, in canonical units; the arrays broadcast.
    library : str
        The library that runs collectives there; ``none`` where links alone are known.
    """

    kind: str
    values: Mapping[str, Array]
    library: str = NO_LIBRARY

    @property
    def ranks(self) -> Array:
        """Number of ranks."""
        return self.values["ranks"]

    @property
    def shape(self) -> str:
        """Which formulas hold: flat, or so many levels."""
        return complete({"topology": self.kind}, self.values)["shape"]


def build_topology(
    kind: str,
    num_gpus: Any = None,
    *,
    bandwidth: Any = None,
    latency: Any = None,
    energy_per_bit: Any = None,
    gpus_per_node: Any = None,
    mesh_nx: Any = None,
    mesh_ny: Any = None,
    mesh_nz: Any = None,
    dimensions: int = 2,
    **levels: Any,
) -> TopologyDesc:
    """Build a network.

    Of what links nothing is said, they are those of the machine that commands take where none is
    named (`default_links`): its nodes, links, switches and library.

    Parameters
    ----------
    kind : str
        Which: a `TopologyKind` or its name.
    num_gpus : array_like, optional
        Ranks; of a mesh or torus the product of its sizes where these are given.
    bandwidth, latency, energy_per_bit : array_like, optional
        Of a flat network's links: byte/s of one direction (of a rank's port), s, J/bit (default
        of links that are given: 0).
    gpus_per_node : array_like, optional
        Of a hierarchy: ranks in a node (default, where links are given: 1).
    mesh_nx, mesh_ny, mesh_nz : array_like, optional
        Sizes of a mesh or torus; by default the factors of `num_gpus` nearest to each other.
    dimensions : int
        How many of these.
    **levels
        Of a hierarchy: ``intra_bandwidth``, ``intra_latency``, ``inter_bandwidth``,
        ``inter_latency``, both ``.._energy_per_bit`` (default 0), ``ranks_per_nic`` or
        ``nics_per_node`` (default: a card a rank), ``oversubscription`` (default 1), of leaf
        switches of ``leaf_nodes`` (default, where links are given: 1); with
        ``nodes_per_pod`` a third level's ``pod_..``; ``intra_nvls`` and ``inter_inc`` (default 0)
        say whether switches reduce.  Of a switch: ``has_nvls``, ``has_inc``.  Of both
        ``in_network_latency_factor`` (default 1).

    Returns
    -------
    TopologyDesc
        The network.

    Raises
    ------
    ValueError
        If something is missing, unknown, or outside of its domain.
    """
    kind = usual_spelling(kind, NETWORKS)
    if kind not in NETWORKS:
        message = f"topology = '{kind}': is unknown; one of {', '.join(NETWORKS)}"
        raise ValueError(message)
    if dimensions not in (1, 2, 3):
        message = f"dimensions = {dimensions}: a mesh or torus has 1, 2 or 3"
        raise ValueError(message)
    given = {
        "ranks": num_gpus,
        "bandwidth": bandwidth,
        "latency": latency,
        "energy_per_bit": energy_per_bit,
        "gpus_per_node": gpus_per_node,
        "mesh_nx": mesh_nx,
        "mesh_ny": mesh_ny,
        "mesh_nz": mesh_nz,
        **levels,
    }
    values = {n: np.asarray(v, dtype=np.float64) for n, v in given.items() if v is not None}
    own = LEVEL_LINKS if kind == HIERARCHY else FLAT_LINK
    library = NO_LIBRARY
    if not {name for name in own if not name.endswith("bit")} & set(values):
        _complete_links(values)
        library = LIBRARY
    _complete(kind, values, dimensions)
    _check(kind, values)
    return TopologyDesc(str(kind), values, library)


def own_network(ranks: Any) -> TopologyDesc:
    """Return the default machine's own network: a switch inside a node, nodes beyond."""
    node = default_links()["gpus_per_node"]
    inside = bool(np.all(np.asarray(ranks) <= node))
    return build_topology("switch" if inside else HIERARCHY, ranks)


def _complete_links(values: dict[str, Array]) -> None:
    """Give the default machine's nodes and links, and between pods the same as between nodes."""
    links = default_links()
    if "nics_per_node" not in values:
        # A card serves as many ranks as the machine's, however many of a group a node has.
        share = links["gpus_per_node"] / links["nics_per_node"]
        values.setdefault("ranks_per_nic", np.asarray(share))
    for name, value in links.items():
        if name != "nics_per_node":
            values.setdefault(name, np.asarray(value))
    if "nodes_per_pod" in values:
        for name in ("bandwidth", "latency", "energy_per_bit"):
            values.setdefault(f"pod_{name}", values[f"inter_{name}"])


def _complete(kind: str, values: dict[str, Array], dimensions: int) -> None:
    one = np.asarray(1.0)
    if NETWORKS[kind].grid:
        _complete_grid(values, dimensions)
    if "bandwidth" in values:
        values.setdefault("energy_per_bit", np.asarray(0.0))
    if kind == "switch" and "bandwidth" in values:
        values.setdefault("in_network_latency_factor", np.asarray(1.0))
        values.setdefault("has_nvls", np.asarray(0.0))
        values.setdefault("has_inc", np.asarray(0.0))
    if kind == HIERARCHY:
        values.setdefault("gpus_per_node", np.asarray(1.0))
        values.setdefault("in_network_latency_factor", one)
        for name in ("intra_nvls", "inter_inc"):
            values.setdefault(name, np.asarray(0.0))
        if "nics_per_node" not in values:
            values.setdefault("ranks_per_nic", one)
        for name in ("oversubscription", "pod_oversubscription"):
            values.setdefault(name, one)
        for level in ("intra", "inter", "pod"):
            values.setdefault(f"{level}_energy_per_bit", np.asarray(0.0))


def _complete_grid(values: dict[str, Array], dimensions: int) -> None:
    one, sizes = np.asarray(1.0), ("mesh_nx", "mesh_ny", "mesh_nz")
    if any(name in values for name in sizes):
        open_size = "mesh_ny" if "mesh_nx" in values else "mesh_nx"
        others = [values.setdefault(name, one) for name in sizes if name != open_size]
        if "ranks" in values:
            given = others[0] * others[1]
            if open_size not in values and np.any(values["ranks"] % given != 0.0):
                words = " x ".join(name for name in sizes if name != open_size)
                ranks = values["ranks"]
                message = f"{words} = {given}: doesn't divide the {ranks} ranks; a divisor"
                raise ValueError(message)
            values.setdefault(open_size, np.asarray(values["ranks"] / given))
        last = values.setdefault(open_size, one)
        values.setdefault("ranks", np.asarray(others[0] * others[1] * last))
    elif "ranks" in values:
        split = np.array([factors(int(n), dimensions) for n in values["ranks"].reshape(-1)])
        padded = np.ones((split.shape[0], 3))
        padded[:, :dimensions] = split
        for index, name in enumerate(sizes):
            values[name] = padded[:, index].reshape(values["ranks"].shape)


def _check(kind: str, values: Mapping[str, Array]) -> None:
    needed = ["ranks"]
    if kind == HIERARCHY:
        needed += [name for name in LEVEL_LINKS if not name.endswith("bit")]
        if "nodes_per_pod" in values:
            needed += ["pod_bandwidth", "pod_latency"]
    elif "intra_bandwidth" not in values:
        needed += ["bandwidth", "latency"]
    missing = [name for name in needed if name not in values]
    if missing:
        message = f"a {kind} network needs {', '.join(missing)}"
        raise ValueError(message)
    for name, value in values.items():
        if name not in VOCABULARY:
            message = f"a network has no '{name}'"
            raise ValueError(message)
        if np.any(VOCABULARY[name].outside(value)):
            message = f"{name} = {value}: outside of its domain; {VOCABULARY[name].domain()}"
            raise ValueError(message)
    for one in NETWORKS[kind].requires:
        own = {name: values[name] for name in one.inputs if name in values}
        if len(own) == len(one.inputs) and not np.all(one.holds(**own)):
            text = ", ".join(f"{name} = {value}" for name, value in own.items())
            message = f"{text}: {one.text}"
            raise ValueError(message)
