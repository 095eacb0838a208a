"""Prices on one level: a switch, a rack domain, or any flat network by its schedule.

Every time is linear in the message but for the ramp, which is what a message pays that is cut
into the best number of chunks: it grows with the root of the bytes.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import alias, formula, product
from overhead.quantity import Array
from overhead.software.quantities import PRICED

FLAT = {"shape": "flat", "library": PRICED}
RING = {**FLAT, "form": "ring"}
PAIRS = {**FLAT, "form": "pairs|message"}
NVLS = {**FLAT, "form": "nvls"}
SCHEDULED = {**FLAT, "form": "schedule"}
STEPWISE = {**FLAT, "form": "ring|schedule"}
OWN = "software"
IN_NODE = "a flat network lies in a node while its ranks fit into one"


def several(ranks: Array) -> Array:
    """Return 1.0 where there is more than one rank, else 0.0."""
    return np.where(ranks > 1.0, 1.0, 0.0)


@formula(
    returns="port_rate",
    source=OWN,
    assumes=("where GPUs are joined pair by pair, a rank has a link to each of its peers",),
    when=FLAT,
)
def flat_port_rate(ranks: Array, bandwidth: Array, pair_bandwidth: Array) -> Array:
    """Rate of a rank's port, to as many peers as it has."""
    return np.minimum(bandwidth, np.maximum(ranks - 1.0, 1.0) * pair_bandwidth)


@formula(
    returns="inner_step_latency",
    source=OWN,
    assumes=(IN_NODE,),
    when={**STEPWISE, "link": "auto"},
)
def flat_step_latency(
    ranks: Array, gpus_per_node: Array, step_latency: Array, fabric_latency: Array
) -> Array:
    """Latency of a step, in a node or between nodes."""
    return np.where(ranks <= gpus_per_node, step_latency, fabric_latency)


for _returns, _of, _name, _when, _title in (
    ("inner_step_latency", "step_latency", "intra_step_latency", {**STEPWISE, "link": "intra"},
     "Latency of a step, in a node"),
    ("inner_step_latency", "fabric_latency", "inter_step_latency", {**STEPWISE, "link": "inter"},
     "Latency of a step, between nodes"),
    ("inner_share", "link_share", "intra_share", {**STEPWISE, "link": "intra"},
     "Share of the link's rate, in a node"),
    ("inner_share", "fabric_share", "inter_share", {**STEPWISE, "link": "inter"},
     "Share of the link's rate, between nodes"),
    ("inner_share", "pair_share", "flat_pair_share", PAIRS,
     "Share of the link's rate that an exchange of pairs reaches"),
    ("inner_ll_share", "ll_share", "flat_ll_share", RING,
     "Rate of LL over that of Simple, of a ring"),
    ("inner_ll_share", "pair_ll_share", "flat_pair_ll_share", PAIRS,
     "Rate of LL over that of Simple, of an exchange of pairs"),
):  # fmt: skip
    alias(_returns, _of, _title, source=OWN, when=_when, name=_name)


@formula(
    returns="inner_share",
    source=OWN,
    assumes=(IN_NODE,),
    when={**STEPWISE, "link": "auto"},
)
def flat_share(ranks: Array, gpus_per_node: Array, link_share: Array, fabric_share: Array) -> Array:
    """Share of the link's rate, in a node or between nodes."""
    return np.where(ranks <= gpus_per_node, link_share, fabric_share)


# Steps.


product("ll_fixed_time", ("latency_count", "inner_step_latency"),
        "Steps of a ring, with protocol LL", source=OWN, when=RING,
        name="flat_ll_fixed_time")  # fmt: skip


@formula(
    returns="simple_fixed_time",
    source=OWN,
    when=STEPWISE,
)
def flat_simple_fixed_time(
    ranks: Array, simple_entry_time: Array, latency_count: Array, inner_step_latency: Array
) -> Array:
    """Entry and steps with protocol Simple."""
    return several(ranks) * simple_entry_time + latency_count * inner_step_latency


