"""Shapes of networks on which algorithms are compared: many small ones, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, product
from math import prod

import numpy as np

from overhead.collectives.algorithm import NETWORKS, Algorithm
from overhead.collectives.cost import LEVELS as LINKED
from overhead.quantity import Array

Columns = dict[str, Array]

RANKS = (*range(1, 20), 24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 1000, 1024, 4096)
SIZES = (*product((1, 2, 3, 4, 5, 6, 7, 8), repeat=3), (16, 16, 16), (20, 20, 1), (9, 2, 12))
LEVELS = (*product((1, 2, 3, 4, 8), (1, 2, 3, 4, 7, 8), (1, 2, 4, 5)), (8, 512, 1), (8, 32, 16))
CARDS = (0.5, 1.0, 2.0, 3.0, 8.0)
MACHINES = (
    {"intra": (2e-6, 4e11), "inter": (5e-6, 5e10), "pod": (9e-6, 2e10)},
    {"intra": (9e-6, 1e10), "inter": (2e-6, 5e10), "pod": (1e-6, 5e10)},
    {"intra": (0.0, 1e11), "inter": (4e-6, 3e11), "pod": (4e-6, 1e9)},
)
MESSAGES = (0.0, 4096.0, 3e6, 1e10)


def _columns(rows: list[dict[str, float]]) -> Columns:
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}


def _flat(topology: str) -> list[dict[str, float]]:
    """Return the numbers of ranks that the network has, of many or, of one that has few, of all."""
    requires = NETWORKS[topology].requires
    ranks = np.array(range(1, 4097) if requires else RANKS, dtype=np.float64)
    for requirement in requires:
        ranks = ranks[requirement.holds(ranks)]
    return [{"ranks": number, "has_nvls": 1.0, "has_inc": 1.0} for number in ranks]


def _grid() -> list[dict[str, float]]:
    names = ("mesh_nx", "mesh_ny", "mesh_nz")
    return [{"ranks": prod(sizes), **dict(zip(names, sizes, strict=True))} for sizes in SIZES]


def _hierarchy() -> list[dict[str, float]]:
    names = ("node_ranks", "nodes", "pods")
    return [
        {
            "ranks": prod(sizes),
            **dict(zip(names, sizes, strict=True)),
            "ranks_sharing_nic": card,
            "intra_nvls": 1.0,
            "inter_inc": 1.0,
            "in_network_latency_factor": 1.0,
            "effective_oversubscription": 1.0 + 0.5 * (card == 2.0),
            "pod_oversubscription": 1.0 + 2.0 * (card == 3.0),
            **{f"{level}_latency": latency for level, (latency, _) in machine.items()},
            **{f"{level}_bandwidth": bandwidth for level, (_, bandwidth) in machine.items()},
            "message_bytes": message,
        }
        for sizes in LEVELS
        for card in CARDS
        for machine in MACHINES
        for message in MESSAGES
    ]


# What is given by its number of ranks alone isn't here.
ROWS = {**dict.fromkeys(("mesh", "torus"), _grid), "hierarchical": _hierarchy}
CACHE: dict[str, Columns] = {}


def shapes(topology: str) -> Columns:
    """Return quantities as columns, a row a network and what runs on it."""
    if topology not in CACHE:
        columns = _columns(ROWS[topology]() if topology in ROWS else _flat(topology))
        rows = len(columns["ranks"])
        if topology != "hierarchical":
            columns["message_bytes"] = np.resize([3e6, 0.0, 1e10, 4096.0, 12345.0], rows)
            columns["latency"] = np.resize([2e-6, 0.0, 1e-5], rows)
            # The switch reduces at a message's latency: the schedule's own count is looked at.
            columns["in_network_latency"] = columns["latency"]
            columns["in_network_latency_factor"] = np.ones(rows)
            columns["bandwidth"] = np.resize([4e11, 5e10], rows)
        columns["chunks"] = np.resize([1.0, 2.0, 3.0, 5.0, 8.0, 40.0, 1000.0], rows)
        columns["hops"] = np.resize([1.0, 2.0, 5.0], rows)
        CACHE[topology] = columns | (paid(columns) if topology == "hierarchical" else {})
    return CACHE[topology]


def fitting(topology: str, ranks: Iterable[int]) -> list[float]:
    """Return for each number of ranks the next one that a network may have."""
    conditions = [
        requirement
        for requirement in NETWORKS[topology].requires
        if requirement.inputs == ("ranks",)
    ]
    return [
        next(
            n
            for n in count(float(least))
            if all(condition.holds(np.asarray(n)) for condition in conditions)
        )
        for least in ranks
    ]


def holds(algorithm: Algorithm, columns: Columns) -> Array:
    """Return a mask of the rows on which an algorithm is defined."""
    mask = np.ones_like(columns["ranks"], dtype=bool)
    for requirement in algorithm.requires:
        mask &= requirement.holds(**{name: columns[name] for name in requirement.inputs})
    return mask


def defined(algorithm: Algorithm) -> Columns:
    """Return the rows on which an algorithm is defined."""
    columns = shapes(algorithm.topology)
    mask = holds(algorithm, columns)
    return {name: column[mask] for name, column in columns.items()}


def links(topology: str, columns: Columns) -> list[tuple[Array, Array]]:
    """Return the latency and the time of the whole message over a link, of each level."""
    message = columns["message_bytes"]
    if topology != "hierarchical":
        return [(columns["latency"], message / columns["bandwidth"])]
    shares = dict(
        intra=1.0, inter=columns["effective_oversubscription"], pod=columns["pod_oversubscription"]
    )
    return [
        (columns[f"{level}_latency"], message * (share / columns[f"{level}_bandwidth"]))
        for level, share in shares.items()
    ]


def paid(columns: Columns) -> Columns:
    """Return what steps pay on each level of links alone: what these have, and no ramp."""
    actual_columns = {}
    each = links("hierarchical", columns)
    for level, (latency, serialization_time) in zip(LINKED, each, strict=True):
        actual_columns[f"{level}_step_latency"] = latency
        actual_columns[f"{level}_step_serialization_time"] = serialization_time
        actual_columns[f"{level}_step_ramp_time"] = np.zeros_like(latency)
    return actual_columns


def time_of(algorithm: Algorithm, columns: Columns, per: str = "latencies") -> Array:
    """Return the time that an algorithm's cost comes to."""
    cost = algorithm.cost(**{name: columns[name] for name in algorithm.inputs})
    each = links(algorithm.topology, columns)
    each = each * len(cost.levels) if len(each) == 1 else each
    total = np.zeros_like(columns["ranks"])
    for level, (latency, serialization_time) in zip(cost.levels, each, strict=True):
        total = total + getattr(level, per) * latency + level.transfer * serialization_time
    return total
