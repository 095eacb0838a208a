"""Schedules on a non-blocking switch with one port a rank.

Here are the algorithms whose messages go from rank to rank; `switch_active` has those in which the
switch adds or multicasts, `double_tree` the double binary tree.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.double_tree import double_tree
from tests.simulator.model import Block, Case, Message, Steps, Undefined
from tests.simulator.patterns import (
    Build,
    Table,
    all_reduced,
    broadcast_family,
    gather_family,
    mirrored,
    pieces,
    renamed,
    scheduled,
    tree_broadcast,
    whole_power,
)
from tests.simulator.ports import across, switch
from tests.simulator.switch_active import ACTIVE

# all_gather


def ring(case: Case) -> Steps:
    n = case.ranks
    return [
        [Message(across(rank, (rank + 1) % n), (Block(((rank - time) % n,)),)) for rank in range(n)]
        for time in range(n - 1)
    ]


def doubling(case: Case) -> Steps:
    """Recursive doubling; its mirror image is recursive halving."""
    n = case.ranks
    return [
        [
            Message(
                across(rank, rank ^ distance),
                tuple(Block((owner,)) for owner in range(n) if (owner ^ rank) < distance),
            )
            for rank in range(n)
        ]
        for distance in (1 << bit for bit in range(whole_power(n)))
    ]


def bruck_gather(case: Case) -> Steps:
    n = case.ranks
    return [
        [
            Message(
                across(rank, (rank - distance) % n),
                tuple(Block(((rank + i) % n,)) for i in range(min(distance, n - distance))),
            )
            for rank in range(n)
        ]
        for distance in (1 << bit for bit in range((n - 1).bit_length()))
    ]


def serial_gather(case: Case) -> Steps:
    """Everyone sends its own block to one rank after the other."""
    n = case.ranks
    return [
        [Message(across(rank, (rank + shift) % n), (Block((rank,)),)) for rank in range(n)]
        for shift in range(1, n)
    ]


def at_once(steps: Steps) -> Steps:
    """Return all messages in one step."""
    return [[message for step in steps for message in step]]


# broadcast from rank 0


def binomial(case: Case) -> Steps:
    n = case.ranks
    return [
        [
            Message(across(rank, rank + distance), pieces(()))
            for rank in range(0, n - distance, 2 * distance)
        ]
        for distance in (1 << bit for bit in reversed(range((n - 1).bit_length())))
    ]


def chain(case: Case) -> Steps:
    depths = {rank: rank for rank in range(case.ranks)}
    paths = {rank: across(rank - 1, rank) for rank in range(1, case.ranks)}
    return tree_broadcast(depths, paths, pieces((), case.chunks))


def flat(case: Case) -> Steps:
    return [[Message(across(0, rank), pieces(())) for rank in range(1, case.ranks)]]


def scatter(case: Case) -> Steps:
    """Binomial scatter of N pieces: the first of a segment gives its second half away."""
    n = case.ranks
    steps = []
    segments = [(0, n)]
    while any(stop - start > 1 for start, stop in segments):
        step = []
        parts = []
        for start, stop in segments:
            middle = (start + stop + 1) // 2
            if middle < stop:
                blocks = tuple(Block((), part, n) for part in range(middle, stop))
                step.append(Message(across(start, middle), blocks))
                parts.append((middle, stop))
            parts.append((start, middle))
        steps.append(step)
        segments = parts
    return steps


def gather_pieces(case: Case, gather: Build) -> Steps:
    """Return an all_gather whose blocks are the N pieces of one buffer."""
    return renamed(gather(case), lambda block: Block((), block.home[0], case.ranks))


def scatter_gather(gather: Build) -> Build:
    """Broadcast: scatter, then all_gather."""
    return lambda case: [*scatter(case), *gather_pieces(case, gather)]


def scatter_gather_reduce(gather: Build) -> Build:
    """Reduce: reduce_scatter, then the finished pieces go the scatter's way back."""
    return lambda case: [
        *mirrored(gather_pieces(case, gather)),
        *(
            [Message(message.path, message.payload) for message in step]
            for step in mirrored(scatter(case))
        ),
    ]


# all_reduce


def binomial_all_reduce(case: Case) -> Steps:
    down = binomial(case)
    return [*mirrored(down), *down]


