"""Which part of a layer's communication its computing doesn't hide, by dimension.

The caller says which share of a dimension's communication hides (``tp_overlap`` and so on); no
more hides than there is computing to hide behind, so that both together never take less time than
the longer of the two.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.compute.quantities import WANG
from overhead.formula import alias, call, constant, declare, formula, product, total
from overhead.overlap import mechanisms
from overhead.quantity import Array

BOUND: dict[str, Any] = {
    "source": WANG,
    "where": "section 4, the benefit of overlapping",
    "assumes": ("the share that hides is given", "at most as much hides as is computed meanwhile"),
}


def exposed(time: Array, overlap: Array, computing: Array) -> Array:
    """Return which part of a time isn't hidden."""
    return xp.maximum(xp.maximum((1.0 - overlap) * time, time - computing), 0.0)


# What hides slows down what it hides behind: by a share that is given, or by the multiprocessors
# that its kernels take where they come first, one a channel.  On DGX H100 NCCL's search ends at 12
# channels in a node and 8 across, 0.09 and 0.06 of the multiprocessors: fits took a share of 0.08.

_counted: dict[str, Any] = {"when": {"contention": "counted"}}
constant("communication_priority", 1.0, "Communication's kernels come first", like="sms")
constant("communication_streams", 1.0, "One collective at a time", like="sms")
alias("communication_channels", "communicator_channels", "Those of a communicator")
product(
    "communication_sms",
    ("communication_streams", "communication_channels"),
    source="nccl",
    where="a block of threads a channel",
    assumes=("a channel takes one",),
)


@formula(
    source=mechanisms.ENGINE,
    where="bulk overlap, as the forms of bulk_shared and bulk_queued have it",
    assumes=(
        "a product slows down by the multiprocessors that it has less, none by a copy engine",
        "a product that comes first fills the GPU: communication waits for its end",
    ),
    **_counted,
)
def overlap_contention(
    communication_priority: Array, communication_sms: Array, sms: Array
) -> Array:
    """Time that hidden communication costs the computing beside it, by its own."""
    taken = xp.minimum(communication_sms / sms, 1.0)
    return communication_priority * taken + (1.0 - communication_priority)


# Tensor parallelism hides behind a layer's products.  Inputs that are gathered again travel while
# the products of the inputs' gradients run, which don't need them (Megatron-LM).


@formula(
    source="megatron",
    where="megatron/core/model_parallel_config.py: tp_comm_overlap needs sequence parallelism",
)
def tp_hidden_share(sequence_parallel: Array, tp_overlap: Array, tp_whole_overlap: Array) -> Array:
    """Share of tensor parallelism's communication that hides, with a split sequence or a whole."""
    return xp.where(sequence_parallel > 0.0, tp_overlap, tp_whole_overlap)


REPEATED = {"recompute": "selective|block|uniform|full|full_early_stop|per_op"}
LINEAR: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/tensor_parallel/layers.py: LinearWithGradAccumulationAndAsync"
    "Communication, whose backward issues the input gradient's reduction and then computes the"
    " weights' gradient",
    "assumes": ("each hides behind one product: the gradient of the same weights",),
}


@formula(**LINEAR)
def tp_reduction_time(
    sequence_whole: Array,
    tp_all_reduce_time: Array,
    sequence_parallel: Array,
    tp_reduce_scatter_time: Array,
) -> Array:
    """Time to add up a block's output, or its input's gradient."""
    return sequence_whole * tp_all_reduce_time + sequence_parallel * tp_reduce_scatter_time


def _contended(time: Array, share: Array, product: Array, contention: Array) -> Array:
    """Return what a reduction beside a product costs: what doesn't hide, and what they share."""
    unhidden = exposed(time, share, product)
    return unhidden + contention * (time - unhidden)


