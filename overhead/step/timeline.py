"""When what of a training step runs: each stage of one data-parallel replica, as spans on rows.

Every stage runs the passes of its schedule in order, each as early as its input has arrived, with
the times that the step's formulas give; then come gradients, optimizer and weights.  What a pass
holds stands one part after another: computing, and the communication that nothing hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from overhead.communication.operation import Operation
from overhead.communication.totals import of_dimension, time_of
from overhead.evaluation import Evaluation
from overhead.frozen import frozen
from overhead.labels import FOLDED, PAIRED, PLAIN
from overhead.overlap.pipeline import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    HIDDEN,
    INPUTS,
    OPTIMIZER,
    PAIR,
    UNEXPLAINED,
    WAITING,
    WEIGHTS,
    Ran,
    Sent,
    Slot,
    Task,
    kind_of,
    run_orders,
    send_spans,
    slot_name,
    stage_orders,
    stage_row,
    tasks_of,
)
from overhead.overlap.timeline import Course, Span, check_spans
from overhead.quantity import Array

# Rows of a stage; then one for each dimension whose communication is a stream.
PASSES, PARTS, SENDS = "passes", "parts of them", "sends"
TENSOR, CONTEXT = "TP communication", "CP communication"
EXPERT, DATA = "EP communication", "DP communication"
DIMENSION = {TENSOR: "tp", CONTEXT: "cp", EXPERT: "ep", DATA: "dp"}
STREAMS = tuple(DIMENSION)

COMPUTING, AGAIN = "computing", "recomputation"
EXPERTS = f"{EXPERT}, exposed"
OFFLOAD = "CPU offload, exposed"
# Communication that a layer exposes, by the words for it.
LAYER = {
    f"{TENSOR}, exposed": "{of}_exposed_tp_{way}_time",
    f"{CONTEXT}, exposed": "exposed_cp_{way}_time",
    EXPERTS: "exposed_ep_{way}_time",
}
# What the ends have beyond layers: its time, and that of its communication.
ENDS = {
    "first": ("embedding", "embedding_time", "vocabulary_first_time"),
    "last": ("LM head and loss", "output_time", "vocabulary_last_time"),
}
VOCABULARY = "vocabulary communication"
TIED = "tied embedding gradients, exposed"
# Streams of the ends' communication, which nothing hides, and of copies to the host and back.
TABLES, COPIES = "embedding and LM head", "host copies"
KINDS = {VOCABULARY: EXPOSED, OFFLOAD: EXPOSED, WAITING: WAITING} | dict.fromkeys(LAYER, EXPOSED)
# Kinds of parts that compute.
COMPUTING_KINDS = (FORWARD, BACKWARD, INPUTS, WEIGHTS, PAIR)
CLASSES = {"dense": "mlp", "moe": "moe"}
# All that a layer communicates, by the row that it is on.
SENT = {
    TENSOR: {
        "dense": {
            FORWARD: ("tp_layer_forward_time",),
            BACKWARD: tuple(f"tp_layer_{n}_time" for n in ("backward", "gather", "recompute")),
        },
        "moe": {
            FORWARD: ("tp_moe_layer_forward_time",),
            BACKWARD: tuple(f"tp_moe_layer_{n}_time" for n in ("backward", "gather", "recompute")),
        },
    },
}
# Of these the step's totals are shared out among the layers of the stage that has most.
SHARED = {CONTEXT: ("cp", "max_stage_layers"), EXPERT: ("ep", "max_stage_moe_layers")}
# Parts of a pass that stand on a stream as well, by the stream's row.
STREAMED = {name: name.removesuffix(", exposed") for name in LAYER} | {
    VOCABULARY: TABLES,
    OFFLOAD: COPIES,
}
# Of what is sent so small a part is left by rounding where all is exposed.
ROUNDING = 1e-12
# Parts by name, in the order in which they stand in a pass [s].
Parts = dict[str, float]
# From a quantity to what the stages have.
Along = Callable[[str], Array]
# By row, how many messages of each operation.
Messages = Mapping[str, Mapping[str, float]]


@frozen()
class StepTimeline:
    """A step's course."""

    # By stage: its passes and what comes after them, what they hold, what it sends
    stages: Mapping[str, Sequence[Span]]
    step_time: float  # The step's time by its formula [s]
    runs: Sequence[Sequence[Ran]]  # Of each stage, what its passes are
    sends: Sequence[Sequence[Sent]]  # Of each stage, what it sends to others
    messages: Callable[[Slot], Messages]  # Of what runs at a time, how many of each operation

    @cached_property
    def end(self) -> float:
        """When all is done [s]."""
        return max((span.end for spans in self.stages.values() for span in spans), default=0.0)

    @property
    def difference(self) -> float:
        """By which part of the course's time the formula's is longer."""
        return self.step_time / self.end - 1.0


