"""Stage 3 of ZeRO: weights gathered and gradients reduced layer by layer, and what nothing hides.

The next layer's weights are gathered while a layer computes, and its gradients are reduced while
the layer before it does.  A step has forwards that gather, and backwards that gather, reduce or do
both; each such pass exposes its ends, and what takes longer than a layer's computing.
"""

from __future__ import annotations

from functools import partial

from overhead.arrays import xp
from overhead.communication.operation import on_network
from overhead.compute.quantities import KERNELS
from overhead.formula import cited, declare, formula
from overhead.labels import LABELS, PREFETCHES
from overhead.model.order import ORDERED
from overhead.overlap.durations import sharded_wait
from overhead.step.overlap import exposed

# Of these the layers that are fetched ahead are told.
PREFETCHED = {"dp_mechanism": "|".join(PREFETCHES)}
# What a mechanism says hides, rather than a share that is given.
NAMED = {"dp_mechanism": "|".join(LABELS["dp_mechanism"].values[1:])}
FSDP = cited("zhao2023", "section 3.3")
HIDDEN = "overlapped communication slows the concurrent compute by a fraction of its time"


# One layer, all layers, and what is outside of them.


def _mean(dense, experts, layers, expert):
    return dense + experts / xp.maximum(layers, 1.0) * expert


def _some(dense, experts, layers, expert):
    """A layer has a weight at least, so that a window of weights holds some number of layers."""
    return xp.maximum(_mean(dense, experts, layers, expert), 1.0)


# What is outside of layers is a message by itself, that of its own bytes: with a library's
# protocols two messages' times are in no proportion, and none is what others leave of a whole.


def _left(messages, each, layers, layer):
    """Return the bytes beside a stage's layers; what rounding leaves is no message."""
    left = messages * each - layers * layer
    return xp.where(left > 1e-12 * messages * each, left, 0.0)


def _own_left(messages, each, middle, layer, layers, pp, lacking, order_holds):
    layers_left = layers - xp.where(pp > 1.0, 0.0, lacking)
    return _left(messages, each, xp.where(order_holds > 0.0, layers_left, middle), layer)


for _part, _whole in (("gather", "dp_gather_bytes"), ("scatter", "dp_reduce_bytes")):
    _layer = f"dp_layer_{_part}_bytes"
    _taken = ("dp_messages", _whole, "middle_layers", _layer)
    declare(f"dp_non_layer_{_part}_bytes", _taken, _left, **FSDP)
    # A layer is of the stage with most parameters, where stages have their own.
    _own = (*_taken, "parameter_stage_layers", "pp", "last_stage_layer_deficit", "order_holds")
    declare(f"dp_non_layer_{_part}_bytes", _own, _own_left, when=ORDERED, **FSDP)
for _part, _group, _collective in (
    ("gather", "shard", "all_gather"),
    ("scatter", "shard", "reduce_scatter"),
    ("replica", "replica", "all_reduce"),
):
    on_network(
        f"dp_non_layer_{_part}_time", "time", _group, _collective, f"dp_non_layer_{_part}_bytes"
    )


def _outside(sent, time, experts, layers, expert_time):
    # A rank of more layers of experts than the stage that is told has these beside it.
    more = xp.maximum(experts - layers, 0.0) * expert_time
    return xp.where(sent > 0.0, time, 0.0) + more


for _way, _sent in (("gather", "gather"), ("reduce", "scatter")):
    declare(
        f"layer_{_way}_time",
        (f"dp_layer_{_way}_time", "middle_moe_layers", "middle_layers", f"edp_layer_{_way}_time"),
        _mean,
        **FSDP,
    )
    declare(
        f"non_layer_{_way}_time",
        (
            f"dp_non_layer_{_sent}_bytes",
            f"dp_non_layer_{_way}_time",
            "edp_messages",
            "middle_moe_layers",
            f"edp_layer_{_way}_time",
        ),
        _outside,
        **FSDP,
    )


@formula(
    assumes=(
        "the embedding is gathered before all else and its gradients are reduced after it",
        "an output layer of its own hides",
    ),
    **FSDP,
)
def exposed_non_layer_fraction(pp, tied_embeddings):
    """Non-layer fraction that cannot overlap: the embedding."""
    return xp.where(pp > 1.0, 1.0, 1.0 / (2.0 - tied_embeddings))


# A pass: it gathers weights, reduces gradients, or does both; what it doesn't do takes 0.


def _pass(
    layers, compute, gather, ends_gather, reduce, ends_reduce, leading, ahead, overlap, contention
):
    """Return what a pass exposes that has the first layer's weights, and reduces its gradients."""
    between, inner = xp.maximum(layers - 1.0, 0.0), xp.maximum(layers - 2.0, 0.0)
    sent = _all_sent(layers, gather, ends_gather, reduce, ends_reduce)
    ends = xp.maximum(gather - compute, 0.0) + xp.maximum(reduce - compute, 0.0)
    late = leading * ends_reduce + reduce + inner * xp.maximum(gather + reduce - compute, 0.0)
    late = xp.where(ahead > 0.0, late + (between - inner) * ends, sent)
    return _shown(sent, late, layers, compute, overlap, contention)


def _all_sent(layers, gather, ends_gather, reduce, ends_reduce):
    """Return the time of all that a pass sends."""
    between = xp.maximum(layers - 1.0, 0.0)
    return (ends_gather + between * gather) + (ends_reduce + (reduce + between * reduce))


