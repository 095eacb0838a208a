"""Collectives on nodes of GPUs, and pods of nodes: phase by phase, a level at a time.

A reduce_scatter works from the innermost level outwards on a buffer that shrinks, an all_gather
back.  Between nodes, ranks at the same place in their nodes form a rail; a network card serves
`ranks_sharing_nic` of them, so that each gets that part of its bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from overhead.arrays import select, xp
from overhead.collectives import switch
from overhead.collectives.algorithm import BOTH, EVERY, MINIMAL, algorithm, network
from overhead.collectives.cost import (
    STEP_PRICES,
    Cost,
    Level,
    Number,
    flat,
    scale,
    several,
    stack,
)
from overhead.collectives.levels import NODES_FILLED, NODES_POWER_OF_TWO, PODS_FILLED, TWO_LEVELS
from overhead.quantity import Array

on_nodes = partial(algorithm, "hierarchical")
on_rails = partial(on_nodes, BOTH, sent=EVERY, carried=MINIMAL, source="derivation", doubled=True)

RAILS = "ranks of a node exchange with ranks of the same local index in other nodes"
POSTED = "in a node all messages are posted concurrently"
CARD = "ranks that share one NIC get equal parts of its bandwidth"
PHASES = "phases on different levels are sequential"

# Time of the whole message over a link of each level.
WIRES = (
    "message_bytes/intra_bandwidth",
    "message_bytes*effective_oversubscription/inter_bandwidth",
    "message_bytes*pod_oversubscription/pod_bandwidth",
)

# Messages through a network card when one rank of the group in each node sends: more than one if
# ranks of other groups in the node, which do the same, share the card.
CROWD = "maximum(1, ranks_sharing_nic/node_ranks)"

# NCCL's logarithmic all_gather and reduce_scatter work with one GPU a node only, and are left out.
network(
    "hierarchical",
    position=3,
    standard={
        **dict.fromkeys(("all_reduce", *BOTH), "ring_ring"),
        **dict.fromkeys(("broadcast", "reduce"), "chain"),
        "all_to_all": "two_phase",
        "p2p": "direct",
    },
    nccl={
        "all_reduce": ("ring_path", "tree_path", "nvls_tree"),
        **dict.fromkeys(BOTH, ("ring_path",)),
        "all_to_all": ("node_pairwise",),
    },
    requires=(NODES_FILLED, PODS_FILLED),
)


Kernel = Callable[[Array], Cost]
Levels = tuple[Array, Array, Array]


def crowd(node_ranks: Array, ranks_sharing_nic: Array) -> Array:
    """Return the messages through a network card when one rank of the group in a node sends."""
    return xp.maximum(1.0, ranks_sharing_nic / node_ranks)


def shared(cost: Cost, messages: Array) -> Cost:
    """Return the cost where so many equal messages share a link."""
    levels = tuple(replace(level, transfer=level.transfer * messages) for level in cost.levels)
    return replace(cost, levels=levels)


def _phases(
    inner: Kernel,
    outer: Kernel,
    sizes: Levels,
    ranks_sharing_nic: Array,
    shares: tuple[Number, ...],
) -> Cost:
    """Return the cost of `inner` in the nodes and of `outer` along the rails, on so much of M."""
    node_ranks, nodes, pods = sizes
    return stack(
        [
            scale(inner(node_ranks), shares[0], nodes * pods),
            shared(scale(outer(nodes), shares[1], node_ranks * pods), ranks_sharing_nic),
            shared(scale(outer(pods), shares[2], node_ranks * nodes), ranks_sharing_nic),
        ]
    )


def _shrinking(
    inner: Kernel,
    outer: Kernel,
    node_ranks: Array,
    nodes: Array,
    pods: Array,
    ranks_sharing_nic: Array,
) -> Cost:
    """Return the cost of phases each of which works on what is left of the buffer."""
    shares = (1.0, 1.0 / node_ranks, 1.0 / (node_ranks * nodes))
    return _phases(inner, outer, (node_ranks, nodes, pods), ranks_sharing_nic, shares)


@on_rails("ring_ring", assumes=(RAILS, CARD, PHASES))
def ring_ring(node_ranks, nodes, pods, ranks_sharing_nic):
    """Ring in every node, then rings along the rails."""
    return _shrinking(switch.bucket, switch.bucket, node_ranks, nodes, pods, ranks_sharing_nic)


@on_rails("ring_halving", assumes=(RAILS, CARD, PHASES), requires=(NODES_POWER_OF_TWO,))
def ring_halving(node_ranks, nodes, pods, ranks_sharing_nic):
    """Ring in every node, then recursive halving (all_gather: doubling) along the rails."""
    return _shrinking(switch.bucket, switch.halving, node_ranks, nodes, pods, ranks_sharing_nic)


@on_rails("direct_ring", assumes=(RAILS, CARD, PHASES, POSTED))
def direct_ring(node_ranks, nodes, pods, ranks_sharing_nic):
    """All-to-all within a node, then rings along the rails."""
    return _shrinking(switch.direct, switch.bucket, node_ranks, nodes, pods, ranks_sharing_nic)


@on_rails("direct_halving", assumes=(RAILS, CARD, PHASES, POSTED), requires=(NODES_POWER_OF_TWO,))
def direct_halving(node_ranks, nodes, pods, ranks_sharing_nic):
    """All-to-all within a node, then recursive halving (all_gather: doubling) on the rails."""
    return _shrinking(switch.direct, switch.halving, node_ranks, nodes, pods, ranks_sharing_nic)


# From the inside outwards an all_gather's buffer has grown before it leaves the node.

GROWN = "(node_ranks - 1)/ranks + (nodes - 1)/(nodes*pods) + (pods - 1)/pods"


@on_nodes(
    "all_gather",
    "intra_inter",
    carried=f"ranks*({GROWN})*message_bytes",
    source="derivation",
    assumes=("every rank of a node fetches the missing data of the node", CARD, PHASES),
)
def all_gather_intra_inter(node_ranks, nodes, pods, ranks_sharing_nic):
    """Ring in every node first, then rings along the rails, with all that the node has."""
    sizes, shares = (node_ranks, nodes, pods), (1.0 / (nodes * pods), 1.0 / pods, 1.0)
    return _phases(switch.bucket, switch.bucket, sizes, ranks_sharing_nic, shares)


@on_nodes(
    "all_to_all",
    "two_phase",
    source="derivation",
    where="what NCCL does where it forwards through a GPU on the receiver's rail (PXN)",
    assumes=("blocks go to the rank on the receiver's rail first", CARD, PHASES),
)
def two_phase(node_ranks, nodes, pods, ranks_sharing_nic):
    """Pairwise exchange in every node, then along the rails, level by level."""
    sizes, shares = (node_ranks, nodes, pods), (1.0, 1.0, 1.0)
    return _phases(switch.bucket, switch.bucket, sizes, ranks_sharing_nic, shares)


# Pairwise all_to_all on nodes of GPUs: in step r every rank sends to the rank r further on.
#
# Step r has messages inside nodes if r or N - r is below the ranks of a node, and lasts as long as
# the slower of both levels.  Through a network card go as many messages as ranks at it have their
# partner outside: r of them in the first steps, until all have.


def _messages(steps, ranks):
    """Return the sum over r = 1 .. steps of min(r, ranks): messages through a network card."""
    growing = xp.minimum(steps, xp.floor(ranks))
    return xp.asarray(growing * (growing + 1.0) / 2.0 + (steps - growing) * ranks)


def _last_rise(total: Callable[[Array], Array], most: Array) -> Array:
    """Return the whole number from 0 to `most` at which a concave function is largest."""
    low, high = xp.zeros_like(most), most
    for _ in range(MOST_HALVINGS):
        middle = xp.floor((low + high) / 2.0)
        rises = (middle < high) & (total(middle + 1.0) > total(middle))
        low, high = xp.where(rises, middle + 1.0, low), xp.where(rises, high, middle)
    return low


# Halvings that leave one of the ranks of any node.
MOST_HALVINGS = 16

# A step inside nodes, one between nodes in which every rank's partner is outside, what the first
# takes longer than latency between nodes, and a message's time through a network card.
INTRA = f"(intra_latency + {WIRES[0]}/ranks)"
INTER = f"(inter_latency + ranks_sharing_nic*{WIRES[1]}/ranks)"
LONGER = f"({INTRA} - inter_latency)"
PASS = f"({CROWD}*{WIRES[1]}/ranks)"
# In the first so many steps messages through a card grow by one a step, and in the first so many
# of those the step is slower inside nodes.
GROWING = "minimum(node_ranks - 1, floor(ranks_sharing_nic))"
SLOWER = (
    f"where({INTRA} <= inter_latency, 0, where({INTRA} >= {INTER}, {GROWING},"
    f" minimum({GROWING}, floor({LONGER}/{PASS}))))"
)
MIXED = (
    f"(node_ranks - 1)*{INTRA} - ({GROWING} - {SLOWER})*{LONGER}"
    f" + ({GROWING}*({GROWING} + 1) - {SLOWER}*({SLOWER} + 1))/2*{PASS}"
    f" + (node_ranks - 1 - {GROWING})*maximum({INTER} - {INTRA}, 0*{INTRA})"
)


@on_nodes(
    "all_to_all",
    "flat_pairwise",
    time=f"where(nodes > 1, 2*({MIXED}) + (ranks - 2*node_ranks + 1)*{INTER}, (ranks - 1)*{INTRA})",
    steps="ranks - 1",
    sent=EVERY,
    carried=MINIMAL,
    source="derivation",
    where="NCCL's exchange, shift by shift",
    assumes=("a shift begins when the one before has ended",),
    requires=(TWO_LEVELS,),
)
def flat_pairwise(
    node_ranks,
    nodes,
    pods,
    ranks_sharing_nic,
    intra_step_latency,
    intra_step_serialization_time,
    inter_step_latency,
    inter_step_serialization_time,
    intra_step_ramp_time,
    inter_step_ramp_time,
):
    """Shift by 1, 2, .. ranks, whether in a node or between nodes."""
    ranks = node_ranks * nodes * pods
    others = node_ranks - 1.0
    at_card = xp.minimum(ranks_sharing_nic, node_ranks)
    crowded = crowd(node_ranks, ranks_sharing_nic)
    inside = intra_step_latency + intra_step_serialization_time / ranks
    wire = inter_step_serialization_time / ranks
    # A step with r messages through a network card is slower inside nodes while r stays below.
    wire_time = crowded * wire
    limit = xp.floor((inside - inter_step_latency) / xp.where(wire_time > 0.0, wire_time, 1.0))
    slower = select(
        [inside <= inter_step_latency, inside >= inter_step_latency + ranks_sharing_nic * wire],
        [0.0, others],
        xp.minimum(limit, others),
    )
    apart = ranks - 2.0 * node_ranks + 1.0
    between = nodes > 1.0

    def passed_by(slower: Array) -> Array:
        """Return the messages through a network card, so many steps slower inside nodes."""
        mixed = crowded * (_messages(others, at_card) - _messages(slower, at_card))
        return 2.0 * mixed + apart * ranks_sharing_nic

    def total(slower: Array) -> Array:
        """Return what depends on how many steps are slower inside nodes, ramps included."""
        passed = passed_by(slower)
        straight = 2.0 * slower * (inside - inter_step_latency) + passed * wire
        near = xp.sqrt(intra_step_ramp_time * 2.0 * slower * intra_step_serialization_time / ranks)
        return straight + near + xp.sqrt(inter_step_ramp_time * passed * wire)

    if xp.any(intra_step_ramp_time + inter_step_ramp_time > 0.0):
        # All steps wait for the slowest, the ramps of all included: the total is concave.
        slower = _last_rise(total, others)
    intra_steps = xp.where(between, 2.0 * slower, ranks - 1.0)
    inter_steps = xp.where(between, ranks - 1.0 - intra_steps, 0.0)
    passed = xp.where(between, passed_by(slower), 0.0)
    sent = (ranks - 1.0) / ranks
    levels = (
        Level(intra_steps, intra_steps, intra_steps / ranks, others + 0.0 * ranks),
        Level(inter_steps, inter_steps, passed / ranks, ranks - node_ranks),
        Level(0.0 * ranks, 0.0 * ranks, 0.0 * ranks, 0.0 * ranks),
    )
    return Cost(ranks - 1.0, sent, levels, apart=0.0)


# Broadcasts on nodes of GPUs, and pods of nodes, and the reduces that mirror them.

INWARDS = "between pods first, then between nodes, then in every node"
ALONE = "one rank per node sends, through one NIC"


def _inwards(
    kernel: Kernel, node_ranks: Array, nodes: Array, pods: Array, ranks_sharing_nic: Array
) -> Cost:
    """Return the cost of a broadcast between pods, in each between nodes, in each of those."""
    messages = crowd(node_ranks, ranks_sharing_nic)
    between_nodes = scale(shared(kernel(nodes), messages), 1.0, pods)
    between_pods = shared(kernel(pods), messages)
    return stack([scale(kernel(node_ranks), 1.0, nodes * pods), between_nodes, between_pods])


@on_nodes(
    "broadcast",
    "binomial",
    carried=MINIMAL,
    source="derivation",
    assumes=(INWARDS, ALONE),
    mirrored=True,
)
def binomial(node_ranks, nodes, pods, ranks_sharing_nic):
    """Binomial trees, level by level inwards."""
    return _inwards(switch.binomial, node_ranks, nodes, pods, ranks_sharing_nic)


LINKS = "where({n} > 1, {n} - 2 + chunks, 0)"
CHAINS = [LINKS.format(n=size) for size in ("node_ranks", "nodes", "pods")]


@on_nodes(
    "broadcast",
    "chain",
    time=f"{CHAINS[2]}*(pod_latency + {CROWD}*{WIRES[2]}/chunks)"
    f" + {CHAINS[1]}*(inter_latency + {CROWD}*{WIRES[1]}/chunks)"
    f" + {CHAINS[0]}*(intra_latency + {WIRES[0]}/chunks)",
    carried=MINIMAL,
    source="derivation",
    assumes=(INWARDS, ALONE, "a level begins when the one outside of it has ended"),
    mirrored=True,
)
def chain(node_ranks, nodes, pods, ranks_sharing_nic, chunks):
    """Chains, level by level inwards, pipelined over chunks on each level."""

    def one(size: Array) -> Cost:
        return switch.chain(size, chunks)

    return _inwards(one, node_ranks, nodes, pods, ranks_sharing_nic)


RAILS_CARRIED = "(ranks - 1 + popcount_sum(node_ranks)/node_ranks)*message_bytes"
RAIL_TREES = (
    "the root's node scatters, ranks at the same place in their nodes broadcast a piece each",
    CARD,
)


@on_nodes(
    "broadcast", "scatter_rails", carried=RAILS_CARRIED, source="derivation", assumes=RAIL_TREES
)
def scatter_rails(node_ranks, nodes, pods, ranks_sharing_nic):
    """Scatter in the root's node, broadcasts along the rails, an all_gather in every node."""
    first = switch.scatter(node_ranks)
    last = switch.bucket(node_ranks)
    node = flat(
        first.steps + last.steps,
        first.levels[0].transfer + last.levels[0].transfer,
        sent=first.sent + last.sent,
        carried=first.levels[0].carried + nodes * pods * last.levels[0].carried,
    )
    piece = 1.0 / node_ranks
    between_nodes = scale(switch.binomial(nodes), piece, node_ranks * pods)
    between_pods = scale(switch.binomial(pods), piece, node_ranks)
    return stack(
        [node, shared(between_nodes, ranks_sharing_nic), shared(between_pods, ranks_sharing_nic)]
    )


