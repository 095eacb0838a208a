"""Parts of a step's time, of all micro-batches, on a rank of a stage between the ends."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.compute.layer import with_host
from overhead.compute.own_layers import PARTS as MIXED
from overhead.compute.own_layers import declare_own
from overhead.formula import cited, declare, derived, formula
from overhead.labels import LABELS, PAIRED
from overhead.model.order import of_stage
from overhead.quantity import Array

DUAL = {"schedule": "|".join(PAIRED)}
SCHEDULES = LABELS["schedule"].values


def _by_class(passes, dense, dense_time, experts, expert_time):
    return passes * (dense * dense_time + experts * expert_time)


for _part, _name in (
    ("matmul_part", "layer_matmul"),
    ("elementwise_part", "layer_elementwise"),
    ("exposed_tp", "exposed_tp"),
    ("recompute_part", "layer_recompute"),
):
    _times = (f"dense_{_name}_time", f"moe_{_name}_time")
    _count = "backward_passes" if _part == "recompute_part" else "num_micro_batches"
    _summed = (_count, "middle_mlp_layers", _times[0], "middle_moe_layers", _times[1])
    if _name.removeprefix("layer_") in MIXED:
        declare_own(f"{_part}_time", _summed, _by_class, MIXED[_name.removeprefix("layer_")])
    else:
        declare(f"{_part}_time", _summed, _by_class)


def _each(num_micro_batches, layers, time):
    return num_micro_batches * (layers * time)


for _part, _layers, _time in (
    ("exposed_cp", "middle_layers", "layer_exposed_cp_time"),
    ("exposed_ep", "middle_moe_layers", "layer_exposed_ep_time"),
):
    declare(f"{_part}_time", ("num_micro_batches", _layers, _time), _each)
_attended = ("num_micro_batches", "middle_layers", "attention_time")
declare_own("attention_part_time", _attended, _each, MIXED["attention"])


LAYER_TIMES = tuple(
    name
    for way in ("forward", "backward")
    for name in (
        f"moe_layer_{way}_gpu_time",
        f"moe_layer_{way}_host_time",
        f"exposed_ep_{way}_time",
    )
)


def _saved(share: Array, exposed_launch_fraction: Array, times: tuple[Array, ...]) -> Array:
    """Return what a layer's time is less by where a share of its exchanges hides."""
    saved = xp.asarray(0.0)
    for gpu, host, sent in (times[:3], times[3:]):
        less = with_host(gpu - share * sent, host, exposed_launch_fraction)
        saved = saved + (with_host(gpu, host, exposed_launch_fraction) - less)
    return saved


def _computing(forward, backward, layers, exposed_launch_fraction, *times):
    without = forward + backward - layers * _saved(xp.asarray(1.0), exposed_launch_fraction, times)
    return xp.maximum(without, 0.0)


PAIR = cited(
    "deepseekv3",
    "section 3.2.1, figure 4: each direction's experts' communication beside the other's computing",
    when={**DUAL, "shapes": "known|unknown"},
)


def _pair(
    forward,
    backward,
    layers,
    exposed_launch_fraction,
    computing,
    share,
    contention,
    *times,
):
    """Return the time of a pair: exchanges that hide leave the GPU's time, not the host's."""
    exchange = layers * (times[2] + times[5])
    longer = exchange > computing
    most = xp.where(longer, computing / xp.where(longer, exchange, 1.0), 1.0)
    hidden = (1.0 - contention) * share * most
    return forward + backward - layers * _saved(hidden, exposed_launch_fraction, times)


_taken = (
    "stage_forward_time",
    "stage_backward_time",
    "middle_moe_layers",
    "exposed_launch_fraction",
)
_both = (*_taken, *LAYER_TIMES)
declare("paired_computing_time", _both, _computing, name="paired_computing_time", **PAIR)


