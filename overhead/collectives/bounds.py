"""Physical lower bounds: what no schedule on a network with links of one kind can beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overhead.arrays import xp
from overhead.collectives.timing import HIERARCHY
from overhead.collectives.timing import THREE_LEVEL_CAPACITY as THREE
from overhead.collectives.timing import TWO_LEVEL_CAPACITY as TWO
from overhead.formula import declare, derived, product
from overhead.quantity import Array

FLAT = {"shape": "flat"}
# What goes across the network; a message goes to a neighbour.
ACROSS = {**FLAT, "collective": "all_reduce|all_gather|reduce_scatter|broadcast|reduce|all_to_all"}
PORT = "a rank's ports must take in, or give out, what its part of the operation needs"
VOLUME = "the links together must carry what the operation moves at least"


@derived(assumes=("latency and transfer may overlap wholly",))
def lower_bound(latency_bound, bandwidth_bound):
    """Physical lower bound of the time."""
    return xp.maximum(latency_bound, bandwidth_bound)


@derived()
def lower_bound_ratio(time, lower_bound):
    """Time over its physical lower bound."""
    return time / lower_bound


product("latency_bound", ("diameter", "latency"), "Least latency: the way across the network",
        assumes=("a latency a hop",),
        when={**ACROSS, "latency_per": "hop"})  # fmt: skip


@derived(
    returns="latency_bound",
    assumes=("a latency a message",),
    when={**ACROSS, "latency_per": "message"},
)
def message_latency_bound(diameter, latency):
    """Least latency: one message's."""
    return xp.minimum(diameter, 1.0) * latency


@derived(returns="latency_bound", when={**FLAT, "collective": "p2p"})
def p2p_latency_bound(ranks, hops, latency):
    """Least latency of one message: one hop's."""
    return xp.where(ranks > 1.0, xp.minimum(hops, 1.0) * latency, 0.0)


@derived(
    returns="bandwidth_bound",
    assumes=(PORT, VOLUME),
    when={**FLAT, "collective": "all_gather|reduce_scatter"},
)
def gather_bound(ranks, ports, links, wire_time):
    """Least transfer of an all_gather or a reduce_scatter."""
    share: Array = xp.maximum((ranks - 1.0) / (ranks * ports), (ranks - 1.0) / links)
    return share * wire_time


@derived(
    returns="bandwidth_bound",
    assumes=(PORT, VOLUME, "no reduction in the network"),
    when={**FLAT, "collective": "all_reduce", "in_network": "no"},
)
def all_reduce_bound(ranks, ports, links, wire_time):
    """Least transfer of an all_reduce."""
    share = xp.maximum(1.0 / ports, 2.0 * (ranks - 1.0) / links)
    return xp.where(ranks > 1.0, share, 0.0) * wire_time


@derived(
    returns="bandwidth_bound",
    assumes=(PORT,),
    when={**FLAT, "collective": "all_reduce", "in_network": "yes"},
)
def in_network_bound(ranks, ports, wire_time):
    """Least transfer of an all_reduce where the network reduces."""
    return xp.where(ranks > 1.0, 1.0 / ports, 0.0) * wire_time


@derived(
    returns="bandwidth_bound", assumes=(PORT,), when={**FLAT, "collective": "broadcast|reduce|p2p"}
)
def broadcast_bound(ranks, ports, wire_time):
    """Least transfer of a broadcast, a reduce or one message."""
    return xp.where(ranks > 1.0, 1.0 / ports, 0.0) * wire_time


@derived(
    returns="bandwidth_bound",
    assumes=(PORT, "the links across the worst cut must carry what crosses it"),
    when={**FLAT, "collective": "all_to_all"},
)
def all_to_all_bound(ranks, ports, pair_cut, wire_time):
    """Least transfer of an all_to_all."""
    share: Array = xp.maximum((ranks - 1.0) / (ranks * ports), pair_cut)
    return share * wire_time


# Physical lower bounds on a hierarchy: what no schedule on nodes and pods can beat.

OUTERMOST = "one message crosses the outermost level that the group spans"

# Latency.


@derived(returns="latency_bound", assumes=(OUTERMOST,), when=TWO)
def two_level_latency_bound(node_ranks, nodes, intra_latency, inter_latency):
    """Least latency: one message across the outermost level, on two levels."""
    return xp.where(nodes > 1.0, inter_latency, xp.where(node_ranks > 1.0, intra_latency, 0.0))


@derived(returns="latency_bound", assumes=(OUTERMOST,), when=THREE)
def three_level_latency_bound(node_ranks, nodes, pods, intra_latency, inter_latency, pod_latency):
    """Least latency: one message across the outermost level, on three levels."""
    inner = two_level_latency_bound(node_ranks, nodes, intra_latency, inter_latency)
    return xp.where(pods > 1.0, pod_latency, inner)


SENDERS = "sender and receiver are in different nodes of a pod where it has several"


@derived(returns="latency_bound", assumes=(SENDERS,), when={**TWO, "collective": "p2p"})
def two_level_p2p_latency_bound(node_ranks, nodes, hops, intra_latency, inter_latency):
    """Least latency of one message on two levels: one hop's."""
    hop = two_level_latency_bound(node_ranks, nodes, intra_latency, inter_latency)
    return xp.minimum(hops, 1.0) * hop


@derived(returns="latency_bound", assumes=(SENDERS,), when={**THREE, "collective": "p2p"})
def three_level_p2p_latency_bound(
    node_ranks, nodes, pods, hops, intra_latency, inter_latency, pod_latency
):
    """Least latency of one message on three levels: one hop's."""
    inner = xp.where(node_ranks > 1.0, intra_latency, 0.0)
    outer = xp.where(pods > 1.0, pod_latency, inner)
    return xp.minimum(hops, 1.0) * xp.where(nodes > 1.0, inter_latency, outer)