@on_nodes(
    "reduce",
    "scatter_rails",
    carried=RAILS_CARRIED,
    source="derivation",
    assumes=("the broadcast reversed; at the root, the node only gathers", CARD),
)
def reduce_scatter_rails(node_ranks, nodes, pods, ranks_sharing_nic):
    """Reduce_scatter in every node, reduces along the rails, a gather in the root's node."""
    there = scatter_rails(node_ranks, nodes, pods, ranks_sharing_nic)
    depth = switch.levels(node_ranks)
    subtree = xp.maximum(node_ranks - xp.exp2(depth - 1.0), xp.exp2(depth - 2.0))
    pieces = several(node_ranks) * subtree
    sent = node_ranks - 1.0 + xp.maximum(several(nodes * pods), pieces)
    reduced = node_ranks - 1.0 + switch.levels(nodes) + switch.levels(pods)
    return Cost(there.steps, sent / node_ranks, there.levels, reduced / node_ranks)


# Collectives on a hierarchy that take it for flat: each step lasts as long as its slowest level.
#
# A step's messages go over links of all levels at once.  The slowest level gets all of the step's
# time, so that these costs depend on latencies, bandwidths and the message.  Where there is one pod
# the quantities of its level may have any value.

ABSENT = -1.0
# What a step takes on each level, as it is paid.
PAID = tuple(name for names in STEP_PRICES for name in names)