@formula(
    returns="simple_fixed_time",
    source=OWN,
    when={**SCHEDULED, "in_network": "yes"},
)
def in_network_fixed_time(
    ranks: Array, simple_entry_time: Array, latency_count: Array, in_network_latency: Array
) -> Array:
    """Entry and steps where the switch takes part."""
    return several(ranks) * simple_entry_time + latency_count * in_network_latency


@formula(
    returns="ll_fixed_time",
    source=OWN,
    when=PAIRS,
)
def flat_pair_ll_fixed_time(
    ranks: Array, pair_entry_time: Array, latency_count: Array, pair_step_latency: Array
) -> Array:
    """Entry and messages of an exchange of pairs, with LL."""
    return several(ranks) * pair_entry_time + latency_count * pair_step_latency


@formula(
    returns="simple_fixed_time",
    source=OWN,
    when=PAIRS,
)
def flat_pair_simple_fixed_time(
    ranks: Array,
    pair_entry_time: Array,
    pair_simple_time: Array,
    latency_count: Array,
    pair_step_latency: Array,
) -> Array:
    """Entry and messages of an exchange of pairs, with Simple."""
    entry = several(ranks) * (pair_entry_time + pair_simple_time)
    return entry + latency_count * pair_step_latency


@formula(
    returns="simple_fixed_time",
    source=OWN,
    when=NVLS,
)
def flat_nvls_fixed_time(
    ranks: Array, gpus_per_host: Array, nvls_time: Array, nvls_hosts_time: Array
) -> Array:
    """Time of NVLS without bytes: more where the domain spans hosts."""
    spans = np.where(ranks > gpus_per_host, 1.0, 0.0)
    return several(ranks) * (nvls_time + spans * nvls_hosts_time)


# Bytes.


@formula(
    returns="ll_byte_time",
    source=OWN,
    when={**FLAT, "form": "ring|pairs|message"},
)
def flat_ll_byte_time(
    transfer_fraction: Array, port_rate: Array, inner_share: Array, inner_ll_share: Array
) -> Array:
    """Time of a byte with LL."""
    return transfer_fraction / (port_rate * inner_share * inner_ll_share)


@formula(
    returns="simple_byte_time",
    source=OWN,
    when={**FLAT, "form": "ring|pairs|message|schedule"},
)
def flat_simple_byte_time(transfer_fraction: Array, port_rate: Array, inner_share: Array) -> Array:
    """Time of a byte with Simple."""
    return transfer_fraction / (port_rate * inner_share)


@formula(
    returns="simple_byte_time",
    source=OWN,
    assumes=("a rank gives the whole buffer to readers, and writes its part",),
    when=NVLS,
)
def flat_nvls_byte_time(sent_fraction: Array, port_rate: Array, nvls_share: Array) -> Array:
    """Time of a byte with NVLS."""
    return sent_fraction / (port_rate * nvls_share)


@formula(
    returns="ramp_square",
    source=OWN,
    assumes=("a message is cut into the best number of chunks, which follow one another",),
    when=STEPWISE,
)
def flat_ramp_square(ramp_time: Array, transfer_fraction: Array, port_rate: Array) -> Array:
    """Ramp of a ring, or of any schedule."""
    return ramp_time * transfer_fraction / port_rate


@formula(
    returns="ramp_square",
    source=OWN,
    when=PAIRS,
)
def flat_pair_ramp_square(
    pair_ramp_time: Array, transfer_fraction: Array, port_rate: Array
) -> Array:
    """Ramp of an exchange of pairs."""
    return pair_ramp_time * transfer_fraction / port_rate


@formula(
    returns="ramp_square",
    source=OWN,
    when=NVLS,
)
def flat_nvls_ramp_square(nvls_ramp_time: Array, sent_fraction: Array, port_rate: Array) -> Array:
    """Ramp of NVLS."""
    return nvls_ramp_time * sent_fraction / port_rate


@formula(
    returns="copy_byte_time",
    source=OWN,
    assumes=("a rank moves its own block, too, beside what it exchanges",),
    when={**FLAT, "form": "pairs"},
)
def flat_pair_copy_byte_time(ranks: Array, pair_copy_rate: Array) -> Array:
    """Copy of the own block of an exchange."""
    return several(ranks) / (ranks * pair_copy_rate)
