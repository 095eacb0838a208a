"""The completion of a training configuration: what holds of it that nobody says.

There is one order of rules, `complete`, for Python (`overhead.config`), for command lines, specs
and searches (`sweeps.spec.resolve_training`), and for measured runs (`sweeps.validate.predict`).
What is given stays, and so does what a rule gave, whatever those after it would give:

1. the machine's figures, the software that usually trains on it, and its network;
2. the model's shapes, and its sequence length;
3. labels: the schedule of virtual stages, shards of a given size; the habits of the software; the
   labels' own defaults (`overhead.labels.LABELS`);
4. the plan: what isn't given isn't split, a step is one micro-batch of one sequence;
5. the constants of the machine and its software;
6. what is usual (specs/training/usual.csv);
7. the library that runs collectives, and its labels.

Then labels follow that nobody chooses: `implied`, and of a network or a schedule `following`.

A user is told of all this.  A default in the tables of overhead/quantities is something else: a
formula takes it silently where nothing gives the quantity.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from overhead.labels import (
    EVEN_SCHEDULES,
    FOLDED,
    GIVEN_GRID,
    HIERARCHY,
    HYBRID,
    IN_A_STEP,
    INTERLEAVED,
    NO_LIBRARY,
    STEP_DEFAULTS,
)
from overhead.shipped import Usual, usual_table

# What an assumption says that is a default, and why sequence parallelism is one of experts.
DEFAULT, OF_EXPERTS = "the default", "as Megatron-LM demands of experts"


class Statement:
    """A training configuration that is being completed; what a catalogue knows, subclasses do.

    Attributes
    ----------
    numbers : dict
        Quantities.
    labels : dict
        Labels.
    given : set
        The names of those that are known.
    """

    def __init__(self, numbers: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        self.numbers, self.labels = dict(numbers), dict(labels)
        self.given = {*numbers, *labels}

    def number(self, name: str, taken: Usual) -> None:
        """Take a quantity's number, unless it is known."""
        if name not in self.given:
            self.numbers[name] = taken.value
            self.given.add(name)

    def label(self, name: str, value: str, why: str = DEFAULT) -> None:
        """Take a label's value, for a reason, unless it is known."""
        if name not in self.given:
            self.labels[name] = value
            self.given.add(name)

    def exceeds(self, name: str, limit: float) -> bool:
        """Return whether a quantity is known and some of its values are above a limit."""
        return name in self.given and bool(np.any(np.asarray(self.numbers[name]) > limit))

    def words(self, label: str) -> set[str]:
        """Return all values of a label."""
        return {self.labels[label]}

    def same(self, name: str, other: str, why: str) -> None:
        """Take for a quantity what another one that is given is, unless it is known."""
        self.number(name, Usual(self.numbers[other], "assumed", why))

    def habit(self, label: str, value: str) -> None:
        """Take a label as the software that trains has it, or else this value."""
        self.label(label, value)

    def take_machine(self) -> None:
        """Take the machine's figures, what usually trains on it and over which network."""

    def take_model(self) -> None:
        """Take the model's shapes."""

    def take_tuning(self) -> None:
        """Take a LoRA rank of 0 for what it is: full training, where no rule of adapters holds."""
        if "lora_rank" in self.given and not self.exceeds("lora_rank", 0.0):
            self.given.discard("lora_rank")

    def check(self) -> None:
        """Refuse what can't be of labels and shapes."""

    def take_habits(self) -> None:
        """Take what plans of the software that trains usually have."""
        routed = np.asarray(self.numbers.get("experts", 0.0)) > 0.0
        self.number("sequence_parallel", Usual(1.0 * routed, "assumed", OF_EXPERTS))

    def take_constants(self) -> None:
        """Take the constants of the machine and its software."""

    def take_operation(self) -> None:
        """Take what running a training takes."""

    def take_library(self) -> None:
        """Take the library that runs collectives, with its constants and labels."""


def complete(statement: Statement) -> None:
    """Fill in what a training configuration doesn't say."""
    statement.take_machine()
    statement.take_model()
    statement.take_tuning()
    complete_labels(statement)
    statement.check()
    complete_plan(statement)
    statement.take_constants()
    take_usual(statement, "operation", "training")
    statement.take_operation()
    take_usual(statement, "step", "communication", "memory", "grid")
    statement.take_library()


def complete_labels(statement: Statement) -> None:
    """Fill in labels, and shares of overlap that follow one another."""
    if statement.exceeds("virtual_pipeline_size", 1.0):
        statement.label("schedule", INTERLEAVED, "virtual stages are given")
    if "hsdp_shard_size" in statement.given:
        statement.label("sharding", HYBRID, "the ranks of a shard are given")
    for label, value in STEP_DEFAULTS.items():
        statement.habit(label, value)
    if not statement.given.isdisjoint(FEATURES["updating"]):
        statement.habit("host_states", "hybrid")
    if "tp_overlap" in statement.given:
        # A framework's share needs sequence parallelism; one that is given holds without it, too.
        statement.same("tp_all_reduce_overlap", "tp_overlap", "as tp_overlap, which is given")
        taken = Usual(0.0, "assumed", "tp_overlap, which is given")
        statement.number("tp_gradient_overlap", taken)


def complete_plan(statement: Statement) -> None:
    """Fill in degrees and batches of a plan."""
    usual = usual_table()["plan"]
    # Folded schedules have two chunks a rank.
    folded = bool({*FOLDED} & statement.words("schedule"))
    sized = not statement.given.isdisjoint({"dp", "world_size"})
    batched = not statement.given.isdisjoint(
        {"global_batch_size", "num_micro_batches", "tokens_per_step"}
    )
    follow = {"virtual_pipeline_size": folded, "dp": sized, "num_micro_batches": batched}
    for name, taken in usual.items():
        if not follow.get(name):
            statement.number(name, taken)
    statement.take_habits()