def step_timeline(evaluation: Evaluation) -> StepTimeline:
    """Return the predicted course of a training step."""
    step_time = float(evaluation["step_time"])
    passes = _Passes(evaluation)
    schedule = evaluation.labels["schedule"]
    count = float(evaluation["num_micro_batches"])
    # A pass, what it holds, what it sends, and what is on a stream of its own, hidden and not.
    each = 4 + passes.most_parts(schedule) + 2 * len(STREAMED)
    check_spans(count * tasks_of(schedule, passes.pp, 1, passes.virtual) * each)
    orders = stage_orders(schedule, passes.pp, int(count), passes.virtual)
    ran, sent = run_orders(orders, passes.duration, float(evaluation["p2p_time"]))
    ends = _after(evaluation, [runs[-1].end for runs in ran])
    stages: dict[str, Sequence[Span]] = {}
    for stage, (runs, sends) in enumerate(zip(ran, sent, strict=True)):
        spans = [*_passes(runs, passes), *ends[stage], *_parts(runs, passes)]
        spans += send_spans(SENDS, sends, passes.pp, passes.virtual)
        spans += _streams(runs, passes)
        spans += _data_parallel(evaluation, spans)
        stages[stage_row(stage)] = [span for span in spans if span.duration > 0.0]
    return StepTimeline(stages, step_time, ran, sent, passes.messages)


# Spans.


def _passes(runs: Sequence[Ran], passes: _Passes) -> list[Span]:
    return [
        Span(PASSES, slot_name(slot, passes.pp, passes.virtual), start, end - start, kind_of(slot))
        for slot, start, end in runs
    ]


def _parts(runs: Sequence[Ran], passes: _Passes) -> list[Span]:
    """Return what passes hold, one part after another."""
    spans = []
    for slot, start, end in runs:
        at = start
        for name, time in passes.parts(slot).items():
            # Rounding must not let a part outlast its pass.
            until = min(at + time, end)
            kind = KINDS.get(name, kind_of(slot))
            spans.append(Span(PARTS, name, at, until - at, kind))
            at = until
    return spans


def _streams(runs: Sequence[Ran], passes: _Passes) -> Iterator[Span]:
    """Yield passes' communication, a row a dimension: hidden beside computing, then exposed."""
    for slot, start, end in runs:
        parts = passes.parts(slot)
        computing = parts.get(AGAIN, 0.0) + parts.get(COMPUTING, 0.0)
        # Copies take nothing from what they are beside.
        before = sum(time for name, time in parts.items() if name in (*LAYER, WAITING))
        copied = passes.copied(slot) - parts.get(OFFLOAD, 0.0)
        yield Span(COPIES, COPIES, start, min(max(copied, 0.0), computing + before), HIDDEN)
        for row, sent in passes.sent(slot).items():
            exposed = parts.get(f"{row}, exposed", 0.0)
            # What hides slows down what it is beside: that stands with what is exposed.
            hidden = min(sent - exposed, computing)
            if hidden > ROUNDING * sent:
                yield Span(row, row, start, hidden, HIDDEN)
        at = start
        for name, time in parts.items():
            until = min(at + time, end)
            if name in STREAMED:
                row = STREAMED[name]
                yield Span(row, f"{row}, exposed", at, until - at, EXPOSED)
            at = until


