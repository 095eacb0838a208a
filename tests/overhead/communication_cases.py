"""Machines, models and plans whose communication the tests compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from overhead.communication.groups import DEFAULTS
from overhead.communication.totals import OPERATIONS
from overhead.evaluation import Evaluation
from overhead.memory.stage import DEFAULTS as MEMORY

__all__ = [
    "GPT",
    "LLAMA",
    "MACHINE",
    "MOE",
    "TOPOLOGIES",
    "Plan",
    "counts",
    "held",
]

Plan = dict[str, Any]

TOPOLOGIES = ("hierarchical", "switch", "ring", "tree", "mesh", "torus")
LABELS = {
    "topology": "hierarchical",
    "algorithm": "nccl",
    "latency_per": "hop",
    "phases": "sequential",
    "reduction": "free",
    "link": "auto",
    "recompute": "none",
    "schedule": "one_f_one_b",
    "sharding": "full",
}
# Round numbers: a byte inside a node takes 10 ps, between nodes 100 ps.
MACHINE: dict[str, float] = {
    "gpus_per_node": 8, "nics_per_node": 8, "intra_bandwidth": 1e11, "inter_bandwidth": 1e10,
    "intra_latency": 1e-6, "inter_latency": 5e-6, "intra_energy_per_bit": 1e-12,
    "inter_energy_per_bit": 1e-11, "oversubscription": 1, "intra_nvls": 0, "intra_inc": 0,
    "inter_inc": 0, "in_network_latency_factor": 1, "intra_efficiency": 1, "inter_efficiency": 1,
}  # fmt: skip
BYTES: Plan = {"weight_bytes": 2, "gradient_bytes": 4, "optimizer_bytes": 12}
GPT: Plan = {
    "layers": 8, "hidden_size": 1024, "heads": 16, "kv_heads": 16, "head_size": 64,
    "ffn_size": 4096, "vocabulary_size": 51200, "sequence_length": 2048, "tied_embeddings": 1,
}  # fmt: skip
LLAMA: Plan = {
    "layers": 80, "hidden_size": 8192, "heads": 64, "kv_heads": 8, "head_size": 128,
    "ffn_size": 28672, "gated": 1, "vocabulary_size": 128256, "sequence_length": 8192,
}  # fmt: skip
MOE: Plan = {
    "layers": 8, "hidden_size": 1024, "heads": 16, "kv_heads": 4, "head_size": 64,
    "ffn_size": 4096, "gated": 1, "vocabulary_size": 51200, "sequence_length": 2048,
    "experts": 16, "experts_per_token": 2, "expert_ffn_size": 512, "dense_layers": 2,
    "sequence_parallel": 1, "etp": 1,
}  # fmt: skip
DERIVED = ("weight_copies", "etp", "kv_heads", "head_size")


def held(plan: Mapping[str, ArrayLike], **labels: str) -> Evaluation:
    """Return all that follows from a plan on the machine; what it doesn't say is not split."""
    defaults = {name: value for name, value in MEMORY.items() if name not in DERIVED}
    given = {**defaults, **DEFAULTS, **MACHINE, **BYTES, "micro_batches": 1, **plan}
    topology = labels.get("topology", "hierarchical")
    shape = {"hierarchical": "two_levels"}.get(topology, "flat")
    return Evaluation(given, {**LABELS, "shape": shape, **labels})


def counts(evaluation: Evaluation) -> dict[str, tuple[float, float]]:
    """Return how often each operation happens, forward and backward, of those that do."""
    found: dict[str, tuple[float, float]] = {}
    for name in OPERATIONS:
        one, other = (float(evaluation[f"{name}_{way}_count"]) for way in ("forward", "backward"))
        if one or other:
            found[name] = one, other
    return found
