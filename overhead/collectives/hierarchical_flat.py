"""Collectives on a hierarchy that take it for flat: each step lasts as long as its slowest level.

A step's messages go over links of all levels at once.  The slowest level gets all of the step's
time, so that these costs depend on latencies, bandwidths and the message.  Where there is one pod
the quantities of its level may have any value.
"""

from __future__ import annotations

import numpy as np

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, Level
from overhead.collectives.hierarchical import CROWD, EVERY, MINIMAL, WIRES, crowd
from overhead.quantity import Array

__all__ = ["all_to_all_direct", "flat_ring", "flat_ring_channels"]

BOTH = ("reduce_scatter", "all_gather")
ABSENT = -1.0


def _slowest(times: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """Return for each level 1.0 where it is the slowest, else 0.0; of equals the outermost."""
    intra, inter, pod = times
    outermost = (pod >= inter) & (pod >= intra)
    middle = ~outermost & (inter >= intra)
    innermost = ~outermost & ~middle
    return (
        innermost.astype(np.float64),
        middle.astype(np.float64),
        outermost.astype(np.float64),
    )


def _cost(
    steps: Array,
    times: tuple[Array, Array, Array],
    shares: tuple[Array, Array, Array],
    carried: tuple[Array, Array, Array],
    sent: Array,
) -> Cost:
    """Return the cost of equal steps, each as long as the slowest level's."""
    levels = tuple(
        Level(steps * here, steps * here, steps * here * share, passed)
        for here, share, passed in zip(_slowest(times), shares, carried, strict=True)
    )
    return Cost(steps, sent, levels, sent, apart=0.0)


def _edges(node_ranks: Array, nodes: Array, pods: Array) -> tuple[Array, Array, Array]:
    """Return the edges of a ring through all ranks on each level."""
    groups = nodes * pods
    intra = np.where(groups > 1.0, groups * (node_ranks - 1.0), node_ranks)
    inter = np.where(pods > 1.0, pods * (nodes - 1.0), np.where(nodes > 1.0, nodes, 0.0))
    return intra, inter, np.where(pods > 1.0, pods, 0.0)


def _step(terms: tuple[str, str, str]) -> str:
    """Return the expression of a step's time from those of its levels, where they are."""
    sizes = ("node_ranks", "nodes", "pods")
    intra, inter, pod = (
        f"where({size} > 1, {term}, 0*intra_latency)"
        for size, term in zip(sizes, terms, strict=True)
    )
    return f"maximum(maximum({intra}, {inter}), {pod})"


RING_STEP = _step(
    (
        f"intra_latency + {WIRES[0]}/ranks",
        f"inter_latency + {CROWD}*{WIRES[1]}/ranks",
        f"pod_latency + {CROWD}*{WIRES[2]}/ranks",
    )
)


@algorithm(
    "hierarchical",
    BOTH,
    "flat_ring",
    steps="ranks - 1",
    time=f"(ranks - 1)*{RING_STEP}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=("one ring, node after node; it leaves a node by one network card",),
    doubled=True,
)
def flat_ring(
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
    message_bytes: Array,
    intra_latency: Array,
    intra_bandwidth: Array,
    inter_latency: Array,
    inter_bandwidth: Array,
    oversubscription: Array,
    pod_latency: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Cost:
    """One ring through all ranks, node after node."""
    ranks = node_ranks * nodes * pods
    share = 1.0 / ranks
    crowded = share * crowd(node_ranks, ranks_per_nic)
    intra = intra_latency + share * (message_bytes / intra_bandwidth)
    inter = inter_latency + crowded * (message_bytes * (oversubscription / inter_bandwidth))
    pod = pod_latency + crowded * (message_bytes * (pod_oversubscription / pod_bandwidth))
    times = _present(node_ranks, nodes, pods, intra, inter, pod)
    sent = (ranks - 1.0) / ranks
    inside, between_nodes, between_pods = _edges(node_ranks, nodes, pods)
    carried = (inside * sent, between_nodes * sent, between_pods * sent)
    return _cost(ranks - 1.0, times, (share, crowded, crowded), carried, sent)


def _present(
    node_ranks: Array, nodes: Array, pods: Array, intra: Array, inter: Array, pod: Array
) -> tuple[Array, Array, Array]:
    """Return the levels' times, `ABSENT` for levels that have no messages."""
    return (
        np.where(node_ranks > 1.0, intra, ABSENT),
        np.where(nodes > 1.0, inter, ABSENT),
        np.where(pods > 1.0, pod, ABSENT),
    )


# Of a node's rings all but one go on inside of it at any rank; with one node all do.
INSIDE = "where(nodes*pods > 1, (node_ranks - 1)/node_ranks, 1)"
CHANNELS_STEP = _step(
    (
        f"intra_latency + {INSIDE}*{WIRES[0]}/ranks",
        f"inter_latency + ranks_per_nic/node_ranks*{WIRES[1]}/ranks",
        f"pod_latency + ranks_per_nic/node_ranks*{WIRES[2]}/ranks",
    )
)


@algorithm(
    "hierarchical",
    BOTH,
    "flat_ring_channels",
    steps="ranks - 1",
    time=f"(ranks - 1)*{CHANNELS_STEP}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    where="what NCCL does: a ring a channel, each leaving a node by another network card",
    assumes=("as many rings as ranks in a node, each with its part of the buffer",),
    doubled=True,
)
def flat_ring_channels(
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
    message_bytes: Array,
    intra_latency: Array,
    intra_bandwidth: Array,
    inter_latency: Array,
    inter_bandwidth: Array,
    oversubscription: Array,
    pod_latency: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Cost:
    """Rings through all ranks, as many as a node has ranks, each entering nodes at another."""
    ranks = node_ranks * nodes * pods
    inside = np.where(nodes * pods > 1.0, (node_ranks - 1.0) / node_ranks, 1.0) / ranks
    outside = ranks_per_nic / (node_ranks * ranks)
    intra = intra_latency + inside * (message_bytes / intra_bandwidth)
    inter = inter_latency + outside * (message_bytes * (oversubscription / inter_bandwidth))
    pod = pod_latency + outside * (message_bytes * (pod_oversubscription / pod_bandwidth))
    times = _present(node_ranks, nodes, pods, intra, inter, pod)
    sent = (ranks - 1.0) / ranks
    edges = _edges(node_ranks, nodes, pods)
    carried = (edges[0] * sent, edges[1] * sent, edges[2] * sent)
    return _cost(ranks - 1.0, times, (inside, outside, outside), carried, sent)


DIRECT_STEP = _step(
    (
        f"intra_latency + (node_ranks - 1)/ranks*{WIRES[0]}",
        f"inter_latency + ranks_per_nic*(nodes - 1)*node_ranks/ranks*{WIRES[1]}",
        f"pod_latency + ranks_per_nic*(pods - 1)/pods*{WIRES[2]}",
    )
)


@algorithm(
    "hierarchical",
    "all_to_all",
    "flat_direct",
    steps="where(ranks > 1, 1, 0)",
    time=DIRECT_STEP,
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(
        "a rank posts all its messages at once and those of a level pay one latency together",
    ),
)
def all_to_all_direct(
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
    message_bytes: Array,
    intra_latency: Array,
    intra_bandwidth: Array,
    inter_latency: Array,
    inter_bandwidth: Array,
    oversubscription: Array,
    pod_latency: Array,
    pod_bandwidth: Array,
    pod_oversubscription: Array,
) -> Cost:
    """All pairs at once, each message straight over the level at which its ranks meet."""
    ranks = node_ranks * nodes * pods
    inside = (node_ranks - 1.0) / ranks
    outside = (nodes - 1.0) * node_ranks / ranks
    far = (pods - 1.0) / pods
    shares = (inside, ranks_per_nic * outside, ranks_per_nic * far)
    intra = intra_latency + shares[0] * (message_bytes / intra_bandwidth)
    inter = inter_latency + shares[1] * (message_bytes * (oversubscription / inter_bandwidth))
    pod = pod_latency + shares[2] * (message_bytes * (pod_oversubscription / pod_bandwidth))
    times = _present(node_ranks, nodes, pods, intra, inter, pod)
    carried = (ranks * inside, ranks * outside, ranks * far)
    there = np.where(ranks > 1.0, 1.0, 0.0)
    return _cost(there, times, shares, carried, (ranks - 1.0) / ranks)
