"""A network as one object, and one call for a collective on it: arrays in, arrays out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np

from overhead.arrays import in_numpy, namespace_of, using, xp
from overhead.choose import NOT_OF_ONE_RANK, candidates
from overhead.collectives.algorithm import NETWORKS
from overhead.collectives.grid import factors
from overhead.completion import following
from overhead.evaluation import Evaluation
from overhead.everything import load
from overhead.labels import (
    CHOICES,
    COLLECTIVES,
    HIERARCHY,
    LABELS,
    NCCL,
    NO_LIBRARY,
    OPERATION_DEFAULTS,
    usual_spelling,
)
from overhead.quantity import VOCABULARY, Array
from overhead.shipped import read_shipped

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
# The figures of links as machines' files have them, in the order of the quantities of each level.
FIGURES = ("bandwidth", "latency", "energy_per_bit")
SCALE_UP = ("intra_bandwidth", "intra_latency", "intra_energy_per_bit")
SCALE_OUT = ("inter_bandwidth", "inter_latency", "inter_energy_per_bit")
POD_LINKS = ("pod_bandwidth", "pod_latency", "pod_energy_per_bit")
# What a network's links must have.
FLAT_LINK, POD_LINK = ["bandwidth", "latency"], ["pod_bandwidth", "pod_latency"]
LEVEL_LINKS = ["intra_bandwidth", "intra_latency", "inter_bandwidth", "inter_latency"]
# What a switch can do: the table and the key that say it, and the words for it.
ABILITIES = {
    "intra_nvls": ("scale_up", "in_network_reduction", ("nvls",)),
    "intra_inc": ("scale_up", "in_network_reduction", ("inc", "sharp")),
    "inter_inc": ("scale_out", "in_network", ("inc", "sharp")),
}


@cache
def default_links() -> dict[str, float]:
    """Return the default machine's nodes and links by quantity, in canonical units."""
    content = read_shipped("hardware", LABELS["hardware"].default)
    up, out = content["scale_up"], content["scale_out"]
    values = {
        quantity: _number(table[figure]["value"])
        for table, quantities in ((up, SCALE_UP), (out, SCALE_OUT))
        for quantity, figure in zip(quantities, FIGURES, strict=True)
    }
    for quantity, (name, key, words) in ABILITIES.items():
        values[quantity] = float(bool(set(words) & set(content[name][key])))
    within = _number(up["in_network_latency"]["value"])
    return values | {
        "gpus_per_node": _number(up["gpus_per_node"]["value"]),
        "nics_per_node": _number(out["nics_per_node"]["value"]),
        "nodes_per_leaf": _number(out["nodes_per_leaf"]["value"]),
        "in_network_latency_factor": within / values["intra_latency"],
    }


LIBRARY = "nccl"


@cache
def default_library() -> dict[str, float]:
    """Return what the library takes on the default machine, by quantity, in canonical units."""
    machine = read_shipped("hardware", LABELS["hardware"].default)
    content = read_shipped("software", LIBRARY)
    software = machine["software"]
    tables = (content["node"][software["generation"]], content["fabric"][software["fabric"]])
    values = {
        name: _number(figure["value"])
        for table in (*tables, content["shared"])
        for name, figure in table.items()
    }
    host = _number(machine["scale_up"]["gpus_per_node"]["value"])
    return values | {
        "pair_bandwidth_ratio": 1.0,
        "gpus_per_host": host,
        "collective_host_time": 0.0,
    }


@cache
def default_framework() -> tuple[dict[str, str], dict[str, float]]:
    """Return the default framework's labels, and its figures by quantity in canonical units."""
    content = read_shipped("frameworks", LABELS["framework"].default)
    labels = {name: label["value"] for name, label in content["labels"].items()}
    return labels, {name: _number(figure["value"]) for name, figure in content["figures"].items()}


def _number(value: Any) -> float:
    """Return a figure in its canonical unit, rounded once."""
    if not isinstance(value, str):
        return float(value)
    digits, unit = value.split()
    power, bits = UNITS[unit]
    return float(f"{digits}e{power}") / bits


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
        return following({"topology": self.kind}, self.values)["shape"]


