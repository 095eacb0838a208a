"""Which part of a layer's communication its computing doesn't hide, by dimension.

The caller says which share of a dimension's communication hides (``tp_overlap`` and so on); no
more hides than there is computing to hide behind, so that both together never take less time than
the longer of the two.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication import context
from overhead.communication.operation import WAYS
from overhead.compute.quantities import WANG
from overhead.formula import call, cited, declare, formula
from overhead.overlap import mechanisms
from overhead.quantity import Array

BOUND: dict[str, Any] = cited(
    WANG,
    "section 4, the benefit of overlapping",
    assumes=("the share that hides is given", "at most as much hides as is computed meanwhile"),
)


def exposed(time: Array, overlap: Array, computing: Array | float) -> Array:
    """Return which part of a time isn't hidden."""
    return xp.maximum(xp.maximum((1.0 - overlap) * time, time - computing), 0.0)


# What hides slows down what it hides behind: by a share that is given, or by the multiprocessors
# that its kernels take where they come first, one a channel.  On DGX H100 NCCL's search ends at 12
# channels in a node and 8 across, 0.09 and 0.06 of the multiprocessors: fits took a share of 0.08.


@formula(
    source=mechanisms.ENGINE,
    where="bulk overlap, as the forms of bulk_shared and bulk_queued have it",
    assumes=(
        "a GEMM slows by the fraction of SMs it loses; copy engines cost none",
        "a GEMM that starts first fills the GPU: communication waits for its completion",
    ),
)
def overlap_slowdown(communication_priority, comm_sms, sms):
    """Compute slowdown per overlapped communication time."""
    taken = xp.minimum(comm_sms / sms, 1.0)
    return communication_priority * taken + (1.0 - communication_priority)


# Tensor parallelism hides behind a layer's products.  Inputs that are gathered again travel while
# the products of the inputs' gradients run, which don't need them (Megatron-LM).


@formula(
    source="megatron",
    where="megatron/core/model_parallel_config.py: tp_comm_overlap needs sequence parallelism",
)
def tp_overlapped_fraction(sequence_parallel, tp_overlap, tp_all_reduce_overlap):
    """Overlapped fraction of TP communication, with or without sequence parallelism."""
    return xp.where(sequence_parallel > 0.0, tp_overlap, tp_all_reduce_overlap)


LINEAR = cited(
    "megatron",
    "megatron/core/tensor_parallel/layers.py: LinearWithGradAccumulationAndAsync"
    "Communication, whose backward issues the input gradient's reduction and then computes the"
    " weights' gradient",
    assumes=("each overlaps with one GEMM: wgrad of the same weights",),
)


def _waited(
    split: Array,
    gather: Array,
    reduction: Array,
    overlap: Array,
    contention: Array,
    first: Array,
    blocks: Array,
    second: Array | float = 0.0,
) -> Array:
    """Return what a layer waits for whose blocks' reductions run each beside one product."""
    behind = [exposed(reduction, overlap, product) for product in (first, second)]
    # What hides slows the product down.
    first_wait, other = (left + contention * (reduction - left) for left in behind)
    return blocks * split * gather + first_wait + (blocks - 1.0) * other


_taken = (
    "sequence_parallel",
    "tp_all_gather_time",
    "tp_reduction_time",
    "tp_gradient_overlap",
    "overlap_slowdown",
    "qkv_weight_gradient_time",
)
declare(
    "dense_tp_waited_time",
    (*_taken, "dense_layer_blocks", "mlp_up_weight_gradient_time"),
    _waited,
    **LINEAR,
)
declare(
    "moe_tp_waited_time",
    (*_taken, "moe_layer_blocks"),
    _waited,
    **{**LINEAR, "assumes": (*LINEAR["assumes"], "reductions of shared experts do not overlap")},
)


def _tp_backward(again, forward, overlap, time, inputs, gather, waited, weights):
    # The more of both hides: the share, or what runs beside the weights' gradients
    sent = xp.minimum(exposed(time, overlap, inputs + weights), waited)
    # What is gathered hides behind the same products: both together no longer than these
    both = time + gather - (inputs + weights)
    once = xp.maximum(sent + xp.maximum(gather - inputs, 0.0), both)
    return once + exposed(again, overlap, forward)


def _frozen(
    again: Array,
    forward: Array,
    overlap: Array,
    time: Array,
    inputs: Array,
    reduction: Array,
    blocks: Array,
) -> Array:
    # Of a frozen weight there is no gradient, beside whose product its input's could be added up
    reductions = blocks * reduction
    once = reductions + exposed(xp.maximum(time - reductions, 0.0), overlap, inputs)
    return once + exposed(again, overlap, forward)


FROZEN = cited(
    "transformerengine",
    "transformer_engine/pytorch/module/linear.py, ub_bulk_wgrad: reductions of inputs'"
    " gradients run beside weights' gradients, or with ub_overlap_rs_dgrad, off unless set, in"
    " their own product",
    when={"tuning": "lora", "tp_mechanism": "efficiency"},
)
for _of, _layer in (("dense", "tp_layer"), ("moe", "tp_moe_layer")):
    _once = (f"{_layer}_forward_time", "tp_overlapped_fraction", f"{_of}_layer_matmul_forward_time")
    declare(f"{_of}_exposed_tp_forward_time", _once, exposed, **BOUND)
    _back = (
        f"{_layer}_recompute_time",
        f"{_of}_layer_matmul_recompute_time",
        "tp_overlapped_fraction",
        f"{_layer}_backward_time",
        f"{_of}_layer_input_gradient_time",
    )
    _weights = (
        f"{_layer}_gather_time",
        f"{_of}_tp_waited_time",
        f"{_of}_layer_weight_gradient_time",
    )
    declare(f"{_of}_exposed_tp_backward_time", (*_back, *_weights), _tp_backward, **BOUND)
    _frozen_back = (*_back, "tp_reduction_time", f"{_of}_layer_blocks")
    declare(f"{_of}_exposed_tp_backward_time", _frozen_back, _frozen, **FROZEN)


