"""Collectives on a non-blocking switch: a full-duplex port a rank; also the logical tree on it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from overhead.arrays import select, xp
from overhead.collectives.algorithm import (
    BOTH,
    CHAIN,
    MOST_CHUNKS,
    ONCE,
    POWER_OF_TWO,
    Interval,
    Requirement,
    algorithm,
    network,
)
from overhead.collectives.cost import Cost, Level, flat, several
from overhead.formula import derived
from overhead.quantity import Array
from overhead.special import popcount_sum

on_switch = partial(algorithm, "switch")
by_switch = partial(on_switch, in_network=True)

AT_ONCE = "a rank posts its N - 1 messages concurrently, with one latency in total"
ONE_BY_ONE = "a rank posts its N - 1 messages sequentially, one latency each"

network(
    "tree",
    position=2,
    standard={
        "all_reduce": "dbt",
        **dict.fromkeys(BOTH, "ring"),
        **dict.fromkeys(("broadcast", "reduce"), "chain"),
        "all_to_all": "pairwise",
        "p2p": "direct",
    },
    tree="dbt",
)
network(
    "switch",
    position=4,
    standard={
        **dict.fromkeys(("all_reduce", *BOTH), "ring"),
        **dict.fromkeys(("broadcast", "reduce"), "chain"),
        "all_to_all": "pairwise",
        "p2p": "direct",
    },
    nccl={"all_reduce": ("ring", "dbt", "nvls", "inc"), **dict.fromkeys(BOTH, ("ring", "nvls"))},
    tree="dbt",
)

NVLS = Requirement(
    "no_nvls_in_the_network",
    "the switch must reduce and multicast (NVLS): has_nvls = 1",
    lambda has_nvls: xp.asarray(has_nvls == 1.0),
)
INC = Requirement(
    "no_reduction_in_the_network",
    "the switch must reduce in the network (SHARP): has_inc = 1",
    lambda has_inc: xp.asarray(has_inc == 1.0),
)


# Measures: the distance, the ports and the load that no schedule can do without.


@derived(returns="diameter", when={"topology": "switch|tree"})
def switch_diameter(ranks):
    """Distance through a switch."""
    return xp.where(ranks > 1.0, 1.0, 0.0)


@derived(returns="all_to_all_cut_load", when={"topology": "switch|tree"})
def switch_pair_cut(ranks):
    """Load of a switch port."""
    return (ranks - 1.0) / ranks


# Algorithms.


def levels(ranks: Array) -> Array:
    """Return ceil(log2 N): the levels of a binomial tree over N ranks."""
    return xp.ceil(xp.log2(ranks))


@algorithm(("switch", "tree"), BOTH, "ring", source="thakur2005", form="ring")
def bucket(ranks):
    """Ring: each rank passes one block on to its next neighbour in every step."""
    steps = ranks - 1.0
    return flat(steps, steps / ranks, sent=steps / ranks, carried=steps, reduced=steps / ranks)


@on_switch("all_reduce", "ring", source="patarasuk2009", form="ring")
def all_reduce_ring(ranks):
    """Ring: a reduce_scatter around the ring, then an all_gather."""
    steps = ranks - 1.0
    share = 2.0 * steps / ranks
    return flat(2.0 * steps, share, sent=share, carried=2.0 * steps, reduced=share / 2.0)


@on_switch(BOTH, "halving", source="thakur2005", requires=(POWER_OF_TWO,), doubled=True)
def halving(ranks):
    """Recursive halving (all_gather: doubling) of the blocks that pairs exchange."""
    share = (ranks - 1.0) / ranks
    return flat(xp.log2(ranks), share, sent=share, carried=ranks - 1.0, reduced=share)


@on_switch("all_gather", "bruck", source="bruck1997")
def all_gather_bruck(ranks):
    """Bruck: each rank doubles what it holds in every step, for any number of ranks."""
    share = (ranks - 1.0) / ranks
    return flat(levels(ranks), share, sent=share, carried=ranks - 1.0)


@on_switch(BOTH, "direct", source="derivation", assumes=(AT_ONCE,), doubled=True)
def direct(ranks):
    """Direct: every rank sends to every other at once."""
    share = (ranks - 1.0) / ranks
    return flat(several(ranks), share, sent=share, carried=ranks - 1.0, reduced=share)


@on_switch(BOTH, "direct_serial", source="derivation", assumes=(ONE_BY_ONE,), doubled=True)
def direct_serial(ranks):
    """Direct, its messages posted one after another."""
    return bucket(ranks)


@on_switch(
    "all_reduce",
    "rabenseifner_fold",
    source="thakur2005",
    where="on numbers of ranks that are no power of two (variants differ)",
    assumes=("the ranks beyond the power of two hand their buffers to a partner and back",),
)
def all_reduce_fold(ranks):
    """Recursive halving and doubling on the largest power of two, the rest folded in and out."""
    depth = xp.floor(xp.log2(ranks))
    inner = xp.exp2(depth)
    folded = xp.asarray(ranks > inner, dtype=xp.float64)
    share = (inner - 1.0) / inner
    return flat(
        2.0 * depth + 2.0 * folded,
        2.0 * share + 2.0 * folded,
        sent=2.0 * share + folded,
        carried=2.0 * (inner - 1.0) + 2.0 * (ranks - inner),
        reduced=share + folded,
    )


@on_switch("all_reduce", "doubling", source="thakur2005", requires=(POWER_OF_TWO,))
def all_reduce_doubling(ranks):
    """Recursive doubling: pairs exchange the whole vector."""
    steps = xp.log2(ranks)
    return flat(steps, steps, sent=steps, carried=steps * ranks, reduced=steps)


@on_switch("all_reduce", "oneshot", source="derivation", assumes=(AT_ONCE,))
def all_reduce_oneshot(ranks):
    """One shot: every rank sends its whole buffer to every other at once."""
    others = ranks - 1.0
    return flat(several(ranks), others, sent=others, carried=ranks * others, reduced=others)


@algorithm(("switch", "tree"), "all_reduce", "binomial", source="thakur2005")
def all_reduce_binomial(ranks):
    """Binomial tree: reduce to the root, then broadcast from it."""
    depth = levels(ranks)
    return flat(2.0 * depth, 2.0 * depth, sent=depth, carried=2.0 * (ranks - 1.0), reduced=depth)


# Loads of a port, summed over steps, in half chunks.  With fewer chunks than steps on the way up
# and down some steps are not full; for powers of two it is known by how much.


def _double_tree_pieces(ranks: Array) -> list[Interval]:
    """Return the numbers of chunks on which the load of a double tree's port has one form each."""
    depth = levels(ranks)
    return [
        (1.0, 1.0),
        (2.0, 2.0),
        (3.0, xp.maximum(depth + 1.0, 3.0)),
        (depth + 1.0, xp.maximum(2.0 * depth - 1.0, depth + 1.0)),
        (xp.maximum(2.0 * depth, 1.0), MOST_CHUNKS),
    ]


