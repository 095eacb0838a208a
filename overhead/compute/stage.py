"""Stages: their layers by kind, a stage's time of one micro-batch, and what the ends have beyond.

The stage of which parts and times are told is the last but one: of the stages between the ends it
has the fewest leading dense layers.  With two stages it is the first, with one it is all there is;
the ends' times are told as differences from it, so that every sum is right there, too.  Of a model
that says its layers' order it is the slowest one between the ends (`overhead.compute.own_layers`).

With label ``stages = uneven`` these differences stand apart, as the schedules with a form for them
need it (`overhead.schedule`).  Else every stage takes as long as the slower end.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.compute.own_layers import PARTS, SLOWEST, declare_own
from overhead.formula import call, cited, declare, formula
from overhead.labels import FOLDED, LABELS
from overhead.model.order import ORDERED
from overhead.quantity import Array

PIPELINE = cited("narayanan2021", "section 2.2")


@formula(assumes=("all middle stages are equal",), **PIPELINE)
def middle_stage(pp):
    """Index of the representative middle stage: the last of them."""
    return xp.maximum(pp - 2.0, 0.0)


@formula(
    assumes=(
        "for an uneven split, the last stage has fewer layers than the others",
        "MTP layers occupy regular layer slots",
    ),
    **PIPELINE,
)
def last_stage_layer_deficit(uneven_places, mtp_depths, layers, pipeline_layers):
    """Layers the last stage has fewer than the others in an uneven split."""
    return xp.maximum(uneven_places - mtp_depths, 0.0) * layers / xp.maximum(pipeline_layers, 1.0)


def _declare_layers(position: str) -> None:
    """Declare the layers of a stage by kind: as many as even stages have, but for the last."""
    dense, experts = f"{position}_balanced_mlp_layers", f"{position}_balanced_moe_layers"
    at = {"stage": f"{position}_stage"}
    binding = SLOWEST if position == "middle" else at
    for kind, ordered, returns in (("mlp", "spare_mixers", dense), ("moe", "moe_layers", experts)):
        call(returns=returns, of=f"stage_{kind}_layers", bind=at)
        call(returns=returns, of=f"stage_{ordered}", bind=binding, when=ORDERED)
    last = position == "last"
    taken = ("last_stage_layer_deficit",) if last else ("pp", "last_stage_layer_deficit")

    def lacking(*values: Array) -> Array:
        return values[0] if last else xp.where(values[0] > 1.0, 0.0, values[1])

    def mlps(layers: Array, *values: Array) -> Array:
        # Below 0 are mixtures whose mixer is in the stage before: these don't lack.
        left = xp.maximum(xp.maximum(layers, 0.0) - lacking(*values), 0.0)
        return left + xp.minimum(layers, 0.0)

    def mixtures(layers: Array, *values: Array) -> Array:
        beyond = xp.maximum(lacking(*values[:-1]) - xp.maximum(values[-1], 0.0), 0.0)
        return xp.maximum(layers - beyond, 0.0)

    declare(f"{position}_mlp_layers", (dense, *taken), mlps, **PIPELINE)
    declare(f"{position}_moe_layers", (experts, *taken, dense), mixtures, **PIPELINE)


for _place in ("first", "middle", "last"):
    _declare_layers(_place)


# A stage's layers.


def _layers(dense, dense_time, experts, expert_time):
    return dense * dense_time + experts * expert_time


for _name in ("forward", "backward"):
    _each = (f"dense_layer_{_name}_time", f"moe_layer_{_name}_time")
    _both = ("attention_beyond_forward_time", "attention_beyond_time")
    declare_own(
        f"middle_layers_{_name}_time",
        ("middle_mlp_layers", _each[0], "middle_moe_layers", _each[1]),
        _layers,
        _both[:1] if _name == "forward" else _both,
        **PIPELINE,
    )


# Activations on their way to the host's memory and back: beside the pass of a micro-batch.

# By the busier direction of the link: a forward pass sends activations and takes weights; a
# backward pass takes activations, weights and gradients to add to, and sends no more.

OFFLOAD = cited("transformerengine", "transformer_engine/pytorch/cpu_offload.py")


@formula(source="derivation")
def forward_transfer_time(offload_transfer_time, weight_transfer_time):
    """Host transfer time per forward pass of a micro-batch, busier direction."""
    return xp.maximum(offload_transfer_time, weight_transfer_time)


def _longer(transfer, time):
    return xp.maximum(transfer - time, 0.0)


for _name in ("forward", "backward"):
    _exposed, _own = f"exposed_offload_{_name}_time", f"middle_layers_{_name}_time"
    declare(_exposed, (f"{_name}_transfer_time", _own), _longer, **OFFLOAD)


def _weights(dense, dense_time, experts, expert_time, whole, *gpu):
    layers = _layers(dense, gpu[0], experts, gpu[1])
    return _layers(dense, dense_time, experts, expert_time) + xp.maximum(whole - layers, 0.0) / 2.0


def _own_weights(*values):
    *taken, dense_time, forward, both, excess = values
    taken[4] = taken[4] - excess * (both - forward)
    return xp.maximum(_weights(*taken) + excess * (dense_time - taken[1]), 0.0)


_each = ("dense_layer_weight_gradient_time", "moe_layer_weight_gradient_time")
_gpu = ("dense_layer_backward_gpu_time", "moe_layer_backward_gpu_time")
_weighed = (
    "middle_mlp_layers",
    _each[0],
    "middle_moe_layers",
    _each[1],
    "middle_backward_time",
    *_gpu,
)
WGRAD = cited(
    "qi2023", "section 2.1", assumes=("half of the launch-bound time of a backward pass is wgrad",)
)
declare("stage_weight_time", _weighed, _weights, **WGRAD)
_mixers = (
    PARTS["weight_gradient"][1],
    "attention_beyond_forward_time",
    "attention_beyond_time",
    "middle_attention_excess",
)
declare("stage_weight_time", (*_weighed, *_mixers), _own_weights, when=ORDERED, **WGRAD)


# What the ends have beyond it.


def _extra(
    dense, middle_dense, dense_time, experts, middle_experts, expert_time, end_time, communication
):
    layers = (dense - middle_dense) * dense_time + (experts - middle_experts) * expert_time
    return layers + end_time + communication


def _own_extra(*values):
    *taken, excess, middle, beyond = values
    return _extra(*taken) + (excess - middle) * beyond


# Of a folded pipeline the first rank has both ends, and the last has no layers of its own.
UNFOLDED = "|".join(name for name in LABELS["schedule"].values if name not in FOLDED)
for _place, _end, _ordered in (
    ("first", "embedding_time", ORDERED),
    ("last", "output_time", {**ORDERED, "schedule": UNFOLDED}),
):
    _compared = (
        f"{_place}_mlp_layers",
        "middle_mlp_layers",
        "dense_layer_time",
        f"{_place}_moe_layers",
        "middle_moe_layers",
        "moe_layer_time",
        _end,
        f"vocabulary_{_place}_time",
    )
    declare(f"{_place}_stage_extra_time", _compared, _extra, **PIPELINE)
    _excess = (f"{_place}_attention_excess", "middle_attention_excess", "attention_beyond_time")
    _compared_own = (*_compared, *_excess)
    declare(f"{_place}_stage_extra_time", _compared_own, _own_extra, when=_ordered, **PIPELINE)


@formula(source="derivation", assumes=("a single stage is both first and last",))
def end_stage_extra_time(pp, first_stage_extra_time, last_stage_extra_time):
    """Extra time of the slower of first and last stage per micro-batch."""
    slower = xp.maximum(xp.maximum(first_stage_extra_time, last_stage_extra_time), 0.0)
    return xp.where(pp > 1.0, slower, first_stage_extra_time + last_stage_extra_time)


# A stage's time, which is never nought: it has at least an operation a token.

EVERY = "every stage takes as long as the slower end; its extra work counts as backward"


@formula(returns="stage_forward_time", **PIPELINE)
def even_stage_forward_time(
    middle_layers_forward_time, exposed_offload_forward_time, rank_tokens, attention_peak_flops
):
    """Forward time per stage and micro-batch."""
    time = middle_layers_forward_time + exposed_offload_forward_time
    return xp.maximum(time, rank_tokens / attention_peak_flops)


@formula(returns="stage_backward_time", assumes=(EVERY,), **PIPELINE)
def even_stage_backward_time(middle_backward_time, end_stage_extra_time):
    """Backward time per stage and micro-batch, first or last stage included."""
    return xp.maximum(middle_backward_time + end_stage_extra_time, 0.0)


# The ends of the model: embedding in the first stage, output layer and loss in the last.
#
# As of a layer, the slower of the GPU and of the host's launches rules.

EMBEDDING = cited("megatron", "megatron/core/tensor_parallel/layers.py, VocabParallelEmbedding")


@formula(
    assumes=("rows are read and written; their gradients read, and added to the table's",),
    **EMBEDDING,
)
def embedding_gpu_time(
    has_backward, activation_bytes, rank_tokens, hidden_size, memory_efficiency, memory_bandwidth
):
    """Time of the embedding on the GPU, forward and backward."""
    moved = (2.0 + 3.0 * has_backward) * activation_bytes * rank_tokens * hidden_size
    return moved / (memory_efficiency * memory_bandwidth)


@formula(
    source="megatron",
    where="megatron/core/transformer/multi_token_prediction.py",
    assumes=(
        "the MTP layer is one of the layers of its stage; communication is separate",
        "three norms, and the concatenation of hidden state and embedding, are read and written",
        "the backward moves twice as much",
    ),
)
def mtp_time(
    mtp_depths,
    mtp_projection_forward_time,
    mtp_projection_input_gradient_time,
    mtp_projection_weight_gradient_time,
    elementwise_factor,
    activation_bytes,
    rank_tokens,
    hidden_size,
    sequence_shards,
    memory_efficiency,
    memory_bandwidth,
    embedding_gpu_time,
    logits_forward_time,
    logits_input_gradient_time,
    logits_weight_gradient_time,
    loss_time,
    logits_recomputation_time,
):
    """MTP time on the GPU (projection, embedding, logits, loss)."""
    projection = mtp_projection_forward_time + mtp_projection_input_gradient_time
    projection = projection + mtp_projection_weight_gradient_time
    moved = 30.0 * activation_bytes * rank_tokens * hidden_size / sequence_shards
    joining = elementwise_factor * moved / (memory_efficiency * memory_bandwidth)
    until_head = projection + joining + embedding_gpu_time
    whole = (
        until_head + logits_forward_time + logits_input_gradient_time + logits_weight_gradient_time
    )
    return mtp_depths * (whole + loss_time + logits_recomputation_time)


# The host: what is launched of one micro-batch.

AHEAD = "the host launches ahead of the GPU, as in a layer"


def _slower(gpu, host):
    return xp.sqrt(xp.sqrt(gpu * gpu * gpu * gpu + host * host * host * host))


@formula(assumes=(AHEAD,), **EMBEDDING)
def embedding_time(has_backward, embedding_gpu_time, eager_launch_fraction, host_launch_time):
    """Embedding time, forward and backward."""
    # Mask 4, rows, positions 2, sum, dropout; and for the gradients dropout, both tables and
    # their sums 6.
    launches = 9.0 + 6.0 * has_backward
    return _slower(embedding_gpu_time, launches * eager_launch_fraction * host_launch_time)


@formula(
    source="megatron",
    where="megatron/core/tensor_parallel/cross_entropy.py, and pretrain_gpt.py, loss_func",
    assumes=(
        AHEAD,
        "the norm before the LM head is not counted",
        "forward-only, logits are computed for every token, without loss",
        "a loss in chunks launches all of it for each of them",
    ),
)
def output_time(
    logits_forward_time,
    has_backward,
    logits_input_gradient_time,
    logits_weight_gradient_time,
    loss_time,
    logits_recomputation_time,
    mtp_time,
    eager_launch_fraction,
    host_launch_time,
    rank_tokens,
    logit_tokens,
):
    """LM head and loss time, forward and backward."""
    gradients = logits_input_gradient_time, logits_weight_gradient_time
    further = (*gradients, loss_time, logits_recomputation_time, mtp_time)
    gpu = logits_forward_time
    for time in further:
        gpu = gpu + has_backward * time
    # Norm, product; loss of a split vocabulary 18, mask and mean 4, gradients of the loss 8, of
    # product and norm 8.
    launches = 2.0 + 38.0 * has_backward
    host = launches * eager_launch_fraction * host_launch_time * (rank_tokens / logit_tokens)
    return _slower(gpu, host)
