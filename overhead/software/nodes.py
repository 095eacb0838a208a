"""Prices on nodes of GPUs: rings and trees that wait for nobody, exchanges node by node, phases.

The latency is the sum along the path, the wire the slower of the levels: messages of an exchange
inside of nodes overlap those between them.  Phases follow one another, so that theirs add up.
"""

from __future__ import annotations

from collections.abc import Callable

from overhead.arrays import xp
from overhead.collectives.cost import several
from overhead.formula import cited, declare, formula
from overhead.quantity import Array
from overhead.software.flat import OWN, PRICED, priced

NODES = {"topology": "hierarchical", "library": PRICED}
RING = {**NODES, "form": "ring"}
TREE = {**NODES, "form": "tree"}
SHARP = {**NODES, "form": "sharp"}
PAIRS = {**NODES, "form": "pairs"}
MESSAGE = {**NODES, "form": "message"}
SCHEDULED = {**NODES, "form": "schedule"}


def depth(total_nodes: Array) -> Array:
    """Return the steps between nodes up a tree and down it."""
    return 2.0 * xp.ceil(xp.log2(total_nodes))


@priced(when=NODES)
def node_nic_bandwidth(
    node_ranks,
    ranks_sharing_nic,
    nodes,
    pods,
    inter_bandwidth,
    effective_oversubscription,
    pod_bandwidth,
    pod_oversubscription,
):
    """Aggregate NIC bandwidth per node, limited by the slowest level."""
    near, far = inter_bandwidth / effective_oversubscription, pod_bandwidth / pod_oversubscription
    slower = xp.where(pods > 1.0, xp.where(nodes > 1.0, xp.minimum(near, far), far), near)
    return node_ranks / ranks_sharing_nic * slower


@priced(
    returns="pair_bandwidth",
    assumes=("links of a GPU are as fast as one another: more bandwidth is that of each",),
)
def pair_bandwidth(intra_bandwidth, pair_bandwidth_ratio):
    """Bandwidth between two GPUs of a node, a share of what all links of a GPU have."""
    return intra_bandwidth * pair_bandwidth_ratio


@priced(returns="port_rate", when=NODES)
def node_port_rate(node_ranks, intra_bandwidth, pair_bandwidth):
    """Intra-node port bandwidth per rank, limited by its peers in the node."""
    return xp.minimum(intra_bandwidth, xp.maximum(node_ranks - 1.0, 1.0) * pair_bandwidth)


@priced(returns="ring_passes", when={**RING, "collective": "all_reduce"})
def all_reduce_ring_passes(ranks):
    """Two passes around the ring for an all-reduce."""
    return 2.0 * several(ranks)


@priced(returns="ring_passes", when={**RING, "collective": "all_gather|reduce_scatter"})
def gather_ring_passes(ranks):
    """One pass around the ring for an all-gather or reduce-scatter."""
    return several(ranks)


# What a step pays on each level.


@priced(returns="inter_step_latency", name="inter_step_latency_on_nodes", when=NODES)
@priced(returns="pod_step_latency", name="pod_step_latency_on_nodes", when=NODES)
def far_latency(inter_node_step_latency, simple_fabric_factor):
    """Latency of a step between nodes, or between pods, with Simple."""
    return inter_node_step_latency * (1.0 + simple_fabric_factor)


# Bytes on each level, at full rate.


@priced(
    returns="inner_byte_time",
    assumes=("as many rings as ranks per node, each through another NIC",),
    when=RING,
)
def ring_inner_bytes(ring_passes, ranks, total_nodes, node_ranks, port_rate):
    """Time per byte of rings on the port of a rank."""
    inside = xp.where(total_nodes > 1.0, (node_ranks - 1.0) / node_ranks, 1.0)
    return ring_passes * (ranks - 1.0) / ranks * inside / port_rate


@priced(returns="outer_byte_time", when=RING)
def ring_outer_bytes(total_nodes, ring_passes, ranks, node_nic_bandwidth):
    """Time per byte of rings on the NICs of a node."""
    return several(total_nodes) * ring_passes * (ranks - 1.0) / ranks / node_nic_bandwidth


@priced(
    returns="inner_byte_time",
    assumes=("chains in nodes, each with another rank at its head",),
    when=TREE,
)
def tree_inner_bytes(node_ranks, port_rate):
    """Time per byte of chains on the port of a rank."""
    return 2.0 * (node_ranks - 1.0) / node_ranks / port_rate


