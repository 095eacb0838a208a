"""Physical lower bounds: what no schedule on a network with links of one kind can beat."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["lower_bound"]

OWN = "derivation"
FLAT = {"shape": "flat"}
PORT = "a rank's ports must take in, or give out, what its part of the operation needs"
VOLUME = "the links together must carry what the operation moves at least"


@formula(
    returns="lower_bound",
    expression="maximum(latency_bound, bandwidth_bound)",
    source=OWN,
    assumes=("latency and transfer may overlap wholly",),
    ufunc=np.maximum,
)
def lower_bound(latency_bound: Array, bandwidth_bound: Array) -> Array:
    """Physical lower bound of the time."""
    return np.maximum(latency_bound, bandwidth_bound)


@formula(
    returns="lower_bound_ratio",
    expression="time/lower_bound",
    source=OWN,
    ufunc=np.true_divide,
)
def lower_bound_ratio(time: Array, lower_bound: Array) -> Array:
    """Time over its physical lower bound."""
    return time / lower_bound


@formula(
    returns="latency_bound",
    expression="diameter*latency",
    source=OWN,
    assumes=("a latency a hop",),
    when={**FLAT, "latency_per": "hop"},
    ufunc=np.multiply,
)
def latency_bound(diameter: Array, latency: Array) -> Array:
    """Least latency: the way across the network."""
    return diameter * latency


@formula(
    returns="latency_bound",
    expression="minimum(diameter, 1)*latency",
    source=OWN,
    assumes=("a latency a message",),
    when={**FLAT, "latency_per": "message"},
)
def message_latency_bound(diameter: Array, latency: Array) -> Array:
    """Least latency: one message's."""
    return np.minimum(diameter, 1.0) * latency


@formula(
    returns="latency_bound",
    expression="where(ranks > 1, minimum(hops, 1)*latency, 0*latency)",
    source=OWN,
    when={**FLAT, "collective": "p2p", "latency_per": "hop|message"},
)
def p2p_latency_bound(ranks: Array, hops: Array, latency: Array) -> Array:
    """Least latency of one message: one hop's."""
    return np.where(ranks > 1.0, np.minimum(hops, 1.0) * latency, 0.0)


@formula(
    returns="bandwidth_bound",
    expression="maximum((ranks - 1)/(ranks*ports), (ranks - 1)/links)*wire_time",
    source=OWN,
    assumes=(PORT, VOLUME),
    when={**FLAT, "collective": "all_gather|reduce_scatter"},
)
def gather_bound(ranks: Array, ports: Array, links: Array, wire_time: Array) -> Array:
    """Least transfer of an all_gather or a reduce_scatter."""
    share: Array = np.maximum((ranks - 1.0) / (ranks * ports), (ranks - 1.0) / links)
    return share * wire_time


@formula(
    returns="bandwidth_bound",
    expression="where(ranks > 1, maximum(1/ports, 2*(ranks - 1)/links), 0)*wire_time",
    source=OWN,
    assumes=(PORT, VOLUME, "no reduction in the network"),
    when={**FLAT, "collective": "all_reduce", "in_network": "no"},
)
def all_reduce_bound(ranks: Array, ports: Array, links: Array, wire_time: Array) -> Array:
    """Least transfer of an all_reduce."""
    share = np.maximum(1.0 / ports, 2.0 * (ranks - 1.0) / links)
    return np.where(ranks > 1.0, share, 0.0) * wire_time


@formula(
    returns="bandwidth_bound",
    expression="where(ranks > 1, 1/ports, 0)*wire_time",
    source=OWN,
    assumes=(PORT,),
    when={**FLAT, "collective": "all_reduce", "in_network": "yes"},
)
def in_network_bound(ranks: Array, ports: Array, wire_time: Array) -> Array:
    """Least transfer of an all_reduce where the network reduces."""
    return np.where(ranks > 1.0, 1.0 / ports, 0.0) * wire_time


@formula(
    returns="bandwidth_bound",
    expression="where(ranks > 1, 1/ports, 0)*wire_time",
    source=OWN,
    assumes=(PORT,),
    when={**FLAT, "collective": "broadcast|reduce|p2p"},
)
def broadcast_bound(ranks: Array, ports: Array, wire_time: Array) -> Array:
    """Least transfer of a broadcast, a reduce or one message."""
    return np.where(ranks > 1.0, 1.0 / ports, 0.0) * wire_time


@formula(
    returns="bandwidth_bound",
    expression="maximum((ranks - 1)/(ranks*ports), pair_cut)*wire_time",
    source=OWN,
    assumes=(PORT, "the links across the worst cut must carry what crosses it"),
    when={**FLAT, "collective": "all_to_all"},
)
def all_to_all_bound(ranks: Array, ports: Array, pair_cut: Array, wire_time: Array) -> Array:
    """Least transfer of an all_to_all."""
    share: Array = np.maximum((ranks - 1.0) / (ranks * ports), pair_cut)
    return share * wire_time
