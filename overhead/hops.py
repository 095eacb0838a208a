"""Typed hops: links of any number of types between ranks, and what strategies send over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from overhead.arrays import xp
from overhead.completion import following
from overhead.evaluation import Evaluation
from overhead.formula import derived, formula
from overhead.frozen import frozen
from overhead.labels import LABELS
from overhead.quantity import Array

# How a path's types of links join: each waits for the whole message, or the slowest one counts.
JOINED: dict[str, Callable[..., Any]] = {"store_and_forward": np.sum, "cut_through": np.max}
SWITCHING = tuple(JOINED)
# A ring of links that are all alike is the collective's.
RING = {
    **following({"topology": "ring"}, ()),
    "collective": "all_reduce",
    "algorithm": "ring",
    "latency_per": LABELS["latency_per"].default,
}


def _path(
    message_bytes: ArrayLike,
    hops: ArrayLike,
    latency: ArrayLike = 0.0,
    bandwidth: ArrayLike = np.inf,
    energy_per_bit: ArrayLike = 0.0,
    switching: str = "store_and_forward",
) -> dict[str, Array]:
    """Return what a path over links of any number of types is: a formula's path for each type."""
    if switching not in SWITCHING:
        message = f"'{switching}' is not a way of switching; known: {', '.join(SWITCHING)}"
        raise ValueError(message)
    size = np.asarray(message_bytes, dtype=np.float64)
    figures = {
        "intra_hops": hops,
        "intra_latency": latency,
        "intra_bandwidth": bandwidth,
        "intra_energy_per_bit": energy_per_bit,
    }
    arrays = {
        name: np.atleast_1d(np.asarray(figure, np.float64)) for name, figure in figures.items()
    }
    axes = max(size.ndim, *(array.ndim - 1 for array in arrays.values()))
    given: dict[str, ArrayLike] = {"message_bytes": size, **NO_LINKS}
    for name, values in arrays.items():
        given[name] = values.reshape(
            values.shape[:1] + (1,) * (axes + 1 - values.ndim) + values.shape[1:]
        )
    evaluation = Evaluation(given, {"switching": switching})
    joins: dict[str, Callable[..., Any]] = {
        "path_latency": np.sum,
        "path_serialization_time": JOINED[switching],
        "path_energy_per_bit": np.sum,
    }
    path = {name: np.asarray(join(evaluation[name], axis=0)) for name, join in joins.items()}
    return {"message_bytes": size, **path}


NO_LINKS = {
    "inter_hops": 0.0,
    "inter_latency": 0.0,
    "inter_bandwidth": np.inf,
    "inter_energy_per_bit": 0.0,
}


def message_time(
    message_bytes: ArrayLike,
    hops: ArrayLike,
    latency: ArrayLike,
    bandwidth: ArrayLike,
    switching: str = "store_and_forward",
) -> Array:
    """Return the time of a message over a path."""
    path = _path(message_bytes, hops, latency, bandwidth, switching=switching)
    return Evaluation(path)["path_time"]


def message_energy(message_bytes: ArrayLike, hops: ArrayLike, energy_per_bit: ArrayLike) -> Array:
    """Return the energy of a message over a path."""
    path = _path(message_bytes, hops, energy_per_bit=energy_per_bit)
    return Evaluation(path)["path_energy"]


