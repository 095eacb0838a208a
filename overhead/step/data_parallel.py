"""Which part of data parallelism's communication nothing hides, over a whole step.

Up to stage 2 of ZeRO, gradients are reduced while the backward that gives them runs on, and updated
weights are gathered while the next forward runs.  `overhead.step.sharded` has stage 3.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, declare, derived, formula
from overhead.labels import PAIRED, PREFETCHES
from overhead.overlap import mechanisms
from overhead.step.sharded import NAMED

MEGATRON = cited("megatron", "megatron/core/distributed: overlap_grad_reduce, overlap_param_gather")
LAST = "gradients of the last layer or chunk are reduced after all compute"
FIRST = "weights of the first layer or chunk are gathered before any compute can overlap"


# Up to stage 2.


# A backward by itself takes a stage's time for it; in the pipeline it takes what the schedule does:
# less where a forward of the other direction runs beside it, more where it waits for longer ends.
# Counted so, no work makes the window longer by more than the pipeline.

UNPAIRED = "a pair's time is a forward's by itself, and the backward's the rest"
LONGEST = "every micro-batch has a part of the uneven-stage time, its backward part overlaps"


@derived(assumes=(LONGEST,))
def dp_backward_time(stage_backward_time, num_micro_batches, pp, uneven_time):
    """Backward part of the pipeline time."""
    waiting = xp.where(pp > 1.0, uneven_time, 0.0) / num_micro_batches
    return xp.maximum(stage_backward_time + waiting, 0.0)


@formula(
    returns="dp_backward_time",
    source="deepseekv3",
    where="section 3.2.1, figure 5",
    assumes=(UNPAIRED, LONGEST),
    when={"schedule": "|".join(PAIRED)},
)
def paired_dp_backward_time(
    stage_backward_time, num_micro_batches, pp, uneven_time, stage_forward_time, busy_time
):
    """Backward part of the pipeline time."""
    alone = stage_forward_time + stage_backward_time
    mean = xp.maximum(stage_backward_time + (busy_time / num_micro_batches - alone), 0.0)
    waiting = xp.where(pp > 1.0, uneven_time, 0.0) / num_micro_batches
    return xp.maximum(mean + waiting, 0.0)


# Of an interleaved pipeline a chunk's gradients are complete, and reduced at once, after as many
# passes as there are stages; a chunk's weights are gathered while the chunk before computes.  So
# all chunks but one hide behind all but one, and nothing hides the last reduction or first gather.
CHUNKS: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/pipeline_parallel/schedules.py,"
    " forward_backward_pipelining_with_interleaving: grad_sync_func, param_sync_func",
    "when": {"schedule": "interleaved"},
}


@formula(assumes=("stages launch a chunk's communication together (align_grad_reduce)",), **CHUNKS)
def dp_window_passes(virtual_pipeline_size, num_micro_batches, pp):
    """Passes during which DP communication of other chunks can overlap."""
    chunked = (virtual_pipeline_size > 1.0) & (pp > 1.0)
    others = 1.0 - 1.0 / xp.maximum(virtual_pipeline_size, 1.0)
    return xp.where(chunked, xp.minimum(num_micro_batches, pp) * others, 1.0)


@formula(source=MEGATRON["source"], where=MEGATRON["where"])
def dp_parts(middle_layers):
    """Stage parts with consecutive DP communication: layers."""
    return xp.maximum(middle_layers, 1.0)


@formula(returns="dp_parts", **CHUNKS)
def chunked_dp_parts(virtual_pipeline_size, pp, middle_layers):
    """Stage parts with consecutive DP communication: chunks."""
    chunked = (virtual_pipeline_size > 1.0) & (pp > 1.0)
    return xp.where(chunked, virtual_pipeline_size, xp.maximum(middle_layers, 1.0))


@formula(
    assumes=("gradients are complete in the last backward pass, or reduced in each backward pass",),
    **MEGATRON,
)
def dp_window_time(gradient_reductions, dp_window_passes, dp_backward_time):
    """Backward time that overlaps gradient reductions: the last backward passes, or each."""
    return xp.maximum(gradient_reductions, dp_window_passes) * dp_backward_time


def _late(time, overlap, window, parts):
    """Return what of it is exposed: a share, one part's, or what outlasts the window."""
    share = xp.maximum(1.0 - overlap, 1.0 / parts)
    return xp.maximum(share * time, time - overlap * window)


