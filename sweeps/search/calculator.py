"""The parallel-strategy calculator: four splits of a model that only a number is known of.

Its rules: 12 bytes a parameter (two of weights, two of gradients, eight of the optimizer's moments)
divided by tp and pp and by nothing else, no activations; a plan fits into 90 % of the memory; of
those that fit and whose tensor parallelism stays in a node the one is taken that sends the fewest
bytes.  The bytes here are those of our own communication, of one rank in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.analysis import faults
from overhead.completion import following
from overhead.evaluation import Evaluation
from overhead.labels import PLAIN
from sweeps.errors import InputError, fault
from sweeps.search.request import DEFAULT_THRESHOLD
from sweeps.spec.axis import divisors
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep

HARDWARE = "strategy-calculator"
RECIPE = "two_moments"
# Sizes of layers that the calculator takes of every model.
SCRIPT: Mapping[str, float] = {
    "layers": 80.0,
    "hidden_size": 8192.0,
    "heads": 64.0,
    "vocabulary_size": 128000.0,
}
FFN_RATIO = 4.0
# The degrees that its script tries, and the stages of its table.
TRIED_TP = (1, 2, 4, 8)
TRIED_PP = (1, 2, 4, 8, 16)
STAGES = (1, 2, 4)
# How many GPUs it speaks of when it speaks of experts.
MENTIONED = 8
DIMENSIONS = ("tp", "pp", "ep", "dp")


@dataclass(frozen=True)
class Cluster:
    """What the calculator is asked."""

    parameters: float = 70e9  # Of the model, experts among them
    gpus: int = 64  # Of the cluster
    memory: float = 80e9  # Of a GPU, in bytes
    batch: float = 512.0  # Sequences of a step, and tokens of one
    length: float = 4096.0  # Sequences of a step, and tokens of one
    experts: int = 0  # Routed experts of every layer; none of a dense model
    threshold: float = DEFAULT_THRESHOLD  # The share of the memory that a plan may take
    # Sizes of layers, bytes of numbers and GPUs of a node, where they aren't the calculator's
    sizes: Mapping[str, float] = field(default_factory=dict)

    def size(self, name: str) -> float:
        """Return a size of the layers: the one given, or the calculator's."""
        if name == "ffn_size" and name not in self.sizes:
            return FFN_RATIO * self.size("hidden_size")
        return self.sizes.get(name, SCRIPT.get(name, 1.0))


@dataclass(frozen=True)
class Row:
    """A split as the calculator's table has it."""

    tp: int  # The degrees
    pp: int  # The degrees
    dp: int  # The degrees
    ep: int  # The degrees
    memory: float  # Bytes of weights, gradients and optimizer on a GPU
    volumes: Mapping[str, float]  # Most bytes that a rank sends in a step, by dimension
    bubble: float  # Bubble of the pipeline by its whole time, of even stages
    fits: bool  # Whether the memory, up to the threshold, suffices
    reasons: tuple[str, ...]  # Why it can't be

    @property
    def name(self) -> str:
        """What the calculator's table calls it."""
        if self.tp == self.pp == 1:
            return "Pure DP"
        parts = [f"TP={self.tp}", f"PP={self.pp}" if self.pp > 1 else f"DP={self.dp}"]
        return ", ".join(parts if self.tp > 1 or self.pp == 1 else parts[1:])

    @property
    def bytes(self) -> float:
        """Bytes that a rank sends, all dimensions together."""
        return sum(self.volumes.values())


@dataclass(frozen=True)
class Calculation:
    """What the calculator says."""

    cluster: Cluster  # The question
    rows: tuple[Row, ...]  # Its table
    recommended: Row | None  # The row that it recommends; None where none fits
    states: Mapping[str, float]  # Bytes of the whole model: weights, gradients, optimizer


def calculate(cluster: Cluster) -> Calculation:
    """Do what the calculator does."""
    _check(cluster)
    evaluate = _Evaluator(cluster)
    width = min(evaluate.node, cluster.gpus)
    table = [(1, 1), *((width, stages) for stages in STAGES)]
    rows = evaluate.rows(list(dict.fromkeys(table)))
    fitting = [row for row in rows if row.fits and not row.reasons and row.tp <= evaluate.node]
    best = min(fitting, key=lambda row: (row.bytes, row.memory), default=None)
    return Calculation(cluster, rows, best, evaluate.states())


def _check(cluster: Cluster) -> None:
    faults_found = [
        fault(name, f"{value:g}", "isn't allowed", allowed)
        for name, value, allowed in (
            ("parameters", cluster.parameters, "a number above 0: of billions, or from 1e6 on"),
            ("world_size", cluster.gpus, "a whole number, 1 or more"),
            ("memory_capacity", cluster.memory, "a size above 0: in GB, or from 1e6 on in bytes"),
            ("global_batch_size", cluster.batch, "a whole number, 1 or more"),
            ("sequence_length", cluster.length, "a whole number, 1 or more"),
        )
        if not (np.isfinite(value) and value > 0.0)
    ]
    if faults_found:
        raise InputError(faults_found)


