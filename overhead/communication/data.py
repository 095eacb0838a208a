"""Data parallelism: gradients reduced and weights gathered among ranks of equal weights.

Stage 0 of ZeRO adds up all gradients once a step; 1 and 2 reduce and scatter them, 2 each
micro-batch if it shards them at once, and gather the updated weights; 3 gathers weights for each
micro-batch's forward and again for its backward.  With hybrid sharding that goes on within a shard
group, and gradients of a shard are added up over its replicas.  Experts do the same by themselves.

By default ZeRO-3 gathers for each micro-batch, and again for the backward.  Gradients are reduced
each micro-batch unless they wait for the end of the step (``unsharded_gradient_fraction`` of the
model of memory).  A message is a layer's (ZeRO-3), a bucket's where buckets have a size, or
everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import added, of_dimension, on_network, operation
from overhead.formula import alias, declare, formula, product, total
from overhead.memory.activations import in_both
from overhead.quantity import Array

ZERO: dict[str, Any] = {"source": "rajbhandari2020", "where": "section 7"}
FSDP: dict[str, Any] = {"source": "zhao2023", "where": "section 3.2"}


@dataclass(frozen=True, slots=True)
class Family:
    """Parameters that go their own way: those of dense layers, or those of routed experts."""

    # What its quantities' names begin with, and whose a gradient is, where that has to be said
    name: str
    owner: str
    # Its kinds of groups: of equal weights, of which one shards, which hold the same shard
    group: str
    shard: str
    replica: str
    # Quantities: ranks that shard, parameters of the busiest rank, its layers, and the mean of all
    # stages by that
    shards: str
    resident: str
    # Of these parameters the trained ones, which alone have gradients
    trained: str
    # Of both those that products take in fewer bytes than activations have
    narrow: str
    trained_narrow: str
    # Quantities: ranks that shard, parameters of the busiest rank, its layers, and the mean of all
    # stages by that
    layers: str
    # Of its gradients, and of its weights that are gathered
    share: str
    gathered: str


FAMILIES = (
    Family(
        "dp",
        "",
        "zero",
        "shard",
        "replica",
        "shards",
        "max_rank_dense_parameters",
        "max_rank_trained_parameters",
        "max_rank_low_precision_parameters",
        "max_rank_trained_low_precision_parameters",
        "max_stage_layers",
        "trained_balance",
        "gathered_balance",
    ),
    Family(
        "edp",
        "routed-expert ",
        "edp",
        "expert_shard",
        "expert_replica",
        "expert_shards",
        "max_rank_expert_parameters",
        "max_rank_trained_expert_parameters",
        "max_rank_low_precision_expert_parameters",
        "max_rank_trained_low_precision_expert_parameters",
        "max_stage_moe_layers",
        "stage_moe_balance",
        "stage_moe_balance",
    ),
)


alias(
    "reduction_bytes",
    "gradient_bytes",
    "Bytes of a gradient as it is reduced: as it is kept, unless given",
    source="megatron",
    where="megatron/core/distributed/param_and_grad_buffer.py",
)


# How often.


@formula(**ZERO)
def gradient_sums(zero_stage, has_backward):
    """Unsharded gradient all-reduces per step: one without ZeRO."""
    return xp.where(zero_stage < 1.0, has_backward, 0.0)


@formula(assumes=("from stage 2 on gradients may be sharded as soon as they are there",), **ZERO)
def gradient_reductions(zero_stage, has_backward, reduce_every_micro_batch, backward_passes):
    """Gradient reduce-scatters per step."""
    sharded = xp.where(reduce_every_micro_batch > 0.0, backward_passes, has_backward)
    once = xp.where(zero_stage < 2.0, has_backward, sharded)
    return xp.where(zero_stage < 1.0, 0.0, once)


@formula(assumes=("updated weights count for the forward pass after the update",), **ZERO)
def forward_gathers(zero_stage, has_backward, gather_every_micro_batch, num_micro_batches):
    """Weight all-gathers per step, after the update or forward."""
    sharded = xp.where(gather_every_micro_batch > 0.0, num_micro_batches, 1.0)
    once = xp.where(zero_stage < 3.0, has_backward, sharded)
    return xp.where(zero_stage < 1.0, 0.0, once)


@formula(**ZERO)
def backward_gathers(zero_stage, gather_every_micro_batch, keep_gathered, backward_passes):
    """Weight all-gathers per step, backward."""
    again = gather_every_micro_batch * (1.0 - keep_gathered) * backward_passes
    return xp.where(zero_stage < 3.0, 0.0, again)


# Messages of one round, in which all of a rank's parameters go.


def _pieces(trained, resident, zero_stage, weight_copies, layers, bucket_bytes, reduction_bytes):
    """Messages of a round: one a layer, one a bucket, or one; none where there is nothing."""
    size = xp.where(bucket_bytes > 0.0, bucket_bytes, 1.0)
    buckets = xp.maximum(xp.ceil(reduction_bytes * trained / size), 1.0)
    whole = xp.where(bucket_bytes > 0.0, buckets, 1.0)
    pieces = xp.where(zero_stage < 3.0, whole, weight_copies * xp.maximum(layers, 1.0))
    return xp.where(xp.where(zero_stage < 3.0, trained, resident) > 0.0, pieces, 0.0)


def _reduced(reduction_bytes, trained, pieces):
    """Gradients of one message."""
    return xp.asarray(reduction_bytes * trained / xp.maximum(pieces, 1.0))


def _gathered(pieces, zero_stage, *both):
    """Weights of one message: updated ones, or with ZeRO-3 all."""
    moved = xp.where(zero_stage < 3.0, in_both(*both[:4]), in_both(*both[4:]))
    return xp.asarray(moved / xp.maximum(pieces, 1.0))


def _replicated(message, shards):
    """Gradients of a shard, of one message."""
    return xp.asarray(message / shards)


def declare_pieces(
    family: Family, bucket: str = "bucket_bytes", when: Mapping[str, str] | None = None
) -> None:
    """Declare of how many messages a round of a family's parameters consists."""
    pieces = f"{family.name}_messages"
    sizes = (family.trained, family.resident, "zero_stage", "weight_copies", family.layers)
    formula(
        returns=pieces,
        inputs=(*sizes, bucket, "reduction_bytes"),
        name=pieces if when is None else f"{pieces}_in_buckets",
        when=when,
        **FSDP,
    )(_pieces)