declare(
    "stage_overlapped_time",
    (
        *_taken,
        "paired_computing_time",
        "pair_overlapped_fraction",
        "overlap_slowdown",
        *LAYER_TIMES,
    ),
    _pair,
    "Time of overlapped forward and backward passes of two directions",
    name="dual_pipe_pair_time",
    assumes=(
        "as much of it hides as a public trace of this schedule shows",
        "overlapped communication slows the concurrent compute, as for other collectives",
        "the host launch rate is unchanged: launch-bound time gains nothing",
    ),
    **PAIR,
)


@formula(
    returns="exposed_ep_time",
    source="deepseekv3",
    where="section 3.2.1",
    assumes=("the gain of overlapped forward and backward passes is EP communication",),
    when=DUAL,
)
def dual_pipe_exposed_ep_time(
    num_micro_batches,
    middle_moe_layers,
    layer_exposed_ep_time,
    stage_forward_time,
    stage_backward_time,
    busy_time,
):
    """Exposed EP communication in DualPipe, less the gain of overlapped pairs."""
    alone = num_micro_batches * (stage_forward_time + stage_backward_time)
    return num_micro_batches * (middle_moe_layers * layer_exposed_ep_time) - (alone - busy_time)


# Expert parallelism by mechanism: a micro-batch's tokens in chunks, each dispatched while the one
# before is multiplied, and combined while the one after is.  Dispatch, products and combine of
# chunks follow one another as gathering, computing and reduction of layers do.

CHUNKED_EXPERTS = {"ep_mechanism": "chunked"}
DEEPEP = cited(
    "deepseekv3", "section 3.2.2: kernels of their own multiprocessors, 20 of 132, beside computing"
)


def _expert_exposure(
    chunks: Array,
    first: Array,
    last: Array,
    chunk: Array,
    products: Array,
    sent: Array,
    comm_sms: Array,
    sms: Array,
    repeated: Array | float = 0.0,
    forward: Array | float = 0.0,
) -> Array:
    """Return what chunks expose: ends, what outlasts products, cut and slower products."""
    # Products lose as much of their rate as communication takes of the GPU.
    contention = xp.minimum(comm_sms / sms, 1.0)
    several = xp.minimum(xp.maximum(chunks - 1.0, 0.0), 1.0)
    late = first + last + xp.maximum(chunks - 2.0, 0.0) * xp.maximum(first + last - chunk, 0.0)
    late = late + several * (xp.maximum(first - chunk, 0.0) + xp.maximum(last - chunk, 0.0))
    cut = xp.maximum(chunks * chunk - products, 0.0)
    hidden = xp.maximum(chunks * (first + last) - late, 0.0)
    return xp.minimum(late + cut + contention * hidden, sent) + repeated * forward


# A backward sends the other way round, and what it repeats as a forward does.
AGAIN = ("recomputed_exchanges", "exposed_ep_forward_time")
OTHERS = ("paired_ep_forward_time", "moe_layer_computing_time")
for _way, _first, _last, _repeats, _lacks in (
    ("forward", "dispatch", "combine", (), OTHERS[:1]),
    ("backward", "combine", "dispatch", AGAIN, OTHERS),
):
    declare(
        f"exposed_ep_{_way}_time",
        (
            "expert_chunks",
            f"chunk_{_first}_time",
            f"chunk_{_last}_time",
            f"chunk_experts_{_way}_time",
            f"experts_{_way}_time",
            "ep_layer_forward_time",
            "ep_comm_sms",
            "sms",
            *_repeats,
        ),
        _expert_exposure,
        assumes=("one chunk is sent ahead", "unchunked where chunks take longer"),
        lacks=dict.fromkeys(_lacks, "what is chunked hides behind experts' products alone"),
        when=CHUNKED_EXPERTS,
        **DEEPEP,
    )


@derived()
def exposed_offload_time(
    num_micro_batches, exposed_offload_forward_time, exposed_offload_backward_time
):
    """Step time: exposed CPU offload."""
    return num_micro_batches * (exposed_offload_forward_time + exposed_offload_backward_time)


# What the host's launches add to the GPU's time, and whether the host rules.


