"""From a schedule's cost to time, bytes, energy and bandwidths: what all algorithms share."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["bandwidth_time", "latency_time", "time"]

FLAT = {"shape": "flat"}
HOCKNEY = "hockney1994"
MODEL = ("a latency a hop, and the slowest link's bytes by its bandwidth",)


# One level of links.


@formula(
    returns="wire_time",
    expression="message_bytes/bandwidth",
    source=HOCKNEY,
    ufunc=np.true_divide,
)
def wire_time(message_bytes: Array, bandwidth: Array) -> Array:
    """Time of the whole message over one link."""
    return message_bytes / bandwidth


@formula(
    returns="latency_time",
    expression="latency_count*latency",
    source=HOCKNEY,
    assumes=MODEL,
    when=FLAT,
    ufunc=np.multiply,
)
def latency_time(latency_count: Array, latency: Array) -> Array:
    """Part of the time that is latency."""
    return latency_count * latency


@formula(
    returns="latency_time",
    expression="latency_count*in_network_latency",
    source=HOCKNEY,
    assumes=(*MODEL, "the switch that reduces or multicasts has a latency of its own"),
    when={**FLAT, "in_network": "yes"},
    ufunc=np.multiply,
)
def in_network_latency_time(latency_count: Array, in_network_latency: Array) -> Array:
    """Part of the time that is latency, where the switch takes part."""
    return latency_count * in_network_latency


@formula(
    returns="bandwidth_time",
    expression="transfer_fraction*wire_time",
    source=HOCKNEY,
    assumes=MODEL,
    when=FLAT,
    ufunc=np.multiply,
)
def bandwidth_time(transfer_fraction: Array, wire_time: Array) -> Array:
    """Part of the time that is transfer."""
    return transfer_fraction * wire_time


@formula(
    returns="time",
    expression="latency_time + bandwidth_time",
    source=HOCKNEY,
    assumes=(*MODEL, "the reduction itself costs nothing"),
    when={**FLAT, "phases": "sequential", "reduction": "free"},
    ufunc=np.add,
)
def time(latency_time: Array, bandwidth_time: Array) -> Array:
    """Time of the operation."""
    return latency_time + bandwidth_time


@formula(
    returns="reduction_time",
    expression="reduced_fraction*message_bytes*reduction_cost",
    source="thakur2005",
    where="the term in gamma",
    assumes=("the busiest rank's reductions overlap with nothing",),
)
def reduction_time(reduced_fraction: Array, message_bytes: Array, reduction_cost: Array) -> Array:
    """Part of the time that is reduction."""
    return reduced_fraction * (message_bytes * reduction_cost)


@formula(
    returns="time",
    expression="latency_time + bandwidth_time + reduction_time",
    source="thakur2005",
    where="the terms in alpha, beta and gamma",
    assumes=MODEL,
    when={"phases": "sequential", "reduction": "counted"},
)
def reducing_time(latency_time: Array, bandwidth_time: Array, reduction_time: Array) -> Array:
    """Time of the operation, its reductions included."""
    return latency_time + bandwidth_time + reduction_time


@formula(
    returns="intra_time",
    expression="where(ranks <= gpus_per_node, time, 0*time)",
    source="derivation",
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={**FLAT, "link": "auto"},
)
def flat_intra_time(time: Array, ranks: Array, gpus_per_node: Array) -> Array:
    """Part of a flat network's time that is spent inside a node: all or nothing."""
    return np.where(ranks <= gpus_per_node, time, 0.0)


@formula(
    returns="inter_time",
    expression="where(ranks <= gpus_per_node, 0*time, time)",
    source="derivation",
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={**FLAT, "link": "auto"},
)
def flat_inter_time(time: Array, ranks: Array, gpus_per_node: Array) -> Array:
    """Part of a flat network's time that is spent between nodes: all or nothing."""
    return np.where(ranks <= gpus_per_node, 0.0, time)


@formula(
    returns="intra_time",
    expression="1*time",
    source="derivation",
    when={**FLAT, "link": "intra"},
)
def only_intra_time(time: Array) -> Array:
    """Part of the time that is spent inside a node: all of it."""
    return 1.0 * time


