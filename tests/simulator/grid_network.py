"""Meshes and tori of any number of dimensions, and one-dimensional schedules laid along them.

Rank = x + nx (y + ny z). A wrapped dimension of size 2 has one cable, one of size 1 none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from tests.simulator.model import Block, Case, Link, Message, Network
from tests.simulator.patterns import Build

Place = tuple[int, ...]
Expand = Callable[[Place, Block], tuple[Block, ...]]


@cache
def _places(sizes: tuple[int, ...]) -> tuple[Place, ...]:
    """Return where each rank is, in order."""
    return tuple(place[::-1] for place in product(*map(range, reversed(sizes))))


@cache
def _ranks(sizes: tuple[int, ...]) -> dict[Place, int]:
    return {place: rank for rank, place in enumerate(_places(sizes))}


@cache
def _matching(sizes: tuple[int, ...], fixed: tuple[tuple[int, int], ...]) -> tuple[Place, ...]:
    return tuple(
        place
        for place in _places(sizes)
        if all(place[dimension] == position for dimension, position in fixed)
    )


@dataclass(frozen=True)
class Grid:
    """Places of the ranks; `wrapped` where each dimension is a ring."""

    sizes: tuple[int, ...]
    wrapped: bool = False

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions with more than one rank."""
        return tuple(index for index, size in enumerate(self.sizes) if size > 1)

    def rank(self, place: Place) -> int:
        return _ranks(self.sizes)[place]

    def place(self, rank: int) -> Place:
        return _places(self.sizes)[rank]

    def matching(self, fixed: dict[int, int]) -> Iterator[Place]:
        """Yield, in the order of ranks, the places with these positions in these dimensions."""
        return iter(_matching(self.sizes, tuple(fixed.items())))

    def line(self, place: Place, dimension: int) -> list[int]:
        """Return the ranks of the line through a place along a dimension."""
        before, after = place[:dimension], place[dimension + 1 :]
        return [self.rank((*before, position, *after)) for position in range(self.sizes[dimension])]

    def path(self, line: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
        """Return the path that has these positions on a line."""
        return tuple(line[position] for position in positions)

    def toward(self, start: int, end: int, dimension: int, tie: int = 1) -> list[int]:
        """Return the positions from one to another, the shorter way.

        `tie`: the way (1 up, -1 down) where both around a ring are as long.
        """
        size = self.sizes[dimension]
        if not self.wrapped:
            way = 1 if end > start else -1
        elif 2 * abs(end - start) == size:
            way = tie
        else:
            way = 1 if 2 * ((end - start) % size) < size else -1
        length = (way * (end - start)) % size
        return [(start + way * hop) % size for hop in range(length + 1)]

    def network(self, case: Case) -> Network:
        """Return the cables between neighbours."""
        network = Network()
        link = Link(case.latency[0], case.bandwidth[0])
        for dimension in self.dimensions:
            for place in self.matching({dimension: 0}):
                line = self.line(place, dimension)
                ends = line[1:] + line[:1] if self.wrapped else line[1:]
                for one, other in zip(line, ends, strict=False):
                    network.cable(one, other, link)
        return network


def laid(
    grid: Grid,
    case: Case,
    along: tuple[int, Build],
    expand: Expand,
    fixed: dict[int, int] | None = None,
) -> list[list[Message]]:
    """Lay a one-dimensional schedule along all lines of a dimension at once.

    `along`: the dimension and the schedule; `expand` turns a block of that schedule into those
    moved in its place on the line through a place; `fixed` restricts the lines by their positions
    in other dimensions.
    """
    dimension, build = along
    places = list(grid.matching({**(fixed or {}), dimension: 0}))
    lines = [(place, grid.line(place, dimension)) for place in places]
    return [
        [
            Message(
                grid.path(line, message.path),
                tuple(new for block in message.payload for new in expand(place, block)),
                message.mode,
                message.streamed,
            )
            for place, line in lines
            for message in step
        ]
        for step in build(replace(case, sizes=(grid.sizes[dimension],)))
    ]