def _data_parallel(evaluation: Evaluation, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield a stage's data-parallel communication: weights beside the first, gradients the last."""
    sharded = evaluation["zero_stage"] >= 3.0
    work = [(s.start, s.end) for s in spans if s.row == PARTS and s.kind in COMPUTING_KINDS]
    gathered, reduced = (
        float(time_of("dp", way, evaluation.labels, evaluation)) for way in ("forward", "backward")
    )
    copies = float(evaluation["sharding_copy_time"])
    left = gathered + reduced + copies - float(evaluation["exposed_dp_time"])
    if not sharded:
        hidden = max(gathered - float(evaluation["exposed_dp_gather_time"]), 0.0)
        yield from _overlapped(work, "weights", hidden)
        left = reduced - float(evaluation["exposed_dp_reduce_time"])
    backwards = [(-end, -start) for start, end in reversed(work)]
    for span in _overlapped(backwards, "weights and gradients" if sharded else "gradients", left):
        yield Span(DATA, span.name, -span.end, span.duration, HIDDEN)
    for busy in spans:
        if busy.row == PASSES and busy.kind == EXPOSED:
            row = TABLES if busy.name == TIED else DATA
            yield Span(row, busy.name, busy.start, busy.duration, EXPOSED)


def _overlapped(work: Sequence[tuple[float, float]], name: str, time: float) -> Iterator[Span]:
    """Yield communication beside the first of some computing, until it is done."""
    for start, end in work:
        piece = min(end - start, time)
        if piece > 0.0:
            yield Span(DATA, name, start, piece, HIDDEN)
        time -= piece


def _after(evaluation: Evaluation, done: Sequence[float]) -> list[list[Span]]:
    """Return what each stage does after its passes."""
    sharded = evaluation["zero_stage"] >= 3.0
    reduce = "exposed_dp_time" if sharded else "exposed_dp_reduce_time"
    words = "data parallelism of all passes" if sharded else "gradients to their owners"
    course = Course()
    rows = [stage_row(stage) for stage in range(len(done))]
    time = float(evaluation[reduce])
    for row, start in zip(rows, done, strict=True):
        course.run(row, f"{words}, exposed", time, start, EXPOSED)
    # First and last stage add up the gradients of the table that both hold.
    tied = float(evaluation["tied_all_reduce_backward_time"])
    ends = {rows[0], rows[-1]} if tied > 0.0 else set()
    both = max((course.free[row] for row in ends), default=0.0)
    for row in sorted(ends):
        course.run(row, TIED, tied, both, EXPOSED)
    # The optimizer waits for all gradients.
    ready = max(course.free.values())
    weights = 0.0 if sharded else float(evaluation["exposed_dp_gather_time"])
    for row in rows:
        course.run(row, "optimizer", float(evaluation["optimizer_time"]), ready, OPTIMIZER)
        course.run(row, "updated weights, exposed", weights, kind=EXPOSED)
        course.run(row, UNEXPLAINED, float(evaluation["step_overhead"]), kind=UNEXPLAINED)
    return [
        [
            Span(PASSES, span.name, span.start, span.duration, span.kind)
            for span in course.spans
            if span.row == row
        ]
        for row in rows
    ]


# What passes hold.


class _Passes:
    """The parts of a pass by chunk, with their times [s]."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        # What of the ends' work is forward is what forwards alone have of it.
        labels = {**evaluation.labels, "schedule": "forward_only"}
        self.forward_alone = Evaluation(evaluation.given, labels)
        self.pp = int(evaluation["pp"])
        self.virtual = int(evaluation["virtual_pipeline_size"])
        self.last = self.pp * self.virtual - 1
        self.known: dict[tuple[str, int], Parts] = {}
        schedule = evaluation.labels["schedule"]
        self.folded = schedule in FOLDED
        self.layers = {of: self._layers(kind) for of, kind in CLASSES.items()}
        # Attention layers that chunks have beyond the mean of mixers.
        self.excess = [0.0] * (self.last + 1)
        if evaluation.labels.get("order") == "followed" and self._time("order_holds") > 0.0:
            self._own_layers()
        both = self._time("stage_forward_time") + self._time("stage_backward_time")
        gain = both - self._time("stage_overlapped_time") if schedule in PAIRED else 0.0
        self.gain = gain / self.virtual

    def _time(self, name: str) -> float:
        return float(self.evaluation[name])

    def _sent(self, dimension: str, way: str) -> float:
        return float(time_of(dimension, way, self.evaluation.labels, self.evaluation))

    def _layers(self, kind: str) -> list[float]:
        """Return how many layers of a kind each chunk has; the ends' own counts are told."""
        first, middle, last = (
            self._time(f"{position}_{kind}_layers") for position in ("first", "middle", "last")
        )
        counts = [middle / self.virtual] * (self.pp * self.virtual)
        chunks = (0, len(counts) - 1) if self.folded else range(0, len(counts), self.pp)
        _change(counts, first - middle, chunks)
        if not self.folded:
            _change(counts, last - middle, range(len(counts) - 1, -1, -self.pp))
        return counts

    def _own_layers(self) -> None:
        """Let each chunk have its own layers: what its stage has, and by what it differs."""
        given, labels = self.evaluation.given, self.evaluation.labels
        stages = _along(given, labels, self.pp)
        # Each chunk is as a stage of a longer pipeline; of its layers those beyond the mean count.
        every = {"pp": np.asarray(self.last + 1.0)}
        every |= dict.fromkeys(("virtual_pipeline_size", "weight_copies"), np.asarray(1.0))
        chunks = _along({**given, **every}, {**labels, "schedule": PLAIN}, self.last + 1)
        moe = chunks("stage_moe_excess")
        for of, name, beyond in (("dense", "spare_mixers", -2.0 * moe), ("moe", "moe_layers", moe)):
            counts = stages(f"stage_{name}")
            for position in ("first",) if self.folded else ("first", "last"):
                time = self._time(f"{position}_{CLASSES[of]}_layers")
                counts[int(self._time(f"{position}_stage"))] = time
            self.layers[of] = self._cut(counts, beyond)
        excess = stages("stage_attention_excess")
        self.excess = self._cut(excess, chunks("stage_attention_excess"))

    def _cut(self, counts: Array, beyond: Array) -> list[float]:
        """Return what chunks have of stages' counts: an even part, and beyond that their own."""
        home = [self._home(chunk) for chunk in range(self.last + 1)]
        if self.virtual == 1:
            return [float(counts[at]) for at in home]
        sums = np.bincount(home, beyond)
        return [
            float((counts[at] - sums[at]) / self.virtual + more)
            for at, more in zip(home, beyond, strict=True)
        ]

    def _home(self, chunk: int) -> int:
        """Return the rank that has a chunk."""
        return 2 * self.pp - 1 - chunk if self.folded and chunk >= self.pp else chunk % self.pp

    def duration(self, slot: Slot) -> float:
        """Return the time of what runs at a time [s]."""
        return sum(self.parts(slot).values())

    def parts(self, slot: Slot) -> Parts:
        """Return what runs at a time, by part; a pair gains what its overlap gains."""
        if len(slot) == 1:
            return self._of(slot[0])
        whole: Parts = {}
        for task in slot:
            for name, time in self._of(task).items():
                whole[name] = whole.get(name, 0.0) + time
        gain = self.gain
        for name in (EXPERTS, *whole):
            less = min(whole.get(name, 0.0), max(gain, 0.0))
            if less:
                whole[name] -= less
                gain -= less
        return whole

    def most_parts(self, schedule: str) -> int:
        """Return how many parts a pass has at most."""
        ends = {0, self.last}
        kinds = (FORWARD,) if schedule == "forward_only" else (FORWARD, BACKWARD)
        return max(
            sum(time > 0.0 for time in self._of(Task(kind, chunk, 0)).values())
            for kind in kinds
            for chunk in ends
        )

    def _of(self, task: Task) -> Parts:
        key = task.kind, task.chunk
        if key not in self.known:
            whole = task.kind in (FORWARD, BACKWARD)
            self.known[key] = self._pass(task.chunk, task.kind) if whole else self._split(task)
        return self.known[key]

    def _pass(self, chunk: int, way: str) -> Parts:
        parts: Parts = {}
        for of, counts in self.layers.items():
            if counts[chunk]:
                for name, time in self._layer(of, way).items():
                    parts[name] = parts.get(name, 0.0) + counts[chunk] * time
        if self.excess[chunk]:
            beyond = self._time("attention_beyond_forward_time")
            beyond = beyond if way == FORWARD else self._time("attention_beyond_time") - beyond
            parts[COMPUTING] = parts.get(COMPUTING, 0.0) + self.excess[chunk] * beyond
        parts[OFFLOAD] = self._time(f"exposed_offload_{way}_time") / self.virtual
        ends = (["first"] if chunk == 0 else []) + (["last"] if chunk == self.last else [])
        for end in ends:
            words, quantity, sent = ENDS[end]
            parts[words] = self._end(quantity, way)
            parts[VOCABULARY] = parts.get(VOCABULARY, 0.0) + self._end(sent, way)
        return parts

    def _end(self, name: str, way: str) -> float:
        forward = float(self.forward_alone[name])
        return forward if way == FORWARD else max(self._time(name) - forward, 0.0)

    def _layer(self, of: str, way: str) -> Parts:
        """Return the parts of one layer's pass."""
        on_gpu = self._time(f"{of}_layer_{way}_gpu_time")
        exposed = {
            words: self._time(name.format(of=of, way=way))
            for words, name in LAYER.items()
            if of == "moe" or words != EXPERTS
        }
        again = self._time(f"{of}_layer_recompute_time") if way == BACKWARD else 0.0
        computing = max(on_gpu - sum(exposed.values()) - again, 0.0)
        waiting = max(self._time(f"{of}_layer_{way}_time") - on_gpu, 0.0)
        return {AGAIN: again, COMPUTING: computing, **exposed, WAITING: waiting}

    def sent(self, slot: Slot) -> Parts:
        """Return all communication of what runs at a time, by row [s]."""
        times_by_row: Parts = {}
        for kind, chunk, _ in slot:
            if kind == WEIGHTS:
                continue
            way = FORWARD if kind == FORWARD else BACKWARD
            for row, names in SENT.items():
                time = sum(
                    counts[chunk] * sum(map(self._time, names[of][way]))
                    for of, counts in self.layers.items()
                    if counts[chunk]
                )
                times_by_row[row] = times_by_row.get(row, 0.0) + time
            for row, (dimension, most) in SHARED.items():
                layers = self.layers["moe"][chunk]
                layers += self.layers["dense"][chunk] if row == CONTEXT else 0.0
                if self._time(dimension) > 1.0 and layers:
                    whole = self._sent(dimension, way)
                    each = whole / (self._time("num_micro_batches") * self._time(most))
                    times_by_row[row] = times_by_row.get(row, 0.0) + layers * each
        return times_by_row

    def copied(self, slot: Slot) -> float:
        """Return all time of copies of what runs at a time to the host or back [s]."""
        ways = (
            FORWARD if task.kind == FORWARD else BACKWARD for task in slot if task.kind != WEIGHTS
        )
        return sum(self._time(f"{way}_transfer_time") for way in ways) / self.virtual

    def messages(self, slot: Slot) -> Messages:
        """Return how many messages of each operation what runs at a time has, by row."""
        counts: dict[str, dict[str, float]] = {}
        for task in slot:
            way = FORWARD if task.kind == FORWARD else BACKWARD
            for row, share in self._shares(task) if task.kind != WEIGHTS else ():
                counts_of_row = counts.setdefault(row, {})
                for operation in self._operations(row, task.chunk):
                    often = operation.count(way)
                    count = share * float(often.of(self.evaluation)) if often else 0.0
                    if count > 0.0:
                        counts_of_row[operation.name] = (
                            counts_of_row.get(operation.name, 0.0) + count
                        )
        return counts

    def _shares(self, task: Task) -> Iterator[tuple[str, float]]:
        """Yield by row which share of the busiest stage's messages of a step a pass has."""
        way = FORWARD if task.kind == FORWARD else BACKWARD
        tensor = self._sent("tp", way)
        if tensor > 0.0:
            yield TENSOR, self.sent((task,))[TENSOR] / tensor
        for row, (_, most) in SHARED.items():
            layers = self.layers["moe"][task.chunk]
            layers += self.layers["dense"][task.chunk] if row == CONTEXT else 0.0
            if layers:
                yield row, layers / (self._time("num_micro_batches") * self._time(most))
        if self._time("tp") > 1.0:
            yield VOCABULARY, 1.0 / self._time("num_micro_batches")

    def _operations(self, row: str, chunk: int) -> Iterator[Operation]:
        """Yield the operations of a row that a chunk has in each of its passes."""
        dimension = {**DIMENSION, VOCABULARY: "vocabulary"}[row]
        for operation in of_dimension(dimension, self.evaluation.labels):
            ends = {"embedding": 0, "logits": self.last, "loss": self.last}
            end = ends.get(operation.name.partition("_")[0], chunk)
            if operation.group != "ends" and (row != VOCABULARY or end == chunk):
                yield operation

    def _split(self, task: Task) -> Parts:
        """Return one of the two parts of a backward that is split."""
        whole = self._pass(task.chunk, BACKWARD)
        waiting = whole.get(WAITING, 0.0) / 2.0
        weights = sum(
            counts[task.chunk] * self._time(f"{of}_layer_weight_gradient_time")
            for of, counts in self.layers.items()
            if counts[task.chunk]
        )
        if self.excess[task.chunk]:
            mean, own_name = (
                f"{mixer}_layer_weight_gradient_time" for mixer in ("dense", "attention")
            )
            weights += self.excess[task.chunk] * (self._time(own_name) - self._time(mean))
        end, _, _ = ENDS["last"]
        output = self._time("logits_weight_gradient_time") if end in whole else 0.0
        if task.kind == WEIGHTS:
            return {COMPUTING: weights, end: output, WAITING: waiting}
        left = {COMPUTING: weights, end: output, WAITING: waiting}
        return {name: max(time - left.get(name, 0.0), 0.0) for name, time in whole.items()}


def _along(given: Mapping[str, Array], labels: Mapping[str, str], stages: int) -> Along:
    """Return what gives a quantity of each of a pipeline's stages."""
    known = Evaluation({**given, "stage": np.arange(float(stages))}, labels)
    return lambda name: np.array(np.broadcast_to(known[name], (stages,)))


def _change(counts: list[float], change: float, chunks: Sequence[int]) -> None:
    """Add layers to a stage's first chunk, or take them from as many as have them, in order."""
    for chunk in chunks:
        taken = max(change, -counts[chunk])
        counts[chunk] += taken
        change -= taken
