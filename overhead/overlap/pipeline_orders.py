"""What each stage of a pipeline runs, in order, by schedule."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = [
    "BACKWARD",
    "FORWARD",
    "INPUTS",
    "WEIGHTS",
    "Orders",
    "Slot",
    "Task",
    "stage_orders",
    "tasks_of",
]

FORWARD, BACKWARD = "forward", "backward"
# The two parts of a backward that is split.
INPUTS, WEIGHTS = "gradients of inputs", "gradients of weights"


class Task(NamedTuple):
    """What is computed of one micro-batch in one chunk; chunks count in the model's order."""

    kind: str
    chunk: int
    micro_batch: int


# What a stage runs at a time (two tasks overlap), and the lists of all stages.
Slot = tuple[Task, ...]
Orders = list[list[Slot]]


def tasks_of(schedule: str, pp: int, micro_batches: int, virtual_stages: int = 1) -> int:
    """Return how many tasks a pipeline has at most."""
    ways = {"forward_only": 1, "zero_bubble_h1": 3, "zero_bubble_h2": 3, "dual_pipe": 3}
    return ways.get(schedule, 2) * pp * micro_batches * virtual_stages


def stage_orders(schedule: str, pp: int, micro_batches: int, virtual_stages: int = 1) -> Orders:
    """Return what each stage runs, in order."""
    if virtual_stages > 1 and schedule != "interleaved":
        message = f"{virtual_stages} virtual stages; one, unless the schedule is interleaved"
        raise ValueError(message)
    if schedule == "dual_pipe":
        return _dual_pipe(pp, micro_batches)
    if schedule == "interleaved" and virtual_stages > 1:
        orders = _interleaved(pp, micro_batches, virtual_stages)
    else:
        orders = [_plain(schedule, stage, pp, micro_batches) for stage in range(pp)]
    return [[(task,) for task in order] for order in orders]


def _plain(schedule: str, stage: int, pp: int, micro_batches: int) -> list[Task]:
    """Return a stage's list where it has one chunk (Qi et al.'s sections 2.1 and 2.2 for ZB)."""
    numbers = range(micro_batches)
    forwards = [Task(FORWARD, stage, number) for number in numbers]
    behind = pp - 1 - stage
    match schedule:
        case "forward_only":
            return forwards
        case "gpipe":
            return forwards + [Task(BACKWARD, stage, number) for number in reversed(numbers)]
        case "one_f_one_b" | "interleaved":
            return _alternating(forwards, [Task(BACKWARD, stage, n) for n in numbers], behind)
        case "zero_bubble_h1" | "zero_bubble_h2":
            depth = 1 if schedule == "zero_bubble_h1" else 2
            inputs = [Task(INPUTS, stage, number) for number in numbers]
            return _with_weights(_alternating(forwards, inputs, depth * behind), depth * stage)
    message = f"no order of the schedule {schedule} is known; leave the timeline out"
    raise ValueError(message)


def _alternating(forwards: list[Task], backwards: list[Task], ahead: int) -> list[Task]:
    """Return so many forwards, then a forward and a backward in turn, then what is left."""
    ahead = min(ahead, len(forwards))
    tasks = forwards[:ahead]
    for index, backward in enumerate(backwards):
        tasks += [*forwards[ahead + index : ahead + index + 1], backward]
    return tasks


def _with_weights(tasks: Sequence[Task], late: int) -> list[Task]:
    """Return a list with the weights' gradients, so many backwards after their own."""
    waiting: deque[Task] = deque()
    whole: list[Task] = []
    for task in tasks:
        whole.append(task)
        if task.kind == INPUTS:
            waiting.append(task._replace(kind=WEIGHTS))
            if len(waiting) > late:
                whole.append(waiting.popleft())
    return [*whole, *waiting]


def _interleaved(pp: int, micro_batches: int, virtual_stages: int) -> list[list[Task]]:
    """Return Megatron-LM's lists: pp micro-batches at a time in each chunk."""
    if micro_batches % pp:
        message = f"{micro_batches} micro-batches; a multiple of the {pp} stages"
        raise ValueError(message)
    turns = [
        (chunk, first + place)
        for first in range(0, micro_batches, pp)
        for chunk in range(virtual_stages)
        for place in range(pp)
    ]
    last = virtual_stages - 1
    orders = []
    for stage in range(pp):
        forwards = [Task(FORWARD, chunk * pp + stage, number) for chunk, number in turns]
        backwards = [Task(BACKWARD, (last - c) * pp + stage, number) for c, number in turns]
        orders.append(_alternating(forwards, backwards, 2 * (pp - 1 - stage) + last * pp))
    return orders


def _dual_pipe(pp: int, micro_batches: int) -> Orders:
    if pp % 2 or micro_batches % 2 or micro_batches < 2 * pp:
        wrong = f"{pp} stages and {micro_batches} micro-batches"
        message = f"{wrong}; even numbers, and two micro-batches a stage or more (DualPipe)"
        raise ValueError(message)
    return [list(_Both(rank, pp, micro_batches // 2).slots()) for rank in range(pp)]


class _Both:
    """One rank's list in DualPipe (dualpipe/dualpipe.py, eight steps): two stages, two ways.

    Way 0 is that of the micro-batches which enter the pipeline at the nearer end.
    """

    def __init__(self, rank: int, pp: int, half: int) -> None:
        self.half, self.far = half, rank >= pp // 2
        self.nearer = min(rank, pp - 1 - rank)
        self.chunks = (self.nearer, pp - 1 - self.nearer)
        self.inner = pp // 2 - 1 - self.nearer
        self.paired = half - pp + self.nearer + 1
        self.next = {(kind, way): 0 for kind in (FORWARD, BACKWARD) for way in (0, 1)}
        self.late: deque[Task] = deque()

    def take(self, kind: str, way: int, *, split: bool = False) -> Task:
        """Return the next task of a kind and a way; the weights of a split one come later."""
        number = self.next[kind, way] + (self.half if (way == 1) != self.far else 0)
        self.next[kind, way] += 1
        task = Task(kind, self.chunks[way], number)
        if split:
            self.late.append(task._replace(kind=WEIGHTS))
            return task._replace(kind=INPUTS)
        return task

    def pair(self, way: int) -> Slot:
        """Return a forward of one way that overlaps a backward of the other."""
        return self.take(FORWARD, way), self.take(BACKWARD, 1 - way)

    def slots(self) -> Iterator[Slot]:
        """Yield all that the rank runs."""
        for way in [0] * (2 * self.inner) + [0, 1] * (self.nearer + 1):
            yield (self.take(FORWARD, way),)
        for _ in range(self.inner):
            yield (self.take(BACKWARD, 1, split=True),)
            yield (self.late.popleft(),)
            yield (self.take(FORWARD, 1),)
        for turn in range(self.paired):
            if turn or self.inner:
                yield self.pair(0)
            else:
                # The two ranks in the middle don't overlap their first.
                yield (self.take(FORWARD, 0),)
                yield (self.take(BACKWARD, 1),)
            yield self.pair(1)
        for _ in range(self.inner):
            yield (self.take(BACKWARD, 1),)
            yield self.pair(1)
        # The later half of these backwards is split.
        whole = self.nearer + 1
        for turn in range(2 * whole):
            yield (self.take(BACKWARD, 1 - turn % 2, split=turn >= whole),)
        for _ in range(self.inner):
            yield (self.late.popleft(),)
            yield (self.take(BACKWARD, 0, split=True),)
        while self.late:
            yield (self.late.popleft(),)
