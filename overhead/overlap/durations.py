"""Two durations that overlap with an efficiency, and what follows from any overlapped time."""

from __future__ import annotations

from functools import reduce

from overhead.arrays import xp
from overhead.compute.quantities import MEASURED
from overhead.formula import cited, declare, derived, formula
from overhead.overlap import mechanisms
from overhead.overlap.bulk import ALONE, BULK, CUT
from overhead.quantity import Array
from overhead.special import power_sum

TWO = {"mechanism": "two_durations"}


@derived(
    returns="overlapped_time",
    assumes=("the efficiency is of the shorter duration: all of it hides at 1",),
    when=TWO,
)
def two_durations_time(compute_time, communication_time, overlap_efficiency):
    """Time of two durations with a fraction of the shorter overlapped."""
    shorter = xp.minimum(compute_time, communication_time)
    return xp.maximum(compute_time, communication_time) + (1.0 - overlap_efficiency) * shorter


@derived(
    returns="overlapped_time",
    assumes=(
        "the efficiency is of the communication, though no more of it hides than there is"
        " computation",
    ),
    when={**TWO, "efficiency_of": "communication"},
)
def of_communication_time(compute_time, communication_time, overlap_efficiency):
    """Time of two durations with a fraction of the communication overlapped, if possible.

    Without the bound a communication of 80 ms behind a computation of 50 ms would take 50 ms at
    full efficiency, less than the communication by itself.
    """
    shown = compute_time + (1.0 - overlap_efficiency) * communication_time
    return xp.maximum(shown, xp.maximum(compute_time, communication_time))


# What follows, whatever overlaps.


@derived()
def ideal_overlapped_time(compute_time, communication_time):
    """Time of the longer of the two: what overlap can reach at best."""
    return xp.maximum(compute_time, communication_time)


@derived(assumes=("relative to the shorter duration, so that 1 is the maximum",))
def overlap_of_shorter(hidden_time, compute_time, communication_time):
    """Overlapped time / shorter duration; 0 without communication."""
    shorter = xp.minimum(compute_time, communication_time)
    some = shorter > 0.0
    return xp.where(some, xp.minimum(hidden_time / xp.where(some, shorter, 1.0), 1.0), 0.0)


@derived(
    assumes=("the definition of trace tools; below 1 if communication is the longer duration",)
)
def overlapped_communication_fraction(hidden_time, communication_time):
    """Overlapped time / communication time; 0 without communication."""
    some = communication_time > 0.0
    share = hidden_time / xp.where(some, communication_time, 1.0)
    return xp.where(some, xp.minimum(share, 1.0), 0.0)


@derived()
def overlap_speedup(sequential_time, overlapped_time):
    """Sequential time by overlapped time; 1 where both are nought."""
    some = overlapped_time > 0.0
    return xp.where(some, sequential_time / xp.where(some, overlapped_time, 1.0), 1.0)


@derived()
def ideal_speedup(sequential_time, ideal_overlapped_time):
    """Speedup if all of the shorter duration hid: 1/(1 - f) at a share f of communication."""
    some = ideal_overlapped_time > 0.0
    return xp.where(some, sequential_time / xp.where(some, ideal_overlapped_time, 1.0), 1.0)


@derived()
def communication_fraction(communication_time, compute_time):
    """Communication / sequential time."""
    both = compute_time + communication_time
    some = both > 0.0
    return xp.where(some, communication_time / xp.where(some, both, 1.0), 0.0)


# Layers that follow one another: weights gathered ahead, gradients scattered, results reduced.

EQUAL = "all layers are equal"
ONE_LINK = "collectives follow one another on one communicator"


@formula(
    returns="overlapped_time",
    source=mechanisms.FSDP,
    where="section 3.3; the closed form is derived here",
    assumes=(EQUAL, ONE_LINK, "weights of the first layer are not overlapped"),
    when={"mechanism": "fsdp_prefetch|zero3_prefetch"},
)
def fsdp_prefetch_time(prefetched_layers, compute_time, communication_time, layers):
    """Forward time with prefetched layer weights."""
    ahead = xp.maximum(
        compute_time + communication_time / layers, communication_time + compute_time / layers
    )
    return xp.where(prefetched_layers > 0.0, ahead, compute_time + communication_time)


