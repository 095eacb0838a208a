"""Event simulation of pipeline schedules: each device runs its list in order, as early as it can.

The independent witness of the closed forms of pipelines; it imports neither of the two packages.
A task starts when its device has done the one before and when what it needs has arrived; what
comes from another device arrives a transfer after it was done, and a transfer occupies nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

__all__ = [
    "BACKWARD",
    "FORWARD",
    "INPUT",
    "ORDERS",
    "WEIGHT",
    "Outcome",
    "Task",
    "dual_pipe",
    "even",
    "forward_only",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "run",
    "zero_bubble_h1",
    "zero_bubble_h2",
]

FORWARD, BACKWARD, INPUT, WEIGHT = "forward", "backward", "input", "weight"


class Task(NamedTuple):
    """What is done for one micro-batch in one stage: a whole backward, or its two parts."""

    kind: str
    stage: int
    micro_batch: int


# A device's list; two tasks in one slot are overlapped.
Order = list[tuple[Task, ...]]
Duration = Callable[[tuple[Task, ...]], Fraction]


@dataclass(frozen=True)
class Outcome:
    """When the devices work, and how many forwards each holds at most whose backward isn't done.

    `spans`: first start and last end of each device; `in_flight`: counted in chunks.
    """

    spans: tuple[tuple[Fraction, Fraction], ...]
    in_flight: tuple[int, ...]

    @property
    def time(self) -> Fraction:
        """From the first start to the last end."""
        return max(end for _, end in self.spans) - min(start for start, _ in self.spans)

    @property
    def staggered_time(self) -> Fraction:
        """Of the device that works longest, if each goes on to its next step by itself."""
        return max(end - start for start, end in self.spans)


def run(orders: Sequence[Order], duration: Duration, transfer: Fraction) -> Outcome:
    """Run the devices' lists; fail if they wait for one another forever."""
    home = {task: device for device, order in enumerate(orders) for slot in order for task in slot}
    last = max(task.stage for task in home)
    done: dict[Task, Fraction] = {}
    ends = [Fraction(0)] * len(orders)
    starts: list[Fraction | None] = [None] * len(orders)
    heads = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for device, order in enumerate(orders):
            while heads[device] < len(order):
                slot = order[heads[device]]
                needed = [need for task in slot for need in _needs(task, last, home)]
                if any(need not in done for need in needed):
                    break
                arrivals = [
                    done[need] + (transfer if home[need] != device else 0) for need in needed
                ]
                start = max([ends[device], *arrivals])
                ends[device] = start + duration(slot)
                starts[device] = start if starts[device] is None else starts[device]
                done |= dict.fromkeys(slot, ends[device])
                heads[device] += 1
                moved = True
    if any(head < len(order) for head, order in zip(heads, orders, strict=True)):
        message = "the devices wait for one another"
        raise RuntimeError(message)
    spans = tuple((start or Fraction(0), end) for start, end in zip(starts, ends, strict=True))
    return Outcome(spans, tuple(_peak(order) for order in orders))


def _needs(task: Task, last: int, home: dict[Task, int]) -> list[Task]:
    kind, stage, number = task
    if kind == FORWARD:
        return [Task(FORWARD, stage - 1, number)] if stage else []
    if kind == WEIGHT:
        return [Task(INPUT, stage, number)]
    whole = Task(BACKWARD, stage + 1, number)
    later = [whole if whole in home else Task(INPUT, stage + 1, number)] if stage < last else []
    return [Task(FORWARD, stage, number), *later]


def _peak(order: Order) -> int:
    """Return the most forwards held; an overlapped backward holds its own till the end."""
    held = most = 0
    for slot in order:
        held += sum(task.kind == FORWARD for task in slot)
        most = max(most, held)
        held -= sum(task.kind in (BACKWARD, WEIGHT) for task in slot)
    return most


def even(
    forward: Fraction,
    backward: Fraction,
    weight: Fraction = Fraction(0),
    overlapped: Fraction | None = None,
) -> Duration:
    """Return durations that are the same in all stages; `weight` is a part of `backward`."""
    of = {FORWARD: forward, BACKWARD: backward, INPUT: backward - weight, WEIGHT: weight}

    def duration(slot: tuple[Task, ...]) -> Fraction:
        if len(slot) == 2 and overlapped is not None:
            return overlapped
        return sum((of[task.kind] for task in slot), start=Fraction(0))

    return duration


# Schedules: (devices, micro-batches) to the devices' lists.


def _alone(tasks: Sequence[Task]) -> Order:
    return [(task,) for task in tasks]


def forward_only(devices: int, num_micro_batches: int) -> list[Order]:
    """Micro-batches one after another, without a backward."""
    return [
        _alone([Task(FORWARD, stage, number) for number in range(num_micro_batches)])
        for stage in range(devices)
    ]


