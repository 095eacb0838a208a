"""Computation and communication at once: gradients in buckets, and tiles of one product."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, derived, formula
from overhead.labels import ONE_COMPUTATION
from overhead.overlap import mechanisms

# The last gradients are ready when the backward ends, so the last bucket shows in any case.
IN_TURN = (
    "buckets are reduced sequentially, each when its gradients are ready",
    "gradients become ready evenly",
)
SIZED = {"buckets": "sized"}
MEGATRON = {"buckets": "megatron"}


@formula(
    returns="overlapped_time",
    source=mechanisms.BUCKETS,
    where="section 3.2.3; the closed form is derived here",
    assumes=(*IN_TURN, "all buckets but the first are equal"),
    when={"mechanism": "ddp_buckets"},
)
def ddp_buckets_time(gradient_buckets, first_bucket_fraction, compute_time, communication_time):
    """Backward time overlapped with gradient bucket reductions."""
    first = xp.where(gradient_buckets > 1.0, first_bucket_fraction, 1.0)
    others = xp.maximum(gradient_buckets - 1.0, 1.0)
    start = first * compute_time
    from_first = start + communication_time
    from_second = start + (1.0 - first) * (compute_time / others + communication_time)
    from_last = compute_time + (1.0 - first) * communication_time / others
    return xp.maximum(xp.maximum(from_first, from_second), from_last)


@derived(returns="first_bucket_fraction", assumes=("all buckets are equal",))
def equal_first_bucket(gradient_buckets):
    """First bucket / all buckets of equal size."""
    return 1.0 / gradient_buckets


@formula(
    returns="gradient_buckets",
    source=mechanisms.BUCKETS,
    where="section 3.2.2 (PyTorch's reducer.hpp: first bucket 1 MiB, then 25 MiB)",
    when=SIZED,
)
def sized_buckets(message_bytes, first_bucket_capacity, bucket_capacity):
    """Gradient buckets: a first one, and the rest."""
    left = xp.maximum(message_bytes - first_bucket_capacity, 0.0)
    return 1.0 + xp.ceil(left / bucket_capacity)


@formula(
    returns="first_bucket_fraction",
    source=mechanisms.BUCKETS,
    where="section 3.2.2",
    assumes=("time is in proportion to bytes",),
    when=SIZED,
)
def sized_first_bucket(message_bytes, first_bucket_capacity):
    """Gradients in the first bucket / all gradients."""
    whole = xp.maximum(message_bytes, first_bucket_capacity)
    return xp.where(message_bytes > first_bucket_capacity, first_bucket_capacity / whole, 1.0)


@formula(
    returns="bucket_elements",
    source=mechanisms.MEGATRON,
    where="megatron/core/distributed/distributed_data_parallel.py",
    when=MEGATRON,
)
def megatron_bucket_elements(dp):
    """Gradients of a bucket as Megatron chooses them: a million a rank, and 40 at least."""
    return xp.maximum(40e6, 1e6 * dp)


@formula(
    returns="gradient_buckets",
    source=mechanisms.MEGATRON,
    where="megatron/core/distributed/param_and_grad_buffer.py",
    assumes=("buckets are filled to the last gradient",),
    when=MEGATRON,
)
def megatron_buckets(reduced_elements, bucket_elements):
    """Buckets of all gradients where each holds as many."""
    return xp.maximum(xp.ceil(reduced_elements / bucket_elements), 1.0)


# Gradient accumulation: only the last micro-batch's backward has gradients to be sent.


@formula(
    returns="overlapped_time",
    source=mechanisms.BUCKETS,
    where="section 3.2.4 (no_sync); the closed form is derived here",
    assumes=(*IN_TURN, "all buckets are equal", "only the last backward pass reduces"),
    when={"mechanism": "gradient_accumulation"},
)
def gradient_accumulation_time(compute_time, communication_time, gradient_buckets, overlap_window):
    """Time of micro-batches with reduction overlapped in the last backward pass only."""
    window = xp.minimum(overlap_window, compute_time)
    beyond = communication_time - window * (1.0 - 1.0 / gradient_buckets)
    return compute_time + xp.maximum(communication_time / gradient_buckets, beyond)


# Messages: each one costs its latency.


@formula(
    returns="communication_time",
    source="hockney1994",
    assumes=("messages follow one another",),
    when={"communication": "messages", "mechanism": ONE_COMPUTATION},
)
def counted_messages_time(messages, message_latency, transfer_time):
    """Time of the communication by itself, from its messages."""
    return messages * message_latency + transfer_time


FUSED = {"mechanism": "fused_messages"}


@derived(returns="ideal_overlapped_time", when=FUSED)
def ideal_fused_time(compute_time, fused_communication_time):
    """Time of the longer one, with the messages fused."""
    return xp.maximum(compute_time, fused_communication_time)


# A whole product beside a whole collective that takes some of the GPU's multiprocessors.

ALONE = "compute without overlap has all SMs"
BULK = cited(mechanisms.ENGINE, "bulk overlap; the closed form is derived here")


@formula(source=mechanisms.ENGINE, where="set_sm_margin", assumes=("one is left at least",))
def compute_sms(sms, num_sm):
    """SMs left for compute."""
    return xp.maximum(sms - num_sm, 1.0)


@formula(
    returns="overlapped_time",
    assumes=("the GEMM leaves the communication SMs free, after the collective as well",),
    when={"mechanism": "bulk_margin"},
    **BULK,
)
def bulk_margin_time(sm_limited_compute_time, communication_time):
    """GEMM time with SMs reserved for a concurrent collective.

    It can be longer than both one after the other.
    """
    return xp.maximum(sm_limited_compute_time, communication_time)


@formula(
    returns="overlapped_time",
    assumes=(
        ALONE,
        "communication starts first, and its SMs return to the GEMM when it is done",
    ),
    when={"mechanism": "bulk_shared"},
    **BULK,
)
def bulk_shared_time(communication_time, compute_time, num_sm, sms):
    """GEMM time with the communication SMs back after the collective."""
    taken = communication_time * xp.minimum(num_sm / sms, 1.0)
    return xp.maximum(communication_time, compute_time + taken)


# Communication by so many multiprocessors.

AT_LEAST_ONE = ("at least one SM",)


@derived(returns="transfer_bandwidth", assumes=AT_LEAST_ONE, when={"sm_law": "linear"})
def linear_rate(bandwidth, num_sm, sm_bandwidth):
    """Send bandwidth of the SMs, linear up to the link bandwidth."""
    return xp.minimum(bandwidth, xp.maximum(num_sm, 1.0) * sm_bandwidth)


@derived(
    returns="transfer_bandwidth",
    assumes=(*AT_LEAST_ONE, "the number of SMs for half of the bandwidth is measured"),
    when={"sm_law": "saturating"},
)
def saturating_rate(bandwidth, num_sm, half_bandwidth_sms):
    """Send bandwidth of the SMs, saturating."""
    sending = xp.maximum(num_sm, 1.0)
    return bandwidth * sending / (sending + half_bandwidth_sms)


@formula(
    returns="communication_time",
    source="patarasuk2009",
    assumes=("an all_gather or a reduce_scatter around a ring",),
    when={"communication": "sms", "mechanism": ONE_COMPUTATION},
)
def sms_communication_time(ranks, latency, message_bytes, transfer_bandwidth):
    """All-gather or reduce-scatter time, limited by its SMs."""
    return (ranks - 1.0) * (latency + message_bytes / (ranks * transfer_bandwidth))


# GEMMs in whole waves of tiles: on fewer multiprocessors, and cut into chunks.
#
# With the label ``compute = waves`` a mechanism's computation is a product of such a form, cut as
# the mechanism cuts it.  Step times are better had from the smooth form in `overhead.compute`,
# which was fitted on many shapes; this one shows what a cut or a carve-out does to one shape.

WAVES = {"compute": "waves"}
RING = {"mechanism": "ring_exchange|reduce_scatter_ring"}
SPLIT = {"mechanism": "reduce_scatter_pipeline"}
WHERE = "chapter 3, tile and wave quantization"


@formula(source=mechanisms.TILES, where=WHERE)
def tiles(matmul_m, tile_rows, matmul_n, tile_columns):
    """GEMM tiles."""
    return xp.ceil(matmul_m / tile_rows) * xp.ceil(matmul_n / tile_columns)


@formula(source=mechanisms.TILES, where=WHERE)
def waves(tiles, compute_sms):
    """Waves of GEMM tiles, one tile per SM at a time."""
    return xp.ceil(tiles / compute_sms)


@formula(source=mechanisms.TILES, where=WHERE)
def wave_efficiency(tiles, compute_sms):
    """GEMM tiles / tile slots of all waves."""
    room = xp.ceil(xp.maximum(tiles, 1.0) / compute_sms) * compute_sms
    return xp.where(tiles > 0.0, tiles / room, 1.0)


@formula(
    source=mechanisms.TILES,
    where=WHERE,
    assumes=("an SM has its fraction of the best GEMM rate",),
)
def tile_time(tile_rows, tile_columns, matmul_k, sms, peak_measured_matmul_flops):
    """Time per tile on one SM, by default."""
    return 2.0 * tile_rows * tile_columns * matmul_k * sms / peak_measured_matmul_flops


@formula(
    source=mechanisms.TILES,
    where=f"{WHERE}; math and memory bounds",
    assumes=("tile time does not depend on neighboring SMs", "each matrix is moved once"),
)
def wave_matmul_time(
    waves,
    tile_time,
    activation_bytes,
    matmul_m,
    matmul_k,
    matmul_n,
    memory_bandwidth,
    launch_time,
):
    """GEMM time in full waves, or of its bytes if longer."""
    inputs = matmul_m * matmul_k + matmul_k * matmul_n
    moved_bytes = activation_bytes * (inputs + matmul_m * matmul_n)
    time = xp.maximum(waves * tile_time, moved_bytes / memory_bandwidth) + launch_time
    return xp.where(waves > 0.0, time, 0.0)


# Cut into chunks.

LOOP = "decomposition into a loop of chunks"


@formula(
    returns="matmul_chunks",
    source=mechanisms.ENGINE,
    where="aggregate",
    when={"mechanism": "ring_exchange_aggregate"},
)
def aggregate_chunks(ranks):
    """Chunks of a GEMM with inputs around a ring, two at a time."""
    return xp.maximum(xp.ceil(ranks / 2.0), 1.0)


@formula(source=mechanisms.DECOMPOSED, where=LOOP)
def chunk_rows(matmul_m, matmul_chunks):
    """Rows of a chunk: rings cut along the tokens."""
    return xp.ceil(matmul_m / matmul_chunks)


@formula(
    returns="chunk_columns",
    source=mechanisms.ENGINE,
    where="num_splits: along the output's features",
    when=SPLIT,
)
def split_columns(matmul_n, matmul_chunks):
    """Columns of a part."""
    return xp.ceil(matmul_n / matmul_chunks)


CHUNK = {"matmul_m": "chunk_rows", "matmul_n": "chunk_columns"}
CHOSEN = {"compute": "waves|tiles", "mechanism": ONE_COMPUTATION}
CUT = {"mechanism": "|".join([*RING.values(), "ring_exchange_aggregate", *SPLIT.values()])}
