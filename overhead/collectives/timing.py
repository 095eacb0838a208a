"""From a schedule's cost to time, bytes, energy and bandwidths: what all algorithms share."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import flat, several
from overhead.formula import declare, derived, formula

FLAT = {"shape": "flat"}
MODEL = ("one latency per hop, and the bytes of the slowest link / its bandwidth",)


# What a flat network takes from a machine: its link, and what its switch can do.


@derived(assumes=("a flat network is intra-node while its ranks fit into one node",))
def in_node(ranks, gpus_per_node):
    """Flat network within one node (0 or 1)."""
    return xp.where(ranks <= gpus_per_node, 1.0, 0.0)


ENERGY = "Energy per bit on a link of a flat network"


def of_link(in_node, intra, inter):
    """Return the figure of the links that a flat network has: in a node, or between nodes."""
    return xp.where(in_node > 0.0, intra, inter)


for _of, _inner, _outer, _title in (
    ("latency", "intra_latency", "inter_latency", "Link latency of a flat network"),
    ("bandwidth", "intra_bandwidth", "inter_bandwidth", "Link bandwidth of a flat network"),
    ("energy_per_bit", "intra_energy_per_bit", "inter_energy_per_bit", ENERGY),
    ("has_inc", "intra_inc", "inter_inc", "In-switch reduction available (0 or 1)"),
):
    _taken = ("in_node", _inner, _outer)
    declare(_of, _taken, of_link, _title, name=f"flat_{_of}", when={"link": "auto"})


@derived(
    returns="in_network_latency",
    assumes=("the factor is that of the switch inside a node",),
    when={"link": "auto|intra"},
)
def flat_in_network_latency(latency, in_node, in_network_latency_factor):
    """Latency of a message that the switch reduces or multicasts."""
    return latency * xp.where(in_node > 0.0, in_network_latency_factor, 1.0)


# The time, by what grows with the message.


@formula(
    source="thakur2005",
    where="the term in gamma",
    assumes=("reductions of the most loaded rank are not overlapped",),
)
def reduction_time(reduced_fraction, message_bytes, reduction_cost):
    """Part of the time that is reduction."""
    return reduced_fraction * (message_bytes * reduction_cost)


@derived(returns="intra_time", when=FLAT)
def flat_intra_time(time, in_node):
    """Intra-node part of the time on a flat network: all or nothing."""
    return xp.where(in_node > 0.0, time, 0.0)


@derived(returns="inter_time", when=FLAT)
def flat_inter_time(time, in_node):
    """Inter-node part of the time on a flat network: all or nothing."""
    return xp.where(in_node > 0.0, 0.0, time)


@derived(
    assumes=("every byte has the energy per bit of its link; idle links cost nothing",), when=FLAT
)
def energy(link_bytes, energy_per_bit):
    """Energy of all bytes over all links."""
    return link_bytes * (8.0 * energy_per_bit)


# Bandwidths as nccl-tests reports them.


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
