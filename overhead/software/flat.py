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
from overhead.quantity import Array, amount, define
from overhead.source import cite

# The vocabulary of software profiles: constants of a library, and what forms make of them.

cite(
    "software",
    "Forms of this product, fitted to published logs of nccl-tests; the constants' sources stand "
    "in specs/software",
)

# The labels under which forms hold.
PRICED = "|".join(name for name in LABELS["library"].values if name != NO_LIBRARY)


def _time(name: str, symbol: str, meaning: str) -> None:
    amount(name, symbol, "s", meaning)


def _share(name: str, symbol: str, meaning: str) -> None:
    amount(name, symbol, "1", meaning, maximum=1, above=True)


def _factor(name: str, symbol: str, meaning: str) -> None:
    amount(name, symbol, "1", meaning)


def _rate(name: str, symbol: str, meaning: str) -> None:
    amount(name, symbol, "byte s-1", meaning, above=True)


# One node, or rack domain.
_time("operation_launch_time", "L", "time from the start of an operation to its first step")
_time("step_latency", "a", "latency of a step inside a node")
_share("link_share", "f", "share of a link's rate that the library's channels reach")
_share("ll_share", r"f_\mathrm{LL}", "rate of protocol LL over that of Simple, inside a node")
_time("simple_entry_time", r"b_\mathrm{S}", "time to enter protocol Simple")
_time("ramp_time", "r", "time constant of a message's ramp: chunks in a pipeline")
_rate("copy_rate", r"C", "rate at which a rank moves its own block")
_factor("reduced_copy_share", "k_c", "copy of an all_reduce, over that of an all_gather")
_rate("pair_bandwidth", r"B_\mathrm{pair}", "bandwidth between two GPUs of a node")
_time("nvls_time", r"t_\mathrm{NVLS}", "time of an all_reduce by NVLS, but for bytes and launch")
_time("nvls_hosts_time", r"t_\mathrm{hosts}", "what NVLS takes longer where a domain spans hosts")
_share("nvls_share", r"f_\mathrm{N}", "share of a port's rate that NVLS reaches")
_time("nvls_ramp_time", r"r_\mathrm{N}", "time constant of the ramp of NVLS")
define("gpus_per_host", "g_h", "1", "GPUs of one host in a node or domain", minimum=1, integer=True)
# all_to_all, and messages from one rank to another.
_time("pair_entry_time", r"L_\mathrm{a}", "time to enter an exchange of pairs")
_time("pair_step_latency", r"a_\mathrm{a}", "latency of a message of an exchange of pairs")
_time("pair_simple_time", r"S_\mathrm{a}", "time to enter protocol Simple in an exchange of pairs")
_share("pair_share", r"f_\mathrm{a}", "share of a link's rate that an exchange of pairs reaches")
_share("pair_ll_share", r"f_\mathrm{La}", "rate of LL over that of Simple between pairs")
_rate("pair_copy_rate", r"C_\mathrm{a}", "rate at which a rank moves its own block of an exchange")
_time("pair_ramp_time", r"r_\mathrm{a}", "time constant of the ramp of an exchange of pairs")
# Between nodes.
_time("fabric_latency", "a_2", "latency of a step between nodes")
_share("fabric_share", "f_2", "share of the network cards' rate that the library reaches")
_time("fabric_floor_time", r"F", "least time of an operation between nodes")
_factor("simple_fabric_factor", "s", "what a step between nodes takes longer in Simple, over LL")
_factor("simple_step_factor", r"a_\mathrm{S}", "what a step inside nodes takes longer in Simple")
_factor("fabric_ramp_steps", "k_2", "ramp between nodes, in latencies of a step there")
_share("fabric_ll_share", r"f_\mathrm{L2}", "rate of LL over that of Simple, between nodes")
_share("tree_share", r"f_\mathrm{T}", "rate of a tree between nodes over that of a ring")
_share("tree_link_share", r"f_\mathrm{c}", "rate of a tree's chains in nodes over that of a ring")
_share("nvls_tree_share", r"c_\mathrm{N}", "rate of NVLS under a tree over that of NVLS alone")
_share(
    "sharp_share", r"f_\mathrm{S}", "share of the cards' rate that reduction by switches reaches"
)
_share(
    "fabric_pair_share", r"f_\mathrm{A}", "rate of an exchange between nodes over that of a ring"
)
_time("peer_time", "p", "time for each rank of another node in an exchange")
_time("issue_time", "h", "time in which the host issues an operation, ahead of the GPU")

# What forms give.
_rate("port_rate", "B_p", "rate of a rank's port to as many peers as it has")
_rate("fabric_rate", "R", "rate of a node's network cards together")
define("total_nodes", "G_P", "1", "nodes of the group, in all pods", minimum=1, integer=True)
amount("ring_passes", "x", "1", "times that a ring passes the message, less a rank's part")
_share("inner_share", "f_i", "share of the rate of links inside nodes, or of a flat network's")
_share("inner_ll_share", r"f_{i\mathrm{LL}}", "rate of LL over Simple there")
_share("outer_share", "f_o", "share of the rate of network cards")
_time("ll_fixed_time", r"A_\mathrm{LL}", "steps of protocol LL, after the launch")
_time("simple_fixed_time", r"A_\mathrm{S}", "entry and steps of protocol Simple, after the launch")
for _name, _mark, _meaning in (
    ("ll_byte_time", r"p_\mathrm{LL}", "time of a byte on the slowest wire, with LL"),
    ("simple_byte_time", r"p_\mathrm{S}", "time of a byte on the slowest wire, with Simple"),
    ("copy_byte_time", r"p_\mathrm{c}", "time in which a rank moves its own block, by the message"),
    ("inner_byte_time", "u_1", "time of a byte on the busiest link inside nodes, at full rate"),
    ("outer_byte_time", "u_2", "time of a byte through the busiest card, at full rate"),
):
    amount(_name, _mark, "s byte-1", _meaning)