def doubling_all_reduce(case: Case) -> Steps:
    """Partners exchange and add whole vectors."""
    return [
        [
            Message(across(rank, rank ^ (1 << bit)), pieces(()), "reduce")
            for rank in range(case.ranks)
        ]
        for bit in range(whole_power(case.ranks))
    ]


def oneshot(case: Case) -> Steps:
    ranks = range(case.ranks)
    return [
        [
            Message(across(rank, other), pieces(()), "reduce")
            for rank in ranks
            for other in ranks
            if rank != other
        ]
    ]


def fold(case: Case) -> Steps:
    """Ranks beyond the largest power of two add theirs to a partner and get the result back."""
    power = 1 << (case.ranks.bit_length() - 1)
    if power == case.ranks:
        msg = f"{case.ranks} ranks need no fold"
        raise Undefined(msg)
    small = replace(case, sizes=(power,))
    buffer = pieces((), power)
    pairs = [(rank, rank - power) for rank in range(power, case.ranks)]
    return [
        [Message(across(extra, partner), buffer, "reduce") for extra, partner in pairs],
        *all_reduced(power, doubling(small)),
        [Message(across(partner, extra), buffer) for extra, partner in pairs],
    ]


# all_to_all


def pairwise(case: Case) -> Steps:
    n = case.ranks
    return [
        [
            Message(across(rank, (rank + shift) % n), (Block((rank, (rank + shift) % n)),))
            for rank in range(n)
        ]
        for shift in range(1, n)
    ]


def bruck(case: Case) -> Steps:
    """A block that goes far moves once for every bit of its distance, lowest bit first."""
    n = case.ranks
    steps = []
    for distance in (1 << bit for bit in range((n - 1).bit_length())):
        step = []
        for rank in range(n):
            senders = [(far, rank - far % distance) for far in range(n) if far & distance]
            blocks = tuple(Block((start % n, (start + far) % n)) for far, start in senders)
            step.append(Message(across(rank, (rank + distance) % n), blocks))
        steps.append(step)
    return steps


def single(case: Case) -> Steps:
    del case
    return [[Message(across(0, 1), pieces(()))]]


GATHERS: dict[str, Build] = {
    "ring": ring,
    "halving": doubling,
    "direct": lambda case: at_once(serial_gather(case)),
    "direct_serial": serial_gather,
}
BROADCASTS: dict[str, Build] = {"binomial": binomial, "chain": chain, "flat": flat}
ALL_REDUCES: dict[str, Build] = {
    "rabenseifner_fold": fold,
    "doubling": doubling_all_reduce,
    "oneshot": oneshot,
    "binomial": binomial_all_reduce,
    "dbt": double_tree,
}
EXCHANGES: dict[str, Build] = {
    "pairwise": pairwise,
    "direct": lambda case: at_once(pairwise(case)),
    "direct_serial": pairwise,
    "bruck": bruck,
}
VAN_DE_GEIJN: dict[str, Build] = {"vdg_ring": ring, "vdg_doubling": doubling}

SCHEDULES: Table = {
    **gather_family("switch", switch, GATHERS),
    **broadcast_family("switch", switch, BROADCASTS),
    ("switch", "all_gather", "bruck"): scheduled(switch, bruck_gather),
    ("switch", "p2p", "direct"): scheduled(switch, single),
}
for collective, builds in (("all_reduce", ALL_REDUCES), ("all_to_all", EXCHANGES)):
    for name, build in builds.items():
        SCHEDULES["switch", collective, name] = scheduled(switch, build)
for (collective, name), build in ACTIVE.items():
    SCHEDULES["switch", collective, name] = scheduled(switch, build)
for name, gather in VAN_DE_GEIJN.items():
    SCHEDULES["switch", "broadcast", name] = scheduled(switch, scatter_gather(gather))
    SCHEDULES["switch", "reduce", name] = scheduled(switch, scatter_gather_reduce(gather))

# A logical tree has no cables of its own: its ranks hang on a switch.
ON_A_TREE = (
    ("all_reduce", "binomial"),
    ("all_reduce", "dbt"),
    ("reduce_scatter", "ring"),
    ("all_gather", "ring"),
    ("broadcast", "chain"),
    ("reduce", "chain"),
    ("all_to_all", "pairwise"),
    ("p2p", "direct"),
)
SCHEDULES |= {("tree", *key): SCHEDULES["switch", *key] for key in ON_A_TREE}
