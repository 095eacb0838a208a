"""What leaves a rank, a node and a pod of a hierarchy in a second: for its lower bounds.

A rank that sends alone has a network card for itself.  Together the ranks of a node have what its
cards, or the group's part of them, bring through the oversubscribed levels above.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["mean_capacity", "node_capacity", "pod_capacity", "rank_capacity"]

OWN = "derivation"
HIERARCHY = {"topology": "hierarchical"}
TWO = {**HIERARCHY, "shape": "two_levels"}
THREE = {**HIERARCHY, "shape": "three_levels"}


@formula(
    returns="rank_capacity",
    expression="where(node_ranks > 1, where(nodes > 1,"
    " intra_bandwidth + maximum(1, 1/ranks_per_nic)*inter_bandwidth, intra_bandwidth),"
    " maximum(1, 1/ranks_per_nic)*inter_bandwidth)",
    source=OWN,
    when=TWO,
)
def rank_capacity(
    node_ranks: Array,
    nodes: Array,
    ranks_per_nic: Array,
    intra_bandwidth: Array,
    inter_bandwidth: Array,
) -> Array:
    """Bytes a second out of one rank that sends alone: its port in the node and its cards."""
    cards = np.maximum(1.0, 1.0 / ranks_per_nic) * inter_bandwidth
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes)


@formula(
    returns="rank_capacity",
    expression="where(node_ranks > 1, where(nodes*pods > 1, intra_bandwidth"
    " + maximum(1, 1/ranks_per_nic)*where(pods > 1, where(nodes > 1,"
    " inter_bandwidth + pod_bandwidth, pod_bandwidth), inter_bandwidth), intra_bandwidth),"
    " maximum(1, 1/ranks_per_nic)*where(pods > 1, where(nodes > 1,"
    " inter_bandwidth + pod_bandwidth, pod_bandwidth), inter_bandwidth))",
    source=OWN,
    when=THREE,
)
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
    cards = np.maximum(1.0, 1.0 / ranks_per_nic) * links
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


def _inside_and_outside(inside: Array, outside: Array, node_ranks: Array, groups: Array) -> Array:
    """Return what the links in a node and out of it bring, of those that the group uses."""
    alone = np.where(groups > 1.0, inside + outside, inside)
    return np.where(node_ranks > 1.0, alone, outside)


def _near_and_far(near: Array, far: Array, nodes: Array, pods: Array) -> Array:
    """Return what the links between nodes and between pods bring, of those that the group uses."""
    return np.where(pods > 1.0, np.where(nodes > 1.0, near + far, far), near)


@formula(
    returns="node_capacity",
    expression="node_ranks/ranks_per_nic*(inter_bandwidth/oversubscription)",
    source=OWN,
    when=TWO,
)
def node_capacity(
    node_ranks: Array, ranks_per_nic: Array, inter_bandwidth: Array, oversubscription: Array
) -> Array:
    """Bytes a second out of one node."""
    return node_ranks / ranks_per_nic * (inter_bandwidth / oversubscription)


@formula(
    returns="node_capacity",
    expression="node_ranks/ranks_per_nic*where(pods > 1, where(nodes > 1,"
    " inter_bandwidth/oversubscription + pod_bandwidth/pod_oversubscription,"
    " pod_bandwidth/pod_oversubscription), inter_bandwidth/oversubscription)",
    source=OWN,
    when=THREE,
)
def three_level_node_capacity(
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
    inter_bandwidth: Array,
    oversubscription: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Array:
    """Bytes a second out of one node, to its pod and to other pods."""
    near, far = inter_bandwidth / oversubscription, pod_bandwidth / pod_oversubscription
    return node_ranks / ranks_per_nic * _near_and_far(near, far, nodes, pods)


@formula(
    returns="mean_capacity",
    expression="where(node_ranks > 1, where(nodes*pods > 1,"
    " intra_bandwidth + node_capacity/node_ranks, intra_bandwidth), node_capacity/node_ranks)",
    source=OWN,
    when=HIERARCHY,
)
def mean_capacity(
    node_ranks: Array, nodes: Array, pods: Array, intra_bandwidth: Array, node_capacity: Array
) -> Array:
    """Bytes a second out of one rank when all send: its port and its part of the cards."""
    cards = node_capacity / node_ranks
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


@formula(
    returns="pod_capacity",
    expression="node_ranks*nodes/ranks_per_nic*(pod_bandwidth/pod_oversubscription)",
    source=OWN,
    when=THREE,
)
def pod_capacity(
    node_ranks: Array,
    nodes: Array,
    ranks_per_nic: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Array:
    """Bytes a second out of one pod."""
    return node_ranks * nodes / ranks_per_nic * (pod_bandwidth / pod_oversubscription)