@frozen()
class LevelHops:
    """Ranks on nested levels: a path passes what the outermost level that it crosses says."""

    # Ranks of a node, nodes of a pod, ..; of the outermost level there are as many as needed
    sizes: tuple[int, ...]
    # For each level, innermost first, the links of each type between two ranks that it parts: one
    # more than sizes
    paths: tuple[tuple[int, ...], ...]
    # Network cards of a node, each with a rail of its own; ranks of other nodes on another rail
    # are reached by a turn inside the node as well
    rails: int = 0
    turn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rails and (not self.sizes or len(self.turn) != len(self.paths[0])):
            message = "rails of nodes, and a turn of as many link types as paths have"
            raise ValueError(message)
        if len(self.paths) != len(self.sizes) + 1 or len({len(path) for path in self.paths}) != 1:
            message = "a path for each level, one more than sizes, and all of the same link types"
            raise ValueError(message)
        if min(self.sizes, default=1) < 1 or min(min(path) for path in self.paths) < 0:
            message = "sizes from 1 and hops from 0"
            raise ValueError(message)

    @property
    def ranks(self) -> int | None:
        """How many ranks there are: no limit."""
        return None

    def hops(self, source: ArrayLike, destination: ArrayLike) -> Array:
        """Return the links between ranks, types along the first axis; none to a rank itself."""
        first, other = np.broadcast_arrays(
            np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
        )
        level = np.where(first == other, 0, 1)
        span = 1
        for size in self.sizes:
            span *= size
            level = level + (first // span != other // span)
        table = np.array([(0,) * len(self.paths[0]), *self.paths], dtype=np.float64)
        counts = table[level]
        if self.rails:
            ours, theirs = (
                each % self.sizes[0] * self.rails // self.sizes[0] for each in (first, other)
            )
            turns = (level > 1) & (ours != theirs)
            counts = counts + turns[..., np.newaxis] * np.array(self.turn, dtype=np.float64)
        return np.moveaxis(counts, -1, 0)


@frozen()
class HopMatrix:
    """Links between any two ranks, as they are given."""

    counts: Array  # Links of each type: shape (types, ranks, ranks); none from a rank to itself

    def __post_init__(self) -> None:
        counts = self.counts
        if counts.ndim != 3 or counts.shape[1] != counts.shape[2] or not counts.size:
            message = "hops have the shape (types, ranks, ranks)"
            raise ValueError(message)
        if np.any(counts < 0) or np.any(counts != np.floor(counts)):
            message = "hops are whole numbers from 0"
            raise ValueError(message)
        ranks = np.arange(counts.shape[1])
        if np.any(counts[:, ranks, ranks]):
            message = "from a rank to itself there is no hop"
            raise ValueError(message)

    @property
    def ranks(self) -> int | None:
        """How many ranks there are."""
        return int(self.counts.shape[1])

    def hops(self, source: ArrayLike, destination: ArrayLike) -> Array:
        """Return the links between ranks, types along the first axis."""
        return np.asarray(self.counts[:, np.asarray(source), np.asarray(destination)])

    @staticmethod
    def of(rows: Sequence[Sequence[Sequence[int]]]) -> HopMatrix:
        """Make a matrix of rows of cells, each a list of hops by type."""
        return HopMatrix(np.moveaxis(np.asarray(rows, dtype=np.float64), -1, 0))


# What parallel strategies send over typed hops: volume, time and energy.


class Hops(Protocol):
    """What lies between ranks: `LevelHops` or `HopMatrix`."""

    @property
    def ranks(self) -> int | None:
        """How many ranks there are; None: as many as are asked for."""

    def hops(self, source: ArrayLike, destination: ArrayLike) -> Array:
        """Return the links between ranks, types along the first axis."""


@frozen()
class Links:
    """Types of links."""

    names: tuple[str, ...]  # What they are called
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    latency: tuple[float, ...]
    bandwidth: tuple[float, ...]
    energy_per_bit: tuple[float, ...]

    def mix(self, hops: ArrayLike) -> str:
        """Return a path in words, such as ``2 NVLink + 1 InfiniBand``."""
        counts = np.asarray(hops, dtype=np.float64).reshape(-1)
        pairs = zip(counts, self.names, strict=True)
        return " + ".join(f"{count:.0f} {name}" for count, name in pairs if count) or "no link"


@frozen()
class Traffic:
    """What a strategy sends."""

    rank_bytes: Array  # Bytes that one rank sends, all steps together
    total_bytes: Array  # Bytes that all ranks send together
    time: Array  # How long it takes [s]
    energy: Array  # Energy of all bytes on all links [J]


def ring_all_reduce(
    message_bytes: ArrayLike,
    ranks: int,
    network: Hops,
    links: Links,
    switching: str = "store_and_forward",
    stride: int = 1,
) -> Traffic:
    """Return what an all_reduce round the ring of every stride-th rank from 0 on costs.

    A step costs its slowest link, and every link takes energy.
    """
    size = np.asarray(message_bytes, dtype=np.float64)
    source = np.arange(ranks)
    hops = network.hops(stride * source, stride * ((source + 1) % ranks))
    # Links that are alike cost the same.
    kinds, counts = np.unique(hops, axis=1, return_counts=True)
    path = _path(
        size[..., np.newaxis],
        kinds,
        links.latency,
        links.bandwidth,
        links.energy_per_bit,
        switching,
    )
    given = {name: path[of] for name, of in PATH.items()}
    evaluation = Evaluation({**given, "message_bytes": path["message_bytes"], "ranks": ranks}, RING)
    return Traffic(
        rank_bytes=evaluation["sent_bytes"][..., 0],
        total_bytes=evaluation["link_bytes"][..., 0],
        time=evaluation["time"].max(axis=-1),
        energy=(evaluation["energy"] * (counts / ranks)).sum(axis=-1),
    )


def messages(
    message_bytes: ArrayLike,
    hops: ArrayLike,
    links: Links,
    switching: str = "store_and_forward",
    *,
    count: int = 1,
    senders: int = 1,
) -> Traffic:
    """Return what messages that follow one another over one path cost."""
    size = np.asarray(message_bytes, dtype=np.float64)
    time = message_time(size, hops, links.latency, links.bandwidth, switching)
    energy = message_energy(size, hops, links.energy_per_bit)
    return Traffic(count * size, senders * count * size, count * time, count * energy)


# Typed hops as formulas: a path over links of two types.
#
# Any number of link types, and any matrix of hops, take the functions above, which go through these
# formulas for each type and each kind of link.


@derived()
def path_latency(intra_hops, intra_latency, inter_hops, inter_latency):
    """Latency of all links of a path."""
    return intra_hops * intra_latency + inter_hops * inter_latency


@formula(
    returns="path_serialization_time",
    source="hockney1994",
    assumes=("each link waits for the full message: store-and-forward",),
)
def store_and_forward_wire_time(
    message_bytes, intra_hops, intra_bandwidth, inter_hops, inter_bandwidth
):
    """Store-and-forward serialization time over all links."""
    inside = intra_hops * (message_bytes / intra_bandwidth)
    return inside + inter_hops * (message_bytes / inter_bandwidth)


@formula(
    returns="path_serialization_time",
    source="hockney1994",
    assumes=("a link passes a message on while it comes in: cut-through",),
    when={"switching": "cut_through"},
)
def cut_through_wire_time(message_bytes, intra_hops, intra_bandwidth, inter_hops, inter_bandwidth):
    """Cut-through serialization time: message size / bandwidth of the slowest link."""
    inside = xp.where(intra_hops > 0.0, message_bytes / intra_bandwidth, 0.0)
    between = xp.where(inter_hops > 0.0, message_bytes / inter_bandwidth, 0.0)
    return xp.maximum(inside, between)


@derived(assumes=("every link that a bit passes takes its energy",))
def path_energy_per_bit(intra_hops, intra_energy_per_bit, inter_hops, inter_energy_per_bit):
    """Energy of a bit on all links of a path."""
    return intra_hops * intra_energy_per_bit + inter_hops * inter_energy_per_bit


@derived()
def path_energy(message_bytes, path_energy_per_bit):
    """Energy of a message: 8 bits a byte on every link of its path."""
    return message_bytes * (8.0 * path_energy_per_bit)


PATH = {
    "latency": "path_latency",
    "serialization_time": "path_serialization_time",
    "energy_per_bit": "path_energy_per_bit",
}
