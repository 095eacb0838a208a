"""Collectives that a switch takes part in: it reduces in the network (SHARP), or for NVLS.

With NVLS a rank reads a slice through the switch, which adds up all ranks' copies of it on the
way, and writes a slice to all ranks, itself included, through the switch, which multicasts it.
Bytes over links count once a message that passes the switch, half for each of its two ports.
"""

from __future__ import annotations

from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat, several
from overhead.collectives.requirement import INC, NVLS
from overhead.quantity import Array

__all__ = ["all_reduce", "all_reduce_nvls", "broadcast"]

ONCE = "where(ranks > 1, 1, 0)"
SENT = f"{ONCE}*message_bytes"
TIME = f"{ONCE}*(in_network_latency + message_bytes/bandwidth)"
STREAMED = "the switch passes on what comes in as it comes in"


@algorithm(
    "switch",
    "all_reduce",
    "inc",
    steps=ONCE,
    time=TIME,
    sent=SENT,
    carried=f"{ONCE}*ranks*message_bytes",
    source="sharp2016",
    assumes=(STREAMED,),
    requires=(INC,),
    in_network=True,
)
def all_reduce(ranks: Array) -> Cost:
    """The switch adds up what comes in and streams the sum out."""
    there = several(ranks)
    return flat(there, there, sent=there, carried=there * ranks)


@algorithm(
    "switch",
    "all_reduce",
    "inc_pipe",
    steps=f"{ONCE}*(chunks + 1)",
    time=f"{ONCE}*(chunks + 1)*(in_network_latency/2 + message_bytes/(chunks*bandwidth))",
    sent=SENT,
    carried=f"{ONCE}*ranks*message_bytes",
    source="derivation",
    assumes=("the switch stores a chunk and sends its sum in the next step",),
    requires=(INC,),
    in_network=True,
)
def all_reduce_stored(ranks: Array, chunks: Array) -> Cost:
    """The switch adds up chunk by chunk, and sends a chunk when it has it whole."""
    there = several(ranks)
    steps = there * (chunks + 1.0)
    return flat(
        steps,
        steps / chunks,
        latencies=steps / 2.0,
        messages=steps / 2.0,
        sent=there,
        carried=there * ranks,
    )


@algorithm(
    "switch",
    "all_reduce",
    "nvls",
    steps=f"{ONCE}*(chunks + 1)",
    time=f"{ONCE}*((chunks + 1)*in_network_latency"
    " + (2 + (chunks - 1)*(1 + 1/ranks))*message_bytes/(chunks*bandwidth))",
    sent=f"{ONCE}*(1 + 1/ranks)*message_bytes",
    carried=f"{ONCE}*(ranks + 1)*message_bytes",
    source="derivation",
    assumes=("a chunk is read while the one before is written", STREAMED),
    requires=(NVLS,),
    in_network=True,
)
def all_reduce_nvls(ranks: Array, chunks: Array) -> Cost:
    """NVLS: each rank reads the sum of its slice and writes it to all, pipelined over chunks."""
    there = several(ranks)
    share = 1.0 + 1.0 / ranks
    return flat(
        there * (chunks + 1.0),
        there * (2.0 + (chunks - 1.0) * share) / chunks,
        sent=there * share,
        carried=there * (ranks + 1.0),
    )


@algorithm(
    "switch",
    "reduce_scatter",
    "nvls",
    steps=ONCE,
    time=TIME,
    sent=SENT,
    carried=f"{ONCE}*(ranks + 1)/2*message_bytes",
    source="derivation",
    assumes=(STREAMED,),
    requires=(NVLS,),
    in_network=True,
)
def reduce_scatter_nvls(ranks: Array) -> Cost:
    """NVLS: each rank reads the sum of its slice; all must give the whole buffer."""
    there = several(ranks)
    return flat(there, there, sent=there, carried=there * (ranks + 1.0) / 2.0)


@algorithm(
    "switch",
    "all_gather",
    "nvls",
    steps=ONCE,
    time=TIME,
    sent=f"{SENT}/ranks",
    carried=f"{ONCE}*(ranks + 1)/2*message_bytes",
    source="derivation",
    assumes=(STREAMED,),
    requires=(NVLS,),
    in_network=True,
)
def all_gather_nvls(ranks: Array) -> Cost:
    """NVLS: each rank writes its slice to all; all must take in the whole buffer."""
    there = several(ranks)
    return flat(there, there, sent=there / ranks, carried=there * (ranks + 1.0) / 2.0)


@algorithm(
    "switch",
    "broadcast",
    "inc",
    steps=ONCE,
    time=TIME,
    sent=SENT,
    carried=f"{ONCE}*ranks/2*message_bytes",
    source="sharp2016",
    assumes=(STREAMED,),
    requires=(INC,),
    in_network=True,
)
def broadcast(ranks: Array) -> Cost:
    """The switch multicasts what the root sends."""
    there = several(ranks)
    return flat(there, there, sent=there, carried=there * ranks / 2.0)


@algorithm(
    "switch",
    "reduce",
    "inc",
    steps=ONCE,
    time=TIME,
    sent=SENT,
    carried=f"{ONCE}*(ranks + 1)/2*message_bytes",
    source="sharp2016",
    assumes=(STREAMED, "the root sends its buffer to the switch as well"),
    requires=(INC,),
    in_network=True,
)
def reduce(ranks: Array) -> Cost:
    """The switch adds up what all send and streams the sum to the root."""
    there = several(ranks)
    return flat(there, there, sent=there, carried=there * (ranks + 1.0) / 2.0)
