"""Schedules on two and three levels: GPUs in a node, nodes, pods."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator import grid_all_to_all, grid_buckets, grid_trees, switch
from tests.simulator.grid_lines import gather_cycle
from tests.simulator.grid_network import Place, laid
from tests.simulator.hierarchical_network import Hierarchy
from tests.simulator.model import Block, Case, Flow, Message, Network, Steps, Undefined
from tests.simulator.patterns import (
    Build,
    Table,
    all_reduced,
    broadcast_family,
    gather_family,
    mirrored,
    pieces,
    scheduled,
    together,
)


def hierarchy(case: Case) -> Hierarchy:
    return Hierarchy(case.sizes, ranks_sharing_nic=case.ranks_sharing_nic)


def network(case: Case) -> Network:
    return hierarchy(case).network(case)


def on_switch(collective: str, name: str) -> Build:
    """Return the switch's schedule of this name, to be laid along a level."""
    return lambda case: switch.SCHEDULES["switch", collective, name](case)[1]


# all_gather


def by_level(inner: str, outer: str) -> Build:
    """From the outermost level inwards; `inner` inside the nodes, `outer` above."""

    def build(case: Case) -> Steps:
        grid = hierarchy(case)
        names = {level: outer if level else inner for level in reversed(grid.dimensions)}
        gathers = [(level, on_switch("all_gather", name)) for level, name in names.items()]
        return [step for phase in grid_buckets.bucket(grid, case, gathers) for step in phase]

    return build


def intra_inter(case: Case) -> Steps:
    """Ring inside the nodes first, then outwards."""
    grid = hierarchy(case)
    gathers = [(level, on_switch("all_gather", "ring")) for level in grid.dimensions]
    return [step for phase in grid_buckets.bucket(grid, case, gathers) for step in phase]


