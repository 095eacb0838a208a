"""Prices on one level: a switch, a rack domain, or any flat network by its schedule.

Every time is linear in the message but for the ramp, which is what a message pays that is cut
into the best number of chunks: it grows with the root of the bytes.
"""

from __future__ import annotations

from functools import partial

from overhead.arrays import xp
from overhead.collectives.cost import several
from overhead.formula import alias, declare, formula, product
from overhead.labels import LABELS, NO_LIBRARY

# The labels under which forms hold.
PRICED = "|".join(name for name in LABELS["library"].values if name != NO_LIBRARY)


FLAT = {"shape": "flat", "library": PRICED}
RING = {**FLAT, "form": "ring"}
PAIRS = {**FLAT, "form": "pairs|message"}
NVLS = {**FLAT, "form": "nvls"}
SCHEDULED = {**FLAT, "form": "schedule"}
STEPWISE = {**FLAT, "form": "ring|schedule"}
OWN = "software"
priced = partial(formula, source=OWN)
IN_NODE = "a flat network lies in a node while its ranks fit into one"


@priced(
    returns="port_rate",
    assumes=("where GPUs are joined pair by pair, a rank has a link to each of its peers",),
    when=FLAT,
)
def flat_port_rate(ranks, bandwidth, pair_bandwidth):
    """Rate of a rank's port, to as many peers as it has."""
    return xp.minimum(bandwidth, xp.maximum(ranks - 1.0, 1.0) * pair_bandwidth)


@priced(returns="inner_step_latency", assumes=(IN_NODE,), when={**STEPWISE, "link": "auto"})
def flat_step_latency(ranks, gpus_per_node, step_latency, fabric_latency):
    """Latency of a step, in a node or between nodes."""
    return xp.where(ranks <= gpus_per_node, step_latency, fabric_latency)


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


@priced(returns="inner_share", assumes=(IN_NODE,), when={**STEPWISE, "link": "auto"})
def flat_share(ranks, gpus_per_node, link_share, fabric_share):
    """Share of the link's rate, in a node or between nodes."""
    return xp.where(ranks <= gpus_per_node, link_share, fabric_share)


@priced(when=STEPWISE)
def step_wire_time(message_bytes, port_rate, inner_share):
    """Time of the whole message over one link, at the rate that steps reach."""
    return message_bytes / (port_rate * inner_share)


product("step_ramp_time", ("ramp_time", "inner_share"), "Ramp of steps", source=OWN,
        when=STEPWISE)  # fmt: skip


# Steps.


product("ll_fixed_time", ("latency_count", "inner_step_latency"),
        "Steps of a ring, with protocol LL", source=OWN, when=RING,
        name="flat_ll_fixed_time")  # fmt: skip


def _entered(ranks, entry_time, count, latency):
    return several(ranks) * entry_time + count * latency


for _returns, _name, _entry, _latency, _when, _words in (
    ("simple_fixed_time", "flat_simple_fixed_time", "simple_entry_time", "inner_step_latency",
     STEPWISE, "Entry and steps with protocol Simple"),
    ("simple_fixed_time", "in_network_fixed_time", "simple_entry_time", "in_network_latency",
     {**SCHEDULED, "in_network": "yes"}, "Entry and steps where the switch takes part"),
    ("ll_fixed_time", "flat_pair_ll_fixed_time", "pair_entry_time", "pair_step_latency", PAIRS,
     "Entry and messages of an exchange of pairs, with LL"),
):  # fmt: skip
    declare(_returns, ("ranks", _entry, "latency_count", _latency), _entered, _words, source=OWN,
            when=_when, name=_name)  # fmt: skip


@priced(returns="simple_fixed_time", when=PAIRS)
def flat_pair_simple_fixed_time(
    ranks, pair_entry_time, pair_simple_time, latency_count, pair_step_latency
):
    """Entry and messages of an exchange of pairs, with Simple."""
    entry = several(ranks) * (pair_entry_time + pair_simple_time)
    return entry + latency_count * pair_step_latency


@priced(returns="simple_fixed_time", when=NVLS)
def flat_nvls_fixed_time(ranks, gpus_per_host, nvls_time, nvls_hosts_time):
    """Time of NVLS without bytes: more where the domain spans hosts."""
    spans = xp.where(ranks > gpus_per_host, 1.0, 0.0)
    return several(ranks) * (nvls_time + spans * nvls_hosts_time)


# Bytes.


@priced(returns="ll_byte_time", when={**FLAT, "form": "ring|pairs|message"})
def flat_ll_byte_time(transfer_fraction, port_rate, inner_share, inner_ll_share):
    """Time of a byte with LL."""
    return transfer_fraction / (port_rate * inner_share * inner_ll_share)


@priced(returns="simple_byte_time", when={**FLAT, "form": "ring|pairs|message|schedule"})
def flat_simple_byte_time(transfer_fraction, port_rate, inner_share):
    """Time of a byte with Simple."""
    return transfer_fraction / (port_rate * inner_share)


@priced(
    returns="simple_byte_time",
    assumes=("a rank gives the whole buffer to readers, and writes its part",),
    when=NVLS,
)
def flat_nvls_byte_time(sent_fraction, port_rate, nvls_share):
    """Time of a byte with NVLS."""
    return sent_fraction / (port_rate * nvls_share)


def _ramp_square(ramp_time, fraction, port_rate):
    return ramp_time * fraction / port_rate


declare("ramp_square", ("ramp_time", "transfer_fraction", "port_rate"), _ramp_square,
        "Ramp of a ring, or of any schedule", source=OWN, when=STEPWISE, name="flat_ramp_square",
        assumes=("a message is cut into the best number of chunks, which follow one another",)
        )  # fmt: skip
declare("ramp_square", ("pair_ramp_time", "transfer_fraction", "port_rate"), _ramp_square,
        "Ramp of an exchange of pairs", source=OWN, when=PAIRS,
        name="flat_pair_ramp_square")  # fmt: skip
declare("ramp_square", ("nvls_ramp_time", "sent_fraction", "port_rate"), _ramp_square,
        "Ramp of NVLS", source=OWN, when=NVLS, name="flat_nvls_ramp_square")  # fmt: skip


@priced(
    returns="copy_byte_time",
    assumes=("a rank moves its own block, too, beside what it exchanges",),
    when={**FLAT, "form": "pairs"},
)
def flat_pair_copy_byte_time(ranks, pair_copy_rate):
    """Copy of the own block of an exchange."""
    return several(ranks) / (ranks * pair_copy_rate)
