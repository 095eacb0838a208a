"""Typed hops: links of any number of types between ranks, and what strategies send over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from overhead.formula import call, formula
from overhead.quantity import Array, define

SWITCHING = ("store_and_forward", "cut_through")


def _aligned(values: ArrayLike, axes: int) -> Array:
    """Return values, types along the first axis, with so many axes behind it."""
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(array.shape[:1] + (1,) * (axes + 1 - array.ndim) + array.shape[1:])


def message_time(
    message_bytes: ArrayLike,
    hops: ArrayLike,
    latency: ArrayLike,
    bandwidth: ArrayLike,
    switching: str = "store_and_forward",
) -> Array:
    """Return the time of a message over a path."""
    if switching not in SWITCHING:
        message = f"'{switching}' is no switching; known: {', '.join(SWITCHING)}"
        raise ValueError(message)
    size = np.asarray(message_bytes, dtype=np.float64)
    axes = max(size.ndim, *(np.ndim(values) - 1 for values in (hops, latency, bandwidth)))
    passed, paid, rate = (_aligned(values, axes) for values in (hops, latency, bandwidth))
    paid = (passed * paid).sum(axis=0)
    if switching == "store_and_forward":
        return np.asarray(paid + size * (passed / rate).sum(axis=0))
    slowest = np.where(passed > 0.0, 1.0 / rate, 0.0).max(axis=0)
    return np.asarray(paid + size * slowest)


def message_energy(message_bytes: ArrayLike, hops: ArrayLike, energy_per_bit: ArrayLike) -> Array:
    """Return the energy of a message over a path."""
    size = np.asarray(message_bytes, dtype=np.float64)
    axes = max(size.ndim, np.ndim(hops) - 1, np.ndim(energy_per_bit) - 1)
    passed, each = (_aligned(values, axes) for values in (hops, energy_per_bit))
    return np.asarray(8.0 * size * (passed * each).sum(axis=0))


@dataclass(frozen=True)
class LevelHops:
    """Ranks on nested levels: a path passes what the outermost level that it crosses says."""

    # Ranks of a node, nodes of a pod, ..; of the outermost level there are as many as needed
    sizes: tuple[int, ...]
    # For each level, innermost first, the links of each type between two ranks that it parts: one
    # more than sizes
    paths: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
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
        one, other = np.broadcast_arrays(
            np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
        )
        level = np.where(one == other, 0, 1)
        span = 1
        for size in self.sizes:
            span *= size
            level = level + (one // span != other // span)
        table = np.array([(0,) * len(self.paths[0]), *self.paths], dtype=np.float64)
        return np.moveaxis(table[level], -1, 0)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Links:
    """Types of links."""

    names: tuple[str, ...]  # What they are called
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    latency: tuple[float, ...]
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    bandwidth: tuple[float, ...]
    # Of one link of each type, in one direction [s], [byte s-1], [J bit-1]
    energy_per_bit: tuple[float, ...]

    def mix(self, hops: ArrayLike) -> str:
        """Return a path in words, such as ``2 NVLink + 1 InfiniBand``."""
        counts = np.asarray(hops, dtype=np.float64).reshape(-1)
        pairs = zip(counts, self.names, strict=True)
        return " + ".join(f"{count:.0f} {name}" for count, name in pairs if count) or "no link"


@dataclass(frozen=True)
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
) -> Traffic:
    """Return what an all_reduce round the ring 0, 1, .., ranks - 1 costs.

    A step costs its slowest link, and every link takes energy; reduce_scatter and all_gather have
    ranks - 1 steps each.
    """
    size = np.asarray(message_bytes, dtype=np.float64)
    if ranks == 1:
        nothing = 0.0 * size
        return Traffic(nothing, nothing, nothing, nothing)
    source = np.arange(ranks)
    hops = network.hops(source, (source + 1) % ranks)
    # Links that are alike cost the same.
    kinds, counts = np.unique(hops, axis=1, return_counts=True)
    chunk = size[..., np.newaxis] / ranks
    times = message_time(chunk, kinds, links.latency, links.bandwidth, switching)
    energies = message_energy(chunk, kinds, links.energy_per_bit)
    steps = 2.0 * (ranks - 1.0)
    return Traffic(
        rank_bytes=steps * size / ranks,
        total_bytes=steps * size,
        time=steps * times.max(axis=-1),
        energy=steps * (energies * counts).sum(axis=-1),
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


# Typed hops as formulas: a path over links of two types, and the all_reduce round a ring of them.
#
# Any number of link types, and any matrix of hops, take the functions above, which give the same
# where both apply.


@formula(
    returns="path_time",
    source="hockney1994",
    assumes=("each link waits for the whole message: store and forward",),
)
def store_and_forward_path_time(
    intra_hops: Array,
    intra_latency: Array,
    message_bytes: Array,
    intra_bandwidth: Array,
    inter_hops: Array,
    inter_latency: Array,
    inter_bandwidth: Array,
) -> Array:
    """Time of a message that every link passes on when it has all of it."""
    inside = intra_hops * (intra_latency + message_bytes / intra_bandwidth)
    return inside + inter_hops * (inter_latency + message_bytes / inter_bandwidth)


@formula(
    returns="path_time",
    source="hockney1994",
    assumes=("a link passes a message on while it comes in: cut-through",),
    when={"switching": "cut_through"},
)
def cut_through_path_time(
    intra_hops: Array,
    intra_latency: Array,
    inter_hops: Array,
    inter_latency: Array,
    message_bytes: Array,
    intra_bandwidth: Array,
    inter_bandwidth: Array,
) -> Array:
    """Time of a message that streams through all links at the slowest one's bandwidth."""
    inside = np.where(intra_hops > 0.0, message_bytes / intra_bandwidth, 0.0)
    between = np.where(inter_hops > 0.0, message_bytes / inter_bandwidth, 0.0)
    latency = intra_hops * intra_latency + inter_hops * inter_latency
    return latency + np.maximum(inside, between)


