"""Event simulation of overlap: streams that run their tasks in order, with exact arithmetic.

The independent witness of the closed forms of overlap; it imports neither of the two packages.  A
stream starts its next task when the one before is done and all that it needs is done; time goes
from one end of a task to the next.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "Stream",
    "Task",
    "aggregate_ring",
    "buckets",
    "bulk_margin",
    "bulk_queued",
    "bulk_shared",
    "fused",
    "gradient_accumulation",
    "layer_by_layer",
    "of_communication",
    "pipelined_scatter",
    "prefetch",
    "ring",
    "run",
    "scatter_ring",
    "separate",
    "sharded_backward",
    "two_durations",
    "wave_product",
]

Time = Fraction


@dataclass(eq=False)
class Task:
    """What a stream runs; it needs others to be done."""

    duration: Time
    needs: tuple[Task, ...] = ()
    end: Time | None = None


class Stream:
    """Tasks in the order in which they are issued."""

    def __init__(self) -> None:
        self.waiting: deque[Task] = deque()

    def add(self, duration: Time, *needs: Task) -> Task:
        """Issue a task."""
        task = Task(duration, needs)
        self.waiting.append(task)
        return task


def run(*streams: Stream) -> Time:
    """Run streams to their end; return the time of the last end."""
    now = Fraction(0)
    running: dict[int, Task] = {}
    ends: list[tuple[Time, int]] = []
    while True:
        for number, stream in enumerate(streams):
            if number in running or not stream.waiting:
                continue
            head = stream.waiting[0]
            if all(need.end is not None and need.end <= now for need in head.needs):
                running[number] = stream.waiting.popleft()
                heapq.heappush(ends, (now + head.duration, number))
        if not ends:
            break
        now, number = heapq.heappop(ends)
        running.pop(number).end = now
    if any(stream.waiting for stream in streams):
        message = "the streams wait for one another"
        raise RuntimeError(message)
    return now


# Two durations: both at once for as long as the efficiency lets them, then one, then the other.


def two_durations(compute: Time, communication: Time, efficiency: Time) -> Time:
    """Run the overlapped part, then what is left of each."""
    return _partly(compute, communication, efficiency * min(compute, communication))


def of_communication(compute: Time, communication: Time, efficiency: Time) -> Time:
    """Run the share of the communication that may hide, while there is computation."""
    return _partly(compute, communication, min(efficiency * communication, compute))


def _partly(compute: Time, communication: Time, together: Time) -> Time:
    left, right = Stream(), Stream()
    one, other = left.add(together), right.add(together)
    alone = left.add(compute - together, one, other)
    right.add(communication - together, alone)
    return run(left, right)


# Gradients.


def buckets(compute: Sequence[Time], communication: Sequence[Time], before: Time) -> Time:
    """Reduce each bucket when its part of the backward is done; some computation comes first."""
    work, link = Stream(), Stream()
    work.add(before)
    for own, sent in zip(compute, communication, strict=True):
        link.add(sent, work.add(own))
    return run(work, link)


def gradient_accumulation(
    compute: Time, communication: Time, num_micro_batches: int, backward_fraction: Time, count: int
) -> Time:
    """Run micro-batches; the last one's backward has gradients to be reduced, bucket by bucket."""
    each = compute / num_micro_batches
    backward = each * backward_fraction
    work, link = Stream(), Stream()
    for index in range(num_micro_batches):
        work.add(each - backward)
        for _ in range(count):
            done = work.add(backward / count)
            if index == num_micro_batches - 1:
                link.add(communication / count, done)
    return run(work, link)


# Layers.


def prefetch(gather: Sequence[Time], compute: Sequence[Time], ahead: int) -> Time:
    """Gather each layer's weights into a place that a layer before has left."""
    work, link = Stream(), Stream()
    done: list[Task] = []
    for index, (sent, own) in enumerate(zip(gather, compute, strict=True)):
        place = Task(Fraction(0)) if index <= ahead else done[index - ahead - 1]
        if index <= ahead:
            place.end = Fraction(0)
        done.append(work.add(own, link.add(sent, place)))
    return run(work, link)


def sharded_backward(
    gather: Sequence[Time], compute: Sequence[Time], reduce: Sequence[Time], ahead: int = 1
) -> Time:
    """Gather weights as a layer so many before them begins, reduce gradients as one ends."""
    work, link = Stream(), Stream()
    arrived: list[Task] = []
    begun: tuple[Task, ...] = ()
    for index, own in enumerate(compute):
        issued = gather[len(arrived) : index + 1 + ahead]
        arrived += [link.add(sent, *begun) for sent in issued]
        begun = (work.add(own, arrived[index]),)
        link.add(reduce[index], *begun)
    return run(work, link)


