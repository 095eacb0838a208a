"""Schedules along a line without a wrapped cable, and logical rings laid over other networks.

Ranks are positions along the line.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulator.model import Block, Case, Message, Steps


def gather_cycle(paths: Sequence[tuple[int, ...]], part: int = 0, parts: int = 1) -> Steps:
    """all_gather around a logical ring, given as the path from each member to the next."""
    members = [path[0] for path in paths]
    return [
        [
            Message(path, (Block((members[index - time],), part, parts),))
            for index, path in enumerate(paths)
        ]
        for time in range(len(paths) - 1)
    ]


def straight(start: int, end: int) -> tuple[int, ...]:
    """Return the positions from one to another."""
    way = 1 if end > start else -1
    return tuple(range(start, end + way, way))


def spread(case: Case) -> Steps:
    """all_gather: each block spreads to both ends, one link a step."""
    n = case.ranks
    return [
        [
            Message((owner + way * (time - 1), owner + way * time), (Block((owner,)),))
            for owner in range(n)
            for way in (1, -1)
            if 0 <= owner + way * time < n
        ]
        for time in range(1, n)
    ]


def wrap(case: Case) -> Steps:
    """all_gather: a ring in the order of the line; the last sends back over the whole line."""
    n = case.ranks
    return gather_cycle([straight(rank, (rank + 1) % n) for rank in range(n)])


def folded(case: Case) -> Steps:
    """all_gather: a ring up over the even positions and back over the odd ones."""
    order = [*range(0, case.ranks, 2), *reversed(range(1, case.ranks, 2))]
    return gather_cycle(
        [straight(one, other) for one, other in zip(order, order[1:] + order[:1], strict=True)]
    )


def shift(case: Case) -> Steps:
    """all_to_all: in step r everyone sends to its r-th neighbour, counted around."""
    n = case.ranks
    return [
        [
            Message(straight(rank, (rank + away) % n), (Block((rank, (rank + away) % n)),))
            for rank in range(n)
        ]
        for away in range(1, n)
    ]


def hamilton(width: int, height: int) -> list[tuple[int, int]]:
    """Return a tour of a width x height grid that moves by one, as (x, y).

    Closed where width or height is even; else it ends in the corner opposite to its start.
    """
    if height % 2 and not width % 2:
        return [(x, y) for y, x in hamilton(height, width)]
    first = 1 - height % 2
    tour = []
    for y in range(height):
        row = [(x, y) for x in range(first, width)]
        tour += row[::-1] if y % 2 else row
    # With an even height the tour comes back down the column that the rows left out.
    return tour + [(0, y) for y in reversed(range(height))] * first