@formula(
    returns="inter_time",
    expression="0*time",
    source="derivation",
    when={**FLAT, "link": "intra"},
)
def no_inter_time(time: Array) -> Array:
    """Part of the time that is spent between nodes: none."""
    return 0.0 * time


@formula(
    returns="intra_time",
    expression="0*time",
    source="derivation",
    when={**FLAT, "link": "inter"},
)
def no_intra_time(time: Array) -> Array:
    """Part of the time that is spent inside a node: none."""
    return 0.0 * time


@formula(
    returns="inter_time",
    expression="1*time",
    source="derivation",
    when={**FLAT, "link": "inter"},
)
def only_inter_time(time: Array) -> Array:
    """Part of the time that is spent between nodes: all of it."""
    return 1.0 * time


@formula(
    returns="sent_bytes",
    expression="sent_fraction*message_bytes",
    source="derivation",
    ufunc=np.multiply,
)
def sent_bytes(sent_fraction: Array, message_bytes: Array) -> Array:
    """Most bytes that one rank sends."""
    return sent_fraction * message_bytes


@formula(
    returns="link_bytes",
    expression="link_fraction*message_bytes",
    source="derivation",
    assumes=("bytes are counted on every link that they pass, on a switch once a message",),
    ufunc=np.multiply,
)
def link_bytes(link_fraction: Array, message_bytes: Array) -> Array:
    """Bytes over all links together."""
    return link_fraction * message_bytes


@formula(
    returns="energy",
    expression="8*link_bytes*energy_per_bit",
    source="derivation",
    assumes=("every byte costs its link's energy a bit; idle links cost nothing",),
    when=FLAT,
)
def energy(link_bytes: Array, energy_per_bit: Array) -> Array:
    """Energy of all bytes over all links."""
    return link_bytes * (8.0 * energy_per_bit)


# Bandwidths as nccl-tests reports them.


@formula(
    returns="algbw",
    expression="message_bytes/time",
    source="nccltests",
    where="doc/PERFORMANCE.md, algorithm bandwidth",
    ufunc=np.true_divide,
)
def algbw(message_bytes: Array, time: Array) -> Array:
    """Algorithm bandwidth."""
    return message_bytes / time


@formula(
    returns="bus_factor",
    expression="2*(ranks - 1)/ranks",
    source="nccltests",
    where="doc/PERFORMANCE.md, AllReduce",
    when={"collective": "all_reduce"},
)
def all_reduce_bus_factor(ranks: Array) -> Array:
    """Factor from algorithm to bus bandwidth of an all_reduce."""
    return 2.0 * (ranks - 1.0) / ranks


@formula(
    returns="bus_factor",
    expression="(ranks - 1)/ranks",
    source="nccltests",
    where="doc/PERFORMANCE.md, ReduceScatter, AllGather, AlltoAll",
    when={"collective": "all_gather|reduce_scatter|all_to_all"},
)
def scattered_bus_factor(ranks: Array) -> Array:
    """Factor from algorithm to bus bandwidth where ranks hold a share each."""
    return (ranks - 1.0) / ranks


@formula(
    returns="bus_factor",
    expression="where(ranks > 1, 1, 0)",
    source="nccltests",
    where="doc/PERFORMANCE.md, Broadcast, Reduce",
    when={"collective": "broadcast|reduce|p2p"},
)
def whole_bus_factor(ranks: Array) -> Array:
    """Factor from algorithm to bus bandwidth where the message stays whole."""
    return np.where(ranks > 1.0, 1.0, 0.0)


@formula(
    returns="busbw",
    expression="bus_factor*algbw",
    source="nccltests",
    where="doc/PERFORMANCE.md, bus bandwidth",
    assumes=("with reduction in the network it is no wire speed",),
    ufunc=np.multiply,
)
def busbw(bus_factor: Array, algbw: Array) -> Array:
    """Bus bandwidth."""
    return bus_factor * algbw
