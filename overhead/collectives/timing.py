"""From a schedule's cost to time, bytes, energy and bandwidths: what all algorithms share."""

from __future__ import annotations

from functools import reduce
from operator import add

from overhead.arrays import xp
from overhead.collectives.algorithm import ONCE, algorithm
from overhead.collectives.cost import LEVELS, Cost, Level, flat, several
from overhead.collectives.hierarchical import CROWD, crowd
from overhead.formula import alias, constant, declare, derived, formula, product, total
from overhead.quantity import Array

FLAT = {"shape": "flat"}
SEQUENTIAL = {"phases": "sequential"}
FLAT_SEQUENTIAL = {**FLAT, **SEQUENTIAL}
HOCKNEY = "hockney1994"
MODEL = ("a latency a hop, and the slowest link's bytes by its bandwidth",)


# One level of links.


@formula(source=HOCKNEY)
def wire_time(message_bytes, bandwidth):
    """Time of the whole message over one link."""
    return message_bytes / bandwidth


product("latency_time", ("latency_count", "latency"), "Part of the time that is latency",
        source=HOCKNEY, assumes=MODEL, when=FLAT_SEQUENTIAL)  # fmt: skip


product("latency_time", ("latency_count", "in_network_latency"),
        "Part of the time that is latency, where the switch takes part", source=HOCKNEY,
        assumes=(*MODEL, "the switch that reduces or multicasts has a latency of its own"),
        when={**FLAT_SEQUENTIAL, "in_network": "yes"}, name="in_network_latency_time")  # fmt: skip


product("bandwidth_time", ("transfer_fraction", "wire_time"), "Part of the time that is transfer",
        source=HOCKNEY, assumes=MODEL, when=FLAT_SEQUENTIAL)  # fmt: skip


total("time", ("latency_time", "bandwidth_time"), "Time of the operation", source=HOCKNEY,
      assumes=(*MODEL, "the reduction itself costs nothing"),
      when={**FLAT_SEQUENTIAL, "reduction": "free"})  # fmt: skip


@formula(
    source="thakur2005",
    where="the term in gamma",
    assumes=("the busiest rank's reductions overlap with nothing",),
)
def reduction_time(reduced_fraction, message_bytes, reduction_cost):
    """Part of the time that is reduction."""
    return reduced_fraction * (message_bytes * reduction_cost)


total("time", ("latency_time", "bandwidth_time", "reduction_time"),
      "Time of the operation, its reductions included", source="thakur2005",
      where="the terms in alpha, beta and gamma", assumes=MODEL,
      when={"phases": "sequential", "reduction": "counted"}, name="reducing_time")  # fmt: skip


@derived(
    returns="intra_time",
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={**FLAT, "link": "auto"},
)
def flat_intra_time(time, ranks, gpus_per_node):
    """Part of a flat network's time that is spent inside a node: all or nothing."""
    return xp.where(ranks <= gpus_per_node, time, 0.0)


@derived(
    returns="inter_time",
    assumes=("a flat network lies in a node while its ranks fit into one",),
    when={**FLAT, "link": "auto"},
)
def flat_inter_time(time, ranks, gpus_per_node):
    """Part of a flat network's time that is spent between nodes: all or nothing."""
    return xp.where(ranks <= gpus_per_node, 0.0, time)


for _within, _without in (("intra", "inter"), ("inter", "intra")):
    _all = {**FLAT, "link": _within}
    alias(f"{_within}_time", "time", "All of the time", when=_all)
    constant(f"{_without}_time", 0.0, "No part of the time", when=_all)


product("sent_bytes", ("sent_fraction", "message_bytes"), "Most bytes that one rank sends")


product("link_bytes", ("link_fraction", "message_bytes"), "Bytes over all links together",
        assumes=("bytes are counted on every link that they pass, on a switch once a message",)
        )  # fmt: skip


@derived(assumes=("every byte costs its link's energy a bit; idle links cost nothing",), when=FLAT)
def energy(link_bytes, energy_per_bit):
    """Energy of all bytes over all links."""
    return link_bytes * (8.0 * energy_per_bit)


# Bandwidths as nccl-tests reports them.


