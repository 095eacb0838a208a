"""Collectives on nodes of GPUs whose ranks don't wait for one another: what libraries run there.

A rank goes on as soon as it has what it passes on.  So a ring's latency is that of the longest
path of a block, not of so many steps of the slowest link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from overhead.arrays import xp
from overhead.collectives.algorithm import BOTH, EVERY, MINIMAL, ONCE, Requirement
from overhead.collectives.cost import Cost, Level, several, stack
from overhead.collectives.hierarchical import (
    ABSENT,
    CARD,
    CROWD,
    INSIDE,
    WIRES,
    crowd,
    edges,
    on_nodes,
    slowest,
)
from overhead.collectives.levels import TWO_LEVELS
from overhead.quantity import Array

NODE_NVLS = Requirement(
    "no_nvls_in_the_node",
    "the switch inside a node must reduce and multicast (NVLS): intra_nvls = 1",
    lambda intra_nvls, node_ranks: xp.asarray((intra_nvls == 1.0) | (node_ranks == 1.0)),
)
FABRIC_INC = Requirement(
    "no_reduction_between_nodes",
    "the switches between nodes must reduce (SHARP): inter_inc = 1",
    lambda inter_inc, nodes: xp.asarray((inter_inc == 1.0) | (nodes == 1.0)),
)

# Links of a ring through all ranks, node after node, and the latency of its quickest one.
LOOP = (
    "where(nodes*pods > 1, nodes*pods*(node_ranks - 1), node_ranks)*intra_latency"
    " + where(pods > 1, pods*(nodes - 1), where(nodes > 1, nodes, 0))*inter_latency"
    " + where(pods > 1, pods, 0)*pod_latency"
)
FAR = "where(pods > 1, pod_latency, where(nodes > 1, inter_latency, intra_latency))"
MIDDLE = f"where(nodes > 1, inter_latency, {FAR})"
QUICKEST = f"minimum(minimum(where(node_ranks > 1, intra_latency, {MIDDLE}), {MIDDLE}), {FAR})"
OUTSIDE = "ranks_sharing_nic/node_ranks"
SLOWEST = (
    f"maximum(maximum({INSIDE}*{WIRES[0]},"
    f" where(nodes > 1, {OUTSIDE}*{WIRES[1]}, 0)),"
    f" where(pods > 1, {OUTSIDE}*{WIRES[2]}, 0))/ranks"
)


ALL_LINKS = (
    "message_bytes",
    "intra_latency",
    "intra_bandwidth",
    "inter_latency",
    "inter_bandwidth",
    "effective_oversubscription",
    "pod_latency",
    "pod_bandwidth",
    "pod_oversubscription",
)


def _wires(links: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the time of the whole message over a link inside a node, and between nodes."""
    size = links["message_bytes"]
    inter = size * (links["effective_oversubscription"] / links["inter_bandwidth"])
    return size / links["intra_bandwidth"], inter


@on_nodes(
    BOTH,
    "ring_path",
    steps="ranks - 1",
    time=f"{ONCE}*({LOOP} - {QUICKEST}) + (ranks - 1)*{SLOWEST}",
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
    links=ALL_LINKS,
    form="ring",
)
def ring_path(node_ranks, nodes, pods, ranks_sharing_nic, **links):
    """Rings through all ranks without waiting: latency of the longest path, largest transfer."""
    ranks = node_ranks * nodes * pods
    present = (node_ranks > 1.0, nodes > 1.0, pods > 1.0)
    # A block doesn't pass one of the links; the block that is the last there passes all but the
    # quickest.
    latencies = [links["intra_latency"], links["inter_latency"], links["pod_latency"]]
    left_out = slowest(
        *(
            xp.where(here, -latency, -xp.inf)
            for here, latency in zip(present, latencies, strict=True)
        )
    )
    around = edges(node_ranks, nodes, pods)
    passed = [several(ranks) * (all_ - out) for all_, out in zip(around, left_out, strict=True)]
    inside = xp.where(nodes * pods > 1.0, (node_ranks - 1.0) / node_ranks, 1.0) / ranks
    outside = ranks_sharing_nic / (node_ranks * ranks)
    shares = (inside, outside, outside)
    size = links["message_bytes"]
    between_pods = size * (links["pod_oversubscription"] / links["pod_bandwidth"])
    wires = zip(present, shares, (*_wires(links), between_pods), strict=True)
    busiest = slowest(*(xp.where(here, share * wire, ABSENT) for here, share, wire in wires))
    sent = (ranks - 1.0) / ranks
    levels = tuple(
        Level(path, path, (ranks - 1.0) * busy * share, all_ * sent)
        for path, busy, share, all_ in zip(passed, busiest, shares, around, strict=True)
    )
    return Cost(ranks - 1.0, sent, levels, sent, apart=0.0)