@formula(
    returns="prefetched_layers",
    source=mechanisms.DEEPSPEED,
    where="runtime/zero/partitioned_param_coordinator.py: whole ones until the window is full",
    assumes=("a layer is the unit of gathering",),
    when={"mechanism": "zero3_prefetch"},
)
def window_of_elements(prefetched_elements, layer_elements):
    """Layers that a window of elements gathers ahead: one at least, unless it is nought."""
    return xp.ceil(prefetched_elements / layer_elements)


def sharded_wait(
    layers: Array, compute: Array, gather: Array, reduce: Array, ahead: Array
) -> Array:
    """Return what a backward of equal layers takes beyond its computing, the first's weights there.

    A layer's gathering is issued when the one so many before it begins, its reduction when it
    ends, all on one communicator; with none ahead each waits for all before it.
    """
    fetched = xp.maximum(xp.minimum(ahead, layers - 1.0), 1.0)
    between = layers - 1.0 - fetched
    late = fetched * (gather - compute)
    after = xp.maximum(late, late + fetched * reduce - compute)
    before = xp.maximum(fetched * (reduce - compute), (1.0 - fetched) * compute)
    both = between * (gather + reduce - compute) + xp.maximum(before, after)
    waited = xp.where(layers > 1.0, reduce + xp.maximum(both, 0.0), reduce)
    serial = xp.maximum(layers - 1.0, 0.0) * (gather + reduce) + reduce
    return xp.where(ahead > 0.0, waited, serial)


@formula(
    returns="overlapped_time",
    source=mechanisms.FSDP,
    where="section 3.3 (backward prefetch); the closed form is derived here",
    assumes=(
        EQUAL,
        ONE_LINK,
        "prefetched weights are gathered before the gradients of this layer are reduced",
    ),
    when={"mechanism": "fsdp_backward"},
)
def fsdp_backward_time(
    layers, communication_time, compute_time, reduction_fraction, prefetched_layers
):
    """Time of a backward whose layers gather weights ahead and reduce their gradients behind."""
    gather = (1.0 - reduction_fraction) * communication_time / layers
    reduce = reduction_fraction * communication_time / layers
    waited = sharded_wait(layers, compute_time / layers, gather, reduce, prefetched_layers)
    return compute_time + gather + waited


@derived(
    returns="overlapped_time",
    assumes=(EQUAL, "a layer waits for the preceding layer, except for its independent part"),
    when={"mechanism": "layer_by_layer"},
)
def layer_by_layer_time(compute_time, communication_time, layers, independent_compute_fraction):
    """Layer-by-layer time, communication overlapped with the compute of the next layer."""
    independent = xp.maximum(communication_time, independent_compute_fraction * compute_time)
    between = (layers - 1.0) * (independent + (1.0 - independent_compute_fraction) * compute_time)
    return (compute_time + communication_time + between) / layers


# A GEMM and its collective cut into chunks, the one's next to the other's.

CHUNKS = "all chunks take equally long"
ORDER = "common/comm_gemm_overlap/comm_gemm_overlap.cpp: order of products and copies"
RING = {"mechanism": "reduce_scatter_ring"}


@formula(
    returns="overlapped_time",
    source=mechanisms.DECOMPOSED,
    where="all_gather, then einsum, in a loop of chunks; the closed form is derived here",
    assumes=(CHUNKS, "a rank starts with the chunk that it holds"),
    when={"mechanism": "ring_exchange"},
)
def ring_exchange_time(slowed_matmul_time, communication_time, single_chunk_time):
    """GEMM time with inputs around a ring, one chunk per step."""
    return xp.maximum(slowed_matmul_time, communication_time + single_chunk_time)


@formula(
    returns="overlapped_time",
    source=mechanisms.ENGINE,
    where=ORDER,
    assumes=(CHUNKS, "an even number of ranks", "nothing is computed until the first chunk is in"),
    when={"mechanism": "ring_exchange_aggregate"},
)
def ring_exchange_aggregate_time(slowed_matmul_time, communication_time, ranks, single_chunk_time):
    """GEMM time with inputs around a ring, two chunks at a time.

    Two ranks overlap nothing: the only chunk that comes is waited for first.
    """
    first = slowed_matmul_time + communication_time / xp.maximum(ranks - 1.0, 1.0)
    return xp.maximum(first, communication_time + single_chunk_time)