def _shown(sent, late, layers, compute, overlap, contention):
    """Return what doesn't hide: a share, what comes late, what outlasts all that is computed."""
    unhidden = xp.maximum(exposed(sent, overlap, xp.maximum(layers, 1.0) * compute), late)
    return unhidden + contention * xp.maximum(sent - unhidden, 0.0)


declare(
    "layer_elements",
    ("dp_layer_parameters", "middle_moe_layers", "middle_layers", "edp_layer_parameters"),
    _some,
    when={"dp_mechanism": PREFETCHES[1]},
)


# A step.

NOTHING = (0.0, 0.0)


def _step(
    forward_gathers,
    backward_gathers,
    gradient_reductions,
    stage_forward_time,
    dp_backward_time,
    layers,
    layer_gather_time,
    non_layer_gather_time,
    layer_reduce_time,
    non_layer_reduce_time,
    embedding,
    forward_ahead,
    backward_ahead,
    overlap,
    contention,
    *,
    prefetched=False,
):
    """Return what a step's passes expose: forwards that gather, and backwards of three kinds."""
    forward, backward = (
        time / xp.maximum(layers, 1.0) for time in (stage_forward_time, dp_backward_time)
    )
    gather = (layer_gather_time, non_layer_gather_time)
    reduce = (layer_reduce_time, non_layer_reduce_time)
    hides = (overlap, contention)
    # The first weights come before all computing, as the last gradients go after it.
    gathering = _pass(layers, forward, *NOTHING, *gather, embedding, forward_ahead, *hides)
    both = _pass(layers, backward, *gather, *reduce, embedding, 1.0, *hides)
    if prefetched:
        sent = _all_sent(layers, *gather, *reduce)
        wait = sharded_wait(layers, backward, layer_gather_time, layer_reduce_time, backward_ahead)
        late = xp.where(backward_ahead > 0.0, embedding * non_layer_reduce_time + wait, sent)
        both = _shown(sent, late, layers, backward, *hides)
    again = _pass(layers, backward, *gather, *NOTHING, 0.0, backward_ahead, *hides)
    reducing = _pass(layers, backward, *NOTHING, *reduce, embedding, 1.0, *hides)
    # Backward passes gather and reduce, gather alone, or reduce alone.
    whole = forward_gathers * gathering
    whole = whole + xp.minimum(backward_gathers, gradient_reductions) * both
    whole = whole + xp.maximum(backward_gathers - gradient_reductions, 0.0) * again
    return whole + xp.maximum(gradient_reductions - backward_gathers, 0.0) * reducing


TAKEN = (
    "forward_gathers",
    "backward_gathers",
    "gradient_reductions",
    "stage_forward_time",
    "dp_backward_time",
    "middle_layers",
    "layer_gather_time",
    "non_layer_gather_time",
    "layer_reduce_time",
    "non_layer_reduce_time",
    "exposed_non_layer_fraction",
    "forward_layers_ahead",
    "backward_layers_ahead",
    "sharded_overlap",
    "overlap_slowdown",
)
ASSUMED = (
    "the first gathering and the last reduction hide behind nothing",
    "weights of the first layer are kept from the forward pass",
    HIDDEN,
    "micro-batches hide nothing of one another's",
    "DualPipe copies are not sharded by ZeRO-3",
)
ONE_AHEAD = "a backward fetches one layer ahead; gathers and reductions share the network"
IN_ORDER = "gathers and reductions share one communicator, in the order in which they are issued"
declare("exposed_sharded_time", TAKEN, _step, assumes=(*ASSUMED, ONE_AHEAD), **FSDP)
declare(
    "exposed_sharded_time",
    TAKEN,
    partial(_step, prefetched=True),
    assumes=(*ASSUMED, IN_ORDER),
    when=PREFETCHED,
    **FSDP,
)


# Where a collective's buffers aren't the weights and gradients themselves.


def _moved(ranks, gathers, reductions, weights, grads):
    """Bytes that copies of one family of parameters read and write in a step."""
    return xp.where(ranks > 1.0, 2.0 * gathers * weights + reductions * grads, 0.0)


@formula(
    source=KERNELS,
    where="copies of FSDP2: split_with_sizes_copy and chunk_cat",
    assumes=(
        "each gathering's weights are read and written once, and each reduction's gradients",
        "copies go in the stream of computing: nothing hides them",
    ),
)
def sharding_copy_time(
    sharding_copy_efficiency,
    memory_bandwidth,
    shards,
    expert_shards,
    forward_gathers,
    backward_gathers,
    gradient_reductions,
    dp_messages,
    dp_gather_bytes,
    edp_messages,
    edp_gather_bytes,
    max_rank_trained_parameters,
    max_rank_trained_expert_parameters,
    activation_bytes,
    reduction_bytes,
):
    """ZeRO-3 copy-out of gathers and copy-in of reductions per step."""
    often = (forward_gathers + backward_gathers, gradient_reductions)
    # A gradient is read as it was computed, and written as it is reduced.
    both = activation_bytes + reduction_bytes
    dense = (dp_messages * dp_gather_bytes, both * max_rank_trained_parameters)
    experts = (edp_messages * edp_gather_bytes, both * max_rank_trained_expert_parameters)
    moved = _moved(shards, *often, *dense) + _moved(expert_shards, *often, *experts)
    copied = sharding_copy_efficiency > 0.0
    rate = xp.where(copied, sharding_copy_efficiency, 1.0) * memory_bandwidth
    return xp.where(copied, moved / rate, 0.0)
