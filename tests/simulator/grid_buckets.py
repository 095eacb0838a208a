"""all_gather on meshes and tori: dimension after dimension, parts of the buffer side by side.

A reduce_scatter is the mirror image, so its first dimension (x) is the all_gather's last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.simulator.grid_lines import gather_cycle, hamilton
from tests.simulator.grid_network import Grid, Place, laid
from tests.simulator.model import Block, Case, Message, Steps, Undefined
from tests.simulator.patterns import Build, together

Phases = list[list[list[Message]]]


def bucket(
    grid: Grid,
    case: Case,
    gathers: Sequence[tuple[int, Build]],
    share: tuple[int, int] = (0, 1),
) -> Phases:
    """Gather one part of every home along one dimension after the other.

    `gathers`: dimensions in their order, and the one-dimensional schedule of each; `share`: the
    number of the part, and of how many.
    """
    part, parts = share
    phases = []
    for index, along in enumerate(gathers):
        waiting = [later for later, _ in gathers[index + 1 :]]

        def expand(
            line: Place,
            block: Block,
            dimension: int = along[0],
            waiting: Sequence[int] = waiting,
        ) -> tuple[Block, ...]:
            """All that a rank has gathered so far stands for its block."""
            (position,) = block.home
            same = {other: line[other] for other in waiting} | {dimension: position}
            piece = (part * block.parts + block.part, parts * block.parts)
            return tuple(Block((grid.rank(place),), *piece) for place in grid.matching(same))

        phases.append(laid(grid, case, along, expand))
    return phases


def one_by_one(grid: Grid, case: Case, build: Build) -> Steps:
    """The whole buffer, last dimension first."""
    order = [(dimension, build) for dimension in reversed(grid.dimensions)]
    return [step for phase in bucket(grid, case, order) for step in phase]


def side_by_side(grid: Grid, case: Case, build: Build) -> Steps:
    """As many parts of the buffer as dimensions, each starting with another dimension.

    A phase begins when all parts have ended the one before.
    """
    dimensions = grid.dimensions
    parts = []
    for part in range(len(dimensions)):
        order = reversed(dimensions[part:] + dimensions[:part])
        gathers = [(dimension, build) for dimension in order]
        parts.append(bucket(grid, case, gathers, (part, len(dimensions))))
    return [step for phase in zip(*parts, strict=True) for step in together(*phase)]


def around(grid: Grid) -> Steps:
    """One ring through all ranks of a two-dimensional mesh."""
    if len(grid.dimensions) != 2:
        msg = "a tour needs two dimensions of more than one rank"
        raise Undefined(msg)
    width, height = (grid.sizes[dimension] for dimension in grid.dimensions)
    plane = Grid((width, height))
    tour = [plane.rank(place) for place in hamilton(width, height)]
    paths = list(pairwise(tour))
    if width % 2 == 0 or height % 2 == 0:
        return gather_cycle([*paths, (tour[-1], tour[0])])
    # The open tour goes right in its last row and up in its first column, so the way back, left
    # and then down, meets none of its messages.
    back = [plane.rank((x, height - 1)) for x in reversed(range(width))]
    down = [plane.rank((0, y)) for y in reversed(range(height - 1))]
    return gather_cycle([*paths, tuple(back + down)])
