"""Who holds what: the proof that a schedule computes its collective."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulator.model import Block, Case, Message, ScheduleFault

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")


class Data:
    """Who holds what: for each node and block the set (as a bit mask) of ranks counted in it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.everyone = (1 << case.ranks) - 1
        self.held: dict[tuple[int, Block], int] = {}
        self.parts: dict[tuple[int, ...], int] = {}

    def first(self, node: int, block: Block) -> int:
        """Return what a node holds of a block at the start."""
        if node < 0:
            return 0
        if self.case.collective in REDUCTIONS:
            return 1 << node
        origin = block.home[0] if block.home else 0
        return 1 << node if node == origin else 0

    def get(self, node: int, block: Block) -> int:
        mask = self.held.get((node, block))
        return self.first(node, block) if mask is None else mask

    def read(self, message: Message) -> list[int]:
        """Return the contributions in each block that a message takes from its source."""
        masks = [self.get(message.source, block) for block in message.payload]
        for block, mask in zip(message.payload, masks, strict=True):
            if self.parts.setdefault(block.home, block.parts) != block.parts:
                msg = f"{block}: this home was cut into another number of parts"
                raise ScheduleFault(msg)
            if not 0 <= block.part < block.parts:
                msg = f"{block}: no such part"
                raise ScheduleFault(msg)
            if not mask:
                msg = f"node {message.source} sends {block}, which it does not hold"
                raise ScheduleFault(msg)
        return masks

    def write(self, message: Message, masks: list[int]) -> None:
        """Merge or overwrite a message's blocks at its destination."""
        held, node = self.held, message.destination
        for block, mask in zip(message.payload, masks, strict=True):
            old = self.get(node, block)
            if old & mask if message.mode == "reduce" else old & ~mask:
                twice = message.mode == "reduce"
                fault = "counts a contribution twice" if twice else "a copy loses contributions"
                msg = f"node {node}, {block}: {fault}"
                raise ScheduleFault(msg)
            held[node, block] = mask | old

    def check(self) -> None:
        """Raise unless every rank holds what the collective demands."""
        for rank, home, wanted in self.demands():
            parts = self.parts.get(home, 1)
            for part in range(parts):
                block = Block(home, part, parts)
                if self.get(rank, block) != wanted:
                    msg = f"incomplete: rank {rank} lacks {block}"
                    raise ScheduleFault(msg)

    def demands(self) -> Iterable[tuple[int, tuple[int, ...], int]]:
        """Yield (rank, home, contributions) for all that must be there at the end."""
        ranks = range(self.case.ranks)
        everyone = self.everyone
        match self.case.collective:
            case "all_reduce":
                yield from ((rank, (), everyone) for rank in ranks)
            case "reduce":
                yield 0, (), everyone
            case "broadcast":
                yield from ((rank, (), 1) for rank in ranks)
            case "p2p":
                yield 1, (), 1
            case "reduce_scatter":
                yield from ((rank, (rank,), everyone) for rank in ranks)
            case "all_gather":
                yield from ((rank, (home,), 1 << home) for rank in ranks for home in ranks)
            case "all_to_all":
                yield from ((to, (start, to), 1 << start) for to in ranks for start in ranks)
            case other:
                msg = f"no such collective: {other}"
                raise ScheduleFault(msg)