def take_usual(statement: Statement, *takers: str) -> None:
    """Take what is usual, but for what follows from something else that is known.

    Of what memory takes, a model's shapes and a plan's degrees have rules of their own.
    """
    usual = usual_table()
    for taker in takers:
        ruled = {**usual["plan"], **usual["shapes"]} if taker == "memory" else {}
        for name, taken in usual[taker].items():
            if name not in ruled and not follows(name, statement.given):
                statement.number(name, taken)


# For how long an operation waits at least: for its host, for the network.
FLOORS = ("collective_host_time", "inter_min_time")


def floor_label(numbers: Mapping[str, Any]) -> str:
    """Return whether operations may wait for their host, or the network's."""
    times = (np.asarray(numbers.get(name, 0.0)) for name in FLOORS)
    return "some" if any(np.any(time > 0.0) for time in times) else "none"


def library_labels(library: str, numbers: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of the library that runs a step's collectives."""
    environment = {"environment": IN_A_STEP} if library != NO_LIBRARY else {}
    return {"library": library, "floor": floor_label(numbers), **environment}


# What follows from quantities that are given, and so is taken from nowhere.

# Any of these says what communication takes of the GPU's multiprocessors.
TAKEN_SMS = (
    "comm_sms",
    "communication_channels",
    "communication_streams",
    "communication_priority",
)
FOLLOWS = {
    "expert_load_imbalance": ("rank_load_imbalance",),
    "overlap_slowdown": TAKEN_SMS,
    "gpu_hour_price": ("capital_cost",),
}


def follows(name: str, given: Container[str]) -> bool:
    """Return whether a quantity follows from one that is given."""
    return any(other in given for other in FOLLOWS.get(name, ()))


# The labels that nobody chooses.

# Without these shapes a model has no tensors of its own, only a number of parameters.
TENSORS = ("layers", "hidden_size", "heads", "vocabulary_size")


def needed_shapes(given: Container[str]) -> tuple[str, ...]:
    """Return the shapes without which only a parameter count is known."""
    inner = "expert_ffn_size" if "expert_ffn_size" in given else "ffn_size"
    return (*TENSORS, inner)


def following(labels: Mapping[str, str], given: Container[str]) -> dict[str, str]:
    """Return labels with what follows: a network's levels, phases, reductions, even stages."""
    completed = dict(labels)
    if "topology" in labels:
        levels = "three_levels" if "nodes_per_pod" in given else "two_levels"
        completed["shape"] = levels if labels["topology"] == HIERARCHY else "flat"
        completed["phases"] = "pipelined" if "phase_chunks" in given else "sequential"
        completed["reduction"] = "counted" if "reduction_cost" in given else "free"
    if "mechanism" in labels:
        return completed | _ways(labels["mechanism"], given)
    if "schedule" in labels:
        completed["stages"] = "even" if labels["schedule"] in EVEN_SCHEDULES else "uneven"
    return completed


# Given one of these, the rate of communication follows this law.
SM_LAWS = {
    "sm_bandwidth": "linear",
    "half_bandwidth_sms": "saturating",
    "copy_engine_bandwidth": "copy_engine",
}


def _ways(mechanism: str, given: Container[str]) -> dict[str, str]:
    """Return how durations and buckets of an overlap come about."""
    ways: dict[str, str] = {}
    if "transfer_time" in given or "message_latency" in given or mechanism == "fused_messages":
        ways["communication"] = "messages"
    law = next((law for name, law in SM_LAWS.items() if name in given), None)
    if law is not None and "communication_time" not in given:
        ways |= {"communication": "sms", "sm_law": law}
    if "matmul_m" in given:
        ways["compute"] = "tiles" if "burst_matmul_flops" in given else "waves"
    if "bucket_capacity" in given or "first_bucket_capacity" in given:
        ways["buckets"] = "sized"
    elif "reduced_elements" in given:
        ways["buckets"] = "megatron"
    return ways


# The label that holds of a model or a run where one of these quantities is given.
FEATURES = {
    "clock": ("limited", "power_limit"),
    "tuning": ("lora", "lora_rank"),
    "mixers": ("hybrid", "linear_layers"),
    "order": ("followed", "layer_order_1"),
    "selection": ("indexed", "index_heads"),
    "stashing": ("host", "activation_offload", "offloaded_layers"),
    "updating": ("host", "optimizer_offload", "parameter_offload"),
}


def features(given: Container[str]) -> dict[str, str]:
    """Return the labels that hold of a model or a run of which some quantities are given."""
    labels = {
        label: value
        for label, (value, *names) in FEATURES.items()
        if any(name in given for name in names)
    }
    if isinstance(given, Mapping) and "lora_rank" in given and not np.any(given["lora_rank"]):
        del labels["tuning"]  # A rank of 0 is full training
    return labels


def implied(given: Container[str]) -> dict[str, str]:
    """Return the labels that say what of a plan is given, and what has to follow from the rest."""
    known = all(name in given for name in needed_shapes(given))
    labels = {"shapes": "known" if known else "unknown"}
    if "layers" not in given:
        labels["depth"] = "unknown"
    if "tokens_per_step" in given and "global_batch_size" not in given:
        labels["batched_by"] = "tokens"
    labels |= features(given)
    if "mesh_nx" in given and "mesh_ny" in given:
        labels |= GIVEN_GRID
    return labels
