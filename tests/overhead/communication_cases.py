"""Machines, models and plans whose communication the tests compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overhead.communication.operation import DIMENSIONS, WAYS, Operation, multiplied, of_dimension
from overhead.communication.totals import OPERATIONS, time_of
from overhead.evaluation import Evaluation
from overhead.quantity import Array
from tests.overhead.usual import usual
from tests.tables import keyed

__all__ = [
    "GPT",
    "LLAMA",
    "MACHINE",
    "MOE",
    "TOPOLOGIES",
    "Plan",
    "count",
    "counts",
    "happening",
    "held",
    "sent",
    "spent",
    "total_energy",
    "volume",
]

Plan = dict[str, Any]

TOPOLOGIES = ("hierarchical", "switch", "ring", "tree", "mesh", "torus")
LABELS = keyed(
    "topology=hierarchical algorithm=nccl latency_per=hop phases=sequential reduction=free "
    "link=auto recompute=none schedule=one_f_one_b sharding=full context_parallel=all_to_all "
    "dispatcher=all_to_all"
)
# Round numbers: a byte inside a node takes 10 ps, between nodes 100 ps.
MACHINE: dict[str, float] = keyed(
    "gpus_per_node=8 nics_per_node=8 intra_bandwidth=1e11 inter_bandwidth=1e10 intra_latency=1e-6 "
    "inter_latency=5e-6 intra_energy_per_bit=1e-12 inter_energy_per_bit=1e-11 oversubscription=1 "
    "intra_nvls=0 intra_inc=0 inter_inc=0 in_network_latency_factor=1 intra_efficiency=1 "
    "inter_efficiency=1"
)
BYTES: Plan = {"weight_bytes": 2, "gradient_bytes": 4, "optimizer_bytes": 12}
GPT: Plan = keyed(
    "layers=8 hidden_size=1024 heads=16 kv_heads=16 head_size=64 ffn_size=4096 "
    "vocabulary_size=51200 sequence_length=2048 tied_embeddings=1"
)
LLAMA: Plan = keyed(
    "layers=80 hidden_size=8192 heads=64 kv_heads=8 head_size=128 ffn_size=28672 gated_mlp=1 "
    "vocabulary_size=128256 sequence_length=8192"
)
MOE: Plan = keyed(
    "layers=8 hidden_size=1024 heads=16 kv_heads=4 head_size=64 ffn_size=4096 gated_mlp=1 "
    "vocabulary_size=51200 sequence_length=2048 experts=16 experts_per_token=2 expert_ffn_size=512 "
    "dense_layers=2 sequence_parallel=1 etp=1"
)
DERIVED = ("weight_copies", "etp", "kv_heads", "head_size")


def held(plan: Mapping[str, ArrayLike], **labels: str) -> Evaluation:
    """Return all that follows from a plan on the machine; what it doesn't say is not split."""
    defaults = {name: value for name, value in usual("memory").items() if name not in DERIVED}
    given = {
        **defaults,
        **usual("communication"),
        **MACHINE,
        **BYTES,
        "num_micro_batches": 1,
        **plan,
    }
    topology = labels.get("topology", "hierarchical")
    shape = {"hierarchical": "two_levels"}.get(topology, "flat")
    return Evaluation(given, {**LABELS, "shape": shape, **labels})


def counts(evaluation: Evaluation) -> dict[str, tuple[float, float]]:
    """Return how often each operation happens, forward and backward, of those that do."""
    found: dict[str, tuple[float, float]] = {}
    for operation in happening(evaluation):
        forward, backward = (float(count(evaluation, operation.name, way)) for way in WAYS)
        if forward or backward:
            found[operation.name] = forward, backward
    return found


def happening(evaluation: Evaluation) -> list[Operation]:
    """Return the operations that plans with these labels have."""
    return [operation for name in DIMENSIONS for operation in of_dimension(name, evaluation.labels)]


def count(evaluation: Evaluation, name: str, way: str) -> Array:
    """Return how often a step has an operation in one direction."""
    often = OPERATIONS[name].count(way)
    return np.asarray(often.of(evaluation)) if often else np.zeros(())


def volume(evaluation: Evaluation, name: str) -> Array:
    """Return the most bytes that a rank sends in a step in an operation."""
    return np.asarray(multiplied(OPERATIONS[name].volume, evaluation))


def total_energy(evaluation: Evaluation, name: str) -> Array:
    """Return the energy of a step of an operation, by all groups."""
    return np.asarray(multiplied(OPERATIONS[name].total_energy, evaluation))


def spent(evaluation: Evaluation, name: str, way: str) -> Array:
    """Return a step's time of an operation in one direction."""
    return np.asarray(count(evaluation, name, way) * evaluation[f"{name}_time"])


def sent(evaluation: Evaluation, dimension: str, way: str) -> Array:
    """Return the time of a dimension's communication in one direction of a step."""
    return np.asarray(time_of(dimension, way, evaluation.labels, evaluation))