@algorithm(
    ("switch", "tree"),
    "all_reduce",
    "dbt",
    source="sanders2009",
    where="two trees; the loads of a shared port are derived here",
    assumes=(
        "each tree takes half of the buffer, in chunks",
        "reduce and broadcast overlap and share the port of a rank",
        "an upper bound if the number of ranks is not a power of two and the chunks are few",
    ),
    exact_chunks="(ranks <= 4) | (log2(ranks) == ceil(log2(ranks)))"
    " | (chunks == 1) | (chunks >= 2*ceil(log2(ranks)))",
    pieces=_double_tree_pieces,
)
def all_reduce_dbt(ranks, chunks):
    """Double binary tree, each tree with half of the buffer, pipelined over chunks."""
    depth = levels(ranks)
    there = several(ranks)
    ends = 2.0 * depth
    few = xp.maximum(xp.minimum(chunks - 3.0, ends - 1.0 - chunks), 0.0)
    odd = xp.exp2(xp.floor(xp.log2(xp.maximum(ranks - 1.0, 1.0)))) == ranks - 1.0
    dip = select(
        [xp.exp2(depth) == ranks, odd & ((chunks == 1.0) | (chunks >= ends))],
        [xp.where(chunks == 2.0, 1.0, few), 2.0],
        0.0,
    )
    load = select(
        [ranks == 2.0, ranks == 3.0],
        [2.0 * chunks, xp.where(chunks < 3.0, 4.0 * chunks, 3.0 * chunks + 3.0)],
        4.0 * chunks + 4.0 * depth - 6.0 - dip,
    )
    return flat(
        there * (ends + chunks - 1.0),
        there * load / (2.0 * chunks),
        sent=xp.where(ranks > 3.0, 2.0, there * ranks / 2.0),
        carried=2.0 * (ranks - 1.0),
        reduced=xp.where(ranks > 2.0, 1.0, there / 2.0),
    )


