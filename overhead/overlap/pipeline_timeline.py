"""The course of a pipeline: each stage runs its list in order, each item as early as it can.

What another stage gives arrives a transfer after it was done.  A transfer occupies no stage, so
that several can be under way from one stage at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from overhead.overlap.pipeline_orders import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHTS,
    Orders,
    Slot,
    Task,
    stage_orders,
    tasks_of,
)
from overhead.overlap.timeline import Course, Span, check_spans

__all__ = [
    "EXPOSED",
    "OPTIMIZER",
    "PAIR",
    "TRANSFER",
    "UNEXPLAINED",
    "WAITING",
    "Ran",
    "Sent",
    "kind_of",
    "pipeline_timeline",
    "run_orders",
    "send_spans",
    "slot_name",
    "stage_row",
]

# A forward that overlaps a backward, and what is on its way to another stage.
PAIR, TRANSFER = "forward and backward", "transfer"
# What passes hold beside computing, and what comes after all of them.
EXPOSED, WAITING = "exposed communication", "waiting for the host"
OPTIMIZER, UNEXPLAINED = "optimizer", "what no part explains"
LETTERS = {FORWARD: "F", BACKWARD: "B", INPUTS: "B", WEIGHTS: "W"}


class Ran(NamedTuple):
    """A slot that has run, and when [s]."""

    slot: Slot
    start: float
    end: float


class Sent(NamedTuple):
    """A task's result on its way to another stage, and when [s]."""

    task: Task
    target: int
    start: float
    end: float


def run_orders(
    orders: Orders, duration: Callable[[Slot], float], transfer: float
) -> tuple[list[list[Ran]], list[list[Sent]]]:
    """Run all stages' lists, each item as soon as its stage is free and its input has arrived."""
    home = {task: at for at, order in enumerate(orders) for slot in order for task in slot}
    last = max(task.chunk for task in home)
    done: dict[Task, float] = {}
    ran: list[list[Ran]] = [[] for _ in orders]
    sent: list[list[Sent]] = [[] for _ in orders]
    held_up: dict[Task, list[int]] = {}
    going = deque(range(len(orders)))
    while going:
        at = going.popleft()
        while len(ran[at]) < len(orders[at]):
            slot = orders[at][len(ran[at])]
            needed = [one for task in slot for one in _needed(task, last, home)]
            missing = next((one for one in needed if one not in done), None)
            if missing is not None:
                held_up.setdefault(missing, []).append(at)
                break
            arrived = [done[one] + (transfer if home[one] != at else 0.0) for one in needed]
            start = max([ran[at][-1].end if ran[at] else 0.0, *arrived])
            end = start + duration(slot)
            ran[at].append(Ran(slot, start, end))
            for task in slot:
                done[task] = end
                going.extend(held_up.pop(task, ()))
                target = home.get(_next(task, home), at)
                if target != at:
                    sent[at].append(Sent(task, target, end, end + transfer))
    if len(done) < len(home):
        message = "stages wait for one another; another order"
        raise ValueError(message)
    return ran, sent


def _needed(task: Task, last: int, home: Mapping[Task, int]) -> Iterator[Task]:
    """Yield what has to be done before a task can."""
    if task.kind == WEIGHTS:
        yield task._replace(kind=INPUTS)
    elif task.kind == FORWARD:
        if task.chunk:
            yield task._replace(chunk=task.chunk - 1)
    else:
        yield task._replace(kind=FORWARD)
        if task.chunk < last:
            yield _backward(task.micro_batch, task.chunk + 1, home)


def _backward(micro_batch: int, chunk: int, home: Mapping[Task, int]) -> Task:
    """Return the task that gives the gradients of a chunk's inputs, be it split or not."""
    whole = Task(BACKWARD, chunk, micro_batch)
    return whole if whole in home else whole._replace(kind=INPUTS)


def _next(task: Task, home: Mapping[Task, int]) -> Task:
    """Return the task that takes what a task gives; one that there isn't behind the last."""
    if task.kind == FORWARD:
        return task._replace(chunk=task.chunk + 1)
    if task.kind == WEIGHTS:
        return task._replace(chunk=-1)
    return _backward(task.micro_batch, task.chunk - 1, home)


# Spans.


def kind_of(slot: Slot) -> str:
    """Return the kind of what runs at a time."""
    return PAIR if len(slot) > 1 else slot[0].kind


def slot_name(slot: Slot, pp: int, virtual_stages: int = 1) -> str:
    """Return a short name: F3 for micro-batch 3's forward, F3.2 for that of its second chunk."""
    return "+".join(
        f"{LETTERS[task.kind]}{task.micro_batch + 1}"
        + (f".{task.chunk // pp + 1}" if virtual_stages > 1 else "")
        for task in slot
    )


def stage_row(stage: int) -> str:
    """Return the name of a stage's row."""
    return f"stage {stage + 1}"


def send_spans(row: str, sent: Sequence[Sent], pp: int, virtual_stages: int = 1) -> list[Span]:
    """Return what a stage sends as spans; those under way at once have rows of their own."""
    course = Course()
    free: list[float] = []
    for one in sorted(sent, key=lambda each: each.start):
        lane = next((at for at, end in enumerate(free) if end <= one.start), len(free))
        free[lane : lane + 1] = [one.end]
        name = f"{slot_name((one.task,), pp, virtual_stages)} to {stage_row(one.target)}"
        on = f"{row} ({lane + 1})" if lane else row
        course.run(on, name, one.end - one.start, one.start, TRANSFER)
    return course.spans


def pipeline_timeline(schedule: str, given: Mapping[str, float]) -> list[Span]:
    """Return the course of a pipeline of even stages."""
    pp, count = int(given["pp"]), given["micro_batches"]
    virtual = int(given.get("virtual_stages", 1.0))
    check_spans(2.0 * tasks_of(schedule, pp, 1, virtual) * count)
    orders = stage_orders(schedule, pp, int(count), virtual)
    weights = given.get("stage_weight_time", 0.0)
    backward = given["stage_backward_time"]
    times = {
        FORWARD: given["stage_forward_time"] / virtual,
        BACKWARD: backward / virtual,
        INPUTS: (backward - weights) / virtual,
        WEIGHTS: weights / virtual,
    }
    both = given.get("stage_overlapped_time", times[FORWARD] + times[BACKWARD])

    def duration(slot: Slot) -> float:
        return both if len(slot) > 1 else times[slot[0].kind]

    spans: list[Span] = []
    for stage, (ran, sent) in enumerate(
        zip(*run_orders(orders, duration, given["p2p_time"]), strict=True)
    ):
        row = stage_row(stage)
        for slot, start, end in ran:
            name = slot_name(slot, pp, virtual)
            spans.append(Span(row, name, start, end - start, kind_of(slot)))
        spans += send_spans(f"{row} sends", sent, pp, virtual)
    return [span for span in spans if span.duration > 0.0]