def _declare_messages(family: Family) -> None:
    """Declare a family's messages, and of how many a round consists."""
    name, resident = family.name, family.resident
    pieces = f"{name}_messages"
    declare_pieces(family)
    formula(
        returns=f"{name}_reduce_bytes",
        inputs=("reduction_bytes", family.trained, pieces),
        name=f"{name}_reduce_bytes",
        **ZERO,
    )(_reduced)
    formula(
        returns=f"{name}_gather_bytes",
        inputs=(
            pieces,
            "zero_stage",
            *("full_precision_weight_bytes", "weight_bytes", family.trained, family.trained_narrow),
            *("full_precision_gathered_bytes", "gathered_bytes", resident, family.narrow),
        ),
        name=f"{name}_gather_bytes",
        **ZERO,
    )(_gathered)
    formula(
        returns=f"{name}_replica_bytes",
        inputs=(f"{name}_reduce_bytes", family.shards),
        name=f"{name}_replica_bytes",
        **FSDP,
    )(_replicated)


# Operations: a round of a family's messages, as often as a step has one.

for _family in FAMILIES:
    _declare_messages(_family)
    for _name, _collective, _words, _message, _group, _share, _forward, _backward in (
        (
            "all_reduce",
            "all_reduce",
            "gradients",
            "reduce_bytes",
            _family.group,
            _family.share,
            None,
            ("gradient_sums",),
        ),
        (
            "reduce_scatter",
            "reduce_scatter",
            "gradients",
            "reduce_bytes",
            _family.shard,
            _family.share,
            None,
            ("gradient_reductions",),
        ),
        (
            "all_gather",
            "all_gather",
            "weights",
            "gather_bytes",
            _family.shard,
            _family.gathered,
            ("forward_gathers",),
            ("backward_gathers",),
        ),
        (
            "replica_all_reduce",
            "all_reduce",
            "gradient shards over HSDP replicas",
            "replica_bytes",
            _family.replica,
            _family.share,
            None,
            ("gradient_reductions",),
        ),
    ):
        operation(
            f"{_family.name}_{_name}",
            f"{_collective.replace('_', '-')} of {_family.owner}{_words}",
            _collective,
            f"{_family.name}_{_message}",
            dimension="dp",
            group=_group,
            forward=_forward,
            backward=_backward,
            passes=(f"{_family.name}_messages",) * 2,
            share=_share,
            **ZERO,
        )