ROUNDS = (
    f"(node_ranks - 1)*(intra_latency + {WIRES[0]}/ranks)"
    f" + (nodes - 1)*node_ranks*(inter_latency + ranks_sharing_nic*{WIRES[1]}/ranks)"
    f" + (pods - 1)*nodes*node_ranks*(pod_latency + ranks_sharing_nic*{WIRES[2]}/ranks)"
)


@on_nodes(
    "all_to_all",
    "node_pairwise",
    steps="ranks - 1",
    time=ROUNDS,
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    where="NCCL's order of sends and receives: node by node",
    assumes=("a round lies wholly inside nodes, or wholly between them", CARD),
    form="pairs",
)
def node_pairwise(node_ranks, nodes, pods, ranks_sharing_nic):
    """Pairwise exchange node by node: rounds inside of the own one, then rounds between nodes."""
    ranks = node_ranks * nodes * pods

    def rounds(count: Array, messages: Array) -> Cost:
        level = Level(count, count, count * messages / ranks, count)
        return Cost(count, count / ranks, (level,))

    return stack(
        [
            rounds(node_ranks - 1.0, xp.ones_like(ranks)),
            rounds((nodes - 1.0) * node_ranks, ranks_sharing_nic),
            rounds((pods - 1.0) * nodes * node_ranks, ranks_sharing_nic),
        ]
    )


@on_nodes(
    "p2p",
    "direct",
    time="where(nodes > 1, hops*inter_latency"
    f" + {CROWD}*message_bytes*effective_oversubscription/inter_bandwidth,"
    " where(pods > 1, hops*pod_latency"
    f" + {CROWD}*message_bytes*pod_oversubscription/pod_bandwidth,"
    f" {ONCE}*(hops*intra_latency + message_bytes/intra_bandwidth)))",
    carried=f"{ONCE}*hops*message_bytes",
    source="hockney1994",
    assumes=(
        "between nodes of a pod; between pods if those have one node, else in the node",
        "all other ranks of the node use their NICs at the same time",
    ),
    form="message",
)
def direct_between_nodes(node_ranks, nodes, pods, ranks_sharing_nic, hops):
    """One message, between nodes where there are several."""
    inter = several(nodes)
    pod = (1.0 - inter) * several(pods)
    intra = (1.0 - inter) * (1.0 - pod) * several(node_ranks)
    there = several(node_ranks * nodes * pods)
    shared = crowd(node_ranks, ranks_sharing_nic)
    fewer = xp.minimum(hops, 1.0)
    levels = tuple(
        Level(here * hops, here * fewer, here * share, here * hops)
        for here, share in ((intra, 1.0), (inter, shared), (pod, shared))
    )
    return Cost(there, there, levels)


# Trees between nodes, through which bytes stream: of a buffer cut finely enough, a rank passes on
# what comes in as it comes in.  So the time is the latency of the path up and down, and that of
# the bytes through the busiest link.

NODE_LINKS = ("message_bytes", "intra_bandwidth", "inter_bandwidth", "effective_oversubscription")
on_streams = partial(on_nodes, "all_reduce", links=NODE_LINKS)

STREAM = "streaming: a rank relays bytes up and down the tree as they arrive"
CHANNELS = "each rank is the head of its node for a part of the buffer, with its NIC"
ROTATED = "two binary trees over the nodes, turned so that all nodes carry the same"
DEPTH = "2*ceil(log2(nodes))"
INNER_NVLS = "where(node_ranks > 1, 1, 0)"
CHAINS = f"2*(node_ranks - 1)/node_ranks*{WIRES[0]}"
TREES = f"2*(nodes - 1)/nodes*{OUTSIDE}*{WIRES[1]}"
SHARED = f"{INNER_NVLS}*(1 + 1/node_ranks)*{WIRES[0]}"
SWITCHES = f"where(nodes > 1, 1, 0)*{OUTSIDE}*{WIRES[1]}"


