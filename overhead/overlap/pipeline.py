"""The order of a pipeline's tasks on its stages, and when each runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from overhead.arrays import xp
from overhead.formula import derived
from overhead.labels import EVEN_SCHEDULES, FOLDED
from overhead.overlap.timeline import Course, Span, check_spans

# Transfers between pipeline stages as an overlap: what a schedule hides of them.
#
# How long the pipeline takes, and what of its transfers shows, is `overhead.schedule`'s: here its
# parts stand for computation, communication and both.

PIPELINES = ("gpipe", "one_f_one_b", "interleaved")
WHEN = {"mechanism": "pipeline", "schedule": "|".join(PIPELINES)}

EVEN = ("all stages take equally long", "a transfer occupies no device")

LONG = "transfers longer than the stage compute are sequential"


@derived(returns="overlapped_time", assumes=(*EVEN, LONG), when=WHEN)
def pipeline_overlapped_time(busy_time, bubble_time, exposed_pp_time, communication_time):
    """Time of a pipeline with what its transfers add, and no less than these by themselves."""
    return xp.maximum(busy_time + bubble_time + exposed_pp_time, communication_time)


@derived(
    returns="communication_time",
    assumes=("every stage waits for each transfer, there and back",),
    when=WHEN,
)
def pipeline_communication_time(pp, p2p_time, num_micro_batches, virtual_pipeline_size):
    """Pipeline transfer time before overlap."""
    waited = 2.0 * p2p_time * (num_micro_batches * virtual_pipeline_size + pp - 1.0)
    return xp.where(pp > 1.0, waited, 0.0 * p2p_time)


# What each stage of a pipeline runs, in order, by schedule.

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


def tasks_of(schedule: str, pp: int, num_micro_batches: int, virtual_pipeline_size: int = 1) -> int:
    """Return how many tasks a pipeline has at most."""
    ways = 1 if schedule == "forward_only" else 3 if schedule in (*EVEN_SCHEDULES, *FOLDED) else 2
    return ways * pp * num_micro_batches * virtual_pipeline_size


def stage_orders(
    schedule: str, pp: int, num_micro_batches: int, virtual_pipeline_size: int = 1
) -> Orders:
    """Return what each stage runs, in order."""
    if schedule in FOLDED:
        if virtual_pipeline_size != 2:
            message = (
                f"{virtual_pipeline_size} virtual stages; two, where the schedule is {schedule}"
            )
            raise ValueError(message)
        return _folded(schedule, pp, num_micro_batches)
    if virtual_pipeline_size > 1 and schedule != "interleaved":
        message = f"{virtual_pipeline_size} virtual stages; one, unless the schedule is interleaved"
        raise ValueError(message)
    if schedule == "dual_pipe":
        return _dual_pipe(pp, num_micro_batches)
    if schedule == "interleaved" and virtual_pipeline_size > 1:
        orders = _interleaved(pp, num_micro_batches, virtual_pipeline_size)
    else:
        orders = [_plain(schedule, stage, pp, num_micro_batches) for stage in range(pp)]
    return [[(task,) for task in order] for order in orders]


def _plain(schedule: str, stage: int, pp: int, num_micro_batches: int) -> list[Task]:
    """Return a stage's list where it has one chunk (Qi et al.'s sections 2.1 and 2.2 for ZB)."""
    numbers = range(num_micro_batches)
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


def _interleaved(pp: int, num_micro_batches: int, virtual_pipeline_size: int) -> list[list[Task]]:
    """Return Megatron-LM's lists: pp micro-batches at a time in each chunk."""
    if num_micro_batches % pp:
        message = f"{num_micro_batches} micro-batches; a multiple of the {pp} stages"
        raise ValueError(message)
    turns = [
        (chunk, first + index)
        for first in range(0, num_micro_batches, pp)
        for chunk in range(virtual_pipeline_size)
        for index in range(pp)
    ]
    last = virtual_pipeline_size - 1
    orders = []
    for stage in range(pp):
        forwards = [Task(FORWARD, chunk * pp + stage, number) for chunk, number in turns]
        backwards = [Task(BACKWARD, (last - c) * pp + stage, number) for c, number in turns]
        orders.append(_alternating(forwards, backwards, 2 * (pp - 1 - stage) + last * pp))
    return orders