# Symbols of links' figures that are understood.
SYMBOLS = {
    "B": "bandwidth",
    "B1": "intra_bandwidth",
    "B2": "inter_bandwidth",
    "alpha": "latency",
    "alpha1": "intra_latency",
    "alpha2": "inter_latency",
}


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
        ``inter_latency``, both ``.._energy_per_bit`` (default 0), ``ranks_sharing_nic`` or
        ``nics_per_node`` (default: a card a rank), ``oversubscription`` (default 1), of leaf
        switches of ``nodes_per_leaf`` (default, where links are given: 1); with
        ``nodes_per_pod`` a third level's ``pod_..``; ``intra_nvls`` and ``inter_inc`` (default 0)
        say whether switches reduce.  Of a switch: ``has_nvls``, ``has_inc``.  Of both
        ``in_network_latency_factor`` (default 1).  ``B``, ``alpha`` and those with 1 (inside a
        node) or 2 (between nodes) are understood, too.

    Returns
    -------
    TopologyDesc
        The network.

    Raises
    ------
    ValueError
        If something is missing, unknown, or out of range.
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
        **{SYMBOLS.get(name, name): value for name, value in levels.items()},
    }
    values = {n: np.asarray(v, dtype=np.float64) for n, v in given.items() if v is not None}
    names = LEVEL_LINKS if kind == HIERARCHY else FLAT_LINK
    library = NO_LIBRARY
    if not set(names) & set(values):
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
        values.setdefault("ranks_sharing_nic", np.asarray(share))
    for name, value in links.items():
        if name != "nics_per_node":
            values.setdefault(name, np.asarray(value))
    if "nodes_per_pod" in values:
        for name, between_nodes in zip(POD_LINKS, SCALE_OUT, strict=True):
            values.setdefault(name, values[between_nodes])


def _complete(kind: str, values: dict[str, Array], dimensions: int) -> None:
    if NETWORKS[kind].grid:
        _complete_grid(values, dimensions)
    unit_names: list[str] = []
    noughts: list[str] = []
    if "bandwidth" in values:
        noughts.append("energy_per_bit")
    if kind == "switch" and "bandwidth" in values:
        unit_names.append("in_network_latency_factor")
        noughts += ["has_nvls", "has_inc"]
    if kind == HIERARCHY:
        unit_names += [
            "gpus_per_node",
            "in_network_latency_factor",
            "oversubscription",
            "pod_oversubscription",
        ]
        noughts += [
            "intra_nvls",
            "inter_inc",
            "intra_energy_per_bit",
            "inter_energy_per_bit",
            "pod_energy_per_bit",
        ]
        if "nics_per_node" not in values:
            unit_names.append("ranks_sharing_nic")
    defaults = {**dict.fromkeys(unit_names, 1.0), **dict.fromkeys(noughts, 0.0)}
    for name, value in defaults.items():
        values.setdefault(name, np.asarray(value))


def _complete_grid(values: dict[str, Array], dimensions: int) -> None:
    single, sizes = np.asarray(1.0), ("mesh_nx", "mesh_ny", "mesh_nz")
    for name in ("ranks", *sizes):
        if name in values:
            _check_domain(name, values[name])
    if any(name in values for name in sizes):
        open_size = "mesh_ny" if "mesh_nx" in values else "mesh_nx"
        others = [values.setdefault(name, single) for name in sizes if name != open_size]
        if "ranks" in values:
            given = others[0] * others[1]
            if open_size not in values and np.any(values["ranks"] % given != 0.0):
                words = " x ".join(name for name in sizes if name != open_size)
                ranks = values["ranks"]
                message = f"{words} = {given}: doesn't divide the {ranks} ranks; a divisor"
                raise ValueError(message)
            values.setdefault(open_size, np.asarray(values["ranks"] / given))
        last = values.setdefault(open_size, single)
        values.setdefault("ranks", np.asarray(others[0] * others[1] * last))
    elif "ranks" in values:
        split = np.array([factors(int(n), dimensions) for n in values["ranks"].reshape(-1)])
        padded = np.ones((split.shape[0], 3))
        padded[:, :dimensions] = split
        for index, name in enumerate(sizes):
            values[name] = padded[:, index].reshape(values["ranks"].shape)


def _check_domain(name: str, value: Array) -> None:
    # Formulas of endlessly many ranks give no number.
    if np.any(VOCABULARY[name].outside(value)) or (name == "ranks" and np.any(np.isinf(value))):
        message = f"{name} = {value}: out of range; must be {VOCABULARY[name].domain()}"
        raise ValueError(message)


