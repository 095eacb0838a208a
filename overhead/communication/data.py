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

from overhead.arrays import xp
from overhead.communication.operation import added, of_dimension, on_network, operation
from overhead.formula import cited, declare, formula
from overhead.memory.activations import in_both

ZERO = cited("rajbhandari2020", "section 7")
FSDP = cited("zhao2023", "section 3.2")


# Of dense layers' parameters and of routed experts': parameters of the rank that has most, of these
# the trained ones and the low-precision ones, and the layers.
FAMILIES = {
    "dp": (
        "max_rank_dense_parameters",
        "max_rank_trained_parameters",
        "max_rank_low_precision_parameters",
        "max_stage_layers",
    ),
    "edp": (
        "max_rank_expert_parameters",
        "max_rank_trained_expert_parameters",
        "max_rank_low_precision_expert_parameters",
        "max_stage_moe_layers",
    ),
}
# Their groups: of equal weights, of which one shards, which hold the same shard.
GROUPS = {
    "dp": ("zero", "shard", "replica"),
    "edp": ("edp", "expert_shard", "expert_replica"),
}
GATHERS = ("forward_gathers", "backward_gathers")
HYBRID = "gradient shards over HSDP replicas"


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
    return xp.asarray(reduction_bytes * trained / xp.maximum(pieces, 1.0))


def _gathered(
    pieces, zero_stage, full, few, trained, trains, full_gathered, gathered, every, narrow
):
    updated = in_both(full, few, trained, trains * narrow)
    moved = xp.where(zero_stage < 3.0, updated, in_both(full_gathered, gathered, every, narrow))
    return xp.asarray(moved / xp.maximum(pieces, 1.0))


def _declare_family(family: str, owner: str, balance: str, gathered: str) -> None:
    """Declare a family's messages and operations: a round of these as often as a step has one.

    `owner`: whose a gradient is, where that has to be said; then the mean of all stages by the
    largest, of gradients and of gathered weights.
    """
    resident, trained, narrow, layers = FAMILIES[family]
    sizes = ("zero_stage", "weight_copies", layers, "reduced_bucket_bytes", "reduction_bytes")
    title = "Messages of a round: one a layer, one a bucket, or one; none where there is nothing"
    declare(f"{family}_messages", (trained, resident, *sizes), _pieces, title, **FSDP)
    pieces, reduced = f"{family}_messages", f"{family}_reduce_bytes"
    declare(
        reduced, ("reduction_bytes", trained, pieces), _reduced, "Gradients of one message", **ZERO
    )
    updated = ("full_precision_weight_bytes", "weight_bytes", trained, "trained_weights")
    every = ("full_precision_gathered_bytes", "gathered_bytes", resident, narrow)
    title = "Weights of one message: updated ones, or with ZeRO-3 all"
    taken = (pieces, "zero_stage", *updated, *every)
    declare(f"{family}_gather_bytes", taken, _gathered, title, **ZERO)
    equal, shard, replica = GROUPS[family]
    once, often = ("gradient_sums",), ("gradient_reductions",)
    for name, words, message, group, share, forward, backward in (
        ("all_reduce", "gradients", "reduce", equal, balance, None, once),
        ("reduce_scatter", "gradients", "reduce", shard, balance, None, often),
        ("all_gather", "weights", "gather", shard, gathered, GATHERS[:1], GATHERS[1:]),
        ("replica_all_reduce", HYBRID, "replica", replica, balance, None, often),
    ):
        collective = name.removeprefix("replica_")
        operation(
            f"{family}_{name}",
            f"{collective.replace('_', '-')} of {owner}{words}",
            collective,
            f"{family}_{message}_bytes",
            dimension="dp",
            group=group,
            forward=forward,
            backward=backward,
            passes=(pieces,) * 2,
            share=share,
            **ZERO,
        )


_declare_family("dp", "", "trained_balance", "gathered_balance")
_declare_family("edp", "routed-expert ", "stage_moe_balance", "stage_moe_balance")


# Data parallelism as the model of a step needs it: all of a step's, and layer by layer.
#
# A stage that is held twice (DualPipe) has its gradients added up between both that hold it, too.

FSDP_LAYERS = cited("zhao2023", "sections 3.2 and 3.3")
DUAL = cited("deepseekv3", "section 3.2.1")

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
    dense = max_rank_trained_parameters / xp.where(zero_stage >= 1.0, shards, 1.0)
    experts = max_rank_trained_expert_parameters / xp.where(zero_stage >= 1.0, expert_shards, 1.0)
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
    dense = max_rank_trained_parameters / xp.where(zero_stage >= 1.0, shards, 1.0)
    experts = max_rank_trained_expert_parameters / xp.where(zero_stage >= 1.0, expert_shards, 1.0)
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
            (count, declared.quantity("time"))
            for declared in of_dimension("dp")
            for count in declared.counts
            if (declared.collective == "all_gather") == _gathers
        ],
    )


# One layer, of the last stage, for there the first dense ones are fewest: what of it isn't experts,
# and its experts if it has any.


def _declare_layer(family: str) -> None:
    """Declare a layer's messages of one family, and the times of its gather and its reduction."""
    prefix = f"{family}_layer"
    both = ("full_precision_gathered_bytes", "gathered_bytes")
    parts = (f"{prefix}_parameters", f"{prefix}_low_precision_parameters")
    declare(f"{prefix}_gather_bytes", (*both, *parts), in_both, **FSDP_LAYERS)
    _, shard, replica = GROUPS[family]
    for part, group, collective in (
        ("gather", shard, "all_gather"),
        ("scatter", shard, "reduce_scatter"),
        ("replica", replica, "all_reduce"),
    ):
        on_network(f"{prefix}_{part}_time", "time", group, collective, f"{prefix}_{part}_bytes")


for _family in FAMILIES:
    _declare_layer(_family)