def gpipe(devices: int, num_micro_batches: int) -> list[Order]:
    """All forwards, then all backwards."""
    return [
        order + _alone([Task(BACKWARD, stage, n) for n in reversed(range(num_micro_batches))])
        for stage, order in enumerate(forward_only(devices, num_micro_batches))
    ]


def one_f_one_b(devices: int, num_micro_batches: int) -> list[Order]:
    """Forwards until the first backward can come, then one forward, one backward."""
    return [_alternating(s, devices - 1 - s, num_micro_batches, BACKWARD) for s in range(devices)]


def _alternating(stage: int, ahead: int, num_micro_batches: int, kind: str, late: int = 0) -> Order:
    """Return a stage's list with so many forwards ahead, and weights so many backwards late."""
    ahead = min(ahead, num_micro_batches)
    tasks = [Task(FORWARD, stage, number) for number in range(ahead)]
    weights = 0
    for number in range(num_micro_batches):
        if ahead + number < num_micro_batches:
            tasks.append(Task(FORWARD, stage, ahead + number))
        tasks.append(Task(kind, stage, number))
        if kind == INPUT and number >= late:
            tasks.append(Task(WEIGHT, stage, weights))
            weights += 1
    if kind == INPUT:
        tasks += [Task(WEIGHT, stage, number) for number in range(weights, num_micro_batches)]
    return _alone(tasks)


def interleaved(devices: int, num_micro_batches: int, virtual_pipeline_size: int) -> list[Order]:
    """Run 1F1B on chunks, `devices` micro-batches a chunk at a time (Megatron-LM's order)."""
    total = num_micro_batches * virtual_pipeline_size
    orders = []
    for device in range(devices):
        forwards, backwards = [], []
        for number in range(total):
            group, within = divmod(number, devices * virtual_pipeline_size)
            chunk, position = divmod(within, devices)
            micro_batch = group * devices + position
            forwards.append(Task(FORWARD, chunk * devices + device, micro_batch))
            mirrored = virtual_pipeline_size - 1 - chunk
            backwards.append(Task(BACKWARD, mirrored * devices + device, micro_batch))
        ahead = min(2 * (devices - 1 - device) + (virtual_pipeline_size - 1) * devices, total)
        tasks = forwards[:ahead]
        for number in range(total - ahead):
            tasks += [forwards[ahead + number], backwards[number]]
        orders.append(_alone(tasks + backwards[total - ahead :]))
    return orders


def zero_bubble_h1(devices: int, num_micro_batches: int) -> list[Order]:
    """1F1B whose weights come as late as the first stage's memory allows (Qi et al., 2.1)."""
    return [
        _alternating(stage, devices - 1 - stage, num_micro_batches, INPUT, late=stage)
        for stage in range(devices)
    ]


def zero_bubble_h2(devices: int, num_micro_batches: int) -> list[Order]:
    """Twice the forwards ahead, and weights twice as late (Qi et al., 2.2)."""
    return [
        _alternating(stage, 2 * (devices - 1 - stage), num_micro_batches, INPUT, late=2 * stage)
        for stage in range(devices)
    ]


def dual_pipe(devices: int, num_micro_batches: int) -> list[Order]:
    """Half of the micro-batches from each end, in the order of DeepSeek's DualPipe."""
    return [_DualPipe(rank, devices, num_micro_batches).order() for rank in range(devices)]


def dual_pipe_v(devices: int, num_micro_batches: int) -> list[Order]:
    """One half of DualPipe on twice as many ranks: what the other half had comes back up."""
    both = [_DualPipe(rank, 2 * devices, 2 * num_micro_batches, 0) for rank in range(devices)]
    return [one.order() for one in both]


class _DualPipe:
    """One rank's list: eight phases, direction 0 being the one that enters at the nearer end."""

    def __init__(
        self, rank: int, devices: int, num_micro_batches: int, others: int | None = None
    ) -> None:
        self.half = num_micro_batches // 2
        # Where the other direction's micro-batches begin.
        self.others = self.half if others is None else others
        self.far = rank >= devices // 2
        self.depth = min(rank, devices - 1 - rank)
        self.ranks = devices
        self.count = {(kind, way): 0 for kind in (FORWARD, BACKWARD) for way in (0, 1)}
        self.late: list[Task] = []
        self.slots: Order = []

    def task(self, kind: str, way: int) -> Task:
        """Return the next forward or backward of a direction."""
        number = self.count[kind, way]
        self.count[kind, way] += 1
        stage = self.depth if way == 0 else self.ranks - 1 - self.depth
        return Task(kind, stage, number + self.others * (way ^ self.far))

    def forward(self, way: int) -> None:
        self.slots.append((self.task(FORWARD, way),))

    def backward(self, way: int, split: bool = False) -> None:
        task = self.task(BACKWARD, way)
        if split:
            self.late.append(task._replace(kind=WEIGHT))
            task = task._replace(kind=INPUT)
        self.slots.append((task,))

    def weight(self) -> None:
        self.slots.append((self.late.pop(0),))

    def pair(self, way: int) -> None:
        """Overlap a forward of one direction with a backward of the other."""
        self.slots.append((self.task(FORWARD, way), self.task(BACKWARD, 1 - way)))

    def order(self) -> Order:
        beyond = self.ranks // 2 - 1 - self.depth
        for _ in range(2 * beyond):
            self.forward(0)
        for _ in range(self.depth + 1):
            self.forward(0)
            self.forward(1)
        for _ in range(beyond):
            self.backward(1, split=True)
            self.weight()
            self.forward(1)
        for turn in range(self.half - self.ranks + self.depth + 1):
            if turn == 0 and beyond == 0:
                self.forward(0)
                self.backward(1)
            else:
                self.pair(0)
            self.pair(1)
        for _ in range(beyond):
            self.backward(1)
            self.pair(1)
        split = False
        for turn in range(self.depth + 1):
            middle = turn == (self.depth + 1) // 2
            split = split or (middle and self.depth % 2 == 1)
            self.backward(1, split)
            split = split or (middle and self.depth % 2 == 0)
            self.backward(0, split)
        for _ in range(beyond):
            self.weight()
            self.backward(0, split=True)
        while self.late:
            self.weight()
        return self.slots


