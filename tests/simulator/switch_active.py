"""Schedules in which the switch adds up or multicasts: in-network reduction and NVLS."""

from __future__ import annotations

from tests.simulator.model import Block, Case, Message, Steps
from tests.simulator.patterns import Build, pieces
from tests.simulator.ports import SWITCH


def up(rank: int, blocks: tuple[Block, ...], *, add: bool = True) -> Message:
    return Message((rank, SWITCH), blocks, "reduce" if add else "copy")


def down(rank: int, blocks: tuple[Block, ...], *, streamed: bool = True) -> Message:
    return Message((SWITCH, rank), blocks, streamed=streamed)


def all_reduce(case: Case) -> Steps:
    """Streamed: the switch adds what comes in and sends the sum out as it forms."""
    ranks = range(case.ranks)
    return [[up(rank, pieces(())) for rank in ranks] + [down(rank, pieces(())) for rank in ranks]]


def all_reduce_stored(case: Case) -> Steps:
    """Store and forward: a chunk leaves the switch in the step after it came in."""
    chunks = pieces((), case.chunks)
    steps = []
    for time in range(case.chunks + 1):
        step = [up(rank, chunks[time : time + 1]) for rank in range(case.ranks)]
        back = [down(rank, chunks[time - 1 : time], streamed=False) for rank in range(case.ranks)]
        steps.append((step if time < case.chunks else []) + (back if time else []))
    return steps


def broadcast(case: Case) -> Steps:
    """Multicast."""
    others = range(1, case.ranks)
    return [[up(0, pieces(()), add=False), *(down(rank, pieces(())) for rank in others)]]


def reduce(case: Case) -> Steps:
    """Everyone, the root too, sends to the switch, which adds and sends the sum to the root."""
    return [[*(up(rank, pieces(())) for rank in range(case.ranks)), down(0, pieces(()))]]


def reads(slices: tuple[tuple[Block, ...], ...]) -> list[Message]:
    """Each rank reads its slice through the switch, which adds all ranks' copies of it."""
    everything = tuple(block for blocks in slices for block in blocks)
    return [
        message
        for rank, own in enumerate(slices)
        for message in (up(rank, everything), down(rank, own))
    ]


def multicasts(slices: tuple[tuple[Block, ...], ...]) -> list[Message]:
    """Each rank stores its slice to all ranks, itself included, through the switch."""
    everything = tuple(block for blocks in slices for block in blocks)
    return [
        message
        for rank, own in enumerate(slices)
        for message in (up(rank, own, add=False), down(rank, everything))
    ]


def nvls_reduce_scatter(case: Case) -> Steps:
    return [reads(tuple(pieces((rank,)) for rank in range(case.ranks)))]


def nvls_all_gather(case: Case) -> Steps:
    return [multicasts(tuple(pieces((rank,)) for rank in range(case.ranks)))]


ACTIVE: dict[tuple[str, str], Build] = {
    ("all_reduce", "inc"): all_reduce,
    ("all_reduce", "inc_pipe"): all_reduce_stored,
    ("broadcast", "inc"): broadcast,
    ("reduce", "inc"): reduce,
    ("reduce_scatter", "nvls"): nvls_reduce_scatter,
    ("all_gather", "nvls"): nvls_all_gather,
}