def slowest(intra: Array, inter: Array, pod: Array) -> Levels:
    """Return for each level 1.0 where it is the slowest, else 0.0; of equals the outermost."""
    outermost = (pod >= inter) & (pod >= intra)
    middle = ~outermost & (inter >= intra)
    innermost = ~outermost & ~middle
    return (
        xp.asarray(innermost, dtype=xp.float64),
        xp.asarray(middle, dtype=xp.float64),
        xp.asarray(outermost, dtype=xp.float64),
    )


def _cost(
    steps: Array, sizes: Levels, shares: Levels, carried: Levels, links: Mapping[str, Array]
) -> Cost:
    """Return the cost of equal steps, each as long as the slowest level that has messages."""
    prices = [[links[name] for name in names] for names in STEP_PRICES]
    times = (
        xp.where(size > 1.0, step_time(share, steps, *paid), ABSENT)
        for paid, size, share in zip(prices, sizes, shares, strict=True)
    )
    levels = tuple(
        Level(steps * here, steps * here, steps * here * share, passed)
        for here, share, passed in zip(slowest(*times), shares, carried, strict=True)
    )
    ranks = sizes[0] * sizes[1] * sizes[2]
    sent = (ranks - 1.0) / ranks
    return Cost(steps, sent, levels, sent, apart=0.0)