def zero_bubble_v(devices: int, num_micro_batches: int) -> list[Order]:
    """Two chunks a device, down and up (Qi et al., section 6); weights fill what would be idle."""
    count = max(num_micro_batches, 2 * devices - 1)
    orders = []
    for device in range(devices):
        stages = (device, 2 * devices - 1 - device)
        up = devices - device
        # Letters for both chunks: F, B and W of the first; f, b and w of the second.
        text = "F" * (2 * up - 1) + "fF" * device + "fbw" * up
        ahead = text.count("F")
        text += "FBWfbw" * (count - ahead)
        text += "BWfbw" * (up - 1)
        text += "Bb" * device + "BW" * up
        text += "w" * (count - text.count("w")) + "W" * (count - text.count("W"))
        orders.append(_spelled(text, stages, num_micro_batches))
    return orders


def _spelled(text: str, stages: tuple[int, int], num_micro_batches: int) -> Order:
    """Return the list that letters spell, each for its next micro-batch."""
    kinds = {"f": FORWARD, "b": INPUT, "w": WEIGHT}
    seen: dict[str, int] = {}
    tasks = []
    for letter in text:
        number = seen[letter] = seen.get(letter, -1) + 1
        if number < num_micro_batches:
            stage = stages[letter.islower()]
            tasks.append(Task(kinds[letter.lower()], stage, number))
    return _alone(tasks)


def v_half(devices: int, num_micro_batches: int) -> list[Order]:
    """Down at every other slot, up at each, so that half as much is held (Qi et al., 2024)."""
    back = 3 * devices + 3 * (devices % 2 == 0)
    return [
        _patterned(
            (2 * i, 3 * devices - 2 - i, back + 2 * i - 1, back + 3 * devices - 2 - i),
            (i, 2 * devices - 1 - i),
            num_micro_batches,
        )
        for i in range(devices)
    ]


def v_min(devices: int, num_micro_batches: int) -> list[Order]:
    """Down and up as fast as can be, so that the least is held (Qi et al., 2024)."""
    more = 2 * (devices % 3 == 0)
    return [
        _patterned(
            (i, 2 * devices - 1 - i, 2 * devices + more + i, 4 * devices + more - 1 - i),
            (i, 2 * devices - 1 - i),
            num_micro_batches,
        )
        for i in range(devices)
    ]


def _patterned(slots: tuple[int, ...], stages: tuple[int, int], num_micro_batches: int) -> Order:
    """Return a list whose forwards and backwards come every six slots, weights in idle ones."""
    down, up = stages
    each = ((FORWARD, down), (FORWARD, up), (INPUT, up), (INPUT, down))
    taken = {
        slot + 6 * number: Task(kind, stage, number)
        for slot, (kind, stage) in zip(slots, each, strict=True)
        for number in range(num_micro_batches)
    }
    tasks: list[Task] = []
    late: list[Task] = []
    for slot in range(min(taken), max(taken) + 1):
        if slot in taken:
            tasks.append(taken[slot])
            if taken[slot].kind == INPUT:
                late.append(taken[slot]._replace(kind=WEIGHT))
        elif late:
            tasks.append(late.pop(0))
    return _alone(tasks + late)


ORDERS: dict[str, Callable[[int, int], list[Order]]] = {
    "forward_only": forward_only,
    "gpipe": gpipe,
    "one_f_one_b": one_f_one_b,
    "zero_bubble_h1": zero_bubble_h1,
    "zero_bubble_h2": zero_bubble_h2,
    "dual_pipe": dual_pipe,
    "zero_bubble_v": zero_bubble_v,
    "v_half": v_half,
    "v_min": v_min,
    "dual_pipe_v": dual_pipe_v,
}