def _dual_pipe(pp: int, num_micro_batches: int) -> Orders:
    if pp % 2 or num_micro_batches % 2 or num_micro_batches < 2 * pp:
        wrong = f"{pp} stages and {num_micro_batches} micro-batches"
        message = f"{wrong}; even numbers, and two micro-batches a stage or more (DualPipe)"
        raise ValueError(message)
    return [list(_Both(rank, pp, num_micro_batches // 2).slots()) for rank in range(pp)]


class _Both:
    """One rank's list in DualPipe (dualpipe/dualpipe.py, eight steps): two stages, two ways.

    Way 0 is that of the micro-batches which enter the pipeline at the nearer end.
    """

    def __init__(self, rank: int, pp: int, half: int, *, folded: bool = False) -> None:
        self.half, self.far = half, rank >= pp // 2
        # Of a folded pipeline both ways are the same micro-batches.
        self.other = 0 if folded else half
        self.nearer = min(rank, pp - 1 - rank)
        self.chunks = (self.nearer, pp - 1 - self.nearer)
        self.inner = pp // 2 - 1 - self.nearer
        self.paired = half - pp + self.nearer + 1
        self.next = {(kind, way): 0 for kind in (FORWARD, BACKWARD) for way in (0, 1)}
        self.late: deque[Task] = deque()

    def take(self, kind: str, way: int, *, split: bool = False) -> Task:
        """Return the next task of a kind and a way; the weights of a split one come later."""
        number = self.next[kind, way] + (self.other if (way == 1) != self.far else 0)
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


def _folded(schedule: str, pp: int, num_micro_batches: int) -> Orders:
    """Return the lists of ranks with a chunk on the way down and one on the way up."""
    least = {"dual_pipe_v": 2 * pp, "zero_bubble_v": 2 * pp - 1}.get(schedule, 1)
    if num_micro_batches < least:
        message = f"{num_micro_batches} micro-batches; {least} or more on {pp} stages ({schedule})"
        raise ValueError(message)
    if schedule == "dual_pipe_v":
        both = [_Both(rank, 2 * pp, num_micro_batches, folded=True) for rank in range(pp)]
        return [list(course.slots()) for course in both]
    if schedule == "zero_bubble_v":
        orders = [_zero_bubble_v(rank, pp, num_micro_batches) for rank in range(pp)]
    else:
        orders = [_patterned(schedule, rank, pp, num_micro_batches) for rank in range(pp)]
    return [[(task,) for task in order] for order in orders]


def _zero_bubble_v(rank: int, pp: int, num_micro_batches: int) -> list[Task]:
    """Return a rank's list in ZB-V: so many times, what of which chunk (0 down, 1 up)."""
    chunks, left = (rank, 2 * pp - 1 - rank), pp - rank
    down, up = [[(kind, way) for kind in (FORWARD, INPUTS, WEIGHTS)] for way in (0, 1)]
    steps = (
        (2 * left - 1, down[:1]),
        (rank, [up[0], down[0]]),
        (left, up),
        (num_micro_batches - pp, [*down, *up]),
        (rank, [down[1], up[1]]),
        (left, down[1:]),
        (rank, up[2:]),
        (rank, down[2:]),
    )
    tasks = {
        (kind, way): iter([Task(kind, chunks[way], number) for number in range(num_micro_batches)])
        for kind, way in (*down, *up)
    }
    every = [pass_name for times, some in steps for _ in range(times) for pass_name in some]
    return [task for pass_name in every for task in islice(tasks[pass_name], 1)]


def _patterned(schedule: str, rank: int, pp: int, num_micro_batches: int) -> list[Task]:
    """Return a rank's list in V-half or V-min: one pattern every six slots, weights between."""
    # Slots from rank to rank on the way down, and a gap without which two waves would collide.
    pace, gap = (2, 3 * (pp % 2 == 0)) if schedule == "v_half" else (1, 2 * (pp % 3 == 0))
    turn = (pace + 1) * pp
    down, up = rank, 2 * pp - 1 - rank
    each = (
        (pace * rank, FORWARD, down),
        (turn - pace - rank, FORWARD, up),
        (turn + gap + 1 - pace + pace * rank, INPUTS, up),
        (2 * turn + gap - pace - rank, INPUTS, down),
    )
    taken = {
        slot + 6 * number: Task(kind, chunk, number)
        for slot, kind, chunk in each
        for number in range(num_micro_batches)
    }
    waiting: deque[Task] = deque()
    whole: list[Task] = []
    for slot in range(max(taken) + 1):
        if slot in taken:
            whole.append(taken[slot])
            if taken[slot].kind == INPUTS:
                waiting.append(taken[slot]._replace(kind=WEIGHTS))
        elif waiting:
            whole.append(waiting.popleft())
    return [*whole, *waiting]


# The course of a pipeline: each stage runs its list in order, each item as early as it can.
#
# What another stage gives arrives a transfer after it was done.  A transfer occupies no stage, so
# that several can be under way from one stage at once.

# A forward that overlaps a backward, and what is on its way to another stage.
PAIR, TRANSFER = "forward and backward", "transfer"
# What passes hold beside computing, and what comes after all of them.
HIDDEN, EXPOSED = "hidden communication", "exposed communication"
WAITING, OPTIMIZER, UNEXPLAINED = "host wait", "optimizer", "fixed overhead"
LETTERS = {FORWARD: "F", BACKWARD: "B", INPUTS: "B", WEIGHTS: "W"}


class Ran(NamedTuple):
    """A slot that has run, and when [s]."""

    slot: Slot
    start: float
    end: float


class Sent(NamedTuple):
    """A task's result on its way to another stage, and when [s]."""

    task: Task
    taker: Task  # What there needs it
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
    delayed: dict[Task, list[int]] = {}
    going = deque(range(len(orders)))
    while going:
        at = going.popleft()
        while len(ran[at]) < len(orders[at]):
            slot = orders[at][len(ran[at])]
            needed = [need for task in slot for need in _needed(task, last, home)]
            missing = next((need for need in needed if need not in done), None)
            if missing is not None:
                delayed.setdefault(missing, []).append(at)
                break
            arrived = [done[need] + (transfer if home[need] != at else 0.0) for need in needed]
            start = max([ran[at][-1].end if ran[at] else 0.0, *arrived])
            end = start + duration(slot)
            ran[at].append(Ran(slot, start, end))
            for task in slot:
                done[task] = end
                going.extend(delayed.pop(task, ()))
                taker = _next(task, home)
                target = home.get(taker, at)
                if target != at:
                    sent[at].append(Sent(task, taker, target, end, end + transfer))
    if len(done) == len(home):
        return ran, sent
    raise ValueError("stages wait for one another; another order")  # noqa: EM101


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


def slot_name(slot: Slot, pp: int, virtual_pipeline_size: int = 1) -> str:
    """Return a short name: F3 for micro-batch 3's forward, F3.2 for that of its second chunk."""
    return "+".join(
        f"{LETTERS[task.kind]}{task.micro_batch + 1}"
        + (f".{task.chunk // pp + 1}" if virtual_pipeline_size > 1 else "")
        for task in slot
    )


def stage_row(stage: int) -> str:
    """Return the name of a stage's row."""
    return f"stage {stage + 1}"


def send_spans(
    row: str, sent: Sequence[Sent], pp: int, virtual_pipeline_size: int = 1
) -> list[Span]:
    """Return what a stage sends as spans; those under way at once have rows of their own."""
    course = Course()
    free: list[float] = []
    for message in sorted(sent, key=lambda each: each.start):
        lane = next((at for at, end in enumerate(free) if end <= message.start), len(free))
        free[lane : lane + 1] = [message.end]
        slot = slot_name((message.task,), pp, virtual_pipeline_size)
        name = f"{slot} to {stage_row(message.target)}"
        on = f"{row} ({lane + 1})" if lane else row
        course.run(on, name, message.end - message.start, message.start, TRANSFER)
    return course.spans


def pipeline_timeline(schedule: str, given: Mapping[str, float]) -> list[Span]:
    """Return the course of a pipeline of even stages."""
    pp, count = int(given["pp"]), given["num_micro_batches"]
    virtual = int(given.get("virtual_pipeline_size", 1.0))
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
    courses = zip(*run_orders(orders, duration, given["p2p_time"]), strict=True)
    for stage, (ran, sent) in enumerate(courses):
        row = stage_row(stage)
        for slot, start, end in ran:
            name = slot_name(slot, pp, virtual)
            spans.append(Span(row, name, start, end - start, kind_of(slot)))
        spans += send_spans(f"{row} sends", sent, pp, virtual)
    return [span for span in spans if span.duration > 0.0]
