"""Which part of data parallelism's communication nothing hides, over a whole step.

Up to stage 2 of ZeRO, gradients are reduced while the backward that gives them runs on, and updated
weights are gathered while the next forward runs.  `overhead.step.data_parallel` has stage 3.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication import data
from overhead.communication.operation import on_network
from overhead.compute.quantities import KERNELS
from overhead.formula import alias, call, constant, declare, formula, product, total
from overhead.labels import LABELS, PAIRED, PREFETCHES
from overhead.overlap import mechanisms
from overhead.overlap.durations import sharded_wait
from overhead.quantity import Array, define
from overhead.schedule import PARTED

MEGATRON: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/distributed: overlap_grad_reduce, overlap_param_gather",
}
INTERLEAVED = {"schedule": "interleaved"}
EARLY = ("the first chunks' gradients are done while others' backwards run",)
LAST = "the last layer's gradients are reduced when nothing is left to hide them"


# Up to stage 2.


# A backward by itself takes a stage's time for it; in the pipeline it takes what the schedule does:
# less where a forward of the other direction runs beside it, more where it waits for longer ends.
# Counted so, no work makes the window longer by more than the pipeline.

define("dp_backward_time", r"d_{b}", "s", "time of the pipeline that a backward takes", minimum=0)
alias("dp_backward_time", "stage_backward_time", "All backwards take a stage's own time")
PAIRS = {"schedule": "|".join(PAIRED)}
UNPAIRED = "a pair's time is a forward's by itself, and the backward's the rest"
LONGEST = "of what uneven ends add, each micro-batch has a part, and its backward hides with it"


def _beside(backward: Array, forward: Array, micro_batches: Array, busy: Array) -> Array:
    """Return the mean of backwards, some of which run beside forwards."""
    return xp.maximum(backward + (busy / micro_batches - (forward + backward)), 0.0)


def _waiting(backward: Array, micro_batches: Array, pp: Array, uneven: Array) -> Array:
    """Return a backward with its part of what stages wait for uneven ends."""
    return xp.maximum(backward + xp.where(pp > 1.0, uneven, 0.0) / micro_batches, 0.0)


def _beside_and_waiting(
    backward: Array, micro_batches: Array, pp: Array, uneven: Array, forward: Array, busy: Array
) -> Array:
    paired = _beside(backward, forward, micro_batches, busy)
    return _waiting(paired, micro_batches, pp, uneven)


_paired = ("stage_forward_time", "micro_batches", "busy_time")
_uneven = ("stage_backward_time", "micro_batches", "pp", "uneven_time")
declare("dp_backward_time", ("stage_backward_time", *_paired), _beside, when=PAIRS,
        source="deepseekv3", where="section 3.2.1, figure 5", assumes=(UNPAIRED,),
        name="paired_dp_backward_time")  # fmt: skip
declare("dp_backward_time", _uneven, _waiting, when=PARTED, source="derivation",
        assumes=(LONGEST,), name="uneven_dp_backward_time")  # fmt: skip
declare("dp_backward_time", (*_uneven, "stage_forward_time", "busy_time"), _beside_and_waiting,
        when={**PAIRS, "schedule": PAIRED[1], "stages": "uneven"}, source="derivation",
        assumes=(UNPAIRED, LONGEST), name="uneven_paired_dp_backward_time")  # fmt: skip


@formula(
    assumes=("gradients are done in the last micro-batch's backward, or reduced in each one's",),
    **MEGATRON,
)
def dp_window_time(gradient_reductions: Array, dp_backward_time: Array) -> Array:
    """Backwards behind which gradients can be reduced: the last, or each."""
    return xp.maximum(gradient_reductions, 1.0) * dp_backward_time


@formula(returns="dp_window_time", assumes=EARLY, when=INTERLEAVED, **MEGATRON)
def interleaved_dp_window_time(
    gradient_reductions: Array,
    virtual_stages: Array,
    micro_batches: Array,
    pp: Array,
    dp_backward_time: Array,
) -> Array:
    """Backwards behind which gradients can be reduced where stages are interleaved."""
    count = xp.where(virtual_stages > 1.0, xp.minimum(micro_batches, pp), 1.0)
    return xp.maximum(gradient_reductions, count) * dp_backward_time


alias(
    "dp_forward_window_time",
    "stage_forward_time",
    "Forwards behind which weights can be gathered: the first",
    **MEGATRON,
)


@formula(
    returns="dp_forward_window_time",
    assumes=("the last chunks' weights are needed while others' forwards run",),
    when=INTERLEAVED,
    **MEGATRON,
)
def interleaved_dp_forward_window_time(
    virtual_stages: Array, micro_batches: Array, pp: Array, stage_forward_time: Array
) -> Array:
    """Forwards behind which weights can be gathered where stages are interleaved."""
    count = xp.where(virtual_stages > 1.0, xp.minimum(micro_batches, pp), 1.0)
    return xp.asarray(count * stage_forward_time)


@formula(
    assumes=(LAST, "the first layer's weights are gathered before there is anything to hide them"),
    **MEGATRON,
)
def dp_unhidden_share(dp_overlap: Array, middle_layers: Array) -> Array:
    """Share of a reduction or a gathering that nothing hides, however long the window is."""
    return xp.maximum(1.0 - dp_overlap, 1.0 / xp.maximum(middle_layers, 1.0))


def _text(time: str, window: str) -> str:
    return f"maximum(dp_unhidden_share*{time}, {time} - dp_overlap*{window})"


@formula(assumes=("a share of it and of the backward hide one another",), **MEGATRON)
def exposed_dp_reduce_time(
    dp_unhidden_share: Array, dp_reduce_time: Array, dp_overlap: Array, dp_window_time: Array
) -> Array:
    """Reduction of gradients that nothing hides, up to stage 2 of ZeRO."""
    late = dp_reduce_time - dp_overlap * dp_window_time
    return xp.maximum(dp_unhidden_share * dp_reduce_time, late)


@formula(assumes=("a share of it and of the forward hide one another",), **MEGATRON)
def exposed_dp_gather_time(
    dp_unhidden_share: Array,
    dp_gather_time: Array,
    dp_overlap: Array,
    dp_forward_window_time: Array,
) -> Array:
    """Gathering of updated weights that nothing hides, up to stage 2 of ZeRO."""
    late = dp_gather_time - dp_overlap * dp_forward_window_time
    return xp.maximum(dp_unhidden_share * dp_gather_time, late)


def _either(stage: Array, layerwise: Array, copies: Array, reduce: Array, gather: Array) -> Array:
    """Data parallelism's exposed communication of a step."""
    return xp.where(stage >= 3.0, layerwise + copies, reduce + gather)