# Transfer.  Ranks, nodes and pods alike must take in, or give out, what they lack or owe.

SHARED_PORT = "all ranks together must take in, or give out, what the operation moves at least"
NODE = "what enters or leaves a node passes its network cards"
POD = "what enters or leaves a pod passes its network cards"


def _of(collective: str, shape: dict[str, str]) -> dict[str, str]:
    return {**shape, "collective": collective}


def _levels(
    collective: str,
    inner: Callable[..., Array],
    pod: Callable[..., Array],
    title: str,
    *ends: str,
    name: str,
    own: Sequence[str] = ("mean_capacity", "node_capacity"),
    two: Sequence[str] = (),
    three: Sequence[str] = (),
    factor: float = 1.0,
    in_network: bool = False,
) -> None:
    """Declare a bound on two levels, and on three, where pods have one of their own."""

    def outer(message_bytes: Array, ranks: Array, node_ranks: Array, *rest: Array) -> Array:
        pods, *capacities, pod_capacity = rest
        within = inner(message_bytes, ranks, node_ranks, *capacities)
        whole = xp.maximum(within, pod(message_bytes, ranks, pods, pod_capacity))
        return xp.asarray(factor * whole)

    def on_nodes(*values: Array) -> Array:
        return factor * inner(*values)

    sizes = ("message_bytes", "ranks", "node_ranks")
    switches = {"in_network": "yes"} if in_network else {}
    declare("bandwidth_bound", (*sizes, *own), on_nodes, f"{title} on two levels{ends[0]}",
            assumes=(SHARED_PORT, NODE, *two), when=_of(collective, TWO) | switches,
            name=f"two_level_{name}_bound")  # fmt: skip
    declare("bandwidth_bound", (*sizes, "pods", *own, "pod_capacity"), outer,
            f"{title} on three levels{ends[-1]}", assumes=(SHARED_PORT, NODE, POD, *three),
            when=_of(collective, THREE) | switches,
            name=f"three_level_{name}_bound")  # fmt: skip


def _gather(message_bytes, ranks, node_ranks, mean_capacity, node_capacity):
    entering = (ranks - node_ranks) / node_capacity
    return message_bytes / ranks * xp.maximum((ranks - 1.0) / mean_capacity, entering)


def _gather_of_pod(message_bytes, ranks, pods, pod_capacity):
    return message_bytes / ranks * ((ranks - ranks / pods) / pod_capacity)


def _in_network(message_bytes, ranks, node_ranks, mean_capacity, node_capacity):
    node = xp.where(ranks > node_ranks, 1.0 / node_capacity, 0.0)
    whole = xp.maximum(1.0 / mean_capacity, node)
    return xp.asarray(message_bytes * xp.where(ranks > 1.0, whole, 0.0))


def _once_a_pod(message_bytes, ranks, pods, pod_capacity):
    return message_bytes * xp.where(pods > 1.0, 1.0 / pod_capacity, 0.0)


def _broadcast(message_bytes, ranks, node_ranks, rank_capacity, mean_capacity, node_capacity):
    port = xp.maximum(1.0 / rank_capacity, (ranks - 1.0) / ranks / mean_capacity)
    node = xp.where(ranks > node_ranks, 1.0 / node_capacity, 0.0)
    return xp.asarray(message_bytes * xp.where(ranks > 1.0, xp.maximum(port, node), 0.0))


def _exchange(message_bytes, ranks, node_ranks, mean_capacity, node_capacity):
    leaving = node_ranks * (ranks - node_ranks) / node_capacity
    most: Array = xp.maximum((ranks - 1.0) / mean_capacity, leaving)
    return message_bytes / ranks * most


def _exchange_of_pod(message_bytes, ranks, pods, pod_capacity):
    pod_ranks = ranks / pods
    return message_bytes / ranks * (pod_ranks * (ranks - pod_ranks) / pod_capacity)


_levels("all_gather|reduce_scatter", _gather, _gather_of_pod,
        "Least transfer of an all_gather or a reduce_scatter", "", name="gather")  # fmt: skip
_levels(
    "all_reduce", _gather, _gather_of_pod, "Least transfer of an all_reduce",
    ": among ranks, and among nodes", ": among ranks, nodes, and pods", name="all_reduce",
    two=("no reduction in the network",), three=("no reduction in the network",), factor=2.0,
)  # fmt: skip
_levels(
    "all_reduce", _in_network, _once_a_pod, "Least transfer of an all_reduce",
    " whose switches reduce", name="in_network", in_network=True,
    two=("every rank gives the whole message, and every node once",),
    three=("every rank gives the whole message, every pod once",),
)  # fmt: skip
_levels(
    "broadcast|reduce", _broadcast, _once_a_pod, "Least transfer of a broadcast or a reduce", "",
    name="broadcast", own=("rank_capacity", "mean_capacity", "node_capacity"),
    two=("the whole message leaves or enters the root, and every node",),
    three=("the whole message leaves or enters the root, every node and pod",),
)  # fmt: skip
_levels("all_to_all", _exchange, _exchange_of_pod, "Least transfer of an all_to_all", "",
        name="exchange")  # fmt: skip


@derived(returns="bandwidth_bound", assumes=(NODE, SENDERS), when=_of("p2p", HIERARCHY))
def level_p2p_bound(message_bytes, ranks, node_ranks, rank_capacity, node_capacity):
    """Least transfer of one message, between nodes where there are several."""
    node = xp.where(ranks > node_ranks, 1.0 / node_capacity, 0.0)
    port = 1.0 / rank_capacity
    return xp.asarray(message_bytes * xp.where(ranks > 1.0, xp.maximum(port, node), 0.0))