@formula(source="derivation", assumes=("every link that a bit passes takes its energy",))
def path_energy(
    message_bytes: Array,
    intra_hops: Array,
    intra_energy_per_bit: Array,
    inter_hops: Array,
    inter_energy_per_bit: Array,
) -> Array:
    """Energy of a message: 8 bits a byte on every link of its path."""
    each = intra_hops * intra_energy_per_bit + inter_hops * inter_energy_per_bit
    return 8.0 * message_bytes * each


# A ring in the order of the nodes: a link of it lies in a node, or crosses to the next one.


@formula(source="patarasuk2009")
def ring_chunk_bytes(message_bytes: Array, ranks: Array) -> Array:
    """Bytes of each message of a ring."""
    return message_bytes / ranks


@formula(source="derivation", assumes=("nodes are filled one after another",))
def crossing_links(ranks: Array, gpus_per_node: Array) -> Array:
    """Links of a ring that lead from one node to the next."""
    return np.where(ranks > gpus_per_node, np.ceil(ranks / gpus_per_node), 0.0)


for _end in ("node", "crossing"):
    _bind = {
        "message_bytes": "ring_chunk_bytes",
        "intra_hops": f"{_end}_intra_hops",
        "inter_hops": f"{_end}_inter_hops",
    }
    for _what in ("time", "energy"):
        call(returns=f"{_end}_path_{_what}", of=f"path_{_what}", bind=_bind)


@formula(
    source="patarasuk2009",
    where="reduce_scatter, then all_gather",
    assumes=("a step takes as long as its slowest link",),
)
def ring_time(
    ranks: Array, crossing_links: Array, node_path_time: Array, crossing_path_time: Array
) -> Array:
    """Time of an all_reduce round a ring of typed links."""
    inside = np.where(ranks > crossing_links, node_path_time, 0.0)
    between = np.where(crossing_links > 0.0, crossing_path_time, 0.0)
    return 2.0 * (ranks - 1.0) * np.maximum(inside, between)


@formula(source="derivation", assumes=("in each step every link of the ring carries a message",))
def ring_energy(
    ranks: Array, crossing_links: Array, node_path_energy: Array, crossing_path_energy: Array
) -> Array:
    """Energy of an all_reduce round a ring of typed links."""
    inside = np.maximum(ranks - crossing_links, 0.0) * node_path_energy
    return 2.0 * (ranks - 1.0) * (inside + crossing_links * crossing_path_energy)


@formula(source="patarasuk2009", assumes=("both halves, reduce_scatter and all_gather",))
def ring_rank_bytes(ranks: Array, ring_chunk_bytes: Array) -> Array:
    """Bytes that a rank sends in an all_reduce round a ring."""
    return 2.0 * (ranks - 1.0) * ring_chunk_bytes


# The vocabulary of typed hops: paths over links of two types, and what strategies send on them.


def _named(base: str, name: str) -> str:
    return rf"{base}_{{\mathrm{{{name}}}}}"


for _level, _mark, _words in (("intra", "1", "inside nodes"), ("inter", "2", "between nodes")):
    define(
        f"{_level}_hops",
        f"h_{_mark}",
        "1",
        f"links {_words} that a message passes",
        minimum=0,
        integer=True,
    )
define("path_time", _named("t", "path"), "s", "time of a message over all links of its path",
       minimum=0)  # fmt: skip
define("path_energy", _named("e", "path"), "J", "energy of a message over all links of its path",
       minimum=0)  # fmt: skip

# A ring of ranks, in the order of their nodes.
define("ring_chunk_bytes", _named("M", "chunk"), "byte", "bytes of a ring's message", minimum=0)
define("crossing_links", _named("n", "x"), "1", "links of a ring between nodes", minimum=0)
for _end, _words in (("node", "a link inside a node"), ("crossing", "a link between nodes")):
    for _level, _mark, _type in (("intra", "1", "inside nodes"), ("inter", "2", "between nodes")):
        define(
            f"{_end}_{_level}_hops",
            f"h_{{{_mark},{_end[0]}}}",
            "1",
            f"links {_type} that {_words} of the ring consists of",
            minimum=0,
            integer=True,
        )
    define(f"{_end}_path_time", _named("t", f"{_end}"), "s", f"time of a message over {_words}",
           minimum=0)  # fmt: skip
    define(f"{_end}_path_energy", _named("e", f"{_end}"), "J", f"energy of a message over {_words}",
           minimum=0)  # fmt: skip
define("ring_time", _named("T", "ring"), "s", "time of an all_reduce round a ring", minimum=0)
define("ring_energy", _named("E", "ring"), "J", "energy of an all_reduce round a ring", minimum=0)
define("ring_rank_bytes", _named("V", "ring"), "byte",
       "bytes that a rank sends in an all_reduce round a ring", minimum=0)  # fmt: skip

# What a strategy sends for one layer.
for _name, _symbol, _units, _meaning in (
    ("strategy_time", _named("T", "s"), "s", "time of a strategy's communication of one layer"),
    ("strategy_energy", _named("E", "s"), "J", "energy of a strategy's communication of one layer"),
    ("rank_volume", _named("V", "rank"), "byte", "bytes that one rank sends for one layer"),
    ("total_volume", _named("V", "all"), "byte", "bytes that all ranks send for one layer"),
):
    define(_name, _symbol, _units, _meaning, minimum=0)
