"""all_to_all on meshes and tori: dimension after dimension, or everything at once."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulator.grid_buckets import Phases
from tests.simulator.grid_network import Grid, Place, laid
from tests.simulator.model import Block, Case, Message, Steps, Undefined
from tests.simulator.patterns import Build, pieces, together


def exchanges(
    grid: Grid,
    case: Case,
    build: Build,
    order: Sequence[int],
    share: tuple[int, int] = (0, 1),
) -> Phases:
    """Bring one part of every block to its place in one dimension after the other.

    `share`: the number of the part, and of how many.
    """
    part, parts = share
    phases = []
    for index, dimension in enumerate(order):
        done, waiting = order[:index], order[index + 1 :]

        def expand(
            line: Place,
            block: Block,
            dimension: int = dimension,
            done: Sequence[int] = done,
            waiting: Sequence[int] = waiting,
        ) -> tuple[Block, ...]:
            """Blocks still are where they began in later dimensions, at home in earlier ones."""
            start, end = block.home
            senders = {other: line[other] for other in waiting} | {dimension: start}
            receivers = {other: line[other] for other in done} | {dimension: end}
            piece = (part * block.parts + block.part, parts * block.parts)
            return tuple(
                Block((grid.rank(sender), grid.rank(receiver)), *piece)
                for sender in grid.matching(senders)
                for receiver in grid.matching(receivers)
            )

        phases.append(laid(grid, case, (dimension, build), expand))
    return phases


def one_by_one(grid: Grid, case: Case, build: Build) -> Steps:
    """The whole buffer, x first."""
    return [step for phase in exchanges(grid, case, build, grid.dimensions) for step in phase]


def side_by_side(grid: Grid, case: Case, build: Build) -> Steps:
    """As many parts of the buffer as dimensions, each starting with another dimension."""
    dimensions = grid.dimensions
    if len({grid.sizes[dimension] for dimension in dimensions}) > 1:
        msg = "dimensions of unequal sizes"
        raise Undefined(msg)
    parts = [
        exchanges(grid, case, build, dimensions[part:] + dimensions[:part], (part, len(dimensions)))
        for part in range(len(dimensions))
    ]
    return [step for phase in zip(*parts, strict=True) for step in together(*phase)]


def direct(grid: Grid) -> Steps:
    """All blocks in one step, each along x first and the shorter way around.

    Where both ways are as long, one half goes up and the other down.
    """
    step = []
    for sender in grid.matching({}):
        for receiver in grid.matching({}):
            if sender == receiver:
                continue
            up, down = pieces((grid.rank(sender), grid.rank(receiver)), 2)
            routes = [route(grid, sender, receiver, way) for way in (1, -1)]
            if routes[0] == routes[1]:
                step.append(Message(routes[0], (up, down)))
            else:
                step += [Message(routes[0], (up,)), Message(routes[1], (down,))]
    return [step]


def route(grid: Grid, sender: Place, receiver: Place, tie: int) -> tuple[int, ...]:
    """Return the path along x, then y, then z; `tie`: the way where both are as long."""
    path = [grid.rank(sender)]
    place = list(sender)
    for dimension, (start, end) in enumerate(zip(sender, receiver, strict=True)):
        for position in grid.toward(start, end, dimension, tie)[1:]:
            place[dimension] = position
            path.append(grid.rank(tuple(place)))
    return tuple(path)