def ring_over(case: Case, first: int, part: int, parts: int) -> Steps:
    """One ring through all nodes, that enters each at the local rank `first`."""
    grid = hierarchy(case)
    size = grid.sizes[0]
    order = [
        node * size + (first + local) % size
        for node in range(case.ranks // size)
        for local in range(size)
    ]
    paths = [grid.between(*pair) for pair in zip(order, order[1:] + order[:1], strict=True)]
    return gather_cycle(paths, part, parts)


def flat_ring(case: Case) -> Steps:
    return ring_over(case, 0, 0, 1)


def flat_ring_channels(case: Case) -> Steps:
    """As many rings as a node has ranks, each for a part of the buffer."""
    size = case.sizes[0]
    return together(*(ring_over(case, first, first, size) for first in range(size)))


def ring_path(case: Case) -> Steps:
    """The same rings, in which nobody waits for anybody."""
    return Flow(flat_ring_channels(case))


def ring_path_back(case: Case) -> Steps:
    return Flow(mirrored(flat_ring_channels(case)))


def ring_path_twice(case: Case) -> Steps:
    return Flow(all_reduced(case.ranks, flat_ring_channels(case)), phases=2)


# broadcast from rank 0


def inwards(name: str) -> Build:
    """Between pods, then between nodes, then inside the nodes."""

    def build(case: Case) -> Steps:
        grid = hierarchy(case)
        order = grid.dimensions[::-1]
        return grid_trees.level_by_level(grid, case, order, on_switch("broadcast", name))

    return build


def scatter(case: Case) -> Steps:
    """Binomial scatter in the first node: piece i of the buffer goes to local rank i."""
    size = case.sizes[0]

    def build(line: Case) -> Steps:
        del line
        steps = []
        for distance in (1 << bit for bit in reversed(range((size - 1).bit_length()))):
            step = []
            for start in range(0, size - distance, 2 * distance):
                stop = min(start + 2 * distance, size)
                blocks = tuple(Block((), part, size) for part in range(start + distance, stop))
                step.append(Message((start, start + distance), blocks))
            steps.append(step)
        return steps

    outer = dict.fromkeys(range(1, len(case.sizes)), 0)
    return laid(hierarchy(case), case, (0, build), grid_trees.unchanged, outer)


def along_rails(case: Case) -> Steps:
    """Binomial broadcast of piece i of the buffer between the local ranks i, pods first."""
    grid = hierarchy(case)

    def piece(place: Place, block: Block) -> tuple[Block, ...]:
        del block
        return (Block((), place[0], case.sizes[0]),)

    order = [level for level in reversed(grid.dimensions) if level]
    build = on_switch("broadcast", "binomial")
    return grid_trees.level_by_level(grid, case, order, build, piece)


def joined(case: Case) -> Steps:
    """Ring all_gather of the buffer's pieces inside all nodes."""

    def piece(place: Place, block: Block) -> tuple[Block, ...]:
        del place
        return (Block((), block.home[0], case.sizes[0]),)

    return laid(hierarchy(case), case, (0, on_switch("all_gather", "ring")), piece)


def scatter_rails(case: Case) -> Steps:
    return [*scatter(case), *along_rails(case), *joined(case)]


def gather_rails(case: Case) -> Steps:
    """Reduce: backwards, but the finished pieces are only moved to rank 0."""
    gathered = [
        [replace(message, mode="copy") for message in step] for step in mirrored(scatter(case))
    ]
    return [*mirrored(joined(case)), *mirrored(along_rails(case)), *gathered]


# all_to_all, p2p


def two_phase(case: Case) -> Steps:
    """Inside the nodes to the rank on the receiver's rail, then between nodes, then pods."""
    return grid_all_to_all.one_by_one(hierarchy(case), case, on_switch("all_to_all", "pairwise"))


def flat_steps(case: Case) -> list[list[Message]]:
    """In step r everyone sends to the rank r further on."""
    between = hierarchy(case).between
    n = case.ranks
    return [
        [
            Message(between(rank, (rank + away) % n), pieces((rank, (rank + away) % n)))
            for rank in range(n)
        ]
        for away in range(1, n)
    ]


def node_pairwise(case: Case) -> Steps:
    """First with the ranks of the own node, then node by node, in the same order everywhere."""
    grid = hierarchy(case)
    steps = []
    for away in [place for place in grid.matching({}) if any(place)]:
        step = []
        for rank in range(case.ranks):
            place = zip(grid.place(rank), away, grid.sizes, strict=True)
            other = grid.rank(tuple((here + shift) % size for here, shift, size in place))
            step.append(Message(grid.between(rank, other), pieces((rank, other))))
        steps.append(step)
    return steps


def flat_direct(case: Case) -> Steps:
    return [[message for step in flat_steps(case) for message in step]]


def flat_pairwise(case: Case) -> Steps:
    if len(case.sizes) > 2:
        msg = "flat_pairwise knows two levels"
        raise Undefined(msg)
    return flat_steps(case)


def neighbours(case: Case) -> tuple[Network, Steps]:
    """Rank 0 sends to its like in the next node, which is called rank 1 (and rank 1 as that was).

    In the next pod if pods have one node, in the same node if there is no other.
    """
    grid = hierarchy(case)
    outside = [level for level in grid.dimensions if level]
    other = grid.line((0,) * len(grid.sizes), outside[0] if outside else 0)[1]
    names = {1: other, other: 1}
    links = {
        (names.get(start, start), names.get(end, end)): link
        for (start, end), link in grid.network(case).links.items()
    }
    path = tuple(names.get(node, node) for node in grid.between(0, other))
    return Network(links), [[Message(path, pieces(()))]]


GATHERS: dict[str, Build] = {
    f"{inner}_{outer}": by_level(inner, outer)
    for inner in ("ring", "direct")
    for outer in ("ring", "halving")
} | {"flat_ring": flat_ring, "flat_ring_channels": flat_ring_channels}
EXCHANGES: dict[str, Build] = {
    "two_phase": two_phase,
    "flat_direct": flat_direct,
    "flat_pairwise": flat_pairwise,
    "node_pairwise": node_pairwise,
}
PATHS: dict[str, Build] = {
    "all_gather": ring_path,
    "reduce_scatter": ring_path_back,
    "all_reduce": ring_path_twice,
}

SCHEDULES: Table = {
    **gather_family("hierarchical", network, GATHERS),
    ("hierarchical", "all_gather", "intra_inter"): scheduled(network, intra_inter),
    **{
        ("hierarchical", collective, "ring_path"): scheduled(network, build)
        for collective, build in PATHS.items()
    },
    **broadcast_family(
        "hierarchical", network, {name: inwards(name) for name in ("binomial", "chain")}
    ),
    ("hierarchical", "broadcast", "scatter_rails"): scheduled(network, scatter_rails),
    ("hierarchical", "reduce", "scatter_rails"): scheduled(network, gather_rails),
    **{
        ("hierarchical", "all_to_all", name): scheduled(network, build)
        for name, build in EXCHANGES.items()
    },
    ("hierarchical", "p2p", "direct"): neighbours,
}