@priced(
    returns="outer_byte_time",
    assumes=("nodes carry equal parts of all trees",),
    when={**NODES, "form": "tree|nvls_tree"},
)
def tree_outer_bytes(total_nodes, node_nic_bandwidth):
    """Time per byte of trees on the NICs of a node: one message with two nodes."""
    return 2.0 * (total_nodes - 1.0) / total_nodes / node_nic_bandwidth


@priced(returns="inner_byte_time", when={**NODES, "form": "nvls_tree|sharp"})
def nvls_inner_bytes(node_ranks, port_rate):
    """Time per byte on the switch port with in-switch reduction."""
    return xp.where(node_ranks > 1.0, 1.0 + 1.0 / node_ranks, 0.0) / port_rate


@priced(
    returns="outer_byte_time",
    assumes=("the switches between nodes reduce: each node sends the message once",),
    when=SHARP,
)
def sharp_outer_bytes(total_nodes, node_nic_bandwidth):
    """Time per byte on the NICs of a node with SHARP in the fabric."""
    return several(total_nodes) / node_nic_bandwidth


@priced(returns="inner_byte_time", when=PAIRS)
def pair_inner_bytes(node_ranks, ranks, port_rate):
    """Bytes of an exchange that stay in a node."""
    return (node_ranks - 1.0) / ranks / port_rate


@priced(returns="outer_byte_time", when=PAIRS)
def pair_outer_bytes(total_nodes, node_ranks, node_nic_bandwidth):
    """Time per byte of send/recv on the NICs of a node."""
    return (total_nodes - 1.0) / total_nodes * node_ranks / node_nic_bandwidth


@priced(returns="outer_byte_time", when={**NODES, "form": "message|schedule"})
def phase_outer_bytes(
    inter_transfer_fraction,
    effective_oversubscription,
    inter_bandwidth,
    pod_transfer_fraction,
    pod_oversubscription,
    pod_bandwidth,
):
    """Time per byte of a schedule on the bottleneck NIC."""
    near = inter_transfer_fraction * effective_oversubscription / inter_bandwidth
    return near + pod_transfer_fraction * pod_oversubscription / pod_bandwidth


# The shares of the rates that a library reaches.


@priced(returns="inner_efficiency", when={**NODES, "form": "nvls_tree|sharp"})
def nvls_inner_share(nvls_efficiency, total_nodes, nvls_tree_rate_ratio):
    """Achievable fraction of port bandwidth with NVLS or NVLS Tree."""
    return nvls_efficiency * xp.where(total_nodes > 1.0, nvls_tree_rate_ratio, 1.0)


# Time of a byte: of the slower level, or of both.


def _slower_byte(inner, inner_efficiency, outer, outer_efficiency):
    return xp.maximum(inner / inner_efficiency, outer / outer_efficiency)


def _both_bytes(inner, inner_efficiency, outer, outer_efficiency):
    return inner / inner_efficiency + outer / outer_efficiency


def _slower_ll_byte(inner, inner_efficiency, inner_ll, outer, outer_efficiency, outer_ll):
    return _slower_byte(inner, inner_efficiency * inner_ll, outer, outer_efficiency * outer_ll)


def _both_ll_bytes(inner, inner_efficiency, inner_ll, outer, outer_efficiency, outer_ll):
    return _both_bytes(inner, inner_efficiency * inner_ll, outer, outer_efficiency * outer_ll)


SLOWEST = ("a ring or tree goes at the rate of its slowest link everywhere",)
TOGETHER = ("messages between nodes overlap those inside a node",)
INNER, OUTER = ("inner_byte_time", "inner_efficiency"), ("outer_byte_time", "outer_efficiency")
LL_BYTES = (*INNER, "inner_ll_rate_ratio", *OUTER, "inter_ll_rate_ratio")
for _returns, _taken, _kernel, _forms, _assumes in (
    ("simple_byte_time", (*INNER, *OUTER), _slower_byte, "ring|tree|nvls_tree|sharp", SLOWEST),
    ("simple_byte_time", (*INNER, *OUTER), _slower_byte, "pairs", TOGETHER),
    ("simple_byte_time", (*INNER, *OUTER), _both_bytes, "message|schedule", ()),
    ("ll_byte_time", LL_BYTES, _slower_ll_byte, "ring|tree", ()),
    ("ll_byte_time", LL_BYTES, _both_ll_bytes, "pairs|message", ()),
):
    _when = {**NODES, "form": _forms}
    declare(_returns, _taken, _kernel, source=OWN, assumes=_assumes, when=_when)


# The ramp: inside of a node, or between nodes; of phases, both.  A tree of more nodes is deeper.