# Context parallelism: what goes round a ring hides behind the scores and values of all blocks but
# one.  Heads that are exchanged for tokens, keys and values that are gathered at once, and the
# exchanges of scans are waited for.  Attention that a backward repeats waits as in the forward.

RING = cited(
    "transformerengine",
    "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:"
    " AttnFuncWithCPAndKVP2P computes a block while the next one is sent;"
    " flash_attn_a2a_communicate and gather_along_first_dim are waited for",
)


def _round(around: Array, overlap: Array, ring_ranks: Array, computing: Array) -> Array:
    return exposed(around, overlap, computing * (1.0 - 1.0 / ring_ranks))


for _way in WAYS:
    _around, _computing = f"cp_round_{_way}_time", f"attention_{_way}_time"
    call(
        returns=f"exposed_round_{_way}_time",
        of="exposed_time",
        bind={"compute_time": _computing, "communication_time": _around, "ranks": "ring_ranks"},
        labels={"mechanism": "ring_exchange"},
        when={"cp_mechanism": "ring_exchange", **context.ROUND},
    )
    declare(
        f"exposed_round_{_way}_time",
        (_around, "cp_overlap", "ring_ranks", _computing),
        _round,
        assumes=BOUND["assumes"],
        when=context.ROUND,
        **RING,
    )


@formula(**RING)
def exposed_cp_forward_time(
    cp_scan_forward_time, cp_exchange_forward_time, exposed_round_forward_time
):
    """Exposed CP communication per layer, forward."""
    return cp_exchange_forward_time + exposed_round_forward_time + cp_scan_forward_time


@formula(**RING)
def exposed_cp_backward_time(
    cp_scan_backward_time,
    recomputed_fraction,
    cp_scan_forward_time,
    recomputed_attentions,
    exposed_cp_forward_time,
    cp_exchange_backward_time,
    exposed_round_backward_time,
):
    """Exposed CP communication per layer, backward: with what recomputed attention repeats."""
    attention = xp.maximum(exposed_cp_forward_time - cp_scan_forward_time, 0.0)
    repeated = recomputed_attentions * attention + recomputed_fraction * cp_scan_forward_time
    once = cp_exchange_backward_time + exposed_round_backward_time + cp_scan_backward_time
    return once + repeated


# Expert parallelism hides behind another micro-batch's computing: its forward behind that one's
# backward, and the other way round, so that both have a layer's whole computing to hide behind.
# Passes of a pipeline's warm-up and cool-down run alone.

PAIRS: dict[str, Any] = {
    **BOUND,
    "source": "megatron",
    "where": "megatron/core/pipeline_parallel/combined_1f1b.py",
}


WARMUP = cited(
    "megatron",
    "megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches: one warm-up"
    " more with overlap_moe_expert_parallel_comm",
)
SLOWED = ("overlapped communication slows the concurrent compute, as for other collectives",)


@formula(assumes=("passes of warm-up and cool-down run alone",), **WARMUP)
def unpaired_fraction(virtual_pipeline_size, pp, num_micro_batches):
    """Fraction of passes during which no other micro-batch computes, bubble included."""
    chunks = virtual_pipeline_size * num_micro_batches + pp - 1.0
    return xp.minimum(virtual_pipeline_size * pp / chunks, 1.0)


def _slowing(time: Array, left: Array, contention: Array) -> Array:
    """Return what is left of a time, and by how much the rest slows what it hides behind."""
    return left + contention * xp.maximum(time - left, 0.0)


def _some_alone(time: Array, late: Array, unpaired: Array, contention: Array) -> Array:
    """Return what a layer waits for where some passes run alone."""
    left = late + unpaired * xp.maximum(time - late, 0.0)
    return _slowing(time, left, contention)


declare(
    "paired_ep_forward_time",
    ("ep_layer_forward_time", "ep_overlap", "moe_layer_computing_time"),
    exposed,
    **PAIRS,
)


declare(
    "exposed_ep_forward_time",
    ("ep_layer_forward_time", "paired_ep_forward_time", "unpaired_fraction", "overlap_slowdown"),
    _some_alone,
    assumes=SLOWED,
    **WARMUP,
)


@formula(assumes=SLOWED, **WARMUP)
def exposed_ep_backward_time(
    ep_layer_forward_time,
    paired_ep_forward_time,
    moe_layer_computing_time,
    unpaired_fraction,
    overlap_slowdown,
    recomputed_exchanges,
    ep_overlap,
    moe_layer_matmul_recompute_time,
):
    """Exposed EP communication per layer, backward."""
    # Beside another pass: in what its computing has left behind the forward's exchanges
    beside = moe_layer_computing_time - (ep_layer_forward_time - paired_ep_forward_time)
    paired = exposed(ep_layer_forward_time, ep_overlap, beside)
    once = _some_alone(ep_layer_forward_time, paired, unpaired_fraction, overlap_slowdown)
    again = recomputed_exchanges * ep_layer_forward_time
    left = exposed(again, ep_overlap, moe_layer_matmul_recompute_time)
    return once + _slowing(again, left, overlap_slowdown)
