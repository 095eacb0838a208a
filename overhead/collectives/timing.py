"""From a schedule's cost to time, bytes, energy and bandwidths: what all algorithms share."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import flat, several
from overhead.formula import alias, constant, declare, derived, formula, product, total

FLAT = {"shape": "flat"}
SEQUENTIAL = {"phases": "sequential"}
FLAT_SEQUENTIAL = {**FLAT, **SEQUENTIAL}
HOCKNEY = "hockney1994"
MODEL = ("one latency per hop, and the bytes of the slowest link / its bandwidth",)


# What a flat network takes from a machine: its link, and what its switch can do.

IN_NODE = "a flat network is intra-node while its ranks fit into one node"


ENERGY = "Energy per bit on a link of a flat network"


def _of_link(ranks, gpus_per_node, intra, inter):
    return xp.where(ranks <= gpus_per_node, intra, inter)


for _of, _inner, _outer, _title in (
    ("latency", "intra_latency", "inter_latency", "Link latency of a flat network"),
    ("bandwidth", "intra_bandwidth", "inter_bandwidth", "Link bandwidth of a flat network"),
    ("energy_per_bit", "intra_energy_per_bit", "inter_energy_per_bit", ENERGY),
    ("has_inc", "intra_inc", "inter_inc", "In-switch reduction available (0 or 1)"),
):
    _taken = ("ranks", "gpus_per_node", _inner, _outer)
    _name = f"flat_{_of}"
    declare(_of, _taken, _of_link, _title, name=_name, assumes=(IN_NODE,), when={"link": "auto"})
    alias(_of, _inner, when={"link": "intra"})
    alias(_of, _outer, when={"link": "inter"})


@derived(returns="has_nvls", when={"link": "auto"})
def flat_nvls(ranks, gpus_per_node, intra_nvls):
    """NVLS available (0 or 1)."""
    return xp.where(ranks <= gpus_per_node, intra_nvls, 0.0)


@derived(
    returns="in_network_latency",
    assumes=("the factor is that of the switch inside a node",),
    when={"link": "auto"},
)
def flat_in_network_latency(latency, ranks, gpus_per_node, in_network_latency_factor):
    """Latency of a message that the switch reduces or multicasts."""
    return latency * xp.where(ranks <= gpus_per_node, in_network_latency_factor, 1.0)


alias("has_nvls", "intra_nvls", when={"link": "intra"})
product(
    "in_network_latency",
    ("latency", "in_network_latency_factor"),
    when={"link": "intra"},
    name="intra_only_in_network_latency",
)
constant("has_nvls", 0.0, when={"link": "inter"})
alias("in_network_latency", "latency", when={"link": "inter"})


# The time, by what grows with the message.


@formula(source=HOCKNEY)
def serialization_time(message_bytes, bandwidth):
    """Message size / link bandwidth."""
    return message_bytes / bandwidth


product(
    "latency_time",
    ("latency_count", "latency"),
    source=HOCKNEY,
    assumes=MODEL,
    when=FLAT_SEQUENTIAL,
)


product(
    "latency_time",
    ("latency_count", "in_network_latency"),
    source=HOCKNEY,
    assumes=(*MODEL, "the switch that reduces or multicasts has a latency of its own"),
    when={**FLAT_SEQUENTIAL, "in_network": "yes"},
    name="in_network_latency_time",
)


product(
    "bandwidth_time",
    ("transfer_fraction", "serialization_time"),
    source=HOCKNEY,
    assumes=MODEL,
    when=FLAT_SEQUENTIAL,
)


total(
    "time",
    ("latency_time", "bandwidth_time"),
    "Collective time",
    source=HOCKNEY,
    assumes=(*MODEL, "the reduction itself costs nothing"),
    when={**FLAT_SEQUENTIAL, "reduction": "free"},
)


@formula(
    source="thakur2005",
    where="the term in gamma",
    assumes=("reductions of the most loaded rank are not overlapped",),
)
def reduction_time(reduced_fraction, message_bytes, reduction_cost):
    """Part of the time that is reduction."""
    return reduced_fraction * (message_bytes * reduction_cost)


total(
    "time",
    ("latency_time", "bandwidth_time", "reduction_time"),
    "Collective time, reductions included",
    source="thakur2005",
    where="the terms in alpha, beta and gamma",
    assumes=MODEL,
    when={"phases": "sequential", "reduction": "counted"},
    name="reducing_time",
)


@derived(
    returns="intra_time",
    assumes=("a flat network is intra-node while its ranks fit into one node",),
    when={**FLAT, "link": "auto"},
)
def flat_intra_time(time, ranks, gpus_per_node):
    """Intra-node part of the time on a flat network: all or nothing."""
    return xp.where(ranks <= gpus_per_node, time, 0.0)


@derived(
    returns="inter_time",
    assumes=("a flat network is intra-node while its ranks fit into one node",),
    when={**FLAT, "link": "auto"},
)
def flat_inter_time(time, ranks, gpus_per_node):
    """Inter-node part of the time on a flat network: all or nothing."""
    return xp.where(ranks <= gpus_per_node, 0.0, time)


alias("intra_time", "time", "All of the time", when={**FLAT, "link": "intra"})
constant("inter_time", 0.0, "No part of the time", when={**FLAT, "link": "intra"})
alias("inter_time", "time", "All of the time", when={**FLAT, "link": "inter"})
constant("intra_time", 0.0, "No part of the time", when={**FLAT, "link": "inter"})


product("sent_bytes", ("sent_fraction", "message_bytes"))


product(
    "link_bytes",
    ("link_fraction", "message_bytes"),
    assumes=("bytes are counted on every link that they pass, on a switch once a message",),
)


@derived(
    assumes=("every byte has the energy per bit of its link; idle links cost nothing",), when=FLAT
)
def energy(link_bytes, energy_per_bit):
    """Energy of all bytes over all links."""
    return link_bytes * (8.0 * energy_per_bit)


# Bandwidths as nccl-tests reports them.


@formula(source="nccltests", where="doc/PERFORMANCE.md, algorithm bandwidth")
def algbw(message_bytes, time):
    """Algorithm bandwidth."""
    return message_bytes / time


@formula(
    returns="bus_factor",
    source="nccltests",
    where="doc/PERFORMANCE.md, AllReduce",
    when={"collective": "all_reduce"},
)
def all_reduce_bus_factor(ranks):
    """Bus bandwidth / algorithm bandwidth of an all-reduce."""
    return 2.0 * (ranks - 1.0) / ranks


@formula(
    returns="bus_factor",
    source="nccltests",
    where="doc/PERFORMANCE.md, ReduceScatter, AllGather, AlltoAll",
    when={"collective": "all_gather|reduce_scatter|all_to_all"},
)
def scattered_bus_factor(ranks):
    """Bus bandwidth / algorithm bandwidth of collectives with sharded data."""
    return (ranks - 1.0) / ranks


@formula(
    returns="bus_factor",
    source="nccltests",
    where="doc/PERFORMANCE.md, Broadcast, Reduce",
    when={"collective": "broadcast|reduce|p2p"},
)
def whole_bus_factor(ranks):
    """Bus bandwidth / algorithm bandwidth of collectives with the full message."""
    return xp.where(ranks > 1.0, 1.0, 0.0)


product(
    "busbw",
    ("bus_factor", "algbw"),
    source="nccltests",
    where="doc/PERFORMANCE.md, bus bandwidth",
    assumes=("not the wire speed if the network reduces",),
)


# What a step pays: of links alone their latency and bandwidth, and no ramp; a library has its own.

alias("inner_step_latency", "latency", when=FLAT)
alias("step_serialization_time", "serialization_time", when=FLAT)


# One message from one rank to another.


@algorithm(
    ("ring", "tree", "switch", "mesh", "torus", "binary_tree"),
    "p2p",
    "direct",
    source="hockney1994",
    assumes=("a latency a hop; the bytes stream through the links between",),
    form="message",
)
def direct(ranks, hops):
    """One message over so many links."""
    there = several(ranks)
    return flat(
        there,
        there,
        latencies=there * hops,
        messages=there * xp.minimum(hops, 1.0),
        sent=there,
        carried=there * hops,
    )