def _declare_exposed(layerwise: str, when: dict[str, str] | None = None) -> None:
    """Declare what is exposed of a step: layer by layer in stage 3, else of the whole."""
    once = ("exposed_dp_reduce_time", "exposed_dp_gather_time")
    declare("exposed_dp_time", ("zero_stage", layerwise, "sharding_copy_time", *once), _either,
            source="rajbhandari2020", where="section 7", when=when)  # fmt: skip


_declare_exposed("exposed_sharded_time")


# Data parallelism's exposed communication by mechanism: buckets behind backward and forward.
#
# The label ``dp_mechanism`` names how gradients are cut; with ``efficiency`` a share is given
# (`overhead.step.data_parallel`).  Up to stage 2 of ZeRO the buckets' forms of `overhead.overlap`
# give what is exposed; stage 3 goes layer by layer, all that can hide does.

NAMED = {"dp_mechanism": "|".join(LABELS["dp_mechanism"].values[1:])}
MEGATRON_BUCKETS = {"dp_mechanism": "megatron_buckets"}
# Gradients that accumulate go in DistributedDataParallel's buckets; fetched weights need stage 3
DDP_BUCKETS = {"dp_mechanism": "|".join(("ddp_buckets", "gradient_accumulation", *PREFETCHES))}
ACCUMULATED = {"dp_mechanism": "gradient_accumulation"}
PREFETCHED = {"dp_mechanism": "|".join(PREFETCHES)}

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
    source=mechanisms.BUCKETS,
    where="section 3.2.2",
    when=DDP_BUCKETS,
)
def ddp_bucket_bytes(bucket_bytes: Array, bucket_capacity: Array) -> Array:
    """Gradients of a bucket in PyTorch's DistributedDataParallel: as given, or its usual ones."""
    return xp.where(bucket_bytes > 0.0, bucket_bytes, bucket_capacity)


product("reducing_ranks", ("dp", "cp"),
        "Ranks by which Megatron sizes its buckets: of data and context parallelism",
        source=mechanisms.MEGATRON, where="megatron/core/distributed/distributed_data_parallel.py",
        when=MEGATRON_BUCKETS)  # fmt: skip


