"""Typed hops as formulas: a path over links of two types, and the all_reduce round a ring of them.

Any number of link types, and any matrix of hops, take `overhead.hops.paths` and
`overhead.hops.paths`, which give the same where both apply.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import call, formula
from overhead.quantity import Array, define


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
