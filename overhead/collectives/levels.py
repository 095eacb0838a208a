"""A hierarchy level by level: its shape, and what is paid in nodes, between them, between pods.

There are three levels always.  Where no pods are given there is one pod: nothing passes between
pods, so that what is paid there counts nothing.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.collectives.algorithm import Requirement, power_of_two
from overhead.formula import derived, formula
from overhead.labels import HIERARCHY as NAME
from overhead.quantity import Array

HIERARCHY = {"topology": NAME}
SEQUENTIAL = {**HIERARCHY, "phases": "sequential"}
MODEL = ("one latency per hop, and the bytes of the slowest link / its bandwidth",)


# The shape.


@derived(assumes=("ranks fill one node after another",), when=HIERARCHY)
def node_ranks(gpus_per_node, ranks):
    """Ranks of the group in one node."""
    return xp.minimum(gpus_per_node, ranks)


@derived(returns="nodes", when={**HIERARCHY, "shape": "three_levels"})
def pod_nodes(ranks, node_ranks, nodes_per_pod):
    """Nodes of the group in one pod."""
    return xp.minimum(nodes_per_pod, ranks / node_ranks)


@derived(when=HIERARCHY)
def pods(ranks, node_ranks, nodes):
    """Pods of the group."""
    return xp.asarray(ranks / (node_ranks * nodes))


# Conditions on the shape.


def _pods_filled(ranks, gpus_per_node, nodes_per_pod):
    per_pod = gpus_per_node * nodes_per_pod
    return xp.asarray((ranks <= per_pod) | (ranks % per_pod == 0.0))


NODES_FILLED = Requirement(
    "ranks_not_multiple_of_gpus_per_node",
    "gpus_per_node must divide the number of ranks",
    lambda ranks, gpus_per_node: xp.asarray(
        (ranks <= gpus_per_node) | (ranks % gpus_per_node == 0.0)
    ),
)
PODS_FILLED = Requirement(
    "nodes_not_multiple_of_nodes_per_pod",
    "nodes_per_pod must divide the number of nodes",
    _pods_filled,
)
NODES_POWER_OF_TWO = Requirement(
    "nodes_not_power_of_two",
    "the number of nodes, and of pods, must be a power of two",
    lambda nodes, pods: power_of_two(nodes) & power_of_two(pods),
)
TWO_LEVELS = Requirement(
    "three_levels", "there must be no more than two levels", lambda pods: xp.asarray(pods == 1.0)
)


# Leaf switches.  What stays under one pays no oversubscription; what leaves it shares its uplinks.

UPLINKS = "a leaf's uplinks are those of its nodes by the oversubscription, shared evenly"
FILLED = "nodes of a group fill leaf after leaf"
LEAVES_ONCE = "a ring or a tree leaves a leaf once, whatever it has of the group"


def ring_oversubscription(group_nodes: Array, leaf_members: Array, ratio: Array) -> Array:
    """Return what a ring meets: of a leaf's members one sends out of it."""
    met = xp.maximum(ratio / leaf_members, 1.0)
    return xp.where(group_nodes > leaf_members, met, 1.0)


def exchange_oversubscription(group_nodes: Array, leaf_members: Array, ratio: Array) -> Array:
    """Return what an all_to_all meets: of what a node sends, a share leaves."""
    share = (group_nodes - leaf_members) / xp.maximum(group_nodes - 1.0, 1.0)
    met = xp.maximum(ratio * share, 1.0)
    return xp.where(group_nodes > leaf_members, met, 1.0)


@derived(assumes=(UPLINKS, FILLED, LEAVES_ONCE), when=HIERARCHY)
def effective_oversubscription(nodes, pods, nodes_per_leaf, oversubscription):
    """Oversubscription seen by a collective on neighboring nodes."""
    return ring_oversubscription(nodes * pods, nodes_per_leaf, oversubscription)


@derived(
    returns="effective_oversubscription",
    assumes=(UPLINKS, FILLED),
    when={**HIERARCHY, "collective": "all_to_all"},
)
def all_to_all_oversubscription(nodes, pods, nodes_per_leaf, oversubscription):
    """Oversubscription seen by an all-to-all on neighboring nodes."""
    return exchange_oversubscription(nodes * pods, nodes_per_leaf, oversubscription)


# Time of the whole message over one link.


@derived(assumes=("oversubscription divides the bandwidth of what leaves a node",), when=HIERARCHY)
def inter_serialization_time(message_bytes, inter_bandwidth, effective_oversubscription):
    """Message size / NIC bandwidth."""
    return message_bytes * (effective_oversubscription / inter_bandwidth)


@derived(assumes=("oversubscription divides the bandwidth of what leaves a pod",))
def pod_serialization_time(message_bytes, pod_bandwidth, pod_oversubscription):
    """Message size / inter-pod NIC bandwidth."""
    return message_bytes * (pod_oversubscription / pod_bandwidth)


# The time, by levels and by what grows with the message.


@formula(source="hockney1994", assumes=MODEL, when=SEQUENTIAL)
def intra_time(
    intra_latency_count, intra_latency, intra_transfer_fraction, intra_serialization_time
):
    """Part of the time spent inside nodes."""
    return intra_latency_count * intra_latency + intra_transfer_fraction * intra_serialization_time


@formula(source="hockney1994", assumes=MODEL, when=SEQUENTIAL)
def inter_time(
    inter_latency_count, inter_latency, inter_transfer_fraction, inter_serialization_time
):
    """Part of the time spent between nodes."""
    return inter_latency_count * inter_latency + inter_transfer_fraction * inter_serialization_time


@formula(source="hockney1994", assumes=MODEL, when=SEQUENTIAL)
def pod_time(pod_latency_count, pod_latency, pod_transfer_fraction, pod_serialization_time):
    """Part of the time spent between pods."""
    return pod_latency_count * pod_latency + pod_transfer_fraction * pod_serialization_time


@derived(returns="latency_time", assumes=MODEL, when=SEQUENTIAL)
def level_latency_time(
    intra_latency_count,
    intra_latency,
    inter_latency_count,
    inter_latency,
    pod_latency_count,
    pod_latency,
):
    """Part of the time that is latency, on all levels."""
    inside = intra_latency_count * intra_latency + inter_latency_count * inter_latency
    return inside + pod_latency_count * pod_latency


@derived(returns="bandwidth_time", assumes=MODEL, when=SEQUENTIAL)
def level_bandwidth_time(
    intra_transfer_fraction,
    intra_serialization_time,
    inter_transfer_fraction,
    inter_serialization_time,
    pod_transfer_fraction,
    pod_serialization_time,
):
    """Part of the time that is transfer, on all levels."""
    inside = (
        intra_transfer_fraction * intra_serialization_time
        + inter_transfer_fraction * inter_serialization_time
    )
    return inside + pod_transfer_fraction * pod_serialization_time


@derived(
    returns="energy",
    assumes=("every byte has the energy per bit of its link; idle links cost nothing",),
    when=HIERARCHY,
)
def level_energy(
    message_bytes,
    intra_link_fraction,
    intra_energy_per_bit,
    inter_link_fraction,
    inter_energy_per_bit,
    pod_link_fraction,
    pod_energy_per_bit,
):
    """Energy of all bytes over all links, on all levels."""
    inside = intra_link_fraction * intra_energy_per_bit + inter_link_fraction * inter_energy_per_bit
    return 8.0 * message_bytes * (inside + pod_link_fraction * pod_energy_per_bit)