class _Evaluator:
    """Computes rows of the table, all together."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        constants = {
            "global_batch_size": cluster.batch,
            "sequence_length": cluster.length,
            "sequence_parallel": 1.0,
            "zero_stage": 0.0,
            "micro_batch_size": 1.0,
            **{name: cluster.size(name) for name in ("layers", "hidden_size")},
            "memory_capacity": cluster.memory,
        }
        others = ("gpus_per_node", "weight_bytes", "gradient_bytes", "optimizer_bytes")
        constants |= {name: cluster.sizes[name] for name in others if name in cluster.sizes}
        if cluster.experts:
            constants |= sizes_of(cluster)
        else:
            constants["parameters"] = cluster.parameters
        labels = {"hardware": HARDWARE, "recipe": RECIPE}
        resolved = resolve(Sweep("", constants={**constants, "tp": 1.0}, labels=labels))
        self.given = {name: v for name, v in resolved.constants.items() if name not in ("tp", "dp")}
        self.labels = following({**resolved.labels, **resolved.implied}, resolved.constants)
        self.node = int(resolved.constants["gpus_per_node"])
        if cluster.gpus < self.node:  # a part of a node is one as well
            self.given["gpus_per_node"] = float(cluster.gpus)

    def states(self) -> dict[str, float]:
        """Return the bytes of the whole model."""
        return {
            name: self.cluster.parameters * self.given[f"{name}_bytes"]
            for name in ("weight", "gradient", "optimizer")
        }

    def rows(self, pairs: Sequence[tuple[int, int]]) -> tuple[Row, ...]:
        """Return the rows of some tensor- and pipeline-parallel degrees."""
        cluster = self.cluster
        tp, pp = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
        dp = np.maximum(np.floor(cluster.gpus / (tp * pp)), 1.0)
        plan = {"tp": tp, "pp": pp, "dp": dp, "world_size": np.full(len(tp), float(cluster.gpus))}
        plan["ep"] = np.array([_ep(cluster, a * b) for a, b in zip(tp, dp, strict=True)])
        plan["etp"] = np.ones(len(tp)) if cluster.experts else tp
        evaluation = Evaluation({**self.given, **plan}, self.labels)
        with np.errstate(all="ignore"):
            return self._rows(evaluation, plan)

    def _rows(self, evaluation: Evaluation, plan: Mapping[str, NDArray[Any]]) -> tuple[Row, ...]:
        count = len(plan["tp"])
        reasons: list[list[str]] = [[] for _ in range(count)]
        for fallen in faults(evaluation):
            for index in np.nonzero(np.broadcast_to(fallen.where, (count,)))[0]:
                reasons[index].append(fallen.requirement.text)

        def column(name: str) -> list[float]:
            values: list[float] = np.broadcast_to(evaluation[name], (count,)).tolist()
            return values

        memory = column("first_stage_model_state_memory")
        volumes = {name: column(f"{name}_communication_volume") for name in DIMENSIONS}
        # A stage's forward of one, its backward of two: even stages, whatever they take.
        alike = dict.fromkeys(("first_stage_extra_time", "last_stage_extra_time"), 0.0)
        even = {"stage_forward_time": 1.0, "stage_backward_time": 2.0, **alike}
        timed = Evaluation({**evaluation.given, **even}, {**self.labels, "schedule": PLAIN})
        ratio = np.broadcast_to(timed["bubble_over_ideal"], (count,))
        limit = self.cluster.threshold * self.cluster.memory
        return tuple(
            Row(
                int(plan["tp"][position]),
                int(plan["pp"][position]),
                int(plan["dp"][position]),
                int(plan["ep"][position]),
                memory[position],
                {name: volumes[name][position] for name in DIMENSIONS},
                float(ratio[position] / (1.0 + ratio[position])),
                memory[position] < limit,
                tuple(reasons[position]),
            )
            for position in range(count)
        )


def _ep(cluster: Cluster, ranks: float) -> float:
    """Return the expert parallelism that the calculator speaks of, as far as it divides."""
    if not cluster.experts:
        return 1.0
    shared = int(np.gcd(cluster.experts, int(ranks)))
    return float(max(n for n in divisors(shared) if n <= MENTIONED))


# The script by which the calculator is known, as its author wrote it.


@dataclass(frozen=True)
class ScriptRow:
    """A row of the script's table: its numbers, and ours of the same split."""

    tp: int  # The degrees
    pp: int  # The degrees
    dp: int  # The degrees
    memory: float  # GB of a GPU, with its activations
    fits: bool  # Whether it is less than the threshold
    volumes: Mapping[str, float]  # GB of a step, by dimension
    ours: Row  # What the calculator here says of the split

    @property
    def name(self) -> str:
        """Its degrees."""
        return f"TP={self.tp}, PP={self.pp}, DP={self.dp}"

    @property
    def total(self) -> float:
        """GB of a step, all dimensions together."""
        return self.volumes["tp"] + self.volumes["pp"] + self.volumes["dp"]


