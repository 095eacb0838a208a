"""Pairwise all_to_all on nodes of GPUs: in step r every rank sends to the rank r further on.

Step r has messages inside nodes if r or N - r is below the ranks of a node, and lasts as long as
the slower of both levels.  Through a network card go as many messages as ranks at it have their
partner outside: r of them in the first steps, until all have.
"""

from __future__ import annotations

import numpy as np

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, Level
from overhead.collectives.hierarchical import CROWD, EVERY, MINIMAL, WIRES, crowd
from overhead.collectives.requirement import TWO_LEVELS
from overhead.quantity import Array

__all__ = ["flat_pairwise"]


def _messages(steps: Array, ranks: Array) -> Array:
    """Return the sum over r = 1 .. steps of min(r, ranks): messages through a network card."""
    growing = np.minimum(steps, np.floor(ranks))
    return np.asarray(growing * (growing + 1.0) / 2.0 + (steps - growing) * ranks)


# A step inside nodes, one between nodes in which every rank's partner is outside, what the first
# takes longer than latency between nodes, and a message's time through a network card.
INTRA = f"(intra_latency + {WIRES[0]}/ranks)"
INTER = f"(inter_latency + ranks_per_nic*{WIRES[1]}/ranks)"
LONGER = f"({INTRA} - inter_latency)"
PASS = f"({CROWD}*{WIRES[1]}/ranks)"
# In the first so many steps messages through a card grow by one a step, and in the first so many
# of those the step is slower inside nodes.
GROWING = "minimum(node_ranks - 1, floor(ranks_per_nic))"
SLOWER = (
    f"where({INTRA} <= inter_latency, 0, where({INTRA} >= {INTER}, {GROWING},"
    f" minimum({GROWING}, floor({LONGER}/{PASS}))))"
)
MIXED = (
    f"(node_ranks - 1)*{INTRA} - ({GROWING} - {SLOWER})*{LONGER}"
    f" + ({GROWING}*({GROWING} + 1) - {SLOWER}*({SLOWER} + 1))/2*{PASS}"
    f" + (node_ranks - 1 - {GROWING})*maximum({INTER} - {INTRA}, 0*{INTRA})"
)


@algorithm(
    "hierarchical",
    "all_to_all",
    "flat_pairwise",
    steps="ranks - 1",
    time=f"where(nodes > 1, 2*({MIXED}) + (ranks - 2*node_ranks + 1)*{INTER}, (ranks - 1)*{INTRA})",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    where="NCCL's exchange, shift by shift",
    assumes=("a shift begins when the one before has ended",),
    requires=(TWO_LEVELS,),
)
def flat_pairwise(
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
) -> Cost:
    """Shift by 1, 2, .. ranks, whether in a node or between nodes."""
    ranks = node_ranks * nodes * pods
    others = node_ranks - 1.0
    at_card = np.minimum(ranks_per_nic, node_ranks)
    crowded = crowd(node_ranks, ranks_per_nic)
    inside = intra_latency + message_bytes / intra_bandwidth / ranks
    wire = message_bytes * (oversubscription / inter_bandwidth) / ranks
    # A step with r messages through a network card is slower inside nodes while r stays below.
    one = crowded * wire
    limit = np.floor((inside - inter_latency) / np.where(one > 0.0, one, 1.0))
    slower = np.select(
        [inside <= inter_latency, inside >= inter_latency + ranks_per_nic * wire],
        [0.0, others],
        np.minimum(limit, others),
    )
    mixed = crowded * (_messages(others, at_card) - _messages(slower, at_card))
    apart = ranks - 2.0 * node_ranks + 1.0
    between = nodes > 1.0
    intra_steps = np.where(between, 2.0 * slower, ranks - 1.0)
    inter_steps = np.where(between, ranks - 1.0 - intra_steps, 0.0)
    passed = np.where(between, 2.0 * mixed + apart * ranks_per_nic, 0.0)
    sent = (ranks - 1.0) / ranks
    levels = (
        Level(intra_steps, intra_steps, intra_steps / ranks, others + 0.0 * ranks),
        Level(inter_steps, inter_steps, passed / ranks, ranks - node_ranks),
        Level(0.0 * ranks, 0.0 * ranks, 0.0 * ranks, 0.0 * ranks),
    )
    return Cost(ranks - 1.0, sent, levels, apart=0.0)
