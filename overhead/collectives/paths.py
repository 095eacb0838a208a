"""Collectives on nodes of GPUs whose ranks don't wait for one another: what libraries run there.

A rank goes on as soon as it has what it passes on.  So a ring's latency is that of the longest
path of a block, not of so many steps of the slowest link.
"""

from __future__ import annotations

import numpy as np

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, Level, stack
from overhead.collectives.hierarchical import (
    ABSENT,
    BOTH,
    CARD,
    EVERY,
    INSIDE,
    MINIMAL,
    WIRES,
    edges,
    slowest,
)
from overhead.quantity import Array

SEVERAL = "where(ranks > 1, 1, 0)"
# Links of a ring through all ranks, node after node, and the latency of its quickest one.
LOOP = (
    "where(nodes*pods > 1, nodes*pods*(node_ranks - 1), node_ranks)*intra_latency"
    " + where(pods > 1, pods*(nodes - 1), where(nodes > 1, nodes, 0))*inter_latency"
    " + where(pods > 1, pods, 0)*pod_latency"
)
FAR = "where(pods > 1, pod_latency, where(nodes > 1, inter_latency, intra_latency))"
MIDDLE = f"where(nodes > 1, inter_latency, {FAR})"
QUICKEST = f"minimum(minimum(where(node_ranks > 1, intra_latency, {MIDDLE}), {MIDDLE}), {FAR})"
OUTSIDE = "ranks_per_nic/node_ranks"
SLOWEST = (
    f"maximum(maximum({INSIDE}*{WIRES[0]},"
    f" where(nodes > 1, {OUTSIDE}*{WIRES[1]}, 0*message_bytes)),"
    f" where(pods > 1, {OUTSIDE}*{WIRES[2]}, 0*message_bytes))/ranks"
)


@algorithm(
    "hierarchical",
    BOTH,
    "ring_path",
    steps="ranks - 1",
    time=f"{SEVERAL}*({LOOP} - {QUICKEST}) + (ranks - 1)*{SLOWEST}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    where="what NCCL does: a ring a channel, each leaving a node by another network card",
    assumes=(
        "as many rings as ranks in a node, each with its part of the buffer",
        "a rank passes a block on when it has it, and waits for nobody else",
        "a ring goes at the rate of its slowest link everywhere",
    ),
    doubled=True,
)
def ring_path(
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
    """Rings through all ranks without waiting: latency of the longest path, largest transfer."""
    ranks = node_ranks * nodes * pods
    present = (node_ranks > 1.0, nodes > 1.0, pods > 1.0)
    # A block doesn't pass one of the links; the block that is the last there passes all but the
    # quickest.
    latencies = (intra_latency, inter_latency, pod_latency)
    left_out = slowest(
        *(np.where(here, -one, -np.inf) for here, one in zip(present, latencies, strict=True))
    )
    around = edges(node_ranks, nodes, pods)
    several = np.asarray(ranks > 1.0, dtype=np.float64)
    passed = [several * (all_ - out) for all_, out in zip(around, left_out, strict=True)]
    inside = np.where(nodes * pods > 1.0, (node_ranks - 1.0) / node_ranks, 1.0) / ranks
    outside = ranks_per_nic / (node_ranks * ranks)
    shares = (inside, outside, outside)
    wires = (
        inside * (message_bytes / intra_bandwidth),
        outside * (message_bytes * (oversubscription / inter_bandwidth)),
        outside * (message_bytes * (pod_oversubscription / pod_bandwidth)),
    )
    busiest = slowest(
        *(np.where(here, wire, ABSENT) for here, wire in zip(present, wires, strict=True))
    )
    sent = (ranks - 1.0) / ranks
    levels = tuple(
        Level(path, path, (ranks - 1.0) * busy * share, all_ * sent)
        for path, busy, share, all_ in zip(passed, busiest, shares, around, strict=True)
    )
    return Cost(ranks - 1.0, sent, levels, sent, apart=0.0)


ROUNDS = (
    f"(node_ranks - 1)*(intra_latency + {WIRES[0]}/ranks)"
    f" + (nodes - 1)*node_ranks*(inter_latency + ranks_per_nic*{WIRES[1]}/ranks)"
    f" + (pods - 1)*nodes*node_ranks*(pod_latency + ranks_per_nic*{WIRES[2]}/ranks)"
)


@algorithm(
    "hierarchical",
    "all_to_all",
    "node_pairwise",
    steps="ranks - 1",
    time=ROUNDS,
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    where="NCCL's order of sends and receives: node by node",
    assumes=("a round lies wholly inside nodes, or wholly between them", CARD),
)
def node_pairwise(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """Pairwise exchange node by node: rounds inside of the own one, then rounds between nodes."""
    ranks = node_ranks * nodes * pods

    def rounds(count: Array, messages: Array) -> Cost:
        level = Level(count, count, count * messages / ranks, count)
        return Cost(count, count / ranks, (level,))

    return stack(
        [
            rounds(node_ranks - 1.0, np.ones_like(ranks)),
            rounds((nodes - 1.0) * node_ranks, ranks_per_nic),
            rounds((pods - 1.0) * nodes * node_ranks, ranks_per_nic),
        ]
    )