call(
    returns="dp_bucket_elements",
    of="bucket_elements",
    bind={"dp": "reducing_ranks"},
    labels={"buckets": "megatron"},
    when=MEGATRON_BUCKETS,
)


@formula(
    returns="reduced_bucket_bytes",
    source=mechanisms.MEGATRON,
    where="megatron/core/distributed/distributed_data_parallel.py",
    when=MEGATRON_BUCKETS,
)
def megatron_bucket_bytes(
    bucket_bytes: Array, reduction_bytes: Array, dp_bucket_elements: Array
) -> Array:
    """Gradients of a bucket in Megatron: as given, or as many elements as it takes by itself."""
    return xp.where(bucket_bytes > 0.0, bucket_bytes, reduction_bytes * dp_bucket_elements)


for _family in data.FAMILIES:
    data.declare_pieces(_family, "reduced_bucket_bytes", NAMED)


@formula(
    source=mechanisms.BUCKETS,
    where="section 3.2.3",
    assumes=("experts' buckets become ready between the others",),
    when=NAMED,
)
def dp_buckets(dp_messages: Array, edp_messages: Array) -> Array:
    """Buckets in which a rank's gradients are reduced, and its weights gathered."""
    return xp.maximum(dp_messages + edp_messages, 1.0)


REDUCED = {
    "compute_time": "dp_window_time",
    "communication_time": "dp_reduce_time",
    "gradient_buckets": "dp_buckets",
}
call(
    returns="exposed_dp_reduce_time",
    of="exposed_time",
    bind=REDUCED,
    labels={"mechanism": "ddp_buckets"},
    when=NAMED,
)
# Gradients that accumulate are reduced once a step, whatever the stage of ZeRO.
call(
    returns="exposed_dp_reduce_time",
    of="exposed_time",
    bind={**REDUCED, "overlap_window": "dp_window_time"},
    labels={"mechanism": "gradient_accumulation"},
    when=ACCUMULATED,
)


@formula(
    returns="gradient_reductions",
    source=mechanisms.BUCKETS,
    where="section 3.2.4 (no_sync)",
    assumes=("only the last micro-batch's backward reduces",),
    when=ACCUMULATED,
)
def accumulated_reductions(zero_stage: Array, has_backward: Array) -> Array:
    """How often a step reduces sharded gradients where they accumulate whole: once."""
    return xp.where(zero_stage < 1.0, 0.0, has_backward)


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


constant(
    "whole_overlap",
    1.0,
    "Share that may hide where the mechanism says what does: all of it",
    like="dp",
    when=NAMED,
)


call(
    returns="exposed_layerwise_time",
    of="exposed_sharded_time",
    bind={"dp_overlap": "whole_overlap"},
    when=NAMED,
)


_declare_exposed("exposed_layerwise_time", NAMED)

# Stage 3 of ZeRO: weights gathered and gradients reduced layer by layer, and what nothing hides.
#
# The next layer's weights are gathered while a layer computes, and its gradients are reduced while
# the layer before it does.  A step has forwards that gather, and backwards that gather, reduce or
# do both; each such pass exposes its ends, and what takes longer than a layer's computing.

FSDP: dict[str, Any] = {"source": "zhao2023", "where": "section 3.3"}
HIDDEN = "what hides slows down what it hides behind by a share of its own time"
AHEAD = "one layer is fetched ahead"


# One layer, all layers, and what is outside of them.


def _each(time: Array, layers: Array) -> Array:
    return time / xp.maximum(layers, 1.0)


for _way, _whole in (("forward", "stage_forward_time"), ("backward", "dp_backward_time")):
    declare(f"layer_compute_{_way}_time", (_whole, "middle_layers"), _each)


def _mean(dense: Array, experts: Array, layers: Array, expert: Array) -> Array:
    return dense + experts / xp.maximum(layers, 1.0) * expert


def _some(dense: Array, experts: Array, layers: Array, expert: Array) -> Array:
    """A layer has a weight at least, so that a window of weights holds some number of layers."""
    return xp.maximum(_mean(dense, experts, layers, expert), 1.0)


