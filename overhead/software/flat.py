"""Prices on one level: a switch, a rack domain, or any flat network by its schedule.

Every time is linear in the message but for the ramp, which is what a message pays that is cut
into the best number of chunks: it grows with the root of the bytes.
"""

from __future__ import annotations

from functools import partial

from overhead.arrays import xp
from overhead.collectives.cost import several
from overhead.collectives.timing import of_link
from overhead.formula import Further, declare, formula
from overhead.labels import LABELS, NO_LIBRARY

# The labels under which forms hold.
PRICED = "|".join(name for name in LABELS["library"].values if name != NO_LIBRARY)


FLAT = {"shape": "flat", "library": PRICED}
RING = {**FLAT, "form": "ring"}
# Pairs, and rings and trees, have the same efficiencies on nodes.
EXCHANGED = {"library": PRICED, "form": "pairs|message"}
PAIRS = {**FLAT, **EXCHANGED}
NVLS = {**FLAT, "form": "nvls"}
SCHEDULED = {**FLAT, "form": "schedule"}
STEPWISE = {**FLAT, "form": "ring|schedule"}
OWN = "software"
priced = partial(formula, source=OWN)


@priced(
    returns="port_rate",
    assumes=("where GPUs are joined pair by pair, a rank has a link to each of its peers",),
    when=FLAT,
)
def flat_port_rate(ranks, bandwidth, pair_bandwidth):
    """Port bandwidth per rank, limited by its peers."""
    return xp.minimum(bandwidth, xp.maximum(ranks - 1.0, 1.0) * pair_bandwidth)


for _returns, _figures, _title in (
    (
        "inner_step_latency",
        ("step_latency", "inter_node_step_latency"),
        "Latency of a step, in a node or between nodes",
    ),
    (
        "inner_efficiency",
        ("channel_efficiency", "nic_efficiency"),
        "Achievable fraction of link bandwidth, intra-node or inter-node",
    ),
):
    _said: Further = {"source": OWN, "name": f"flat_{_returns}", "when": STEPWISE}
    declare(_returns, ("in_node", *_figures), of_link, _title, **_said)


# Steps.


@priced(returns="simple_fixed_time", when=STEPWISE)
def flat_simple_fixed_time(ranks, simple_launch_time, latency_count, inner_step_latency):
    """Entry and steps with protocol Simple."""
    return several(ranks) * simple_launch_time + latency_count * inner_step_latency


@priced(returns="simple_fixed_time", when={**SCHEDULED, "in_network": "yes"})
def in_network_fixed_time(ranks, simple_launch_time, latency_count, in_network_latency):
    """Entry and steps where the switch takes part."""
    return several(ranks) * simple_launch_time + latency_count * in_network_latency


@priced(returns="ll_fixed_time", when=PAIRS)
def flat_pair_ll_fixed_time(ranks, sendrecv_launch_time, latency_count, sendrecv_step_latency):
    """Entry and messages of an exchange of pairs, with LL."""
    return several(ranks) * sendrecv_launch_time + latency_count * sendrecv_step_latency


@priced(returns="simple_fixed_time", when=PAIRS)
def flat_pair_simple_fixed_time(
    ranks, sendrecv_launch_time, sendrecv_simple_time, latency_count, sendrecv_step_latency
):
    """Entry and messages of an exchange of pairs, with Simple."""
    entry = several(ranks) * (sendrecv_launch_time + sendrecv_simple_time)
    return entry + latency_count * sendrecv_step_latency


@priced(returns="simple_fixed_time", when=NVLS)
def flat_nvls_fixed_time(ranks, gpus_per_host, nvls_time, nvls_hosts_time):
    """Time of NVLS without bytes: more where the domain spans hosts."""
    spans = xp.where(ranks > gpus_per_host, 1.0, 0.0)
    return several(ranks) * (nvls_time + spans * nvls_hosts_time)


# Bytes.


def _ramp(ramp, fraction, rate):
    return ramp * fraction / rate


CHUNKED = ("a message is cut into the best number of chunks, which follow one another",)
for _when, _ramp_time, _fraction in (
    (STEPWISE, "ramp_time", "transfer_fraction"),
    (PAIRS, "sendrecv_ramp_time", "transfer_fraction"),
    (NVLS, "nvls_ramp_time", "sent_fraction"),
):
    _taken = (_ramp_time, _fraction, "port_rate")
    declare("ramp_square", _taken, _ramp, source=OWN, assumes=CHUNKED, when=_when)


@priced(
    returns="copy_byte_time",
    assumes=("a rank also copies its local block",),
    when={**FLAT, "form": "pairs"},
)
def flat_pair_copy_byte_time(ranks, sendrecv_copy_rate):
    """Local copy of grouped send/recv."""
    return several(ranks) / (ranks * sendrecv_copy_rate)
