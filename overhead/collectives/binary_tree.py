"""Collectives on a physical binary tree: a full-duplex link between rank i and rank (i - 1)//2."""

from __future__ import annotations

from functools import partial

from overhead.arrays import xp
from overhead.collectives.algorithm import BOTH, CHUNK, EVERY, ONCE, algorithm, network
from overhead.collectives.cost import Cost, flat, several
from overhead.formula import derived
from overhead.quantity import Array

on_binary_tree = partial(algorithm, "binary_tree")

DEPTH = "floor(log2(ranks))"

network(
    "binary_tree",
    position=7,
    standard={
        **dict.fromkeys(BOTH, "flood"),
        **dict.fromkeys(("all_reduce", "broadcast", "reduce"), "tree_pipe"),
        "all_to_all": "direct",
        "p2p": "direct",
    },
    tree="tree_pipe",
)


# Measures: the distance, the ports, the links and the cut that no schedule can do without.


@derived(
    returns="diameter",
    assumes=("rank i hangs below rank (i - 1)/2",),
    when={
        "topology": "binary_tree",
        "collective": "all_reduce|all_gather|reduce_scatter|all_to_all",
    },
)
def binary_tree_diameter(ranks):
    """Distance between the deepest leaves left and right of the root."""
    right = xp.floor(xp.log2(2.0 * ranks / 3.0))
    return xp.floor(xp.log2(ranks)) + xp.maximum(right, 0.0)


@derived(
    returns="diameter",
    assumes=("the root of the broadcast is the root of the tree",),
    when={"topology": "binary_tree", "collective": "broadcast|reduce|p2p"},
)
def binary_tree_depth(ranks):
    """Distance from the root to the deepest leaf."""
    return xp.floor(xp.log2(ranks))


@derived(returns="links", when={"topology": "binary_tree"})
def tree_links(ranks):
    """Links of a tree, up and down."""
    return xp.maximum(2.0 * (ranks - 1.0), 1.0)


def left_subtree(ranks: Array) -> Array:
    """Return the size of the larger subtree below the root of the binary tree of ranks."""
    depth = xp.floor(xp.log2(ranks))
    below = xp.exp2(xp.maximum(depth - 1.0, 0.0))
    last = xp.minimum(ranks - xp.exp2(depth) + 1.0, below)
    return xp.where(ranks > 1.0, below - 1.0 + last, 0.0)


# Ranks in the larger subtree below the root of the binary tree.
LEFT = (
    "where(ranks > 1, 2**maximum(floor(log2(ranks)) - 1, 0) - 1 + minimum("
    "ranks - 2**floor(log2(ranks)) + 1, 2**maximum(floor(log2(ranks)) - 1, 0)), 0)"
)


@derived(returns="all_to_all_cut_load", when={"topology": "binary_tree"})
def binary_tree_pair_cut(ranks):
    """Load of the link between the root and its larger subtree."""
    below = left_subtree(ranks)
    return xp.asarray(below * (ranks - below) / ranks)


# Algorithms.


def _depth(ranks):
    return xp.floor(xp.log2(ranks))


def _busiest(ranks):
    # Links at the rank that has most: at a root with its children, or with a parent as well.
    return xp.where(ranks > 4.0, 3.0, xp.minimum(ranks - 1.0, 2.0))


@on_binary_tree(
    "all_reduce",
    "tree_pipe",
    time=f"where(ranks > 1, 2*{DEPTH} + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("reduce to the root and broadcast from it overlap, chunk by chunk",),
)
def all_reduce_tree_pipe(ranks, chunks):
    """Reduce to the root and broadcast from it, pipelined over chunks."""
    steps = several(ranks) * (2.0 * _depth(ranks) + chunks - 1.0)
    return flat(
        steps,
        steps / chunks,
        sent=_busiest(ranks),
        carried=2.0 * (ranks - 1.0),
        reduced=xp.minimum(2.0, ranks - 1.0),
    )