@formula(**LINEAR)
def dense_tp_waited_time(
    sequence_parallel: Array,
    tp_all_gather_time: Array,
    tp_reduction_time: Array,
    tp_gradient_overlap: Array,
    qkv_weight_gradient_time: Array,
    mlp_up_weight_gradient_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a dense layer waits for where reductions run beside products of weights' gradients."""
    share, contention = tp_gradient_overlap, overlap_contention
    return (
        2.0 * sequence_parallel * tp_all_gather_time
        + _contended(tp_reduction_time, share, qkv_weight_gradient_time, contention)
        + _contended(tp_reduction_time, share, mlp_up_weight_gradient_time, contention)
    )


@formula(**{**LINEAR, "assumes": (*LINEAR["assumes"], "shared experts' reductions don't hide")})
def moe_tp_waited_time(
    moe_layer_blocks: Array,
    sequence_parallel: Array,
    tp_all_gather_time: Array,
    tp_reduction_time: Array,
    tp_gradient_overlap: Array,
    qkv_weight_gradient_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a mixture's layer waits for where reductions run beside weights' gradients."""
    share, product = tp_gradient_overlap, qkv_weight_gradient_time
    return (
        moe_layer_blocks * sequence_parallel * tp_all_gather_time
        + _contended(tp_reduction_time, share, product, overlap_contention)
        + xp.maximum(moe_layer_blocks - 1.0, 0.0) * tp_reduction_time
    )


def _tp_backward(
    time: Array, gather: Array, overlap: Array, waited: Array, inputs: Array, weights: Array
) -> Array:
    # The more of both hides: the share, or what runs beside the weights' gradients
    sent = xp.minimum(exposed(time, overlap, inputs + weights), waited)
    # What is gathered hides behind the same products: both together no longer than these
    both = time + gather - (inputs + weights)
    return xp.maximum(sent + xp.maximum(gather - inputs, 0.0), both)


def _tp_backward_again(
    time: Array,
    gather: Array,
    overlap: Array,
    waited: Array,
    inputs: Array,
    weights: Array,
    again: Array,
    forward: Array,
) -> Array:
    once = _tp_backward(time, gather, overlap, waited, inputs, weights)
    return once + exposed(again, overlap, forward)


def _frozen(time: Array, overlap: Array, inputs: Array, reductions: Array) -> Array:
    # Of a frozen weight there is no gradient, beside whose product its input's could be added up
    return reductions + exposed(xp.maximum(time - reductions, 0.0), overlap, inputs)


def _dense_frozen(time: Array, overlap: Array, inputs: Array, reduction: Array) -> Array:
    return _frozen(time, overlap, inputs, 2.0 * reduction)


def _moe_frozen(
    time: Array, overlap: Array, inputs: Array, reduction: Array, blocks: Array
) -> Array:
    return _frozen(time, overlap, inputs, blocks * reduction)


def _dense_frozen_again(
    again: Array, forward: Array, time: Array, overlap: Array, inputs: Array, reduction: Array
) -> Array:
    return _dense_frozen(time, overlap, inputs, reduction) + exposed(again, overlap, forward)


def _moe_frozen_again(again: Array, forward: Array, *taken: Array) -> Array:
    return _moe_frozen(*taken) + exposed(again, taken[1], forward)


FROZEN: dict[str, Any] = {
    "source": "transformerengine",
    "where": "transformer_engine/pytorch/module/linear.py, ub_bulk_wgrad: reductions of inputs'"
    " gradients run beside weights' gradients, or with ub_overlap_rs_dgrad, off unless set, in"
    " their own product",
}


def _tensor(of: str, layer: str, once: Any, repeated: Any, *blocks: str) -> None:
    """Declare what tensor parallelism exposes in layers of one class, also of frozen weights."""
    forward = f"{of}_layer_matmul_forward_time"
    inputs, weights = f"{of}_layer_input_gradient_time", f"{of}_layer_weight_gradient_time"
    time, again = f"{layer}_forward_time", f"{layer}_recompute_time"
    taken: tuple[str, ...] = (time, "tp_hidden_share", forward)
    declare(f"{of}_exposed_tp_forward_time", taken, exposed, **BOUND)

    time, gather, waited = f"{layer}_backward_time", f"{layer}_gather_time", f"{of}_tp_waited_time"
    taken = (time, gather, "tp_hidden_share", waited, inputs, weights)
    declare(f"{of}_exposed_tp_backward_time", taken, _tp_backward, **BOUND)
    declare(
        f"{of}_exposed_tp_backward_time",
        (*taken, again, f"{of}_layer_matmul_again_time"),
        _tp_backward_again,
        when=REPEATED,
        **BOUND,
    )
    kept = {"tuning": "lora", "tp_mechanism": "efficiency"}
    frozen = (time, "tp_hidden_share", inputs, "tp_reduction_time", *blocks)
    taken = (again, f"{of}_layer_matmul_again_time", *frozen)
    name = f"{of}_exposed_tp_backward_time"
    declare(name, frozen, once, when=kept, **FROZEN)
    declare(name, taken, repeated, when={**kept, **REPEATED}, **FROZEN)


_tensor("dense", "tp_layer", _dense_frozen, _dense_frozen_again)
_tensor("moe", "tp_moe_layer", _moe_frozen, _moe_frozen_again, "moe_layer_blocks")


# Context parallelism hides behind scores and values; in a ring, behind all blocks but one.

RING = {"context_parallel": "ring"}
REPEATED_ATTENTION = {"recompute": "selective|block|uniform|full|full_early_stop"}


def _more(time: Array, overlap: Array, computing: Array, again: Array) -> Array:
    return exposed(time, overlap, computing + again)


def _ring(time: Array, overlap: Array, computing: Array, cp: Array) -> Array:
    return exposed(time, overlap, computing * (1.0 - 1.0 / cp))


def _ring_more(time: Array, overlap: Array, computing: Array, again: Array, cp: Array) -> Array:
    return _ring(time, overlap, computing + again, cp)


def _context() -> None:
    """Declare what context parallelism exposes; its backward holds what is repeated."""
    forward = ("cp_layer_forward_time", "cp_overlap", "attention_forward_time")
    backward = ("cp_layer_backward_time", "cp_overlap", "attention_backward_time")
    both = (*backward, "layer_attention_again_time")
    one, name = "exposed_cp_forward_time", "exposed_cp_backward_time"
    declare(one, forward, exposed, **BOUND)
    declare(name, backward, exposed, **BOUND)
    again = REPEATED_ATTENTION
    declare(name, both, _more, when=again, **BOUND)

    declare(one, (*forward, "cp"), _ring, when=RING, **BOUND)
    declare(name, (*backward, "cp"), _ring, when=RING, **BOUND)
    declare(name, (*both, "cp"), _ring_more, when={**RING, **again}, **BOUND)


_context()

# Mixed, heads are exchanged for tokens as by all_to_all, and blocks go round as in a ring; both
# together hide behind no more than there is.

MIXED = {"context_parallel": "mixed"}


def _mixed(
    exchange: Array, around: Array, overlap: Array, computing: Array, ring_ranks: Array
) -> Array:
    other = exposed(around, overlap, computing * (1.0 - 1.0 / ring_ranks))
    return xp.maximum(exposed(exchange, overlap, computing) + other, exchange + around - computing)


def _mixed_more(
    exchange: Array, around: Array, overlap: Array, computing: Array, ring_ranks: Array,
    again: Array,
) -> Array:  # fmt: skip
    return _mixed(exchange, around, overlap, computing + again, ring_ranks)


for _way in ("forward", "backward"):
    _taken = ("cp_exchange_time", f"cp_round_{_way}_time", "cp_overlap", f"attention_{_way}_time",
              "ring_ranks")  # fmt: skip
    declare(f"exposed_cp_{_way}_time", _taken, _mixed, when=MIXED, **BOUND)
declare("exposed_cp_backward_time", (*_taken, "layer_attention_again_time"), _mixed_more,
        when={**MIXED, **REPEATED_ATTENTION}, **BOUND)  # fmt: skip


# Expert parallelism hides behind another micro-batch's computing: its forward behind that one's
# backward, and the other way round, so that both have a layer's whole computing to hide behind.

WHERE = "megatron/core/pipeline_parallel/combined_1f1b.py"
PAIRS: dict[str, Any] = {**BOUND, "source": "megatron", "where": WHERE}
total("moe_layer_computing_time",
      ("moe_layer_matmul_time", "attention_time", "moe_layer_elementwise_time"))  # fmt: skip


def _ep_backward(time: Array, forward: Array, overlap: Array, computing: Array) -> Array:
    hidden = forward - exposed(forward, overlap, computing)
    return exposed(time, overlap, computing - hidden)


def _ep_backward_more(
    time: Array, forward: Array, overlap: Array, computing: Array, repeated: Array, again: Array
) -> Array:
    sent = exposed(repeated * forward, overlap, again)
    return _ep_backward(time, forward, overlap, computing) + sent


def _expert() -> None:
    """Declare what expert parallelism exposes; its backward holds what is repeated."""
    forward = ("ep_layer_forward_time", "ep_overlap", "moe_layer_computing_time")
    declare("exposed_ep_forward_time", forward, exposed, **PAIRS)
    name, taken = "exposed_ep_backward_time", ("ep_layer_backward_time", *forward)
    declare(name, taken, _ep_backward, **PAIRS)
    more = ("repeated_exchanges", "moe_layer_matmul_again_time")
    declare(name, (*taken, *more), _ep_backward_more, when=REPEATED, **PAIRS)


_expert()

# Context parallelism's exposed communication by mechanism: keys and values round a ring.
#
# The label ``cp_mechanism`` names it; with ``efficiency`` a share is given
# (`overhead.step.overlap`).  Only a ring has something to compute while it sends: exchanging heads
# for tokens, or gathering keys and values, is waited for.

NAMED = {"cp_mechanism": "ring_exchange"}
NAMED_RING = {**NAMED, **RING}
NAMED_MIXED = {**NAMED, **MIXED}

total("attention_again_time", ("attention_backward_time", "layer_attention_again_time"))


def _ring_exchange(way: str, computing: str, when: dict[str, str]) -> None:
    mixed = "mixed" in when.values()
    call(
        returns=f"exposed_round_{way}_time" if mixed else f"exposed_cp_{way}_time",
        of="exposed_time",
        bind={
            "compute_time": computing,
            "communication_time": f"cp_round_{way}_time" if mixed else f"cp_layer_{way}_time",
            "ranks": "ring_ranks" if mixed else "cp",
        },
        labels={"mechanism": "ring_exchange"},
        when=when,
    )


NOT_ROUND = "attention waits for what isn't sent round a ring"
_HIDING = {"forward": ("attention_forward_time",),
           "backward": ("attention_backward_time", "layer_attention_again_time")}  # fmt: skip
for _way in ("forward", "backward"):
    _sent = f"cp_layer_{_way}_time"
    # What is repeated in a backward changes nothing of it.
    for _when in (NAMED,) if _way == "forward" else (NAMED, {**NAMED, **REPEATED_ATTENTION}):
        alias(
            f"exposed_cp_{_way}_time",
            _sent,
            assumes=(NOT_ROUND,),
            lacks=dict.fromkeys(_HIDING[_way][: len(_when)], NOT_ROUND),
            when=_when,
        )
    for _when in (NAMED_RING, NAMED_MIXED):
        _ring_exchange(_way, f"attention_{_way}_time", _when)
    for _when in (NAMED_MIXED, {**NAMED_MIXED, **REPEATED_ATTENTION})[: 1 + (_way == "backward")]:
        total(f"exposed_cp_{_way}_time", ("cp_exchange_time", f"exposed_round_{_way}_time"),
              when=_when, name="_".join((f"mixed_exposed_cp_{_way}_time", *_when)))  # fmt: skip
for _when in (NAMED_RING, NAMED_MIXED):
    _ring_exchange("backward", "attention_again_time", {**_when, **REPEATED_ATTENTION})

# Attention by itself, with what context parallelism adds to it.

total("context_attention_forward_time",
      ("attention_forward_time", "merge_forward_time", "exposed_cp_forward_time"))  # fmt: skip
total("context_attention_time", ("attention_time", "merge_time", "layer_exposed_cp_time"))
