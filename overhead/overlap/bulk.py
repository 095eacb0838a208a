"""A whole product beside a whole collective that takes some of the GPU's multiprocessors."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.declare import alias, constant, product
from overhead.formula import call, formula
from overhead.labels import ONE_COMPUTATION
from overhead.overlap import quantities
from overhead.quantity import Array

ALONE = "the computation by itself has all multiprocessors"
BULK: dict[str, Any] = {
    "source": quantities.ENGINE,
    "where": "bulk overlap; the closed form is derived here",
}


@formula(source=quantities.ENGINE, where="set_sm_margin", assumes=("one is left at least",))
def free_sms(sms: Array, num_sm: Array) -> Array:
    """Multiprocessors that communication leaves to the computation."""
    return np.maximum(sms - num_sm, 1.0)


@formula(source="derivation", assumes=(ALONE, "all multiprocessors work all of the time"))
def carved_compute_time(compute_time: Array, sms: Array, free_sms: Array) -> Array:
    """Time of the computation on the multiprocessors that communication leaves."""
    return compute_time * sms / free_sms


@formula(
    returns="overlapped_time",
    assumes=("the product keeps off communication's multiprocessors, also when that is done",),
    when={"mechanism": "bulk_margin"},
    **BULK,
)
def bulk_margin_time(carved_compute_time: Array, communication_time: Array) -> Array:
    """Time of a product that leaves room for a collective beside it.

    It can be longer than both one after the other.
    """
    return np.maximum(carved_compute_time, communication_time)


@formula(
    returns="overlapped_time",
    assumes=(
        ALONE,
        "communication starts first, and its multiprocessors go to the product when it is done",
    ),
    when={"mechanism": "bulk_shared"},
    **BULK,
)
def bulk_shared_time(
    communication_time: Array, compute_time: Array, num_sm: Array, sms: Array
) -> Array:
    """Time of a product that gets a collective's multiprocessors when that is done."""
    taken = communication_time * np.minimum(num_sm / sms, 1.0)
    return np.maximum(communication_time, compute_time + taken)


@formula(
    returns="overlapped_time",
    assumes=("a product that fills the GPU starts first, and communication finds no room",),
    when={"mechanism": "bulk_queued"},
    **BULK,
)
def bulk_queued_time(compute_time: Array, communication_time: Array) -> Array:
    """Time of a product that fills the GPU before the collective can start: nothing overlaps."""
    return compute_time + communication_time


# Communication by so many multiprocessors.

AT_LEAST_ONE = ("one multiprocessor at least",)


@formula(
    returns="transfer_bandwidth",
    source="derivation",
    assumes=AT_LEAST_ONE,
    when={"sm_law": "linear"},
)
def linear_rate(bandwidth: Array, num_sm: Array, sm_bandwidth: Array) -> Array:
    """Rate at which multiprocessors send, each as much until the link is full."""
    return np.minimum(bandwidth, np.maximum(num_sm, 1.0) * sm_bandwidth)


@formula(
    returns="transfer_bandwidth",
    source="derivation",
    assumes=(*AT_LEAST_ONE, "half of the bandwidth at so many multiprocessors is measured"),
    when={"sm_law": "saturating"},
)
def saturating_rate(bandwidth: Array, num_sm: Array, half_bandwidth_sms: Array) -> Array:
    """Rate at which multiprocessors send, each one adding less."""
    sending = np.maximum(num_sm, 1.0)
    return bandwidth * sending / (sending + half_bandwidth_sms)


alias(
    "transfer_bandwidth",
    "copy_engine_bandwidth",
    source=quantities.ENGINE,
    where="use_ce",
    when={"sm_law": "copy_engine"},
)


@formula(
    returns="communication_time",
    source="patarasuk2009",
    assumes=("an all_gather or a reduce_scatter around a ring",),
    when={"communication": "sms", "mechanism": ONE_COMPUTATION},
)
def sms_communication_time(
    ranks: Array, latency: Array, message_bytes: Array, transfer_bandwidth: Array
) -> Array:
    """Time of an all_gather or a reduce_scatter at the rate of its multiprocessors."""
    return (ranks - 1.0) * (latency + message_bytes / (ranks * transfer_bandwidth))


# Matrix products in whole waves of tiles: on fewer multiprocessors, and cut into chunks.
#
# With the label ``compute = waves`` a mechanism's computation is a product of such a form, cut as
# the
# mechanism cuts it.  Step times are better had from the smooth form in `overhead.compute`, which
# was
# fitted on many shapes; this one shows what a cut or a carve-out does to one shape.

WAVES = {"compute": "waves"}
RING = {"mechanism": "ring_exchange|reduce_scatter_ring"}
SPLIT = {"mechanism": "reduce_scatter_pipeline"}
WHERE = "chapter 3, tile and wave quantization"