@priced(
    returns="ramp_square",
    assumes=("between nodes a ring is full after its steps, which are counted",),
    when=RING,
)
def ring_ramp_square(total_nodes, ramp_time, inner_byte_time):
    """Pipeline fill of a ring."""
    return xp.where(total_nodes > 1.0, 0.0, ramp_time * inner_byte_time)


def _ramp(levels: Callable[[Array], Array]) -> Callable[..., Array]:
    """Return the kernel of a form that crosses so many levels of nodes."""

    def square(total_nodes, fabric_ramp_steps, inter_node_step_latency, outer, ramp, inner):
        between = levels(total_nodes) * fabric_ramp_steps * inter_node_step_latency * outer
        return xp.where(total_nodes > 1.0, between, ramp * inner)

    return square


TREE_LEVELS, ONE_LEVEL = _ramp(lambda nodes: depth(nodes) / 2.0), _ramp(xp.ones_like)
for _forms, _outer, _ramp_time, _kernel in (
    ("tree", "outer_byte_time", "ramp_time", TREE_LEVELS),
    ("nvls_tree", "simple_byte_time", "nvls_ramp_time", TREE_LEVELS),
    ("sharp", "simple_byte_time", "nvls_ramp_time", ONE_LEVEL),
    ("pairs|message", "outer_byte_time", "sendrecv_ramp_time", ONE_LEVEL),
):
    _between = ("total_nodes", "fabric_ramp_steps", "inter_node_step_latency", _outer)
    _inside, _when = (_ramp_time, "inner_byte_time"), {**NODES, "form": _forms}
    declare("ramp_square", (*_between, *_inside), _kernel, source=OWN, when=_when)


@priced(
    returns="ramp_square",
    assumes=("phases follow one another, each with its ramp",),
    when=SCHEDULED,
)
def phase_ramp_square(
    ramp_time, inner_byte_time, fabric_ramp_steps, inter_node_step_latency, outer_byte_time
):
    """Pipeline fill of phases, one per level."""
    between = xp.sqrt(fabric_ramp_steps * inter_node_step_latency * outer_byte_time)
    return (xp.sqrt(ramp_time * inner_byte_time) + between) ** 2


# Steps: the sum along the path.

RING_STEPS = cited("nccl", "tuning model: a ring's steps inside nodes and between them", when=RING)
TREE_STEPS = cited("nccl", "double binary tree between nodes, chains in them", when=TREE)


@formula(returns="ll_fixed_time", **RING_STEPS)
def ring_ll_fixed_time(ring_passes, node_ranks, total_nodes, step_latency, inter_node_step_latency):
    """Steps of a ring along its path, with LL."""
    inside = total_nodes * (node_ranks - 1.0)
    return ring_passes * (inside * step_latency + (total_nodes - 1.0) * inter_node_step_latency)


@formula(returns="simple_fixed_time", **RING_STEPS)
def ring_simple_fixed_time(
    ranks,
    simple_launch_time,
    ring_passes,
    node_ranks,
    total_nodes,
    step_latency,
    simple_step_factor,
    inter_node_step_latency,
    simple_fabric_factor,
):
    """Entry and steps of a ring along its path, with Simple."""
    step = step_latency * (1.0 + several(total_nodes) * simple_step_factor)
    far = far_latency(inter_node_step_latency, simple_fabric_factor)
    path = total_nodes * (node_ranks - 1.0) * step + (total_nodes - 1.0) * far
    return several(ranks) * simple_launch_time + ring_passes * path


@formula(returns="ll_fixed_time", **TREE_STEPS)
def tree_ll_fixed_time(node_ranks, step_latency, total_nodes, inter_node_step_latency):
    """Steps up a tree and down it, with LL."""
    return 2.0 * (node_ranks - 1.0) * step_latency + depth(total_nodes) * inter_node_step_latency


@formula(returns="simple_fixed_time", **TREE_STEPS)
def tree_simple_fixed_time(
    ranks,
    simple_launch_time,
    node_ranks,
    step_latency,
    total_nodes,
    simple_step_factor,
    inter_node_step_latency,
    simple_fabric_factor,
):
    """Entry and steps up a tree and down it, with Simple."""
    step = step_latency * (1.0 + several(total_nodes) * simple_step_factor)
    far = far_latency(inter_node_step_latency, simple_fabric_factor)
    entry = several(ranks) * simple_launch_time
    return entry + 2.0 * (node_ranks - 1.0) * step + depth(total_nodes) * far


