"""Trees on meshes and tori: pipelined broadcasts, and reductions to the centre and back."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulator.grid_network import Expand, Grid, Place, laid
from tests.simulator.model import Block, Case, Steps, Undefined
from tests.simulator.patterns import Build, pieces, tree_all_reduce, tree_broadcast


def tree(grid: Grid, root: Place) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """Return depths and paths of the shortest ways from the root, along x first."""
    depths = {grid.rank(root): 0}
    paths: dict[int, tuple[int, ...]] = {}
    for place in grid.matching({}):
        moved = [index for index, position in enumerate(place) if position != root[index]]
        if not moved:
            continue
        ways = {index: grid.toward(place[index], root[index], index) for index in moved}
        last = moved[-1]
        parent = (*place[:last], ways[last][1], *place[last + 1 :])
        node = grid.rank(place)
        depths[node] = sum(len(way) - 1 for way in ways.values())
        paths[node] = (grid.rank(parent), node)
    return depths, paths


def broadcast(grid: Grid, case: Case) -> Steps:
    """From rank 0, a corner of a mesh."""
    return tree_broadcast(*tree(grid, (0,) * len(grid.sizes)), pieces((), case.chunks))


def chain(grid: Grid, case: Case) -> Steps:
    """From one end of a line to the other."""
    if len(grid.dimensions) > 1:
        msg = "a chain runs along one dimension"
        raise Undefined(msg)
    return broadcast(grid, case)


def all_reduce(grid: Grid, case: Case) -> Steps:
    """To the centre and back, overlapped."""
    centre = tuple(size // 2 for size in grid.sizes)
    return tree_all_reduce(*tree(grid, centre), pieces((), case.chunks))


def unchanged(line: Place, block: Block) -> tuple[Block, ...]:
    """Return the block that is sent, the same on all lines."""
    del line
    return (block,)


def level_by_level(
    grid: Grid, case: Case, order: Sequence[int], build: Build, expand: Expand = unchanged
) -> Steps:
    """Broadcast from rank 0 along one dimension after the other."""
    steps = []
    for index, dimension in enumerate(order):
        untouched = dict.fromkeys(order[index + 1 :], 0)
        steps += laid(grid, case, (dimension, build), expand, untouched)
    return steps


def phased(grid: Grid, case: Case) -> Steps:
    """Each dimension's broadcast starts when the one before has ended."""
    return level_by_level(
        grid, case, grid.dimensions, lambda line: broadcast(Grid(line.sizes, grid.wrapped), line)
    )