def _check(kind: str, values: Mapping[str, Array]) -> None:
    needed = ["ranks"]
    if kind == HIERARCHY:
        needed += LEVEL_LINKS
        if "nodes_per_pod" in values:
            needed += POD_LINK
    elif "intra_bandwidth" not in values:
        needed += FLAT_LINK
    missing = [name for name in needed if name not in values]
    if missing:
        message = f"a {kind} network needs {', '.join(missing)}"
        raise ValueError(message)
    for name, value in values.items():
        if name not in VOCABULARY:
            message = f"a network has no '{name}'"
            raise ValueError(message)
        _check_domain(name, value)
    for requirement in NETWORKS[kind].requires:
        inputs = {name: values[name] for name in requirement.inputs if name in values}
        if len(inputs) == len(requirement.inputs) and not np.all(requirement.holds(**inputs)):
            text = ", ".join(f"{name} = {value}" for name, value in inputs.items())
            message = f"{text}: {requirement.text}"
            raise ValueError(message)


CollectiveKind = kinds("CollectiveKind", COLLECTIVES)


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """What a collective costs; arrays of the shape to which the inputs broadcast.

    Attributes
    ----------
    latency_s : ndarray
        The whole time [s]; NaN where the algorithm isn't defined.
    volume_bytes : ndarray
        Most bytes that one rank sends [byte].
    steps : ndarray
        Steps of the schedule.
    latency_part_s, bandwidth_part_s : ndarray
        The time's parts [s].
    intra_latency_s, inter_latency_s : ndarray
        The time's parts inside and between nodes, between pods included [s]; of a flat network
        all is inside.
    link_bytes : ndarray
        Bytes over all links together [byte].
    energy_j : ndarray
        Energy of these bytes [J].
    algbw, busbw : ndarray
        Algorithm and bus bandwidth as nccl-tests has them [byte/s]; NaN for one rank.
    lower_bound_s, lower_bound_ratio : ndarray
        Physical lower bound [s], and the time over it.
    algorithm : ndarray of str
        The algorithm whose time it is; empty where none is defined.
    """

    latency_s: Array
    volume_bytes: Array
    steps: Array
    latency_part_s: Array
    bandwidth_part_s: Array
    intra_latency_s: Array
    inter_latency_s: Array
    link_bytes: Array
    energy_j: Array
    algbw: Array
    busbw: Array
    lower_bound_s: Array
    lower_bound_ratio: Array
    algorithm: Array


QUANTITIES = {
    "latency_s": "time",
    "volume_bytes": "sent_bytes",
    "steps": "steps",
    "latency_part_s": "latency_time",
    "bandwidth_part_s": "bandwidth_time",
    "intra_latency_s": "intra_time",
    "inter_latency_s": "inter_time",
    "link_bytes": "link_bytes",
    "energy_j": "energy",
    "algbw": "algbw",
    "busbw": "busbw",
    "lower_bound_s": "lower_bound",
    "lower_bound_ratio": "lower_bound_ratio",
}
assert {*QUANTITIES, "algorithm"} == {field.name for field in fields(CollectiveResult)}