@formula(source="nccltests", where="doc/PERFORMANCE.md, algorithm bandwidth")
def algbw(message_bytes, time):
    """Algorithm bandwidth."""
    return message_bytes / time


@formula(
    returns="bus_factor",
    source="nccltests",
    where="doc/PERFORMANCE.md, AllReduce",
    when={"collective": "all_reduce"},
)
def all_reduce_bus_factor(ranks):
    """Factor from algorithm to bus bandwidth of an all_reduce."""
    return 2.0 * (ranks - 1.0) / ranks


@formula(
    returns="bus_factor",
    source="nccltests",
    where="doc/PERFORMANCE.md, ReduceScatter, AllGather, AlltoAll",
    when={"collective": "all_gather|reduce_scatter|all_to_all"},
)
def scattered_bus_factor(ranks):
    """Factor from algorithm to bus bandwidth where ranks hold a share each."""
    return (ranks - 1.0) / ranks


@formula(
    returns="bus_factor",
    source="nccltests",
    where="doc/PERFORMANCE.md, Broadcast, Reduce",
    when={"collective": "broadcast|reduce|p2p"},
)
def whole_bus_factor(ranks):
    """Factor from algorithm to bus bandwidth where the message stays whole."""
    return xp.where(ranks > 1.0, 1.0, 0.0)


product("busbw", ("bus_factor", "algbw"), "Bus bandwidth", source="nccltests",
        where="doc/PERFORMANCE.md, bus bandwidth",
        assumes=("with reduction in the network it is no wire speed",))  # fmt: skip


# Phases on different dimensions or levels, pipelined over chunks of the buffer.
#
# First come one chunk's phases, then the slowest dimension's phases for each further chunk.

HIERARCHY = {"topology": "hierarchical"}
PIPELINED = {"phases": "pipelined"}
NUMBERS = (1, 2, 3)
FOLLOW = (
    "chunks follow one another through the dimensions",
    "the phases of one chunk on one dimension block it for the others",
)
ON_THE_PATH = ("every chunk waits for the slowest dimension, the first one for the others, too",)


@derived(when=PIPELINED)
def pipelined_chunks(phase_chunks, phases_apart):
    """Chunks that follow one another; one where every step works on all dimensions."""
    return xp.where(phases_apart > 0.0, phase_chunks, 1.0)


def chunk_transfer(transfer_fraction: Array, pipelined_chunks: Array, wire_time: Array) -> Array:
    """Transfer of one chunk's phases on one dimension."""
    return transfer_fraction / pipelined_chunks * wire_time


for _number, _level in zip(NUMBERS, LEVELS, strict=True):
    _on = f"dimension_{_number}"
    for _labels, _latency in (
        (FLAT, "latency"),
        ({**FLAT, "in_network": "yes"}, "in_network_latency"),
        (HIERARCHY, f"{_level}_latency"),
    ):
        product(
            f"phase_{_number}_latency_time",
            (f"{_on}_latency_count", _latency),
            name=f"phase_{_number}_{_latency}_time",
            when={**_labels, **PIPELINED},
        )
    for _labels, _wire in ((FLAT, "wire_time"), (HIERARCHY, f"{_level}_wire_time")):
        derived(
            returns=f"phase_{_number}_transfer_time",
            inputs=(f"{_on}_transfer_fraction", "pipelined_chunks", _wire),
            name=f"phase_{_number}_{_wire}",
            when={**_labels, **PIPELINED},
        )(chunk_transfer)
    total(
        f"phase_{_number}_time",
        (f"phase_{_number}_latency_time", f"phase_{_number}_transfer_time"),
        when=PIPELINED,
    )


def _slowest(phase_1_time, phase_2_time, phase_3_time):
    return xp.maximum(xp.maximum(phase_1_time, phase_2_time), phase_3_time)


