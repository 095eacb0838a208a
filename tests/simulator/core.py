"""Step-by-step execution of a communication schedule on explicit directed links.

The simulator is the product's independent witness: it imports neither of the two packages, uses
exact rational arithmetic, and proves while it runs that the schedule computes its collective.

A message costs its path's latency plus, for its slowest link, all bytes on that directed link in
that step over the link's bandwidth; a step lasts as long as its slowest message, and a schedule as
long as its steps together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import lcm

from tests.simulator.data import Data
from tests.simulator.model import (
    Block,
    Case,
    Flow,
    Link,
    Message,
    Network,
    ScheduleFault,
    Step,
    Steps,
    Undefined,
)

__all__ = [
    "Block",
    "Case",
    "Link",
    "Message",
    "Network",
    "Outcome",
    "ScheduleFault",
    "Step",
    "Steps",
    "Undefined",
    "run",
]


@dataclass(frozen=True)
class Outcome:
    """What a schedule costs.

    `time` in seconds; `sent`: most bytes that one rank sends (what it forwards from step to step
    counts again); `carried`: bytes over all links, a level each; `reduced`: most bytes that one
    rank receives to add them to its own.
    """

    time: Fraction
    steps: int
    sent: Fraction
    carried: tuple[Fraction, ...]
    reduced: Fraction


@dataclass(frozen=True)
class Traffic:
    """What a schedule moves, whatever its links cost; sizes in `parts`-ths of a home.

    `shapes`: how often a step moves such sizes along such paths, for steps without streams;
    `sent`, `reduced`: of the rank that has most; `carried`: over each link.
    """

    parts: int
    shapes: dict[tuple[tuple[tuple[int, ...], int], ...], int]
    streamed: tuple[Step, ...]
    sent: int
    reduced: int
    carried: dict[tuple[int, int], int]


# Cases that differ in prices come one after the other.
@lru_cache(maxsize=8)
def proven(case: Case, schedule: tuple[Step, ...]) -> Traffic:
    """Move the data; raise `ScheduleFault` where that is impossible or something is missing."""
    blocks = (block.parts for step in schedule for message in step for block in message.payload)
    parts = lcm(*set(blocks))
    data = Data(case)
    sent: defaultdict[int, int] = defaultdict(int)
    reduced: defaultdict[int, int] = defaultdict(int)
    carried: defaultdict[tuple[int, int], int] = defaultdict(int)
    shapes: defaultdict[tuple[tuple[tuple[int, ...], int], ...], int] = defaultdict(int)
    streamed = []
    for step in schedule:
        if not step:
            msg = "a step without messages"
            raise ScheduleFault(msg)
        shape = tuple((message.path, size(message, parts)) for message in step)
        if any(message.streamed for message in step):
            streamed.append(step)
            # Raises where a switch has nothing to pass on.
            free = [(0, 0)] * len(step)
            for index in range(len(step)):
                streamed_cost(step, free, index)
        else:
            shapes[shape] += 1
        for message, (path, moved) in zip(step, shape, strict=True):
            sent[message.source] += moved
            if message.mode == "reduce":
                reduced[message.destination] += moved
            for hop in pairwise(path):
                carried[hop] += moved
        deliver(data, step)
    data.check()
    ranks = range(case.ranks)
    return Traffic(
        parts,
        dict(shapes),
        tuple(streamed),
        max(sent[rank] for rank in ranks),
        max(reduced[rank] for rank in ranks),
        dict(carried),
    )


def size(message: Message, parts: int) -> int:
    """Return a message's size in parts of a home; raise where it is malformed."""
    fault = ""
    if len(message.path) < 2:
        fault = "no such links"
    elif not message.payload:
        fault = "empty"
    elif len(message.payload) > 1 and len(set(message.payload)) != len(message.payload):
        fault = "a block twice"
    if fault:
        msg = f"the message along {message.path}: {fault}"
        raise ScheduleFault(msg)
    return sum(parts // block.parts for block in message.payload)


class Ledger:
    """A case's bytes and times as whole numbers of units small enough for all that is in it.

    `bytes_unit`: of a home, the least common multiple of the parts into which it is cut;
    `time_unit`: of a second, so small that each latency and each transfer of a unit is whole.
    """

    def __init__(self, case: Case, network: Network, parts: int) -> None:
        self.parts = parts
        self.bytes_unit = case.home_bytes / self.parts
        self.case, self.network = case, network
        # By identity: comparing fractions would take longer than all else.
        links = {id(link): link for link in network.links.values()}
        rates = {one: self.bytes_unit / link.bandwidth for one, link in links.items()}
        prices = [*rates.values(), *(link.latency for link in links.values())]
        self.time_unit = Fraction(1, lcm(*(price.denominator for price in prices)))
        per_link = {one: int(rate / self.time_unit) for one, rate in rates.items()}
        waits = {one: int(link.latency / self.time_unit) for one, link in links.items()}
        self.per_byte = {hop: per_link[id(link)] for hop, link in network.links.items()}
        self.waits = {hop: waits[id(link)] for hop, link in network.links.items()}
        self.latencies: dict[tuple[int, ...], int] = {}

    def latency(self, path: tuple[int, ...]) -> int:
        """Return a path's latency."""
        if path not in self.latencies:
            self.latencies[path] = self.network.latency(path, self.case.latency_per, self.waits)
        return self.latencies[path]

    def costs(self, shape: Sequence[tuple[tuple[int, ...], int]]) -> list[tuple[int, int]]:
        """Return each message's (latency, transfer time) in a step, with the links shared."""
        busy = self.busy(shape)
        return [(self.latency(path), max(busy[hop] for hop in pairwise(path))) for path, _ in shape]

    def duration(self, step: Step) -> int:
        """Return how long a step lasts in which switches pass on what reaches them."""
        costs = self.costs([(message.path, size(message, self.parts)) for message in step])
        return max(sum(streamed_cost(step, costs, index)) for index in range(len(step)))

    def busy(self, shape: Sequence[tuple[tuple[int, ...], int]]) -> dict[tuple[int, int], int]:
        """Return how long each link needs for a step's bytes."""
        load: defaultdict[tuple[int, int], int] = defaultdict(int)
        for path, moved in shape:
            for hop in pairwise(path):
                load[hop] += moved
        return {hop: total * self.per_byte[hop] for hop, total in load.items()}

    def flow(self, steps: Sequence[Step]) -> int:
        """Return how long steps last in which nobody waits for anybody."""
        there: defaultdict[tuple[int, Block], int] = defaultdict(int)
        for step in steps:
            shape = [(message.path, size(message, self.parts)) for message in step]
            transfer = max(self.busy(shape).values())
            arrived: defaultdict[tuple[int, Block], int] = defaultdict(int)
            for message in step:
                start = max(there[message.source, block] for block in message.payload)
                end = start + transfer + self.latency(message.path)
                for block in message.payload:
                    key = message.destination, block
                    arrived[key] = max(arrived[key], end)
            for key, end in arrived.items():
                there[key] = max(there[key], end)
        return max(there.values())


def run(case: Case, network: Network, steps: Steps) -> Outcome:
    """Execute a schedule; raise `ScheduleFault` where it is impossible or incomplete."""
    schedule = tuple(map(tuple, steps))
    traffic = proven(case.unpriced, schedule)
    missing = traffic.carried.keys() - network.links
    if missing:
        msg = f"no such links: {sorted(missing)}"
        raise ScheduleFault(msg)
    ledger = Ledger(case, network, traffic.parts)
    if isinstance(steps, Flow):
        length = len(schedule) // steps.phases
        starts = range(0, len(schedule), length)
        time = sum(ledger.flow(schedule[start : start + length]) for start in starts)
    else:
        time = sum(map(ledger.duration, traffic.streamed))
        for shape, count in traffic.shapes.items():
            time += count * max(map(sum, ledger.costs(shape)))
    unit = ledger.bytes_unit
    levels = [Fraction(0)] * len(case.latency)
    for hop, moved in traffic.carried.items():
        link = network.links[hop]
        levels[link.level] += moved * link.share * unit
    return Outcome(
        time * ledger.time_unit,
        len(schedule),
        traffic.sent * unit,
        tuple(levels),
        traffic.reduced * unit,
    )


def streamed_cost(step: Step, costs: list[tuple[int, int]], index: int) -> tuple[int, int]:
    """Return a message's (latency, transfer time), with those of what it passes on in this step.

    What a switch passes on in the same step has both latencies, and the slower transfer.
    """
    message = step[index]
    if not message.streamed:
        return costs[index]
    inward = [cost for other, cost in zip(step, costs, strict=True) if feeds(other, message)]
    if message.source >= 0 or not inward:
        msg = f"node {message.source} has nothing to pass on in this step"
        raise ScheduleFault(msg)
    return (
        costs[index][0] + max(latency for latency, _ in inward),
        max(costs[index][1], *(transfer for _, transfer in inward)),
    )


def feeds(one: Message, other: Message) -> bool:
    """Tell whether a message brings a switch what another passes on."""
    return (
        one.destination == other.source
        and not one.streamed
        and not set(one.payload).isdisjoint(other.payload)
    )


def deliver(data: Data, step: Step) -> None:
    """Move a step's data: all read first, then all written; streamed messages after the others."""
    for streamed in (False, True):
        messages = [message for message in step if message.streamed is streamed]
        held = [data.read(message) for message in messages]
        for message, masks in zip(messages, held, strict=True):
            data.write(message, masks)