@formula(
    returns="partial_sum_time",
    source=mechanisms.ENGINE,
    where=ORDER,
    assumes=("every partial sum is read and the sum written once, at HBM bandwidth",),
)
def ring_partial_sum_time(ranks, message_bytes, summing_bandwidth):
    """Partial-sum reduction time per rank."""
    time = (ranks + 1.0) * message_bytes / (ranks * summing_bandwidth)
    return xp.where(ranks > 1.0, time, 0.0)


@formula(
    returns="overlapped_time",
    source=mechanisms.ENGINE,
    where=ORDER,
    assumes=(CHUNKS, "the local chunk of a rank comes last, and needs no message"),
    when=RING,
)
def reduce_scatter_ring_time(
    slowed_matmul_time, communication_time, single_chunk_time, partial_sum_time
):
    """GEMM time with partial sums around a ring, reduced at the end."""
    return xp.maximum(slowed_matmul_time, communication_time + single_chunk_time) + partial_sum_time


@formula(
    returns="overlapped_time",
    source=mechanisms.ENGINE,
    where=ORDER + "; the last part has multiprocessors of its own, 32",
    assumes=("all parts take equally long", "a split is sent when its GEMM is done"),
    when={"mechanism": "reduce_scatter_pipeline"},
)
def reduce_scatter_pipeline_time(
    slowed_matmul_time, single_chunk_time, splits, communication_time, last_split_time
):
    """Split GEMM time, each reduce-scatter overlapped with the next split."""
    sent = single_chunk_time + (splits - 1.0) * communication_time / splits
    return xp.maximum(slowed_matmul_time, sent) + last_split_time


@derived(
    returns="messages",
    when={"mechanism": "ring_exchange|ring_exchange_aggregate|reduce_scatter_ring"},
)
def messages_of_ring(ranks):
    """Messages of a ring: a step each."""
    return xp.maximum(ranks - 1.0, 1.0)


# Userbuffers: a linear layer's collectives in turn, in parts, and beside its products.

# The label ``links``: whether each pair of a node's GPUs has a link of its own, or all a switch.
PAIRS = {"links": "pairs"}


# Links inside a node.


@derived(
    returns="group_bandwidth", assumes=("each pair of GPUs has a link of its own",), when=PAIRS
)
def bandwidth_to_peers(port_bandwidth, ranks, link_bandwidth):
    """Bandwidth of the links to the other ranks of a group."""
    return xp.minimum(port_bandwidth, xp.maximum(ranks - 1.0, 1.0) * link_bandwidth)


# Parts of a product, each reduced and scattered behind the next one's product.


@formula(source=mechanisms.ENGINE, where="the last part has multiprocessors of its own")
def split_communication_time(splits, split_time, last_split_time):
    """Time of the parts' communication, the last one's at a rate of its own."""
    return (splits - 1.0) * split_time + last_split_time


# How long a product runs beside a collective.


@derived(
    returns="slowed_matmul_time",
    assumes=("with a longer collective the GEMM has the remaining SMs all the time",),
    when={"mechanism": "bulk_shared"},
)
def slowed_product_time(overlapped_time, compute_time, sms, compute_sms):
    """GEMM time with the communication SMs back after the collective."""
    return xp.minimum(overlapped_time, compute_time * sms / compute_sms)


# GEMMs with a choice among tiles: whole, cut into pieces that run side by side, and on
# fewer multiprocessors.  Whole products and pieces are measured by one form.

TILED = {"compute": "tiles"}
PARTED = {"mechanism": "reduce_scatter_pipeline"}
TABLE = cited(MEASURED, "half of its products on H100 and B200, within 3 % in the median")


