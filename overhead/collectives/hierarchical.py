"""Collectives on nodes of GPUs, and pods of nodes: phase by phase, a level at a time.

A reduce_scatter works from the innermost level outwards on a buffer that shrinks, an all_gather
back.  Between nodes, ranks at the same place in their nodes form a rail; a network card serves
`ranks_per_nic` of them, so that each gets that part of its bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from overhead.collectives import switch
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, Level, scale, stack
from overhead.collectives.requirement import NODES_POWER_OF_TWO
from overhead.quantity import Array

__all__ = [
    "CARD",
    "CROWD",
    "EVERY",
    "MINIMAL",
    "WHOLE",
    "WIRES",
    "all_gather_intra_inter",
    "crowd",
    "direct_halving",
    "direct_ring",
    "ring_halving",
    "ring_ring",
    "shared",
    "two_phase",
]

BOTH = ("reduce_scatter", "all_gather")
EVERY = "(ranks - 1)/ranks*message_bytes"
MINIMAL = "(ranks - 1)*message_bytes"
WHOLE = "where(ranks > 1, message_bytes, 0*message_bytes)"
RAILS = "a node's ranks exchange with those at the same place in other nodes"
CARD = "ranks that share a network card get equal parts of its bandwidth"
PHASES = "phases on different levels run one after another"

# Time of the whole message over a link of each level.
WIRES = (
    "message_bytes/intra_bandwidth",
    "message_bytes*oversubscription/inter_bandwidth",
    "message_bytes*pod_oversubscription/pod_bandwidth",
)

# Messages through a network card when one rank of the group in each node sends: more than one if
# ranks of other groups in the node, which do the same, share the card.
CROWD = "maximum(1, ranks_per_nic/node_ranks)"


def crowd(node_ranks: Array, ranks_per_nic: Array) -> Array:
    """Return the messages through a network card when one rank of the group in a node sends."""
    return np.maximum(1.0, ranks_per_nic / node_ranks)


def shared(cost: Cost, messages: Array) -> Cost:
    """Return the cost where so many equal messages share a link."""
    levels = tuple(
        Level(level.latencies, level.messages, level.transfer * messages, level.carried)
        for level in cost.levels
    )
    return Cost(cost.steps, cost.sent, levels, cost.reduced)


def _phases(
    inner: Callable[[Array], Cost],
    outer: Callable[[Array], Cost],
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_per_nic: Array,
) -> Cost:
    """Return the cost of `inner` in the nodes and of `outer` along the rails, on what is left."""
    pod_ranks = node_ranks * nodes
    between_nodes = scale(outer(nodes), 1.0 / node_ranks, node_ranks * pods)
    between_pods = scale(outer(pods), 1.0 / pod_ranks, pod_ranks)
    return stack(
        [
            scale(inner(node_ranks), 1.0, nodes * pods),
            shared(between_nodes, ranks_per_nic),
            shared(between_pods, ranks_per_nic),
        ]
    )


RING_STEPS = "nodes - 1 + pods - 1"
HALVING_STEPS = "log2(nodes) + log2(pods)"
RING_LATENCY = "(nodes - 1)*inter_latency + (pods - 1)*pod_latency"
HALVING_LATENCY = "log2(nodes)*inter_latency + log2(pods)*pod_latency"
INNER = "(node_ranks - 1)*intra_latency"
INNER_ONCE = "where(node_ranks > 1, 1, 0)"
TRANSFER = (
    f" + (node_ranks - 1)/node_ranks*{WIRES[0]}"
    f" + (nodes - 1)*ranks_per_nic/(node_ranks*nodes)*{WIRES[1]}"
    f" + (pods - 1)*ranks_per_nic/(node_ranks*nodes*pods)*{WIRES[2]}"
)


@algorithm(
    "hierarchical",
    BOTH,
    "ring_ring",
    steps=f"node_ranks - 1 + {RING_STEPS}",
    time=f"{INNER} + {RING_LATENCY}{TRANSFER}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(RAILS, CARD, PHASES),
    doubled=True,
)
def ring_ring(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """Ring in every node, then rings along the rails."""
    return _phases(switch.bucket, switch.bucket, node_ranks, nodes, pods, ranks_per_nic)


@algorithm(
    "hierarchical",
    BOTH,
    "ring_halving",
    steps=f"node_ranks - 1 + {HALVING_STEPS}",
    time=f"{INNER} + {HALVING_LATENCY}{TRANSFER}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(RAILS, CARD, PHASES),
    requires=(NODES_POWER_OF_TWO,),
    doubled=True,
)
def ring_halving(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """Ring in every node, then recursive halving (all_gather: doubling) along the rails."""
    return _phases(switch.bucket, switch.halving, node_ranks, nodes, pods, ranks_per_nic)


@algorithm(
    "hierarchical",
    BOTH,
    "direct_ring",
    steps=f"{INNER_ONCE} + {RING_STEPS}",
    time=f"{INNER_ONCE}*intra_latency + {RING_LATENCY}{TRANSFER}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(RAILS, CARD, PHASES, "in a node all messages are posted at once"),
    doubled=True,
)
def direct_ring(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """All to all of a node at once, then rings along the rails."""
    return _phases(switch.direct, switch.bucket, node_ranks, nodes, pods, ranks_per_nic)


@algorithm(
    "hierarchical",
    BOTH,
    "direct_halving",
    steps=f"{INNER_ONCE} + {HALVING_STEPS}",
    time=f"{INNER_ONCE}*intra_latency + {HALVING_LATENCY}{TRANSFER}",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    assumes=(RAILS, CARD, PHASES, "in a node all messages are posted at once"),
    requires=(NODES_POWER_OF_TWO,),
    doubled=True,
)
def direct_halving(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """All to all of a node at once, then recursive halving (all_gather: doubling) on the rails."""
    return _phases(switch.direct, switch.halving, node_ranks, nodes, pods, ranks_per_nic)


# From the inside outwards an all_gather's buffer has grown before it leaves the node.

GROWN = "(node_ranks - 1)/ranks + (nodes - 1)/(nodes*pods) + (pods - 1)/pods"


@algorithm(
    "hierarchical",
    "all_gather",
    "intra_inter",
    steps=f"node_ranks - 1 + {RING_STEPS}",
    time=f"{INNER} + {RING_LATENCY} + (node_ranks - 1)/ranks*{WIRES[0]}"
    f" + (nodes - 1)*ranks_per_nic/(nodes*pods)*{WIRES[1]}"
    f" + (pods - 1)*ranks_per_nic/pods*{WIRES[2]}",
    sent=f"({GROWN})*message_bytes",
    carried=f"ranks*({GROWN})*message_bytes",
    source="derivation",
    assumes=("every rank of a node fetches what the node lacks", CARD, PHASES),
)
def all_gather_intra_inter(
    node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array
) -> Cost:
    """Ring in every node first, then rings along the rails, with all that the node has."""
    node = scale(switch.bucket(node_ranks), 1.0 / (nodes * pods), nodes * pods)
    between_nodes = scale(switch.bucket(nodes), 1.0 / pods, node_ranks * pods)
    between_pods = scale(switch.bucket(pods), 1.0, node_ranks * nodes)
    return stack([node, shared(between_nodes, ranks_per_nic), shared(between_pods, ranks_per_nic)])


IN_TURN = "(node_ranks - 1)/node_ranks + (nodes - 1)/nodes + (pods - 1)/pods"


@algorithm(
    "hierarchical",
    "all_to_all",
    "two_phase",
    steps=f"node_ranks - 1 + {RING_STEPS}",
    time=f"{INNER} + {RING_LATENCY} + (node_ranks - 1)/node_ranks*{WIRES[0]}"
    f" + (nodes - 1)*ranks_per_nic/nodes*{WIRES[1]}"
    f" + (pods - 1)*ranks_per_nic/pods*{WIRES[2]}",
    sent=f"({IN_TURN})*message_bytes",
    carried=f"ranks*({IN_TURN})*message_bytes",
    source="derivation",
    where="what NCCL does where it forwards through a GPU on the receiver's rail (PXN)",
    assumes=("blocks go to the rank on the receiver's rail first", CARD, PHASES),
)
def two_phase(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """Pairwise exchange in every node, then along the rails, level by level."""
    node = scale(switch.bucket(node_ranks), 1.0, nodes * pods)
    between_nodes = scale(switch.bucket(nodes), 1.0, node_ranks * pods)
    between_pods = scale(switch.bucket(pods), 1.0, node_ranks * nodes)
    return stack([node, shared(between_nodes, ranks_per_nic), shared(between_pods, ranks_per_nic)])