@derived()
def host_part_time(
    num_micro_batches,
    has_backward,
    middle_mlp_layers,
    dense_layer_forward_time,
    dense_layer_forward_gpu_time,
    dense_layer_backward_time,
    dense_layer_backward_gpu_time,
    middle_moe_layers,
    moe_layer_forward_time,
    moe_layer_forward_gpu_time,
    moe_layer_backward_time,
    moe_layer_backward_gpu_time,
):
    """Step time: launch-bound time."""
    dense = xp.maximum(dense_layer_forward_time - dense_layer_forward_gpu_time, 0.0)
    experts = xp.maximum(moe_layer_forward_time - moe_layer_forward_gpu_time, 0.0)
    dense_back = xp.maximum(dense_layer_backward_time - dense_layer_backward_gpu_time, 0.0)
    experts_back = xp.maximum(moe_layer_backward_time - moe_layer_backward_gpu_time, 0.0)
    dense, experts = dense + has_backward * dense_back, experts + has_backward * experts_back
    return num_micro_batches * (middle_mlp_layers * dense + middle_moe_layers * experts)


def _host_bound(dense, experts, has_backward, *times):
    """Return 1 where the host takes longer; a class's times are the host's, then the GPU's."""
    ways = zip(times[::2], times[1::2], strict=True)
    sums = [forward + has_backward * backward for forward, backward in ways]
    host = dense * sums[0] + experts * sums[2]
    return xp.where(host > dense * sums[1] + experts * sums[3], 1.0, 0.0)


_layer_times = [
    f"{of}_layer_{way}_{what}_time"
    for of in ("dense", "moe")
    for what in ("host", "gpu")
    for way in ("forward", "backward")
]
_bound = ("middle_mlp_layers", "middle_moe_layers", "has_backward", *_layer_times)
declare("host_bound", _bound, _host_bound)

# The optimizer's update: the bytes that it moves for the parameters that a rank owns.

ZERO = cited("rajbhandari2020", "section 5.1")
# The last stage's rank has the output layer, and experts where there are any.
for _returns, _of in (
    ("updated_parameters", "trained_parameters"),
    ("updated_expert_parameters", "trained_expert_parameters"),
):
    of_stage(_returns, _of, "last_stage")


@formula(assumes=("ranks of the last stage have the maximum",), **ZERO)
def owned_parameters(
    updated_parameters, zero_stage, shards, updated_expert_parameters, expert_shards
):
    """Parameters that a rank updates: all that it holds, or from stage 1 of ZeRO its shard."""
    dense = updated_parameters / xp.where(zero_stage >= 1.0, shards, 1.0)
    return dense + updated_expert_parameters / xp.where(zero_stage >= 1.0, expert_shards, 1.0)


@formula(
    source="megatron",
    where="megatron/core/optimizer: norm and clipping of gradients, Adam, copy of weights",
    assumes=("gradients are read twice, states and weights read and written once",),
)
def device_update_time(
    has_backward,
    optimizer_traffic_bytes,
    owned_parameters,
    memory_efficiency,
    memory_bandwidth,
    optimizer_offload,
):
    """Optimizer update time on the GPU."""
    moved = has_backward * optimizer_traffic_bytes * owned_parameters
    return moved / (memory_efficiency * memory_bandwidth) * (1.0 - optimizer_offload)


# The step's time: its pipeline, and what comes before and after it.
#
# The parts that `PARTS` names sum to it; they are of a rank in a stage between the ends, with what
# the pipeline adds.

PARTS = (
    "matmul_part_time",
    "attention_part_time",
    "elementwise_part_time",
    "recompute_part_time",
    "host_part_time",
    "exposed_tp_time",
    "exposed_cp_time",
    "exposed_ep_time",
    "exposed_offload_time",
    "stage_imbalance_time",
    "bubble_time",
    "exposed_pp_time",
    "exposed_dp_time",
    "tied_all_reduce_backward_time",
    "optimizer_time",
    "step_overhead",
)