@derived(
    returns="time",
    assumes=(*FOLLOW, "the reduction itself costs nothing"),
    when={**PIPELINED, "reduction": "free"},
)
def pipelined_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Time of the operation, its phases pipelined over chunks."""
    slowest = _slowest(phase_1_time, phase_2_time, phase_3_time)
    return phase_1_time + phase_2_time + phase_3_time + (pipelined_chunks - 1.0) * slowest


@derived(
    returns="time",
    assumes=(*FOLLOW, "the busiest rank's reductions overlap with nothing"),
    when={**PIPELINED, "reduction": "counted"},
)
def pipelined_reducing_time(
    phase_1_time, phase_2_time, phase_3_time, pipelined_chunks, reduction_time
):
    """Time of the operation, its phases pipelined over chunks and its reductions included."""
    pipelined = pipelined_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks)
    return pipelined + reduction_time


# The parts of that time: what is waited for, and what goes on meanwhile.


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def phase_1_passes(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Chunks whose phases on the first dimension are waited for."""
    slowest = _slowest(phase_1_time, phase_2_time, phase_3_time)
    return xp.where(phase_1_time == slowest, pipelined_chunks, 1.0)


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def phase_2_passes(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Chunks whose phases on the second dimension are waited for; of equal ones the first's."""
    slower = (phase_2_time > phase_1_time) & (phase_2_time >= phase_3_time)
    return xp.where(slower, pipelined_chunks, 1.0)


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def phase_3_passes(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Chunks whose phases on the third dimension are waited for; of equal ones the first's."""
    slower = phase_3_time > xp.maximum(phase_1_time, phase_2_time)
    return xp.where(slower, pipelined_chunks, 1.0)


def on_the_path(
    phase_1_passes: Array,
    phase_1_time: Array,
    phase_2_passes: Array,
    phase_2_time: Array,
    phase_3_passes: Array,
    phase_3_time: Array,
) -> Array:
    """Part of the time, of phases that are waited for."""
    two = phase_1_passes * phase_1_time + phase_2_passes * phase_2_time
    return two + phase_3_passes * phase_3_time


for _part, _of in (("latency_time", "latency_time"), ("bandwidth_time", "transfer_time")):
    derived(
        returns=_part,
        inputs=tuple(f"phase_{n}_{x}" for n in NUMBERS for x in ("passes", _of)),
        assumes=ON_THE_PATH,
        name=f"pipelined_{_part}",
        when=PIPELINED,
    )(on_the_path)
for _number, _level in zip(NUMBERS, LEVELS, strict=True):
    product(
        f"{_level}_time",
        (f"phase_{_number}_passes", f"phase_{_number}_time"),
        assumes=ON_THE_PATH,
        name=f"pipelined_{_level}_time",
        when={**HIERARCHY, **PIPELINED},
    )


@derived(assumes=ON_THE_PATH, when=PIPELINED)
def hidden_phase_time(phase_1_time, phase_2_time, phase_3_time, pipelined_chunks):
    """Time of the phases that go on while a chunk waits for the slowest dimension."""
    every = phase_1_time + phase_2_time + phase_3_time
    slowest = _slowest(phase_1_time, phase_2_time, phase_3_time)
    return (pipelined_chunks - 1.0) * (every - slowest)


# One message from one rank to another.


@algorithm(
    ("ring", "tree", "switch", "mesh", "torus", "binary_tree"),
    "p2p",
    "direct",
    source="hockney1994",
    assumes=("a latency a hop; the bytes stream through the links between",),
    form="message",
)
def direct(ranks, hops):
    """One message over so many links."""
    there = several(ranks)
    return flat(
        there,
        there,
        latencies=there * hops,
        messages=there * xp.minimum(hops, 1.0),
        sent=there,
        carried=there * hops,
    )


@algorithm(
    "hierarchical",
    "p2p",
    "direct",
    time="where(nodes > 1, hops*inter_latency"
    f" + {CROWD}*message_bytes*uplink_oversubscription/inter_bandwidth,"
    " where(pods > 1, hops*pod_latency"
    f" + {CROWD}*message_bytes*pod_oversubscription/pod_bandwidth,"
    f" {ONCE}*(hops*intra_latency + message_bytes/intra_bandwidth)))",
    carried=f"{ONCE}*hops*message_bytes",
    source="hockney1994",
    assumes=(
        "between nodes of a pod; between pods if those have one node, else in the node",
        "the node's other ranks use their network cards at the same time",
    ),
    form="message",
)
def direct_between_nodes(node_ranks, nodes, pods, ranks_per_nic, hops):
    """One message, between nodes where there are several."""
    inter = several(nodes)
    pod = (1.0 - inter) * several(pods)
    intra = (1.0 - inter) * (1.0 - pod) * several(node_ranks)
    there = several(node_ranks * nodes * pods)
    shared = crowd(node_ranks, ranks_per_nic)
    fewer = xp.minimum(hops, 1.0)
    levels = tuple(
        Level(here * hops, here * fewer, here * share, here * hops)
        for here, share in ((intra, 1.0), (inter, shared), (pod, shared))
    )
    return Cost(there, there, levels)


# Level by level, on a hierarchy.

TWO = {"shape": "two_levels"}
THREE = {"shape": "three_levels"}
PHASES = ("phases on different levels run one after another",)


@derived()
def intra_wire_time(message_bytes, intra_bandwidth):
    """Time of the whole message over one link inside a node."""
    return message_bytes / intra_bandwidth


@derived(assumes=("oversubscription divides the bandwidth of what leaves a node",), when=HIERARCHY)
def inter_wire_time(message_bytes, inter_bandwidth, uplink_oversubscription):
    """Time of the whole message over one network card between nodes."""
    return message_bytes * (uplink_oversubscription / inter_bandwidth)


@derived(assumes=("oversubscription divides the bandwidth of what leaves a pod",))
def pod_wire_time(message_bytes, pod_bandwidth, pod_oversubscription):
    """Time of the whole message over one network card between pods."""
    return message_bytes * (pod_oversubscription / pod_bandwidth)


# What a step pays on each level: of links alone their latency and bandwidth.  A library's own
# figures stand in their place (`overhead.software`), so that both the number of chunks and the
# level that a step waits for follow from what is paid.

for _level in LEVELS:
    alias(f"{_level}_step_latency", f"{_level}_latency", when=HIERARCHY)
    alias(f"{_level}_step_wire_time", f"{_level}_wire_time", when=HIERARCHY)
    constant(f"{_level}_step_ramp_time", 0.0, "No ramp", when=HIERARCHY)
alias("inner_step_latency", "latency", when=FLAT)
alias("step_wire_time", "wire_time", when=FLAT)
constant("step_ramp_time", 0.0, "No ramp", when=FLAT)


def _one_level(count, latency, fraction, wire_time):
    return count * latency + fraction * wire_time


for _level, _where in (
    ("intra", "inside nodes"), ("inter", "between nodes"), ("pod", "between pods"),
):  # fmt: skip
    declare(
        f"{_level}_time",
        [f"{_level}_{_part}" for _part in
         ("latency_count", "latency", "transfer_fraction", "wire_time")],
        _one_level, f"Part of the time spent {_where}", source="hockney1994", assumes=MODEL,
        when={**HIERARCHY, **SEQUENTIAL}, name=f"{_level}_time",
    )  # fmt: skip


SHAPES = (("two", LEVELS[:2], TWO), ("three", LEVELS, THREE))

for _words, _levels, _shape in SHAPES:
    total(
        "time", [f"{_level}_time" for _level in _levels],
        f"Time of the operation on {_words} levels",
        assumes=(*PHASES, "the reduction itself costs nothing"),
        when={**_shape, **SEQUENTIAL, "reduction": "free"}, name=f"{_words}_level_time",
    )  # fmt: skip


def _together(*pairs):
    """Return the sum of products: of what each level has, and what that takes there."""
    products = [count * each for count, each in zip(pairs[::2], pairs[1::2], strict=True)]
    return xp.asarray(reduce(add, products))


for _words, _levels, _shape in SHAPES:
    for _returns, _parts, _what in (
        ("latency_time", ("latency_count", "latency"), "latency"),
        ("bandwidth_time", ("transfer_fraction", "wire_time"), "transfer"),
    ):
        declare(
            _returns, [f"{_level}_{_part}" for _level in _levels for _part in _parts], _together,
            f"Part of the time that is {_what}, on {_words} levels", assumes=MODEL,
            when={**_shape, **SEQUENTIAL}, name=f"{_words}_level_{_returns}",
        )  # fmt: skip


total("link_fraction", ("intra_link_fraction", "inter_link_fraction", "pod_link_fraction"),
      "Bytes over all links of all levels together, in messages", when=HIERARCHY)  # fmt: skip


def _energy(message_bytes, *pairs):
    return 8.0 * message_bytes * _together(*pairs)


for _words, _levels, _shape in SHAPES:
    declare(
        "energy",
        ["message_bytes", *(f"{_level}_{_part}" for _level in _levels
                            for _part in ("link_fraction", "energy_per_bit"))],
        _energy, f"Energy of all bytes over all links, on {_words} levels",
        assumes=("every byte costs its link's energy a bit; idle links cost nothing",),
        when=_shape, name=f"{_words}_level_energy",
    )  # fmt: skip


# What leaves a rank, a node and a pod of a hierarchy in a second: for its lower bounds.
#
# A rank that sends alone has a network card for itself.  Together the ranks of a node have what its
# cards, or the group's part of them, bring through the oversubscribed levels above.

TWO_LEVEL_CAPACITY = {**HIERARCHY, "shape": "two_levels"}
THREE_LEVEL_CAPACITY = {**HIERARCHY, "shape": "three_levels"}


@derived(when=TWO_LEVEL_CAPACITY)
def rank_capacity(node_ranks, nodes, ranks_per_nic, intra_bandwidth, inter_bandwidth):
    """Bytes a second out of one rank that sends alone: its port in the node and its cards."""
    cards = xp.maximum(1.0, 1.0 / ranks_per_nic) * inter_bandwidth
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes)


@derived(returns="rank_capacity", when=THREE_LEVEL_CAPACITY)
def three_level_rank_capacity(
    node_ranks, nodes, pods, ranks_per_nic, intra_bandwidth, inter_bandwidth, pod_bandwidth
):
    """Bytes a second out of one rank that sends alone: its port in the node and its cards."""
    links = _near_and_far(inter_bandwidth, pod_bandwidth, nodes, pods)
    cards = xp.maximum(1.0, 1.0 / ranks_per_nic) * links
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


def _inside_and_outside(inside, outside, node_ranks, groups):
    """Return what the links in a node and out of it bring, of those that the group uses."""
    alone = xp.where(groups > 1.0, inside + outside, inside)
    return xp.where(node_ranks > 1.0, alone, outside)


def _near_and_far(near, far, nodes, pods):
    """Return what the links between nodes and between pods bring, of those that the group uses."""
    return xp.where(pods > 1.0, xp.where(nodes > 1.0, near + far, far), near)


@derived(when=TWO_LEVEL_CAPACITY)
def node_capacity(node_ranks, ranks_per_nic, inter_bandwidth, uplink_oversubscription):
    """Bytes a second out of one node."""
    return node_ranks / ranks_per_nic * (inter_bandwidth / uplink_oversubscription)


@derived(returns="node_capacity", when=THREE_LEVEL_CAPACITY)
def three_level_node_capacity(
    node_ranks,
    nodes,
    pods,
    ranks_per_nic,
    inter_bandwidth,
    uplink_oversubscription,
    pod_bandwidth,
    pod_oversubscription,
):
    """Bytes a second out of one node, to its pod and to other pods."""
    near, far = inter_bandwidth / uplink_oversubscription, pod_bandwidth / pod_oversubscription
    return node_ranks / ranks_per_nic * _near_and_far(near, far, nodes, pods)


@derived(when=HIERARCHY)
def mean_capacity(node_ranks, nodes, pods, intra_bandwidth, node_capacity):
    """Bytes a second out of one rank when all send: its port and its part of the cards."""
    cards = node_capacity / node_ranks
    return _inside_and_outside(intra_bandwidth, cards, node_ranks, nodes * pods)


@derived(when=THREE_LEVEL_CAPACITY)
def pod_capacity(node_ranks, nodes, ranks_per_nic, pod_bandwidth, pod_oversubscription):
    """Bytes a second out of one pod."""
    return node_ranks * nodes / ranks_per_nic * (pod_bandwidth / pod_oversubscription)
