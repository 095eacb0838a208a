"""Time and energy on a hierarchy, level by level."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import formula, total
from overhead.quantity import Array

HIERARCHY = {"topology": "hierarchical"}
SEQUENTIAL = {"phases": "sequential"}
TWO = {"shape": "two_levels"}
THREE = {"shape": "three_levels"}
MODEL = ("a latency a hop, and the slowest link's bytes by its bandwidth",)
PHASES = ("phases on different levels run one after another",)
OWN = "derivation"


@formula(source=OWN)
def intra_wire_time(message_bytes: Array, intra_bandwidth: Array) -> Array:
    """Time of the whole message over one link inside a node."""
    return message_bytes / intra_bandwidth


@formula(
    source=OWN,
    assumes=("oversubscription divides the bandwidth of what leaves a node",),
    when=HIERARCHY,
)
def inter_wire_time(
    message_bytes: Array, inter_bandwidth: Array, uplink_oversubscription: Array
) -> Array:
    """Time of the whole message over one network card between nodes."""
    return message_bytes * (uplink_oversubscription / inter_bandwidth)


@formula(source=OWN, assumes=("oversubscription divides the bandwidth of what leaves a pod",))
def pod_wire_time(message_bytes: Array, pod_bandwidth: Array, pod_oversubscription: Array) -> Array:
    """Time of the whole message over one network card between pods."""
    return message_bytes * (pod_oversubscription / pod_bandwidth)


@formula(source="hockney1994", assumes=MODEL, when={**HIERARCHY, **SEQUENTIAL})
def intra_time(
    intra_latency_count: Array,
    intra_latency: Array,
    intra_transfer_fraction: Array,
    intra_wire_time: Array,
) -> Array:
    """Part of the time spent inside nodes."""
    return intra_latency_count * intra_latency + intra_transfer_fraction * intra_wire_time


@formula(source="hockney1994", assumes=MODEL, when={**HIERARCHY, **SEQUENTIAL})
def inter_time(
    inter_latency_count: Array,
    inter_latency: Array,
    inter_transfer_fraction: Array,
    inter_wire_time: Array,
) -> Array:
    """Part of the time spent between nodes."""
    return inter_latency_count * inter_latency + inter_transfer_fraction * inter_wire_time


@formula(source="hockney1994", assumes=MODEL, when={**HIERARCHY, **SEQUENTIAL})
def pod_time(
    pod_latency_count: Array,
    pod_latency: Array,
    pod_transfer_fraction: Array,
    pod_wire_time: Array,
) -> Array:
    """Part of the time spent between pods."""
    return pod_latency_count * pod_latency + pod_transfer_fraction * pod_wire_time


total("time", ("intra_time", "inter_time"), "Time of the operation on two levels", source=OWN,
      assumes=(*PHASES, "the reduction itself costs nothing"),
      when={**TWO, **SEQUENTIAL, "reduction": "free"}, name="two_level_time")  # fmt: skip


total("time", ("intra_time", "inter_time", "pod_time"), "Time of the operation on three levels",
      source=OWN, assumes=(*PHASES, "the reduction itself costs nothing"),
      when={**THREE, **SEQUENTIAL, "reduction": "free"}, name="three_level_time")  # fmt: skip


@formula(returns="latency_time", source=OWN, assumes=MODEL, when={**TWO, **SEQUENTIAL})
def two_level_latency_time(
    intra_latency_count: Array,
    intra_latency: Array,
    inter_latency_count: Array,
    inter_latency: Array,
) -> Array:
    """Part of the time that is latency, on two levels."""
    return intra_latency_count * intra_latency + inter_latency_count * inter_latency


@formula(returns="latency_time", source=OWN, assumes=MODEL, when={**THREE, **SEQUENTIAL})
def three_level_latency_time(
    intra_latency_count: Array,
    intra_latency: Array,
    inter_latency_count: Array,
    inter_latency: Array,
    pod_latency_count: Array,
    pod_latency: Array,
) -> Array:
    """Part of the time that is latency, on three levels."""
    two = intra_latency_count * intra_latency + inter_latency_count * inter_latency
    return two + pod_latency_count * pod_latency


@formula(returns="bandwidth_time", source=OWN, assumes=MODEL, when={**TWO, **SEQUENTIAL})
def two_level_bandwidth_time(
    intra_transfer_fraction: Array,
    intra_wire_time: Array,
    inter_transfer_fraction: Array,
    inter_wire_time: Array,
) -> Array:
    """Part of the time that is transfer, on two levels."""
    return intra_transfer_fraction * intra_wire_time + inter_transfer_fraction * inter_wire_time


@formula(returns="bandwidth_time", source=OWN, assumes=MODEL, when={**THREE, **SEQUENTIAL})
def three_level_bandwidth_time(
    intra_transfer_fraction: Array,
    intra_wire_time: Array,
    inter_transfer_fraction: Array,
    inter_wire_time: Array,
    pod_transfer_fraction: Array,
    pod_wire_time: Array,
) -> Array:
    """Part of the time that is transfer, on three levels."""
    two = intra_transfer_fraction * intra_wire_time + inter_transfer_fraction * inter_wire_time
    return two + pod_transfer_fraction * pod_wire_time


total("link_fraction", ("intra_link_fraction", "inter_link_fraction", "pod_link_fraction"),
      "Bytes over all links of all levels together, in messages", source=OWN,
      when=HIERARCHY)  # fmt: skip


@formula(
    returns="energy",
    source=OWN,
    assumes=("every byte costs its link's energy a bit; idle links cost nothing",),
    when=TWO,
)
def two_level_energy(
    message_bytes: Array,
    intra_link_fraction: Array,
    intra_energy_per_bit: Array,
    inter_link_fraction: Array,
    inter_energy_per_bit: Array,
) -> Array:
    """Energy of all bytes over all links, on two levels."""
    per_bit = (
        intra_link_fraction * intra_energy_per_bit + inter_link_fraction * inter_energy_per_bit
    )
    return 8.0 * message_bytes * per_bit


@formula(
    returns="energy",
    source=OWN,
    assumes=("every byte costs its link's energy a bit; idle links cost nothing",),
    when=THREE,
)
def three_level_energy(
    message_bytes: Array,
    intra_link_fraction: Array,
    intra_energy_per_bit: Array,
    inter_link_fraction: Array,
    inter_energy_per_bit: Array,
    pod_link_fraction: Array,
    pod_energy_per_bit: Array,
) -> Array:
    """Energy of all bytes over all links, on three levels."""
    per_bit = (
        intra_link_fraction * intra_energy_per_bit
        + inter_link_fraction * inter_energy_per_bit
        + pod_link_fraction * pod_energy_per_bit
    )
    return 8.0 * message_bytes * per_bit


# What leaves a rank, a node and a pod of a hierarchy in a second: for its lower bounds.
#
# A rank that sends alone has a network card for itself.  Together the ranks of a node have what its
# cards, or the group's part of them, bring through the oversubscribed levels above.

TWO_LEVEL_CAPACITY = {**HIERARCHY, "shape": "two_levels"}
THREE_LEVEL_CAPACITY = {**HIERARCHY, "shape": "three_levels"}


@formula(source=OWN, when=TWO_LEVEL_CAPACITY)
def rank_capacity(
    node_ranks: Array,
    nodes: Array,
    ranks_per_nic: Array,
    intra_bandwidth: Array,
    inter_bandwidth: Array,
) -> Array:
    """Bytes a second out of one rank that sends alone: its port in the node and its cards."""
    cards = xp.maximum(1.0, 1.0 / ranks_per_nic) * inter_bandwidth
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes)


@formula(returns="rank_capacity", source=OWN, when=THREE_LEVEL_CAPACITY)
def three_level_rank_capacity(
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
    intra_bandwidth: Array,
    inter_bandwidth: Array,
    pod_bandwidth: Array,
) -> Array:
    """Bytes a second out of one rank that sends alone: its port in the node and its cards."""
    links = _near_and_far(inter_bandwidth, pod_bandwidth, nodes, pods)
    cards = xp.maximum(1.0, 1.0 / ranks_per_nic) * links
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


def _inside_and_outside(inside: Array, outside: Array, node_ranks: Array, groups: Array) -> Array:
    """Return what the links in a node and out of it bring, of those that the group uses."""
    alone = xp.where(groups > 1.0, inside + outside, inside)
    return xp.where(node_ranks > 1.0, alone, outside)


def _near_and_far(near: Array, far: Array, nodes: Array, pods: Array) -> Array:
    """Return what the links between nodes and between pods bring, of those that the group uses."""
    return xp.where(pods > 1.0, xp.where(nodes > 1.0, near + far, far), near)


@formula(source=OWN, when=TWO_LEVEL_CAPACITY)
def node_capacity(
    node_ranks: Array, ranks_per_nic: Array, inter_bandwidth: Array, uplink_oversubscription: Array
) -> Array:
    """Bytes a second out of one node."""
    return node_ranks / ranks_per_nic * (inter_bandwidth / uplink_oversubscription)


@formula(returns="node_capacity", source=OWN, when=THREE_LEVEL_CAPACITY)
def three_level_node_capacity(
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
    inter_bandwidth: Array,
    uplink_oversubscription: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Array:
    """Bytes a second out of one node, to its pod and to other pods."""
    near, far = inter_bandwidth / uplink_oversubscription, pod_bandwidth / pod_oversubscription
    return node_ranks / ranks_per_nic * _near_and_far(near, far, nodes, pods)


@formula(source=OWN, when=HIERARCHY)
def mean_capacity(
    node_ranks: Array, nodes: Array, pods: Array, intra_bandwidth: Array, node_capacity: Array
) -> Array:
    """Bytes a second out of one rank when all send: its port and its part of the cards."""
    cards = node_capacity / node_ranks
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


@formula(source=OWN, when=THREE_LEVEL_CAPACITY)
def pod_capacity(
    node_ranks: Array,
    nodes: Array,
    ranks_per_nic: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Array:
    """Bytes a second out of one pod."""
    return node_ranks * nodes / ranks_per_nic * (pod_bandwidth / pod_oversubscription)
