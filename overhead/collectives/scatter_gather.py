"""Broadcasts on a switch that scatter the message first and gather it then (van de Geijn)."""

from __future__ import annotations

import numpy as np

from overhead.collectives import switch
from overhead.collectives.algorithm import algorithm
from overhead.collectives.cost import Cost, flat
from overhead.collectives.requirement import POWER_OF_TWO
from overhead.expression import popcount_sum
from overhead.quantity import Array

__all__ = ["scatter", "vdg_doubling", "vdg_ring"]

TWICE = "2*(ranks - 1)/ranks*message_bytes"
CARRIED = "(ranks - 1 + popcount_sum(ranks)/ranks)*message_bytes"
HANDED = "(ranks - 1 + floor(ranks/2))/ranks*message_bytes"
RING_TIME = f"(ceil(log2(ranks)) + ranks - 1)*latency + {TWICE}/bandwidth"
DOUBLING_TIME = f"2*log2(ranks)*latency + {TWICE}/bandwidth"


def scatter(ranks: Array) -> Cost:
    """Return the cost of a binomial scatter: a holder gives half of its pieces away a step."""
    share = (ranks - 1.0) / ranks
    carried = popcount_sum(ranks) / ranks
    return flat(switch.levels(ranks), share, sent=share, carried=carried)


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
    sent = share + np.floor(ranks / 2.0) / ranks
    return Cost(there.steps, sent, there.levels, share)


@algorithm(
    "switch",
    "broadcast",
    "vdg_ring",
    steps="ceil(log2(ranks)) + ranks - 1",
    time=RING_TIME,
    sent=TWICE,
    carried=CARRIED,
    source="barnett1994",
    where="long vectors; also Thakur, Rabenseifner and Gropp 2005",
)
def vdg_ring(ranks: Array) -> Cost:
    """Binomial scatter, then a ring all_gather."""
    return _broadcast(switch.bucket(ranks), ranks)


@algorithm(
    "switch",
    "reduce",
    "vdg_ring",
    steps="ceil(log2(ranks)) + ranks - 1",
    time=RING_TIME,
    sent=HANDED,
    carried=CARRIED,
    source="barnett1994",
    where="long vectors; also Thakur, Rabenseifner and Gropp 2005",
)
def reduce_vdg_ring(ranks: Array) -> Cost:
    """Ring reduce_scatter, then a binomial gather."""
    return _reduce(switch.bucket(ranks), ranks)


@algorithm(
    "switch",
    "broadcast",
    "vdg_doubling",
    steps="2*log2(ranks)",
    time=DOUBLING_TIME,
    sent=TWICE,
    carried=CARRIED,
    source="barnett1994",
    where="long vectors; also Chan et al. 2007",
    requires=(POWER_OF_TWO,),
)
def vdg_doubling(ranks: Array) -> Cost:
    """Binomial scatter, then an all_gather by recursive doubling."""
    return _broadcast(switch.halving(ranks), ranks)


@algorithm(
    "switch",
    "reduce",
    "vdg_doubling",
    steps="2*log2(ranks)",
    time=DOUBLING_TIME,
    sent=HANDED,
    carried=CARRIED,
    source="barnett1994",
    where="long vectors; also Chan et al. 2007",
    requires=(POWER_OF_TWO,),
)
def reduce_vdg_doubling(ranks: Array) -> Cost:
    """Reduce_scatter by recursive halving, then a binomial gather."""
    return _reduce(switch.halving(ranks), ranks)
