"""Broadcasts on nodes of GPUs, and pods of nodes, and the reduces that mirror them."""

from __future__ import annotations

import numpy as np

from overhead.collectives import switch
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat, scale, several, stack
from overhead.collectives.hierarchical import CARD, CROWD, MINIMAL, WIRES, crowd, shared
from overhead.collectives.scatter_gather import scatter
from overhead.quantity import Array

__all__ = ["binomial", "chain", "reduce_scatter_rails", "scatter_rails"]

INWARDS = "between pods first, then between nodes, then in every node"
ALONE = "one rank of each node sends, over one network card"
LEVELS = "(ceil(log2(pods)) + ceil(log2(nodes)) + ceil(log2(node_ranks)))"


def _inwards(
    node: Cost, between_nodes: Cost, between_pods: Cost, nodes: Array, pods: Array
) -> Cost:
    """Return the cost of a broadcast between pods, in each between nodes, in each of those."""
    return stack([scale(node, 1.0, nodes * pods), scale(between_nodes, 1.0, pods), between_pods])


@algorithm(
    "hierarchical",
    "broadcast",
    "binomial",
    steps=LEVELS,
    time=f"ceil(log2(pods))*(pod_latency + {CROWD}*{WIRES[2]})"
    f" + ceil(log2(nodes))*(inter_latency + {CROWD}*{WIRES[1]})"
    f" + ceil(log2(node_ranks))*(intra_latency + {WIRES[0]})",
    sent=f"{LEVELS}*message_bytes",
    carried=MINIMAL,
    source="derivation",
    assumes=(INWARDS, ALONE),
    mirrored=True,
)
def binomial(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """Binomial trees, level by level inwards."""
    messages = crowd(node_ranks, ranks_per_nic)
    return _inwards(
        switch.binomial(node_ranks),
        shared(switch.binomial(nodes), messages),
        shared(switch.binomial(pods), messages),
        nodes,
        pods,
    )


LINKS = "where({n} > 1, {n} - 2 + chunks, 0)"
CHAINS = [LINKS.format(n=size) for size in ("node_ranks", "nodes", "pods")]


@algorithm(
    "hierarchical",
    "broadcast",
    "chain",
    steps=" + ".join(CHAINS),
    time=f"{CHAINS[2]}*(pod_latency + {CROWD}*{WIRES[2]}/chunks)"
    f" + {CHAINS[1]}*(inter_latency + {CROWD}*{WIRES[1]}/chunks)"
    f" + {CHAINS[0]}*(intra_latency + {WIRES[0]}/chunks)",
    sent="(where(pods > 1, 1, 0) + where(nodes > 1, 1, 0) + where(node_ranks > 1, 1, 0))"
    "*message_bytes",
    carried=MINIMAL,
    source="derivation",
    assumes=(INWARDS, ALONE, "a level begins when the one outside of it has ended"),
    mirrored=True,
)
def chain(
    node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array, chunks: Array
) -> Cost:
    """Chains, level by level inwards, pipelined over chunks on each level."""
    messages = crowd(node_ranks, ranks_per_nic)
    return _inwards(
        switch.chain(node_ranks, chunks),
        shared(switch.chain(nodes, chunks), messages),
        shared(switch.chain(pods, chunks), messages),
        nodes,
        pods,
    )


RAIL = "ranks_per_nic/node_ranks"
RAILS_STEPS = f"{LEVELS} + node_ranks - 1"
RAILS_TIME = (
    "(ceil(log2(node_ranks)) + node_ranks - 1)*intra_latency"
    f" + 2*(node_ranks - 1)/node_ranks*{WIRES[0]}"
    f" + ceil(log2(nodes))*(inter_latency + {RAIL}*{WIRES[1]})"
    f" + ceil(log2(pods))*(pod_latency + {RAIL}*{WIRES[2]})"
)
RAILS_SENT = "(2*(node_ranks - 1) + ceil(log2(nodes)) + ceil(log2(pods)))/node_ranks*message_bytes"
RAILS_CARRIED = "(ranks - 1 + popcount_sum(node_ranks)/node_ranks)*message_bytes"
PIECES = (
    "where(node_ranks > 1, maximum(node_ranks - 2**(ceil(log2(node_ranks)) - 1),"
    " 2**(ceil(log2(node_ranks)) - 2)), 0)"
)
RAILS = (
    "the root's node scatters, ranks at the same place in their nodes broadcast a piece each",
    CARD,
)


@algorithm(
    "hierarchical",
    "broadcast",
    "scatter_rails",
    steps=RAILS_STEPS,
    time=RAILS_TIME,
    sent=RAILS_SENT,
    carried=RAILS_CARRIED,
    source="derivation",
    assumes=RAILS,
)
def scatter_rails(node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array) -> Cost:
    """Scatter in the root's node, broadcasts along the rails, an all_gather in every node."""
    first = scatter(node_ranks)
    last = switch.bucket(node_ranks)
    node = flat(
        first.steps + last.steps,
        first.levels[0].transfer + last.levels[0].transfer,
        sent=first.sent + last.sent,
        carried=first.levels[0].carried + nodes * pods * last.levels[0].carried,
    )
    piece = 1.0 / node_ranks
    between_nodes = scale(switch.binomial(nodes), piece, node_ranks * pods)
    between_pods = scale(switch.binomial(pods), piece, node_ranks)
    return stack([node, shared(between_nodes, ranks_per_nic), shared(between_pods, ranks_per_nic)])


@algorithm(
    "hierarchical",
    "reduce",
    "scatter_rails",
    steps=RAILS_STEPS,
    time=RAILS_TIME,
    sent=f"(node_ranks - 1 + maximum(where(nodes*pods > 1, 1, 0), {PIECES}))"
    "/node_ranks*message_bytes",
    carried=RAILS_CARRIED,
    source="derivation",
    assumes=("the broadcast backwards; at its end the root's node only gathers", CARD),
)
def reduce_scatter_rails(
    node_ranks: Array, nodes: Array, pods: Array, ranks_per_nic: Array
) -> Cost:
    """Reduce_scatter in every node, reduces along the rails, a gather in the root's node."""
    there = scatter_rails(node_ranks, nodes, pods, ranks_per_nic)
    depth = switch.levels(node_ranks)
    subtree = np.maximum(node_ranks - np.exp2(depth - 1.0), np.exp2(depth - 2.0))
    pieces = several(node_ranks) * subtree
    sent = node_ranks - 1.0 + np.maximum(several(nodes * pods), pieces)
    reduced = node_ranks - 1.0 + switch.levels(nodes) + switch.levels(pods)
    return Cost(there.steps, sent / node_ranks, there.levels, reduced / node_ranks)