def _nvls_fixed(steps: Callable[[Array], Array]) -> Callable[..., Array]:
    """Return the kernel of NVLS in nodes, and so many steps between them."""

    def time(ranks, node_ranks, gpus_per_host, nvls_time, hosts_time, total_nodes, latency, factor):
        spans = xp.where(node_ranks > gpus_per_host, 1.0, 0.0)
        inside = several(ranks) * (nvls_time + spans * hosts_time)
        return inside + steps(total_nodes) * far_latency(latency, factor)

    return time


for _form, _how, _steps in (
    ("nvls_tree", "trees", depth),
    ("sharp", "SHARP", lambda total_nodes: 2.0 * several(total_nodes)),
):
    declare(
        "simple_fixed_time",
        (
            "ranks",
            "node_ranks",
            "gpus_per_host",
            "nvls_time",
            "nvls_hosts_time",
            "total_nodes",
            "inter_node_step_latency",
            "simple_fabric_factor",
        ),
        _nvls_fixed(_steps),
        source="nccl",
        where=f"NVLS in nodes, {_how} between them",
        when={**NODES, "form": _form},
    )


@priced(returns="ll_fixed_time", when=PAIRS)
def pair_ll_fixed_time(
    ranks,
    sendrecv_launch_time,
    node_ranks,
    sendrecv_step_latency,
    total_nodes,
    inter_node_step_latency,
    peer_time,
):
    """Messages of an exchange node by node, with LL."""
    inside = several(ranks) * sendrecv_launch_time + (node_ranks - 1.0) * sendrecv_step_latency
    return (
        inside
        + several(total_nodes) * inter_node_step_latency
        + peer_time * (node_ranks * (total_nodes - 1.0))
    )


@priced(returns="simple_fixed_time", when=PAIRS)
def pair_simple_fixed_time(
    ranks,
    sendrecv_launch_time,
    node_ranks,
    sendrecv_step_latency,
    total_nodes,
    inter_node_step_latency,
    peer_time,
    sendrecv_simple_time,
):
    """Messages of an exchange node by node, with Simple."""
    messages = pair_ll_fixed_time(
        ranks,
        sendrecv_launch_time,
        node_ranks,
        sendrecv_step_latency,
        total_nodes,
        inter_node_step_latency,
        peer_time,
    )
    return messages + (1.0 - several(total_nodes)) * several(ranks) * sendrecv_simple_time


@priced(returns="ll_fixed_time", when=MESSAGE)
def message_ll_fixed_time(
    sendrecv_launch_time,
    intra_latency_count,
    sendrecv_step_latency,
    inter_latency_count,
    pod_latency_count,
    inter_node_step_latency,
):
    """One message in a node or between nodes, with LL."""
    inside = several(intra_latency_count + 1.0) * sendrecv_launch_time
    inside = inside + intra_latency_count * sendrecv_step_latency
    return inside + (inter_latency_count + pod_latency_count) * inter_node_step_latency


@priced(returns="simple_fixed_time", when=MESSAGE)
def message_simple_fixed_time(
    sendrecv_launch_time,
    sendrecv_simple_time,
    intra_latency_count,
    sendrecv_step_latency,
    inter_latency_count,
    pod_latency_count,
    inter_node_step_latency,
    simple_fabric_factor,
):
    """One message in a node or between nodes, with Simple."""
    inside = several(intra_latency_count + 1.0) * (sendrecv_launch_time + sendrecv_simple_time)
    inside = inside + intra_latency_count * sendrecv_step_latency
    far = far_latency(inter_node_step_latency, simple_fabric_factor)
    return inside + (inter_latency_count + pod_latency_count) * far


@priced(returns="simple_fixed_time", when=SCHEDULED)
def phase_fixed_time(
    ranks,
    simple_launch_time,
    intra_latency_count,
    intra_step_latency,
    inter_latency_count,
    inter_step_latency,
    pod_latency_count,
    pod_step_latency,
):
    """Entry and steps of phases, each at its level's latency."""
    inside = several(ranks) * simple_launch_time + intra_latency_count * intra_step_latency
    return inside + (
        inter_latency_count * inter_step_latency + pod_latency_count * pod_step_latency
    )


@priced(
    returns="copy_byte_time", assumes=("between nodes it hides behind the network",), when=PAIRS
)
def node_pair_copy_byte_time(total_nodes, ranks, sendrecv_copy_rate):
    """Local copy of grouped send/recv."""
    return (1.0 - several(total_nodes)) * several(ranks) / (ranks * sendrecv_copy_rate)