@on_switch("broadcast", "binomial", source="thakur2005", mirrored=True)
def binomial(ranks):
    """Binomial tree: the ranks that have the message double in every step."""
    depth = levels(ranks)
    return flat(depth, depth, sent=depth, carried=ranks - 1.0)


@algorithm(
    ("switch", "tree"),
    "broadcast",
    "chain",
    time=CHAIN,
    source="chan2007",
    assumes=("a rank sends a chunk on while it receives the next",),
    mirrored=True,
)
def chain(ranks, chunks):
    """Chain: the chunks follow one another from rank to rank."""
    steps = several(ranks) * (ranks - 2.0 + chunks)
    return flat(steps, steps / chunks, sent=several(ranks), carried=ranks - 1.0)


@on_switch(
    "broadcast",
    "flat",
    source="derivation",
    assumes=("the root posts its N - 1 messages concurrently, with one latency in total",),
    mirrored=True,
)
def broadcast_flat(ranks):
    """Flat: the root sends to every other rank at once."""
    return flat(several(ranks), ranks - 1.0, sent=ranks - 1.0, carried=ranks - 1.0)


@algorithm(("switch", "tree"), "all_to_all", "pairwise", source="thakur2005", form="pairs")
def all_to_all_pairwise(ranks):
    """Pairwise exchange: with one other rank in every step."""
    return bucket(ranks)


@on_switch("all_to_all", "direct", source="derivation", assumes=(AT_ONCE,))
def all_to_all_direct(ranks):
    """Direct: every rank sends to every other at once."""
    return direct(ranks)


@on_switch("all_to_all", "direct_serial", source="derivation", assumes=(ONE_BY_ONE,))
def all_to_all_direct_serial(ranks):
    """Direct, its messages posted one after another."""
    return bucket(ranks)


@on_switch("all_to_all", "bruck", source="bruck1997")
def all_to_all_bruck(ranks):
    """Bruck: blocks travel by the bits of their distance, several to a message."""
    blocks = popcount_sum(ranks)
    return flat(levels(ranks), blocks / ranks, sent=blocks / ranks, carried=blocks)


# Collectives that a switch takes part in: it reduces in the network (SHARP), or for NVLS.
#
# With NVLS a rank reads a slice through the switch, which adds up all ranks' copies of it on the
# way, and writes a slice to all ranks, itself included, through the switch, which multicasts it.
# Bytes over links count once a message that passes the switch, half for each of its two ports.

STREAMED = "the switch relays bytes as they arrive (cut-through)"
PASSES = "bytes stream: a rank writes while it reads; a latency to read, and one to write"


def streamed(passes: Array, transfer: Array, sent: Array, carried: Array) -> Cost:
    """Return the cost of passes through the switch: a latency each, whatever its chunks."""
    return Cost(passes, sent, (Level(passes, passes, transfer, carried),), apart=0.0)


@by_switch("all_reduce", "inc", source="sharp2016", assumes=(STREAMED,), requires=(INC,))
def all_reduce(ranks):
    """The switch adds up what comes in and streams the sum out."""
    there = several(ranks)
    return streamed(there, there, there, there * ranks)


@by_switch(
    "all_reduce",
    "inc_pipe",
    time=f"{ONCE}*(chunks + 1)*(in_network_latency/2 + message_bytes/(chunks*bandwidth))",
    source="derivation",
    assumes=("the switch stores a chunk and sends its sum in the next step",),
    requires=(INC,),
)
def all_reduce_stored(ranks, chunks):
    """The switch adds up chunk by chunk, and sends a chunk when it has it whole."""
    there = several(ranks)
    steps = there * (chunks + 1.0)
    return flat(
        steps,
        steps / chunks,
        messages=steps / 2.0,
        sent=there,
        carried=there * ranks,
    )