@formula(source=quantities.TILES, where=WHERE)
def tiles(
    matmul_rows: Array, tile_rows: Array, matmul_columns: Array, tile_columns: Array
) -> Array:
    """Tiles of a matrix product."""
    return np.ceil(matmul_rows / tile_rows) * np.ceil(matmul_columns / tile_columns)


@formula(source=quantities.TILES, where=WHERE)
def waves(tiles: Array, free_sms: Array) -> Array:
    """Waves of a product's tiles, one on each multiprocessor at a time."""
    return np.ceil(tiles / free_sms)


@formula(source=quantities.TILES, where=WHERE)
def wave_efficiency(tiles: Array, free_sms: Array) -> Array:
    """Tiles of a product by those that its waves have room for."""
    room = np.ceil(np.maximum(tiles, 1.0) / free_sms) * free_sms
    return np.where(tiles > 0.0, tiles / room, 1.0)


@formula(
    source=quantities.TILES,
    where=WHERE,
    assumes=("a multiprocessor has its part of the best product's rate",),
)
def tile_time(
    tile_rows: Array, tile_columns: Array, matmul_depth: Array, sms: Array, best_matmul_flops: Array
) -> Array:
    """Time in which one multiprocessor computes a tile, where it isn't given."""
    return 2.0 * tile_rows * tile_columns * matmul_depth * sms / best_matmul_flops


@formula(
    source=quantities.TILES, where="math and memory bounds", assumes=("each matrix is moved once",)
)
def moved_bytes(
    activation_bytes: Array, matmul_rows: Array, matmul_depth: Array, matmul_columns: Array
) -> Array:
    """Bytes that a product reads and writes."""
    inputs = matmul_rows * matmul_depth + matmul_depth * matmul_columns
    return activation_bytes * (inputs + matmul_rows * matmul_columns)


@formula(
    source=quantities.TILES,
    where=WHERE,
    assumes=("a tile takes as long whether its multiprocessor has neighbours or not",),
)
def wave_matmul_time(
    waves: Array, tile_time: Array, moved_bytes: Array, memory_bandwidth: Array, launch_time: Array
) -> Array:
    """Time of a matrix product in whole waves, or of its bytes if that is longer."""
    time = np.maximum(waves * tile_time, moved_bytes / memory_bandwidth) + launch_time
    return np.where(waves > 0.0, time, 0.0)


# Cut into chunks.


constant("product_chunks", 1.0, "Chunks of a product that isn't cut", like="matmul_rows")
alias(
    "product_chunks",
    "ranks",
    source=quantities.DECOMPOSED,
    where="decomposition into a loop of chunks",
    when=RING,
)


@formula(
    returns="product_chunks",
    source=quantities.ENGINE,
    where="aggregate",
    when={"mechanism": "ring_exchange_aggregate"},
)
def aggregate_chunks(ranks: Array) -> Array:
    """Chunks of a product whose input comes round a ring, two at a time."""
    return np.maximum(np.ceil(ranks / 2.0), 1.0)


alias("product_chunks", "splits", source=quantities.ENGINE, where="num_splits", when=SPLIT)


@formula(source=quantities.DECOMPOSED, where="decomposition into a loop of chunks")
def chunk_rows(matmul_rows: Array, product_chunks: Array) -> Array:
    """Rows of a chunk: rings cut along the tokens."""
    return np.ceil(matmul_rows / product_chunks)


alias(
    "chunk_columns",
    "matmul_columns",
    source=quantities.DECOMPOSED,
    where="decomposition into a loop of chunks",
)
alias("chunk_rows", "matmul_rows", source=quantities.ENGINE, where="num_splits", when=SPLIT)


@formula(
    returns="chunk_columns",
    source=quantities.ENGINE,
    where="num_splits: along the output's features",
    when=SPLIT,
)
def split_columns(matmul_columns: Array, product_chunks: Array) -> Array:
    """Columns of a part."""
    return np.ceil(matmul_columns / product_chunks)


CHUNK = {"matmul_rows": "chunk_rows", "matmul_columns": "chunk_columns"}
call(returns="whole_product_time", of="wave_matmul_time", bind={"free_sms": "sms"})
call(returns="chunk_product_time", of="wave_matmul_time", bind={**CHUNK, "free_sms": "sms"})
# A product in parts leaves room for what sends them.
call(returns="chunk_product_time", of="wave_matmul_time", bind=CHUNK, when=SPLIT)
call(returns="carved_compute_time", of="wave_matmul_time", bind={}, when=WAVES)
product(
    "compute_time",
    ("product_chunks", "chunk_product_time"),
    when={**WAVES, "mechanism": ONE_COMPUTATION},
    name="chunked_product_time",
)


@formula(source="derivation", assumes=("more than 1 where chunks fill their waves worse",))
def decomposition_factor(whole_product_time: Array, compute_time: Array) -> Array:
    """Time of a cut product by that of a whole one."""
    some = whole_product_time > 0.0
    return np.where(some, compute_time / np.where(some, whole_product_time, 1.0), 1.0)
