"""Collectives on a ring: N ranks, a full-duplex link to each neighbour; two ranks share a cable."""

from __future__ import annotations

from functools import partial

from overhead.arrays import xp
from overhead.collectives.algorithm import BOTH, CHAIN, CHUNK, POWER_OF_TWO, algorithm, network
from overhead.collectives.bounds import across_halves
from overhead.collectives.cost import Cost, flat, several
from overhead.formula import derived
from overhead.quantity import Array

on_ring = partial(algorithm, "ring")
broadcast = partial(on_ring, "broadcast", mirrored=True)

FORWARDS = "store-and-forward of blocks for other ranks"

network(
    "ring",
    position=1,
    standard={
        **dict.fromkeys(("all_reduce", *BOTH), "ring"),
        **dict.fromkeys(("broadcast", "reduce"), "chain"),
        "all_to_all": "shift_bidir",
        "p2p": "direct",
    },
    nccl={"all_to_all": ("shift_min",)},
    tree="tree_pipe",
)


# Measures: the distance, the ports and the cut that no schedule can do without.


@derived(returns="diameter", when={"topology": "ring"})
def ring_diameter(ranks):
    """Distance halfway around the ring."""
    return xp.floor(ranks / 2.0)


@derived(returns="min_degree", when={"topology": "ring"})
def ring_ports(ranks):
    """Links out of a rank of a ring."""
    return xp.where(ranks > 2.0, 2.0, 1.0)


@derived(returns="all_to_all_cut_load", when={"topology": "ring"})
def ring_pair_cut(ranks, min_degree):
    """Load of the ring links at the bisection."""
    return across_halves(ranks) / min_degree


# Algorithms.


def _pairs(ranks):
    """Return the busiest link's load if all pairs exchange blocks the short way, in messages."""
    even = xp.where(ranks == 2.0, 0.5, ranks / 8.0)
    return xp.where(ranks % 2.0 == 0.0, even, (ranks * ranks - 1.0) / (8.0 * ranks))


@on_ring(BOTH, "ring", source="patarasuk2009", assumes=("full-duplex links",), doubled=True)
def bucket(ranks):
    """Ring: each rank passes one block on to its next neighbour in every step."""
    steps = ranks - 1.0
    return flat(steps, steps / ranks, sent=steps / ranks, carried=steps, reduced=steps / ranks)


@on_ring(
    BOTH,
    "ring_split",
    source="scalingbook",
    where="chapter 3 (bandwidth of both directions)",
    assumes=("full-duplex links", "both directions concurrent"),
    doubled=True,
)
def bucket_split(ranks):
    """Two rings, half of the buffer each way round."""
    steps = ranks - 1.0
    share = steps / ranks
    transfer = xp.where(ranks == 2.0, share, share / 2.0)
    return flat(steps, transfer, sent=share, carried=steps, reduced=share)


@on_ring(
    BOTH,
    "ring_short",
    source="scalingbook",
    where="chapter 3 (every block spreads both ways)",
    assumes=("full-duplex links", "both directions concurrent"),
    doubled=True,
)
def bucket_short(ranks):
    """Every block spreads both ways round, half of the ring each."""
    share = (ranks - 1.0) / ranks
    transfer = xp.where(ranks == 2.0, share, share / 2.0)
    steps = xp.floor(ranks / 2.0)
    return flat(steps, transfer, sent=share, carried=ranks - 1.0, reduced=share)


@on_ring(
    "all_gather",
    "rd",
    source="desensi2024",
    where="on the congestion of recursive doubling; the closed form is derived here",
    assumes=("messages to ranks further away pass the links between, and share them",),
    requires=(POWER_OF_TWO,),
)
def all_gather_doubling(ranks):
    """Recursive doubling, its messages routed along the ring."""
    steps = xp.log2(ranks)
    load = (ranks * ranks - 1.0) / 3.0
    return flat(
        steps, load / ranks, latencies=ranks - 1.0, sent=(ranks - 1.0) / ranks, carried=load
    )


@on_ring(
    "all_reduce",
    "tree_pipe",
    time=f"where(ranks > 1, 2*floor(ranks/2) + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("reduce to a centre and broadcast from it overlap, chunk by chunk",),
)
def all_reduce_tree_pipe(ranks, chunks):
    """Reduce to a centre and broadcast from it, pipelined over chunks."""
    steps = several(ranks) * (2.0 * xp.floor(ranks / 2.0) + chunks - 1.0)
    fan = xp.minimum(2.0, ranks - 1.0)
    return flat(steps, steps / chunks, sent=fan, carried=2.0 * (ranks - 1.0), reduced=fan)


@broadcast(
    "chain",
    time=CHAIN,
    source="chan2007",
    assumes=("a rank sends a chunk on while it receives the next",),
)
def broadcast_chain(ranks: Array, chunks: Array) -> Cost:
    """Chain: the chunks follow one another from neighbour to neighbour."""
    steps = several(ranks) * (ranks - 2.0 + chunks)
    return flat(steps, steps / chunks, sent=several(ranks), carried=ranks - 1.0)