amount("ramp_square", r"v", "s2 byte-1", "square of the ramp, by the message")
_time("host_floor_time", "H", "time in which the host issues the operation for all its ranks")
for _name, _mark, _words in (("ll", "LL", "with LL"), ("simple", "S", "with Simple")):
    _at = rf"\mathrm{{{_mark}}}"
    _time(f"{_name}_start_time", f"T_{{0{_at}}}", f"time of no bytes, {_words}")
    amount(f"{_name}_slope", f"s_{_at}", "s byte-1", f"time of a byte, {_words}")
    _time(f"{_name}_time", f"T_{_at}", f"time {_words}")
_time("message_ramp_time", r"T_v", "ramp of the message")
_time("device_time", r"T_\mathrm{d}", "time of the operation where the host is ahead of it")
_time("floor_time", r"T_\mathrm{f}", "least time of the operation: of the host, or the fabric")
amount("protocol", "P", "1", "protocol: 0 LL, 1 Simple", maximum=1, integer=True)
_time("paid_launch_time", r"T_\mathrm{L}", "part of the time that is launch")
_time("step_part_time", r"T_\mathrm{s}", "part of the time that is steps")
_time("wire_part_time", r"T_\mathrm{w}", "part of the time that is wire")
_time("copy_part_time", r"T_\mathrm{c}", "part of the time that is copy")
_time("ramp_part_time", r"T_\mathrm{r}", "part of the time that is ramp")
_time("wait_part_time", r"T_\mathrm{h}", "part of the time that is waiting for host or fabric")
_BAND = "measured time by the predicted, less 1, of rows like it"
define("time_band_low", r"\epsilon_{T-}", "1", f"{_BAND}: at least", minimum=-1, maximum=0)
amount("time_band_high", r"\epsilon_{T+}", "1", f"{_BAND}: at most")
amount("measured_rows", r"n_\epsilon", "1", "measured rows that tell the band")

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
def flat_port_rate(ranks: Array, bandwidth: Array, pair_bandwidth: Array) -> Array:
    """Rate of a rank's port, to as many peers as it has."""
    return xp.minimum(bandwidth, xp.maximum(ranks - 1.0, 1.0) * pair_bandwidth)


@priced(returns="inner_step_latency", assumes=(IN_NODE,), when={**STEPWISE, "link": "auto"})
def flat_step_latency(
    ranks: Array, gpus_per_node: Array, step_latency: Array, fabric_latency: Array
) -> Array:
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
def flat_share(ranks: Array, gpus_per_node: Array, link_share: Array, fabric_share: Array) -> Array:
    """Share of the link's rate, in a node or between nodes."""
    return xp.where(ranks <= gpus_per_node, link_share, fabric_share)


@priced(when=STEPWISE)
def step_wire_time(message_bytes: Array, port_rate: Array, inner_share: Array) -> Array:
    """Time of the whole message over one link, at the rate that steps reach."""
    return message_bytes / (port_rate * inner_share)


product("step_ramp_time", ("ramp_time", "inner_share"), "Ramp of steps", source=OWN,
        when=STEPWISE)  # fmt: skip


# Steps.


product("ll_fixed_time", ("latency_count", "inner_step_latency"),
        "Steps of a ring, with protocol LL", source=OWN, when=RING,
        name="flat_ll_fixed_time")  # fmt: skip


def _entered(ranks: Array, entry_time: Array, count: Array, latency: Array) -> Array:
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
    ranks: Array,
    pair_entry_time: Array,
    pair_simple_time: Array,
    latency_count: Array,
    pair_step_latency: Array,
) -> Array:
    """Entry and messages of an exchange of pairs, with Simple."""
    entry = several(ranks) * (pair_entry_time + pair_simple_time)
    return entry + latency_count * pair_step_latency


@priced(returns="simple_fixed_time", when=NVLS)
def flat_nvls_fixed_time(
    ranks: Array, gpus_per_host: Array, nvls_time: Array, nvls_hosts_time: Array
) -> Array:
    """Time of NVLS without bytes: more where the domain spans hosts."""
    spans = xp.where(ranks > gpus_per_host, 1.0, 0.0)
    return several(ranks) * (nvls_time + spans * nvls_hosts_time)


# Bytes.


@priced(returns="ll_byte_time", when={**FLAT, "form": "ring|pairs|message"})
def flat_ll_byte_time(
    transfer_fraction: Array, port_rate: Array, inner_share: Array, inner_ll_share: Array
) -> Array:
    """Time of a byte with LL."""
    return transfer_fraction / (port_rate * inner_share * inner_ll_share)


@priced(returns="simple_byte_time", when={**FLAT, "form": "ring|pairs|message|schedule"})
def flat_simple_byte_time(transfer_fraction: Array, port_rate: Array, inner_share: Array) -> Array:
    """Time of a byte with Simple."""
    return transfer_fraction / (port_rate * inner_share)


@priced(
    returns="simple_byte_time",
    assumes=("a rank gives the whole buffer to readers, and writes its part",),
    when=NVLS,
)
def flat_nvls_byte_time(sent_fraction: Array, port_rate: Array, nvls_share: Array) -> Array:
    """Time of a byte with NVLS."""
    return sent_fraction / (port_rate * nvls_share)


def _ramp_square(ramp_time: Array, fraction: Array, port_rate: Array) -> Array:
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
def flat_pair_copy_byte_time(ranks: Array, pair_copy_rate: Array) -> Array:
    """Copy of the own block of an exchange."""
    return several(ranks) / (ranks * pair_copy_rate)
