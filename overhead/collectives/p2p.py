"""One message from one rank to another."""

from __future__ import annotations

import numpy as np

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, Level, flat, several
from overhead.collectives.hierarchical import CROWD, crowd
from overhead.quantity import Array

__all__ = ["direct", "direct_between_nodes"]

ONCE = "where(ranks > 1, 1, 0)"


@algorithm(
    ("ring", "tree", "switch", "mesh", "torus", "binary_tree"),
    "p2p",
    "direct",
    steps=ONCE,
    time=f"{ONCE}*(hops*latency + message_bytes/bandwidth)",
    sent=f"{ONCE}*message_bytes",
    carried=f"{ONCE}*hops*message_bytes",
    source="hockney1994",
    assumes=("a latency a hop; the bytes stream through the links between",),
)
def direct(ranks: Array, hops: Array) -> Cost:
    """One message over so many links."""
    there = several(ranks)
    return flat(
        there,
        there,
        latencies=there * hops,
        messages=there * np.minimum(hops, 1.0),
        sent=there,
        carried=there * hops,
    )


@algorithm(
    "hierarchical",
    "p2p",
    "direct",
    steps=ONCE,
    time="where(nodes > 1, hops*inter_latency"
    f" + {CROWD}*message_bytes*oversubscription/inter_bandwidth,"
    " where(pods > 1, hops*pod_latency"
    f" + {CROWD}*message_bytes*pod_oversubscription/pod_bandwidth,"
    f" {ONCE}*(hops*intra_latency + message_bytes/intra_bandwidth)))",
    sent=f"{ONCE}*message_bytes",
    carried=f"{ONCE}*hops*message_bytes",
    source="hockney1994",
    assumes=(
        "between nodes of a pod; between pods if those have one node, else in the node",
        "the node's other ranks use their network cards at the same time",
    ),
)
def direct_between_nodes(
    node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array, hops: Array
) -> Cost:
    """One message, between nodes where there are several."""
    inter = several(nodes)
    pod = (1.0 - inter) * several(pods)
    intra = (1.0 - inter) * (1.0 - pod) * several(node_ranks)
    there = several(node_ranks * nodes * pods)
    shared = crowd(node_ranks, ranks_per_nic)
    fewer = np.minimum(hops, 1.0)
    levels = tuple(
        Level(here * hops, here * fewer, here * share, here * hops)
        for here, share in ((intra, 1.0), (inter, shared), (pod, shared))
    )
    return Cost(there, there, levels)
