"""When what runs: the predicted course of one case, as spans on rows.

Each mechanism is run as it is described: parts in their order on their row, each as early as what
it needs is done.  The last end is the time that its formula gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from overhead.frozen import frozen

COMPUTATION, COMMUNICATION = "computation", "communication"
# A figure or a trace of more can't be read.
MOST_SPANS = 100_000


@frozen(slots=True)
class Span:
    """Something that runs."""

    row: str  # Where: computation, communication, or a pipeline's stage
    name: str  # What
    start: float  # When [s]
    duration: float
    kind: str = ""  # Of what kind it is; the row tells it where this is empty

    @property
    def end(self) -> float:
        """When it is done [s]."""
        return self.start + self.duration


@dataclass
class Course:
    """Spans so far, and when each row is free again."""

    spans: list[Span] = field(default_factory=list)
    free: dict[str, float] = field(default_factory=dict)

    def run(
        self, row: str, name: str, duration: float, after: float = 0.0, kind: str = ""
    ) -> float:
        """Run something on a row as soon as it is free; return its end."""
        start = max(self.free.get(row, 0.0), after)
        self.spans.append(Span(row, name, start, duration, kind))
        self.free[row] = start + duration
        return start + duration

    def compute(self, name: str, duration: float, after: float = 0.0) -> float:
        """Run computation."""
        return self.run(COMPUTATION, name, duration, after)

    def send(self, name: str, duration: float, after: float = 0.0) -> float:
        """Run communication."""
        return self.run(COMMUNICATION, name, duration, after)


Given = Mapping[str, float]
Run = Callable[[Course, Given], None]


def _both(given: Given) -> tuple[float, float]:
    return given["compute_time"], given["communication_time"]


def _cut(given: Given) -> tuple[float, float]:
    """Return the time of a product in pieces, which can be longer than the whole one's."""
    compute, communication = _both(given)
    return given.get("slowed_matmul_time", compute), communication


def _two_durations(course: Course, given: Given) -> None:
    compute, communication = _both(given)
    course.compute("computation", compute)
    # As late as the whole allows: what hides is the end of the one, the start of the other.
    late = max(given["overlapped_time"] - communication, 0.0)
    course.send("communication", communication, after=late)


def _buckets(
    course: Course, sliding_window: float, communication: float, count: int, first: float
) -> None:
    for index in range(count):
        share = first if index == 0 else (1.0 - first) / (count - 1)
        ready = course.compute(f"backward of bucket {index + 1}", sliding_window * share)
        course.send(f"bucket {index + 1}", communication * share, after=ready)


def _ddp_buckets(course: Course, given: Given) -> None:
    count = int(given["gradient_buckets"])
    first = given["first_bucket_fraction"] if count > 1 else 1.0
    _buckets(course, *_both(given), count, first)


def _gradient_accumulation(course: Course, given: Given) -> None:
    compute, communication = _both(given)
    count = int(given["num_micro_batches"])
    window = min(given["overlap_window"], compute)
    if count > 1:
        each = min(compute / count, (compute - window) / (count - 1))
        for index in range(count - 1):
            course.compute(f"micro-batch {index + 1}", each)
    left = compute - window - course.free.get(COMPUTATION, 0.0)
    course.compute(f"forward of micro-batch {count}", max(left, 0.0))
    buckets = int(given["gradient_buckets"])
    _buckets(course, window, communication, buckets, 1.0 / buckets)


def _prefetch(course: Course, given: Given) -> None:
    compute, communication = _both(given)
    count, ahead = int(given["layers"]), int(given["prefetched_layers"])
    ends: list[float] = []
    for index in range(count):
        freed = index - ahead - 1
        after = ends[freed] if freed >= 0 else 0.0
        arrived = course.send(f"weights of layer {index + 1}", communication / count, after)
        ends.append(course.compute(f"layer {index + 1}", compute / count, arrived))


def _sharded_backward(course: Course, given: Given) -> None:
    compute, communication = _both(given)
    count = int(given["layers"])
    reduce = communication * given["reduction_fraction"] / count
    gather, ahead = communication / count - reduce, int(given["prefetched_layers"])
    arrived: list[float] = []
    for index in range(count):
        while len(arrived) < min(index + 1 + ahead, count):
            arrived.append(course.send(f"weights of layer {count - len(arrived)}", gather))
        done = course.compute(f"layer {count - index}", compute / count, arrived[index])
        course.send(f"gradients of layer {count - index}", reduce, done)


def _layer_by_layer(course: Course, given: Given) -> None:
    compute, communication = _both(given)
    count = int(given["layers"])
    each = compute / count
    arrived = 0.0
    for index in range(count):
        free = given["independent_compute_fraction"] * each if index else 0.0
        if free:
            course.compute(f"layer {index + 1}, independent", free)
        done = course.compute(f"layer {index + 1}", each - free, arrived)
        arrived = course.send(f"all_reduce of layer {index + 1}", communication / count, done)


