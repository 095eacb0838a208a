"""Schedules on a physical binary tree: rank i is linked to rank (i - 1) // 2 by one cable."""

from __future__ import annotations

from tests.simulator.model import Block, Case, Link, Message, Network, Steps
from tests.simulator.patterns import (
    Table,
    broadcast_family,
    gather_family,
    pieces,
    scheduled,
    tree_all_reduce,
    tree_broadcast,
)


def binary_tree(case: Case) -> Network:
    """Return the network."""
    network = Network()
    for rank in range(1, case.ranks):
        network.cable(rank, (rank - 1) // 2, Link(case.latency[0], case.bandwidth[0]))
    return network


def shape(ranks: int) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """Return depths and paths of the tree whose root is rank 0."""
    depths = {rank: (rank + 1).bit_length() - 1 for rank in range(ranks)}
    return depths, {rank: ((rank - 1) // 2, rank) for rank in range(1, ranks)}


def broadcast(case: Case) -> Steps:
    return tree_broadcast(*shape(case.ranks), pieces((), case.chunks))


def all_reduce(case: Case) -> Steps:
    """Reduce to rank 0 and broadcast back, overlapped."""
    return tree_all_reduce(*shape(case.ranks), pieces((), case.chunks))


def flood(case: Case) -> Steps:
    """Each step, each directed link forwards the oldest block that it has not carried yet."""
    links = list(binary_tree(case).links)
    held = {rank: [rank] for rank in range(case.ranks)}
    known = {(start, end): {end} for start, end in links}
    steps: list[list[Message]] = []
    while True:
        moves = []
        for start, end in links:
            waiting = [owner for owner in held[start] if owner not in known[start, end]]
            if waiting:
                moves.append((start, end, waiting[0]))
        if not moves:
            return steps
        for start, end, owner in moves:
            held[end].append(owner)
            known[start, end].add(owner)
            known[end, start].add(owner)
        steps.append([Message((start, end), (Block((owner,)),)) for start, end, owner in moves])


def exchange(case: Case) -> Steps:
    """All pairs in one step, each along its only path."""
    network = binary_tree(case)
    ranks = range(case.ranks)
    return [
        [
            Message(network.route(rank, other), (Block((rank, other)),))
            for rank in ranks
            for other in ranks
            if rank != other
        ]
    ]


def neighbours(case: Case) -> Steps:
    del case
    return [[Message((0, 1), pieces(()))]]


SCHEDULES: Table = {
    **gather_family("binary_tree", binary_tree, {"flood": flood}),
    **broadcast_family("binary_tree", binary_tree, {"tree_pipe": broadcast}),
    ("binary_tree", "all_reduce", "tree_pipe"): scheduled(binary_tree, all_reduce),
    ("binary_tree", "all_to_all", "direct"): scheduled(binary_tree, exchange),
    ("binary_tree", "p2p", "direct"): scheduled(binary_tree, neighbours),
}