def collective(
    kind: str,
    message_bytes: Any,
    topology: TopologyDesc | Any,
    *,
    algorithm: str | None = None,
    software: str | None = None,
    chunks: Any = None,
    phase_chunks: Any = None,
    reduction_cost: Any = None,
    hops: Any = 1.0,
    latency_per: str = OPERATION_DEFAULTS["latency_per"],
) -> CollectiveResult:
    """Return what a collective operation costs.

    Parameters
    ----------
    kind : str
        The operation: a `CollectiveKind` or its name.
    message_bytes : array_like
        Message size as nccl-tests counts it [byte]; broadcasts with the network's values.
    topology : TopologyDesc or array_like
        The network; or a number of ranks, on the network of the machine that commands take where
        none is named.
    algorithm : str, optional
        A name, or ``standard``, ``nccl``, ``auto`` (the least time of all that are defined); by
        default what a library takes (``nccl``), without one ``standard``.
    software : {"none", "nccl"}, optional
        Whether the exact forms hold alone, or the library's profile prices them, with the constants
        of the default machine; by default the network's own, and ``none`` where `phase_chunks` or
        `reduction_cost` is given, of which a profile has no form.
    chunks, phase_chunks : array_like, optional
        Chunks of a pipelined algorithm (default: the optimum), and chunks over which phases on
        different dimensions are pipelined (default: they run one after another).
    reduction_cost : array_like, optional
        Time to reduce a byte [s/byte]; by default reductions cost nothing.
    hops : array_like
        Links between sender and receiver of a p2p.
    latency_per : {"hop", "message"}
        What pays a latency.

    Returns
    -------
    CollectiveResult
        Arrays of one shape: numpy's, or of the library (JAX, PyTorch, CuPy and others that follow
        the array API standard) whose arrays are given.

    Raises
    ------
    ValueError
        If the collective has no such algorithm on the network, a name is unknown, or a value
        out of range.
    """
    network = topology if isinstance(topology, TopologyDesc) else own_network(in_numpy(topology))
    kind = usual_spelling(str(kind), COLLECTIVES)
    library = _library(
        network, software, {"phase_chunks": phase_chunks, "reduction_cost": reduction_cost}
    )
    if algorithm is None:
        algorithm = OPERATION_DEFAULTS["algorithm"] if library == NO_LIBRARY else NCCL
    algorithms = candidates(network.kind, kind, algorithm, library)
    if not algorithms:
        message = f"algorithm = '{algorithm}': none of {kind} on {network.kind} is called so"
        if algorithm in CHOICES:
            message = f"{kind}: {network.kind} has no {algorithm} algorithm of it"
        raise ValueError(message)
    constants = default_library() if library != NO_LIBRARY else {}
    if "bandwidth" in network.values:
        constants = constants | {"pair_bandwidth": math.inf}  # Of a link that is given there's one
    given = {**constants, **network.values, "message_bytes": message_bytes, "hops": hops}
    known = LABELS["latency_per"].values
    if latency_per not in known:
        message = f"latency_per = '{latency_per}': {' or '.join(known)}"
        raise ValueError(message)
    optional = {"chunks": chunks, "phase_chunks": phase_chunks, "reduction_cost": reduction_cost}
    given |= {name: value for name, value in optional.items() if value is not None}
    for name in ("message_bytes", "hops", *optional):
        if name in given:
            _check_domain(name, in_numpy(given[name]).astype(np.float64))
    labels = {"topology": network.kind, "collective": kind, "algorithm": algorithm}
    labels |= {
        "latency_per": latency_per,
        # A flat network that is given by its own link is all like the inside of a node.
        "link": "intra" if "bandwidth" in network.values else OPERATION_DEFAULTS["link"],
        "library": library,
        "floor": "none",
        "environment": LABELS["environment"].values[0],
    }
    with np.errstate(all="ignore"), using(namespace_of(*given.values())):
        return _result(Evaluation(given, following(labels, given)))


def _library(network: TopologyDesc, software: str | None, unpriced: Mapping[str, Any]) -> str:
    """Return the library whose profile prices an operation."""
    if software is None:
        return network.library if all(v is None for v in unpriced.values()) else NO_LIBRARY
    if software not in (NO_LIBRARY, LIBRARY):
        message = f"software = '{software}': {NO_LIBRARY} or {LIBRARY}"
        raise ValueError(message)
    for name, value in unpriced.items():
        if value is not None and software != NO_LIBRARY:
            message = f"{name} = {value}: a library's profile has no form of it; software = 'none'"
            raise ValueError(message)
    return software


def _result(evaluation: Evaluation) -> CollectiveResult:
    """Return the quantities of the algorithm that has the least time, cell by cell."""
    values = {field: evaluation[quantity] for field, quantity in QUANTITIES.items()}
    if evaluation.labels["topology"] == HIERARCHY:
        # What goes between pods goes between nodes too.
        values["inter_latency_s"] = values["inter_latency_s"] + evaluation["pod_time"]
    names = np.array([algorithm.name for algorithm in evaluation.algorithms])
    undefined = ~(evaluation.defined() & xp.isfinite(values["latency_s"]))
    alone = undefined | (evaluation["ranks"] == 1.0)
    fastest = in_numpy(evaluation.fastest()).astype(np.int64)
    shape = np.broadcast_shapes(*(value.shape for value in (*values.values(), alone, fastest)))
    for field, value in values.items():
        missing = alone if field in NOT_OF_ONE_RANK else undefined
        values[field] = xp.where(missing, np.nan, xp.broadcast_to(value, shape))
    chosen = np.broadcast_to(names[fastest], shape)
    return CollectiveResult(**values, algorithm=np.where(in_numpy(undefined), "", chosen))
