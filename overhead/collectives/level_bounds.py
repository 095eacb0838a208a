"""Physical lower bounds on a hierarchy: what no schedule on nodes and pods can beat.

Ranks, nodes and pods alike must take in, or give out, what they lack or owe.  A rank that sends
alone has a network card for itself.  Together the ranks of a node have what its cards, or the
group's part of them, bring through the oversubscribed levels above.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.collectives.levels import HIERARCHY
from overhead.formula import derived

# What leaves a rank, a node and a pod in a second.


def _near_and_far(near, far, nodes, pods):
    """Return what the links between nodes and between pods bring, of those that the group uses."""
    return xp.where(pods > 1.0, xp.where(nodes > 1.0, near + far, far), near)


def _inside_and_outside(inside, outside, node_ranks, groups):
    """Return what the links in a node and out of it bring, of those that the group uses."""
    alone = xp.where(groups > 1.0, inside + outside, inside)
    return xp.where(node_ranks > 1.0, alone, outside)


@derived(when=HIERARCHY)
def rank_injection_bandwidth(
    node_ranks, nodes, pods, ranks_sharing_nic, intra_bandwidth, inter_bandwidth, pod_bandwidth
):
    """Injection bandwidth of one rank sending alone: intra-node port and NICs."""
    links = _near_and_far(inter_bandwidth, pod_bandwidth, nodes, pods)
    cards = xp.maximum(1.0, 1.0 / ranks_sharing_nic) * links
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


@derived(when=HIERARCHY)
def node_injection_bandwidth(
    node_ranks,
    nodes,
    pods,
    ranks_sharing_nic,
    inter_bandwidth,
    effective_oversubscription,
    pod_bandwidth,
    pod_oversubscription,
):
    """Bytes a second out of one node, to its pod and to other pods."""
    near, far = inter_bandwidth / effective_oversubscription, pod_bandwidth / pod_oversubscription
    return node_ranks / ranks_sharing_nic * _near_and_far(near, far, nodes, pods)


@derived(when=HIERARCHY)
def shared_injection_bandwidth(node_ranks, nodes, pods, intra_bandwidth, node_injection_bandwidth):
    """Injection bandwidth per rank with all ranks sending: port and NIC fraction."""
    cards = node_injection_bandwidth / node_ranks
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


@derived(when=HIERARCHY)
def pod_injection_bandwidth(
    node_ranks, nodes, ranks_sharing_nic, pod_bandwidth, pod_oversubscription
):
    """Bytes a second out of one pod."""
    return node_ranks * nodes / ranks_sharing_nic * (pod_bandwidth / pod_oversubscription)


# Latency.

OUTERMOST = "one message crosses the outermost level that the group spans"
SENDERS = "sender and receiver are in different nodes of a pod where it has several"


@derived(returns="latency_bound", assumes=(OUTERMOST,), when=HIERARCHY)
def level_latency_bound(node_ranks, nodes, pods, intra_latency, inter_latency, pod_latency):
    """Least latency: one message across the outermost level."""
    inner = xp.where(nodes > 1.0, inter_latency, xp.where(node_ranks > 1.0, intra_latency, 0.0))
    return xp.where(pods > 1.0, pod_latency, inner)


@derived(returns="latency_bound", assumes=(SENDERS,), when={**HIERARCHY, "collective": "p2p"})
def level_p2p_latency_bound(
    node_ranks, nodes, pods, hops, intra_latency, inter_latency, pod_latency
):
    """Least latency of one message: one hop's."""
    inner = xp.where(node_ranks > 1.0, intra_latency, 0.0)
    outer = xp.where(pods > 1.0, pod_latency, inner)
    return xp.minimum(hops, 1.0) * xp.where(nodes > 1.0, inter_latency, outer)


# Transfer.

SHARED_PORT = "all ranks together must receive, or send, at least the collective volume"
NODE = "traffic into or out of a node passes its NICs"
POD = "traffic into or out of a pod passes its NICs"
LEVELS = (SHARED_PORT, NODE, POD)


@derived(
    returns="bandwidth_bound",
    assumes=LEVELS,
    when={**HIERARCHY, "collective": "all_gather|reduce_scatter"},
)
def level_gather_bound(
    message_bytes,
    ranks,
    node_ranks,
    pods,
    shared_injection_bandwidth,
    node_injection_bandwidth,
    pod_injection_bandwidth,
):
    """Minimum transfer of an all-gather or reduce-scatter: among ranks, nodes, and pods."""
    rank = (ranks - 1.0) / shared_injection_bandwidth
    node = (ranks - node_ranks) / node_injection_bandwidth
    pod = (ranks - ranks / pods) / pod_injection_bandwidth
    return xp.asarray(message_bytes / ranks * xp.maximum(xp.maximum(rank, node), pod))