# What is outside of layers is a message by itself, that of its own bytes: with a library's
# protocols two messages' times are in no proportion, and none is what others leave of a whole.
for _part, _mark, _meaning in (("gather", "g", "weights"), ("scatter", "s", "gradients"),
                               ("replica", "a", "gradients of a shard")):  # fmt: skip
    define(f"dp_ends_{_part}_bytes", f"M_{{d,ends,{_mark}}}", "byte",
           f"{_meaning} outside of layers, experts left out", minimum=0)  # fmt: skip
    define(f"dp_ends_{_part}_time", f"d_{{d,ends,{_mark}}}", "s",
           f"time of a message of {_meaning} outside of layers", minimum=0)  # fmt: skip
define("dp_ends_reduce_time", r"d_{d,ends,r}", "s", "time to reduce gradients outside of layers",
       minimum=0)  # fmt: skip


def _left(messages: Array, each: Array, layers: Array, layer: Array) -> Array:
    """Return the bytes beside a stage's layers; rounding leaves no message of less than one."""
    left = messages * each - layers * layer
    return xp.where(left >= 1.0, left, 0.0)


def _split(whole: Array, shards: Array) -> Array:
    return whole / shards


for _part, _whole in (("gather", "dp_gather_bytes"), ("scatter", "dp_reduce_bytes")):
    _layer = f"dp_layer_{_part}_bytes"
    declare(f"dp_ends_{_part}_bytes", ("dp_messages", _whole, "middle_layers", _layer), _left,
            **FSDP)  # fmt: skip
declare("dp_ends_replica_bytes", ("dp_ends_scatter_bytes", "shards"), _split, **FSDP)
for _part, _group, _collective in (
    ("gather", "shard", "all_gather"), ("scatter", "shard", "reduce_scatter"),
    ("replica", "replica", "all_reduce"),
):  # fmt: skip
    on_network(f"dp_ends_{_part}_time", "time", _group, _collective, f"dp_ends_{_part}_bytes")
total("dp_ends_reduce_time", ("dp_ends_scatter_time", "dp_ends_replica_time"), **FSDP)


def _outside(sent: Array, time: Array, experts: Array, layers: Array, expert_time: Array) -> Array:
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
        f"ends_{_way}_time",
        (
            f"dp_ends_{_sent}_bytes", f"dp_ends_{_way}_time", "edp_messages", "middle_moe_layers",
            f"edp_layer_{_way}_time",
        ),
        _outside,
        **FSDP,
    )  # fmt: skip


@formula(
    assumes=(
        "the embedding is gathered before all else and its gradients are reduced after it",
        "an output layer of its own hides",
    ),
    **FSDP,
)
def leading_share(pp: Array, tied_embeddings: Array) -> Array:
    """Share of what is outside of layers that nothing can hide: the embedding's."""
    return xp.where(pp > 1.0, 1.0, 1.0 / (2.0 - tied_embeddings))


# A pass.  One layer's weights (G) and gradients (R); its forward (F) and its backward (B).
G, R = "layer_gather_time", "layer_reduce_time"
F, B = "layer_compute_forward_time", "layer_compute_backward_time"


def _exposed(
    sent: Array, late: Array, computed: Array, overlap: Array | float, contention: Array
) -> Array:
    """Return what doesn't hide: a share, what comes late, what outlasts all that is computed."""
    unhidden = xp.maximum(xp.maximum((1.0 - overlap) * sent, late), sent - computed)
    return unhidden + contention * xp.maximum(sent - unhidden, 0.0)