@broadcast(
    "tree_pipe",
    time=f"where(ranks > 1, floor(ranks/2) + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("the root sends in both directions concurrently",),
)
def broadcast_tree_pipe(ranks: Array, chunks: Array) -> Cost:
    """Two chains from the root, one each way round, each with every chunk."""
    steps = several(ranks) * (xp.floor(ranks / 2.0) + chunks - 1.0)
    fan = xp.minimum(2.0, ranks - 1.0)
    return flat(steps, steps / chunks, sent=fan, carried=ranks - 1.0)


@broadcast(
    "phased",
    time=f"where(ranks > 1, floor(ranks/2) + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("the root sends in both directions concurrently",),
)
def broadcast_phased(ranks: Array, chunks: Array) -> Cost:
    """Dimension by dimension: on a ring, which has one, the same as the tree."""
    return broadcast_tree_pipe(ranks, chunks)


@broadcast(
    "two_chains",
    time="where(ranks > 1, ranks - 2 + chunks, 0)"
    "*(latency + message_bytes/(where(ranks == 2, 1, 2)*chunks*bandwidth))",
    source="derivation",
    assumes=("both directions concurrent",),
)
def broadcast_two_chains(ranks: Array, chunks: Array) -> Cost:
    """Two chains round the whole ring, half of the buffer each way."""
    steps = several(ranks) * (ranks - 2.0 + chunks)
    ways = xp.where(ranks == 2.0, 1.0, 2.0)
    return flat(steps, steps / (ways * chunks), sent=several(ranks), carried=ranks - 1.0)


@broadcast(
    "binomial",
    source="derivation",
    assumes=("a message passes the links between its ends, whole",),
    requires=(POWER_OF_TWO,),
)
def broadcast_binomial(ranks: Array) -> Cost:
    """Binomial tree, its messages routed along the ring."""
    steps = xp.log2(ranks)
    return flat(steps, steps, latencies=ranks - 1.0, sent=steps, carried=steps * ranks / 2.0)


@on_ring("all_to_all", "shift_uni", source="derivation", assumes=("one direction only",))
def all_to_all_shift_uni(ranks):
    """Shift by 1, 2, .. N - 1 ranks, all one way round."""
    steps = ranks - 1.0
    hops = ranks * steps / 2.0
    return flat(
        steps, steps / 2.0, latencies=hops, messages=steps, sent=steps / ranks, carried=hops
    )


@on_ring(
    "all_to_all",
    "shift_min",
    source="derivation",
    assumes=("each shift the shorter way", "one shift at a time"),
)
def all_to_all_shift_min(ranks):
    """Shift by 1, 2, .. N - 1 ranks, each the shorter way round."""
    steps = ranks - 1.0
    hops = xp.floor(ranks * ranks / 4.0)
    return flat(
        steps, hops / ranks, latencies=hops, messages=steps, sent=steps / ranks, carried=hops
    )


@on_ring(
    "all_to_all",
    "shift_bidir",
    source="scalingbook",
    where="chapter 3 (bandwidth)",
    assumes=("shifts by +r and -r together", "the shift by half of the ring is split both ways"),
)
def all_to_all_shift_bidir(ranks):
    """Shift by r ranks both ways at once, for r = 1 .. N/2."""
    steps = xp.floor(ranks / 2.0)
    hops = steps * (steps + 1.0) / 2.0
    return flat(
        steps,
        _pairs(ranks),
        latencies=hops,
        messages=steps,
        sent=(ranks - 1.0) / ranks,
        carried=xp.floor(ranks * ranks / 4.0),
    )


@on_ring("all_to_all", "fwd_uni", source="derivation", assumes=(FORWARDS,))
def all_to_all_fwd_uni(ranks):
    """Neighbours store and forward, one way round."""
    steps = ranks - 1.0
    return flat(steps, steps / 2.0, sent=steps / 2.0, carried=ranks * steps / 2.0)


@on_ring("all_to_all", "fwd_bidir", source="derivation", assumes=(FORWARDS,))
def all_to_all_fwd_bidir(ranks):
    """Neighbours store and forward, both ways round at once."""
    carried = xp.floor(ranks * ranks / 4.0)
    return flat(xp.floor(ranks / 2.0), _pairs(ranks), sent=carried / ranks, carried=carried)


@on_ring(
    "all_to_all",
    "direct",
    source="derivation",
    assumes=(
        "all messages concurrent, on the shorter path",
        "the message to half of the ring is split",
    ),
)
def all_to_all_direct(ranks):
    """All pairs at once, each message the shorter way round."""
    steps = several(ranks)
    return flat(
        steps,
        _pairs(ranks),
        latencies=xp.floor(ranks / 2.0),
        messages=steps,
        sent=(ranks - 1.0) / ranks,
        carried=xp.floor(ranks * ranks / 4.0),
    )