@on_binary_tree(
    "broadcast",
    "tree_pipe",
    time=f"where(ranks > 1, {DEPTH} + chunks - 1, 0)*{CHUNK}",
    source="derivation",
    assumes=("the root of the broadcast is the root of the tree",),
    mirrored=True,
)
def broadcast_tree_pipe(ranks, chunks):
    """Down the tree, pipelined over chunks."""
    steps = several(ranks) * (_depth(ranks) + chunks - 1.0)
    return flat(steps, steps / chunks, sent=xp.minimum(2.0, ranks - 1.0), carried=ranks - 1.0)


FLOOD = "a link passes on a block a step, the oldest that it has not carried yet"


def _flood(ranks: Array, sent: Array, reduced: Array) -> Cost:
    steps = ranks - 1.0
    return flat(steps, steps / ranks, sent=sent, carried=steps, reduced=reduced)


@on_binary_tree("reduce_scatter", "flood", source="derivation", assumes=(FLOOD,))
def flood(ranks):
    """Flood: blocks come in from all ranks over all links, added up where they meet."""
    share = (ranks - 1.0) / ranks
    return _flood(ranks, share, _busiest(ranks) - share)


@on_binary_tree("all_gather", "flood", source="derivation", assumes=(FLOOD,))
def all_gather_flood(ranks):
    """Flood: blocks spread over all links, one a step."""
    sent = _busiest(ranks) - (ranks - 1.0) / ranks
    return _flood(ranks, sent, xp.zeros_like(sent))


@on_binary_tree("all_reduce", "flood", source="derivation", assumes=(FLOOD,))
def all_reduce_flood(ranks):
    """Flood: a reduce_scatter, then an all_gather."""
    steps = 2.0 * (ranks - 1.0)
    busiest = _busiest(ranks)
    return flat(
        steps, steps / ranks, sent=busiest, carried=steps, reduced=busiest - (ranks - 1.0) / ranks
    )


# Every pair's message passes the links between its two ranks, so a link carries s (N - s) blocks
# each way if s ranks are below it.  Summed level by level: all subtrees of a level but one are
# complete, and that one holds the last rank.

BITS = 53
INCOMPLETE = " + ".join(
    f"where(ranks >= {2**bit}, ranks % {2**bit}*({2**bit} - 2 - ranks % {2**bit}), 0)"
    for bit in range(1, BITS)
)
PASSED = (
    f"2/ranks*(({DEPTH} + 1)*(ranks*ranks + 3*ranks + 1)"
    f" - (2*2**{DEPTH} - 1)*(4*ranks - 2*2**{DEPTH} + 3) + {INCOMPLETE})*message_bytes"
)


def _passed(ranks):
    """Return how many links all pairs' messages pass together."""
    depth = _depth(ranks)
    complete = (depth + 1.0) * (ranks * ranks + 3.0 * ranks + 1.0)
    total = complete - (2.0 * xp.exp2(depth) - 1.0) * (4.0 * ranks - 2.0 * xp.exp2(depth) + 3.0)
    for bit in range(1, BITS):
        whole = 2.0**bit
        if not xp.any(ranks >= whole):
            break
        rest = ranks % whole
        total = total + xp.where(ranks >= whole, rest * (whole - 2.0 - rest), 0.0)
    return 2.0 * total


@on_binary_tree(
    "all_to_all",
    "direct",
    steps=ONCE,
    time=f"({DEPTH} + maximum(floor(log2(2*ranks/3)), 0))*latency"
    f" + {LEFT}*(ranks - {LEFT})/ranks*message_bytes/bandwidth",
    sent=EVERY,
    carried=PASSED,
    source="derivation",
    assumes=("all messages concurrent, each on its only path",),
)
def direct(ranks):
    """All pairs at once; the link to the root's larger subtree is the busiest."""
    below = left_subtree(ranks)
    return flat(
        several(ranks),
        below * (ranks - below) / ranks,
        latencies=binary_tree_diameter(ranks),
        messages=several(ranks),
        sent=(ranks - 1.0) / ranks,
        carried=_passed(ranks) / ranks,
    )