def script_parameters(cluster: Cluster) -> float:
    """Return the parameters that the script makes of its sizes."""
    hidden = cluster.size("hidden_size")
    inner = 2.0 * hidden * cluster.size("ffn_size") * max(cluster.experts, 1)
    layer = 4.0 * hidden**2 + inner
    return cluster.size("vocabulary_size") * hidden + layer * cluster.size("layers")


def script_rows(cluster: Cluster) -> tuple[ScriptRow, ...]:
    """Return the script's table: its arithmetic, beside ours."""
    if cluster.batch < max(TRIED_PP):
        allowed = f"{max(TRIED_PP)} or more"
        wrong = "the script divides by zero where a batch is smaller than its stages"
        raise InputError(fault("global_batch_size", f"{cluster.batch:g}", wrong, allowed))
    evaluate = _Evaluator(cluster)
    pairs = [
        (tp, pp)
        for tp in TRIED_TP
        for pp in TRIED_PP
        if tp <= evaluate.node and tp * pp <= cluster.gpus
    ]
    return tuple(_script_row(cluster, ours) for ours in evaluate.rows(pairs))


def _script_row(cluster: Cluster, ours: Row) -> ScriptRow:
    """Return a row as the script computes it: each step in its order, for its very digits."""
    tp, pp, dp = ours.tp, ours.pp, ours.dp
    count, layers = script_parameters(cluster), int(cluster.size("layers"))
    weights, optimizer = count * 2 / 1e9, count * 4 * 2 / 1e9
    batch, length = int(cluster.batch), int(cluster.length)
    hidden = int(cluster.size("hidden_size"))
    at_once = batch // (batch // pp)
    activations = 10 * at_once * length * hidden // tp * (layers // pp) * 2 / 1e9
    memory = weights / (tp * pp) + weights / (tp * pp) + optimizer / (tp * pp) / dp + activations
    volumes = {
        "tp": 4 * batch * length * hidden * 2 * (tp - 1) / tp * layers / pp / 1e9,
        "pp": 2 * batch * length * hidden * 2 / 1e9,
        "dp": 2 * (cluster.parameters / pp) * 2 * (dp - 1) / dp / 1e9,
    }
    fits = memory < cluster.memory / 1e9 * cluster.threshold
    return ScriptRow(tp, pp, dp, memory, fits, volumes, ours)


def script_choice(rows: Sequence[ScriptRow]) -> ScriptRow | None:
    """Return the row that the script recommends: of those that fit the fewest bytes, the first."""
    return min((row for row in rows if row.fits), key=lambda row: row.total, default=None)


def sizes_of(cluster: Cluster) -> dict[str, float]:
    """Return the sizes of layers that the calculator takes; of experts those that fit."""
    sizes = {name: cluster.size(name) for name in SCRIPT}
    return {**sizes, **_experts(cluster)} if cluster.experts else sizes


def shapes_of(cluster: Cluster) -> tuple[dict[str, float], float]:
    """Return the shapes with which the calculator's model is planned, and their parameters."""
    plain = {"ffn_size": cluster.size("ffn_size"), "gated_mlp": 0.0, "tied_embeddings": 1.0}
    shapes = plain | sizes_of(cluster)
    constants = {**shapes, "tp": 1.0, "sequence_length": cluster.length}
    resolved = resolve(
        Sweep("", constants=constants, labels={"hardware": HARDWARE, "recipe": RECIPE})
    )
    known = Evaluation(resolved.constants, {**resolved.labels, **resolved.implied})
    return shapes, float(known["parameters"])


def _experts(cluster: Cluster) -> dict[str, float]:
    """Return sizes of experts with which a model has the parameters that are given."""
    layers, hidden = cluster.size("layers"), cluster.size("hidden_size")
    others = cluster.size("vocabulary_size") * hidden + layers * hidden * (
        4.0 * hidden + cluster.experts
    )
    width = np.round((cluster.parameters - others) / (layers * cluster.experts * 2.0 * hidden))
    if width < 1.0:
        text = f"{cluster.parameters:g}"
        wrong = f"leave nothing for experts: attention and embedding alone have {others:.3g}"
        raise InputError(fault("parameters", text, wrong, "more, or smaller hidden_size, layers"))
    return {
        "experts": float(cluster.experts),
        "experts_per_token": cluster.size("experts_per_token"),
        "expert_ffn_size": float(width),
        "ffn_size": 0.0,
        "gated_mlp": 0.0,
        "tied_embeddings": 1.0,
    }