def step_time(
    share: Array, steps: Array, latency: Array, serialization_time: Array, ramp_time: Array
) -> Array:
    """Return the time of one of equal steps on a level, its part of the ramp of all included."""
    wire = share * serialization_time
    ramp = xp.sqrt(ramp_time * wire / xp.maximum(steps, 1.0))
    return latency + wire + ramp


def _ring(sizes: Levels, shares: Levels, links: Mapping[str, Array]) -> Cost:
    """Return the cost of rings through all ranks, in steps that move such a share of a buffer."""
    ranks = sizes[0] * sizes[1] * sizes[2]
    inside, between_nodes, between_pods = edges(*sizes)
    sent = (ranks - 1.0) / ranks
    carried = (inside * sent, between_nodes * sent, between_pods * sent)
    return _cost(ranks - 1.0, sizes, shares, carried, links)


def edges(node_ranks: Array, nodes: Array, pods: Array) -> Levels:
    """Return the edges of a ring through all ranks on each level."""
    groups = nodes * pods
    intra = xp.where(groups > 1.0, groups * (node_ranks - 1.0), node_ranks)
    inter = xp.where(pods > 1.0, pods * (nodes - 1.0), xp.where(nodes > 1.0, nodes, 0.0))
    return intra, inter, xp.where(pods > 1.0, pods, 0.0)