for _way, _window, _ends in (
    ("reduce", "dp_window_time", LAST),
    ("gather", "dp_forward_window_time", FIRST),
):
    declare(
        f"exposed_dp_{_way}_time",
        (f"dp_{_way}_time", "dp_overlap", _window, "dp_parts"),
        _late,
        assumes=("a share of it and of the computing hide one another", _ends),
        **MEGATRON,
    )


@formula(source="rajbhandari2020", where="section 7")
def exposed_dp_time(
    zero_stage,
    exposed_sharded_time,
    sharding_copy_time,
    exposed_dp_reduce_time,
    exposed_dp_gather_time,
):
    """Exposed DP communication per step: layer by layer with ZeRO-3."""
    layerwise = exposed_sharded_time + sharding_copy_time
    return xp.where(zero_stage >= 3.0, layerwise, exposed_dp_reduce_time + exposed_dp_gather_time)


# Data parallelism's exposed communication by mechanism: buckets behind backward and forward.
#
# The label ``dp_mechanism`` names how gradients are cut; with ``efficiency`` a share is given
# (above).  Up to stage 2 of ZeRO the buckets' forms of `overhead.overlap`
# give what is exposed; stage 3 goes layer by layer, all that can hide does.

MEGATRON_BUCKETS = {"dp_mechanism": "megatron_buckets"}
# Gradients that accumulate go in DistributedDataParallel's buckets; fetched weights need stage 3
DDP_BUCKETS = {"dp_mechanism": "|".join(("ddp_buckets", "gradient_accumulation", *PREFETCHES))}
ACCUMULATED = {"dp_mechanism": "gradient_accumulation"}


@formula(
    returns="reduced_bucket_bytes",
    source=mechanisms.BUCKETS,
    where="section 3.2.2",
    when=DDP_BUCKETS,
)
def ddp_bucket_bytes(bucket_bytes, bucket_capacity):
    """Gradients of a bucket in PyTorch's DistributedDataParallel: as given, or its usual ones."""
    return xp.where(bucket_bytes > 0.0, bucket_bytes, bucket_capacity)


@formula(
    returns="reduced_bucket_bytes",
    source=mechanisms.MEGATRON,
    where="megatron/core/distributed/distributed_data_parallel.py",
    when=MEGATRON_BUCKETS,
)
def megatron_bucket_bytes(bucket_bytes, reduction_bytes, dp_bucket_elements):
    """Gradients of a bucket in Megatron: as given, or as many elements as it takes by itself."""
    return xp.where(bucket_bytes > 0.0, bucket_bytes, reduction_bytes * dp_bucket_elements)


@formula(
    source=mechanisms.BUCKETS,
    where="section 3.2.3",
    assumes=("expert buckets become ready between the others",),
    when=NAMED,
)
def dp_buckets(dp_messages, edp_messages):
    """Buckets of gradient reduction and weight gathering per rank."""
    return xp.maximum(dp_messages + edp_messages, 1.0)


# Gradients that accumulate are reduced once a step, whatever the stage of ZeRO.


@formula(
    returns="gradient_reductions",
    source=mechanisms.BUCKETS,
    where="section 3.2.4 (no_sync)",
    assumes=("only the last backward pass reduces",),
    when=ACCUMULATED,
)
def accumulated_reductions(zero_stage, has_backward):
    """Gradient reduce-scatters per step with unsharded accumulation: one."""
    return xp.where(zero_stage < 1.0, 0.0, has_backward)