@by_switch(
    "all_reduce",
    "nvls",
    source="derivation",
    assumes=(PASSES, STREAMED),
    requires=(NVLS,),
    form="nvls",
)
def all_reduce_nvls(ranks):
    """NVLS: each rank reads the sum of its slice and writes it to all, both at once."""
    there = several(ranks)
    share = there * (1.0 + 1.0 / ranks)
    return streamed(2.0 * there, share, share, there * (ranks + 1.0))


@by_switch("reduce_scatter", "nvls", source="derivation", assumes=(STREAMED,), requires=(NVLS,))
def reduce_scatter_nvls(ranks):
    """NVLS: each rank reads the sum of its slice; all must give the whole buffer."""
    there = several(ranks)
    return streamed(there, there, there, there * (ranks + 1.0) / 2.0)


@by_switch("all_gather", "nvls", source="derivation", assumes=(STREAMED,), requires=(NVLS,))
def all_gather_nvls(ranks):
    """NVLS: each rank writes its slice to all; all must take in the whole buffer."""
    there = several(ranks)
    return streamed(there, there, there / ranks, there * (ranks + 1.0) / 2.0)


@by_switch("broadcast", "inc", source="sharp2016", assumes=(STREAMED,), requires=(INC,))
def broadcast(ranks):
    """The switch multicasts what the root sends."""
    there = several(ranks)
    return streamed(there, there, there, there * ranks / 2.0)


@by_switch(
    "reduce",
    "inc",
    source="sharp2016",
    assumes=(STREAMED, "the root sends its buffer to the switch as well"),
    requires=(INC,),
)
def reduce(ranks):
    """The switch adds up what all send and streams the sum to the root."""
    there = several(ranks)
    return streamed(there, there, there, there * (ranks + 1.0) / 2.0)


# Broadcasts on a switch that scatter the message first and gather it then (van de Geijn).

LONG = "long vectors; also Thakur, Rabenseifner and Gropp 2005"


def scatter(ranks: Array) -> Cost:
    """Return the cost of a binomial scatter: a holder gives half of its pieces away a step."""
    share = (ranks - 1.0) / ranks
    carried = popcount_sum(ranks) / ranks
    return flat(levels(ranks), share, sent=share, carried=carried)


def _broadcast(gather: Cost, ranks: Array) -> Cost:
    first = scatter(ranks)
    return flat(
        first.steps + gather.steps,
        2.0 * first.sent,
        sent=2.0 * first.sent,
        carried=ranks - 1.0 + first.levels[0].carried,
    )


def _reduce(gather: Cost, ranks: Array) -> Cost:
    """Return the cost of a reduce: reduce_scatter, then the scatter's way back, adding nothing."""
    there = _broadcast(gather, ranks)
    share = (ranks - 1.0) / ranks
    sent = share + xp.floor(ranks / 2.0) / ranks
    return replace(there, sent=sent, reduced=share)


@on_switch("broadcast", "vdg_ring", source="barnett1994", where=LONG)
def vdg_ring(ranks):
    """Binomial scatter, then a ring all_gather."""
    return _broadcast(bucket(ranks), ranks)


@on_switch("reduce", "vdg_ring", source="barnett1994", where=LONG)
def reduce_vdg_ring(ranks):
    """Ring reduce_scatter, then a binomial gather."""
    return _reduce(bucket(ranks), ranks)


@on_switch(
    "broadcast",
    "vdg_doubling",
    steps="2*log2(ranks)",
    source="barnett1994",
    where="long vectors; also Chan et al. 2007",
    requires=(POWER_OF_TWO,),
)
def vdg_doubling(ranks):
    """Binomial scatter, then an all_gather by recursive doubling."""
    return _broadcast(halving(ranks), ranks)


@on_switch(
    "reduce",
    "vdg_doubling",
    steps="2*log2(ranks)",
    source="barnett1994",
    where="long vectors; also Chan et al. 2007",
    requires=(POWER_OF_TWO,),
)
def reduce_vdg_doubling(ranks):
    """Reduce_scatter by recursive halving, then a binomial gather."""
    return _reduce(halving(ranks), ranks)
