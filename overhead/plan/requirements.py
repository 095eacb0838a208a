"""Which parallel plans there are: conditions on degrees, shapes and batches, with their faults."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from overhead.collectives.algorithm import Requirement
from overhead.quantity import Array, define

define("world_size", "N_w", "1", "GPUs of the plan", minimum=1, integer=True)
define(
    "uneven_stages",
    r"u_p",
    "1",
    "whether stages of a pipeline may hold different numbers of layers",
    minimum=0,
    maximum=1,
    integer=True,
)


def _divides(divisor: Array, number: Array) -> Array:
    return np.asarray(number % divisor == 0.0)


PLAN = (
    Requirement(
        "product_of_degrees",
        "tp*cp*pp*dp must be the number of GPUs",
        lambda tp, cp, pp, dp, world_size: np.asarray(tp * cp * pp * dp == world_size),
    ),
    Requirement(
        "nodes_not_filled",
        "the GPUs must fill whole nodes, or divide one evenly",
        lambda world_size, gpus_per_node: (
            _divides(world_size, gpus_per_node) | _divides(gpus_per_node, world_size)
        ),
    ),
    Requirement(
        "heads_not_divisible",
        "tp must divide the attention heads",
        lambda tp, heads: np.asarray(heads % tp == 0.0),
    ),
    Requirement(
        "kv_heads_not_divisible",
        "tp must divide the key and value heads, or they must divide tp",
        lambda tp, kv_heads: _divides(tp, kv_heads) | _divides(kv_heads, tp),
    ),
    Requirement(
        "ffn_not_divisible",
        "tp must divide the inner size of the MLP",
        lambda tp, ffn_size: np.asarray(ffn_size % tp == 0.0),
    ),
    Requirement(
        "too_few_layers",
        "every virtual stage must have a layer: pp*virtual_stages up to the layers",
        lambda pp, virtual_stages, layers: np.asarray(pp * virtual_stages <= layers),
    ),
    Requirement(
        "layers_not_divisible",
        "pp*virtual_stages must divide the layers, unless stages may be uneven",
        lambda pp, virtual_stages, layers, uneven_stages: (
            (uneven_stages > 0.0) | _divides(pp * virtual_stages, layers)
        ),
    ),
    Requirement(
        "batch_not_divisible",
        "dp*micro_batch must divide the global batch",
        lambda dp, micro_batch, global_batch: _divides(dp * micro_batch, global_batch),
    ),
    Requirement(
        "sequence_not_divisible_by_tp",
        "tp must divide the sequence of a context-parallel rank with sequence parallelism",
        lambda tp, cp, sequence_length, sequence_parallel: (
            (sequence_parallel == 0.0) | (tp == 1.0) | _divides(tp * cp, sequence_length)
        ),
    ),
    Requirement(
        "shards_not_divisible",
        "the ranks of a hybrid shard must divide dp*cp",
        lambda hsdp_shard, dp, cp: _divides(hsdp_shard, dp * cp),
    ),
    Requirement(
        "expert_ranks_not_divisible",
        "etp*ep must divide tp*cp*dp, of a mixture of experts",
        lambda etp, ep, tp, cp, dp, experts: (experts == 0.0) | _divides(etp * ep, tp * cp * dp),
    ),
    Requirement(
        "experts_not_divisible",
        "ep must divide the experts; it is 1 where there are none",
        lambda ep, experts: np.where(experts > 0.0, _divides(ep, experts), ep == 1.0),
    ),
    Requirement(
        "expert_ffn_not_divisible",
        "etp must divide the inner size of an expert",
        lambda etp, expert_ffn_size: np.asarray(expert_ffn_size % etp == 0.0),
    ),
    Requirement(
        "experts_without_sequence_parallelism",
        "a mixture of experts with tp above 1 needs sequence parallelism",
        lambda tp, experts, sequence_parallel: np.asarray(
            (tp == 1.0) | (experts == 0.0) | (sequence_parallel > 0.0)
        ),
    ),
)

_HALVES = Requirement(
    "sequence_not_divisible_by_cp",
    "2*cp must divide the sequence: every rank has an early and a late part under a causal mask",
    lambda cp, sequence_length: (cp == 1.0) | _divides(2.0 * cp, sequence_length),
)
_PARTS = Requirement(
    "sequence_not_divisible_by_cp",
    "cp must divide the sequence",
    lambda cp, sequence_length: np.asarray(sequence_length % cp == 0.0),
)
_HEADS = (
    Requirement(
        "heads_not_divisible_by_cp",
        "tp*cp must divide the attention heads (all_to_all context parallelism)",
        lambda tp, cp, heads: (cp == 1.0) | _divides(tp * cp, heads),
    ),
    Requirement(
        "kv_heads_not_divisible_by_cp",
        "tp*cp must divide the key and value heads (all_to_all context parallelism)",
        lambda tp, cp, kv_heads: (cp == 1.0) | _divides(tp * cp, kv_heads),
    ),
)
# By the kind of context parallelism; "causal" comes before "full" attention.
CONTEXT: dict[tuple[str, str], tuple[Requirement, ...]] = {
    (kind, mask): (split, *heads)
    for kind, heads in (("all_to_all", _HEADS), ("ring", ()), ("all_gather", ()))
    for mask, split in (("causal", _HALVES), ("full", _PARTS))
}

_ONE_CHUNK = Requirement(
    "virtual_stages_without_interleaving",
    "only the interleaved schedule has more than one virtual stage",
    lambda virtual_stages: np.asarray(virtual_stages == 1.0),
)
SCHEDULE: dict[str, tuple[Requirement, ...]] = {
    "gpipe": (_ONE_CHUNK,),
    "one_f_one_b": (_ONE_CHUNK,),
    "forward_only": (_ONE_CHUNK,),
    "interleaved": (
        Requirement(
            "micro_batches_not_divisible",
            "pp must divide the micro-batches with more than one virtual stage",
            lambda virtual_stages, pp, micro_batches: (
                (virtual_stages == 1.0) | _divides(pp, micro_batches)
            ),
        ),
    ),
    "zero_bubble_h1": (
        _ONE_CHUNK,
        Requirement(
            "too_few_micro_batches",
            "there must be no fewer micro-batches than stages (ZB-H1)",
            lambda pp, micro_batches: np.asarray(micro_batches >= pp),
        ),
    ),
    "zero_bubble_h2": (
        _ONE_CHUNK,
        Requirement(
            "too_few_micro_batches",
            "there must be no fewer micro-batches than 2*pp - 1 (ZB-H2)",
            lambda pp, micro_batches: np.asarray(micro_batches >= 2.0 * pp - 1.0),
        ),
    ),
    "dual_pipe": (
        _ONE_CHUNK,
        Requirement(
            "too_few_micro_batches",
            "there must be no fewer micro-batches than 2*pp (DualPipe)",
            lambda pp, micro_batches: np.asarray(micro_batches >= 2.0 * pp),
        ),
        Requirement(
            "odd_stages_or_micro_batches",
            "stages and micro-batches must be even (DualPipe)",
            lambda pp, micro_batches: (pp % 2.0 == 0.0) & (micro_batches % 2.0 == 0.0),
        ),
    ),
}

FRAMEWORK: dict[str, tuple[Requirement, ...]] = {
    "deepspeed": (
        Requirement(
            "zero_stage_with_pipeline",
            "DeepSpeed has no pipeline with ZeRO stage 2 or 3",
            lambda zero_stage, pp: np.asarray((zero_stage < 2.0) | (pp == 1.0)),
        ),
    ),
}


def requirements(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return what a plan must fulfil."""
    context = (labels.get("context_parallel", ""), labels.get("mask", "causal"))
    return (
        *PLAN,
        *CONTEXT.get(context, ()),
        *SCHEDULE.get(labels.get("schedule", ""), ()),
        *FRAMEWORK.get(labels.get("framework", ""), ()),
    )
