"""Schedules on a ring: rank i is linked to i + 1 and i - 1; two ranks share a single cable."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.model import Block, Case, Link, Message, Network, Steps
from tests.simulator.patterns import (
    Build,
    Table,
    broadcast_family,
    gather_family,
    pieces,
    scheduled,
    together,
    tree_all_reduce,
    tree_broadcast,
    whole_power,
)


def ring(case: Case) -> Network:
    """Return the network."""
    network = Network()
    for rank in range(case.ranks):
        link = Link(case.latency[0], case.bandwidth[0])
        network.cable(rank, (rank + 1) % case.ranks, link)
    return network


def walk(start: int, shift: int, ranks: int) -> tuple[int, ...]:
    """Return the path of |shift| links to the right (to the left where negative)."""
    sign = 1 if shift > 0 else -1
    return tuple((start + sign * hop) % ranks for hop in range(abs(shift) + 1))


# all_gather


def gather_one_way(ranks: int, way: int = 1, part: int = 0, parts: int = 1) -> Steps:
    """All blocks go round in one direction (1 right, -1 left)."""
    return [
        [
            Message(walk(rank, way, ranks), (Block(((rank - way * time) % ranks,), part, parts),))
            for rank in range(ranks)
        ]
        for time in range(ranks - 1)
    ]


def gather_split(ranks: int) -> Steps:
    """One half of each block goes right, the other left."""
    return together(gather_one_way(ranks, 1, 0, 2), gather_one_way(ranks, -1, 1, 2))


def gather_short(ranks: int) -> Steps:
    """Each block goes both ways and half round; an opposite rank gets half from each side."""
    steps = []
    for time in range(ranks // 2):
        step = []
        for rank in range(ranks):
            for half, way in enumerate((1, -1)):
                halves = pieces(((rank - way * time) % ranks,), 2)
                if 2 * (time + 1) == ranks:
                    halves = halves[half : half + 1]
                step.append(Message(walk(rank, way, ranks), halves))
        steps.append(step)
    return steps


def gather_doubling(ranks: int) -> Steps:
    """Recursive doubling whose messages are routed along the ring."""
    return [
        [
            Message(
                walk(rank, -distance if rank & distance else distance, ranks),
                tuple(Block((owner,)) for owner in range(ranks) if (owner ^ rank) < distance),
            )
            for rank in range(ranks)
        ]
        for distance in (1 << bit for bit in range(whole_power(ranks)))
    ]


# broadcast from rank 0


def sides(ranks: int, right: int) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """Return depths and paths of the tree with `right` ranks right of rank 0, the rest left."""
    depths = {0: 0}
    paths = {}
    for way, length in ((1, right), (-1, ranks - 1 - right)):
        for depth in range(1, length + 1):
            node = way * depth % ranks
            depths[node] = depth
            paths[node] = walk(way * (depth - 1) % ranks, way, ranks)
    return depths, paths


def chain(ranks: int, chunks: int) -> Steps:
    return tree_broadcast(*sides(ranks, ranks - 1), pieces((), chunks))


def both_ways(ranks: int, chunks: int) -> Steps:
    return tree_broadcast(*sides(ranks, ranks // 2), pieces((), chunks))


def two_chains(ranks: int, chunks: int) -> Steps:
    """One half of the buffer along a chain to the right, the other along one to the left."""
    blocks = pieces((), 2 * chunks)
    return together(
        tree_broadcast(*sides(ranks, ranks - 1), blocks[:chunks]),
        tree_broadcast(*sides(ranks, 0), blocks[chunks:]),
    )


def binomial(ranks: int, chunks: int) -> Steps:
    """Binomial tree, longest distance first, routed to the right."""
    del chunks
    return [
        [Message(walk(rank, distance, ranks), pieces(())) for rank in range(0, ranks, 2 * distance)]
        for distance in (1 << bit for bit in reversed(range(whole_power(ranks))))
    ]


# all_to_all


def shift_uni(ranks: int) -> Steps:
    """In step r everyone sends to its r-th neighbour on the right."""
    return [
        [
            Message(walk(rank, shift, ranks), (Block((rank, (rank + shift) % ranks)),))
            for rank in range(ranks)
        ]
        for shift in range(1, ranks)
    ]


def shift_min(ranks: int) -> Steps:
    """In step r everyone sends to its r-th neighbour, the shorter way."""
    return [
        [
            Message(
                walk(rank, shift if 2 * shift <= ranks else shift - ranks, ranks),
                (Block((rank, (rank + shift) % ranks)),),
            )
            for rank in range(ranks)
        ]
        for shift in range(1, ranks)
    ]


def halved(sender: int, receiver: int, half: int, ranks: int) -> tuple[Block, ...]:
    """Return one half of a block where the receiver is opposite, else both."""
    halves = pieces((sender, receiver), 2)
    opposite = 2 * (receiver - sender) % (2 * ranks) == ranks
    return halves[half : half + 1] if opposite else halves


def shift_bidir(ranks: int) -> Steps:
    """In step r everyone sends to both its r-th neighbours; to the opposite rank half each way."""
    return [
        [
            Message(
                walk(rank, way * shift, ranks),
                halved(rank, (rank + way * shift) % ranks, half, ranks),
            )
            for rank in range(ranks)
            for half, way in enumerate((1, -1))
        ]
        for shift in range(1, ranks // 2 + 1)
    ]


def direct(ranks: int) -> Steps:
    """Everything at once, the shorter way; to the opposite rank half each way."""
    return [[message for step in shift_bidir(ranks) for message in step]]


def fwd_uni(ranks: int) -> Steps:
    """Blocks move to the right one link a step until they arrive."""
    return [
        [
            Message(walk(rank, 1, ranks), (Block(((rank - time) % ranks, (rank + left) % ranks)),))
            for rank in range(ranks)
            for left in range(1, ranks - time)
        ]
        for time in range(ranks - 1)
    ]


def fwd_bidir(ranks: int) -> Steps:
    """Blocks move the shorter way one link a step; halves each way to the opposite rank."""
    return [
        [
            Message(
                walk(rank, way, ranks),
                halved((rank - way * time) % ranks, (rank + way * left) % ranks, half, ranks),
            )
            for rank in range(ranks)
            for half, way in enumerate((1, -1))
            for left in range(1, ranks // 2 - time + 1)
        ]
        for time in range(ranks // 2)
    ]


def all_reduce_tree(case: Case) -> Steps:
    """Reduce to rank 0 from both sides and broadcast back, overlapped."""
    return tree_all_reduce(*sides(case.ranks, case.ranks // 2), pieces((), case.chunks))


def neighbours(case: Case) -> Steps:
    del case
    return [[Message((0, 1), pieces(()))]]


GATHERS = {"ring": gather_one_way, "ring_split": gather_split, "ring_short": gather_short}
BROADCASTS = {
    "chain": chain,
    "tree_pipe": both_ways,
    "phased": both_ways,
    "two_chains": two_chains,
    "binomial": binomial,
}
EXCHANGES = {
    "shift_uni": shift_uni,
    "shift_min": shift_min,
    "shift_bidir": shift_bidir,
    "fwd_uni": fwd_uni,
    "fwd_bidir": fwd_bidir,
    "direct": direct,
}


def of_ranks(build: Callable[[int], Steps]) -> Build:
    return lambda case: build(case.ranks)


def of_chunks(build: Callable[[int, int], Steps]) -> Build:
    return lambda case: build(case.ranks, case.chunks)


SCHEDULES: Table = {
    **gather_family("ring", ring, {name: of_ranks(build) for name, build in GATHERS.items()}),
    **broadcast_family("ring", ring, {name: of_chunks(f) for name, f in BROADCASTS.items()}),
    ("ring", "all_gather", "rd"): scheduled(ring, of_ranks(gather_doubling)),
    ("ring", "all_reduce", "tree_pipe"): scheduled(ring, all_reduce_tree),
    ("ring", "p2p", "direct"): scheduled(ring, neighbours),
}
for name, exchange in EXCHANGES.items():
    SCHEDULES["ring", "all_to_all", name] = scheduled(ring, of_ranks(exchange))