@derived(
    returns="bandwidth_bound",
    assumes=(*LEVELS, "no reduction in the network"),
    when={**HIERARCHY, "collective": "all_reduce"},
)
def level_all_reduce_bound(
    message_bytes,
    ranks,
    node_ranks,
    pods,
    shared_injection_bandwidth,
    node_injection_bandwidth,
    pod_injection_bandwidth,
):
    """Minimum transfer of an all-reduce: among ranks, nodes, and pods."""
    capacities = shared_injection_bandwidth, node_injection_bandwidth, pod_injection_bandwidth
    return 2.0 * level_gather_bound(message_bytes, ranks, node_ranks, pods, *capacities)


@derived(
    returns="bandwidth_bound",
    assumes=(*LEVELS, "every rank sends the full message, every node and pod once"),
    when={**HIERARCHY, "collective": "all_reduce", "in_network": "yes"},
)
def level_in_network_bound(
    message_bytes,
    ranks,
    node_ranks,
    pods,
    shared_injection_bandwidth,
    node_injection_bandwidth,
    pod_injection_bandwidth,
):
    """Minimum transfer of an all-reduce with in-switch reduction."""
    rank = 1.0 / shared_injection_bandwidth
    return message_bytes * _once(
        rank, ranks, node_ranks, pods, node_injection_bandwidth, pod_injection_bandwidth
    )


@derived(
    returns="bandwidth_bound",
    assumes=(*LEVELS, "the full message leaves or enters the root, every node and pod"),
    when={**HIERARCHY, "collective": "broadcast|reduce"},
)
def level_broadcast_bound(
    message_bytes,
    ranks,
    node_ranks,
    pods,
    rank_injection_bandwidth,
    shared_injection_bandwidth,
    node_injection_bandwidth,
    pod_injection_bandwidth,
):
    """Minimum transfer of a broadcast or a reduce."""
    rank = xp.maximum(
        1.0 / rank_injection_bandwidth, (ranks - 1.0) / ranks / shared_injection_bandwidth
    )
    return message_bytes * _once(
        rank, ranks, node_ranks, pods, node_injection_bandwidth, pod_injection_bandwidth
    )


def _once(rank, ranks, node_ranks, pods, node_injection_bandwidth, pod_injection_bandwidth):
    """Return the time of a byte that every node and pod takes in or gives out once."""
    node = xp.where(ranks > node_ranks, 1.0 / node_injection_bandwidth, 0.0)
    pod = xp.where(pods > 1.0, 1.0 / pod_injection_bandwidth, 0.0)
    return xp.asarray(xp.where(ranks > 1.0, xp.maximum(xp.maximum(rank, node), pod), 0.0))


@derived(
    returns="bandwidth_bound",
    assumes=LEVELS,
    when={**HIERARCHY, "collective": "all_to_all"},
)
def level_exchange_bound(
    message_bytes,
    ranks,
    node_ranks,
    pods,
    shared_injection_bandwidth,
    node_injection_bandwidth,
    pod_injection_bandwidth,
):
    """Minimum transfer of an all-to-all."""
    pod_ranks = ranks / pods
    rank = (ranks - 1.0) / shared_injection_bandwidth
    node = node_ranks * (ranks - node_ranks) / node_injection_bandwidth
    pod = pod_ranks * (ranks - pod_ranks) / pod_injection_bandwidth
    return xp.asarray(message_bytes / ranks * xp.maximum(xp.maximum(rank, node), pod))


@derived(
    returns="bandwidth_bound",
    assumes=(NODE, SENDERS),
    when={**HIERARCHY, "collective": "p2p"},
)
def level_p2p_bound(
    message_bytes, ranks, node_ranks, rank_injection_bandwidth, node_injection_bandwidth
):
    """Minimum transfer of one message, inter-node if there are several nodes."""
    node = xp.where(ranks > node_ranks, 1.0 / node_injection_bandwidth, 0.0)
    port = 1.0 / rank_injection_bandwidth
    return xp.asarray(message_bytes * xp.where(ranks > 1.0, xp.maximum(port, node), 0.0))
