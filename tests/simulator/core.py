"""Step-by-step execution of a communication schedule on explicit directed links.

The simulator is the product's independent witness: it imports neither of the two packages, uses
exact rational arithmetic, and proves while it runs that the schedule computes its collective.

A message costs its path's latency plus, for its slowest link, all bytes on that directed link in
that step over the link's bandwidth; a step lasts as long as its slowest message, and a schedule as
long as its steps together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tests.simulator.data import Data
from tests.simulator.model import (
    Block,
    Case,
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


def run(case: Case, network: Network, steps: Steps) -> Outcome:
    """Execute a schedule; raise `ScheduleFault` where it is impossible or incomplete."""
    data = Data(case)
    sent: defaultdict[int, Fraction] = defaultdict(Fraction)
    reduced: defaultdict[int, Fraction] = defaultdict(Fraction)
    carried = [Fraction(0)] * len(case.latency)
    time = Fraction(0)
    count = 0
    for step in steps:
        sizes = [message_bytes(case, network, message) for message in step]
        time += duration(case, network, step, sizes)
        count += 1
        for message, size in zip(step, sizes, strict=True):
            sent[message.source] += size
            if message.mode == "reduce":
                reduced[message.destination] += size
            for hop in pairwise(message.path):
                link = network.links[hop]
                carried[link.level] += size * link.share
        deliver(data, step)
    data.check()
    ranks = range(case.ranks)
    return Outcome(
        time,
        count,
        max(sent[rank] for rank in ranks),
        tuple(carried),
        max(reduced[rank] for rank in ranks),
    )


def message_bytes(case: Case, network: Network, message: Message) -> Fraction:
    """Return a message's exact size; raise where it is malformed."""
    where = f"the message along {message.path}"
    if len(message.path) < 2 or any(hop not in network.links for hop in pairwise(message.path)):
        msg = f"{where}: no such links"
        raise ScheduleFault(msg)
    if not message.payload:
        msg = f"{where}: empty"
        raise ScheduleFault(msg)
    if len(set(message.payload)) != len(message.payload):
        msg = f"{where}: a block twice"
        raise ScheduleFault(msg)
    cuts = Counter(block.parts for block in message.payload)
    return case.home_bytes * sum((Fraction(n, parts) for parts, n in cuts.items()), Fraction(0))


def duration(case: Case, network: Network, step: Step, sizes: list[Fraction]) -> Fraction:
    """Return how long a step lasts: its slowest message, with the links shared."""
    if not step:
        msg = "a step without messages"
        raise ScheduleFault(msg)
    load: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for message, size in zip(step, sizes, strict=True):
        for hop in pairwise(message.path):
            load[hop] += size
    busy = {hop: total / network.links[hop].bandwidth for hop, total in load.items()}
    costs = [
        (
            network.latency(message.path, case.latency_per),
            max(busy[hop] for hop in pairwise(message.path)),
        )
        for message in step
    ]
    return max(sum(streamed_cost(step, costs, index), Fraction(0)) for index in range(len(step)))


def streamed_cost(
    step: Step, costs: list[tuple[Fraction, Fraction]], index: int
) -> tuple[Fraction, Fraction]:
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