def layer_by_layer(
    compute: Sequence[Time], communication: Sequence[Time], independent: Time
) -> Time:
    """Run a layer's independent part, wait for the layer before, run the rest, send."""
    work, link = Stream(), Stream()
    before: Task | None = None
    for own, sent in zip(compute, communication, strict=True):
        if before is None:
            done = work.add(own)
        else:
            work.add(own * independent)
            done = work.add(own * (1 - independent), before)
        before = link.add(sent, done)
    return run(work, link)


# Products and collectives in chunks: every rank of the ring, not one that stands for all.


def ring(product: Time, step: Time, ranks: int) -> Time:
    """Pass chunks round a ring; each rank multiplies the chunk that it has while the next comes."""
    work = [Stream() for _ in range(ranks)]
    links = [Stream() for _ in range(ranks)]
    held: list[Task | None] = [None] * ranks
    for index in range(ranks):
        for rank in range(ranks):
            arrived = held[rank]
            work[rank].add(product, *([arrived] if arrived else []))
        if index < ranks - 1:
            held = [
                links[rank].add(step, *([one] if (one := held[rank - 1]) else []))
                for rank in range(ranks)
            ]
    return run(*work, *links)


def aggregate_ring(product: Time, step: Time, ranks: int) -> Time:
    """Exchange chunks within pairs, then pass two chunks at a time from pair to pair."""
    work = [Stream() for _ in range(ranks)]
    links = [Stream() for _ in range(ranks)]
    held = [links[rank].add(step) for rank in range(ranks)]
    for index in range(ranks // 2):
        for rank in range(ranks):
            work[rank].add(2 * product, held[rank])
        if index < ranks // 2 - 1:
            held = [links[rank].add(2 * step, held[rank - 2]) for rank in range(ranks)]
    return run(*work, *links)


def scatter_ring(product: Time, step: Time, ranks: int, sums: Time) -> Time:
    """Send each chunk's product to the rank that it belongs to; add up what came at the end."""
    work = [Stream() for _ in range(ranks)]
    links = [Stream() for _ in range(ranks)]
    came: list[list[Task]] = [[] for _ in range(ranks)]
    for index in range(1, ranks + 1):
        for rank in range(ranks):
            done = work[rank].add(product)
            if index < ranks:
                owner = (rank + index) % ranks
                came[owner].append(links[rank].add(step, done))
    for rank in range(ranks):
        work[rank].add(sums, *came[rank])
    return run(*work, *links)


def pipelined_scatter(product: Time, step: Time, splits: int, last: Time) -> Time:
    """Send each part when it is done."""
    work, link = Stream(), Stream()
    for index in range(splits):
        link.add(last if index == splits - 1 else step, work.add(product))
    return run(work, link)


# Multiprocessors: work is counted in multiprocessor seconds.


def bulk_margin(product: Time, communication: Time, sms: int, taken: int) -> Time:
    """Run a product of so many seconds on all on those that are left, beside communication."""
    return _shared(product, communication, sms, taken, gives_back=False)


def bulk_shared(product: Time, communication: Time, sms: int, taken: int) -> Time:
    """Run a product on those that are left, and on all when communication is done."""
    return _shared(product, communication, sms, taken, gives_back=True)


def _shared(product: Time, communication: Time, sms: int, taken: int, *, gives_back: bool) -> Time:
    left, sending, now = product * sms, communication, Fraction(0)
    while left or sending:
        rate = sms if gives_back and not sending else sms - taken
        steps = ([left / rate] if left and rate else []) + ([sending] if sending else [])
        step = min(steps)
        left -= min(step * rate, left)
        sending -= min(step, sending)
        now += step
    return now


def bulk_queued(product: Time, communication: Time) -> Time:
    """Run communication when the product is done."""
    stream = Stream()
    stream.add(product)
    stream.add(communication)
    return run(stream)


def wave_product(tiles: int, tile: Time, sms: int) -> Time:
    """Give each tile to the multiprocessor that is free first."""
    free = [Fraction(0)] * sms
    last = Fraction(0)
    for _ in range(tiles):
        end = heapq.heappop(free) + tile
        heapq.heappush(free, end)
        last = max(last, end)
    return last


# Messages.


def separate(compute: Time, latency: Time, transfers: Sequence[Time]) -> Time:
    """Compute, then send each message and wait for it."""
    stream = Stream()
    stream.add(compute)
    for transfer in transfers:
        stream.add(latency)
        stream.add(transfer)
    return run(stream)


def fused(compute: Time, latency: Time, transfers: Sequence[Time], copies: Time) -> Time:
    """Compute, copy all messages into one, send it, copy it apart."""
    work, link = Stream(), Stream()
    work.add(compute)
    together = work.add(copies / 2)
    link.add(latency, together)
    sent = [link.add(transfer) for transfer in transfers]
    work.add(copies / 2, *sent)
    return run(work, link)