# Data parallelism as the model of a step needs it: all of a step's, and layer by layer.
#
# A stage that is held twice (DualPipe) has its gradients added up between both that hold it, too.

FSDP_LAYERS: dict[str, Any] = {"source": "zhao2023", "where": "sections 3.2 and 3.3"}
DUAL: dict[str, Any] = {"source": "deepseekv3", "where": "section 3.2.1"}

# Stages that two ranks hold.

operation(
    "copy_all_reduce",
    "all-reduce of gradients between DualPipe copies of a stage",
    "all_reduce",
    "copy_message_bytes",
    dimension="dp",
    group="ends",
    share="copied_balance",
    own=("backward_count",),
)


def _owned(dense: Array, stage: Array, shards: Array, experts: Array, others: Array) -> list[Array]:
    """Return the gradients of a rank, or of its shard: all but experts', and experts'."""
    sharded = stage >= 1.0
    return [dense / xp.where(sharded, shards, 1.0), experts / xp.where(sharded, others, 1.0)]


@formula(**DUAL)
def copy_message_bytes(
    reduction_bytes,
    max_rank_trained_parameters,
    zero_stage,
    shards,
    max_rank_trained_expert_parameters,
    expert_shards,
):
    """Gradients (or gradient shard) per rank, reduced between copies of a stage."""
    dense, experts = _owned(
        max_rank_trained_parameters,
        zero_stage,
        shards,
        max_rank_trained_expert_parameters,
        expert_shards,
    )
    return xp.asarray(reduction_bytes * (dense + experts))


@formula(assumes=("one message has both",), **DUAL)
def copied_balance(
    trained_balance,
    stage_moe_balance,
    max_rank_trained_parameters,
    zero_stage,
    shards,
    max_rank_trained_expert_parameters,
    expert_shards,
):
    """Gradients of duplicated stages, mean / max: each parameter family by its fraction."""
    dense, experts = _owned(
        max_rank_trained_parameters,
        zero_stage,
        shards,
        max_rank_trained_expert_parameters,
        expert_shards,
    )
    mean = trained_balance * dense + stage_moe_balance * experts
    return xp.asarray(mean / xp.maximum(dense + experts, 1.0))


@formula(**DUAL)
def copy_all_reduce_backward_count(pp, weight_copies, gradient_sums, gradient_reductions):
    """Gradient all-reduces per step between copies of a stage."""
    rounds = (weight_copies - 1.0) * (gradient_sums + gradient_reductions)
    return xp.where(pp > 1.0, rounds, 0.0)


# All of a step.

for _returns, _gathers in (("dp_gather_time", True), ("dp_reduce_time", False)):
    added(
        _returns,
        [
            (count, one.quantity("time"))
            for one in of_dimension("dp")
            for count in one.counts
            if (one.collective == "all_gather") == _gathers
        ],
    )


# One layer, of the last stage, for there the first dense ones are fewest: what of it isn't experts,
# and its experts if it has any.


def _shard(message, shards):
    """Gradient shard per layer."""
    return xp.asarray(message / shards)


def _declare_layer(family: Family) -> None:
    """Declare a layer's messages of one family, and the times of its gather and its reduction."""
    prefix = f"{family.name}_layer"
    both = ("full_precision_gathered_bytes", "gathered_bytes")
    parts = (f"{prefix}_parameters", f"{prefix}_low_precision_parameters")
    declare(f"{prefix}_gather_bytes", (*both, *parts), in_both, **FSDP_LAYERS)
    trained = f"{prefix}_trained_parameters"
    product(f"{prefix}_scatter_bytes", ("reduction_bytes", trained), **FSDP_LAYERS)
    formula(
        returns=f"{prefix}_replica_bytes",
        inputs=(f"{prefix}_scatter_bytes", family.shards),
        name=f"{prefix}_replica_bytes",
        **FSDP_LAYERS,
    )(_shard)
    for part, group, collective in (
        ("gather", family.shard, "all_gather"),
        ("scatter", family.shard, "reduce_scatter"),
        ("replica", family.replica, "all_reduce"),
    ):
        on_network(f"{prefix}_{part}_time", "time", group, collective, f"{prefix}_{part}_bytes")
    total(
        f"{prefix}_reduce_time", [f"{prefix}_scatter_time", f"{prefix}_replica_time"], **FSDP_LAYERS
    )


for _family in FAMILIES:
    _declare_layer(_family)