@formula(assumes=(AHEAD, "the first gathering hides behind nothing", HIDDEN), **FSDP)
def exposed_forward_pass_time(
    dp_overlap: Array,
    layer_gather_time: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    leading_share: Array,
    layer_compute_forward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a forward exposes that gathers each layer's weights."""
    between = xp.maximum(middle_layers - 1.0, 0.0)
    sent = layer_gather_time + (ends_gather_time + between * layer_gather_time)
    first = leading_share * ends_gather_time + layer_gather_time
    late = first + between * xp.maximum(layer_gather_time - layer_compute_forward_time, 0.0)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_forward_time
    return _exposed(sent, late, computed, dp_overlap, overlap_contention)


@formula(
    returns="exposed_forward_pass_time",
    assumes=("with none ahead each layer waits for its weights", HIDDEN),
    when=PREFETCHED,
    **FSDP,
)
def prefetched_forward_pass_time(
    forward_layers_ahead: Array,
    layer_gather_time: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    leading_share: Array,
    layer_compute_forward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a forward exposes that gathers weights so many layers ahead."""
    between = xp.maximum(middle_layers - 1.0, 0.0)
    sent = layer_gather_time + (ends_gather_time + between * layer_gather_time)
    first = leading_share * ends_gather_time + layer_gather_time
    late = first + between * xp.maximum(layer_gather_time - layer_compute_forward_time, 0.0)
    late = xp.where(forward_layers_ahead > 0.0, late, sent)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_forward_time
    return _exposed(sent, late, computed, 1.0, overlap_contention)


@formula(assumes=(AHEAD, "the first layer's weights are kept from the forward", HIDDEN), **FSDP)
def exposed_gather_pass_time(
    dp_overlap: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    layer_gather_time: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that gathers each layer's weights, and reduces nothing."""
    between = xp.maximum(middle_layers - 1.0, 0.0)
    sent = ends_gather_time + between * layer_gather_time
    late = between * xp.maximum(layer_gather_time - layer_compute_backward_time, 0.0)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_backward_time
    return _exposed(sent, late, computed, dp_overlap, overlap_contention)


@formula(
    returns="exposed_gather_pass_time",
    assumes=("the first layer's weights are kept from the forward", HIDDEN),
    when=PREFETCHED,
    **FSDP,
)
def prefetched_gather_pass_time(
    backward_layers_ahead: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    layer_gather_time: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that gathers weights so many layers ahead, and reduces nothing."""
    between = xp.maximum(middle_layers - 1.0, 0.0)
    sent = ends_gather_time + between * layer_gather_time
    late = between * xp.maximum(layer_gather_time - layer_compute_backward_time, 0.0)
    late = xp.where(backward_layers_ahead > 0.0, late, sent)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_backward_time
    return _exposed(sent, late, computed, 1.0, overlap_contention)


@formula(assumes=("the last reduction hides behind nothing", HIDDEN), **FSDP)
def exposed_reduce_pass_time(
    dp_overlap: Array,
    ends_reduce_time: Array,
    layer_reduce_time: Array,
    middle_layers: Array,
    leading_share: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that reduces each layer's gradients, and gathers nothing."""
    between = xp.maximum(middle_layers - 1.0, 0.0)
    sent = ends_reduce_time + (layer_reduce_time + between * layer_reduce_time)
    last = leading_share * ends_reduce_time + layer_reduce_time
    late = last + between * xp.maximum(layer_reduce_time - layer_compute_backward_time, 0.0)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_backward_time
    return _exposed(sent, late, computed, dp_overlap, overlap_contention)


@formula(
    assumes=(
        AHEAD,
        "the first layer's weights are kept from the forward",
        "gathering and reduction share the network; beside the first layer nothing is reduced, "
        "beside the last nothing gathered",
        HIDDEN,
    ),
    **FSDP,
)
def exposed_backward_pass_time(
    dp_overlap: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    layer_gather_time: Array,
    ends_reduce_time: Array,
    layer_reduce_time: Array,
    leading_share: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that gathers each layer's weights and reduces its gradients."""
    gather, reduce, compute = layer_gather_time, layer_reduce_time, layer_compute_backward_time
    between = xp.maximum(middle_layers - 1.0, 0.0)
    inner = xp.maximum(middle_layers - 2.0, 0.0)
    sent = (ends_gather_time + between * gather) + (ends_reduce_time + (reduce + between * reduce))
    late = leading_share * ends_reduce_time + reduce
    late = late + inner * xp.maximum(gather + reduce - compute, 0.0)
    ends = xp.maximum(gather - compute, 0.0) + xp.maximum(reduce - compute, 0.0)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_backward_time
    return _exposed(sent, late + (between - inner) * ends, computed, dp_overlap, overlap_contention)


@formula(
    returns="exposed_backward_pass_time",
    assumes=(
        "the first layer's weights are kept from the forward",
        "gathering and reduction share one communicator, in the order in which they are issued",
        HIDDEN,
    ),
    when=PREFETCHED,
    **FSDP,
)
def prefetched_backward_pass_time(
    backward_layers_ahead: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    layer_gather_time: Array,
    ends_reduce_time: Array,
    layer_reduce_time: Array,
    leading_share: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that gathers weights so many layers ahead, and reduces gradients."""
    gather, reduce, compute = layer_gather_time, layer_reduce_time, layer_compute_backward_time
    between = xp.maximum(middle_layers - 1.0, 0.0)
    sent = (ends_gather_time + between * gather) + (ends_reduce_time + (reduce + between * reduce))
    late = sharded_wait(middle_layers, compute, gather, reduce, backward_layers_ahead)
    late = xp.where(backward_layers_ahead > 0.0, leading_share * ends_reduce_time + late, sent)
    computed = xp.maximum(middle_layers, 1.0) * layer_compute_backward_time
    return _exposed(sent, late, computed, 1.0, overlap_contention)


# How many layers are fetched ahead: as given, or as many as DeepSpeed's window reaches.

for _way in ("forward", "backward"):
    alias(f"{_way}_layers_ahead", f"{_way}_prefetch", when={"dp_mechanism": PREFETCHES[0]})
    call(
        returns=f"{_way}_layers_ahead",
        of="prefetched_layers",
        bind={},
        labels={"mechanism": PREFETCHES[1]},
        when={"dp_mechanism": PREFETCHES[1]},
    )
declare("layer_elements", ("dp_layer_parameters", "middle_moe_layers", "middle_layers",
                           "edp_layer_parameters"), _some,
        when={"dp_mechanism": PREFETCHES[1]})  # fmt: skip

# A step.


@formula(**FSDP)
def paired_passes(backward_gathers: Array, gradient_reductions: Array) -> Array:
    """Backwards of a step that gather weights and reduce gradients."""
    return xp.minimum(backward_gathers, gradient_reductions)


@formula(**FSDP)
def gather_passes(backward_gathers: Array, gradient_reductions: Array) -> Array:
    """Backwards of a step that gather weights alone."""
    return xp.maximum(backward_gathers - gradient_reductions, 0.0)


@formula(**FSDP)
def reduce_passes(gradient_reductions: Array, backward_gathers: Array) -> Array:
    """Backwards of a step that reduce gradients alone."""
    return xp.maximum(gradient_reductions - backward_gathers, 0.0)


@formula(
    assumes=(
        "micro-batches hide nothing of one another's",
        "what two ranks hold (DualPipe) isn't sharded in stage 3",
    ),
    **FSDP,
)
def exposed_sharded_time(
    forward_gathers: Array,
    exposed_forward_pass_time: Array,
    paired_passes: Array,
    exposed_backward_pass_time: Array,
    gather_passes: Array,
    exposed_gather_pass_time: Array,
    reduce_passes: Array,
    exposed_reduce_pass_time: Array,
) -> Array:
    """Gathering and reduction of stage 3 of ZeRO that nothing hides, in a step."""
    whole = forward_gathers * exposed_forward_pass_time
    whole = whole + paired_passes * exposed_backward_pass_time
    whole = whole + gather_passes * exposed_gather_pass_time
    return whole + reduce_passes * exposed_reduce_pass_time


# Where a collective's buffers aren't the weights and gradients themselves.

constant("sharding_copy_share", 0.0, "They lie where they are gathered, unless software says so",
         like="pp")  # fmt: skip


def _moved(ranks: Array, gathers: Array, reductions: Array, weights: Array, grads: Array) -> Array:
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
    sharding_copy_share: Array,
    memory_bandwidth: Array,
    shards: Array,
    expert_shards: Array,
    forward_gathers: Array,
    backward_gathers: Array,
    gradient_reductions: Array,
    dp_messages: Array,
    dp_gather_bytes: Array,
    edp_messages: Array,
    edp_gather_bytes: Array,
    busiest_trained_parameters: Array,
    busiest_trained_expert_parameters: Array,
    activation_bytes: Array,
    reduction_bytes: Array,
) -> Array:
    """Time of copies out of what stage 3 of ZeRO gathered and into what it reduces, in a step."""
    often = (forward_gathers + backward_gathers, gradient_reductions)
    # A gradient is read as it was computed, and written as it is reduced.
    both = activation_bytes + reduction_bytes
    dense = (dp_messages * dp_gather_bytes, both * busiest_trained_parameters)
    experts = (edp_messages * edp_gather_bytes, both * busiest_trained_expert_parameters)
    moved = _moved(shards, *often, *dense) + _moved(expert_shards, *often, *experts)
    copied = sharding_copy_share > 0.0
    rate = xp.where(copied, sharding_copy_share, 1.0) * memory_bandwidth
    return xp.where(copied, moved / rate, 0.0)