def _step(terms: tuple[str, str, str]) -> str:
    """Return the expression of a step's time from those of its levels, where they are."""
    sizes = ("node_ranks", "nodes", "pods")
    intra, inter, pod = (
        f"where({size} > 1, {term}, 0)" for size, term in zip(sizes, terms, strict=True)
    )
    return f"maximum(maximum({intra}, {inter}), {pod})"


RING_STEP = _step(
    (
        f"intra_latency + {WIRES[0]}/ranks",
        f"inter_latency + {CROWD}*{WIRES[1]}/ranks",
        f"pod_latency + {CROWD}*{WIRES[2]}/ranks",
    )
)


@on_nodes(
    BOTH,
    "flat_ring",
    time=f"(ranks - 1)*{RING_STEP}",
    carried=MINIMAL,
    source="derivation",
    assumes=("one ring, node after node; it leaves a node through one NIC",),
    links=PAID,
    doubled=True,
)
def flat_ring(node_ranks, nodes, pods, ranks_sharing_nic, **links):
    """One ring through all ranks, node after node."""
    ranks = node_ranks * nodes * pods
    share = 1.0 / ranks
    crowded = share * crowd(node_ranks, ranks_sharing_nic)
    return _ring((node_ranks, nodes, pods), (share, crowded, crowded), links)