def _streamed(
    steps: tuple[Array, Array],
    shares: tuple[Array, Array],
    carried: tuple[Array, Array],
    sent: Array,
    reduced: Array,
    links: Mapping[str, Array],
) -> Cost:
    """Return the cost of a stream over two levels: latency of both, transfer of the slower."""
    inside, outside = (share * w for share, w in zip(shares, _wires(links), strict=True))
    inner = inside >= outside
    slower = (xp.asarray(inner, dtype=xp.float64), xp.asarray(~inner, dtype=xp.float64))
    levels = [
        Level(count, count, here * share, over)
        for count, here, share, over in zip(steps, slower, shares, carried, strict=True)
    ]
    nothing = Level(0.0 * sent, 0.0 * sent, 0.0 * sent, 0.0 * sent)
    return Cost(steps[0] + steps[1], sent, (*levels, nothing), reduced, apart=0.0)


@on_streams(
    "tree_path",
    time=f"2*(node_ranks - 1)*intra_latency + {DEPTH}*inter_latency + maximum({CHAINS}, {TREES})",
    carried="2*(ranks - 1)*message_bytes",
    source="sanders2009",
    where="two trees over the nodes; NCCL hangs a chain of the node's ranks on each",
    assumes=(STREAM, CHANNELS, ROTATED),
    requires=(TWO_LEVELS,),
    form="tree",
)
def tree_path(node_ranks, nodes, ranks_sharing_nic, **links):
    """Double binary tree between nodes, chains in them: latency of the path up and down."""
    inside = 2.0 * (node_ranks - 1.0) / node_ranks
    between = 2.0 * (nodes - 1.0) / nodes
    outside = between * ranks_sharing_nic / node_ranks
    return _streamed(
        (2.0 * (node_ranks - 1.0), 2.0 * xp.ceil(xp.log2(nodes))),
        (inside, outside),
        (2.0 * (node_ranks - 1.0) * nodes, 2.0 * (nodes - 1.0)),
        inside + between / node_ranks,
        (inside + between / node_ranks) / 2.0,
        links,
    )


@on_streams(
    "nvls_tree",
    time=f"2*{INNER_NVLS}*intra_latency*in_network_latency_factor + {DEPTH}*inter_latency"
    f" + maximum({SHARED}, {TREES})",
    source="nccl",
    where="NVLS in nodes, the trees between them",
    assumes=(STREAM, CHANNELS, ROTATED),
    requires=(TWO_LEVELS, NODE_NVLS),
    in_network=True,
    form="nvls_tree",
)
def nvls_tree(node_ranks, nodes, ranks_sharing_nic, in_network_latency_factor, **links):
    """The switch of a node reduces and multicasts (NVLS); double binary tree between nodes."""
    there = several(node_ranks)
    inside = there * (1.0 + 1.0 / node_ranks)
    between = 2.0 * (nodes - 1.0) / nodes
    outside = between * ranks_sharing_nic / node_ranks
    cost = _streamed(
        (2.0 * there, 2.0 * xp.ceil(xp.log2(nodes))),
        (inside, outside),
        (there * nodes * (node_ranks + 1.0), 2.0 * (nodes - 1.0)),
        inside + between / node_ranks,
        between / 2.0 / node_ranks,
        links,
    )
    return _slow_switch(cost, in_network_latency_factor)


def _slow_switch(cost: Cost, factor: Array) -> Cost:
    """Return a cost in which latencies in nodes are those of a switch that reduces."""
    inner, *outer = cost.levels
    paid = inner.latencies * factor
    return replace(cost, levels=(replace(inner, latencies=paid, messages=paid), *outer))


@on_streams(
    "nvls_sharp",
    time=f"2*{INNER_NVLS}*intra_latency*in_network_latency_factor"
    f" + 2*where(nodes > 1, 1, 0)*inter_latency + maximum({SHARED}, {SWITCHES})",
    source="sharp2016",
    where="NCCL joins it with NVLS in nodes",
    assumes=(STREAM, CHANNELS, "one latency up to the reducing switches, and one down"),
    requires=(TWO_LEVELS, NODE_NVLS, FABRIC_INC),
    in_network=True,
    form="sharp",
)
def nvls_sharp(node_ranks, nodes, ranks_sharing_nic, in_network_latency_factor, **links):
    """The switches of nodes (NVLS), and those between them (SHARP), reduce and multicast."""
    there = several(node_ranks)
    far = several(nodes)
    inside = there * (1.0 + 1.0 / node_ranks)
    outside = far * ranks_sharing_nic / node_ranks
    cost = _streamed(
        (2.0 * there, 2.0 * far),
        (inside, outside),
        (there * nodes * (node_ranks + 1.0), far * nodes),
        inside + far / node_ranks,
        0.0 * inside,
        links,
    )
    return _slow_switch(cost, in_network_latency_factor)