def _ring_exchange(course: Course, given: Given) -> None:
    compute, communication = _cut(given)
    ranks = int(given["ranks"])
    arrived = course.send("chunk", communication) if ranks == 1 else 0.0
    for index in range(ranks):
        if index:
            arrived = course.send(f"chunk {index + 1}", communication / (ranks - 1))
        course.compute(f"product of chunk {index + 1}", compute / ranks, arrived)


def _ring_exchange_aggregate(course: Course, given: Given) -> None:
    compute, communication = _cut(given)
    ranks = int(given["ranks"])
    if ranks == 1:
        _ring_exchange(course, given)
        return
    each = communication / (ranks - 1)
    arrived = course.send("chunk 2", each)
    for index in range(0, ranks, 2):
        if index:
            arrived = course.send(f"chunks {index + 1} and {index + 2}", 2.0 * each)
        name = f"product of chunks {index + 1} and {index + 2}"
        course.compute(name, 2.0 * compute / ranks, arrived)


def _reduce_scatter_ring(course: Course, given: Given) -> None:
    compute, communication = _cut(given)
    for index in range(ranks := int(given["ranks"])):
        done = course.compute(f"product of chunk {index + 1}", compute / ranks)
        if index < ranks - 1:
            course.send(f"chunk {index + 1}", communication / (ranks - 1), done)
    if ranks == 1:
        course.send("chunk", communication, course.free[COMPUTATION])
    course.compute("sums", given["partial_sum_time"], max(course.free.values()))


def _reduce_scatter_pipeline(course: Course, given: Given) -> None:
    compute, communication = _cut(given)
    splits = int(given["splits"])
    for index in range(splits):
        done = course.compute(f"product of part {index + 1}", compute / splits)
        last = index == splits - 1
        time = given["last_split_time"] if last else communication / splits
        course.send(f"part {index + 1}", time, done)


def _bulk_margin(course: Course, given: Given) -> None:
    course.compute("product on fewer multiprocessors", given["sm_limited_compute_time"])
    course.send("collective", given["communication_time"])


def _bulk_shared(course: Course, given: Given) -> None:
    compute, communication = _both(given)
    course.send("collective", communication)
    share = min(given["num_sm"] / given["sms"], 1.0)
    shared = communication if share == 1.0 else min(communication, compute / (1.0 - share))
    course.compute("product on fewer multiprocessors", shared)
    course.compute("product", max(compute - shared * (1.0 - share), 0.0))


def _bulk_queued(course: Course, given: Given) -> None:
    done = course.compute("product", given["compute_time"])
    course.send("collective", given["communication_time"], done)


def _fused_messages(course: Course, given: Given) -> None:
    course.compute("computation", given["compute_time"])
    copy, message = given["copy_time"] / 2.0, given["message_latency"] + given["transfer_time"]
    sent = course.send("one message", message, course.compute("copy together", copy))
    course.compute("copy apart", copy, sent)


TIMELINES: dict[str, Run] = {
    "two_durations": _two_durations,
    "ddp_buckets": _ddp_buckets,
    "fsdp_prefetch": _prefetch,
    "fsdp_backward": _sharded_backward,
    "zero3_prefetch": _prefetch,
    "layer_by_layer": _layer_by_layer,
    "gradient_accumulation": _gradient_accumulation,
    "ring_exchange": _ring_exchange,
    "ring_exchange_aggregate": _ring_exchange_aggregate,
    "reduce_scatter_ring": _reduce_scatter_ring,
    "reduce_scatter_pipeline": _reduce_scatter_pipeline,
    "bulk_margin": _bulk_margin,
    "bulk_shared": _bulk_shared,
    "bulk_queued": _bulk_queued,
    "fused_messages": _fused_messages,
}
# What says in how many parts a course is.
COUNTS = ("gradient_buckets", "layers", "ranks", "splits", "num_micro_batches")
# What a course takes beside what its mechanism takes.
DERIVED = ("overlapped_time", "overlap_window", "sm_limited_compute_time", "slowed_matmul_time")


def check_spans(count: float) -> None:
    """Refuse a course of more spans than can be looked at."""
    if not math.isfinite(count) or count > MOST_SPANS:
        message = f"{count:.3g} spans; at most {MOST_SPANS:,}"
        raise ValueError(message)


def timeline(mechanism: str, given: Given) -> list[Span]:
    """Return the course of one case."""
    check_spans(2.0 * sum(given.get(name, 0.0) for name in COUNTS))
    course = Course()
    TIMELINES[mechanism](course, given)
    return [span for span in course.spans if span.duration > 0.0]