@formula(
    assumes=("operations and loads of a tile hide behind one another as sharply as was fitted",),
    **TABLE,
)
def tile_matmul_time(
    concurrent_matmuls,
    matmul_m,
    tile_rows,
    matmul_n,
    tile_columns,
    sms,
    last_wave_fraction,
    matmul_k,
    tile_depth_overhead,
    burst_matmul_flops,
    matmul_input_bytes,
    sm_load_bandwidth,
    tile_sharpness,
    activation_bytes,
    burst_memory_bandwidth,
):
    """Time of concurrent equal GEMMs with one tile shape, or of their bytes if longer."""
    each = xp.ceil(matmul_m / tile_rows) * xp.ceil(matmul_n / tile_columns)
    full = xp.maximum(concurrent_matmuls * each / sms, 1.0)
    filled = full + last_wave_fraction * (xp.ceil(full) - full)
    depth = matmul_k + tile_depth_overhead
    worked = 2.0 * tile_rows * tile_columns * depth * sms / burst_matmul_flops
    loaded = (tile_rows + tile_columns) * depth * matmul_input_bytes / sm_load_bandwidth
    inputs = matmul_input_bytes * (matmul_m + matmul_n) * matmul_k
    moved = concurrent_matmuls * (inputs + activation_bytes * matmul_m * matmul_n)
    tiled = filled * power_sum(worked, loaded, tile_sharpness)
    time = power_sum(tiled, moved / burst_memory_bandwidth, 4.0)
    return xp.where(matmul_m * matmul_n * matmul_k > 0.0, time, 0.0)


SIDES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))


def _soft_minimum(*times):
    return reduce(lambda first, other: power_sum(first, other, -33.0), times)


_tiles = [f"tile_{rows}_{columns}_time" for rows, columns in SIDES]
BEST_TILE = ("libraries choose about the best tile",)
declare("burst_matmul_time", _tiles, _soft_minimum, assumes=BEST_TILE, **TABLE)


@derived(
    assumes=(
        "the sustained rate is power-limited, so that some SMs can be given away at no cost: "
        "inferred from presets by NVIDIA, not measured",
    )
)
def sm_limited_matmul_time(burst_ratio, burst_matmul_time, sms, compute_sms, launch_time):
    """Sustained GEMM time on the SMs left by communication."""
    slowed = power_sum(burst_ratio * burst_matmul_time, burst_matmul_time * sms / compute_sms, 20.0)
    return xp.where(burst_matmul_time > 0.0, slowed + launch_time, 0.0)


@formula(
    returns="concurrent_matmul_chunks",
    source=mechanisms.ENGINE,
    where="streams of comm_gemm_overlap.cpp: a piece each in turn, of three",
    when={**TILED, "mechanism": "ring_exchange|ring_exchange_aggregate"},
)
def gathering_pieces_at_once(matmul_chunks):
    """Concurrent GEMM chunks while inputs arrive."""
    return xp.minimum(matmul_chunks, 3.0)


@formula(
    returns="concurrent_matmul_chunks",
    source=mechanisms.ENGINE,
    where="a piece waits for the last but one before it",
    when={**TILED, "mechanism": "reduce_scatter_ring"},
)
def scattering_pieces_at_once(matmul_chunks):
    """Concurrent GEMM chunks while partial sums travel around the ring."""
    return xp.minimum(matmul_chunks, 2.0)


WHOLE, ROUND = {"compute_sms": "sms"}, {**TILED, "mechanism": CUT["mechanism"].rsplit("|", 1)[0]}


@formula(
    returns="slowed_matmul_time",
    source=mechanisms.ENGINE,
    where="comm_gemm_overlap.cpp: pieces on streams of their own",
    assumes=(
        "a start counts once, and between pieces there is a gap",
        "chunks take at least the unsplit GEMM time",
    ),
    when={**TILED, **CUT},
)
def side_by_side_time(
    launch_time,
    matmul_chunks,
    concurrent_matmul_chunks,
    concurrent_chunk_time,
    matmul_chunk_gap,
    unsplit_matmul_time,
):
    """Time of a GEMM in concurrent chunks."""
    busy = (
        matmul_chunks
        / concurrent_matmul_chunks
        * xp.maximum(concurrent_chunk_time - launch_time, 0.0)
    )
    time = launch_time + busy + xp.maximum(matmul_chunks - 1.0, 0.0) * matmul_chunk_gap
    return xp.where(concurrent_chunk_time > 0.0, xp.maximum(time, unsplit_matmul_time), 0.0)


@formula(
    returns="overlapped_time",
    assumes=(ALONE, "communication SMs return to the GEMM when it is done"),
    when={**TILED, "mechanism": "bulk_shared"},
    **BULK,
)
def tiled_bulk_time(communication_time, compute_time, sm_limited_compute_time):
    """GEMM time with the slowdown of a concurrent collective."""
    some = sm_limited_compute_time > 0.0
    kept = xp.where(some, compute_time / xp.where(some, sm_limited_compute_time, 1.0), 1.0)
    return xp.maximum(communication_time, compute_time + communication_time * (1.0 - kept))