# Of a node's rings all but one go on inside of it at any rank; with one node all do.
INSIDE = "where(nodes*pods > 1, (node_ranks - 1)/node_ranks, 1)"
CHANNELS_STEP = _step(
    (
        f"intra_latency + {INSIDE}*{WIRES[0]}/ranks",
        f"inter_latency + ranks_sharing_nic/node_ranks*{WIRES[1]}/ranks",
        f"pod_latency + ranks_sharing_nic/node_ranks*{WIRES[2]}/ranks",
    )
)


@on_nodes(
    BOTH,
    "flat_ring_channels",
    time=f"(ranks - 1)*{CHANNELS_STEP}",
    carried=MINIMAL,
    source="derivation",
    where="what NCCL does: a ring a channel, each leaving a node by another network card",
    assumes=("as many rings as ranks in a node, each with its part of the buffer",),
    links=PAID,
    doubled=True,
)
def flat_ring_channels(node_ranks, nodes, pods, ranks_sharing_nic, **links):
    """Rings through all ranks, as many as a node has ranks, each entering nodes at another."""
    ranks = node_ranks * nodes * pods
    inside = xp.where(nodes * pods > 1.0, (node_ranks - 1.0) / node_ranks, 1.0) / ranks
    outside = ranks_sharing_nic / (node_ranks * ranks)
    return _ring((node_ranks, nodes, pods), (inside, outside, outside), links)


DIRECT_STEP = _step(
    (
        f"intra_latency + (node_ranks - 1)/ranks*{WIRES[0]}",
        f"inter_latency + ranks_sharing_nic*(nodes - 1)*node_ranks/ranks*{WIRES[1]}",
        f"pod_latency + ranks_sharing_nic*(pods - 1)/pods*{WIRES[2]}",
    )
)


@on_nodes(
    "all_to_all",
    "flat_direct",
    time=DIRECT_STEP,
    carried=MINIMAL,
    source="derivation",
    assumes=("a rank posts all messages concurrently, one latency per level",),
    links=PAID,
)
def all_to_all_direct(node_ranks, nodes, pods, ranks_sharing_nic, **links):
    """All pairs at once, each message straight over the level at which its ranks meet."""
    ranks = node_ranks * nodes * pods
    inside = (node_ranks - 1.0) / ranks
    outside = (nodes - 1.0) * node_ranks / ranks
    far = (pods - 1.0) / pods
    shares = (inside, ranks_sharing_nic * outside, ranks_sharing_nic * far)
    carried = (ranks * inside, ranks * outside, ranks * far)
    return _cost(several(ranks), (node_ranks, nodes, pods), shares, carried, links)
