"""What a flat network takes from a machine: its link, and what its switch can do."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["flat_bandwidth", "flat_latency"]

OWN = "derivation"


@formula(
    returns="latency",
    expression="where(ranks <= gpus_per_node, intra_latency, inter_latency)",
    source=OWN,
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={"link": "auto"},
)
def flat_latency(
    ranks: Array, gpus_per_node: Array, intra_latency: Array, inter_latency: Array
) -> Array:
    """Latency of a flat network's link."""
    return np.where(ranks <= gpus_per_node, intra_latency, inter_latency)


@formula(
    returns="bandwidth",
    expression="where(ranks <= gpus_per_node, intra_bandwidth, inter_bandwidth)",
    source=OWN,
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={"link": "auto"},
)
def flat_bandwidth(
    ranks: Array, gpus_per_node: Array, intra_bandwidth: Array, inter_bandwidth: Array
) -> Array:
    """Bandwidth of a flat network's link."""
    return np.where(ranks <= gpus_per_node, intra_bandwidth, inter_bandwidth)


@formula(
    returns="energy_per_bit",
    expression="where(ranks <= gpus_per_node, intra_energy_per_bit, inter_energy_per_bit)",
    source=OWN,
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={"link": "auto"},
)
def flat_energy_per_bit(
    ranks: Array, gpus_per_node: Array, intra_energy_per_bit: Array, inter_energy_per_bit: Array
) -> Array:
    """Energy of one bit over a flat network's link."""
    return np.where(ranks <= gpus_per_node, intra_energy_per_bit, inter_energy_per_bit)


@formula(returns="latency", expression="1*intra_latency", source=OWN, when={"link": "intra"})
def intra_only_latency(intra_latency: Array) -> Array:
    """Latency of a flat network's link, inside a node."""
    return 1.0 * intra_latency


@formula(returns="bandwidth", expression="1*intra_bandwidth", source=OWN, when={"link": "intra"})
def intra_only_bandwidth(intra_bandwidth: Array) -> Array:
    """Bandwidth of a flat network's link, inside a node."""
    return 1.0 * intra_bandwidth


@formula(
    returns="energy_per_bit",
    expression="1*intra_energy_per_bit",
    source=OWN,
    when={"link": "intra"},
)
def intra_only_energy_per_bit(intra_energy_per_bit: Array) -> Array:
    """Energy of one bit over a flat network's link, inside a node."""
    return 1.0 * intra_energy_per_bit


@formula(returns="latency", expression="1*inter_latency", source=OWN, when={"link": "inter"})
def inter_only_latency(inter_latency: Array) -> Array:
    """Latency of a flat network's link, between nodes."""
    return 1.0 * inter_latency


@formula(returns="bandwidth", expression="1*inter_bandwidth", source=OWN, when={"link": "inter"})
def inter_only_bandwidth(inter_bandwidth: Array) -> Array:
    """Bandwidth of a flat network's link, between nodes."""
    return 1.0 * inter_bandwidth


@formula(
    returns="energy_per_bit",
    expression="1*inter_energy_per_bit",
    source=OWN,
    when={"link": "inter"},
)
def inter_only_energy_per_bit(inter_energy_per_bit: Array) -> Array:
    """Energy of one bit over a flat network's link, between nodes."""
    return 1.0 * inter_energy_per_bit


@formula(
    returns="in_network_latency",
    expression="latency*where(ranks <= gpus_per_node, in_network_latency_factor, 1)",
    source=OWN,
    assumes=("the factor is that of the switch inside a node",),
    when={"link": "auto"},
)
def flat_in_network_latency(
    latency: Array, ranks: Array, gpus_per_node: Array, in_network_latency_factor: Array
) -> Array:
    """Latency of a message that the switch reduces or multicasts."""
    return latency * np.where(ranks <= gpus_per_node, in_network_latency_factor, 1.0)


@formula(
    returns="in_network_latency",
    expression="latency*in_network_latency_factor",
    source=OWN,
    when={"link": "intra"},
)
def intra_only_in_network_latency(latency: Array, in_network_latency_factor: Array) -> Array:
    """Latency of a message that the switch inside a node reduces or multicasts."""
    return latency * in_network_latency_factor


@formula(returns="in_network_latency", expression="1*latency", source=OWN, when={"link": "inter"})
def inter_only_in_network_latency(latency: Array) -> Array:
    """Latency of a message that the switches between nodes reduce: a plain one's."""
    return 1.0 * latency


@formula(
    returns="has_nvls",
    expression="where(ranks <= gpus_per_node, intra_nvls, 0*intra_nvls)",
    source=OWN,
    when={"link": "auto"},
)
def flat_nvls(ranks: Array, gpus_per_node: Array, intra_nvls: Array) -> Array:
    """Whether the switch reduces and multicasts what ranks read and write."""
    return np.where(ranks <= gpus_per_node, intra_nvls, 0.0)


@formula(returns="has_nvls", expression="1*intra_nvls", source=OWN, when={"link": "intra"})
def intra_only_nvls(intra_nvls: Array) -> Array:
    """Whether the switch inside a node reduces and multicasts what ranks read and write."""
    return 1.0 * intra_nvls


@formula(returns="has_nvls", expression="0*inter_inc", source=OWN, when={"link": "inter"})
def inter_only_nvls(inter_inc: Array) -> Array:
    """Whether the switches between nodes reduce what ranks read and write: they don't."""
    return 0.0 * inter_inc


@formula(
    returns="has_inc",
    expression="where(ranks <= gpus_per_node, intra_inc, inter_inc)",
    source=OWN,
    when={"link": "auto"},
)
def flat_inc(ranks: Array, gpus_per_node: Array, intra_inc: Array, inter_inc: Array) -> Array:
    """Whether the switch reduces in the network."""
    return np.where(ranks <= gpus_per_node, intra_inc, inter_inc)


@formula(returns="has_inc", expression="1*intra_inc", source=OWN, when={"link": "intra"})
def intra_only_inc(intra_inc: Array) -> Array:
    """Whether the switch inside a node reduces in the network."""
    return 1.0 * intra_inc


@formula(returns="has_inc", expression="1*inter_inc", source=OWN, when={"link": "inter"})
def inter_only_inc(inter_inc: Array) -> Array:
    """Whether the switches between nodes reduce in the network."""
    return 1.0 * inter_inc
