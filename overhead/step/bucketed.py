"""Data parallelism's exposed communication by mechanism: buckets behind backward and forward.

The label ``dp_mechanism`` names how gradients are cut; with ``efficiency`` a share is given
(`overhead.step.data_parallel`).  Up to stage 2 of ZeRO the buckets' forms of `overhead.overlap`
give what is exposed; stage 3 goes layer by layer (`overhead.step.sharded`), all that can hide does.
"""

from __future__ import annotations

import numpy as np

from overhead import overlap as mechanisms
from overhead.communication import data
from overhead.compute.declare import declare
from overhead.formula import call, formula
from overhead.overlap_labels import DP_MECHANISMS
from overhead.quantity import Array, define
from overhead.step import data_parallel, quantities

__all__ = [
    "data",
    "data_parallel",
    "ddp_bucket_bytes",
    "dp_buckets",
    "mechanisms",
    "megatron_bucket_bytes",
    "quantities",
    "whole_overlap",
]

NAMED = {"dp_mechanism": "|".join(DP_MECHANISMS[1:])}
MEGATRON = {"dp_mechanism": "megatron_buckets"}

define("reduced_bucket_bytes", r"M_\mathrm{bk}", "byte",
       "gradients at which a bucket of them is reduced", minimum=0)  # fmt: skip
define("reducing_ranks", r"N_\mathrm{bk}", "1", "ranks among which gradients are added up",
       minimum=0)  # fmt: skip
define("dp_bucket_elements", r"E_\mathrm{bk,d}", "1", "gradients of one of Megatron's buckets",
       minimum=0, above=True)  # fmt: skip
define("dp_buckets", r"n_\mathrm{bk,d}", "1", "buckets in which a rank's gradients are reduced",
       minimum=1)  # fmt: skip
define("whole_overlap", r"\omega_1", "1", "share that may hide: all of it", minimum=0)
define("exposed_layerwise_time", r"d_\mathrm{x,1}", "s",
       "time: of a step: data parallelism of stage 3 of ZeRO, exposed where all that can hide does",
       minimum=0)  # fmt: skip


@formula(
    returns="reduced_bucket_bytes",
    expression="where(bucket_bytes > 0, bucket_bytes, bucket_capacity)",
    source=mechanisms.sources.BUCKETS,
    where="section 3.2.2",
    when={"dp_mechanism": "ddp_buckets"},
)
def ddp_bucket_bytes(bucket_bytes: Array, bucket_capacity: Array) -> Array:
    """Gradients of a bucket in PyTorch's DistributedDataParallel: as given, or its usual ones."""
    return np.where(bucket_bytes > 0.0, bucket_bytes, bucket_capacity)


@formula(returns="reducing_ranks", expression="dp*cp", source=mechanisms.sources.MEGATRON,
         where="megatron/core/distributed/distributed_data_parallel.py", when=MEGATRON,
         ufunc=np.multiply)  # fmt: skip
def reducing_ranks(dp: Array, cp: Array) -> Array:
    """Ranks by which Megatron sizes its buckets: of data and context parallelism."""
    return dp * cp


call(
    returns="dp_bucket_elements",
    of="bucket_elements",
    bind={"dp": "reducing_ranks"},
    labels={"buckets": "megatron"},
    when=MEGATRON,
)


@formula(
    returns="reduced_bucket_bytes",
    expression="where(bucket_bytes > 0, bucket_bytes, reduction_bytes*dp_bucket_elements)",
    source=mechanisms.sources.MEGATRON,
    where="megatron/core/distributed/distributed_data_parallel.py",
    when=MEGATRON,
)
def megatron_bucket_bytes(
    bucket_bytes: Array, reduction_bytes: Array, dp_bucket_elements: Array
) -> Array:
    """Gradients of a bucket in Megatron: as given, or as many elements as it takes by itself."""
    return np.where(bucket_bytes > 0.0, bucket_bytes, reduction_bytes * dp_bucket_elements)


for _family in data.FAMILIES:
    data.declare_pieces(_family, "reduced_bucket_bytes", NAMED)


@formula(
    returns="dp_buckets",
    expression="maximum(dp_messages + edp_messages, 1)",
    source=mechanisms.sources.BUCKETS,
    where="section 3.2.3",
    assumes=("experts' buckets become ready between the others",),
    when=NAMED,
)
def dp_buckets(dp_messages: Array, edp_messages: Array) -> Array:
    """Buckets in which a rank's gradients are reduced, and its weights gathered."""
    return np.maximum(dp_messages + edp_messages, 1.0)


call(
    returns="exposed_dp_reduce_time",
    of="exposed_time",
    bind={
        "compute_time": "dp_window_time",
        "communication_time": "dp_reduce_time",
        "gradient_buckets": "dp_buckets",
    },
    labels={"mechanism": "ddp_buckets"},
    when=NAMED,
)
# Weights are gathered in the order of the forward: buckets as layers that are fetched ahead.
call(
    returns="exposed_dp_gather_time",
    of="exposed_time",
    bind={
        "compute_time": "dp_forward_window_time",
        "communication_time": "dp_gather_time",
        "layers": "dp_buckets",
        "prefetched_layers": "dp_buckets",
    },
    labels={"mechanism": "fsdp_prefetch"},
    when=NAMED,
)


@formula(returns="whole_overlap", expression="0*dp + 1", source="derivation", when=NAMED)
def whole_overlap(dp: Array) -> Array:
    """Share that may hide where the mechanism says what does: all of it."""
    return 0.0 * dp + 1.0


call(
    returns="exposed_layerwise_time",
    of="exposed_sharded_time",
    bind={"dp_overlap": "whole_overlap"},
    when=NAMED,
)


def _either(stage: Array, layerwise: Array, reduce: Array, gather: Array) -> Array:
    return np.where(stage >= 3.0, layerwise, reduce + gather)


declare(
    "exposed_dp_time",
    ("zero_stage", "exposed_layerwise_time", "exposed_dp_reduce_time", "exposed_dp_gather_time"),
    "where(zero_stage >= 3, exposed_layerwise_time,"
    " exposed_dp_reduce_time + exposed_dp_gather_time)",
    _either,
    source="rajbhandari2020",
    where="section 7",
    when=NAMED,
)
