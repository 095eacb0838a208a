"""What the simulator runs: cases, networks, blocks of data, messages.

A collective's buffer is cut into *homes*, and each home into equal parts; a `Block` is one part.
What a home is depends on the collective:

===============  ============================  ==============  =================================
collective       home                          size of a home  at the start, at the end
===============  ============================  ==============  =================================
all_reduce       ()                            M               all contribute, all hold the sum
reduce           ()                            M               all contribute, rank 0 the sum
broadcast        ()                            M               rank 0, all
p2p              ()                            M               rank 0, rank 1
reduce_scatter   (owner,)                      M / N           all contribute, owner the sum
all_gather       (owner,)                      M / N           owner, all
all_to_all       (sender, receiver)            M / N           sender, receiver
===============  ============================  ==============  =================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Any, Literal, NamedTuple

WHOLE_BUFFER = ("all_reduce", "reduce", "broadcast", "p2p")


class Undefined(Exception):
    """The algorithm does not exist for these sizes."""


class ScheduleFault(Exception):
    """The schedule does something impossible, or does not compute its collective."""


@dataclass(frozen=True)
class Case:
    """One collective to run: what, where, how many bytes, and the network's figures.

    `sizes`: (N,) for ring, switch, tree and binary_tree; one entry a dimension (x first) for mesh
    and torus; (g, G) or (g, G, P), innermost first, for hierarchical. `latency` and `bandwidth`
    have one entry a level, innermost first.
    """

    topology: str
    collective: str
    algorithm: str
    sizes: tuple[int, ...]
    message: Fraction
    latency: tuple[Fraction, ...]
    bandwidth: tuple[Fraction, ...]
    chunks: int = 1
    ranks_sharing_nic: int = 1
    latency_per: Literal["hop", "message"] = "hop"

    @property
    def ranks(self) -> int:
        return prod(self.sizes)

    @property
    def unpriced(self) -> Case:
        """What is done, whatever links and bytes cost."""
        free = (Fraction(1),) * len(self.latency)
        return replace(self, message=Fraction(1), latency=free, bandwidth=free, latency_per="hop")

    @property
    def home_bytes(self) -> Fraction:
        return self.message / (1 if self.collective in WHOLE_BUFFER else self.ranks)


@dataclass(frozen=True)
class Link:
    """One direction of one cable or port.

    `share`: how much of a byte that crosses the link counts in `Outcome.carried`; one half for
    each of a switch's two ports on a path, so that a message through a switch counts once.
    """

    latency: Fraction
    bandwidth: Fraction
    level: int = 0
    share: Fraction = Fraction(1)


@dataclass
class Network:
    """Directed links between nodes: ranks are 0 .. N-1, switches and adapters negative."""

    links: dict[tuple[int, int], Link] = field(default_factory=dict)

    def cable(self, one: int, other: int, link: Link) -> None:
        """Join two nodes in both directions."""
        self.links[one, other] = self.links[other, one] = link

    def route(self, source: int, destination: int) -> tuple[int, ...]:
        """Return a path with the fewest links."""
        before = {source: source}
        queue = deque([source])
        while queue and destination not in before:
            node = queue.popleft()
            for start, end in self.links:
                if start == node and end not in before:
                    before[end] = node
                    queue.append(end)
        path = [destination]
        while path[-1] != source:
            path.append(before[path[-1]])
        return tuple(reversed(path))

    def latency(
        self, path: Sequence[int], per: str, waits: Mapping[tuple[int, int], Any] | None = None
    ) -> Any:
        """Return a path's latency: the sum over its hops, or its largest hop alone.

        A hop ends at a rank; links that meet at a switch form one hop.  `waits`: the links'
        latencies, in another unit.
        """
        hops: list[Any] = [0]
        for hop in pairwise(path):
            hops[-1] += self.links[hop].latency if waits is None else waits[hop]
            if hop[1] >= 0:
                hops.append(0)
        return max(hops) if per == "message" else sum(hops)


class Block(NamedTuple):
    """Part number `part` of the `parts` equal parts of a home."""

    home: tuple[int, ...]
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Message:
    """Blocks that go along a path of nodes within one step.

    `streamed`: the source is a switch that passes on in this very step what reaches it (multicast
    or reduction in flight): latencies add, bandwidth is paid once.
    """

    path: tuple[int, ...]
    payload: tuple[Block, ...]
    mode: Literal["copy", "reduce"] = "copy"
    streamed: bool = False

    @property
    def source(self) -> int:
        return self.path[0]

    @property
    def destination(self) -> int:
        return self.path[-1]


Step = Sequence[Message]
Steps = Iterable[Step]


class Flow(list[Step]):
    """Steps in which nobody waits for anybody: a message starts when its source has its blocks.

    A step's messages all move at the rate of the slowest of them.  Of several phases, each begins
    when the one before has ended everywhere; they have equally many steps.
    """

    def __init__(self, steps: Steps, phases: int = 1) -> None:
        super().__init__(steps)
        self.phases = phases
