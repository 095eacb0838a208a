"""Physical lower bounds: what no schedule on a network with links of one kind can beat."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import derived
from overhead.quantity import Array

FLAT = {"shape": "flat"}
# What goes across the network; a message goes to a neighbour.
ACROSS = {**FLAT, "collective": "all_reduce|all_gather|reduce_scatter|broadcast|reduce|all_to_all"}
PORT = "rank ports must receive, or send, the data of their rank"
VOLUME = "all links together must carry at least the collective volume"


@derived(assumes=("latency and transfer may overlap wholly",))
def lower_bound(latency_bound, bandwidth_bound):
    """Physical lower bound of the time."""
    return xp.maximum(latency_bound, bandwidth_bound)


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
def gather_bound(ranks, min_degree, links, serialization_time):
    """Minimum transfer of an all-gather or a reduce-scatter."""
    share: Array = xp.maximum((ranks - 1.0) / (ranks * min_degree), (ranks - 1.0) / links)
    return share * serialization_time


@derived(
    returns="bandwidth_bound",
    assumes=(PORT, VOLUME, "no reduction in the network"),
    when={**FLAT, "collective": "all_reduce", "in_network": "no"},
)
def all_reduce_bound(ranks, min_degree, links, serialization_time):
    """Minimum transfer of an all-reduce."""
    share = xp.maximum(1.0 / min_degree, 2.0 * (ranks - 1.0) / links)
    return xp.where(ranks > 1.0, share, 0.0) * serialization_time


@derived(
    returns="bandwidth_bound",
    assumes=(PORT,),
    when={**FLAT, "collective": "all_reduce", "in_network": "yes"},
)
def in_network_bound(ranks, min_degree, serialization_time):
    """Minimum transfer of an all-reduce with reduction in the network."""
    return xp.where(ranks > 1.0, 1.0 / min_degree, 0.0) * serialization_time


@derived(
    returns="bandwidth_bound", assumes=(PORT,), when={**FLAT, "collective": "broadcast|reduce|p2p"}
)
def broadcast_bound(ranks, min_degree, serialization_time):
    """Minimum transfer of a broadcast, a reduce or one message."""
    return xp.where(ranks > 1.0, 1.0 / min_degree, 0.0) * serialization_time


@derived(
    returns="bandwidth_bound",
    assumes=(PORT, "the links across the worst cut must carry what crosses it"),
    when={**FLAT, "collective": "all_to_all"},
)
def all_to_all_bound(ranks, min_degree, all_to_all_cut_load, serialization_time):
    """Minimum transfer of an all-to-all."""
    share: Array = xp.maximum((ranks - 1.0) / (ranks * min_degree), all_to_all_cut_load)
    return share * serialization_time


# What several networks' measures have in common.


@derived(returns="links", when={"topology": "ring|switch|tree|torus"})
def regular_links(ranks, min_degree):
    """Links of a network whose ranks have equally many (on a switch: the ports)."""
    return xp.asarray(xp.maximum(ranks * min_degree, 1.0))


def across_halves(size: Array) -> Array:
    """Return the load of one link between halves of so many ranks in a row, all pairs sending."""
    return xp.floor(size / 2.0) * xp.ceil(size / 2.0) / size
